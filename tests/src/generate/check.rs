//! Whether a flow is one that the OVS datapath would take, judged without the generator: rule by rule over the match, and
//! over the actions with a model of the packet of its own.

use sluice_flow::action::{Action, Commit, Conntrack, Nat, NshMetadata};
use sluice_flow::field::{ATTRIBUTES, Attribute, FIELDS, Field, Form, GENEVE_CHUNKS, Requirement};
use sluice_flow::key::Match;

/// Whether some packet could hit both: no bit that both matches look at differs.
pub fn overlap(a: &Match, b: &Match) -> bool {
    let bits = a.key.words.iter().zip(&b.key.words).zip(a.mask.words.iter().zip(&b.mask.words));
    bits.into_iter().all(|((a, b), (a_mask, b_mask))| (a ^ b) & a_mask & b_mask == 0)
}

/// What is wrong with a match, if anything is.
pub fn matching(full: &Match) -> Result<(), String> {
    let mut normalised = *full;
    normalised.normalise();
    ensure(normalised == *full, || "bits of the key outside of the mask".into())?;
    for field in [Field::RecircId, Field::InPort, Field::PacketTypeNs, Field::PacketTypeId, Field::ErspanVersion] {
        ensure(is_whole(full, field), || format!("{field} is neither exact nor wild"))?;
    }
    ensure(full.mask.get(Field::RecircId) != 0, || "the chain is wild".into())?;
    for spec in FIELDS.iter().filter(|spec| matches!(spec.form, Form::Presence | Form::Fragment)) {
        ensure(is_whole(full, spec.field), || format!("{} is neither exact nor wild", spec.field))?;
    }
    ensure(is_whole(full, Field::EthType), || "eth_type is under a mask".into())?;
    ensure(full.key.get(Field::Ipv4Frag) <= 2, || "frag above 2".into())?;

    // Fields of headers that exclude each other share bits; of each group one must have its requirement met.
    let groups: &[&[Attribute]] = &[
        &[Attribute::Ipv4, Attribute::Ipv6, Attribute::Arp],
        &[Attribute::Tcp, Attribute::Udp, Attribute::Sctp, Attribute::Icmp, Attribute::Icmpv6],
        &[Attribute::Arp, Attribute::Nd],
        &[Attribute::Pppoe, Attribute::Cfm, Attribute::L2tpv3, Attribute::Ipsec],
    ];
    for row in ATTRIBUTES {
        let group: Vec<_> = groups.iter().filter(|group| group.contains(&row.attribute)).copied().flatten().collect();
        for spec in row.attribute.fields().filter(|spec| full.mask.get(spec.field) != 0) {
            let met = if group.is_empty() {
                full.meets(row.requires)
            } else {
                group.iter().any(|attribute| full.meets(attribute.spec().requires))
            };
            ensure(met, || format!("{} without what it needs", spec.field))?;
        }
    }
    // `match_validate`: no transport header is looked at in later fragments.
    let transport = [Field::TcpSrc, Field::TcpDst, Field::IcmpType, Field::IcmpCode, Field::TcpFlags, Field::NdTarget];
    if full.is_exactly(Field::Ipv4Frag, 2) && full.meets(Requirement::EthType(&[0x0800, 0x86dd])) {
        for field in transport {
            ensure(full.mask.get(field) == 0, || format!("{field} of a later fragment"))?;
        }
    }
    tags(full)?;
    neighbour(full)?;
    tunnel(full)?;
    let tuples = [(Attribute::CtTuple4, 0x0800), (Attribute::CtTuple6, 0x86dd)];
    for (attribute, eth_type) in tuples {
        let used = attribute.fields().any(|spec| full.mask.get(spec.field) != 0);
        ensure(!used || full.is_exactly(Field::EthType, eth_type), || {
            format!("{} of another family", attribute.name())
        })?;
    }
    let layer3 = full.is_exactly(Field::PacketTypeNs, 1);
    for attribute in [Attribute::Ethernet, Attribute::Vlan, Attribute::Cvlan] {
        let used = attribute.fields().any(|spec| full.key.get(spec.field) != 0);
        ensure(!(layer3 && used), || format!("{} of a packet without an Ethernet header", attribute.name()))?;
    }
    ensure(!layer3 || full.is_exactly(Field::EthType, full.key.get(Field::PacketTypeId)), || {
        "packet_type and eth_type differ".into()
    })
}

