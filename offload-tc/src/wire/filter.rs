//! Filters: `struct tcmsg` with its attributes, and the requests that add, delete and list them.

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed, TooLong, Writer};
use sluice_netdev::netlink::message::{self, Header};

use super::flower::Flower;
use super::statistics::Count;

/// A filter exists, or is to be added (`RTM_NEWTFILTER`).
pub const NEW_FILTER: u16 = 44;
/// A filter is gone, or is to be deleted.
pub const DELETE_FILTER: u16 = 45;
/// A filter is asked for, or with [`message::flag::DUMP`] all of them.
pub const GET_FILTER: u16 = 46;
/// A queueing discipline is to be added (`RTM_NEWQDISC`).
pub const NEW_QDISC: u16 = 36;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const CHAIN: u16 = 11;
const DUMP_FLAGS: u16 = 15;
const DRIVER_WARNING: u16 = 16;
/// Value and mask of `TCA_DUMP_FLAGS`.
const TERSE: u32 = 1;
const FLOWER: &str = "flower";
/// Bytes of `struct tcmsg`.
const FIXED: usize = 20;
/// `TCM_IFINDEX_MAGIC_BLOCK`
const BLOCK: u32 = u32::MAX;
/// `TC_H_MAKE(TC_H_CLSACT, 0)`, the parent of both hooks.
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// `TC_H_CLSACT`, which is also `TC_H_INGRESS`.
const CLSACT_PARENT: u32 = 0xffff_fff1;
const AT_INGRESS: u32 = 0xffff_fff2;
const AT_EGRESS: u32 = 0xffff_fff3;
/// Bytes of an Ethernet header (`ETH_HLEN`).
pub(crate) const ETHERNET_HEADER: u64 = 14;

/// Where filters are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// What a device receives.
    Ingress {
        /// The device's index.
        interface: u32,
    },
    /// What a device sends.
    Egress {
        /// The device's index.
        interface: u32,
    },
    /// A block that several devices share.
    Block {
        /// Its number.
        number: u32,
    },
}

impl Hook {
    const fn interface_and_parent(self) -> (u32, u32) {
        match self {
            Self::Ingress { interface } => (interface, AT_INGRESS),
            Self::Egress { interface } => (interface, AT_EGRESS),
            Self::Block { number } => (BLOCK, number),
        }
    }
}

/// The name of a filter in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterId {
    /// Where it is attached.
    pub hook: Hook,
    /// The chain.
    pub chain: u32,
    /// The lowest is matched first; not 0. All filters of a priority have one [`protocol`](Self::protocol).
    pub priority: u16,
    /// The Ethernet type of the packets that are matched, 3 for all; the outermost one for tagged packets.
    pub protocol: u16,
    /// The number within chain and priority; not 0.
    pub handle: u32,
}

impl FilterId {
    /// Adds to what software counted the headers that its hook leaves out of each packet. At ingress the Ethernet header is
    /// stripped before tc sees the packet, and everywhere the outermost tag, which a rule of chain 0 matches. In a later
    /// chain nothing says with which tag the packet came. A GSO or GRO packet still lacks the headers of all segments but
    /// one, and counts as one packet.
    #[must_use]
    pub const fn with_headers(&self, counted: Count) -> Count {
        let ethernet = match self.hook {
            Hook::Egress { .. } => 0,
            Hook::Ingress { .. } | Hook::Block { .. } => ETHERNET_HEADER,
        };
        let tag = match (self.chain, self.protocol) {
            (0, 0x8100 | 0x88a8) => 4,
            _ => 0,
        };
        Count { bytes: counted.bytes.saturating_add(counted.packets.saturating_mul(ethernet + tag)), ..counted }
    }

    /// `tcm_info`
    fn information(self) -> u32 {
        u32::from(self.priority) << 16 | u32::from(self.protocol.to_be())
    }
}

/// `ETH_P_ALL`: packets of any type.
pub const ANY_PROTOCOL: u16 = 3;

/// A filter of flower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its name.
    pub id: FilterId,
    /// What it matches and does.
    pub flower: Flower,
}

impl Filter {
    /// Appends a request about this filter, such as [`NEW_FILTER`], to a buffer.
    pub fn emit(&self, buffer: &mut Vec<u8>, flags: u16, sequence: u32) -> Result<(), TooLong> {
        let header = Header { kind: NEW_FILTER, flags: message::flag::REQUEST | flags, sequence, port: 0 };
        message::write(buffer, header, |writer| {
            head(self.id, writer);
            writer.nest(OPTIONS, |writer| self.flower.emit(writer));
        })
    }
}

/// Changes handle, priority, flags and sequence number of a request that [`Filter::emit`] wrote.
pub(crate) fn rename(request: &mut [u8], id: FilterId, flags: u16, sequence: u32) {
    message::readdress(request, message::flag::REQUEST | flags, sequence);
    if let Some((fixed, _)) = request.get_mut(message::HEADER..).and_then(|rest| rest.split_first_chunk_mut::<FIXED>())
    {
        fixed[8..12].copy_from_slice(&id.handle.to_ne_bytes());
        fixed[16..].copy_from_slice(&id.information().to_ne_bytes());
    }
}

