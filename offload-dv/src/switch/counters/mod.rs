//! Flow counters in bulks, told by queries that the device answers while its thread does other work.
//!
//! The place of a counter is that of its rule. A query dumps counters of a bulk into memory; several bulks are asked at a time, and whoever
//! wants to know of a bulk that is asked already waits for the next query. When a rule is gone, its counter rests: its last count was told,
//! and it may be used again when a query that was sent after that has told it once more.

mod bulk;
mod count;
mod dump;
mod told;

pub use self::count::Count;
pub(super) use self::dump::Protection;
pub use self::told::Told;

use std::collections::VecDeque;

use sluice_flow::refusal::Refusal;

use self::bulk::{Bulk, Waiting};
use self::count::EACH;
use super::refusal::refuse;
use super::rule_id::{MOST_OF_A_BULK, RuleId};
use crate::mlx5::{Action, Answer, Answers, Context, Counts, Listener};

/// Counters of the first bulk (`flow_counter_bulk_alloc` of the PRM has sizes from 128 to 16,384).
const LEAST: usize = 512;
/// Queries in the device at a time.
const AT_ONCE: usize = 4;
/// The number of the answer after which nobody needs to listen.
pub(crate) const END: u64 = u64::MAX;

/// Bytes of a counter: what is told, where it stood before, and its action.
pub(super) const BYTES_A_COUNTER: usize = EACH + size_of::<Count>() + size_of::<usize>();

pub(super) struct Counters {
    bulks: Vec<Bulk>,
    /// Places without a rule, whose counters have rested.
    free: Vec<RuleId>,
    /// Bulks with a query that is to be sent.
    next: VecDeque<usize>,
    /// Queries in the device.
    asked: usize,
    /// Queries that were sent, of all bulks.
    sent: u64,
    told: Vec<Told>,
    protection: Protection,
    answers: Answers,
    context: Context,
}

impl Counters {
    /// Allocates the first bulk.
    pub(super) fn open(context: &Context) -> Result<Self, Refusal> {
        let mut counters = Self {
            bulks: Vec::new(),
            free: Vec::new(),
            next: VecDeque::new(),
            asked: 0,
            sent: 0,
            told: Vec::new(),
            protection: Protection::allocate(context)?,
            answers: Answers::open(context).map_err(refuse)?,
            context: context.clone(),
        };
        counters.grow()?;
        Ok(counters)
    }

    /// Returns how many counters a bulk has.
    pub(super) fn size_of(&self, bulk: usize) -> usize {
        self.bulks.get(bulk).map_or(0, |bulk| bulk.size as usize)
    }

    /// Takes the place of a counter that nobody has, which counts from zero.
    pub(super) fn take(&mut self) -> Result<RuleId, Refusal> {
        if self.free.is_empty() {
            self.want_rested();
            self.grow()?;
        }
        self.free.pop().ok_or_else(|| Refusal::Device { reason: "there is no counter".into() })
    }

    /// Gives a place back whose counter has counted nothing.
    pub(super) fn give_back(&mut self, place: RuleId) {
        self.free.push(place);
    }

    /// Returns the bulk of a counter, and its place there, to count with.
    pub(super) fn counter(&self, place: RuleId) -> (&Counts, usize) {
        (&self.bulks[place.bulk()].counts, place.index())
    }

    /// Returns an action that counts with a counter, for a rule that does not count first.
    pub(super) fn action(&self, place: RuleId) -> Result<Action, Refusal> {
        let (counts, index) = self.counter(place);
        Action::count(counts.bulk(), u32::try_from(index).unwrap_or(u32::MAX)).map_err(refuse)
    }

    /// Has the last counts of rules be told that are gone, as those of a batch.
    pub(super) fn settle(&mut self, places: &[RuleId], batch: u64) {
        let mut places: Vec<_> = places.iter().copied().enumerate().collect();
        places.sort_unstable_by_key(|(_, place)| *place);
        for inside in places.chunk_by(|(_, one), (_, next)| one.bulk() == next.bulk()) {
            self.want(inside[0].1.bulk(), Waiting::Batch(batch, inside.to_vec()));
        }
        self.make_room();
        self.send();
    }

    /// Gives the places back of counters whose rules are gone, and whose last counts nobody wants to know.
    pub(super) fn rest(&mut self, places: impl IntoIterator<Item = RuleId>) {
        for place in places {
            self.bulks[place.bulk()].rest(place);
        }
        self.make_room();
    }

