//! Packets that come out of tunnels and go into them: what the NIC in software does with them, and no other way to see that they missed.

use std::net::IpAddr;

use sluice_flow::Flow;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_offload_dv::switch::{ConnectionChange, RuleId, Way};
use sluice_offload_dv::translate::{Entrance, Templates, Vports};
use sluice_tests::mlx5::{Ports, on_device};
use sluice_tests::scenario::{Scenario, hex};
use sluice_tests::soft::Soft;

use crate::connections::Tracked;
use crate::frames::{Packet, TCP, UDP};
use crate::mirrors::copying;
use crate::rig::{Rig, TUNNELS, Vport, connection, flow};
use crate::wrapped::{Header, Outer, without_entropy};

pub(crate) const PROFILES: [&str; 2] = ["bluefield-2", "bluefield-3"];
pub(crate) const WAY: Way = Way {
    egress_mac: [2, 0, 0, 0, 7, 1],
    mac: [2, 0, 0, 0, 7, 2],
    source: IpAddr::V4(std::net::Ipv4Addr::new(172, 16, 0, 7)),
};

/// Flows, of which the last jump to others, and frames that come in at a port.
pub(crate) struct Case {
    pub(crate) flows: Vec<(String, &'static str)>,
    pub(crate) from: usize,
    pub(crate) frames: Vec<Vec<u8>>,
}

pub(crate) fn all_ports() -> Vec<Port> {
    let port = |number, kind| Port { number: PortNumber(number), name: format!("p{number}").parse().unwrap(), kind };
    let tunnel = |number| PortKind::Tunnel(Vport.tunnel(PortNumber(number)).unwrap());
    let tunnels = TUNNELS.iter().map(|(number, _)| port(*number, tunnel(*number)));
    (1..=4).map(|number| port(number, PortKind::Physical)).chain(tunnels).collect()
}

pub(crate) fn open<'a>(ports: &'a Ports) -> Rig<'a> {
    let mut rig = Rig::open(ports);
    let entrance = |(number, _)| {
        let port = PortNumber(number);
        Entrance::of(port, &Vport.tunnel(port).unwrap(), &Vport).unwrap()
    };
    rig.switch.set_entrances(&TUNNELS.map(entrance)).unwrap();
    rig
}

/// Installs a flow; where next hops are to be found, they are found.
pub(crate) fn add_with_way(rig: &mut Rig<'_>, flow: &Flow) -> Result<RuleId, Refusal> {
    loop {
        let added = rig.add(flow);
        let asked = rig.switch.take_asked();
        if added.is_ok() || asked.is_empty() {
            return added;
        }
        asked.into_iter().for_each(|hop| rig.switch.set_way(hop, Ok(WAY)).map(drop).unwrap());
    }
}

/// What the NIC in software makes of a frame, and which flows it met: outer headers that it puts on with the Ethernet addresses of [`WAY`].
pub(crate) fn expected(soft: &Soft, flows: usize, from: usize, frame: &[u8]) -> (Vec<(u32, Vec<u8>)>, Vec<u32>) {
    let (sent, hits) = soft.inject_and_tell(PortNumber(u32::try_from(from).unwrap()), frame);
    if hits.is_empty() || hits.len() < flows {
        return (vec![(0, frame.to_vec())], hits);
    }
    let sent = sent.into_iter().flat_map(|(port, frames)| frames.into_iter().map(move |frame| (port.0, frame)));
    let complete = |(port, mut sent): (u32, Vec<u8>)| {
        if port == 1 && from != 1 {
            sent[..6].copy_from_slice(&WAY.mac);
            sent[6..12].copy_from_slice(&WAY.egress_mac);
            sent = without_entropy(sent);
        }
        (port, sent)
    };
    let mut sent: Vec<_> = sent.map(complete).collect();
    sent.sort();
    (sent, hits)
}

