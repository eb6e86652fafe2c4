//! Lists of actions that are valid for a match: each is chosen of those that fit the packet as the ones before left it.
//!
//! What fits follows `__ovs_nla_copy_actions` and `validate_set` in `net/openvswitch/flow_netlink.c`; where the kernel lets
//! pass what does nothing (a tag popped that is not there), the generator does not.

use sluice_flow::action::{Action, ActionKind, ActionList, EthernetAddresses, MplsEntry, VlanTag, visit};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::meter::MeterId;
use sluice_flow::port::Port;

use super::Maker;
use super::arguments;
use super::draw::Draw;
use super::feature::{Feature, Form, SETTABLE};
use super::shape::{MPLS_TYPES, Shape};

/// The numbers out of which an action is made, and those of the lists within it.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) numbers: Vec<u16>,
    pub(super) inner: Vec<Step>,
}

/// What actions may refer to.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) ports: &'a [Port],
    /// The chains to which a jump may lead: later ones, so that there is no cycle.
    pub(super) chains: &'a [ChainId],
}

/// How often an action is tried, in relation to the others.
const WEIGHTS: &[(ActionKind, usize)] = &[
    (ActionKind::Output, 6),
    (ActionKind::Set, 12),
    (ActionKind::PushVlan, 3),
    (ActionKind::PopVlan, 4),
    (ActionKind::PushMpls, 2),
    (ActionKind::PopMpls, 4),
    (ActionKind::AddMpls, 2),
    (ActionKind::PushEth, 3),
    (ActionKind::PopEth, 2),
    (ActionKind::PushNsh, 2),
    (ActionKind::PopNsh, 3),
    (ActionKind::SetTunnel, 4),
    (ActionKind::Ct, 8),
    (ActionKind::CtClear, 1),
    (ActionKind::Userspace, 4),
    (ActionKind::TnlPush, 2),
    (ActionKind::TnlPop, 1),
    (ActionKind::Meter, 1),
    (ActionKind::Hash, 1),
    (ActionKind::LbOutput, 1),
    (ActionKind::Psample, 1),
    (ActionKind::Recirc, 3),
    (ActionKind::Trunc, 1),
    (ActionKind::Sample, 2),
    (ActionKind::Clone, 2),
    (ActionKind::CheckPktLen, 2),
    (ActionKind::DecTtl, 2),
];

/// Builds a list of actions for packets of this match.
pub(super) fn build(maker: &mut Maker<'_>, full: &Match, steps: &[Step], surroundings: Surroundings<'_>) -> ActionList {
    list(maker, Shape::of(full), steps, surroundings)
}

fn list(maker: &mut Maker<'_>, mut shape: Shape, steps: &[Step], surroundings: Surroundings<'_>) -> ActionList {
    let mut actions = Vec::new();
    for step in steps {
        let mut draw = Draw::new(&step.numbers);
        let fitting = |kind: &ActionKind| fits(*kind, &shape);
        let total: usize = WEIGHTS.iter().filter(|(kind, _)| fitting(kind)).map(|(_, weight)| weight).sum();
        let mut place = draw.below(total);
        let chosen = WEIGHTS.iter().filter(|(kind, _)| fitting(kind)).find(|(_, weight)| {
            let here = place < *weight;
            place = place.saturating_sub(*weight);
            here
        });
        let Some((kind, _)) = chosen else { continue };
        if !maker.allows(Feature::Action(*kind)) {
            continue;
        }
        if let Some(action) = one(maker, *kind, &shape, &mut draw, step, surroundings) {
            shape.apply(&action);
            actions.push(action);
        }
    }
    actions.into()
}

