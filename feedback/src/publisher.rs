//! The agent's side of the memory: the only one that writes records.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::fstat;
use rustix::io;
use sluice_flow::ufid::Ufid;

use crate::layout::{self, Life, MAX_REACH, Name, length, marks, record};
use crate::marks::Marks;
use crate::memory::{self, Refusal, Region, Shape};
use crate::meters::{self, MeterTable, Setting, SettingKind};
use crate::records::{Found, Record, Records, Totals};
use crate::status::{self, Counters};

/// Why a flow has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// As many flows are published as the memory was made for.
    #[error("{0} flows are published, which is what the memory is for")]
    Flows(usize),
    /// All slots near the one that the UFID picks are taken.
    #[error("all slots near that of the UFID are taken")]
    Neighbours,
}

/// Why there is no memory.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// More flows than a memory can have.
    #[error("{0} flows are more than a memory can have ({max})", max = layout::MAX_SLOTS / 2)]
    Capacity(usize),
    /// The kernel gave none.
    #[error("no shared memory: {0}")]
    Io(#[from] io::Errno),
}

/// Publishes what was counted for flows.
///
/// Dropping it lets go of the memory; readers keep it as it is, and [`Handover`](crate::Handover) takes it from them again.
pub struct Publisher {
    file: OwnedFd,
    region: Region,
    shape: Shape,
    live: usize,
    /// Those that were withdrawn, oldest first.
    ended: VecDeque<Name>,
    /// Whether somebody else has it, so that another must not take its place.
    is_shared: bool,
}

impl Publisher {
    /// Makes a memory for so many flows.
    ///
    /// `epoch` is any number that another memory does not have, such as the time.
    pub fn create(capacity: usize, epoch: u64) -> Result<Self, CreateError> {
        let slots = layout::slots(capacity).ok_or(CreateError::Capacity(capacity))?;
        let shape = Shape { capacity, slots, epoch };
        let file = memory::create(shape)?;
        Ok(Self::map(file, shape)?)
    }

    fn map(file: OwnedFd, shape: Shape) -> io::Result<Self> {
        let region = Region::map(file.as_fd(), 0, length(shape.slots), true)?;
        Ok(Self { file, region, shape, live: 0, ended: VecDeque::new(), is_shared: false })
    }

    /// Publishes what was counted for a flow since it was added, all of it. A number that is lower than what was published stays as it
    /// was, for OVS takes a counter that runs back for one that began anew; a withdrawn flow begins anew.
    ///
    /// Each number is published by itself: a reader may see packets a moment before their bytes.
    pub fn publish(&mut self, ufid: Ufid, totals: Totals) -> Result<(), Full> {
        let name = Name::from(ufid);
        match self.records().find(name) {
            Found::At(Record { slot, life: Life::Live, totals: before, .. }) => {
                let raise = |place, before: u64, now: u64| {
                    if now > before {
                        self.store(slot, place, now);
                    }
                };
                raise(record::PACKETS, before.packets, totals.packets);
                raise(record::BYTES, before.bytes, totals.bytes);
                raise(record::USED, before.used, totals.used);
                if before.tcp_flags | totals.tcp_flags != before.tcp_flags {
                    self.store(slot, record::STATE, Life::Live.word(before.tcp_flags | totals.tcp_flags));
                }
                return Ok(());
            }
            Found::At(Record { slot, .. }) => {
                if self.live >= self.shape.capacity {
                    return Err(Full::Flows(self.shape.capacity));
                }
                self.ended.retain(|ended| *ended != name);
                self.claim(slot, name, totals);
            }
            Found::No | Found::Torn => {
                if self.live >= self.shape.capacity {
                    return Err(Full::Flows(self.shape.capacity));
                }
                let (slot, distance) = self.vacancy(name).ok_or(Full::Neighbours)?;
                self.free(slot);
                let home = self.records().home(name);
                if distance > self.records().reach(home) {
                    self.store(home, record::REACH, distance as u64);
                }
                self.claim(slot, name, totals);
            }
        }
        self.live += 1;
        Ok(())
    }