pub(crate) fn compare(ports: &Ports, cases: Vec<Case>) {
    let mut rig = open(ports);
    for Case { flows, from, frames } in cases {
        let said: Vec<_> = flows.iter().map(|(key, actions)| format!("{key} actions:{actions}")).collect();
        let parsed: Vec<_> = flows.iter().map(|(key, actions)| flow(key, actions)).collect();
        let scenario = parsed.iter().fold(Scenario::new("tunnels"), |scenario, flow| {
            scenario.flow(flow.matching().expand(), flow.actions.clone())
        });
        let soft = Soft::set_up(&all_ports(), &scenario).unwrap_or_else(|refusal| panic!("{said:?}: {refusal}"));
        let ids: Vec<_> = parsed.iter().map(|flow| add_with_way(&mut rig, flow).unwrap()).collect();
        let mut counts = vec![0; ids.len()];
        for (number, frame) in frames.iter().enumerate() {
            let (wanted, hits) = expected(&soft, ids.len(), from, frame);
            hits.iter().for_each(|hit| counts[*hit as usize - 1] += 1);
            let mut found = rig.inject(from, frame);
            for (port, sent) in &mut found {
                if *port == 1 && from != 1 {
                    *sent = without_entropy(std::mem::take(sent));
                }
            }
            found.sort();
            let told = |frames: &[(u32, Vec<u8>)]| -> Vec<_> {
                frames.iter().map(|(port, frame)| format!("{port}: {}", hex(frame))).collect()
            };
            assert_eq!(told(&found), told(&wanted), "frame {number} of {said:?}: {}", hex(frame));
            // The first is one that matches.
            assert!(number > 0 || hits.len() == ids.len(), "{said:?}: {}", hex(frame));
        }
        let counted: Vec<_> = rig.switch.remove(&ids).unwrap().iter().map(|count| count.packets).collect();
        assert_eq!(counted, counts, "what is counted of {said:?}");
    }
}

pub(crate) fn inner() -> Vec<u8> {
    Packet { source: [2, 0, 0, 0, 3, 1], ..Packet::v4(UDP) }.frame()
}

/// A flow that unpacks, and frames of which the first matches.
fn unpack(key: &str, actions: &'static str, frames: Vec<Vec<u8>>) -> Case {
    Case { flows: vec![(key.to_owned(), actions)], from: 1, frames }
}

/// Frames of outer headers, of which the first match and each other one does not, around the same frame.
fn but(outer: Outer, changes: &[fn(&mut Outer)]) -> Vec<Vec<u8>> {
    let changed = changes.iter().map(|change| {
        let mut outer = outer.clone();
        change(&mut outer);
        outer
    });
    std::iter::once(outer.clone()).chain(changed).map(|outer| outer.around(&inner())).collect()
}

