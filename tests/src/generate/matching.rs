//! Matches: a skeleton of headers that belong together, then constraints on the fields that these headers have.
//!
//! What must hold follows `match_validate` and `ovs_key_from_nlattrs` in `net/openvswitch/flow_netlink.c`, and the forms
//! that the text grammar can say: "no tag" goes with an exact Ethernet type, the CFI bit with a constrained tag.

use sluice_flow::action::GeneveOption;
use sluice_flow::chain::ChainId;
use sluice_flow::field::{
    Attribute, FIELDS, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, Form as TextForm, GENEVE_CHUNKS,
    MPLS_ENTRIES, MPLS_PRESENT,
};
use sluice_flow::key::Match;
use sluice_flow::port::Port;

use super::Maker;
use super::draw::Draw;
use super::feature::{Feature, Form};

/// Bytes of options that a Geneve header has room for (RFC 8926, 3.4: six bits of length in units of four).
const GENEVE_ROOM: usize = 252;

/// Types that OVS has no fields for: at the lower end, IPX, loopback, PPPoE, MACsec, TRILL's neighbour, the upper end and CFM.
const OTHER_TYPES: &[u16] = &[0x0600, 0x88b5, 0x8137, 0x8864, 0x88e5, 0x9000, 0xffff, 0x8902];
/// The same for protocols: GRE, ESP, the largest, one that no header has, IGMP, L2TP and AH.
const OTHER_PROTOCOLS: &[u8] = &[47, 50, 255, 253, 2, 115, 51];
/// What PPP carries: IPv4, IPv6, MPLS, and its own control of addresses and of the link.
const PPP_PROTOCOLS: &[u128] = &[0x0021, 0x0057, 0x0281, 0x8021, 0xc021];

/// Builds a match of a chain: `skeleton` decides which headers are there, each row of `constraints` on a field of them.
pub(super) fn build(
    maker: &mut Maker<'_>,
    chain: ChainId,
    ports: &[Port],
    skeleton: &[u16],
    constraints: &[Vec<u16>],
) -> Match {
    let mut builder = Builder { maker, draw: Draw::new(skeleton), full: Match::default(), open: Vec::new() };
    builder.full.set_exact(Field::RecircId, chain.0.into());
    builder.open_attribute(Attribute::InPort);
    // Half of the flows are such that a packet can hit them as it comes in.
    let knows_more = builder.draw.chance(50);
    builder.packet();
    for attribute in [
        Attribute::DpHash,
        Attribute::SkbPriority,
        Attribute::SkbMark,
        Attribute::CtState,
        Attribute::CtZone,
        Attribute::CtMark,
        Attribute::CtLabel,
    ] {
        if knows_more {
            builder.open_attribute(attribute);
        }
    }
    if knows_more {
        builder.tunnel();
    } else {
        builder.open.retain(|field| !matches!(field.spec().attribute, Attribute::CtTuple4 | Attribute::CtTuple6));
    }
    for numbers in constraints {
        builder.constrain(&mut Draw::new(numbers), ports);
    }
    builder.tags_are_there();
    builder.labels_are_there();
    builder.full.normalise();
    builder.full
}

struct Builder<'a, 'b> {
    maker: &'a mut Maker<'b>,
    draw: Draw<'a>,
    full: Match,
    /// The fields on which a constraint may be put.
    open: Vec<Field>,
}

impl Builder<'_, '_> {
    fn allows(&mut self, field: Field) -> bool {
        self.maker.allows(Feature::Field(field))
    }

    fn allows_form(&mut self, form: Form) -> bool {
        self.maker.allows(Feature::Form(form))
    }

    fn exactly(&mut self, field: Field, value: impl Into<u128>) {
        self.full.set_exact(field, value.into());
        self.open.retain(|open| *open != field);
    }

    fn open_attribute(&mut self, attribute: Attribute) {
        self.open.extend(attribute.fields().filter(|spec| is_free(spec.field, spec.form)).map(|spec| spec.field));
    }

