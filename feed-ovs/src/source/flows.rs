//! The flows of a datapath on their way to the agent.

use std::collections::HashMap;

use sluice_flow::source::Intake;
use sluice_flow::{Expiry, FlowMaker, Origin, Priority, Ufid};

use super::meters::Meters;
use crate::wire::{FlowMessage, now};

/// Open vSwitch itself says when a flow ends.
const EXPIRY: Expiry = Expiry { idle: None, hard: None, permanent: true };

/// What the datapath has, as far as was heard.
pub(super) struct Flows {
    maker: FlowMaker,
    named: HashMap<Ufid, Known>,
    /// How many of these the agent has taken on.
    taken: usize,
    /// Flows without a UFID, as ovs-vswitchd probes the kernel with at its start. They are passed over.
    unnamed: u64,
    /// The number of the last comparison.
    round: u32,
    /// The datapath takes packets on in later chains.
    go_on: bool,
}

struct Known {
    /// When it was last seen.
    round: u32,
    is_taken: bool,
}

impl Flows {
    /// None yet, of a datapath that takes packets on in later chains or does not.
    pub(super) fn new(go_on: bool, intake: &dyn Intake) -> Self {
        let maker = FlowMaker::new(*intake.seed(), Origin::OpenVswitch).sharing(intake.parts().clone()).going_on(go_on);
        Self { maker, named: HashMap::new(), taken: 0, unnamed: 0, round: 0, go_on }
    }

    /// Whether the datapath takes packets on in later chains.
    pub(super) const fn go_on(&self) -> bool {
        self.go_on
    }

    /// How many flows the datapath has.
    pub(super) fn count(&self) -> u64 {
        self.named.len() as u64 + self.unnamed
    }

    /// Whether it has one of this name.
    pub(super) fn has(&self, ufid: Ufid) -> bool {
        self.named.contains_key(&ufid)
    }

    /// Whether the agent has taken it on.
    pub(super) fn has_taken(&self, ufid: Ufid) -> bool {
        self.named.get(&ufid).is_some_and(|known| known.is_taken)
    }

    /// The names of those that the agent has taken on.
    pub(super) fn taken_names(&self) -> impl Iterator<Item = Ufid> {
        self.named.iter().filter(|(_, known)| known.is_taken).map(|(ufid, _)| *ufid)
    }

    /// How many of them have a UFID.
    pub(super) fn named(&self) -> usize {
        self.named.len()
    }

    /// How many the agent has taken on.
    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    /// Takes a flow that is there. Returns whether the message tells all of it; a flow of which it does not has no rule, nor one of what it
    /// was before.
    pub(super) fn put(&mut self, payload: &[u8], meters: &Meters, intake: &dyn Intake) -> bool {
        let (name, wanted) = match FlowMessage::read(payload, now()) {
            Ok(FlowMessage { ufid, matching, actions, .. }) => (ufid, Ok(matching.zip(actions))),
            Err(reason) => (FlowMessage::read_name(payload).ok().and_then(|(_, name)| name), Err(reason)),
        };
        let Some(ufid) = name else {
            self.unnamed += 1;
            return true;
        };
        let is_told_whole = !matches!(wanted, Ok(None));
        let taken = match wanted {
            Ok(Some((matching, actions))) => {
                let (brings_meters, actions) = (meters.are_named_by(&actions), self.maker.known_actions(actions));
                let name = Some(ufid);
                let flow = self.maker.make(name, &matching, &actions, Priority::default(), EXPIRY, brings_meters);
                intake.put(flow).map_err(|refusal| refusal.to_string())
            }
            Ok(None) => Err("the kernel does not tell all of it".to_owned()),
            Err(reason) => Err(reason.to_string()),
        };
        if let Err(reason) = &taken {
            tracing::debug!(%ufid, "a flow is left to Open vSwitch: {reason}");
            intake.delete(ufid);
        }
        let known = Known { round: self.round, is_taken: taken.is_ok() };
        self.taken += usize::from(known.is_taken);
        let before = self.named.insert(ufid, known);
        self.forget(before);
        is_told_whole
    }

    /// Takes the end of a flow.
    pub(super) fn end(&mut self, name: Option<Ufid>, intake: &dyn Intake) {
        match name {
            Some(ufid) => {
                let known = self.named.remove(&ufid);
                self.forget(known);
                intake.delete(ufid);
            }
            None => self.unnamed = self.unnamed.saturating_sub(1),
        }
    }

    /// Counts one out that was known, if it was taken on.
    fn forget(&mut self, known: Option<Known>) {
        self.taken -= usize::from(known.is_some_and(|known| known.is_taken));
    }

    /// Begins a comparison: all that is there is put again.
    pub(super) fn begin_comparison(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.unnamed = 0;
    }

    /// Ends a comparison: what was not put again is gone.
    pub(super) fn end_comparison(&mut self, intake: &dyn Intake) {
        let round = self.round;
        self.named.retain(|_, known| known.round == round);
        self.taken = self.named.values().filter(|known| known.is_taken).count();
        let mut gone = Vec::new();
        intake.visit(&mut |standing| {
            if !self.named.contains_key(&standing.ufid) {
                gone.push(standing.ufid);
            }
        });
        gone.into_iter().for_each(|ufid| intake.delete(ufid));
    }
}
