//! Reads a rule of ours back as its flow.

use sluice_flow::action::{Action as FlowAction, ActionList, FieldSet, MplsEntry, VlanTag};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, MPLS_ENTRIES, MPLS_PRESENT};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use super::actions::{FOR_HOST, probability};
use super::fields::{
    FIELDS, FIRST_FRAGMENT, FRAGMENT, NARROW, NARROW_OPERATION, PASSED_OVER, STATES, TRACKED, TUNNEL_FLAGS, TUNNEL_KEY,
    ethernet, protocol,
};
use super::matching::{exact, is_tag};
use super::refuse::Unreadable;
use super::{conntrack, options, places};
use crate::context::{Context, DeviceKind};
use crate::label::Spelling;
use crate::wire::action::{Action, Command, Control, EditKey, Header, Mirred, Mpls, Operation, SkbEdit, Vlan};
use crate::wire::filter::{ANY_PROTOCOL, FilterId, Hook};
use crate::wire::flower::{Flower, OptionsMatch};
use crate::wire::key::{Key, KeyMatch};

/// The match of a rule.
pub(super) fn matching(
    id: FilterId,
    flower: &Flower,
    spelling: Spelling,
    context: &dyn Context,
) -> Result<Match, Unreadable> {
    let mut full = Match::default();
    let (Hook::Ingress { interface } | Hook::Egress { interface } | Hook::Block { number: interface }) = id.hook;
    let (port, device) = context.port(interface).ok_or(Unreadable("it is at a device that is no port"))?;
    if device.hook() != id.hook {
        return Err(Unreadable("it is where no packet comes in at the port"));
    }
    full.set_exact(Field::InPort, port.0.into());
    if !spelling.has(Spelling::NO_CHAIN) {
        full.set_exact(Field::RecircId, id.chain.into());
    }
    for (field, said) in [(Field::PacketTypeNs, Spelling::NAMESPACE), (Field::PacketTypeId, Spelling::PACKET_TYPE)] {
        if spelling.has(said) {
            full.set_exact(field, 0);
        }
    }
    let is_tunnel = matches!(device.kind, DeviceKind::Tunnel { .. });
    if spelling.has(Spelling::TUNNEL) {
        full.set_exact(Field::TunnelPresent, is_tunnel.into());
    }
    let mut left: Vec<_> = flower.keys.clone();
    let mut take = |key: Key| {
        let at = left.iter().position(|found| found.key == key)?;
        Some(left.swap_remove(at))
    };
    let value = |found: Option<KeyMatch>| found.and_then(|found| u16::try_from(found.value).ok());

    let count = value(take(Key::NumOfVlans));
    let types = [value(take(Key::EthType)), value(take(Key::VlanEthType)), value(take(Key::CvlanEthType))];
    let pppoe = [take(Key::PppoeSession), take(Key::PppProtocol)];
    let types = if pppoe.iter().any(Option::is_some) { behind_tags_pppoe(types) } else { types };
    let is_number_said = spelling.has(Spelling::NUMBER_OF_TAGS);
    tags_and_type(&mut full, id.protocol, types, count.filter(|_| !is_number_said), spelling)?;
    let eth_type: Option<u16> = exact(&full, Field::EthType);
    if let Some(count) = count.filter(|_| is_number_said || eth_type.is_some()) {
        full.set_exact(Field::NumOfVlans, count.into());
    }
    for (field, found) in [Field::PppoeSession, Field::PppProtocol].into_iter().zip(pppoe) {
        if let Some(found) = found {
            full.set_exact(Field::PppoePresent, 1);
            full.set(field, found.value, found.mask);
        }
    }

    if let Some(flags) = take(Key::Flags) {
        let fragment = match (flags.value, flags.mask) {
            (0, FRAGMENT) => FRAGMENT_NO,
            (value, mask) if mask == FRAGMENT | FIRST_FRAGMENT && value == mask => FRAGMENT_FIRST,
            (FRAGMENT, mask) if mask == FRAGMENT | FIRST_FRAGMENT => FRAGMENT_LATER,
            _ => return Err(Unreadable("flags that no flow matches")),
        };
        full.set_exact(Field::Ipv4Frag, fragment.into());
    }
    let is_later = full.is_exactly(Field::Ipv6Frag, FRAGMENT_LATER.into());
    if spelling.has(Spelling::FRAGMENT_PROTOCOL) && eth_type == Some(ethernet::IPV6) && is_later {
        full.set_exact(Field::Ipv6Proto, protocol::IPV6_FRAGMENT.into());
    }
    if let Some(state) = take(Key::CtState) {
        let (mut value, mut mask) = (0, 0);
        for (ours, theirs) in STATES {
            let bit = |bits: u128| if bits & u128::from(*theirs) != 0 { u128::from(*ours) } else { 0 };
            (value, mask) = (value | bit(state.value), mask | bit(state.mask));
        }
        if spelling.has(Spelling::NOT_TRACKED) {
            mask &= !u128::from(TRACKED);
        }
        full.set(Field::CtState, value, mask);
    }
    if let Some(operation) = take(Key::ArpOp) {
        let is_narrow = spelling.has(Spelling::NARROW_OPERATION);
        let mask = if is_narrow { NARROW_OPERATION } else { Field::ArpOp.full_mask() };
        full.set(Field::ArpOp, operation.value, mask);
    }
    if let Some(id) = take(Key::EncKeyId) {
        full.set_exact(Field::TunnelId, id.value);
    }
    let has_udp = matches!(device.kind, DeviceKind::Tunnel { udp_port: Some(_) });
    if has_udp && spelling.has(Spelling::UDP_PORT) {
        take(Key::EncUdpDst);
    }
    let (mut flags, mut flags_mask) = (0, 0);
    if let Some(found) = take(Key::EncFlags) {
        for (ours, theirs) in TUNNEL_FLAGS {
            let bit = |bits: u128| if bits & u128::from(*theirs) != 0 { u128::from(*ours) } else { 0 };
            (flags, flags_mask) = (flags | bit(found.value), flags_mask | bit(found.mask));
        }
    }
    for (_, bit, matched, is_set) in PASSED_OVER {
        if spelling.has(*matched) {
            flags_mask |= u128::from(*bit);
            flags |= if spelling.has(*is_set) { u128::from(*bit) } else { 0 };
        }
    }
    if spelling.has(Spelling::TUNNEL_KEY) {
        (flags, flags_mask) = (flags | u128::from(TUNNEL_KEY), flags_mask | u128::from(TUNNEL_KEY));
    }
    full.set(Field::TunnelFlags, flags, flags_mask);
    if let Some(OptionsMatch { value, mask }) = &flower.options {
        let fields = options::fields(value, mask).ok_or(Unreadable("options that no flow matches"))?;
        fields.into_iter().for_each(|(field, value, mask)| full.set(field, value, mask));
        for (field, _, whole) in NARROW {
            if spelling.has(*whole) && full.mask.get(*field) != 0 {
                full.set_exact(*field, full.key.get(*field));
            }
        }
    }
    labels(&mut full, flower, &mut take);
    if let Some(cfm) = flower.cfm {
        for (field, value) in [(Field::CfmLevel, cfm.level), (Field::CfmOpcode, cfm.opcode)] {
            if let Some(value) = value {
                full.set_exact(field, value.into());
            }
        }
    }
    // Of fields that share a key, those whose header is present.
    let ip = if eth_type == Some(ethernet::IPV6) { Attribute::Ipv6 } else { Attribute::Ipv4 };
    for found in left {
        let of_key = FIELDS.iter().filter(|(_, key)| *key == found.key);
        let mut fields = of_key.map(|(field, _)| *field).filter(|field| {
            let attribute = field.spec().attribute;
            !matches!(attribute, Attribute::Ipv4 | Attribute::Ipv6) || attribute == ip
        });
        let field = fields.next().ok_or(Unreadable("a key that no flow matches"))?;
        full.set(field, found.value, found.mask);
    }
    Ok(full)
}

