//! The text grammar, read.
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

use std::time::Duration;

use sluice_flow::action::{Action, FieldSet, VlanTag};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::meter::MeterId;
use sluice_flow::port::{Port, PortKind, PortMap, PortNumber};
use sluice_flow::text::{FlowLine, Offloaded, Statistics, parse_actions, parse_key, parse_line};

fn ports() -> PortMap {
    let mut ports = PortMap::default();
    for (number, name) in [(1, "p1"), (2, "p2"), (3, "enp3s0f0np0"), (4, "10g0"), (5, "vxlan_sys_4789")] {
        ports
            .insert(Port { number: PortNumber(number), name: name.parse().unwrap(), kind: PortKind::Physical })
            .unwrap();
    }
    ports
}

/// A match with the recirculation id at its default and these fields.
fn matching(fields: &[(Field, u128, u128)]) -> Match {
    let mut full = Match::default();
    full.set_exact(Field::RecircId, 0);
    for (field, value, mask) in fields {
        full.set(*field, *value, *mask);
    }
    full
}

fn key(text: &str) -> Match {
    match parse_key(text, &ports()) {
        Ok(key) => key.matching,
        Err(error) => panic!("{}", error.caret(text)),
    }
}

fn key_error(text: &str) -> String {
    parse_key(text, &ports()).unwrap_err().to_string()
}

fn actions(text: &str) -> Vec<Action> {
    match parse_actions(text, &ports()) {
        Ok(actions) => actions.to_vec(),
        Err(error) => panic!("{}", error.caret(text)),
    }
}

fn action_error(text: &str) -> String {
    parse_actions(text, &ports()).unwrap_err().to_string()
}

fn line(text: &str) -> FlowLine {
    match parse_line(text, &ports()) {
        Ok(line) => line,
        Err(error) => panic!("{}", error.caret(text)),
    }
}

const ALL16: u128 = 0xffff;
const ALL32: u128 = 0xffff_ffff;

#[test]
fn what_is_not_named_is_not_matched_except_the_recirculation_id() {
    assert_eq!(key(""), matching(&[]));
    assert_eq!(key("eth(),in_port(1)"), matching(&[(Field::InPort, 1, ALL32)]));
    let wild = "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),\
                dp_hash(0/0),packet_type(ns=0/0,id=0/0),eth(src=00:00:00:00:00:00/00:00:00:00:00:00),ipv4(),\
                tcp(src=0/0,dst=0/0),tcp_flags(0/0),ct_tuple4(src=0.0.0.0/0.0.0.0,proto=0/0),nd_ext(),\
                eth_type(0/0),mpls()";
    assert_eq!(key(wild), matching(&[]));
}

#[test]
fn an_exact_ethernet_type_without_a_tag_matches_untagged_packets_only() {
    let full = key("in_port(2),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,proto=6,frag=no),tcp(dst=80/0xfff0)");
    let expected = matching(&[
        (Field::InPort, 2, ALL32),
        (Field::VlanPresent, 0, 1),
        (Field::EthType, 0x0800, ALL16),
        (Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000),
        (Field::Ipv4Proto, 6, 0xff),
        (Field::Ipv4Frag, 0, 0xff),
        (Field::TcpDst, 80, 0xfff0),
    ]);
    assert_eq!(full, expected);
}

#[test]
fn vlan_levels_go_outer_inner_and_the_ethernet_type_is_that_of_the_payload() {
    let one = key("eth_type(0x8100),vlan(vid=10,pcp=0),encap(eth_type(0x0800),ipv4(tos=0x10))");
    let expected = [
        (Field::VlanPresent, 1, 1),
        (Field::VlanTpid, 0x8100, ALL16),
        (Field::VlanVid, 10, 0xfff),
        (Field::VlanPcp, 0, 7),
        (Field::VlanCfi, 1, 1),
        (Field::CvlanPresent, 0, 1),
        (Field::EthType, 0x0800, ALL16),
        (Field::Ipv4Tos, 0x10, 0xff),
    ];
    assert_eq!(one, matching(&expected));
    let two = key("encap(encap(eth_type(0x0806)),vlan(vid=0/0,pcp=0/0),eth_type(0x8100)),vlan(),eth_type(0x88a8)");
    let expected = [
        (Field::VlanPresent, 1, 1),
        (Field::VlanTpid, 0x88a8, ALL16),
        (Field::CvlanPresent, 1, 1),
        (Field::CvlanTpid, 0x8100, ALL16),
        (Field::EthType, 0x0806, ALL16),
    ];
    assert_eq!(two, matching(&expected));
    assert_eq!(key("vlan(pcp=3,cfi=0)").mask.get(Field::VlanCfi), 1);
    assert_eq!(key("vlan(pcp=3,cfi=0)").key.get(Field::VlanCfi), 0);
    assert_eq!(key("vlan(cfi=0/0,vid=3)").mask.get(Field::VlanCfi), 0);
}

