//! Token buckets that color packets: what all meters of the device have in common (PRM `flow_meter_parameters`).

use std::fmt;
use std::time::Duration;

use crate::packet::Headers;
use crate::steering::bits::Bits;
use crate::steering::failure::Refusal;

/// Bytes of flow_meter_parameters.
pub(crate) const PARAMETERS: usize = 32;

mod field {
    use super::Bits;
    pub(super) const VALID: Bits = Bits::new(0x00, 1);
    pub(super) const OVERFLOW: Bits = Bits::new(0x01, 1);
    pub(super) const START_COLOR: Bits = Bits::new(0x02, 2);
    pub(super) const BOTH_ON_GREEN: Bits = Bits::new(0x04, 1);
    pub(super) const MODE: Bits = Bits::new(0x06, 2);
    /// Exponent and mantissa of each.
    pub(super) const COMMITTED_SIZE: [Bits; 2] = [Bits::new(0x43, 5), Bits::new(0x48, 8)];
    pub(super) const COMMITTED_RATE: [Bits; 2] = [Bits::new(0x53, 5), Bits::new(0x58, 8)];
    pub(super) const EXCESS_SIZE: [Bits; 2] = [Bits::new(0x83, 5), Bits::new(0x88, 8)];
    pub(super) const EXCESS_RATE: [Bits; 2] = [Bits::new(0x93, 5), Bits::new(0x98, 8)];
}

/// What a meter takes a packet for, by the PRM's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// More than was agreed.
    Red = 0,
    /// More than was agreed, but for the excess.
    Yellow = 1,
    /// Within what was agreed.
    Green = 2,
}

impl Color {
    /// Whether a meter looks at both of its buckets for a packet of a color, by number: green, or not known yet. Others would
    /// be the color at most, which is not modelled.
    pub(in crate::steering) fn begins(number: u32) -> bool {
        const UNDEFINED: u32 = 3;
        number == Self::Green as u32 || number == UNDEFINED
    }

    /// Writes it into a register: into its low 8 bits. The others stay.
    pub(crate) fn put(self, register: &mut u32) {
        *register = *register & !0xff | self as u32;
    }
}

impl fmt::Display for Color {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Red => "red",
            Self::Yellow => "yellow",
            Self::Green => "green",
        })
    }
}

/// How long a packet is, as meters count it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    /// Without FCS.
    frame: usize,
    /// From the network header on.
    packet: usize,
}

impl Length {
    pub(super) fn of(frame: &[u8], headers: &Headers) -> Self {
        const ETHERNET: usize = 14;
        const TAG: usize = 4;
        let behind = ETHERNET + TAG * headers.outer.vlans.len();
        Self { frame: frame.len(), packet: frame.len().saturating_sub(behind) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    /// What a packet costs.
    mode: u8,
    pub(super) committed: Rate,
    pub(super) excess: Rate,
}

/// Bytes a second, and bytes at once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    pub(super) rate: u64,
    pub(super) size: u64,
}

impl Parameters {
    pub(super) fn decode(bytes: &[u8; PARAMETERS]) -> Result<Self, Refusal> {
        let not_modelled = |what, value: u32| Refusal::NotModelled { what, value };
        if !field::VALID.is_set(bytes) {
            return Err(not_modelled("valid", 0));
        }
        for (what, bits) in [("bucket_overflow", field::OVERFLOW), ("both_buckets_on_green", field::BOTH_ON_GREEN)] {
            if bits.is_set(bytes) {
                return Err(not_modelled(what, 1));
            }
        }
        let start = field::START_COLOR.u32(bytes);
        if !Color::begins(start) {
            return Err(not_modelled("start_color", start));
        }
        let size = |[exponent, mantissa]: [Bits; 2]| u64::from(mantissa.u8(bytes)) << exponent.u8(bytes);
        // 8 * 10^9 * mantissa / 2^exponent bits a second.
        let rate =
            |[exponent, mantissa]: [Bits; 2]| (1_000_000_000 * u64::from(mantissa.u8(bytes))) >> exponent.u8(bytes);
        Ok(Self {
            mode: field::MODE.u8(bytes),
            committed: Rate { rate: rate(field::COMMITTED_RATE), size: size(field::COMMITTED_SIZE) },
            excess: Rate { rate: rate(field::EXCESS_RATE), size: size(field::EXCESS_SIZE) },
        })
    }

