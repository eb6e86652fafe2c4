//! What is written of generated flows is read by OVS's own programs and by its Python library, and what they write is
//! read here, to the same flow.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod datapath;
mod dpctl;
mod library;

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::action::ActionKind;
use sluice_flow::field::Attribute;
use sluice_flow::text::{Style, parse_actions, parse_key, write_actions, write_key};
use sluice_flow::{Action, MaskedKey, Match};
use sluice_tests::generate::{Feature, Form, GeneratedFlow, Profile, collect, fields_beyond_ovs};

/// So many that each reader is left with more than 10,000, those that are equal or left out one by one not counted.
const FLOWS: u64 = 15_000;

#[test]
fn our_own_text_is_read_back_to_the_same_flow() {
    for flow in flows_under(Profile { name: "our text", ..Profile::everything() }, FLOWS) {
        for more in [false, true] {
            let text = key_text(&flow.matching, more);
            let read = parse_key(&text, &()).unwrap_or_else(|error| panic!("{}", error.caret(&text)));
            assert_eq!(read.matching, flow.matching, "{text}");
        }
        let text = actions_text(&flow.actions);
        let read = parse_actions(&text, &()).unwrap_or_else(|error| panic!("{}", error.caret(&text)));
        assert_eq!(read, flow.actions, "{text}");
    }
}

/// The flows of a run under a profile; says how many there are and what was left out by which rule. A rule that leaves
/// out nothing has lost its reason.
fn flows_under(profile: Profile, count: u64) -> Vec<GeneratedFlow> {
    let profile = Arc::new(profile);
    let (sets, hits) = collect(&profile, count);
    println!("{}: {} flows; left out:", profile.name, hits.flows());
    for (name, reason, count) in hits.left_out(&profile) {
        println!("{count:>8} by rule {name:?}: {reason}");
    }
    hits.assert_complete(&profile);
    sets.into_iter().flatten().collect()
}

/// Why single flows are left out, and how many were. A reason that leaves out none is none any more.
#[derive(Default)]
struct LeftOut(BTreeMap<&'static str, u64>);

impl LeftOut {
    fn of(reasons: &[&'static str]) -> Self {
        Self(reasons.iter().map(|reason| (*reason, 0)).collect())
    }

    fn count(&mut self, reason: &'static str) {
        *self.0.get_mut(reason).expect("a reason that is listed") += 1;
    }

    fn say(self) {
        for (reason, count) in self.0 {
            println!("{count:>8} flows: {reason}");
            assert!(count > 0, "leaves nothing out: {reason}");
        }
    }
}

/// Without the actions that OVS 3.1 does not read, or reads as something else.
fn without_what_ovs_cannot_say(profile: Profile) -> Profile {
    use ActionKind as Kind;
    let forms = |forms: &[Form]| forms.iter().map(|form| Feature::Form(*form)).collect::<Vec<_>>();
    let unread = [Kind::DecTtl, Kind::Hash, Kind::PopEth, Kind::PopMpls, Kind::PushEth, Kind::PushMpls];
    profile
        .without("fields of ours", "OVS does not have them", fields_beyond_ovs())
        .without("actions without a reader", "no version reads what it prints of them", unread.map(Feature::Action))
        .without("psample()", "it is from version 3.4", [Feature::Action(Kind::Psample)])
        .without(
            "set(nsh())",
            "the reader takes no nsh(): it goes on as if there was encap(",
            [Feature::Set(Attribute::Nsh)],
        )
        .without("set(nd_ext())", "OVS 3.1 writes it without its mask", [Feature::Set(Attribute::NdExt)])
        .without("fine probabilities", "it prints tenths of a percent", forms(&[Form::SampleFine]))
        .without("userspace() without a note", "it reads one of 48 zeros", forms(&[Form::ToProcess]))
        .without("short userdata()", "it fills up to 8 bytes", forms(&[Form::ToProcessFewBytes]))
        .without("long TLVs of NSH", "it takes no text that is longer", forms(&[Form::NshLongTlvs]))
        .without("TLVs of NSH with zeros in front", "it prints no zeros in front", forms(&[Form::NshZeroTlvs]))
        .without("ERSPAN headers", "the reader looks for the letters \"hx\"", forms(&[Form::PushErspan]))
        .without("GTP-U headers", "it reads them without the UDP header that it prints", forms(&[Form::PushGtpu]))
        .without("SRv6 headers", "they are from version 3.2", forms(&[Form::PushSrv6]))
        .without("headers as bytes()", "the form is our own", forms(&[Form::PushBytes]))
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
