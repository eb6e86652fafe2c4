//! Adding, changing and deleting a flow.

use sluice_flow::port::PortMap;
use sluice_flow::text;
use sluice_flow::{Flow, MaskedKey};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use super::flow_text::statistics_line;
use crate::agent::ANSWER_TIME;
use crate::service::{
    Accepted, AddFlow, AgentView, DeleteFlow, Error, FlowChange, FlowName, ModifyFlow, Outcome, Receipt, Service,
};

/// `dpctl/add-flow`
pub(super) fn add(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    let flow = flow_argument(service.view(), arguments)?;
    put(service, service.add(AddFlow { flow }), arguments, out)
}

/// `dpctl/mod-flow`
pub(super) fn modify(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    let flow = flow_argument(service.view(), arguments)?;
    let Arguments { may_create, keep_old_rule, .. } = *arguments;
    put(service, service.modify(ModifyFlow { flow, may_create, keep_old_rule }), arguments, out)
}

fn put(
    service: &Service,
    accepted: Result<Accepted<'_, FlowChange>, Error>,
    arguments: &Arguments,
    out: &mut dyn Output,
) -> Result<Receipt, Failure> {
    let failed = |error| Failure::of_request("updating flow table", &error);
    let accepted = accepted.map_err(|error| with_hint(service.view(), error))?;
    let change = accepted.durable().map_err(failed)?;
    if arguments.no_wait {
        return Ok(change.receipt());
    }
    change.outcome(ANSWER_TIME).map_err(failed)?;
    if arguments.statistics
        && let Some(view) = service.view().flow(change.change().flow())
    {
        writeln!(out, "{}", statistics_line(&view, service.view().now()))?;
    }
    Ok(change.receipt())
}

/// `dpctl/del-flow`
pub(super) fn delete(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    let failed = |error| Failure::of_request("deleting flow", &error);
    let [name] = arguments.after_datapath(service.view(), 1)? else { return Err(Failure::new("one flow is needed")) };
    let flow = flow_name(&service.view().ports(), name, arguments, "deleting flow")?;
    let change = service.delete(DeleteFlow { flow, of: None }).and_then(Accepted::durable).map_err(failed)?;
    if arguments.no_wait {
        return Ok(change.receipt());
    }
    let outcome = change.outcome(ANSWER_TIME).map_err(failed)?;
    if let (true, Outcome::Deleted(Some(view))) = (arguments.statistics, outcome) {
        writeln!(out, "{}", statistics_line(&view, service.view().now()))?;
    }
    Ok(change.receipt())
}

/// `sluice/flush`, `revalidator/purge` as in OVS, and `dpctl/del-flows` without a file
pub(super) fn flush(service: &Service, _: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    let failed = |error| Failure::of_request("flushing flows", &error);
    let change = service.flush().durable().map_err(failed)?;
    change.outcome(ANSWER_TIME).map_err(failed)?;
    Ok(change.receipt())
}

/// What a text names: a UFID, with or without `ufid:`, or a key at the given priority.
pub(super) fn flow_name(
    ports: &PortMap,
    name: &str,
    arguments: &Arguments,
    attempt: &str,
) -> Result<FlowName, Failure> {
    if !name.contains('(') {
        let text = name.strip_prefix("ufid:").unwrap_or(name).trim();
        let ufid = text.parse().map_err(|error| Failure::new(format_args!("{attempt}: {text}: {error}")))?;
        return Ok(FlowName::Ufid(ufid));
    }
    let parsed = text::parse_key(name, ports).map_err(|error| Failure::of_text("flow key", name, &error))?;
    Ok(match parsed.ufid {
        Some(ufid) => FlowName::Ufid(ufid),
        None => FlowName::Match {
            matching: MaskedKey::new(&parsed.matching),
            priority: arguments.priority.unwrap_or_default(),
        },
    })
}

fn flow_argument(agent: &AgentView, arguments: &Arguments) -> Result<Flow, Failure> {
    match arguments.after_datapath(agent, 2)? {
        [key, actions] => describe(agent, key, actions, arguments),
        _ => Err(Failure::new("a flow and actions are needed")),
    }
}

/// The flow that a key and actions describe.
pub(super) fn describe(agent: &AgentView, key: &str, actions: &str, arguments: &Arguments) -> Result<Flow, Failure> {
    let ports = agent.ports();
    let parsed = text::parse_key(key, &*ports).map_err(|error| Failure::of_text("flow key", key, &error))?;
    if actions.trim().is_empty() {
        // Most likely a variable of a shell that is not set, which must not become a flow that drops.
        return Err(Failure::os("parsing actions: they are empty; use \"drop\" to drop packets", "Invalid argument"));
    }
    let actions =
        text::parse_actions(actions, &*ports).map_err(|error| Failure::of_text("actions", actions, &error))?;
    Ok(Flow::new(
        parsed.ufid,
        MaskedKey::new(&parsed.matching),
        actions,
        arguments.priority.unwrap_or_default(),
        arguments.expiry.unwrap_or_default(),
        agent.seed(),
    ))
}

/// A failure with what its caller can do about it.
fn with_hint(agent: &AgentView, error: Error) -> Failure {
    let failure = Failure::of_request("updating flow table", &error);
    match error {
        Error::Exists(ufid) => {
            let refusal = agent.named(ufid).and_then(|view| view.refusal);
            let kept = refusal.map(|refusal| format!("The flow is kept, refused: {refusal}\n"));
            failure.with_hint(&format!("{}Use mod-flow to change its actions.", kept.unwrap_or_default()))
        }
        Error::NotFound => failure.with_hint("Use add-flow, or mod-flow with --may-create, to add it."),
        _ => failure,
    }
}
