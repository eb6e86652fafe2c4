//! The counter state of one flow, kept in arrays by slot, apart from the records, so that a poll walks little memory.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::ExpiryClass;
use super::sync::{Mutex, MutexGuard};
use crate::counters::{Counters, Reading, Sampled};
use crate::id::{FlowId, Generation};
use crate::time::Timestamp;

/// What is known of a flow's counters, over all rules that it ever had.
///
/// Packed, so that with its lock it takes 40 bytes.
#[derive(Default)]
#[repr(Rust, packed)]
pub(super) struct Cell {
    /// The last reading of the rule that is there.
    packets: u64,
    bytes: u64,
    /// The latest time of a packet that readings show, as far as they tell, or when the rule was last changed.
    grown: Timestamp,
    /// Up to when the last fresh reading holds every packet; without one, when the rule was last installed or changed.
    read: Timestamp,
    /// The generation with which the rule was installed; none if there is no rule.
    installed_as: Generation,
    /// The rule's, of 12 bits, and above these what the constants of [`Cell`] say.
    tcp_flags: u16,
    age: Age,
}

/// The bases of cells, by their places: what was counted by rules that are gone, and when the rule that is there was last used before it was
/// changed. Most flows have neither in their life.
#[derive(Default)]
pub(super) struct Bases(Mutex<BTreeMap<usize, Counters>>);

/// A cell that is locked, and where its base is if it has one.
pub(super) struct CellGuard<'a> {
    cell: MutexGuard<'a, Cell>,
    bases: &'a Bases,
    place: usize,
}

/// How the flow ages, if it is still wanted, and above that the readings newer than the last change, at most
/// [`AgeView::ENOUGH`].
#[derive(Clone, Copy, Default)]
struct Age(u8);

impl Age {
    const CLASS_BITS: u32 = 6;

    fn new(class: ExpiryClass, fresh: u8) -> Self {
        Self(fresh << Self::CLASS_BITS | class.bits())
    }

    fn class(self) -> ExpiryClass {
        ExpiryClass::from_bits(self.0 & ((1 << Self::CLASS_BITS) - 1))
    }

    fn fresh(self) -> u8 {
        self.0 >> Self::CLASS_BITS
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
    /// In `tcp_flags`: `grown` is the time of a packet.
    const USED: u16 = 1 << 15;
    /// In `tcp_flags`: there is a base.
    const HAS_BASE: u16 = 1 << 14;
    /// In `tcp_flags`: the flow is a source's, which wants to hear what is new.
    const FOLLOWED: u16 = 1 << 13;
    /// In `tcp_flags`: its source has not been shown what has come since it was last shown.
    const NEWS: u16 = 1 << 12;
    const TCP_FLAGS: u16 = (1 << 12) - 1;

    /// Something is new of the flow.
    pub(super) fn note(&mut self) {
        if self.tcp_flags & Self::FOLLOWED != 0 {
            self.tcp_flags |= Self::NEWS;
        }
    }

    /// Whether something is new that its source has not been shown.
    pub(super) fn has_news(&self) -> bool {
        self.tcp_flags & Self::NEWS != 0
    }

    /// Its source is shown what is new.
    pub(super) fn show(&mut self) {
        self.tcp_flags &= !Self::NEWS;
    }

    /// How the flow ages from now on.
    pub(super) fn set_class(&mut self, class: ExpiryClass) {
        self.age = Age::new(class, self.age.fresh());
    }

    fn advance(&mut self, to: &Counters) {
        self.packets = to.packets.max(self.packets);
        self.bytes = to.bytes.max(self.bytes);
        self.tcp_flags |= to.tcp_flags & Self::TCP_FLAGS;
    }

    fn count_from(&mut self, packets: u64, bytes: u64) {
        (self.packets, self.bytes) = (packets, bytes);
        self.tcp_flags &= !(Self::TCP_FLAGS | Self::USED);
    }

    fn use_at(&mut self, time: Timestamp) {
        self.grown = time;
        self.tcp_flags |= Self::USED;
    }

    /// When the last packet that readings show came since the rule was last changed.
    fn used(&self) -> Option<Timestamp> {
        (self.tcp_flags & Self::USED != 0).then_some(self.grown)
    }
}

impl<'a> CellGuard<'a> {
    pub(super) fn new(cell: MutexGuard<'a, Cell>, bases: &'a Bases, place: usize) -> Self {
        Self { cell, bases, place }
    }

