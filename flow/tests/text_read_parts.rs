//! Keys that are more than names and values, read: tunnel options, label stacks, and what OVS has odd names or forms for.
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::text::parse_key;

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
    match parse_key(text, &()) {
        Ok(key) => key.matching,
        Err(error) => panic!("{}", error.caret(text)),
    }
}

fn key_error(text: &str) -> String {
    parse_key(text, &()).unwrap_err().to_string()
}

const ALL16: u128 = 0xffff;
const ALL32: u128 = 0xffff_ffff;

#[test]
fn tunnel_options_are_demanded_by_being_named() {
    let present = |options: &str| {
        let mut full = key(&format!("tunnel({options})"));
        full.set(Field::TunnelPresent, 0, 0);
        full
    };
    for (options, field) in [
        ("vxlan(gbp(id=0/0,flags=0/0))", Field::VxlanGbpPresent),
        ("vxlan()", Field::VxlanGbpPresent),
        ("gtpu(flags=0/0,msgtype=0/0)", Field::GtpuPresent),
        ("erspan(ver=1/0,idx=0/0)", Field::ErspanPresent),
        ("geneve({})", Field::GenevePresent),
        ("geneve({class=0/0,type=0/0,len=4/0,0/0}{})", Field::GenevePresent),
    ] {
        assert_eq!(present(options), matching(&[(field, 1, 1)]), "{options}");
    }
    let expected = [(Field::VxlanGbpPresent, 1, 1), (Field::VxlanGbpId, 10, 0xff), (Field::VxlanGbpFlags, 0xb, 0xff)];
    assert_eq!(present("vxlan(gbp(id=10/0xff,flags=0xb))"), matching(&expected));
    let expected = [(Field::GtpuPresent, 1, 1), (Field::GtpuFlags, 0x30, 0xf0), (Field::GtpuMessageType, 255, 0xff)];
    assert_eq!(present("gtpu(flags=0x30/0xf0,msgtype=255)"), matching(&expected));
    let expected = [(Field::ErspanPresent, 1, 1), (Field::ErspanVersion, 1, 0xff), (Field::ErspanIndex, 7, 0xf_ffff)];
    assert_eq!(present("erspan(ver=1,idx=0x7/0xfffff)"), matching(&expected));
    let expected = [
        (Field::ErspanPresent, 1, 1),
        (Field::ErspanVersion, 2, 0xff),
        (Field::ErspanDirection, 1, 0xff),
        (Field::ErspanHardwareId, 7, 0xf),
    ];
    assert_eq!(present("erspan(ver=2,dir=1,hwid=0x7/0xf)"), matching(&expected));
}

#[test]
fn geneve_options_lie_in_the_key_as_on_the_wire() {
    let full = key("tunnel(geneve({class=0x102/0xfff0,type=0x80,len=8,0xa00000000b/0xff000000ff}\
                    {class=0xffff,type=1,len=4}{type=0/0,len=0}))");
    let expected = [
        (Field::TunnelPresent, 1, 1),
        (Field::GenevePresent, 1, 1),
        (Field::GeneveLength, 12 + 8 + 4, 0xff),
        (Field::GeneveOptions0, 0x0100_8002_0000_00a0_0000_000b_ffff_0101, 0xfff0_ff1f_0000_00ff_0000_00ff_ffff_ff1f),
        (Field::GeneveOptions1, 0, 0x0000_001f << 64),
    ];
    assert_eq!(full, matching(&expected));
    let wild = key("tunnel(geneve({class=0/0,type=0/0,len=4,0/0}))");
    let expected = [
        (Field::TunnelPresent, 1, 1),
        (Field::GenevePresent, 1, 1),
        (Field::GeneveLength, 8, 0xff),
        (Field::GeneveOptions0, 1 << 96, 0x1f << 96),
    ];
    assert_eq!(wild, matching(&expected));
    let none = [(Field::TunnelPresent, 1, 1), (Field::GenevePresent, 1, 1), (Field::GeneveLength, 0, 0xff)];
    assert_eq!(key("tunnel(geneve())"), matching(&none));
    let data = "f".repeat(248);
    let longest = format!("tunnel(geneve({{len=124,0x{data}}}{{len=120,0x{}}}))", &data[8..]);
    assert!(key(&longest).is_exactly(Field::GeneveLength, 252));
    assert_eq!(key(&longest).mask.get(Field::GeneveOptions15) & ALL32, 0, "four bytes are never used");
}

