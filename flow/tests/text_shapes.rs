//! A reader that has seen other lines before reads each line as one that has seen none.
#![expect(clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

mod any_match;

use any_match::any_match;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluice_flow::key::MaskedKey;
use sluice_flow::text::{LineReader, Style, parse_line, write_key};

/// Ways in which a key and its actions are put together.
const FRAMES: &[[&str; 3]] = &[
    ["", " ", "2"],
    ["", ",", "2"],
    ["", ", packets:7, bytes:420, used:1.5s, flags:S, actions:", "set(skb_mark(0x1)),ct,3"],
    ["ufid:01234567-89ab-4def-8123-456789abcdef, ", " ", "ct(commit,zone=5),2"],
    [
        "ufid:01234567-89ab-4def-8123-456789abcdef,",
        ", packets:0, bytes:0, used:never, offloaded:yes, dp:tc, actions:",
        "drop",
    ],
    [" ,", "\t", "1, dp-extra-info:priority[3],idle_timeout[5]"],
    ["", "", ""],
];

/// How a line becomes another one that is much like it.
#[derive(Clone, Debug)]
enum Edit {
    /// A digit becomes another one, or a letter.
    Digit(Index, u8),
    /// A word, a value or nothing stands in the place of some bytes.
    Replace(Index, usize, &'static str),
    /// Every digit moves on by so much.
    Shift(u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let words: &[&str] = &[
        "",
        "0",
        "00",
        "1",
        "0x",
        "0x1",
        "0X1f",
        "999999999999",
        "0xffffffffffffffffff",
        "255",
        "256",
        "a",
        "ff:",
        "::1",
        "1.2.3.4",
        "01.2.3.4",
        "/",
        "/0",
        "/24",
        "/0xf",
        ",",
        " ",
        "(",
        ")",
        "=",
        "),eth(",
        ") eth(",
        "encap(",
        "tcp(src=1)",
        "key9(0/0)",
        "in_port(1)",
        "recirc_id(0)",
        "no",
        "ü",
        "-",
    ];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(place, to)| Edit::Digit(place, to)),
        2 => (any::<Index>(), 0..4usize, select(words)).prop_map(|(place, length, word)| Edit::Replace(place, length, word)),
        1 => (1..10u8).prop_map(Edit::Shift),
    ]
}

impl Edit {
    fn of(&self, line: &str) -> String {
        let mut characters: Vec<char> = line.chars().collect();
        match self {
            Self::Digit(place, to) => {
                let digits = characters.iter_mut().filter(|character| character.is_ascii_hexdigit());
                let mut digits: Vec<_> = digits.collect();
                if !digits.is_empty() {
                    let place = place.index(digits.len());
                    *digits[place] = char::from_digit(u32::from(to % 16), 16).unwrap();
                }
            }
            Self::Replace(place, length, word) => {
                let start = place.index(characters.len() + 1);
                let end = (start + length).min(characters.len());
                characters.splice(start..end, word.chars());
            }
            Self::Shift(by) => {
                for digit in characters.iter_mut().filter(|character| character.is_ascii_digit()) {
                    *digit = char::from(b'0' + (*digit as u8 - b'0' + by) % 10);
                }
            }
        }
        characters.into_iter().collect()
    }
}

