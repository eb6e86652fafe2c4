//! The text grammar, written: the forms are those of OVS.
#![expect(clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

mod any_match;

use std::time::Duration;

use any_match::any_match;
use proptest::prelude::*;
use sluice_flow::field::Field;
use sluice_flow::key::MaskedKey;
use sluice_flow::port::{Port, PortKind, PortMap, PortNumber};
use sluice_flow::text::{
    DumpLine, Extra, LineWriter, Offloaded, Statistics, Style, bracketed, parse_actions, parse_key, parse_line,
    sentence_of, write_actions, write_field_value, write_key, write_line,
};
use sluice_flow::ufid::Ufid;
use sluice_flow::{Expiry, Priority};

fn key_as(text: &str, style: &Style<'_>) -> String {
    let mut out = String::new();
    write_key(&mut out, &MaskedKey::new(&parse_key(text, &()).unwrap().matching), style).unwrap();
    out
}

fn key(text: &str) -> String {
    key_as(text, &Style::default())
}

fn actions(text: &str) -> String {
    let mut out = String::new();
    write_actions(&mut out, &parse_actions(text, &()).unwrap(), &Style::default()).unwrap();
    out
}

#[test]
fn what_ovs_does_not_have_is_not_written_unless_it_is_matched() {
    let more = Style { more: true, names: None };
    for text in
        ["eth_type(0x8864)", "eth_type(0x8902)", "eth_type(0x0800),ipv4(proto=115)", "eth_type(0x0800),ipv4(proto=50)"]
    {
        let written = key_as(text, &more);
        for word in ["pppoe", "cfm", "l2tpv3", "ipsec", "num_of_vlans"] {
            assert!(!written.contains(word), "{written}");
        }
    }
    let written = key_as("eth_type(0x8864),pppoe(sid=1)", &more);
    assert!(written.ends_with("pppoe(sid=1,proto=0/0)"), "{written}");
}

