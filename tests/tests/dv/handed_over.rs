//! What an Open vSwitch that hands its flows over gets back of those that go into tunnels.

use std::process::Command;
use std::time::{Duration, Instant};

use sluice_flow::Ufid;
use sluice_flow::text::{parse_actions, parse_key};
use sluice_tests::daemon::Daemon;
use sluice_tests::mlx5::in_network_namespace;
use sluice_tests::openvswitch::provider::{NEW, Provider, flow_message, name};
use sluice_tests::world::eventually;

use crate::agent::{CONFIG, PROFILE};

const TABLES: &str = r#"
[[port]]
number = 4
name = "vx"
kind = "vxlan"
underlay = "p0"
[source.ovs]
handed_over = true
"#;

#[test]
fn a_flow_whose_next_hop_is_being_looked_up_is_given_back_only_if_there_is_none() {
    let test = "handed_over::a_flow_whose_next_hop_is_being_looked_up_is_given_back_only_if_there_is_none";
    in_network_namespace(PROFILE, test, |_| {
        ip("link set lo up");
        ip("link add p0 type veth peer name far");
        ip("link set p0 up");
        ip("link set far up");
        ip("address add 172.16.0.1/24 dev p0");
        let folder = tempfile::tempdir().unwrap();
        let daemon = Daemon::start_by(&[], &folder.path().join("agent"), &format!("{CONFIG}{TABLES}"));
        let vswitchd = Provider::connect_to(&daemon, &["p0", "host", "vf0", "vx"]);
        let put = |ufid: u128, last: u8| {
            let key = format!("in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.0.0.{last},tos=0/0x3,frag=no)");
            let actions = format!("set(tunnel(tun_id=0x5,dst=172.16.0.{last},ttl=64,flags(key))),4");
            let (key, actions) = (parse_key(&key, &()).unwrap(), parse_actions(&actions, &()).unwrap());
            vswitchd.send(&flow_message(NEW, Ufid(ufid), &key.matching, &actions));
        };
        let listed = |what: &str| daemon.sluice(&["dump-flows", "-m"]).out.contains(what);
        let began = Instant::now();
        put(8, 8);
        put(9, 9);
        eventually("both are refused for now", || daemon.log().matches("is being looked up").count() >= 2);
        ip("neighbour replace 172.16.0.9 lladdr 02:00:00:00:07:09 dev p0 nud permanent");
        eventually("the flow to the one is in the device", || listed("offloaded:yes"));
        assert_eq!(vswitchd.given_back(), name(Ufid(8)), "the other one has not answered");
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(listed("offloaded:yes"));
    });
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}