#[test]
fn vlan_levels_that_make_no_sense_are_refused() {
    for (text, expected) in [
        ("eth_type(0x8100)", "at byte 0: expected vlan() beside the eth_type of a VLAN tag"),
        ("eth_type(0x0800),vlan()", "at byte 0: expected eth_type(0x8100) or eth_type(0x88a8) beside vlan()"),
        ("eth_type(0x8100),encap()", "at byte 17: expected vlan() beside encap()"),
        ("vlan(),encap(vlan(),encap(vlan()))", "at byte 26: expected at most two VLAN tags"),
        ("vlan(),encap(vlan(),encap(encap()))", "at byte 26: expected at most two VLAN tags"),
        ("vlan(),encap(vlan(),encap(eth_type(0x8100)))", "at byte 26: expected at most two VLAN tags"),
        ("vlan(),encap(in_port(1))", "at byte 13: expected in_port() outside of encap()"),
        ("vlan(),encap(eth_type(0x0800)),ipv4(tos=1)", "at byte 31: expected ipv4() inside of encap()"),
        ("vlan(),encap(eth_type(0x0800)", "at byte 29: expected \")\" for encap("),
        ("vlan(),encap(),encap()", "at byte 15: expected each attribute once: encap() is here twice"),
        ("vlan(),encap(vlan(),vlan())", "at byte 20: expected each attribute once: vlan() is here twice"),
        ("vlan(tpid=0x8100)", "at byte 5: expected a field of vlan(): vid, pcp, cfi"),
        ("cvlan(vid=1)", "at byte 0: expected a key attribute such as eth_type(0x0800): \"cvlan\" is none"),
    ] {
        assert_eq!(key_error(text), expected, "{text}");
    }
}

#[test]
fn flags_have_an_exact_a_masked_and_a_numeric_form() {
    let ct_state = |text: &str| {
        let full = key(&format!("ct_state({text})"));
        (full.key.get(Field::CtState), full.mask.get(Field::CtState))
    };
    assert_eq!(ct_state("new|trk"), (0x21, 0xff));
    assert_eq!(ct_state("0"), (0, 0xff));
    assert_eq!(ct_state("0x21"), (0x21, 0xff));
    assert_eq!(ct_state("+est-new+trk"), (0x22, 0x23));
    assert_eq!(ct_state("0x2/0x3f"), (2, 0x3f));
    assert_eq!(ct_state("0/0"), (0, 0));
    let tunnel = key("tunnel(flags(-df-csum+key))");
    assert_eq!((tunnel.key.get(Field::TunnelFlags), tunnel.mask.get(Field::TunnelFlags)), (4, 7));
    let tunnel = key("tunnel(flags(df|key))");
    assert_eq!((tunnel.key.get(Field::TunnelFlags), tunnel.mask.get(Field::TunnelFlags)), (5, 15));
    assert_eq!(key_error("ct_state(+new+new)"), "at byte 13: expected each flag once");
    assert_eq!(key_error("ct_state(+old)"), "at byte 10: expected a flag: new, est, rel, rpl, inv, trk, snat, dnat");
    assert_eq!(key_error("tcp_flags(0/0xffff)"), "at byte 12: expected a number up to 4095 (0xfff)");
}

#[test]
fn a_tunnel_is_present_when_it_is_named() {
    let full = key("tunnel(tun_id=0x2a,src=1.1.1.1,dst=2.2.2.0/24,ttl=64,tp_dst=4789)");
    let expected = [
        (Field::TunnelPresent, 1, 1),
        (Field::TunnelId, 0x2a, u128::from(u64::MAX)),
        (Field::TunnelIpv4Src, 0x0101_0101, ALL32),
        (Field::TunnelIpv4Dst, 0x0202_0200, 0xffff_ff00),
        (Field::TunnelTtl, 64, 0xff),
        (Field::TunnelTpDst, 4789, ALL16),
    ];
    assert_eq!(full, matching(&expected));
    assert_eq!(key("tunnel()"), matching(&[(Field::TunnelPresent, 1, 1)]));
}

