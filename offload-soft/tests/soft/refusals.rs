//! What the device refuses, and how it says so.

use sluice_flow::action::{Action, ActionKind, FieldSet, OpaqueAction, VlanTag};
use sluice_flow::backend::Backend;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::meter::{Meter, MeterId, MeterRate};
use sluice_flow::port::{PortKind, PortNumber, Tunnel, TunnelProtocol};

use crate::harness::{Device, flow, flow_at, is_ipv4, output, port, recirc, set, set_masked, v4, v6};

/// Installing and explaining refuse alike.
fn refusal(matching: impl FnOnce(&mut Match), actions: Vec<Action>) -> String {
    let mut device = Device::with_tunnels();
    let flow = flow(matching, actions);
    let refusal = device.nic.explain(&flow).unwrap_err();
    assert_eq!(device.add(flow), Err(refusal.clone()));
    assert_eq!(device.readings(), [], "nothing is left behind");
    refusal.to_string()
}

fn anything(_: &mut Match) {}

fn tunnel(fields: &[(Field, u128)]) -> Action {
    let fields = fields.iter().map(|(field, value)| (*field, *value, field.full_mask())).collect();
    Action::SetTunnel(FieldSet { attribute: Attribute::Tunnel, fields })
}

fn to_somewhere() -> Action {
    tunnel(&[(Field::TunnelIpv4Dst, 1)])
}

#[test]
fn fields_that_no_packet_has_are_refused_by_name() {
    for (field, name) in [
        (Field::CtState, "ct_state"),
        (Field::CtZone, "ct_zone"),
        (Field::CtMark, "ct_mark"),
        (Field::CtLabel, "ct_label"),
        (Field::DpHash, "dp_hash"),
    ] {
        let text = refusal(|full| full.set(field, 0, 1), vec![]);
        assert_eq!(text, format!("field {name}: this backend cannot match it"));
    }
    let text = refusal(|full| full.set_exact(Field::PacketTypeNs, 1), vec![]);
    assert_eq!(text, "field packet_type.ns: there are only Ethernet frames");
    let text = refusal(|full| full.set(Field::RecircId, 1, 1), vec![]);
    assert_eq!(text, "field recirc_id: only an exact match is possible");
}

#[test]
fn a_header_is_matched_only_where_it_is() {
    let text = refusal(|full| full.set_exact(Field::Ipv4Dst, 1), vec![]);
    assert_eq!(text, "combination: a network header is matched without the exact eth_type that has it");
    let transport = "combination: a transport header is matched without the exact eth_type and IP proto that have it";
    let text = refusal(
        |full| {
            is_ipv4(full);
            full.set_exact(Field::TcpDst, 80);
        },
        vec![],
    );
    assert_eq!(text, transport);
    let text = refusal(
        |full| {
            v4(17)(full);
            full.set_exact(Field::TcpFlags, 2);
        },
        vec![],
    );
    assert_eq!(text, transport);
}

#[test]
fn unknown_ports_are_refused() {
    assert_eq!(refusal(anything, vec![output(77)]), "port 77: there is no such port");
    assert_eq!(refusal(|full| full.set_exact(Field::InPort, 77), vec![]), "port 77: there is no such port");
}

#[test]
fn actions_that_it_does_not_have_are_refused() {
    let opaque = |kind: ActionKind| Action::Opaque(OpaqueAction { kind, text: kind.name().into() });
    assert_eq!(refusal(anything, vec![opaque(ActionKind::Ct)]), "action ct: the software NIC cannot do it");
    assert_eq!(refusal(anything, vec![Action::Meter(MeterId(5))]), "action meter: there is no meter 5");
    let push = |tpid, vid, cfi| vec![Action::PushVlan(VlanTag { tpid, vid, pcp: 0, cfi }), output(2)];
    assert!(refusal(anything, push(0x9100, 1, true)).starts_with("action push_vlan: the tag protocol"));
    assert!(refusal(anything, push(0x8100, 4096, true)).starts_with("action push_vlan: the VLAN number"));
    assert!(refusal(anything, push(0x8100, 1, false)).starts_with("action push_vlan: the CFI bit"));
    assert_eq!(refusal(anything, vec![Action::Trunc(13), output(2)]), "action trunc: less than an Ethernet header");
}