    /// A life begins, which a source follows or does not.
    pub(super) fn start(&mut self, class: ExpiryClass, now: Timestamp, is_followed: bool) {
        self.set_base(None);
        let tcp_flags = if is_followed { Cell::FOLLOWED } else { 0 };
        *self.cell = Cell { age: Age::new(class, 0), read: now, grown: now, tcp_flags, ..Cell::default() };
    }

    /// A rule was installed; it counts from zero.
    pub(super) fn begin(&mut self, installed_as: Generation, now: Timestamp) {
        self.installed_as = installed_as;
        self.count_from(0, 0);
        self.touch(now);
        self.note();
    }

    /// The rule was changed; it counts on, and what was read before says nothing about idleness.
    pub(super) fn touch(&mut self, now: Timestamp) {
        if let Some(used) = self.used() {
            let mut base = self.base();
            base.used = base.used.max(Some(used));
            self.set_base(Some(base));
            self.tcp_flags &= !Cell::USED;
        }
        self.age = Age::new(self.age.class(), 0);
        self.read = now;
        self.grown = now;
    }

    /// The rule is gone, with these as its last counters.
    pub(super) fn end(&mut self, last: Option<Counters>) {
        if let Some(last) = last {
            if let Some(used) = last.used.filter(|_| last.packets > self.packets) {
                let used = used.max(self.grown);
                self.use_at(used);
            }
            self.advance(&last);
        }
        self.keep_total();
        self.count_from(0, 0);
        self.installed_as = Generation::NONE;
    }

    /// A reading of what the device counted at a time; no reading is older than the one before.
    pub(super) fn apply(&mut self, reading: &Reading, sampled: Sampled) -> Applied {
        let Sampled { earliest, latest } = sampled;
        let Reading { installed_as, counters, .. } = reading;
        if *installed_as != { self.installed_as } {
            return Applied::Foreign;
        }
        if counters.packets < self.packets || counters.bytes < self.bytes {
            // The device starts again: what it had shown is kept, what it shows now comes on top.
            self.keep_total();
            self.count_from(counters.packets, counters.bytes);
            self.touch(latest);
            self.note();
            return Applied::Backwards;
        }
        if earliest >= { self.read } {
            self.read = earliest;
            self.age = Age::new(self.age.class(), (self.age.fresh() + 1).min(AgeView::ENOUGH));
        }
        let grown = counters.packets > self.packets;
        if grown {
            self.note();
            let used = counters.used.unwrap_or(latest).clamp(self.grown, latest.max(self.grown));
            self.use_at(used);
        }
        self.advance(counters);
        if grown { Applied::Grown } else { Applied::Still }
    }

    fn keep_total(&mut self) {
        let total = self.total();
        if total != Counters::default() {
            self.set_base(Some(total));
        }
    }

    /// All that the flow ever counted.
    pub(super) fn total(&self) -> Counters {
        let used = self.used();
        let (packets, bytes, tcp_flags) = (self.packets, self.bytes, self.tcp_flags & Cell::TCP_FLAGS);
        let base = self.base();
        Counters {
            packets: base.packets.saturating_add(packets),
            bytes: base.bytes.saturating_add(bytes),
            used: base.used.max(used),
            tcp_flags: base.tcp_flags | tcp_flags,
        }
    }

    /// The life is over. Gives all that the flow ever counted.
    pub(super) fn finish(&mut self) -> Counters {
        let total = self.total();
        self.set_base(None);
        total
    }

    fn base(&self) -> Counters {
        if self.tcp_flags & Cell::HAS_BASE == 0 {
            return Counters::default();
        }
        self.bases.0.lock().get(&self.place).copied().unwrap_or_default()
    }

    fn set_base(&mut self, base: Option<Counters>) {
        match base {
            Some(base) => {
                self.bases.0.lock().insert(self.place, base);
                self.tcp_flags |= Cell::HAS_BASE;
            }
            None if self.tcp_flags & Cell::HAS_BASE != 0 => {
                self.bases.0.lock().remove(&self.place);
                self.tcp_flags &= !Cell::HAS_BASE;
            }
            None => {}
        }
    }

    /// What ageing must know of the flow; `None` if there is none that is wanted.
    pub(super) fn age(&self, id: FlowId) -> Option<AgeView> {
        let class = self.age.class();
        (class != ExpiryClass::NONE).then(|| AgeView {
            id,
            class,
            fresh: if { self.installed_as } == Generation::NONE { 0 } else { self.age.fresh() },
            grown: self.grown,
            read: self.read,
            packets: self.total().packets,
        })
    }
}

impl Deref for CellGuard<'_> {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        &self.cell
    }
}

