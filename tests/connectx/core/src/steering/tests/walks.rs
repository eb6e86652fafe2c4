use super::device::*;
use crate::packet::sample::{ethernet, ipv4, tcp_frame, udp};
use crate::steering::layout::{self, bytes};
use crate::steering::{Origin, Port, Step, fields as f};

/// An IPv4 address as a match has it: the low 32 bits of 128.
const DST_IPV4: crate::steering::bits::Bits = crate::steering::bits::Bits::new(0x1e0, 32);

#[test]
fn an_entry_sends_what_it_matches_to_its_port_and_counts_it() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let counter = device.counters(0).unwrap();
    let matches = &[(f::IP_VERSION, 4), (f::IP_PROTOCOL, 6), (f::TCP_DPORT, 80), (DST_IPV4, 0x0a00_0002)];
    let wanted = Wanted {
        matches,
        actions: FORWARD | COUNT,
        to: vec![To::Vport(2)],
        counters: vec![counter],
        ..Wanted::default()
    };
    device.rule(table, 0, wanted);
    let frame = tcp_frame();
    assert_eq!(device.receive(Port::Wire, &frame).sent, [(Port::Vport(2), frame.clone())]);
    let other = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &udp(1000, 80, b"")));
    assert_eq!(device.receive(Port::Wire, &other).sent, []);
    let count = device.query_counters(counter, 0, false).unwrap()[0];
    assert_eq!((count.packets, count.bytes), (1, frame.len() as u64));
}

#[test]
fn no_customers_tag_means_no_tag_at_all() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, Wanted { matches: &[(f::CVLAN_TAG, 0)], ..forward(To::Vport(1)) });
    device.rule(table, 1, Wanted { matches: &[(f::CVLAN_TAG, 1)], ..forward(To::Vport(2)) });
    let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &udp(1000, 80, b""));
    let tagged = |outer| ethernet(outer, &[&[0, 100, 0x08, 0], &packet[..]].concat());
    let mut ports =
        |frame: &[u8]| device.receive(Port::Wire, frame).sent.into_iter().map(|(port, _)| port).collect::<Vec<_>>();
    assert_eq!(ports(&ethernet(0x0800, &packet)), [Port::Vport(1)]);
    assert_eq!(ports(&tagged(0x8100)), [Port::Vport(2)]);
    assert_eq!(ports(&tagged(0x88a8)), []);
}

#[test]
fn every_step_of_a_walk_is_one_line() {
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
    let counter = device.counters(0).unwrap();
    let wanted = Wanted {
        matches: IS_TCP,
        actions: FORWARD | COUNT,
        to: vec![To::Table(second)],
        counters: vec![counter],
        ..Wanted::default()
    };
    device.rule(first, 3, wanted);
    let walk = device.receive(Port::Vport(1), &tcp_frame());
    let lines: Vec<String> = walk.steps.iter().map(Step::to_string).collect();
    assert_eq!(
        lines,
        [
            "54 bytes from vport 1",
            "ingress ACL of vport 1: no table",
            "FDB table 0x1 level 0: group 0x1 entry 3 (outer.ip_protocol=0x6 outer.ip_version=0x4): \
             counter 0x4 +54 bytes, to table 0x2",
            "FDB table 0x2 level 1: miss, default",
            "dropped: that is what such tables do by default",
        ]
    );
}

#[test]
fn of_several_matches_the_lowest_index_wins() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 9, forward(To::Vport(1)));
    device.rule(table, 4, Wanted { matches: IS_TCP, ..forward(To::Vport(2)) });
    assert_eq!(device.ports(Port::Wire), [Port::Vport(2)]);
    device.delete_entry(table, 4).unwrap();
    assert_eq!(device.ports(Port::Wire), [Port::Vport(1)]);
}

#[test]
fn a_miss_goes_on_where_the_table_says() {
    let mut device = Device::new();
    let last = device.table(FDB, 2);
    device.rule(last, 0, forward(To::Uplink));
    let miss = [(layout::MISS_ACTION, 1), (layout::MISS_TABLE, last.id)];
    let first = device.try_table(FDB, None, 0, &miss).unwrap();
    device.set_root(first);
    assert_eq!(device.ports(Port::Vport(1)), [Port::Wire]);
    assert_eq!(device.destroy_table(last).unwrap_err().status, crate::steering::status::BAD_RESOURCE_STATE);
}

