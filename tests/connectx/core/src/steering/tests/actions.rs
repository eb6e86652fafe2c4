use super::device::*;
use crate::packet::edit::checksum;
use crate::packet::sample::{ethernet, ipv4, ipv6, tagged, tcp_frame, transport_checksum, udp, vxlan, vxlan_frame};
use crate::packet::{Headers, TunnelPorts};
use crate::steering::{Port, fields as f};

/// What comes out at the wire of a frame that one entry works on.
fn through(device: &mut Device, wanted: Wanted<'_>, frame: &[u8]) -> Vec<u8> {
    let table = device.table(FDB, 0);
    device.set_root(table);
    device.rule(table, 0, Wanted { actions: wanted.actions | FORWARD, to: vec![To::Uplink], ..wanted });
    let mut sent = device.receive(Port::Vport(1), frame).sent;
    assert_eq!(sent.len(), 1);
    sent.remove(0).1
}

fn rewritten(actions: &[[u32; 2]], frame: &[u8]) -> Vec<u8> {
    let mut device = Device::new();
    let modify_header = device.modify_header(FDB, actions).unwrap();
    through(&mut device, Wanted { actions: MODIFY_HEADER, modify_header, ..Wanted::default() }, frame)
}

fn headers(frame: &[u8]) -> Headers {
    Headers::parse(frame, &TunnelPorts::default())
}

#[test]
fn a_tag_is_pushed_behind_the_addresses_and_popped_again() {
    let push = Wanted { actions: PUSH_VLAN, vlans: [0x8100_6005, 0], ..Wanted::default() };
    let pushed = through(&mut Device::new(), push, &tcp_frame());
    assert_eq!(pushed, ethernet(0x8100, &tagged(0x6005, 0x0800, &tcp_frame()[14..])));
    let pop = Wanted { actions: POP_VLAN, ..Wanted::default() };
    assert_eq!(through(&mut Device::new(), pop, &pushed), tcp_frame());
}

#[test]
fn of_two_tags_the_second_becomes_the_outer_one() {
    let vlans = [0x8100_0001, 0x88a8_0002];
    let push = Wanted { actions: PUSH_VLAN | PUSH_VLAN_2, vlans, ..Wanted::default() };
    let pushed = through(&mut Device::new(), push, &tcp_frame());
    let inside = tagged(1, 0x0800, &tcp_frame()[14..]);
    assert_eq!(pushed, ethernet(0x88a8, &tagged(2, 0x8100, &inside)));
    let pop = Wanted { actions: POP_VLAN | POP_VLAN_2, ..Wanted::default() };
    assert_eq!(through(&mut Device::new(), pop, &pushed), tcp_frame());
}

#[test]
fn a_pop_without_a_tag_ends_the_packet_with_a_reason() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, Wanted { actions: POP_VLAN | FORWARD, to: vec![To::Uplink], ..Wanted::default() });
    let walk = device.receive(Port::Vport(1), &tcp_frame());
    assert_eq!(walk.sent, []);
    assert!(walk.to_string().contains("cannot: there is no VLAN tag to pop"));
}

#[test]
fn set_and_add_rewrite_headers_and_keep_checksums_right() {
    let frame = rewritten(
        &[
            set(0x04, 0, 0, 0x0a0b_0c0d),
            set(0x05, 0, 16, 0x0e0f),
            set(0x15, 0, 0, 0xac10_0001),
            set(0x09, 0, 16, 8080),
            add(0x0a, 0xff),
            set(0x06, 0, 6, 46),
        ],
        &tcp_frame(),
    );
    assert_eq!(frame[..6], [0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f]);
    let ip = headers(&frame).outer.ip.unwrap();
    assert_eq!((ip.source, ip.ttl, ip.dscp, ip.ecn), (0xac10_0001, 63, 46, 0));
    assert_eq!(frame[36..38], 8080_u16.to_be_bytes());
    assert_eq!(checksum(&frame[14..34]), 0);
    assert_eq!(transport_checksum(&frame[34..], [172, 16, 0, 1], [10, 0, 0, 2], 6), 0);
}

