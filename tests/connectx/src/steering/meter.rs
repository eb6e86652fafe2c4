//! Meters that entries lead to: they color a packet by how much came lately, write the color into a register, and lead on.
//!
//! Time is the test's: it stands still until it is told to go on ([`Steering::pass_time`]), so that colors do not depend on how
//! fast a machine is.

use std::time::Duration;

use super::Steering;
use super::bits::Bits;
use super::failure::{Failure, Refusal};
use super::table::{TableKind, Target};

/// A meter.
#[derive(Debug)]
pub(crate) struct Meter {
    active: bool,
    /// Register C that the color goes into.
    register: usize,
    table: u32,
    parameters: Parameters,
    committed: Bucket,
    excess: Bucket,
}

/// What a meter is made of, as a command says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metering {
    pub(crate) active: bool,
    pub(crate) register: u8,
    pub(crate) table_type: u8,
    pub(crate) table: u32,
    pub(crate) parameters: [u8; PARAMETERS],
}

/// What of a meter is changed: a bit in modify_field_select each.
pub(crate) mod select {
    pub(crate) const ACTIVE: u64 = 1 << 0;
    pub(crate) const COMMITTED_SIZE: u64 = 1 << 1;
    pub(crate) const COMMITTED_RATE: u64 = 1 << 2;
    pub(crate) const EXCESS_SIZE: u64 = 1 << 3;
    pub(crate) const EXCESS_RATE: u64 = 1 << 4;
    pub(crate) const ALL: u64 = ACTIVE | COMMITTED_SIZE | COMMITTED_RATE | EXCESS_SIZE | EXCESS_RATE;
}

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

const RED: u32 = 0;
const YELLOW: u32 = 1;
const GREEN: u32 = 2;
/// To be found out by the meter.
const UNDEFINED: u32 = 3;

/// Low bits of the register that the color takes up. The others stay.
const COLOR_BITS: u32 = 0xff;

#[derive(Debug, Clone, Copy)]
struct Parameters {
    /// What a packet costs.
    mode: u8,
    committed: Rate,
    excess: Rate,
}

/// Bytes a second, and bytes at once.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    rate: u64,
    size: u64,
}

/// What a flow may still send, and until when that was reckoned.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    bytes: u64,
    at: Duration,
}

impl Parameters {
    fn decode(bytes: &[u8; PARAMETERS]) -> Result<Self, Refusal> {
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
        if start != GREEN && start != UNDEFINED {
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

    /// What a frame costs: its IP packet, all of it, all of it with what is on the wire besides, or one.
    fn cost(&self, frame: usize) -> u64 {
        const ETHERNET: usize = 14;
        /// Preamble, FCS and gap.
        const ON_THE_WIRE: usize = 24;
        match self.mode {
            0 => frame.saturating_sub(ETHERNET) as u64,
            1 => frame as u64,
            2 => (frame + ON_THE_WIRE) as u64,
            _ => 1,
        }
    }
}

impl Bucket {
    fn full(rate: Rate, now: Duration) -> Self {
        Self { bytes: rate.size, at: now }
    }

    /// Whether there was enough, which then is taken.
    fn take(&mut self, rate: Rate, now: Duration, cost: u64) -> bool {
        let earned = now.saturating_sub(self.at).as_nanos() * u128::from(rate.rate) / 1_000_000_000;
        self.bytes = self.bytes.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX)).min(rate.size);
        self.at = now;
        let enough = self.bytes >= cost;
        if enough {
            self.bytes -= cost;
        }
        enough
    }
}

impl Steering {
    /// Makes a meter in front of a table, which stays until the meter is gone.
    pub(crate) fn create_meter(&mut self, uid: u16, given: &Metering) -> Result<u32, Failure> {
        let kind = TableKind::from_prm(given.table_type).ok_or(Refusal::Kind(given.table_type))?;
        let table = self.tables.seen_by(uid, given.table)?;
        if table.domain.kind != kind {
            return Err(Refusal::CrossKind { table: given.table, is: table.domain.kind, from: kind }.into());
        }
        let register = usize::from(given.register);
        if register >= 8 {
            return Err(Refusal::Limit { what: "return_reg_id", value: register, limit: 7 }.into());
        }
        let parameters = Parameters::decode(&given.parameters)?;
        let now = self.now;
        let meter = Meter {
            active: given.active,
            register,
            table: given.table,
            parameters,
            committed: Bucket::full(parameters.committed, now),
            excess: Bucket::full(parameters.excess, now),
        };
        let id = self.meters.add(uid, meter)?;
        self.tables.hold(given.table);
        Ok(id)
    }

    /// Whether there is one that a user context sees.
    pub(crate) fn check_meter(&self, uid: u16, id: u32) -> Result<(), Failure> {
        Ok(self.meters.seen_by(uid, id).map(|_| ())?)
    }

    /// Changes what is selected of a meter. Its buckets go on with what is in them.
    pub(crate) fn modify_meter(&mut self, uid: u16, id: u32, selected: u64, given: &Metering) -> Result<(), Failure> {
        let parameters = Parameters::decode(&given.parameters);
        let meter = self.meters.seen_by_mut(uid, id)?;
        if selected & !select::ALL != 0 || selected == 0 {
            let value = u32::try_from(selected).unwrap_or(u32::MAX);
            return Err(Refusal::NotModelled { what: "modify_field_select", value }.into());
        }
        if selected & select::ACTIVE != 0 {
            meter.active = given.active;
        }
        if selected & !select::ACTIVE == 0 {
            return Ok(());
        }
        let (new, kept) = (parameters?, &mut meter.parameters);
        let changes = [
            (select::COMMITTED_SIZE, new.committed.size, &mut kept.committed.size),
            (select::COMMITTED_RATE, new.committed.rate, &mut kept.committed.rate),
            (select::EXCESS_SIZE, new.excess.size, &mut kept.excess.size),
            (select::EXCESS_RATE, new.excess.rate, &mut kept.excess.rate),
        ];
        for (bit, value, place) in changes {
            if selected & bit != 0 {
                *place = value;
            }
        }
        Ok(())
    }

    /// Takes a meter away, and lets go of its table.
    pub(crate) fn destroy_meter(&mut self, uid: u16, id: u32) -> Result<(), Failure> {
        let meter = self.meters.remove(uid, id)?;
        self.tables.release(meter.table);
        Ok(())
    }

    /// Colors a frame: register, the bits of it that are written, their value, and where the frame goes on. None if there is no
    /// such meter. One that is not active takes every frame for green.
    pub(super) fn meter(&mut self, id: u32, bytes: usize) -> Option<(usize, u32, u32, Target)> {
        let now = self.now;
        let meter = self.meters.seen_by_mut(0, id).ok()?;
        let parameters = meter.parameters;
        let cost = parameters.cost(bytes);
        let color = if !meter.active || meter.committed.take(parameters.committed, now, cost) {
            GREEN
        } else if meter.excess.take(parameters.excess, now, cost) {
            YELLOW
        } else {
            RED
        };
        Some((meter.register, COLOR_BITS, color, Target::Table(meter.table)))
    }

    /// Lets time go on, by which meters are filled.
    pub fn pass_time(&mut self, time: Duration) {
        self.now += time;
    }
}
