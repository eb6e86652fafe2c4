//! What others do to the rules, and to the devices that they are on.

use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::switch::{SERVER, Switch, deletion, eventually, key, run, sluice};

use crate::stream::{self, PORT};

/// An agent with the flow of the stream and nine others.
fn ten_flows(switch: &Switch) -> Daemon {
    let daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"");
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    for host in 11..20 {
        sluice(&daemon, &["add-flow", &key(&format!("192.168.7.{host}"), PORT), "server"]);
    }
    assert_eq!(switch.filters("client").len(), 10);
    daemon
}

/// Waits until every rule is there and as it should be.
fn mended(switch: &Switch, daemon: &Daemon) {
    eventually("the rules are back", || switch.filters("client").len() == 10);
    eventually("all are as wanted", || {
        daemon.sluice(&["audit"]).out == "10 rules, all as wanted (listed by the device)\n"
    });
    assert_eq!(stream::send(20), 20);
}

/// Deletes one of the filters at the client's port.
fn delete(switch: &Switch, index: usize) {
    run(&format!("tc {}", deletion(&switch.filters("client")[index])));
}

pub(crate) fn a_flow_of_two_rules_is_mended_whichever_of_them_somebody_deletes() {
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"");
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "dec_ttl(le_1(drop)),server"]);
    assert_eq!(sluice(&daemon, &["audit"]), "2 rules, all as wanted (listed by the device)\n");
    let explained = sluice(&daemon, &["explain", &key(SERVER, PORT), "dec_ttl(le_1(drop)),server"]);
    let rules: Vec<_> = explained.lines().filter(|line| line.contains("filter add dev client ingress")).collect();
    assert!(rules.len() == 2 && rules[0].contains("ip_ttl 0/0xfe"), "{explained}");
    for index in 0..2 {
        assert_eq!(stream::send(20), 20);
        let counted = format!("packets:{}, ", 20 * (index + 1));
        eventually("what was sent is counted", || sluice(&daemon, &["dump-flows"]).contains(&counted));
        delete(&switch, index);
        // By notification or by audit.
        eventually("what is missing is mended", || daemon.sluice(&["audit", "--fix"]).code == Some(0));
        eventually("both rules are there", || {
            daemon.sluice(&["audit"]).out == "2 rules, all as wanted (listed by the device)\n"
        });
    }
    assert_eq!(stream::send(20), 20);
    eventually("what was sent is counted", || sluice(&daemon, &["dump-flows"]).contains("packets:60, "));
    sluice(&daemon, &["del-flow", &key(SERVER, PORT)]);
    assert!(switch.filters("client").is_empty());
}

pub(crate) fn a_mirror_of_the_configuration_outlives_the_agent_and_whoever_takes_it_out() {
    const KEYS: &str = "tc.policy = \"skip_hw\"";
    const MIRROR: &str =
        "[[mirror]]\nname = \"all\"\nkey = \"in_port(client),eth_type(0x0800)\"\nports = [\"server\"]\n";
    let switch = Switch::set_up();
    let mut first = switch.start_with(KEYS, MIRROR);
    sluice(&first, &["add-mirror", "passing", "in_port(client),eth_type(0x0806)", "server"]);
    assert_eq!(stream::send(5), 5, "by copies alone");
    first.signal("KILL");
    first.wait();
    assert_eq!(stream::send(5), 5, "without an agent");
    let mut second = switch.start_with(KEYS, MIRROR);
    let shown = sluice(&second, &["show-mirrors"]);
    let (all, passing) = shown.split_once('\n').expect("two lines");
    assert!(all.starts_with("mirror:all, ") && passing.starts_with("mirror:passing, "), "{shown}");
    assert!(all.ends_with(&format!(", packets:10, bytes:{}, in:software only", 10 * stream::FRAME)), "{shown}");
    sluice(&second, &["del-mirror", "passing"]);
    assert_eq!(switch.filters("client").len(), 1);
    run("tc filter del dev client ingress");
    eventually("the mirror is back", || {
        second.sluice(&["audit"]).out == "0 rules, all as wanted (listed by the device)\n"
    });
    assert_eq!(stream::send(5), 5);
    second.signal("TERM");
    second.wait();
    assert_eq!(switch.filters("client").len(), 1, "it stays");
    let mut third = switch.start_with("tc.policy = \"skip_hw\"\non_exit = \"flush\"", MIRROR);
    third.signal("TERM");
    third.wait();
    assert!(switch.filters("client").is_empty(), "nothing of the agent is left");
}

pub(crate) fn rules_that_somebody_changes_are_found_and_mended() {
    let switch = Switch::set_up();
    let daemon = ten_flows(&switch);
    delete(&switch, 3);
    run("tc filter add dev client ingress pref 49000 protocol ip flower dst_ip 9.9.9.9 action drop");
    // By notification or by audit.
    eventually("what is missing is mended", || daemon.sluice(&["audit", "--fix"]).code == Some(0));
    let audit = sluice(&daemon, &["audit"]);
    assert_eq!(audit.lines().count(), 2, "{audit}");
    assert!(
        audit.starts_with("foreign: ") && audit.ends_with("\n10 rules, all as wanted (listed by the device)\n"),
        "{audit}"
    );
    assert_eq!(switch.filters("client").len(), 11, "the one of somebody else is left alone");
    assert_eq!(stream::send(20), 20);
}