    fn packet(&mut self) {
        let kind = self.draw.below(8);
        let layer3 = kind == 7 && self.allows(Field::PacketTypeNs) && self.allows_form(Form::IpPacket);
        if kind == 6 && self.allows(Field::PacketTypeNs) && self.allows_form(Form::EthernetPacket) {
            self.exactly(Field::PacketTypeNs, 0u8);
            self.exactly(Field::PacketTypeId, 0u8);
        }
        let tags = if layer3 { 0 } else { self.tags() };
        let network = self.draw.below(20);
        let eth_type = self.network(network);
        if !layer3 {
            self.open_attribute(Attribute::Ethernet);
            self.open_attribute(Attribute::NumOfVlans);
        }
        let Some(eth_type) = eth_type else { return };
        self.exactly(Field::EthType, eth_type);
        if let Some(absent) = [Field::VlanPresent, Field::CvlanPresent].get(tags) {
            self.exactly(*absent, 0u8);
        }
        if layer3 {
            self.exactly(Field::PacketTypeNs, 1u8);
            self.exactly(Field::PacketTypeId, eth_type);
        }
    }

    fn tags(&mut self) -> usize {
        let wanted = [0, 0, 0, 0, 0, 1, 1, 2][self.draw.below(8)];
        let levels = [
            (Field::VlanPresent, Field::VlanTpid, Attribute::Vlan, Form::OneTag),
            (Field::CvlanPresent, Field::CvlanTpid, Attribute::Cvlan, Form::TwoTags),
        ];
        for (index, (present, tpid, attribute, form)) in levels.into_iter().enumerate().take(wanted) {
            if !self.allows(present) || !self.allows_form(form) {
                return index;
            }
            let service = self.draw.chance(30) && self.allows_form(Form::ServiceTag);
            self.exactly(present, 1u8);
            self.exactly(tpid, if service { 0x88a8u16 } else { 0x8100 });
            self.open_attribute(attribute);
        }
        wanted
    }

    /// The CFI bit says that there is a tag: it is matched where anything of the tag is.
    fn tags_are_there(&mut self) {
        let levels = [
            (Field::VlanPresent, Field::VlanVid, Field::VlanPcp, Field::VlanCfi),
            (Field::CvlanPresent, Field::CvlanVid, Field::CvlanPcp, Field::CvlanCfi),
        ];
        for (present, vid, pcp, cfi) in levels {
            if !self.full.is_exactly(present, 1) {
                continue;
            }
            if self.full.mask.get(vid) == 0 && self.full.mask.get(pcp) == 0 {
                if self.allows_form(Form::UnconstrainedTag) {
                    continue;
                }
                self.full.set_exact(vid, 0);
            }
            self.full.set_exact(cfi, 1);
        }
    }

    /// What is matched of a label stack says that there is one, and so it is with a session of PPPoE.
    fn labels_are_there(&mut self) {
        if Attribute::Mpls.fields().any(|spec| self.full.mask.get(spec.field) != 0) {
            self.full.set_exact(Field::MplsPresent, 1);
        }
        let is_matched = |field| self.full.mask.get(field) != 0;
        if self.full.is_exactly(Field::EthType, 0x8864)
            && (is_matched(Field::PppoeSession) || is_matched(Field::PppProtocol))
        {
            self.full.set_exact(Field::PppoePresent, 1);
        }
    }

