//! A bulk of counters, and the queries that it waits for.

use std::ops::Range;

use sluice_flow::refusal::Refusal;

use super::count::Count;
use super::dump::{Dump, Protection};
use super::told::Told;
use crate::mlx5::{Answers, CallError, Context, Counts};
use crate::switch::command::{command, create};
use crate::switch::refusal::refuse;
use crate::switch::rule_id::RuleId;

/// Bulks are asked for in units of so many counters, by one bit (`flow_counter_bulk` of ALLOC_FLOW_COUNTER).
const UNIT: usize = 128;
/// A query begins and ends at such places.
const ALIGNMENT: u32 = 4;
const ALLOC_FLOW_COUNTER: u16 = 0x939;
const QUERY_FLOW_COUNTER: u16 = 0x93b;

pub(super) struct Bulk {
    /// Its place among all.
    number: usize,
    pub(super) size: u32,
    pub(super) counts: Counts,
    /// The id of the first in the device.
    first: u32,
    dump: Dump,
    /// Where counters stood when their rules were installed: the device never sets one back.
    base: Box<[Count]>,
    /// Counters whose rules are gone, and the query that told their last counts.
    resting: Vec<(u32, u64)>,
    /// Queries that were sent.
    queries: u64,
    sent: Option<Sent>,
    wanted: Option<Wanted>,
}

/// A query in the device.
struct Sent {
    wanted: Wanted,
    /// Its place among all that were sent.
    place: u64,
}

/// A query, and who waits for it.
#[derive(Default)]
struct Wanted {
    range: Range<u32>,
    waiting: Vec<Waiting>,
}

pub(super) enum Waiting {
    /// A batch of removals, with the places of rules in it, ordered by the rules' names.
    Batch(u64, Vec<(usize, RuleId)>),
    /// Somebody who reads all.
    Reader(u64),
}

impl Bulk {
    pub(super) fn allocate(
        context: &Context,
        protection: &Protection,
        number: usize,
        size: usize,
    ) -> Result<Self, Refusal> {
        let units = u32::try_from(size / UNIT).unwrap_or(u32::MAX);
        let (object, first) = create(context, &command::<16>(ALLOC_FLOW_COUNTER, &[(12, units)]))?;
        let mut bulk = Self {
            number,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            counts: Counts::new(object, size),
            first,
            dump: Dump::create(context, protection, size)?,
            base: vec![Count::default(); size].into(),
            resting: Vec::new(),
            queries: 0,
            sent: None,
            wanted: None,
        };
        // They may have counted for somebody before.
        let mut output = [0; 16];
        let query = bulk.query(&(0..bulk.size));
        bulk.counts.bulk().query(&query, &mut output).map_err(refuse)?;
        for (base, told) in bulk.base.iter_mut().zip(bulk.dump.counts(0)) {
            *base = told;
        }
        Ok(bulk)
    }

    /// Asks for counters, all of them or those of rules. Returns whether nobody has asked since the last query was sent.
    pub(super) fn want(&mut self, waiting: Waiting) -> bool {
        let range = match &waiting {
            Waiting::Reader(_) => 0..self.size,
            Waiting::Batch(_, rules) => {
                let index = |place: Option<&(usize, RuleId)>| place.map_or(0, |(_, rule)| index_of(*rule));
                let (least, most) = (index(rules.first()), index(rules.last()));
                least / ALIGNMENT * ALIGNMENT..(most / ALIGNMENT + 1) * ALIGNMENT
            }
        };
        let is_first = self.wanted.is_none();
        let wanted = self.wanted.get_or_insert_with(|| Wanted { range: range.clone(), waiting: Vec::new() });
        wanted.range = wanted.range.start.min(range.start)..wanted.range.end.max(range.end);
        wanted.waiting.push(waiting);
        is_first
    }

    /// Has all counters that rest be told once more, so that they can be used again.
    pub(super) fn want_rested(&mut self) -> bool {
        let is_first = self.wanted.is_none();
        self.wanted.get_or_insert_default().range = 0..self.size;
        is_first
    }

    /// Lets a counter rest whose rule is gone: as if the next query told its last count.
    pub(super) fn rest(&mut self, place: RuleId) {
        self.resting.push((index_of(place), self.queries + 1));
    }

