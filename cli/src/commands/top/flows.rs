//! What flows have counted between two looks.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Deserialize;
use sluice_flow::Ufid;

use super::Sort;
use crate::connection::Connection;
use crate::error::CliError;

const METHOD: &str = "sluice/dump-flows";

/// So many frames are in a sparkline.
const FRAMES: usize = 8;

/// What one look at all flows finds.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) now: Snapshot,
    /// The first ones, in order.
    pub(super) busiest: Vec<Busy>,
    /// Flows that pass the filter.
    pub(super) shown: usize,
    /// Those of them that have grown, and by how much all of them a second.
    pub(super) grown: usize,
    pub(super) packets: f64,
    pub(super) bytes: f64,
}

/// What all flows have counted at one time. Their texts are not kept, so that a million of them fit.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    at: Option<Instant>,
    flows: HashMap<Ufid, Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    packets: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Flow<'a> {
    #[serde(borrow)]
    ufid: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    actions: Cow<'a, str>,
    placement: Option<Cow<'a, str>>,
    packets: u64,
    bytes: u64,
}

/// How much a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Rate {
    pub(super) packets: f64,
    pub(super) bytes: f64,
}

/// A flow that grew.
#[derive(Debug)]
pub(super) struct Busy {
    pub(super) ufid: Ufid,
    pub(super) rate: Rate,
    pub(super) placement: String,
    pub(super) key: String,
    pub(super) actions: String,
}

/// Goes through all flows once.
pub(super) fn look(
    connection: &mut Connection,
    before: Option<&Snapshot>,
    filter: &str,
    sort: Sort,
    rows: usize,
) -> Result<Look, CliError> {
    let known = before.map_or(0, Snapshot::len);
    let at = Instant::now();
    let now = Snapshot { at: Some(at), flows: HashMap::with_capacity(known) };
    let mut found = Look { now, ..Look::default() };
    connection.lines(METHOD, &[], &mut |line| {
        let flow: Flow<'_> = serde_json::from_str(line).map_err(|_| CliError::answer(METHOD, line))?;
        let ufid = flow.ufid.parse().map_err(|_| CliError::answer(METHOD, line))?;
        found.take(ufid, &flow, before, filter, sort, rows);
        Ok(())
    })?;
    Ok(found)
}

impl Look {
    fn take(&mut self, ufid: Ufid, flow: &Flow<'_>, before: Option<&Snapshot>, filter: &str, sort: Sort, rows: usize) {
        self.now.flows.insert(ufid, Counted { packets: flow.packets, bytes: flow.bytes });
        if !flow.key.contains(filter) && !flow.actions.contains(filter) {
            return;
        }
        self.shown += 1;
        let Some(rate) = before.and_then(|before| before.rate(ufid, flow, self.now.at?)) else { return };
        self.grown += 1;
        self.packets += rate.packets;
        self.bytes += rate.bytes;
        let comes_first = |busy: &Busy| match sort {
            Sort::Packets => busy.rate.packets >= rate.packets,
            Sort::Bytes => busy.rate.bytes >= rate.bytes,
            Sort::Key => busy.key.as_str().cmp(&flow.key) != Ordering::Greater,
        };
        let place = self.busiest.partition_point(comes_first);
        if place < rows {
            self.busiest.truncate(rows - 1);
            let placement = flow.placement.as_deref().unwrap_or("-").to_owned();
            let (key, actions) = (flow.key.to_string(), flow.actions.to_string());
            self.busiest.insert(place, Busy { ufid, rate, placement, key, actions });
        }
    }
}

impl Snapshot {
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// How fast a flow has grown since, if it has. One that is new grew from nothing.
    fn rate(&self, ufid: Ufid, flow: &Flow<'_>, now: Instant) -> Option<Rate> {
        let seconds = now.saturating_duration_since(self.at?).max(Duration::from_millis(1)).as_secs_f64();
        let Counted { packets, bytes } = self.flows.get(&ufid).copied().unwrap_or(Counted { packets: 0, bytes: 0 });
        let grown = (flow.packets.checked_sub(packets)?, flow.bytes.checked_sub(bytes)?);
        #[expect(clippy::cast_precision_loss, reason = "rates for people to read")]
        let rate = Rate { packets: grown.0 as f64 / seconds, bytes: grown.1 as f64 / seconds };
        (grown.0 > 0).then_some(rate)
    }