/// Writes a request with the name of a filter only: [`DELETE_FILTER`] or [`GET_FILTER`].
pub fn emit_name(buffer: &mut Vec<u8>, kind: u16, id: FilterId, flags: u16, sequence: u32) -> Result<(), TooLong> {
    let header = Header { kind, flags: message::flag::REQUEST | flags, sequence, port: 0 };
    message::write(buffer, header, |writer| head(id, writer))
}

/// Writes a request for all filters of a hook. A terse dump has flags, cookies and counters only (`TCA_DUMP_FLAGS_TERSE`).
pub fn emit_dump(buffer: &mut Vec<u8>, hook: Hook, terse: bool, sequence: u32) -> Result<(), TooLong> {
    let flags = message::flag::REQUEST | message::flag::DUMP;
    message::write(buffer, Header { kind: GET_FILTER, flags, sequence, port: 0 }, |writer| {
        let (interface, parent) = hook.interface_and_parent();
        fixed_part(interface, 0, parent, 0, writer);
        if terse {
            let [value, selector] = [TERSE.to_ne_bytes(), TERSE.to_ne_bytes()];
            writer.put(DUMP_FLAGS, &[value, selector].concat());
        }
    })
}

/// Writes a request for the `clsact` queueing discipline of a device, which both hooks need.
pub fn emit_clsact(buffer: &mut Vec<u8>, interface: u32, flags: u16, sequence: u32) -> Result<(), TooLong> {
    let header = Header { kind: NEW_QDISC, flags: message::flag::REQUEST | flags, sequence, port: 0 };
    message::write(buffer, header, |writer| {
        fixed_part(interface, CLSACT_HANDLE, CLSACT_PARENT, 0, writer);
        writer.put_text(KIND, "clsact");
    })
}

fn head(id: FilterId, writer: &mut Writer<'_>) {
    let (interface, parent) = id.hook.interface_and_parent();
    fixed_part(interface, id.handle, parent, id.information(), writer);
    writer.put_text(KIND, FLOWER);
    writer.put(CHAIN, &id.chain.to_ne_bytes());
}

/// `struct tcmsg`
fn fixed_part(interface: u32, handle: u32, parent: u32, information: u32, writer: &mut Writer<'_>) {
    let family_and_holes = [0; 4];
    writer.raw(&family_and_holes);
    for word in [interface, handle, parent, information] {
        writer.raw(&word.to_ne_bytes());
    }
}

/// A filter as the kernel sends it, not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterView<'a> {
    /// Its name.
    pub id: FilterId,
    /// The kind of classifier.
    pub kind: &'a str,
    options: &'a [u8],
    /// The driver's message where software took the rule instead.
    pub warning: Option<&'a str>,
}

impl<'a> FilterView<'a> {
    /// Reads what follows the header of a message about a filter.
    pub fn new(payload: &'a [u8]) -> Result<Self, Malformed> {
        let place = "filter";
        let mut fields = Fields::new(payload, place);
        let _family_and_holes: [u8; 4] = fields.bytes()?;
        let (interface, handle, parent) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let [low, high] = [fields.u16()?, fields.u16()?];
        let (priority, protocol) = if cfg!(target_endian = "big") { (low, high) } else { (high, low.swap_bytes()) };
        let hook = match (interface, parent) {
            (BLOCK, number) => Hook::Block { number },
            (interface, AT_EGRESS) => Hook::Egress { interface },
            (interface, _) => Hook::Ingress { interface },
        };
        let id = FilterId { hook, chain: 0, priority, protocol, handle };
        let mut found = Self { id, kind: "", options: &[], warning: None };
        for attribute in Attributes::new(payload.get(FIXED..).unwrap_or_default(), place) {
            let attribute = attribute?;
            match attribute.kind {
                KIND => found.kind = attribute.text()?,
                OPTIONS => found.options = attribute.payload,
                CHAIN => found.id.chain = attribute.u32()?,
                DRIVER_WARNING => found.warning = Some(attribute.text()?),
                // Statistics that are repeated, and the like.
                _ => {}
            }
        }
        Ok(found)
    }

    /// A flower filter with these options.
    pub(crate) const fn of_flower(id: FilterId, options: &'a [u8]) -> Self {
        Self { id, kind: FLOWER, options, warning: None }
    }

    /// The bytes of its options.
    pub(crate) const fn bytes_of_options(&self) -> &'a [u8] {
        self.options
    }

    /// Whether it is a flower filter, and not the placeholder of a priority.
    pub fn is_flower(&self) -> bool {
        self.kind == FLOWER && self.id.handle != 0
    }

    /// Its options, one by one.
    pub const fn options(&self) -> Attributes<'a> {
        Attributes::new(self.options, FLOWER)
    }

    /// Parses the filter.
    pub fn parse(&self) -> Result<Filter, Malformed> {
        Ok(Filter { id: self.id, flower: Flower::parse(self.options())? })
    }
}
