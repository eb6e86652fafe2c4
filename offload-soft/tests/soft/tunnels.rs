//! VXLAN and Geneve, out and in.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use sluice_flow::action::{Action, FieldSet};
use sluice_flow::backend::{Backend, Injector};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use crate::frames::{DST_V6, Ip4, SRC_V6, arp, eth, fill, tcp, udp, v6_frame, verify};
use crate::harness::{Device, flow, output};

const DF: u128 = 1;
const CSUM: u128 = 2;
const KEY: u128 = 4;
const OAM: u128 = 8;

fn set_tunnel(fields: &[(Field, u128)]) -> Action {
    let fields = fields.iter().map(|(field, value)| (*field, *value, field.full_mask())).collect();
    Action::SetTunnel(FieldSet { attribute: Attribute::Tunnel, fields })
}

fn outer_v4(flags: u128) -> Action {
    set_tunnel(&[
        (Field::TunnelId, 0x00ab_cdef),
        (Field::TunnelIpv4Src, 0xac10_0001),
        (Field::TunnelIpv4Dst, 0xac10_0002),
        (Field::TunnelTos, 0x28),
        (Field::TunnelTtl, 17),
        (Field::TunnelFlags, flags),
    ])
}

fn outer_v6(flags: u128) -> Action {
    set_tunnel(&[
        (Field::TunnelId, 5),
        (Field::TunnelIpv6Src, SRC_V6),
        (Field::TunnelIpv6Dst, DST_V6),
        (Field::TunnelFlags, flags),
    ])
}

fn from(port: u128) -> impl FnOnce(&mut Match) {
    move |full| full.set_exact(Field::InPort, port)
}

fn inner() -> Vec<u8> {
    Ip4::default().frame(6, &tcp(1, 2, 0x18, b"inner"))
}

/// What leaves port 1 when a frame from port 2 goes out of a tunnel port.
fn encapsulated(device: &mut Device, tunnel_port: u32, outer: Action, frame: &[u8]) -> Vec<u8> {
    let handle = device.add(flow(from(2), vec![outer, output(tunnel_port)])).unwrap();
    let mut verdict = device.inject(2, frame);
    device.remove(handle);
    let (number, sent) = verdict.sent.pop().expect("nothing was sent");
    assert_eq!((number, verdict.sent.len()), (PortNumber(1), 0), "it leaves through the underlay");
    verify(&sent);
    sent
}

#[test]
fn vxlan_over_ipv4_is_written_as_asked_for() {
    let mut device = Device::with_tunnels();
    let sent = encapsulated(&mut device, 10, outer_v4(DF | KEY), &inner());
    assert_eq!(sent[..6], [0xff; 6], "nobody was heard yet");
    assert_eq!(sent[6..12], [2, 0, 0, 0, 0, 1], "the port's own address");
    assert_eq!(sent[12..14], [8, 0]);
    assert_eq!(sent[14..16], [0x45, 0x28]);
    assert_eq!(sent[18..24], [0, 0, 0x40, 0, 17, 17]);
    assert_eq!(sent[26..34], [172, 16, 0, 1, 172, 16, 0, 2]);
    let source_port = u16::from_be_bytes([sent[34], sent[35]]);
    assert!((32768..61000).contains(&source_port), "{source_port}");
    assert_eq!(sent[36..38], [0x12, 0xb5]);
    assert_eq!(sent[40..42], [0, 0], "no checksum was asked for");
    assert_eq!(sent[42..50], [8, 0, 0, 0, 0xab, 0xcd, 0xef, 0]);
    assert_eq!(sent[50..], inner());
}

#[test]
fn geneve_over_ipv6_is_written_as_asked_for() {
    let mut device = Device::with_tunnels();
    let sent = encapsulated(&mut device, 11, outer_v6(CSUM | KEY | OAM), &inner());
    assert_eq!(sent[12..14], [0x86, 0xdd]);
    assert_eq!(sent[14..18], [0x60, 0, 0, 0]);
    assert_eq!(sent[20..22], [17, 64], "64 hops where none are given");
    assert_eq!(sent[56..58], [0x17, 0xc1]);
    assert_ne!(sent[60..62], [0, 0]);
    assert_eq!(sent[62..70], [0, 0x80, 0x65, 0x58, 0, 0, 5, 0]);
    assert_eq!(sent[70..], inner());
}

