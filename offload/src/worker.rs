//! One worker: looks at flows, hands changes to its install queue, takes the outcomes.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use parking_lot::Mutex;
use sluice_flow::action::{ActionKind, named_meters};
use sluice_flow::backend::{
    ChainChange, ChainCompletion, ChainOperation, Change, Completion, InstallQueue, MissPolicy, Operation, Outcome,
};
use sluice_flow::table::{Completed, Freed, Look, Reply};
use sluice_flow::ufid::Ufid;
use sluice_flow::{ChainId, Clock, Flow, FlowId, FlowTable, Refusal, Timestamp};

use super::alike::Alike;
use super::chains::{DeviceChains, Found, Pending};
use super::inbox::{InboxReader, Inboxes};
use super::retries::Retries;
use super::room::Room;
use sluice_host::liveness::Progress;
use sluice_journal::Journal;

/// How long a batch of changes waits for the log of flows at most.
const LOG_PATIENCE: Duration = Duration::from_millis(100);

/// A worker that is to run on a thread of its own.
pub struct Worker {
    table: Arc<FlowTable>,
    clock: Arc<dyn Clock>,
    alike: Arc<Alike>,
    chains: Arc<DeviceChains>,
    /// Of all workers, for flows that this one sets free.
    inboxes: Arc<Inboxes>,
    retries: Arc<Retries>,
    room: Arc<Room>,
    inbox: InboxReader,
    install: Box<dyn InstallQueue>,
    journal: Option<Arc<Journal>>,
    /// How many flows to look at before what they need is handed to the backend.
    batch: usize,
    /// What becomes of a packet that misses in a later chain.
    chain_miss: MissPolicy,
    /// Handed to the backend a moment ago, in this order: most of it is completed at once, and in this order.
    asked: VecDeque<Change>,
    in_flight: HashMap<FlowId, Change, foldhash::fast::RandomState>,
    /// Changes to chains that the backend has.
    chains_in_flight: usize,
    /// Those that are completed, and not taken note of yet.
    chains_done: Vec<ChainCompletion>,
    /// Changes that are held back until a change to a chain is over, whichever worker has that.
    held_back: HashMap<FlowId, (Change, Arc<Pending>), foldhash::fast::RandomState>,
    /// Flows to look at; empty but while they are gathered.
    taken: Vec<FlowId>,
    /// Flows whose change has an outcome, to be looked at again.
    finished: Vec<FlowId>,
    /// What those are yet to hear who wait.
    replies: Vec<Reply>,
    /// Copied to `statistics` once a batch.
    report: WorkerReport,
    statistics: Arc<WorkerStatistics>,
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "the parts that it is put together from, once")]
    pub(super) fn new(
        table: Arc<FlowTable>,
        clock: Arc<dyn Clock>,
        alike: Arc<Alike>,
        chains: Arc<DeviceChains>,
        inboxes: Arc<Inboxes>,
        retries: Arc<Retries>,
        room: Arc<Room>,
        inbox: InboxReader,
        mut install: Box<dyn InstallQueue>,
        (batch, chain_miss): (usize, MissPolicy),
    ) -> Self {
        install.set_waker(inbox.waker());
        let (journal, asked, in_flight, finished, replies, report, statistics) = Default::default();
        let (chains_in_flight, chains_done, held_back, taken) = Default::default();
        Self {
            table,
            clock,
            alike,
            chains,
            inboxes,
            retries,
            room,
            inbox,
            install,
            journal,
            batch,
            chain_miss,
            asked,
            in_flight,
            chains_in_flight,
            chains_done,
            held_back,
            taken,
            finished,
            replies,
            report,
            statistics,
        }
    }

    /// Has nothing asked of the device before the log of flows has it: so the next agent finds every rule that the device keeps
    /// there, wherever this one is killed.
    pub fn write_ahead(&mut self, journal: Arc<Journal>) {
        self.journal = Some(journal);
    }

    pub(super) fn statistics(&self) -> Arc<WorkerStatistics> {
        self.statistics.clone()
    }

    /// Works until `stop` is disconnected and nothing is in flight. What is in the queue or held back then stays undone.
    pub fn run(mut self, stop: &Receiver<Infallible>, progress: &Progress) {
        let mut batch = Vec::with_capacity(self.batch);
        let mut done = Vec::with_capacity(self.batch);
        let mut is_stopping = false;
        while !(is_stopping && self.is_owed_nothing()) {
            progress.works();
            if !is_stopping {
                self.gather(&mut batch);
            }
            // A device that does everything at once is never asked for more.
            if !self.in_flight.is_empty() {
                self.install.poll(&mut done);
            }
            let has_chains = self.chains_in_flight > 0 && self.poll_chains();
            if !has_chains && batch.is_empty() && done.is_empty() && self.finished.is_empty() {
                // As long as the device owes an answer there is work.
                if self.is_owed_nothing() {
                    progress.rests();
                }
                if is_stopping || self.spare() == 0 {
                    self.inbox.wait_for_queue();
                } else {
                    self.inbox.wait(stop);
                }
            }
            while !(batch.is_empty() && done.is_empty() && self.finished.is_empty()) {
                progress.works();
                self.submit(&mut batch, &mut done);
                // Once for all: a batch takes no time beside the work of a device.
                let now = self.clock.now();
                done.drain(..).for_each(|completion| self.complete(completion, now));
                self.in_flight.extend(self.asked.drain(..).map(|change| (change.flow, change)));
                // Before anybody who waits is told: what they are told of is counted.
                self.report.in_flight = self.in_flight.len();
                self.statistics.set(&self.report);
                for id in std::mem::take(&mut self.finished) {
                    self.look(id, &mut batch);
                }
                self.replies.clear();
            }
            self.retries.go_on();
            self.room.tell();
            is_stopping = stop.try_recv() == Err(TryRecvError::Disconnected);
        }
    }

    /// Opens the chains that a rule of an earlier run jumps to, and waits for that. Fails as soon as one is refused. Not for a worker that
    /// [runs](Self::run), and for one of all workers only.
    pub(super) fn open_chains(&mut self, rule: &Flow) -> Result<(), Refusal> {
        for chain in rule.jumps() {
            let Some(pending) = self.require(chain) else { continue };
            while pending.outcome().is_none() {
                self.inbox.wait_for_queue();
                self.poll_chains();
            }
            pending.outcome().unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn is_owed_nothing(&self) -> bool {
        self.in_flight.is_empty() && self.chains_in_flight == 0
    }

    /// How many more changes the device may have at a time. What it has can no more be overtaken: so it gets as much as keeps
    /// it busy, one batch in hand and one to follow, and removals pass by everything that waits here.
    fn spare(&self) -> usize {
        (self.batch * 2).saturating_sub(self.in_flight.len())
    }

    /// Looks at a batch of flows at most, so that completions have their turn.
    fn gather(&mut self, batch: &mut Vec<Change>) {
        let mut taken = std::mem::take(&mut self.taken);
        let at_most = self.batch.min(self.spare());
        taken.extend(std::iter::from_fn(|| self.inbox.take()).take(at_most));
        taken.drain(..).for_each(|id| self.look(id, batch));
        self.taken = taken;
    }

    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        if batch.is_empty() {
            return;
        }
        if let Some(journal) = &self.journal {
            // Traffic goes first: a log that is late, or cannot be written, says so itself.
            let _ = journal.wait(LOG_PATIENCE);
        }
        self.asked.extend(batch.iter().cloned());
        self.install.submit(batch, done);
        batch.clear();
    }

    fn look(&mut self, id: FlowId, batch: &mut Vec<Change>) {
        if !self.held_back.is_empty() && self.is_held_back(id, batch) {
            return;
        }
        match self.table.look(id) {
            Look::Nothing | Look::Held => {}
            Look::Freed(freed) => self.set_free(&freed),
            Look::Change(change) => self.begin(change, batch),
            Look::Retired { flow, successor, freed } => {
                self.set_free(&freed);
                for other in self.alike.gone(&flow, id) {
                    if let Some(accepted) = self.table.redo(other, self.clock.now()) {
                        self.inboxes.hand_over(accepted);
                    }
                }
                self.look_again(successor);
            }
        }
    }

    fn begin(&mut self, change: Change, batch: &mut Vec<Change>) {
        if let Operation::Install(flow) | Operation::Modify(_, flow) = &change.operation {
            let refusal = unknown_meter(flow).or_else(|| continuation(flow, self.chain_miss));
            if let Some(refusal) = refusal.or_else(|| self.alike.refusal(flow)) {
                return self.finish(&change, Err(refusal), self.clock.now());
            }
            for chain in flow.jumps() {
                while let Some(pending) = self.require(chain) {
                    match pending.wait(change.flow) {
                        // A closing may be over, too.
                        Some(Ok(())) => {}
                        Some(Err(refusal)) => return self.finish(&change, Err(refusal), self.clock.now()),
                        None => return drop(self.held_back.insert(change.flow, (change, pending))),
                    }
                }
            }
        }
        batch.push(change);
    }

    /// Goes on with a change that was held back, if what it waited for is over. Returns whether there is such a change.
    fn is_held_back(&mut self, id: FlowId, batch: &mut Vec<Change>) -> bool {
        let Some((_, pending)) = self.held_back.get(&id) else { return false };
        let Some(outcome) = pending.outcome() else { return true };
        if let Some((change, _)) = self.held_back.remove(&id) {
            match outcome {
                Ok(()) => self.begin(change, batch),
                Err(refusal) => self.finish(&change, Err(refusal), self.clock.now()),
            }
        }
        true
    }

    /// Has a chain opened that a rule jumps to. Returns what to wait for, unless the chain is open.
    fn require(&mut self, chain: ChainId) -> Option<Arc<Pending>> {
        match self.chains.require(chain) {
            Found::Open => None,
            Found::Changing(pending) => Some(pending),
            Found::Closed(pending) => {
                self.change_chain(chain, ChainOperation::Open);
                Some(pending)
            }
        }
    }

    fn change_chain(&mut self, chain: ChainId, operation: ChainOperation) {
        self.chains_in_flight += 1;
        self.install.submit_chain(ChainChange { chain, operation }, &mut self.chains_done);
        self.note_chains();
    }

    /// Takes what is completed of changes to chains by now. Returns whether that is any.
    fn poll_chains(&mut self) -> bool {
        let before = self.chains_in_flight;
        self.install.poll_chains(&mut self.chains_done);
        self.note_chains();
        self.chains_in_flight < before
    }

    /// Takes note of changes to chains that are completed, and has the flows go on that waited for them.
    fn note_chains(&mut self) {
        for completion in std::mem::take(&mut self.chains_done) {
            self.chains_in_flight = self.chains_in_flight.saturating_sub(1);
            self.look_again(self.chains.complete(completion));
        }
    }

    fn complete(&mut self, completion: Completion, now: Timestamp) {
        let is_next = |change: &mut Change| change.flow == completion.flow;
        let change = self.asked.pop_front_if(is_next).or_else(|| {
            // Out of order, or of an earlier batch.
            self.in_flight.extend(self.asked.drain(..).map(|change| (change.flow, change)));
            self.in_flight.remove(&completion.flow)
        });
        match change {
            Some(change) if change.generation == completion.generation => self.finish(&change, completion.result, now),
            Some(change) => {
                // An answer to something else: the right one is still to come.
                self.report.strays += 1;
                self.in_flight.insert(change.flow, change);
            }
            None => self.report.strays += 1,
        }
    }

    fn finish(&mut self, change: &Change, result: Result<Outcome, Refusal>, now: Timestamp) {
        let in_place = matches!(result, Ok(Outcome::InPlace { .. }));
        let Completed { latency, freed, reply } = self.table.complete(change, result, now);
        // A move is nobody's wish.
        if let (true, Some(latency), Operation::Install(flow) | Operation::Modify(_, flow)) =
            (in_place, latency, &change.operation)
        {
            self.report.add(flow.ufid, latency);
        }
        self.set_free(&freed);
        self.finished.push(change.flow);
        self.replies.extend(reply);
    }

    /// Has flows looked at that waited at chains for something that has happened, and closes chains that nobody needs.
    fn set_free(&mut self, freed: &Freed) {
        self.look_again(freed.flows.iter().copied());
        for chain in freed.chains.iter().copied() {
            if self.chains.begin_closing(chain) {
                self.change_chain(chain, ChainOperation::Close);
            }
        }
    }

    fn look_again(&self, ids: impl IntoIterator<Item = FlowId>) {
        for accepted in ids.into_iter().filter_map(|id| self.table.look_again(id)) {
            self.inboxes.hand_over(accepted);
        }
    }
}

