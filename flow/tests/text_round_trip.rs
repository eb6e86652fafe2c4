//! What is written is read back to the same, and nothing that is read panics or takes long.
#![expect(clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

mod any_match;
mod linear;

use any_match::{Choice, any_match, any_options, choice, fit, set};
use linear::assert_linear;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sluice_flow::action::{Action, FieldSet, VlanTag};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, FIELDS, Form};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;
use sluice_flow::text::{
    ParseError, Style, parse_actions, parse_key, parse_line, write_action, write_actions, write_key,
};

fn any_tag() -> impl Strategy<Value = VlanTag> {
    (select(vec![0x8100, 0x88a8]), 0..4096u16, 0..8u8, any::<bool>()).prop_map(|(tpid, vid, pcp, cfi)| VlanTag {
        tpid,
        vid,
        pcp,
        cfi,
    })
}

fn any_set() -> impl Strategy<Value = Option<Action>> {
    let settable = vec![
        Attribute::SkbPriority,
        Attribute::SkbMark,
        Attribute::Tunnel,
        Attribute::Ethernet,
        Attribute::Mpls,
        Attribute::Nsh,
        Attribute::Ipv4,
        Attribute::Ipv6,
        Attribute::Arp,
        Attribute::Tcp,
        Attribute::Udp,
        Attribute::Sctp,
        Attribute::Icmp,
        Attribute::Icmpv6,
        Attribute::Nd,
        Attribute::NdExt,
    ];
    let options = proptest::option::of(any_options(true));
    (select(settable), vec(choice(), FIELDS.len()), options).prop_map(|(attribute, choices, options)| {
        let mut full = Match::default();
        let rows = FIELDS.iter().zip(choices).filter(|(spec, _)| spec.attribute == attribute);
        for (spec, choice) in rows.filter(|(spec, _)| spec.form != Form::Presence) {
            let choice = match fit(spec.field, choice) {
                Choice::Masked(value, _) if attribute == Attribute::Tunnel => Choice::Exact(value),
                choice => choice,
            };
            if attribute != Attribute::Mpls || !spec.is_nested() {
                set(&mut full, spec.field, choice);
            }
        }
        if attribute == Attribute::Tunnel {
            for (field, value, mask) in options.into_iter().flatten() {
                full.set(field, value, mask);
            }
        }
        let fields = attribute.fields().map(|spec| (spec.field, full.key.get(spec.field), full.mask.get(spec.field)));
        let fields: Vec<_> = fields.filter(|(.., mask)| *mask != 0).collect();
        let set = FieldSet { attribute, fields: fields.into() };
        match (set.fields.is_empty(), attribute) {
            (true, _) => None,
            (false, Attribute::Tunnel) => Some(Action::SetTunnel(set)),
            (false, _) => Some(Action::Set(set)),
        }
    })
}

const NESTED_OR_LONG: &[&str] = &[
    "userspace(pid=1,slow_path(cfm))",
    "ct",
    "ct(commit,zone=5,mark=0x1/0x1,nat(src=1.1.1.1))",
    "ct_clear",
    "clone(set(eth(dst=01:02:03:04:05:06)),2)",
    "sample(sample=50.0%,actions(1,2))",
    "check_pkt_len(size=200,gt(drop),le(5))",
    "hash(l4(0))",
    "push_eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02)",
    "dec_ttl(le_1(1))",
];

fn any_actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        any::<u32>().prop_map(|port| Some(Action::Output(PortNumber(port)))),
        any::<u32>().prop_map(|meter| Some(Action::Meter(MeterId(meter)))),
        any::<u32>().prop_map(|chain| Some(Action::Recirc(ChainId(chain)))),
        any::<u32>().prop_map(|length| Some(Action::Trunc(length))),
        Just(Some(Action::PopVlan)),
        any_tag().prop_map(|tag| Some(Action::PushVlan(tag))),
        any_set(),
        any_set(),
        select(NESTED_OR_LONG).prop_map(|text| parse_actions(text, &()).unwrap().first().cloned()),
    ];
    vec(one, 0..12).prop_map(|actions| actions.into_iter().flatten().collect())
}