fn keys() -> Vec<Case> {
    const VXLAN: &str = "tunnel(tun_id=0x123456,src=172.16.0.9,dst=172.16.0.1,tos=0,ttl=60,tp_src=50000,tp_dst=4789,flags(+key)),in_port(10)";
    const GENEVE: &str = "tunnel(tun_id=0x123456,src=172.16.0.9,dst=172.16.0.1,geneve(),flags(-oam+key)),in_port(11)";
    let vni = |outer: &mut Outer| match &mut outer.tunnel {
        Header::Vxlan(_, vni) | Header::Geneve(_, vni, _) => *vni ^= 1,
        Header::Gre(key, _) => *key = key.map(|key| key ^ 1),
    };
    let policy = Outer { tunnel: Header::Vxlan(0x8848_0123, 5), ..Outer::vxlan(5) };
    let with_options = |bytes: &[u8]| Outer { tunnel: Header::Geneve(false, 5, bytes.to_vec()), ..Outer::vxlan(5) };
    vec![
        unpack(
            VXLAN,
            "2",
            but(
                Outer::vxlan(0x12_3456),
                &[
                    vni,
                    |outer| outer.source = [172, 16, 0, 8].into(),
                    |outer| outer.destination = [172, 16, 0, 0].into(),
                    |outer| outer.tos = 0x10,
                    |outer| outer.ttl = 61,
                    |outer| outer.source_port = 50_001,
                    // Linux does not take what it does not know.
                    |outer| outer.tunnel = Header::Vxlan(0x0800_0001, 0x12_3456),
                    |outer| outer.tunnel = Header::Vxlan(0, 0x12_3456),
                ],
            ),
        ),
        unpack(
            "tunnel(tun_id=0x1/0x1,ipv6_src=fdaa::9,ipv6_dst=fdaa::/64,tos=0xb8,ttl=60,flags(+key)),in_port(10)",
            "2",
            but(
                Outer { tos: 0xb8, ..Outer::vxlan(7).v6() },
                &[
                    vni,
                    |outer| outer.source = "fdaa::8".parse().unwrap(),
                    |outer| outer.destination = "fdab::1".parse().unwrap(),
                    |outer| outer.tos = 0xb0,
                ],
            ),
        ),
        unpack(
            "tunnel(tun_id=0x5,vxlan(gbp(id=0x123,flags=0x48)),flags(+key)),in_port(10)",
            "2",
            but(
                policy,
                &[
                    |outer| outer.tunnel = Header::Vxlan(0x8848_0122, 5),
                    |outer| outer.tunnel = Header::Vxlan(0x8808_0123, 5),
                    |outer| outer.tunnel = Header::Vxlan(0x0800_0000, 5),
                ],
            ),
        ),
        unpack(
            GENEVE,
            "2",
            but(
                Outer::geneve(0x12_3456),
                &[
                    vni,
                    |outer| outer.source = [172, 16, 0, 8].into(),
                    |outer| {
                        outer.tunnel = Header::Geneve(true, 0x12_3456, vec![]);
                    },
                ],
            ),
        ),
        unpack("tunnel(tun_id=0x5,flags(+key)),in_port(11)", "2", but(with_options(&[1, 2, 0, 0]), &[vni])),
        unpack("tunnel(tun_id=0x5,flags(+key)),in_port(11)", "2", but(Outer::geneve(5).v6(), &[vni])),
        unpack(
            "tunnel(tun_id=0xdeadbeef,src=172.16.0.9,dst=172.16.0.1,flags(-csum+key)),in_port(12)",
            "2",
            but(Outer::gre(Some(0xdead_beef)), &[vni, |outer| outer.tunnel = Header::Gre(None, false)]),
        ),
        unpack(
            "tunnel(tun_id=0,flags(-key)),in_port(12)",
            "2",
            but(Outer::gre(None).v6(), &[|outer| outer.tunnel = Header::Gre(Some(0), false)]),
        ),
    ]
}

/// What is looked at inside, and what is done with it.
fn inside() -> Vec<Case> {
    const KEY: &str = "tunnel(tun_id=0x5,src=172.16.0.9,dst=172.16.0.1,flags(-df-csum+key)),in_port(10)";
    let around = |packets: Vec<Packet>| packets.iter().map(|packet| Outer::vxlan(5).around(&packet.frame())).collect();
    let tagged = |tag| Packet { tags: vec![(0x8100, tag)], ..Packet::v4(UDP) };
    let key = |rest: &str| format!("{KEY},{rest}");
    vec![
        unpack(
            &key(
                "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,frag=no),udp(src=1111,dst=2222)",
            ),
            "2",
            around(vec![
                Packet::v4(UDP),
                Packet { from: 2, ..Packet::v4(UDP) },
                Packet { to: 1, ..Packet::v4(UDP) },
                Packet { ports: [1111, 2223], ..Packet::v4(UDP) },
                Packet { source: [2, 0, 0, 0, 0, 9], ..Packet::v4(UDP) },
                Packet::v4(TCP),
                Packet::v6(UDP),
            ]),
        ),
        unpack(
            &key(
                "eth(),eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::2,proto=6,hlimit=64,frag=no),tcp(dst=2222),tcp_flags(-syn)",
            ),
            "3",
            around(vec![
                Packet::v6(TCP),
                Packet { to: 3, ..Packet::v6(TCP) },
                Packet { ttl: 63, ..Packet::v6(TCP) },
                Packet { tcp_flags: 0x12, ..Packet::v6(TCP) },
            ]),
        ),
        unpack(
            &key("eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(frag=no))"),
            "pop_vlan,2",
            around(vec![tagged(100), tagged(101), Packet::v4(UDP)]),
        ),
        unpack(
            &key("eth(),eth_type(0x0800),ipv4(proto=17,ttl=64,frag=no)"),
            "set(eth(dst=02:66:77:88:99:aa)),set(ipv4(dst=10.9.9.9,ttl=63)),set(udp(dst=99)),2,3",
            around(vec![Packet::v4(UDP)]),
        ),
        unpack(&key("eth(),eth_type(0x0800),ipv4(frag=no)"), "drop", around(vec![Packet::v4(UDP), Packet::v6(UDP)])),
    ]
}

