//! Each tunnel protocol with all that it has: bytes out, keys in, and what is dropped or refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::action::{Action, FieldSet};
use sluice_flow::backend::Backend;
use sluice_flow::field::{Attribute, Field, GENEVE_CHUNKS};
use sluice_flow::key::Match;
use sluice_flow::port::{PortKind, PortNumber, Tunnel, TunnelProtocol};

use crate::frames::{DST_V6, Ip4, SRC_V6, eth, fill, ipv6, tagged, tcp, udp, verify};
use crate::harness::{Device, flow, output, port};
use crate::outer::{long, read, sum, word};

const VXLAN: u32 = 10;
const GENEVE: u32 = 11;
const GRE: u32 = 12;
const ERSPAN: u32 = 13;
const GTPU: u32 = 14;
const DF: u128 = 1;
const CSUM: u128 = 2;
const KEY: u128 = 4;

const V4: [(Field, u128); 2] = [(Field::TunnelIpv4Src, 0xac10_0001), (Field::TunnelIpv4Dst, 0xac10_0002)];
const V6: [(Field, u128); 2] = [(Field::TunnelIpv6Src, SRC_V6), (Field::TunnelIpv6Dst, DST_V6)];

fn set_tunnel(addresses: [(Field, u128); 2], fields: &[(Field, u128)]) -> Action {
    let mut all = [&addresses[..], &[(Field::TunnelTos, 0xb8), (Field::TunnelTtl, 33)], fields].concat();
    all.sort_unstable();
    let fields = all.into_iter().map(|(field, value)| (field, value, field.full_mask())).collect();
    Action::SetTunnel(FieldSet { attribute: Attribute::Tunnel, fields })
}

fn from(port: u32) -> impl FnOnce(&mut Match) {
    move |full| full.set_exact(Field::InPort, port.into())
}

fn inner() -> Vec<u8> {
    Ip4 { tos: 0xa0, ..Ip4::default() }.frame(6, &tcp(1, 2, 0x18, b"inner"))
}

fn options() -> Vec<u8> {
    [&[0x01, 0x02, 0x80, 1, 0xde, 0xad, 0xbe, 0xef][..], &[0xff, 0xff, 3, 0], &[0, 9, 0x7f, 3], &[7; 12]].concat()
}

fn geneve(bytes: &[u8]) -> Vec<(Field, u128)> {
    let mut fields = vec![(Field::GenevePresent, 1), (Field::GeneveLength, bytes.len() as u128)];
    for (field, chunk) in GENEVE_CHUNKS.iter().zip(bytes.chunks(16)) {
        let mut whole = [0; 16];
        whole[..chunk.len()].copy_from_slice(chunk);
        fields.push((*field, u128::from_be_bytes(whole)));
    }
    fields
}

fn gbp(id: u128, flags: u128) -> Vec<(Field, u128)> {
    vec![(Field::VxlanGbpPresent, 1), (Field::VxlanGbpId, id), (Field::VxlanGbpFlags, flags)]
}

fn erspan1(index: u128) -> Vec<(Field, u128)> {
    vec![(Field::ErspanPresent, 1), (Field::ErspanVersion, 1), (Field::ErspanIndex, index)]
}

fn erspan2(direction: u128, hardware: u128) -> Vec<(Field, u128)> {
    vec![
        (Field::ErspanPresent, 1),
        (Field::ErspanVersion, 2),
        (Field::ErspanDirection, direction),
        (Field::ErspanHardwareId, hardware),
    ]
}

fn gtpu(flags: u128, message: u128) -> Vec<(Field, u128)> {
    vec![(Field::GtpuPresent, 1), (Field::GtpuFlags, flags), (Field::GtpuMessageType, message)]
}

