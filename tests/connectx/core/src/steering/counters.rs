//! Flow counters: packets and bytes, moved by packets that are walked and by nothing else.

use std::collections::BTreeMap;

use super::failure::Refusal;
use super::layout::{self, bytes};

/// Packets and bytes that an entry has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, without FCS.
    pub bytes: u64,
}

/// How counters are told to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// As they are.
    True,
    /// As they are at this moment, for good.
    Standing,
    /// So much higher than they are.
    Ahead(Count),
    /// So much lower than they are, and zero at least.
    Behind(Count),
}

/// Counters as they were allocated: bulks by the id of their first.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) limit: usize,
    pub(super) allocated: usize,
    next: u32,
    bulks: BTreeMap<u32, Bulk>,
    telling: Telling,
    /// What stood when they were to stand.
    standing: BTreeMap<u32, Count>,
}

#[derive(Debug)]
struct Bulk {
    uid: u16,
    uses: u32,
    counts: Vec<Count>,
}

/// Where QUERY_FLOW_COUNTER is to put what it finds, other than into its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) key: u32,
    pub(crate) address: u64,
    /// How much that is.
    pub(crate) bytes: usize,
}

impl Dump {
    /// What a command wants of this, if it does.
    pub(crate) fn wanted(opcode: u16, input: &[u8]) -> Option<Self> {
        let is_long = opcode == layout::opcode::QUERY_FLOW_COUNTER && input.len() >= bytes::QUERY_COUNTER;
        (is_long && layout::COUNTER_DUMP.is_set(input)).then(|| Self {
            key: layout::COUNTER_DUMP_KEY.u32(input),
            address: layout::COUNTER_DUMP_ADDRESS.u64(input),
            bytes: COUNT * usize::try_from(layout::COUNTER_NUMBER.u32(input).max(1)).unwrap_or(usize::MAX),
        })
    }
}

/// Length of a counter that is told: packets, and bytes.
const COUNT: usize = 16;

pub(super) const WHAT: &str = "flow counter";

/// What flow_counter_bulk counts in. The kernel asks for all bits that the capability has set, and takes the sum of the sizes.
pub(super) const BULK_UNIT: usize = 128;

/// Bulk queries begin at, and cover, multiples of this.
pub(super) const QUERY_ALIGNMENT: u32 = 4;

/// Counters of one query: log_max_flow_counter_bulk.
pub(super) const MOST_AT_ONCE: u32 = 1 << 15;

/// Ids have 24 bits.
const IDS: u32 = 0x100_0000;

impl Counters {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            allocated: 0,
            next: QUERY_ALIGNMENT,
            bulks: BTreeMap::new(),
            telling: Telling::True,
            standing: BTreeMap::new(),
        }
    }

    pub(super) fn allocate(&mut self, uid: u16, number: usize) -> Result<u32, Refusal> {
        let full = Refusal::Full { what: WHAT, limit: self.limit };
        if self.allocated + number > self.limit {
            return Err(full);
        }
        let (Ok(span), Ok(alignment)) = (u32::try_from(number), u32::try_from(number.next_power_of_two())) else {
            return Err(full);
        };
        let mut id = self.next.next_multiple_of(alignment);
        let mut wrapped = false;
        loop {
            if id + span > IDS {
                if wrapped {
                    return Err(full);
                }
                wrapped = true;
                id = QUERY_ALIGNMENT.next_multiple_of(alignment);
            }
            let Some((&first, bulk)) = self.bulks.range(..id + span).next_back() else { break };
            let end = first + u32::try_from(bulk.counts.len()).unwrap_or(IDS);
            if end <= id {
                break;
            }
            id = end.next_multiple_of(alignment);
        }
        self.next = id + span;
        self.allocated += number;
        self.bulks.insert(id, Bulk { uid, uses: 0, counts: vec![Count::default(); number] });
        Ok(id)
    }

    pub(super) fn free(&mut self, uid: u16, id: u32) -> Result<(), Refusal> {
        let bulk = self.bulks.get(&id).filter(|bulk| uid == 0 || bulk.uid == uid);
        let Some(bulk) = bulk else { return Err(Refusal::Unknown { what: WHAT, id }) };
        if bulk.uses > 0 {
            return Err(Refusal::InUse { what: WHAT, id, uses: bulk.uses });
        }
        self.allocated -= bulk.counts.len();
        self.bulks.remove(&id);
        Ok(())
    }

    fn bulk_mut(&mut self, id: u32) -> Option<(&mut Bulk, usize)> {
        let (first, bulk) = self.bulks.range_mut(..=id).next_back()?;
        let place = usize::try_from(id - first).ok().filter(|place| *place < bulk.counts.len())?;
        Some((bulk, place))
    }

    /// What a counter stands at; None if it is not allocated.
    pub(super) fn read(&self, id: u32) -> Option<Count> {
        let (first, bulk) = self.bulks.range(..=id).next_back()?;
        bulk.counts.get(usize::try_from(id - first).ok()?).copied()
    }

    pub(super) fn tell(&mut self, telling: Telling) {
        self.telling = telling;
        self.standing.clear();
        if telling == Telling::Standing {
            self.standing = self.counted().collect();
        }
    }

    /// Those that have counted.
    pub(super) fn counted(&self) -> impl Iterator<Item = (u32, Count)> {
        let counts = self.bulks.iter().flat_map(|(first, bulk)| (*first..).zip(bulk.counts.iter().copied()));
        counts.filter(|(_, count)| *count != Count::default())
    }

    /// What the driver is told of a counter. Those that have never counted are told as they are: none of them can be off.
    pub(super) fn told(&self, id: u32) -> Count {
        let count = self.read(id).unwrap_or_default();
        let change = |by: Count, change: fn(u64, u64) -> u64| Count {
            packets: change(count.packets, by.packets),
            bytes: change(count.bytes, by.bytes),
        };
        match self.telling {
            Telling::Standing => self.standing.get(&id).copied().unwrap_or_default(),
            Telling::Ahead(by) if count.packets > 0 => change(by, u64::saturating_add),
            Telling::Behind(by) if count.packets > 0 => change(by, u64::saturating_sub),
            Telling::True | Telling::Ahead(_) | Telling::Behind(_) => count,
        }
    }

    pub(super) fn exists(&self, uid: u16, id: u32) -> Result<(), Refusal> {
        let bulk = self.bulks.range(..=id).next_back().filter(|_| self.read(id).is_some());
        bulk.filter(|(_, bulk)| uid == 0 || bulk.uid == uid).map(|_| ()).ok_or(Refusal::Unknown { what: WHAT, id })
    }

    pub(super) fn count(&mut self, id: u32, bytes: usize) {
        if let Some((bulk, place)) = self.bulk_mut(id) {
            bulk.counts[place].packets += 1;
            bulk.counts[place].bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
    }

    pub(super) fn clear(&mut self, id: u32) {
        if let Some((bulk, place)) = self.bulk_mut(id) {
            bulk.counts[place] = Count::default();
        }
    }

    pub(super) fn hold(&mut self, id: u32) {
        if let Some((bulk, _)) = self.bulk_mut(id) {
            bulk.uses += 1;
        }
    }

    pub(super) fn release(&mut self, id: u32) {
        if let Some((bulk, _)) = self.bulk_mut(id) {
            bulk.uses = bulk.uses.saturating_sub(1);
        }
    }

    /// Allocations, each of which has to be given back.
    pub(super) fn len(&self) -> usize {
        self.bulks.len()
    }
}
