//! The install path of a worker: it translates, and the thread of the device does what libmlx5 has to do with it.

use std::sync::Arc;
use std::task::Waker;

use crossbeam_channel::{Receiver, Sender, unbounded};
use sluice_flow::backend::{
    ChainChange, ChainCompletion, ChainOperation, Change, Completion, Facet, Handle, InstallQueue, Operation,
};
use sluice_flow::refusal::Refusal;
use sluice_flow::{Flow, FlowId, Generation};

use crate::owner::Owner;
use crate::ports::Ports;
use crate::rules::Rules;
use crate::translate::{Instance, Templates};

/// The queue.
pub(crate) struct Queue {
    owner: Arc<Owner>,
    ports: Arc<Ports>,
    templates: Templates,
    /// Of the ports that the templates are for.
    revision: u64,
    completed: Receiver<Vec<Completion>>,
    complete: Sender<Vec<Completion>>,
    changed: Receiver<ChainCompletion>,
    change: Sender<ChainCompletion>,
    waker: Option<Waker>,
}

/// A change that is translated.
struct Prepared {
    flow: FlowId,
    generation: Generation,
    work: Work,
}

enum Work {
    Install(Instance),
    Modify(Handle, Instance),
    Remove(Handle),
}

impl Queue {
    pub(crate) fn new(owner: Arc<Owner>, ports: Arc<Ports>) -> Self {
        let (complete, completed) = unbounded();
        let (change, changed) = unbounded();
        let (templates, revision) = (Templates::new(), ports.revision());
        Self { owner, ports, templates, revision, completed, complete, changed, change, waker: None }
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
        let mut prepared = Vec::with_capacity(batch.len());
        for Change { flow, generation, operation } in batch.drain(..) {
            match self.prepare(operation) {
                Ok(work) => prepared.push(Prepared { flow, generation, work }),
                Err(refusal) => done.push(Completion { flow, generation, result: Err(refusal) }),
            }
        }
        if prepared.is_empty() {
            return;
        }
        let names: Vec<_> = prepared.iter().map(|change| (change.flow, change.generation)).collect();
        let (complete, waker) = (self.complete.clone(), self.waker.clone());
        let work = move |rules: &mut Rules| {
            carry_out(rules, prepared, &complete);
            waker.inspect(|waker| waker.wake_by_ref());
        };
        if let Err(refusal) = self.owner.post(work) {
            let refused = |(flow, generation)| Completion { flow, generation, result: Err(refusal.clone()) };
            done.extend(names.into_iter().map(refused));
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.extend(self.completed.try_iter().flatten());
    }

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        let (tell, waker) = (self.change.clone(), self.waker.clone());
        let work = move |rules: &mut Rules| {
            match change.operation {
                ChainOperation::Open => rules.open_chain(change.chain),
                ChainOperation::Close => rules.close_chain(change.chain),
            }
            tell.send(ChainCompletion { change, result: Ok(()) }).unwrap_or_default();
            waker.inspect(|waker| waker.wake_by_ref());
        };
        if let Err(refusal) = self.owner.post(work) {
            done.push(ChainCompletion { change, result: Err(refusal) });
        }
    }

    fn poll_chains(&mut self, done: &mut Vec<ChainCompletion>) {
        done.extend(self.changed.try_iter());
    }

    fn set_waker(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }
}

/// Makes the changes of a batch: removals together, so that the device is waited for once, and the others in their order.
fn carry_out(rules: &mut Rules, prepared: Vec<Prepared>, complete: &Sender<Vec<Completion>>) {
    let mut removals = Vec::new();
    let mut done = Vec::with_capacity(prepared.len());
    for Prepared { flow, generation, work } in prepared {
        let result = match work {
            Work::Install(rule) => rules.install(flow, generation, rule),
            Work::Modify(handle, rule) => rules.modify(handle, rule),
            Work::Remove(handle) => {
                removals.push((flow, generation, handle));
                continue;
            }
        };
        done.push(Completion { flow, generation, result });
    }
    // What is installed is matched once this is done.
    rules.sync();
    let handles: Vec<_> = removals.iter().map(|(.., handle)| *handle).collect();
    if !handles.is_empty() {
        let removed = removals.into_iter().zip(rules.remove(&handles));
        done.extend(removed.map(|((flow, generation, _), result)| Completion { flow, generation, result }));
    }
    // Nobody waits any more if the worker is gone.
    complete.send(done).unwrap_or_default();
}