/// What leaves port 1 when a frame from port 2 goes out of a tunnel port.
fn sent(device: &mut Device, tunnel: u32, outer: Action, frame: &[u8]) -> Vec<u8> {
    let handle = device.add(flow(from(2), vec![outer, output(tunnel)])).unwrap();
    let mut verdict = device.inject(2, frame);
    device.remove(handle);
    let (number, sent) = verdict.sent.pop().expect("nothing was sent");
    assert_eq!(number, PortNumber(1));
    verify(&sent);
    sent
}

/// A GTP-U packet as another machine would send it.
fn gtpu_frame(flags: u8, rest: &[u8], packet: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len() + packet.len()).unwrap().to_be_bytes();
    let message = [&[flags, 255][..], &length, &[0, 0, 0, 0x7b], rest, packet].concat();
    Ip4::default().frame(17, &udp(40000, 2152, &message))
}

/// A GRE packet as another machine would send it, its checksum filled in if it has one.
fn gre_frame(flags: u16, protocol: u16, words: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut gre = [&flags.to_be_bytes()[..], &protocol.to_be_bytes(), words, payload].concat();
    if flags & 0x8000 != 0 {
        let checksum = sum(&gre).to_be_bytes();
        gre[4..6].copy_from_slice(&checksum);
    }
    Ip4::default().frame(47, &gre)
}

#[test]
fn a_group_policy_is_written_into_the_vxlan_header() {
    let mut device = Device::with_tunnels();
    for addresses in [V4, V6] {
        let outer = set_tunnel(addresses, &[&[(Field::TunnelId, 5)][..], &gbp(0x1234, 0x48)].concat());
        let outer = read(&sent(&mut device, VXLAN, outer, &inner()));
        assert_eq!((outer.tos, outer.ttl, outer.udp), (0xb8, 33, Some((4789, false))));
        assert_eq!(outer.tunnel[..8], [0x88, 0x48, 0x12, 0x34, 0, 0, 5, 0]);
        assert_eq!(outer.tunnel[8..], inner());
    }
    let nothing = read(&sent(&mut device, VXLAN, set_tunnel(V4, &gbp(0, 0)), &inner()));
    assert_eq!(nothing.tunnel[..8], [8, 0, 0, 0, 0, 0, 0, 0], "as in the kernel, no policy at all");
}

#[test]
fn geneve_options_are_written_as_they_are() {
    let mut device = Device::with_tunnels();
    for addresses in [V4, V6] {
        let outer = set_tunnel(addresses, &[&[(Field::TunnelId, 5)][..], &geneve(&options())].concat());
        let outer = read(&sent(&mut device, GENEVE, outer, &inner()));
        assert_eq!(outer.tunnel[..8], [7, 0x40, 0x65, 0x58, 0, 0, 5, 0], "seven words, one of them critical");
        assert_eq!(outer.tunnel[8..36], options());
        assert_eq!(outer.tunnel[36..], inner());
    }
    let harmless = read(&sent(&mut device, GENEVE, set_tunnel(V4, &geneve(&[0, 1, 2, 0])), &inner()));
    assert_eq!(harmless.tunnel[..2], [1, 0], "nothing is critical");
}

#[test]
fn gre_has_a_key_and_a_checksum_where_asked_for() {
    let mut device = Device::with_tunnels();
    for addresses in [V4, V6] {
        let with = |fields: &[(Field, u128)], device: &mut Device| {
            read(&sent(device, GRE, set_tunnel(addresses, fields), &inner()))
        };
        let plain = with(&[], &mut device);
        assert_eq!((plain.protocol, plain.udp), (47, None));
        assert_eq!(plain.tunnel, [&[0, 0, 0x65, 0x58][..], &inner()].concat());
        let key = with(&[(Field::TunnelId, 0x8765_4321), (Field::TunnelFlags, KEY)], &mut device);
        assert_eq!(key.tunnel, [&[0x20, 0, 0x65, 0x58, 0x87, 0x65, 0x43, 0x21][..], &inner()].concat());
        let both = with(&[(Field::TunnelId, 7), (Field::TunnelFlags, KEY | CSUM)], &mut device);
        assert_eq!(both.tunnel[..4], [0xa0, 0, 0x65, 0x58]);
        assert_ne!(word(&both.tunnel, 4), 0);
        assert_eq!((sum(&both.tunnel), long(&both.tunnel, 8)), (0, 7));
        assert_eq!(both.tunnel[12..], inner());
    }
}

