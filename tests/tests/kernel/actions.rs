//! Every action and every field that can be set.

use std::sync::Arc;

use sluice_flow::action::{
    Action, EthernetAddresses, HashAlgorithm, MplsEntry, NshHeader, NshMetadata, UserData, Userspace, VlanTag,
};
use sluice_flow::field::Field;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_tests::scenario::Scenario;

use crate::flows::{Matching, at, output, recirc, set};
use crate::packets::{Ipv4, Ipv6, arp, ethernet, icmp, labelled, neighbour, sctp, service, tagged, tcp, udp};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [
        sets(),
        known_to_differ(),
        tags(),
        labels(),
        services(),
        ethernet_headers(),
        lists(),
        chains(),
        lengths(),
        meters(),
        others(),
    ]
    .concat()
}

/// Frames of one kind: whole, cut short behind their headers, with a wrong checksum, without one, as fragments.
struct Kind {
    name: &'static str,
    matching: Matching,
    frames: Vec<Vec<u8>>,
}

fn kinds() -> Vec<Kind> {
    let kind = |name, matching, frames| Kind { name, matching, frames };
    vec![
        kind("tcp", whole(at(1).ipv4(6)), ipv4_frames(6, &tcp(1000, 2000, 0x012, b"some data"), 16)),
        kind("udp", whole(at(1).ipv4(17)), ipv4_frames(17, &udp(1000, 2000, b"some data"), 6)),
        kind("sctp", at(1).ipv4(132).is(Field::Ipv4Frag, 0u8), ipv4_frames(132, &sctp(1000, 2000, b"some data"), 8)),
        kind("icmp", at(1).ipv4(1), ipv4_frames(1, &icmp(8, 0, b"some data"), 2)),
        kind("tcp over ipv6", at(1).ipv6(6), ipv6_frames(6, &tcp(1000, 2000, 0x012, b"some data"), 16)),
        kind("udp over ipv6", at(1).ipv6(17), ipv6_frames(17, &udp(1000, 2000, b"some data"), 6)),
        kind(
            "sctp over ipv6",
            at(1).ipv6(132).is(Field::Ipv6Frag, 0u8),
            ipv6_frames(132, &sctp(1000, 2000, b"some data"), 8),
        ),
        kind("icmpv6", at(1).ipv6(58), ipv6_frames(58, &icmp(128, 0, b"some data"), 2)),
        kind(
            "solicitation",
            at(1).ipv6(58).is(Field::Icmpv6Type, 135u8).is(Field::Icmpv6Code, 0u8),
            ipv6_frames(58, &neighbour(135), 2),
        ),
        kind("arp", at(1).eth_type(0x0806), vec![arp(0x0806, 1), arp(0x0806, 2)]),
    ]
}

/// With a transport header: all but later fragments. Two things are known to differ (see `expected.rs`) and have scenarios
/// of their own: ports of later fragments, and SCTP in a padded frame.
fn whole(matching: Matching) -> Matching {
    matching.masked(Field::Ipv4Frag, 0u8, 2u8)
}

fn known_to_differ() -> Vec<Scenario> {
    let ports = |name: &str, field, matching: Matching, frame| {
        Scenario::new(name).flow(matching.done(), [set(&[(field, 443, 0xffff)]), output(2)]).packet(1, frame)
    };
    let later = Ipv4 { fragment: 0x0003, ..Ipv4::default() };
    let padded = [Ipv4::default().frame(132, &sctp(1000, 2000, b"some data")), vec![0; 9]].concat();
    vec![
        ports("later fragment: set(tcp)", Field::TcpDst, at(1).ipv4(6), later.frame(6, &[7; 40])),
        ports("later fragment: set(udp)", Field::UdpDst, at(1).ipv4(17), later.frame(17, &[7; 40])),
        ports("padded sctp: set(sctp)", Field::SctpDst, at(1).ipv4(132).is(Field::Ipv4Frag, 0u8), padded),
    ]
}

