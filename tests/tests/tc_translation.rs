//! Generated flows become rules of flower or a typed refusal, and a rule, read from its bytes, is the flow again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_flow::action::{Action, ActionKind, ActionList, FieldSet, visit};
use sluice_flow::field::{FIELDS, Field};
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;
use sluice_flow::priority::Priority;
use sluice_flow::ufid::Seed;
use sluice_netdev::netlink::message::Messages;
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use sluice_offload_tc::label;
use sluice_offload_tc::label::{Label, Room, Spelling};
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::rule::Rule;
use sluice_offload_tc::templates::{Lookup, Templates};
use sluice_offload_tc::translate::{self, Rules};
use sluice_offload_tc::wire::action::Cookie;
use sluice_offload_tc::wire::filter::{Filter, FilterId, FilterView};
use sluice_offload_tc::wire::rule_view::RuleView;
use sluice_tests::generate::{Feature, Profile, collect, flower_profile};
use sluice_tests::scenario::flow_text;

const FLOWS: u64 = 10_000;
/// Of one in so many it is looked at which flows are like it.
const VARIED: u64 = 7;
const AGENT: AgentId = AgentId(0x89ab_cdef);
const INTERFACES: u32 = 100;
const POLICERS: u32 = 0x1000_0000;

/// Any port and any meter is there.
struct Everything {
    kind: DeviceKind,
    features: Features,
    tunnel_flags: TunnelFlags,
    room: Room,
}

