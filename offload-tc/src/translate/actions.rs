//! Translates the actions of a flow into tc actions.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{Action as FlowAction, ActionKind, ActionList, FieldSet};
use sluice_flow::cause::Cause;
use sluice_flow::field::{Attribute, FRAGMENT_NO, Field};
use sluice_flow::refusal::Refusal;

use super::fields::{CHECKSUM, DONT_FRAGMENT, TUNNEL_KEY, ethernet, protocol};
use super::matching::{LENGTH_OF_TRACKED, Shape};
use super::options::{self, Source, Taken};
use super::refuse::{device_of, refuse, refuse_action};
use super::{conntrack, places};
use crate::context::{Context, DeviceKind};
use crate::label::Spelling;
use crate::wire::action::{
    Action, Command, Control, EditKey, Encapsulation, Entry, Header, Mirred, Mpls, Operation, Police, SkbEdit, Vlan,
    checksum,
};

/// `PACKET_HOST`: the packet is for this host.
pub(super) const FOR_HOST: u16 = 0;
/// Added to a TTL of eight bits to decrement it.
pub(super) const MINUS_ONE: u8 = 0xff;

/// The tc actions of a list; the last one decides what becomes of the packet.
pub(super) fn translate(
    actions: &[FlowAction],
    shape: Shape,
    context: &dyn Context,
    spelling: &mut Spelling,
) -> Result<Vec<Action>, Refusal> {
    let mut list = Vec::with_capacity(actions.len() + 1);
    Translator { list: &mut list, shape, context, spelling, is_encapsulated: false }.list(actions)?;
    Ok(list)
}

struct Translator<'a> {
    list: &'a mut Vec<Action>,
    /// What is known about the packet at this point.
    shape: Shape,
    context: &'a dyn Context,
    spelling: &'a mut Spelling,
    /// Whether an outer header has been set.
    is_encapsulated: bool,
}