/// The cookies of the actions at the client's port, in order.
fn cookies() -> Vec<String> {
    let shown = run("tc filter show dev client ingress");
    let words: Vec<_> = shown.split_whitespace().map(str::to_owned).collect();
    words.windows(2).filter(|pair| pair[0] == "cookie").map(|pair| pair[1].clone()).collect()
}

/// The word behind another one.
fn behind(text: &str, word: &str) -> String {
    let mut words = text.split_whitespace().skip_while(|found| *found != word);
    words.nth(1).unwrap_or_else(|| panic!("no {word}: {text}")).to_owned()
}

pub(crate) fn what_somebody_changes_in_rules_and_meters_is_changed_back_without_an_audit() {
    const METER: &str = "[[meter]]\nid = 1\nkbps = 1000000\nburst = 1000000\n";
    let switch = Switch::set_up();
    let daemon = switch.start_with("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"", METER);
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "meter(1),server"]);
    sluice(&daemon, &["add-flow", &key("192.168.7.9", PORT), "server"]);
    assert_eq!(stream::send(20), 20);
    let filters = run("tc filter show dev client ingress");
    let (in_front, _) = filters.split_once(&format!("dst_ip {SERVER}")).unwrap();
    let name = in_front.lines().rfind(|line| line.contains(" handle ")).unwrap();
    let name =
        format!("dev client ingress protocol ip pref {} handle {}", behind(name, "pref"), behind(name, "handle"));
    let matching = format!("flower skip_hw ip_proto udp dst_ip {SERVER} dst_port {PORT} ip_flags nofrag");
    let notes = cookies();
    assert_eq!(notes.len(), 5, "those of two rules and of a meter: {filters}");
    let is_as_before = || cookies() == notes && stream::send(20) == 20;
    assert!(filters.find(SERVER) < filters.find("192.168.7.9"), "the rule of the stream comes first: {filters}");
    // With both of its notes it does something else.
    let [first, second] = [&notes[0], &notes[1]];
    run(&format!("tc filter replace {name} {matching} action gact pipe cookie {first} action drop cookie {second}"));
    eventually("it forwards again", is_as_before);
    // Without one of them nobody would know it again.
    run(&format!("tc filter replace {name} {matching} action gact pipe cookie {first} action drop"));
    eventually("it has its notes again", is_as_before);
    run(&format!("tc filter replace {name} {matching} action gact pipe action drop cookie {second}"));
    eventually("it has its notes again", is_as_before);
    // An action alone is changed, and the kernel does not tell whose it is.
    let actions = run("tc actions list action mirred");
    let index = behind(&actions, "index");
    run(&format!("tc actions change action mirred egress redirect dev client index {index}"));
    eventually("it sends where it did", || {
        !run("tc filter show dev client ingress").contains("to device client") && is_as_before()
    });
    // A meter is another one.
    let police = || run("tc actions list action police");
    let before = behind(&police(), "rate");
    let index = u32::from_str_radix(behind(&police(), "police").trim_start_matches("0x"), 16).unwrap();
    run(&format!("tc actions change action police index {index} rate 8kbit burst 100 conform-exceed drop/pipe"));
    eventually("its rate is as it was set", || behind(&police(), "rate") == before);
    eventually("all are as wanted", || {
        daemon.sluice(&["audit"]).out == "2 rules, all as wanted (listed by the device)\n"
    });
    assert!(is_as_before());
}

pub(crate) fn rules_come_back_after_somebody_takes_the_qdisc_away() {
    let switch = Switch::set_up();
    let daemon = ten_flows(&switch);
    run("tc qdisc del dev client ingress");
    mended(&switch, &daemon);
}

pub(crate) fn rules_come_back_with_their_link() {
    let switch = Switch::set_up();
    let daemon = ten_flows(&switch);
    run("ip link del client");
    eventually("the flows are no longer said to be in the device", || {
        daemon.metric("sluice_flows{state=\"partial\"}") == Some(0.0)
    });
    let line = sluice(&daemon, &["dump-flows", "-m", "type=non-offloaded"]);
    assert_eq!(line.lines().count(), 10, "{line}");
    switch.plug("client");
    mended(&switch, &daemon);
}

/// Waits until the one flow says that its port is not there, and has no rule.
fn refused_for_its_port(switch: &Switch, daemon: &Daemon, port: &str) {
    eventually("the flow is refused", || daemon.metric("sluice_flows{state=\"refused\"}") == Some(1.0));
    let listed: Value = serde_json::from_str(&sluice(daemon, &["dump-flows", "--json"])).unwrap();
    let refusal = &listed[0]["refusal"];
    assert_eq!(refusal["label"], "port", "{listed}");
    assert_eq!(refusal["reason"], format!("port {port}: its device is not there"));
    assert_eq!(switch.filters("client").len(), 0, "a rule that drops what it is to forward is worse than none");
}

