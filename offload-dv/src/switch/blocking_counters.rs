//! Flow counters of connections and mirrors in bulks, which are asked for and waited for.

use std::collections::BTreeMap;

use sluice_flow::refusal::Refusal;

use super::counters::Count;
use super::refusal::refuse;
use crate::mlx5::{Action, Context, Object};

/// Counters of a bulk.
const BULK: usize = 512;
/// Bulks are asked for in units of so many counters (`flow_counter_bulk` of ALLOC_FLOW_COUNTER).
const UNIT: usize = 128;
const ALLOC_FLOW_COUNTER: u16 = 0x939;
const QUERY_FLOW_COUNTER: u16 = 0x93b;
/// Bytes of an output before the counters, and of each.
const HEADER: usize = 16;
const EACH: usize = 16;

/// The place of a counter among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter(u32);

pub(super) struct Counters {
    bulks: Vec<Bulk>,
    free: Vec<Counter>,
    context: Context,
}

struct Bulk {
    object: Object,
    /// The id of the first.
    first: u32,
    /// As they were told last.
    told: Box<[Count]>,
    /// Where they stood when their rules were installed: the device never sets one back.
    base: Box<[Count]>,
}

impl Counters {
    pub(super) fn new(context: &Context) -> Self {
        Self { bulks: Vec::new(), free: Vec::new(), context: context.clone() }
    }

    /// Takes a counter that nobody has, which counts from zero.
    pub(super) fn take(&mut self) -> Result<Counter, Refusal> {
        if self.free.is_empty() {
            let first = self.bulks.len() * BULK;
            self.bulks.push(Bulk::allocate(&self.context)?);
            let place = |index: usize| Counter(u32::try_from(first + index).unwrap_or(u32::MAX));
            self.free.extend((0..BULK).rev().map(place));
        }
        self.free.pop().ok_or_else(|| Refusal::Device { reason: "there is no counter".into() })
    }

    /// Gives back a counter that has counted nothing.
    pub(super) fn give_back(&mut self, counter: Counter) {
        self.free.push(counter);
    }

    /// Gives back counters whose rules are gone, and returns all that each rule counted.
    pub(super) fn settle(&mut self, counters: &[Counter]) -> Result<Vec<Count>, Refusal> {
        let mut by_bulk: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (bulk, index) in counters.iter().map(|counter| self.place(*counter)) {
            by_bulk.entry(bulk).or_default().push(index);
        }
        for (bulk, indexes) in by_bulk {
            self.bulks[bulk].query_some(&indexes)?;
        }
        let settle = |counter: &Counter| {
            let count = self.count(*counter);
            let (bulk, index) = self.place(*counter);
            self.bulks[bulk].base[index] = self.bulks[bulk].told[index];
            self.free.push(*counter);
            count
        };
        Ok(counters.iter().map(settle).collect())
    }

    /// Returns how many bulks there are.
    pub(super) fn bulks(&self) -> usize {
        self.bulks.len()
    }

    /// Reads the counters of a bulk.
    pub(super) fn read(&mut self, bulk: usize) -> Result<(), Refusal> {
        self.bulks.get_mut(bulk).map_or(Ok(()), Bulk::query_all)
    }

    /// Asks for one counter.
    pub(super) fn ask(&mut self, counter: Counter) -> Result<Count, Refusal> {
        let (bulk, index) = self.place(counter);
        self.bulks[bulk].query_some(&[index])?;
        Ok(self.count(counter))
    }

    /// Returns what was told of a counter last.
    pub(super) fn count(&self, counter: Counter) -> Count {
        let (bulk, index) = self.place(counter);
        self.bulks[bulk].told[index].since(self.bulks[bulk].base[index])
    }

    /// Returns an action that counts.
    pub(super) fn action(&self, counter: Counter) -> Result<Action, Refusal> {
        let (bulk, index) = self.place(counter);
        Action::count(&self.bulks[bulk].object, u32::try_from(index).unwrap_or(u32::MAX)).map_err(refuse)
    }

    fn place(&self, counter: Counter) -> (usize, usize) {
        (counter.0 as usize / BULK, counter.0 as usize % BULK)
    }
}

impl Bulk {
    fn allocate(context: &Context) -> Result<Self, Refusal> {
        let (mut input, mut output) = ([0; 16], [0; 16]);
        input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER.to_be_bytes());
        input[15] = u8::try_from(BULK / UNIT).unwrap_or(u8::MAX);
        let object = Object::create(context, &input, &mut output).map_err(refuse)?;
        let first = u32::from_be_bytes([output[8], output[9], output[10], output[11]]);
        let zero = || vec![Count::default(); BULK].into_boxed_slice();
        let mut bulk = Self { object, first, told: zero(), base: zero() };
        // They may have counted for somebody before.
        bulk.query_all()?;
        bulk.base.copy_from_slice(&bulk.told);
        Ok(bulk)
    }

    /// Reads some counters: one by one if they are few, and all otherwise.
    fn query_some(&mut self, indexes: &[usize]) -> Result<(), Refusal> {
        /// A command for one counter costs as much as for so many in a row, about.
        const MANY: usize = 8;
        if indexes.len() >= MANY {
            return self.query_all();
        }
        indexes.iter().try_for_each(|index| self.query(*index, 0))
    }

    fn query_all(&mut self) -> Result<(), Refusal> {
        self.query(0, u16::try_from(BULK).unwrap_or(u16::MAX))
    }

    /// Reads a counter, which the device takes for a number of 0, or so many from one on, by multiples of 4.
    fn query(&mut self, from: usize, number: u16) -> Result<(), Refusal> {
        let read = usize::from(number.max(1));
        let mut input = [0; 32];
        let mut output = vec![0; HEADER + read * EACH];
        input[..2].copy_from_slice(&QUERY_FLOW_COUNTER.to_be_bytes());
        input[26..28].copy_from_slice(&number.to_be_bytes());
        let id = self.first + u32::try_from(from).unwrap_or(u32::MAX);
        input[28..].copy_from_slice(&id.to_be_bytes());
        self.object.query(&input, &mut output).map_err(refuse)?;
        for (count, words) in self.told[from..].iter_mut().zip(output[HEADER..].as_chunks::<EACH>().0) {
            let [packets, bytes] = [0, 1].map(|half| u64::from_be_bytes(words.as_chunks().0[half]));
            *count = Count { packets, bytes };
        }
        Ok(())
    }
}