    fn network(&mut self, kind: usize) -> Option<u16> {
        match kind {
            0 if self.allows_form(Form::AnyEthType) => None,
            6..=11 if self.allows(Field::Ipv6Src) => {
                self.open_attribute(Attribute::Ipv6);
                self.open_attribute(Attribute::CtTuple6);
                self.ip(Field::Ipv6Frag, true);
                Some(0x86dd)
            }
            12 | 13 if self.allows(Field::ArpSip) => {
                self.open_attribute(Attribute::Arp);
                Some(if self.draw.chance(30) && self.allows_form(Form::Rarp) { 0x8035 } else { 0x0806 })
            }
            14..=16 if self.allows(Field::MplsLabel) => {
                self.labels();
                Some(if self.draw.chance(20) && self.allows_form(Form::MplsMulticast) { 0x8848 } else { 0x8847 })
            }
            17 | 18 if self.allows(Field::NshPathId) => {
                self.open_attribute(Attribute::Nsh);
                if self.draw.chance(70) {
                    self.exactly(Field::NshMdType, 1u8);
                } else {
                    self.open.retain(|field| !is_context(*field));
                }
                if self.draw.chance(70) {
                    let next = self.draw.pick(&[3u8, 1, 2, 4, 5]);
                    self.exactly(Field::NshNextProto, next);
                }
                Some(0x894f)
            }
            19 if self.allows_form(Form::OtherEthType) => {
                let eth_type = self.draw.pick(OTHER_TYPES);
                match eth_type {
                    0x8864 => self.open_attribute(Attribute::Pppoe),
                    0x8902 => self.open_attribute(Attribute::Cfm),
                    _ => {}
                }
                Some(eth_type)
            }
            _ => {
                self.open_attribute(Attribute::Ipv4);
                self.open_attribute(Attribute::CtTuple4);
                self.ip(Field::Ipv4Frag, false);
                Some(0x0800)
            }
        }
    }

    fn ip(&mut self, frag: Field, version6: bool) {
        match self.draw.below(8) {
            5 if self.allows_form(Form::FirstFragment) => self.exactly(frag, FRAGMENT_FIRST),
            6 if self.allows_form(Form::LaterFragment) => self.exactly(frag, FRAGMENT_LATER),
            7 if self.allows_form(Form::AnyFragment) => {}
            _ => self.exactly(frag, FRAGMENT_NO),
        }
        // IPv4's fields and IPv6's are the same bits of the key.
        let later = self.full.is_exactly(frag, FRAGMENT_LATER.into());
        let proto = if version6 { Field::Ipv6Proto } else { Field::Ipv4Proto };
        if later && version6 {
            // `parse_ipv6hdr` stops at the fragment header: a later fragment has its number for a protocol.
            if self.draw.chance(50) {
                self.exactly(proto, 44u8);
            }
            return;
        }
        let transport: Option<(u8, &[Attribute])> = match self.draw.below(14) {
            1..=3 if self.allows(Field::TcpSrc) => Some((6, &[Attribute::Tcp, Attribute::TcpFlags])),
            4 | 5 if self.allows(Field::UdpSrc) => Some((17, &[Attribute::Udp])),
            6 | 7 if self.allows(Field::SctpSrc) => Some((132, &[Attribute::Sctp])),
            8 if version6 && self.allows(Field::Icmpv6Type) => Some((58, &[Attribute::Icmpv6])),
            8 | 9 if !version6 && self.allows(Field::IcmpType) => Some((1, &[Attribute::Icmp])),
            9..=11 if version6 && self.allows(Field::NdTarget) => Some((58, &[Attribute::Nd, Attribute::NdExt])),
            12 => Some(match self.draw.pick(OTHER_PROTOCOLS) {
                // To IPv6 it is an extension header, and no protocol.
                51 if version6 => (50, &[Attribute::Ipsec]),
                protocol @ (50 | 51) => (protocol, &[Attribute::Ipsec]),
                115 => (115, &[Attribute::L2tpv3]),
                other => (other, &[]),
            }),
            13 if self.allows_form(Form::MaskedProtocol) => {
                self.open.push(proto);
                None
            }
            _ => None,
        };
        let Some((number, attributes)) = transport else { return };
        self.exactly(proto, number);
        if later {
            return;
        }
        for attribute in attributes {
            self.open_attribute(*attribute);
            // Of these headers there is nothing else to match.
            let session =
                [Field::L2tpv3Session, Field::IpsecSpi].into_iter().find(|is| is.spec().attribute == *attribute);
            if let Some(session) = session
                && self.draw.chance(50)
                && self.allows(session)
            {
                let number = self.draw.bits(32);
                self.exactly(session, number);
            }
        }
        if attributes.contains(&Attribute::Nd) {
            // The tuple of a connection and neighbour discovery share a place in the kernel's key.
            self.open.retain(|field| field.spec().attribute != Attribute::CtTuple6);
            let advertisement = self.draw.chance(50);
            self.exactly(Field::Icmpv6Type, if advertisement { 136u8 } else { 135 });
            self.exactly(Field::Icmpv6Code, 0u8);
        }
    }

