//! `sluice/explain`: why a flow is in the device, or why not, or whether it would be.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_flow::port::{PortMap, PortNames};
use sluice_flow::table::FlowView;
use sluice_flow::{Flow, FlowState, MaskedKey, PortNumber, Refusal, text};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::bulk::Verb;
use super::failure::Failure;
use super::flow_text::{actions_text, key_text, statistics};
use super::{bulk, dump, flows};
use crate::service::{AgentView, Error, Expires, Explain, Explanation, KnownFlow};

/// `sluice/explain [--json] UFID` or `sluice/explain [--json] KEY ACTIONS`
pub(super) fn one(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let wanted = match arguments.rest.as_slice() {
        [name] => Explain::Known(flows::flow_name(&agent.ports(), name, arguments, "getting flow")?),
        [key, actions] => Explain::Candidate(flows::describe(agent, key, actions, arguments)?),
        _ => return Err(Failure::new("a UFID, or a flow and actions, are needed")),
    };
    let Explanation { known, verdict } =
        agent.explain(&wanted).map_err(|error| Failure::of_request("getting flow", &error))?;
    match known {
        Some(known) if arguments.json => write_object(agent, &known, verdict, out),
        Some(known) => write_known(agent, &known, verdict, out),
        None if arguments.json => Ok(writeln!(out, "{}", explained(verdict, Value::Null, Value::Null))?),
        None => match verdict {
            Ok(how) => Ok(writeln!(out, "would be taken: {}", how.replace('\n', "\n                "))?),
            Err(refusal) => Ok(writeln!(out, "would be refused: {refusal}")?),
        },
    }
}

/// The keys of `explain --json`, as in `docs/json.md`.
fn explained(verdict: Result<String, Refusal>, flow: Value, expiry: Value) -> Value {
    let (taken, how, refusal) = match verdict {
        Ok(how) => (true, Some(how), None),
        Err(refusal) => (false, None, Some(of_refusal(&refusal))),
    };
    json!({ "taken": taken, "how": how, "refusal": refusal, "flow": flow, "expiry": expiry })
}

/// A refusal as in every JSON form.
pub(super) fn of_refusal(refusal: &Refusal) -> Value {
    json!({ "label": refusal.label(), "reason": refusal.to_string() })
}

