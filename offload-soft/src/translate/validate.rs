//! Which actions a flow may have: what the OVS kernel datapath checks when a flow is installed
//! (`__ovs_nla_copy_actions` and `validate_set` in net/openvswitch/flow_netlink.c), and what it checks nowhere because
//! only OVS's userspace has it.

use sluice_flow::action::{
    ActionKind, Conntrack, Encapsulation, EthernetAddresses, FieldSet, MplsEntry, NshHeader, TunnelPush, VlanTag,
};
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::matching::Guarantees;
use crate::conntrack::{self, Policies};
use crate::engine::nsh;
use crate::engine::tunnel::Push;
use crate::meters::Meters;
use crate::packet::{MIN_FRAME, eth_type, ip_proto, is_mpls};
use crate::ports::PortTable;

/// Bytes of a note of `psample` at most (`OVS_PSAMPLE_COOKIE_MAX_SIZE`).
const MAX_COOKIE: usize = 16;

/// Checks actions against what the device has.
pub(super) struct Checker<'a> {
    pub(super) chain: ChainId,
    pub(super) guarantees: &'a Guarantees,
    pub(super) ports: &'a PortTable,
    pub(super) meters: &'a Meters,
    pub(super) policies: &'a Policies,
}

/// What the packet looks like for certain at some point of a list.
#[derive(Clone)]
pub(super) struct Shape {
    /// Whether it begins with an Ethernet header; `None` where the match does not say.
    is_ethernet: Option<bool>,
    has_tag: bool,
    /// What stands behind the Ethernet header, as far as it is known.
    eth_type: Option<u16>,
    /// MPLS label stack entries that are known, modulo 2^32 as in the kernel.
    labels: u32,
    /// The protocol of IP, if `eth_type` says that it is IP.
    protocol: Option<u8>,
    /// Which fragment it is, likewise.
    fragment: Option<u8>,
    /// Whether it is a neighbour solicitation or advertisement, if it is ICMPv6.
    is_neighbour: bool,
    /// Whether the headers are those that `tnl_push` has put on, and not those of the match.
    is_outer: bool,
    tunnel: Option<Encapsulation>,
}

