//! `Counters`: what flows have counted, as differences.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sluice_api::v1;
use sluice_flow::{Counters, Event, Timestamp, Ufid};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status;

use super::Api;
use super::apply::Answers;
use super::reader::Filter;
use super::writer::ufid_text;
use crate::observe::history::Page;

/// Differences in one message at the most.
const PAGE: usize = 2_048;

/// What was told of each flow, packets and bytes. One that was made anew under its name is another one, which was accepted later.
type Told = HashMap<(Ufid, Timestamp), (u64, u64)>;

/// Tells differences at the pace of the poll until the client is gone.
pub(super) fn counters(api: &Arc<Api>, request: &v1::CountersRequest) -> Result<Answers<v1::CountersResponse>, Status> {
    let filter = Arc::new(Filter::read(request.filter.as_ref(), &*api.service.view().ports())?);
    // What was told of each flow is remembered for each stream.
    let turn = api.counting.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Status::resource_exhausted("too many clients follow counters"))?;
    let (answer, answers) = mpsc::channel(2);
    let api = api.clone();
    tokio::spawn(async move {
        let (reader, mut from) = api.service.view().history().read();
        let mut told = Told::new();
        let mut polls = interval(api.service.view().config().poll_interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = polls.tick() => {}
                () = answer.closed() => break,
            }
            // Ends that come while the table is walked are told with the next poll.
            let Page { events, lost, next } = reader.page(from, usize::MAX);
            from = next;
            let (filtering, before) = (filter.clone(), std::mem::take(&mut told));
            let Ok((after, mut deltas)) = api.blocking(move |api| walk(api, &filtering, before)).await else { break };
            told = after;
            for seen in &events {
                if let Event::Deleted { flow, counters, accepted, .. } = &seen.event
                    && filter.wants(flow)
                {
                    deltas.push(end(&mut told, (flow.ufid, *accepted), *counters));
                }
            }
            if tell(deltas, lost > 0, &answer).await.is_err() {
                break;
            }
        }
        drop(turn);
    });
    Ok(answers)
}

/// What has come since it was last told, of each flow that is there.
fn walk(api: &Api, filter: &Filter, mut told: Told) -> (Told, Vec<v1::Delta>) {
    let mut deltas = Vec::new();
    let view = api.service.view();
    view.visit(&mut |flow| {
        if filter.wants_in(&flow.flow, flow.state) {
            let Counters { packets, bytes, used, .. } = flow.counters;
            let before = told.insert((flow.flow.ufid, flow.accepted), (packets, bytes));
            let (old_packets, old_bytes) = before.unwrap_or_default();
            if before.is_none() || packets > old_packets {
                deltas.push(v1::Delta {
                    ufid: ufid_text(flow.flow.ufid),
                    packets: packets - old_packets,
                    bytes: bytes.saturating_sub(old_bytes),
                    used: used.and_then(|used| view.now().since(used).try_into().ok()),
                    ended: false,
                });
            }
        }
        ControlFlow::Continue(())
    });
    (told, deltas)
}

/// What a flow that is gone has counted since it was last told.
fn end(told: &mut Told, flow: (Ufid, Timestamp), counters: Counters) -> v1::Delta {
    let Counters { packets, bytes, .. } = counters;
    let (old_packets, old_bytes) = told.remove(&flow).unwrap_or_default();
    v1::Delta {
        ufid: ufid_text(flow.0),
        packets: packets.saturating_sub(old_packets),
        bytes: bytes.saturating_sub(old_bytes),
        used: None,
        ended: true,
    }
}

/// Tells all of a poll.
async fn tell(
    mut deltas: Vec<v1::Delta>,
    lost: bool,
    answer: &mpsc::Sender<Result<v1::CountersResponse, Status>>,
) -> Result<(), ()> {
    loop {
        let rest = deltas.split_off(PAGE.min(deltas.len()));
        let complete = rest.is_empty();
        let response = v1::CountersResponse { deltas, complete, lost: lost && complete };
        answer.send(Ok(response)).await.map_err(|_| ())?;
        if complete {
            return Ok(());
        }
        deltas = rest;
    }
}