fn ipv4_frames(protocol: u8, payload: &[u8], checksum: usize) -> Vec<Vec<u8>> {
    let ip = Ipv4::default();
    let mut frames = vec![
        ip.frame(protocol, payload),
        Ipv4 { options: vec![1; 12], ..ip.clone() }.frame(protocol, payload),
        Ipv4 { fragment: 0x2000, ..ip.clone() }.frame(protocol, payload),
        Ipv4 { fragment: 0x0003, ..ip.clone() }.frame(protocol, payload),
        Ipv4 { ttl: 1, ..ip.clone() }.frame(protocol, payload),
        Ipv4 { ttl: 0, ..ip.clone() }.frame(protocol, payload),
        Ipv4 { tos: 0x03, ..ip }.frame(protocol, payload),
    ];
    let mut wrong_header = frames[0].clone();
    wrong_header[24] ^= 0x55;
    frames.push(wrong_header);
    vary(&mut frames, 34, checksum, payload.len());
    frames
}

fn ipv6_frames(protocol: u8, payload: &[u8], checksum: usize) -> Vec<Vec<u8>> {
    let ip = Ipv6::default();
    let with = |first, extensions: &[u8]| Ipv6 { extensions: Some((first, extensions.to_vec())), ..ip.clone() };
    let mut frames = vec![
        ip.frame(protocol, payload),
        with(0, &[protocol, 0, 1, 4, 0, 0, 0, 0]).frame(protocol, payload),
        with(44, &[protocol, 0, 0, 1, 0, 0, 0, 7]).frame(protocol, payload),
        // A source route with a station left: the checksum is over the last one.
        with(43, &[[protocol, 2, 2, 1, 0, 0, 0, 0].to_vec(), vec![0xfd; 16]].concat()).frame(protocol, payload),
        Ipv6 { hops: 1, ..ip.clone() }.frame(protocol, payload),
        Ipv6 { hops: 0, ..ip.clone() }.frame(protocol, payload),
        Ipv6 { class: 3, ..ip.clone() }.frame(protocol, payload),
    ];
    vary(&mut frames, 54, checksum, payload.len());
    frames
}

/// Adds the first frame with a wrong checksum, with none, padded, and cut off in and behind its transport header.
fn vary(frames: &mut Vec<Vec<u8>>, transport: usize, checksum: usize, length: usize) {
    let plain = frames[0].clone();
    let at = transport + checksum;
    for value in [[0xbe, 0xef], [0, 0], [0xff, 0xff]] {
        let mut frame = plain.clone();
        frame[at..at + 2].copy_from_slice(&value);
        frames.push(frame);
    }
    let is_sctp = checksum == 8;
    if !is_sctp {
        frames.push([&plain[..], &[0; 9]].concat());
    }
    for cut in [1, length - 8, length - 4, length] {
        frames.push(plain[..plain.len() - cut].to_vec());
    }
}

