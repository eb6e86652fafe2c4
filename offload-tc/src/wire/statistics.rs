//! Counters (`TCA_STATS_*` in `include/uapi/linux/gen_stats.h`).

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed};

const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const BASIC_HARDWARE: u16 = 7;
const PACKETS_64: u16 = 8;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets.saturating_add(other.packets), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The maximum of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { packets: self.packets.max(other.packets), bytes: self.bytes.max(other.bytes) }
    }
}

/// What an action counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// All of it.
    pub total: Count,
    /// The part that hardware counted.
    pub hardware: Count,
    /// The lower 32 bits of the number of packets that it dropped.
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

    /// Reads the nest. Beyond 32 bits of packets, [`PACKETS_64`] follows the attribute that it corrects
    /// (`gnet_stats_copy_basic`), so the order matters.
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
}
