//! `sluice/watch`: events as they happen, until the client goes.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use crossbeam_channel::RecvTimeoutError;
use serde_json::{Value, json};
use sluice_flow::{EndReason, Event, text};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::explain::of_refusal;
use super::failure::Failure;
use crate::observe::events::Seen;
use crate::service::AgentView;

/// `sluice/watch [--json]`: an event a line, with its time (RFC 3339, UTC), or an object a line with the keys of `docs/json.md`.
pub(super) fn watch(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let watch = agent.watch();
    let tell = |seen: &Seen, out: &mut dyn Output| {
        if arguments.json { writeln!(out, "{}", object(agent, seen)) } else { writeln!(out, "{}", line(agent, seen)) }
    };
    out.flush()?;
    loop {
        match watch.events.recv_timeout(Duration::from_millis(200)) {
            Ok(event) => {
                match watch.lost.swap(0, Ordering::Relaxed) {
                    0 => {}
                    lost if arguments.json => writeln!(out, "{}", json!({ "event": "lost", "events": lost }))?,
                    lost => writeln!(out, "{lost} events were lost, for they were not read fast enough")?,
                }
                tell(&event, out)?;
                watch.events.try_iter().try_for_each(|event| tell(&event, out))?;
                out.flush()?;
            }
            Err(RecvTimeoutError::Timeout) if out.is_wanted() => {}
            Err(_) => return Ok(()),
        }
    }
}

/// When, what, which flow, and what it matches and does.
fn line(agent: &AgentView, Seen { at, event }: &Seen) -> String {
    let (key, actions) = texts(agent, event);
    format!("{} {event}, {key}, actions:{actions}", humantime::format_rfc3339_millis(*at))
}

fn texts(agent: &AgentView, event: &Event) -> (String, String) {
    let ports = agent.ports();
    let style = text::Style { more: false, names: Some(&*ports) };
    let (mut key, mut actions) = (String::new(), String::new());
    // Writing to a string does not fail.
    let _ = text::write_key(&mut key, &event.flow().matching(), &style);
    let _ = text::write_actions(&mut actions, &event.flow().actions, &style);
    (key, actions)
}

fn object(agent: &AgentView, Seen { at, event }: &Seen) -> Value {
    let flow = event.flow();
    let (key, actions) = texts(agent, event);
    let counters = event.counters();
    json!({
        "time": at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
        "event": event.name(),
        "ufid": flow.ufid.to_string(),
        "key": key,
        "actions": actions,
        "priority": flow.priority.get(),
        "placement": event.placement().map(|placement| placement.to_string()),
        "refusal": event.refusal().map(of_refusal),
        "reason": event.reason().map(EndReason::name),
        "packets": counters.map(|counters| counters.packets),
        "bytes": counters.map(|counters| counters.bytes),
    })
}