#[test]
fn erspan_version_1_has_session_class_tag_and_index() {
    let mut device = Device::with_tunnels();
    for (sequence, addresses) in (0..).zip([V4, V6]) {
        let outer = set_tunnel(
            addresses,
            &[&[(Field::TunnelId, 0x3ff), (Field::TunnelFlags, KEY)][..], &erspan1(0xfabcd)].concat(),
        );
        let frame = tagged(0x8100, 0x6123, &inner());
        let tunnel = read(&sent(&mut device, ERSPAN, outer, &frame)).tunnel;
        assert_eq!(tunnel[..4], [0x10, 0, 0x88, 0xbe]);
        assert_eq!(long(&tunnel, 4), sequence, "packets of the port are numbered");
        // Version 1 and VLAN 0x123; class 5, tag in the frame, session.
        assert_eq!(tunnel[8..12], [0x11, 0x23, 0xa0 | 3 << 3 | 3, 0xff]);
        assert_eq!(tunnel[12..16], [0, 0x0f, 0xab, 0xcd]);
        assert_eq!(tunnel[16..], frame);
    }
}

#[test]
fn erspan_version_2_has_time_direction_and_hardware() {
    let mut device = Device::with_tunnels();
    device.clock.advance(Duration::from_millis(250));
    for addresses in [V4, V6] {
        let outer = set_tunnel(addresses, &[&[(Field::TunnelId, 5)][..], &erspan2(1, 0x2a)].concat());
        let tunnel = read(&sent(&mut device, ERSPAN, outer, &inner())).tunnel;
        assert_eq!(tunnel[..4], [0x10, 0, 0x22, 0xeb]);
        // The mirrored frame of 59 bytes is a short one.
        assert_eq!(inner().len(), 59);
        assert_eq!(tunnel[8..12], [0x20, 0, 0xa0 | 1 << 3, 5]);
        assert_eq!(long(&tunnel, 12), 2500, "units of 100 microseconds");
        assert_eq!(tunnel[16..20], [0, 0, 0x80 | 0x2a >> 4, (0x2a & 15) << 4 | 8]);
        assert_eq!(tunnel[20..], inner());
    }
}

#[test]
fn a_packet_goes_from_one_gtpu_tunnel_into_another() {
    let mut device = Device::with_tunnels();
    let second = Tunnel { protocol: TunnelProtocol::Gtpu, udp_port: Some(2153), underlay: PortNumber(3) };
    device.nic.attach_port(&port(20, PortKind::Tunnel(second))).unwrap();
    for (packet, addresses) in [(Ip4::default().packet(17, &udp(1, 2, b"x")), V4), (ipv6(17, &udp(1, 2, b"x")), V6)] {
        let outer = set_tunnel(addresses, &[&[(Field::TunnelId, 0x8000_0001)][..], &gtpu(0, 0)].concat());
        let handle = device.add(flow(from(GTPU), vec![outer, output(20)])).unwrap();
        let sent = device.inject(1, &gtpu_frame(0x30, &[], &packet)).sent;
        device.remove(handle);
        assert_eq!(sent[0].0, PortNumber(3));
        let outer = read(&sent[0].1);
        assert_eq!(outer.udp, Some((2153, false)));
        let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
        assert_eq!(outer.tunnel, [&[0x30, 255][..], &length, &[0x80, 0, 0, 1], &packet].concat());
    }
    // With sequence numbers, which the port counts.
    let numbered = set_tunnel(V4, &gtpu(0x32, 255));
    device.add(flow(from(GTPU), vec![numbered, output(20)])).unwrap();
    let packet = Ip4::default().packet(99, b"abc");
    for sequence in 0..3 {
        let outer = read(&device.inject(1, &gtpu_frame(0x30, &[], &packet)).sent[0].1);
        assert_eq!(outer.tunnel[..4], [0x32, 255, 0, 27]);
        assert_eq!(outer.tunnel[8..12], [0, sequence, 0, 0]);
        assert_eq!(outer.tunnel[12..], packet);
    }
}