#[test]
fn wrong_tunnel_options_are_pointed_at() {
    for (options, place, expected) in [
        ("vxlan(id=1)", 6, "\"gbp(\""),
        ("vxlan(gbp(id=65536))", 13, "a number up to 65535 (0xffff)"),
        ("vxlan(gbp(vni=1))", 10, "a field of vxlan(): id, flags"),
        ("vxlan(gbp(id=1)", 16, "\",\" or \")\""),
        ("vxlan(gbp(id=1)),gtpu()", 17, "tunnel options once: vxlan() is here already"),
        ("gtpu(flags=1,flags=1)", 13, "each field once: flags is here twice"),
        ("gtpu(msgtype=1", 15, "\",\" or \")\""),
        ("erspan(ver=3)", 11, "1 or 2"),
        ("erspan(ver=1,dir=1)", 17, "idx with ver=1, or dir and hwid with ver=2"),
        ("erspan(idx=1,ver=2)", 11, "idx with ver=1, or dir and hwid with ver=2"),
        ("erspan(idx=1,hwid=2)", 18, "idx with ver=1, or dir and hwid with ver=2"),
        ("geneve(class=1)", 7, "\"{\" or \")\""),
        ("geneve({class=65536})", 14, "a number of at most 16 bits"),
        ("geneve({type=0x100})", 13, "a number of at most 8 bits"),
        ("geneve({type=x})", 13, "a number"),
        ("geneve({len=6})", 12, "a multiple of 4 up to 124"),
        ("geneve({len=128})", 12, "a multiple of 4 up to 124"),
        ("geneve({len=4/3})", 13, "no mask: the length of an option must be exact"),
        ("geneve({len=4,0x1ffffffff})", 14, "a number of at most 32 bits"),
        ("geneve({len=4,1/0x})", 16, "a number"),
        ("geneve({0x1,len=4})", 8, "class=, type=, len= and then data, or \"}\""),
        ("geneve({len=4,1,2})", 16, "class=, type=, len= and then data, or \"}\""),
        ("geneve({type=1,type=1})", 15, "each part of an option once"),
        ("geneve({type=1;})", 14, "\",\" or \"}\""),
        ("geneve({type=1)", 14, "\",\" or \"}\""),
        ("geneve({type=1,len=4,1}", 24, "\",\" or \")\""),
        ("geneve({}{type=1,len=0})", 7, "len= without a mask in each option, as one of them is matched"),
        ("geneve({type=1,len=0/0})", 19, "len= without a mask in each option, as one of them is matched"),
        ("geneve({len=124}{len=124})", 21, "at most 252 bytes of options"),
        ("geneve({len=124}{len=120}{})", 25, "at most 252 bytes of options"),
        (
            "nvgre(vsid=1)",
            0,
            "a field of tunnel(): tun_id, src, dst, ipv6_src, ipv6_dst, tos, ttl, tp_src, tp_dst, \
                             flags, vxlan, erspan, gtpu, geneve",
        ),
        ("key9(01)", 0, "a mask of zero, as key9() is not known"),
    ] {
        let text = format!("tunnel({options})");
        assert_eq!(key_error(&text), format!("at byte {}: expected {expected}", place + "tunnel(".len()), "{text}");
    }
}