#[test]
fn a_root_that_is_set_replaces_the_first_table() {
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
    device.rule(first, 0, forward(To::Vport(1)));
    let group = device.rule(second, 0, forward(To::Vport(2)));
    assert_eq!(device.ports(Port::Wire), [Port::Vport(1)]);
    device.set_root(second);
    assert_eq!(device.ports(Port::Wire), [Port::Vport(2)]);
    let mut disconnect = named(second, bytes::TABLE_COMMAND);
    layout::OP_MOD.put(&mut disconnect, 1);
    device.command(layout::opcode::SET_FLOW_TABLE_ROOT, &mut disconnect).unwrap();
    assert_eq!(device.ports(Port::Wire), []);
    device.set_root(second);
    device.delete_entry(second, 0).unwrap();
    device.destroy_group(second, group).unwrap();
    device.destroy_table(second).unwrap();
    assert_eq!(device.ports(Port::Wire), [Port::Vport(1)], "the first of level 0 again");
}

#[test]
fn several_destinations_get_a_copy_each_in_order() {
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
    device.rule(second, 0, forward(To::Vport(0)));
    let to = vec![To::Vport(2), To::Table(second), To::Uplink];
    device.rule(first, 0, Wanted { actions: FORWARD, to, ..Wanted::default() });
    assert_eq!(device.ports(Port::Vport(1)), [Port::Vport(2), Port::Vport(0), Port::Wire]);
}

#[test]
fn an_ingress_acl_writes_the_source_port_that_the_switch_matches() {
    let mut device = Device::new();
    for (vport, metadata) in [(1, 3), (0xffff, 1)] {
        let acl = device.acl(INGRESS_ACL, vport);
        let context = device.modify_header(INGRESS_ACL, &[set(0x51, 16, 16, metadata)]).unwrap();
        let wanted = Wanted { actions: ALLOW | MODIFY_HEADER, modify_header: context, ..Wanted::default() };
        device.rule(acl, 0, wanted);
    }
    let table = device.table(FDB, 0);
    let group = device.group(table, 0..=9, &[(f::METADATA_REG_C_0, 0)]);
    let from_vport = Wanted { matches: &[(f::METADATA_REG_C_0, 3 << 16)], ..forward(To::Uplink) };
    device.set(table, group, &from_vport);
    let from_wire = Wanted { index: 1, matches: &[(f::METADATA_REG_C_0, 1 << 16)], ..forward(To::Vport(1)) };
    device.set(table, group, &from_wire);
    assert_eq!(device.ports(Port::Vport(1)), [Port::Wire]);
    assert_eq!(device.ports(Port::Wire), [Port::Vport(1)]);
    assert_eq!(device.ports(Port::Vport(2)), []);
}

#[test]
fn an_acl_can_end_a_packet_on_either_side_of_the_switch() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, forward(To::Vport(2)));
    assert_eq!(device.ports(Port::Vport(1)), [Port::Vport(2)]);
    let egress = device.acl(EGRESS_ACL, 2);
    assert_eq!(device.ports(Port::Vport(1)), [Port::Vport(2)], "an empty ACL lets all pass");
    device.rule(egress, 0, Wanted { actions: DROP, ..Wanted::default() });
    assert_eq!(device.ports(Port::Vport(1)), []);
    device.delete_entry(egress, 0).unwrap();
    let ingress = device.acl(INGRESS_ACL, 1);
    device.rule(ingress, 0, Wanted { matches: IS_TCP, actions: DROP, ..Wanted::default() });
    assert_eq!(device.ports(Port::Vport(1)), []);
    assert_eq!(device.ports(Port::Wire), [Port::Vport(2)]);
}

#[test]
fn source_port_and_flow_source_tell_wire_and_vports_apart() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, Wanted { flow_source: 1, ..forward(To::Vport(0)) });
    device.rule(table, 1, Wanted { matches: &[(f::SOURCE_PORT, 2)], flow_source: 2, ..forward(To::Uplink) });
    device.rule(table, 2, Wanted { matches: &[(f::SOURCE_PORT, 0xffff)], ..forward(To::Vport(1)) });
    assert_eq!(device.ports(Port::Wire), [Port::Vport(0)]);
    assert_eq!(device.ports(Port::Vport(2)), [Port::Wire]);
    assert_eq!(device.ports(Port::Vport(1)), []);
}

#[test]
fn the_manager_sends_to_a_vport_by_its_send_queue() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let matches = &[(f::SOURCE_SQN, 0x77), (f::SOURCE_PORT, MANAGER as u32)];
    device.rule(table, 0, Wanted { matches, ..forward(To::Vport(2)) });
    let origin = Origin { port: Port::Vport(MANAGER), sqn: 0x77, metadata: 0 };
    assert_eq!(device.0.transmit(origin, &tcp_frame()).sent.len(), 1);
    assert_eq!(device.0.transmit(Origin { sqn: 0x78, ..origin }, &tcp_frame()).sent.len(), 0);
}

