//! The install path of a worker: it translates, and the thread of the device does what libmlx5 has to do with it.

use std::sync::Arc;
use std::task::Waker;

use crossbeam_channel::{Receiver, Sender, unbounded};
use sluice_flow::Flow;
use sluice_flow::backend::{
    ChainChange, ChainCompletion, ChainOperation, Change, Completion, Facet, InstallQueue, Operation,
};
use sluice_flow::refusal::Refusal;

use crate::desk::{Batch, Completed, Desk, Prepared, Reply, Work};
use crate::in_hand::InHand;
use crate::owner::Owner;
use crate::ports::Ports;
use crate::translate::Templates;

/// The queue.
pub(crate) struct Queue {
    owner: Arc<Owner>,
    ports: Arc<Ports>,
    templates: Templates,
    /// Of the ports that the templates are for.
    revision: u64,
    completed: Receiver<Completed>,
    complete: Sender<Completed>,
    in_hand: InHand,
    changed: Receiver<ChainCompletion>,
    change: Sender<ChainCompletion>,
    /// Changes to chains that are not completed.
    chains_in_hand: Vec<ChainChange>,
    waker: Option<Waker>,
}

impl Queue {
    pub(crate) fn new(owner: Arc<Owner>, ports: Arc<Ports>) -> Self {
        let (complete, completed) = unbounded();
        let (change, changed) = unbounded();
        let (templates, revision) = (Templates::new(), ports.revision());
        let (in_hand, chains_in_hand, waker) = Default::default();
        Self { owner, ports, templates, revision, completed, complete, in_hand, changed, change, chains_in_hand, waker }
    }

    fn prepare(&mut self, operation: Operation) -> Result<Work, Refusal> {
        let mut instance = |flow: Flow| self.templates.instance(flow, &*self.ports);
        match operation {
            Operation::Install(flow) => instance(flow).map(Work::Install),
            Operation::Modify(handle, flow) => instance(flow).map(|rule| Work::Modify(handle, rule)),
            Operation::Remove(handle) => Ok(Work::Remove(handle)),
            Operation::Move(..) => Err(Refusal::Unsupported { facet: Facet::Capacity }),
        }
    }
}

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        let revision = self.ports.revision();
        if self.revision != revision {
            self.templates.clear();
            self.revision = revision;
        }
        let (mut prepared, mut handed) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for Change { flow, generation, operation } in batch.drain(..) {
            match self.prepare(operation) {
                Ok(work) => {
                    prepared.push(Prepared { flow, generation, work });
                    handed.push((flow, generation));
                }
                Err(refusal) => done.push(Completion { flow, generation, result: Err(refusal) }),
            }
        }
        if prepared.is_empty() {
            return;
        }
        let number = self.in_hand.begin(handed);
        let reply = Reply { batch: number, complete: self.complete.clone(), waker: self.waker.clone() };
        let batch = Batch { changes: prepared, reply };
        if let Err(refusal) = self.owner.post(move |desk| desk.carry_out(batch)) {
            let refused = |(flow, generation)| Completion { flow, generation, result: Err(refusal.clone()) };
            done.extend(self.in_hand.cancel(number).into_iter().map(refused));
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        for Completed { batch, mut completions } in self.completed.try_iter() {
            if self.in_hand.complete(batch, &completions) {
                done.append(&mut completions);
            }
        }
        // The thread of a device that has failed may never come back.
        if let Err(refusal) = self.owner.check() {
            done.extend(self.in_hand.give_up(&refusal));
        }
    }

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        let (tell, waker) = (self.change.clone(), self.waker.clone());
        let work = move |desk: &mut Desk| {
            match change.operation {
                ChainOperation::Open => desk.rules.open_chain(change.chain),
                ChainOperation::Close => desk.rules.close_chain(change.chain),
            }
            tell.send(ChainCompletion { change, result: Ok(()) }).unwrap_or_default();
            waker.inspect(|waker| waker.wake_by_ref());
        };
        match self.owner.post(work) {
            Ok(()) => self.chains_in_hand.push(change),
            Err(refusal) => done.push(ChainCompletion { change, result: Err(refusal) }),
        }
    }

    fn poll_chains(&mut self, done: &mut Vec<ChainCompletion>) {
        for completion in self.changed.try_iter() {
            if let Some(place) = self.chains_in_hand.iter().position(|change| *change == completion.change) {
                self.chains_in_hand.swap_remove(place);
                done.push(completion);
            }
        }
        if let Err(refusal) = self.owner.check() {
            let refused = |change| ChainCompletion { change, result: Err(refusal.clone()) };
            done.extend(self.chains_in_hand.drain(..).map(refused));
        }
    }

    fn set_waker(&mut self, waker: Waker) {
        self.owner.wake_on_failure(waker.clone());
        self.waker = Some(waker);
    }
}