fn forwards_again(daemon: &Daemon) {
    eventually("the rule is back", || daemon.metric("sluice_flows{state=\"partial\"}") == Some(1.0));
    assert_eq!(stream::send(20), 20);
    assert_eq!(sluice(daemon, &["audit"]), "1 rules, all as wanted (listed by the device)\n");
}

/// To another namespace.
fn move_away() {
    run("ip link set server netns client");
}

/// From there, under the number that it had.
fn move_back() {
    run("ip -n client link set server netns nic");
    run("ip link set server up");
}

/// The number of the server's port.
fn ifindex() -> String {
    run("ip -o link show dev server").split(':').next().unwrap().to_owned()
}

pub(crate) fn a_rule_forwards_again_when_the_device_that_it_sends_to_is_back() {
    const KEYS: &str = "tc.policy = \"skip_hw\"\nidle_timeout = \"none\"";
    let switch = Switch::set_up();
    let mut daemon = switch.start(KEYS);
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    assert_eq!(stream::send(20), 20);
    // It is made anew.
    run("ip link del server");
    refused_for_its_port(&switch, &daemon, "server");
    switch.plug("server");
    forwards_again(&daemon);
    // It goes to another namespace and comes back.
    let number = ifindex();
    move_away();
    refused_for_its_port(&switch, &daemon, "server");
    move_back();
    assert_eq!(ifindex(), number);
    forwards_again(&daemon);
    // The same while nobody watches: what the rule says of itself is the same, and it drops.
    daemon.signal("KILL");
    daemon.wait();
    move_away();
    move_back();
    assert_eq!(ifindex(), number);
    assert!(run("tc filter show dev client ingress").contains("to device *"), "the rule has lost the device");
    stream::send_in_vain(3);
    daemon = switch.start(KEYS);
    forwards_again(&daemon);
    daemon.signal("KILL");
    daemon.wait();
    run("ip link del server");
    switch.plug("server");
    daemon = switch.start(KEYS);
    forwards_again(&daemon);
}

/// Rules that send to a device that goes lose their target, some time before their flows are refused. The kernel has done that, and nobody else.
pub(crate) fn a_device_that_goes_is_nobodys_change_of_the_rules_that_send_to_it() {
    const FLOWS: u16 = 20;
    const TIMES: usize = 40;
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"");
    let lines: String = (0..FLOWS).map(|flow| format!("{} server\n", key(SERVER, PORT + flow))).collect();
    let file = switch.folder().join("flows");
    std::fs::write(&file, lines).unwrap();
    sluice(&daemon, &["add-flows", file.to_str().unwrap()]);
    let are = |state: &str| daemon.metric(&format!("sluice_flows{{state=\"{state}\"}}")) == Some(FLOWS.into());
    for _ in 0..TIMES {
        eventually("all flows have rules", || are("partial"));
        move_away();
        eventually("all are refused", || are("refused"));
        move_back();
    }
    eventually("all flows have rules", || are("partial"));
    assert_eq!(daemon.metric("sluice_rules_changed_by_others_total"), Some(0.0), "{}", daemon.log());
}

pub(crate) fn a_rule_forwards_again_when_its_tunnel_device_is_back() {
    const TUNNEL: &str = "[[port]]\nnumber = 3\nname = \"vx0\"\nkind = \"vxlan\"\nunderlay = 2\n";
    let switch = Switch::set_up();
    // The server is behind a tunnel over its link.
    run("ip addr add 10.1.0.1/24 dev server");
    run("ip -n server addr flush dev eth0");
    run("ip -n server addr add 10.1.0.2/24 dev eth0");
    run("ip -n server link add vx type vxlan id 5 remote 10.1.0.1 dstport 4789 dev eth0");
    run("ip -n server link set vx address 02:00:00:00:00:02 up");
    run("ip -n server addr add 192.168.7.2/24 dev vx");
    let daemon = switch.start_with("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"", TUNNEL);
    let header = "set(tunnel(tun_id=0x5,src=10.1.0.1,dst=10.1.0.2,ttl=64,tp_dst=4789,flags(key)))";
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), &format!("{header},vx0")]);
    assert_eq!(stream::send(20), 20);
    run("ip link del vx0");
    refused_for_its_port(&switch, &daemon, "vx0");
    // One that serves a single tunnel is not the one that was there.
    run("ip link add vx0 type vxlan id 7 dstport 4790 dev server");
    run("ip link set vx0 up");
    refused_for_its_port(&switch, &daemon, "vx0");
    run("ip link del vx0");
    run("ip link add vx0 type vxlan external dstport 4789");
    run("ip link set vx0 up");
    forwards_again(&daemon);
}
