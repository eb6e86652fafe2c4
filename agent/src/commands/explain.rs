//! `sluice/explain`: why a flow is in the device, or why not, or whether it would be.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_flow::port::{PortMap, PortNames};
use sluice_flow::table::FlowView;
use sluice_flow::{Flow, FlowState, PortNumber, Refusal, text};

use super::arguments::Arguments;
use super::flows::Verb;
use super::{Failure, dump, flows};
use crate::agent::Agent;
use sluice_unixctl::Output;

/// `sluice/explain [--json] UFID` or `sluice/explain [--json] KEY ACTIONS`
pub(super) fn one(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    match arguments.rest.as_slice() {
        [name] => installed(agent, &flows::named(agent, name, arguments)?, arguments, out),
        [key, actions] => {
            let flow = flows::describe(agent, key, actions, arguments)?;
            match agent.table.find_same(&flow).and_then(|id| agent.table.view(id)) {
                Some(view) if view.flow.actions == flow.actions => installed(agent, &view, arguments, out),
                _ => would_be(agent, &flow, arguments, out),
            }
        }
        _ => Err(Failure::new("a UFID, or a flow and actions, are needed")),
    }
}

/// What would become of a flow that is not there.
fn would_be(agent: &Agent, flow: &Flow, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let verdict = dry_run(agent, flow);
    if arguments.json {
        return Ok(writeln!(out, "{}", explained(verdict, Value::Null, Value::Null))?);
    }
    match verdict {
        Ok(how) => Ok(writeln!(out, "would be taken: {}", how.replace('\n', "\n                "))?),
        Err(refusal) => Ok(writeln!(out, "would be refused: {refusal}")?),
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
pub(super) fn lines(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let [text] = arguments.rest.as_slice() else { return Err(Failure::new("one text is needed")) };
    let ports = agent.ports();
    let (mut total, mut taken) = (0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in flows::flow_lines(text) {
        let (verb, line) = flows::split_verb(line, Verb::Add);
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

fn verdict(agent: &Agent, ports: &PortMap, line: &str) -> Result<(), String> {
    let names = AnyName { ports, unknown: RefCell::default() };
    // Without the offset, so that the same mistake is one reason in the summary.
    let parsed =
        text::parse_line(line, &names).map_err(|error| format!("not understood: expected {}", error.expected))?;
    if let Some(port) = names.unknown.take().into_iter().next() {
        return Err(
            Refusal::Port { port, number: None, reason: "the agent has no port of this name".into() }.to_string()
        );
    }
    let flow = flows::from_line(agent, &parsed).map_err(|reason| format!("not understood: {reason}"))?;
    dry_run(agent, &flow).map(|_| ()).map_err(|refusal| refusal.to_string())
}

/// What rule would come of a flow now, or why none.
fn dry_run(agent: &Agent, flow: &Flow) -> Result<String, Refusal> {
    agent.queue.held_apart(flow).map_or_else(|| agent.backend.explain(flow), Err)
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

fn installed(agent: &Agent, view: &FlowView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    if arguments.json {
        let flow = dump::object(agent, view).map_err(Failure::new)?;
        let expiry = Expires::of(agent, view);
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        let expiry = json!({
            "permanent": expiry.permanent,
            "idle_seconds": seconds(expiry.idle),
            "hard_seconds": seconds(expiry.hard),
            "age_seconds": expiry.age.as_secs_f64(),
        });
        return Ok(writeln!(out, "{}", explained(agent.backend.explain(&view.flow), flow, expiry))?);
    }
    let ports = agent.ports();
    let counters = dump::statistics(view, agent.clock.now());
    writeln!(out, "ufid:{}", view.flow.ufid)?;
    writeln!(out, "  match     {}", dump::key_text(view, &ports))?;
    writeln!(out, "  actions   {}", dump::actions_text(view, &ports))?;
    writeln!(out, "  chain     {}, priority {}", view.flow.chain(), view.flow.priority)?;
    let place = view.placement.map_or("no rule in the device".to_owned(), |place| format!("a rule in {place}"));
    writeln!(out, "  state     {}, {place}", view.state)?;
    if let Some(refusal) = &view.refusal {
        writeln!(out, "  refused   {refusal}")?;
    }
    match (view.state, dry_run(agent, &view.flow)) {
        (FlowState::Refused, Ok(how)) => {
            writeln!(out, "  device    would take it now: {}", how.replace('\n', "\n            "))?;
        }
        (FlowState::Refused, Err(_)) => {}
        (_, Ok(how)) => writeln!(out, "  device    {}", how.replace('\n', "\n            "))?,
        (_, Err(refusal)) => writeln!(out, "  device    would refuse it now: {refusal}")?,
    }
    let used = counters.used.map_or("never".to_owned(), |ago| format!("{:.3} s ago", ago.as_secs_f64()));
    writeln!(out, "  counters  packets {}, bytes {}, used {used}", counters.packets, counters.bytes)?;
    if let Some(apart) = dump::counted_apart(agent, view) {
        for (who, counters) in [("hardware", apart.hardware), ("software", apart.software)] {
            writeln!(out, "            by {who}: packets {}, bytes {}", counters.packets, counters.bytes)?;
        }
    }
    Ok(writeln!(out, "  expiry    {}", expiry(agent, view))?)
}

/// When a flow goes by itself.
struct Expires {
    permanent: bool,
    /// `None` is never.
    idle: Option<Duration>,
    hard: Option<Duration>,
    age: Duration,
}

impl Expires {
    fn of(agent: &Agent, view: &FlowView) -> Self {
        let (own, config) = (view.flow.expiry, agent.config());
        let unless_permanent = |span: Option<Duration>| span.filter(|_| !own.permanent);
        Self {
            permanent: own.permanent,
            idle: unless_permanent(own.idle.or(config.idle_timeout)),
            hard: unless_permanent(own.hard.or(config.hard_timeout)),
            age: agent.clock.now().since(view.accepted),
        }
    }
}

/// The same in words, with which part of the configuration says so.
fn expiry(agent: &Agent, view: &FlowView) -> String {
    let Expires { permanent, idle, hard, age } = Expires::of(agent, view);
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