/// Every settable field, whole and by half of its bits.
fn sets() -> Vec<Scenario> {
    const MAC: u128 = 0x02ab_cdef_0123;
    const V6: u128 = 0x2001_0db8_1111_2222_3333_4444_5555_6666;
    let ethernet: &[(Field, u128)] = &[(Field::EthSrc, MAC), (Field::EthDst, MAC + 1)];
    let ipv4: &[(Field, u128)] =
        &[(Field::Ipv4Src, 0xc0a8_0102), (Field::Ipv4Dst, 0xc0a8_0304), (Field::Ipv4Tos, 0xb8), (Field::Ipv4Ttl, 17)];
    let ipv6: &[(Field, u128)] = &[
        (Field::Ipv6Src, V6),
        (Field::Ipv6Dst, V6 + 1),
        (Field::Ipv6Label, 0xabcde),
        (Field::Ipv6Tclass, 0xb8),
        (Field::Ipv6Hlimit, 17),
    ];
    let arp: &[(Field, u128)] = &[(Field::ArpSip, 0xc0a8_0102), (Field::ArpTha, MAC)];
    let mut all = vec![];
    for kind in kinds() {
        let (network, transport): (_, &[(Field, u128)]) = match kind.name {
            "tcp" => (ipv4, &[(Field::TcpSrc, 40000), (Field::TcpDst, 443)]),
            "udp" => (ipv4, &[(Field::UdpSrc, 40000), (Field::UdpDst, 443)]),
            "sctp" => (ipv4, &[(Field::SctpSrc, 40000), (Field::SctpDst, 443)]),
            "icmp" => (ipv4, &[(Field::IcmpType, 0)]),
            "tcp over ipv6" => (ipv6, &[(Field::TcpSrc, 40000), (Field::TcpDst, 443)]),
            "udp over ipv6" => (ipv6, &[(Field::UdpSrc, 40000), (Field::UdpDst, 443)]),
            "sctp over ipv6" => (ipv6, &[(Field::SctpSrc, 40000), (Field::SctpDst, 443)]),
            "icmpv6" => (ipv6, &[(Field::Icmpv6Type, 129)]),
            "solicitation" => (ipv6, &[(Field::NdTarget, V6), (Field::NdSll, MAC)]),
            _ => (arp, &[]),
        };
        for (field, value) in [ethernet, network, transport].concat() {
            let whole = field.full_mask();
            let half = whole & 0x3333_3333_3333_3333_3333_3333_3333_3333;
            for (what, mask) in [("", whole), ("half of ", half)] {
                all.push(
                    Scenario::new(format!("set {}: {what}{field}", kind.name))
                        .flow(kind.matching.done(), [set(&[(field, value, mask)]), output(2)])
                        .packets(1, kind.frames.clone()),
                );
            }
        }
    }
    all.push(
        Scenario::new("set all of tcp at once, and the first again")
            .flow(
                whole(at(1).ipv4(6)).done(),
                [
                    set(&[(Field::EthSrc, MAC, u128::MAX >> 80), (Field::EthDst, MAC, u128::MAX >> 80)]),
                    set(&[(Field::Ipv4Src, 0x0102_0304, 0xffff_ffff), (Field::Ipv4Ttl, 3, 0xff)]),
                    set(&[(Field::TcpSrc, 1, 0xffff), (Field::TcpDst, 2, 0xffff)]),
                    output(2),
                    set(&[(Field::Ipv4Src, 0x0506_0708, 0xffff_ffff)]),
                    output(3),
                ],
            )
            .packets(1, ipv4_frames(6, &tcp(1000, 2000, 0x012, b"some data"), 16)),
    );
    all.push(
        Scenario::new("set mark and priority, matched in the next chain")
            .flow(
                at(1).ipv4(17).done(),
                [set(&[(Field::SkbMark, 7, 0xffff_ffff)]), set(&[(Field::SkbPriority, 9, 0xff)]), recirc(1)],
            )
            .flow(at(1).chain(1).ipv4(17).is(Field::SkbMark, 7u8).is(Field::SkbPriority, 9u8).done(), [output(2)])
            .packet(1, plain()),
    );
    all
}

fn plain() -> Vec<u8> {
    Ipv4::default().frame(17, &udp(1000, 2000, b"some data"))
}

fn tag(tpid: u16, vid: u16) -> Action {
    Action::PushVlan(VlanTag { tpid, vid, pcp: 5, cfi: true })
}

