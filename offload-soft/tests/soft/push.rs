//! `tnl_push` and `tnl_pop`: whole outer headers as bytes, put on and taken off by actions.

use std::sync::atomic::Ordering;

use sluice_flow::action::{Action, TunnelPush};
use sluice_flow::backend::{Backend, Injector};
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use crate::frames::{DST_V6, Ip4, SRC_V6, fill, tcp, udp, verify};
use crate::harness::{Device, flow, output, set};
use crate::outer::{long, read, sum, word};

const ETHERNET: [u8; 12] = [0xaa, 0, 0, 0, 0, 1, 0xaa, 0, 0, 0, 0, 2];

fn from(port: u32) -> impl FnOnce(&mut Match) {
    move |full| full.set_exact(Field::InPort, port.into())
}

fn inner() -> Vec<u8> {
    Ip4::default().frame(6, &tcp(1, 2, 0x18, b"inner"))
}

fn v4(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let ip = [0x45, 7, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2];
    [&ETHERNET[..], &[8, 0], &ip, rest].concat()
}

fn v6(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let addresses = [SRC_V6.to_be_bytes(), DST_V6.to_be_bytes()].concat();
    [&ETHERNET[..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64], &addresses, rest].concat()
}

/// A UDP header that wants a checksum or none.
fn over_udp(destination: u16, has_checksum: bool, tunnel: &[u8]) -> Vec<u8> {
    let checksum = if has_checksum { 0xffff } else { 0 };
    [&[0, destination, 0, checksum].map(u16::to_be_bytes).concat(), tunnel].concat()
}

fn push(tunnel_port: u32, tunnel_type: u32, header: &[u8]) -> Action {
    let (tunnel_port, out_port) = (PortNumber(tunnel_port), PortNumber(3));
    Action::TunnelPush(Box::new(TunnelPush { tunnel_port, out_port, tunnel_type, header: header.into() }))
}

/// What leaves port 3 for a frame of port 2.
fn pushed(device: &mut Device, push: Action) -> Vec<u8> {
    let handle = device.add(flow(from(2), vec![push])).unwrap();
    let sent = device.inject(2, &inner()).sent;
    device.remove(handle);
    assert_eq!((sent.len(), sent[0].0), (1, PortNumber(3)));
    verify(&sent[0].1);
    sent[0].1.clone()
}

#[test]
fn lengths_checksums_and_the_source_port_are_filled_in() {
    let mut device = Device::with_tunnels();
    let vxlan = over_udp(4789, true, &[8, 0, 0, 0, 0, 0, 7, 0]);
    for header in [v4(17, &vxlan), v6(17, &vxlan)] {
        let frame = pushed(&mut device, push(10, 4, &header));
        let outer = read(&frame);
        assert_eq!((outer.ttl, outer.udp), (64, Some((4789, true))));
        assert_eq!(outer.tunnel, [&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner()].concat());
        let at = frame.len() - outer.tunnel.len() - 8;
        assert!((32768..61000).contains(&word(&frame, at)), "{}", word(&frame, at));
        assert_eq!(frame[..12], ETHERNET);
    }
    let geneve = over_udp(6081, false, &[1, 0, 0x65, 0x58, 0, 0, 5, 0, 0, 1, 2, 0]);
    let outer = read(&pushed(&mut device, push(11, 5, &v4(17, &geneve))));
    assert_eq!((outer.udp, &outer.tunnel[12..]), (Some((6081, false)), &inner()[..]));
}

#[test]
fn headers_in_gre_are_numbered_and_summed() {
    let mut device = Device::with_tunnels();
    let gre = [0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
    for (sequence, (kind, header)) in (0..).zip([(3, v4(47, &gre)), (109, v6(47, &gre))]) {
        let tunnel = read(&pushed(&mut device, push(12, kind, &header))).tunnel;
        assert_eq!((sum(&tunnel), long(&tunnel, 8), long(&tunnel, 12)), (0, 9, sequence));
        assert_ne!(word(&tunnel, 4), 0);
    }
    let erspan = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 0, 0x10, 0, 0, 5, 0, 0, 0, 3];
    for (sequence, (kind, header)) in (0..).zip([(107, v4(47, &erspan)), (108, v6(47, &erspan))]) {
        let tunnel = read(&pushed(&mut device, push(13, kind, &header))).tunnel;
        assert_eq!(long(&tunnel, 4), sequence);
        assert_eq!(tunnel[8..], [&erspan[8..], &inner()].concat());
    }
}

#[test]
fn a_trace_shows_the_number_of_the_next_packet_and_does_not_use_it_up() {
    let mut device = Device::with_tunnels();
    let gre = [0x10, 0, 0x65, 0x58, 0, 0, 0, 0];
    device.add(flow(from(2), vec![push(12, 3, &v4(47, &gre))])).unwrap();
    let traced = device.nic.tracer().trace(PortNumber(2), &inner()).unwrap().verdict.sent;
    assert_eq!(traced, device.inject(2, &inner()).sent);
}