#[test]
fn the_udp_port_can_be_given() {
    let mut device = Device::with_tunnels();
    let other = set_tunnel(&[(Field::TunnelIpv4Dst, 0xac10_0002), (Field::TunnelTpDst, 8472)]);
    assert_eq!(encapsulated(&mut device, 10, other, &inner())[36..38], [0x21, 0x18]);
}

#[test]
fn the_source_port_tells_flows_apart_and_keeps_fragments_together() {
    let mut device = Device::with_tunnels();
    let mut port = |frame: Vec<u8>| encapsulated(&mut device, 10, outer_v4(0), &frame)[34..36].to_vec();
    let flow_of = |source| Ip4::default().frame(6, &tcp(source, 2, 0, &[]));
    assert_eq!(port(flow_of(1)), port(flow_of(1)));
    let ports: std::collections::BTreeSet<_> = (0..64).map(|source| port(flow_of(source))).collect();
    assert!(ports.len() > 60);
    let fragment = |fragment| Ip4 { fragment, ..Ip4::default() }.frame(17, &udp(5, 6, b"x"));
    assert_eq!(port(fragment(0x2000)), port(fragment(0x0007)));
}

#[test]
fn the_outer_header_stays_for_further_outputs_and_can_be_changed() {
    let mut device = Device::with_tunnels();
    let actions = vec![outer_v4(0), output(10), output(11), outer_v6(0), output(10), output(3)];
    device.add(flow(from(2), actions)).unwrap();
    let sent = device.inject(2, &inner()).sent;
    let types: Vec<_> = sent.iter().map(|(port, frame)| (port.0, frame[12..14].to_vec(), frame.len())).collect();
    let (v4, v6) = (vec![8, 0], vec![0x86, 0xdd]);
    let length = inner().len();
    assert_eq!(
        types,
        [(1, v4.clone(), length + 50), (1, v4.clone(), length + 50), (1, v6, length + 70), (3, v4, length)]
    );
}

#[test]
fn a_cut_is_of_the_inner_frame() {
    let mut device = Device::with_tunnels();
    device.add(flow(from(2), vec![outer_v4(CSUM), Action::Trunc(20), output(10)])).unwrap();
    let sent = device.inject(2, &inner()).sent;
    assert_eq!(sent[0].1.len(), 70);
    verify(&sent[0].1);
}

#[test]
fn what_comes_in_through_a_tunnel_is_matched_by_its_outer_header() {
    let mut device = Device::with_tunnels();
    let mut frame = encapsulated(&mut device, 10, outer_v4(DF | CSUM), &inner());
    frame.extend([0; 3]);
    let from_tunnel = |full: &mut Match| {
        full.set_exact(Field::InPort, 10);
        full.set_exact(Field::TunnelPresent, 1);
        full.set_exact(Field::TunnelId, 0x00ab_cdef);
        full.set_exact(Field::TunnelIpv4Src, 0xac10_0001);
        full.set_exact(Field::TunnelIpv4Dst, 0xac10_0002);
        full.set_exact(Field::TunnelTos, 0x28);
        full.set_exact(Field::TunnelTtl, 17);
        full.set_exact(Field::TunnelTpDst, 4789);
        full.set_exact(Field::TunnelFlags, DF | CSUM | KEY);
        full.set_exact(Field::EthType, 0x0800);
        full.set_exact(Field::Ipv4Src, 0x0a00_0001);
    };
    let handle = device.add(flow(from_tunnel, vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &frame).sent, [(PortNumber(2), inner())]);
    let counters = device.remove(handle).unwrap();
    assert_eq!((counters.packets, counters.bytes), (1, inner().len() as u64), "the inner frame counts");
    assert_eq!(device.nic.port_counters(PortNumber(1)).unwrap().rx_bytes, frame.len() as u64);
    assert_eq!(device.nic.port_counters(PortNumber(10)).unwrap().rx_bytes, inner().len() as u64);
}