/// Packets that go through three chains, and those that miss in one of them.
fn chains() -> Vec<Case> {
    let of = |port: u32, outer: fn(u32) -> Outer| {
        let key = |chain: u32, rest: &str| {
            format!("recirc_id({chain:#x}),tunnel(tun_id=0x5,flags(+key)),in_port({port}),{rest}")
        };
        let to = |to: u8| outer(5).around(&Packet { to, ..Packet::v4(UDP) }.frame());
        Case {
            flows: vec![
                (key(7, "eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)"), "set(ipv4(ttl=9)),2"),
                (key(3, "eth(),eth_type(0x0800),ipv4(dst=10.0.0.0/255.255.255.252,frag=no)"), "recirc(7)"),
                (key(0, "eth(),eth_type(0x0800),ipv4(frag=no)"), "recirc(3)"),
            ],
            from: 1,
            // It misses in the last chain, in the second one, and in the first.
            frames: vec![to(2), to(3), to(200), outer(6).around(&inner())],
        }
    };
    vec![of(10, Outer::vxlan), of(11, Outer::geneve), of(12, |key| Outer::gre(Some(key)))]
}

fn into() -> Vec<Case> {
    const KEY: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0/0x3,ttl=64,frag=no)";
    let of = |key: &str, actions, packet: Packet| Case {
        flows: vec![(key.to_owned(), actions)],
        from: 2,
        frames: vec![packet.frame()],
    };
    let four = |actions| of(KEY, actions, Packet::v4(UDP));
    vec![
        four("set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,tp_dst=4789,flags(df|key))),10"),
        four("set(tunnel(tun_id=0xffffff,src=172.16.0.1,dst=172.16.0.9,tos=0xb8,ttl=3,flags(key))),10"),
        four(
            "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,vxlan(gbp(id=291,flags=0x48)),flags(df|key))),10",
        ),
        four("set(tunnel(tun_id=0x5,ipv6_src=fdaa::1,ipv6_dst=fdaa::9,ttl=64,flags(key))),10"),
        four("set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(df|key))),11"),
        four(
            "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,geneve({class=0x102,type=0x80,len=4,0x10002}),flags(df|key))),11",
        ),
        four(
            "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,geneve({class=0x102,type=0x80,len=4,0x10002}{class=0x103,type=0x1,len=8,0x1122334455667788}),flags(df|key))),11",
        ),
        four("set(tunnel(tun_id=0x5,ipv6_src=fdaa::1,ipv6_dst=fdaa::9,ttl=64,flags(key|oam))),11"),
        four("set(tunnel(tun_id=0xdeadbeef,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(df|key))),12"),
        four("set(tunnel(src=172.16.0.1,dst=172.16.0.9,ttl=64)),12"),
        four(
            "set(eth(dst=02:66:77:88:99:aa)),set(ipv4(ttl=63)),push_vlan(vid=7,pcp=1),set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(key))),10",
        ),
        of(
            "in_port(2),eth(),eth_type(0x86dd),ipv6(tclass=0x2,frag=no)",
            "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(key))),10",
            Packet { tos: 2, ..Packet::v6(TCP) },
        ),
        // A mark of congestion is not told outside.
        of(
            "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0x3/0x3,frag=no)",
            "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,tos=0x20,ttl=64,flags(key))),11",
            Packet { tos: 3, ..Packet::v4(UDP) },
        ),
    ]
}

