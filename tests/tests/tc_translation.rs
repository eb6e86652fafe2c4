//! Generated flows become rules of flower or a typed refusal, and a rule, read from its bytes, is the flow again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_flow::action::{Action, ActionKind, ActionList, FieldSet, visit};
use sluice_flow::field::{FIELDS, Field};
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{Match, MaskedKey};
use sluice_flow::meter::MeterId;
use sluice_flow::port::{PortNumber, TunnelProtocol};
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;
use sluice_offload_tc::rule::{AgentId, Label, Rule};
use sluice_offload_tc::surroundings::{Device, DeviceKind, Features, Surroundings};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::{Filter, FilterId, FilterView};
use sluice_offload_tc::wire::message::Messages;
use sluice_offload_tc::wire::statistics::RuleView;
use sluice_tests::generate::{Profile, collect};
use sluice_tests::scenario::flow_text;

const FLOWS: u64 = 20_000;
const AGENT: AgentId = AgentId(0x0123_4567_89ab_cdef);
const INTERFACES: u32 = 100;
const POLICERS: u32 = 0x1000_0000;

/// Any port and any meter is there.
struct Everything {
    kind: DeviceKind,
    features: Features,
}

impl Surroundings for Everything {
    fn device(&self, port: PortNumber) -> Option<Device> {
        Some(Device { interface: INTERFACES + port.0, kind: self.kind })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        Some((PortNumber(interface - INTERFACES), Device { interface, kind: self.kind }))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        meter.0.checked_add(POLICERS)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        police.checked_sub(POLICERS).map(MeterId)
    }

    fn features(&self) -> Features {
        self.features
    }
}

fn surroundings(full: &Match) -> Everything {
    let has_tunnel = full.is_exactly(Field::TunnelPresent, 1);
    let kind = if has_tunnel { DeviceKind::Tunnel(TunnelProtocol::Geneve) } else { DeviceKind::Wire };
    Everything { kind, features: Features { number_of_tags: true, tunnel_flags: true, no_fragment: true } }
}

fn flow(full: &Match, actions: &ActionList, priority: u8) -> Flow {
    let matching = MaskedKey::new(full);
    let priority = Priority::new(priority).unwrap();
    Flow::new(None, matching, Arc::clone(actions), priority, Expiry::default(), &Seed([7; 16]))
}

/// A rule through its bytes.
fn sent(rule: &Rule) -> Filter {
    let Rule { hook, chain, protocol, flower, .. } = rule.clone();
    let filter = Filter { id: FilterId { hook, chain, priority: 77, protocol, handle: 5 }, flower };
    let mut buffer = vec![];
    filter.emit(&mut buffer, 0, 1).unwrap();
    let message = Messages::new(&buffer).next().unwrap().unwrap();
    let view = FilterView::new(message.payload).unwrap();
    assert_eq!(view.parse().as_ref(), Ok(&filter));
    let cookies = RuleView::new(&view).unwrap().cookies;
    assert_eq!(Label::read(cookies).map(|label| (label.agent, label.priority)), Some((AGENT, rule.priority)));
    filter
}

fn label(filter: &Filter) -> Label {
    Label::read([0, 1].map(|at| filter.flower.actions[at].cookie.as_ref().expect("a note").octets())).unwrap()
}

#[test]
fn every_rule_read_from_its_bytes_is_the_flow_that_it_was_made_from() {
    let (sets, _) = collect(&Arc::new(Profile::everything()), FLOWS);
    let (mut taken, mut refusals) = (0, BTreeMap::new());
    let (mut fields, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for (number, generated) in sets.iter().flatten().enumerate() {
        let (full, actions) = (&generated.matching, &generated.actions);
        let surroundings = surroundings(full);
        let flow = flow(full, actions, u8::try_from(number % 16).unwrap());
        match translate::rule(&flow, AGENT, &surroundings) {
            Ok(rule) => {
                let filter = sent(&rule);
                let label = label(&filter);
                let text = flow_text(full, actions);
                let (read, did) = translate::flow(&filter, &label, &surroundings)
                    .unwrap_or_else(|error| panic!("{error}: {text}\n{filter:?}"));
                assert_eq!(flow_text(&read, &did), flow_text(full, &plain(actions)));
                assert_eq!((&read, &did), (full, &plain(actions)), "{text}");
                assert_eq!((label.ufid, rule.priority), (flow.ufid, flow.priority));
                taken += 1;
                fields.extend(FIELDS.iter().map(|spec| spec.field).filter(|field| full.mask.get(*field) != 0));
                visit(actions, &mut |action| {
                    kinds.insert(action.kind());
                });
            }
            Err(refusal) => *refusals.entry(key(&refusal)).or_insert(0) += 1,
        }
    }
    println!("{taken} of {FLOWS} flows are rules; the others: {refusals:#?}");
    let missing: Vec<_> = CAN_BE_DONE.iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "actions that were never taken: {missing:?}");
    assert!(taken > FLOWS / 20, "{taken}");
    let never: Vec<_> = FIELDS.iter().map(|spec| spec.field).filter(|field| !fields.contains(field)).collect();
    println!("fields that were never taken: {}", never.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
}

const CAN_BE_DONE: &[ActionKind] = &[
    ActionKind::Ct,
    ActionKind::CtClear,
    ActionKind::Meter,
    ActionKind::Output,
    ActionKind::PopMpls,
    ActionKind::PopVlan,
    ActionKind::PushMpls,
    ActionKind::PushVlan,
    ActionKind::Recirc,
    ActionKind::Set,
    ActionKind::SetTunnel,
];

/// What a refusal is about, without numbers.
fn key(refusal: &Refusal) -> String {
    refusal.to_string()
}

/// A list of actions without that in `set(tunnel(…))` which says nothing: no type of service, no flags.
fn plain(actions: &ActionList) -> ActionList {
    actions
        .iter()
        .map(|action| match action {
            Action::SetTunnel(set) => {
                let silent = |field: &Field, value: u128| {
                    value == 0 && matches!(field, Field::TunnelTos | Field::TunnelFlags | Field::TunnelIpv4Src | Field::TunnelIpv6Src)
                };
                let fields = set.fields.iter().filter(|(field, value, _)| !silent(field, *value));
                Action::SetTunnel(FieldSet { attribute: set.attribute, fields: fields.copied().collect() })
            }
            Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
                length: *length,
                greater: plain(greater),
                less_or_equal: plain(less_or_equal),
            },
            other => other.clone(),
        })
        .collect()
}
