//! What was counted (`TCA_STATS_*` in `include/uapi/linux/gen_stats.h`), and the counters of a rule read without taking the
//! rule apart.

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed};

use super::action::COUNTED;
use super::filter::{FilterId, FilterView, Hook};

const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const BASIC_HARDWARE: u16 = 7;
const PACKETS_64: u16 = 8;
const FLOWER_ACTIONS: u16 = 3;
const FLOWER_FLAGS: u16 = 22;

/// How the note on a policer begins that rules share.
pub(crate) const SHARED: [u8; 4] = *b"slcm";

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What an action counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// All of it.
    pub total: Count,
    /// The part that hardware counted.
    pub hardware: Count,
    /// Packets that it dropped.
    pub drops: u32,
}

impl Statistics {
    /// The part that software counted.
    pub const fn software(&self) -> Count {
        Count {
            packets: self.total.packets.saturating_sub(self.hardware.packets),
            bytes: self.total.bytes.saturating_sub(self.hardware.bytes),
        }
    }

    /// Reads the nest. Where more packets were counted than 32 bits hold, [`PACKETS_64`] follows the attribute that it
    /// corrects (`gnet_stats_copy_basic`), so that the order counts.
    pub(super) fn parse(nest: Attributes<'_>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        let mut last = None;
        for attribute in nest {
            let attribute = attribute?;
            match attribute.kind {
                BASIC | BASIC_HARDWARE => {
                    let mut fields = Fields::new(attribute.payload, "counters");
                    let count = Count { bytes: fields.u64()?, packets: fields.u32()?.into() };
                    let place = if attribute.kind == BASIC { &mut found.total } else { &mut found.hardware };
                    *place = count;
                    last = Some(place);
                }
                PACKETS_64 => match last.take() {
                    Some(count) => count.packets = attribute.u64()?,
                    None => return Err(attribute.value("packets of nothing")),
                },
                QUEUE => {
                    let mut fields = Fields::new(attribute.payload, "queue");
                    let (_length, _backlog) = (fields.u32()?, fields.u32()?);
                    found.drops = fields.u32()?;
                }
                // Rates that the kernel estimates.
                _ => {}
            }
        }
        Ok(found)
    }
}

/// What a dump tells of a rule, terse or not, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleView<'a> {
    /// The name of the rule.
    pub id: FilterId,
    /// Bits of [`flower::flag`](super::flower::flag).
    pub flags: u32,
    /// The notes on its first two actions.
    pub cookies: [&'a [u8]; 2],
    /// What software and hardware counted: of each the most that an action did, for each action sees every packet until
    /// one drops it. Policers that rules share do not count here, for they count what other rules send them, too: those
    /// that say so in their notes, and all that are too far behind for a look at those.
    pub software: Count,
    /// See [`Self::software`].
    pub hardware: Count,
}

