//! `sluice/audit`: what the table says is in the device against what the device says.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use sluice_flow::table::FlowView;
use sluice_flow::{Flow, FlowState, Refusal, Ufid};

use super::arguments::Arguments;
use super::{Failure, dump};
use crate::agent::Agent;
use crate::unixctl::Output;

/// `sluice/audit`. Succeeds if there is no difference; if there are some, it fails with a line for each.
pub(super) fn audit(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let listing = |refusal: Refusal| Failure::new(format_args!("listing the rules of {}: {refusal}", agent.datapath()));
    let mut found = Differences::look(agent).map_err(listing)?;
    if !found.lines.is_empty() {
        // Table and device were not read at one moment: a difference is what is there at a second look, too.
        let again = Differences::look(agent).map_err(listing)?;
        found.lines.retain(|line| again.lines.contains(line));
    }
    if found.lines.is_empty() {
        return Ok(writeln!(out, "{} rules, all as wanted", found.rules)?);
    }
    let lines: Vec<_> = found.lines.into_iter().collect();
    Err(Failure(lines.join("\n")))
}

/// How the device differs from the table.
struct Differences {
    rules: usize,
    lines: BTreeSet<String>,
}

impl Differences {
    /// Compares flows that are settled; those on their way in or out are what they are.
    fn look(agent: &Agent) -> Result<Self, Refusal> {
        let mut rules: HashMap<Ufid, Vec<Flow>> = HashMap::new();
        agent.backend.installed(&mut |rule| rules.entry(rule.flow.ufid).or_default().push(rule.flow))?;
        let mut lines = BTreeSet::new();
        for (ufid, same) in &rules {
            let view = agent.table.find(*ufid).and_then(|id| agent.table.view(id));
            match view {
                None => drop(lines.insert(format!("foreign: ufid:{ufid} is in the device and not in the table"))),
                Some(view) if is_settled(&view) && same.iter().any(|rule| rule.actions != view.flow.actions) => {
                    lines.insert(format!("changed: ufid:{ufid} does something else in the device"));
                }
                Some(_) => {}
            }
            if same.len() > 1 {
                lines.insert(format!("doubled: ufid:{ufid} is in the device {} times", same.len()));
            }
        }
        let ports = agent.ports();
        agent.table.visit(&mut |view| {
            if is_settled(&view) && !rules.contains_key(&view.flow.ufid) {
                let key = dump::key_text(&view, &ports);
                lines.insert(format!("missing: ufid:{} is not in the device: {key}", view.flow.ufid));
            }
            ControlFlow::Continue(())
        });
        Ok(Self { rules: rules.values().map(Vec::len).sum(), lines })
    }
}

fn is_settled(view: &FlowView) -> bool {
    matches!(view.state, FlowState::Offloaded | FlowState::Partial)
}
