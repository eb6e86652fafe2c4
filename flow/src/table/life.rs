//! One life of a flow: what is wanted, what is installed, and what follows from the difference.

use std::sync::Arc;

use crate::backend::{Handle, Operation, Placement};
use crate::cause::Cause;
use crate::event::EndReason;
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::port::{GonePort, PortNumber};
use crate::refusal::Refusal;
use crate::table::chains::Member;
use crate::table::queue::Lane;
use crate::table::request::ReplyTo;
use crate::table::state::FlowState;
use crate::table::state::Standing;
use crate::time::Timestamp;

/// A flow from its acceptance to its end. Lies under the lock of its slot.
pub(super) struct Life {
    /// The flow as it was last wanted.
    pub(super) flow: Flow,
    /// Counts the changes to `flow` and `end`.
    pub(super) generation: Generation,
    /// Why the flow is no longer wanted; `None` while it is.
    pub(super) end: Option<EndReason>,
    /// The log has yet to write the end.
    pub(super) is_end_unwritten: bool,
    /// The rule in the device, if there is one.
    pub(super) installed: Option<Installed>,
    /// Where the rule shall be moved, if it is not there.
    pub(super) place: Option<Placement>,
    /// The last refusal and the generation that was refused.
    pub(super) refusal: Option<(Generation, Arc<Refusal>)>,
    /// Ports that the flow was accepted for are gone; `None` while it may be in the device.
    pub(super) withheld: Option<Box<Withheld>>,
    /// Leave the old rule in place if this modification is refused.
    pub(super) keep_old_rule: bool,
    /// A port went while this was wanted: rules of earlier generations may name it, and none of them is what is wanted again.
    pub(super) port_gone_at: Generation,
    /// A change is with the backend.
    pub(super) in_flight: bool,
    /// The rule that the device said meanwhile that it has lost: perhaps the one that the change is about to name.
    pub(super) lost: Option<Handle>,
    /// The device would not let the rule go: nothing is tried again until the device changes, or what is wanted.
    pub(super) stuck: bool,
    /// What is wanted was not changed, and is being tried again: the same refusal is no news. The census counts it.
    pub(super) is_retried: bool,
    /// Somebody's accepted request has no outcome yet.
    pub(super) unsettled: bool,
    /// Who wants to hear of the outcome.
    pub(super) reply_to: Option<ReplyTo>,
    /// The life that had the same identity before and is not over yet: its rule must go first.
    pub(super) predecessor: Option<FlowId>,
    /// The life that waits for this one.
    pub(super) successor: Option<FlowId>,
    /// What it is to chains, if it concerns any.
    pub(super) member: Option<Box<Member>>,
    /// When it was accepted.
    pub(super) accepted: Timestamp,
    /// When what is wanted was last changed.
    pub(super) asked: Timestamp,
    /// How far it has come, as the census counts it.
    pub(super) counted_as: Standing,
}

/// A rule in the device.
#[derive(Clone)]
pub(super) struct Installed {
    /// The flow as the device has it.
    pub(super) flow: Flow,
    /// The generation that the device has.
    pub(super) generation: Generation,
    pub(super) handle: Handle,
    pub(super) placement: Placement,
}

/// What has to happen next.
pub(super) enum Step {
    /// The device has what is wanted, or has refused it.
    Rest,
    /// This change.
    Change(Operation),
    /// Neither wanted nor installed: the life is over.
    Retire,
}

impl Life {
    /// A life in which nothing has happened.
    pub(super) fn new(flow: Flow, accepted: Timestamp, counted_as: Standing) -> Self {
        Self {
            flow,
            generation: Generation::NONE,
            end: None,
            is_end_unwritten: false,
            installed: None,
            place: None,
            refusal: None,
            withheld: None,
            keep_old_rule: false,
            port_gone_at: Generation::NONE,
            in_flight: false,
            lost: None,
            stuck: false,
            is_retried: false,
            unsettled: false,
            reply_to: None,
            predecessor: None,
            successor: None,
            member: None,
            accepted,
            asked: accepted,
            counted_as,
        }
    }

    /// Whether there is nothing to know but that this rule, which is in the device, is what is wanted.
    pub(super) fn is_settled(&self, rule: &Installed) -> bool {
        let is_as_wanted = rule.generation == self.generation && rule.flow.is_clone_of(&self.flow);
        let is_busy = self.in_flight || self.unsettled || self.is_retried || self.stuck;
        is_as_wanted
            && !is_busy
            && self.end.is_none()
            && self.place.is_none()
            && self.refusal.is_none()
            && self.withheld.is_none()
            && self.reply_to.is_none()
            && self.predecessor.is_none()
            && self.successor.is_none()
            && self.member.as_ref().is_none_or(|member| member.is_settled())
    }