    /// Has the counters of a bulk be told to a reader.
    pub(super) fn ask(&mut self, bulk: usize, reader: u64) {
        if bulk < self.bulks.len() {
            self.want(bulk, Waiting::Reader(reader));
            self.send();
        } else {
            self.told.push(Told::Bulk { reader, bulk, is_done: false });
        }
    }

    /// Takes note of an answer.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the bulk")]
    pub(super) fn answered(&mut self, answer: Answer) {
        let (number, query) = (usize::from(answer.number as u16), answer.number >> 16);
        let Some(bulk) = self.bulks.get_mut(number).filter(|bulk| bulk.is_asked() && bulk.queries() == query) else {
            // It was given up.
            return;
        };
        self.asked -= 1;
        bulk.answered(answer.status == 0, &mut self.free, &mut self.told);
        if bulk.is_wanted() {
            self.next.push_back(number);
        }
        self.send();
    }

    /// Returns the number of the oldest query that is not answered, of all that were sent from one on.
    pub(super) fn oldest_query(&self) -> Option<u64> {
        self.bulks.iter().filter_map(Bulk::asked).min()
    }

    /// Returns what has come of what was asked for.
    pub(super) fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Returns what a counter has counted, as it was told last.
    pub(super) fn count(&self, place: RuleId) -> Count {
        self.bulks[place.bulk()].count(place.index())
    }

    /// Returns how many bulks there are.
    pub(super) fn bulks(&self) -> usize {
        self.bulks.len()
    }

    /// Returns what each counter of a bulk has counted, as it was told last.
    pub(super) fn counts(&self, bulk: usize) -> Option<impl Iterator<Item = Count>> {
        self.bulks.get(bulk).map(Bulk::told)
    }

    pub(super) fn listener(&self) -> std::io::Result<Listener> {
        self.answers.listener()
    }

    /// Has the answer come after which nobody needs to listen.
    pub(super) fn end(&self) -> Result<(), Refusal> {
        self.bulks.first().map_or(Ok(()), |bulk| bulk.send_last(END, &self.answers)).map_err(refuse)
    }

    fn want(&mut self, number: usize, waiting: Waiting) {
        let bulk = &mut self.bulks[number];
        if bulk.want(waiting) && !bulk.is_asked() {
            self.next.push_back(number);
        }
    }

    /// Has counters be told that rest, before there is none left: so rules that come and go need no more counters than there are.
    fn make_room(&mut self) {
        if self.bulks.iter().map(Bulk::resting).sum::<usize>() > self.free.len() {
            self.want_rested();
        }
    }

    /// Has the bulk with most counters that rest be told, for they are needed.
    fn want_rested(&mut self) {
        let most = self.bulks.iter_mut().enumerate().max_by_key(|(_, bulk)| bulk.resting());
        if let Some((number, bulk)) = most.filter(|(_, bulk)| bulk.resting() > 0) {
            if bulk.want_rested() && !bulk.is_asked() {
                self.next.push_back(number);
            }
            self.send();
        }
    }

    /// Sends queries until enough are in the device.
    fn send(&mut self) {
        const EAGAIN: i32 = 11;
        while self.asked < AT_ONCE
            && let Some(number) = self.next.pop_front()
        {
            let bulk = &mut self.bulks[number];
            self.sent += 1;
            match bulk.send((bulk.queries() + 1) << 16 | number as u64, self.sent, &self.answers) {
                Ok(()) => self.asked += 1,
                // Answers that are still to come make room.
                Err(error) if error.source.raw_os_error() == Some(EAGAIN) && self.asked > 0 => {
                    return self.next.push_front(number);
                }
                Err(error) => {
                    tracing::warn!("the counters of bulk {number} cannot be read: {error}");
                    self.bulks[number].fail(&mut self.told);
                }
            }
        }
    }

    /// Allocates one more bulk, as large as all so far if the device has room for it.
    fn grow(&mut self) -> Result<(), Refusal> {
        let number = self.bulks.len();
        let all: usize = self.bulks.iter().map(|bulk| bulk.size as usize).sum();
        // There are powers of two only, of which all together are none once there was less room than wanted.
        let mut size = 1 << all.clamp(LEAST, MOST_OF_A_BULK).ilog2();
        let bulk = loop {
            match Bulk::allocate(&self.context, &self.protection, number, size) {
                Err(_) if size > LEAST => size /= 2,
                allocated => break allocated?,
            }
        };
        self.bulks.push(bulk);
        self.free.extend((0..size).rev().map(|index| RuleId::of(number, index)));
        Ok(())
    }
}