    /// What a packet costs: from its network header on, all of it, all of it with what is on the wire besides, or a fixed price.
    fn cost(&self, length: Length) -> u64 {
        /// Preamble, FCS and gap.
        const ON_THE_WIRE: usize = 24;
        /// Linux (`mlx5e_tc_meter_modify`) and DPDK (`MLX5_MTRS_PPS_MAP_BPS_SHIFT`) reckon with that of every packet.
        const PACKET: u64 = 128;
        match self.mode {
            0 => length.packet as u64,
            1 => length.frame as u64,
            2 => (length.frame + ON_THE_WIRE) as u64,
            _ => PACKET,
        }
    }
}

/// A meter's parameters, and what they let pass now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets {
    pub(super) parameters: Parameters,
    committed: Bucket,
    excess: Bucket,
}

impl Buckets {
    pub(super) fn full(parameters: Parameters, now: Duration) -> Self {
        let full = |rate: Rate| Bucket { left: rate.most(), at: now };
        Self { parameters, committed: full(parameters.committed), excess: full(parameters.excess) }
    }

    /// Colors a packet, which takes what it costs out of the bucket that has enough.
    pub(super) fn color(&mut self, length: Length, now: Duration) -> Color {
        let cost = self.parameters.cost(length);
        if self.committed.take(self.parameters.committed, now, cost) {
            Color::Green
        } else if self.excess.take(self.parameters.excess, now, cost) {
            Color::Yellow
        } else {
            Color::Red
        }
    }
}

/// What may still be sent, in billionths of a byte, and until when that was reckoned.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u128,
    at: Duration,
}

const BILLION: u128 = 1_000_000_000;

impl Rate {
    /// What there can be in a bucket.
    fn most(self) -> u128 {
        u128::from(self.size) * BILLION
    }
}

impl Bucket {
    /// Whether there was enough, which then is taken.
    fn take(&mut self, rate: Rate, now: Duration, cost: u64) -> bool {
        let earned = now.saturating_sub(self.at).as_nanos() * u128::from(rate.rate);
        let cost = u128::from(cost) * BILLION;
        self.left = (self.left + earned).min(rate.most());
        self.at = now;
        let enough = self.left >= cost;
        if enough {
            self.left -= cost;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1,953,125 bytes a second, and 1,024 at once.
    fn parameters(mode: u32) -> Parameters {
        let mut bytes = [0; PARAMETERS];
        let [size, rate] = [field::COMMITTED_SIZE, field::COMMITTED_RATE];
        for (bits, value) in [
            (field::VALID, 1),
            (field::START_COLOR, 2),
            (field::MODE, mode),
            (size[0], 10),
            (size[1], 1),
            (rate[0], 9),
            (rate[1], 1),
        ] {
            bits.put(&mut bytes, value);
        }
        Parameters::decode(&bytes).unwrap()
    }

    #[test]
    fn a_packet_costs_what_the_mode_says() {
        let length = Length { frame: 118, packet: 100 };
        assert_eq!([0, 1, 2, 3].map(|mode| parameters(mode).cost(length)), [100, 118, 142, 128]);
    }

    #[test]
    fn a_bucket_fills_by_time_alone_and_in_steps_of_any_size_to_its_brim() {
        let length = Length { frame: 526, packet: 512 };
        let mut buckets = Buckets::full(parameters(0), Duration::ZERO);
        let mut color = |at| buckets.color(length, Duration::from_nanos(at));
        assert_eq!([color(0), color(0), color(0)], [Color::Green, Color::Green, Color::Red]);
        // 512 bytes take 262,144 ns.
        for at in (0..262_144).step_by(3) {
            assert_eq!(color(at), Color::Red, "at {at} ns");
        }
        assert_eq!([color(262_144), color(262_144)], [Color::Green, Color::Red]);
        assert_eq!([1, 1, 1].map(|seconds| color(seconds * 1_000_000_000)), [Color::Green, Color::Green, Color::Red]);
    }

    #[test]
    fn the_color_is_in_the_low_bits_of_a_register() {
        let mut register = 0x1234_56ff;
        Color::Yellow.put(&mut register);
        assert_eq!(register, 0x1234_5601);
    }
}
