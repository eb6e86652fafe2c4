//! `sluice ovs observe --live` beside an ovs-vswitchd that offloads to tc.

use std::process::Command;

use serde_json::Value;
use sluice_tests::daemon::{binary, run as ran};
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{Switch, eventually, run};

pub(crate) fn flows_in_tc_and_in_the_kernel_are_both_read_and_neither_twice() {
    run("modprobe openvswitch");
    let _switch = Switch::set_up();
    let vswitchd = OffloadingVswitchd::start_in(Some("nic"), &["client", "server"]);
    let (client, server) = (vswitchd.port("client"), vswitchd.port("server"));
    for (key, actions) in [
        (format!("in_port({client}),eth(),eth_type(0x0800),ipv4(dst=192.168.7.2,frag=no)"), server.to_string()),
        (format!("in_port({server}),eth(),eth_type(0x0800),ipv4(dst=192.168.7.1,frag=no)"), client.to_string()),
        // tc does not cut packets, so that the kernel's datapath has this one.
        (
            format!("in_port({server}),eth(),eth_type(0x0800),ipv4(dst=192.168.7.9,frag=no)"),
            format!("trunc(100),{client}"),
        ),
    ] {
        vswitchd.add_flow(&key, &actions).unwrap();
    }
    let socket = vswitchd.path("vswitchd.ctl");
    let arguments = ["ovs", "observe", "--live", "--json", "--backend", "tc", "--vswitchd", &socket];
    let mut report = Value::Null;
    // Packets of the kernel's own, such as those of IPv6, may bring another flow at any time.
    eventually("what is read is what ovs-vswitchd has", || {
        let (before, ours, after) =
            (flows(&vswitchd), observe(Command::new(binary("sluice")).args(arguments)), flows(&vswitchd));
        let (all, in_tc) = before;
        let is_same = before == after && ours["all"]["flows"] == all && ours["offloaded"]["flows"] == in_tc;
        report = ours;
        is_same && in_tc >= 2 && all > in_tc
    });
    assert_eq!(report["datapaths"][0]["name"], "system@ovs-system");
    let refusal = &report["backends"][0]["refusals"][0];
    assert_eq!((&refusal["about"], &refusal["flows"]), (&"trunc".into(), &1.into()), "{report}");
    assert!(refusal["example"].as_str().unwrap().contains("in_port(server)"), "{refusal}");

    // Anybody may read the kernel's datapath, and hears what is missing.
    eventually("what is read is what the kernel has", || {
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary("sluice")).args(arguments);
        let (before, ours, after) = (flows(&vswitchd), observe(&mut nobody), flows(&vswitchd));
        report = ours;
        before == after && report["all"]["flows"] == before.0 - before.1
    });
    assert_eq!(report["offloaded"]["flows"], 0);
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.starts_with("no access to ovs-vswitchd: ") && note.contains("hw-offload=true"), "{note}");
}

/// How many flows there are, and how many of them are in tc.
fn flows(vswitchd: &OffloadingVswitchd) -> (usize, usize) {
    let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m"]).unwrap();
    let lines = dump.lines().filter(|line| line.starts_with("ufid:"));
    (lines.clone().count(), lines.filter(|line| line.contains("dp:tc")).count())
}

fn observe(command: &mut Command) -> Value {
    let ran = ran(command);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    serde_json::from_str(&ran.out).unwrap()
}