    #[cfg(test)]
    pub(super) fn of(flows: usize) -> Self {
        let flows = (0..flows as u128).map(|ufid| (Ufid(ufid), Counted { packets: 0, bytes: 0 })).collect();
        Self { at: Some(Instant::now()), flows }
    }
}

/// The rates of flows over the last frames, of those that were among the first in one of them.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<Ufid, VecDeque<Option<Rate>>>);

impl History {
    /// Adds a frame.
    pub(super) fn note(&mut self, busiest: &[Busy]) {
        for busy in busiest {
            self.0.entry(busy.ufid).or_default();
        }
        let rates: HashMap<_, _> = busiest.iter().map(|busy| (busy.ufid, busy.rate)).collect();
        for (ufid, frames) in &mut self.0 {
            frames.push_back(rates.get(ufid).copied());
            if frames.len() > FRAMES {
                frames.pop_front();
            }
        }
        self.0.retain(|_, frames| frames.iter().any(Option::is_some));
    }

    /// The rates of a flow as bars, against its greatest one; a blank where it was not among the first.
    pub(super) fn sparkline(&self, ufid: Ufid, by_bytes: bool) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let frames: Vec<_> = self.0.get(&ufid).into_iter().flatten().collect();
        let number = |rate: &Rate| if by_bytes { rate.bytes } else { rate.packets };
        let greatest = frames.iter().filter_map(|rate| rate.as_ref().map(number)).fold(0.0, f64::max);
        let bar = |rate: &&Option<Rate>| {
            let Some(rate) = rate else { return ' ' };
            let share = if greatest > 0.0 { number(rate) / greatest } else { 0.0 };
            let place = BARS.iter().zip(1_u8..).find(|(_, step)| share <= f64::from(*step) / 8.0);
            place.map_or('█', |(bar, _)| *bar)
        };
        let bars: String = frames.iter().map(bar).collect();
        format!("{bars:>FRAMES$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(packets: u64, key: &str) -> Flow<'_> {
        let (key, bytes) = (Cow::Borrowed(key), packets * 60);
        Flow { ufid: "".into(), key, actions: "server".into(), placement: None, packets, bytes }
    }

    fn found(filter: &str, sort: Sort) -> Vec<(f64, String)> {
        let at = Instant::now();
        let counted = |packets: u64| Counted { packets, bytes: packets * 60 };
        let before: HashMap<_, _> =
            [100, 5, 7].into_iter().zip(0..).map(|(packets, ufid)| (Ufid(ufid), counted(packets))).collect();
        let before = Snapshot { at: Some(at), flows: before };
        let now = Snapshot { at: Some(at + Duration::from_secs(2)), ..Snapshot::default() };
        let mut found = Look { now, ..Look::default() };
        for ((packets, key), ufid) in [(100, "d"), (25, "c"), (17, "b"), (100, "a")].into_iter().zip(0..) {
            found.take(Ufid(ufid), &flow(packets, key), Some(&before), filter, sort, 2);
        }
        found.busiest.into_iter().map(|busy| (busy.rate.packets, busy.key)).collect()
    }

    #[test]
    fn the_busiest_come_first_and_the_idle_not_at_all() {
        assert_eq!(found("", Sort::Packets), [(50.0, "a".into()), (10.0, "c".into())]);
        assert_eq!(found("", Sort::Key), [(50.0, "a".into()), (5.0, "b".into())]);
        assert_eq!(found("c", Sort::Bytes), [(10.0, "c".into())]);
        assert_eq!(found("server", Sort::Packets).len(), 2, "actions are searched, too");
    }

    #[test]
    fn a_sparkline_is_against_the_greatest_rate_of_its_flow() {
        let mut history = History::default();
        let busy = |packets: f64| {
            let rate = Rate { packets, bytes: 0.0 };
            vec![Busy { ufid: Ufid(1), rate, placement: String::new(), key: String::new(), actions: String::new() }]
        };
        for packets in [10.0, 40.0, 80.0] {
            history.note(&busy(packets));
        }
        history.note(&[]);
        assert_eq!(history.sparkline(Ufid(1), false), "    ▁▄█ ");
        assert_eq!(history.sparkline(Ufid(2), false), "        ");
        (0..8).for_each(|_| history.note(&[]));
        assert!(history.0.is_empty(), "who is gone is forgotten");
    }
}
