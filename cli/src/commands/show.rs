//! `show`: what `dpctl/show -s` and `sluice/stats` tell, for people.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::statistics;
use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;
use crate::terminal;

/// Show the datapath: backend, ports, flows by state, limits
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Run for Show {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        if self.json {
            agent.print("sluice/show", &[], out)?
        } else {
            print(&mut agent.connect()?, out)?
        }
        Ok(Outcome::Done)
    }
}

fn print(connection: &mut Connection, out: &mut dyn Write) -> Result<(), CliError> {
    let statistics = statistics::get(connection)?;
    let datapath = Datapath::parse(&connection.text("dpctl/show", &["-s"])?);
    write(&statistics, &datapath, terminal::width(), out).map_err(CliError::Output)
}

/// What there is in `dpctl/show -s` and nowhere else.
#[derive(Debug, Default, PartialEq, Eq)]
struct Datapath {
    lookups: Option<String>,
    ports: Vec<Port>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Port {
    number: String,
    name: String,
    kind: String,
    rx_packets: String,
    rx_bytes: String,
    tx_packets: String,
    tx_bytes: String,
}

impl Datapath {
    /// Takes what it knows of the text; lines that a later version may add are passed over.
    fn parse(text: &str) -> Self {
        let mut datapath = Self::default();
        for line in text.lines().map(str::trim) {
            if let Some(lookups) = line.strip_prefix("lookups: ") {
                datapath.lookups =
                    Some(lookups.replace(':', " ").replace(" missed", ", missed").replace(" lost", ", lost"));
            } else if let Some((number, rest)) = line.strip_prefix("port ").and_then(|rest| rest.split_once(": ")) {
                let (name, kind) = rest.split_once(" (").unwrap_or((rest, ""));
                datapath.ports.push(Port {
                    number: number.to_owned(),
                    name: name.to_owned(),
                    kind: kind.strip_suffix(')').unwrap_or(kind).to_owned(),
                    ..Port::default()
                });
            } else if let Some(port) = datapath.ports.last_mut() {
                for (word, counter) in [
                    ("RX packets:", &mut port.rx_packets),
                    ("TX packets:", &mut port.tx_packets),
                    ("RX bytes:", &mut port.rx_bytes),
                    ("TX bytes:", &mut port.tx_bytes),
                ] {
                    if let Some((_, rest)) = line.split_once(word) {
                        *counter = rest.split_whitespace().next().unwrap_or_default().to_owned();
                    }
                }
            }
        }
        datapath
    }
}

fn write(statistics: &Value, datapath: &Datapath, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    let value = |path: &str| statistics::text(statistics.pointer(path).unwrap_or(&Value::Null));
    let seconds = |path: &str| match statistics.pointer(path).and_then(Value::as_f64) {
        Some(seconds) => format!("{seconds} s"),
        None => "none".to_owned(),
    };
    writeln!(out, "{}, sluiced {}", value("/datapath"), value("/version"))?;
    let settings = statistics.pointer("/backend/settings").and_then(Value::as_object).into_iter().flatten();
    let settings = settings.filter(|(_, value)| !value.is_null());
    let settings: String = settings.map(|(key, value)| format!(", {key} {}", statistics::text(value))).collect();
    writeln!(out, "  backend   {}{settings}", value("/backend/name"))?;
    let notes = statistics.pointer("/backend/notes").and_then(Value::as_array).into_iter().flatten();
    for (index, note) in notes.enumerate() {
        writeln!(out, "  {:<9} {}", if index == 0 { "device" } else { "" }, statistics::text(note))?;
    }
    writeln!(out, "  facets    {}", facets(statistics))?;
    writeln!(out, "  misses    in chain 0: {}", value("/backend/miss"))?;
    writeln!(out, "            in a later chain: {}", value("/backend/chain_miss"))?;
    if let Some(lookups) = &datapath.lookups {
        writeln!(out, "  lookups   {lookups}")?;
    }
    let states = statistics.pointer("/flows/states").and_then(Value::as_object).into_iter().flatten();
    let states: Vec<_> = states
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(state, count)| format!("{state} {}", statistics::text(count)))
        .collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    writeln!(out, "  flows     {}{states}", value("/flows/live"))?;
    let (flows, depth) = (value("/flows/limit"), value("/backend/max_chain_depth"));
    let (device, configured) = (value("/backend/device_chain_depth"), value("/backend/configured_chain_depth"));
    writeln!(out, "  limits    {flows} flows, chains {depth} deep (the device {device}, chain_depth {configured})")?;
    let (idle, hard) = (seconds("/revalidator/idle_timeout_seconds"), seconds("/revalidator/hard_timeout_seconds"));
    writeln!(out, "  timeouts  idle {idle}, hard {hard}, unless a flow has its own")?;
    let (period, lag) = (seconds("/revalidator/period_seconds"), seconds("/backend/max_lag_seconds"));
    let paused = if statistics.pointer("/revalidator/paused") == Some(&Value::Bool(true)) { ", paused" } else { "" };
    writeln!(out, "  counters  read every {period}{paused}, up to {lag} behind the device")?;