#[test]
fn canonical_keys_are_written_as_they_are_read() {
    for text in [
        "recirc_id(0),in_port(1),eth()",
        "recirc_id(0),in_port(1),eth(),num_of_vlans(2)",
        "recirc_id(0),in_port(1),eth(),num_of_vlans(0/0x2)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8864),pppoe(sid=17,proto=0xc021)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8864),pppoe(sid=17/0xff)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8902),cfm(level=5,opcode=1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=115,frag=no),l2tpv3(sid=3405691582)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x86dd),ipv6(proto=50,frag=no),ipsec(spi=0x1000/0xff000)",
        "recirc_id(0x10),dp_hash(0x3/0xf),skb_priority(0x1),in_port(1),skb_mark(0x2),ct_state(-new+est),ct_zone(0x5),\
         ct_mark(0/0x1),ct_label(0x10000000000000000/0x10000000000000000),eth(src=aa:bb:cc:00:00:01)",
        "recirc_id(0),tunnel(tun_id=0x2a,src=1.1.1.1,dst=2.2.2.2,tos=0x3/0x3,ttl=64,tp_dst=4789,flags(-df-csum+key)),\
         in_port(4),eth(),eth_type(0x0800),ipv4(frag=no)",
        "recirc_id(0),tunnel(ipv6_src=fe80::1,ipv6_dst=fe80::/ffff:ffff::,flags(df|key)),in_port(4),eth()",
        "recirc_id(0),tunnel(ttl=64,flags(-oam+df-csum)),in_port(4),eth()",
        "recirc_id(0),tunnel(),in_port(4),eth()",
        "recirc_id(0),tunnel(tun_id=0x2a,tp_dst=4789,vxlan(gbp(id=10/0xff,flags=0xb)),flags(oam|csum|key)),in_port(4),eth()",
        "recirc_id(0),tunnel(tun_id=0x0,vxlan(gbp(flags=0))),in_port(4),eth()",
        "recirc_id(0),tunnel(vxlan(gbp())),in_port(4),eth()",
        "recirc_id(0),tunnel(erspan(ver=1,idx=0x7/0xfffff)),in_port(4),eth()",
        "recirc_id(0),tunnel(erspan(ver=2/0,dir=1,hwid=0x7)),in_port(4),eth()",
        "recirc_id(0),tunnel(erspan(ver=1/0)),in_port(4),eth()",
        "recirc_id(0),tunnel(gtpu(flags=0x30,msgtype=255)),in_port(4),eth()",
        "recirc_id(0),tunnel(tun_id=0x0/0xff,gtpu()),in_port(4),eth()",
        "recirc_id(0),tunnel(geneve({class=0x102,type=0x80,len=4,0xa/0xff}{class=0,type=0,len=8,0x10000000000000}{len=4,0/0}\
         {len=0}),flags(-df)),in_port(4),eth()",
        "recirc_id(0),tunnel(geneve()),in_port(4),eth()",
        "recirc_id(0),tunnel(geneve({})),in_port(4),eth()",
        "recirc_id(0),in_port(1),ct_tuple4(src=10.0.0.0/255.0.0.0,dst=1.2.3.4,proto=17,tp_src=1,tp_dst=0/0xff00),eth()",
        "recirc_id(0),in_port(1),ct_tuple6(src=::1,dst=::/ffff::,proto=6,tp_src=1,tp_dst=2),eth()",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=0,label=5,tc=0,ttl=1,bos=1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8848),\
         mpls(label=100/0xfffff,tc=3/3,ttl=0/0x0,bos=0/1,label=0/0x0,tc=0/0,ttl=0/0x0,bos=0/0,label=0/0xf,tc=0/0,ttl=0/0x0,bos=1/1)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x894f),\
         nsh(flags=2,ttl=0x3e/0x3e,mdtype=1,np=3,spi=0x123456,si=0x00/0x0f,c1=0x0,c2=0x11/0x000000ff,c3=0xffffffff,c4=0x4)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x86dd),ipv6(proto=58),nd_ext(nd_reserved=0x0,nd_options_type=2/0xf)",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no)",
        "recirc_id(0),in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800)",
        "recirc_id(0),in_port(1),eth(),eth_type(0/0xffff)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800/0xff00)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8100),vlan(vid=10,pcp=0),encap(eth_type(0x0800),ipv4(tos=0))",
        "recirc_id(0),in_port(1),eth(),eth_type(0x88a8),vlan(vid=10/0xff0,cfi=0),\
         encap(eth_type(0x8100),vlan(pcp=3/0x6),encap(eth_type(0x0806)))",
        "recirc_id(0),in_port(1),eth(),eth_type(0x8100),vlan(),encap()",
        "recirc_id(0),in_port(1),eth(),vlan(vid=5,cfi=0/0x0),encap()",
        "recirc_id(0),in_port(1),eth(src=00:00:00:00:00:01/01:00:00:00:00:00),eth_type(0x0800),\
         ipv4(src=10.0.0.0/255.0.0.0,dst=1.2.3.4,proto=6,tos=0x10,ttl=64,frag=first),tcp(src=80,dst=0/0xff00),\
         tcp_flags(+syn-ack)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x86dd),\
         ipv6(src=::1,dst=fe80::,label=0x12345,proto=58,tclass=0x1,hlimit=255,frag=no),icmpv6(type=135,code=0),\
         nd(target=fe80::1,sll=00:00:00:00:00:01,tll=00:00:00:00:00:00)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0806),arp(sip=1.1.1.1,tip=2.2.2.2,op=1/0xff,sha=00:00:00:00:00:01)",
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(proto=6),tcp_flags(syn|ack|[200])",
    ] {
        // The writer leaves out bits outside of the mask, as no dump of the kernel does.
        let normal = text.replace("src=00:00:00:00:00:01/01:", "src=00:00:00:00:00:00/01:");
        let normal = normal.replace("vid=10/0xff0", "vid=0/0xff0").replace("pcp=3/0x6", "pcp=2/0x6");
        assert_eq!(key(text), normal);
    }
}

#[test]
fn with_more_wild_fields_are_written_where_the_match_implies_the_header() {
    let more = Style { more: true, names: None };
    assert_eq!(
        key_as("in_port(1),ct_state(+est),eth_type(0x0800),ipv4(proto=6,frag=no)", &more),
        "recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(1),skb_mark(0/0),ct_state(0x2/0x2),ct_zone(0/0),\
         ct_mark(0/0),ct_label(0/0),eth(src=00:00:00:00:00:00/00:00:00:00:00:00,\
         dst=00:00:00:00:00:00/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,dst=0.0.0.0/0.0.0.0,\
         proto=6,tos=0/0,ttl=0/0,frag=no),tcp(src=0/0,dst=0/0)"
    );
    for absent in ["ct_tuple", "nsh", "nd_ext", "tunnel", "packet_type"] {
        assert!(!key_as("in_port(1),eth_type(0x86dd),ipv6(proto=58)", &more).contains(absent));
        assert!(!key_as("in_port(1),eth_type(0x894f)", &more).contains(absent));
    }
    let no_frame = key_as("packet_type(ns=1,id=0x800),eth_type(0x0800)", &more);
    assert!(!no_frame.contains("eth("), "that would say that there is an Ethernet header: {no_frame}");
    let stack = key_as("eth_type(0x8847)", &more);
    assert!(stack.ends_with("eth_type(0x8847),mpls(label=0/0x0,tc=0/0,ttl=0/0x0,bos=0/0)"), "{stack}");
    let neighbour = key_as("eth_type(0x86dd),ipv6(proto=58),icmpv6(type=136,code=0)", &more);
    let wild = "nd(target=::/::,sll=00:00:00:00:00:00/00:00:00:00:00:00,tll=00:00:00:00:00:00/00:00:00:00:00:00)";
    assert!(neighbour.ends_with(&format!(",icmpv6(type=136,code=0),{wild}")), "{neighbour}");
    for other in ["type=136", "type=135/0xfe,code=0", "type=134,code=0", "type=135,code=1"] {
        let other = key_as(&format!("eth_type(0x86dd),ipv6(proto=58),icmpv6({other})"), &more);
        assert!(!other.contains(",nd("), "{other}");
    }
    let vlan = key_as("in_port(1),eth_type(0x8100),vlan(),encap(eth_type(0x86dd),ipv6(proto=17,frag=later))", &more);
    assert!(
        vlan.ends_with(
            "eth_type(0x8100),vlan(vid=0/0x0,pcp=0/0x0),encap(eth_type(0x86dd),ipv6(src=::/::,dst=::/::,label=0/0,\
             proto=17,tclass=0/0,hlimit=0/0,frag=later))"
        ),
        "{vlan}"
    );
}