/// Why a flow of a reactive source cannot have a rule, because it names a meter of the source's own datapath. The agent's meter of that number is
/// another one.
fn unknown_meter(flow: &Flow) -> Option<Refusal> {
    let is_known = !flow.origin.is_reactive() || flow.brings_meters || named_meters(&flow.actions).is_empty();
    let reason = "a meter of Open vSwitch, whose rate is not known here".into();
    (!is_known).then_some(Refusal::Action { action: ActionKind::Meter, reason })
}

/// Why a flow of a reactive source cannot have a rule, because packets come to a later chain before the flow that takes them there. `None` if
/// what misses there does no harm.
fn continuation(flow: &Flow, chain_miss: MissPolicy) -> Option<Refusal> {
    if !flow.origin.is_reactive() {
        return None;
    }
    let is_possible = match chain_miss {
        MissPolicy::Drop => flow.chain() == ChainId::ROOT && flow.jumps().is_empty(),
        // What comes there is the packet as it came in, whatever rules have done.
        MissPolicy::Representor => true,
        MissPolicy::Kernel => flow.goes_on || flow.lets_begin_again(),
    };
    let chain = || flow.jumps().first().copied().unwrap_or(flow.chain());
    (!is_possible).then(|| Refusal::Continuation { chain: chain() })
}

