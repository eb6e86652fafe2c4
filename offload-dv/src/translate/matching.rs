//! The match of a flow as mask and value of a rule.

use sluice_flow::ChainId;
use sluice_flow::consume::Remainder;
use sluice_flow::field::{Attribute, FRAGMENT_NO, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::bits::Bits;
use super::guarantees::Guarantees;
use super::places::{
    CVLAN_TAG, ETHERTYPE, FRAGMENT, IP_VERSION, Place, SECOND_CVLAN_TAG, SECOND_SVLAN_TAG, SOURCE_PORT, SVLAN_TAG,
    of_attribute,
};
use super::tracking;
use super::tunnel::{self, Entrance};
use super::vports::Vports;
use crate::mlx5::MatchParameter;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const ETH_P_MPLS_UC: u16 = 0x8847;
const ETH_P_MPLS_MC: u16 = 0x8848;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
/// Numbers below are lengths (IEEE 802.3).
const ETH_P_802_3_MIN: u16 = 0x0600;
const IPPROTO_ICMP: u8 = 1;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The bits that tell a fragment, and whether it is the first one.
const FRAGMENT_BITS: u128 = 0x03;
const WHOLE: u128 = FRAGMENT_NO as u128;

/// What came of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The bits that count: those of the matcher.
    pub mask: MatchParameter,
    /// The bits of a packet that matches.
    pub value: MatchParameter,
    /// What else follows from it.
    pub guarantees: Guarantees,
}

/// Translates a match on packets that have a tag for certain if `is_tagged` says so. Packets that are not whole are left to software if
/// `only_whole` says so.
pub(super) fn translate(
    full: &Match,
    only_whole: bool,
    is_tagged: bool,
    vports: &dyn Vports,
) -> Result<Matched, Refusal> {
    let mut consumer = Consumer {
        full,
        is_tagged,
        chain: exact(full, Field::RecircId).map_or(ChainId(0), ChainId),
        only_whole,
        rest: Remainder::new(full),
        mask: MatchParameter::default(),
        value: MatchParameter::default(),
        guarantees: Guarantees::default(),
    };
    // The chain is the table.
    consumer.rest.take_exact(Field::RecircId)?;
    consumer.in_port(vports)?;
    let Consumer { rest, mask, value, guarantees, .. } = &mut consumer;
    guarantees.option = tunnel::matched(guarantees.entrance, rest, &mut Bits { mask, value })?;
    consumer.packet_type()?;
    consumer.connection(vports)?;
    consumer.never_marked()?;
    consumer.all_of(Attribute::Ethernet)?;
    consumer.tags()?;
    consumer.eth_type()?;
    consumer.network()?;
    consumer.transport()?;
    consumer.rest.refuse_left("the device has no field for it")?;
    let Consumer { rest, mask, value, guarantees, .. } = consumer;
    rest.finish()?;
    Ok(Matched { mask, value, guarantees })
}

struct Consumer<'a> {
    full: &'a Match,
    /// There is a tag, whatever the match says.
    is_tagged: bool,
    chain: ChainId,
    only_whole: bool,
    rest: Remainder,
    mask: MatchParameter,
    value: MatchParameter,
    guarantees: Guarantees,
}

