//! Flows that look up connections: what the device makes of a packet is what the NIC in software makes of it, or the packet goes to its
//! representor as it came in.

use std::sync::Arc;

use sluice_flow::Flow;
use sluice_flow::backend::{Backend, Injector};
use sluice_flow::connection::Connection;
use sluice_flow::port::{PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;
use sluice_offload_dv::switch::{ConnectionChange, RuleId};
use sluice_offload_dv::translate::{Templates, Vports, translate};
use sluice_tests::mlx5::{Ports, on_device};

use crate::frames::{Packet, TCP, UDP};
use crate::reference::Reference;
use crate::rig::{Rig, Vport, flow};

pub(crate) const PROFILES: [&str; 2] = ["bluefield-2", "bluefield-3"];

const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// Ports of a switch that connections come to.
pub(crate) struct Tracked;

impl Vports for Tracked {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        Vport.vport(port)
    }

    fn tunnel(&self, port: PortNumber) -> Option<Tunnel> {
        Vport.tunnel(port)
    }

    fn has_connections(&self) -> bool {
        true
    }
}

/// A device, and the NIC in software that sees what the device does not do. It has all flows, and is where connections come from.
pub(crate) struct World<'a> {
    pub(crate) rig: Rig<'a>,
    pub(crate) soft: Reference,
}

impl<'a> World<'a> {
    pub(crate) fn open(ports: &'a Ports) -> Self {
        let mut rig = Rig::open(ports);
        rig.switch.set_vports(Arc::new(Tracked));
        rig.switch.accept_connections().unwrap();
        let soft = Reference::open(&Arc::default());
        Self { rig, soft }
    }

    /// Adds a flow to both.
    pub(crate) fn add(&mut self, key: &str, actions: &str) -> RuleId {
        self.soft.add(&flow(key, actions));
        self.try_add(&flow(key, actions)).unwrap_or_else(|refusal| panic!("{key} {actions}: {refusal}"))
    }

    pub(crate) fn try_add(&mut self, flow: &Flow) -> Result<RuleId, Refusal> {
        let rule = Templates::new().instance(flow.clone(), &Tracked)?;
        let id = self.rig.switch.install(rule)?;
        self.rig.switch.sync()?;
        Ok(id)
    }

    /// Adds a flow that is for software: the device must refuse it.
    pub(crate) fn add_to_software(&mut self, key: &str, actions: &str) {
        self.try_add(&flow(key, actions)).unwrap_err();
        self.soft.add(&flow(key, actions));
    }

    /// What the NIC in software makes of a frame.
    pub(crate) fn in_software(&self, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let verdict = self.soft.nic.inject(PortNumber(port), frame).unwrap();
        verdict.sent.into_iter().map(|(port, frame)| (port.0, frame)).collect()
    }

    /// Lets a packet in that the device is to leave to software, which has it then. Returns what that makes of it.
    pub(crate) fn left_to_software(&self, port: u32, packet: &Packet) -> Vec<(u32, Vec<u8>)> {
        let frame = packet.frame();
        assert_eq!(self.rig.inject(port as usize, &frame), [(0, frame.clone())], "{packet:?}");
        self.in_software(port, &frame)
    }

    /// Lets a packet in that the device is to deal with as software does, which sends it to `to`.
    pub(crate) fn same_as_software(&self, port: u32, packet: &Packet, to: u32) -> Vec<u8> {
        let frame = packet.frame();
        let found = self.rig.inject(port as usize, &frame);
        assert_eq!(found, self.in_software(port, &frame), "{packet:?}");
        let [(out, frame)] = <[_; 1]>::try_from(found).unwrap();
        assert_eq!(out, to, "{packet:?}");
        frame
    }

    pub(crate) fn connections(&self) -> Vec<Connection> {
        let mut all = Vec::new();
        let connections = self.soft.nic.connections().unwrap();
        connections.visit_connections(None, &mut |connection| all.push(connection)).unwrap();
        all
    }

