//! From a flow to what the device does with it, or to the reason why it cannot.
//!
//! [`check`] looks at the whole flow and changes nothing, which is all that `explain` needs; [`link`] then takes hold
//! of the meters and chains that the flow names.

mod encapsulation;
mod matching;

use std::fmt::Write as _;
use std::sync::Arc;

use sluice_flow::action::{Action, ActionKind, FieldSet, VlanTag};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, FRAGMENT_LATER, FRAGMENT_NO, Field};
use sluice_flow::flow::Flow;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use crate::chains::{Chain, Chains};
use crate::meters::{MeterState, Meters};
use crate::packet::{ETH_TYPE_NONE, eth_type, ip_proto};
use crate::ports::PortTable;

pub(crate) use encapsulation::{Encapsulation, tunnel_flag};
use matching::Guarantees;

/// Octets of an Ethernet header: nothing is cut shorter than that (`ETH_HLEN`).
pub(crate) const MIN_FRAME: usize = 14;

/// What a rule does.
pub(crate) struct Program {
    pub(crate) flow: Arc<Flow>,
    pub(crate) chain: Arc<Chain>,
    pub(crate) steps: Box<[Step]>,
}

/// An action, with what it refers to at hand.
pub(crate) enum Step {
    Output(PortNumber),
    Meter(Arc<MeterState>),
    PopVlan,
    PushVlan(VlanTag),
    Recirc(Arc<Chain>),
    Set(FieldSet),
    SetTunnel(Encapsulation),
    Trunc(usize),
}

/// What the classifier matches of a flow: everything but the chain and what is the same in every packet.
pub(crate) fn matching(flow: &Flow) -> Match {
    let mut matching = flow.matching.expand();
    for field in [Field::RecircId, Field::PacketTypeNs, Field::PacketTypeId] {
        matching.set(field, 0, 0);
    }
    // `eth_type(0/0xffff)` is how OVS writes a match on frames without an Ethernet type.
    if matching.is_exactly(Field::EthType, 0) {
        matching.set_exact(Field::EthType, ETH_TYPE_NONE.into());
    }
    matching
}

/// Whether the device can take a flow; its rule in words.
pub(crate) fn check(flow: &Flow, ports: &PortTable, meters: &Meters) -> Result<String, Refusal> {
    let guarantees = matching::consume(&flow.matching, ports)?;
    ActionCheck { guarantees: &guarantees, ports, meters, tags: guarantees.tags, cut: false, tunnel: Tunnel::None }
        .list(flow)?;
    Ok(describe(flow))
}

/// The program of a flow that was [checked](check). Its meters cannot go until [`Program::release`].
pub(crate) fn link(flow: &Arc<Flow>, chains: &Chains, meters: &Meters) -> Result<Program, Refusal> {
    let mut program =
        Program { flow: Arc::clone(flow), chain: chains.get_or_make(flow.chain()), steps: Box::default() };
    let mut steps = Vec::with_capacity(flow.actions.len());
    for action in flow.actions.iter() {
        match link_action(action, chains, meters) {
            Ok(step) => steps.push(step),
            Err(refusal) => {
                program.steps = steps.into();
                program.release();
                return Err(refusal);
            }
        }
    }
    program.steps = steps.into();
    Ok(program)
}

fn link_action(action: &Action, chains: &Chains, meters: &Meters) -> Result<Step, Refusal> {
    Ok(match action {
        Action::Output(port) => Step::Output(*port),
        Action::Meter(id) => Step::Meter(meters.acquire(*id)?),
        Action::PopVlan => Step::PopVlan,
        Action::PushVlan(tag) => Step::PushVlan(*tag),
        Action::Recirc(chain) => Step::Recirc(chains.target(*chain)?),
        Action::Set(set) => Step::Set(set.clone()),
        Action::SetTunnel(set) => Step::SetTunnel(Encapsulation::new(set)?),
        Action::Trunc(bytes) => Step::Trunc(*bytes as usize),
        other => return Err(unknown(other)),
    })
}

fn unknown(action: &Action) -> Refusal {
    Refusal::Action { action: action.kind(), reason: "the software NIC cannot do it".into() }
}

impl Program {
    /// Lets the meters go.
    pub(crate) fn release(&self) {
        for step in &self.steps {
            if let Step::Meter(meter) = step {
                meter.release();
            }
        }
    }

