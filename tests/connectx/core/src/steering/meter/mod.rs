//! Meters: they color a packet by how much came lately, and write the color into a register. Here are those that entries lead to,
//! and that lead on; in [`aso`] those that entries have at their side.
//!
//! Time is the test's: it stands still until it is told to go on ([`Steering::pass_time`]), so that colors do not depend on how
//! fast a machine is.

pub(crate) mod aso;
mod bucket;

use std::time::Duration;

use super::Steering;
use super::failure::{Failure, Refusal};
use super::table::{TableKind, Target};
use crate::packet::Headers;
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

impl Steering {
    /// Makes a meter in front of a table, which stays until the meter is gone.
    pub(crate) fn create_meter(&mut self, uid: u16, given: &Metering) -> Result<u32, Failure> {
        let kind = TableKind::from_prm(given.table_type).ok_or(Refusal::Kind(given.table_type))?;
        let table = self.tables.seen_by(uid, given.table)?;
        if table.domain.kind != kind {
            return Err(Refusal::CrossKind { table: given.table, is: table.domain.kind, from: kind }.into());
        }
        let register = usize::from(given.register);
        check_register(given.register)?;
        let buckets = Buckets::full(Parameters::decode(&given.parameters)?, self.now);
        let meter = Meter { active: given.active, register, table: given.table, buckets };
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
        let (new, kept) = (parameters?, &mut meter.buckets.parameters);
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

    /// Colors a frame: register, its color, and where the frame goes on. None if there is no such meter. One that is not active
    /// takes every frame for green.
    pub(super) fn meter(&mut self, id: u32, frame: &[u8], headers: &Headers) -> Option<(usize, Color, Target)> {
        let now = self.now;
        let meter = self.meters.seen_by_mut(0, id).ok()?;
        let color = if meter.active { meter.buckets.color(Length::of(frame, headers), now) } else { Color::Green };
        Some((meter.register, color, Target::Table(meter.table)))
    }

    /// Lets time go on, by which meters are filled.
    pub fn pass_time(&mut self, time: Duration) {
        self.now += time;
    }
}
