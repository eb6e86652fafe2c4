//! The flows of a connection that is masqueraded, as text, and what tc makes of them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_feed_conntrack::{Planned, Side, TTLS, Tags};
use sluice_flow::backend::{BackendConfig, Checker};
use sluice_flow::connection::Direction;
use sluice_flow::port::{PortKind, PortNumber};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Field, Flow, MaskedKey, Port, Priority};
use sluice_netdev::VlanTag;

const CLIENT: Side = Side {
    ingress: PortNumber(1),
    ingress_tags: Tags::NONE,
    ingress_mac: [2, 0, 0, 0, 1, 1],
    egress: PortNumber(2),
    egress_tags: Tags::NONE,
    egress_mac: [2, 0, 0, 0, 2, 1],
    next_hop: [2, 0, 0, 0, 2, 2],
};
const SERVER: Side = Side {
    ingress: PortNumber(2),
    ingress_tags: Tags::NONE,
    ingress_mac: [2, 0, 0, 0, 2, 1],
    egress: PortNumber(1),
    egress_tags: Tags::NONE,
    egress_mac: [2, 0, 0, 0, 1, 1],
    next_hop: [2, 0, 0, 0, 1, 2],
};

/// All flows of a direction.
fn plan(received: &Direction, answers: &Direction, side: &Side) -> [Planned; 3] {
    TTLS.map(|ttl| sluice_feed_conntrack::plan(received, answers, side, ttl))
}

fn connection(protocol: u8) -> [Direction; 2] {
    let direction = |from: ([u8; 4], u16), to: ([u8; 4], u16)| Direction {
        source: from.0.into(),
        destination: to.0.into(),
        protocol,
        source_port: from.1,
        destination_port: to.1,
    };
    let server = ([10, 2, 0, 2], 5000);
    [direction(([10, 1, 0, 2], 40_000), server), direction(server, ([10, 2, 0, 1], 1025))]
}

/// The same of IPv6.
fn connection_of_ipv6(protocol: u8) -> [Direction; 2] {
    let address = |text: &str| text.parse().unwrap();
    let [original, reply] = connection(protocol);
    [
        Direction { source: address("fd01::2"), destination: address("fd02::2"), ..original },
        Direction { source: address("fd02::2"), destination: address("fd02::4d"), ..reply },
    ]
}

fn read(key: &str, actions: &str) -> Planned {
    (parse_key(key, &()).unwrap().matching, parse_actions(actions, &()).unwrap())
}

/// Each value of the TTL for which one of the flows is.
fn ttls(flows: &[Planned]) -> Vec<u8> {
    let is_of = |ttl: u8| {
        move |(matching, _): &&Planned| {
            u128::from(ttl) & matching.mask.get(Field::Ipv4Ttl) == matching.key.get(Field::Ipv4Ttl)
        }
    };
    let matches = |ttl: u8| flows.iter().filter(is_of(ttl)).count();
    (0..=u8::MAX).filter(|ttl| matches(*ttl) == 1).collect()
}

#[test]
fn both_directions_do_what_the_kernel_would_do() {
    let [original, reply] = connection(6);
    let there = plan(&original, &reply, &CLIENT);
    let expected = read(
        "recirc_id(0),in_port(1),eth(dst=02:00:00:00:01:01),eth_type(0x0800),ipv4(src=10.1.0.2,dst=10.2.0.2,proto=6,ttl=64/0x60,frag=no),\
         tcp(src=40000,dst=5000),tcp_flags(0/0x7)",
        "set(eth(src=02:00:00:00:02:01,dst=02:00:00:00:02:02)),set(ipv4(src=10.2.0.1)),set(tcp(src=1025)),dec_ttl(le_1(drop)),2",
    );
    assert_eq!(there[0].0, expected.0);
    assert_eq!(there[0].1, expected.1);
    let back = plan(&reply, &original, &SERVER);
    let expected = read(
        "recirc_id(0),in_port(2),eth(dst=02:00:00:00:02:01),eth_type(0x0800),ipv4(src=10.2.0.2,dst=10.2.0.1,proto=6,ttl=64/0x60,frag=no),\
         tcp(src=5000,dst=1025),tcp_flags(0/0x7)",
        "set(eth(src=02:00:00:00:01:01,dst=02:00:00:00:01:02)),set(ipv4(dst=10.1.0.2)),set(tcp(dst=40000)),dec_ttl(le_1(drop)),1",
    );
    assert_eq!(back[0].0, expected.0);
    assert_eq!(back[0].1, expected.1);
}

#[test]
fn those_of_ipv6_match_and_change_its_header() {
    let [original, reply] = connection_of_ipv6(17);
    let expected = read(
        "recirc_id(0),in_port(1),eth(dst=02:00:00:00:01:01),eth_type(0x86dd),ipv6(src=fd01::2,dst=fd02::2,proto=17,hlimit=64/0x60,frag=no),\
         udp(src=40000,dst=5000)",
        "set(eth(src=02:00:00:00:02:01,dst=02:00:00:00:02:02)),set(ipv6(src=fd02::4d)),set(udp(src=1025)),dec_ttl(le_1(drop)),2",
    );
    assert_eq!(plan(&original, &reply, &CLIENT)[0], expected);
}