/// The Ethernet types of a PPPoE rule. The last one is PPPoE's; the kernel shows in its place the type of what PPP carries,
/// or nothing (`fl_set_key_pppoe`, `fl_dump_key`).
fn behind_tags_pppoe([outer, behind_outer, behind_inner]: [Option<u16>; 3]) -> [Option<u16>; 3] {
    let pppoe = Some(ethernet::PPPOE_SESSION);
    match behind_outer {
        Some(inner) if is_tag(inner) => [outer, behind_outer, pppoe],
        _ => [outer, pppoe, behind_inner],
    }
}

fn tags_and_type(
    full: &mut Match,
    protocol: u16,
    types: [Option<u16>; 3],
    count: Option<u16>,
    spelling: Spelling,
) -> Result<(), Unreadable> {
    let [_, behind_outer, behind_inner] = types;
    if !is_tag(protocol) {
        if count == Some(0) || protocol != ANY_PROTOCOL {
            full.set_exact(Field::VlanPresent, 0);
        }
        if protocol != ANY_PROTOCOL {
            full.set_exact(Field::EthType, protocol.into());
        }
        if spelling.has(Spelling::NO_INNER_TAG) {
            full.set_exact(Field::CvlanPresent, 0);
        }
        return Ok(());
    }
    full.set_exact(Field::VlanPresent, 1);
    full.set_exact(Field::VlanTpid, protocol.into());
    if spelling.has(Spelling::CFI) {
        full.set_exact(Field::VlanCfi, 1);
    }
    match behind_outer {
        Some(inner) if is_tag(inner) => {
            full.set_exact(Field::CvlanPresent, 1);
            full.set_exact(Field::CvlanTpid, inner.into());
            if spelling.has(Spelling::INNER_CFI) {
                full.set_exact(Field::CvlanCfi, 1);
            }
            if let Some(eth_type) = behind_inner {
                full.set_exact(Field::EthType, eth_type.into());
            }
        }
        Some(eth_type) => {
            full.set_exact(Field::CvlanPresent, 0);
            full.set_exact(Field::EthType, eth_type.into());
        }
        None if count == Some(1) => full.set_exact(Field::CvlanPresent, 0),
        None => {}
    }
    Ok(())
}