fn tags(full: &Match) -> Result<(), String> {
    let levels = [
        (Attribute::Vlan, Field::VlanPresent, Field::VlanTpid, Field::VlanCfi),
        (Attribute::Cvlan, Field::CvlanPresent, Field::CvlanTpid, Field::CvlanCfi),
    ];
    for (attribute, present, tpid, cfi) in levels {
        let used = attribute.fields().any(|spec| spec.field != present && full.mask.get(spec.field) != 0);
        let there = full.is_exactly(present, 1);
        ensure(there || !used, || format!("{} that need not be there", attribute.name()))?;
        let protocol = full.is_exactly(tpid, 0x8100) || full.is_exactly(tpid, 0x88a8);
        ensure(!there || protocol, || format!("{tpid} is none"))?;
        ensure(full.mask.get(cfi) == 0 || full.is_exactly(cfi, 1), || format!("{cfi} is 0"))?;
    }
    ensure(!full.is_exactly(Field::CvlanPresent, 1) || full.is_exactly(Field::VlanPresent, 1), || {
        "an inner tag without an outer one".into()
    })?;
    let tags = full.key.get(Field::VlanPresent) + full.key.get(Field::CvlanPresent);
    let (count, mask) = (full.key.get(Field::NumOfVlans), full.mask.get(Field::NumOfVlans));
    ensure((tags ^ count) & mask == 0, || format!("{count} tags, of which {tags} are matched"))
}

fn neighbour(full: &Match) -> Result<(), String> {
    let icmpv6 = full.meets(Requirement::EthTypeAndProto(0x86dd, 58));
    let message = icmpv6
        && full.is_exactly(Field::Icmpv6Code, 0)
        && (full.is_exactly(Field::Icmpv6Type, 135) || full.is_exactly(Field::Icmpv6Type, 136));
    let of_message = Attribute::Nd.fields().chain(Attribute::NdExt.fields());
    let arp = full.meets(Requirement::EthType(&[0x0806, 0x8035]));
    for spec in of_message.filter(|spec| full.mask.get(spec.field) != 0) {
        ensure(message || arp && spec.field != Field::NdTarget, || format!("{} of another message", spec.field))?;
    }
    let looks_like_one = icmpv6 && matches!(full.key.get(Field::Icmpv6Type), 135 | 136);
    ensure(!looks_like_one || message, || "half a neighbour message".into())?;
    let tuple = Attribute::CtTuple6.fields().any(|spec| full.mask.get(spec.field) != 0);
    ensure(!(message && tuple), || "ct_tuple6 and nd in one match".into())
}

fn tunnel(full: &Match) -> Result<(), String> {
    let used = Attribute::Tunnel.fields().any(|spec| full.mask.get(spec.field) != 0);
    if !used {
        return Ok(());
    }
    ensure(full.is_exactly(Field::TunnelPresent, 1), || "tunnel fields without a tunnel".into())?;
    let is_used = |fields: &[Field]| fields.iter().any(|field| full.mask.get(*field) != 0);
    let version4 = is_used(&[Field::TunnelIpv4Src, Field::TunnelIpv4Dst]);
    let version6 = is_used(&[Field::TunnelIpv6Src, Field::TunnelIpv6Dst]);
    ensure(version4 != version6, || "not one IP version of the tunnel".into())?;
    let destination = full.key.get(Field::TunnelIpv4Dst) | full.key.get(Field::TunnelIpv6Dst);
    ensure(destination != 0, || "no tunnel destination".into())?;
    let kinds = [Field::VxlanGbpPresent, Field::ErspanPresent, Field::GtpuPresent, Field::GenevePresent];
    let kinds = kinds.into_iter().filter(|field| full.mask.get(*field) != 0).count();
    ensure(kinds <= 1, || "options of two kinds of tunnel".into())?;
    let of = |prefix: &str, present: Field| {
        let mut fields = Attribute::Tunnel.fields().filter(|spec| spec.name.starts_with(prefix));
        ensure(!fields.any(|spec| full.mask.get(spec.field) != 0) || full.is_exactly(present, 1), || {
            format!("{prefix} fields without {present}")
        })
    };
    of("vxlan.gbp", Field::VxlanGbpPresent)?;
    of("erspan", Field::ErspanPresent)?;
    of("gtpu", Field::GtpuPresent)?;
    of("geneve", Field::GenevePresent)?;
    let bytes: Vec<u8> = GENEVE_CHUNKS.iter().flat_map(|chunk| full.key.get(*chunk).to_be_bytes()).collect();
    geneve(&bytes, full.key.get(Field::GeneveLength))
}

