//! Rules that are in the device before the table's workers have put any there, and rules that the device has otherwise
//! than the table says.

use super::FlowTable;
use super::life::{Installed, Life};
use crate::backend::InstalledRule;
use crate::event::Event;
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::table::Accepted;
use crate::time::Timestamp;
use crate::ufid::Ufid;

impl FlowTable {
    /// Takes a rule that an earlier run left in the device for that of [its flow](FlowTable::find_rule). Gives the flow, and
    /// the generation that readings of the rule are to carry; `None` if no flow wants it: there is none, or it has another
    /// match, or a rule already.
    ///
    /// If the rule does what is wanted, and is written as it would be today, the flow is settled by it. Otherwise what is wanted is newer than what is installed, and
    /// a worker, to which the flow was handed over when it was [restored](FlowTable::restore), modifies the rule in place.
    /// Nothing that the rule counted before says when it was last used, so that the flow ages as a new one.
    pub fn adopt(&self, rule: &InstalledRule, now: Timestamp) -> Option<(FlowId, Generation)> {
        let id = self.find_rule(rule)?;
        self.with_life(id, |life| {
            let has_rule = life.installed.is_some() || life.in_flight || life.predecessor.is_some();
            if has_rule || life.end.is_some() || !life.flow.is_same(&rule.flow) {
                return None;
            }
            let installed_as = life.generation;
            let is_as_wanted = rule.is_current && life.flow.actions == rule.flow.actions;
            let flow = if is_as_wanted {
                life.flow.clone()
            } else {
                life.generation = life.generation.next();
                self.parts.share(life.flow.with_actions(rule.flow.actions.clone()))
            };
            let InstalledRule { handle, placement, .. } = *rule;
            self.chains.adopt(id, &mut life.member, &flow, is_as_wanted);
            self.with_cell(id, |cell| cell.begin(installed_as, now));
            self.events.event(&Event::Adopted { flow: flow.clone(), placement });
            life.installed = Some(Installed { flow, generation: installed_as, handle, placement });
            if is_as_wanted {
                self.settle(id, life, None);
            }
            self.restate(id, life);
            Some((id, installed_as))
        })?
    }

    /// The flow that is wanted under a UFID, as it is wanted.
    pub fn wanted(&self, ufid: Ufid) -> Option<Flow> {
        let id = self.find(ufid)?;
        self.with_life(id, |life| life.end.is_none().then(|| life.flow.clone()))?
    }

    /// The flow that a rule in the device is of: the one with its UFID, or with its match and priority where the device does
    /// not tell that.
    pub fn find_rule(&self, rule: &InstalledRule) -> Option<FlowId> {
        if rule.is_named {
            return self.find(rule.flow.ufid);
        }
        let (identity, _) = self.seed.names(&rule.flow.matching(), rule.flow.priority);
        let shard = self.by_identity.lock(identity);
        self.wanted_in(self.slot_of_same(&shard, &rule.flow)?)
    }

    /// Has the rule of a flow made anew, in place, because the device has something else than was put there, or because it is to be
    /// judged anew; one that was refused is tried again. The flow must be looked at; `None` if nobody has looked at it yet, or if it
    /// is on its way out.
    pub fn redo(&self, id: FlowId, now: Timestamp) -> Option<Accepted> {
        self.with_life(id, |life| {
            let was_looked_at = life.installed.is_some() || life.in_flight || life.is_refused();
            (was_looked_at && life.end.is_none()).then(|| self.made_anew(id, life, now))
        })?
    }

    /// Has the rules of all flows that are concerned made anew, in place. A rule that is on its way into the device is among
    /// them, because it may have been translated before whatever has changed. Hands the flows to look at to `enqueue`.
    pub fn redo_where(&self, is_concerned: impl Fn(&Flow) -> bool, now: Timestamp, enqueue: &mut dyn FnMut(Accepted)) {
        for slot in self.arena.slots() {
            let accepted = self.arena.slot(slot).and_then(|(id, mut record)| {
                record.flow().filter(|flow| is_concerned(flow))?;
                record.change(|life| {
                    let may_have_rule = life.installed.is_some() || life.in_flight;
                    (may_have_rule && life.end.is_none()).then(|| self.made_anew(id, life, now))
                })?
            });
            if let Some(accepted) = accepted {
                enqueue(accepted);
            }
        }
    }

    fn made_anew(&self, id: FlowId, life: &mut Life, now: Timestamp) -> Accepted {
        if !life.unsettled {
            self.census.force_change();
            life.unsettled = true;
        }
        // Who waits for the outcome waits for that of what is made now.
        let reply_to = life.reply_to.take();
        self.changed(id, life, now, reply_to)
    }
}
