//! Whether an Open vSwitch runs that hands its flows to the same NIC, told by its pidfile and its database (RFC 7047).

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::check::Check;
use crate::machine::Machine;
use crate::{FlowsOfOvs, Setup};

const NAME: &str = "foreign offload";

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the database says.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    offloads: bool,
    /// Whether it is Sluice that it hands its flows to.
    hands_over: bool,
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
    let vswitchd = format!("ovs-vswitchd (process {pid})");
    let hand_over = "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true other_config:hw-offload-priority=sluice, and restart \
                     Open vSwitch";
    let off = "ovs-vsctl set Open_vSwitch . other_config:hw-offload=false, and restart Open vSwitch";
    match (answer.offloads, answer.hands_over, setup.flows_of_ovs) {
        (false, _, FlowsOfOvs::HandedOver) => {
            let finding = format!(
                "{vswitchd} keeps to software: hw-offload is not \"true\", so that it hands no flow over, and Sluice gets none"
            );
            return Check::refuses(NAME, finding, hand_over);
        }
        (false, ..) => {
            return Check::ok(NAME, format!("{vswitchd} keeps to software: hw-offload is not \"true\""));
        }
        (true, true, FlowsOfOvs::Read) => {
            let finding =
                format!("{vswitchd} hands its flows over, and Sluice does not take them: it reads what is left");
            return Check::warn(NAME, finding, format!("handed_over = true in [source.ovs]; or {off}"));
        }
        (true, true, _) => {
            let finding = format!("{vswitchd} hands its flows over: its first hw-offload-priority is sluice");
            return Check::ok(NAME, finding);
        }
        (true, false, FlowsOfOvs::Read) => {
            let finding = format!(
                "{vswitchd} puts its flows into tc itself: Sluice sees only those that tc refuses, and both install rules at the same ports"
            );
            return Check::refuses(NAME, finding, off);
        }
        (true, false, FlowsOfOvs::HandedOver) => {
            let finding = format!(
                "{vswitchd} puts its flows into tc itself, and hands none over: its first hw-offload-priority is not sluice"
            );
            return Check::refuses(NAME, finding, hand_over);
        }
        (true, false, FlowsOfOvs::Left) => {}
    }
    let shared: Vec<_> = setup
        .ports
        .iter()
        .filter(|(port, _)| answer.interfaces.contains(port))
        .map(|(port, _)| port.as_str())
        .collect();
    if shared.is_empty() {
        return Check::warn(
            NAME,
            format!("{vswitchd} offloads flows; none of the ports of Sluice is its own"),
            format!("if both use one NIC: {off}"),
        );
    }
    Check::refuses(
        NAME,
        format!("{vswitchd} offloads flows at ports of Sluice: {}", shared.join(", ")),
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
    let setting = |key: &str| settings.iter().find(|pair| pair[0] == key)?[1].as_str();
    let offloads = setting("hw-offload") == Some("true");
    // As lib/dpif-offload.c of Open vSwitch reads it.
    let first = setting("hw-offload-priority").and_then(|names| names.split(',').find(|name| !name.is_empty()));
    let interfaces = rows(1)?.iter().filter_map(|row| Some(row["name"].as_str()?.to_owned())).collect();
    Some(Answer { offloads, hands_over: first == Some("sluice"), interfaces })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::check::Verdict;

    /// What is said of an ovs-vswitchd with these settings, which has an interface p0.
    fn found(settings: Value) -> Check {
        found_by(FlowsOfOvs::Left, settings)
    }

    /// The same of an agent that takes its flows or does not.
    fn found_by(flows_of_ovs: FlowsOfOvs, settings: Value) -> Check {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { root: folder.path().into(), ovs_run_dir: folder.path().into() };
        fs::create_dir_all(machine.path("/proc/77")).unwrap();
        fs::write(machine.path("/proc/77/comm"), "ovs-vswitchd\n").unwrap();
        fs::write(machine.ovs_run_dir.join("ovs-vswitchd.pid"), "77\n").unwrap();
        let listener = UnixListener::bind(machine.ovs_run_dir.join("db.sock")).unwrap();
        let rows = |row: Value| json!({ "rows": [row] });
        let result = [rows(json!({ "other_config": ["map", settings] })), rows(json!({ "name": "p0" }))];
        let reply = json!({ "id": 0, "error": null, "result": result }).to_string();
        let database = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream.write_all(reply.as_bytes()).unwrap();
        });
        let ports = vec![("p0".into(), false)];
        let setup = Setup { backend: "tc", device: "tc0", needs: &[], ports, flows_of_ovs, agent: None };
        let check = check(&machine, &setup);
        database.join().unwrap();
        check
    }

    #[test]
    fn an_open_vswitch_that_hands_its_flows_over_is_as_it_should_be() {
        let offloads = ["hw-offload", "true"];
        let handed_over = found(json!([offloads, ["hw-offload-priority", "sluice,tc"]]));
        assert_eq!(handed_over.verdict, Verdict::Ok, "{handed_over}");
        assert!(handed_over.finding.contains("(process 77) hands its flows over"), "{handed_over}");
        for settings in [json!([offloads]), json!([offloads, ["hw-offload-priority", "tc,sluice"]])] {
            assert_eq!(found(settings).verdict, Verdict::Refuses, "its tc has the ports");
        }
        let kept = found(json!([["hw-offload", "false"], ["hw-offload-priority", "sluice"]]));
        assert!(kept.verdict == Verdict::Ok && kept.finding.contains("keeps to software"), "{kept}");
    }

    #[test]
    fn an_open_vswitch_that_does_not_give_its_flows_as_the_configuration_wants_them_is_told_with_what_follows() {
        let (on, ours) = (["hw-offload", "true"], ["hw-offload-priority", "sluice"]);
        let said = |flows_of_ovs, settings| {
            let Check { verdict, finding, cure, .. } = found_by(flows_of_ovs, settings);
            (verdict, finding, cure.unwrap_or_default())
        };
        let (verdict, finding, cure) = said(FlowsOfOvs::Read, json!([on]));
        assert_eq!(verdict, Verdict::Refuses, "{finding}");
        assert!(
            finding.ends_with("both install rules at the same ports") && cure.contains("hw-offload=false"),
            "{cure}"
        );
        let (verdict, finding, cure) = said(FlowsOfOvs::HandedOver, json!([on]));
        assert_eq!(verdict, Verdict::Refuses, "{finding}");
        assert!(finding.contains("hands none over") && cure.contains("hw-offload-priority=sluice"), "{finding}");
        let (verdict, finding, _) = said(FlowsOfOvs::HandedOver, json!([ours]));
        assert!(verdict == Verdict::Refuses && finding.contains("Sluice gets none"), "{finding}");
        let (verdict, finding, _) = said(FlowsOfOvs::Read, json!([on, ours]));
        assert!(verdict == Verdict::Warn && finding.contains("does not take them"), "{finding}");
        assert_eq!(said(FlowsOfOvs::HandedOver, json!([on, ours])).0, Verdict::Ok);
        assert_eq!(said(FlowsOfOvs::Read, json!([])).0, Verdict::Ok);
    }
}
