//! The counter state of one flow, kept in arrays by slot, apart from the records, so that a poll walks little memory.

use std::num::NonZero;

use super::{AgeView, ExpiryClass};
use crate::counters::{Counters, Reading, Sampled};
use crate::id::{FlowId, Generation};
use crate::time::Timestamp;

/// What is known of a flow's counters, over all rules that it ever had.
#[derive(Default)]
pub(super) struct Cell {
    /// Counted by rules that are gone; most flows have but one in their life.
    base: Option<Box<Counters>>,
    /// The last reading of the rule that is there.
    packets: u64,
    bytes: u64,
    used: Used,
    /// The latest time of a packet that readings show, as far as they tell, or when the rule was last changed.
    grown: Timestamp,
    /// Up to when the last fresh reading holds every packet; without one, when the rule was last installed or changed.
    read: Timestamp,
    /// The generation with which the rule was installed; none if there is no rule.
    installed_as: Generation,
    tcp_flags: u16,
    /// Readings newer than the last change, at most [`AgeView::ENOUGH`].
    fresh: u8,
    /// How the flow ages, if it is still wanted.
    class: ExpiryClass,
}

/// The time of the last packet, if it is known, in as many octets as the time alone.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Used(Option<NonZero<u64>>);

impl Used {
    fn new(time: Option<Timestamp>) -> Self {
        Self(time.and_then(|time| NonZero::new(time.0.saturating_add(1))))
    }

    fn time(self) -> Option<Timestamp> {
        self.0.map(|time| Timestamp(time.get() - 1))
    }
}

/// What a reading did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It showed growth.
    Grown,
    /// It showed nothing new.
    Still,
    /// It is of a rule that is not there any more, or not yet.
    Foreign,
    /// It is less than the one before: the device lost count. What had been counted is kept.
    Backwards,
}

impl Cell {
    /// The counters of a new life.
    pub(super) fn new(class: ExpiryClass, now: Timestamp) -> Self {
        Self { class, read: now, grown: now, ..Self::default() }
    }

    /// A rule was installed; it counts from zero.
    pub(super) fn begin(&mut self, installed_as: Generation, now: Timestamp) {
        self.installed_as = installed_as;
        self.count_from(&Counters::default());
        self.touch(now);
    }