fn labels(full: &mut Match, flower: &Flower, take: &mut impl FnMut(Key) -> Option<KeyMatch>) {
    let [label, class, ttl, bottom] = MPLS_ENTRIES[0];
    for (key, field) in [(Key::MplsLabel, label), (Key::MplsTc, class), (Key::MplsTtl, ttl), (Key::MplsBos, bottom)] {
        if let Some(found) = take(key) {
            full.set_exact(MPLS_PRESENT[0], 1);
            full.set_exact(field, found.value);
        }
    }
    for entry in &flower.labels {
        let at = usize::from(entry.depth).wrapping_sub(1);
        let (Some(present), Some([label, class, ttl, bottom])) = (MPLS_PRESENT.get(at), MPLS_ENTRIES.get(at)) else {
            continue;
        };
        full.set_exact(*present, 1);
        let said = [
            (label, entry.label),
            (class, entry.class.map(u32::from)),
            (ttl, entry.ttl.map(u32::from)),
            (bottom, entry.bottom.map(u32::from)),
        ];
        for (field, value) in said {
            if let Some(value) = value {
                full.set_exact(*field, value.into());
            }
        }
    }
}

/// The actions of a rule, without the notes.
pub(super) fn actions(
    actions: &[Action],
    full: &Match,
    spelling: Spelling,
    context: &dyn Context,
) -> Result<ActionList, Unreadable> {
    let protocol = match exact::<u16>(full, Field::EthType) {
        Some(ethernet::IPV4 | ethernet::IPV6) => exact(full, Field::Ipv4Proto),
        _ => None,
    };
    let stays = spelling.has(Spelling::WHOLE_SET).then(|| {
        let value = |field: Field| (field, full.key.get(field), field.full_mask());
        places::STAY.map(value)
    });
    Reader { all: actions, at: 0, protocol, stays, spelling, context }.list(actions.len())
}