#[test]
fn each_ttl_from_32_on_is_of_one_flow_and_no_other_is() {
    let [original, reply] = connection(17);
    assert_eq!(ttls(&plan(&original, &reply, &CLIENT)), (32..=u8::MAX).collect::<Vec<_>>());
}

#[test]
fn what_is_not_translated_is_not_set() {
    let [original, _] = connection(17);
    let answers = Direction {
        source: original.destination,
        destination: original.source,
        source_port: original.destination_port,
        destination_port: original.source_port,
        ..original
    };
    let [(matching, actions), ..] = plan(&original, &answers, &CLIENT);
    assert_eq!(actions.len(), 3, "{actions:?}");
    assert_eq!(matching.mask.get(Field::TcpFlags), 0);
}

fn tag(protocol: u16, id: u16) -> VlanTag {
    VlanTag { protocol, id }
}

fn stacked() -> Tags {
    Tags::NONE.within(tag(0x8100, 9)).and_then(|tags| tags.within(tag(0x88a8, 8))).unwrap()
}

/// A router between VLANs 10 and 20 of one port, and what comes back.
fn on_a_stick() -> [Side; 2] {
    let [lan, wan] = [10, 20].map(|id| Tags::NONE.within(tag(0x8100, id)).unwrap());
    [
        Side { ingress_tags: lan, egress: PortNumber(1), egress_tags: wan, ..CLIENT },
        Side { ingress: PortNumber(1), ingress_tags: wan, egress_tags: lan, ..SERVER },
    ]
}

#[test]
fn what_comes_with_a_tag_loses_it_and_gets_the_one_of_the_vlan_that_it_leaves_by() {
    let [original, reply] = connection(17);
    let [there, _] = on_a_stick();
    let expected = read(
        "recirc_id(0),in_port(1),eth(dst=02:00:00:00:01:01),eth_type(0x8100),vlan(vid=10),\
         encap(eth_type(0x0800),ipv4(src=10.1.0.2,dst=10.2.0.2,proto=17,ttl=64/0x60,frag=no),udp(src=40000,dst=5000))",
        "pop_vlan,set(eth(src=02:00:00:00:02:01,dst=02:00:00:00:02:02)),set(ipv4(src=10.2.0.1)),set(udp(src=1025)),\
         dec_ttl(le_1(drop)),push_vlan(vid=20,pcp=0),1",
    );
    assert_eq!(plan(&original, &reply, &there)[0], expected);

    // From two tags to none, and back.
    let stacked = stacked();
    assert_eq!(stacked.within(tag(0x8100, 7)), None);
    let there = Side { ingress_tags: stacked, ..CLIENT };
    let expected = read(
        "recirc_id(0),in_port(1),eth(dst=02:00:00:00:01:01),eth_type(0x88a8),vlan(vid=8),encap(eth_type(0x8100),vlan(vid=9),\
         encap(eth_type(0x0800),ipv4(src=10.1.0.2,dst=10.2.0.2,proto=17,ttl=64/0x60,frag=no),udp(src=40000,dst=5000)))",
        "pop_vlan,pop_vlan,set(eth(src=02:00:00:00:02:01,dst=02:00:00:00:02:02)),set(ipv4(src=10.2.0.1)),set(udp(src=1025)),\
         dec_ttl(le_1(drop)),2",
    );
    assert_eq!(plan(&original, &reply, &there)[0], expected);
    let back = Side { egress_tags: stacked, ..SERVER };
    let expected = parse_actions(
        "set(eth(src=02:00:00:00:01:01,dst=02:00:00:00:01:02)),set(ipv4(dst=10.1.0.2)),set(udp(dst=40000)),dec_ttl(le_1(drop)),\
         push_vlan(vid=9,pcp=0),push_vlan(tpid=0x88a8,vid=8,pcp=0),1",
        &(),
    );
    assert_eq!(plan(&reply, &original, &back)[0].1, expected.unwrap());
}

/// Whether a backend would ask its device for each of the flows of TCP and of UDP.
fn takes(mut checker: Box<dyn Checker>) {
    for (number, name) in [(1, "client"), (2, "server")] {
        let port = Port { number: PortNumber(number), name: name.parse().unwrap(), kind: PortKind::Representor };
        checker.port(&port).unwrap();
    }
    for protocol in [6, 17] {
        let [original, reply] = connection(protocol);
        let [there, back] = on_a_stick();
        let tagged_alone = [Side { egress_tags: Tags::NONE, ..there }, Side { ingress_tags: Tags::NONE, ..back }];
        let of_two_tags = [Side { ingress_tags: stacked(), ..CLIENT }, Side { egress_tags: stacked(), ..SERVER }];
        let sides = [[CLIENT, SERVER], [there, back], tagged_alone, of_two_tags];
        let of = |[there, back]: [Side; 2]| [plan(&original, &reply, &there), plan(&reply, &original, &back)];
        for (matching, actions) in sides.into_iter().flat_map(of).flatten() {
            let key = MaskedKey::new(&matching);
            let flow = Flow::new(None, key, actions, Priority::default(), Expiry::default(), &Seed([0; 16]));
            checker.flow(&flow).unwrap();
        }
    }
}

#[test]
fn every_backend_takes_them() {
    takes(sluice_offload_tc::Config::default().checker());
    takes(sluice_offload_dv::Config::default().checker());
    takes(sluice_offload_soft::Config::default().checker());
}