    writeln!(out, "  hardware  {}", hardware(statistics))?;
    writeln!(out, "  log       {}", log_of_flows(statistics))?;
    for line in sources(statistics) {
        writeln!(out, "  {line}")?;
    }
    if let Some(mirroring) = statistics.pointer("/mirroring").filter(|mirroring| !mirroring.is_null()) {
        writeln!(out, "  mirror    {}", mirror(mirroring))?;
        for (names, reason) in refused_mirrors(mirroring) {
            writeln!(out, "            refused {}: {reason}", names.join(", "))?;
        }
    }

    if let Some(damage) = statistics.pointer("/damage_of_objects").and_then(Value::as_str) {
        writeln!(out, "  DAMAGED   {damage}")?;
    }
    for refused in statistics.pointer("/refused_objects").and_then(Value::as_array).into_iter().flatten() {
        writeln!(out, "  REFUSED   {}", statistics::text(refused))?;
    }
    for orphan in statistics.pointer("/orphans").and_then(Value::as_array).into_iter().flatten() {
        writeln!(out, "  ORPHANS   {}", statistics::text(orphan))?;
        writeln!(
            out,
            "            `sluice flush --orphans` lists them, and with --yes removes them; `sluiced --adopt-orphans` takes them over"
        )?;
    }

    if datapath.ports.is_empty() {
        return writeln!(out, "  ports     none");
    }
    writeln!(out)?;
    let header = ["port", "name", "kind", "RX packets", "RX bytes", "TX packets", "TX bytes"];
    let mut table = terminal::table(width, &header, &[0, 3, 4, 5, 6]);
    for port in &datapath.ports {
        let Port { number, name, kind, rx_packets, rx_bytes, tx_packets, tx_bytes } = port;
        table.add_row([number, name, kind, rx_packets, rx_bytes, tx_packets, tx_bytes]);
    }
    writeln!(out, "{}", table.trim_fmt())
}

