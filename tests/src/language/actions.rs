//! What a flow does.

use sluice_flow::action::{Action, ActionKind, ActionList, FieldSet};
use sluice_flow::field::{Attribute, FIELDS, Field, FieldSpec, Form, Requirement};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::{parse_actions, parse_key};

use super::probe::with_header;
use super::{Backend, Row, Taken, of_fields, row};

/// From a function, with what the actions below need of a packet.
const UDP: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no),udp(src=1)";
/// The same, with the mark of congestion, as Open vSwitch matches it for tunnels.
const MARKED: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0/0x3,ttl=64,proto=17,frag=no),udp(src=1)";
const TAGGED: &str = "in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800),ipv4(frag=no))";
const TAGGED_FROM_A_FUNCTION: &str =
    "in_port(2),eth(),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800),ipv4(frag=no))";
const LABELLED: &str = "in_port(2),eth(),eth_type(0x8847),mpls(label=1,tc=0,ttl=9,bos=1)";
const NSH: &str = "in_port(2),packet_type(ns=1,id=0x894f),eth_type(0x894f),nsh(np=3)";
const WITHOUT_ETHERNET: &str = "in_port(2),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(frag=no)";
const OUTER: &str = "tun_id=0x7,src=172.31.0.1,dst=172.31.0.2,ttl=64,flags(df|csum|key)";
const PUSHED: &str = "tnl_push(tnl_port(10),header(size=50,type=4,eth(dst=02:00:00:00:00:99,src=02:00:00:00:00:09,dl_type=0x0800),\
                      ipv4(src=172.31.0.1,dst=172.31.0.2,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),\
                      vxlan(flags=0x8000000,vni=0x7)),out_port(9))";

/// Forms of an action, each with a key under which it can be.
fn forms(kind: ActionKind) -> Vec<(&'static str, String)> {
    let of = |key, forms: &[&str]| forms.iter().map(|form| (key, (*form).to_owned())).collect();
    match kind {
        ActionKind::AddMpls => of(UDP, &["add_mpls(label=200,tc=7,ttl=64,bos=1,eth_type=0x8847),1"]),
        ActionKind::CheckPktLen => of(UDP, &["check_pkt_len(size=200,gt(1),le(3))"]),
        ActionKind::Clone => of(UDP, &["clone(1),3", "clone(push_vlan(vid=5,pcp=0),1),3"]),
        ActionKind::Ct => of(UDP, &["ct(commit),1", "ct(zone=5),recirc(1)"]),
        ActionKind::CtClear => of(UDP, &["ct_clear,1"]),
        ActionKind::DecTtl => of(UDP, &["dec_ttl(le_1(drop)),1"]),
        ActionKind::Drop => of(UDP, &["drop"]),
        ActionKind::Hash => of(UDP, &["hash(l4(0)),recirc(1)"]),
        ActionKind::LbOutput => of(UDP, &["lb_output(1)"]),
        ActionKind::Meter => of(UDP, &["meter(1),1"]),
        ActionKind::Output => of(UDP, &["1", "1,3", "1,set(eth(dst=02:00:00:00:00:07)),3"]),
        ActionKind::PopEth => of(UDP, &["pop_eth,1"]),
        ActionKind::PopMpls => of(LABELLED, &["pop_mpls(eth_type=0x800),1"]),
        ActionKind::PopNsh => of(NSH, &["pop_nsh(),1"]),
        ActionKind::PopVlan => [of(TAGGED, &["pop_vlan,2"]), of(TAGGED_FROM_A_FUNCTION, &["pop_vlan,1"])].concat(),
        ActionKind::Psample => of(UDP, &["psample(group=12),1"]),
        ActionKind::PushEth => of(WITHOUT_ETHERNET, &["push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),1"]),
        ActionKind::PushMpls => of(UDP, &["push_mpls(label=10,tc=0,ttl=64,bos=1,eth_type=0x8847),1"]),
        ActionKind::PushNsh => {
            of(UDP, &["push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x1,c2=0x0,c3=0x0,c4=0x0),1"])
        }
        ActionKind::PushVlan => {
            [of(UDP, &["push_vlan(vid=5,pcp=3),1"]), of(TAGGED, &["push_vlan(tpid=0x88a8,vid=5,pcp=3),2"])].concat()
        }
        ActionKind::Recirc => of(UDP, &["recirc(1)", "set(eth(dst=02:00:00:00:00:07)),recirc(1)"]),
        ActionKind::Sample => {
            of(UDP, &["sample(sample=10.0%,actions(3)),1", "sample(sample=10.0%,actions(psample(group=12))),1"])
        }
        ActionKind::Set => of(UDP, &["set(eth(dst=02:00:00:00:00:07)),1"]),
        ActionKind::SetTunnel => [MARKED, UDP].map(|key| (key, format!("set(tunnel({OUTER})),10"))).into(),
        ActionKind::TnlPop => {
            of("in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=4789)", &["tnl_pop(10)"])
        }
        ActionKind::TnlPush => of(UDP, &[PUSHED]),
        ActionKind::Trunc => of(UDP, &["trunc(100),1"]),
        ActionKind::Userspace => of(UDP, &["userspace(pid=7)"]),
    }
}