fn geneve(bytes: &[u8], length: u128) -> Result<(), String> {
    let length = usize::try_from(length).map_err(|error| error.to_string())?;
    ensure(length <= 252, || format!("{length} bytes of options"))?;
    let mut at = 0;
    while at < length {
        at += 4 + 4 * usize::from(bytes[at + 3] & 0x1f);
    }
    ensure(at == length, || "an option ends behind the options".into())?;
    ensure(bytes[length..].iter().all(|byte| *byte == 0), || "bytes behind the options".into())
}

fn is_whole(full: &Match, field: Field) -> bool {
    let mask = full.mask.get(field);
    mask == 0 || mask == field.full_mask()
}

/// What is wrong with the actions for packets of the match, if anything is.
pub fn actions(full: &Match, list: &[Action]) -> Result<(), String> {
    let count = |fields: &[Field]| fields.iter().take_while(|field| full.is_exactly(**field, 1)).count();
    let eth_type = full.mask.get(Field::EthType).min(1) * full.key.get(Field::EthType);
    let ip = matches!(eth_type, 0x0800 | 0x86dd);
    let is_mpls = matches!(eth_type, 0x8847 | 0x8848);
    let carries_transport = full.is_exactly(Field::Ipv4Frag, 0) || full.is_exactly(Field::Ipv4Frag, 1);
    let mut packet = Packet {
        ethernet: !full.is_exactly(Field::PacketTypeNs, 1),
        tags: count(&[Field::VlanPresent, Field::CvlanPresent]),
        known_untagged: full.is_exactly(Field::VlanPresent, 0),
        eth_type,
        labels: if is_mpls { 1 + count(&[Field::Mpls2Present, Field::Mpls3Present]) } else { 0 },
        proto: if ip && carries_transport && full.mask.get(Field::Ipv4Proto) == 0xff {
            full.key.get(Field::Ipv4Proto)
        } else {
            0
        },
        neighbour: ip && full.is_exactly(Field::Icmpv6Code, 0) && full.mask.get(Field::Icmpv6Type) == 0xff,
        nsh_next: if full.mask.get(Field::NshNextProto) == 0xff { full.key.get(Field::NshNextProto) } else { 0 },
    };
    packet.list(list, 0)
}

#[derive(Clone)]
struct Packet {
    ethernet: bool,
    tags: usize,
    known_untagged: bool,
    /// 0 where it is not certain.
    eth_type: u128,
    labels: usize,
    /// 0 where it is not certain, or where there is no header of it.
    proto: u128,
    neighbour: bool,
    nsh_next: u128,
}

impl Packet {
    fn list(&mut self, list: &[Action], depth: usize) -> Result<(), String> {
        // `OVS_COPY_ACTIONS_MAX_DEPTH`.
        ensure(depth <= 16, || "lists too deep".into())?;
        for action in list {
            for inner in action.lists() {
                self.clone().list(inner, depth + 1)?;
            }
            self.one(action).map_err(|error| format!("{}: {error}", action.kind().name()))?;
        }
        Ok(())
    }

