//! Whether an Open vSwitch runs that hands its flows to the same NIC, told by its pidfile and its database (RFC 7047).

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Setup;
use crate::check::Check;
use crate::machine::Machine;

const NAME: &str = "foreign offload";

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the database says.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    offloads: bool,
    interfaces: Vec<String>,
}

/// Whether an Open vSwitch runs that offloads flows, and at ports of the setup. Waits at most two seconds for its database.
pub fn check(machine: &Machine, setup: &Setup<'_>) -> Check {
    let place = machine.ovs_run_dir.display();
    let Some(pid) = running(machine) else { return Check::ok(NAME, format!("no ovs-vswitchd runs ({place})")) };
    let answer = match ask(machine) {
        Ok(answer) => answer,
        Err(reason) => {
            return Check::unknown(
                NAME,
                format!("ovs-vswitchd runs (process {pid}), and its database is silent: {reason}"),
            );
        }
    };
    if !answer.offloads {
        return Check::ok(NAME, format!("ovs-vswitchd (process {pid}) keeps to software: hw-offload is not \"true\""));
    }
    let shared: Vec<_> = setup
        .ports
        .iter()
        .filter(|(port, _)| answer.interfaces.contains(port))
        .map(|(port, _)| port.as_str())
        .collect();
    let off = "ovs-vsctl set Open_vSwitch . other_config:hw-offload=false, and restart Open vSwitch";
    if shared.is_empty() {
        return Check::warn(
            NAME,
            format!("ovs-vswitchd (process {pid}) offloads flows; none of the ports of Sluice is its own"),
            format!("if both use one NIC: {off}"),
        );
    }
    Check::refuses(
        NAME,
        format!("ovs-vswitchd (process {pid}) offloads flows at ports of Sluice: {}", shared.join(", ")),
        format!("{off}, or take the ports out of its bridges"),
    )
}

/// The process of a live ovs-vswitchd.
fn running(machine: &Machine) -> Option<u32> {
    let text = std::fs::read_to_string(machine.ovs_run_dir.join("ovs-vswitchd.pid")).ok()?;
    let pid = text.trim().parse().ok()?;
    machine.text(format!("/proc/{pid}/comm")).filter(|name| name.starts_with("ovs-vswitchd")).map(|_| pid)
}

fn ask(machine: &Machine) -> Result<Answer, String> {
    let select =
        |table: &str, columns: &[&str]| json!({ "op": "select", "table": table, "where": [], "columns": columns });
    let transaction =
        json!(["Open_vSwitch", select("Open_vSwitch", &["other_config"]), select("Interface", &["name"])]);
    let request = json!({ "method": "transact", "params": transaction, "id": 0 });
    let reply = exchange(machine, &request).map_err(|error| error.to_string())?;
    understood(&reply).ok_or_else(|| format!("it answers {reply}"))
}

fn exchange(machine: &Machine, request: &Value) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(machine.ovs_run_dir.join("db.sock"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.to_string().as_bytes())?;
    let mut replies = serde_json::Deserializer::from_reader(&stream).into_iter::<Value>();
    // It may ask first whether we are alive.
    let reply = replies.find(|reply| reply.as_ref().map_or(true, |reply| reply.get("result").is_some()));
    reply.unwrap_or(Ok(Value::Null)).map_err(Into::into)
}

fn understood(reply: &Value) -> Option<Answer> {
    let rows = |index: usize| reply["result"][index]["rows"].as_array();
    // A map is ["map", [[key, value], ...]].
    let settings = rows(0)?.first()?["other_config"][1].as_array()?;
    let offloads = settings.iter().any(|pair| pair[0] == "hw-offload" && pair[1] == "true");
    let interfaces = rows(1)?.iter().filter_map(|row| Some(row["name"].as_str()?.to_owned())).collect();
    Some(Answer { offloads, interfaces })
}