/// One row for each kind.
pub(super) fn rows() -> Vec<Row> {
    let rows = ActionKind::ALL.iter().map(|kind| {
        let flows: Vec<_> = forms(*kind).iter().map(|(key, text)| flow(key, text)).collect();
        row(kind.name(), |backend| {
            let refusals = flows.iter().map(|(matching, actions)| backend.refusal(matching, actions));
            outcome(&refusals.collect::<Vec<_>>())
        })
    });
    rows.collect()
}

/// The outer header is set as a whole, by an action of its own.
pub(super) fn sets() -> Vec<Row> {
    let is_set = |spec: &&FieldSpec| {
        let is_alone = !spec.is_nested() && spec.form != Form::Presence;
        spec.attribute.spec().is_settable && spec.attribute != Attribute::Tunnel && is_alone
    };
    of_fields(FIELDS.iter().filter(is_set), set)
}

/// Asks for all bits of a field, and for all but the lowest.
fn set(backend: Backend, spec: &FieldSpec) -> Taken {
    let mut matching = with_header(spec);
    // From a function, to the uplink.
    matching.set_exact(Field::InPort, 2);
    if matching.meets(Requirement::EthType(&[0x0800, 0x86dd])) && matching.mask.get(Field::Ipv4Proto) == 0 {
        matching.set_exact(Field::Ipv4Proto, 17);
        matching.set_exact(Field::Ipv4Frag, 0);
    }
    let full = spec.field.full_mask();
    let ask = |mask: u128| {
        let set = FieldSet { attribute: spec.attribute, fields: [(spec.field, 2 & mask, mask)].into() };
        let actions: ActionList = [Action::Set(set), Action::Output(PortNumber(1))].into();
        backend.refusal(&matching, &actions)
    };
    match outcome(&[ask(full), ask(full & !1)]) {
        Taken::InPart(_) => Taken::Exact,
        taken => taken,
    }
}

fn outcome(refusals: &[Option<Refusal>]) -> Taken {
    let mut refused = refusals.iter().flatten();
    match refused.next() {
        None => Taken::All,
        Some(refusal) if refused.count() + 1 == refusals.len() => Taken::Nothing(refusal.clone()),
        Some(refusal) => Taken::InPart(refusal.clone()),
    }
}

fn flow(key: &str, actions: &str) -> (Match, ActionList) {
    let matching = parse_key(key, &()).unwrap_or_else(|error| panic!("{key}: {error}")).matching;
    (matching, parse_actions(actions, &()).unwrap_or_else(|error| panic!("{actions}: {error}")))
}
