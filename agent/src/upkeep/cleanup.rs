//! The last work of an agent that is to leave nothing of its own in the device, and what is left there all the same.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use sluice_flow::port::PortNames;
use sluice_flow::{Field, Flow, PortNumber, Refusal};

use crate::agent::Agent;

/// Ports that are named; of more, it is said how many there are.
const PORTS_NAMED: usize = 8;

/// What of the agent's is still in the device after a cleanup.
#[derive(Debug, thiserror::Error)]
pub enum Left {
    /// Rules.
    #[error("{} rules are left in the device ({rules}): {reason}", rules.total())]
    Rules {
        /// How many, and at which ports.
        rules: RulesAtPorts,
        /// Why.
        reason: Refusal,
    },
    /// The device tells of no rule, and not that there is none.
    #[error("rules may be left in the device: {0}")]
    Unknown(Refusal),
    /// What was made for ports and meters.
    #[error("what was made for ports and meters is left in the device: {0}")]
    Objects(Refusal),
}

/// How many rules take packets in at a port of this name; without a name, at no certain one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesAtPorts(BTreeMap<Option<String>, usize>);

impl RulesAtPorts {
    fn add(&mut self, agent: &Agent, flow: &Flow) {
        let (port, mask) = flow.matching().get(Field::InPort);
        let number = u32::try_from(port).ok().filter(|_| mask == Field::InPort.full_mask()).map(PortNumber);
        let name = number.map(|number| agent.ports().name(number).map_or_else(|| number.to_string(), str::to_owned));
        *self.0.entry(name).or_default() += 1;
    }

    fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl fmt::Display for RulesAtPorts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (port, rules)) in self.0.iter().take(PORTS_NAMED).enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            match port {
                Some(name) => write!(out, "{separator}{rules} at port {name}")?,
                None => write!(out, "{separator}{rules} at no certain port")?,
            }
        }
        match self.0.len().saturating_sub(PORTS_NAMED) {
            0 => Ok(()),
            more => write!(out, ", others at {more} more ports"),
        }
    }
}

/// Leaves nothing of the agent's in the device, and asks it whether that is so. Returns what stays there because others use it.
pub fn clean_up(agent: &Agent) -> Result<Vec<String>, Left> {
    let tally = agent.flush();
    if let Some(mirrors) = agent.backend.mirrors() {
        for mirror in agent.objects().mirrors() {
            // Out of the device only: one that came at run time is there again at the next start.
            if let Err(refusal) = mirrors.remove_mirror(&mirror.name) {
                tracing::error!("mirror {} is left in the device: {refusal}", mirror.name);
            }
        }
    }
    let flushed = agent.backend.flush();
    let mut rules = RulesAtPorts::default();
    let listed = agent.backend.installed(&mut |rule| rules.add(agent, &rule.flow));
    let stuck = tally.outstanding + tally.refused;
    let cleaned = match (flushed, listed) {
        (Ok(0), Ok(())) if rules.0.is_empty() && stuck == 0 => {
            tracing::info!("{} flows removed, and the device has no rule of ours", tally.deleted);
            Ok(())
        }
        (Ok(removed), Ok(())) if rules.0.is_empty() => {
            tracing::warn!(
                "{} flows removed one by one, {stuck} not, and {removed} rules with force; the device has no rule of ours",
                tally.deleted
            );
            Ok(())
        }
        (flushed, listed) => {
            let first = tally.refusals.into_iter().next().map(|(_, refusal)| Refusal::clone(&refusal));
            let unsaid = || Refusal::Device { reason: "it lists them still".into() };
            let reason = flushed.err().or(listed.err()).or(first).unwrap_or_else(unsaid);
            Err(left(rules, reason))
        }
    };
    match (cleaned, agent.backend.release().map_err(Left::Objects)) {
        (Ok(()), released) => released,
        (Err(left), released) => {
            if let Err(objects) = released {
                tracing::error!("{objects}");
            }
            Err(left)
        }
    }
}

/// What may be left by a cleanup that has not come to its end. Does not ask the device.
pub fn unfinished(agent: &Agent) -> Left {
    let mut rules = RulesAtPorts::default();
    agent.table.visit(&mut |view| {
        if view.handle.is_some() {
            rules.add(agent, &view.flow);
        }
        ControlFlow::Continue(())
    });
    left(rules, Refusal::Busy { reason: "the device has not let them go in time".into() })
}

fn left(rules: RulesAtPorts, reason: Refusal) -> Left {
    if rules.0.is_empty() { Left::Unknown(reason) } else { Left::Rules { rules, reason } }
}
