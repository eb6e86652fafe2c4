//! The same flow and the same packet in the device and in the NIC in software.

use std::sync::Arc;

use sluice_flow::Flow;
use sluice_flow::backend::Injector;
use sluice_flow::port::PortNumber;
use sluice_tests::mlx5::{Ports, on_device};

use crate::frames::{ICMP, ICMPV6, Packet, TCP, UDP};
use crate::reference::Reference;
use crate::rig::{HOST, OLD_HOST, Rig, flow};

const PROFILES: [&str; 3] = ["bluefield-2", "bluefield-3", HOST];

/// A flow, and frames that come in at port 2 (or 1, if they need the wire).
pub(crate) struct Case {
    pub(crate) key: &'static str,
    pub(crate) actions: &'static str,
    pub(crate) from: usize,
    pub(crate) packets: Vec<Packet>,
}

pub(crate) fn case(key: &'static str, actions: &'static str, packets: impl Into<Vec<Packet>>) -> Case {
    Case { key, actions, from: 2, packets: packets.into() }
}

/// What the NIC in software makes of a frame under one flow.
fn expected(flow: &Flow, from: usize, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut reference = Reference::open(&Arc::default());
    reference.add(flow);
    let verdict = reference.nic.inject(PortNumber(u32::try_from(from).unwrap()), frame).unwrap();
    if verdict.missed.is_some() {
        // Where the NIC in software drops it, the device shows it to the representor as it came in.
        return vec![(0, frame.to_vec())];
    }
    let mut sent: Vec<_> = verdict.sent.into_iter().map(|(port, frame)| (port.0, frame)).collect();
    sent.sort();
    sent
}

pub(crate) fn compare(ports: &Ports, cases: Vec<Case>) {
    let mut rig = Rig::open(ports);
    for Case { key, actions, from, packets } in cases {
        println!("{key} actions:{actions}");
        let flow = flow(key, actions);
        let id = rig.add(&flow).unwrap_or_else(|refusal| panic!("{key}: {refusal}"));
        let mut hits = 0;
        for packet in packets {
            let frame = packet.frame();
            let wanted = expected(&flow, from, &frame);
            assert_eq!(rig.inject(from, &frame), wanted, "{packet:?}");
            hits += u64::from(wanted.first().is_none_or(|(port, _)| *port != 0));
        }
        let last = rig.switch.remove(&[id]).unwrap();
        assert_eq!(last[0].packets, hits, "what is counted of {key}");
    }
}

/// Packets of which the first matches, and each other one misses by what the change makes of it.
pub(crate) fn but(packet: Packet, changes: &[fn(&mut Packet)]) -> Vec<Packet> {
    let changed = changes.iter().map(|change| {
        let mut packet = packet.clone();
        change(&mut packet);
        packet
    });
    std::iter::once(packet.clone()).chain(changed).collect()
}

