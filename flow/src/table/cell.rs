//! The counter state of one flow, kept in arrays by slot, apart from the records, so that a poll walks little memory.

use super::{AgeView, ExpiryClass};
use crate::counters::{Counters, Reading, Sampled};
use crate::id::{FlowId, Generation};
use crate::time::Timestamp;

/// What is known of a flow's counters, over all rules that it ever had.
#[derive(Clone, Copy, Default)]
pub(super) struct Cell {
    /// Which life of the slot this is, so that a late reading of an earlier one is told apart.
    incarnation: u32,
    /// How the flow ages, if it is still wanted.
    class: ExpiryClass,
    /// Counted by rules that are gone.
    base: Counters,
    /// The last reading of the rule that is there.
    current: Counters,
    /// The generation with which that rule was installed; none if there is no rule.
    installed_as: Generation,
    /// Readings newer than the last change, at most [`AgeView::ENOUGH`].
    fresh: u8,
    /// When the rule was last installed or changed.
    changed: Timestamp,
    /// The latest time of a packet that readings show, as far as they tell, or when the rule was last changed.
    grown: Timestamp,
    /// Up to when the last reading holds every packet.
    read: Timestamp,
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
    pub(super) fn new(incarnation: u32, class: ExpiryClass, now: Timestamp) -> Self {
        Self { incarnation, class, changed: now, grown: now, ..Self::default() }
    }

    /// A rule was installed; it counts from zero.
    pub(super) fn begin(&mut self, installed_as: Generation, now: Timestamp) {
        self.installed_as = installed_as;
        self.current = Counters::default();
        self.touch(now);
    }

    /// The rule was changed; it counts on, and what was read before says nothing about idleness.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.fresh = 0;
        self.changed = now;
        self.grown = now;
    }

    /// The rule is gone, with these as its last counters.
    pub(super) fn end(&mut self, last: Option<Counters>) {
        if let Some(last) = last {
            self.advance(&last);
        }
        self.base = self.total();
        self.current = Counters::default();
        self.installed_as = Generation::NONE;
    }

    /// A reading of what the device counted at a time.
    pub(super) fn apply(&mut self, reading: &Reading, sampled: Sampled) -> Applied {
        let Sampled { earliest, latest } = sampled;
        let Reading { flow, installed_as, counters } = reading;
        if flow.incarnation != self.incarnation || *installed_as != self.installed_as {
            return Applied::Foreign;
        }
        if counters.packets < self.current.packets || counters.bytes < self.current.bytes {
            // The device starts again: what it had shown is kept, what it shows now comes on top.
            self.base = self.total();
            self.current = Counters { used: None, tcp_flags: 0, ..*counters };
            self.touch(latest);
            return Applied::Backwards;
        }
        self.read = self.read.max(earliest);
        if earliest >= self.changed {
            self.fresh = (self.fresh + 1).min(AgeView::ENOUGH);
        }
        let grown = counters.packets > self.current.packets;
        if grown {
            self.grown = counters.used.unwrap_or(latest).clamp(self.grown, latest.max(self.grown));
        }
        self.advance(counters);
        if grown {
            self.current.used = Some(counters.used.unwrap_or(latest));
            Applied::Grown
        } else {
            Applied::Still
        }
    }

    fn advance(&mut self, to: &Counters) {
        self.current.packets = self.current.packets.max(to.packets);
        self.current.bytes = self.current.bytes.max(to.bytes);
        self.current.used = self.current.used.max(to.used);
        self.current.tcp_flags |= to.tcp_flags;
    }

    /// All that the flow ever counted.
    pub(super) fn total(&self) -> Counters {
        Counters {
            packets: self.base.packets.saturating_add(self.current.packets),
            bytes: self.base.bytes.saturating_add(self.current.bytes),
            used: self.base.used.max(self.current.used),
            tcp_flags: self.base.tcp_flags | self.current.tcp_flags,
        }
    }

    /// How the flow ages from now on.
    pub(super) fn set_class(&mut self, class: ExpiryClass) {
        self.class = class;
    }

    /// What ageing must know of the flow; `None` if there is none that is wanted.
    pub(super) fn age(&self, slot: u32) -> Option<AgeView> {
        (self.class != ExpiryClass::NONE).then(|| AgeView {
            id: FlowId { slot, incarnation: self.incarnation },
            class: self.class,
            fresh: if self.installed_as == Generation::NONE { 0 } else { self.fresh },
            grown: self.grown,
            read: self.read,
            packets: self.base.packets.saturating_add(self.current.packets),
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

    fn cell(incarnation: u32) -> Cell {
        Cell::new(incarnation, Expiries::new().class(&Expiry::default()), Timestamp(0))
    }

    fn idle(cell: &Cell) -> Option<Duration> {
        cell.age(0).unwrap().idle()
    }

    #[test]
    fn a_rule_that_is_replaced_hands_its_count_on() {
        let mut cell = cell(4);
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
    fn a_reading_of_an_earlier_life_is_foreign() {
        let mut cell = cell(5);
        cell.begin(Generation(1), Timestamp(0));
        assert_eq!(cell.apply(&reading(1, 9), sampled(1, 1)), Applied::Foreign);
        assert_eq!(cell.total(), Counters::default());
    }

    #[test]
    fn counters_never_run_backwards() {
        let mut cell = cell(4);
        cell.begin(Generation(1), Timestamp(0));
        cell.apply(&reading(1, 10), sampled(1, 1));
        assert_eq!(cell.apply(&reading(1, 3), sampled(2, 2)), Applied::Backwards);
        assert_eq!(cell.total().packets, 13);
        cell.apply(&reading(1, 4), sampled(3, 3));
        assert_eq!(cell.total().packets, 14);
    }

    #[test]
    fn nothing_is_idle_on_fewer_than_two_fresh_readings() {
        let mut cell = cell(4);
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