#[test]
fn what_is_not_known_must_match_nothing() {
    assert_eq!(key("key32(00 01/00 00),in_port(1)"), matching(&[(Field::InPort, 1, ALL32)]));
    assert_eq!(key("tunnel(key17(0x1/0))"), matching(&[(Field::TunnelPresent, 1, 1)]));
    for text in ["key32(00 00/00 01)", "key32(00 00)", "key32()", "key32(00/)"] {
        assert_eq!(key_error(text), "at byte 0: expected a mask of zero, as key32() is not known", "{text}");
    }
    assert_eq!(key_error("key32(00"), "at byte 8: expected \")\" for the \"(\" at byte 5");
    assert!(key_error("key(00/00)").ends_with("\"key\" is none"));
}

#[test]
fn levels_and_attributes_have_limits() {
    let nested = format!("{}{}", "encap(".repeat(33), ")".repeat(33));
    assert_eq!(key_error(&nested), "at byte 12: expected at most two VLAN tags");
    let many = "encap(),".repeat(16_384);
    assert_eq!(key_error(&many), "at byte 8: expected each attribute once: encap() is here twice");
}

#[test]
fn an_attribute_needs_its_lower_layers() {
    for (text, expected) in [
        (
            "eth_type(0x0800),tcp(dst=1)",
            "at byte 17: expected other fields, too: tcp() needs ipv4(proto=6) or ipv6(proto=6)",
        ),
        ("tcp(dst=1),ipv4(proto=6)", "at byte 11: expected other fields, too: ipv4() needs eth_type(0x0800)"),
        ("arp(op=1)", "at byte 0: expected other fields, too: arp() needs eth_type(0x0806) or eth_type(0x8035)"),
        ("eth_type(0x86dd),ipv6(proto=1),icmp(type=8)", "icmp() needs ipv4(proto=1)"),
        ("eth_type(0x86dd/0xff00),ipv6(hlimit=1)", "ipv6() needs eth_type(0x86dd)"),
    ] {
        assert!(key_error(text).ends_with(expected), "{text}: {}", key_error(text));
    }
    key("eth_type(0x86dd),ipv6(proto=58),icmpv6(type=135),nd(target=fe80::1,sll=1:2:3:4:5:6)");
}

#[test]
fn wild_fields_do_not_wipe_out_those_that_share_their_place() {
    let text = "eth_type(0x0800),ipv4(src=1.2.3.4,proto=6),tcp(src=80),udp(src=0/0),arp(sip=0.0.0.0/0.0.0.0)";
    let full = key(text);
    assert!(full.is_exactly(Field::TcpSrc, 80));
    assert!(full.is_exactly(Field::Ipv4Src, 0x0102_0304));
}

#[test]
fn wrong_values_are_pointed_at() {
    for (text, expected) in [
        ("eth(src=aa:bb:cc:dd:ee)", "at byte 8: expected an Ethernet address"),
        ("ipv4(src=1.2.3)", "at byte 9: expected an IPv4 address"),
        ("ipv4(src=1.2.3.4/33)", "at byte 17: expected a number up to 32 (0x20)"),
        ("ipv6(dst=fe80::z)", "at byte 15: expected \",\" or \")\""),
        ("vlan(vid=5000)", "at byte 9: expected a number up to 4095 (0xfff)"),
        ("tcp(src=010)", "at byte 8: expected a number without leading zeros (OVS takes it for octal)"),
        ("tcp(src=1/0x1ffff)", "at byte 10: expected a number up to 65535 (0xffff)"),
        ("ipv4(frag=yes)", "at byte 10: expected no, first or later"),
        ("ipv4(frag=no/1)", "at byte 12: expected no mask: frag has none"),
        ("recirc_id(1/0xff)", "at byte 10: expected no mask: recirc_id must be exact"),
        ("in_port(1/0xff)", "at byte 8: expected no mask: in_port must be exact"),
        ("in_port(p9)", "at byte 8: expected a port: there is none called \"p9\""),
        ("in_port()", "at byte 8: expected a port's number or name"),
        ("eth(src=1:2:3:4:5:6,src=1:2:3:4:5:6)", "at byte 20: expected each field once: src is here twice"),
        ("eth(),eth()", "at byte 6: expected each attribute once: eth() is here twice"),
        ("ct_label(0x100000000000000000000000000000000)", "at byte 9: expected a number of at most 128 bits"),
        ("ufid:123 in_port(1)", "at byte 5: expected a UUID: 8-4-4-4-12 hexadecimal digits"),
    ] {
        assert_eq!(key_error(text), expected, "{text}");
    }
}