    /// Tells the device of the connections that the NIC in software has.
    pub(crate) fn tell(&mut self) {
        let all = self.connections().into_iter().map(|connection| ConnectionChange::Is(Box::new(connection)));
        let connected = self.rig.switch.change_connections(all.collect()).unwrap();
        assert_eq!(connected.refused, 0, "{:?}", connected.reason);
    }
}

/// Both directions of a connection from 10.0.0.1 at port 2 to 10.0.0.2 at port 1.
pub(crate) fn directions(protocol: u8) -> [Packet; 2] {
    let there = Packet::v4(protocol);
    [there.clone(), answer(&there)]
}

pub(crate) fn answer(packet: &Packet) -> Packet {
    let [from, to] = packet.ports;
    Packet { from: packet.to, to: packet.from, ports: [to, from], ..packet.clone() }
}

pub(crate) fn flagged(packet: &Packet, tcp_flags: u8) -> Packet {
    Packet { tcp_flags, ..packet.clone() }
}

pub(crate) const IP: &str = "eth(),eth_type(0x0800),ipv4(frag=no)";

/// Flows of a firewall with one zone: whoever is at port 2 may begin.
fn firewall(world: &mut World<'_>, zone: u16) -> [RuleId; 4] {
    let there = world.add(&format!("recirc_id(0x1),in_port(2),ct_state(+trk+est),{IP}"), "1");
    let back = world.add(&format!("recirc_id(0x1),in_port(1),ct_state(+trk+est+rpl),ct_zone({zone:#x}),{IP}"), "2");
    world.add_to_software(
        &format!("recirc_id(0x1),in_port(2),ct_state(+trk+new),{IP}"),
        &format!("ct(commit,zone={zone}),1"),
    );
    let track = format!("ct(zone={zone}),recirc(1)");
    let from_2 = world.add(&format!("recirc_id(0),in_port(2),{IP}"), &track);
    let from_1 = world.add(&format!("recirc_id(0),in_port(1),{IP}"), &track);
    [from_2, from_1, there, back]
}

/// Has the NIC in software see a connection begin.
fn begin(world: &World<'_>, [there, back]: &[Packet; 2]) {
    if there.protocol == TCP {
        world.left_to_software(2, &flagged(there, SYN));
        world.left_to_software(1, &flagged(back, SYN | ACK));
    }
    world.left_to_software(2, there);
    world.left_to_software(1, back);
}

#[test]
fn packets_of_a_connection_go_on_and_all_others_go_to_their_representor() {
    for profile in PROFILES {
        on_device(
            profile,
            "connections::packets_of_a_connection_go_on_and_all_others_go_to_their_representor",
            |ports| {
                let mut world = World::open(ports);
                let flows = firewall(&mut world, 5);
                for protocol in [TCP, UDP] {
                    let [there, back] = directions(protocol);
                    begin(&world, &[there.clone(), back.clone()]);
                    world.tell();
                    world.same_as_software(2, &there, 1);
                    world.same_as_software(1, &back, 2);
                    let others = [Packet { ports: [1112, 2222], ..there.clone() }, Packet { from: 7, ..there.clone() }];
                    others.iter().for_each(|other| drop(world.left_to_software(2, other)));
                    // A fragment has no ports.
                    world.left_to_software(2, &Packet { fragment: 0x2000, ..there.clone() });
                }
                let [there, back] = directions(TCP);
                for flags in [FIN | ACK, SYN, RST] {
                    let frame = flagged(&there, flags).frame();
                    assert_eq!(world.rig.inject(2, &frame), [(0, frame.clone())], "flags {flags:#x}");
                }
                world.left_to_software(1, &flagged(&back, RST));
                // Packets that software had in the end are counted there.
                let counted = world.rig.switch.remove(&flows).unwrap();
                assert_eq!(counted.iter().map(|count| count.packets).collect::<Vec<_>>(), [2, 2, 2, 2]);
            },
        );
    }
}