fn key_text(full: &Match, more: bool) -> String {
    let mut text = String::new();
    write_key(&mut text, &MaskedKey::new(full), &Style { more, names: None }).unwrap();
    text
}

fn actions_text(actions: &[Action]) -> String {
    let mut text = String::new();
    write_actions(&mut text, actions, &Style::default()).unwrap();
    text
}

/// Reads a text in every way. Whatever comes of it, an error points into the text, and a success is written and read
/// back to the same.
fn read_all(text: &str) {
    let check = |error: ParseError| {
        assert!(text.is_char_boundary(error.offset), "{error} in {text:?}");
        assert!(error.caret(text).lines().count() <= 3, "{}", error.caret(text));
    };
    match parse_key(text, &()) {
        Ok(key) => assert_eq!(parse_key(&key_text(&key.matching, true), &()).unwrap().matching, key.matching),
        Err(error) => check(error),
    }
    match parse_actions(text, &()) {
        Ok(actions) => assert_eq!(parse_actions(&actions_text(&actions), &()).unwrap(), actions),
        Err(error) => check(error),
    }
    match parse_line(text, &()) {
        Ok(line) => {
            let again = format!(
                "{} {}, dp-extra-info:{}",
                key_text(&line.matching, false),
                actions_text(&line.actions),
                line.extra
            );
            let again = parse_line(&again, &()).unwrap();
            assert_eq!((again.matching, &again.actions), (line.matching, &line.actions));
            assert_eq!((again.extra.priority, again.extra.expiry), (line.extra.priority, line.extra.expiry));
        }
        Err(error) => check(error),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_match_is_read_back_as_it_was_written(full in any_match(), more in any::<bool>()) {
        let text = key_text(&full, more);
        match parse_key(&text, &()) {
            Ok(key) => prop_assert_eq!(key.matching, full, "{}", text),
            Err(error) => prop_assert!(false, "{}", error.caret(&text)),
        }
    }

    #[test]
    fn a_set_is_read_back_as_it_was_written(set in any_set()) {
        let actions: Vec<_> = set.into_iter().collect();
        let text = actions_text(&actions);
        match parse_actions(&text, &()) {
            Ok(read) => prop_assert_eq!(&read[..], &actions[..], "{}", text),
            Err(error) => prop_assert!(false, "{}", error.caret(&text)),
        }
    }

    #[test]
    fn actions_are_read_back_as_they_were_written(actions in any_actions()) {
        let text = actions_text(&actions);
        match parse_actions(&text, &()) {
            Ok(read) => prop_assert_eq!(&read[..], &actions[..], "{}", text),
            Err(error) => prop_assert!(false, "{}", error.caret(&text)),
        }
        for action in &actions {
            let mut one = String::new();
            write_action(&mut one, action, &Style::default()).unwrap();
            prop_assert!(text.contains(&one));
        }
    }

    #[test]
    fn a_line_with_a_few_wrong_bytes_does_no_harm(
        full in any_match(),
        actions in any_actions(),
        dumped in any::<bool>(),
        edits in vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..6),
    ) {
        let separator = if dumped { ", packets:1, bytes:2, used:1.5s, flags:S., offloaded:yes, dp:tc, actions:" } else { " " };
        let line = format!("{}{separator}{}, dp-extra-info:priority[3],x(1)", key_text(&full, false), actions_text(&actions));
        let mut bytes = line.into_bytes();
        for (place, edit, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match edit {
                0 => bytes[place] = byte,
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, b"(),=/+-|:. 0x"[usize::from(byte) % 13]),
                _ => bytes.truncate(place.max(1)),
            }
        }
        read_all(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_text_does_no_harm(text in any::<String>()) {
        read_all(&text);
    }

    #[test]
    fn any_sequence_of_tokens_does_no_harm(tokens in vec(select(TOKENS), 0..30)) {
        read_all(&tokens.concat());
    }
}

const TOKENS: &[&str] = &[
    "eth(",
    "eth_type(",
    "vlan(",
    "encap(",
    "ipv4(",
    "tunnel(",
    "tcp(",
    "tcp_flags(",
    "in_port(",
    "recirc_id(",
    "ct_state(",
    "mpls(",
    "geneve(",
    "vxlan(gbp(",
    "erspan(",
    "gtpu(",
    "ct_tuple6(",
    "nsh(",
    "nd_ext(",
    "key9(",
    "label=",
    "bos=",
    "class=",
    "type=",
    "len=",
    "ver=",
    "idx=",
    "set(",
    "push_vlan(",
    "clone(",
    "ct",
    "recirc(",
    "drop",
    "pop_vlan",
    ")",
    ")",
    ")",
    "(",
    ",",
    " ",
    "=",
    "/",
    "src",
    "dst",
    "vid",
    "pcp",
    "cfi",
    "proto",
    "frag",
    "no",
    "flags(",
    "0",
    "1",
    "0x8100",
    "0x0800",
    "6",
    "1.2.3.4",
    "::1",
    "01:02:03:04:05:06",
    "+",
    "-",
    "|",
    "new",
    "trk",
    "ufid:",
    "packets:",
    "used:",
    "actions:",
    "dp:",
    "dp-extra-info:",
    "priority[",
    "idle_timeout(",
    "permanent",
    "ü",
    "\n",
    "\u{0}",
    "{",
    "}",
];

#[test]
fn a_long_line_takes_no_longer_than_its_length() {
    for (start, unit) in [
        ("", "("),
        ("", "a"),
        ("", "0"),
        ("", " "),
        ("", "eth(),"),
        ("", "mpls(),"),
        ("", "vlan(),encap("),
        ("mpls(", "a,"),
        ("tunnel(", "geneve(),"),
        ("tunnel(geneve(", "{},"),
        ("tunnel(geneve({len=4,0x", "0"),
        ("tunnel(geneve({len=4,0x", "f"),
        ("mpls(", "bos=1,"),
        ("ct_state(", "new|"),
        ("ct_state(", "+new"),
        ("ipv6(src=", "1:"),
        ("eth(src=", "1:"),
        ("tcp(src=", "1"),
        ("", "1,"),
        ("", "clone("),
        ("", "ct,"),
        ("clone(", "x"),
        ("in_port(1) 1,dp-extra-info:", "("),
        ("in_port(1) 1,dp-extra-info:", "a,"),
        ("in_port(1) 1,dp-extra-info:idle_timeout(1.", "0"),
        ("in_port(1), packets:", "1"),
    ] {
        assert_linear(start, unit, &|text| {
            let errors = [parse_key(text, &()).err(), parse_actions(text, &()).err(), parse_line(text, &()).err()];
            for error in errors.into_iter().flatten() {
                assert!(error.caret(text).len() < 1000);
            }
        });
    }
}

#[test]
fn parentheses_nest_no_deeper_than_in_ovs() {
    let nested = |depth: usize| format!("{}1{}", "clone(".repeat(depth), ")".repeat(depth));
    assert!(parse_actions(&nested(32), &()).is_ok());
    assert_eq!(
        parse_actions(&nested(33), &()).unwrap_err().to_string(),
        "at byte 197: expected at most 32 lists of actions within each other"
    );
    assert!(parse_actions(&nested(1000), &()).is_err());
    assert!(parse_key(&format!("{}{}", "encap(".repeat(1000), ")".repeat(1000)), &()).is_err());
    assert!(parse_key(&format!("mpls{}{}", "(".repeat(1000), ")".repeat(1000)), &()).is_err());
}

#[test]
fn there_are_no_more_actions_than_ovs_takes() {
    assert_eq!(parse_actions(&"1,".repeat(8191), &()).unwrap().len(), 8191);
    assert_eq!(parse_actions(&"1,".repeat(8192), &()).unwrap_err().offset, 2 * 8191);
}
