//! Connections that are told again: others of the same addresses and ports, and those that a stage had no room for.

use sluice_offload_dv::switch::ConnectionChange;
use sluice_tests::mlx5::{on_device, with_options};

use crate::connections::{IP, World, answer, directions};
use crate::frames::{Packet, UDP};
use crate::rig::{Rig, connection, flow};

#[test]
fn a_connection_stays_that_began_after_the_one_that_was_flushed() {
    let name = "connections_again::a_connection_stays_that_began_after_the_one_that_was_flushed";
    on_device("bluefield-3", name, |ports| {
        let mut world = World::open(ports);
        for (port, to) in [(2, 1), (1, 2)] {
            world.add(&format!("recirc_id(0),in_port({port}),{IP}"), &format!("ct(commit,zone=4),{to}"));
        }
        let [there, back] = directions(UDP);
        world.left_to_software(2, &there);
        world.left_to_software(1, &back);
        let [first] = world.connections().try_into().unwrap();
        let mut later = first.clone();
        later.id += 1;
        let gone = |id| ConnectionChange::Gone { zone: 4, original: first.original, id: Some(id) };
        for connection in [&first, &later] {
            let changes = vec![ConnectionChange::Is(Box::new(connection.clone()))];
            world.rig.switch.change_connections(changes).unwrap();
        }
        // Told late.
        world.rig.switch.change_connections(vec![gone(first.id)]).unwrap();
        world.same_as_software(2, &there, 1);
        world.rig.switch.change_connections(vec![gone(later.id)]).unwrap();
        world.left_to_software(2, &there);
        assert_eq!(world.rig.switch.connections(), 0);
    });
}

#[test]
fn a_connection_that_a_new_stage_did_not_take_comes_there_when_all_are_listed_again() {
    /// What makes room for the values of rewrites (CREATE_GENERAL_OBJECT).
    const ROOM: &str = "0xa00";
    /// Each has two rewrites in the stage. libmlx5 has room made for the values of 4,096 at a time (`dr_arg_pool_alloc_objs`).
    const CONNECTIONS: u16 = 2_100;
    let name = "connections_again::a_connection_that_a_new_stage_did_not_take_comes_there_when_all_are_listed_again";
    with_options("bluefield-3", &[], &["had status 0x8", "refused with"], name, |ports| {
        let mut world = World::open(ports);
        // Zone 3 translates, and is looked up without translating, too.
        world.add(&format!("recirc_id(0x1),in_port(2),ct_state(+trk+est+snat),{IP}"), "1");
        world.add(&format!("recirc_id(0),in_port(1),{IP}"), "ct(zone=3),2");
        let commit = "ct(commit,zone=3,nat(src=10.0.0.9)),1";
        world.add_to_software(&format!("recirc_id(0x1),in_port(2),ct_state(+trk+new),{IP}"), commit);
        let translating = format!("recirc_id(0),in_port(2),{IP}");
        world.soft.add(&flow(&translating, "ct(zone=3,nat),recirc(1)"));
        let packets: Vec<_> = (1..=CONNECTIONS).map(|port| Packet { ports: [port, 2222], ..Packet::v4(UDP) }).collect();
        for there in &packets {
            let sent = world.in_software(2, &there.frame());
            world.in_software(1, &answer(&there.read_back(&sent[0].1)).frame());
        }
        world.tell();
        world.try_add(&flow(&translating, "ct(zone=3,nat),recirc(1)")).unwrap();
        ports.control().ask(&format!("refuse {ROOM} 0 1 0x8 0x1234"));
        let filled = world.rig.switch.fill_connections(usize::from(CONNECTIONS)).unwrap();
        assert!(filled.refused > 0 && !filled.is_unfinished, "{filled:?}");
        // Those that were refused are in the stage that had room before.
        assert_eq!(world.rig.switch.connections(), usize::from(CONNECTIONS));

        world.rig.switch.begin_listing().unwrap();
        world.tell();
        world.rig.switch.end_listing().unwrap();
        assert!(!world.rig.switch.forget_unlisted(64).unwrap());
        let filled = world.rig.switch.fill_connections(10 * usize::from(CONNECTIONS)).unwrap();
        assert!(filled.refused == 0 && !filled.is_unfinished, "{filled:?}");
        for there in &packets {
            world.same_as_software(2, there, 1);
        }
    });
}

#[test]
fn however_many_connections_are_left_out_some_are_forgotten_at_a_time_and_none_that_is_told_meanwhile() {
    let name = "connections_again::however_many_connections_are_left_out_some_are_forgotten_at_a_time_and_none_that_is_told_meanwhile";
    on_device("bluefield-3", name, |ports| {
        let mut switch = Rig::open(ports).switch;
        switch.accept_connections().unwrap();
        let zones = |zones: std::ops::Range<u16>| zones.map(|zone| ConnectionChange::Is(Box::new(connection(zone))));
        switch.change_connections(zones(0..10).collect()).unwrap();
        switch.begin_listing().unwrap();
        switch.change_connections(zones(0..1).collect()).unwrap();
        switch.end_listing().unwrap();
        assert_eq!(switch.connections(), 10);
        assert!(switch.forget_unlisted(4).unwrap());
        assert_eq!(switch.connections(), 6);
        // All are there again, and none of them is to be forgotten.
        switch.change_connections(zones(0..10).collect()).unwrap();
        assert!(switch.forget_unlisted(4).unwrap());
        assert!(!switch.forget_unlisted(4).unwrap());
        assert_eq!(switch.connections(), 10);
        switch.begin_listing().unwrap();
        switch.end_listing().unwrap();
        assert!(!switch.forget_unlisted(10).unwrap());
        assert_eq!(switch.connections(), 0);
    });
}