#[test]
fn ports_may_have_names() {
    assert!(key("in_port(p2)").is_exactly(Field::InPort, 2));
    assert!(key("in_port(10g0)").is_exactly(Field::InPort, 4));
    let expected: Vec<_> = [3, 5, 7, 4].map(|number| Action::Output(PortNumber(number))).into();
    assert_eq!(actions("enp3s0f0np0,vxlan_sys_4789,7,10g0"), expected);
    assert_eq!(action_error("1,bad"), "at byte 2: expected an action or a port: \"bad\" is neither");
}

#[test]
fn actions_of_the_core_are_typed() {
    let text = "push_vlan(tpid=0x88a8,vid=100,pcp=5,cfi=0),pop_vlan,recirc(0x10),recirc(16),meter(3),trunc(100),\
                set(ipv4(src=1.1.1.1,ttl=0/0,tos=0x3/0x3)),set(tunnel(tun_id=0x5,flags(df|key))),set(skb_mark(0x1/0x1))";
    let expected = vec![
        Action::PushVlan(VlanTag { tpid: 0x88a8, vid: 100, pcp: 5, cfi: false }),
        Action::PopVlan,
        Action::Recirc(ChainId(16)),
        Action::Recirc(ChainId(16)),
        Action::Meter(MeterId(3)),
        Action::Trunc(100),
        Action::Set(FieldSet {
            attribute: Attribute::Ipv4,
            fields: [(Field::Ipv4Src, 0x0101_0101, ALL32), (Field::Ipv4Tos, 3, 3)].into(),
        }),
        Action::SetTunnel(FieldSet {
            attribute: Attribute::Tunnel,
            fields: [(Field::TunnelId, 5, u128::from(u64::MAX)), (Field::TunnelFlags, 5, 15)].into(),
        }),
        Action::Set(FieldSet { attribute: Attribute::SkbMark, fields: [(Field::SkbMark, 1, 1)].into() }),
    ];
    assert_eq!(actions(text), expected);
    assert_eq!(actions(""), []);
    assert_eq!(actions("drop"), []);
    assert_eq!(actions("1,drop"), actions("1"));
}

#[test]
fn wrong_actions_are_pointed_at() {
    for (text, expected) in [
        ("drop,1", "at byte 0: expected drop at the end: nothing behind it is done"),
        ("clone(2,drop,1)", "at byte 8: expected drop at the end: nothing behind it is done"),
        ("set(eth())", "at byte 4: expected at least one field to set in eth()"),
        ("set(ipv4(tos=1/0))", "at byte 4: expected at least one field to set in ipv4()"),
        ("set(vlan(vid=1))", "at byte 4: expected something that can be set: \"vlan\" cannot, in this version"),
        (
            "set(mpls(label=1,label=2))",
            "at byte 17: expected one label stack entry: set(mpls()) rewrites the outermost",
        ),
        ("set(tunnel(vxlan(gbp(id=1/0xf))))", "at byte 24: expected no mask: set(tunnel()) sets whole fields"),
        ("set(tunnel(erspan(idx=1)))", "at byte 18: expected no mask: set(tunnel()) sets whole fields"),
        (
            "set(tunnel(geneve({class=1,type=1/1,len=0})))",
            "at byte 18: expected no mask: set(tunnel()) sets whole fields",
        ),
        ("set(tunnel(src=1.1.1.0/24))", "at byte 15: expected no mask: set(tunnel()) sets whole fields"),
        ("push_vlan(pcp=1)", "at byte 15: expected vid in push_vlan()"),
        ("pop_vlan()", "at byte 8: expected \",\" between actions"),
        ("output(1)", "at byte 0: expected an action or a port: \"output\" is neither"),
        ("recirc(4294967296)", "at byte 7: expected a number up to 4294967295 (0xffffffff)"),
        (")", "at byte 0: expected an action"),
    ] {
        assert_eq!(action_error(text), expected, "{text}");
    }
}

#[test]
fn a_line_of_dump_flows_is_read_as_it_is() {
    let text = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no), packets:2, bytes:128, \
                used:0.710s, flags:SFP., actions:2";
    let flow = line(text);
    let expected = Statistics { packets: 2, bytes: 128, used: Some(Duration::from_millis(710)), tcp_flags: 0b1_1011 };
    assert_eq!(flow.statistics, expected);
    assert_eq!(flow.actions[..], [Action::Output(PortNumber(2))]);
    assert!(flow.matching.is_exactly(Field::PacketTypeNs, 0));
    assert_eq!((flow.ufid, flow.offloaded, flow.layer), (None, None, None));
}