#[test]
fn the_length_of_gtpu_counts_all_behind_its_header() {
    let mut device = Device::with_tunnels();
    let gtpu = over_udp(2152, false, &[0x32, 255, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0]);
    let tunnel = read(&pushed(&mut device, push(14, 110, &v4(17, &gtpu)))).tunnel;
    assert_eq!(usize::from(word(&tunnel, 2)), inner().len() + 4);
    assert_eq!(tunnel[12..], inner());
}

/// A header to visit two segments: the last one stands first in the list (RFC 8754, 2).
fn routing(next_header: u8) -> Vec<u8> {
    let segments = [DST_V6 + 1, DST_V6].map(u128::to_be_bytes).concat();
    [&[next_header, 4, 4, 1, 1, 0, 0, 0][..], &segments].concat()
}

#[test]
fn a_segment_routing_header_says_what_it_carries() {
    let mut device = Device::with_tunnels();
    let action = push(10, 112, &v6(43, &routing(0)));
    let frame = pushed(&mut device, action.clone());
    let outer = |next_header, inner: &[u8]| {
        let mut frame = v6(43, &[&routing(next_header), inner].concat());
        let length = u16::try_from(40 + inner.len()).unwrap();
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        frame
    };
    assert_eq!(frame, outer(143, &inner()), "Ethernet");
    let is_ip = |full: &mut Match| {
        from(2)(full);
        full.set_exact(Field::VlanPresent, 0);
        full.set_exact(Field::EthType, 0x0800);
    };
    device.add(flow(is_ip, vec![Action::PopEth, action])).unwrap();
    assert_eq!(device.inject(2, &inner()).sent, [(PortNumber(3), outer(4, &inner()[14..]))], "IPv4");
}

#[test]
fn a_segment_routing_header_that_is_not_whole_is_refused() {
    let mut device = Device::with_tunnels();
    let mut is_taken = |header: &[u8]| device.add(flow(from(2), vec![push(10, 112, header)])).is_ok();
    let whole = routing(0);
    assert!(!is_taken(&v6(43, &whole[..39])), "cut off");
    assert!(!is_taken(&v6(43, &[&whole[..], &[0; 8]].concat())), "something behind it");
    assert!(!is_taken(&v6(17, &whole)), "another protocol");
    assert!(!is_taken(&v4(43, &whole)), "over IPv4");
    for (at, byte) in [(1, 3), (2, 3), (3, 2), (4, 0), (4, 255)] {
        let mut broken = whole.clone();
        broken[at] = byte;
        assert!(!is_taken(&v6(43, &broken)), "{byte} at {at}");
    }
    assert!(is_taken(&v6(43, &whole)));
}

#[test]
fn what_is_behind_a_push_is_done_to_the_outer_packet() {
    let mut device = Device::with_tunnels();
    let header = v4(17, &over_udp(4789, false, &[8, 0, 0, 0, 0, 0, 7, 0]));
    device.add(flow(from(2), vec![output(4), push(10, 4, &header), output(1)])).unwrap();
    let sent = device.inject(2, &inner()).sent;
    assert_eq!(sent.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [4, 1], "an output follows, so none is added");
    assert_eq!(sent[0].1, inner());
    assert_eq!(read(&sent[1].1).tunnel[8..], inner());
}

#[test]
fn a_cut_before_a_push_is_of_the_inner_frame() {
    let mut device = Device::with_tunnels();
    let header = v4(17, &over_udp(4789, true, &[8, 0, 0, 0, 0, 0, 7, 0]));
    device.add(flow(from(2), vec![Action::Trunc(20), push(10, 4, &header), output(1)])).unwrap();
    let sent = device.inject(2, &inner()).sent;
    verify(&sent[0].1);
    assert_eq!(read(&sent[0].1).tunnel[8..], inner()[..20]);
}

#[test]
fn a_pop_looks_up_again_what_was_inside() {
    let mut device = Device::with_tunnels();
    let header = v4(17, &over_udp(4789, true, &[8, 0, 0, 0, 0, 0, 7, 0]));
    let outer = pushed(&mut device, push(10, 4, &header));
    // On port 4, which is no underlay, so that it takes an action to decapsulate.
    device.add(flow(from(4), vec![Action::TunnelPop(PortNumber(10)), output(3)])).unwrap();
    let inside = |full: &mut Match| {
        from(10)(full);
        full.set_exact(Field::TunnelId, 7);
        full.set_exact(Field::TunnelIpv4Dst, 0x0a01_0002);
        full.set_exact(Field::SkbMark, 0);
        full.set_exact(Field::EthType, 0x0800);
    };
    let handle = device.add(flow(inside, vec![output(2)])).unwrap();
    let verdict = device.inject(4, &outer);
    assert_eq!(verdict.sent, [(PortNumber(2), inner()), (PortNumber(3), outer.clone())], "the list goes on");
    assert_eq!(verdict.hits.len(), 2);
    assert_eq!(device.remove(handle).unwrap().bytes, inner().len() as u64);
    let mut broken = outer;
    broken[60] ^= 1;
    device.inject(4, &broken);
    device.inject(4, &Ip4::default().frame(17, &udp(1, 2, b"no tunnel")));
    assert_eq!(device.nic.drops().decapsulation.load(Ordering::Relaxed), 2);
    assert_eq!(device.nic.lookup_counters().unwrap().lost, Some(2), "a rule had taken them");
}

