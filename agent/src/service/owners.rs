//! All flows of one owner together.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::table::{FlowView, ReplyTo};
use sluice_flow::{EndReason, Expiry, Flow, FlowId, Origin, Timestamp};
use sluice_offload::Batch;

use super::accepted::{Accepted, Pending};
use super::error::Error;
use super::faces::{AgentView, Service};
use super::flows::{AddFlow, DeleteFlow, FlowName, FlowRequest, ModifyFlow, submit};
use super::patience::Patience;
use super::turns::Turn;
use crate::agent::Agent;

/// The flows of an owner on their way to being those that it wants, and no others.
pub struct Replacement {
    owner: Origin,
    turn: Turn,
    began: Timestamp,
    /// The lives of flows that are wanted, or that stand for one that could not be taken on.
    wanted: HashSet<FlowId>,
    done: Replaced,
    /// Hears of what becomes of them.
    batch: Arc<Batch>,
    /// Hears of the ends of flows that had to make room for one with their match or their name.
    making_room: Arc<Batch>,
    /// So many of these ends were waited for.
    made_room: u64,
    patience: Patience,
}

/// The accepted end of a replacement.
pub struct Sweep {
    done: Replaced,
    batch: Arc<Batch>,
    making_room: Arc<Batch>,
}

/// What was done to the flows of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Flows that were new.
    pub added: u64,
    /// Flows that did something else before.
    pub changed: u64,
    /// Flows that were left alone.
    pub unchanged: u64,
    /// Flows that were not wanted any more.
    pub deleted: u64,
    /// Flows that were wanted and not taken on.
    pub failed: u64,
    /// Flows that were taken on, and that the device refused.
    pub refused: u64,
}

/// Does to one flow what is to be done to many, unless the reason for it is gone. Returns whether it was done; nothing is done to the
/// others if not.
pub type Step<'a> = dyn Fn(&mut dyn FnMut()) -> bool + 'a;

impl AgentView {
    /// How many flows each owner has. Walks the table.
    pub fn owners(&self) -> Vec<(Origin, u64)> {
        let mut owners: Vec<(Origin, u64)> = Vec::new();
        self.visit(&mut |view| {
            match owners.iter_mut().find(|(owner, _)| *owner == view.flow.origin) {
                Some((_, flows)) => *flows += 1,
                None => owners.push((view.flow.origin, 1)),
            }
            ControlFlow::Continue(())
        });
        owners
    }
}

impl Service {
    /// Begins to say which flows an owner wants. Nothing is deleted before [`sweep`](Self::sweep). An earlier replacement of the same owner changes
    /// nothing any more from now on.
    pub fn replace(&self, owner: Origin) -> Replacement {
        Replacement {
            owner,
            turn: self.turns.begin(owner),
            began: self.view().now(),
            wanted: HashSet::new(),
            done: Replaced::default(),
            batch: Arc::default(),
            making_room: Arc::default(),
            made_room: 0,
            patience: Patience::default(),
        }
    }

    /// Says that a flow is wanted: adds it, changes it, or leaves it alone. Waits for room instead of hearing "busy". If it fails, what
    /// there is of its match stays, but for a flow of another name, which had to make room.
    pub fn want(&self, replacement: &mut Replacement, flow: &Flow) -> Result<(), Error> {
        let (agent, turn) = (self.agent(), replacement.turn.clone());
        let result = loop {
            let tried = turn.act(|| self.try_want(replacement, flow));
            match tried.ok_or(Error::Overtaken(replacement.owner))? {
                Err(Error::Busy(_)) if !replacement.patience.is_over() => replacement.patience.wait_for_room(agent),
                // A flow that makes room counts as long as it is on its way out.
                Err(error) if error.is_at_limit() && replacement.is_making_room() => replacement.wait_for_ends(),
                result => break result,
            }
        };
        replacement.patience.note(agent, &result);
        match &result {
            Ok(id) => _ = replacement.wanted.insert(*id),
            Err(_) => {
                replacement.done.failed += 1;
                replacement.wanted.extend(agent.table.find_same(flow));
            }
        }
        result.map(|_| ())
    }

    fn try_want(&self, replacement: &mut Replacement, flow: &Flow) -> Result<FlowId, Error> {
        let (agent, owner) = (self.agent(), replacement.owner);
        let (batch, making_room) = (replacement.batch.clone(), replacement.making_room.clone());
        let ask = |request: FlowRequest| request.check().and_then(|()| submit(agent, request, &batch));
        let done = &mut replacement.done;
        let id = agent.table.find(flow.ufid).or_else(|| agent.table.find_same(flow));
        let Some(known) = id.and_then(|id| agent.table.view(id)) else {
            return ask(FlowRequest::Add(AddFlow { flow: flow.clone() })).inspect(|_| done.added += 1);
        };
        if known.flow.origin != owner {
            return Err(Error::OtherOrigin(known.flow.ufid, known.flow.origin));
        }
        if known.flow.ufid != flow.ufid || !known.flow.is_same(flow) {
            // It has the name and another match, or the match and another name. There may be one of each, and both go.
            let request = DeleteFlow { flow: FlowName::Ufid(known.flow.ufid), of: Some(owner) };
            submit(agent, FlowRequest::Delete(request), &making_room)?;
            done.deleted += 1;
            return self.try_want(replacement, flow);
        }
        let is_as_known = known.flow.actions == flow.actions && known.flow.expiry == flow.expiry;
        // One that is withheld is accepted anew for the ports that have its numbers now, if any have: without, it would be taken by whichever
        // port comes next.
        if is_as_known && !agent.has_in_place_of(&known.gone_ports) {
            done.unchanged += 1;
            return Ok(known.id);
        }
        let change = ModifyFlow { flow: flow.clone(), may_create: false, keep_old_rule: false };
        ask(FlowRequest::Modify(change)).inspect(|_| done.changed += 1)
    }