#[test]
fn actions_are_written_as_ovs_does() {
    let text = "push_vlan(vid=5,pcp=0),push_vlan(tpid=0x88a8,vid=5,pcp=1,cfi=0),pop_vlan,trunc(100),recirc(0x10),recirc(0),\
                meter(1),set(eth(src=00:00:00:00:00:01)),set(ipv4(src=1.1.1.0/255.255.255.0,ttl=3)),\
                set(tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2,ttl=64,tp_dst=4789,flags(df|key))),\
                set(skb_priority(0x1)),ct(commit,zone=1),7";
    assert_eq!(actions(text), text);
    assert_eq!(actions(""), "drop");
}

#[test]
fn a_name_is_written_only_if_it_is_read_back() {
    let mut ports = PortMap::default();
    for (number, name) in [(1, "p1"), (2, "drop"), (3, "10g0")] {
        ports
            .insert(Port { number: PortNumber(number), name: name.parse().expect("a name"), kind: PortKind::Physical })
            .unwrap();
    }
    let style = Style { more: false, names: Some(&ports) };
    let mut out = String::new();
    write_actions(&mut out, &parse_actions("1,2,3,4", &()).unwrap(), &style).unwrap();
    assert_eq!(out, "p1,2,10g0,4");
    assert_eq!(key_as("in_port(1)", &style), "recirc_id(0),in_port(p1),eth()");
}

#[test]
fn a_line_has_the_form_of_dump_flows() {
    let matching = MaskedKey::new(&parse_key("in_port(1),eth_type(0x0800)", &()).unwrap().matching);
    let actions = parse_actions("2", &()).unwrap();
    let extra = Extra {
        priority: Priority::new(3).unwrap(),
        expiry: Expiry {
            idle: Some(Duration::from_millis(60_500)),
            hard: Some(Duration::from_secs(10)),
            permanent: true,
        },
        other: Some("refused(kernel: line one\nline two)".into()),
    };
    let extra = extra.to_string();
    assert_eq!(extra, "priority[3],idle_timeout[60.5],hard_timeout[10],permanent,refused(kernel: line one line two)");
    let line = DumpLine {
        ufid: Ufid(0x0123_4567_89ab_4def_8123_4567_89ab_cdef),
        matching: &matching,
        statistics: Statistics {
            packets: 2,
            bytes: 128,
            used: Some(Duration::from_micros(710_999)),
            tcp_flags: 0b1_1011,
        },
        offloaded: Some(Offloaded::Yes),
        layer: "tc",
        actions: &actions,
        extra: &extra,
    };
    let mut out = String::new();
    write_line(&mut out, &DumpLine { extra: "", ..line }, &Style::default()).unwrap();
    assert_eq!(
        out,
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800), packets:2, bytes:128, used:0.710s, flags:SFP., actions:2"
    );
    out.clear();
    write_line(&mut out, &DumpLine { extra: "priority[3]", ..line }, &Style::default()).unwrap();
    assert!(out.ends_with(", actions:2, dp-extra-info:priority[3]"), "{out}");
    assert_eq!(parse_line(&out, &()).unwrap().extra.priority.get(), 3);
    out.clear();
    write_line(&mut out, &line, &Style { more: true, names: None }).unwrap();
    assert!(out.starts_with("ufid:01234567-89ab-4def-8123-456789abcdef, recirc_id(0),"), "{out}");
    let end = format!(
        "packets:2, bytes:128, used:0.710s, flags:SFP., offloaded:yes, dp:tc, actions:2, dp-extra-info:{extra}"
    );
    assert!(out.ends_with(&end), "{out}");
    assert_eq!(parse_line(&out, &()).unwrap().extra.to_string(), extra);
}