    fn labels(&mut self) {
        let mut depth = [1, 1, 2, 3][self.draw.below(4)];
        for (count, form) in [(3, Form::ThreeLabels), (2, Form::TwoLabels)] {
            let present = MPLS_PRESENT[count - 1];
            if depth == count && !(self.allows_form(form) && self.allows(present)) {
                depth -= 1;
            }
        }
        for (index, entry) in MPLS_ENTRIES.iter().enumerate().take(depth) {
            if index > 0 {
                self.exactly(MPLS_PRESENT[index], 1u8);
            }
            self.open.extend_from_slice(entry);
            let [.., bottom] = *entry;
            if index + 1 < depth {
                self.exactly(bottom, 0u8);
            } else if self.draw.chance(60) || !self.allows_form(Form::OpenLabelStack) {
                self.exactly(bottom, 1u8);
            }
        }
    }

    fn tunnel(&mut self) {
        let version6 = match self.draw.below(8) {
            4..=5 if self.allows(Field::TunnelPresent) && self.allows_form(Form::TunnelIpv4) => false,
            6.. if self.allows(Field::TunnelPresent) && self.allows_form(Form::TunnelIpv6) => true,
            _ => return,
        };
        self.exactly(Field::TunnelPresent, 1u8);
        // The kernel takes no outer destination of zeros.
        let (source, destination) = if version6 {
            (Field::TunnelIpv6Src, Field::TunnelIpv6Dst)
        } else {
            (Field::TunnelIpv4Src, Field::TunnelIpv4Dst)
        };
        let mask = self.mask(destination);
        let value = self.draw.bits(destination.spec().width) & mask;
        self.full.set(destination, if value == 0 { mask } else { value }, mask);
        self.open.push(source);
        self.open.extend([
            Field::TunnelId,
            Field::TunnelTos,
            Field::TunnelTtl,
            Field::TunnelTpSrc,
            Field::TunnelTpDst,
            Field::TunnelFlags,
        ]);
        match self.draw.below(10) {
            3 if self.allows(Field::VxlanGbpPresent) => {
                self.exactly(Field::VxlanGbpPresent, 1u8);
                self.open.extend([Field::VxlanGbpId, Field::VxlanGbpFlags]);
            }
            4 if self.allows(Field::ErspanPresent) && self.allows_form(Form::Erspan1) => {
                self.exactly(Field::ErspanPresent, 1u8);
                self.exactly(Field::ErspanVersion, 1u8);
                self.open.push(Field::ErspanIndex);
            }
            5 if self.allows(Field::ErspanPresent) && self.allows_form(Form::Erspan2) => {
                self.exactly(Field::ErspanPresent, 1u8);
                self.exactly(Field::ErspanVersion, 2u8);
                self.open.extend([Field::ErspanDirection, Field::ErspanHardwareId]);
            }
            6 if self.allows(Field::GtpuPresent) => {
                self.exactly(Field::GtpuPresent, 1u8);
                self.open.extend([Field::GtpuFlags, Field::GtpuMessageType]);
            }
            7.. if self.allows(Field::GenevePresent) => self.geneve(),
            _ => {}
        }
    }

