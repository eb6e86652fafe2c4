//! Tunnels in and out, over the underlay's only neighbour.

use sluice_flow::action::Action;
use sluice_flow::field::Field;
use sluice_tests::lab::{ERSPAN, GENEVE, GRE, OWN_IP, OWN_MAC, PEER_IP, PEER_MAC, UNDERLAY, VXLAN, VXLAN_GBP};
use sluice_tests::scenario::Scenario;

use crate::flows::{Matching, at, output, recirc, set, set_tunnel};
use crate::packets::{Ipv4, Ipv6, tcp, udp};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [ways_out(), ways_in(), through(), more_options()].concat()
}

const OWN: u128 = u32::from_be_bytes(OWN_IP) as u128;
const PEER: u128 = u32::from_be_bytes(PEER_IP) as u128;
const OWN_V6: u128 = 0xfd31 << 112 | 1;
const PEER_V6: u128 = 0xfd31 << 112 | 2;
const DF: u128 = 1;
const CSUM: u128 = 2;
const KEY: u128 = 4;
const OAM: u128 = 8;

fn inner() -> Vec<Vec<u8>> {
    vec![
        Ipv4::default().frame(17, &udp(1000, 2000, b"inner data")),
        Ipv4 { tos: 0x70, ..Ipv4::default() }.frame(6, &tcp(1000, 2000, 2, b"")),
        Ipv6 { class: 0x70, ..Ipv6::default() }.frame(17, &udp(1000, 2000, b"inner data")),
        Ipv4::default().frame(17, &udp(1000, 2000, &[7; 1300])),
    ]
}

/// The outer header that an IPv4 tunnel needs.
fn outer(id: u128, flags: u128, more: &[(Field, u128)]) -> Vec<(Field, u128)> {
    let always = [
        (Field::TunnelId, id),
        (Field::TunnelIpv4Src, OWN),
        (Field::TunnelIpv4Dst, PEER),
        (Field::TunnelTtl, 64),
        (Field::TunnelFlags, flags),
    ];
    let is_said = |(field, value): &(Field, u128)| *field != Field::TunnelFlags || *value != 0;
    always.into_iter().filter(is_said).chain(more.iter().copied()).collect()
}

fn out(name: &str, port: u32, header: &[(Field, u128)]) -> Scenario {
    let any = at(1).masked(Field::EthType, 0u8, 0u8);
    Scenario::new(format!("tunnel out: {name}"))
        .flow(any.done(), [set_tunnel(header), output(port)])
        .packets(1, inner())
}

fn ways_out() -> Vec<Scenario> {
    let v6 = |flags| {
        [
            (Field::TunnelId, 5),
            (Field::TunnelIpv6Src, OWN_V6),
            (Field::TunnelIpv6Dst, PEER_V6),
            (Field::TunnelTtl, 64),
            (Field::TunnelFlags, flags),
        ]
    };
    let rewritten = [
        set_tunnel(&outer(5, KEY, &[])),
        set(&[(Field::EthSrc, 0x0200_0000_0077, Field::EthSrc.full_mask())]),
        output(VXLAN),
        output(2),
        set_tunnel(&outer(6, KEY, &[])),
        output(GENEVE),
    ];
    let mut all = vec![
        Scenario::new("tunnel out: two tunnels and a wire").flow(at(1).ipv4(17).done(), rewritten).packets(1, inner()),
        Scenario::new("tunnel out: without a header")
            .flow(at(1).ipv4(17).done(), [output(VXLAN), output(2)])
            .packets(1, inner()),
        Scenario::new("tunnel out: a cut packet")
            .flow(at(1).ipv4(17).done(), [set_tunnel(&outer(5, KEY, &[])), Action::Trunc(100), output(VXLAN)])
            .packets(1, inner()),
    ];
    for ecn in [1, 2, 3] {
        all.push(
            Scenario::new(format!("tunnel ecn: {ecn} goes in"))
                .flow(at(1).ipv4(17).done(), [set_tunnel(&outer(5, KEY, &[])), output(VXLAN)])
                .packet(1, Ipv4 { tos: ecn, ..Ipv4::default() }.frame(17, &udp(1000, 2000, b"inner data"))),
        );
    }
    for (name, port) in [("vxlan", VXLAN), ("geneve", GENEVE), ("gre", GRE)] {
        let with = |what: &str, header: &[(Field, u128)]| out(&format!("{name} {what}"), port, header);
        all.extend([
            with("plain", &outer(5, KEY, &[])),
            with("not to be fragmented", &outer(5, KEY | DF, &[])),
            with("with a checksum", &outer(5, KEY | CSUM, &[])),
            with("of a class", &outer(5, KEY, &[(Field::TunnelTos, 0xb8)])),
            with("with the largest number", &outer(0xff_ffff, KEY, &[])),
            with("over ipv6", &v6(KEY)),
            with("over ipv6 with a checksum", &v6(KEY | CSUM)),
        ]);
    }
    all.push(out("geneve control", GENEVE, &outer(5, KEY | OAM, &[])));
    // To the module a number is a key.
    let mut keyless = outer(5, 0, &[]);
    keyless.retain(|(field, _)| *field != Field::TunnelId);
    all.push(out("gre without a key", GRE, &keyless));
    all
}