impl DerefMut for CellGuard<'_> {
    fn deref_mut(&mut self) -> &mut Cell {
        &mut self.cell
    }
}

/// What ageing must know of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeView {
    /// Its life.
    pub id: FlowId,
    /// Which expiry it has.
    pub class: ExpiryClass,
    /// Readings of its rule that are newer than its last change, at most [`AgeView::ENOUGH`]; 0 without a rule.
    pub fresh: u8,
    /// The latest time of a packet that readings show, as far as they tell, or of its last change.
    pub grown: Timestamp,
    /// Up to when the last reading holds every packet. A poll that fails adds nothing to it.
    pub read: Timestamp,
    /// Packets that it has counted.
    pub packets: u64,
}

impl AgeView {
    /// Fresh readings without which no flow may be called idle.
    pub const ENOUGH: u8 = 2;

    /// For how long readings have shown no growth, up to the last one; `None` before there are enough fresh readings.
    pub fn idle(&self) -> Option<Duration> {
        (self.fresh >= Self::ENOUGH).then(|| self.read.since(self.grown))
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

    /// Where a cell is, with what is done to it.
    fn with_cell<R>(test: impl FnOnce(&mut CellGuard<'_>) -> R) -> R {
        let (cell, bases) = (Mutex::<Cell>::default(), Bases::default());
        let mut cell = CellGuard::new(cell.lock(), &bases, 0);
        cell.start(Expiries::new().class(&Expiry::default()), Timestamp(0), false);
        test(&mut cell)
    }

    fn idle(cell: &CellGuard<'_>) -> Option<Duration> {
        cell.age(FlowId { slot: 0, incarnation: 4 }).unwrap().idle()
    }

    #[test]
    fn a_rule_that_is_replaced_hands_its_count_on() {
        with_cell(|cell| {
            cell.begin(Generation(1), Timestamp(0));
            assert_eq!(cell.apply(&reading(1, 5), sampled(1, 1)), Applied::Grown);
            cell.end(Some(counters(7)));
            cell.begin(Generation(3), Timestamp(2));
            assert_eq!(cell.apply(&reading(1, 6), sampled(3, 3)), Applied::Foreign);
            assert_eq!(cell.apply(&reading(3, 2), sampled(3, 3)), Applied::Grown);
            assert_eq!(cell.total().packets, 9);
            assert_eq!(cell.total().bytes, 900);
        });
    }

    #[test]
    fn what_rules_counted_that_are_gone_goes_with_the_flow() {
        let base = |cell: &CellGuard<'_>| cell.bases.0.lock().get(&cell.place).map(|base| base.packets);
        with_cell(|cell| {
            cell.begin(Generation(1), Timestamp(0));
            cell.end(Some(counters(7)));
            assert_eq!(base(cell), Some(7));
            assert_eq!(cell.finish().packets, 7);
            assert_eq!(base(cell), None);
            cell.end(Some(counters(3)));
            assert_eq!(base(cell), Some(3), "the device was late to tell of it");
            cell.start(ExpiryClass::NONE, Timestamp(3), false);
            assert_eq!((cell.total(), base(cell)), (Counters::default(), None));
        });
    }

    #[test]
    fn counters_never_run_backwards() {
        with_cell(|cell| {
            cell.begin(Generation(1), Timestamp(0));
            cell.apply(&reading(1, 10), sampled(1, 1));
            assert_eq!(cell.apply(&reading(1, 3), sampled(2, 2)), Applied::Backwards);
            assert_eq!(cell.total().packets, 13);
            cell.apply(&reading(1, 4), sampled(3, 3));
            assert_eq!(cell.total().packets, 14);
        });
    }

    #[test]
    fn nothing_is_idle_on_fewer_than_two_fresh_readings() {
        with_cell(|cell| {
            cell.begin(Generation(1), Timestamp(100));
            cell.apply(&reading(1, 0), sampled(90, 110));
            assert_eq!(idle(cell), None, "it may be of a time before the rule was there");
            cell.apply(&reading(1, 0), sampled(200, 200));
            assert_eq!(idle(cell), None);
            cell.apply(&reading(1, 0), sampled(300, 300));
            assert_eq!(idle(cell), Some(Duration::from_nanos(200)), "as of the last reading");
            cell.touch(Timestamp(310));
            assert_eq!(idle(cell), None, "a change makes older readings stale");
        });
    }
}
