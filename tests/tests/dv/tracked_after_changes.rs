//! Connections of packets that flows changed before `ct()`: the change waits until the connection is found.

use sluice_tests::mlx5::on_device;

use crate::connections::{ACK, IP, PROFILES, SYN, World, answer, directions, flagged};
use crate::frames::{Packet, TCP, UDP};
use crate::rig::flow;

/// What is known of every packet here, so that the time to live can be counted down.
const ROUTED: &str = "eth(),eth_type(0x0800),ipv4(ttl=64,frag=no)";
const ROUTE: &str = "set(eth(src=02:00:00:00:00:07,dst=02:00:00:00:00:08)),dec_ttl(le_1())";

#[test]
fn a_packet_that_was_routed_before_ct_leaves_changed_or_reaches_its_representor_unchanged() {
    for profile in PROFILES {
        let name = "tracked_after_changes::a_packet_that_was_routed_before_ct_leaves_changed_or_reaches_its_representor_unchanged";
        on_device(profile, name, |ports| {
            let mut world = World::open(ports);
            // One flow sends the packet on at once, one to a chain that matches what the packet is by then.
            world.add(&format!("recirc_id(0),in_port(2),{ROUTED}"), &format!("{ROUTE},ct(zone=5),1"));
            let later = "recirc_id(0x1),in_port(3),ct_state(+trk+est),ct_zone(0x5),eth(dst=02:00:00:00:00:08),\
                         eth_type(0x0800),ipv4(ttl=63,frag=no)";
            world.add(later, "set(ipv4(tos=0x20)),4");
            world.add(&format!("recirc_id(0),in_port(3),{ROUTED}"), &format!("{ROUTE},ct(zone=5),recirc(1)"));
            world.add(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=5),2");
            world.soft.add(&flow(&format!("recirc_id(0),in_port(4),{IP}"), "ct(commit,zone=5)"));
            for protocol in [TCP, UDP] {
                let [there, back] = directions(protocol);
                let opening = if protocol == TCP { flagged(&there, SYN) } else { there.clone() };
                world.in_software(4, &opening.frame());
                world.in_software(1, &flagged(&back, SYN | ACK).frame());
                world.in_software(4, &there.frame());
                world.tell();
                let routed = world.same_as_software(2, &there, 1);
                assert_eq!(routed[..6], [2, 0, 0, 0, 0, 8]);
                world.same_as_software(3, &there, 4);
                world.same_as_software(1, &back, 2);
                let other = Packet { ports: [1112, 2222], ..there };
                for port in [2, 3] {
                    assert_eq!(world.rig.inject(port, &other.frame()), [(0, other.frame())]);
                }
            }
        });
    }
}

#[test]
fn tags_that_were_taken_off_and_put_on_before_ct_are_so_once_the_connection_is_found() {
    let name =
        "tracked_after_changes::tags_that_were_taken_off_and_put_on_before_ct_are_so_once_the_connection_is_found";
    on_device("bluefield-3", name, |ports| {
        let mut world = World::open(ports);
        let tagged = "eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(frag=no))";
        world.add(&format!("recirc_id(0),in_port(2),{tagged}"), "pop_vlan,ct(zone=5),1");
        world.add(&format!("recirc_id(0),in_port(1),{IP}"), "push_vlan(vid=100,pcp=0),ct(zone=5),2");
        world.soft.add(&flow(&format!("recirc_id(0),in_port(4),{IP}"), "ct(commit,zone=5)"));
        let [there, back] = directions(UDP);
        world.in_software(4, &there.frame());
        world.in_software(1, &back.frame());
        world.tell();
        let there = Packet { tags: vec![(0x8100, 100)], ..there };
        world.same_as_software(2, &there, 1);
        world.same_as_software(1, &back, 2);
        let other = Packet { from: 9, ..there };
        assert_eq!(world.rig.inject(2, &other.frame()), [(0, other.frame())]);
    });
}

#[test]
fn a_third_tag_that_was_put_on_before_ct_is_there_once_the_connection_is_found() {
    let name = "tracked_after_changes::a_third_tag_that_was_put_on_before_ct_is_there_once_the_connection_is_found";
    on_device("bluefield-3", name, |ports| {
        let mut world = World::open(ports);
        let tagged = "eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x8100),vlan(vid=200,pcp=0),\
                      encap(eth_type(0x0800),ipv4(frag=no)))";
        world.add(&format!("recirc_id(0),in_port(2),{tagged}"), "push_vlan(vid=300,pcp=0),ct(zone=5),1");
        world.soft.add(&flow(&format!("recirc_id(0),in_port(4),{IP}"), "ct(commit,zone=5)"));
        world.soft.add(&flow(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=5),2"));
        let [there, back] = directions(UDP);
        world.in_software(4, &there.frame());
        world.in_software(1, &back.frame());
        world.tell();
        let there = Packet { tags: vec![(0x8100, 100), (0x8100, 200)], ..there };
        world.same_as_software(2, &there, 1);
        let other = Packet { from: 9, ..there };
        assert_eq!(world.rig.inject(2, &other.frame()), [(0, other.frame())]);
    });
}

#[test]
fn a_packet_is_tracked_and_translated_in_a_chain_that_it_came_to_with_changes() {
    for profile in PROFILES {
        let name = "tracked_after_changes::a_packet_is_tracked_and_translated_in_a_chain_that_it_came_to_with_changes";
        on_device(profile, name, |ports| {
            let mut world = World::open(ports);
            let later = |chain: u32, matched: &str| {
                format!(
                    "recirc_id({chain:#x}),in_port(2),{matched}eth(dst=02:00:00:00:00:08),eth_type(0x0800),ipv4(frag=no)"
                )
            };
            world.add(&later(3, "ct_state(+trk+est),ct_zone(0xd),"), "1");
            world.add(&later(2, "ct_state(+trk+est),ct_zone(0xc),"), "ct(zone=13),recirc(3)");
            world.add(&later(1, ""), "ct(zone=12,nat),recirc(2)");
            world.add(&format!("recirc_id(0),in_port(2),{ROUTED}"), &format!("{ROUTE},recirc(1)"));
            let new = later(2, "ct_state(+trk+new),");
            world.add_to_software(&new, "ct(commit,zone=12,nat(dst=10.0.0.8:80)),recirc(4)");
            world.soft.add(&flow(&format!("recirc_id(0x4),in_port(2),{IP}"), "ct(commit,zone=13),1"));
            world.soft.add(&flow(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=13),ct(zone=12,nat),2"));

            let [there, _] = directions(UDP);
            let [(_, sent)] = world.left_to_software(2, &there).try_into().unwrap();
            let back = answer(&there.read_back(&sent));
            world.in_software(1, &back.frame());
            let all = world.connections();
            assert_eq!(all.len(), 2);
            world.tell();
            let sent = world.same_as_software(2, &there, 1);
            assert_eq!(there.read_back(&sent).to, 8);
            assert_eq!(sent[..6], [2, 0, 0, 0, 0, 8]);
            // What was changed, and translated, and is of no connection of the second zone, is as it came in.
            let second = all.into_iter().find(|connection| connection.zone == 13).unwrap();
            let gone =
                sluice_offload_dv::switch::ConnectionChange::Gone { zone: 13, original: second.original, id: None };
            world.rig.switch.change_connections(vec![gone]).unwrap();
            world.left_to_software(2, &there);
        });
    }
}
