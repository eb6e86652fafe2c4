//! Tunnels of an Open vSwitch, which rules lead packets into and out of.

use std::time::Duration;

use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::iproute::{batch, batch_in};
use sluice_tests::lab::switch::{Switch, eventually, run, sluice};

use crate::handed_over;
use crate::source::{SOURCE, ours, start, start_ovs};
use crate::stream;

pub(crate) fn tunnels_of_ovs_are_entered_and_left_before_it() {
    forward_through_tunnel("", |_, ports| start_ovs(ports, "hw-offload=false", &[]));
}

pub(crate) fn tunnels_that_ovs_hands_over_are_entered_and_left_by_rules() {
    forward_through_tunnel("handed_over = true\n", handed_over::start_ovs);
}

/// Sees packets from the client through a tunnel of an Open vSwitch and back, which rules forward. `keys` are those of the agent's source.
fn forward_through_tunnel(keys: &str, start_ovs: impl FnOnce(&Switch, &[&str]) -> OffloadingVswitchd) {
    const HERE: &str = "02:00:00:00:00:77";
    run("modprobe --all openvswitch vxlan act_tunnel_key");
    let switch = Switch::set_up();
    // The server is behind a tunnel, whose packets take the port that has been the server's.
    batch(&[format!("link set server address {HERE}"), "addr add 172.16.0.1/24 dev server".to_owned()]);
    batch_in(
        "server",
        &[
            "addr flush dev eth0",
            "addr add 172.16.0.2/24 dev eth0",
            "link add vx0 address 02:00:00:00:00:02 type vxlan id 7 remote 172.16.0.1 dstport 4789 dev eth0",
            "link set vx0 up",
            "addr add 192.168.7.2/24 dev vx0",
            "neigh add 192.168.7.1 lladdr 02:00:00:00:00:01 dev vx0",
        ]
        .map(str::to_owned),
    );
    let vswitchd = start_ovs(&switch, &["client"]);
    vswitchd.add_tunnel("tunnel", "vxlan", "172.16.0.2", 7);
    for (from, to) in [("client", "tunnel"), ("tunnel", "client")] {
        vswitchd.set_rule(&format!("in_port={from},actions=output:{to}"));
    }
    let source = format!("[source.ovs]\nunderlay = \"server\"\n{keys}");
    // Beside the ports of the datapath, which has its own numbers.
    let daemon = start(&switch, &format!("[[port]]\nnumber = 1000\nname = \"server\"\n{source}"));
    rules_forward_both_ways(&daemon);
    drop(daemon);

    // The same as a port of a bridge, which has the address, and comes after the tunnel and once more.
    let daemon = start(&switch, &source);
    vswitchd.configure(&format!("add-br out -- set bridge out other-config:hwaddr=\"{HERE}\""));
    batch(&["addr flush dev server", "addr add 172.16.0.1/24 dev out", "link set out up"].map(str::to_owned));
    let has_tunnel = || sluice(&daemon, &["show"]).contains("vxlan: udp_port=4789");
    for _ in 0..2 {
        assert!(!has_tunnel());
        vswitchd.configure("add-port out server");
        eventually("the tunnel has its underlay", has_tunnel);
        // An Open vSwitch that hands flows over keeps those that were refused before.
        vswitchd.appctl(&["revalidator/purge"]).unwrap();
        rules_forward_both_ways(&daemon);
        vswitchd.configure("del-port out server");
        eventually("the tunnel goes with its underlay", || !has_tunnel());
    }
}

/// Both ways through the tunnel get a rule, and these forward packets.
fn rules_forward_both_ways(daemon: &Daemon) {
    eventually("packets go both ways", || stream::talk(SOURCE, 20) == 20);
    let from = |port: &str| {
        let words = [&format!("in_port({port})"), "eth_type(0x0800)"];
        let is_it = |flow: &Value| words.iter().all(|word| flow["key"].as_str().unwrap().contains(*word));
        ours(daemon).into_iter().find(|flow| is_it(flow) && flow["state"] == "partial")
    };
    let packets = || {
        let [there, back] = ["client", "vxlan_sys_4789"].map(|port| from(port)?["packets"].as_u64());
        Some([there?, back?])
    };
    // Open vSwitch may make a flow anew meanwhile, and its rule counts anew then.
    eventually("the rules forward all of them", || {
        let before = packets();
        assert_eq!(stream::talk(SOURCE, 50), 50);
        let after = before.map(|counts| counts.map(|packets| packets + 50));
        after.is_some()
            && (0..20).any(|_| {
                std::thread::sleep(Duration::from_millis(100));
                packets() == after
            })
    });
}