#[test]
fn what_would_be_lost_is_refused() {
    let cut = |then| refusal(anything, [vec![Action::Trunc(60)], then].concat());
    assert_eq!(cut(vec![]), "combination: trunc without an output before the end");
    assert_eq!(cut(vec![Action::Trunc(50), output(2)]), "combination: trunc without an output before another trunc");
    assert_eq!(cut(vec![recirc(5)]), "combination: trunc without an output before recirc");
    let outer = |then| refusal(anything, [vec![to_somewhere()], then].concat());
    let lost = "combination: set(tunnel) without an output to a tunnel port before";
    assert_eq!(outer(vec![output(2)]), format!("{lost} the end"));
    assert_eq!(outer(vec![recirc(5)]), format!("{lost} recirc"));
    assert_eq!(outer(vec![to_somewhere(), output(10)]), format!("{lost} another set(tunnel)"));
}

#[test]
fn a_tag_is_popped_only_where_there_is_one() {
    let text = "combination: pop_vlan of a tag that neither the match nor push_vlan guarantees";
    assert_eq!(refusal(anything, vec![Action::PopVlan]), text);
    let tagged = |full: &mut Match| full.set_exact(Field::VlanPresent, 1);
    assert_eq!(refusal(tagged, vec![Action::PopVlan, Action::PopVlan]), text);
}

#[test]
fn a_header_is_set_only_where_it_is() {
    let cases: [(Field, &str); 8] = [
        (Field::Ipv4Src, "set(ipv4) without a match on eth_type(0x0800)"),
        (Field::Ipv6Src, "set(ipv6) without a match on eth_type(0x86dd)"),
        (Field::ArpOp, "set(arp) without a match on eth_type(0x0806) or eth_type(0x8035)"),
        (Field::TcpSrc, "set(tcp) without a match on IP with proto=6"),
        (Field::UdpSrc, "set(udp) without a match on IP with proto=17"),
        (Field::SctpSrc, "set(sctp) without a match on IP with proto=132 and frag=no"),
        (Field::IcmpType, "set(icmp) without a match on IPv4 with proto=1"),
        (Field::Icmpv6Type, "set(icmpv6) without a match on IPv6 with proto=58"),
    ];
    for (field, text) in cases {
        assert_eq!(refusal(anything, vec![set(&[(field, 1)]), output(2)]), format!("combination: {text}"));
    }
    let text = refusal(v6(58), vec![set(&[(Field::NdTarget, 1)]), output(2)]);
    assert!(text.starts_with("combination: set(nd) without a match on icmpv6(type=135,code=0)"), "{text}");
    assert!(refusal(v4(132), vec![set(&[(Field::SctpSrc, 1)])]).ends_with("frag=no"));
    let later = |full: &mut Match| {
        v4(6)(full);
        full.set_exact(Field::Ipv4Frag, 2);
    };
    let text = refusal(later, vec![set(&[(Field::TcpSrc, 1)])]);
    assert_eq!(text, "combination: set(tcp) with a match on frag=later, which has none");
}

#[test]
fn fields_that_cannot_be_set_are_refused() {
    assert_eq!(refusal(is_ipv4, vec![set(&[(Field::Ipv4Proto, 1)])]), "field ipv4.proto: it cannot be set");
    assert_eq!(refusal(v4(6), vec![set(&[(Field::TcpFlags, 1)])]), "action set: tcp_flags cannot be set");
    assert_eq!(refusal(anything, vec![set(&[(Field::EthType, 1)])]), "action set: eth_type cannot be set");
    assert_eq!(refusal(anything, vec![set(&[(Field::CtMark, 1)])]), "action set: ct_mark cannot be set");
    let foreign = FieldSet { attribute: Attribute::Ethernet, ..set_masked(&[(Field::SkbMark, 1, 1)]) };
    assert_eq!(refusal(anything, vec![Action::Set(foreign)]), "field skb_mark: it cannot be set");
}

