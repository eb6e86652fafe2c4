//! NICs of the kernel's simulator, whose driver knows eswitches and reloads, but takes no rule of flower.

use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::netdevsim::Nic;
use sluice_tests::lab::switch::{SERVER, Switch, eventually, sluice};

use crate::stream::PORT;

/// What the driver says itself (`nsim_bpf_setup_tc_block_cb` of drivers/net/netdevsim/bpf.c).
const WORDS: &str = "netdevsim: only offload of BPF classifiers supported";

/// A NIC with two representors in the agent's namespace, and the names of these.
fn nic(number: u32) -> (Nic, Vec<String>) {
    let nic = Nic::new(number, 2);
    let representors = nic.devices().split_off(1);
    assert_eq!(representors.len(), 2);
    (nic, representors)
}

fn key() -> String {
    format!("in_port(1),eth_type(0x0800),ipv4(dst={SERVER},proto=17,frag=no),udp(dst={PORT})")
}

fn listed(daemon: &Daemon) -> Value {
    serde_json::from_str(&sluice(daemon, &["dump-flows", "--json"])).unwrap()
}

pub(crate) fn a_driver_that_takes_no_rules_leaves_them_in_software() {
    let switch = Switch::set_up();
    let (_nic, ports) = nic(20);
    let daemon = switch.start_on(&ports, "tc.policy = \"none\"\nidle_timeout = \"none\"", "");
    sluice(&daemon, &["add-flow", &key(), "2"]);
    // The kernel answers that all is well, and says "not_in_hw" only to who looks.
    assert_eq!(listed(&daemon)[0]["placement"], "software only");
    assert_eq!(daemon.metric("sluice_flows_placed{placement=\"hardware\"}"), Some(0.0));
    assert_eq!(daemon.metric("sluice_flows_placed{placement=\"software\"}"), Some(1.0));
    assert_eq!(sluice(&daemon, &["audit"]), "1 rules, all as wanted (listed by the device)\n");
}

pub(crate) fn a_driver_that_takes_no_rules_has_them_refused_where_software_is_skipped() {
    let switch = Switch::set_up();
    let (_nic, ports) = nic(21);
    let daemon = switch.start_on(&ports, "tc.policy = \"skip_sw\"\nidle_timeout = \"none\"", "");
    let added = daemon.sluice(&["add-flow", &key(), "2"]);
    assert_eq!(added.code, Some(2), "{added:?}");
    assert!(added.err.contains(WORDS), "{added:?}");
    let refusal = &listed(&daemon)[0]["refusal"];
    assert_eq!(refusal["label"], "kernel");
    assert!(refusal["reason"].as_str().unwrap().contains(WORDS), "{refusal}");
    assert!(switch.filters(&ports[0]).is_empty());
}

pub(crate) fn rules_come_back_with_a_nic_that_is_reloaded() {
    let switch = Switch::set_up();
    let (nic, ports) = nic(22);
    let daemon = switch.start_on(&ports, "tc.policy = \"none\"\nidle_timeout = \"none\"", "");
    sluice(&daemon, &["add-flow", &key(), "2"]);
    let in_place = || daemon.metric("sluice_flows{state=\"partial\"}");
    assert_eq!(in_place(), Some(1.0));
    nic.fail_to_reload();
    assert_eq!(nic.devices(), [""; 0]);
    eventually("the flow is no longer said to be in the device", || in_place() == Some(0.0));
    nic.reload();
    // The plug comes back by itself, representors with the mode of the eswitch.
    nic.set_functions(0);
    nic.set_functions(2);
    assert_eq!(nic.devices().split_off(1), ports, "they have their names again");
    eventually("the rule is back", || switch.filters(&ports[0]).len() == 1);
    eventually("it is known to be back", || in_place() == Some(1.0));
    assert_eq!(sluice(&daemon, &["audit"]), "1 rules, all as wanted (listed by the device)\n");
}