    fn geneve(&mut self) {
        let options = geneve_options(&mut self.draw, self.maker);
        let mut at = 0;
        let mut write = |full: &mut Match, value: u8, mask: u8| {
            let chunk = GENEVE_CHUNKS[at / 16];
            let shift = 120 - 8 * (at % 16);
            full.key.set(chunk, full.key.get(chunk) | u128::from(value & mask) << shift);
            full.mask.set(chunk, full.mask.get(chunk) | u128::from(mask) << shift);
            at += 1;
        };
        let masked = self.maker.allows(Feature::Form(Form::MaskedField));
        for option in options {
            let kind = if masked { self.draw.below(4) } else { 0 };
            for (index, (byte, mask)) in geneve_bytes(&option).enumerate() {
                let of_data = [0xff, 0xff, if index == 4 { 0x80 } else { 0 }, 0xf0][kind];
                write(&mut self.full, byte, if index < 4 { mask } else { of_data });
            }
        }
        let length = u8::try_from(at).unwrap_or_default();
        self.exactly(Field::GenevePresent, 1u8);
        self.exactly(Field::GeneveLength, length);
    }

    fn mask(&mut self, field: Field) -> u128 {
        let mask = self.draw.mask(field.spec().width);
        if mask == field.full_mask() || self.allows_form(Form::MaskedField) { mask } else { field.full_mask() }
    }

    /// Matches one of the open fields on some value.
    fn constrain(&mut self, draw: &mut Draw<'_>, ports: &[Port]) {
        let Some(field) = draw.steady(&self.open) else { return };
        if !self.allows(field) {
            return;
        }
        let mask = draw.mask(field.spec().width);
        let must_be_exact = field == Field::InPort || !self.allows_form(Form::MaskedField);
        let mask = match field {
            _ if must_be_exact => field.full_mask(),
            // Nobody asks for some bits of a count.
            Field::NumOfVlans => field.full_mask(),
            // The datapath's key keeps one byte of the operation.
            Field::ArpOp if matches!(mask & 0xff, 0 | 0xff) => field.full_mask(),
            Field::ArpOp => mask & 0xff,
            _ => mask,
        };
        let tags = self.full.key.get(Field::VlanPresent) + self.full.key.get(Field::CvlanPresent);
        let value = match field {
            Field::InPort => draw.pick(ports).number.0.into(),
            Field::Ipv6Proto | Field::Ipv4Proto => draw.bits(8),
            // `arp_op` of the kernel is an byte, the operation of the NSH header has two bits of flags and six of ttl.
            Field::ArpOp => draw.bits(8),
            Field::NshFlags => draw.bits(2),
            Field::NshTtl => draw.bits(6),
            // Bits that the header of ERSPAN has room for.
            Field::ErspanIndex => draw.bits(20),
            Field::ErspanDirection => draw.bits(1),
            Field::ErspanHardwareId => draw.bits(6),
            Field::NshMdType => draw.pick(&[1, 2]),
            Field::PppProtocol => draw.pick(PPP_PROTOCOLS),
            Field::NumOfVlans => tags,
            // The addresses that a message can have, and none.
            Field::NdOptionsType => draw.pick(&[1, 2, 0]),
            Field::NshNextProto => draw.pick(&[1, 2, 3, 4, 5]),
            _ => draw.bits(field.spec().width),
        } & mask;
        // What looks like a neighbour message needs the fields of one, and a protocol that is exact its header's.
        let value = match field {
            Field::Icmpv6Type if matches!(value, 135 | 136) => 128 & mask,
            Field::Ipv4Proto | Field::Ipv6Proto if matches!(value, 1 | 6 | 17 | 58 | 132) => 0,
            _ => value,
        };
        self.full.set(field, value, mask);
    }
}

