//! The queue between the table and a backend.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::{Capabilities, LostRule, Placement};
use sluice_flow::port::GonePort;
use sluice_flow::table::{Accepted, ReplyTo, TableError};
use sluice_flow::{Backend, Cause, ChainId, Clock, EndReason, Flow, FlowId, FlowTable, PortNumber, Refusal, Timestamp};

use super::alike::Alike;
use super::batch::Batch;
use super::chains::DeviceChains;
use super::inbox::Inboxes;
use super::retries::Retries;
use super::room::Room;
use super::worker::{Worker, WorkerReport, WorkerStatistics};

/// Removals that are under way at once when all flows go.
const REMOVALS_UNDER_WAY: usize = 32_768;
/// After so long without a removal that is done a device stalls.
const STALL: Duration = Duration::from_millis(50);

/// The queue between the table and a backend.
pub struct OffloadQueue {
    pub(super) table: Arc<FlowTable>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) alike: Arc<Alike>,
    inboxes: Arc<Inboxes>,
    retries: Arc<Retries>,
    room: Arc<Room>,
    statistics: Vec<Arc<WorkerStatistics>>,
}

impl OffloadQueue {
    /// A queue with so many workers, or as many as help the device if these are fewer, each with an install queue of its own, still
    /// to be [run](Worker::run). Packets may pass `chain_depth` chains one after the other, or as many as the device allows if that is fewer.
    pub fn new(
        table: Arc<FlowTable>,
        backend: &Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        workers: usize,
        chain_depth: usize,
    ) -> Result<(Self, Vec<Worker>), Refusal> {
        table.limit_chain_depth(backend.capabilities().max_chain_depth.min(chain_depth));
        let chains = Arc::new(DeviceChains::new(table.clone()));
        let alike = Arc::new(Alike::new(backend.clone(), table.clone()));
        let workers = backend.capabilities().workers.map_or(workers, |most| workers.min(most.get()));
        let (inboxes, own) = Inboxes::new(&table, workers);
        let inboxes = Arc::new(inboxes);
        let retries = Arc::new(Retries::new(table.clone(), clock.clone(), inboxes.clone()));
        let room = Arc::new(Room::new(table.clone()));
        let worker = |inbox| {
            let install = backend.install_queue()?;
            let Capabilities { batch, chain_miss, .. } = backend.capabilities();
            let terms = (batch.max(1), chain_miss);
            let (alike, chains, inboxes) = (alike.clone(), chains.clone(), inboxes.clone());
            let (retries, room) = (retries.clone(), room.clone());
            Ok(Worker::new(table.clone(), clock.clone(), alike, chains, inboxes, retries, room, inbox, install, terms))
        };
        let workers = own.into_iter().map(worker).collect::<Result<Vec<_>, _>>()?;
        let statistics = workers.iter().map(Worker::statistics).collect();
        Ok((Self { table, clock, alike, inboxes, retries, room, statistics }, workers))
    }

    /// Takes a new flow on.
    pub fn add(&self, flow: Flow, reply_to: Option<ReplyTo>) -> Result<FlowId, TableError> {
        self.accept(flow, self.clock.now(), reply_to).map(|accepted| self.hand_over(accepted))
    }

    /// Takes a new flow on, to be handed over by the caller.
    pub(super) fn accept(&self, flow: Flow, now: Timestamp, reply_to: Option<ReplyTo>) -> Result<Accepted, TableError> {
        self.admit(flow, |flow| self.table.add(flow, now, reply_to))
    }

    /// Takes a flow on again that was accepted in an earlier run; see [`FlowTable::restore`].
    pub fn restore(&self, flow: Flow, accepted: Timestamp) -> Result<FlowId, TableError> {
        let accepted = self.admit(flow, |flow| self.table.restore(flow, accepted, self.clock.now()))?;
        Ok(self.hand_over(accepted))
    }

    /// Notes a flow that the table takes on where the device does not tell it apart from others.
    fn admit(
        &self,
        flow: Flow,
        take: impl FnOnce(Flow) -> Result<Accepted, TableError>,
    ) -> Result<Accepted, TableError> {
        let Some(name) = self.alike.name(&flow) else { return take(flow) };
        let accepted = take(flow)?;
        let others = self.alike.arrive(name, accepted.flow);
        if !others.is_empty() {
            // Somebody who modified it meanwhile may have had it looked at before it was noted.
            others.into_iter().chain([accepted.flow]).for_each(|flow| self.redo(flow));
        }
        Ok(accepted)
    }

    /// Takes new actions of a flow on; see [`FlowTable::modify`].
    pub fn modify(&self, flow: Flow, keep_old_rule: bool, reply_to: Option<ReplyTo>) -> Result<FlowId, TableError> {
        // A key alone names the flow that has this match, whatever UFID it was given.
        let was_named = || flow.ufid != self.table.seed().names(&flow.matching(), flow.priority).1;
        let by_match = || self.table.find_same(&flow).filter(|_| !was_named());
        let id = self.table.find(flow.ufid).or_else(by_match).ok_or(TableError::NotFound)?;
        let accepted = self.table.modify(id, flow, keep_old_rule, self.clock.now(), reply_to)?;
        Ok(self.hand_over(accepted))
    }