/// What the backend has that not every device has.
fn facets(statistics: &Value) -> String {
    let Some(facets) = statistics.pointer("/backend/facets").and_then(Value::as_array) else {
        return statistics::text(&Value::Null);
    };
    let names: Vec<_> = facets.iter().filter_map(Value::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// What sources of flows tell: a line for each, and one more for each thing that a person should know.
fn sources(statistics: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, source) in statistics.pointer("/sources/states").and_then(Value::as_object).into_iter().flatten() {
        let count =
            |of: &str| statistics::text(statistics.pointer(&format!("/sources/{of}/{name}")).unwrap_or(&Value::Null));
        let state = match source["trouble"].as_str() {
            Some(trouble) => format!("cannot be read: {trouble}"),
            None => format!("{} flows, {} of them left out", count("flows"), count("flows_left_out")),
        };
        lines.push(format!("source    {name}: {}, {state}", statistics::text(&source["subject"])));
        let of = |key: &str| source[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        let notes =
            of("reasons").map(str::to_owned).chain(of("ports_left_out").map(|port| format!("without port {port}")));
        let chain_miss = source["chain_miss"].as_str();
        let notes = notes.chain(chain_miss.map(|what| format!("a packet that misses in a later chain {what}")));
        let notes = notes.chain(source["caveat"].as_str().map(str::to_owned));
        lines.extend(notes.map(|note| format!("          {note}")));
    }
    lines
}

/// What is copied to a collector.
fn mirror(mirroring: &Value) -> String {
    let value = |path: &str| statistics::text(mirroring.pointer(path).unwrap_or(&Value::Null));
    let sum = |path: &str| {
        let classes = mirroring.pointer(path).and_then(Value::as_object).into_iter().flatten();
        classes.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
    };
    let causes = mirroring.pointer("/drops").and_then(Value::as_object).into_iter().flatten();
    let dropped: u64 = causes.map(|(cause, _)| sum(&format!("/drops/{cause}"))).sum();
    let (set, refused, packets) = (value("/states/set"), value("/states/refused"), sum("/packets"));
    let (collector, clients) = (value("/collector"), value("/clients"));
    format!(
        "{set} mirrors, {refused} refused; {packets} packets copied, {dropped} dropped at the socket with {clients} \
         clients; collector {collector}"
    )
}

/// The mirrors that are refused, by reason.
fn refused_mirrors(mirroring: &Value) -> Vec<(Vec<&str>, &str)> {
    let mut by_reason: Vec<(Vec<&str>, &str)> = Vec::new();
    for mirror in mirroring.pointer("/mirrors").and_then(Value::as_array).into_iter().flatten() {
        let (Some(name), Some(reason)) = (mirror["name"].as_str(), mirror["refused"].as_str()) else { continue };
        match by_reason.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => names.push(name),
            None => by_reason.push((vec![name], reason)),
        }
    }
    by_reason
}

/// Who is in hardware, if not everybody is.
fn hardware(statistics: &Value) -> String {
    let value = |name: &str| statistics.pointer(&format!("/rebalancing/{name}")).unwrap_or(&Value::Null);
    match (value("off").as_str(), value("waiting").as_u64()) {
        (Some(why), _) => format!("not rebalanced: {why}"),
        (None, None) => statistics::text(&Value::Null),
        (None, Some(0)) => "has room".to_owned(),
        (None, Some(waiting)) => {
            let share = value("hardware_share").as_f64();
            let share = share.map_or(String::new(), |share| format!(", carries {:.1} % of the packets", share * 100.0));
            let [up, down] = ["last_up", "last_down"].map(|name| statistics::text(value(name)));
            format!("full, {waiting} rules in software{share}; last rebalanced {up} up, {down} down")
        }
    }
}

/// Whether flows survive the agent, and what is to be done if not.
fn log_of_flows(statistics: &Value) -> String {
    let value = |name: &str| statistics.pointer(&format!("/journal/{name}")).unwrap_or(&Value::Null);
    match (statistics.get("journal"), value("failure").as_str(), value("damage").as_str()) {
        (None, ..) => statistics::text(&Value::Null),
        (Some(Value::Null), ..) => "flows are not kept".to_owned(),
        (_, None, None) => format!("flows are kept, {} records", statistics::text(value("records"))),
        (_, Some(failure), None) => format!("FLOWS DO NOT SURVIVE A RESTART: {failure}"),
        (_, None, Some(damage)) => format!("DAMAGED: {damage}"),
        (_, Some(failure), Some(damage)) => {
            format!("FLOWS DO NOT SURVIVE A RESTART: {failure}\n            DAMAGED: {damage}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_and_lookups_are_taken_from_the_text_of_dpctl() {
        let text = "soft@demo:\n  lookups: hit:3 missed:? lost:0\n  flows: 2\n  port 1: p0 (physical)\n    \
                    RX packets:5 errors:? dropped:?\n    TX packets:6 errors:?\n    collisions:?\n    \
                    RX bytes:500  TX bytes:?\n  port 2: vx (vxlan: udp_port=4789, underlay=1)\n";
        let datapath = Datapath::parse(text);
        assert_eq!(datapath.lookups.as_deref(), Some("hit 3, missed ?, lost 0"));
        assert_eq!(datapath.ports.len(), 2);
        let first = &datapath.ports[0];
        assert_eq!([&first.rx_packets, &first.tx_packets, &first.rx_bytes, &first.tx_bytes], ["5", "6", "500", "?"]);
        assert_eq!(datapath.ports[1].kind, "vxlan: udp_port=4789, underlay=1");
    }

    #[test]
    fn the_facets_of_the_backend_are_listed() {
        let text = |names: Value| facets(&json!({ "backend": { "facets": names } }));
        assert_eq!(text(json!(["meters", "audit"])), "meters, audit");
        assert_eq!((text(json!([])), facets(&Value::Null)), ("none".to_owned(), "-".to_owned()));
    }

    #[test]
    fn a_device_that_is_full_or_not_rebalanced_is_said_to_be() {
        let text = |rebalancing: Value| hardware(&json!({ "rebalancing": rebalancing }));
        assert_eq!(text(json!({"off": "no counters", "waiting": null})), "not rebalanced: no counters");
        assert_eq!(text(json!({"off": null, "waiting": 0})), "has room");
        assert_eq!(
            text(json!({"off": null, "waiting": 7, "hardware_share": 0.956, "last_up": 2, "last_down": 1})),
            "full, 7 rules in software, carries 95.6 % of the packets; last rebalanced 2 up, 1 down"
        );
    }

    #[test]
    fn a_log_that_fails_or_was_damaged_is_said_to() {
        let text = |journal: Value| log_of_flows(&json!({ "journal": journal }));
        assert_eq!(text(Value::Null), "flows are not kept");
        assert_eq!(text(json!({"records": 7, "failure": null, "damage": null})), "flows are kept, 7 records");
        let text = text(json!({"failure": "no space", "damage": "3 flows are lost"}));
        assert_eq!(text, "FLOWS DO NOT SURVIVE A RESTART: no space\n            DAMAGED: 3 flows are lost");
        assert_eq!(log_of_flows(&json!({})), "-");
    }

    #[test]
    fn what_the_agent_does_not_tell_is_no_failure() {
        let mut out = Vec::new();
        let statistics =
            json!({"datapath": "soft@demo", "flows": {"live": 3, "states": {"offloaded": 3, "pending": 0}}});
        write(&statistics, &Datapath::default(), None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("soft@demo, sluiced -\n  backend   -\n"), "{text}");
        assert!(text.contains("  flows     3: offloaded 3\n") && text.ends_with("  ports     none\n"), "{text}");
    }
}