impl Consumer<'_> {
    fn in_port(&mut self, vports: &dyn Vports) -> Result<(), Refusal> {
        let Some(port) = self.exact::<u32>(Field::InPort)?.map(PortNumber) else { return Ok(()) };
        self.guarantees.entrance = vports.tunnel(port).map(|tunnel| Entrance::of(port, &tunnel, vports)).transpose()?;
        let vport = match self.guarantees.entrance {
            Some(entrance) => entrance.underlay,
            None => vports.vport(port)?,
        };
        if vports.manager() == Some(vport) {
            return Err(refuse(Field::InPort, "the kernel forwards what the manager of the eswitch sends"));
        }
        self.guarantees.from = Some(vport);
        self.bits().put_exact(SOURCE_PORT, vport.into());
        Ok(())
    }

    fn packet_type(&mut self) -> Result<(), Refusal> {
        for field in [Field::PacketTypeNs, Field::PacketTypeId] {
            if !matches!(self.exact::<u16>(field)?, None | Some(0)) {
                return Err(refuse(field, "the switch sees packets with an Ethernet header only"));
            }
        }
        Ok(())
    }

    /// What an earlier flow has found of the connection.
    fn connection(&mut self, vports: &dyn Vports) -> Result<(), Refusal> {
        for (field, bits) in tracking::MATCHED {
            let Some(wanted) = self.rest.take(field) else { continue };
            if let Some((value, mask)) = tracking::matched(field, wanted, self.chain, vports)? {
                self.bits().put(bits.place(), mask, value);
            }
        }
        Ok(())
    }

    /// No packet in these tables was marked by the kernel: what asks for that is true of all.
    fn never_marked(&mut self) -> Result<(), Refusal> {
        for field in [Field::SkbMark, Field::SkbPriority] {
            if self.rest.take(field).is_some_and(|(value, mask)| value & mask != 0) {
                return Err(refuse(field, "packets in hardware have none of the kernel's marks"));
            }
        }
        Ok(())
    }

    fn tags(&mut self) -> Result<(), Refusal> {
        let outer =
            self.tag(Attribute::Vlan, [Field::VlanPresent, Field::VlanTpid, Field::VlanCfi], [CVLAN_TAG, SVLAN_TAG])?;
        let inner = self.tag(
            Attribute::Cvlan,
            [Field::CvlanPresent, Field::CvlanTpid, Field::CvlanCfi],
            [SECOND_CVLAN_TAG, SECOND_SVLAN_TAG],
        )?;
        if inner == Some(true) && outer != Some(true) && !self.is_tagged {
            return Err(refuse(Field::CvlanPresent, "nothing is said of the outer tag"));
        }
        let (outer, inner) = self.number_of_tags(outer, inner)?;
        self.guarantees.tags = match (outer, inner) {
            (Some(false), _) => Some(0),
            (Some(true), Some(inner)) => Some(1 + usize::from(inner)),
            _ => None,
        };
        Ok(())
    }

    /// Takes the number of tags where it follows from the tags and the Ethernet type that are matched, or is whether there is one: the
    /// device does not count them.
    fn number_of_tags(
        &mut self,
        outer: Option<bool>,
        inner: Option<bool>,
    ) -> Result<(Option<bool>, Option<bool>), Refusal> {
        let field = Field::NumOfVlans;
        let known = match (outer, inner) {
            (Some(false), _) => Some(0),
            (Some(true), Some(false)) => Some(1),
            // What follows them is no tag.
            (Some(true), Some(true)) if exact::<u16>(self.full, Field::EthType).is_some() => Some(2),
            _ => None,
        };
        if let Some(number) = known {
            return match self.rest.take(field) {
                Some((value, mask)) if (value ^ number) & mask != 0 => {
                    Err(refuse(field, "the tags that are matched are another number"))
                }
                _ => Ok((outer, inner)),
            };
        }
        let (absent, known) = match (exact::<u8>(self.full, field), outer, inner) {
            (Some(0), None, None) => ([CVLAN_TAG, SVLAN_TAG], (Some(false), None)),
            (Some(1), Some(true), None) => ([SECOND_CVLAN_TAG, SECOND_SVLAN_TAG], (outer, Some(false))),
            _ => return Ok((outer, inner)),
        };
        self.rest.take(field);
        absent.into_iter().try_for_each(|place| self.put(field, place, 0))?;
        Ok(known)
    }

    /// Takes what is said of a tag: that it is there, that it is not, or nothing.
    fn tag(
        &mut self,
        attribute: Attribute,
        [present, tpid, cfi]: [Field; 3],
        [customer, service]: [Place; 2],
    ) -> Result<Option<bool>, Refusal> {
        let Some(is_present) = self.exact::<u8>(present)? else { return Ok(None) };
        if is_present == 0 {
            self.put(present, customer, 0)?;
            self.put(present, service, 0)?;
            return Ok(Some(false));
        }
        let (is_customer, is_service) = match self.exact::<u16>(tpid)? {
            Some(ETH_P_8021Q) => (1, 0),
            Some(ETH_P_8021AD) => (0, 1),
            Some(_) => return Err(refuse(tpid, "the device knows tags of 0x8100 and 0x88a8 only")),
            None => return Err(refuse(tpid, "only an exact match is possible")),
        };
        self.put(tpid, customer, is_customer)?;
        self.put(tpid, service, is_service)?;
        // In OVS the bit says that there is a tag, and nothing of what it is on the wire.
        if self.exact::<u8>(cfi)? == Some(0) {
            return Err(refuse(cfi, "the bit stands for the tag, which is there"));
        }
        self.all_of(attribute)?;
        Ok(Some(true))
    }

    fn eth_type(&mut self) -> Result<(), Refusal> {
        let Some(eth_type) = self.exact::<u16>(Field::EthType)? else { return Ok(()) };
        if eth_type < ETH_P_802_3_MIN {
            return Err(refuse(Field::EthType, "frames without an Ethernet type cannot be told apart"));
        }
        if matches!(eth_type, ETH_P_8021Q | ETH_P_8021AD) {
            return Err(refuse(Field::EthType, "a tag is matched by vlan()"));
        }
        self.guarantees.eth_type = Some(eth_type);
        self.put(Field::EthType, ETHERTYPE, eth_type.into())?;
        // libmlx5 picks the layout of addresses by it, and wants the version as its own mask.
        let version = match eth_type {
            ETH_P_IP => 4,
            ETH_P_IPV6 => 6,
            _ => return Ok(()),
        };
        let place = self.found(Field::EthType, IP_VERSION)?;
        self.bits().put(place, version, version);
        Ok(())
    }

    fn network(&mut self) -> Result<(), Refusal> {
        match self.guarantees.eth_type {
            Some(ETH_P_IP) => {
                self.guarantees.mark = self.mark(Field::Ipv4Tos);
                self.ip(Attribute::Ipv4, Field::Ipv4Proto, Field::Ipv4Frag, Field::Ipv4Ttl)
            }
            Some(ETH_P_IPV6) => {
                self.guarantees.mark = self.mark(Field::Ipv6Tclass);
                self.ip(Attribute::Ipv6, Field::Ipv6Proto, Field::Ipv6Frag, Field::Ipv6Hlimit)
            }
            Some(ETH_P_MPLS_UC | ETH_P_MPLS_MC) => {
                self.guarantees.mark = Some(0);
                self.labels()
            }
            Some(_) => {
                self.guarantees.mark = Some(0);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The device looks at the first entry of a label stack, which is there by the Ethernet type.
    fn labels(&mut self) -> Result<(), Refusal> {
        if self.exact::<u8>(Field::MplsPresent)? == Some(0) {
            return Err(refuse(Field::MplsPresent, "the Ethernet type says that there is an entry"));
        }
        self.all_of(Attribute::Mpls)
    }

    fn ip(&mut self, attribute: Attribute, proto: Field, frag: Field, ttl: Field) -> Result<(), Refusal> {
        self.guarantees.protocol = exact(self.full, proto);
        // Bits that are not looked at may all be 0.
        self.guarantees.least_ttl = u8::try_from(self.full.key.get(ttl)).unwrap_or_default();
        self.fragment(frag)?;
        self.all_of(attribute)
    }

    /// The device tells packets that are whole from all others. Where a flow takes the former and some of the latter, the rule does not
    /// take these.
    fn fragment(&mut self, frag: Field) -> Result<(), Refusal> {
        let asked = self.rest.take(frag).map(|(value, mask)| (value & mask, mask & FRAGMENT_BITS));
        self.guarantees.leaves_fragments = match asked {
            Some((WHOLE, FRAGMENT_BITS)) => false,
            Some((WHOLE, _)) => true,
            Some(_) => return Err(refuse(frag, "the device does not tell first fragments from later ones")),
            None if self.only_whole => true,
            None => return Ok(()),
        };
        self.guarantees.is_whole = true;
        self.put(frag, FRAGMENT, 0)
    }

    fn mark(&self, tos: Field) -> Option<u8> {
        const MARK: u128 = 0x03;
        let is_known = self.full.mask.get(tos) & MARK == MARK;
        is_known.then(|| u8::try_from(self.full.key.get(tos) & MARK).ok()).flatten()
    }

    fn transport(&mut self) -> Result<(), Refusal> {
        let attributes: &[Attribute] = match (self.guarantees.eth_type, self.guarantees.protocol) {
            (_, Some(IPPROTO_TCP)) => &[Attribute::Tcp, Attribute::TcpFlags],
            (_, Some(IPPROTO_UDP)) => &[Attribute::Udp],
            (Some(ETH_P_IP), Some(IPPROTO_ICMP)) => &[Attribute::Icmp],
            (Some(ETH_P_IPV6), Some(IPPROTO_ICMPV6)) if self.is_of_a_neighbour() => {
                &[Attribute::Icmpv6, Attribute::NdExt]
            }
            (Some(ETH_P_IPV6), Some(IPPROTO_ICMPV6)) => &[Attribute::Icmpv6],
            _ => &[],
        };
        attributes.iter().try_for_each(|attribute| self.all_of(*attribute))
    }

    fn is_of_a_neighbour(&self) -> bool {
        let kind = exact(self.full, Field::Icmpv6Type);
        matches!(kind, Some(NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT))
            && exact(self.full, Field::Icmpv6Code) == Some(0_u8)
    }

    /// Takes what the table says of an attribute.
    fn all_of(&mut self, attribute: Attribute) -> Result<(), Refusal> {
        for (field, place) in of_attribute(attribute) {
            let Some((value, mask)) = self.rest.take(field) else { continue };
            if mask & !place.full_mask() != 0 {
                return Err(refuse(field, "the device has fewer bits of it"));
            }
            let place = self.found(field, place)?;
            self.bits().put(place, mask, value);
        }
        Ok(())
    }

    /// Has all bits of a header's field be `value`.
    fn put(&mut self, field: Field, place: Place, value: u128) -> Result<(), Refusal> {
        let place = self.found(field, place)?;
        self.bits().put_exact(place, value);
        Ok(())
    }

    /// Returns where the device finds a field of the packet's own headers: those inside, if it comes through a tunnel.
    fn found(&self, field: Field, place: Place) -> Result<Place, Refusal> {
        match self.guarantees.entrance {
            None => Ok(place),
            Some(_) => place.inside().ok_or_else(|| refuse(field, "the device does not find it inside a tunnel")),
        }
    }

    fn bits(&mut self) -> Bits<'_> {
        Bits { mask: &mut self.mask, value: &mut self.value }
    }

    /// Takes a field that must be matched on all of its bits or not at all.
    fn exact<T: TryFrom<u128>>(&mut self, field: Field) -> Result<Option<T>, Refusal> {
        Ok(self.rest.take_exact(field)?.and_then(|value| T::try_from(value).ok()))
    }
}

/// The value of a field that is matched on all of its bits.
fn exact<T: TryFrom<u128>>(full: &Match, field: Field) -> Option<T> {
    if full.mask.get(field) == field.full_mask() { T::try_from(full.key.get(field)).ok() } else { None }
}

/// Returns mask and value of all packets that come in at a vport.
pub fn from_vport(vport: u16) -> (MatchParameter, MatchParameter) {
    let (mut mask, mut value) = (MatchParameter::default(), MatchParameter::default());
    Bits { mask: &mut mask, value: &mut value }.put_exact(SOURCE_PORT, vport.into());
    (mask, value)
}

fn refuse(field: Field, reason: &'static str) -> Refusal {
    Refusal::Field { field, reason: reason.into() }
}