impl Translator<'_> {
    fn list(&mut self, actions: &[FlowAction]) -> Result<(), Refusal> {
        for (at, action) in actions.iter().enumerate() {
            self.action(action, &actions[at + 1..])?;
        }
        match actions.last() {
            Some(FlowAction::Output(_) | FlowAction::Recirc(_) | FlowAction::CheckPacketLength { .. }) => {}
            _ => self.put(Operation::Generic, Control::Shot),
        }
        Ok(())
    }

    fn action(&mut self, action: &FlowAction, behind: &[FlowAction]) -> Result<(), Refusal> {
        let kind = action.kind();
        match action {
            FlowAction::Output(port) => {
                let device = device_of(*port, self.context)?;
                let is_tunnel = matches!(device.kind, DeviceKind::Tunnel { .. });
                if is_tunnel && !self.is_encapsulated {
                    let refusal = refuse_action(kind, "no set(tunnel(…)) says which outer header");
                    return Err(refusal.until(Cause::Port(Some(*port))));
                }
                self.release_tunnel(behind)?;
                let is_internal = device.kind == DeviceKind::Internal;
                if is_internal {
                    let host = SkbEdit { packet_type: Some(FOR_HOST), ..SkbEdit::default() };
                    self.put(Operation::SkbEdit(host), Control::Pipe);
                }
                let (to, control) = match (is_internal, behind.is_empty()) {
                    (false, true) => (Mirred::EgressRedirect, Control::Stolen),
                    (false, false) => (Mirred::EgressMirror, Control::Pipe),
                    (true, true) => (Mirred::IngressRedirect, Control::Stolen),
                    (true, false) => (Mirred::IngressMirror, Control::Pipe),
                };
                self.put(Operation::Mirred { to, interface: device.interface }, control);
            }
            FlowAction::Recirc(chain) => {
                if !behind.is_empty() {
                    return Err(refuse_action(kind, "tc does nothing behind a jump to a chain"));
                }
                if chain.0 > Control::NUMBER_LIMIT {
                    let limit = Control::NUMBER_LIMIT.into();
                    return Err(Refusal::Limit { what: "the number of a chain".into(), limit });
                }
                self.put(Operation::Generic, Control::GotoChain(chain.0));
            }
            FlowAction::Set(set) => self.set(set)?,
            FlowAction::SetTunnel(set) => self.set_tunnel(set, behind)?,
            FlowAction::PopVlan => {
                // The outermost tag is beside the packet (`skb_vlan_untag`), and counted by nobody.
                self.change_length(self.shape.tags > 1 || !self.shape.is_every_tag_known);
                self.shape.tags = self.shape.tags.saturating_sub(1);
                self.pipe(Operation::Vlan(Vlan::Pop));
            }
            FlowAction::PushVlan(tag) => {
                if !tag.cfi {
                    return Err(refuse_action(kind, "OVS sets the CFI bit in every tag, which stands for the tag"));
                }
                if !super::matching::is_tag(tag.tpid) {
                    return Err(refuse_action(kind, "the kernel knows tags of 0x8100 and 0x88a8 only"));
                }
                self.change_length(self.shape.tags > 0 || !self.shape.is_every_tag_known);
                self.shape.tags += 1;
                self.pipe(Operation::Vlan(Vlan::Push { protocol: tag.tpid, id: tag.vid, priority: tag.pcp }));
            }
            FlowAction::PushMpls(entry) => {
                if entry.ttl == 0 {
                    return Err(refuse_action(kind, "the kernel pushes no label with a TTL of 0"));
                }
                self.change_length(true);
                self.shape = Shape { eth_type: Some(entry.eth_type), protocol: None, ..self.shape };
                self.pipe(Operation::Mpls(Mpls::Push(Entry {
                    protocol: Some(entry.eth_type),
                    label: Some(entry.label),
                    class: Some(entry.tc),
                    ttl: Some(entry.ttl),
                    bottom: Some(entry.bos),
                })));
            }
            FlowAction::PopMpls(eth_type) => {
                self.change_length(true);
                self.shape = Shape { eth_type: Some(*eth_type), protocol: None, is_whole: false, ..self.shape };
                self.pipe(Operation::Mpls(Mpls::Pop { protocol: *eth_type }));
            }
            FlowAction::Conntrack(action) => {
                if !matches!(self.shape.eth_type, Some(ethernet::IPV4 | ethernet::IPV6)) {
                    // As Open vSwitch's kernel module has it (`ovs_ct_copy_action`).
                    return Err(refuse_action(
                        kind,
                        "act_ct drops what is no IP, and the match does not say that it is",
                    ));
                }
                if self.shape.tags > 1 {
                    // The kernel would drop the packet: `tcf_ct_act` takes the inner tag for the IP header.
                    return Err(refuse_action(kind, "behind two tags act_ct does not find the header"));
                }
                if self.context.is_hardware_alone() {
                    // A connection is brought to the driver by `tcf_ct_act`, which hardware does not call.
                    let reason =
                        "hardware hears of connections from rules in software, which policy skip_sw leaves out";
                    return Err(refuse_action(kind, reason));
                }
                let found = conntrack::translate(action, self.shape, self.context.features())?;
                self.shape.stale_length = Some(LENGTH_OF_TRACKED);
                self.pipe(Operation::Conntrack(Box::new(found)));
            }
            FlowAction::ConntrackClear => self.pipe(Operation::Conntrack(Box::new(conntrack::clear()))),
            FlowAction::Meter(meter) => {
                let index = self.context.police(*meter);
                let no_meter = || refuse_action(kind, "there is no such meter").until(Cause::Meter);
                let index = index.ok_or_else(no_meter)?;
                let police = Police::reference(Control::Pipe);
                let shared = Action::new(Operation::Police(Box::new(police)), Control::Shot);
                self.list.push(Action { index, ..shared });
            }
            FlowAction::CheckPacketLength { length, greater, less_or_equal } => {
                self.check_length(*length, [less_or_equal, greater], behind)?;
            }
            FlowAction::DecTtl(exception) => self.decrement_ttl(exception)?,
            FlowAction::Psample { group, cookie } => self.sample(1, Some(false), *group, cookie)?,
            FlowAction::Sample { probability, actions } => {
                let [FlowAction::Psample { group, cookie }] = &actions[..] else {
                    return Err(refuse_action(kind, "tc can only tell a sampling group"));
                };
                let (rate, is_nearest) = rate(*probability)?;
                self.sample(rate, is_nearest, *group, cookie)?;
            }
            FlowAction::Userspace(_) => {
                return Err(refuse_action(kind, "tc has no process that takes packets"));
            }
            FlowAction::LbOutput(_) => {
                return Err(refuse_action(kind, "the members of the bond are known to ovs-vswitchd alone"));
            }
            _ => return Err(refuse_action(kind, "tc has no such action")),
        }
        Ok(())
    }

    fn set(&mut self, set: &FieldSet) -> Result<(), Refusal> {
        match set.attribute {
            Attribute::SkbPriority => {
                let (value, mask) = whole(set, Field::SkbPriority)?;
                if mask != Field::SkbPriority.full_mask() {
                    return Err(refuse(Field::SkbPriority, "tc sets all of its bits"));
                }
                let edit = SkbEdit { priority: u32::try_from(value).ok(), ..SkbEdit::default() };
                self.pipe(Operation::SkbEdit(edit));
            }
            Attribute::SkbMark => {
                let (value, mask) = whole(set, Field::SkbMark)?;
                let mark = u32::try_from(value).ok().zip(u32::try_from(mask).ok());
                self.pipe(Operation::SkbEdit(SkbEdit { mark, ..SkbEdit::default() }));
            }
            Attribute::Mpls => self.set_mpls(set)?,
            _ => {
                let checksums = self.checksums(set)?;
                for ttl in [Field::Ipv4Ttl, Field::Ipv6Hlimit] {
                    if let Some((value, mask)) = set.get(ttl) {
                        // With an empty mask the value may be absent.
                        self.shape.least_ttl = low(value & mask);
                    }
                }
                let set = self.without_what_stays(set)?;
                let words = places::words(&set).map_err(|field| refuse(field, "tc cannot edit it"))?;
                self.pipe(Operation::Edit(words));
                if checksums != 0 {
                    self.pipe(Operation::Checksum(checksums));
                }
            }
        }
        Ok(())
    }

    /// A set without those fields of a whole header that the packet has already (`validate_set` in the kernel's
    /// openvswitch).
    fn without_what_stays<'s>(&self, set: &'s FieldSet) -> Result<Cow<'s, FieldSet>, Refusal> {
        if !places::names_what_stays(set) {
            return Ok(Cow::Borrowed(set));
        }
        for (field, value, _) in &set.fields {
            let known = match field {
                Field::Ipv4Proto | Field::Ipv6Proto => self.shape.protocol,
                Field::Ipv4Frag | Field::Ipv6Frag => self.shape.is_whole.then_some(FRAGMENT_NO),
                _ => continue,
            };
            if known.map(u128::from) != Some(*value) {
                return Err(refuse(*field, "tc cannot edit it, and the match does not say that it has this value"));
            }
        }
        let fields = set.fields.iter().filter(|(field, ..)| !places::STAY.contains(field)).copied().collect();
        Ok(Cow::Owned(FieldSet { attribute: set.attribute, fields }))
    }

    /// The checksums that an edit invalidates. Fails if the edit is not possible here.
    fn checksums(&self, set: &FieldSet) -> Result<u32, Refusal> {
        let first = set.fields.first().map_or(Field::EthDst, |(field, ..)| *field);
        let is_touched = |field| set.get(field).is_some();
        let wants =
            |is_met: bool| if is_met { Ok(()) } else { Err(refuse(first, "the match does not say that it is there")) };
        let (eth_type, proto) = (self.shape.eth_type, self.shape.protocol);
        if set.attribute != Attribute::Ethernet && self.shape.tags > 1 {
            return Err(refuse(first, "behind two tags act_pedit does not find the header"));
        }
        let is_ip = matches!(eth_type, Some(ethernet::IPV4 | ethernet::IPV6));
        let transport = |is_met: bool, sum: u32| {
            wants(is_met)?;
            if self.shape.is_whole {
                Ok(sum)
            } else {
                Err(refuse(first, "there may be fragments, which have no checksum"))
            }
        };
        match set.attribute {
            Attribute::Ethernet => Ok(0),
            Attribute::Arp => wants(eth_type == Some(ethernet::ARP)).map(|()| 0),
            Attribute::Ipv4 => {
                wants(eth_type == Some(ethernet::IPV4))?;
                let addresses = is_touched(Field::Ipv4Src) || is_touched(Field::Ipv4Dst);
                Ok(checksum::IPV4_HEADER | if addresses { self.checksum_over_addresses(first)? } else { 0 })
            }
            Attribute::Ipv6 => {
                wants(eth_type == Some(ethernet::IPV6))?;
                let addresses = is_touched(Field::Ipv6Src) || is_touched(Field::Ipv6Dst);
                if addresses { self.checksum_over_addresses(first) } else { Ok(0) }
            }
            Attribute::Tcp => transport(is_ip && proto == Some(protocol::TCP), checksum::TCP),
            Attribute::Udp => transport(is_ip && proto == Some(protocol::UDP), checksum::UDP),
            // There may be extension headers in between, which `pedit_l4_skb_offset` skips for TCP and UDP only.
            Attribute::Sctp | Attribute::Icmpv6 | Attribute::Nd | Attribute::NdExt
                if eth_type == Some(ethernet::IPV6) =>
            {
                Err(refuse(first, "behind IPv6 act_pedit finds the headers of TCP and UDP only"))
            }
            Attribute::Sctp => {
                transport(eth_type == Some(ethernet::IPV4) && proto == Some(protocol::SCTP), checksum::SCTP)
            }
            Attribute::Icmp => {
                transport(eth_type == Some(ethernet::IPV4) && proto == Some(protocol::ICMP), checksum::ICMP)
            }
            _ => Err(refuse(first, "tc cannot edit it")),
        }
    }

    /// The transport checksum that covers the addresses of the IP header.
    fn checksum_over_addresses(&self, field: Field) -> Result<u32, Refusal> {
        if !self.shape.is_whole {
            return Err(refuse(field, "there may be fragments, whose checksum cannot be updated"));
        }
        match self.shape.protocol {
            Some(protocol::TCP) => Ok(checksum::TCP),
            Some(protocol::UDP) => Ok(checksum::UDP),
            Some(protocol::UDP_LITE) => Ok(checksum::UDP_LITE),
            Some(protocol::ICMPV6) => Ok(checksum::ICMP),
            Some(protocol::ICMP | protocol::IGMP | protocol::IPIP | protocol::GRE | protocol::ESP | protocol::SCTP) => {
                Ok(0)
            }
            Some(_) => Err(refuse(field, "tc does not know the checksum of this protocol")),
            None => Err(refuse(field, "the match does not say which checksum to update")),
        }
    }

    fn set_mpls(&mut self, set: &FieldSet) -> Result<(), Refusal> {
        if !matches!(self.shape.eth_type, Some(ethernet::MPLS | ethernet::MPLS_MULTICAST)) {
            return Err(refuse(Field::MplsLabel, "the match does not say that it is there"));
        }
        let mut entry = Entry::default();
        for (field, value, mask) in &set.fields {
            if *mask != field.full_mask() {
                return Err(refuse(*field, "tc sets all of its bits"));
            }
            let byte = u8::try_from(*value).unwrap_or_default();
            match field {
                Field::MplsLabel => entry.label = u32::try_from(*value).ok(),
                Field::MplsTc => entry.class = Some(byte),
                Field::MplsTtl if byte == 0 => return Err(refuse(*field, "the kernel sets no TTL of 0")),
                Field::MplsTtl => entry.ttl = Some(byte),
                Field::MplsBos => entry.bottom = Some(byte != 0),
                _ => return Err(refuse(*field, "tc changes the outermost entry only")),
            }
        }
        self.pipe(Operation::Mpls(Mpls::Modify(entry)));
        Ok(())
    }

    fn set_tunnel(&mut self, set: &FieldSet, behind: &[FlowAction]) -> Result<(), Refusal> {
        let no_fragment_is_known = self.context.features().no_fragment;
        let mut set = Taken::new(set);
        let mut take = |field| set.take(field).map(|(value, _)| value);
        let mut header = Encapsulation::default();
        let byte = |value: u128| u8::try_from(value).unwrap_or_default();
        let short = |value: u128| u16::try_from(value).unwrap_or_default();
        let ipv4 = |value: u128| Ipv4Addr::from_bits(u32::try_from(value).unwrap_or_default());
        if let Some(destination) = take(Field::TunnelIpv4Dst) {
            let source = take(Field::TunnelIpv4Src);
            header.ipv4 = Some((ipv4(source.unwrap_or_default()), ipv4(destination)));
        }
        if let Some(destination) = take(Field::TunnelIpv6Dst) {
            let source = take(Field::TunnelIpv6Src);
            header.ipv6 = Some((Ipv6Addr::from_bits(source.unwrap_or_default()), Ipv6Addr::from_bits(destination)));
        }
        if header.ipv4.is_some() == header.ipv6.is_some() {
            return Err(refuse(Field::TunnelIpv4Dst, "there must be one destination"));
        }
        if let Some(id) = take(Field::TunnelId) {
            let id = u32::try_from(id).map_err(|_| refuse(Field::TunnelId, "tc has 32 bits for it"))?;
            header.key = Some(id);
        }
        header.tos = take(Field::TunnelTos).map(byte).filter(|tos| *tos != 0);
        header.ttl = take(Field::TunnelTtl).map(byte);
        if header.ttl == Some(0) {
            return Err(refuse(Field::TunnelTtl, "tc takes a TTL of 0 for none"));
        }
        header.port = take(Field::TunnelTpDst).map(short);
        if header.port == Some(0) {
            return Err(refuse(Field::TunnelTpDst, "tc takes a port of 0 for none"));
        }
        let flags = take(Field::TunnelFlags).map(byte).unwrap_or_default();
        if (flags & TUNNEL_KEY != 0) != header.key.is_some() {
            return Err(refuse(Field::TunnelFlags, "the flag `key` and an identifier go together"));
        }
        if flags & !(TUNNEL_KEY | CHECKSUM | DONT_FRAGMENT) != 0 {
            return Err(refuse(Field::TunnelFlags, "tc sets no OAM flag"));
        }
        if flags & DONT_FRAGMENT != 0 && !no_fragment_is_known && !self.spelling.has(Spelling::DF_LEFT_OUT) {
            let reason = "this kernel's tc cannot set the don't-fragment flag (Linux 6.3 can); with tunnel_flags = \"auto\" or \"as_ovs\", it is \
                          not said, as in OVS";
            return Err(refuse(Field::TunnelFlags, reason));
        }
        header.no_fragment = flags & DONT_FRAGMENT != 0 && no_fragment_is_known;
        header.no_checksum = flags & CHECKSUM == 0;
        header.options = options::set(&mut set)?;
        if let Some(field) = set.left() {
            return Err(refuse(field, "tc cannot set it in an outer header"));
        }
        self.release_tunnel(behind)?;
        self.is_encapsulated = true;
        self.pipe(Operation::TunnelSet(Box::new(header)));
        Ok(())
    }

    /// Releases the outer header that a packet came with before it is sent; a later chain can no longer match it.
    fn release_tunnel(&mut self, behind: &[FlowAction]) -> Result<(), Refusal> {
        if self.shape.has_tunnel {
            if behind.iter().any(|action| matches!(action, FlowAction::Recirc(_))) {
                let reason = "the outer header is released when a packet is sent, and the next chain may match it";
                return Err(Refusal::Combination { reason: reason.into() });
            }
            self.shape.has_tunnel = false;
            self.pipe(Operation::TunnelRelease);
        }
        Ok(())
    }

    fn check_length(&mut self, length: u16, lists: [&ActionList; 2], behind: &[FlowAction]) -> Result<(), Refusal> {
        if !behind.is_empty() {
            return Err(refuse_action(ActionKind::CheckPktLen, "tc does nothing behind both lists"));
        }
        if length == 0 {
            return Err(refuse_action(ActionKind::CheckPktLen, "tc takes a length of 0 for any"));
        }
        if let Some(reason) = self.shape.stale_length {
            return Err(refuse_action(ActionKind::CheckPktLen, reason));
        }
        let [less_or_equal, greater] = lists;
        let police = Police { conform: Control::Pipe, rate: None, burst: 0, mtu: length.into(), packets: None };
        let at = self.list.len();
        self.pipe(Operation::Police(Box::new(police)));
        self.branch(less_or_equal)?;
        let target = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        if let Some(police) = self.list.get_mut(at) {
            police.control = Control::Jump(target);
        }
        self.branch(greater)
    }

    /// Notes that a push or pop changes the length of the packet, if it does.
    fn change_length(&mut self, is_changed: bool) {
        const REASON: &str =
            "tc compares the length that the packet came with, and a push or pop in front has changed it";
        if is_changed {
            self.shape.stale_length.get_or_insert(REASON);
        }
    }

    /// A list that is run on the packet as it is here.
    fn branch(&mut self, actions: &[FlowAction]) -> Result<(), Refusal> {
        let is_encapsulated = self.is_encapsulated;
        let (shape, context) = (self.shape, self.context);
        let spelling = &mut *self.spelling;
        Translator { list: self.list, shape, context, spelling, is_encapsulated }.list(actions)
    }

    fn decrement_ttl(&mut self, exception: &ActionList) -> Result<(), Refusal> {
        let kind = ActionKind::DecTtl;
        if !exception.is_empty() {
            return Err(refuse_action(kind, "tc has no action for packets whose TTL would become 0"));
        }
        if self.shape.least_ttl < 2 {
            let reason =
                "the match does not keep it from becoming 0: match one of its upper seven bits, such as ttl=64/64";
            return Err(refuse_action(kind, reason));
        }
        if self.shape.tags > 1 {
            return Err(refuse_action(kind, "behind two tags act_pedit does not find the header"));
        }
        let (header, offset, place, sum) = match self.shape.eth_type {
            Some(ethernet::IPV4) => (Header::Ipv4, 8, 0, checksum::IPV4_HEADER),
            Some(ethernet::IPV6) => (Header::Ipv6, 4, 3, 0),
            _ => return Err(refuse_action(kind, "the match does not say that there is one")),
        };
        let (mut value, mut mask) = ([0; 4], [0; 4]);
        (value[place], mask[place]) = (MINUS_ONE, u8::MAX);
        let [value, mask] = [value, mask].map(u32::from_be_bytes);
        self.pipe(Operation::Edit(vec![EditKey { header, command: Command::Add, offset, value, mask }]));
        if sum != 0 {
            self.pipe(Operation::Checksum(sum));
        }
        self.shape.least_ttl -= 1;
        Ok(())
    }

    /// Samples one in `rate` packets, and notes which [spelling](Spelling::SAMPLE) the flow uses if there are two.
    fn sample(&mut self, rate: u32, way: Option<bool>, group: u32, cookie: &[u8]) -> Result<(), Refusal> {
        if !cookie.is_empty() {
            return Err(refuse_action(ActionKind::Psample, "tc samples without a cookie"));
        }
        let is_of_all = |action: &Action| matches!(action.operation, Operation::Sample { rate: 1, .. });
        if rate == 1 && self.list.iter().any(is_of_all) {
            return Err(refuse_action(ActionKind::Psample, "a rule samples every packet to one group only"));
        }
        let has_ways =
            |action: &Action| matches!(action.operation, Operation::Sample { rate, .. } if has_two_ways(rate));
        if let Some(way) = way {
            if self.list.iter().any(has_ways) && way != self.spelling.has(Spelling::SAMPLE) {
                return Err(refuse_action(
                    ActionKind::Sample,
                    "the probabilities of a rule must be rounded in the same way",
                ));
            }
            if way {
                self.spelling.add(Spelling::SAMPLE);
            }
        }
        self.pipe(Operation::Sample { rate, group, truncate: None });
        Ok(())
    }

    fn pipe(&mut self, operation: Operation) {
        self.put(operation, Control::Pipe);
    }

    fn put(&mut self, operation: Operation, control: Control) {
        self.list.push(Action::new(operation, control));
    }
}