impl Context for Everything {
    fn device(&self, port: PortNumber) -> Option<Device> {
        Some(Device { interface: INTERFACES + port.0, kind: self.kind })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        Some((PortNumber(interface.wrapping_sub(INTERFACES)), Device { interface, kind: self.kind }))
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

    fn tunnel_flags(&self) -> TunnelFlags {
        self.tunnel_flags
    }

    fn room(&self) -> Room {
        self.room
    }
}

/// A kernel that knows all, or one that knows no flag of an outer header, which are then passed over.
fn context(full: &Match, knows_flags: bool, room: Room) -> Everything {
    let has_tunnel = full.is_exactly(Field::TunnelPresent, 1);
    let udp_port = (!full.is_exactly(Field::ErspanPresent, 1)).then_some(6081);
    let kind = if has_tunnel { DeviceKind::Tunnel { udp_port } } else { DeviceKind::Wire };
    let features = Features {
        number_of_tags: true,
        pppoe: true,
        l2tpv3: true,
        cfm: true,
        spi: true,
        tunnel_flags: knows_flags,
        no_fragment: knows_flags,
        connection_helpers: true,
    };
    let tunnel_flags = if knows_flags { TunnelFlags::Exact } else { TunnelFlags::AsOvs };
    Everything { kind, features, tunnel_flags, room }
}

fn flow(full: &Match, actions: &ActionList, priority: u8) -> Flow {
    let matching = MaskedKey::new(full);
    let priority = Priority::new(priority).unwrap();
    Flow::new(None, matching, Arc::clone(actions), priority, Expiry::default(), &Seed([7; 16]))
}

/// A rule through its bytes, signed as the backend does.
fn sent(rule: &Rule) -> Filter {
    let Rule { hook, chain, protocol, mut flower, .. } = rule.clone();
    label::sign(&mut flower);
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
    let note = |at: usize| filter.flower.actions.get(at)?.cookie.as_ref().map(Cookie::bytes);
    Label::read([0, 1].map(|at| note(at).unwrap_or_default())).expect("our notes")
}

#[test]
fn every_rule_read_from_its_bytes_is_the_flow_that_it_was_made_from() {
    let mut census = Census::default();
    let nothing: ActionList = [].into();
    for profile in [Profile::everything(), sayable()] {
        let (sets, _) = collect(&Arc::new(profile), FLOWS);
        for generated in sets.iter().flatten() {
            let mut full = generated.matching;
            if full.mask.get(Field::InPort) == 0 {
                full.set_exact(Field::InPort, 1);
            }
            // Once more without actions, so that those do not stand in the way of a match.
            [&generated.actions, &nothing].into_iter().for_each(|actions| census.add(&full, actions));
        }
    }
    let Census { tried, taken, guards, unnamed, caveats, refusals, fields, kinds, instances, varied } = census;
    println!(
        "{taken} of {tried} flows are rules, {guards} with a guard, {caveats} with caveats, {unnamed} without their UFIDs; the others: {refusals:#?}"
    );
    assert!(guards > 0 && caveats > 0 && unnamed > 0, "{guards}, {caveats}, {unnamed}");
    assert!(taken > tried / 4, "{taken} of {tried}");
    assert!(instances > taken / VARIED * 4, "{instances} rules of templates");
    let wanted = [
        Field::CtMark,
        Field::EthDst,
        Field::IcmpType,
        Field::Ipv4Src,
        Field::Ipv6Dst,
        Field::TcpDst,
        Field::TcpFlags,
        Field::TunnelId,
        Field::UdpSrc,
        Field::VlanVid,
    ];
    assert!(wanted.iter().all(|field| varied.contains(field)), "{varied:?}");
    let never = FIELDS.iter().map(|spec| spec.field).filter(|field| !fields.contains(field));
    assert_eq!(never.map(|field| field.to_string()).collect::<Vec<_>>(), NOT_IN_FLOWER, "fields that were never taken");
    let never: Vec<_> = ActionKind::ALL.iter().filter(|kind| !kinds.contains(kind)).copied().collect();
    assert_eq!(never, NOT_IN_TC, "actions that were never taken");
}

#[derive(Default)]
struct Census {
    tried: u64,
    taken: u64,
    guards: u64,
    /// Rules that had no room for their UFID.
    unnamed: u64,
    caveats: u64,
    refusals: BTreeMap<String, u64>,
    fields: BTreeSet<Field>,
    kinds: BTreeSet<ActionKind>,
    /// Rules that were made of templates, and in what they differed from those that these were made of.
    instances: u64,
    varied: BTreeSet<Field>,
}

impl Census {
    fn add(&mut self, full: &Match, actions: &ActionList) {
        self.tried += 1;
        let room = if self.tried.is_multiple_of(2) { Room::Found } else { Room::Made };
        let context = context(full, !self.tried.is_multiple_of(3), room);
        let flow = flow(full, actions, u8::try_from(self.tried % 16).unwrap());
        let Rules { rule, guard } = match translate::rules(&flow, AGENT, &context) {
            Ok(rules) => rules,
            Err(refusal) => {
                assert!(matches!(refusal.label(), "action" | "field" | "combination" | "limit"), "{refusal}");
                *self.refusals.entry(refusal.to_string()).or_default() += 1;
                return;
            }
        };
        let (filter, text) = (sent(&rule), flow_text(full, actions));
        let label = label(&filter);
        let (read, did) =
            translate::flow(&filter, &label, &context).unwrap_or_else(|error| panic!("{error}: {text}\n{filter:?}"));
        assert_eq!((flow_text(&read, &did), &read, &did), (flow_text(full, &plain(actions)), full, &plain(actions)));
        assert_eq!((label.ufid.unwrap_or(flow.ufid), rule.priority), (flow.ufid, flow.priority));
        match room {
            Room::Made => assert_eq!(label.ufid, Some(flow.ufid), "{text}"),
            Room::Found => self.unnamed += u64::from(label.ufid.is_none()),
        }
        if guard.is_none() && self.tried.is_multiple_of(VARIED) {
            self.vary(full, &flow, &filter, &context);
        }
        if let Some(guard) = guard {
            assert!(self::label(&sent(&guard)).spelling.has(Spelling::GUARD), "{text}");
            assert!(translate::rule(&flow, AGENT, &context).is_err(), "{text}");
            self.guards += 1;
        }
        self.caveats += u64::from(!rule.caveats.is_empty());
        self.tamper(&filter, &label, &context);
        self.taken += 1;
        self.fields.extend(FIELDS.iter().map(|spec| spec.field).filter(|field| full.mask.get(*field) != 0));
        visit(actions, &mut |action| {
            self.kinds.insert(action.kind());
        });
    }
}

impl Census {
    /// Has one field after the other be another. Where a template is known then, it gives the bytes that translation gives.
    fn vary(&mut self, full: &Match, flow: &Flow, filter: &Filter, context: &Everything) {
        let bytes = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut buffer = vec![];
            write(&mut buffer);
            buffer
        };
        let mut templates = Templates::new();
        for _ in 0..4 {
            if let Lookup::Learn(vacancy) = templates.look_up(flow, context) {
                templates.learn(vacancy, flow, filter, context);
            }
        }
        for spec in FIELDS.iter().filter(|spec| full.mask.get(spec.field) != 0) {
            let mask = full.mask.get(spec.field);
            let lowest = mask & mask.wrapping_neg();
            for bits in [mask, lowest] {
                let mut key = full.key;
                key.set(spec.field, full.key.get(spec.field) ^ bits);
                let matching = MaskedKey::under(Arc::clone(flow.matching().mask()), &key);
                let actions = Arc::clone(&flow.actions);
                let other = Flow::new(None, matching, actions, flow.priority, flow.expiry, &Seed([7; 16]));
                let Lookup::Hit(template) = templates.look_up(&other, context) else { continue };
                let instance = template.instance(other.clone(), filter.id);
                let rule = translate::rule(&other, AGENT, context).expect("a rule, as there is a template");
                let wanted = sent(&rule);
                let made = bytes(&|buffer| instance.emit(buffer, 5, 9));
                let translated = bytes(&|buffer| wanted.emit(buffer, 5, 9).unwrap());
                assert_eq!(made, translated, "{} of {}", spec.field, flow_text(full, &flow.actions));
                assert_eq!(instance.filter().as_ref(), Ok(&wanted));
                self.instances += 1;
                self.varied.insert(spec.field);
            }
        }
    }