/// What a worker has done, as of its last batch.
#[derive(Default)]
pub(super) struct WorkerStatistics(Mutex<WorkerReport>);

/// What a worker has done and has before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerReport {
    /// Flows to look at.
    pub queued: usize,
    /// Changes handed to the backend and not completed.
    pub in_flight: usize,
    /// Rules installed or modified.
    pub installed: u64,
    /// Completions that answered nothing that was asked.
    pub strays: u64,
    /// Sum of the times from wish to outcome, in seconds.
    pub latency_sum: f64,
    /// Sum of their squares.
    pub latency_square_sum: f64,
    /// Exponential average over about 100 installations, in seconds.
    pub latency_average: f64,
    /// Exponential average of the squared deviation from it.
    pub latency_variance: f64,
    /// Installations by latency: how many took at most as long as the [`LATENCY_BUCKETS`] say.
    pub latency_buckets: [u64; LATENCY_BUCKETS.len()],
    /// The last installation of those that took longer than one of [`LATENCY_BUCKETS`] and not longer than the next; then of those that
    /// took longer than all.
    pub latency_examples: [Option<Installation>; LATENCY_BUCKETS.len() + 1],
}

/// A rule that was installed or modified.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Installation {
    /// Whose rule it is.
    pub ufid: Ufid,
    /// The time from wish to outcome, in seconds.
    pub latency: f64,
}