#[test]
fn geneve_options_are_skipped_and_flags_are_kept() {
    let mut device = Device::with_tunnels();
    let plain = encapsulated(&mut device, 11, outer_v6(OAM), &inner());
    let mut frame = plain[..62].to_vec();
    frame.extend([2, 0x80, 0x65, 0x58, 0, 0, 5, 0]);
    frame.extend([1, 2, 3, 1, 9, 9, 9, 9]);
    frame.extend(inner());
    let length = u16::try_from(frame.len() - 54).unwrap().to_be_bytes();
    frame[18..20].copy_from_slice(&length);
    frame[58..60].copy_from_slice(&length);
    let from_tunnel = |full: &mut Match| {
        full.set_exact(Field::InPort, 11);
        full.set_exact(Field::TunnelIpv6Src, SRC_V6);
        full.set_exact(Field::TunnelTtl, 64);
        full.set_exact(Field::TunnelFlags, KEY | OAM);
    };
    device.add(flow(from_tunnel, vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &frame).sent, [(PortNumber(2), inner())]);
}

#[test]
fn malformed_tunnel_packets_are_dropped_and_counted() {
    let mut device = Device::with_tunnels();
    let good = encapsulated(&mut device, 10, outer_v4(CSUM), &inner());
    device.add(flow(|_| {}, vec![output(3)])).unwrap();
    let change = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let refilled = |at, value| fill(change(at, value));
    let bad = [
        ("no network identifier", refilled(42, 0)),
        ("an unknown flag", refilled(42, 0x0c)),
        ("a reserved bit", refilled(49, 1)),
        ("a wrong UDP checksum", change(60, 0x77)),
        ("a wrong IPv4 checksum", change(22, 99)),
        ("a UDP length beyond the packet", refilled(38, 9)),
        ("no Ethernet frame inside", {
            let mut frame = good[..60].to_vec();
            frame[16..18].copy_from_slice(&[0, 46]);
            frame[38..40].copy_from_slice(&[0, 26]);
            fill(frame)
        }),
    ];
    let count = bad.len() as u64;
    for (what, frame) in bad {
        let verdict = device.inject(1, &frame);
        assert_eq!((verdict.hits.len(), verdict.missed), (0, None), "{what}");
    }
    assert_eq!(device.nic.drops().entrance.load(Ordering::Relaxed), count);
    let lookups = device.nic.lookup_counters().unwrap();
    assert_eq!((lookups.hits, lookups.lost), (Some(1), Some(0)), "no rule had taken them");
    assert_eq!(device.inject(1, &good).sent, [(PortNumber(3), inner())], "the good one passes");
}

#[test]
fn what_is_not_for_a_tunnel_is_looked_up_as_it_is() {
    let mut device = Device::with_tunnels();
    let good = encapsulated(&mut device, 10, outer_v4(0), &inner());
    let other_port = {
        let mut frame = good.clone();
        frame[37] = 0;
        frame
    };
    let fragment = {
        let mut frame = good.clone();
        frame[20] = 0x20;
        fill(frame)
    };
    let tagged = crate::frames::tagged(0x8100, 1, &good);
    device.add(flow(from(1), vec![output(3)])).unwrap();
    for frame in [other_port, fragment, tagged] {
        assert_eq!(device.inject(1, &frame).sent, [(PortNumber(3), frame)]);
    }
    // Nor is it on a wire that is no underlay.
    device.add(flow(from(4), vec![output(3)])).unwrap();
    assert_eq!(device.inject(4, &good).sent, [(PortNumber(3), good)]);
}