#[test]
fn a_label_stack_has_up_to_three_entries() {
    let stack = |text: &str| key(&format!("eth_type(0x8847),mpls({text})"));
    let label_and_bos =
        |full: &Match, label, bos| [label, bos].map(|field| (full.key.get(field), full.mask.get(field)));
    let one = stack("bos=1,label=100,tc=7/7,ttl=64/0xff");
    assert_eq!(label_and_bos(&one, Field::MplsLabel, Field::MplsBos), [(100, 0xf_ffff), (1, 1)]);
    assert!(one.is_exactly(Field::MplsPresent, 1));
    assert_eq!(one.mask.get(Field::Mpls2Present), 0);
    let wild = stack("label=0/0,tc=0/0,ttl=0/0,bos=0/0");
    assert_eq!(wild.mask.get(Field::MplsPresent), 0, "what is wild says nothing");
    let three = stack("label=1,tc=0,ttl=64,bos=0,label=2/0xff,bos=0,label=3,tc=0/0,ttl=0/0,bos=1");
    assert_eq!(label_and_bos(&three, Field::MplsLabel, Field::MplsBos), [(1, 0xf_ffff), (0, 1)]);
    assert_eq!(label_and_bos(&three, Field::Mpls2Label, Field::Mpls2Bos), [(2, 0xff), (0, 1)]);
    assert_eq!(label_and_bos(&three, Field::Mpls3Label, Field::Mpls3Bos), [(3, 0xf_ffff), (1, 1)]);
    assert!(three.is_exactly(Field::Mpls2Present, 1) && three.is_exactly(Field::Mpls3Present, 1));
    assert!(stack("label=0/0,label=0/0").is_exactly(Field::Mpls2Present, 1));
    for (text, expected) in [
        ("label=1048576", "at byte 28: expected a number up to 1048575 (0xfffff)"),
        ("tc=8", "at byte 25: expected a number up to 7 (0x7)"),
        ("bos=1/2", "at byte 28: expected a number up to 1 (0x1)"),
        ("exp=1", "at byte 22: expected a field of mpls(): label, tc, ttl, bos"),
        ("bos=0,bos=0,bos=0,bos=1", "at byte 40: expected at most 3 label stack entries"),
    ] {
        assert_eq!(key_error(&format!("eth_type(0x8847),mpls({text})")), expected, "{text}");
    }
}

#[test]
fn original_tuples_nsh_and_neighbour_extensions_are_read() {
    let expected =
        [(Field::CtTuple4Src, 0x0a0a_0a0a, ALL32), (Field::CtTuple4Proto, 17, 0xff), (Field::CtTuple4TpDst, 2, 0xf)];
    assert_eq!(key("ct_tuple4(src=10.10.10.10,proto=17,tp_dst=2/0xf)"), matching(&expected));
    let expected =
        [(Field::CtTuple6Dst, 1, u128::MAX), (Field::CtTuple6TpSrc, 80, ALL16), (Field::CtTuple6TpDst, 0, 0xff00)];
    assert_eq!(key("ct_tuple6(dst=::1,src_port=80,dst_port=5/0xff00)"), matching(&expected));
    assert_eq!(key("ct_tuple6(dst=::1,tp_src=80,tp_dst=5/0xff00)"), matching(&expected));
    let expected = [
        (Field::VlanPresent, 0, 1),
        (Field::EthType, 0x894f, ALL16),
        (Field::NshFlags, 2, 2),
        (Field::NshTtl, 63, 0xff),
        (Field::NshPathId, 0x123456, 0xff_ffff),
        (Field::NshServiceIndex, 255, 0xff),
        (Field::NshContext4, 0x11, ALL32),
    ];
    let text = "eth_type(0x894f),nsh(flags=0x02/0x02,ttl=63,spi=0x123456,si=255,c1=0x0/0x00000000,c4=0x11)";
    assert_eq!(key(text), matching(&expected));
    let full = key("eth_type(0x86dd),ipv6(proto=58),nd_ext(nd_reserved=0x80000000,nd_options_type=2/0xf)");
    assert!(full.is_exactly(Field::NdReserved, 0x8000_0000));
    assert_eq!((full.key.get(Field::NdOptionsType), full.mask.get(Field::NdOptionsType)), (2, 0xf));
    for (text, expected) in [
        ("ct_tuple4(tp_src=65536)", "at byte 17: expected a number up to 65535 (0xffff)"),
        ("ct_tuple4(src_port=1)", "at byte 10: expected a field of ct_tuple4(): src, dst, proto, tp_src, tp_dst"),
        ("ct_tuple6(tp_src=1,src_port=1)", "at byte 19: expected each field once: src_port is here twice"),
        ("ct_tuple6(src=1.2.3.4)", "at byte 14: expected an IPv6 address"),
        ("nsh(spi=0x1000000)", "at byte 8: expected a number up to 16777215 (0xffffff)"),
        ("nsh(c5=1)", "at byte 4: expected a field of nsh(): flags, ttl, mdtype, np, spi, si, c1, c2, c3, c4"),
        ("nsh(flags=1)", "at byte 0: expected other fields, too: nsh() needs eth_type(0x894f)"),
        ("nd_ext(nd_reserved=-1)", "at byte 19: expected a number"),
        ("nd_ext(nd_options_type=1)", "at byte 0: expected other fields, too: nd_ext() needs ipv6(proto=58)"),
        ("packet_type(ns=1,id=0x10000)", "at byte 20: expected a number up to 65535 (0xffff)"),
    ] {
        assert_eq!(key_error(text), expected, "{text}");
    }
}