#[test]
fn every_packet_field_can_be_set_and_read_back() {
    let tcp4 = tcp_frame();
    let udp4 = ethernet(0x8100, &tagged(5, 0x0800, &ipv4([1; 4], [2; 4], 17, &udp(3, 4, b"data"))));
    let tcp6 = ethernet(0x86dd, &ipv6(1, 2, 6, &tcp_frame()[34..]));
    let (tcp, udp, six): (&[u8], &[u8], &[u8]) = (&tcp4, &udp4, &tcp6);
    // Field, width, a frame that has it, and what to set. The inner fields have ids 0x30 above the outer ones.
    let fields: [(u32, u32, &[u8]); 26] = [
        (0x01, 32, tcp),
        (0x02, 16, tcp),
        (0x04, 32, tcp),
        (0x05, 16, tcp),
        (0x06, 6, tcp),
        (0x06, 6, six),
        (0x07, 9, tcp),
        (0x08, 16, tcp),
        (0x09, 16, tcp),
        (0x0a, 8, tcp),
        (0x0b, 16, udp),
        (0x0c, 16, udp),
        (0x0d, 32, six),
        (0x0e, 32, six),
        (0x0f, 32, six),
        (0x10, 32, six),
        (0x11, 32, six),
        (0x12, 32, six),
        (0x13, 32, six),
        (0x14, 32, six),
        (0x15, 32, tcp),
        (0x16, 32, tcp),
        (0x17, 16, udp),
        (0x47, 8, six),
        (0x59, 32, tcp),
        (0x5b, 32, tcp),
    ];
    for (field, width, frame) in fields {
        let value = 0x5a5a_5a5a & (u32::MAX >> (32 - width));
        // Into the packet, then from there to a register that the next table matches.
        let mut device = Device::new();
        let actions = [set(field, 0, width % 32, value), copy((field, 0), (0x51, 0), width % 32)];
        let modify_header = device.modify_header(FDB, &actions).unwrap();
        let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
        let wanted = Wanted { actions: MODIFY_HEADER | FORWARD, modify_header, ..forward(To::Table(second)) };
        device.rule(first, 0, wanted);
        device.rule(second, 0, Wanted { matches: &[(f::METADATA_REG_C_0, value)], ..forward(To::Uplink) });
        let walk = device.receive(Port::Vport(1), frame);
        assert_eq!(walk.sent.len(), 1, "field {field:#x}");
        assert_ne!(walk.sent[0].1, frame, "field {field:#x}");
        assert_eq!(walk.sent[0].1.len(), frame.len());
    }
}

#[test]
fn a_field_that_the_packet_has_not_stays_away() {
    let udp_only = ethernet(0x0800, &ipv4([1; 4], [2; 4], 17, &udp(3, 4, b"")));
    let actions = [set(0x08, 0, 16, 1), set(0x47, 0, 8, 1), set(0x17, 0, 12, 1), set(0x38, 0, 16, 1)];
    assert_eq!(rewritten(&actions, &udp_only), udp_only);
}

#[test]
fn part_of_a_field_is_set_at_its_offset() {
    let frame = ethernet(0x8100, &tagged(0xefff, 0x0800, &tcp_frame()[14..]));
    let frame = rewritten(&[set(0x17, 4, 8, 0x12)], &frame);
    assert_eq!(frame[14..16], [0xe1, 0x2f]);
}

#[test]
fn inner_headers_are_rewritten_where_they_are() {
    let frame = rewritten(&[set(0x46, 0, 0, 0x0a00_0063), set(0x16, 0, 0, 0xc000_0263)], &vxlan_frame());
    let headers = headers(&frame);
    assert_eq!(headers.outer.ip.unwrap().destination, 0xc000_0263);
    assert_eq!(headers.inner.unwrap().ip.unwrap().destination, 0x0a00_0063);
}

#[test]
fn a_tunnel_is_put_on_and_taken_off() {
    let mut device = Device::new();
    let template = ethernet(0x0800, &ipv4([192, 0, 2, 1], [192, 0, 2, 2], 17, &udp(0, 4789, &vxlan(42, b""))));
    let reformat = device.reformat(2, 0, 0, Ok(&template)).unwrap();
    let out = through(&mut device, Wanted { actions: REFORMAT, reformat, ..Wanted::default() }, &tcp_frame());
    assert_eq!(out.len(), template.len() + tcp_frame().len());
    assert_eq!(checksum(&out[14..34]), 0);
    let back = through(&mut Device::new(), Wanted { actions: DECAP, ..Wanted::default() }, &out);
    assert_eq!(back, tcp_frame());
}