/// Copies into tunnels besides others, and out of them.
fn copies() -> Vec<Case> {
    const KEY: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0/0x3,ttl=64,frag=no)";
    let into =
        |actions| Case { flows: vec![(KEY.to_owned(), actions)], from: 2, frames: vec![Packet::v4(UDP).frame()] };
    vec![
        into("3,set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(df|key))),10"),
        into("set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(df|key))),10,3"),
        // As a broadcast goes to several hosts.
        into(
            "3,4,set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(key))),11,\
             set(tunnel(tun_id=0x6,src=172.16.0.1,dst=172.16.0.8,ttl=64,flags(key))),11,\
             set(tunnel(tun_id=0x7,src=172.16.0.1,dst=172.16.0.7,ttl=64,flags(key))),10",
        ),
        into(
            "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(key))),10,set(ipv4(dst=10.9.9.9)),12,\
             push_vlan(vid=5,pcp=0),3",
        ),
        unpack(
            "tunnel(tun_id=0x5,flags(+key)),in_port(10),eth(),eth_type(0x0800),ipv4(ttl=64,frag=no)",
            "2,set(eth(dst=02:66:77:88:99:aa)),set(ipv4(ttl=9)),3,push_vlan(vid=5,pcp=0),4",
            but(Outer::vxlan(5), &[|outer| outer.tunnel = Header::Vxlan(0x0800_0000, 6)]),
        ),
    ]
}

#[test]
fn copies_go_into_tunnels_besides_others() {
    for profile in PROFILES {
        on_device(profile, "tunnels::copies_go_into_tunnels_besides_others", |ports| compare(ports, copies()));
    }
}

#[test]
fn outer_headers_are_matched_as_in_the_nic_in_software() {
    for profile in PROFILES {
        on_device(profile, "tunnels::outer_headers_are_matched_as_in_the_nic_in_software", |ports| {
            compare(ports, keys())
        });
    }
}

#[test]
fn what_is_inside_is_matched_and_changed_as_in_the_nic_in_software() {
    for profile in PROFILES {
        let name = "tunnels::what_is_inside_is_matched_and_changed_as_in_the_nic_in_software";
        on_device(profile, name, |ports| compare(ports, inside()));
    }
}

#[test]
fn a_packet_that_misses_in_any_chain_is_at_the_representor_as_it_came_in() {
    for profile in PROFILES {
        let name = "tunnels::a_packet_that_misses_in_any_chain_is_at_the_representor_as_it_came_in";
        on_device(profile, name, |ports| compare(ports, chains()));
    }
}

#[test]
fn headers_are_put_on_as_in_the_nic_in_software() {
    for profile in PROFILES {
        on_device(profile, "tunnels::headers_are_put_on_as_in_the_nic_in_software", |ports| compare(ports, into()));
    }
}

#[test]
fn an_outer_header_of_udp_over_ipv4_is_without_the_checksum_that_is_asked_for() {
    let name = "tunnels::an_outer_header_of_udp_over_ipv4_is_without_the_checksum_that_is_asked_for";
    on_device("bluefield-3", name, |ports| {
        let mut rig = open(ports);
        for port in [10, 11] {
            let sent = [(2, "key"), (3, "csum|key")].map(|(from, flags)| {
                let key = format!("in_port({from}),eth(),eth_type(0x0800),ipv4(dst=10.0.0.{port},tos=0/0x3,frag=no)");
                let headers = format!("set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags({flags})))");
                add_with_way(&mut rig, &flow(&key, &format!("{headers},{port}"))).unwrap();
                rig.inject(from, &Packet { to: port, ..Packet::v4(UDP) }.frame())
            });
            assert!(matches!(&sent[0][..], [(1, _)]), "{sent:?}");
            assert_eq!(sent[0], sent[1], "{port}");
        }
    });
}