    /// The rule was changed; it counts on, and what was read before says nothing about idleness.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.fresh = 0;
        self.read = now;
        self.grown = now;
    }

    /// The rule is gone, with these as its last counters.
    pub(super) fn end(&mut self, last: Option<Counters>) {
        if let Some(last) = last {
            self.advance(&last);
        }
        self.keep_total();
        self.count_from(&Counters::default());
        self.installed_as = Generation::NONE;
    }

    /// A reading of what the device counted at a time; no reading is older than the one before.
    pub(super) fn apply(&mut self, reading: &Reading, sampled: Sampled) -> Applied {
        let Sampled { earliest, latest } = sampled;
        let Reading { installed_as, counters, .. } = reading;
        if *installed_as != self.installed_as {
            return Applied::Foreign;
        }
        if counters.packets < self.packets || counters.bytes < self.bytes {
            // The device starts again: what it had shown is kept, what it shows now comes on top.
            self.keep_total();
            self.count_from(&Counters { used: None, tcp_flags: 0, ..*counters });
            self.touch(latest);
            return Applied::Backwards;
        }
        if earliest >= self.read {
            self.read = earliest;
            self.fresh = (self.fresh + 1).min(AgeView::ENOUGH);
        }
        let grown = counters.packets > self.packets;
        if grown {
            self.grown = counters.used.unwrap_or(latest).clamp(self.grown, latest.max(self.grown));
        }
        self.advance(counters);
        if grown {
            self.used = Used::new(Some(counters.used.unwrap_or(latest)));
            Applied::Grown
        } else {
            Applied::Still
        }
    }

    fn advance(&mut self, to: &Counters) {
        self.packets = self.packets.max(to.packets);
        self.bytes = self.bytes.max(to.bytes);
        self.used = self.used.max(Used::new(to.used));
        self.tcp_flags |= to.tcp_flags;
    }

    fn count_from(&mut self, start: &Counters) {
        let Counters { packets, bytes, used, tcp_flags } = *start;
        (self.packets, self.bytes, self.used, self.tcp_flags) = (packets, bytes, Used::new(used), tcp_flags);
    }

    fn keep_total(&mut self) {
        let total = self.total();
        self.base = (total != Counters::default()).then(|| Box::new(total));
    }

    /// All that the flow ever counted.
    pub(super) fn total(&self) -> Counters {
        let (packets, bytes, used, tcp_flags) = (self.packets, self.bytes, self.used.time(), self.tcp_flags);
        match &self.base {
            None => Counters { packets, bytes, used, tcp_flags },
            Some(base) => Counters {
                packets: base.packets.saturating_add(packets),
                bytes: base.bytes.saturating_add(bytes),
                used: base.used.max(used),
                tcp_flags: base.tcp_flags | tcp_flags,
            },
        }
    }

    /// How the flow ages from now on.
    pub(super) fn set_class(&mut self, class: ExpiryClass) {
        self.class = class;
    }

    /// What ageing must know of the flow; `None` if there is none that is wanted.
    pub(super) fn age(&self, id: FlowId) -> Option<AgeView> {
        (self.class != ExpiryClass::NONE).then(|| AgeView {
            id,
            class: self.class,
            fresh: if self.installed_as == Generation::NONE { 0 } else { self.fresh },
            grown: self.grown,
            read: self.read,
            packets: self.packets.saturating_add(self.base.as_ref().map_or(0, |base| base.packets)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Expiry;
    use crate::table::expiries::Expiries;
    use std::time::Duration;

    fn counters(packets: u64) -> Counters {
        Counters { packets, bytes: packets * 100, ..Counters::default() }
    }

    fn sampled(earliest: u64, latest: u64) -> Sampled {
        Sampled { earliest: Timestamp(earliest), latest: Timestamp(latest) }
    }

    fn reading(installed_as: u32, packets: u64) -> Reading {
        let flow = FlowId { slot: 0, incarnation: 4 };
        Reading { flow, installed_as: Generation(installed_as), counters: counters(packets) }
    }

    fn cell() -> Cell {
        Cell::new(Expiries::new().class(&Expiry::default()), Timestamp(0))
    }

    fn idle(cell: &Cell) -> Option<Duration> {
        cell.age(FlowId { slot: 0, incarnation: 4 }).unwrap().idle()
    }

    #[test]
    fn a_rule_that_is_replaced_hands_its_count_on() {
        let mut cell = cell();
        cell.begin(Generation(1), Timestamp(0));
        assert_eq!(cell.apply(&reading(1, 5), sampled(1, 1)), Applied::Grown);
        cell.end(Some(counters(7)));
        cell.begin(Generation(3), Timestamp(2));
        assert_eq!(cell.apply(&reading(1, 6), sampled(3, 3)), Applied::Foreign);
        assert_eq!(cell.apply(&reading(3, 2), sampled(3, 3)), Applied::Grown);
        assert_eq!(cell.total().packets, 9);
        assert_eq!(cell.total().bytes, 900);
    }

    #[test]
    fn counters_never_run_backwards() {
        let mut cell = cell();
        cell.begin(Generation(1), Timestamp(0));
        cell.apply(&reading(1, 10), sampled(1, 1));
        assert_eq!(cell.apply(&reading(1, 3), sampled(2, 2)), Applied::Backwards);
        assert_eq!(cell.total().packets, 13);
        cell.apply(&reading(1, 4), sampled(3, 3));
        assert_eq!(cell.total().packets, 14);
    }

    #[test]
    fn nothing_is_idle_on_fewer_than_two_fresh_readings() {
        let mut cell = cell();
        cell.begin(Generation(1), Timestamp(100));
        cell.apply(&reading(1, 0), sampled(90, 110));
        assert_eq!(idle(&cell), None, "it may be of a time before the rule was there");
        cell.apply(&reading(1, 0), sampled(200, 200));
        assert_eq!(idle(&cell), None);
        cell.apply(&reading(1, 0), sampled(300, 300));
        assert_eq!(idle(&cell), Some(Duration::from_nanos(200)), "as of the last reading");
        cell.touch(Timestamp(310));
        assert_eq!(idle(&cell), None, "a change makes older readings stale");
    }
}