    /// The chains that it jumps to.
    pub(crate) fn jumps(&self) -> Vec<ChainId> {
        self.flow.jumps().collect()
    }
}

/// Goes through the actions and knows at each what the packet looks like.
struct ActionCheck<'a> {
    guarantees: &'a Guarantees,
    ports: &'a PortTable,
    meters: &'a Meters,
    /// VLAN tags that the packet has for certain.
    tags: usize,
    /// Whether a cut waits for its output.
    cut: bool,
    tunnel: Tunnel,
}

/// The outer header that the actions have set up.
enum Tunnel {
    None,
    Unused(Encapsulation),
    Used(Encapsulation),
}

impl ActionCheck<'_> {
    fn list(mut self, flow: &Flow) -> Result<(), Refusal> {
        for action in flow.actions.iter() {
            match action {
                Action::Output(port) => self.output(*port)?,
                Action::Meter(id) => drop(self.meters.get(*id)?),
                Action::PopVlan => self.pop_vlan()?,
                Action::PushVlan(tag) => self.push_vlan(*tag)?,
                Action::Recirc(chain) => self.recirc(flow.chain(), *chain)?,
                Action::Set(set) => self.set(set)?,
                Action::SetTunnel(set) => {
                    self.nothing_waits("another set(tunnel)")?;
                    self.tunnel = Tunnel::Unused(Encapsulation::new(set)?);
                }
                Action::Trunc(bytes) => self.trunc(*bytes)?,
                other => return Err(unknown(other)),
            }
        }
        self.nothing_waits("the end")?;
        self.no_cut_waits("the end")
    }

    fn output(&mut self, number: PortNumber) -> Result<(), Refusal> {
        let refuse = |reason: String| Refusal::Port { port: number.to_string(), reason: reason.into() };
        let Some(port) = self.ports.get(number) else {
            return Err(refuse("there is no such port".into()));
        };
        self.cut = false;
        let Some(tunnel) = port.tunnel() else {
            return Ok(());
        };
        if self.ports.get(tunnel.underlay).is_none() {
            return Err(refuse(format!("its underlay, port {}, is not there", tunnel.underlay)));
        }
        match std::mem::replace(&mut self.tunnel, Tunnel::None) {
            Tunnel::None => combination(format!("output to tunnel port {number} without set(tunnel) before it")),
            Tunnel::Unused(encapsulation) | Tunnel::Used(encapsulation) => {
                encapsulation.fits(tunnel.protocol)?;
                self.tunnel = Tunnel::Used(encapsulation);
                Ok(())
            }
        }
    }

    fn pop_vlan(&mut self) -> Result<(), Refusal> {
        let Some(left) = self.tags.checked_sub(1) else {
            return combination("pop_vlan of a tag that neither the match nor push_vlan guarantees");
        };
        self.tags = left;
        Ok(())
    }

    fn push_vlan(&mut self, tag: VlanTag) -> Result<(), Refusal> {
        let wrong = if !matches!(tag.tpid, eth_type::VLAN | eth_type::QINQ) {
            "the tag protocol is neither 0x8100 nor 0x88a8"
        } else if tag.vid > 0x0fff || tag.pcp > 7 {
            "the VLAN number or priority is too large"
        } else if !tag.cfi {
            "the CFI bit says that there is a tag and must be set"
        } else {
            self.tags += 1;
            return Ok(());
        };
        Err(Refusal::Action { action: ActionKind::PushVlan, reason: wrong.into() })
    }

    fn recirc(&self, from: ChainId, to: ChainId) -> Result<(), Refusal> {
        self.nothing_waits("recirc")?;
        self.no_cut_waits("recirc")?;
        if to == ChainId::ROOT || to == from {
            return combination(format!("recirc({to}) from chain {from} would close a circle"));
        }
        Ok(())
    }

    fn trunc(&mut self, bytes: u32) -> Result<(), Refusal> {
        self.no_cut_waits("another trunc")?;
        if (bytes as usize) < MIN_FRAME {
            return Err(Refusal::Action { action: ActionKind::Trunc, reason: "less than an Ethernet header".into() });
        }
        self.cut = true;
        Ok(())
    }

    /// An outer header that no output takes would be lost.
    fn nothing_waits(&self, before: &str) -> Result<(), Refusal> {
        match self.tunnel {
            Tunnel::Unused(_) => combination(format!("set(tunnel) without an output to a tunnel port before {before}")),
            Tunnel::None | Tunnel::Used(_) => Ok(()),
        }
    }

    fn no_cut_waits(&self, before: &str) -> Result<(), Refusal> {
        if self.cut { combination(format!("trunc without an output before {before}")) } else { Ok(()) }
    }

    fn set(&self, set: &FieldSet) -> Result<(), Refusal> {
        let settable: &[Field] = match set.attribute {
            Attribute::SkbMark => &[Field::SkbMark],
            Attribute::SkbPriority => &[Field::SkbPriority],
            Attribute::Ethernet => &[Field::EthSrc, Field::EthDst],
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
            other => {
                let reason = format!("{} cannot be set", other.name());
                return Err(Refusal::Action { action: ActionKind::Set, reason: reason.into() });
            }
        };
        if let Some((field, _, _)) = set.fields.iter().find(|(field, _, _)| !settable.contains(field)) {
            return Err(Refusal::Field { field: *field, reason: "it cannot be set".into() });
        }
        self.is_there(set.attribute)
    }

    /// Whether the match guarantees the header that is to be rewritten.
    fn is_there(&self, attribute: Attribute) -> Result<(), Refusal> {
        let guarantees = self.guarantees;
        let is_ip = matches!(guarantees.eth_type, Some(eth_type::IPV4 | eth_type::IPV6));
        let transport = |protocol| is_ip && guarantees.protocol == Some(protocol);
        let (is_there, wanted) = match attribute {
            Attribute::Ipv4 => (guarantees.eth_type == Some(eth_type::IPV4), "eth_type(0x0800)"),
            Attribute::Ipv6 => (guarantees.eth_type == Some(eth_type::IPV6), "eth_type(0x86dd)"),
            Attribute::Arp => {
                let is_arp = matches!(guarantees.eth_type, Some(eth_type::ARP | eth_type::RARP));
                (is_arp, "eth_type(0x0806) or eth_type(0x8035)")
            }
            Attribute::Tcp => (transport(ip_proto::TCP), "IP with proto=6"),
            Attribute::Udp => (transport(ip_proto::UDP), "IP with proto=17"),
            // The CRC of a fragmented packet lies over all of its fragments, so it cannot be put right in one.
            Attribute::Sctp => {
                let is_whole = guarantees.fragment == Some(FRAGMENT_NO);
                (is_whole && transport(ip_proto::SCTP), "IP with proto=132 and frag=no")
            }
            Attribute::Icmp => {
                let is_ipv4 = guarantees.eth_type == Some(eth_type::IPV4);
                (is_ipv4 && transport(ip_proto::ICMP), "IPv4 with proto=1")
            }
            Attribute::Icmpv6 => (guarantees.is_icmpv6(), "IPv6 with proto=58"),
            Attribute::Nd => (
                guarantees.is_icmpv6() && guarantees.is_neighbour,
                "icmpv6(type=135,code=0) or icmpv6(type=136,code=0)",
            ),
            _ => return Ok(()),
        };
        if !is_there {
            return combination(format!("set({}) without a match on {wanted}", attribute.name()));
        }
        let is_transport = !matches!(attribute, Attribute::Ipv4 | Attribute::Ipv6 | Attribute::Arp);
        if is_transport && guarantees.fragment == Some(FRAGMENT_LATER) {
            return combination(format!("set({}) with a match on frag=later, which has none", attribute.name()));
        }
        Ok(())
    }
}

fn combination(reason: impl Into<std::borrow::Cow<'static, str>>) -> Result<(), Refusal> {
    Err(Refusal::Combination { reason: reason.into() })
}

/// The rule in words.
fn describe(flow: &Flow) -> String {
    let mut text = String::from("subtable ");
    let names = matching::names(&matching(flow));
    text.push_str(if names.is_empty() { "of no field" } else { &names });
    let _ = write!(text, " at priority {}", flow.priority);
    if flow.chain() != ChainId::ROOT {
        let _ = write!(text, " of chain {}", flow.chain());
    }
    let _ = match flow.actions.len() {
        0 => write!(text, "; drop"),
        1 => write!(text, "; 1 action"),
        count => write!(text, "; {count} actions"),
    };
    text
}