    /// Has another rule than that of a flow be read without a panic.
    fn tamper(&self, filter: &Filter, label: &Label, context: &Everything) {
        let mut buffer = vec![];
        filter.emit(&mut buffer, 0, 1).unwrap();
        let at = 20 + usize::try_from(self.tried).unwrap() * 31 % (buffer.len() - 20);
        buffer[at] ^= 1 << (self.tried % 8);
        let read = Messages::new(&buffer).next().unwrap().and_then(|message| FilterView::new(message.payload)?.parse());
        if let Ok(filter) = read {
            let _ = translate::flow(&filter, label, context);
        }
    }
}

/// Flows without what no rule can say, and without what is seldom one.
fn sayable() -> Profile {
    flower_profile().without("state", "it would be refused too often", [Feature::Field(Field::CtState)]).without(
        "drop",
        "no actions say the same",
        [Feature::Action(ActionKind::Drop)],
    )
}

/// What flower has no key for.
const NOT_IN_FLOWER: [&str; 30] = [
    "dp_hash",
    "skb_priority",
    "tunnel.gtpu",
    "tunnel.gtpu.flags",
    "tunnel.gtpu.msgtype",
    "skb_mark",
    "ct_tuple4.src",
    "ct_tuple4.dst",
    "ct_tuple4.proto",
    "ct_tuple4.tp_src",
    "ct_tuple4.tp_dst",
    "ct_tuple6.src",
    "ct_tuple6.dst",
    "ct_tuple6.proto",
    "ct_tuple6.tp_src",
    "ct_tuple6.tp_dst",
    "nsh.flags",
    "nsh.ttl",
    "nsh.mdtype",
    "nsh.np",
    "nsh.spi",
    "nsh.si",
    "nsh.c1",
    "nsh.c2",
    "nsh.c3",
    "nsh.c4",
    "ipv6.label",
    "nd.target",
    "nd_ext.nd_reserved",
    "nd_ext.nd_options_type",
];
/// What tc cannot do, or what no list of actions has ("drop" is an empty one).
const NOT_IN_TC: [ActionKind; 13] = [
    ActionKind::AddMpls,
    ActionKind::Clone,
    ActionKind::Drop,
    ActionKind::Hash,
    ActionKind::LbOutput,
    ActionKind::PopEth,
    ActionKind::PopNsh,
    ActionKind::PushEth,
    ActionKind::PushNsh,
    ActionKind::TnlPop,
    ActionKind::TnlPush,
    ActionKind::Trunc,
    ActionKind::Userspace,
];

/// A list of actions without that in `set(tunnel(…))` which says nothing: no type of service, no flags.
fn plain(actions: &ActionList) -> ActionList {
    actions
        .iter()
        .map(|action| match action {
            Action::SetTunnel(set) => {
                let silent = |field: &Field, value: u128| {
                    value == 0
                        && matches!(
                            field,
                            Field::TunnelTos | Field::TunnelFlags | Field::TunnelIpv4Src | Field::TunnelIpv6Src
                        )
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