impl Checker<'_> {
    pub(super) fn output(&self, number: PortNumber, shape: &Shape) -> Result<(), Refusal> {
        let port = self.ports.get(number).ok_or_else(|| Refusal::no_port(number))?;
        let Some(tunnel) = port.tunnel() else {
            return Ok(());
        };
        if self.ports.get(tunnel.underlay).is_none() {
            let reason = format!("its underlay, port {}, is not there", tunnel.underlay).into();
            let port = number.to_string();
            return Err(Refusal::Port { port, number: Some(tunnel.underlay), reason });
        }
        let fits = match &shape.tunnel {
            Some(encapsulation) => encapsulation.fits(tunnel.protocol),
            // A packet brings the outer header along from another chain.
            None if self.chain != ChainId::ROOT => Ok(()),
            None => combination(format!("output to tunnel port {number} without set(tunnel) before it")),
        };
        fits.map_err(|refusal| refusal.until(Cause::Port(Some(number))))
    }

    pub(super) fn tunnel_pop(&self, port: PortNumber) -> Result<(), Refusal> {
        self.tunnel_port(port, ActionKind::TnlPop)
    }

    fn tunnel_port(&self, number: PortNumber, action: ActionKind) -> Result<(), Refusal> {
        match self.ports.get(number) {
            None => Err(Refusal::no_port(number)),
            Some(port) if port.tunnel().is_none() => {
                let reason = format!("port {number} is no tunnel port").into();
                Err(Refusal::Action { action, reason }.until(Cause::Port(Some(number))))
            }
            Some(_) => Ok(()),
        }
    }

    /// What is behind is done to the outer packet, of which the headers that are pushed say all that is known.
    pub(super) fn tunnel_push(&self, push: &TunnelPush, shape: &mut Shape) -> Result<(), Refusal> {
        self.tunnel_port(push.tunnel_port, ActionKind::TnlPush)?;
        let outer = Push::new(push)?.outer();
        let out_port = self.ports.get(push.out_port);
        if out_port.is_none_or(|port| port.tunnel().is_some()) {
            let port = push.out_port.to_string();
            let reason = "tnl_push cannot send packets there".into();
            return Err(Refusal::Port { port, number: Some(push.out_port), reason });
        }
        *shape = Shape {
            is_ethernet: Some(true),
            has_tag: false,
            eth_type: outer.map(|outer| outer.eth_type),
            labels: 0,
            protocol: outer.map(|outer| outer.protocol),
            fragment: outer.map(|outer| outer.fragment),
            is_neighbour: false,
            is_outer: true,
            tunnel: None,
        };
        Ok(())
    }

    pub(super) fn recirc(&self, to: ChainId) -> Result<(), Refusal> {
        let from = self.chain;
        if to == ChainId::ROOT || to == from {
            return combination(format!("recirc({to}) from chain {from} would close a circle"));
        }
        Ok(())
    }

    pub(super) fn set(&self, set: &FieldSet, shape: &Shape) -> Result<(), Refusal> {
        let settable: &[Field] = match set.attribute {
            Attribute::SkbMark => &[Field::SkbMark],
            Attribute::SkbPriority => &[Field::SkbPriority],
            Attribute::Ethernet => &[Field::EthSrc, Field::EthDst],
            Attribute::Mpls => &[Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos],
            Attribute::Nsh => &[
                Field::NshFlags,
                Field::NshTtl,
                Field::NshPathId,
                Field::NshServiceIndex,
                Field::NshContext1,
                Field::NshContext2,
                Field::NshContext3,
                Field::NshContext4,
            ],
            Attribute::Ipv4 => &[Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv4Tos, Field::Ipv4Ttl],
            Attribute::Ipv6 => {
                &[Field::Ipv6Src, Field::Ipv6Dst, Field::Ipv6Label, Field::Ipv6Tclass, Field::Ipv6Hlimit]
            }
            Attribute::Arp => &[Field::ArpSip, Field::ArpTip, Field::ArpOp, Field::ArpSha, Field::ArpTha],
            Attribute::Tcp => &[Field::TcpSrc, Field::TcpDst],
            Attribute::Udp => &[Field::UdpSrc, Field::UdpDst],
            Attribute::Sctp => &[Field::SctpSrc, Field::SctpDst],
            Attribute::Icmp => &[Field::IcmpType, Field::IcmpCode],
            Attribute::Icmpv6 => &[Field::Icmpv6Type, Field::Icmpv6Code],
            Attribute::Nd => &[Field::NdTarget, Field::NdSll, Field::NdTll],
            Attribute::NdExt => &[Field::NdReserved, Field::NdOptionsType],
            other => {
                let reason = format!("{} cannot be set", other.name());
                return Err(Refusal::Action { action: ActionKind::Set, reason: reason.into() });
            }
        };
        for (field, value, _) in set.fields.iter().filter(|(field, ..)| !settable.contains(field)) {
            // A set of a whole header names these, too: to leave them as they are, as in the kernel (`validate_set`).
            let known = match field {
                Field::Ipv4Proto | Field::Ipv6Proto => shape.protocol,
                Field::Ipv4Frag | Field::Ipv6Frag => shape.fragment,
                _ => None,
            };
            let reason = match (set.is_whole(), known.map(u128::from)) {
                (true, Some(known)) if known == *value => continue,
                (true, Some(_)) => "it cannot be set to another value than the packet has",
                (true, None) => "it cannot be set, and the match does not say that packets have this value",
                (false, _) => "it cannot be set",
            };
            return Err(Refusal::Field { field: *field, reason: reason.into() });
        }
        is_there(set.attribute, shape)
    }
}