fn tags() -> Vec<Scenario> {
    let (one, two) = (tagged(0x8100, 0x6123, &plain()), tagged(0x88a8, 0x2456, &tagged(0x8100, 0x6123, &plain())));
    let untagged = at(1).ipv4(17);
    let single = at(1).tag(0x8100).ipv4(17);
    let double = at(1).tag(0x88a8).inner_tag(0x8100).ipv4(17);
    let scenario = |name: &str, matching: Matching, actions: &[Action]| {
        Scenario::new(format!("vlan: {name}"))
            .flow(matching.done(), actions)
            .packets(1, [plain(), one.clone(), two.clone(), tagged(0x8100, 0x7123, &plain())])
    };
    vec![
        scenario("push", untagged, &[tag(0x8100, 5), output(2)]),
        scenario("push 802.1ad", untagged, &[tag(0x88a8, 5), output(2)]),
        scenario("push three", untagged, &[tag(0x8100, 5), tag(0x8100, 6), tag(0x88a8, 7), output(2)]),
        scenario("push on a tag", single, &[tag(0x88a8, 5), output(2)]),
        scenario("push on two tags", double, &[tag(0x88a8, 5), output(2)]),
        scenario("pop", single, &[Action::PopVlan, output(2)]),
        scenario("pop one of two", double, &[Action::PopVlan, output(2)]),
        scenario("pop two of two", double, &[Action::PopVlan, Action::PopVlan, output(2)]),
        scenario("pop of none", untagged, &[Action::PopVlan, output(2)]),
        scenario("push and pop", untagged, &[tag(0x8100, 5), output(3), Action::PopVlan, output(2)]),
        scenario("pop and push", single, &[Action::PopVlan, tag(0x8100, 5), output(2)]),
        scenario(
            "rewrite behind a tag",
            single,
            &[set(&[(Field::Ipv4Ttl, 9, 0xff)]), set(&[(Field::UdpSrc, 9, 0xffff)]), output(2)],
        ),
        Scenario::new("vlan: pushed, matched in the next chain")
            .flow(untagged.done(), [tag(0x8100, 5), recirc(1)])
            .flow(single.chain(1).is(Field::VlanVid, 5u8).done(), [output(2)])
            .packet(1, plain()),
    ]
}

fn entry(label: u32, bos: bool) -> MplsEntry {
    MplsEntry { label, tc: 3, ttl: 99, bos, eth_type: 0x8847 }
}

fn labels() -> Vec<Scenario> {
    let ip = at(1).ipv4(17);
    let mpls = at(1).eth_type(0x8847);
    let stack = [labelled(&[(100, 5, 63)]), labelled(&[(100, 5, 63), (200, 2, 62)])];
    let scenario = |name: &str, matching: Matching, actions: &[Action]| {
        Scenario::new(format!("mpls: {name}"))
            .flow(matching.done(), actions)
            .packet(1, plain())
            .packets(1, stack.clone())
    };
    vec![
        scenario("push", ip, &[Action::PushMpls(entry(5, true)), output(2)]),
        scenario("push two", ip, &[Action::PushMpls(entry(5, true)), Action::PushMpls(entry(6, false)), output(2)]),
        scenario("push on a stack", mpls, &[Action::PushMpls(entry(5, false)), output(2)]),
        scenario("pop to ipv4", mpls.is(Field::MplsBos, 1u8), &[Action::PopMpls(0x0800), output(2)]),
        scenario("pop to mpls", mpls.is(Field::MplsBos, 0u8), &[Action::PopMpls(0x8847), output(2)]),
        scenario("add in front of all", ip, &[Action::AddMpls(entry(5, true)), output(2)]),
        scenario(
            "add in front of all, and an ethernet header",
            ip,
            &[
                Action::AddMpls(entry(5, true)),
                Action::PushEth(EthernetAddresses { source: 0x0200_0000_0001, destination: 0x0200_0000_0002 }),
                output(2),
            ],
        ),
        scenario("set", mpls, &[set(&[(Field::MplsLabel, 77, 0xfffff), (Field::MplsTtl, 5, 0xff)]), output(2)]),
        scenario("set the class only", mpls, &[set(&[(Field::MplsTc, 2, 7)]), output(2)]),
        Scenario::new("mpls: popped, matched in the next chain")
            .flow(mpls.is(Field::MplsBos, 1u8).done(), [Action::PopMpls(0x0800), recirc(1)])
            .flow(ip.chain(1).is(Field::UdpDst, 2000u16).done(), [set(&[(Field::UdpDst, 1, 0xffff)]), output(2)])
            .packets(1, stack.clone()),
    ]
}