#[test]
fn a_packet_in_gtpu_is_found_behind_numbers_and_extension_headers() {
    let mut device = Device::with_tunnels();
    let packet = Ip4::default().packet(17, &udp(1, 2, b"x"));
    let wanted = |full: &mut Match| {
        from(GTPU)(full);
        full.set_exact(Field::TunnelId, 0x7b);
        full.set_exact(Field::GtpuPresent, 1);
        full.set_exact(Field::GtpuMessageType, 255);
        full.set_exact(Field::PacketTypeNs, 1);
        full.set_exact(Field::PacketTypeId, 0x0800);
        full.set_exact(Field::EthType, 0x0800);
        full.set_exact(Field::Ipv4Proto, 17);
        full.set_exact(Field::UdpDst, 2);
    };
    device.add(flow(wanted, vec![])).unwrap();
    let number = [0, 9, 0, 0];
    let container = [[0, 9, 0, 0x85], [1, 0x10, 1, 0]].concat();
    for (flags, rest) in [(0x30, &[][..]), (0x32, &number), (0x31, &number), (0x34, &container)] {
        let verdict = device.inject(1, &gtpu_frame(flags, rest, &packet));
        assert_eq!((verdict.hits.len(), verdict.missed), (1, None), "{flags:#x}");
    }
    // A message that carries no packet goes on as it came.
    device
        .add(flow(
            |full| {
                from(GTPU)(full);
                full.set_exact(Field::GtpuMessageType, 1);
                full.set_exact(Field::PacketTypeNs, 0);
            },
            vec![output(3)],
        ))
        .unwrap();
    let echo = Ip4::default().frame(17, &udp(40000, 2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]));
    assert_eq!(device.inject(1, &echo).sent, [(PortNumber(3), echo)]);
}

#[test]
fn gre_carries_packets_without_an_ethernet_header_both_ways() {
    let mut device = Device::with_tunnels();
    let packet = ipv6(17, &udp(1, 2, b"x"));
    let second = Tunnel { protocol: TunnelProtocol::Gre, udp_port: None, underlay: PortNumber(3) };
    device.nic.attach_port(&port(20, PortKind::Tunnel(second))).unwrap();
    let wanted = |full: &mut Match| {
        from(GRE)(full);
        full.set_exact(Field::PacketTypeNs, 1);
        full.set_exact(Field::PacketTypeId, 0x86dd);
        full.set_exact(Field::TunnelFlags, KEY | CSUM);
        full.set_exact(Field::TunnelId, 0xfedc_ba98);
    };
    let again = set_tunnel(V6, &[]);
    device.add(flow(wanted, vec![again, output(20), output(VXLAN), output(4)])).unwrap();
    // A checksum, a key and a sequence number.
    let words = [0, 0, 0, 0, 0xfe, 0xdc, 0xba, 0x98, 0, 0, 0, 1];
    let sent = device.inject(1, &gre_frame(0xb000, 0x86dd, &words, &packet)).sent;
    assert_eq!(sent.len(), 1, "neither VXLAN nor a wire takes it");
    assert_eq!(read(&sent[0].1).tunnel, [&[0, 0, 0x86, 0xdd][..], &packet].concat());
    let drops = device.nic.drops();
    assert_eq!([&drops.output, &drops.without_ethernet].map(|count| count.load(Ordering::Relaxed)), [1, 1]);
}

