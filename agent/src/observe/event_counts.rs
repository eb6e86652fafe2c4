//! What is counted of what happens to flows: a row says which event counts, and as what that is shown.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sluice_flow::backend::Placement;
use sluice_flow::{EndReason, Event, Refusal};

use self::EventMetric::{Operation, Rebalancing};

/// A row: one total of events.
pub(crate) struct EventCount {
    /// Its place in the object of `sluice/stats`.
    pub(crate) stats: &'static str,
    /// Its name in `coverage/show`.
    pub(crate) coverage: &'static str,
    pub(crate) metric: EventMetric,
    pub(crate) read: fn(&EventCounts) -> u64,
}

/// The metric that a row is a part of, and the value of the label that tells it from the others.
#[derive(Clone, Copy)]
pub(crate) enum EventMetric {
    /// Something was done to flows.
    Operation(&'static str),
    /// Rules were moved, in this direction.
    Rebalancing(&'static str),
}

macro_rules! event_counts {
    ($($event:pat => $counter:ident $name:literal $metric:expr;)*) => {
        /// How often what happened.
        #[derive(Debug, Default)]
        pub struct EventCounts {
            // Some are counted by callers and some by workers: apart, so that neither waits for the other.
            $(
                #[doc = concat!("`", $name, "`")]
                pub $counter: CachePadded<AtomicU64>,
            )*
            /// Refusals, by [`Refusal::LABELS`].
            pub refused: [AtomicU64; Refusal::LABELS.len()],
            /// Ends of flows, by [`EndReason::ALL`].
            pub ended: [AtomicU64; EndReason::ALL.len()],
            /// Packets of flows that have ended.
            pub ended_packets: AtomicU64,
            /// Bytes of flows that have ended.
            pub ended_bytes: AtomicU64,
            /// Events that a slow watcher did not get.
            pub unwatched: AtomicU64,
        }

        /// The rows.
        pub(crate) const EVENT_COUNTS: &[EventCount] = &[$(EventCount {
            stats: concat!("events.", $name),
            coverage: concat!("flow_", $name),
            metric: $metric,
            read: |counts| counts.$counter.load(Ordering::Relaxed),
        },)*];

        impl EventCounts {
            /// Counts an event.
            pub(super) fn count(&self, event: &Event) {
                match event {
                    $($event => add(&self.$counter, 1),)*
                    Event::Refused { refusal, .. } => self.count_refusal(refusal),
                    Event::Deleted { reason, counters, .. } => {
                        add(&self.ended[*reason as usize], 1);
                        add(&self.ended_packets, counters.packets);
                        add(&self.ended_bytes, counters.bytes);
                    }
                    // A flow that is to go is counted once it is gone, by the reason.
                    _ => {}
                }
            }
        }
    };
}

event_counts! {
    Event::Accepted(_) => accepted "accepted" Operation("accept");
    Event::Installed { .. } => installed "installed" Operation("install");
    Event::Adopted { .. } => adopted "adopted" Operation("adopt");
    Event::Modified { .. } => modified "modified" Operation("modify");
    Event::Moved { placement: Placement::Hardware | Placement::Both, .. } => moved_up "moved_up" Rebalancing("up");
    Event::Moved { .. } => moved_down "moved_down" Rebalancing("down");
}

impl EventCounts {
    /// Counts a refusal: by the device, or of a request that was not even taken on.
    pub(super) fn count_refusal(&self, refusal: &Refusal) {
        let label = Refusal::LABELS.iter().position(|label| *label == refusal.label());
        label.into_iter().for_each(|index| add(&self.refused[index], 1));
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_flow::key::{MaskedKey, Match};
    use sluice_flow::ufid::Seed;
    use sluice_flow::{Counters, Expiry, Flow, Priority, Timestamp};

    use super::*;

    /// An event of each kind, and of one that moves in each direction.
    fn events() -> Vec<Event> {
        let matching = MaskedKey::new(&Match::default());
        let flow = Flow::new(None, matching, [].into(), Priority::default(), Expiry::default(), &Seed([0; 16]));
        let flow = || flow.clone();
        let refusal = Arc::new(Refusal::Combination { reason: "a test".into() });
        let counters = Counters { packets: 3, bytes: 180, ..Counters::default() };
        vec![
            Event::Accepted(flow()),
            Event::Installed { flow: flow(), placement: Placement::Hardware },
            Event::Adopted { flow: flow(), placement: Placement::Software },
            Event::Modified { flow: flow(), placement: Placement::Hardware },
            Event::Moved { flow: flow(), placement: Placement::Hardware },
            Event::Moved { flow: flow(), placement: Placement::Software },
            Event::Refused { flow: flow(), refusal },
            Event::Aged { flow: flow(), reason: EndReason::Idle },
            Event::Evicted { flow: flow(), reason: EndReason::Limit },
            Event::Deleted { flow: flow(), reason: EndReason::Hard, counters, accepted: Timestamp(0) },
        ]
    }

    /// The totals that are not zero, by the names under which `stats` shows them.
    fn totals(counts: &EventCounts) -> Vec<(String, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows = EVENT_COUNTS.iter().map(|row| (row.stats.to_owned(), (row.read)(counts)));
        let refused = Refusal::LABELS.iter().zip(&counts.refused);
        let refused = refused.map(|(label, count)| (format!("events.refused.{label}"), read(count)));
        let ended = EndReason::ALL.iter().zip(&counts.ended);
        let ended = ended.map(|(reason, count)| (format!("events.ended.{}", reason.name()), read(count)));
        rows.chain(refused).chain(ended).filter(|(_, total)| *total != 0).collect()
    }

    #[test]
    fn what_watch_calls_an_event_is_what_its_total_is_called() {
        let mut seen = Vec::new();
        for event in events() {
            let counts = EventCounts::default();
            counts.count(&event);
            let name = event.name();
            let expected = match (&event, event.reason()) {
                // These announce the end of a flow, which is counted when it comes.
                (Event::Aged { .. } | Event::Evicted { .. }, _) => None,
                (_, Some(reason)) => Some(format!("events.ended.{}", reason.name())),
                _ => event.refusal().map(|refusal| format!("events.{name}.{}", refusal.label())).or_else(|| {
                    let direction =
                        event.placement().map(|placement| if placement == Placement::Hardware { "up" } else { "down" });
                    let direction = direction.filter(|_| name == "moved").map(|direction| format!("_{direction}"));
                    Some(format!("events.{name}{}", direction.unwrap_or_default()))
                }),
            };
            assert_eq!(totals(&counts), expected.map(|name| (name, 1)).into_iter().collect::<Vec<_>>(), "{event}");
            seen.push(name);
        }
        seen.dedup();
        assert_eq!(seen, Event::NAMES, "an event is not counted");
    }
}