fn keys() -> Vec<Case> {
    let tagged = |tags: &[(u16, u16)]| Packet { tags: tags.to_vec(), ..Packet::v4(UDP) };
    let labelled = |labels: &[u32]| Packet { labels: labels.to_vec(), ..Packet::v4(UDP) };
    vec![
        case("in_port(2)", "1", [Packet::v4(UDP), tagged(&[(0x8100, 5)]), Packet::v6(TCP)]),
        case("in_port(3)", "1", [Packet::v4(UDP)]),
        case(
            "in_port(2),eth(),num_of_vlans(0)",
            "1",
            [Packet::v4(UDP), tagged(&[(0x8100, 5)]), tagged(&[(0x88a8, 5)]), tagged(&[(0x88a8, 5), (0x8100, 6)])],
        ),
        case(
            "in_port(2),eth(),num_of_vlans(1),eth_type(0x88a8),vlan(cfi=1),encap()",
            "1",
            [tagged(&[(0x88a8, 5)]), tagged(&[(0x88a8, 5), (0x8100, 6)]), tagged(&[(0x8100, 5)]), Packet::v4(UDP)],
        ),
        case(
            "in_port(2),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)",
            "1",
            but(Packet::v4(UDP), &[|packet| packet.source[5] = 0, |packet| packet.destination[0] = 6]),
        ),
        case(
            "in_port(2),eth(dst=02:00:00:00:00:00/ff:ff:ff:ff:ff:f0)",
            "1",
            but(Packet::v4(UDP), &[|packet| packet.destination[5] = 0xf, |packet| packet.destination[5] = 0x12]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x0800),ipv4(src=10.0.0.0/255.255.255.254,dst=10.0.0.2,proto=17,frag=no)",
            "1",
            but(Packet::v4(UDP), &[|packet| packet.from = 2, |packet| packet.to = 3, |packet| packet.protocol = TCP]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0xb9,ttl=63,frag=no)",
            "1",
            but(
                Packet { tos: 0xb9, ttl: 63, ..Packet::v4(UDP) },
                &[|packet| packet.tos = 0xb8, |packet| packet.tos = 0xb1, |packet| packet.ttl = 62],
            ),
        ),
        case(
            "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0/0x3,frag=no)",
            "1",
            but(Packet { tos: 0xb8, ..Packet::v4(UDP) }, &[|packet| packet.tos = 0xb9]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(src=1111,dst=2048/0xf800)",
            "1",
            but(Packet::v4(UDP), &[|packet| packet.ports[0] = 1110, |packet| packet.ports[1] = 4096]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=1111,dst=2222),tcp_flags(-syn)",
            "1",
            but(Packet::v4(TCP), &[|packet| packet.tcp_flags = 0x12, |packet| packet.ports[1] = 2223]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x0800),ipv4(proto=1,frag=no),icmp(type=8,code=0)",
            "1",
            but(Packet { ports: [0x0800, 1], ..Packet::v4(ICMP) }, &[|packet| packet.ports[0] = 0x0000]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::/ffff:ffff:ffff:ffff::,proto=17,hlimit=64,frag=no)",
            "1",
            but(Packet::v6(UDP), &[|packet| packet.from = 3, |packet| packet.ttl = 1, |packet| packet.to = 9]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x86dd),ipv6(tclass=0x2e,proto=6,frag=no),tcp(dst=2222)",
            "1",
            but(Packet { tos: 0x2e, ..Packet::v6(TCP) }, &[|packet| packet.tos = 0x2f, |packet| packet.ports[1] = 22]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=128,code=0)",
            "1",
            but(Packet { ports: [0x8000, 1], ..Packet::v6(ICMPV6) }, &[|packet| packet.ports[0] = 0x8100]),
        ),
        case(
            "in_port(2),eth(),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=136,code=0),nd_ext(nd_reserved=0x20000000/0x60000000)",
            "1",
            but(
                Packet { ports: [0x8800, 0x2000], ..Packet::v6(ICMPV6) },
                &[|packet| packet.ports[1] = 0x6000, |packet| packet.ports[1] = 0, |packet| packet.ports[1] = 0xa000],
            ),
        ),
        case(
            "in_port(2),eth(),eth_type(0x8847),mpls(label=16,tc=5,ttl=64,bos=0)",
            "1",
            but(
                labelled(&[0x0001_0a40, 0x0002_0140]),
                &[
                    |packet| packet.labels[0] ^= 1 << 12,
                    |packet| packet.labels[0] ^= 1 << 31,
                    |packet| packet.labels[0] ^= 1 << 9,
                    |packet| packet.labels[0] ^= 1 << 8,
                    |packet| packet.labels[0] ^= 1,
                    |packet| packet.labels[1] ^= 1 << 12,
                    |packet| packet.labels.clear(),
                ],
            ),
        ),
        case(
            "in_port(2),eth(),eth_type(0x8847),mpls(label=16/0xffff0)",
            "1",
            but(
                labelled(&[0x0001_f940]),
                &[|packet| packet.labels[0] ^= 1 << 16, |packet| packet.labels[0] ^= 1 << 12],
            ),
        ),
        case(
            "in_port(2),eth(),eth_type(0x8100),vlan(vid=100,pcp=5),encap(eth_type(0x0800),ipv4(frag=no))",
            "1",
            but(
                tagged(&[(0x8100, 0xa064)]),
                &[
                    |packet| packet.tags.clear(),
                    |packet| packet.tags[0].1 = 0xa065,
                    |packet| packet.tags[0].1 = 0xb064,
                    |packet| packet.tags[0].1 = 0x8064,
                    |packet| packet.tags[0].0 = 0x88a8,
                ],
            ),
        ),
        case(
            "in_port(2),eth(),eth_type(0x88a8),vlan(vid=7,pcp=0),encap(eth_type(0x8100),vlan(vid=9,pcp=0),encap(eth_type(0x0800),ipv4(frag=no)))",
            "1",
            but(
                tagged(&[(0x88a8, 7), (0x8100, 9)]),
                &[|packet| packet.tags[1].1 = 8, |packet| packet.tags.truncate(1), |packet| packet.tags[0].1 = 6],
            ),
        ),
    ]
}

fn actions() -> Vec<Case> {
    const IPV4: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no)";
    const IPV6: &str = "in_port(2),eth(),eth_type(0x86dd),ipv6(hlimit=64,proto=6,frag=no)";
    let of = |key, actions, packet: Packet| case(key, actions, [packet]);
    let four = |actions| of(IPV4, actions, Packet::v4(UDP));
    let six = |actions| of(IPV6, actions, Packet::v6(TCP));
    vec![
        four("1"),
        four("drop"),
        four("1,3,4"),
        four("2"),
        four("set(eth(src=02:11:22:33:44:55)),1"),
        four("set(eth(src=02:11:22:33:44:55,dst=02:66:77:88:99:aa)),3"),
        four("set(eth(dst=00:00:00:ff:00:00/00:00:00:ff:0f:00)),1"),
        four("set(ipv4(src=192.168.1.1,dst=192.168.1.2)),1"),
        four("set(ipv4(ttl=7)),1"),
        four("set(ipv4(tos=0xb8/0xfc)),1"),
        four("set(ipv4(tos=0x3/0x3)),1"),
        four("set(ipv4(tos=0xb9)),1"),
        four("set(udp(src=53,dst=5353)),1"),
        four("set(eth(dst=02:66:77:88:99:aa)),set(ipv4(dst=10.9.9.9,ttl=63)),set(udp(dst=99)),1"),
        six("set(ipv6(src=fd00::77,dst=2001:db8::1)),1"),
        six("set(ipv6(hlimit=3)),1"),
        six("set(ipv6(tclass=0xb8/0xfc)),1"),
        six("set(ipv6(tclass=0x2e)),1"),
        six("set(tcp(src=443)),1"),
        four("push_vlan(vid=100,pcp=3),1"),
        four("push_vlan(tpid=0x88a8,vid=7,pcp=0),1"),
        four("set(eth(src=02:11:22:33:44:55)),push_vlan(vid=100,pcp=3),1"),
        of(
            "in_port(2),eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(proto=17,frag=no))",
            "pop_vlan,set(eth(dst=02:66:77:88:99:aa)),1,3",
            Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) },
        ),
        of(
            "in_port(2),eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(proto=17,frag=no))",
            "pop_vlan,push_vlan(vid=7,pcp=1),1",
            Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) },
        ),
        of("eth(),eth_type(0x0800),ipv4(proto=17,frag=no)", "push_vlan(vid=7,pcp=1),1", Packet::v4(UDP)),
        Case {
            key: "in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,frag=no)",
            actions: "set(ipv4(ttl=9)),push_vlan(vid=7,pcp=1),push_vlan(tpid=0x88a8,vid=8,pcp=0),3",
            from: 1,
            packets: vec![Packet::v4(UDP)],
        },
        Case {
            key: "in_port(1),eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(proto=17,frag=no))",
            actions: "pop_vlan,2",
            from: 1,
            packets: vec![Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) }],
        },
        Case {
            key: "in_port(1),eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(proto=17,frag=no))",
            actions: "pop_vlan,set(ipv4(dst=10.9.9.9)),2",
            from: 1,
            packets: vec![Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) }],
        },
        // Back to where it came from.
        Case {
            key: "in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,frag=no)",
            actions: "set(eth(dst=02:66:77:88:99:aa)),1",
            from: 1,
            packets: vec![Packet::v4(UDP)],
        },
        of(
            "in_port(2),eth(),eth_type(0x8100),vlan(vid=100),encap(eth_type(0x0800),ipv4(proto=17,frag=no))",
            "pop_vlan,set(eth(dst=02:66:77:88:99:aa)),push_vlan(vid=7,pcp=0),2",
            Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) },
        ),
    ]
}

#[test]
fn every_key_matches_what_it_does_in_the_nic_in_software() {
    for profile in PROFILES.into_iter().chain([OLD_HOST]) {
        on_device(profile, "same::every_key_matches_what_it_does_in_the_nic_in_software", |ports| {
            compare(ports, keys());
        });
    }
}

#[test]
fn every_action_makes_the_frame_that_the_nic_in_software_makes() {
    for profile in PROFILES {
        on_device(profile, "same::every_action_makes_the_frame_that_the_nic_in_software_makes", |ports| {
            compare(ports, actions());
        });
    }
}