#[test]
fn copies_of_packets_of_connections_are_as_they_were_when_they_were_sent() {
    let name = "connections::copies_of_packets_of_connections_are_as_they_were_when_they_were_sent";
    on_device("bluefield-3", name, |ports| {
        let mut world = World::open(ports);
        let track = |flags| format!("recirc_id(0x1),in_port(2),ct_state({flags}),{IP}");
        world.add(&track("+trk+est"), "1,set(eth(dst=02:66:77:88:99:aa)),3");
        world.add_to_software(&track("+trk+new"), "ct(commit,zone=5),1");
        world.add(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=5),2,set(eth(src=02:66:77:88:99:aa)),4");
        world.add(&format!("recirc_id(0),in_port(2),{IP}"), "ct(zone=5),recirc(1)");
        let [there, back] = directions(UDP);
        begin(&world, &[there.clone(), back.clone()]);
        world.tell();
        for (port, packet) in [(2, &there), (1, &back)] {
            let frame = packet.frame();
            let found = world.rig.inject(port as usize, &frame);
            assert_eq!(found.len(), 2);
            assert_eq!(found, world.in_software(port, &frame));
        }
        world.left_to_software(1, &Packet { ports: [1112, 2222], ..back });
    });
}

#[test]
fn a_connection_that_is_gone_or_closing_is_left_to_software() {
    on_device("bluefield-3", "connections::a_connection_that_is_gone_or_closing_is_left_to_software", |ports| {
        let mut world = World::open(ports);
        firewall(&mut world, 0);
        let (tcp, udp) = (directions(TCP), directions(UDP));
        begin(&world, &tcp);
        begin(&world, &udp);
        world.tell();
        assert_eq!(world.rig.switch.connections(), 2);
        let [gone] = world
            .connections()
            .into_iter()
            .filter(|one| one.original.protocol == UDP)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let gone = ConnectionChange::Gone { zone: 0, original: gone.original, id: None };
        world.rig.switch.change_connections(vec![gone.clone(), gone]).unwrap();
        world.left_to_software(2, &udp[0]);
        world.left_to_software(1, &udp[1]);
        world.same_as_software(2, &tcp[0], 1);
        world.left_to_software(2, &flagged(&tcp[0], FIN | ACK));
        world.tell();
        world.left_to_software(2, &tcp[0]);
        world.left_to_software(1, &tcp[1]);
        // The other one is told again.
        assert_eq!(world.rig.switch.connections(), 1);
        world.same_as_software(1, &udp[1], 2);
    });
}

#[test]
fn connections_that_a_listing_leaves_out_are_gone() {
    on_device("bluefield-3", "connections::connections_that_a_listing_leaves_out_are_gone", |ports| {
        let mut world = World::open(ports);
        firewall(&mut world, 0);
        let (first, second) = (directions(UDP), directions(TCP));
        begin(&world, &first);
        begin(&world, &second);
        world.tell();
        world.rig.switch.begin_listing().unwrap();
        let kept: Vec<_> = world.connections().into_iter().filter(|one| one.original.protocol == TCP).collect();
        let kept = kept.into_iter().map(|connection| ConnectionChange::Is(Box::new(connection))).collect();
        world.rig.switch.change_connections(kept).unwrap();
        world.same_as_software(2, &first[0], 1);
        world.rig.switch.end_listing().unwrap();
        while world.rig.switch.forget_unlisted(64).unwrap() {}
        world.left_to_software(2, &first[0]);
        world.same_as_software(2, &second[0], 1);
    });
}

#[test]
fn connections_come_to_a_flow_that_comes_after_them() {
    on_device("bluefield-3", "connections::connections_come_to_a_flow_that_comes_after_them", |ports| {
        let mut world = World::open(ports);
        let flows = firewall(&mut world, 0);
        let [there, back] = directions(UDP);
        begin(&world, &[there.clone(), back.clone()]);
        world.rig.switch.remove(&flows).unwrap();
        world.tell();
        let key = format!("recirc_id(0),in_port(2),{IP}");
        world.try_add(&flow(&format!("recirc_id(0x1),in_port(2),ct_state(+trk+est),{IP}"), "1")).unwrap();
        world.try_add(&flow(&key, "ct(zone=0),recirc(1)")).unwrap();
        world.left_to_software(2, &there);
        assert!(!world.rig.switch.fill_connections(10).unwrap().is_unfinished);
        world.same_as_software(2, &there, 1);
    });
}