#[test]
fn pops_end_even_if_every_packet_is_popped_again() {
    let mut device = Device::with_tunnels();
    device.add(flow(|_| {}, vec![Action::TunnelPop(PortNumber(12))])).unwrap();
    let mut frame = inner();
    for _ in 0..100 {
        frame = Ip4::default().frame(47, &[&[0, 0, 0x65, 0x58][..], &frame].concat());
    }
    let verdict = device.inject(4, &fill(frame));
    assert!(verdict.hits.len() > 1);
    assert_eq!(device.nic.drops().lookups.load(Ordering::Relaxed), 1);
}

#[test]
fn sets_behind_a_push_are_of_the_headers_that_it_puts_on() {
    let mut device = Device::with_tunnels();
    let vxlan = over_udp(4789, false, &[8, 0, 0, 0, 0, 0, 7, 0]);
    let whole = |fields: &[(Field, u128)]| {
        let value = |field: Field| fields.iter().find(|(other, _)| *other == field).map_or(0, |(_, value)| *value);
        let attribute = fields[0].0.spec().attribute;
        set(&attribute.fields().map(|spec| (spec.field, value(spec.field))).collect::<Vec<_>>())
    };
    let in_v4 = whole(&[(Field::Ipv4Src, 0x0a02_0001), (Field::Ipv4Ttl, 9), (Field::Ipv4Proto, 17)]);
    let in_v6 = whole(&[(Field::Ipv6Src, 0xfd << 120), (Field::Ipv6Hlimit, 9), (Field::Ipv6Proto, 17)]);
    // What comes in is TCP in IPv4, of which the match says nothing.
    for (header, change) in [(v4(17, &vxlan), in_v4), (v6(17, &vxlan), in_v6)] {
        let actions = vec![push(10, 4, &header), change, set(&[(Field::UdpSrc, 4000)]), output(3)];
        let handle = device.add(flow(from(2), actions)).unwrap();
        let sent = device.inject(2, &inner()).sent.remove(0).1;
        device.remove(handle);
        verify(&sent);
        assert_eq!((read(&sent).ttl, word(&sent, sent.len() - inner().len() - 16)), (9, 4000));
    }
    let mut refused = |header: &[u8], kind, action| {
        let actions = vec![push(10, kind, header), action, output(3)];
        device.add(flow(from(2), actions)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&v4(17, &vxlan), 4, set(&[(Field::TcpSrc, 1)])),
        "combination: set(tcp) behind tnl_push, whose headers are not IP with proto=6"
    );
    assert_eq!(
        refused(&v4(17, &vxlan), 4, set(&[(Field::Ipv6Src, 1)])),
        "combination: set(ipv6) behind tnl_push, whose headers are not eth_type(0x86dd)"
    );
}

#[test]
fn headers_that_are_not_whole_are_refused() {
    let mut device = Device::with_tunnels();
    let mut refused = |action| device.add(flow(from(2), vec![action])).unwrap_err().to_string();
    let header = v4(17, &over_udp(4789, false, &[8, 0, 0, 0, 0, 0, 7, 0]));
    let not_whole = "action tnl_push: the headers are not of their type, or not whole";
    assert_eq!(refused(push(10, 4, &header[..49])), not_whole);
    assert_eq!(refused(push(10, 3, &header)), not_whole);
    assert_eq!(refused(push(10, 4, &[&header[..], &[0]].concat())), not_whole);
    assert_eq!(refused(push(10, 4, &[])), not_whole);
    assert_eq!(refused(push(10, 112, &header)), not_whole);
    assert_eq!(refused(push(10, 111, &header)), "action tnl_push: headers of this type cannot be filled in");
    assert_eq!(refused(push(10, 4, &[0; 513])), "action tnl_push: the headers are longer than 512 bytes");
    assert_eq!(refused(push(2, 4, &header)), "action tnl_push: port 2 is no tunnel port");
    assert_eq!(refused(push(77, 4, &header)), "port 77: there is no such port");
    assert_eq!(refused(Action::TunnelPop(PortNumber(2))), "action tnl_pop: port 2 is no tunnel port");
    assert_eq!(refused(Action::TunnelPop(PortNumber(77))), "port 77: there is no such port");
    let Action::TunnelPush(mut elsewhere) = push(10, 4, &header) else { panic!() };
    elsewhere.out_port = PortNumber(11);
    assert_eq!(refused(Action::TunnelPush(elsewhere)), "port 11: tnl_push cannot send packets there");
}

proptest::proptest! {
    #[test]
    fn no_header_makes_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60), kind in 0u32..120, is_v6: bool, is_gre: bool) {
        let mut device = Device::with_tunnels();
        let protocol = if is_gre { 47 } else { 17 };
        let header = if is_v6 { v6(protocol, &bytes) } else { v4(protocol, &bytes) };
        if device.add(flow(from(2), vec![push(10, kind, &header)])).is_ok() {
            device.inject(2, &inner());
        }
    }
}