#[test]
fn frames_on_the_underlay_tell_where_to_send() {
    let mut device = Device::with_tunnels();
    let to = |destination: u128| set_tunnel(&[(Field::TunnelIpv4Dst, destination)]);
    let mut heard = Ip4 { source: [172, 16, 0, 2], destination: [172, 16, 0, 1], ..Ip4::default() }.frame(99, &[]);
    heard[6..12].copy_from_slice(&[6, 6, 6, 6, 6, 6]);
    device.inject(1, &heard);
    device.inject(1, &arp(2));
    assert_eq!(encapsulated(&mut device, 10, to(0xac10_0002), &inner())[..6], [6; 6]);
    assert_eq!(encapsulated(&mut device, 10, to(0x0a00_0001), &inner())[..6], [2, 0, 0, 0, 0, 1]);
    assert_eq!(encapsulated(&mut device, 10, to(0xe000_0105), &inner())[..6], [1, 0, 0x5e, 0, 1, 5], "RFC 1112");
    let group = set_tunnel(&[(Field::TunnelIpv6Dst, 0xff02 << 112 | 0x1_0203)]);
    assert_eq!(encapsulated(&mut device, 10, group, &inner())[..6], [0x33, 0x33, 0, 1, 2, 3], "RFC 2464");
}

#[test]
fn without_a_source_the_address_is_the_one_at_which_tunnels_end_here() {
    let mut device = Device::with_tunnels();
    let to = || set_tunnel(&[(Field::TunnelIpv4Dst, 0xac10_0002)]);
    assert_eq!(encapsulated(&mut device, 10, to(), &inner())[26..30], [0; 4], "not known yet");
    let incoming = encapsulated(&mut device, 10, outer_v4(0), &inner());
    device.inject(1, &incoming);
    assert_eq!(encapsulated(&mut device, 10, to(), &inner())[26..30], [172, 16, 0, 2]);
}

#[test]
fn a_tunnel_port_without_its_underlay_sends_nothing() {
    let mut device = Device::with_tunnels();
    device.add(flow(from(2), vec![outer_v4(0), output(10)])).unwrap();
    device.nic.detach_port(PortNumber(1)).unwrap();
    assert_eq!(device.inject(2, &inner()).sent, []);
    assert_eq!(device.nic.drops().output.load(Ordering::Relaxed), 1);
    assert_eq!(device.nic.inject(PortNumber(10), &inner()).unwrap_err().label(), "port");
}

#[test]
fn a_frame_too_long_for_ip_is_not_sent() {
    let mut device = Device::with_tunnels();
    device.add(flow(from(2), vec![outer_v4(0), output(10)])).unwrap();
    let longest = 65535 - 20 - 8 - 8;
    assert_eq!(device.inject(2, &eth(0x88cc, &vec![0; longest - 14])).sent.len(), 1);
    assert_eq!(device.inject(2, &eth(0x88cc, &vec![0; longest - 13])).sent.len(), 0);
}

proptest! {
    #[test]
    fn what_was_put_in_comes_out(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        is_vxlan: bool, is_v6: bool, flags in 0u128..4, is_inner_v6: bool,
    ) {
        let frame = match is_inner_v6 {
            true => v6_frame(17, &udp(1, 2, &payload)),
            false => eth(0x88cc, &payload),
        };
        let tunnel_port = if is_vxlan { 10 } else { 11 };
        let mut device = Device::with_tunnels();
        let outer = if is_v6 { outer_v6(flags) } else { outer_v4(flags) };
        let sent = encapsulated(&mut device, tunnel_port, outer, &frame);
        device.add(flow(from(tunnel_port.into()), vec![output(3)])).unwrap();
        prop_assert_eq!(device.inject(1, &sent).sent, [(PortNumber(3), frame)]);
    }

    #[test]
    fn random_bytes_behind_a_tunnel_header_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80), is_vxlan: bool, cut in 0usize..80,
    ) {
        let mut device = Device::with_tunnels();
        let (udp_port, number) = if is_vxlan { (4789, 10) } else { (6081, 11) };
        let mut frame = Ip4::default().frame(17, &udp(9, udp_port, &bytes));
        frame.truncate(34 + cut);
        device.add(flow(from(number), vec![output(3)])).unwrap();
        if frame.len() >= 14 {
            device.inject(1, &frame);
        }
    }
}