struct Reader<'a> {
    all: &'a [Action],
    at: usize,
    protocol: Option<u8>,
    /// Fields of an IP header that whole sets name besides what they edit.
    stays: Option<[(Field, u128, u128); 4]>,
    spelling: Spelling,
    context: &'a dyn Context,
}

impl Reader<'_> {
    /// The actions up to a place.
    fn list(&mut self, end: usize) -> Result<ActionList, Unreadable> {
        let mut list = Vec::new();
        while let Some(action) = self.all.get(self.at).filter(|_| self.at < end) {
            self.at += 1;
            if let Some(read) = self.action(action, end)? {
                list.push(read);
            }
        }
        Ok(list.into())
    }

    fn action(&mut self, action: &Action, end: usize) -> Result<Option<FlowAction>, Unreadable> {
        let read = match (&action.operation, action.control) {
            (Operation::Generic, Control::Shot) if self.at == end => return Ok(None),
            (Operation::Generic, Control::GotoChain(chain)) if self.at == end => FlowAction::Recirc(ChainId(chain)),
            (Operation::Mirred { to, interface }, control) => {
                let is_last = matches!(to, Mirred::EgressRedirect | Mirred::IngressRedirect);
                if is_last != (control == Control::Stolen) || is_last != (self.at == end) {
                    return Err(Unreadable("a packet that is sent in an odd way"));
                }
                FlowAction::Output(self.port(*interface)?)
            }
            (Operation::Police(police), Control::Jump(target)) if police.mtu != 0 => {
                let target = usize::try_from(target).unwrap_or(usize::MAX);
                if target > end || target < self.at {
                    return Err(Unreadable("a jump out of its list"));
                }
                let less_or_equal = self.list(target)?;
                let greater = self.list(end)?;
                let length = u16::try_from(police.mtu).map_err(|_| Unreadable("a length beyond 16 bits"))?;
                FlowAction::CheckPacketLength { length, greater, less_or_equal }
            }
            (Operation::Police(_), _) => {
                let meter = self.context.meter(action.index).ok_or(Unreadable("a policer that is no meter"))?;
                FlowAction::Meter(meter)
            }
            (_, Control::Pipe) => return self.piped(&action.operation),
            _ => return Err(Unreadable("an action that goes on in an odd way")),
        };
        Ok(Some(read))
    }

    fn piped(&mut self, operation: &Operation) -> Result<Option<FlowAction>, Unreadable> {
        const FOR_HOST_ONLY: SkbEdit = SkbEdit { priority: None, mark: None, packet_type: Some(FOR_HOST) };
        Ok(Some(match operation {
            Operation::TunnelRelease => return Ok(None),
            Operation::SkbEdit(edit) if *edit == FOR_HOST_ONLY => return Ok(None),
            Operation::SkbEdit(SkbEdit { priority: Some(priority), mark: None, packet_type: None }) => {
                let field = Field::SkbPriority;
                set(Attribute::SkbPriority, vec![(field, (*priority).into(), field.full_mask())])
            }
            Operation::SkbEdit(SkbEdit { priority: None, mark: Some((mark, mask)), packet_type: None }) => {
                set(Attribute::SkbMark, vec![(Field::SkbMark, (mark & mask).into(), (*mask).into())])
            }
            Operation::Conntrack(found) if **found == conntrack::clear() => FlowAction::ConntrackClear,
            Operation::Conntrack(found) => {
                let read = conntrack::read(found).ok_or(Unreadable("connection tracking that no flow asks for"))?;
                FlowAction::Conntrack(Box::new(read))
            }
            Operation::Edit(words) => {
                // Checksums follow from the edits.
                if matches!(self.all.get(self.at), Some(Action { operation: Operation::Checksum(_), .. })) {
                    self.at += 1;
                }
                self.edit(words)?
            }
            Operation::Mpls(Mpls::Push(entry)) => FlowAction::PushMpls(MplsEntry {
                label: entry.label.unwrap_or_default(),
                tc: entry.class.unwrap_or_default(),
                ttl: entry.ttl.unwrap_or_default(),
                bos: entry.bottom.unwrap_or_default(),
                eth_type: entry.protocol.unwrap_or_default(),
            }),
            Operation::Mpls(Mpls::Pop { protocol }) => FlowAction::PopMpls(*protocol),
            Operation::Mpls(Mpls::Modify(entry)) => {
                let said = [
                    (Field::MplsLabel, entry.label),
                    (Field::MplsTc, entry.class.map(u32::from)),
                    (Field::MplsTtl, entry.ttl.map(u32::from)),
                    (Field::MplsBos, entry.bottom.map(u32::from)),
                ];
                let whole = |(field, value): (Field, Option<u32>)| Some((field, value?.into(), field.full_mask()));
                set(Attribute::Mpls, said.into_iter().filter_map(whole).collect())
            }
            Operation::Sample { rate: 1, group, .. } if !self.spelling.has(Spelling::SAMPLE) => {
                FlowAction::Psample { group: *group, cookie: Box::default() }
            }
            Operation::Sample { rate, group, .. } => FlowAction::Sample {
                probability: probability(*rate, self.spelling.has(Spelling::SAMPLE)),
                actions: [FlowAction::Psample { group: *group, cookie: Box::default() }].into(),
            },
            Operation::TunnelSet(header) => FlowAction::SetTunnel(super::tunnel::read(header, self.spelling)?),
            Operation::Vlan(Vlan::Pop) => FlowAction::PopVlan,
            Operation::Vlan(Vlan::Push { protocol, id, priority }) => {
                FlowAction::PushVlan(VlanTag { tpid: *protocol, vid: *id, pcp: *priority, cfi: true })
            }
            _ => return Err(Unreadable("an action that no flow asks for")),
        }))
    }

    fn edit(&self, words: &[EditKey]) -> Result<FlowAction, Unreadable> {
        let (Some(first), odd) = (words.first(), Unreadable("a rewriting that no flow asks for")) else {
            return Err(Unreadable("a rewriting of nothing"));
        };
        if first.command == Command::Add {
            return Ok(FlowAction::DecTtl([].into()));
        }
        let attribute = match (first.header, self.protocol) {
            (Header::Ethernet, _) => Attribute::Ethernet,
            (Header::Ipv4, _) => Attribute::Ipv4,
            (Header::Ipv6, _) => Attribute::Ipv6,
            (Header::Network, _) => Attribute::Arp,
            (Header::Udp, _) => Attribute::Udp,
            (Header::Tcp, Some(protocol::SCTP)) => Attribute::Sctp,
            (Header::Tcp, Some(protocol::ICMP)) => Attribute::Icmp,
            (Header::Tcp, _) => Attribute::Tcp,
        };
        let read = places::set(attribute, words).ok_or(odd)?;
        let Some(stays) = self.stays.filter(|_| places::is_all_that_changes(&read)) else {
            return Ok(FlowAction::Set(read));
        };
        let stays = stays.into_iter().filter(|(field, ..)| field.spec().attribute == attribute);
        let mut fields: Vec<_> = read.fields.iter().copied().chain(stays).collect();
        fields.sort_unstable_by_key(|(field, ..)| *field);
        Ok(set(attribute, fields))
    }

    fn port(&self, interface: u32) -> Result<PortNumber, Unreadable> {
        let (port, _) = self.context.port(interface).ok_or(Unreadable("it sends to a device that is no port"))?;
        Ok(port)
    }
}

fn set(attribute: Attribute, fields: Vec<(Field, u128, u128)>) -> FlowAction {
    FlowAction::Set(FieldSet { attribute, fields: fields.into() })
}