#[test]
fn what_one_nic_sends_another_reads_with_all_options() {
    let cases: [(u32, Vec<(Field, u128)>); 8] = [
        (VXLAN, vec![(Field::TunnelId, 0x00ab_cdef), (Field::TunnelFlags, KEY)]),
        (VXLAN, [gbp(0xffff, 0x08), vec![(Field::TunnelId, 1), (Field::TunnelFlags, KEY | CSUM)]].concat()),
        (GENEVE, [geneve(&options()), vec![(Field::TunnelId, 2), (Field::TunnelFlags, 8 | KEY)]].concat()),
        (
            GENEVE,
            [
                geneve(&[[0, 1, 2, 30].to_vec(), vec![5; 120], vec![0, 1, 2, 31], vec![6; 124]].concat()),
                vec![(Field::TunnelFlags, KEY)],
            ]
            .concat(),
        ),
        (GRE, vec![(Field::TunnelId, u32::MAX.into()), (Field::TunnelFlags, KEY | CSUM)]),
        (GRE, vec![(Field::TunnelFlags, 0)]),
        (ERSPAN, [erspan1(0xfffff), vec![(Field::TunnelId, 1023), (Field::TunnelFlags, KEY)]].concat()),
        (ERSPAN, [erspan2(1, 63), vec![(Field::TunnelId, 1), (Field::TunnelFlags, KEY)]].concat()),
    ];
    for (tunnel, fields) in cases {
        for addresses in [V4, V6] {
            let mut sender = Device::with_tunnels();
            let frame = sent(&mut sender, tunnel, set_tunnel(addresses, &fields), &inner());
            let mut receiver = Device::with_tunnels();
            let wanted = |full: &mut Match| {
                from(tunnel)(full);
                // Every field of the tunnel that there is, also those that must be zero.
                for spec in Attribute::Tunnel.fields().filter(|spec| spec.field != Field::TunnelTpSrc) {
                    let set = addresses.iter().chain(&fields).find(|(field, _)| *field == spec.field);
                    full.set_exact(spec.field, set.map_or(0, |(_, value)| *value));
                }
                full.set_exact(Field::TunnelPresent, 1);
                full.set_exact(Field::TunnelTos, 0xb8);
                full.set_exact(Field::TunnelTtl, 33);
                full.set_exact(Field::TunnelTpDst, read(&frame).udp.map_or(0, |(port, _)| port.into()));
                full.set_exact(Field::GenevePresent, u128::from(tunnel == GENEVE));
            };
            receiver.add(flow(wanted, vec![output(3)])).unwrap();
            assert_eq!(receiver.inject(1, &frame).sent, [(PortNumber(3), inner())], "port {tunnel}, {fields:?}");
        }
    }
}

#[test]
fn do_not_fragment_is_written_and_read_over_ipv4() {
    let mut device = Device::with_tunnels();
    let frame = sent(&mut device, GRE, set_tunnel(V4, &[(Field::TunnelFlags, DF)]), &inner());
    assert_eq!(word(&frame, 20), 0x4000);
    let whole = |full: &mut Match| full.set_exact(Field::TunnelFlags, DF);
    device.add(flow(whole, vec![output(3)])).unwrap();
    assert_eq!(device.inject(1, &frame).sent.len(), 1);
}

