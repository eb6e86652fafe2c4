//! What is told of a datapath, on its way to the agent; and what has come of it, on its way back.

use sluice_flow::FlowState;
use sluice_flow::source::{Intake, SourceReport, Standing};
use sluice_netdev::netlink::attribute::Malformed;

use super::Options;
use super::feedback::Feedback;
use super::flows::Flows;
use super::meters::Meters;
use super::ports::Ports;
use crate::listener::{Change, Notification};
use crate::wire::{Datapath, FlowMessage, Vport, read_meter, read_meter_id};

/// What a person should know while ovs-vswitchd takes no feedback.
const SHORT: &str =
    "ovs-vswitchd does not hear what is forwarded here: its counters are short, and it makes flows anew every max-idle";
/// What becomes of packets that miss in a later chain.
pub(super) const GOES_ON: &str = "goes on in Open vSwitch at that recirculation id";
pub(super) const BEGINS_AGAIN: &str =
    "begins again in Open vSwitch, so that flows which change a packet before recirc() are left out";

/// What notifications change.
pub(super) struct Follower<'a> {
    pub(super) options: &'a Options,
    pub(super) report: &'a mut SourceReport,
    pub(super) feedback: Option<&'a mut Feedback>,
    pub(super) intake: &'a dyn Intake,
    pub(super) datapath: u32,
    pub(super) flows: Flows,
    pub(super) ports: Ports,
    pub(super) meters: Meters,
    /// All must be compared, as soon as that may be.
    pub(super) must_compare: bool,
    /// What the datapath is now, as far as was heard.
    pub(super) told: Option<Datapath>,
    /// The datapath is gone.
    pub(super) is_gone: bool,
    /// All flows have been told of, and what is new of them is enough from now on.
    pub(super) has_told_all: bool,
}

/// What has come of the flows since it was last looked.
#[derive(Default)]
pub(super) struct Looked {
    /// The device has refused these, or has lost them.
    pub(super) refused: Vec<Standing>,
    /// Somebody has deleted some by a command.
    pub(super) misses_some: bool,
}

impl Follower<'_> {
    /// Takes what has changed on to the agent.
    pub(super) fn take(&mut self, notification: Notification<'_>) -> Result<(), Malformed> {
        match notification {
            Notification::Flow(change, payload) => {
                let (datapath, name) = FlowMessage::read_name(payload)?;
                if datapath != self.datapath {
                    return Ok(());
                }
                self.report.messages += 1;
                if change == Change::Deleted {
                    if let (Some(feedback), Some(ufid)) = (&mut self.feedback, name) {
                        // What was counted since it was last told.
                        feedback.end_with(ufid, self.intake.standing(ufid).as_ref());
                    }
                    self.flows.end(name, self.intake);
                } else if !self.flows.put(payload, &self.meters, self.intake) {
                    self.must_compare = true;
                }
            }
            Notification::Vport(change, payload) => {
                let vport = Vport::read(payload)?;
                if vport.datapath != self.datapath {
                    return Ok(());
                }
                match change {
                    Change::Deleted => {
                        self.ports.vanish(&vport, self.options.underlay.as_deref(), self.intake);
                    }
                    Change::New | Change::Set => {
                        self.ports.appear(&vport, self.options.underlay.as_deref(), self.intake);
                    }
                }
            }
            Notification::Meter(Change::Deleted, payload) => {
                self.meters.end(read_meter_id(payload)?, self.feedback.as_deref_mut(), self.intake);
            }
            Notification::Meter(_, payload) => self.meters.set(read_meter(payload)?, self.intake),
            Notification::Datapath(change, payload) => {
                let told = Datapath::read(payload)?;
                if told.index == self.datapath {
                    self.is_gone |= change == Change::Deleted;
                    self.told = Some(told);
                }
            }
        }
        Ok(())
    }

    /// Looks at what has come of the flows, and tells of it.
    pub(super) fn tell(&mut self) -> Looked {
        self.meters.tell(self.feedback.as_deref_mut(), self.intake);
        let mut looked = Looked { misses_some: self.intake.wanted() < self.flows.taken(), ..Looked::default() };
        let tells_all = self.feedback.as_ref().is_none_or(|feedback| feedback.may_tell());
        let feedback = &mut self.feedback;
        let mut tell = |standing: Standing| {
            // A flow that is told of has a rule, which ovs-vswitchd relies on before it deletes one of its own (`deploy/ovs`).
            let has_rule = matches!(standing.state, FlowState::Offloaded | FlowState::Partial);
            if let (true, Some(feedback)) = (has_rule, feedback.as_mut()) {
                feedback.tell(&standing);
            }
            if standing.state == FlowState::Refused {
                looked.refused.push(standing);
            }
        };
        if self.has_told_all {
            self.intake.visit_news(&mut tell);
        } else {
            self.intake.visit(&mut tell);
        }
        self.has_told_all = tells_all && !self.feedback.as_ref().is_some_and(|feedback| feedback.is_full());
        self.report.flows = self.flows.named();
        self.report.flows_left_out = self.flows.named() - self.flows.taken();
        self.report.ports_left_out = self.ports.left_out();
        let is_heard = self.feedback.as_ref().is_some_and(|feedback| feedback.is_taken());
        self.report.caveat = (!is_heard).then(|| SHORT.to_owned());
        self.intake.report(self.report.clone());
        looked
    }
}