#[test]
fn a_table_of_the_sender_comes_before_the_switch() {
    let mut device = Device::new();
    let fdb = device.table(FDB, 0);
    device.rule(fdb, 0, forward(To::Uplink));
    let transmit = device.table(NIC_TX, 0);
    device.rule(transmit, 0, Wanted { matches: &[(f::METADATA_REG_A, 5)], actions: DROP, ..Wanted::default() });
    let origin = Origin { port: Port::Vport(MANAGER), sqn: 0, metadata: 5 };
    assert_eq!(device.0.transmit(origin, &tcp_frame()).sent, []);
    assert_eq!(device.ports(Port::Vport(MANAGER)), [Port::Wire]);
    assert_eq!(device.ports(Port::Vport(1)), [Port::Wire], "other functions' tables are not the manager's");
}

#[test]
fn the_manager_receives_with_tag_and_the_registers_that_the_switch_hands_over() {
    let mut device = Device::new();
    device.0.add_tir(0x10);
    let fdb = device.table(FDB, 0);
    let context = device.modify_header(FDB, &[set(0x51, 0, 0, 0xaa), set(0x52, 0, 0, 0xbb)]).unwrap();
    let wanted = Wanted { actions: FORWARD | MODIFY_HEADER, modify_header: context, ..forward(To::Vport(MANAGER)) };
    device.rule(fdb, 0, wanted);
    let receive = device.table(NIC_RX, 0);
    let restored = device.modify_header(NIC_RX, &[copy((0x51, 0), (0x50, 8), 8)]).unwrap();
    let matches = &[(f::METADATA_REG_C_0, 0xaa), (f::METADATA_REG_C_1, 0)];
    let wanted =
        Wanted { matches, actions: FORWARD | MODIFY_HEADER, tag: 9, modify_header: restored, ..forward(To::Tir(0x10)) };
    device.rule(receive, 0, wanted);
    assert_eq!(device.receive(Port::Wire, &tcp_frame()).received, [], "register C0 is not handed over yet");
    device.0.set_fdb_to_vport_registers(1);
    let received = device.receive(Port::Wire, &tcp_frame()).received;
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].tir, received[0].tag, received[0].metadata), (0x10, Some(9), 0xaa00));
    assert_eq!(device.0.remove_tir(0x10).unwrap_err().status, crate::steering::status::BAD_RESOURCE_STATE);
}

#[test]
fn a_loop_ends_after_so_many_tables() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, Wanted { ignore_level: true, ..forward(To::Table(table)) });
    let walk = device.receive(Port::Wire, &tcp_frame());
    assert_eq!(walk.sent, []);
    assert_eq!(walk.steps.last(), Some(&Step::Dropped { why: "it went through too many tables" }));
}

#[test]
fn copies_that_grow_at_every_table_end_too() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let to = vec![To::Table(table); 8];
    device.rule(table, 0, Wanted { actions: FORWARD, to, ignore_level: true, ..Wanted::default() });
    let walk = device.receive(Port::Wire, &tcp_frame());
    assert!(walk.steps.contains(&Step::Dropped { why: "it became too many copies" }));
    assert!(walk.steps.len() < 10_000, "{}", walk.steps.len());
}

#[test]
fn a_switch_without_tables_says_so() {
    let walk = Device::new().receive(Port::Wire, &tcp_frame());
    assert_eq!(walk.steps.last(), Some(&Step::Dropped { why: "a switch without tables is not modelled" }));
}

#[test]
fn a_packet_for_a_vport_that_went_away_is_dropped() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, forward(To::Vport(2)));
    device.0.remove_vport(2);
    assert_eq!(device.ports(Port::Wire), []);
}

#[test]
fn ten_thousand_entries_of_one_group_are_found_by_value() {
    let mut device = Device::new();
    let table = device.try_table(FDB, None, 0, &[(layout::LOG_SIZE, 14)]).unwrap();
    let group = device.group(table, 0..=9_999, &[(DST_IPV4, 0)]);
    for index in 0..10_000_u16 {
        let matches = &[(DST_IPV4, 0x0a01_0000 + u32::from(index))];
        device.set(table, group, &Wanted { index: index.into(), matches, ..forward(To::Vport(index % 3)) });
    }
    for index in [0_u16, 1, 4_999, 9_998, 9_999] {
        let [high, low] = index.to_be_bytes();
        let frame = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 1, high, low], 17, &udp(1, 2, b"")));
        assert_eq!(device.receive(Port::Wire, &frame).sent[0].0, Port::Vport(index % 3));
    }
    let past = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 1, 0x27, 0x10], 17, &udp(1, 2, b"")));
    assert_eq!(device.receive(Port::Wire, &past).sent, []);
}