/// Whether a constraint may be put on the field without more ado.
fn is_free(field: Field, form: TextForm) -> bool {
    !matches!(form, TextForm::Presence | TextForm::Options | TextForm::Fragment)
        && !matches!(field, Field::VlanTpid | Field::CvlanTpid | Field::VlanCfi | Field::CvlanCfi)
        && !matches!(field, Field::Ipv4Proto | Field::Ipv6Proto)
}

const fn is_context(field: Field) -> bool {
    matches!(field, Field::NshContext1 | Field::NshContext2 | Field::NshContext3 | Field::NshContext4)
}

/// An option on the wire (RFC 8926, 3.5), each byte with the bits that the text tells of: those in front of the length
/// are reserved.
pub(super) fn geneve_bytes(option: &GeneveOption) -> impl Iterator<Item = (u8, u8)> {
    let [high, low] = option.class.to_be_bytes();
    let length = u8::try_from(option.data.len() / 4).unwrap_or_default();
    let header = [(high, 0xff), (low, 0xff), (option.kind, 0xff), (length, 0x1f)];
    header.into_iter().chain(option.data.iter().map(|byte| (*byte, 0xff)))
}

/// Some options that have room in a header together: one, several, or as many bytes as there can be.
pub(super) fn geneve_options(draw: &mut Draw<'_>, maker: &mut Maker<'_>) -> Vec<GeneveOption> {
    let lengths: &[usize] = match draw.below(10) {
        4 | 5 if maker.allows(Feature::Form(Form::GeneveSeveral)) => &[4, 8, 16],
        6 if maker.allows(Feature::Form(Form::GeneveEmptyOption)) => &[0],
        7.. if maker.allows(Feature::Form(Form::GeneveFull)) => &[124, GENEVE_ROOM - 128 - 4],
        _ => &[4],
    };
    let option = |length: &usize| GeneveOption { class: draw.bits16(), kind: draw.bits8(), data: draw.bytes(*length) };
    lengths.iter().map(option).collect()
}

