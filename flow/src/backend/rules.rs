//! Rules as a device has them: of this run, of earlier ones, and of other owners.

use super::{Handle, Placement};
use crate::counters::Counters;
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::key::Match;
use crate::ufid::Ufid;

/// The rule of a flow as the device lists it, or the rules, where a flow needs more than one.
#[derive(Clone, Debug)]
pub struct InstalledRule {
    /// The backend's name for it.
    pub handle: Handle,
    /// The flow, read back from the device as far as it can be.
    pub flow: Flow,
    /// Whether the device tells the UFID; if not, that of `flow` is made up.
    pub is_named: bool,
    /// How many rules of the device it is.
    pub rules: usize,
    /// Where it is; of several, only where all are.
    pub placement: Placement,
    /// Whether the backend would write it so today: for the same ones to take it, and with what the configuration lets a rule leave
    /// out. One that an earlier build has written in another form, or another owner, works as it is and is to be written anew, in
    /// place.
    pub is_current: bool,
}

/// What another owner has in a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// [As much of its number](super::Owner::mark) as notes have room for.
    pub mark: u32,
    /// Rules of flows.
    pub rules: usize,
    /// Rules at the ends of chains.
    pub chain_ends: usize,
    /// Rules of mirrors.
    pub mirrors: usize,
    /// Meters.
    pub meters: usize,
    /// What a newer build has written, which this one does not touch.
    pub of_newer: usize,
    /// The latest format of the notes on that.
    pub newer_format: Option<u8>,
}

/// What a device looks at where it cannot look at all that a flow matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooksAt {
    /// The match of the flow without what is left out.
    pub matching: Match,
    /// Whether flows for which it is the same are to be held apart: none of them is to have a rule.
    pub holds_apart: bool,
}

/// Rules to be read back, because they may be something else than what was put in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToInspect {
    /// Those that somebody else was heard to touch since this was last asked.
    pub touched: Vec<Handle>,
    /// Some of all others: each is due in time.
    pub due: Vec<Handle>,
}

/// The flows that may take over the rules of an earlier run.
pub trait Claims {
    /// Is told what another owner has in the device, before any rule is shown. Returns whether its rules are to be
    /// [inherited](Self::inherit).
    fn inherits(&mut self, _holding: &Holding) -> bool {
        false
    }

    /// Is shown a rule of such an owner as it is read back. Returns whose it is from now on, as [`Self::claim`] does. A rule that
    /// nobody takes stays in the device.
    fn inherit(&mut self, _rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        None
    }

    /// Returns the flow that is wanted under a UFID. A backend that knows by it what a rule says need not read that.
    fn wanted(&self, ufid: Ufid) -> Option<Flow>;

    /// Is shown a rule. Returns whose it is from now on: the flow, and the generation that readings are to carry.
    fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)>;
}

/// Claims each rule when it is shown, and none by its UFID.
impl<F: FnMut(&InstalledRule) -> Option<(FlowId, Generation)>> Claims for F {
    fn wanted(&self, _ufid: Ufid) -> Option<Flow> {
        None
    }

    fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        self(rule)
    }
}

/// What became of the rules of an earlier run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// Those that a flow has now; several of one flow are one.
    pub adopted: usize,
    /// Those that were taken out.
    pub orphans: usize,
}

/// Counters of one rule, since it was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedApart {
    /// By hardware.
    pub hardware: Counters,
    /// By software.
    pub software: Counters,
}
