//! Policies of IPsec: flows of tunnels that one is for have no rule that hardware may take.

use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::iproute::batch;
use sluice_tests::lab::switch::{SERVER, Switch, eventually, key, run, sluice};

use crate::stream::{self, PORT};

const TUNNEL: &str = "[[port]]\nnumber = 3\nname = \"vx0\"\nkind = \"vxlan\"\nunderlay = 2\n";
const SENT: &str = "a policy of IPsec is for the packets of the tunnel, and hardware would send them in the clear";
const NOTE: &str = "flows of vx0 are kept out of hardware where a policy of IPsec is for their packets";
const AS_WANTED: &str = "4 rules, all as wanted (listed by the device)\n";

/// A flow into the tunnel to one of its other ends, by the UDP port of the packets inside.
fn into(last: u8, port: u16) -> [String; 2] {
    let header = format!("set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.{last},ttl=64,flags(key)))");
    [key(SERVER, port), format!("{header},vx0")]
}

/// A flow out of the tunnel, from one of them.
fn out_of(last: u8) -> [String; 2] {
    let header = format!("tunnel(tun_id=0x5,src=172.16.0.{last},dst=172.16.0.1,flags(+key))");
    [format!("{header},in_port(vx0),eth_type(0x0800),ipv4(frag=no)"), "client".to_owned()]
}

fn add(daemon: &Daemon, [key, actions]: &[String; 2]) {
    sluice(daemon, &["add-flow", key, actions]);
}

/// What is to be done for packets to or from one of the other ends. One that is blocked is encrypted as little as one without keys, and counted.
fn policy(verb: &str, last: u8, direction: &str) {
    let (own, other) = ("172.16.0.1".to_owned(), format!("172.16.0.{last}"));
    let (source, destination) = if direction == "in" { (other, own) } else { (own, other) };
    let action = if verb == "add" { " action block" } else { "" };
    run(&format!(
        "ip xfrm policy {verb} src {source}/32 dst {destination}/32 proto udp dport 4789 dir {direction}{action}"
    ));
}

/// Whether the rules into the tunnel to one of its other ends, or out of it from there, are kept out of hardware; `None` if there is none.
fn is_kept_out(port: &str, address: &str) -> Option<bool> {
    let shown = run(&format!("tc filter show dev {port} ingress"));
    let rules = shown.split("\nfilter ").filter(|rule| rule.contains(&format!("_ip {address}\n")));
    rules.map(|rule| rule.contains("skip_hw")).reduce(|one, other| one && other)
}

fn into_is_kept_out(last: u8) -> Option<bool> {
    is_kept_out("client", &format!("172.16.0.{last}"))
}

fn out_is_kept_out(last: u8) -> Option<bool> {
    is_kept_out("vx0", &format!("172.16.0.{last}"))
}

/// The packets that have left by the tunnel.
fn sent() -> u64 {
    let shown: Value = serde_json::from_str(&run("ip -json -stats link show dev vx0")).unwrap();
    shown[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

pub(crate) fn rules_of_tunnels_leave_hardware_while_there_is_a_policy_of_ipsec_and_come_back() {
    let switch = Switch::set_up();
    batch(&["addr add 172.16.0.1/24 dev server".to_owned()]);
    batch(&[8, 9].map(|last| format!("neigh add 172.16.0.{last} lladdr 02:00:00:00:00:02 dev server")));
    let start = || switch.start_with("tc.policy = \"none\"\nidle_timeout = \"none\"", TUNNEL);
    let mut daemon = start();
    let to_nine = into(9, PORT);
    [into(8, PORT + 1), to_nine.clone(), out_of(8), out_of(9)].iter().for_each(|flow| add(&daemon, flow));
    let are_kept_out = || [into_is_kept_out(8), into_is_kept_out(9), out_is_kept_out(8), out_is_kept_out(9)];
    assert_eq!(are_kept_out(), [Some(false); 4]);
    assert!(!sluice(&daemon, &["show"]).contains(NOTE));
    let before = sent();
    stream::send_in_vain(20);
    assert_eq!(sent(), before + 20, "packets leave by the tunnel, whose other end takes none");

    policy("add", 9, "out");
    eventually("the rule to there is out of hardware", || into_is_kept_out(9) == Some(true));
    assert_eq!(are_kept_out(), [Some(false), Some(true), Some(false), Some(false)]);
    let before = sent();
    stream::send_in_vain(20);
    assert_eq!(sent(), before, "in software the kernel asks the policy");
    policy("add", 9, "in");
    eventually("the rule from there is out of hardware", || out_is_kept_out(9) == Some(true));
    assert_eq!(are_kept_out(), [Some(false), Some(true), Some(false), Some(true)]);
    let [key, actions] = &to_nine;
    let explained = sluice(&daemon, &["explain", key, actions]);
    assert!(explained.contains(&format!("(the rule is kept out of hardware: {SENT})")), "{explained}");
    assert!(sluice(&daemon, &["show"]).contains(NOTE));
    eventually("the agent knows", || sluice(&daemon, &["audit"]) == AS_WANTED);

    // The next agent takes over rules that are as they should be, and those that are not are made so.
    daemon.signal("KILL");
    daemon.wait();
    daemon = start();
    assert_eq!(daemon.metric("sluice_start_rules{fate=\"adopted\"}"), Some(4.0));
    assert_eq!(are_kept_out(), [Some(false), Some(true), Some(false), Some(true)]);
    daemon.signal("KILL");
    daemon.wait();
    policy("delete", 9, "out");
    policy("add", 8, "out");
    daemon = start();
    eventually("rules are as the policies now want them", || {
        are_kept_out() == [Some(true), Some(false), Some(false), Some(true)]
    });
    run("ip xfrm policy flush");
    eventually("hardware may have all of them", || are_kept_out() == [Some(false); 4]);
    assert!(!sluice(&daemon, &["show"]).contains(NOTE));
    eventually("the agent knows", || sluice(&daemon, &["audit"]) == AS_WANTED);
}

pub(crate) fn where_software_is_skipped_flows_that_a_policy_of_ipsec_is_for_are_refused() {
    let switch = Switch::set_up();
    let daemon = switch.start_with("tc.policy = \"skip_sw\"\nidle_timeout = \"none\"", TUNNEL);
    policy("add", 9, "out");
    let [key, actions] = into(9, PORT);
    let explained = || daemon.sluice(&["explain", &key, &actions]);
    eventually("the agent has heard of the policy", || explained().code == Some(2));
    let why = format!("action set(tunnel): {SENT}");
    assert!(explained().out.contains(&format!("would be refused: {why}")), "{:?}", explained());
    let added = daemon.sluice(&["add-flow", &key, &actions]);
    assert_eq!(added.code, Some(2), "{added:?}");
    assert!(added.err.contains(&why), "{added:?}");
    policy("delete", 9, "out");
    // A veth has no hardware, so that now the kernel says no.
    let listed = || serde_json::from_str::<Value>(&sluice(&daemon, &["dump-flows", "--json"])).unwrap();
    eventually("it is tried again", || listed()[0]["refusal"]["label"] == "kernel");
}