fn services() -> Vec<Scenario> {
    let nsh = at(1).eth_type(0x894f);
    let header = |metadata| {
        Action::PushNsh(Box::new(NshHeader {
            flags: 0,
            ttl: 63,
            next_protocol: 3,
            path: 0x0a_0b0c,
            index: 9,
            metadata,
        }))
    };
    let mac = EthernetAddresses { source: 0x0200_0000_0001, destination: 0x0200_0000_0002 };
    let scenario = |name: &str, matching: Matching, actions: &[Action]| {
        Scenario::new(format!("nsh: {name}"))
            .flow(matching.done(), actions)
            .packets(1, [plain(), service(0x01_0203, 4, [1, 2, 3, 4])])
    };
    let contexts = || header(NshMetadata::Contexts([1, 2, 3, 4]));
    vec![
        scenario("push and ethernet", at(1).ipv4(17), &[contexts(), Action::PushEth(mac), output(2)]),
        scenario(
            "push type 2",
            at(1).ipv4(17),
            &[header(NshMetadata::Tlvs([1, 2, 3, 4, 5, 6, 7, 8].into())), Action::PushEth(mac), output(2)],
        ),
        scenario("pop", nsh.is(Field::NshNextProto, 3u8), &[Action::PopEth, Action::PopNsh, recirc(1)]),
        scenario("set", nsh, &[set(&[(Field::NshTtl, 5, 0x3f), (Field::NshPathId, 7, 0xff_ffff)]), output(2)]),
        scenario("set a context", nsh, &[set(&[(Field::NshContext2, 7, 0xffff_ffff)]), output(2)]),
        Scenario::new("nsh: popped, matched in the next chain")
            .flow(nsh.is(Field::NshNextProto, 3u8).done(), [Action::PopEth, Action::PopNsh, recirc(1)])
            .flow(at(1).chain(1).ipv4(17).done(), [output(2)])
            .packet(1, service(0x01_0203, 4, [1, 2, 3, 4])),
    ]
}

fn ethernet_headers() -> Vec<Scenario> {
    let mac = EthernetAddresses { source: 0x0200_0000_0001, destination: 0x0200_0000_0002 };
    let ip = at(1).ipv4(17);
    vec![
        Scenario::new("eth: pop and push")
            .flow(ip.done(), [Action::PopEth, Action::PushEth(mac), output(2)])
            .packet(1, plain()),
        Scenario::new("eth: popped, matched in the next chain")
            .flow(ip.done(), [Action::PopEth, recirc(1)])
            .flow(
                ip.chain(1).is(Field::PacketTypeNs, 1u8).is(Field::PacketTypeId, 0x0800u16).done(),
                [set(&[(Field::Ipv4Ttl, 7, 0xff)]), Action::PushEth(mac), output(2)],
            )
            .packet(1, plain()),
        Scenario::new("eth: a packet without goes nowhere")
            .flow(ip.done(), [Action::PopEth, output(2)])
            .packet(1, plain()),
        Scenario::new("eth: pop with a tag")
            .flow(at(1).tag(0x8100).ipv4(17).done(), [Action::PopEth, Action::PushEth(mac), output(2)])
            .packet(1, tagged(0x8100, 0x6123, &plain())),
    ]
}

fn ttl(value: u128) -> Action {
    set(&[(Field::Ipv4Ttl, value, 0xff)])
}

fn list(actions: &[Action]) -> Arc<[Action]> {
    actions.into()
}