/// Upper bounds of the latency histogram, in seconds.
pub const LATENCY_BUCKETS: [f64; 10] = [1e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 2e-2, 0.1, 0.5, 2.0, 10.0];

impl WorkerStatistics {
    pub(super) fn report(&self, queued: usize) -> WorkerReport {
        WorkerReport { queued, ..*self.0.lock() }
    }

    fn set(&self, report: &WorkerReport) {
        *self.0.lock() = *report;
    }
}

impl WorkerReport {
    /// Counts an installation or modification that took so long.
    fn add(&mut self, ufid: Ufid, latency: Duration) {
        // As `mov_avg_ema` of OVS with 100 samples.
        const WEIGHT: f64 = 2.0 / 101.0;
        let seconds = latency.as_secs_f64();
        self.installed += 1;
        self.latency_sum += seconds;
        self.latency_square_sum += seconds * seconds;
        let deviation = seconds - self.latency_average;
        self.latency_average += WEIGHT * deviation;
        self.latency_variance = (1.0 - WEIGHT) * (self.latency_variance + WEIGHT * deviation * deviation);
        for (count, bound) in self.latency_buckets.iter_mut().zip(LATENCY_BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
        let bucket = LATENCY_BUCKETS.iter().take_while(|bound| seconds > **bound).count();
        self.latency_examples[bucket] = Some(Installation { ufid, latency: seconds });
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::ufid::Seed;
    use sluice_flow::{Expiry, MaskedKey, Origin, Priority, text};

    use super::*;

    #[test]
    fn flows_of_a_reactive_source_go_on_in_a_chain_only_where_a_miss_does_no_harm() {
        let refused = |chain: u32, actions: &str, miss| {
            let key = format!("recirc_id({chain}),in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no)");
            let matching = text::parse_key(&key, &()).unwrap().matching;
            let actions = text::parse_actions(actions, &()).unwrap();
            let (key, priority, expiry) = (MaskedKey::new(&matching), Priority::default(), Expiry::default());
            let typed = Flow::new(None, key, actions, priority, expiry, &Seed([0; 16]));
            assert_eq!(continuation(&typed, miss), None, "whoever types flows completes the chain");
            let of_ovs = typed.with_origin(Origin::OpenVswitch);
            if miss == MissPolicy::Kernel {
                assert_eq!(continuation(&of_ovs.going_on(), miss), None, "its datapath takes the packet on");
            }
            continuation(&of_ovs, miss)
        };
        let [drop, kernel, representor] = [MissPolicy::Drop, MissPolicy::Kernel, MissPolicy::Representor];
        let at = |chain| Some(Refusal::Continuation { chain: ChainId(chain) });
        assert_eq!([drop, kernel, representor].map(|miss| refused(0, "2", miss)), [None, None, None]);
        assert_eq!(
            [drop, kernel, representor].map(|miss| refused(0, "ct(zone=1),recirc(5)", miss)),
            [at(5), None, None]
        );
        assert_eq!([drop, kernel, representor].map(|miss| refused(5, "2", miss)), [at(5), None, None]);
        let translated = "ct(zone=1,nat),recirc(6)";
        assert_eq!([drop, kernel, representor].map(|miss| refused(5, translated, miss)), [at(6), at(6), None]);
    }
}