    /// Takes a flow back that was deleted, and returns what was published of it. `now` is in ms of `CLOCK_MONOTONIC`.
    ///
    /// ovs-vswitchd may read the answer to its deletion after the agent has heard of it, so the library goes on adding these numbers, for
    /// [`GRACE`](crate::GRACE), to answers to deletions only.
    pub fn withdraw(&mut self, ufid: Ufid, now: u64) -> Option<Totals> {
        let name = Name::from(ufid);
        let Found::At(Record { slot, life: Life::Live, totals, .. }) = self.records().find(name) else { return None };
        self.store(slot, record::STATE, Life::Ended(now).word(totals.tcp_flags));
        self.live -= 1;
        self.ended.push_back(name);
        if self.ended.len() > self.kept()
            && let Some(oldest) = self.ended.pop_front()
            && let Found::At(Record { slot, life: Life::Ended(_), .. }) = self.records().find(oldest)
        {
            self.free(slot);
        }
        Some(totals)
    }

    /// What is published of a flow.
    pub fn get(&self, ufid: Ufid) -> Option<Totals> {
        match self.records().find(ufid.into()) {
            Found::At(Record { life: Life::Live, totals, .. }) => Some(totals),
            _ => None,
        }
    }

    /// Whether ovs-vswitchd has deleted a flow that is published: it has received the kernel's answer, and nothing is added for the flow
    /// any more.
    ///
    /// The agent, who may have missed that, tells by it that a flow of this UFID that is there nevertheless is a new life, which begins
    /// after [`withdraw`](Self::withdraw).
    pub fn is_deleted(&self, ufid: Ufid) -> bool {
        matches!(self.records().find(ufid.into()), Found::At(record) if record.life == Life::Live && self.marks().has(&record))
    }

    /// All that is published.
    pub fn iter(&self) -> impl Iterator<Item = (Ufid, Totals)> {
        let records = self.records();
        (0..self.shape.slots).filter_map(move |slot| match records.read(slot) {
            (Life::Live, totals) => Some((records.name(slot).into(), totals)),
            _ => None,
        })
    }

    /// How many flows are published.
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether none is.
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// How many can be.
    pub const fn capacity(&self) -> usize {
        self.shape.capacity
    }

    /// The number of its memory.
    pub const fn epoch(&self) -> u64 {
        self.shape.epoch
    }

    /// What the library in ovs-vswitchd has counted of its own work.
    pub fn counters(&self) -> Counters {
        Counters::read(self.status())
    }

    /// How often what the library tells of meters has changed.
    pub fn meter_changes(&self) -> u64 {
        status::meter_changes(self.status())
    }

    /// The meters that it tells of. `None` if one of them changes just now.
    pub fn meters(&self) -> Option<Vec<(u32, Setting)>> {
        let table = MeterTable(&self.status()[(layout::METERS - layout::STATUS) / 8..]);
        let is_known = |(_, setting): &(u32, Setting)| setting.kind != SettingKind::None;
        let all: Option<Vec<_>> = (0..meters::COUNT).map(|meter| Some((meter, table.get(meter)?))).collect();
        all.map(|all| all.into_iter().filter(is_known).collect())
    }

    /// The part that the library writes beside its marks.
    fn status(&self) -> &[AtomicU64] {
        &self.region.words()[layout::STATUS / 8..layout::RECORDS / 8]
    }