/// The lowest byte of a number.
const fn low(number: u128) -> u8 {
    number.to_be_bytes()[15]
}

/// The rate for a probability, and whether the probability is the [nearest](probability) to one in that many or the one
/// below, if these differ. OVS has the former where it reads percents, and the latter where it samples for sFlow
/// (`parse_odp_sample_action`, `dpif_sflow_set_options`).
fn rate(wanted: u32) -> Result<(u32, Option<bool>), Refusal> {
    let refused = || refuse_action(ActionKind::Sample, "tc takes one in a whole number of packets");
    let cut = u32::MAX.checked_div(wanted).ok_or_else(refused)?;
    // One of two adjacent numbers is the nearest.
    for (rate, is_nearest) in [cut, cut.saturating_add(1)].into_iter().flat_map(|rate| [(rate, false), (rate, true)]) {
        if probability(rate, is_nearest) == wanted {
            // A sample of all packets.
            let way = if wanted == u32::MAX { Some(true) } else { has_two_ways(rate).then_some(is_nearest) };
            return Ok((rate, way));
        }
    }
    Err(refused())
}

/// The probability of one in `rate` packets: the nearest, or the one below.
pub(super) fn probability(rate: u32, is_nearest: bool) -> u32 {
    let rest = u32::MAX.checked_rem(rate).unwrap_or_default();
    let below = u32::MAX.checked_div(rate).unwrap_or_default();
    // Halves are rounded up.
    if is_nearest && rest >= rate - rest { below.saturating_add(1) } else { below }
}

/// Whether one in `rate` packets can be written in two ways. All packets can: with a sample and without.
fn has_two_ways(rate: u32) -> bool {
    rate == 1 || probability(rate, true) != probability(rate, false)
}

/// Value and mask of the only field of a set.
fn whole(set: &FieldSet, field: Field) -> Result<(u128, u128), Refusal> {
    set.get(field).ok_or_else(|| refuse(field, "it is not set"))
}
