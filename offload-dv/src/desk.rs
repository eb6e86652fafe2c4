//! What the thread of the device has in hand: batches of changes, and readings of counters, whose answers come while it does other work.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

use crossbeam_channel::Sender;
use sluice_flow::backend::{Completion, Handle, Outcome};
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::{Clock, Timestamp};
use sluice_flow::{FlowId, Generation};

use crate::mlx5::Answer;
use crate::rules::{Rules, counters};
use crate::switch::Told;
use crate::translate::Instance;

/// Changes after which the device is waited for, however many more are there.
const SYNC_AFTER: usize = 1_024;

/// The rules, and who waits for what.
pub(crate) struct Desk {
    pub(crate) rules: Rules,
    /// Changes that are made, and not in the device for certain.
    made: Vec<(Vec<Completion>, Reply)>,
    changes: usize,
    removals: HashMap<u64, Removals>,
    readers: HashMap<u64, Ask>,
    /// What is to be done when a bulk of counters is told.
    when_told: HashMap<u64, WhenTold>,
    /// The number of the last batch or reader.
    last: u64,
}

/// What is done when a bulk of counters is told, or never will be.
type WhenTold = Box<dyn FnOnce(&mut Rules, bool)>;

/// Changes that a worker hands over.
pub(crate) struct Batch {
    pub(crate) changes: Vec<Prepared>,
    pub(crate) reply: Reply,
}

/// A change that is translated.
pub(crate) struct Prepared {
    pub(crate) flow: FlowId,
    pub(crate) generation: Generation,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    Install(Instance),
    Modify(Handle, Instance),
    Remove(Handle),
}

/// Changes of a worker's batch that are completed.
pub(crate) struct Completed {
    pub(crate) batch: u64,
    pub(crate) completions: Vec<Completion>,
}

/// Where completions go.
#[derive(Clone)]
pub(crate) struct Reply {
    /// The number that the worker has for the batch.
    pub(crate) batch: u64,
    pub(crate) complete: Sender<Completed>,
    pub(crate) waker: Option<Waker>,
}

/// Removals of a batch whose last counters are still to be told.
struct Removals {
    changes: Vec<(FlowId, Generation)>,
    left: usize,
    reply: Reply,
}

/// Who reads a bulk of counters.
pub(crate) struct Ask {
    pub(crate) bulk: usize,
    pub(crate) clock: Arc<dyn Clock>,
    /// When it was asked for.
    pub(crate) earliest: Timestamp,
    /// Room for the readings.
    pub(crate) readings: Vec<Reading>,
    pub(crate) tell: Sender<Result<(Vec<Reading>, Sampled), Refusal>>,
}

impl Desk {
    pub(crate) fn new(rules: Rules) -> Self {
        let (made, changes, removals, readers, when_told, last) = Default::default();
        Self { rules, made, changes, removals, readers, when_told, last }
    }

    /// Makes the changes of a batch: removals together, so that the device is waited for once, and the others in their order.
    pub(crate) fn carry_out(&mut self, Batch { changes, reply }: Batch) {
        let most = changes.len();
        let mut done = Vec::with_capacity(most);
        let (mut removals, mut handles) = (Vec::new(), Vec::new());
        for Prepared { flow, generation, work } in changes {
            let result = match work {
                Work::Install(rule) => self.rules.install(flow, generation, rule),
                Work::Modify(handle, rule) => self.rules.modify(handle, rule),
                Work::Remove(handle) => {
                    if handles.is_empty() {
                        removals.reserve(most);
                        handles.reserve(most);
                    }
                    removals.push((flow, generation));
                    handles.push(handle);
                    continue;
                }
            };
            done.push(Completion { flow, generation, result });
        }
        if !handles.is_empty() {
            self.remove(removals, &handles, &mut done, &reply);
        }
        self.changes += done.len();
        self.made.push((done, reply));
    }