#[test]
fn what_ovs_does_not_have_is_read_as_its_headers_say() {
    let after = |text: &str, behind: &str| {
        let mut full = key(&format!("{behind}{text}"));
        let before = key(behind);
        full.mask.words.iter_mut().zip(before.mask.words).for_each(|(word, before)| *word ^= before);
        full.key.words.iter_mut().zip(before.key.words).for_each(|(word, before)| *word ^= before);
        full
    };
    let only = |fields: &[(Field, u128, u128)]| {
        let mut full = Match::default();
        fields.iter().for_each(|(field, value, mask)| full.set(*field, *value, *mask));
        full
    };
    let pppoe = [(Field::PppoePresent, 1, 1), (Field::PppoeSession, 17, ALL16), (Field::PppProtocol, 0x21, ALL16)];
    let l2tp = [(Field::L2tpv3Session, 5, ALL32)];
    let ipsec = [(Field::IpsecSpi, 0x1000, 0xff_f000)];
    for (behind, text, fields) in [
        ("in_port(1)", ",num_of_vlans(3)", &[(Field::NumOfVlans, 3, 0xff)][..]),
        ("eth_type(0x8864)", ",pppoe(sid=17,proto=0x21)", &pppoe),
        ("eth_type(0x8864)", ",pppoe(sid=0/0)", &[]),
        ("eth_type(0x8902)", ",cfm(level=5,opcode=1)", &[(Field::CfmLevel, 5, 7), (Field::CfmOpcode, 1, 0xff)]),
        ("eth_type(0x0800),ipv4(proto=115)", ",l2tpv3(sid=5)", &l2tp),
        ("eth_type(0x86dd),ipv6(proto=50)", ",ipsec(spi=0x1000/0xfff000)", &ipsec),
        ("eth_type(0x0800),ipv4(proto=51)", ",ipsec(spi=0x1000/0xfff000)", &ipsec),
    ] {
        assert_eq!(after(text, behind), only(fields), "{behind}{text}");
    }
    for (text, expected) in [
        ("pppoe(sid=1)", "at byte 0: expected other fields, too: pppoe() needs eth_type(0x8864)"),
        ("eth_type(0x8864),pppoe(session=1)", "at byte 23: expected a field of pppoe(): sid, proto"),
        ("eth_type(0x8902),cfm(level=8)", "at byte 27: expected a number up to 7 (0x7)"),
        (
            "eth_type(0x0800),ipv4(proto=6),ipsec(spi=1)",
            "at byte 31: expected other fields, too: ipsec() needs ipv4(proto=50) or ipv6(proto=50) or ipv4(proto=51) or \
             ipv6(proto=51)",
        ),
        (
            "eth_type(0x8100),vlan(vid=1),encap(num_of_vlans(1))",
            "at byte 35: expected num_of_vlans() outside of encap()",
        ),
    ] {
        assert_eq!(key_error(text), expected, "{text}");
    }
}