#[test]
fn an_outer_header_must_be_whole() {
    let out = |fields: &[(Field, u128)]| refusal(anything, vec![tunnel(fields), output(10)]);
    let dst = (Field::TunnelIpv4Dst, 1);
    assert_eq!(out(&[(Field::TunnelId, 1)]), "action set(tunnel): there is no destination");
    assert_eq!(out(&[dst, (Field::TunnelIpv6Dst, 1)]), "action set(tunnel): there are addresses of both families");
    assert_eq!(out(&[dst, (Field::TunnelId, 1 << 24)]), "field tunnel.tun_id: a network identifier has 24 bits");
    assert_eq!(out(&[dst, (Field::TunnelTpSrc, 9)]), "field tunnel.tp_src: it is chosen by the hash of the inner flow");
    assert_eq!(out(&[dst, (Field::TunnelFlags, 8)]), "action set(tunnel): VXLAN has no oam flag");
    let half = Action::SetTunnel(set_masked(&[(Field::TunnelIpv4Dst, 1, 0xff)]));
    assert_eq!(refusal(anything, vec![half, output(10)]), "field tunnel.dst: it can be set only as a whole");
    assert_eq!(
        refusal(anything, vec![output(10)]),
        "combination: output to tunnel port 10 without set(tunnel) before it"
    );
    let mut device = Device::with_tunnels();
    device.nic.detach_port(PortNumber(1)).unwrap();
    let text = device.add(flow(anything, vec![to_somewhere(), output(10)])).unwrap_err().to_string();
    assert_eq!(text, "port 10: its underlay, port 1, is not there");
}

#[test]
fn circles_are_refused_before_they_are_installed() {
    assert_eq!(refusal(anything, vec![recirc(0)]), "combination: recirc(0) from chain 0 would close a circle");
    let text = refusal(|full| full.set_exact(Field::RecircId, 5), vec![recirc(5)]);
    assert_eq!(text, "combination: recirc(0x5) from chain 0x5 would close a circle");
}

#[test]
fn a_refused_flow_holds_no_meter() {
    let mut device = Device::new();
    device.nic.set_meter(&Meter { id: MeterId(1), rate: MeterRate::Pps(1), burst: 1 }).unwrap();
    let actions = vec![Action::Meter(MeterId(1)), Action::Meter(MeterId(1)), recirc(9)];
    assert_eq!(device.add(flow(anything, actions)).unwrap_err().label(), "action");
    device.nic.remove_meter(MeterId(1)).unwrap();
    let never = Meter { id: MeterId(1), rate: MeterRate::Kbps(0), burst: 1 };
    assert_eq!(device.nic.set_meter(&never).unwrap_err().label(), "action");
}

#[test]
fn ports_that_do_not_fit_are_refused() {
    let device = Device::with_tunnels();
    let attach = |number, kind| device.nic.attach_port(&port(number, kind)).map_err(|refusal| refusal.to_string());
    let over = |underlay, udp_port| {
        PortKind::Tunnel(Tunnel { protocol: TunnelProtocol::Vxlan, udp_port, underlay: PortNumber(underlay) })
    };
    assert_eq!(attach(1, PortKind::Physical), Ok(()), "the same again is no news");
    assert_eq!(attach(1, PortKind::Internal), Err("port p1: the number is taken".into()));
    assert_eq!(attach(20, over(10, 4790)), Err("port p20: a tunnel cannot run over a tunnel".into()));
    assert_eq!(attach(20, over(1, 4789)), Err("port p20: another tunnel has its UDP port on this underlay".into()));
    assert_eq!(attach(20, over(99, 4789)), Ok(()), "its underlay may come later");
}

#[test]
fn a_rule_is_explained_in_a_sentence() {
    let device = Device::new();
    device.nic.attach_port(&port(3, PortKind::Physical)).unwrap();
    let subnet = |full: &mut Match| {
        is_ipv4(full);
        full.set_exact(Field::InPort, 3);
        full.set(Field::Ipv4Dst, 0x0a00_0000, 0xffff_ff00);
        full.set(Field::Ipv4Tos, 0, 0xfc);
        full.set_exact(Field::PacketTypeId, 0);
    };
    let explain = |flow| device.nic.explain(&flow).unwrap();
    assert_eq!(
        explain(flow(subnet, vec![output(1), output(2)])),
        "subtable in_port,eth_type,ipv4.dst/24,ipv4.tos/0xfc at priority 0; 2 actions"
    );
    let ports = |full: &mut Match| {
        full.set_exact(Field::RecircId, 0x1f);
        v6(17)(full);
        full.set_exact(Field::UdpDst, 53);
        full.set_exact(Field::VlanPresent, 0);
    };
    assert_eq!(
        explain(flow_at(3, ports, vec![])),
        "subtable eth_type,ipv6.proto,udp.dst,no vlan at priority 3 of chain 0x1f; drop"
    );
    assert_eq!(explain(flow(anything, vec![output(1)])), "subtable of no field at priority 0; 1 action");
}