#[test]
fn marks_and_labels_are_those_that_the_connection_has_by_now() {
    on_device("bluefield-3", "connections::marks_and_labels_are_those_that_the_connection_has_by_now", |ports| {
        let mut world = World::open(ports);
        let later = |matched: &str| format!("recirc_id(0x1),in_port(2),ct_state(+trk),{matched},{IP}");
        world.add(&later("ct_mark(0x1/0x1),ct_label(0x70/0xf0)"), "1");
        world.add(&later("ct_mark(0x2/0x3),ct_label(0x80000001)"), "3");
        world.add_to_software(&later("ct_label(0x100000000/0x100000000)"), "4");
        world.add(&format!("recirc_id(0),in_port(2),{IP}"), "ct(zone=1),recirc(1)");
        let commit = |mark: &str, label: &str| format!("ct(commit,zone=1,mark={mark},label={label})");
        world.add_to_software(&format!("recirc_id(0),in_port(3),{IP}"), &commit("0x5/0xf", "0x7f/0xff"));
        world.add_to_software(&format!("recirc_id(0),in_port(4),{IP}"), &commit("0x2/0xf", "0x80000001"));
        world.soft.add(&flow(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=1),2"));
        let [there, back] = directions(UDP);
        world.in_software(3, &there.frame());
        world.in_software(1, &back.frame());
        world.tell();
        world.same_as_software(2, &there, 1);
        world.in_software(4, &there.frame());
        world.tell();
        world.same_as_software(2, &there, 3);
    });
}

/// Flows that translate what port 2 sends in zone 3, as `nat` says.
fn translator(world: &mut World<'_>, nat: &str, key: &str) {
    let ip = |key: &str| format!("eth(),{key}");
    let to_1 = format!("recirc_id(0x1),in_port(2),ct_state(+trk+est+snat),{}", ip(key));
    world.add(&to_1, "1");
    world.add(&format!("recirc_id(0x1),in_port(1),ct_state(+trk+est+rpl),{}", ip(key)), "2");
    let commit = format!("ct(commit,zone=3,nat({nat})),1");
    world.add_to_software(&format!("recirc_id(0x1),in_port(2),ct_state(+trk+new),{}", ip(key)), &commit);
    for port in [1, 2] {
        world.add(&format!("recirc_id(0),in_port({port}),{}", ip(key)), "ct(zone=3,nat),recirc(1)");
    }
}

#[test]
fn addresses_and_ports_are_translated_both_ways() {
    for profile in PROFILES {
        on_device(profile, "connections::addresses_and_ports_are_translated_both_ways", |ports| {
            let v4 = "eth_type(0x0800),ipv4(frag=no)";
            let v6 = "eth_type(0x86dd),ipv6(frag=no)";
            let cases = [
                (v4, "src=10.0.0.9:5000-5000"),
                (v4, "dst=10.0.0.8:80-80"),
                (v6, "src=fd00::9"),
                (v6, "dst=fd00::8:80-80"),
            ];
            for (key, nat) in cases {
                let nat = if key == v6 { nat.replace("::8:80", "::8").replace("-80", "") } else { nat.to_owned() };
                for protocol in [TCP, UDP] {
                    println!("{key} {nat} {protocol}");
                    let mut world = World::open(ports);
                    translator(&mut world, &nat, key);
                    let there = Packet { is_v6: key == v6, ..Packet::v4(protocol) };
                    // What comes out tells what answers look like.
                    let opening = if protocol == TCP { flagged(&there, SYN) } else { there.clone() };
                    let [(_, sent)] = world.left_to_software(2, &opening).try_into().unwrap();
                    let back = answer(&there.read_back(&sent));
                    if protocol == TCP {
                        world.left_to_software(1, &flagged(&back, SYN | ACK));
                    }
                    world.left_to_software(2, &there);
                    world.left_to_software(1, &back);
                    world.tell();
                    assert_ne!(world.same_as_software(2, &there, 1), there.frame());
                    assert_ne!(world.same_as_software(1, &back, 2), back.frame());
                }
            }
        });
    }
}

#[test]
fn what_was_translated_and_matches_nothing_comes_up_as_it_came_in() {
    for profile in PROFILES {
        on_device(profile, "connections::what_was_translated_and_matches_nothing_comes_up_as_it_came_in", |ports| {
            let mut world = World::open(ports);
            translator(&mut world, "src=10.0.0.9:5000-5000", "eth_type(0x0800),ipv4(tos=0,frag=no)");
            let there = Packet::v4(UDP);
            let [(_, sent)] = world.left_to_software(2, &there).try_into().unwrap();
            let back = answer(&there.read_back(&sent));
            world.left_to_software(1, &back);
            world.tell();
            world.same_as_software(2, &there, 1);
            // Only the first chain takes it, which translates it.
            world.add(&format!("recirc_id(0),in_port(3),{IP}"), "ct(zone=3,nat),recirc(1)");
            for (port, packet) in [(3, &there), (3, &back)] {
                let frame = packet.frame();
                assert_eq!(world.rig.inject(port, &frame), [(0, frame.clone())]);
            }
        });
    }
}

#[test]
fn a_packet_passes_the_zones_of_both_ports_as_ovn_writes_it() {
    for profile in PROFILES {
        on_device(profile, "connections::a_packet_passes_the_zones_of_both_ports_as_ovn_writes_it", |ports| {
            let mut world = World::open(ports);
            let est = "ct_state(-new+est-rel-inv+trk),ct_mark(0/0x1)";
            // From port 2 with zone 12 to port 3 with zone 13, and back. The load balancer of zone 12 knows 10.0.0.2 as 10.0.0.8.
            world.add(&format!("recirc_id(0x4),in_port(2),{est},ct_zone(0xd),{IP}"), "3");
            world.add(&format!("recirc_id(0x5),in_port(3),{est},ct_zone(0xc),{IP}"), "2");
            world.add(&format!("recirc_id(0x2),in_port(2),{est},ct_zone(0xc),{IP}"), "ct(zone=13),recirc(4)");
            world.add(&format!("recirc_id(0x3),in_port(3),{est},ct_zone(0xd),{IP}"), "ct(zone=12,nat),recirc(5)");
            world.add(&format!("recirc_id(0),in_port(2),{IP}"), "ct(zone=12,nat),recirc(2)");
            world.add(&format!("recirc_id(0),in_port(3),{IP}"), "ct(zone=13),recirc(3)");
            let new = format!("ct_state(+new+trk),{IP}");
            let balance = "ct(commit,zone=12,nat(dst=10.0.0.8:80)),recirc(6)";
            world.add_to_software(&format!("recirc_id(0x2),in_port(2),{new}"), balance);
            world.soft.add(&flow(&format!("recirc_id(0x6),in_port(2),{IP}"), "ct(zone=13),recirc(4)"));
            world.add_to_software(&format!("recirc_id(0x4),in_port(2),{new}"), "ct(commit,zone=13),3");

            let there = Packet::v4(TCP);
            let [(3, sent)] = <[_; 1]>::try_from(world.left_to_software(2, &flagged(&there, SYN))).unwrap() else {
                panic!("it goes to port 3");
            };
            let back = answer(&there.read_back(&sent));
            world.left_to_software(3, &flagged(&back, SYN | ACK));
            world.left_to_software(2, &there);
            let first_zone = |connection: &Connection| connection.zone == 12;
            let all = world.connections();
            let (first, second): (Vec<_>, Vec<_>) = all.into_iter().partition(first_zone);
            assert_eq!((first.len(), second.len()), (1, 1));
            let tell = |connections: Vec<Connection>| {
                connections.into_iter().map(|connection| ConnectionChange::Is(Box::new(connection))).collect()
            };
            // What the second zone does not know comes up as it came in, though the first has translated it.
            world.rig.switch.change_connections(tell(first)).unwrap();
            world.left_to_software(2, &there);
            world.rig.switch.change_connections(tell(second)).unwrap();
            let out = world.same_as_software(2, &there, 3);
            assert_eq!(there.read_back(&out).to, 8);
            world.same_as_software(3, &back, 2);
        });
    }
}

#[test]
fn what_only_software_does_is_refused_with_its_reason() {
    let refusal = |key: &str, actions: &str| translate(&flow(key, actions), &Tracked).unwrap_err().to_string();
    let first = format!("recirc_id(0),in_port(2),{IP}");
    let cases = [
        ("ct(force_commit,zone=1)", "force_commit: software throws away the connection of the other direction"),
        ("ct(commit,mark=0x1)", "mark: software sets the marks of connections"),
        ("ct(commit,label=0x1)", "label: software sets the labels of connections"),
        ("ct(commit,helper=ftp)", "helper: a gateway in software must see the packets"),
        ("ct(commit,timeout=slow)", "timeout: software gives connections their timeouts"),
        ("ct(commit,nat(src=10.0.0.9))", "nat with an address: software chooses what a connection becomes"),
        ("ct(zone=1),ct(zone=2),1", "the connection is looked up once in a flow"),
        (
            "set(ipv4(dst=10.0.0.9)),ct(zone=1),1",
            "addresses or ports were set before, and the device looks the connection up by those that came in",
        ),
    ];
    for (actions, reason) in cases {
        assert_eq!(refusal(&first, actions), format!("action ct: {reason}"), "{actions}");
    }
    let reason = "combination: ct without a match on eth_type(0x0800) or eth_type(0x86dd)";
    assert_eq!(refusal("in_port(2),eth()", "ct(zone=1),1"), reason);
    let later = |matched: &str| format!("recirc_id(0x1),{matched},{IP}");
    for state in ["+new+trk", "+rel+trk", "+inv+trk"] {
        let reason = "field ct_state: packets of connections that are new, related or invalid go to their representor";
        assert_eq!(refusal(&later(&format!("ct_state({state})")), "1"), reason);
    }
    let reason = "field ct_label: packets of connections with a label of more than 32 bits go to their representor";
    assert_eq!(refusal(&later("ct_label(0x100000000)"), "1"), reason);
    assert_eq!(
        refusal(&first.replace("in_port", "ct_mark(0x1),in_port"), "1"),
        "field ct_mark: no packet is tracked before the first ct()"
    );
}

#[test]
fn a_commit_that_sets_nothing_takes_packets_of_connections_that_are_committed() {
    on_device(
        "bluefield-3",
        "connections::a_commit_that_sets_nothing_takes_packets_of_connections_that_are_committed",
        |ports| {
            let mut world = World::open(ports);
            world.add(&format!("recirc_id(0),in_port(2),{IP}"), "ct(commit,zone=4),1");
            world.add(&format!("recirc_id(0),in_port(1),{IP}"), "ct(commit,zone=4),2");
            let [there, back] = directions(UDP);
            // Software commits it.
            world.left_to_software(2, &there);
            world.left_to_software(1, &back);
            world.tell();
            world.same_as_software(2, &there, 1);
            world.same_as_software(1, &back, 2);
        },
    );
}

#[test]
fn what_was_found_is_forgotten_by_ct_clear() {
    on_device("bluefield-3", "connections::what_was_found_is_forgotten_by_ct_clear", |ports| {
        let mut world = World::open(ports);
        world.add(&format!("recirc_id(0x1),in_port(2),ct_state(-trk),ct_zone(0),{IP}"), "1");
        world.add(&format!("recirc_id(0x1),in_port(2),ct_state(+trk),{IP}"), "3");
        let udp = format!("recirc_id(0),in_port(2),{}", IP.replace("frag=no", "proto=17,frag=no"));
        let clear = world.add(&udp, "ct(commit,zone=4),ct_clear,recirc(1)");
        world.soft.add(&flow(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=4),2"));
        let [there, back] = directions(UDP);
        world.left_to_software(2, &there);
        world.in_software(1, &back.frame());
        world.tell();
        world.same_as_software(2, &there, 1);
        world.rig.switch.remove(&[clear]).unwrap();
        world.try_add(&flow(&udp, "ct(commit,zone=4),recirc(1)")).unwrap();
        world.rig.switch.fill_connections(10).unwrap();
        assert_eq!(world.rig.inject(2, &there.frame()), [(3, there.frame())]);
    });
}

/// Connections of the firewall's zone, and those that pass both zones of OVN's pattern, which have two each.
const OF_THE_FIREWALL: u32 = 30_000;
const OF_TWO_ZONES: u32 = 10_000;
/// Of so many connections one is tried.
const SAMPLE: usize = 20;

#[test]
fn fifty_thousand_connections_carry_packets_as_software_does() {
    on_device("bluefield-3", "connections::fifty_thousand_connections_carry_packets_as_software_does", |ports| {
        let mut world = World::open(ports);
        firewall(&mut world, 5);
        let est = "ct_state(-new+est-rel-inv+trk)";
        world.add(&format!("recirc_id(0x4),in_port(4),{est},ct_zone(0xd),{IP}"), "3");
        world.add(&format!("recirc_id(0x5),in_port(3),{est},ct_zone(0xc),{IP}"), "4");
        world.add(&format!("recirc_id(0x2),in_port(4),{est},ct_zone(0xc),{IP}"), "ct(zone=13),recirc(4)");
        world.add(&format!("recirc_id(0x3),in_port(3),{est},ct_zone(0xd),{IP}"), "ct(zone=12,nat),recirc(5)");
        world.add(&format!("recirc_id(0),in_port(4),{IP}"), "ct(zone=12,nat),recirc(2)");
        world.add(&format!("recirc_id(0),in_port(3),{IP}"), "ct(zone=13),recirc(3)");
        let new = format!("ct_state(+new+trk),{IP}");
        let balance = "ct(commit,zone=12,nat(dst=10.0.0.8:80)),recirc(6)";
        world.add_to_software(&format!("recirc_id(0x2),in_port(4),{new}"), balance);
        world.soft.add(&flow(&format!("recirc_id(0x6),in_port(4),{IP}"), "ct(zone=13),recirc(4)"));
        world.add_to_software(&format!("recirc_id(0x4),in_port(4),{new}"), "ct(commit,zone=13),3");

        let mut tried = Vec::new();
        let kinds = [(OF_THE_FIREWALL, 2, 1), (OF_TWO_ZONES, 4, 3)];
        let all = kinds.into_iter().flat_map(|(number, from, to)| (1..=number).map(move |index| (index, from, to)));
        for (number, (index, from, to)) in all.enumerate() {
            let protocol = if index % 2 == 0 { TCP } else { UDP };
            let there = Packet { ports: [u16::try_from(index).unwrap(), 2222], ..Packet::v4(protocol) };
            let opening = if protocol == TCP { flagged(&there, SYN) } else { there.clone() };
            let sent = world.in_software(from, &opening.frame());
            let back = answer(&there.read_back(&sent[0].1));
            if protocol == TCP {
                world.in_software(to, &flagged(&back, SYN | ACK).frame());
                world.in_software(from, &there.frame());
            }
            world.in_software(to, &back.frame());
            if number % SAMPLE == 0 {
                tried.push((from, to, there, back));
            }
        }
        let before = std::time::Instant::now();
        let changes: Vec<_> =
            world.connections().into_iter().map(|connection| ConnectionChange::Is(Box::new(connection))).collect();
        for some in changes.chunks(256) {
            let connected = world.rig.switch.change_connections(some.to_vec()).unwrap();
            assert_eq!(connected.refused, 0, "{:?}", connected.reason);
        }
        assert_eq!(world.rig.switch.connections(), 50_000);
        println!("50,000 connections came within {:?}", before.elapsed());
        for (from, to, there, back) in &tried {
            world.same_as_software(*from, there, *to);
            world.same_as_software(*to, back, *from);
            world.left_to_software(*from, &Packet { from: 77, ..there.clone() });
        }
        let before = std::time::Instant::now();
        let gone = world.connections().into_iter().map(|one| ConnectionChange::Gone {
            zone: one.zone,
            original: one.original,
            id: None,
        });
        world.rig.switch.change_connections(gone.collect()).unwrap();
        println!("and went within {:?}", before.elapsed());
        let (from, _, there, _) = &tried[0];
        world.left_to_software(*from, there);
    });
}