/// Lists within actions: what they do to the packet is not seen behind them.
fn lists() -> Vec<Scenario> {
    let ip = at(1).ipv4(17);
    let sample = |probability, actions: &[Action]| Action::Sample { probability, actions: list(actions) };
    let scenario = |name: &str, actions: &[Action]| {
        Scenario::new(format!("lists: {name}"))
            .flow(ip.done(), actions)
            .packets(1, ipv4_frames(17, &udp(1000, 2000, b"some data"), 6))
    };
    vec![
        scenario("drop", &[]),
        scenario("copies at several states", &[output(2), ttl(5), output(3), tag(0x8100, 9), output(4), output(2)]),
        scenario("back to where it came from", &[output(1)]),
        scenario("clone", &[Action::Clone(list(&[ttl(5), output(2)])), output(3)]),
        scenario("clone at the end", &[ttl(4), Action::Clone(list(&[tag(0x8100, 9), output(2)]))]),
        scenario(
            "clone in a clone",
            &[Action::Clone(list(&[ttl(5), Action::Clone(list(&[ttl(6), output(2)])), output(3)])), output(4)],
        ),
        scenario("sample all", &[sample(u32::MAX, &[ttl(5), output(2)]), output(3)]),
        scenario("sample none", &[sample(0, &[ttl(5), output(2)]), output(3)]),
        scenario("sample all at the end", &[sample(u32::MAX, &[ttl(5), output(2)])]),
        scenario("sample with a tag", &[sample(u32::MAX, &[tag(0x8100, 9), output(2)]), output(3)]),
        scenario("clone with a recirc", &[Action::Clone(list(&[ttl(5), recirc(1)])), output(3)])
            .flow(ip.chain(1).done(), [output(2)]),
        scenario("dec_ttl", &[Action::DecTtl(list(&[output(4)])), output(2)]),
        scenario("dec_ttl and drop", &[Action::DecTtl(list(&[])), output(2)]),
        scenario("dec_ttl of ipv6", &[Action::DecTtl(list(&[output(4)])), output(2)])
            .flow(at(1).ipv6(17).done(), [Action::DecTtl(list(&[output(4)])), output(2)])
            .packets(1, ipv6_frames(17, &udp(1000, 2000, b"some data"), 6)),
    ]
}

fn chains() -> Vec<Scenario> {
    let ip = whole(at(1).ipv4(17));
    vec![
        Scenario::new("recirc: three chains, each rewrites")
            .flow(ip.done(), [ttl(10), recirc(1)])
            .flow(ip.chain(1).is(Field::Ipv4Ttl, 10u8).done(), [ttl(11), set(&[(Field::UdpDst, 5, 0xffff)]), recirc(2)])
            .flow(ip.chain(2).is(Field::UdpDst, 5u8).done(), [output(2)])
            .packets(1, ipv4_frames(17, &udp(1000, 2000, b"some data"), 6)),
        Scenario::new("recirc: a miss in the second chain")
            .flow(ip.done(), [recirc(1)])
            .flow(ip.chain(1).is(Field::UdpDst, 5u8).done(), [output(2)])
            .packets(1, [plain(), Ipv4::default().frame(17, &udp(1, 5, b""))]),
        Scenario::new("recirc: in the middle")
            .flow(ip.done(), [recirc(1), ttl(3), output(3), recirc(2), output(4)])
            .flow(ip.chain(1).done(), [ttl(9), output(2)])
            .flow(ip.chain(2).done(), [tag(0x8100, 7), output(2)])
            .packet(1, plain()),
        Scenario::new("hash: a chain that does not look at it")
            .flow(ip.done(), [Action::Hash { algorithm: HashAlgorithm::L4, basis: 3 }, recirc(1)])
            .flow(ip.chain(1).done(), [output(2)])
            .packet(1, plain()),
        // The value is for each to choose, but it is not 0: one half of the packets must come out here or there.
        Scenario::new("hash: symmetric")
            .flow(ip.done(), [Action::Hash { algorithm: HashAlgorithm::SymmetricL4, basis: 3 }, recirc(1)])
            .flow(ip.chain(1).done(), [output(2)])
            .packet(1, plain()),
    ]
}