/// A datagram to this end, in an Ethernet frame of the neighbour's.
fn outer_udp(port: u16, payload: &[u8]) -> Vec<u8> {
    on_the_underlay(Ipv4 { source: PEER_IP, target: OWN_IP, ..Ipv4::default() }.frame(17, &udp(50000, port, payload)))
}

fn on_the_underlay(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&OWN_MAC);
    frame[6..12].copy_from_slice(&PEER_MAC);
    frame
}

fn vxlan(flags: u8, id: u32, frame: &[u8]) -> Vec<u8> {
    [&[flags, 0, 0, 0], &(id << 8).to_be_bytes()[..], frame].concat()
}

fn geneve(flags: u8, id: u32, options: &[u8], frame: &[u8]) -> Vec<u8> {
    let length = u8::try_from(options.len() / 4).unwrap();
    [&[length, flags, 0x65, 0x58], &(id << 8).to_be_bytes()[..], options, frame].concat()
}

/// A GRE header with a key.
fn gre(id: u32, frame: &[u8]) -> Vec<u8> {
    [&[0x20, 0, 0x65, 0x58], &id.to_be_bytes()[..], frame].concat()
}

fn from_tunnel(port: u32) -> Matching {
    at(port).is(Field::TunnelPresent, 1u8)
}

fn ways_in() -> Vec<Scenario> {
    let each = |wrap: &dyn Fn(&[u8]) -> Vec<u8>| inner().iter().map(|frame| wrap(frame)).collect::<Vec<_>>();
    let in_vxlan = each(&|frame| outer_udp(4789, &vxlan(8, 5, frame)));
    let in_geneve = each(&|frame| outer_udp(6081, &geneve(0, 5, &[], frame)));
    let in_gre = each(&|frame| {
        on_the_underlay(Ipv4 { source: PEER_IP, target: OWN_IP, ..Ipv4::default() }.frame(47, &gre(5, frame)))
    });
    let fields: &[(Field, u128)] = &[
        (Field::TunnelId, 5),
        (Field::TunnelIpv4Src, PEER),
        (Field::TunnelIpv4Dst, OWN),
        (Field::TunnelTos, 0x28),
        (Field::TunnelTtl, 64),
        (Field::TunnelFlags, KEY | CSUM),
    ];
    let mut all = vec![];
    for (name, port, frames) in [("vxlan", VXLAN, in_vxlan), ("geneve", GENEVE, in_geneve), ("gre", GRE, in_gre)] {
        // Each byte of the outer headers behind Ethernet, turned in one bit. The first frame only: all start alike.
        let off: Vec<_> = (14..58)
            .flat_map(|byte| [0x01, 0x40].map(|bit| (byte, bit)))
            .map(|(byte, bit)| {
                let mut frame = frames[0].clone();
                frame[byte] ^= bit;
                frame
            })
            .collect();
        let scenario = |what: &str, matching: Matching| {
            Scenario::new(format!("tunnel in: {name} {what}"))
                .flow(matching.done(), [output(2)])
                .packets(UNDERLAY, frames.clone())
                .packets(UNDERLAY, off.clone())
        };
        all.push(scenario("anything", from_tunnel(port)));
        all.extend(
            fields.iter().map(|(field, value)| scenario(&field.to_string(), from_tunnel(port).is(*field, *value))),
        );
        if port != GRE {
            all.push(scenario("source port", from_tunnel(port).is(Field::TunnelTpSrc, 50000u16)));
            all.push(scenario("target port", from_tunnel(port).masked(Field::TunnelTpDst, 1u8, 1u8)));
        }
        all.push(
            Scenario::new(format!("tunnel in: {name} and a rewritten packet out"))
                .flow(
                    from_tunnel(port).is(Field::TunnelId, 5u8).ipv4(17).done(),
                    [set(&[(Field::Ipv4Ttl, 9, 0xff), (Field::Ipv4Dst, 0x0102_0304, 0xffff_ffff)]), recirc(1)],
                )
                .flow(
                    from_tunnel(port).chain(1).is(Field::TunnelId, 5u8).ipv4(17).is(Field::Ipv4Ttl, 9u8).done(),
                    [output(2)],
                )
                .packets(UNDERLAY, frames.clone()),
        );
    }
    all
}