/// `sluice/explain-lines TEXT`: a whole dump of OVS or a file as `add-flows` takes it, a verdict for each flow that would not be taken,
/// and a summary. Lines that delete are passed over.
pub(super) fn lines(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let [text] = arguments.rest.as_slice() else { return Err(Failure::new("one text is needed")) };
    let ports = agent.ports();
    let (mut total, mut taken) = (0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in bulk::flow_lines(text) {
        let (verb, line) = bulk::split_verb(line, Verb::Add);
        if verb == Verb::Delete {
            // It asks nothing of the device that could be refused.
            continue;
        }
        total += 1;
        match verdict(agent, &ports, line) {
            Ok(()) => taken += 1,
            Err(reason) => {
                writeln!(out, "line {number}: {reason}")?;
                *reasons.entry(reason).or_default() += 1;
            }
        }
    }
    writeln!(out, "{total} flows: {taken} would be taken, {} not", total - taken)?;
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(reasons.into_iter().try_for_each(|(reason, count)| writeln!(out, "{count:>8}  {reason}"))?)
}

fn verdict(agent: &AgentView, ports: &PortMap, line: &str) -> Result<(), String> {
    let names = AnyName { ports, unknown: RefCell::default() };
    // Without the offset, so that the same mistake is one reason in the summary.
    let parsed =
        text::parse_line(line, &names).map_err(|error| format!("not understood: expected {}", error.expected))?;
    if let Some(port) = names.unknown.take().into_iter().next() {
        return Err(
            Refusal::Port { port, number: None, reason: "the agent has no port of this name".into() }.to_string()
        );
    }
    let text::FlowLine { ufid, matching, actions, extra, .. } = parsed;
    let flow = Flow::new(ufid, MaskedKey::new(&matching), actions, extra.priority, extra.expiry, agent.seed());
    match agent.dry_run(&flow) {
        Ok(_) => Ok(()),
        Err(error @ Error::InPortMissing) => Err(format!("not understood: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Takes any word for a port, and remembers those that are none: a dump of another machine shall be judged, not rejected.
struct AnyName<'a> {
    ports: &'a PortMap,
    unknown: RefCell<Vec<String>>,
}

impl PortNames for AnyName<'_> {
    fn number(&self, name: &str) -> Option<PortNumber> {
        self.ports.number(name).or_else(|| {
            self.unknown.borrow_mut().push(name.to_owned());
            Some(PortNumber(u32::MAX))
        })
    }

    fn name(&self, number: PortNumber) -> Option<&str> {
        self.ports.name(number)
    }
}

fn write_object(
    agent: &AgentView,
    known: &KnownFlow,
    verdict: Result<String, Refusal>,
    out: &mut dyn Output,
) -> Result<(), Failure> {
    let KnownFlow { view, expires, apart } = known;
    let flow = dump::object(agent, view, *apart).map_err(Failure::new)?;
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    let expiry = json!({
        "permanent": expires.permanent,
        "idle_seconds": seconds(expires.idle),
        "hard_seconds": seconds(expires.hard),
        "age_seconds": expires.age.as_secs_f64(),
    });
    Ok(writeln!(out, "{}", explained(verdict, flow, expiry))?)
}

fn write_known(
    agent: &AgentView,
    known: &KnownFlow,
    verdict: Result<String, Refusal>,
    out: &mut dyn Output,
) -> Result<(), Failure> {
    let KnownFlow { view, expires, apart } = known;
    let ports = agent.ports();
    let counters = statistics(view, agent.now());
    writeln!(out, "ufid:{}", view.flow.ufid)?;
    writeln!(out, "  match     {}", key_text(view, &ports))?;
    writeln!(out, "  actions   {}", actions_text(view, &ports))?;
    writeln!(out, "  chain     {}, priority {}", view.flow.chain(), view.flow.priority)?;
    let place = view.placement.map_or("no rule in the device".to_owned(), |place| format!("a rule in {place}"));
    writeln!(out, "  state     {}, {place}", view.state)?;
    if let Some(refusal) = &view.refusal {
        writeln!(out, "  refused   {refusal}")?;
    }
    match (view.state, verdict) {
        (FlowState::Refused, Ok(how)) => {
            writeln!(out, "  device    would take it now: {}", how.replace('\n', "\n            "))?;
        }
        (FlowState::Refused, Err(_)) => {}
        (_, Ok(how)) => writeln!(out, "  device    {}", how.replace('\n', "\n            "))?,
        (_, Err(refusal)) => writeln!(out, "  device    would refuse it now: {refusal}")?,
    }
    let used = counters.used.map_or("never".to_owned(), |ago| format!("{:.3} s ago", ago.as_secs_f64()));
    writeln!(out, "  counters  packets {}, bytes {}, used {used}", counters.packets, counters.bytes)?;
    if let Some(apart) = apart {
        for (who, counters) in [("hardware", apart.hardware), ("software", apart.software)] {
            writeln!(out, "            by {who}: packets {}, bytes {}", counters.packets, counters.bytes)?;
        }
    }
    Ok(writeln!(out, "  expiry    {}", expiry_text(view, expires))?)
}

/// When a flow goes by itself, with which part of the configuration says so.
fn expiry_text(view: &FlowView, expires: &Expires) -> String {
    let Expires { permanent, idle, hard, age } = *expires;
    if permanent {
        return "never (permanent)".into();
    }
    let span = |own: Option<Duration>, span: Option<Duration>| match (own, span) {
        (_, None) => "never".into(),
        (Some(_), Some(span)) => format!("{} s", span.as_secs_f64()),
        (None, Some(span)) => format!("{} s (default)", span.as_secs_f64()),
    };
    let own = view.flow.expiry;
    format!("idle {}, hard {}, {:.1} s old", span(own.idle, idle), span(own.hard, hard), age.as_secs_f64())
}
