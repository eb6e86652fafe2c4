//! `Counters`: what flows have counted, as differences.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sluice_api::v1;
use sluice_flow::{Counters, Event, Timestamp, Ufid};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use super::access::{Access, LOOK};
use super::reader::Filter;
use super::streaming::{Answers, look_after};
use super::writer::ufid_text;
use super::{Api, turn};
use crate::observe::history::Page;

/// Differences in one message at the most.
const PAGE: usize = 2_048;

/// A flow. One that was made anew under its name is another one, which was accepted later.
type Life = (Ufid, Timestamp);

/// What was told of each flow, packets and bytes.
#[derive(Default)]
struct Told {
    flows: HashMap<Life, (u64, u64)>,
    /// Those that a walk has not found after ends were lost. Their end is told with the next poll, or is lost.
    missing: HashMap<Life, (u64, u64)>,
}

/// Tells differences at the pace of the poll until the client is gone, or may not hear of them any more.
pub(super) fn counters(
    api: &Arc<Api>,
    access: Access,
    request: &v1::CountersRequest,
) -> Result<Answers<v1::CountersResponse>, Status> {
    let filter = Arc::new(Filter::read(request.filter.as_ref(), &*api.service.view().ports())?);
    // What was told of each flow is remembered for each stream.
    let turn = turn(&api.counting, "too many clients follow counters")?;
    let (answer, answers) = mpsc::channel(2);
    let (api, end) = (api.clone(), answer.clone());
    let task = tokio::spawn(async move {
        let (reader, mut from) = api.service.view().history().read();
        let mut told = Told::default();
        let mut due = Instant::now();
        let mut told_at = due;
        loop {
            let is_due = tokio::select! {
                () = sleep_until(due) => true,
                () = sleep(LOOK) => false,
                () = answer.closed() => break,
            };
            if let Err(status) = access.read() {
                // Nobody reads it if the client is gone.
                let _ = answer.send(Err(status)).await;
                break;
            }
            if is_due {
                told_at = Instant::now();
            }
            // The configuration may have changed.
            due = told_at + api.service.view().config().poll_interval;
            if !is_due {
                continue;
            }
            // Ends that come while the table is walked are told with the next poll.
            let Page { events, lost, next } = reader.page(from, usize::MAX);
            from = next;
            let mut deltas = Vec::new();
            for seen in &events {
                if let Event::Deleted { flow, counters, accepted, .. } = &seen.event
                    && filter.wants(flow)
                {
                    deltas.push(told.end((flow.ufid, *accepted), *counters));
                }
            }
            told.begin_walk(lost > 0);
            let (filtering, before) = (filter.clone(), std::mem::take(&mut told));
            let others;
            (told, others) = match api.blocking(move |api| walk(api, &filtering, before)).await {
                Ok(walked) => walked,
                Err(status) => {
                    // Nobody reads it if the client is gone.
                    let _ = answer.send(Err(status)).await;
                    break;
                }
            };
            deltas.extend(others);
            if tell(deltas, lost > 0, &answer).await.is_err() {
                break;
            }
        }
        drop(turn);
    });
    look_after(task, end);
    Ok(answers)
}

/// What has come since it was last told, of each flow that is there.
fn walk(api: &Api, filter: &Filter, mut told: Told) -> (Told, Vec<v1::Delta>) {
    let mut deltas = Vec::new();
    let view = api.service.view();
    view.visit(&mut |flow| {
        let life = (flow.flow.ufid, flow.accepted);
        told.find(life);
        if filter.wants_in(&flow.flow, flow.state) {
            let Counters { packets, bytes, used, .. } = flow.counters;
            let before = told.flows.insert(life, (packets, bytes));
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

impl Told {
    /// What a flow that is gone has counted since it was last told.
    fn end(&mut self, life: Life, counters: Counters) -> v1::Delta {
        let Counters { packets, bytes, .. } = counters;
        let told = self.flows.remove(&life).or_else(|| self.missing.remove(&life));
        let (old_packets, old_bytes) = told.unwrap_or_default();
        v1::Delta {
            ufid: ufid_text(life.0),
            packets: packets.saturating_sub(old_packets),
            bytes: bytes.saturating_sub(old_bytes),
            used: None,
            ended: true,
        }
    }

    /// Forgets the flows whose ends were lost before the last walk. If others were lost since, those that the next one does not find are
    /// missing.
    fn begin_walk(&mut self, has_lost: bool) {
        self.missing = if has_lost { std::mem::take(&mut self.flows) } else { HashMap::new() };
    }

    /// A flow is there.
    fn find(&mut self, life: Life) {
        if let Some(told) = self.missing.remove(&life) {
            self.flows.insert(life, told);
        }
    }
}

/// Tells all of a poll.
async fn tell(
    deltas: Vec<v1::Delta>,
    lost: bool,
    answer: &mpsc::Sender<Result<v1::CountersResponse, Status>>,
) -> Result<(), ()> {
    let mut rest = deltas.into_iter();
    loop {
        let deltas = rest.by_ref().take(PAGE).collect();
        let complete = rest.len() == 0;
        let response = v1::CountersResponse { deltas, complete, lost: lost && complete };
        answer.send(Ok(response)).await.map_err(|_| ())?;
        if complete {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_whose_ends_were_lost_are_forgotten_and_those_that_end_meanwhile_are_told_exactly() {
        let life = |name| (Ufid(name), Timestamp(0));
        let counters = |packets| Counters { packets, bytes: packets * 100, ..Counters::default() };
        let mut told = Told::default();
        told.flows.extend((1..=3).map(|name| (life(name), (5, 500))));
        told.begin_walk(true);
        told.find(life(1));
        // The second one ended before the walk came to it.
        let delta = told.end(life(2), counters(8));
        assert_eq!((delta.packets, delta.bytes), (3, 300));
        told.begin_walk(false);
        let delta = told.end(life(1), counters(6));
        assert_eq!((delta.packets, delta.bytes), (1, 100));
        assert!(told.flows.is_empty() && told.missing.is_empty(), "nothing is left of the third one");
    }
}
