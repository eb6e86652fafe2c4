//! Translates a match into keys of flower: each bit is taken, or refused by the name of its field.

use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::consume::Remainder;
use sluice_flow::field::{Attribute, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, MPLS_ENTRIES, MPLS_PRESENT};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::fields::{
    ESTABLISHED, FIRST_FRAGMENT, FRAGMENT, NARROW, NARROW_OPERATION, NEW, PASSED_OVER, RELATED, STATES, TRACKED,
    TUNNEL_FLAGS, TUNNEL_KEY, ethernet, of_attribute, protocol,
};
use super::options;
use super::refuse::refuse;
use crate::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use crate::label::Spelling;
use crate::rule::Caveat;
use crate::wire::action::Control;
use crate::wire::filter::ANY_PROTOCOL;
use crate::wire::flower::Flower;
use crate::wire::key::{Key, KeyMatch};
use crate::wire::labels::LabelMatch;

/// The result of translating a match.
pub(super) struct Matched {
    pub(super) chain: u32,
    pub(super) protocol: u16,
    pub(super) flower: Flower,
    pub(super) spelling: Spelling,
    pub(super) shape: Shape,
    pub(super) caveats: Vec<Caveat>,
}

/// act_police compares the length at the packet's arrival, which `sch_handle_ingress` notes. act_ct notes that of a packet that it has put
/// together, and no length where it cuts padding off (`tcf_ct_act`); Open vSwitch compares the length of the largest fragment
/// (`execute_check_pkt_len`), and without padding.
pub(super) const LENGTH_OF_TRACKED: &str =
    "behind ct() tc compares the length of all fragments together, OVS that of the largest";
/// The same in a later chain of which nothing says that its packets come there without `ct()`.
const LENGTH_IN_LATER_CHAIN: &str = "the chain may be behind ct(), where tc compares the length of all fragments together, OVS that of the \
                                     largest; if it is not, match ct_state(-trk)";

/// What is certain about every packet that matches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub(super) eth_type: Option<u16>,
    pub(super) protocol: Option<u8>,
    /// It is no fragment.
    pub(super) is_whole: bool,
    /// The number of VLAN tags.
    pub(super) tags: usize,
    /// There are no tags behind those.
    pub(super) is_every_tag_known: bool,
    /// Why act_police may compare another length than the packet has in Open vSwitch.
    pub(super) stale_length: Option<&'static str>,
    /// The lowest possible TTL or hop limit.
    pub(super) least_ttl: u8,
    /// It came through a tunnel, whose header is still known.
    pub(super) has_tunnel: bool,
}

pub(super) fn translate(full: &Match, device: Device, context: &dyn Context) -> Result<Matched, Refusal> {
    let mut consumer = Consumer {
        full,
        rest: Remainder::new(full),
        flower: Flower::default(),
        spelling: Spelling::default(),
        shape: Shape::default(),
        caveats: vec![],
        features: context.features(),
        unknown_flags: context.tunnel_flags(),
    };
    let chain = consumer.chain()?;
    consumer.rest.take_exact(Field::InPort)?;
    consumer.packet_type()?;
    consumer.all_of(Attribute::Ethernet)?;
    let protocol = consumer.tags_and_type()?;
    consumer.network()?;
    consumer.transport()?;
    consumer.connection()?;
    consumer.tunnel(device)?;
    consumer.rest.refuse_left("flower has no key for it")?;
    // Hardware alone takes no ct().
    if consumer.may_be_put_together(chain) && !context.is_hardware_alone() {
        consumer.shape.stale_length.get_or_insert(LENGTH_IN_LATER_CHAIN);
    }
    let Consumer { rest, mut flower, spelling, shape, caveats, .. } = consumer;
    rest.finish()?;
    flower.keys.sort_unstable_by_key(|key| key.key);
    Ok(Matched { chain, protocol, flower, spelling, shape, caveats })
}

