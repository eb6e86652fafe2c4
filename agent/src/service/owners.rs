//! All flows of one owner together.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use sluice_flow::table::FlowView;
use sluice_flow::{EndReason, Expiry, Flow, FlowId, Origin, Timestamp};

use super::accepted::Accepted;
use super::error::Error;
use super::faces::{AgentView, Service};
use super::flows::{check_in_port, count_refusal};
use super::patience::Patience;

/// The flows of an owner on their way to being those that it names, and no others.
pub struct Replacement {
    owner: Origin,
    began: Timestamp,
    /// The lives that were named, or stand for one that could not be taken on.
    named: HashSet<FlowId>,
    done: Replaced,
    patience: Patience,
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
    /// Flows that were not named.
    pub deleted: u64,
    /// Flows that were named and not taken on.
    pub failed: u64,
}

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
    /// Begins to name the flows of an owner. Nothing is deleted before [`sweep`](Self::sweep).
    pub fn replace(&self, owner: Origin) -> Replacement {
        let began = self.view().now();
        Replacement { owner, began, named: HashSet::new(), done: Replaced::default(), patience: Patience::default() }
    }

    /// Names a flow: adds it, changes it, or leaves it alone. Waits for room instead of hearing "busy". If it fails, a flow of its match that
    /// there is stays.
    pub fn name(&self, replacement: &mut Replacement, flow: &Flow) -> Result<(), Error> {
        let agent = self.agent();
        let result = loop {
            match self.try_name(replacement, flow) {
                Err(Error::Busy(_)) if !replacement.patience.is_over() => replacement.patience.wait_for_room(agent),
                result => break result,
            }
        };
        match &result {
            Ok(id) => _ = replacement.named.insert(*id),
            Err(error) => {
                count_refusal(agent, error);
                replacement.done.failed += 1;
                replacement.named.extend(agent.table.find_same(flow));
            }
        }
        result.map(|_| ())
    }

    fn try_name(&self, Replacement { owner, done, .. }: &mut Replacement, flow: &Flow) -> Result<FlowId, Error> {
        check_in_port(flow)?;
        let agent = self.agent();
        let id = agent.table.find(flow.ufid).or_else(|| agent.table.find_same(flow));
        let Some(known) = id.and_then(|id| agent.table.view(id)) else {
            let id = agent.queue.add(flow.clone(), None)?;
            done.added += 1;
            return Ok(id);
        };
        if known.flow.origin != *owner {
            return Err(Error::OtherOrigin(known.flow.ufid, known.flow.origin));
        }
        if known.flow.ufid != flow.ufid || !known.flow.is_same(flow) {
            // One of them goes, so that the name means what its owner says.
            agent.queue.delete(known.id, EndReason::Deleted, None)?;
            done.deleted += 1;
            let id = agent.queue.add(flow.clone(), None)?;
            done.added += 1;
            return Ok(id);
        }
        if known.flow.actions == flow.actions && known.flow.expiry == flow.expiry {
            done.unchanged += 1;
            return Ok(known.id);
        }
        let id = agent.queue.modify(flow.clone(), false, None)?;
        done.changed += 1;
        Ok(id)
    }

    /// Deletes the flows of the owner that were not named and are older than the replacement.
    pub fn sweep(&self, replacement: Replacement) -> Accepted<'_, Replaced> {
        let Replacement { owner, began, named, mut done, .. } = replacement;
        let is_left_out = |view: &FlowView| view.accepted < began && !named.contains(&view.id);
        done.deleted += self.delete_of(owner, is_left_out);
        Accepted::new(self.agent(), done)
    }

    /// Deletes all flows of an owner, and says how many.
    pub fn delete_owned(&self, owner: Origin) -> Accepted<'_, u64> {
        let deleted = self.delete_of(owner, |_| true);
        Accepted::new(self.agent(), deleted)
    }

    /// Those that jump to other chains go before those in them.
    fn delete_of(&self, owner: Origin, is_to_go: impl Fn(&FlowView) -> bool) -> u64 {
        let agent = self.agent();
        let mut going = Vec::new();
        self.view().visit(&mut |view| {
            if view.flow.origin == owner && is_to_go(&view) {
                going.push((agent.table.chain_level(view.flow.chain()), view.id));
            }
            ControlFlow::Continue(())
        });
        going.sort_by_key(|(level, _)| *level);
        let deleted = going.into_iter().filter(|(_, id)| agent.queue.delete(*id, EndReason::Deleted, None).is_ok());
        deleted.count() as u64
    }

    /// Gives the flows of an owner that never go by themselves an idle timeout, and says how many these are.
    pub fn age_owned(&self, owner: Origin, default: Duration) -> Accepted<'_, u64> {
        let agent = self.agent();
        let configured = agent.config().idle_timeout;
        let mut lasting = Vec::new();
        self.view().visit(&mut |view| {
            let Expiry { idle, hard, permanent } = view.flow.expiry;
            let is_lasting = permanent || idle.or(configured).is_none() && hard.is_none();
            if view.flow.origin == owner && is_lasting {
                lasting.push(view.flow);
            }
            ControlFlow::Continue(())
        });
        let mut aged = 0;
        let mut patience = Patience::default();
        for flow in lasting {
            let idle = Some(flow.expiry.idle.or(configured).unwrap_or(default));
            let flow = flow.with_expiry(Expiry { idle, permanent: false, ..flow.expiry });
            loop {
                match agent.queue.modify(flow.clone(), true, None).map_err(Error::from) {
                    Ok(_) => aged += 1,
                    Err(Error::Busy(_)) if !patience.is_over() => {
                        patience.wait_for_room(agent);
                        continue;
                    }
                    Err(error) => tracing::warn!("flow ufid:{} of {owner} keeps its timeouts: {error}", flow.ufid),
                }
                break;
            }
        }
        Accepted::new(agent, aged)
    }
}
