//! Meters: they color a packet by how much came lately, and write the color into a register. Here are those that entries lead to,
//! and that lead on; in [`aso`] those that entries have at their side.
//!
//! Time is the test's: it stands still until it is told to go on ([`Steering::pass_time`]), so that colors do not depend on how
//! fast a machine is.

pub(crate) mod aso;
mod bucket;

use std::time::Duration;

use crate::packet::Headers;
use crate::steering::domain::Target;
use crate::steering::failure::Refusal;
pub use bucket::Color;
pub(crate) use bucket::PARAMETERS;
use bucket::{Buckets, Length, Parameters};

/// Meters that entries lead to, as a power of two: so says a ConnectX's own capability.
pub(crate) const LOG_ALL: u64 = 12;
/// The registers C that a color may go into, by bit; the same says that.
pub(crate) const REGISTERS: u8 = 0x2a;

/// A meter.
#[derive(Debug)]
pub(crate) struct Meter {
    active: bool,
    /// Register C that the color goes into.
    register: usize,
    table: u32,
    buckets: Buckets,
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

/// Whether a color may go into a register C.
pub(super) fn check_register(number: u8) -> Result<(), Refusal> {
    if number >= 8 || REGISTERS >> number & 1 == 0 {
        let problem = "is not one of those in flow_meter_reg_id";
        return Err(Refusal::Value { what: "return_reg_id", value: number.into(), problem });
    }
    Ok(())
}

impl Meter {
    /// With full buckets.
    pub(super) fn new(given: &Metering, now: Duration) -> Result<Self, Refusal> {
        check_register(given.register)?;
        let buckets = Buckets::full(Parameters::decode(&given.parameters)?, now);
        Ok(Self { active: given.active, register: usize::from(given.register), table: given.table, buckets })
    }

    /// Changes what is selected. The buckets go on with what is in them.
    pub(super) fn change(&mut self, selected: u64, given: &Metering) -> Result<(), Refusal> {
        if selected & !select::ALL != 0 || selected == 0 {
            let value = u32::try_from(selected).unwrap_or(u32::MAX);
            return Err(Refusal::NotModelled { what: "modify_field_select", value });
        }
        if selected & select::ACTIVE != 0 {
            self.active = given.active;
        }
        if selected & !select::ACTIVE == 0 {
            return Ok(());
        }
        let (new, kept) = (Parameters::decode(&given.parameters)?, &mut self.buckets.parameters);
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

    /// The table that it is in front of.
    pub(super) fn table(&self) -> u32 {
        self.table
    }

    /// Colors a frame: register, its color, and where the frame goes on. One that is not active takes every frame for green.
    pub(super) fn color(&mut self, frame: &[u8], headers: &Headers, now: Duration) -> (usize, Color, Target) {
        let color = if self.active { self.buckets.color(Length::of(frame, headers), now) } else { Color::Green };
        (self.register, color, Target::Table(self.table))
    }
}