    /// Deletes the flows of the owner that are not wanted any more and are older than the replacement.
    pub fn sweep(&self, replacement: Replacement) -> Result<Accepted<'_, Sweep>, Error> {
        let Replacement { owner, turn, began, wanted, mut done, batch, making_room, .. } = replacement;
        let is_left_out = |view: &FlowView| view.accepted < began && !wanted.contains(&view.id);
        let is_current = Cell::new(turn.act(|| ()).is_some());
        let step = |delete: &mut dyn FnMut()| {
            is_current.set(turn.act(delete).is_some());
            is_current.get()
        };
        done.deleted += self.delete_of(owner, is_left_out, &batch, &step);
        if is_current.get() {
            Ok(Accepted::new(self.agent(), Sweep { done, batch, making_room }))
        } else {
            Err(Error::Overtaken(owner))
        }
    }

    /// Deletes all flows of an owner, each by a [`Step`], and says how many.
    pub fn delete_owned(&self, owner: Origin, step: &Step<'_>) -> Accepted<'_, u64> {
        let deleted = self.delete_of(owner, |_| true, &Arc::default(), step);
        Accepted::new(self.agent(), deleted)
    }

    /// Those that jump to other chains go before those in them.
    fn delete_of(
        &self,
        owner: Origin,
        is_to_go: impl Fn(&FlowView) -> bool,
        batch: &Arc<Batch>,
        step: &Step<'_>,
    ) -> u64 {
        let agent = self.agent();
        let mut going = Vec::new();
        self.view().visit(&mut |view| {
            if view.flow.origin == owner && is_to_go(&view) {
                going.push((agent.table.chain_level(view.flow.chain()), view.id));
            }
            ControlFlow::Continue(())
        });
        going.sort_by_key(|(level, _)| *level);
        let reply_to = ReplyTo::from(batch.clone());
        let mut deleted = 0;
        for (_, id) in going {
            let is_done = step(&mut || {
                batch.expect_one();
                match agent.queue.delete(id, EndReason::Deleted, Some(reply_to.clone())) {
                    Ok(_) => deleted += 1,
                    Err(_) => batch.expect_one_less(),
                }
            });
            if !is_done {
                break;
            }
        }
        deleted
    }

    /// Gives the flows of an owner that never go by themselves an idle timeout, each by a [`Step`], and says how many these are.
    pub fn age_owned(&self, owner: Origin, default: Duration, step: &Step<'_>) -> Accepted<'_, u64> {
        let agent = self.agent();
        let configured = agent.config().idle_timeout;
        let ageing = |Expiry { idle, hard, permanent }: &Expiry| {
            let is_lasting = *permanent || idle.or(configured).is_none() && hard.is_none();
            let idle = Some(idle.or(configured).unwrap_or(default));
            is_lasting.then_some(Expiry { idle, hard: *hard, permanent: false })
        };
        let mut lasting = Vec::new();
        self.view().visit(&mut |view| {
            if view.flow.origin == owner && ageing(&view.flow.expiry).is_some() {
                lasting.push(view.id);
            }
            ControlFlow::Continue(())
        });
        let mut aged = 0;
        for id in lasting {
            let is_done = step(&mut || aged += u64::from(agent.table.change_expiry(id, agent.clock.now(), ageing)));
            if !is_done {
                break;
            }
        }
        Accepted::new(agent, aged)
    }
}

impl Replacement {
    /// Whether there are flows that had to make room, and whose ends were not waited for.
    const fn is_making_room(&self) -> bool {
        self.done.deleted > self.made_room && !self.patience.is_over()
    }

    fn wait_for_ends(&mut self) {
        self.made_room = self.done.deleted;
        let making_room = &self.making_room;
        self.patience.wait(|at_most| _ = making_room.wait(at_most));
    }
}

impl Pending for Sweep {
    type Outcome = Replaced;

    fn outcome(&self, _: &Agent, within: Duration) -> Result<Replaced, Error> {
        let (tally, made_room) = (self.batch.wait(within), self.making_room.wait(within));
        match tally.outstanding + made_room.outstanding {
            0 => Ok(Replaced { refused: tally.refused as u64, ..self.done }),
            flows => Err(Error::Unanswered { flows, within }),
        }
    }
}
