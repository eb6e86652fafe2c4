//! What is certain of a packet while actions are done to it.

use sluice_flow::action::Action;
use sluice_flow::field::{Attribute, FRAGMENT_FIRST, FRAGMENT_NO, Field, Form, MPLS_ENTRIES};
use sluice_flow::key::Match;

/// Ethernet types of MPLS.
pub(super) const MPLS_TYPES: &[u16] = &[0x8847, 0x8848];
/// What may be under an MPLS label that is pushed (`OVS_ACTION_ATTR_PUSH_MPLS` in `__ovs_nla_copy_actions`).
const LABELLED: &[u16] = &[0x0800, 0x86dd, 0x0806, 0x8035, 0x8847, 0x8848];

/// What is certain of a packet.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Whether it has an Ethernet header; it is certain either way.
    pub(super) ethernet: bool,
    /// Tags that are there.
    pub(super) tags: usize,
    /// Whether there may be more.
    more_tags: bool,
    /// The innermost Ethernet type.
    pub(super) eth_type: Option<u16>,
    /// The label stack entries that are there, outermost first, each with its bottom bit where that is known.
    pub(super) labels: Vec<Option<bool>>,
    /// The protocol of IP, if the packet carries its header.
    transport: Option<u8>,
    neighbour: bool,
    contexts: bool,
    pub(super) nsh_next: Option<u8>,
}

impl Shape {
    /// What is certain of the packets of a match.
    pub(super) fn of(full: &Match) -> Self {
        let exact = |field: Field| (full.mask.get(field) == field.full_mask()).then(|| full.key.get(field));
        let byte = |field| exact(field).and_then(|value| u8::try_from(value).ok());
        let is = |field, value| exact(field) == Some(value);
        let eth_type = exact(Field::EthType).and_then(|value| u16::try_from(value).ok());
        let tags = if is(Field::CvlanPresent, 1) { 2 } else { usize::from(is(Field::VlanPresent, 1)) };
        let untagged = [Field::VlanPresent, Field::CvlanPresent].get(tags).is_some_and(|present| is(*present, 0));
        let ip = matches!(eth_type, Some(0x0800 | 0x86dd));
        let first = matches!(byte(Field::Ipv4Frag), Some(FRAGMENT_NO | FRAGMENT_FIRST));
        let transport = if ip && first { byte(Field::Ipv4Proto) } else { None };
        let neighbour = transport == Some(58)
            && (is(Field::Icmpv6Type, 135) || is(Field::Icmpv6Type, 136))
            && is(Field::Icmpv6Code, 0);
        let depth = 1 + usize::from(is(Field::Mpls2Present, 1)) + usize::from(is(Field::Mpls3Present, 1));
        let is_mpls = eth_type.is_some_and(|eth_type| MPLS_TYPES.contains(&eth_type));
        let bottoms = MPLS_ENTRIES.iter().take(if is_mpls { depth } else { 0 });
        let nsh = eth_type == Some(0x894f);
        Self {
            ethernet: !is(Field::PacketTypeNs, 1),
            tags,
            more_tags: !untagged,
            eth_type,
            labels: bottoms.map(|[.., bottom]| exact(*bottom).map(|bit| bit == 1)).collect(),
            transport,
            neighbour,
            contexts: nsh && is(Field::NshMdType, 1),
            nsh_next: if nsh { byte(Field::NshNextProto) } else { None },
        }
    }

    pub(super) fn untagged(&self) -> bool {
        self.tags == 0 && !self.more_tags
    }

    pub(super) fn is_ip(&self) -> bool {
        matches!(self.eth_type, Some(0x0800 | 0x86dd))
    }

    pub(super) fn is_mpls(&self) -> bool {
        self.eth_type.is_some_and(|eth_type| MPLS_TYPES.contains(&eth_type))
    }

    /// Whether a label may be pushed behind the Ethernet header.
    pub(super) fn takes_label(&self) -> bool {
        self.untagged() && self.labels.len() < 3 && self.eth_type.is_some_and(|eth_type| LABELLED.contains(&eth_type))
    }

