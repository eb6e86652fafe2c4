//! Copies that are sent before a packet is changed, and after: each is as the NIC in software has it.

use sluice_offload_dv::translate::{Templates, translate};
use sluice_tests::mlx5::on_device;

use crate::frames::{Packet, TCP, UDP};
use crate::nic::{Sender, datagrams, until_counted};
use crate::rig::{Rig, Vport, flow, open_switch};
use crate::same::{Case, but, case, compare};

const PROFILES: [&str; 2] = ["bluefield-2", "bluefield-3"];
const IPV4: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no)";
const FROM_WIRE: &str = "in_port(1),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no)";
const TAGGED: &str =
    "in_port(2),eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(proto=17,frag=no))";

fn copies() -> Vec<Case> {
    let four = |actions| case(IPV4, actions, but(Packet::v4(UDP), &[|packet| packet.ttl = 63]));
    let from_wire = |actions| Case { key: FROM_WIRE, actions, from: 1, packets: vec![Packet::v4(UDP)] };
    let tagged = || Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) };
    vec![
        four("1,set(eth(dst=02:66:77:88:99:aa)),3"),
        four("set(ipv4(dst=10.9.9.9)),1,set(ipv4(dst=10.8.8.8)),3,4"),
        four("1,set(ipv4(ttl=9)),3,set(udp(dst=99)),4,set(eth(src=02:11:22:33:44:55)),2"),
        four("1,set(ipv4(ttl=9)),3,set(ipv4(ttl=8))"),
        four("1,dec_ttl(le_1()),3,dec_ttl(le_1()),4"),
        four("1,push_vlan(vid=100,pcp=3),3"),
        four("1,push_vlan(vid=7,pcp=0),3,push_vlan(tpid=0x88a8,vid=8,pcp=0),4"),
        // What one rule does in one order only.
        four("push_vlan(vid=7,pcp=0),1,set(ipv4(ttl=9)),3"),
        four("1,push_vlan(vid=7,pcp=0),3,pop_vlan,4"),
        four("1,1"),
        four("1,3,1,set(ipv4(ttl=9)),1"),
        // What is done to a clone is not done to the packet.
        four("clone(1),3"),
        four("clone(set(eth(dst=02:66:77:88:99:aa)),1),3"),
        four("set(ipv4(ttl=9)),clone(set(eth(dst=02:66:77:88:99:aa)),push_vlan(vid=5,pcp=0),1,3),set(ipv4(tos=4)),4"),
        four("1,clone(ct_clear,set(ipv4(dst=10.9.9.9)),3,clone(set(ipv4(dst=10.8.8.8)),4),2)"),
        four("clone(set(ipv4(dst=10.9.9.9))),1"),
        case(TAGGED, "clone(pop_vlan,1),3", [tagged()]),
        case(TAGGED, "1,pop_vlan,3", [tagged(), Packet::v4(UDP)]),
        case(TAGGED, "1,pop_vlan,set(ipv4(dst=10.9.9.9)),3,push_vlan(vid=5,pcp=2),4", [tagged()]),
        case("eth(),eth_type(0x0800),ipv4(proto=6,frag=no)", "3,set(tcp(dst=80)),4", [Packet::v4(TCP)]),
        from_wire("2,set(ipv4(dst=10.9.9.9)),3,push_vlan(vid=5,pcp=2),4"),
    ]
}

#[test]
fn each_copy_is_as_the_packet_was_when_it_was_sent() {
    for profile in PROFILES {
        on_device(profile, "copies::each_copy_is_as_the_packet_was_when_it_was_sent", |ports| {
            compare(ports, copies());
        });
    }
}

#[test]
fn all_rules_of_a_flow_are_explained() {
    let rule =
        translate(&flow(IPV4, "1,set(eth(src=02:11:22:33:44:55)),3,push_vlan(vid=5,pcp=0),4,1"), &Vport).unwrap();
    let text = rule.describe(&|vport| format!("vport {vport}"));
    let (_, actions) = text.split_once("; actions ").unwrap();
    assert_eq!(
        actions,
        "count, to vport 65535 and a later rule; \
         then: modify_header(0x1001000002112233 0x1002001000004455), to vport 1 and a later rule; \
         then: push_vlan(0x8100 0x0005), to vport 2 and vport 65535"
    );
}

/// Flows that change in turns, and of which each packet is for port 1 and port 3.
const WAYS: [&str; 3] = ["1,set(ipv4(ttl=9)),3", "1,3", "3,set(ipv4(ttl=8)),1,set(ipv4(ttl=7)),4"];

#[test]
fn no_packet_is_between_rules_that_are_gone_while_a_flow_is_modified() {
    const FLOWS: u16 = 20;
    const TURNS: usize = 100;
    on_device("bluefield-3", "copies::no_packet_is_between_rules_that_are_gone_while_a_flow_is_modified", |ports| {
        let representor = ports.out("vport-65534");
        let mut templates = Templates::new();
        let mut wanted = |port: u16, way: usize| {
            let key = format!("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port})");
            templates.instance(flow(&key, WAYS[way % WAYS.len()]), &Vport).unwrap()
        };
        let mut switch = open_switch();
        let ids: Vec<_> = (0..FLOWS).map(|port| switch.install(wanted(port, 0)).unwrap()).collect();
        switch.sync().unwrap();
        let sender = Sender::start(ports, datagrams(FLOWS));
        for turn in 1..=TURNS {
            for (port, id) in (0..).zip(&ids) {
                switch.replace(*id, wanted(port, turn)).unwrap();
            }
        }
        let sent = sender.end();
        println!("{} modifications, {sent} packets", TURNS * usize::from(FLOWS));
        assert!(sent > 0);
        until_counted(sent, || {
            let mut counted = 0;
            for bulk in 0..switch.bulks() {
                switch.read(bulk, &mut |_, count| counted += count.packets).unwrap();
            }
            counted
        });
        assert_eq!(representor.at_once(), None, "a packet met the first rule of a flow, and none behind");
        assert_eq!(switch.remove(&ids).unwrap().iter().map(|count| count.packets).sum::<u64>(), sent);
    });
}

#[test]
fn numbers_of_flows_are_used_again_and_their_tables_go_with_the_last() {
    const FLOWS: u16 = 300;
    /// By the command that makes them (CREATE_FLOW_TABLE).
    const TABLES: &str = "0x930";
    on_device("bluefield-3", "copies::numbers_of_flows_are_used_again_and_their_tables_go_with_the_last", |ports| {
        let mut rig = Rig::open(ports);
        let wanted = |port: u16| {
            let key = format!("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port})");
            flow(&key, &format!("1,set(udp(dst={})),3", 10_000 + port))
        };
        let mut after = vec![];
        for _ in 0..3 {
            let ids: Vec<_> = (0..FLOWS).map(|port| rig.put(&wanted(port)).unwrap()).collect();
            rig.switch.sync().unwrap();
            for port in [0, 1, FLOWS - 1] {
                let frame = |port| Packet { ports: [1, port], ..Packet::v4(UDP) }.frame();
                assert_eq!(rig.inject(2, &frame(port)), [(1, frame(port)), (3, frame(10_000 + port))]);
            }
            let counted = rig.switch.remove(&ids).unwrap();
            assert_eq!(counted.iter().map(|count| count.packets).sum::<u64>(), 3);
            // Blocks of counters stay for the next ones.
            let mut left = ports.control().left();
            left.retain(|kind, _| kind.starts_with("flow-") && kind != "flow-counters" || kind.ends_with(TABLES));
            after.push(left);
        }
        assert_eq!([&after[1], &after[2]], [&after[0]; 2]);
    });
}
