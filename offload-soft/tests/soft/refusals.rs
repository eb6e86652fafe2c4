//! What the device refuses, and how it says so.

use sluice_flow::action::{
    Action, ActionKind, ActionList, EthernetAddresses, FieldSet, HashAlgorithm, MplsEntry, NshHeader, NshMetadata,
    OuterHeaders, OuterNetwork, OuterTunnel, OuterUdp, TunnelPush, Userspace, VlanTag,
};
use sluice_flow::backend::{Backend, Meters};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
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

/// Makes a match of one that takes everything.
type Narrow = fn(&mut Match);

/// One action of each kind, under the match that has what it needs; `None` for what is no action.
fn example(kind: ActionKind) -> Option<(Narrow, Action)> {
    fn is_mpls(full: &mut Match) {
        full.set_exact(Field::EthType, 0x8847);
    }
    fn is_plain_nsh(full: &mut Match) {
        full.set_exact(Field::PacketTypeNs, 1);
        full.set_exact(Field::EthType, 0x894f);
    }
    let entry = MplsEntry { label: 1, tc: 0, ttl: 1, bos: true, eth_type: 0x8847 };
    let contexts = NshMetadata::Contexts([0; 4]);
    let nsh = NshHeader { flags: 0, ttl: 1, next_protocol: 1, path: 1, index: 1, metadata: contexts };
    let addresses = EthernetAddresses { source: 1, destination: 2 };
    let list = || -> ActionList { [output(2)].into() };
    Some(match kind {
        ActionKind::AddMpls => (anything, Action::AddMpls(entry)),
        ActionKind::CheckPktLen => {
            (anything, Action::CheckPacketLength { length: 9, greater: list(), less_or_equal: list() })
        }
        ActionKind::Clone => (anything, Action::Clone(list())),
        ActionKind::Ct => (is_ipv4, Action::Conntrack(Box::default())),
        ActionKind::CtClear => (anything, Action::ConntrackClear),
        ActionKind::DecTtl => (anything, Action::DecTtl(list())),
        // An empty list.
        ActionKind::Drop => return None,
        ActionKind::Hash => (anything, Action::Hash { algorithm: HashAlgorithm::SymmetricL4, basis: 1 }),
        ActionKind::LbOutput => (anything, Action::LbOutput(1)),
        ActionKind::Meter => (anything, Action::Meter(MeterId(1))),
        ActionKind::Output => (anything, output(2)),
        ActionKind::PopEth => (anything, Action::PopEth),
        ActionKind::PopMpls => (is_mpls, Action::PopMpls(0x0800)),
        ActionKind::PopNsh => (is_plain_nsh, Action::PopNsh),
        ActionKind::PopVlan => (anything, Action::PopVlan),
        ActionKind::Psample => (anything, Action::Psample { group: 1, cookie: Box::from([1; 16]) }),
        ActionKind::PushEth => (is_plain_nsh, Action::PushEth(addresses)),
        ActionKind::PushMpls => (is_mpls, Action::PushMpls(entry)),
        ActionKind::PushNsh => (anything, Action::PushNsh(Box::new(nsh))),
        ActionKind::PushVlan => (anything, Action::PushVlan(VlanTag { tpid: 0x8100, vid: 1, pcp: 0, cfi: true })),
        ActionKind::Recirc => (anything, recirc(5)),
        ActionKind::Sample => (anything, Action::Sample { probability: 1, actions: list() }),
        ActionKind::Set => (anything, set(&[(Field::EthSrc, 1)])),
        ActionKind::SetTunnel => (anything, to_somewhere()),
        ActionKind::TnlPop => (anything, Action::TunnelPop(PortNumber(10))),
        ActionKind::TnlPush => {
            let udp = OuterUdp { source: 0, destination: 4789, checksum: 0 };
            let outer = OuterHeaders {
                destination: 1,
                source: 2,
                network: OuterNetwork::Ipv4 {
                    source: [10, 0, 0, 1].into(),
                    destination: [10, 0, 0, 2].into(),
                    protocol: 17,
                    tos: 0,
                    ttl: 64,
                    fragment: 0,
                },
                tunnel: OuterTunnel::Vxlan { udp, flags: 0x0800_0000, vni: 7 },
            };
            let push = TunnelPush {
                tunnel_port: PortNumber(10),
                out_port: PortNumber(1),
                tunnel_type: 4,
                header: outer.bytes().into(),
            };
            (anything, Action::TunnelPush(Box::new(push)))
        }
        ActionKind::Trunc => (anything, Action::Trunc(14)),
        ActionKind::Userspace => {
            let userspace = Userspace { pid: 1, data: None, actions: false, tunnel_port: None };
            (anything, Action::Userspace(Box::new(userspace)))
        }
    })
}

