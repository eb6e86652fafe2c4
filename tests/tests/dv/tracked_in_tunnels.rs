//! Connections of packets in tunnels, as OVN writes them between hosts: the device finds them by the headers inside.

use std::sync::Arc;

use sluice_offload_dv::switch::ConnectionChange;
use sluice_tests::mlx5::{Ports, on_device};

use crate::connections::{IP, PROFILES, Tracked, World, answer, directions};
use crate::frames::{Packet, TCP, UDP};
use crate::reference::Reference;
use crate::rig::{connection, flow};
use crate::tunnels::{WAY, all_ports, open};
use crate::wrapped::{Outer, without_entropy};

const WRAP: &str = "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(df|key))),11";

/// A device and the NIC in software with tunnels at port 1.
fn world(ports: &Ports) -> World<'_> {
    let mut rig = open(ports);
    rig.switch.set_vports(Arc::new(Tracked));
    rig.switch.accept_connections().unwrap();
    World { rig, soft: Reference::with_ports(&all_ports(), &Arc::default()) }
}

/// Adds a flow to both. Where its next hop is to be found, it is found.
fn add(world: &mut World<'_>, key: &str, actions: &str) {
    let flow = flow(key, actions);
    world.soft.add(&flow);
    while let Err(refusal) = world.try_add(&flow) {
        let hops = world.rig.switch.take_asked();
        assert!(!hops.is_empty(), "{key} {actions}: {refusal}");
        hops.into_iter().for_each(|hop| world.rig.switch.set_way(hop, Ok(WAY)).map(drop).unwrap());
    }
}

/// What the NIC in software makes of a frame, with the Ethernet addresses of the next hop where it leaves in a tunnel.
fn in_software(world: &World<'_>, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let complete = |(port, mut sent): (u32, Vec<u8>)| {
        if port == 1 {
            sent[..6].copy_from_slice(&WAY.mac);
            sent[6..12].copy_from_slice(&WAY.egress_mac);
            sent = without_entropy(sent);
        }
        (port, sent)
    };
    world.in_software(port, frame).into_iter().map(complete).collect()
}

/// What the device makes of it.
fn in_device(world: &World<'_>, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let complete = |(port, sent)| (port, if port == 1 { without_entropy(sent) } else { sent });
    world.rig.inject(port as usize, frame).into_iter().map(complete).collect()
}

/// Lets a frame in that the device is to leave to software, which has it then. Returns what that makes of it.
fn left_to_software(world: &World<'_>, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
    assert_eq!(world.rig.inject(port as usize, frame), [(0, frame.to_vec())]);
    in_software(world, port, frame)
}

/// Lets a frame in that the device is to deal with as software does, which sends it to `to`.
fn same_as_software(world: &World<'_>, port: u32, frame: &[u8], to: u32) {
    let found = in_device(world, port, frame);
    assert_eq!(found, in_software(world, port, frame));
    assert_eq!(found.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [to]);
}

/// A packet of the other host, as it comes in.
fn around(packet: &Packet) -> Vec<u8> {
    Outer::geneve(5).around(&packet.frame())
}

const INSIDE: &str = "tunnel(tun_id=0x5,flags(+key)),in_port(11)";

/// Flows between port 2, with zone 13, and the other host, whose packets pass zone 12 first: both stages of OVN.
fn between_hosts(world: &mut World<'_>) {
    let est = "ct_state(-new+est-rel-inv+trk),ct_mark(0/0x1)";
    let ip = "eth(),eth_type(0x0800),ipv4(tos=0/0x3,frag=no)";
    add(world, &format!("recirc_id(0x2),{INSIDE},{est},ct_zone(0xd),{IP}"), "2");
    add(world, &format!("recirc_id(0x1),{INSIDE},{est},ct_zone(0xc),{IP}"), "ct(zone=13,nat),recirc(2)");
    add(world, &format!("recirc_id(0),{INSIDE},{IP}"), "ct(zone=12),recirc(1)");
    add(world, &format!("recirc_id(0x4),in_port(2),{est},ct_zone(0xc),{ip}"), WRAP);
    add(world, &format!("recirc_id(0x3),in_port(2),{est},ct_zone(0xd),{ip}"), "ct(zone=12),recirc(4)");
    add(world, &format!("recirc_id(0),in_port(2),{ip}"), "ct(zone=13,nat),recirc(3)");
    let new = format!("ct_state(+new+trk),{ip}");
    world.add_to_software(&format!("recirc_id(0x1),{INSIDE},{new}"), "ct(commit,zone=12),ct(zone=13,nat),recirc(2)");
    // What begins at the other host for 10.0.0.8 is for 10.0.0.2.
    let to_balance = format!("ct_state(+new+trk),{}", ip.replace("tos", "dst=10.0.0.8,tos"));
    world.add_to_software(&format!("recirc_id(0x2),{INSIDE},{to_balance}"), "ct(commit,zone=13,nat(dst=10.0.0.2)),2");
    let to_others = format!("ct_state(+new+trk),{}", ip.replace("tos", "dst=10.0.0.2,tos"));
    world.add_to_software(&format!("recirc_id(0x2),{INSIDE},{to_others}"), "ct(commit,zone=13),2");
}