#[test]
fn a_line_of_dump_flows_with_more_is_read_as_it_is() {
    let text = "ufid:01234567-89ab-4def-8123-456789abcdef, skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),\
                ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),in_port(p1),packet_type(ns=0/0,id=0/0),\
                eth(src=aa:aa:aa:aa:aa:aa,dst=bb:bb:bb:bb:bb:bb),eth_type(0x0800),\
                ipv4(src=1.2.3.4/0.0.0.0,dst=10.0.0.2/255.255.255.0,proto=6,tos=0/0,ttl=0/0,frag=no),\
                tcp(src=0/0,dst=80), packets:0, bytes:0, used:never, offloaded:yes, dp:tc, actions:p2, \
                dp-extra-info:miniflow_bits(4,3)";
    let flow = line(text);
    assert_eq!(flow.ufid.unwrap().to_string(), "01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(flow.matching.key.get(Field::Ipv4Dst), 0x0a00_0000, "bits outside the mask do not count");
    assert_eq!((flow.offloaded, flow.layer.as_deref()), (Some(Offloaded::Yes), Some("tc")));
    assert_eq!(flow.statistics, Statistics::default());
    assert_eq!(flow.extra.other.as_deref(), Some("miniflow_bits(4,3)"));
}

#[test]
fn our_words_of_the_extra_information_are_understood() {
    let extra = |text: &str| parse_line(&format!("in_port(1), actions:1, dp-extra-info:{text}"), &());
    let text =
        "priority[3],idle_timeout[60.5],hard_timeout[10],permanent,refused(kernel: no, really (errno 22)),a(1,2)";
    let read = extra(text).unwrap().extra;
    assert_eq!(read.priority.get(), 3);
    assert_eq!(read.expiry.idle, Some(Duration::from_millis(60_500)));
    assert_eq!(read.expiry.hard, Some(Duration::from_secs(10)));
    assert!(read.expiry.permanent);
    assert_eq!(read.other.as_deref(), Some("refused(kernel: no, really (errno 22)),a(1,2)"));
    assert_eq!(extra("priority[16]").unwrap_err().to_string(), "at byte 46: expected a number up to 15 (0xf)");
    assert!(extra("permanent,permanent").unwrap_err().to_string().ends_with("each word of dp-extra-info once"));
    assert!(extra("idle_timeout[1.2345678901]").is_err());
}

#[test]
fn a_control_character_in_the_extra_information_is_refused_since_none_is_written() {
    let read = |text: &str| parse_line(&format!("in_port(1), actions:1, dp-extra-info:{text}"), &());
    for text in ["a\u{1}b", "permanent,\u{b},b", "refused[\u{7f}]", "a\u{85}b"] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.ends_with("no control character in here"), "{text:?}: {error}");
    }
    assert_eq!(read("a b, c\r\n").unwrap().extra.other.as_deref(), Some("a b,c"), "a line may have its end");
}

#[test]
fn blanks_that_separate_nothing_stay_in_the_extra_information() {
    let read =
        |text: &str| parse_line(&format!("in_port(1), actions:1, dp-extra-info:{text}"), &()).unwrap().extra.other;
    for text in ["a,\u{a0},b", "\u{3000}", "a\u{2003},b"] {
        assert_eq!(read(text).as_deref(), Some(text));
    }
}

#[test]
fn a_key_and_actions_are_split_at_the_blank() {
    let flow = line("in_port(1), eth_type(0x0800),\tipv4(tos=1) set(eth(src=1:2:3:4:5:6)), 2\n");
    assert!(flow.matching.is_exactly(Field::Ipv4Tos, 1));
    assert_eq!(flow.actions.len(), 2);
    assert_eq!(line("in_port(1), 2").actions[..], [Action::Output(PortNumber(2))]);
    assert_eq!(line("in_port(1) drop").actions[..], []);
    for (text, expected) in [
        ("in_port(1)", "at byte 10: expected actions after the key"),
        ("in_prot(1) 2", "at byte 0: expected a key attribute such as eth_type(0x0800): \"in_prot\" is none"),
        ("in_port(1),eht() 2", "at byte 11: expected a key attribute such as eth_type(0x0800): \"eht\" is none"),
        ("in_port(1), eht() 2", "at byte 12: expected a key attribute such as eth_type(0x0800): \"eht\" is none"),
        ("in_port(1) output:2", "at byte 11: expected an action or a port: \"output:2\" is neither"),
        (
            "in_port(1), packets:1, byte:2",
            "at byte 23: expected one of packets:, bytes:, used:, flags:, offloaded:, dp:, actions:",
        ),
        ("in_port(1), used:1, actions:1", "at byte 18: expected \"s\""),
    ] {
        assert_eq!(parse_line(text, &ports()).unwrap_err().to_string(), expected, "{text}");
    }
}