    /// The next protocol of an NSH header that is put in front, if there is a number for what the packet is.
    pub(super) fn nsh_protocol(&self) -> Option<u8> {
        match (self.ethernet, self.eth_type) {
            (true, _) => Some(3),
            (false, Some(0x0800)) => Some(1),
            (false, Some(0x86dd)) => Some(2),
            (false, Some(0x894f)) => Some(4),
            (false, Some(0x8847)) => Some(5),
            _ => None,
        }
    }

    /// Whether the packet has the header.
    pub(super) fn has(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::SkbPriority | Attribute::SkbMark => true,
            Attribute::Ethernet => self.ethernet,
            Attribute::Mpls => self.is_mpls() && !self.labels.is_empty(),
            Attribute::Nsh => self.eth_type == Some(0x894f),
            Attribute::Ipv4 => self.eth_type == Some(0x0800),
            Attribute::Ipv6 => self.eth_type == Some(0x86dd),
            Attribute::Arp => matches!(self.eth_type, Some(0x0806 | 0x8035)),
            Attribute::Tcp => self.transport == Some(6),
            Attribute::Udp => self.transport == Some(17),
            Attribute::Sctp => self.transport == Some(132),
            Attribute::Icmp => self.eth_type == Some(0x0800) && self.transport == Some(1),
            // The type says what the rest of a neighbour message is.
            Attribute::Icmpv6 => self.eth_type == Some(0x86dd) && self.transport == Some(58) && !self.neighbour,
            Attribute::Nd | Attribute::NdExt => self.neighbour,
            _ => false,
        }
    }

    /// Whether a field of a header that is there may be rewritten.
    pub(super) fn settable(&self, field: Field) -> bool {
        let [first, ..] = MPLS_ENTRIES;
        match field {
            Field::Ipv4Proto | Field::Ipv6Proto | Field::NshMdType | Field::NshNextProto => false,
            Field::NshContext1 | Field::NshContext2 | Field::NshContext3 | Field::NshContext4 => self.contexts,
            Field::MplsBos => false,
            _ if field.spec().attribute == Attribute::Mpls => first.contains(&field),
            _ => !matches!(field.spec().form, Form::Fragment | Form::Presence),
        }
    }

    /// Takes in what an action does to the packet.
    pub(super) fn apply(&mut self, action: &Action) {
        match action {
            Action::PushVlan(_) => self.tags += 1,
            Action::PopVlan => self.tags -= 1,
            Action::PushMpls(entry) => {
                self.put_in_front(entry.eth_type);
                self.labels.insert(0, Some(entry.bos));
            }
            Action::AddMpls(entry) => {
                self.put_in_front(entry.eth_type);
                self.lose_ethernet();
                self.labels = vec![Some(entry.bos)];
            }
            Action::PopMpls(eth_type) => {
                self.labels.remove(0);
                // The kernel takes nothing for certain of what comes out under the last label that it knows.
                let known = MPLS_TYPES.contains(eth_type) && !self.labels.is_empty();
                self.eth_type = known.then_some(*eth_type);
            }
            Action::PushEth(_) => {
                self.ethernet = true;
                self.tags = 0;
                self.more_tags = false;
            }
            Action::PopEth => self.lose_ethernet(),
            Action::PushNsh(header) => {
                self.put_in_front(0x894f);
                self.lose_ethernet();
                self.labels.clear();
                self.contexts = matches!(header.metadata, sluice_flow::action::NshMetadata::Contexts(_));
                self.nsh_next = Some(header.next_protocol);
            }
            Action::PopNsh => {
                self.ethernet = self.nsh_next == Some(3);
                self.tags = 0;
                self.more_tags = true;
                self.eth_type = None;
                self.nsh_next = None;
            }
            _ => {}
        }
    }

    fn put_in_front(&mut self, eth_type: u16) {
        self.eth_type = Some(eth_type);
        self.transport = None;
        self.neighbour = false;
        self.contexts = false;
        self.nsh_next = None;
    }

    fn lose_ethernet(&mut self) {
        self.ethernet = false;
        self.tags = 0;
        self.more_tags = false;
    }
}
