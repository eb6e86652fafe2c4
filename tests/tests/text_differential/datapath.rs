//! `ovs-vswitchd` with its dummy datapath, which takes flows and dumps them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sluice_flow::field::{Attribute, Field};
use sluice_flow::text::parse_line;
use sluice_flow::{Match, Ufid};
use sluice_tests::generate::{Feature, Form, Profile, fields_of};
use sluice_tests::vswitchd::Vswitchd;

use crate::dpctl::{WRITTEN_AS_ANOTHER, for_ovs, reason_to_leave_out};
use crate::{FLOWS, LeftOut, actions_text, flows_under, key_text, without_what_ovs_cannot_say};

/// Why a match is left out, and whether it is.
type MatchRule = (&'static str, fn(&Match) -> bool);

/// Matches that OVS 3.1 takes and dumps as others.
const DUMPED_AS_ANOTHER: [MatchRule; 4] = [
    ("the ARP operation 255 is dumped as 65535", |full| {
        matches!(full.key.get(Field::EthType), 0x0806 | 0x8035) && full.is_exactly(Field::ArpOp, 255)
    }),
    ("a tunnel field whose value is zero is not dumped", |full| {
        let always = [Field::TunnelTtl, Field::TunnelFlags, Field::TunnelPresent];
        let mut fields = Attribute::Tunnel.fields().filter(|spec| !always.contains(&spec.field));
        fields.any(|spec| full.mask.get(spec.field) != 0 && full.key.get(spec.field) == 0)
    }),
    ("gtpu() is dumped only with both of its fields", |full| {
        let is_wild = |field| full.mask.get(field) == 0;
        full.is_exactly(Field::GtpuPresent, 1) && (is_wild(Field::GtpuFlags) || is_wild(Field::GtpuMessageType))
    }),
    ("vxlan() is not dumped without a field", |full| {
        let is_wild = |field| full.mask.get(field) == 0;
        full.is_exactly(Field::VxlanGbpPresent, 1) && is_wild(Field::VxlanGbpId) && is_wild(Field::VxlanGbpFlags)
    }),
];

#[test]
fn it_takes_our_flows_and_we_read_what_it_dumps() {
    let form = |form| [Feature::Form(form)];
    let erspan = Attribute::Tunnel.fields().filter(|spec| spec.name.starts_with("erspan"));
    let profile = Profile { name: "ovs-vswitchd, dummy datapath", ..Profile::everything() };
    let profile = without_what_ovs_cannot_say(profile)
        .without("nsh()", "the reader takes no nsh(): it goes on as if there was encap(", fields_of(Attribute::Nsh))
        .without("nd_ext()", "it is taken and not dumped", fields_of(Attribute::NdExt))
        .without("erspan()", "its masks are not dumped", erspan.map(|spec| Feature::Field(spec.field)))
        .without(
            "no Ethernet type",
            "it takes a key without one for that of an 802.3 frame, and wants that matched",
            form(Form::AnyEthType),
        )
        .without(
            "open label stack",
            "one without its bottom is dumped as mpls((bad key length 0)",
            form(Form::OpenLabelStack),
        );
    let flows = flows_under(profile, FLOWS);
    let vswitchd = Vswitchd::start_with(&["other_config:vlan-limit=2"]);
    let mut left_out = LeftOut::of(&DUMPED_AS_ANOTHER.map(|(reason, _)| reason));
    left_out.0.extend(WRITTEN_AS_ANOTHER.map(|reason| (reason, 0)));
    let mut text = String::new();
    let mut expected = BTreeMap::new();
    for (number, flow) in (1u32..).zip(&flows) {
        if let Some((reason, _)) = DUMPED_AS_ANOTHER.iter().find(|(_, applies)| applies(&flow.matching)) {
            left_out.count(reason);
            continue;
        }
        let full = as_it_demands(flow.matching, number);
        let ufid = Ufid(u128::from(number));
        writeln!(text, "ufid:{ufid},{} {}", key_text(&full, true), for_ovs(&actions_text(&flow.actions))).unwrap();
        expected.insert(ufid, (full, flow));
    }
    println!("{} flows are given to it", expected.len());
    let file = vswitchd.path("flows");
    std::fs::write(&file, &text).unwrap();
    let added = vswitchd.appctl(&["dpctl/add-flows", &file]);
    let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m", "--no-names"]).out;
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for dumped in dump.lines().filter(|line| line.starts_with("ufid:")) {
        let ufid = dumped["ufid:".len()..].split(',').next().unwrap();
        let (full, flow) = expected.remove(&ufid.parse().unwrap()).expect("a flow that was given");
        if let Some(reason) = reason_to_leave_out(&flow.actions, dumped) {
            left_out.count(reason);
            continue;
        }
        let line = parse_line(dumped, &()).unwrap_or_else(|error| panic!("{}", error.caret(dumped)));
        compared += 1;
        if (line.matching, &line.actions) != (full, &flow.actions) {
            wrong.push(format!("{} {}\n{dumped}", key_text(&full, true), actions_text(&flow.actions)));
        }
    }
    println!("{compared} of them are dumped and compared");
    left_out.say();
    let refused: Vec<_> =
        expected.values().map(|(full, flow)| (key_text(full, true), actions_text(&flow.actions))).collect();
    assert!(
        refused.is_empty(),
        "{} flows are refused: {:#?}\n{}",
        refused.len(),
        &refused[..refused.len().min(10)],
        added.err.lines().take(5).collect::<String>()
    );
    assert!(wrong.is_empty(), "{} flows are others: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

/// The match with what the datapath wants of any.
fn as_it_demands(mut full: Match, number: u32) -> Match {
    // An exact port, and no flow that overlaps another: a chain for each keeps the sets apart.
    full.set_exact(Field::RecircId, number.into());
    full.set_exact(Field::InPort, full.key.get(Field::InPort).max(1));
    // A tunnel's key must have a time to live, and the flag `key` goes with an identifier.
    if full.is_exactly(Field::TunnelPresent, 1) {
        full.set_exact(Field::TunnelTtl, full.key.get(Field::TunnelTtl));
        let flags = full.key.get(Field::TunnelFlags);
        if full.mask.get(Field::TunnelId) == 0 {
            full.set(Field::TunnelFlags, flags, 0b1011);
        } else {
            full.set_exact(Field::TunnelFlags, flags | 0b0100);
        }
    }
    // The tuple of a connection is not dumped without a protocol.
    for (attribute, proto) in [(Attribute::CtTuple4, Field::CtTuple4Proto), (Attribute::CtTuple6, Field::CtTuple6Proto)]
    {
        if attribute.fields().any(|spec| full.mask.get(spec.field) != 0) {
            full.set_exact(proto, full.key.get(proto).max(1));
        }
    }
    full
}
