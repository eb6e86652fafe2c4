//! OVS's own reader and writer of keys, `ovs-dpctl parse-actions`: what we write it takes, and what it makes of that we
//! read as the same match.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
#![allow(dead_code, reason = "not all of the random matches' parts are used here")]

#[path = "../../flow/tests/any_match/mod.rs"]
mod any_match;
#[path = "../../flow/tests/odp_keys/mod.rs"]
mod odp_keys;

use std::process::Command;

use any_match::any_match;
use proptest::prelude::*;
use sluice_flow::text::{Style, parse_actions, parse_key, write_actions, write_key};
use sluice_flow::{MaskedKey, Match};
use sluice_tests::daemon::run;
use sluice_tests::generate::BEYOND_OVS;

/// The same in the words of OVS, or what is wrong with it.
fn reprinted(actions: &str) -> Result<String, String> {
    let ran = run(Command::new("ovs-dpctl").arg("parse-actions").arg(actions));
    if ran.err.is_empty() { Ok(ran.out.trim_end().to_owned()) } else { Err(format!("{}{actions}", ran.err)) }
}

/// The items of a list.
fn items(text: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                items.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items.retain(|item| !item.is_empty());
    items
}

/// The attributes of a key, those in `encap()` among them, changed one by one.
fn map_attributes(key: &str, change: &mut dyn FnMut(&str) -> String) -> String {
    let changed: Vec<_> = items(key)
        .into_iter()
        .map(|item| match item.strip_prefix("encap(").and_then(|rest| rest.strip_suffix(')')) {
            Some(inner) => format!("encap({})", map_attributes(inner, change)),
            None => change(item),
        })
        .collect();
    changed.join(",")
}

/// Why OVS's word on an attribute is not asked for, or not listened to.
enum Exception {
    /// Its reader takes no `nsh()` at all: behind it, it goes on as if there was `encap(`; and none of what it does not have.
    NotRead,
    /// Its writer makes something else of masks: of all within `set(tunnel())`, for which see [`SETS`] and the dummy
    /// datapath; of that of `nd_reserved`, which it always writes; of that of a CFI bit, which it does not write at all if
    /// it is 1; and it writes nothing for a number with a mask of zero.
    NotWritten,
}

fn exception(attribute: &str) -> Option<Exception> {
    let is_tag = attribute.starts_with("vlan(");
    let name = attribute.split('(').next().unwrap_or_default();
    if name == "nsh" || BEYOND_OVS.iter().any(|ours| ours.name() == name) {
        Some(Exception::NotRead)
    } else if attribute.starts_with("tunnel(")
        || attribute.starts_with("nd_ext(") && !has_exact_reserved(attribute)
        || is_tag && (attribute.contains("cfi=1") || attribute.contains("cfi=0/"))
        || attribute.ends_with("(0/0)")
    {
        Some(Exception::NotWritten)
    } else {
        None
    }
}

fn has_exact_reserved(nd_ext: &str) -> bool {
    let first = nd_ext["nd_ext(".len()..].split([',', ')']).next().unwrap();
    first.starts_with("nd_reserved=") && !first.contains('/')
}

fn key_text(full: &Match, more: bool) -> String {
    let mut text = String::new();
    write_key(&mut text, &MaskedKey::new(full), &Style { more, names: None }).unwrap();
    text
}

/// The key as OVS says it after having read what we write, as far as it says it.
fn in_the_words_of_ovs(ours: &str) -> Result<String, String> {
    let mut sets = Vec::new();
    map_attributes(ours, &mut |attribute| {
        if !matches!(exception(attribute), Some(Exception::NotRead)) {
            sets.push(format!("set({attribute})"));
        }
        String::new()
    });
    let reprinted = reprinted(&sets.join(","))?;
    let mut theirs = items(&reprinted).into_iter();
    let theirs = map_attributes(ours, &mut |attribute| {
        let exception = exception(attribute);
        let word = if matches!(exception, Some(Exception::NotRead)) { None } else { theirs.next() };
        match (exception, word) {
            (None, Some(word)) => word["set(".len()..word.len() - 1].to_owned(),
            _ => attribute.to_owned(),
        }
    });
    Ok(theirs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ovs_takes_what_we_write_and_means_the_same(full in any_match(), more in any::<bool>()) {
        let ours = key_text(&full, more);
        let theirs = in_the_words_of_ovs(&ours).map_err(TestCaseError::fail)?;
        match parse_key(&theirs, &()) {
            Ok(key) => prop_assert_eq!(key.matching, full, "{}\n{}", ours, theirs),
            Err(error) => prop_assert!(false, "{}", error.caret(&theirs)),
        }
    }
}

#[test]
fn ovs_writes_the_keys_of_its_own_test_in_the_same_words() {
    for ours in odp_keys::keys() {
        let theirs = in_the_words_of_ovs(&ours);
        assert_eq!(theirs.as_ref(), Ok(&ours));
    }
}

/// Sets that OVS reads and writes in the same words as we do.
const SETS: &[&str] = &[
    "set(tunnel(tun_id=0x1,src=1.1.1.1,dst=2.2.2.2,tos=0x8,ttl=64,tp_src=1,tp_dst=4789,flags(df|csum|key)))",
    "set(tunnel(tun_id=0x1,ipv6_src=fe80::1,ipv6_dst=::2,ttl=64,flags(oam|key)))",
    "set(tunnel(dst=2.2.2.2,ttl=64,vxlan(gbp(id=100,flags=0xb)),flags(df)))",
    "set(tunnel(dst=2.2.2.2,ttl=64,erspan(ver=1,idx=0x7),flags(df)))",
    "set(tunnel(dst=2.2.2.2,ttl=64,erspan(ver=2,dir=1,hwid=0x7),flags(df)))",
    "set(tunnel(dst=2.2.2.2,ttl=64,gtpu(flags=0x30,msgtype=255),flags(df)))",
    "set(tunnel(dst=2.2.2.2,ttl=64,geneve({class=0x102,type=0x80,len=4,0xa}{class=0,type=0,len=0}\
     {class=0xffff,type=0xff,len=12,0xffffffffffffffffffffff}),flags(csum)))",
    "set(mpls(label=1048575,tc=7,ttl=255,bos=1))",
    "set(mpls(label=3/0xf,tc=1/1,ttl=0/0x0,bos=0/0))",
    "set(nd_ext(nd_reserved=0x80000000,nd_options_type=2))",
    "set(nd(target=fe80::1,sll=00:00:00:00:00:00/ff:ff:ff:ff:ff:00,tll=00:00:00:00:00:02))",
];

#[test]
fn ovs_reads_and_writes_sets_as_we_do() {
    for text in SETS {
        assert_eq!(reprinted(text).as_deref(), Ok(*text));
        let actions = parse_actions(text, &()).unwrap_or_else(|error| panic!("{}", error.caret(text)));
        let mut printed = String::new();
        write_actions(&mut printed, &actions, &Style::default()).unwrap();
        assert_eq!(printed, *text);
    }
}