    pub(super) fn state(&self) -> FlowState {
        self.standing().state()
    }

    pub(super) fn standing(&self) -> Standing {
        if self.end.is_some() {
            return Standing::Deleting;
        }
        match &self.installed {
            Some(rule) if rule.generation == self.generation && self.withheld.is_none() => {
                Standing::Placed(rule.placement)
            }
            None if self.is_refused() => Standing::Refused,
            _ => Standing::Pending,
        }
    }

    /// The lane in which it waits for its worker.
    pub(super) fn lane(&self) -> Lane {
        match self.end {
            Some(_) => Lane::Removal,
            None if self.is_retried && !self.unsettled => Lane::Retry,
            None => Lane::Change,
        }
    }

    /// What the flow waits for before it is worth another try; `None` if it is not refused, or for good.
    pub(super) fn awaited(&self) -> Option<Cause> {
        let (_, refusal) = self.refusal.as_ref()?;
        match self.stuck {
            // Whatever the device said, a rule that is to go must go in the end.
            true => Some(refusal.cause().unwrap_or(Cause::Time)),
            // One that is withheld waits for its port by name, and for no event of the device.
            false if self.state() == FlowState::Refused && self.withheld.is_none() => refusal.cause(),
            false => None,
        }
    }

    /// Whether what is wanted now is refused: by the device, or because a port is gone.
    pub(super) fn is_refused(&self) -> bool {
        self.withheld.is_some() || matches!(&self.refusal, Some((generation, _)) if *generation == self.generation)
    }

    /// Why the flow is not in the device, or why the device last refused it.
    pub(super) fn reason(&self) -> Option<&Arc<Refusal>> {
        let by_device = || self.refusal.as_ref().map(|(_, refusal)| refusal);
        self.withheld.as_ref().map(|withheld| &withheld.refusal).or_else(by_device)
    }

    /// The ports that the flow was accepted for and that are gone.
    pub(super) fn gone_ports(&self) -> &[GonePort] {
        self.withheld.as_ref().map_or(&[], |withheld| &withheld.ports)
    }

    /// Whether this port is named by what is wanted, or perhaps by a rule that is in the device or on its way there.
    pub(super) fn may_name_port(&self, port: PortNumber) -> bool {
        let rule_names_port = self.installed.as_ref().is_some_and(|rule| rule.flow.names_port(port));
        self.flow.names_port(port) || rule_names_port || self.in_flight
    }

    /// The difference between wanted and installed, as the next thing to do.
    pub(super) fn step(&self) -> Step {
        if self.stuck {
            return Step::Rest;
        }
        match (&self.end, &self.installed) {
            (Some(_), None) => Step::Retire,
            (Some(_), Some(rule)) => Step::Change(Operation::Remove(rule.handle)),
            (None, None) if self.is_refused() => Step::Rest,
            (None, None) => Step::Change(Operation::Install(self.flow.clone())),
            (None, Some(rule)) if self.withheld.is_some() => Step::Change(Operation::Remove(rule.handle)),
            (None, Some(rule)) if rule.generation == self.generation => match self.place {
                Some(place) if place != rule.placement => Step::Change(Operation::Move(rule.handle, place)),
                _ => Step::Rest,
            },
            // The old rule would forward wrongly, so it goes.
            (None, Some(rule)) if self.is_refused() => Step::Change(Operation::Remove(rule.handle)),
            (None, Some(rule)) => Step::Change(Operation::Modify(rule.handle, self.flow.clone())),
        }
    }

    /// Takes a refusal of what `generation` wanted. Says whether what is wanted is the old rule again.
    pub(super) fn refuse(&mut self, generation: Generation, refusal: Arc<Refusal>) -> bool {
        self.refusal = Some((generation, refusal));
        let is_kept = self.keep_old_rule && generation == self.generation;
        let old_rule = self.installed.as_mut().filter(|rule| is_kept && rule.generation >= self.port_gone_at);
        if let Some(rule) = old_rule {
            // As the caller asked: what the device has is what is wanted again.
            self.flow = rule.flow.clone();
            rule.generation = self.generation;
            return true;
        }
        false
    }
}

/// What a flow that is withheld waits for: at least one port.
#[derive(Clone, Debug)]
pub(super) struct Withheld {
    pub(super) ports: Vec<GonePort>,
    /// Of the first of them.
    pub(super) refusal: Arc<Refusal>,
}

impl Withheld {
    pub(super) fn new(ports: Vec<GonePort>) -> Option<Self> {
        let GonePort { number, name } = ports.first()?.clone();
        Some(Self { ports, refusal: Arc::new(Refusal::PortGone { number, name }) })
    }
}
