//! `sluice/audit`: what the table says is in the device against what the device says.

use serde_json::{Value, json};
use sluice_flow::Refusal;
use sluice_flow::backend::{MeterFault, MirrorFault};
use sluice_flow::port::GonePort;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::explain::of_refusal;
use super::failure::Failure;
use super::flow_text::key_text;
use crate::service::{AgentView, Audited};
use crate::upkeep::audit::{Difference, Mending};
use crate::upkeep::difference::Kind;

/// Differences that are told one by one; of more, only how many there are.
const SHOWN: usize = 1_000;

/// `sluice/audit [--fix] [--json]`. With `--json` it answers with an object, in which `clean` says whether there is a difference;
/// otherwise it succeeds if there is no difference, or none any more because all were mended; otherwise it fails with a line for
/// each. Rules of others are told and are no difference.
pub(super) fn audit(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let audited = agent.audit(arguments.fix).map_err(Failure::new)?;
    if arguments.json {
        return Ok(writeln!(out, "{}", object(agent, &audited))?);
    }
    let Audited { found, rules, meters, mirrors } = &audited;
    let mut lines = Vec::new();
    push(&mut lines, meters, meter);
    push(&mut lines, mirrors, mirror);
    push(&mut lines, rules, |mending| rule(agent, mending));
    push(&mut lines, &found.differences, |difference| described(agent, difference));
    push(&mut lines, &found.meters, meter);
    push(&mut lines, &found.mirrors, mirror);
    if !found.waiting.is_empty() {
        lines.push(format!("pending: {} flows wait for the device", found.waiting.len()));
    }
    push(&mut lines, &found.foreign, |rule| format!("foreign: {rule}"));
    push(&mut lines, &agent.withheld(), |(GonePort { number, name }, flows)| {
        format!("refused: port {number} ({name}) is gone: {flows} flows accepted for it are not in the device")
    });
    if !audited.is_clean() {
        return Err(Failure(lines.join("\n")));
    }
    let listing = agent.capabilities().listing;
    lines.push(format!("{} rules, all as wanted ({})", found.rules, listing.describe()));
    lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(Failure::from)
}

/// What was found and mended, with the keys of `docs/json.md`.
fn object(agent: &AgentView, audited: &Audited) -> Value {
    let Audited { found, rules, meters, mirrors } = audited;
    let of_difference = |difference: &Difference| {
        json!({
            "kind": difference.kind.name(),
            "ufid": difference.ufid.to_string(),
            "meter": null,
            "mirror": null,
            "key": (difference.kind == Kind::Missing).then(|| key(agent, difference)),
        })
    };
    let of_object = |is_there: bool, meter: Option<u32>, mirror: Option<&str>| {
        let kind = if is_there { Kind::Changed } else { Kind::Missing };
        json!({ "kind": kind.name(), "ufid": null, "meter": meter, "mirror": mirror, "key": null })
    };
    let of_meter = |fault: &MeterFault| of_object(fault.is_there, Some(fault.meter.0), None);
    let of_mirror = |fault: &MirrorFault| of_object(fault.is_there, None, Some(&fault.name));
    let with_outcome = |mut object: Value, refusal: Option<&Refusal>| {
        object["refusal"] = refusal.map_or(Value::Null, of_refusal);
        object
    };
    let differences = found.differences.iter().map(of_difference);
    let differences = differences.chain(found.meters.iter().map(of_meter)).chain(found.mirrors.iter().map(of_mirror));
    let of_mending = |mending: &Mending| with_outcome(of_difference(&mending.of), mending.result.as_ref().err());
    let mendings =
        rules
            .iter()
            .map(of_mending)
            .chain(meters.iter().map(|fault| {
                with_outcome(of_meter(fault), fault.mended.as_ref().and_then(|mended| mended.as_ref().err()))
            }))
            .chain(mirrors.iter().map(|fault| {
                with_outcome(of_mirror(fault), fault.mended.as_ref().and_then(|mended| mended.as_ref().err()))
            }));
    json!({
        "clean": found.is_clean(),
        "rules": found.rules,
        "listing": agent.capabilities().listing.name(),
        "pending": found.waiting.len(),
        "differences": differences.collect::<Value>(),
        "mended": mendings.collect::<Value>(),
        "foreign": found.foreign,
    })
}

fn push<T>(lines: &mut Vec<String>, all: &[T], line: impl Fn(&T) -> String) {
    lines.extend(all.iter().take(SHOWN).map(line));
    if all.len() > SHOWN {
        lines.push(format!("and {} more", all.len() - SHOWN));
    }
}

fn mirror(fault: &MirrorFault) -> String {
    let MirrorFault { name, is_there, mended } = fault;
    faulty(&format!("mirror {name}"), *is_there, mended.as_ref())
}

fn meter(fault: &MeterFault) -> String {
    let MeterFault { meter, is_there, mended } = fault;
    faulty(&format!("meter {meter}"), *is_there, mended.as_ref())
}

fn faulty(name: &str, is_there: bool, mended: Option<&Result<(), Refusal>>) -> String {
    let kind = if is_there { Kind::Changed } else { Kind::Missing };
    let what = match (mended, is_there) {
        (None, true) => "is something else in the device".to_owned(),
        (None, false) => "is not in the device".to_owned(),
        (Some(Ok(())), true) => "changed back".to_owned(),
        (Some(Ok(())), false) => "put in again".to_owned(),
        (Some(Err(refusal)), _) => format!("not mended: {refusal}"),
    };
    format!("{}: {name} {what}", kind.name())
}

fn described(agent: &AgentView, difference: &Difference) -> String {
    let Difference { kind, ufid, .. } = difference;
    let what = match kind {
        Kind::Missing => return format!("missing: ufid:{ufid} is not in the device: {}", key(agent, difference)),
        Kind::Changed => "is something else in the device",
        Kind::Doubled => "is in the device once more",
        Kind::Stray => "is in the device and not in the table",
    };
    format!("{}: ufid:{ufid} {what}", kind.name())
}

fn rule(agent: &AgentView, mending: &Mending) -> String {
    let Difference { kind, ufid, .. } = &mending.of;
    let what = match (kind, &mending.result) {
        (Kind::Missing, Ok(())) => format!("put in again: {}", key(agent, &mending.of)),
        (Kind::Changed, Ok(())) => "changed back".into(),
        (Kind::Doubled | Kind::Stray, Ok(())) => "taken out".into(),
        (_, Err(refusal)) => format!("not mended: {refusal}"),
    };
    format!("{}: ufid:{ufid} {what}", kind.name())
}

fn key(agent: &AgentView, difference: &Difference) -> String {
    agent.named(difference.ufid).map(|view| key_text(&view, &agent.ports())).unwrap_or_default()
}