    pub(super) fn resting(&self) -> usize {
        self.resting.len()
    }

    pub(super) fn is_asked(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns how many queries were sent.
    pub(super) fn queries(&self) -> u64 {
        self.queries
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Returns the place, among all that were sent, of the query that is in the device.
    pub(super) fn asked(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.place)
    }

    /// Sends the query that is wanted, if there is one. Its answer has this number, and it this place among all that were sent.
    pub(super) fn send(&mut self, number: u64, place: u64, answers: &Answers) -> Result<(), CallError> {
        let Some(wanted) = &self.wanted else { return Ok(()) };
        let query = self.query(&wanted.range);
        self.counts.bulk().query_later(&query, number, answers)?;
        self.queries += 1;
        self.sent = self.wanted.take().map(|wanted| Sent { wanted, place });
        Ok(())
    }

    /// Sends a query that nobody needs, for its answer.
    pub(super) fn send_last(&self, number: u64, answers: &Answers) -> Result<(), CallError> {
        self.counts.bulk().query_later(&self.query(&(0..ALIGNMENT)), number, answers)
    }

    /// Ends the query that was sent, and tells who waited for it. Counters that have rested long enough become `free`.
    pub(super) fn answered(&mut self, is_done: bool, free: &mut Vec<RuleId>, told: &mut Vec<Told>) {
        let Some(Sent { wanted, .. }) = self.sent.take() else { return };
        if is_done && wanted.range == (0..self.size) {
            self.free(free);
        }
        self.tell(wanted, is_done, told);
    }

    /// Tells all who wait that nothing will be known.
    pub(super) fn fail(&mut self, told: &mut Vec<Told>) {
        for wanted in [self.sent.take().map(|sent| sent.wanted), self.wanted.take()].into_iter().flatten() {
            self.tell(wanted, false, told);
        }
    }

    /// Returns what each counter has counted for its rule, as it was told last.
    pub(super) fn told(&self) -> impl Iterator<Item = Count> {
        self.dump.counts(0).zip(&self.base).map(|(told, base)| told.since(*base))
    }

    fn tell(&mut self, wanted: Wanted, is_done: bool, told: &mut Vec<Told>) {
        for waiting in wanted.waiting {
            told.push(match waiting {
                Waiting::Reader(reader) => Told::Bulk { reader, bulk: self.number, is_done },
                Waiting::Batch(batch, rules) => {
                    let last = |(position, rule): (usize, RuleId)| {
                        self.resting.push((index_of(rule), self.queries));
                        (position, is_done.then(|| self.count(rule.index())))
                    };
                    Told::Last { batch, counts: rules.into_iter().map(last).collect() }
                }
            });
        }
    }

    /// Lets counters be used again that were told once more after their last counts: packets that were still on their way then have
    /// been counted by now.
    fn free(&mut self, free: &mut Vec<RuleId>) {
        let (number, queries, base, dump) = (self.number, self.queries, &mut self.base, &self.dump);
        self.resting.retain(|(index, told)| {
            let has_rested = *told < queries;
            if has_rested && let Some(count) = dump.counts(*index as usize).next() {
                base[*index as usize] = count;
                free.push(RuleId::of(number, *index as usize));
            }
            !has_rested
        });
    }

    /// Returns what a counter has counted for its rule, as it was told last.
    pub(super) fn count(&self, index: usize) -> Count {
        self.dump.counts(index).next().unwrap_or_default().since(self.base[index])
    }

    /// QUERY_FLOW_COUNTER into memory.
    fn query(&self, range: &Range<u32>) -> [u8; 32] {
        const DUMP_TO_MEMORY: u32 = 1 << 30;
        let (key, address) = self.dump.place_of(range.start);
        let [high, low] = [address >> 32, address & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or_default());
        let words = [
            (12, key),
            (16, high),
            (20, low),
            (24, DUMP_TO_MEMORY | (range.end - range.start)),
            (28, self.first + range.start),
        ];
        command(QUERY_FLOW_COUNTER, &words)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a bulk has few counters")]
fn index_of(rule: RuleId) -> u32 {
    rule.index() as u32
}