#[test]
fn only_what_leaves_the_device_for_a_process_is_refused_at_all() {
    let mut device = Device::with_tunnels();
    device.open_chain(ChainId(5));
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1)).unwrap();
    let mut refused = vec![];
    for kind in ActionKind::ALL {
        let Some((matching, action)) = example(*kind) else {
            continue;
        };
        assert_eq!(action.kind(), *kind);
        match device.add(flow(matching, vec![action])) {
            Ok(handle) => drop(device.remove(handle)),
            Err(refusal) => refused.push(refusal.to_string()),
        }
    }
    println!("{}", refused.join("\n"));
    let wanted = [
        "action lb_output: the members of the bond are known to ovs-vswitchd alone",
        "action userspace: there is no process behind the software NIC that takes packets",
    ];
    assert_eq!(refused, wanted);
}

#[test]
fn headers_are_put_on_and_taken_off_as_the_kernel_allows() {
    let entry = |eth_type| MplsEntry { label: 1, tc: 0, ttl: 1, bos: true, eth_type };
    let push = |eth_type| Action::PushMpls(entry(eth_type));
    let tag = || Action::PushVlan(VlanTag { tpid: 0x8100, vid: 1, pcp: 0, cfi: true });
    let eth = || Action::PushEth(EthernetAddresses { source: 1, destination: 2 });
    let nsh = || {
        let metadata = NshMetadata::Contexts([0; 4]);
        Action::PushNsh(Box::new(NshHeader { flags: 0, ttl: 1, next_protocol: 1, path: 1, index: 1, metadata }))
    };
    let is_mpls = |full: &mut Match| full.set_exact(Field::EthType, 0x8847);
    let is_nsh = |full: &mut Match| full.set_exact(Field::EthType, 0x894f);
    let label = |full: &mut Match| {
        is_mpls(full);
        full.set_exact(Field::MplsPresent, 1);
        full.set_exact(Field::MplsBos, 1);
    };
    let plain = |full: &mut Match| {
        full.set_exact(Field::PacketTypeNs, 1);
        full.set_exact(Field::EthType, 0x88cc);
    };
    let combination = |text: String, wanted: &str| assert_eq!(text, format!("combination: {wanted}"));
    let unknown = "push_mpls without a match on eth_type as IP, ARP, RARP or MPLS";
    combination(refusal(anything, vec![push(0x8847)]), unknown);
    combination(refusal(is_ipv4, vec![tag(), push(0x8847)]), "push_mpls on a packet with a VLAN tag");
    combination(refusal(label, vec![tag(), Action::PopMpls(0x0800)]), "pop_mpls on a packet with a VLAN tag");
    assert!(refusal(is_ipv4, vec![push(0x0800)]).starts_with("action push_mpls: the Ethernet type"));
    let popped = "pop_mpls without a match on eth_type(0x8847) or eth_type(0x8848)";
    combination(refusal(is_ipv4, vec![Action::PopMpls(0x0800)]), popped);
    combination(refusal(label, vec![Action::PopMpls(0x8847), Action::PopMpls(0x0800)]), popped);
    combination(
        refusal(is_mpls, vec![Action::PopMpls(0x6558)]),
        "pop_mpls(eth_type=0x6558) of a packet with an Ethernet header",
    );
    combination(
        refusal(label, vec![Action::PopMpls(0x0800), set(&[(Field::Ipv4Ttl, 1)])]),
        "set(ipv4) without a match on eth_type(0x0800)",
    );
    combination(refusal(anything, vec![eth()]), "push_eth on a packet that has an Ethernet header");
    combination(refusal(plain, vec![Action::PopEth]), "pop_eth on a packet without an Ethernet header");
    combination(refusal(plain, vec![tag()]), "push_vlan on a packet without an Ethernet header");
    combination(refusal(plain, vec![Action::PopVlan]), "pop_vlan on a packet without an Ethernet header");
    combination(refusal(plain, vec![set(&[(Field::EthSrc, 1)])]), "set(eth) without a match on packet_type(ns=0,id=0)");
    combination(refusal(anything, vec![tag(), Action::PopEth]), "pop_eth of a packet with a VLAN tag");
    combination(refusal(plain, vec![nsh()]), "push_nsh on a packet of a type that NSH has no number for");
    combination(refusal(anything, vec![Action::PopNsh]), "pop_nsh without a match on eth_type(0x894f)");
    combination(refusal(is_nsh, vec![Action::PopNsh]), "pop_nsh of a packet with an Ethernet header");
    let strange = |full: &mut Match| {
        is_nsh(full);
        full.set_exact(Field::NshNextProto, 99);
    };
    combination(
        refusal(strange, vec![Action::PopEth, Action::PopNsh]),
        "pop_nsh with a match on an nsh(np) that stands for nothing",
    );
    let tlvs = NshHeader {
        flags: 0,
        ttl: 1,
        next_protocol: 1,
        path: 1,
        index: 1,
        metadata: NshMetadata::Tlvs(Box::from([1; 7])),
    };
    assert!(refusal(anything, vec![Action::PushNsh(Box::new(tlvs))]).starts_with("action push_nsh: metadata"));
    assert_eq!(
        refusal(anything, vec![Action::Psample { group: 1, cookie: Box::from([0; 17]) }]),
        "action psample: the cookie is longer than 16 bytes"
    );
}