/// Takes a match apart, and has what was taken so far.
pub(super) struct Consumer<'a> {
    pub(super) full: &'a Match,
    rest: Remainder,
    pub(super) flower: Flower,
    pub(super) spelling: Spelling,
    pub(super) shape: Shape,
    pub(super) caveats: Vec<Caveat>,
    pub(super) features: Features,
    unknown_flags: TunnelFlags,
}

impl Consumer<'_> {
    fn chain(&mut self) -> Result<u32, Refusal> {
        let Some(chain) = self.exact::<u32>(Field::RecircId)? else {
            self.spelling.add(Spelling::NO_CHAIN);
            return Ok(0);
        };
        if chain > Control::NUMBER_LIMIT {
            return Err(Refusal::Limit { what: "the number of a chain".into(), limit: Control::NUMBER_LIMIT.into() });
        }
        Ok(chain)
    }

    fn packet_type(&mut self) -> Result<(), Refusal> {
        let said = [(Field::PacketTypeNs, Spelling::NAMESPACE), (Field::PacketTypeId, Spelling::PACKET_TYPE)];
        for (field, spelling) in said {
            match self.exact::<u16>(field)? {
                None => {}
                Some(0) => self.spelling.add(spelling),
                Some(_) => return Err(refuse(field, "flower matches only packets with an Ethernet header")),
            }
        }
        Ok(())
    }

    /// Takes tags and Ethernet type, which decide the protocol of the rule. Once the type behind the tags is matched, the
    /// rule is for packets with exactly that many tags.
    fn tags_and_type(&mut self) -> Result<u16, Refusal> {
        let eth_type = self.exact::<u16>(Field::EthType)?;
        self.shape.eth_type = eth_type;
        if eth_type.is_some_and(|eth_type| eth_type < ethernet::FIRST) {
            return Err(refuse(Field::EthType, "frames without an Ethernet type cannot be matched"));
        }
        if eth_type.is_some_and(is_tag) {
            return Err(refuse(Field::EthType, "match a tag with vlan()"));
        }
        let outer = self.tag(Attribute::Vlan, Field::VlanPresent, Field::VlanTpid, Field::VlanCfi, Spelling::CFI)?;
        let inner =
            self.tag(Attribute::Cvlan, Field::CvlanPresent, Field::CvlanTpid, Field::CvlanCfi, Spelling::INNER_CFI)?;
        let said = self.exact::<u8>(Field::NumOfVlans)?;
        let keys: &[(Key, u16)] = match (outer, inner, eth_type) {
            (None, None, None) => &[],
            (None, _, Some(_)) => {
                return Err(refuse(
                    Field::VlanPresent,
                    "a rule is either for packets with a tag or for packets without",
                ));
            }
            (None, Some(_), None) => return Err(refuse(Field::CvlanPresent, "the outer tag is not matched")),
            (Some(Tag::Absent), Some(Tag::Present(_)), _) => {
                return Err(refuse(Field::CvlanPresent, "there is no outer tag"));
            }
            (Some(Tag::Absent), inner, eth_type) => {
                if inner.is_some() {
                    self.spelling.add(Spelling::NO_INNER_TAG);
                }
                match eth_type {
                    None => {
                        self.number_of_tags(Field::VlanPresent, 0)?;
                        &[]
                    }
                    Some(eth_type) => &[(Key::EthType, eth_type)],
                }
            }
            (Some(Tag::Present(outer)), None | Some(Tag::Absent), None) => {
                if inner.is_some() {
                    self.number_of_tags(Field::CvlanPresent, 1)?;
                }
                self.shape.tags = 1;
                &[(Key::EthType, outer)]
            }
            (Some(Tag::Present(_)), None, Some(_)) => {
                return Err(refuse(
                    Field::CvlanPresent,
                    "a rule is for packets with an inner tag or for those without",
                ));
            }
            (Some(Tag::Present(outer)), Some(Tag::Absent), Some(eth_type)) => {
                self.shape.tags = 1;
                &[(Key::EthType, outer), (Key::VlanEthType, eth_type)]
            }
            (Some(Tag::Present(outer)), Some(Tag::Present(inner)), None) => {
                self.shape.tags = 2;
                &[(Key::EthType, outer), (Key::VlanEthType, inner)]
            }
            (Some(Tag::Present(outer)), Some(Tag::Present(inner)), Some(eth_type)) => {
                self.shape.tags = 2;
                &[(Key::EthType, outer), (Key::VlanEthType, inner), (Key::CvlanEthType, eth_type)]
            }
        };
        let looks_into_pppoe = Attribute::Pppoe.fields().any(|spec| self.full.mask.get(spec.field) != 0);
        if eth_type == Some(ethernet::PPPOE_SESSION) && self.shape.tags > 0 && !looks_into_pppoe {
            // The kernel keeps it apart from the other types (`fl_set_key_pppoe`), and shows it again only as the rule's
            // protocol or by the presence of PPPoE keys.
            return Err(refuse(
                Field::EthType,
                "behind a tag the kernel does not show the Ethernet type of PPPoE again",
            ));
        }
        for (key, value) in keys {
            self.exactly(*key, (*value).into());
        }
        let is_last = matches!((outer, inner), (Some(Tag::Absent), _) | (_, Some(Tag::Absent))) || eth_type.is_some();
        self.shape.is_every_tag_known = is_last || said.is_some();
        if let Some(count) = said {
            self.said_number_of_tags(count, is_last)?;
        }
        Ok(keys.first().map_or(ANY_PROTOCOL, |(_, outer)| *outer))
    }

    fn tag(
        &mut self,
        attribute: Attribute,
        present: Field,
        tpid: Field,
        cfi: Field,
        spelling: Spelling,
    ) -> Result<Option<Tag>, Refusal> {
        let is_there = match self.exact::<u8>(present)? {
            None => return Ok(None),
            Some(0) => return Ok(Some(Tag::Absent)),
            Some(_) => self.exact::<u16>(tpid)?,
        };
        let Some(tpid_value) = is_there else { return Err(refuse(tpid, "only an exact match is possible")) };
        if !is_tag(tpid_value) {
            return Err(refuse(tpid, "the kernel knows tags of 0x8100 and 0x88a8 only"));
        }
        match self.exact::<u8>(cfi)? {
            None => {}
            Some(1) => self.spelling.add(spelling),
            Some(_) => return Err(refuse(cfi, "the bit stands for the tag, which is there")),
        }
        self.all_of(attribute)?;
        Ok(Some(Tag::Present(tpid_value)))
    }

    pub(super) fn number_of_tags(&mut self, field: Field, count: u8) -> Result<(), Refusal> {
        if !self.features.number_of_tags {
            return Err(refuse(
                field,
                "this kernel does not count tags (Linux 6.0 does); with an Ethernet type it need not",
            ));
        }
        self.exactly(Key::NumOfVlans, count.into());
        Ok(())
    }

    fn network(&mut self) -> Result<(), Refusal> {
        match self.shape.eth_type {
            Some(ethernet::IPV4) => self.ip(Attribute::Ipv4, Field::Ipv4Proto, Field::Ipv4Frag, Field::Ipv4Ttl),
            Some(ethernet::IPV6) => self.ip(Attribute::Ipv6, Field::Ipv6Proto, Field::Ipv6Frag, Field::Ipv6Hlimit),
            Some(ethernet::ARP) => self.arp(),
            Some(ethernet::MPLS | ethernet::MPLS_MULTICAST) => self.labels(),
            Some(ethernet::PPPOE_SESSION) => self.pppoe(),
            Some(ethernet::CFM) => self.cfm(),
            _ => Ok(()),
        }
    }

    fn ip(&mut self, attribute: Attribute, proto: Field, frag: Field, ttl: Field) -> Result<(), Refusal> {
        self.shape.protocol = exact(self.full, proto);
        // Bits outside of the mask may be 0.
        self.shape.least_ttl = u8::try_from(self.full.key.get(ttl)).unwrap_or_default();
        if let Some(fragment) = self.exact::<u8>(frag)? {
            self.shape.is_whole = fragment == FRAGMENT_NO;
            let (value, mask) = match fragment {
                FRAGMENT_NO => (0, FRAGMENT),
                FRAGMENT_FIRST => (FRAGMENT | FIRST_FRAGMENT, FRAGMENT | FIRST_FRAGMENT),
                FRAGMENT_LATER => (FRAGMENT, FRAGMENT | FIRST_FRAGMENT),
                _ => return Err(refuse(frag, "there is no such kind of fragment")),
            };
            self.flower.keys.push(KeyMatch { key: Key::Flags, value, mask });
        }
        if attribute == Attribute::Ipv6 && self.full.mask.get(proto) != 0 {
            self.protocol_of_fragments()?;
        }
        self.all_of(attribute)
    }

    /// OVS takes the protocol of a later IPv6 fragment from the fragment header (`parse_ipv6hdr`), flower from the header
    /// behind it. So no rule is for both fragments and others.
    fn protocol_of_fragments(&mut self) -> Result<(), Refusal> {
        match (exact(self.full, Field::Ipv6Frag), self.shape.protocol) {
            (Some(FRAGMENT_LATER), Some(protocol::IPV6_FRAGMENT)) => {
                self.rest.take(Field::Ipv6Proto);
                self.spelling.add(Spelling::FRAGMENT_PROTOCOL);
                Ok(())
            }
            (Some(FRAGMENT_LATER), _) => Err(refuse(Field::Ipv6Proto, "a later fragment has the protocol 44")),
            (Some(_), _) => Ok(()),
            (None, _) => {
                Err(refuse(Field::Ipv6Frag, "the protocol of later fragments is another in flower; match frag"))
            }
        }
    }

    fn arp(&mut self) -> Result<(), Refusal> {
        const REQUEST_AND_REPLY: [u16; 2] = [1, 2];
        let operation = if self.full.mask.get(Field::ArpOp) == NARROW_OPERATION {
            // That is all that OVS and flower have of it: neither takes a greater operation for its lower bits
            // (`key_extract`, `__skb_flow_dissect_arp`).
            self.spelling.add(Spelling::NARROW_OPERATION);
            self.rest.take(Field::ArpOp).and_then(|(value, mask)| u16::try_from(value & mask).ok())
        } else {
            self.exact::<u16>(Field::ArpOp)?
        };
        if let Some(operation) = operation {
            if !REQUEST_AND_REPLY.contains(&operation) {
                return Err(refuse(Field::ArpOp, "the kernel looks into requests and replies only"));
            }
            self.exactly(Key::ArpOp, operation.into());
        }
        let before = self.flower.keys.len();
        self.all_of(Attribute::Arp)?;
        match self.first_matched(&[Attribute::Arp]) {
            Some(field) if operation.is_none() && self.are_zeros(before) => {
                Err(refuse(field, "flower reads zeros in what is neither a request nor a reply; match op"))
            }
            _ => Ok(()),
        }
    }

    fn labels(&mut self) -> Result<(), Refusal> {
        let mut entries = Vec::new();
        for (depth, (present, [label, class, ttl, bottom])) in (1..).zip(MPLS_PRESENT.into_iter().zip(MPLS_ENTRIES)) {
            let found = LabelMatch {
                depth,
                label: self.exact(label)?,
                class: self.exact(class)?,
                ttl: self.exact(ttl)?,
                bottom: self.exact::<u8>(bottom)?.map(|bottom| bottom != 0),
            };
            match self.exact::<u8>(present)? {
                Some(1) => entries.push(found),
                Some(_) => return Err(refuse(present, "its absence cannot be matched")),
                None if found == (LabelMatch { depth, ..LabelMatch::default() }) => {}
                None => return Err(refuse(present, "a match on the entry must match its presence, too")),
            }
        }
        match entries[..] {
            [first] if first.depth == 1 && first != (LabelMatch { depth: 1, ..LabelMatch::default() }) => {
                let keys = [
                    (Key::MplsLabel, first.label),
                    (Key::MplsTc, first.class.map(u32::from)),
                    (Key::MplsTtl, first.ttl.map(u32::from)),
                    (Key::MplsBos, first.bottom.map(u32::from)),
                ];
                for (key, value) in keys {
                    if let Some(value) = value {
                        self.exactly(key, value.into());
                    }
                }
            }
            _ => self.flower.labels = entries,
        }
        Ok(())
    }

    fn transport(&mut self) -> Result<(), Refusal> {
        let attributes: &[Attribute] = match (self.shape.eth_type, self.shape.protocol) {
            (Some(ethernet::IPV4 | ethernet::IPV6), Some(protocol::TCP)) => &[Attribute::Tcp, Attribute::TcpFlags],
            (Some(ethernet::IPV4 | ethernet::IPV6), Some(protocol::UDP)) => &[Attribute::Udp],
            (Some(ethernet::IPV4 | ethernet::IPV6), Some(protocol::SCTP)) => &[Attribute::Sctp],
            (Some(ethernet::IPV4), Some(protocol::ICMP)) => &[Attribute::Icmp],
            (Some(ethernet::IPV6), Some(protocol::ICMPV6)) => &[Attribute::Icmpv6],
            (Some(ethernet::IPV4 | ethernet::IPV6), Some(protocol::L2TP)) => &[Attribute::L2tpv3],
            (Some(ethernet::IPV4 | ethernet::IPV6), Some(protocol::ESP)) => &[Attribute::Ipsec],
            (Some(ethernet::IPV4), Some(protocol::AH)) => &[Attribute::Ipsec],
            (Some(ethernet::IPV6), Some(protocol::AH)) if self.full.mask.get(Field::IpsecSpi) != 0 => {
                // Flower walks on, as RFC 8200 has it, and finds no packet with this protocol.
                let reason = "flower takes an IPv6 authentication header for the protocol, OVS what is behind it";
                return Err(refuse(Field::IpsecSpi, reason));
            }
            _ => return Ok(()),
        };
        self.sessions()?;
        let before = self.flower.keys.len();
        attributes.iter().try_for_each(|attribute| self.all_of(*attribute))?;
        if self.shape.is_whole {
            return Ok(());
        }
        // `fl_classify` does not ask for `FLOW_DISSECTOR_F_PARSE_1ST_FRAG`.
        match self.first_matched(attributes) {
            Some(field) if self.is_fragment() => Err(refuse(field, "flower reads no transport header of a fragment")),
            Some(field) if self.are_zeros(before) => {
                Err(refuse(field, "flower reads zeros in every first fragment; match frag=no"))
            }
            _ => Ok(()),
        }
    }

    /// The first field of some attributes that is matched.
    fn first_matched(&self, attributes: &[Attribute]) -> Option<Field> {
        let mut fields = attributes.iter().flat_map(|attribute| attribute.fields()).map(|spec| spec.field);
        fields.find(|field| self.full.mask.get(*field) != 0)
    }

    /// Whether the keys from a place on have no bit that must be set, as is so of a header that flower does not read.
    fn are_zeros(&self, from: usize) -> bool {
        self.flower.keys.iter().skip(from).all(|key| key.value == 0)
    }

    fn connection(&mut self) -> Result<(), Refusal> {
        if self.rest.is_empty() {
            return Ok(());
        }
        self.all_of(Attribute::CtZone)?;
        self.all_of(Attribute::CtMark)?;
        self.all_of(Attribute::CtLabel)?;
        let Some((value, mut mask)) = self.rest.take(Field::CtState) else { return Ok(()) };
        let tracked = u128::from(TRACKED);
        let mut value = value & mask;
        if value & !tracked != 0 && mask & tracked == 0 {
            self.spelling.add(Spelling::NOT_TRACKED);
            (value, mask) = (value | tracked, mask | tracked);
        }
        if value & tracked != 0 {
            self.shape.stale_length = Some(LENGTH_OF_TRACKED);
        }
        // Where OVS sets both states, the kernel has one of them (`fl_ct_info_to_flower_map`).
        if value & u128::from(RELATED) != 0 && value & u128::from(NEW | ESTABLISHED) != 0 {
            return Err(refuse(
                Field::CtState,
                "to flower a packet is new, established or related, and not two of them",
            ));
        }
        let mut found = KeyMatch { key: Key::CtState, value: 0, mask: 0 };
        for (ours, theirs) in STATES {
            if mask & u128::from(*ours) != 0 {
                mask &= !u128::from(*ours);
                found.mask |= u128::from(*theirs);
                found.value |= if value & u128::from(*ours) != 0 { u128::from(*theirs) } else { 0 };
            }
        }
        if mask != 0 {
            return Err(refuse(Field::CtState, "flower does not know whether addresses were translated"));
        }
        self.flower.keys.push(found);
        Ok(())
    }

    /// Whether act_ct may have put packets together in an earlier chain. What it has put together is no fragment there, and matches `frag=no`.
    fn may_be_put_together(&self, chain: u32) -> bool {
        let tracked = u128::from(TRACKED);
        let (value, mask) = (self.full.key.get(Field::CtState), self.full.mask.get(Field::CtState));
        let is_untracked = mask & tracked != 0 && value & tracked == 0;
        let may_be_ip = matches!(self.shape.eth_type, None | Some(ethernet::IPV4 | ethernet::IPV6));
        chain != ChainId::ROOT.0 && may_be_ip && !is_untracked && !self.is_fragment()
    }

    /// Whether all packets that match are fragments.
    fn is_fragment(&self) -> bool {
        self.flower.get(Key::Flags).is_some_and(|(value, _)| value & FRAGMENT != 0)
    }

    /// A refusal that depends on the port's device.
    fn by_port(&self, refusal: Refusal) -> Refusal {
        refusal.until(Cause::Port(exact(self.full, Field::InPort).map(PortNumber)))
    }

    fn tunnel(&mut self, device: Device) -> Result<(), Refusal> {
        let tunnel = match device.kind {
            DeviceKind::Tunnel { udp_port } => Some(udp_port),
            _ => None,
        };
        let is_tunnel = tunnel.is_some();
        self.shape.has_tunnel = is_tunnel;
        if self.rest.is_empty() {
            return Ok(());
        }
        if let Some(present) = self.exact::<u8>(Field::TunnelPresent)? {
            if (present == 1) != is_tunnel {
                let reason = "packets at a tunnel port always have an outer header";
                return Err(self.by_port(refuse(Field::TunnelPresent, reason)));
            }
            self.spelling.add(Spelling::TUNNEL);
        }
        if !is_tunnel {
            let field = Attribute::Tunnel.fields().find(|spec| self.rest.take(spec.field).is_some());
            return match field {
                None => Ok(()),
                Some(spec) => Err(self.by_port(refuse(spec.field, "packets at this port have no outer header"))),
            };
        }
        let id = self.exact::<u64>(Field::TunnelId)?;
        if let Some(id) = id {
            let id = u32::try_from(id).map_err(|_| refuse(Field::TunnelId, "flower has 32 bits for it"))?;
            self.exactly(Key::EncKeyId, id.into());
        }
        if let Some(port) = tunnel.flatten().filter(|_| self.full.mask.get(Field::TunnelTpDst) == 0) {
            // Drivers take no rule without it (`mlx5e_tc_tun_parse_udp_ports`), and flows of the kernel's datapath are without it.
            self.exactly(Key::EncUdpDst, port.into());
            self.spelling.add(Spelling::UDP_PORT);
        }
        self.tunnel_flags(id.is_some())?;
        for (field, _, whole) in NARROW {
            if self.full.mask.get(*field) == field.full_mask() {
                self.spelling.add(*whole);
            }
        }
        self.flower.options = options::matched(&mut self.rest)?;
        self.all_of(Attribute::Tunnel)
    }

    fn tunnel_flags(&mut self, has_id: bool) -> Result<(), Refusal> {
        let Some((value, mut mask)) = self.rest.take(Field::TunnelFlags) else { return Ok(()) };
        let key = u128::from(TUNNEL_KEY);
        if has_id && mask & value & key != 0 {
            self.spelling.add(Spelling::TUNNEL_KEY);
            mask &= !key;
        }
        if !self.features.tunnel_flags && self.unknown_flags != TunnelFlags::Exact {
            for (flag, bit, matched, is_set) in PASSED_OVER {
                let bit = u128::from(*bit);
                if mask & bit != 0 {
                    mask &= !bit;
                    self.spelling.add(*matched);
                    self.spelling.add(if value & bit == 0 { Spelling::default() } else { *is_set });
                    self.caveats.push(Caveat::NotMatched { flag });
                }
            }
        }
        if mask == 0 {
            return Ok(());
        }
        if !self.features.tunnel_flags {
            let reason = "this kernel does not match flags of the outer header (Linux 6.11 does); with tunnel_flags = \
                          \"auto\" or \"as_ovs\", df and csum are passed over, as OVS does";
            return Err(refuse(Field::TunnelFlags, reason));
        }
        let mut found = KeyMatch { key: Key::EncFlags, value: 0, mask: 0 };
        for (ours, theirs) in TUNNEL_FLAGS {
            if mask & u128::from(*ours) != 0 {
                mask &= !u128::from(*ours);
                found.mask |= u128::from(*theirs);
                found.value |= if value & u128::from(*ours) != 0 { u128::from(*theirs) } else { 0 };
            }
        }
        if mask != 0 {
            return Err(refuse(Field::TunnelFlags, "the flag can be matched only together with the key"));
        }
        self.flower.keys.push(found);
        Ok(())
    }

    /// Takes the fields of an attribute by the table.
    pub(super) fn all_of(&mut self, attribute: Attribute) -> Result<(), Refusal> {
        for (field, key) in of_attribute(attribute) {
            let Some((value, mask)) = self.rest.take(field) else { continue };
            if key.spec().mask.is_none() && mask != field.full_mask() {
                return Err(refuse(field, "only an exact match is possible"));
            }
            self.flower.keys.push(KeyMatch { key, value: value & mask, mask });
        }
        Ok(())
    }

    fn exactly(&mut self, key: Key, value: u128) {
        self.flower.keys.push(KeyMatch::exact(key, value));
    }

    /// Takes a field that must be matched exactly or not at all.
    pub(super) fn exact<T: TryFrom<u128>>(&mut self, field: Field) -> Result<Option<T>, Refusal> {
        let value = self.rest.take_exact(field)?;
        Ok(value.and_then(|value| T::try_from(value).ok()))
    }
}

/// What a match says about a tag.
#[derive(Clone, Copy)]
enum Tag {
    Absent,
    Present(u16),
}

pub(super) const fn is_tag(eth_type: u16) -> bool {
    matches!(eth_type, ethernet::TAG | ethernet::SERVICE_TAG)
}

/// The value of a field that is matched exactly.
pub(super) fn exact<T: TryFrom<u128>>(full: &Match, field: Field) -> Option<T> {
    if full.mask.get(field) == field.full_mask() { T::try_from(full.key.get(field)).ok() } else { None }
}
