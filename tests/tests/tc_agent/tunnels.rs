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

/// The address of this end.
const HERE: &str = "02:00:00:00:00:77";

/// A kind of tunnel, as both of its ends are made.
struct Kind {
    /// What Open vSwitch calls it.
    name: &'static str,
    /// The network device that Open vSwitch makes for it.
    device: &'static str,
    /// The device at the other end, for iproute2.
    link: &'static str,
}

const VXLAN: Kind =
    Kind { name: "vxlan", device: "vxlan_sys_4789", link: "type vxlan id 7 remote 172.16.0.1 dstport 4789 dev eth0" };
const OTHERS: [Kind; 2] = [
    Kind { name: "geneve", device: "genev_sys_6081", link: "type geneve id 7 remote 172.16.0.1" },
    Kind { name: "gre", device: "gre_sys", link: "type gretap key 7 local 172.16.0.2 remote 172.16.0.1" },
];

/// With Open vSwitch in front or handing its flows over.
struct Manner {
    /// Keys of the agent's source.
    keys: &'static str,
    start_ovs: fn(&Switch, &[&str]) -> OffloadingVswitchd,
}

pub(crate) fn tunnels_of_ovs_are_entered_and_left_before_it() {
    forward_through_tunnels(&Manner { keys: "", start_ovs: |_, ports| start_ovs(ports, "hw-offload=false", &[]) });
}

pub(crate) fn tunnels_that_ovs_hands_over_are_entered_and_left_by_rules() {
    forward_through_tunnels(&Manner { keys: "handed_over = true\n", start_ovs: handed_over::start_ovs });
}

fn forward_through_tunnels(manner: &Manner) {
    run("modprobe --all openvswitch vxlan geneve ip_gre act_tunnel_key");
    for kind in OTHERS {
        let (switch, _vswitchd) = manner.set_up(&kind);
        rules_forward_both_ways(&manner.start_beside(&switch), &kind);
    }
    let (switch, vswitchd) = manner.set_up(&VXLAN);
    let daemon = manner.start_beside(&switch);
    rules_forward_both_ways(&daemon, &VXLAN);
    drop(daemon);

    // The same as a port of a bridge, which has the address, and comes after the tunnel and once more.
    let daemon = start(&switch, &manner.source());
    vswitchd.configure(&format!("add-br out -- set bridge out other-config:hwaddr=\"{HERE}\""));
    batch(&["addr flush dev server", "addr add 172.16.0.1/24 dev out", "link set out up"].map(str::to_owned));
    let has_tunnel = || sluice(&daemon, &["show"]).contains("vxlan: udp_port=4789");
    for _ in 0..2 {
        assert!(!has_tunnel());
        vswitchd.configure("add-port out server");
        eventually("the tunnel has its underlay", has_tunnel);
        rules_forward_both_ways(&daemon, &VXLAN);
        vswitchd.configure("del-port out server");
        eventually("the tunnel goes with its underlay", || !has_tunnel());
    }
}

impl Manner {
    /// The client is at a port of Open vSwitch, and the server behind a tunnel, whose packets take the port that has been the server's.
    fn set_up(&self, kind: &Kind) -> (Switch, OffloadingVswitchd) {
        let switch = Switch::set_up();
        batch(&[format!("link set server address {HERE}"), "addr add 172.16.0.1/24 dev server".to_owned()]);
        let link = format!("link add vx0 address 02:00:00:00:00:02 {}", kind.link);
        batch_in(
            "server",
            &[
                "addr flush dev eth0",
                "addr add 172.16.0.2/24 dev eth0",
                &link,
                "link set vx0 up",
                "addr add 192.168.7.2/24 dev vx0",
                "neigh add 192.168.7.1 lladdr 02:00:00:00:00:01 dev vx0",
            ]
            .map(str::to_owned),
        );
        let vswitchd = (self.start_ovs)(&switch, &["client"]);
        vswitchd.add_tunnel("tunnel", kind.name, "172.16.0.2", 7);
        for (from, to) in [("client", "tunnel"), ("tunnel", "client")] {
            vswitchd.set_rule(&format!("in_port={from},actions=output:{to}"));
        }
        (switch, vswitchd)
    }

    /// An agent that knows the underlay beside the ports of the datapath, which has its own numbers.
    fn start_beside(&self, switch: &Switch) -> Daemon {
        start(switch, &format!("[[port]]\nnumber = 1000\nname = \"server\"\n{}", self.source()))
    }

    fn source(&self) -> String {
        format!("[source.ovs]\nunderlay = \"server\"\n{}", self.keys)
    }
}

/// Both ways through the tunnel get a rule, and these forward packets.
fn rules_forward_both_ways(daemon: &Daemon, kind: &Kind) {
    eventually("packets go both ways", || stream::talk(SOURCE, 20) == 20);
    let from = |port: &str| {
        let words = [&format!("in_port({port})"), "eth_type(0x0800)"];
        let is_it = |flow: &Value| words.iter().all(|word| flow["key"].as_str().unwrap().contains(*word));
        ours(daemon).into_iter().find(|flow| is_it(flow) && flow["state"] == "partial")
    };
    let packets = || {
        let [there, back] = ["client", kind.device].map(|port| from(port)?["packets"].as_u64());
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