/// Whether an action may be done to a packet of this shape.
fn fits(kind: ActionKind, shape: &Shape) -> bool {
    match kind {
        ActionKind::PushVlan => shape.ethernet && shape.tags < 2,
        ActionKind::PopVlan => shape.ethernet && shape.tags > 0,
        ActionKind::PushMpls => shape.takes_label(),
        ActionKind::AddMpls => shape.takes_label() || shape.ethernet,
        ActionKind::PopMpls => shape.untagged() && shape.is_mpls() && !shape.labels.is_empty(),
        ActionKind::PushEth => !shape.ethernet,
        ActionKind::PopEth => shape.ethernet && shape.untagged(),
        ActionKind::PushNsh => shape.nsh_protocol().is_some(),
        ActionKind::PopNsh => !shape.ethernet && shape.eth_type == Some(0x894f) && shape.nsh_next.is_some(),
        ActionKind::Ct | ActionKind::DecTtl => shape.is_ip(),
        _ => true,
    }
}

fn one(
    maker: &mut Maker<'_>,
    kind: ActionKind,
    shape: &Shape,
    draw: &mut Draw<'_>,
    step: &Step,
    surroundings: Surroundings<'_>,
) -> Option<Action> {
    let port = |draw: &mut Draw<'_>| draw.pick(surroundings.ports).number;
    let inner = |maker: &mut Maker<'_>, half: usize| {
        let (first, second) = step.inner.split_at(step.inner.len().div_ceil(2));
        let steps = [&step.inner[..], first, second][half];
        list(maker, shape.clone(), steps, surroundings)
    };
    Some(match kind {
        ActionKind::Output | ActionKind::Drop => Action::Output(port(draw)),
        ActionKind::Set => return set(maker, shape, draw),
        ActionKind::PushVlan => {
            let service = draw.chance(30) && maker.allows(Feature::Form(Form::PushServiceTag));
            Action::PushVlan(VlanTag {
                tpid: if service { 0x88a8 } else { 0x8100 },
                vid: draw.bits16() & 0xfff,
                pcp: draw.bits8() & 7,
                cfi: !(draw.chance(20) && maker.allows(Feature::Form(Form::PushTagWithoutCfi))),
            })
        }
        ActionKind::PopVlan => Action::PopVlan,
        ActionKind::PushMpls => Action::PushMpls(label(shape.is_mpls(), draw)),
        ActionKind::AddMpls => Action::AddMpls(label(false, draw)),
        ActionKind::PopMpls => {
            let more = match shape.labels.first() {
                Some(Some(bottom)) => !bottom,
                _ => shape.labels.len() > 1 || draw.chance(50),
            };
            Action::PopMpls(draw.pick(if more { MPLS_TYPES } else { &[0x0800, 0x86dd] }))
        }
        ActionKind::PushEth => Action::PushEth(EthernetAddresses {
            source: u64::try_from(draw.bits(48)).unwrap_or_default(),
            destination: u64::try_from(draw.bits(48)).unwrap_or_default(),
        }),
        ActionKind::PopEth => Action::PopEth,
        ActionKind::PushNsh => Action::PushNsh(Box::new(arguments::nsh(maker, shape.nsh_protocol()?, draw)?)),
        ActionKind::PopNsh => Action::PopNsh,
        ActionKind::SetTunnel => Action::SetTunnel(arguments::tunnel(maker, draw)),
        ActionKind::Ct => {
            Action::Conntrack(Box::new(arguments::conntrack(maker, shape.eth_type == Some(0x86dd), draw)))
        }
        ActionKind::CtClear => Action::ConntrackClear,
        ActionKind::Userspace => Action::Userspace(Box::new(arguments::userspace(maker, draw, surroundings.ports)?)),
        ActionKind::TnlPush => Action::TunnelPush(Box::new(arguments::tunnel_push(maker, draw, port)?)),
        ActionKind::TnlPop => Action::TunnelPop(port(draw)),
        ActionKind::Meter => Action::Meter(MeterId(draw.bits32())),
        ActionKind::Hash => arguments::hash(maker, draw)?,
        ActionKind::LbOutput => Action::LbOutput(draw.bits32()),
        ActionKind::Psample => {
            let with_cookie = draw.chance(60) && maker.allows(Feature::Form(Form::Cookie));
            let length = if with_cookie { 1 + draw.below(16) } else { 0 };
            Action::Psample { group: draw.bits32(), cookie: draw.bytes(length).into() }
        }
        ActionKind::Recirc if surroundings.chains.is_empty() => return None,
        ActionKind::Recirc => Action::Recirc(draw.pick(surroundings.chains)),
        // `ETH_HLEN` is the least that the kernel cuts to.
        ActionKind::Trunc => Action::Trunc(draw.bits32().max(14)),
        ActionKind::Sample => {
            let actions = inner(maker, 0);
            Action::Sample { probability: arguments::probability(maker, draw)?, actions }
        }
        ActionKind::Clone => Action::Clone(inner(maker, 0)),
        ActionKind::CheckPktLen => Action::CheckPacketLength {
            length: draw.bits16(),
            greater: inner(maker, 1),
            less_or_equal: inner(maker, 2),
        },
        ActionKind::DecTtl => Action::DecTtl(inner(maker, 0)),
    })
}

