//! Which packets are of a class: the one description from which flow keys and packet filters are made.

use std::fmt::Write as _;

/// As many VLAN tags as a flow key can name.
pub const MAX_TAGS: usize = 2;

/// The tags before the payload, outermost first, with at most [`MAX_TAGS`] of them.
const TAGS: [&[u16]; 5] = [&[], &[0x8100], &[0x88a8], &[0x8100, 0x8100], &[0x88a8, 0x8100]];

/// Selects packets, whatever VLAN tags they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The Ethernet type behind the tags.
    pub ethernet_type: u16,
    /// What else is asked of a packet of IPv4 or IPv6.
    pub ip: Option<IpSelector>,
}

/// Selects packets of IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpSelector {
    /// The protocol; with IPv6 that behind the extension headers.
    pub protocol: u8,
    /// What else is asked. A fragment is not looked into.
    pub transport: Transport,
}

/// Selects packets by their transport header: a field has the value in the bits of the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Any.
    Any,
    /// The type of ICMPv6.
    #[expect(missing_docs, reason = "said above")]
    Type { value: u8, mask: u8 },
    /// The source port of TCP or UDP.
    #[expect(missing_docs, reason = "said above")]
    SourcePort { value: u16, mask: u16 },
    /// The destination port of TCP or UDP.
    #[expect(missing_docs, reason = "said above")]
    DestinationPort { value: u16, mask: u16 },
}

impl Selector {
    pub(super) const fn ethernet(ethernet_type: u16) -> Self {
        Self { ethernet_type, ip: None }
    }

    pub(super) const fn ip(ethernet_type: u16, ip: IpSelector) -> Self {
        Self { ethernet_type, ip: Some(ip) }
    }

    /// Returns the flow keys that select the packets with at most `tags` VLAN tags.
    pub(super) fn flow_keys(&self, tags: usize) -> impl Iterator<Item = String> + use<> {
        let payload = self.untagged();
        let forms = TAGS.into_iter().filter(move |form| form.len() <= tags);
        forms.map(move |form| {
            let tag = |inner: String, tpid: &u16| format!("eth_type({tpid:#06x}),vlan(),encap({inner})");
            form.iter().rev().fold(payload.clone(), tag)
        })
    }

    /// Returns whether fragments are taken: those of IPv4, if nothing is asked of the transport header. Of IPv6 they are not, for the
    /// kernel's flower looks for the protocol of a later fragment where others do not.
    pub(super) fn takes_fragments(&self) -> bool {
        self.ethernet_type == 0x0800 && self.ip.is_none_or(|ip| ip.transport == Transport::Any)
    }

    fn untagged(&self) -> String {
        let mut key = format!("eth_type({:#06x})", self.ethernet_type);
        let Some(IpSelector { protocol, transport }) = self.ip else { return key };
        let ip = if self.ethernet_type == 0x0800 { "ipv4" } else { "ipv6" };
        let header = if protocol == 6 { "tcp" } else { "udp" };
        // Writing to a string does not fail.
        let whole = if self.takes_fragments() { "" } else { ",frag=no" };
        let _ = write!(key, ",{ip}(proto={protocol}{whole})");
        let _ = match transport {
            Transport::Any => Ok(()),
            Transport::Type { value, mask: 0xff } => write!(key, ",icmpv6(type={value})"),
            Transport::Type { value, mask } => write!(key, ",icmpv6(type={value}/{mask:#x})"),
            Transport::SourcePort { value, mask: 0xffff } => write!(key, ",{header}(src={value})"),
            Transport::SourcePort { value, mask } => write!(key, ",{header}(src={value}/{mask:#x})"),
            Transport::DestinationPort { value, mask: 0xffff } => write!(key, ",{header}(dst={value})"),
            Transport::DestinationPort { value, mask } => write!(key, ",{header}(dst={value}/{mask:#x})"),
        };
        key
    }
}