#[test]
fn a_sentence_in_brackets_ends_where_it_is_said_to_end() {
    for (sentence, expected) in [
        ("kernel: no (errno 22)", "refused[kernel: no [errno 22]]"),
        ("match ttl=64/64, 100 %", "refused[match ttl%3d64/64, 100 %25]"),
        ("fd00::1 is (not (there))", "refused[fd00%3a%3a1 is [not [there]]]"),
        ("odd :] x, priority[9] y", "refused[odd %3a%5d x, priority%5b9%5d y]"),
        ("odd :( x, permanent\n\u{85}", "refused[odd %3a%28 x, permanent%0a%c2%85]"),
    ] {
        let text = bracketed("refused", sentence);
        assert_eq!(text, expected);
        assert_eq!(sentence_of("refused", &text).as_deref(), Some(sentence));
        let line = format!("in_port(1), actions:1, dp-extra-info:{text},priority[3]");
        let extra = parse_line(&line, &()).unwrap().extra;
        assert_eq!((extra.priority.get(), extra.other), (3, Some(text)));
        assert_eq!(extra.expiry, Expiry::default());
    }
}

#[test]
fn a_value_alone_has_the_form_that_it_has_in_a_key() {
    for (field, value, mask, expected) in [
        (Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000, "10.0.0.0/255.0.0.0"),
        (Field::EthType, 0x800, 0xffff, "0x0800"),
        (Field::TcpDst, 80, 0xffff, "80"),
        (Field::CtState, 2, 3, "-new+est"),
        (Field::CtMark, 0, 0, "0/0"),
        (Field::VlanPresent, 1, 1, "present"),
        (Field::Ipv4Frag, 1, 1, "1/0x1"),
    ] {
        let mut out = String::new();
        write_field_value(&mut out, field, value, mask, &Style::default()).unwrap();
        assert_eq!(out, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn every_sentence_in_brackets_is_read_back(sentence in "[a-z()\\[\\]:=%, \n\u{85}é]{0,40}") {
        let text = bracketed("refused", &sentence);
        prop_assert_eq!(sentence_of("refused", &text), Some(sentence));
        let line = format!("in_port(1), actions:1, dp-extra-info:{text},priority[3]");
        let extra = parse_line(&line, &()).unwrap().extra;
        prop_assert_eq!((extra.priority.get(), extra.other), (3, Some(text)));
    }

    #[test]
    fn whatever_is_in_brackets_is_read_without_a_panic(text in "[a-f0-9%\\[\\]é]{0,40}") {
        sentence_of("a", &text);
    }

    /// What is remembered of the first flow of a mask must not show in the next one.
    #[test]
    fn a_writer_of_many_flows_writes_each_as_if_it_were_alone(
        full in any_match(),
        others in proptest::collection::vec((any::<[u64; 4]>(), 0..=u64::BITS), 1..8),
        more in any::<bool>(),
    ) {
        let style = Style { more, names: None };
        let mut writer = LineWriter::new(&style);
        let first = MaskedKey::new(&full);
        // Other values under the same mask; small ones, too, so that headers change as well as what is in them.
        let same_mask = others.into_iter().map(|(random, shift)| {
            let mut key = full.key;
            for (place, word) in key.words.iter_mut().enumerate() {
                *word ^= random[place % random.len()].checked_shr(shift).unwrap_or(0);
            }
            MaskedKey::under(first.mask().clone(), &key)
        });
        for matching in std::iter::once(first.clone()).chain(same_mask) {
            let mut together = Vec::new();
            writer.push_key(&mut together, &matching);
            let mut alone = String::new();
            write_key(&mut alone, &matching, &style).unwrap();
            prop_assert_eq!(String::from_utf8(together).unwrap(), alone);
        }
    }
}

#[test]
fn a_writer_of_many_flows_tells_their_actions_apart() {
    let mut writer = LineWriter::new(&Style::default());
    for round in 0..3 {
        let lists: Vec<_> = (1..3_000).map(|port| parse_actions(&format!("{port},{round}"), &()).unwrap()).collect();
        let _shared: Vec<_> = lists.iter().flat_map(|list| [list.clone(), list.clone()]).collect();
        for (list, port) in lists.iter().zip(1..) {
            for _ in 0..2 {
                let mut text = Vec::new();
                writer.push_actions(&mut text, list);
                assert_eq!(String::from_utf8(text).unwrap(), format!("{port},{round}"));
            }
        }
    }
}