    fn one(&mut self, action: &Action) -> Result<(), String> {
        let untagged = self.known_untagged && self.tags == 0;
        let ip = matches!(self.eth_type, 0x0800 | 0x86dd);
        let is_mpls = matches!(self.eth_type, 0x8847 | 0x8848);
        let labelled = matches!(self.eth_type, 0x0800 | 0x86dd | 0x0806 | 0x8035 | 0x8847 | 0x8848);
        match action {
            Action::PushVlan(tag) => {
                ensure(self.ethernet, || "no Ethernet header".into())?;
                ensure(matches!(tag.tpid, 0x8100 | 0x88a8) && tag.vid < 4096 && tag.pcp < 8, || "no tag".into())?;
                self.tags += 1;
            }
            Action::PopVlan => {
                ensure(self.ethernet && self.tags > 0, || "no tag is certain".into())?;
                self.tags -= 1;
                // A single tag in front of what has an Ethernet type is the last; behind a second there may be more.
                self.known_untagged = self.known_untagged || self.tags == 0;
            }
            Action::PushMpls(entry) => {
                ensure(untagged && labelled, || "no label fits here".into())?;
                ensure(entry.bos != is_mpls, || "the bottom of the stack is elsewhere".into())?;
                self.labels += 1;
                self.becomes(entry.eth_type.into());
            }
            Action::AddMpls(entry) => {
                ensure(entry.bos, || "the bottom of the stack is elsewhere".into())?;
                self.labels = 1;
                self.without_ethernet(entry.eth_type.into());
            }
            Action::PopMpls(eth_type) => {
                ensure(untagged && is_mpls && self.labels > 0, || "no label is certain".into())?;
                self.labels -= 1;
                let still = matches!(eth_type, 0x8847 | 0x8848) && self.labels > 0;
                self.becomes(if still { (*eth_type).into() } else { 0 });
            }
            Action::PushEth(_) => {
                ensure(!self.ethernet, || "an Ethernet header is there".into())?;
                (self.ethernet, self.tags, self.known_untagged) = (true, 0, true);
            }
            Action::PopEth => {
                ensure(self.ethernet && untagged, || "tags are in the way".into())?;
                (self.ethernet, self.tags, self.known_untagged) = (false, 0, true);
            }
            Action::PushNsh(header) => {
                let tlvs_fit = match &header.metadata {
                    NshMetadata::Contexts(_) => true,
                    NshMetadata::Tlvs(tlvs) => tlvs.len() <= 244 && tlvs.len() % 4 == 0,
                };
                ensure(header.flags < 4 && header.ttl < 64 && header.path < 1 << 24 && tlvs_fit, || {
                    "no header".into()
                })?;
                let wanted = match (self.ethernet, self.eth_type) {
                    (true, _) => 3,
                    (false, 0x0800) => 1,
                    (false, 0x86dd) => 2,
                    (false, 0x894f) => 4,
                    _ => 5,
                };
                ensure(header.next_protocol == wanted, || format!("the packet is of kind {wanted}"))?;
                self.without_ethernet(0x894f);
                self.nsh_next = wanted.into();
                self.labels = 0;
            }
            Action::PopNsh => {
                ensure(!self.ethernet && self.eth_type == 0x894f && self.nsh_next != 0, || "no NSH header".into())?;
                let ethernet = self.nsh_next == 3;
                self.becomes(0);
                (self.ethernet, self.tags, self.known_untagged) = (ethernet, 0, false);
            }
            Action::Set(set) => self.set(set)?,
            Action::SetTunnel(set) => {
                ensure(set.attribute == Attribute::Tunnel, || "not a tunnel".into())?;
                let get = |field| set.get(field).map_or(0, |(value, _)| value);
                let exact = |(field, _, mask): &(Field, u128, u128)| {
                    *mask == field.full_mask() || field.spec().form == Form::Options
                };
                ensure(set.fields.iter().all(exact), || "a mask".into())?;
                let version4 = get(Field::TunnelIpv4Dst) != 0;
                ensure(version4 != (get(Field::TunnelIpv6Dst) != 0), || "no destination of one IP version".into())?;
                ensure(set.get(Field::TunnelTtl).is_some(), || "no time to live".into())?;
                let bytes: Vec<u8> = GENEVE_CHUNKS.iter().flat_map(|chunk| get(*chunk).to_be_bytes()).collect();
                geneve(&bytes, get(Field::GeneveLength))?;
                ordered(set)?;
            }
            Action::Conntrack(ct) => {
                ensure(ip, || "not an IP packet".into())?;
                conntrack(ct, self.eth_type)?;
            }
            Action::DecTtl(_) => ensure(ip, || "not an IP packet".into())?,
            Action::Psample { cookie, .. } => ensure(cookie.len() <= 16, || "a long cookie".into())?,
            Action::Trunc(length) => ensure(*length >= 14, || "shorter than an Ethernet header".into())?,
            Action::TunnelPush(push) => {
                ensure(push.header.len() >= 34 && push.header.len() <= 512, || "no outer header".into())?
            }
            _ => {}
        }
        Ok(())
    }