    /// The memory, for who hands it over by a way of its own.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The memory, to hand it to somebody.
    pub(crate) fn share(&mut self) -> BorrowedFd<'_> {
        self.is_shared = true;
        self.file.as_fd()
    }

    /// Goes on in a memory that an earlier agent had made, or takes over what is in it. Returns whether the memory is its own now.
    pub fn adopt(&mut self, file: OwnedFd) -> Result<bool, Refusal> {
        let shape = memory::inspect(file.as_fd())?;
        if self.is_same(file.as_fd()) {
            self.is_shared = true;
            return Ok(true);
        }
        let mut other = Self::map(file, shape).map_err(|_| Refusal::Map)?;
        other.repair();
        let is_taken = !self.is_shared && shape.capacity == self.shape.capacity;
        if is_taken {
            std::mem::swap(self, &mut other);
        }
        self.is_shared |= is_taken;
        // What does not fit is said when it is published again.
        let flows: Vec<_> = other.iter().collect();
        for (ufid, totals) in flows {
            let _ = self.publish(ufid, totals);
        }
        Ok(is_taken)
    }

    fn is_same(&self, file: BorrowedFd<'_>) -> bool {
        match (fstat(&self.file), fstat(file)) {
            (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Frees what an agent that was killed left half done, and what cannot be, and finds how far records lie from their homes.
    ///
    /// The library goes on reading meanwhile: a record that stays is within reach at any time.
    fn repair(&mut self) {
        self.live = 0;
        self.ended.clear();
        let mut reaches = vec![0; self.shape.slots];
        for slot in 0..self.shape.slots {
            let records = self.records();
            let name = records.name(slot);
            let home = records.home(name);
            let distance = slot.wrapping_sub(home) & records.mask();
            if distance as u64 <= MAX_REACH && distance > records.reach(home) && records.read(slot).0 != Life::Free {
                self.store(home, record::REACH, distance as u64);
            }
            match records.find(name) {
                Found::At(record) if record.slot == slot && !self.marks().has(&record) => match record.life {
                    Life::Live if self.live < self.shape.capacity => self.live += 1,
                    Life::Ended(_) if self.ended.len() < self.kept() => self.ended.push_back(name),
                    _ => {
                        self.free(slot);
                        continue;
                    }
                },
                // Nobody's, half written, deleted, too far away, or a second one of the same flow.
                _ => {
                    self.free(slot);
                    continue;
                }
            }
            reaches[home] = reaches[home].max(distance);
        }
        for (slot, reach) in reaches.into_iter().enumerate() {
            if self.records().reach(slot) > reach {
                self.store(slot, record::REACH, reach as u64);
            }
        }
    }

    fn records(&self) -> Records<'_> {
        let end = marks(self.shape.slots) / 8;
        Records::new(&self.region.words()[layout::RECORDS / 8..end], self.shape.slots, self.shape.epoch)
    }

    fn marks(&self) -> Marks<'_> {
        Marks(&self.region.words()[marks(self.shape.slots) / 8..])
    }

    /// How many withdrawn flows are kept: more than ovs-vswitchd has in deletion at a time, which is 50 for each of its revalidators.
    fn kept(&self) -> usize {
        (self.shape.capacity / 8).clamp(1, 4096)
    }

    /// The slot for another flow, and how far it is from its home: a free one, or that of a flow that has ended.
    fn vacancy(&self, name: Name) -> Option<(usize, usize)> {
        let records = self.records();
        let home = records.home(name);
        let near = usize::try_from(MAX_REACH).unwrap_or(0).min(records.mask());
        let slots = (0..=near).map(|distance| (home.wrapping_add(distance) & records.mask(), distance));
        let life = |slot| records.read(slot).0;
        let free = slots.clone().find(|(slot, _)| life(*slot) == Life::Free);
        free.or_else(|| slots.clone().find(|(slot, _)| matches!(life(*slot), Life::Ended(_))))
    }

    fn store(&self, slot: usize, place: usize, value: u64) {
        if let Some(word) = self.records().word(slot, place) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Gives a slot to a flow.
    fn claim(&self, slot: usize, name: Name, totals: Totals) {
        self.change(slot, || {
            self.store(slot, record::UFID, name.0[0]);
            self.store(slot, record::UFID + 1, name.0[1]);
            self.store(slot, record::PACKETS, totals.packets);
            self.store(slot, record::BYTES, totals.bytes);
            self.store(slot, record::USED, totals.used);
            self.store(slot, record::STATE, Life::Live.word(totals.tcp_flags));
        });
    }

    /// Takes a slot from whoever has it.
    fn free(&self, slot: usize) {
        let records = self.records();
        let name = records.name(slot);
        if records.read(slot).0 == Life::Free && name == Name([0, 0]) && records.load(slot, record::SEQUENCE) & 1 == 0 {
            return;
        }
        self.change(slot, || {
            for place in [record::UFID, record::UFID + 1, record::PACKETS, record::BYTES, record::USED, record::STATE] {
                self.store(slot, place, 0);
            }
        });
        self.draw_in(records.home(name), slot);
    }

    /// Lets readers look no farther from a home than they must, after a slot was freed.
    fn draw_in(&self, home: usize, slot: usize) {
        let records = self.records();
        let reach = records.reach(home);
        if slot.wrapping_sub(home) & records.mask() != reach {
            return;
        }
        let is_used = |distance: &usize| {
            let slot = home.wrapping_add(*distance) & records.mask();
            records.read(slot).0 != Life::Free && records.home(records.name(slot)) == home
        };
        let reach = (0..reach).rev().find(is_used).unwrap_or(0);
        self.store(home, record::REACH, reach as u64);
    }

    /// Changes whose a record is, so that nobody takes one half for the other.
    fn change(&self, slot: usize, change: impl FnOnce()) {
        let odd = self.records().load(slot, record::SEQUENCE) | 1;
        self.store(slot, record::SEQUENCE, odd);
        fence(Ordering::Release);
        change();
        if let Some(word) = self.records().word(slot, record::SEQUENCE) {
            word.store(odd.wrapping_add(1), Ordering::Release);
        }
    }
}