/// Whether the packet has the header for certain that is to be rewritten.
fn is_there(attribute: Attribute, shape: &Shape) -> Result<(), Refusal> {
    let is = |ethernet_type| shape.eth_type == Some(ethernet_type);
    let transport = |protocol| (is(eth_type::IPV4) || is(eth_type::IPV6)) && shape.protocol == Some(protocol);
    let is_icmpv6 = is(eth_type::IPV6) && shape.protocol == Some(ip_proto::ICMPV6);
    let (is_there, wanted) = match attribute {
        Attribute::Ethernet => (shape.is_ethernet != Some(false), "packet_type(ns=0,id=0)"),
        Attribute::Mpls => (shape.eth_type.is_some_and(is_mpls), "eth_type(0x8847) or eth_type(0x8848)"),
        Attribute::Nsh => (is(eth_type::NSH), "eth_type(0x894f)"),
        Attribute::Ipv4 => (is(eth_type::IPV4), "eth_type(0x0800)"),
        Attribute::Ipv6 => (is(eth_type::IPV6), "eth_type(0x86dd)"),
        Attribute::Arp => (is(eth_type::ARP) || is(eth_type::RARP), "eth_type(0x0806) or eth_type(0x8035)"),
        Attribute::Tcp => (transport(ip_proto::TCP), "IP with proto=6"),
        Attribute::Udp => (transport(ip_proto::UDP), "IP with proto=17"),
        Attribute::Sctp => (transport(ip_proto::SCTP), "IP with proto=132"),
        Attribute::Icmp => (is(eth_type::IPV4) && transport(ip_proto::ICMP), "IPv4 with proto=1"),
        Attribute::Icmpv6 => (is_icmpv6, "IPv6 with proto=58"),
        Attribute::Nd | Attribute::NdExt => {
            (is_icmpv6 && shape.is_neighbour, "icmpv6(type=135,code=0) or icmpv6(type=136,code=0)")
        }
        _ => return Ok(()),
    };
    let set = format_args!("set({})", attribute.name());
    match (is_there, shape.is_outer) {
        (true, _) => Ok(()),
        (false, false) => combination(format!("{set} without a match on {wanted}")),
        (false, true) => combination(format!("{set} behind tnl_push, whose headers are not {wanted}")),
    }
}

impl Shape {
    /// What a match says of a packet.
    pub(super) fn of(guarantees: &Guarantees) -> Self {
        Self {
            is_ethernet: guarantees.is_ethernet,
            has_tag: guarantees.tags > 0,
            eth_type: guarantees.eth_type,
            labels: guarantees.labels,
            protocol: guarantees.protocol,
            fragment: guarantees.fragment,
            is_neighbour: guarantees.is_neighbour,
            is_outer: false,
            tunnel: None,
        }
    }

    pub(super) fn conntrack(&self, action: &Conntrack, policies: &Policies) -> Result<(), Refusal> {
        conntrack::check(action, self.eth_type, self.protocol, policies)
    }

    pub(super) fn set_tunnel(&mut self, set: &FieldSet) -> Result<(), Refusal> {
        self.tunnel = Some(Encapsulation::new(set)?);
        Ok(())
    }

    pub(super) fn pop_vlan(&mut self) -> Result<(), Refusal> {
        self.must_be_ethernet("pop_vlan")?;
        // Of a packet without a tag nothing is taken, and a second tag is not thought of, both as in the kernel.
        self.has_tag = false;
        Ok(())
    }

    pub(super) fn push_vlan(&mut self, tag: VlanTag) -> Result<(), Refusal> {
        self.must_be_ethernet("push_vlan")?;
        let wrong = if !matches!(tag.tpid, eth_type::VLAN | eth_type::QINQ) {
            "the tag protocol is neither 0x8100 nor 0x88a8"
        } else if tag.vid > 0x0fff || tag.pcp > 7 {
            "the VLAN number or priority is too large"
        } else if !tag.cfi {
            "the CFI bit says that there is a tag and must be set"
        } else {
            self.has_tag = true;
            return Ok(());
        };
        refuse(ActionKind::PushVlan, wrong)
    }

    pub(super) fn push_eth(&mut self, addresses: EthernetAddresses) -> Result<(), Refusal> {
        if self.is_ethernet == Some(true) {
            return combination("push_eth on a packet that has an Ethernet header");
        }
        if addresses.source >> 48 != 0 || addresses.destination >> 48 != 0 {
            return refuse(ActionKind::PushEth, "an Ethernet address has 48 bits");
        }
        self.is_ethernet = Some(true);
        Ok(())
    }

    pub(super) fn pop_eth(&mut self) -> Result<(), Refusal> {
        self.must_be_ethernet("pop_eth")?;
        if self.has_tag {
            return combination("pop_eth of a packet with a VLAN tag");
        }
        self.is_ethernet = Some(false);
        Ok(())
    }

    pub(super) fn push_mpls(&mut self, entry: MplsEntry) -> Result<(), Refusal> {
        check_entry(ActionKind::PushMpls, entry)?;
        self.no_tag(ActionKind::PushMpls)?;
        // Behind these the order of tags is known.
        let is_known = |is| matches!(is, eth_type::IPV4 | eth_type::IPV6 | eth_type::ARP | eth_type::RARP);
        if !self.eth_type.is_some_and(|is| is_known(is) || is_mpls(is)) {
            return combination("push_mpls without a match on eth_type as IP, ARP, RARP or MPLS");
        }
        self.labels = self.labels.wrapping_add(1);
        self.eth_type = Some(entry.eth_type);
        Ok(())
    }