    fn set(&self, set: &sluice_flow::FieldSet) -> Result<(), String> {
        let there = match set.attribute {
            Attribute::SkbPriority | Attribute::SkbMark => true,
            Attribute::Ethernet => self.ethernet,
            Attribute::Mpls => matches!(self.eth_type, 0x8847 | 0x8848) && self.labels > 0,
            Attribute::Nsh => self.eth_type == 0x894f,
            Attribute::Ipv4 => self.eth_type == 0x0800,
            Attribute::Ipv6 => self.eth_type == 0x86dd,
            Attribute::Arp => matches!(self.eth_type, 0x0806 | 0x8035),
            Attribute::Tcp => self.proto == 6,
            Attribute::Udp => self.proto == 17,
            Attribute::Sctp => self.proto == 132,
            Attribute::Icmp => self.eth_type == 0x0800 && self.proto == 1,
            Attribute::Icmpv6 => self.eth_type == 0x86dd && self.proto == 58,
            Attribute::Nd | Attribute::NdExt => self.eth_type == 0x86dd && self.proto == 58 && self.neighbour,
            _ => false,
        };
        ensure(there, || format!("no {} is certain", set.attribute.name()))?;
        for (field, value, mask) in &set.fields {
            ensure(*mask != 0 && value & !mask == 0, || format!("{field} outside of its mask"))?;
            ensure(field.spec().attribute == set.attribute, || format!("{field} is of another header"))?;
            let fixed = matches!(field, Field::Ipv4Proto | Field::Ipv6Proto | Field::NshMdType | Field::NshNextProto);
            let fixed = fixed || matches!(field.spec().form, Form::Fragment | Form::Presence);
            ensure(!fixed, || format!("{field} cannot be set"))?;
        }
        ensure(!set.fields.is_empty(), || "nothing to set".into())?;
        ordered(set)
    }

    fn becomes(&mut self, eth_type: u128) {
        (self.eth_type, self.proto, self.neighbour, self.nsh_next) = (eth_type, 0, false, 0);
    }

    fn without_ethernet(&mut self, eth_type: u128) {
        self.becomes(eth_type);
        (self.ethernet, self.tags, self.known_untagged) = (false, 0, true);
    }
}

fn ordered(set: &sluice_flow::FieldSet) -> Result<(), String> {
    ensure(set.fields.is_sorted_by(|(a, ..), (b, ..)| a < b), || "fields out of order".into())
}

fn conntrack(ct: &Conntrack, eth_type: u128) -> Result<(), String> {
    let commits = ct.commit != Commit::No;
    let only_with = ct.mark.is_some() || ct.label.is_some() || ct.helper.is_some() || ct.timeout.is_some();
    ensure(commits || !only_with, || "what only a commit can set".into())?;
    ensure(ct.mark.is_none_or(|(value, mask)| mask != 0 && value & !mask == 0), || "mark".into())?;
    ensure(ct.label.is_none_or(|(value, mask)| mask != 0 && value & !mask == 0), || "label".into())?;
    let Some(Nat::New(nat)) = &ct.nat else { return Ok(()) };
    ensure(commits, || "a new translation without a commit".into())?;
    if let Some((first, last)) = nat.addresses {
        ensure(first <= last && first.is_ipv6() == last.is_ipv6(), || "a range of addresses".into())?;
        ensure(first.is_ipv6() == (eth_type == 0x86dd), || "an address of the other family".into())?;
    }
    ensure(nat.addresses.is_some() || nat.ports.is_none(), || "ports without addresses".into())?;
    ensure(nat.ports.is_none_or(|(first, last)| first > 0 && first <= last), || "a range of ports".into())
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}