    fn remove(
        &mut self,
        changes: Vec<(FlowId, Generation)>,
        handles: &[Handle],
        done: &mut Vec<Completion>,
        reply: &Reply,
    ) {
        let batch = self.number();
        let removal = match self.rules.remove(handles, batch) {
            Ok(removal) => removal,
            Err(refusal) => {
                let refused = |(flow, generation)| Completion { flow, generation, result: Err(refusal.clone()) };
                return done.extend(changes.into_iter().map(refused));
            }
        };
        done.extend(removal.gone.iter().map(|position| removed(changes[*position], None)));
        if removal.left > 0 {
            // Places are those of the rules that there were.
            let is_left = |(position, _): &(usize, _)| removal.gone.binary_search(position).is_err();
            let changes = match removal.gone.is_empty() {
                true => changes,
                false => changes.into_iter().enumerate().filter(is_left).map(|(_, change)| change).collect(),
            };
            self.removals.insert(batch, Removals { changes, left: removal.left, reply: reply.clone() });
        }
    }

    /// Asks for the counters of a bulk.
    pub(crate) fn ask(&mut self, ask: Ask) {
        let number = self.number();
        self.rules.switch().ask(ask.bulk, number);
        self.readers.insert(number, ask);
    }

    /// Asks for the counters of a bulk, and does this when they are told, or never will be.
    pub(crate) fn ask_then(&mut self, bulk: usize, deed: impl FnOnce(&mut Rules, bool) + 'static) {
        let number = self.number();
        self.rules.switch().ask(bulk, number);
        self.when_told.insert(number, Box::new(deed));
    }

    /// Takes note of an answer of the device.
    pub(crate) fn answered(&mut self, answer: Answer) {
        self.rules.switch().answered(answer);
    }

    /// Returns the number of the oldest query that the device has not answered.
    pub(crate) fn oldest_query(&mut self) -> Option<u64> {
        self.rules.switch().oldest_query()
    }

    /// Returns whether there is work that can wait.
    pub(crate) fn has_more_to_do(&mut self) -> bool {
        self.rules.switch().has_more_to_do()
    }

    /// Does some of it.
    pub(crate) fn go_on(&mut self) {
        if let Err(refusal) = self.rules.switch().go_on() {
            tracing::warn!("rules were not moved to a larger matcher: {refusal}");
        }
    }

    /// Tells what is known by now; changes that were made once the device has them, which waits for more if there `is_more`.
    pub(crate) fn tell(&mut self, is_more: bool) {
        let waits_for_more = is_more && self.changes < SYNC_AFTER;
        if !self.made.is_empty() && !waits_for_more {
            self.complete();
        }
        for told in self.rules.switch().told() {
            match told {
                Told::Bulk { reader, bulk, is_done } => self.tell_reader(reader, bulk, is_done),
                Told::Last { batch, counts } => {
                    let Some(removals) = self.removals.get_mut(&batch) else { continue };
                    removals.left = removals.left.saturating_sub(counts.len());
                    let (changes, is_over) = (&removals.changes, removals.left == 0);
                    let done =
                        counts.into_iter().map(|(position, count)| removed(changes[position], count.map(counters)));
                    removals.reply.send(done.collect());
                    if is_over {
                        self.removals.remove(&batch);
                    }
                }
            }
        }
    }

    fn tell_reader(&mut self, reader: u64, bulk: usize, is_done: bool) {
        if let Some(deed) = self.when_told.remove(&reader) {
            return deed(&mut self.rules, is_done);
        }
        let Some(Ask { clock, earliest, mut readings, tell, .. }) = self.readers.remove(&reader) else { return };
        let told = match is_done {
            true => {
                self.rules.readings(bulk, &mut readings);
                Ok((readings, Sampled { earliest, latest: clock.now() }))
            }
            false => Err(Refusal::Device { reason: "the device refused the query of its counters".into() }),
        };
        // Whoever has asked may have gone.
        tell.send(told).unwrap_or_default();
    }

    /// Waits until the device has what was made, and completes it.
    fn complete(&mut self) {
        self.rules.sync();
        self.changes = 0;
        self.made.drain(..).for_each(|(done, reply)| reply.send(done));
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Reply {
    fn send(&self, completions: Vec<Completion>) {
        if completions.is_empty() {
            return;
        }
        // Nobody waits any more if the worker is gone.
        let _ = self.complete.send(Completed { batch: self.batch, completions });
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

fn removed((flow, generation): (FlowId, Generation), last: Option<Counters>) -> Completion {
    Completion { flow, generation, result: Ok(Outcome::Removed { last }) }
}
