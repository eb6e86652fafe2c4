//! Many lines, read by one reader.
#![expect(clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

use std::sync::Arc;

use sluice_flow::key::Mask;
use sluice_flow::port::{Port, PortKind, PortMap, PortNumber};
use sluice_flow::text::{LineReader, parse_line};
use sluice_flow::{Field, MaskedKey};

/// Lines that set much, little or nothing of what a line can say, and some that are wrong.
const LINES: [&str; 14] = [
    "in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.1,frag=no) 2",
    "in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.1,frag=no) drop",
    "ufid:01234567-89ab-4def-8123-456789abcdef, recirc_id(0x7),in_port(1),\
     tunnel(tun_id=0x1,src=1.1.1.1,dst=1.1.1.2,geneve({class=0xffff,type=0x80,len=4,0xa/0xf}),flags(df)),eth(), \
     packets:2, bytes:128, used:0.710s, flags:SFP., offloaded:yes, dp:tc, actions:set(tunnel(tun_id=0x1,dst=2.2.2.2)),2, \
     dp-extra-info:priority[3],permanent,note",
    "in_port(1), actions:2",
    "in_port(1), actions:2, dp-extra-info:priority[4]",
    "in_port(1), actions:2,",
    "in_port(1),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x86dd),ipv6(src=fe80::1/64)) pop_vlan,set(eth(src=0:0:0:0:0:1)),p2",
    "in_port(1) p2",
    "in_port(p2) 1",
    "in_port(1),eth(src=02:00:00:00:00:01,dst=2:0:0:0:0:2:3) 2",
    "in_port(1) 2,drop,3",
    "in_port(1)",
    "in_port(1),eth_type(0x0800),ipv4(proto=6),tcp(dst=65536) 2",
    "in_port(1),ct_label(0x123456789abcdef0123456789abcdef0/0xffffffffffffffffffffffffffffffff) 2",
];

fn ports() -> PortMap {
    let mut ports = PortMap::default();
    for (number, name) in [(1, "p1"), (2, "p2")] {
        ports
            .insert(Port { number: PortNumber(number), name: name.parse().unwrap(), kind: PortKind::Physical })
            .unwrap();
    }
    ports
}

#[test]
fn what_came_before_a_line_makes_no_difference() {
    let ports = ports();
    let mut reader = LineReader::new(&ports);
    for before in LINES {
        for line in LINES {
            let _ = reader.read(before);
            let read = reader.read(line).cloned();
            assert_eq!(read, parse_line(line, &ports), "{line}\nafter {before}");
            if let Ok(read) = read {
                assert_eq!(reader.masked_key(), MaskedKey::new(&read.matching), "{line}\nafter {before}");
            }
        }
    }
}

#[test]
fn the_same_actions_are_one_list_and_others_are_not() {
    let mut reader = LineReader::new(&());
    let mut actions = |text: &str| reader.read(&format!("in_port(1) {text}")).unwrap().actions.clone();
    let (first, again, other) = (actions("2,3"), actions("2,3"), actions("2,4"));
    assert!(Arc::ptr_eq(&first, &again));
    assert_ne!(first, other);
    // Far more than are kept: each is still what its text says.
    for port in 0..1_000 {
        assert_eq!(actions(&format!("2,{port}")), sluice_flow::text::parse_actions(&format!("2,{port}"), &()).unwrap());
        assert_eq!(actions("2,3"), first);
    }
}

#[test]
fn equal_masks_are_one_and_others_are_not() {
    let mut reader = LineReader::new(&());
    let mut mask_of = |key: &str| {
        reader.read(&format!("in_port(1),{key} 2")).unwrap();
        reader.masked_key().mask().clone()
    };
    let (first, other, again) = (mask_of("skb_mark(1/0xf)"), mask_of("skb_mark(1/0x7)"), mask_of("skb_mark(2/0xf)"));
    assert!(Arc::ptr_eq(&first, &again));
    assert_ne!(first, other);
    for mask in 1..1_000 {
        let mut matching = parse_line("in_port(1) 2", &()).unwrap().matching;
        matching.set(Field::SkbMark, 0, mask);
        assert_eq!(*mask_of(&format!("skb_mark(0/{mask:#x})")), Mask::new(&matching.mask));
    }
}

#[test]
fn names_of_the_grammar_that_are_nearly_right_are_none() {
    for name in
        ["", "e", "ethh", "eht", "in_por", "in_portt", "tcp_flagss", "cvlan", "skb_prioritiy", "ETH", "ct_tuple5"]
    {
        let line = format!("in_port(1),{name}(1) 2");
        let error = parse_line(&line, &()).unwrap_err();
        assert_eq!(error.offset, 11, "{line}: {error}");
        assert!(error.expected.starts_with("a key attribute such as eth_type(0x0800)"), "{error}");
    }
}