#[test]
fn after_decap_the_next_table_sees_the_inner_packet() {
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
    let matches = &[(f::VXLAN_VNI, 42), (f::TCP_DPORT.after(f::INNER), 80), (f::UDP_DPORT, 4789)];
    device.rule(first, 0, Wanted { matches, actions: DECAP | FORWARD, ..forward(To::Table(second)) });
    let matches = &[(f::VXLAN_VNI, 0), (f::TCP_DPORT, 80), (f::UDP_DPORT, 0)];
    device.rule(second, 0, Wanted { matches, ..forward(To::Vport(1)) });
    assert_eq!(device.receive(Port::Wire, &vxlan_frame()).sent, [(Port::Vport(1), tcp_frame())]);
}

#[test]
fn ip_tunnels_trade_the_ethernet_header() {
    let mut device = Device::new();
    let template = ethernet(0x0800, &ipv4([1; 4], [2; 4], 47, &[0, 0, 0x08, 0]));
    let on = device.reformat(4, 0, 0, Ok(&template)).unwrap();
    let out = through(&mut device, Wanted { actions: REFORMAT, reformat: on, ..Wanted::default() }, &tcp_frame());
    assert_eq!(out[template.len()..], tcp_frame()[14..]);
    let mut device = Device::new();
    let off = device.reformat(3, 0, 0, Ok(&tcp_frame()[..14])).unwrap();
    assert_eq!(
        through(&mut device, Wanted { actions: REFORMAT, reformat: off, ..Wanted::default() }, &out),
        tcp_frame()
    );
}

#[test]
fn bytes_are_inserted_and_removed_at_an_anchor() {
    let mut device = Device::new();
    let insert = device.reformat(0xf, 1, 12, Ok(&[0x81, 0, 0, 7])).unwrap();
    let out = through(&mut device, Wanted { actions: REFORMAT, reformat: insert, ..Wanted::default() }, &tcp_frame());
    assert_eq!(out, ethernet(0x8100, &tagged(7, 0x0800, &tcp_frame()[14..])));
    let mut device = Device::new();
    let remove = device.reformat(0x10, 1, 12, Err(4)).unwrap();
    assert_eq!(
        through(&mut device, Wanted { actions: REFORMAT, reformat: remove, ..Wanted::default() }, &out),
        tcp_frame()
    );
}

#[test]
fn one_destination_gets_a_tunnel_and_the_other_does_not() {
    let mut device = Device::new();
    let template = ethernet(0x0800, &ipv4([1; 4], [2; 4], 17, &udp(0, 4789, &vxlan(1, b""))));
    let tunnel = device.reformat(2, 0, 0, Ok(&template)).unwrap();
    let table = device.table(FDB, 0);
    let counter = device.counters(0).unwrap();
    let wanted = Wanted {
        actions: FORWARD | REFORMAT | COUNT,
        to: vec![To::Vport(2), To::Uplink],
        reformats_to: vec![None, Some(tunnel)],
        counters: vec![counter],
        ..Wanted::default()
    };
    device.rule(table, 0, wanted);
    let sent = device.receive(Port::Vport(1), &tcp_frame()).sent;
    assert_eq!(sent[0], (Port::Vport(2), tcp_frame()));
    assert_eq!((sent[1].0, sent[1].1.len()), (Port::Wire, template.len() + tcp_frame().len()));
    assert_eq!(device.query_counters(counter, 0, false).unwrap()[0].packets, 1);
}

#[test]
fn an_added_vxlan_port_is_a_tunnel_from_then_on() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 0, Wanted { matches: &[(f::VXLAN_VNI, 5)], ..forward(To::Vport(1)) });
    let frame = ethernet(0x0800, &ipv4([1; 4], [2; 4], 17, &udp(9, 8472, &vxlan(5, &tcp_frame()))));
    assert_eq!(device.receive(Port::Wire, &frame).sent.len(), 0);
    let mut input = vec![0; 16];
    crate::steering::layout::VXLAN_UDP_PORT.put(&mut input, 8472);
    device.command(crate::steering::layout::opcode::ADD_VXLAN_UDP_DPORT, &mut input).unwrap();
    assert_eq!(device.receive(Port::Wire, &frame).sent.len(), 1);
    device.command(crate::steering::layout::opcode::DELETE_VXLAN_UDP_DPORT, &mut input).unwrap();
    assert_eq!(device.receive(Port::Wire, &frame).sent.len(), 0);
}