#[test]
fn what_is_malformed_is_dropped_and_counted() {
    let mut device = Device::with_tunnels();
    device.add(flow(|_| {}, vec![])).unwrap();
    let v4 = Ip4::default().packet(99, &[]);
    let with_checksum = gre_frame(0x8000, 0x6558, &[0; 4], &inner());
    let changed = |at: usize| {
        let mut frame = with_checksum.clone();
        frame[at] ^= 1;
        frame
    };
    let cut = |frame: &[u8], length: usize| {
        let mut frame = frame[..length].to_vec();
        let rest = u16::try_from(length - 14).unwrap().to_be_bytes();
        frame[16..18].copy_from_slice(&rest);
        fill(frame)
    };
    let geneve = |bytes: &[u8]| Ip4::default().frame(17, &udp(1, 6081, bytes));
    let erspan = |header: &[u8]| gre_frame(0x1000, 0x88be, &[0, 0, 0, 1], &[header, &inner()[..]].concat());
    let gtpu = |message: &[u8]| Ip4::default().frame(17, &udp(1, 2152, message));
    let bad = [
        ("a wrong GRE checksum", changed(60)),
        ("a GRE source route", gre_frame(0x4000, 0x6558, &[0; 4], &inner())),
        ("a GRE key that is cut off", cut(&gre_frame(0x2000, 0x6558, &[0; 4], &inner()), 40)),
        ("no whole frame in GRE", cut(&gre_frame(0, 0x6558, &[], &inner()), 50)),
        ("Geneve options beyond the packet", geneve(&[&[63, 0, 0x65, 0x58, 0, 0, 0, 0][..], &inner()].concat())),
        ("a version of Geneve", geneve(&[&[0x40, 0, 0x65, 0x58, 0, 0, 0, 0][..], &inner()].concat())),
        ("IPv4 in Geneve", geneve(&[&[0, 0, 8, 0, 0, 0, 0, 0][..], &v4].concat())),
        ("version 2 in ERSPAN type II", erspan(&[0x20, 0, 0, 0, 0, 0, 0, 0])),
        ("an ERSPAN header that is cut off", cut(&erspan(&[0x10, 0, 0, 0, 0, 0, 0, 0]), 46)),
        ("version 2 of GTP", gtpu(&[&[0x50, 255, 0, 20, 0, 0, 0, 1][..], &v4].concat())),
        ("a GTP-U length beyond the packet", gtpu(&[&[0x30, 255, 0, 21, 0, 0, 0, 1][..], &v4].concat())),
        ("no packet in GTP-U", gtpu(&[0x30, 255, 0, 1, 0, 0, 0, 1, 0x50])),
        ("an extension header of no length", gtpu_frame(0x34, &[0, 0, 0, 0x85, 0, 0, 0, 0], &v4)),
        ("extension headers without an end", gtpu_frame(0x34, &[0, 0, 0, 0x85, 1, 0, 0, 0x85], &[])),
    ];
    for (count, (what, frame)) in (1..).zip(bad) {
        let verdict = device.inject(1, &frame);
        assert_eq!((verdict.hits.len(), verdict.missed), (0, None), "{what}");
        assert_eq!(device.nic.drops().entrance.load(Ordering::Relaxed), count, "{what}");
    }
    // PPTP is GRE, too, but version 1 and not of the tunnel.
    assert_eq!(device.inject(1, &gre_frame(0x2001, 0x880b, &[0; 4], &[])).hits.len(), 1);
    assert_eq!(device.inject(1, &with_checksum).hits.len(), 1, "the good one passes");
}