#[test]
fn unknown_ports_are_refused() {
    assert_eq!(refusal(anything, vec![output(77)]), "port 77: there is no such port");
    assert_eq!(refusal(|full| full.set_exact(Field::InPort, 77), vec![]), "port 77: there is no such port");
}

#[test]
fn arguments_out_of_range_are_refused() {
    assert_eq!(refusal(anything, vec![Action::Meter(MeterId(5))]), "action meter: there is no meter 5");
    let push = |tpid, vid, cfi| vec![Action::PushVlan(VlanTag { tpid, vid, pcp: 0, cfi }), output(2)];
    assert!(refusal(anything, push(0x9100, 1, true)).starts_with("action push_vlan: the tag protocol"));
    assert!(refusal(anything, push(0x8100, 4096, true)).starts_with("action push_vlan: the VLAN number"));
    assert!(refusal(anything, push(0x8100, 1, false)).starts_with("action push_vlan: the CFI bit"));
    assert_eq!(refusal(anything, vec![Action::Trunc(13), output(2)]), "action trunc: less than an Ethernet header");
}

#[test]
fn a_header_is_set_only_where_it_is() {
    let cases: [(Field, &str); 10] = [
        (Field::MplsLabel, "set(mpls) without a match on eth_type(0x8847) or eth_type(0x8848)"),
        (Field::NshTtl, "set(nsh) without a match on eth_type(0x894f)"),
        (Field::Ipv4Src, "set(ipv4) without a match on eth_type(0x0800)"),
        (Field::Ipv6Src, "set(ipv6) without a match on eth_type(0x86dd)"),
        (Field::ArpOp, "set(arp) without a match on eth_type(0x0806) or eth_type(0x8035)"),
        (Field::TcpSrc, "set(tcp) without a match on IP with proto=6"),
        (Field::UdpSrc, "set(udp) without a match on IP with proto=17"),
        (Field::SctpSrc, "set(sctp) without a match on IP with proto=132"),
        (Field::IcmpType, "set(icmp) without a match on IPv4 with proto=1"),
        (Field::Icmpv6Type, "set(icmpv6) without a match on IPv6 with proto=58"),
    ];
    for (field, text) in cases {
        assert_eq!(refusal(anything, vec![set(&[(field, 1)]), output(2)]), format!("combination: {text}"));
    }
    let text = refusal(v6(58), vec![set(&[(Field::NdTarget, 1)]), output(2)]);
    assert!(text.starts_with("combination: set(nd) without a match on icmpv6(type=135,code=0)"), "{text}");
    let text = refusal(v6(58), vec![set(&[(Field::NdReserved, 1)]), output(2)]);
    assert!(text.starts_with("combination: set(nd_ext) without a match on icmpv6(type=135,code=0)"), "{text}");
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
fn a_set_of_a_whole_header_leaves_what_cannot_be_set_as_the_match_says_it_is() {
    let whole = |changed: &[(Field, u128)]| {
        let value = |field: Field| changed.iter().find(|(other, _)| *other == field).map_or(0, |(_, value)| *value);
        let attribute = changed[0].0.spec().attribute;
        set(&attribute.fields().map(|spec| (spec.field, value(spec.field))).collect::<Vec<_>>())
    };
    let ipv4 = |protocol, fragment| whole(&[(Field::Ipv4Proto, protocol), (Field::Ipv4Frag, fragment)]);
    let ipv6 = |protocol, fragment| whole(&[(Field::Ipv6Proto, protocol), (Field::Ipv6Frag, fragment)]);
    let of = |is_v6: bool, action| {
        let first_fragment = |full: &mut Match| {
            if is_v6 {
                v6(17)(full)
            } else {
                v4(17)(full)
            }
            full.set_exact(Field::Ipv4Frag, 1);
        };
        Device::with_tunnels().nic.explain(&flow(first_fragment, vec![action, output(2)])).map(drop)
    };
    assert_eq!(of(false, ipv4(17, 1)), Ok(()));
    assert_eq!(of(true, ipv6(17, 1)), Ok(()));
    let other = |attribute: &str, field: &str| {
        format!("field {attribute}.{field}: it cannot be set to another value than the packet has")
    };
    assert_eq!(of(false, ipv4(6, 1)).unwrap_err().to_string(), other("ipv4", "proto"));
    assert_eq!(of(false, ipv4(17, 0)).unwrap_err().to_string(), other("ipv4", "frag"));
    assert_eq!(of(true, ipv6(17, 2)).unwrap_err().to_string(), other("ipv6", "frag"));
    let unknown = "field ipv4.frag: it cannot be set, and the match does not say that packets have this value";
    assert_eq!(refusal(v4(17), vec![ipv4(17, 0), output(2)]), unknown);
}

#[test]
fn an_approval_is_for_one_kind_of_fragment() {
    let mut device = Device::with_tunnels();
    let whole = Attribute::Ipv4.fields().map(|spec| (spec.field, u128::from(spec.field == Field::Ipv4Proto) * 17));
    let whole = set(&whole.collect::<Vec<_>>());
    let add = |device: &mut Device, port: u128, fragment: u128| {
        let matching = move |full: &mut Match| {
            v4(17)(full);
            full.set_exact(Field::Ipv4Frag, fragment);
            full.set_exact(Field::InPort, port);
        };
        device.add(flow(matching, vec![whole.clone(), output(2)])).map(drop)
    };
    assert_eq!(add(&mut device, 1, 0), Ok(()));
    assert!(add(&mut device, 1, 1).is_err(), "frag=no cannot be set for a first fragment");
    assert_eq!(add(&mut device, 2, 0), Ok(()));
}

#[test]
fn an_outer_header_must_be_whole() {
    let out = |fields: &[(Field, u128)]| refusal(anything, vec![tunnel(fields), output(10)]);
    let dst = (Field::TunnelIpv4Dst, 1);
    assert_eq!(out(&[(Field::TunnelId, 1)]), "action set(tunnel): there is no destination");
    assert_eq!(out(&[dst, (Field::TunnelIpv6Dst, 1)]), "action set(tunnel): there are addresses of both families");
    assert_eq!(out(&[dst, (Field::TunnelId, 1 << 24)]), "field tunnel.tun_id: a network identifier has 24 bits");
    assert_eq!(out(&[dst, (Field::TunnelTpSrc, 9)]), "field tunnel.tp_src: it is chosen by the hash of the inner flow");
    assert_eq!(out(&[dst, (Field::TunnelFlags, 8)]), "field tunnel.flags: only Geneve has the flag oam");
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
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1)).unwrap();
    let actions = vec![Action::Meter(MeterId(1)), Action::Meter(MeterId(1)), recirc(9)];
    assert_eq!(device.add(flow(anything, actions)).unwrap_err().label(), "action");
    device.nic.remove_meter(MeterId(1)).unwrap();
    let never = Meter::simple(MeterId(1), MeterUnit::Kilobits, 0, 1);
    assert_eq!(device.nic.set_meter(&never).unwrap_err().label(), "action");
}

#[test]
fn ports_that_do_not_fit_are_refused() {
    let device = Device::with_tunnels();
    let attach = |number, kind| device.nic.attach_port(&port(number, kind)).map_err(|refusal| refusal.to_string());
    let over = |underlay, udp_port| {
        PortKind::Tunnel(Tunnel {
            protocol: TunnelProtocol::Vxlan,
            udp_port: Some(udp_port),
            underlay: PortNumber(underlay),
        })
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
        "subtable in_port,packet_type.id,eth_type,ipv4.dst/24,ipv4.tos/0xfc at priority 0; 2 actions"
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