/// What becomes of a line by itself is what becomes of it among others.
fn assert_alike(reader: &mut LineReader<'_>, line: &str) {
    let alone = parse_line(line, &());
    let among_others = reader.read(line).cloned();
    assert_eq!(among_others, alone, "{line}");
    if let Ok(alone) = alone {
        assert_eq!(reader.masked_key(), MaskedKey::new(&alone.matching), "{line}");
        assert_eq!(*reader.line(), alone, "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn what_was_read_before_changes_nothing(
        matches in vec((any_match(), any::<bool>(), select(FRAMES)), 1..4),
        edits in vec((any::<Index>(), vec(edit(), 0..3)), 0..24),
    ) {
        let mut lines: Vec<_> = matches
            .iter()
            .map(|(full, more, [before, between, actions])| {
                let mut key = String::new();
                write_key(&mut key, &MaskedKey::new(full), &Style { more: *more, names: None }).unwrap();
                format!("{before}{key}{between}{actions}")
            })
            .collect();
        for (from, edits) in edits {
            let line = &lines[from.index(lines.len())];
            lines.push(edits.iter().fold(line.clone(), |line, edit| edit.of(&line)));
        }
        let mut reader = LineReader::new(&());
        lines.iter().for_each(|line| assert_alike(&mut reader, line));
    }
}

#[test]
fn a_value_that_decides_what_else_may_be_there_is_looked_at() {
    let mut reader = LineReader::new(&());
    for line in [
        "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,proto=6,frag=no),tcp(src=5) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=6) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=17,frag=no),tcp(src=6) 2",
        "in_port(2),eth_type(0x86dd),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=6) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=later),tcp(src=6) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=1),tcp(src=6) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.256,proto=6,frag=no),tcp(src=6) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=65536) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=06) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=6),tcp(dst=6) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=6) tcp_flags(syn) 2",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=6)",
        "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.2,proto=6,frag=no),tcp(src=6),2",
        "in_port(3),eth_type(0x0800),ipv4(src=10.0.0.3,proto=6,frag=no),tcp(src=7) 2",
    ] {
        assert_alike(&mut reader, line);
    }
}

#[test]
fn masks_belong_to_the_shape_and_values_lose_what_they_do_not_touch() {
    let mut reader = LineReader::new(&());
    for line in [
        "in_port(1),eth(src=02:00:00:00:00:01/ff:ff:ff:00:00:00),eth_type(0x86dd),ipv6(src=fe80::1/64,label=0x5/0xff) 1",
        "in_port(1),eth(src=12:34:56:78:9a:bc/ff:ff:ff:00:00:00),eth_type(0x86dd),ipv6(src=fe81::2/64,label=0x7ff/0xff) 1",
        "in_port(1),eth(src=12:34:56:78:9a:bc/ff:ff:00:00:00:00),eth_type(0x86dd),ipv6(src=fe81::2/63,label=0x7ff/0xff) 1",
        "in_port(1),eth(src=12:34:56:78:9a:bc/00:00:00:00:00:00),eth_type(0x86dd),ipv6(src=fe81::2/0,label=0x7ff/0) 1",
        "in_port(1),eth(src=12:34:56:78:9a:bd/00:00:00:00:00:00),eth_type(0x86dd),ipv6(src=fe82::2/0,label=0x8ff/0) 1",
        "in_port(1),ct_label(0x123456789abcdef0123456789/0xff00000000000000000) 1",
        "in_port(1),ct_label(0x223456789abcdef0123456789/0xff00000000000000000) 1",
        "in_port(1),vlan(vid=5,pcp=1),encap(eth_type(0x0800)) 1",
        "in_port(1),vlan(vid=6,pcp=2),encap(eth_type(0x0800)) 1",
        "in_port(1),vlan(vid=4096,pcp=2),encap(eth_type(0x0800)) 1",
        "tunnel(tun_id=0x5,src=1.1.1.1,geneve({class=0x1,type=0x2,len=4,0x3}),flags(df)),in_port(1) 1",
        "tunnel(tun_id=0x6,src=1.1.1.2,geneve({class=0x1,type=0x2,len=4,0x4}),flags(df)),in_port(1) 1",
    ] {
        assert_alike(&mut reader, line);
    }
}

#[test]
fn more_shapes_than_are_kept_are_read_all_the_same() {
    let mut reader = LineReader::new(&());
    for round in 0..3 {
        for mask in 1..3_000u32 {
            assert_alike(
                &mut reader,
                &format!("in_port(1),skb_mark({}/{mask:#x}),ct_mark({round}) 1", mask * 7 + round),
            );
        }
    }
}

#[test]
fn what_has_no_key_leaves_no_shape() {
    let mut reader = LineReader::new(&());
    for line in [
        " ,2",
        " ,recirc) 2",
        "2",
        "",
        "ufid:01234567-89ab-4def-8123-456789abcdef 2",
        "ufid:01234567-89ab-4def-8123-456789abcdefa 2",
    ] {
        assert_alike(&mut reader, line);
    }
}