#[test]
fn packets_that_need_more_than_to_be_unpacked_are_at_the_representor() {
    on_device("bluefield-3", "tunnels::packets_that_need_more_than_to_be_unpacked_are_at_the_representor", |ports| {
        let mut rig = open(ports);
        for port in TUNNELS.map(|(port, _)| port) {
            rig.add(&flow(&format!("in_port({port})"), "2")).unwrap();
        }
        // What is of no tunnel goes there.
        rig.add(&flow("in_port(1)", "3")).unwrap();
        let congested = Outer { tos: 3, ..Outer::vxlan(5) };
        let summed = Outer { tunnel: Header::Gre(Some(5), true), ..Outer::vxlan(5) };
        let tagged = Outer { tag: Some(5), ..Outer::vxlan(5) };
        assert_eq!(rig.inject(1, &Outer::geneve(5).around(&inner())), [(2, inner())]);
        for outer in [congested, summed] {
            let frame = outer.around(&inner());
            assert_eq!(rig.inject(1, &frame), [(0, frame)], "{outer:?}");
        }
        // Of a tunnel they are without a tag.
        let frame = tagged.around(&inner());
        assert_eq!(rig.inject(1, &frame), [(3, frame)]);
    });
}

#[test]
fn a_mirror_of_the_wire_copies_packets_of_tunnels_as_they_came_in() {
    on_device("bluefield-3", "tunnels::a_mirror_of_the_wire_copies_packets_of_tunnels_as_they_came_in", |ports| {
        let mut rig = open(ports);
        rig.add(&flow("tunnel(tun_id=0x5,flags(+key)),in_port(10)", "2")).unwrap();
        rig.switch.set_mirror("wire", copying("in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)", "3")).unwrap();
        let [unpacked, missed] = [5, 6].map(|vni| Outer::vxlan(vni).around(&inner()));
        assert_eq!(rig.inject(1, &unpacked), [(2, inner()), (3, unpacked)]);
        assert_eq!(rig.inject(1, &missed), [(0, missed.clone()), (3, missed)]);
        assert_eq!(rig.switch.read_mirror("wire").unwrap().unwrap().packets, 2);
    });
}

#[test]
fn packets_of_connections_go_into_tunnels_as_others_do() {
    const KEY: &str = "eth(),eth_type(0x0800),ipv4(tos=0/0x3,frag=no)";
    const WRAP: &str = "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(df|key))),10";
    on_device("bluefield-3", "tunnels::packets_of_connections_go_into_tunnels_as_others_do", |ports| {
        let mut rig = open(ports);
        rig.switch.accept_connections().unwrap();
        let mut track = |key: &str, actions: &str| {
            let rule = Templates::new().instance(flow(&format!("{key},{KEY}"), actions), &Tracked).unwrap();
            if rig.switch.install(rule.clone()).is_err() {
                let hop = rig.switch.take_asked().remove(0);
                rig.switch.set_way(hop, Ok(WAY)).unwrap();
                rig.switch.install(rule).unwrap();
            }
        };
        // Into the tunnel at once, and in a later chain.
        track("recirc_id(0),in_port(2)", &format!("ct(zone=5),{WRAP}"));
        track("recirc_id(0x1),in_port(3),ct_state(+trk+est)", WRAP);
        track("recirc_id(0),in_port(3)", "ct(zone=5),recirc(1)");
        let told = rig.switch.change_connections(vec![ConnectionChange::Is(Box::new(connection(5)))]).unwrap();
        assert_eq!(told.refused, 0, "{:?}", told.reason);
        let untracked = flow(&format!("in_port(2),{KEY}"), WRAP);
        let scenario = Scenario::new("tunnels").flow(untracked.matching().expand(), untracked.actions.clone());
        let soft = Soft::set_up(&all_ports(), &scenario).unwrap();
        let (frame, other) = (Packet::v4(UDP).frame(), Packet { ports: [1112, 2222], ..Packet::v4(UDP) }.frame());
        let (wanted, _) = expected(&soft, 1, 2, &frame);
        for port in [2, 3] {
            let found: Vec<_> =
                rig.inject(port, &frame).into_iter().map(|(port, sent)| (port, without_entropy(sent))).collect();
            assert_eq!(found, wanted);
            assert_eq!(rig.inject(port, &other), [(0, other.clone())]);
        }
    });
}