    /// Takes the end of a flow on.
    pub fn delete(&self, id: FlowId, reason: EndReason, reply_to: Option<ReplyTo>) -> Result<FlowId, TableError> {
        self.table.delete(id, reason, self.clock.now(), reply_to).map(|accepted| self.hand_over(accepted))
    }

    /// Takes the end of all flows on; those that jump to other chains before those in them. A device that keeps up is not
    /// given all at once, for each removal under way takes memory; one that stalls is not waited for.
    pub fn delete_all(&self, reason: EndReason, batch: &Arc<Batch>) {
        let mut later: BTreeMap<ChainId, Vec<FlowId>> = BTreeMap::new();
        let mut keeps_up = true;
        let reply_to = ReplyTo::from(batch.clone());
        let mut delete = |id| {
            if keeps_up && batch.outstanding() >= REMOVALS_UNDER_WAY {
                keeps_up = batch.wait_until_at_most(REMOVALS_UNDER_WAY / 2, STALL);
            }
            batch.expect_one();
            if self.delete(id, reason, Some(reply_to.clone())).is_err() {
                batch.expect_one_less();
            }
        };
        self.table.visit(&mut |view| {
            match view.flow.chain() {
                ChainId::ROOT => delete(view.id),
                chain => later.entry(chain).or_default().push(view.id),
            }
            ControlFlow::Continue(())
        });
        let mut chains: Vec<_> =
            later.into_iter().map(|(chain, flows)| (self.table.chain_level(chain), flows)).collect();
        chains.sort_by_key(|(level, _)| *level);
        chains.into_iter().flat_map(|(_, flows)| flows).for_each(&mut delete);
    }

    /// Has the rule of a flow moved to hardware or to software, if it is not there.
    pub fn place(&self, id: FlowId, place: Placement) {
        if let Some(accepted) = self.table.place(id, place) {
            self.hand_over(accepted);
        }
    }

    /// Takes note that a cause has changed, so that no flow in the device's hands is refused for it any more.
    pub fn note_change(&self, cause: Cause) {
        self.table.note_change(cause, self.clock.now());
    }

    /// Has refused flows tried again that wait for one of these causes, behind everything that is new.
    pub fn retry(&self, causes: impl IntoIterator<Item = Cause>) {
        self.retries.begin(causes);
    }

    /// A port is gone, and the flows that were accepted for it are refused until it [is back](Self::release); see
    /// [`FlowTable::withhold`]. Says how many there are.
    pub fn withhold(&self, port: &GonePort) -> usize {
        self.table.withhold(port, self.clock.now(), &mut |accepted| _ = self.hand_over(accepted))
    }

    /// Ports are back: those that are, as `is_back` says. Says how many flows waited for one of them.
    pub fn release(&self, is_back: impl Fn(&GonePort) -> bool) -> usize {
        self.table.release(is_back, self.clock.now(), &mut |accepted| _ = self.hand_over(accepted))
    }

    /// Has a rule put in again that the device lost.
    pub fn lost(&self, rule: LostRule) {
        if let Some(accepted) = self.table.lost(rule, self.clock.now()) {
            self.hand_over(accepted);
        }
    }

    /// Has a rule made anew, in place, that the device has otherwise than it was put there.
    pub fn redo(&self, id: FlowId) {
        if let Some(accepted) = self.table.redo(id, self.clock.now()) {
            self.hand_over(accepted);
        }
    }

    /// Why a flow would have no rule beside those that there are, if the device cannot tell it from one of them.
    pub fn held_apart(&self, flow: &Flow) -> Option<Refusal> {
        self.alike.refusal(flow)
    }

    /// Has the rules of all flows made anew, in place, that name a port behind which there is another device now, or none.
    pub fn redo_port(&self, port: PortNumber) {
        self.table.redo_where(|flow| flow.names_port(port), self.clock.now(), &mut |accepted| {
            self.hand_over(accepted);
        });
    }

    /// Whether there are flows that this worker has yet to look at.
    pub fn is_awaited(&self, worker: usize) -> bool {
        self.inboxes.is_awaited(worker)
    }

    /// What each worker has done and has before it.
    pub fn reports(&self) -> Vec<WorkerReport> {
        let queued = self.inboxes.queued();
        self.statistics.iter().zip(queued).map(|(worker, queued)| worker.report(queued)).collect()
    }

    /// How many flows of each worker have a rule now. Walks the table.
    pub fn rules(&self) -> Vec<usize> {
        self.inboxes.with_rules()
    }

    /// Waits until the table may have room for another unsettled flow, at most so long.
    pub fn wait_for_room(&self, at_most: Duration) {
        self.room.wait(at_most);
    }

    /// Has a flow looked at that was changed in the table. This is all that a caller pays beside the change itself.
    #[inline]
    pub fn hand_over(&self, accepted: Accepted) -> FlowId {
        self.inboxes.hand_over(accepted);
        accepted.flow
    }
}