fn through() -> Vec<Scenario> {
    vec![
        Scenario::new("tunnel through: vxlan to geneve")
            .flow(from_tunnel(VXLAN).is(Field::TunnelId, 5u8).done(), [set_tunnel(&outer(7, KEY, &[])), output(GENEVE)])
            .packets(UNDERLAY, inner().iter().map(|frame| outer_udp(4789, &vxlan(8, 5, frame)))),
    ]
}

/// Options of Geneve, group policies of VXLAN, ERSPAN.
fn more_options() -> Vec<Scenario> {
    const OPTION: [u8; 8] = [0x01, 0x02, 0x80, 0x01, 0xde, 0xad, 0xbe, 0xef];
    let option = u128::from_be_bytes([OPTION, [0; 8]].concat().try_into().unwrap());
    let geneve_options = [(Field::GenevePresent, 1), (Field::GeneveLength, 8), (Field::GeneveOptions0, option)];
    let policy = [(Field::VxlanGbpPresent, 1), (Field::VxlanGbpId, 0x1234), (Field::VxlanGbpFlags, 0x40)];
    let erspan = |version: u128, more: &[(Field, u128)]| {
        outer(5, KEY, &[&[(Field::ErspanPresent, 1), (Field::ErspanVersion, version)], more].concat())
    };
    let frames =
        |options: &[u8]| inner().iter().map(|frame| outer_udp(6081, &geneve(0, 5, options, frame))).collect::<Vec<_>>();
    let mut other = OPTION;
    other[7] ^= 1;
    let in_policy = inner()
        .iter()
        .map(|frame| outer_udp(4790, &[&[0x88, 0x40, 0x12, 0x34, 0, 0, 5, 0], &frame[..]].concat()))
        .collect::<Vec<_>>();
    vec![
        out("geneve with an option", GENEVE, &outer(5, KEY, &geneve_options)),
        Scenario::new("tunnel in: geneve option")
            .flow(from_tunnel(GENEVE).all(&geneve_options).done(), [output(2)])
            .packets(
                UNDERLAY,
                [frames(&OPTION), frames(&other), frames(&[]), frames(&[OPTION, OPTION].concat())].concat(),
            ),
        Scenario::new("tunnel in: geneve options that nobody asks for")
            .flow(from_tunnel(GENEVE).done(), [output(2)])
            .packets(UNDERLAY, [frames(&OPTION), frames(&[])].concat()),
        out("vxlan with a policy", VXLAN_GBP, &outer(5, KEY, &policy)),
        Scenario::new("tunnel in: vxlan policy")
            .flow(from_tunnel(VXLAN_GBP).all(&policy).done(), [output(2)])
            .packets(UNDERLAY, in_policy),
        out("erspan of version 1", ERSPAN, &erspan(1, &[(Field::ErspanIndex, 0x3)])),
        out("erspan of version 2", ERSPAN, &erspan(2, &[(Field::ErspanDirection, 1), (Field::ErspanHardwareId, 4)])),
    ]
}
