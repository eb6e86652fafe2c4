//! `sluice/refusals`: why flows are refused, counted.

use serde_json::{Value, json};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::{AgentView, RefusedFlows};

/// So many reasons are told, the most frequent ones.
const SHOWN: usize = 20;

/// `sluice/refusals`: an array, as `refusals` in `docs/json.md` under `doctor`.
pub(super) fn show(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let survey = agent.survey();
    let refusals: Value = survey.refusals.iter().take(SHOWN).map(object).collect();
    Ok(writeln!(out, "{refusals}")?)
}

fn object(refused: &RefusedFlows) -> Value {
    let RefusedFlows { label, reason, flows, example, cure } = refused;
    json!({ "label": label, "reason": reason, "flows": flows, "example": example.to_string(), "cure": cure })
}