    pub(super) fn add_mpls(&mut self, entry: MplsEntry) -> Result<(), Refusal> {
        check_entry(ActionKind::AddMpls, entry)?;
        self.labels = if self.is_ethernet == Some(false) { self.labels.wrapping_add(1) } else { 1 };
        self.is_ethernet = Some(false);
        self.eth_type = Some(entry.eth_type);
        Ok(())
    }

    pub(super) fn pop_mpls(&mut self, ethernet_type: u16) -> Result<(), Refusal> {
        self.no_tag(ActionKind::PopMpls)?;
        if !self.eth_type.is_some_and(is_mpls) {
            return combination("pop_mpls without a match on eth_type(0x8847) or eth_type(0x8848)");
        }
        if ethernet_type == eth_type::TEB && self.is_ethernet == Some(true) {
            return combination("pop_mpls(eth_type=0x6558) of a packet with an Ethernet header");
        }
        self.labels = self.labels.wrapping_sub(1);
        // Behind the last label nobody knows what comes.
        self.eth_type = Some(ethernet_type).filter(|is| self.labels != 0 && is_mpls(*is));
        Ok(())
    }

    pub(super) fn push_nsh(&mut self, header: &NshHeader) -> Result<(), Refusal> {
        if self.is_ethernet == Some(false) && self.eth_type.is_none_or(|is| nsh::next_protocol(is).is_none()) {
            return combination("push_nsh on a packet of a type that NSH has no number for");
        }
        nsh::write(header)?;
        self.is_ethernet = Some(false);
        self.eth_type = Some(eth_type::NSH);
        Ok(())
    }

    pub(super) fn pop_nsh(&mut self, next_protocol: Option<u8>) -> Result<(), Refusal> {
        if self.eth_type != Some(eth_type::NSH) {
            return combination("pop_nsh without a match on eth_type(0x894f)");
        }
        // The kernel would take the Ethernet header for an NSH header.
        if self.is_ethernet == Some(true) {
            return combination("pop_nsh of a packet with an Ethernet header");
        }
        let inner = next_protocol.map(nsh::ethernet_type);
        if inner == Some(None) {
            return combination("pop_nsh with a match on an nsh(np) that stands for nothing");
        }
        self.is_ethernet = inner.map(|inner| inner == Some(eth_type::TEB));
        self.eth_type = None;
        Ok(())
    }

    fn must_be_ethernet(&self, action: &str) -> Result<(), Refusal> {
        if self.is_ethernet == Some(false) {
            return combination(format!("{action} on a packet without an Ethernet header"));
        }
        Ok(())
    }

    fn no_tag(&self, kind: ActionKind) -> Result<(), Refusal> {
        if self.has_tag { combination(format!("{} on a packet with a VLAN tag", kind.name())) } else { Ok(()) }
    }
}

pub(super) fn psample(cookie: &[u8]) -> Result<(), Refusal> {
    if cookie.len() > MAX_COOKIE { refuse(ActionKind::Psample, "the cookie is longer than 16 bytes") } else { Ok(()) }
}

pub(super) fn trunc(bytes: u32) -> Result<(), Refusal> {
    if (bytes as usize) < MIN_FRAME { refuse(ActionKind::Trunc, "less than an Ethernet header") } else { Ok(()) }
}

fn check_entry(action: ActionKind, entry: MplsEntry) -> Result<(), Refusal> {
    if !is_mpls(entry.eth_type) {
        return refuse(action, "the Ethernet type is neither 0x8847 nor 0x8848");
    }
    if entry.label >= 1 << 20 || entry.tc > 7 {
        return refuse(action, "the label or the traffic class is too large");
    }
    Ok(())
}

fn refuse(action: ActionKind, reason: &'static str) -> Result<(), Refusal> {
    Err(Refusal::Action { action, reason: reason.into() })
}

fn combination(reason: impl Into<std::borrow::Cow<'static, str>>) -> Result<(), Refusal> {
    Err(Refusal::Combination { reason: reason.into() })
}