/// Which fields a match constrains, and how; worked out of the match alone.
pub(super) fn features(full: &Match) -> Vec<Feature> {
    let is = |field: Field, value: u128| full.is_exactly(field, value);
    let eth_type = full.key.get(Field::EthType);
    let proto = full.key.get(Field::Ipv4Proto);
    let mut found = Vec::new();
    for spec in FIELDS {
        let mask = full.mask.get(spec.field);
        if mask == 0 || !is_of_packet(spec.attribute, eth_type, proto, full) {
            continue;
        }
        found.push(Feature::Field(spec.field));
        if mask != spec.field.full_mask() && spec.form != TextForm::Options {
            found.push(Feature::Form(Form::MaskedField));
            if mask.is_power_of_two() {
                found.push(Feature::Form(Form::SingleBit));
            }
        }
    }
    let options = (0..usize::try_from(full.key.get(Field::GeneveLength)).unwrap_or_default())
        .map(|at| full.key.get(GENEVE_CHUNKS[at / 16]).to_be_bytes()[at % 16])
        .collect::<Vec<_>>();
    let (mut at, mut count, mut empty) = (0, 0, false);
    while at + 4 <= options.len() {
        let words = usize::from(options[at + 3] & 0x1f);
        empty |= words == 0;
        count += 1;
        at += 4 + 4 * words;
    }
    let ip = matches!(eth_type, 0x0800 | 0x86dd);
    let neighbour = ip && proto == 58 && is(Field::Icmpv6Code, 0);
    let labels = if matches!(eth_type, 0x8847 | 0x8848) {
        1 + usize::from(is(Field::Mpls2Present, 1)) + usize::from(is(Field::Mpls3Present, 1))
    } else {
        0
    };
    let [.., bottom] = MPLS_ENTRIES[labels.max(1) - 1];
    let unconstrained = |present, vid, pcp| is(present, 1) && full.mask.get(vid) | full.mask.get(pcp) == 0;
    let known = [0x0800, 0x86dd, 0x0806, 0x8035, 0x8847, 0x8848, 0x894f];
    let forms = [
        (Form::AnyEthType, full.mask.get(Field::EthType) == 0),
        (Form::OtherEthType, full.mask.get(Field::EthType) != 0 && !known.contains(&eth_type)),
        (Form::OneTag, is(Field::VlanPresent, 1) && !is(Field::CvlanPresent, 1)),
        (Form::TwoTags, is(Field::CvlanPresent, 1)),
        (Form::ServiceTag, is(Field::VlanTpid, 0x88a8) || is(Field::CvlanTpid, 0x88a8)),
        (
            Form::UnconstrainedTag,
            unconstrained(Field::VlanPresent, Field::VlanVid, Field::VlanPcp)
                || unconstrained(Field::CvlanPresent, Field::CvlanVid, Field::CvlanPcp),
        ),
        (Form::EthernetPacket, is(Field::PacketTypeNs, 0)),
        (Form::IpPacket, is(Field::PacketTypeNs, 1)),
        (Form::AnyFragment, ip && full.mask.get(Field::Ipv4Frag) == 0),
        (Form::FirstFragment, ip && is(Field::Ipv4Frag, FRAGMENT_FIRST.into())),
        (Form::LaterFragment, ip && is(Field::Ipv4Frag, FRAGMENT_LATER.into())),
        (Form::MaskedProtocol, ip && !matches!(full.mask.get(Field::Ipv4Proto), 0 | 0xff)),
        (Form::OneLabel, labels == 1),
        (Form::TwoLabels, labels == 2),
        (Form::ThreeLabels, labels == 3),
        (Form::OpenLabelStack, labels > 0 && !is(bottom, 1)),
        (Form::MplsMulticast, eth_type == 0x8848),
        (Form::Rarp, eth_type == 0x8035),
        (Form::Solicitation, neighbour && is(Field::Icmpv6Type, 135)),
        (Form::Advertisement, neighbour && is(Field::Icmpv6Type, 136)),
        (Form::TunnelIpv4, full.mask.get(Field::TunnelIpv4Dst) != 0),
        (Form::TunnelIpv6, full.mask.get(Field::TunnelIpv6Dst) != 0),
        (Form::Erspan1, is(Field::ErspanVersion, 1)),
        (Form::Erspan2, is(Field::ErspanVersion, 2)),
        (Form::GeneveEmptyOption, empty),
        (Form::GeneveSeveral, count > 1),
        (Form::GeneveFull, options.len() == GENEVE_ROOM),
    ];
    found.extend(forms.into_iter().filter(|(_, there)| *there).map(|(form, _)| Feature::Form(form)));
    found
}

/// Whether bits of the key that headers share belong to this attribute.
fn is_of_packet(attribute: Attribute, eth_type: u128, proto: u128, full: &Match) -> bool {
    let ip = matches!(eth_type, 0x0800 | 0x86dd);
    let neighbour = proto == 58 && matches!(full.key.get(Field::Icmpv6Type), 135 | 136);
    match attribute {
        Attribute::Ipv4 => eth_type == 0x0800,
        Attribute::Ipv6 => eth_type == 0x86dd,
        Attribute::Arp => matches!(eth_type, 0x0806 | 0x8035),
        Attribute::Tcp | Attribute::TcpFlags => ip && proto == 6,
        Attribute::Udp => ip && proto == 17,
        Attribute::Sctp => ip && proto == 132,
        Attribute::Icmp => eth_type == 0x0800 && proto == 1,
        Attribute::Icmpv6 => eth_type == 0x86dd && proto == 58,
        Attribute::Nd | Attribute::NdExt => eth_type == 0x86dd && neighbour,
        Attribute::Pppoe => eth_type == 0x8864,
        Attribute::Cfm => eth_type == 0x8902,
        Attribute::L2tpv3 => ip && proto == 115,
        Attribute::Ipsec => ip && matches!(proto, 50 | 51),
        _ => true,
    }
}
