//! OVS's tunnel flows as they are, on a kernel that may not know the flags in them.

use std::sync::Arc;

use sluice_flow::action::{Action, ActionList};
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::context::TunnelFlags;
use sluice_offload_tc::label::Label;
use sluice_offload_tc::translate;
use sluice_tests::lab::{OWN_IP, OWN_MAC, PEER_IP, PEER_MAC, UNDERLAY, VXLAN};

use crate::classifier::Classifier;
use crate::flows::{at, output, set_tunnel};
use crate::packets::{Ipv4, udp};
use crate::play::flow;
use crate::report::Report;

const NAME: &str = "tunnel flags: OVS's own flows are taken as OVS takes them, if that is configured";
const DF: u128 = 1;
const CHECKSUM: u128 = 2;
const KEY: u128 = 4;

pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    if !is_wanted(NAME) {
        return;
    }
    classifier.clear();
    let done = check(classifier);
    classifier.devices.tunnel_flags = TunnelFlags::Exact;
    match done {
        Ok(()) => report.pass(NAME),
        Err(reason) => report.fail(format!("{NAME}: {reason}")),
    }
}

fn check(classifier: &mut Classifier) -> Result<(), String> {
    let inner = Ipv4::default().frame(17, &udp(1000, 2000, b"inner data"));
    let mut outer = Ipv4 { source: PEER_IP, target: OWN_IP, ..Ipv4::default() }
        .frame(17, &udp(50000, 4789, &[&[8, 0, 0, 0, 0, 0, 5, 0][..], &inner].concat()));
    outer[..6].copy_from_slice(&OWN_MAC);
    outer[6..12].copy_from_slice(&PEER_MAC);
    // The outer checksum of this packet is right and it may be fragmented: -df+csum+key.
    let way_in = at(VXLAN).ipv4(17).masked(Field::TunnelFlags, CHECKSUM | KEY, DF | CHECKSUM | KEY);
    let way_in = way_in.is(Field::TunnelPresent, 1u8).is(Field::TunnelId, 5u8).done();
    let way_out = at(1).ipv4(17).done();
    let [own, peer] = [OWN_IP, PEER_IP].map(|address| u128::from(u32::from_be_bytes(address)));
    let header = set_tunnel(&[
        (Field::TunnelId, 5),
        (Field::TunnelIpv4Src, own),
        (Field::TunnelIpv4Dst, peer),
        (Field::TunnelTtl, 64),
        (Field::TunnelFlags, DF | KEY),
    ]);
    let flows: [(Match, ActionList); 2] =
        [(way_in, Arc::from([output(2)])), (way_out, Arc::from([header, output(VXLAN)]))];
    let features = classifier.devices.features;
    for ((matching, actions), is_known) in flows.iter().zip([features.tunnel_flags, features.no_fragment]) {
        let exact = classifier.filter(&flow(matching, actions), 1);
        let is_named =
            matches!(&exact, Err(Refusal::Field { field: Field::TunnelFlags, reason }) if reason.contains("as_ovs"));
        ensure(exact.is_ok() == is_known && (is_known || is_named), || format!("{exact:?}"))?;
    }
    classifier.devices.tunnel_flags = TunnelFlags::AsOvs;
    for (handle, (matching, actions)) in (1..).zip(&flows) {
        let filter = classifier.filter(&flow(matching, actions), handle).map_err(|refusal| refusal.to_string())?;
        classifier.add(&filter).map_err(|refusal| refusal.to_string())?;
        let shown = classifier.installer.find(filter.id).map_err(|error| error.to_string())?.ok_or("no rule")?;
        let notes = [0, 1].map(|at| shown.flower.actions[at].cookie.expect("a note"));
        let label = Label::read([notes[0].bytes(), notes[1].bytes()]).ok_or("no note of ours")?;
        let (read, did) = translate::flow(&shown, &label, &classifier.devices).map_err(|error| error.to_string())?;
        ensure((&read, said(&did)) == (matching, said(actions)), || format!("read back as {read:?} {did:?}"))?;
    }
    let came_in = classifier.inject(PortNumber(UNDERLAY), &outer, 1);
    ensure(came_in.get(&PortNumber(2)) == Some(&vec![inner.clone()]), || format!("in: {came_in:?}"))?;
    let went_out = classifier.inject(PortNumber(1), &inner, 1);
    let frame = went_out.get(&PortNumber(UNDERLAY)).and_then(|frames| frames.first()).ok_or("nothing went out")?;
    let is_unfragmentable = frame[20] & 0x40 != 0;
    ensure(is_unfragmentable == features.no_fragment, || format!("out: {frame:02x?}"))
}

/// The outer headers that some actions set, without what goes without saying.
fn said(actions: &ActionList) -> Vec<(Field, u128)> {
    let sets = actions.iter().filter_map(|action| match action {
        Action::SetTunnel(set) => Some(set.fields.iter().map(|(field, value, _)| (*field, *value))),
        _ => None,
    });
    sets.flatten().collect()
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