/// What depends on the length of the packet.
fn lengths() -> Vec<Scenario> {
    let any = at(1).eth_type(0x88b5);
    let frames =
        || [14, 15, 60, 63, 64, 65, 100, 101, 102, 1000, 1514].map(|length| ethernet(0x88b5, &vec![7; length - 14]));
    let check = |length| Action::CheckPacketLength {
        length,
        greater: list(&[tag(0x8100, 9), output(2)]),
        less_or_equal: list(&[output(3)]),
    };
    let scenario = |name: &str, actions: &[Action]| {
        Scenario::new(format!("length: {name}")).flow(any.done(), actions).packets(1, frames())
    };
    vec![
        scenario("trunc to 64", &[Action::Trunc(64), output(2), output(3)]),
        scenario("trunc to 14", &[Action::Trunc(14), output(2)]),
        scenario("trunc to 13", &[Action::Trunc(13), output(2)]),
        scenario("trunc twice", &[Action::Trunc(100), Action::Trunc(60), output(2)]),
        scenario("trunc and a tag", &[Action::Trunc(60), tag(0x8100, 9), output(2)]),
        scenario("trunc and nothing", &[Action::Trunc(60)]),
        scenario("trunc and a recirc", &[Action::Trunc(60), recirc(1)]).flow(any.chain(1).done(), [output(2)]),
        scenario("trunc in a clone", &[Action::Clone(list(&[Action::Trunc(60), output(2)])), output(3)]),
        scenario("trunc before a clone", &[Action::Trunc(60), Action::Clone(list(&[output(2)])), output(3)]),
        scenario("check_pkt_len", &[check(100), output(4)]),
        scenario("check_pkt_len at the end", &[check(64)]),
        scenario("check_pkt_len with a tag", &[tag(0x8100, 8), check(68), output(4)]),
        scenario(
            "check_pkt_len that drops",
            &[
                Action::CheckPacketLength { length: 64, greater: list(&[]), less_or_equal: list(&[output(3)]) },
                output(4),
            ],
        ),
        scenario(
            "check_pkt_len with a recirc",
            &[Action::CheckPacketLength { length: 64, greater: list(&[recirc(1)]), less_or_equal: list(&[output(3)]) }],
        )
        .flow(any.chain(1).done(), [output(2)]),
    ]
}

fn meters() -> Vec<Scenario> {
    let any = at(1).eth_type(0x88b5);
    let meter = |unit, rate, burst| Meter::simple(MeterId(1), unit, rate, burst);
    let scenario = |name: &str, meter: Meter| {
        Scenario::new(format!("meter: {name}"))
            .meter(meter)
            .flow(any.done(), [Action::Meter(MeterId(1)), output(2)])
            .packets(1, vec![ethernet(0x88b5, &[7; 1000]); 8])
    };
    vec![
        scenario("lets all pass", meter(MeterUnit::Packets, 100_000, 100_000)),
        scenario("stops the fourth packet", meter(MeterUnit::Packets, 1, 2)),
        scenario("stops by bytes", meter(MeterUnit::Kilobits, 1, 20)),
        Scenario::new("meter: one that is not there")
            .flow(any.done(), [Action::Meter(MeterId(5)), output(2)])
            .packet(1, ethernet(0x88b5, &[7; 100])),
    ]
}

/// A netlink port at which nobody listens.
const NOBODY: u32 = 0x7eee_eeee;

fn others() -> Vec<Scenario> {
    let ip = at(1).ipv4(17);
    let userspace =
        |pid, data, actions| Action::Userspace(Box::new(Userspace { pid, data, actions, tunnel_port: None }));
    let note = Some(UserData::Bytes([1, 2, 3].into()));
    vec![
        Scenario::new("userspace: and out")
            .flow(ip.done(), [userspace(NOBODY, None, false), output(2)])
            .packet(1, plain()),
        Scenario::new("userspace: with a note and actions")
            .flow(ip.done(), [userspace(NOBODY, note.clone(), true), output(2)])
            .packet(1, plain()),
        Scenario::new("userspace: after trunc")
            .flow(ip.done(), [Action::Trunc(60), userspace(NOBODY, note, false), output(2)])
            .packet(1, plain()),
        Scenario::new("output to a port that is not there").flow(ip.done(), [output(77), output(2)]).packet(1, plain()),
        Scenario::new("two flows, one out of each port")
            .flow(ip.is(Field::UdpDst, 2000u16).done(), [output(2)])
            .flow(ip.is(Field::UdpDst, 2001u16).done(), [output(3)])
            .flow(at(2).ipv4(17).done(), [output(1)])
            .packets(1, [plain(), Ipv4::default().frame(17, &udp(1000, 2001, b""))])
            .packet(2, plain()),
    ]
}