impl<'a> RuleView<'a> {
    /// Reads a filter of flower.
    pub fn new(filter: &FilterView<'a>) -> Result<Self, Malformed> {
        let empty: &[u8] = &[];
        let mut found = Self {
            id: filter.id,
            flags: 0,
            cookies: [empty; 2],
            software: Count::default(),
            hardware: Count::default(),
        };
        for attribute in filter.options() {
            let attribute = attribute?;
            match attribute.kind {
                FLOWER_FLAGS => found.flags = attribute.u32()?,
                FLOWER_ACTIONS => {
                    for action in attribute.nested("actions") {
                        let action = action?;
                        found.add(action.kind, action.nested("action"))?;
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn add(&mut self, place: u16, action: Attributes<'a>) -> Result<(), Malformed> {
        let [kind, statistics, cookie] = COUNTED;
        let place = usize::from(place).wrapping_sub(1);
        let (mut is_policer, mut counted, mut note): (_, _, &[u8]) = (false, Statistics::default(), &[]);
        for attribute in action {
            let attribute = attribute?;
            if attribute.kind == kind {
                is_policer = attribute.payload == b"police\0";
            } else if attribute.kind == statistics {
                counted = Statistics::parse(attribute.nested("statistics"))?;
            } else if attribute.kind == cookie {
                note = attribute.payload;
            }
        }
        let is_shared = is_policer && (place >= self.cookies.len() || note.starts_with(&SHARED));
        if !is_shared {
            self.software = self.software.max(counted.software());
            self.hardware = self.hardware.max(counted.hardware);
        }
        if let Some(cookie) = self.cookies.get_mut(place) {
            *cookie = note;
        }
        Ok(())
    }
}

/// Octets of an Ethernet header (`ETH_HLEN`).
pub(crate) const ETHERNET_HEADER: u64 = 14;

impl Count {
    /// What software counted, with what its hook leaves out of each packet. At ingress the Ethernet header is taken off
    /// before tc sees the packet, and everywhere the outermost tag, which a rule of the first chain says is there. In a
    /// later chain nothing tells with which tag the packet came. Of a packet that stands for several (GSO, GRO) each
    /// header but the first is missing still, and it is one packet.
    #[must_use]
    pub const fn with_headers(self, id: &FilterId) -> Self {
        let ethernet = match id.hook {
            Hook::Egress { .. } => 0,
            Hook::Ingress { .. } | Hook::Block { .. } => ETHERNET_HEADER,
        };
        let tag = match (id.chain, id.protocol) {
            (0, 0x8100 | 0x88a8) => 4,
            _ => 0,
        };
        Self { bytes: self.bytes.saturating_add(self.packets.saturating_mul(ethernet + tag)), ..self }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets.saturating_add(other.packets), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { packets: self.packets.max(other.packets), bytes: self.bytes.max(other.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_netdev::netlink::attribute::Writer;

    #[test]
    fn packets_beyond_32_bits_are_those_of_the_attribute_before() {
        let mut buffer = vec![];
        let mut writer = Writer::new(&mut buffer);
        let basic = |bytes: u64, packets: u32| [&bytes.to_ne_bytes()[..], &packets.to_ne_bytes(), &[0; 4]].concat();
        writer.put(BASIC, &basic(9_000_000_000, 7));
        writer.put(PACKETS_64, &(1u64 << 32 | 7).to_ne_bytes());
        writer.put(BASIC_HARDWARE, &basic(8_000_000_000, 5));
        writer.put(PACKETS_64, &(1u64 << 32 | 5).to_ne_bytes());
        writer.finish().unwrap();
        let found = Statistics::parse(Attributes::new(&buffer, "test")).unwrap();
        assert_eq!(found.total, Count { packets: (1 << 32) + 7, bytes: 9_000_000_000 });
        assert_eq!(found.hardware, Count { packets: (1 << 32) + 5, bytes: 8_000_000_000 });
        assert_eq!(found.software(), Count { packets: 2, bytes: 1_000_000_000 });
    }

    #[test]
    fn a_policer_is_shared_that_says_so_or_is_behind_the_notes() {
        let counted = |place: u16, note: &[u8]| {
            let mut buffer = vec![];
            let mut writer = Writer::new(&mut buffer);
            writer.put_text(1, "police");
            writer.nest(4, |writer| {
                writer.put(BASIC, &[&90u64.to_ne_bytes()[..], &3u32.to_ne_bytes(), &[0; 4]].concat());
            });
            writer.put(COUNTED[2], note);
            writer.finish().unwrap();
            let hook = Hook::Ingress { interface: 1 };
            let id = FilterId { hook, chain: 0, priority: 1, protocol: 3, handle: 1 };
            let none: &[u8] = &[];
            let (flags, cookies) = (0, [none; 2]);
            let mut rule = RuleView { id, flags, cookies, software: Count::default(), hardware: Count::default() };
            rule.add(place, Attributes::new(&buffer, "test")).unwrap();
            rule.software.packets
        };
        assert_eq!([1, 2, 3].map(|place| counted(place, b"slce1234")), [3, 3, 0]);
        assert_eq!([1, 2, 3].map(|place| counted(place, b"slcm1234")), [0; 3]);
    }
}