#[test]
fn what_a_protocol_does_not_have_is_refused_by_name() {
    let mut device = Device::with_tunnels();
    let mut refused = |tunnel, fields: &[(Field, u128)]| {
        device.add(flow(from(2), vec![set_tunnel(V4, fields), output(tunnel)])).unwrap_err().to_string()
    };
    let other = "the tunnel port is of another kind";
    assert_eq!(refused(VXLAN, &geneve(&options())), format!("field tunnel.geneve: {other}"));
    assert_eq!(refused(GENEVE, &gbp(1, 0)), format!("field tunnel.vxlan: {other}"));
    assert_eq!(refused(GRE, &erspan1(1)), format!("field tunnel.erspan: {other}"));
    assert_eq!(refused(VXLAN, &gtpu(0, 0)), format!("field tunnel.gtpu: {other}"));
    assert_eq!(refused(GRE, &[(Field::TunnelTpDst, 4789)]), "field tunnel.tp_dst: a tunnel in GRE has no UDP port");
    assert_eq!(refused(GRE, &[(Field::TunnelId, 1)]), "field tunnel.tun_id: GRE has it only with the flag key");
    assert_eq!(refused(GRE, &[(Field::TunnelFlags, 8)]), "field tunnel.flags: only Geneve has the flag oam");
    let csum = [&[(Field::TunnelFlags, CSUM)][..], &erspan1(1)].concat();
    assert_eq!(refused(ERSPAN, &csum), "field tunnel.flags: ERSPAN is sent without a checksum");
    assert_eq!(refused(ERSPAN, &[]), "field tunnel.erspan.ver: ERSPAN needs a version");
    let wide = [&[(Field::TunnelId, 1024)][..], &erspan1(1)].concat();
    assert_eq!(refused(ERSPAN, &wide), "field tunnel.tun_id: a session has 10 bits");
    assert_eq!(
        refused(GTPU, &[(Field::TunnelId, 1 << 32)]),
        "field tunnel.tun_id: no tunnel has more than 32 bits for it"
    );
    let version = |version| vec![(Field::ErspanPresent, 1), (Field::ErspanVersion, version)];
    assert_eq!(refused(ERSPAN, &version(3)), "field tunnel.erspan.ver: there are versions 1 and 2");
    let mixed = [version(1), vec![(Field::ErspanDirection, 1)]].concat();
    assert_eq!(refused(ERSPAN, &mixed), "field tunnel.erspan.dir: ERSPAN version 1 does not have it");
    let mixed = [version(2), vec![(Field::ErspanIndex, 1)]].concat();
    assert_eq!(refused(ERSPAN, &mixed), "field tunnel.erspan.idx: ERSPAN version 2 does not have it");
    assert_eq!(refused(ERSPAN, &erspan2(2, 0)), "field tunnel.erspan.dir: it is 0 or 1");
    assert_eq!(refused(ERSPAN, &erspan2(0, 64)), "field tunnel.erspan.hwid: it has 6 bits");
    assert!(refused(VXLAN, &gbp(1, 0x80)).starts_with("field tunnel.vxlan.gbp.flags: there are only"));
    let long = vec![(Field::GenevePresent, 1), (Field::GeneveLength, 253)];
    assert!(refused(GENEVE, &long).starts_with("field tunnel.geneve.length: it is a multiple of 4"));
    assert!(refused(GENEVE, &geneve(&[0, 1, 2, 1])).ends_with("the last option is cut off"));
    let two = [gbp(1, 0), geneve(&options())].concat();
    assert_eq!(refused(GENEVE, &two), "action set(tunnel): there are options of more than one kind of tunnel");
}

#[test]
fn a_frame_with_an_ethernet_header_does_not_leave_through_gtpu() {
    let mut device = Device::with_tunnels();
    device.add(flow(from(2), vec![set_tunnel(V4, &[]), output(GTPU)])).unwrap();
    assert_eq!(device.inject(2, &eth(0x0800, &Ip4::default().packet(99, &[]))).sent, []);
    assert_eq!(device.nic.drops().output.load(Ordering::Relaxed), 1);
}

#[test]
fn one_port_of_a_kind_takes_gre_and_one_takes_erspan_out_of_an_underlay() {
    let device = Device::with_tunnels();
    for protocol in [TunnelProtocol::Gre, TunnelProtocol::Erspan] {
        let tunnel = |underlay| PortKind::Tunnel(Tunnel { protocol, udp_port: None, underlay: PortNumber(underlay) });
        let refusal = device.nic.attach_port(&port(30, tunnel(1))).unwrap_err();
        assert_eq!(refusal.to_string(), "port p30: another tunnel of its kind is on this underlay");
        device.nic.attach_port(&port(30, tunnel(2))).unwrap();
        device.nic.detach_port(PortNumber(30)).unwrap();
    }
    let without = Tunnel { protocol: TunnelProtocol::Gtpu, udp_port: None, underlay: PortNumber(2) };
    let refusal = device.nic.attach_port(&port(30, PortKind::Tunnel(without))).unwrap_err();
    assert_eq!(refusal.to_string(), "port p30: a tunnel of its kind needs a UDP port");
}