/// A label stack entry that is the bottom of the stack unless it is put on top of others.
fn label(on_others: bool, draw: &mut Draw<'_>) -> MplsEntry {
    MplsEntry {
        label: draw.bits32() & 0xf_ffff,
        tc: draw.bits8() & 7,
        ttl: draw.bits8(),
        bos: !on_others,
        eth_type: draw.pick(MPLS_TYPES),
    }
}

fn set(maker: &mut Maker<'_>, shape: &Shape, draw: &mut Draw<'_>) -> Option<Action> {
    let fitting: Vec<_> = SETTABLE.iter().copied().filter(|attribute| shape.has(*attribute)).collect();
    let attribute = draw.pick(&fitting);
    if !maker.allows(Feature::Set(attribute)) {
        return None;
    }
    let settable: Vec<_> = attribute.fields().map(|spec| spec.field).filter(|field| shape.settable(*field)).collect();
    let exact = !draw.chance(40) || !maker.allows(Feature::Form(Form::MaskedSet));
    // An entry of MPLS is set as a whole, unless under masks.
    let whole = exact && attribute == Attribute::Mpls;
    let one = draw.pick(&settable);
    let mut fields = Vec::new();
    for field in settable {
        if !(whole || field == one || draw.chance(30)) {
            continue;
        }
        let width = field.spec().width;
        let mask = if exact { field.full_mask() } else { draw.mask(width) };
        let value = match field {
            Field::ArpOp => draw.bits(8),
            Field::NshFlags => draw.bits(2),
            Field::NshTtl => draw.bits(6),
            _ => draw.bits(width),
        };
        fields.push((field, value & mask, mask));
    }
    if let (true, Some(Some(bottom))) = (whole, shape.labels.first()) {
        fields.push((Field::MplsBos, u128::from(*bottom), 1));
    }
    Some(Action::Set(sluice_flow::FieldSet { attribute, fields: fields.into() }))
}

/// Which actions a list has, and in which forms; worked out of the list alone.
pub(super) fn features(actions: &[Action]) -> Vec<Feature> {
    let mut found = Vec::new();
    let mut add = |feature| found.push(feature);
    let mut see = |action: &Action| {
        add(Feature::Action(action.kind()));
        arguments::features(action, &mut add);
        for list in action.lists() {
            if list.iter().any(|inner| inner.lists().any(|list| !list.is_empty())) {
                add(Feature::Form(Form::Nested));
            }
            if list.is_empty() {
                add(Feature::Action(ActionKind::Drop));
            }
            if goes_on_after_recirc(list) {
                add(Feature::Form(Form::MoreAfterRecirc));
            }
        }
    };
    visit(actions, &mut see);
    if actions.is_empty() {
        add(Feature::Action(ActionKind::Drop));
    }
    if goes_on_after_recirc(actions) {
        add(Feature::Form(Form::MoreAfterRecirc));
    }
    found
}

fn goes_on_after_recirc(actions: &[Action]) -> bool {
    actions.windows(2).any(|pair| matches!(pair[0], Action::Recirc(_)))
}