#[test]
fn packets_of_connections_between_hosts_pass_both_zones_in_hardware() {
    for profile in PROFILES {
        let name = "tracked_in_tunnels::packets_of_connections_between_hosts_pass_both_zones_in_hardware";
        on_device(profile, name, |ports| {
            let mut world = world(ports);
            between_hosts(&mut world);
            let [there, back] = directions(UDP);
            left_to_software(&world, 1, &around(&there));
            left_to_software(&world, 2, &back.frame());
            left_to_software(&world, 1, &around(&there));
            assert_eq!(world.connections().len(), 2);
            // Of the second zone nothing is known in the device.
            let all = world.connections();
            let is = |connection| ConnectionChange::Is(Box::new(connection));
            let first = all.iter().filter(|connection| connection.zone == 12).cloned().map(is).collect();
            world.rig.switch.change_connections(first).unwrap();
            left_to_software(&world, 1, &around(&there));
            world.tell();
            same_as_software(&world, 1, &around(&there), 2);
            same_as_software(&world, 2, &back.frame(), 1);
            let others = [
                Packet { ports: [1112, 2222], ..there.clone() },
                Packet { from: 7, ..there.clone() },
                Packet { fragment: 0x2000, ..there.clone() },
                Packet::v4(TCP),
            ];
            for other in others {
                let frame = around(&other);
                assert_eq!(world.rig.inject(1, &frame), [(0, frame.clone())], "{other:?}");
            }
            // Outer headers with the addresses and ports of the connection are not those of the connection.
            let outside = Outer { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), ..Outer::geneve(5) };
            let frame = outside.around(&Packet { from: 7, ..there }.frame());
            assert_eq!(world.rig.inject(1, &frame), [(0, frame.clone())]);
            let gone =
                all.into_iter().map(|one| ConnectionChange::Gone { zone: one.zone, original: one.original, id: None });
            world.rig.switch.change_connections(gone.collect()).unwrap();
            left_to_software(&world, 2, &back.frame());
        });
    }
}

#[test]
fn packets_in_a_tunnel_that_would_be_translated_are_left_to_software_as_they_came_in() {
    let name = "tracked_in_tunnels::packets_in_a_tunnel_that_would_be_translated_are_left_to_software_as_they_came_in";
    on_device("bluefield-3", name, |ports| {
        let mut world = world(ports);
        between_hosts(&mut world);
        let there = Packet { to: 8, ..Packet::v4(UDP) };
        let sent = left_to_software(&world, 1, &around(&there));
        assert_eq!((sent[0].0, there.read_back(&sent[0].1).to), (2, 2));
        let back = answer(&there.read_back(&sent[0].1));
        left_to_software(&world, 2, &back.frame());
        world.tell();
        // The answers come from a function, and are translated in hardware.
        same_as_software(&world, 2, &back.frame(), 1);
        left_to_software(&world, 1, &around(&there));
        // A connection that is there before its table is left out of that, too.
        let flows = format!("recirc_id(0),{},{IP}", INSIDE.replace("0x5", "0x6"));
        add(&mut world, &flows, "ct(zone=13,nat),2");
        assert!(!world.rig.switch.fill_connections(10).unwrap().is_unfinished);
        let frame = Outer::geneve(6).around(&there.frame());
        assert_eq!(world.rig.inject(1, &frame), [(0, frame.clone())]);
    });
}

#[test]
fn a_flow_that_is_refused_brings_no_connections_to_where_it_would_have_looked_them_up() {
    let name = "tracked_in_tunnels::a_flow_that_is_refused_brings_no_connections_to_where_it_would_have_looked_them_up";
    on_device("bluefield-3", name, |ports| {
        let mut world = world(ports);
        let with_option = |kind: u8| {
            let option = format!("geneve({{class=0x102,type={kind},len=4,0x10002}})");
            format!("tunnel(tun_id=0x5,{option},flags(+key)),in_port(11),{IP}")
        };
        world.try_add(&flow(&with_option(0x80), "2")).unwrap();
        world.rig.switch.change_connections(vec![ConnectionChange::Is(Box::new(connection(5)))]).unwrap();
        let mut control = ports.control();
        // Memory for tables stays for the next ones.
        let mut tables = || control.left()["flow-tables"];
        let before = tables();
        let refusal = world.try_add(&flow(&with_option(0x81), "ct(zone=5),2")).unwrap_err().to_string();
        assert!(refusal.contains("one option of Geneve at a time"), "{refusal}");
        world.rig.switch.fill_connections(10).unwrap();
        assert_eq!(tables(), before);
    });
}
