//! Meters, and objects of them.

use crate::steering::domain::TableKind;
use crate::steering::failure::{Failure, Refusal};
use crate::steering::meter::aso::OBJECT;
use crate::steering::meter::{Meter, Metering};
use crate::steering::state::Steering;

impl Steering {
    /// Makes a meter in front of a table, which stays until the meter is gone.
    pub(crate) fn create_meter(&mut self, uid: u16, given: &Metering) -> Result<u32, Failure> {
        let kind = TableKind::from_prm(given.table_type).ok_or(Refusal::Kind(given.table_type))?;
        let table = self.tables.seen_by(uid, given.table)?;
        if table.domain.kind != kind {
            return Err(Refusal::CrossKind { table: given.table, is: table.domain.kind, from: kind }.into());
        }
        let id = self.meters.add(uid, Meter::new(given, self.now)?)?;
        self.tables.hold(given.table);
        Ok(id)
    }

    /// Whether there is one that a user context sees.
    pub(crate) fn check_meter(&self, uid: u16, id: u32) -> Result<(), Failure> {
        Ok(self.meters.seen_by(uid, id).map(|_| ())?)
    }

    /// Changes what is selected of a meter. Its buckets go on with what is in them.
    pub(crate) fn modify_meter(&mut self, uid: u16, id: u32, selected: u64, given: &Metering) -> Result<(), Failure> {
        Ok(self.meters.seen_by_mut(uid, id)?.change(selected, given)?)
    }

    /// Takes a meter away, and lets go of its table.
    pub(crate) fn destroy_meter(&mut self, uid: u16, id: u32) -> Result<(), Failure> {
        let meter = self.meters.remove(uid, id)?;
        self.tables.release(meter.table());
        Ok(())
    }

    /// Makes a block of 2^`log` objects of meters that queues of a protection domain may write: the number of the first. What is
    /// given for the two meters of an object holds for all of them; what is all zero is not written yet.
    pub(crate) fn create_meter_objects(
        &mut self,
        uid: u16,
        domain: u32,
        log: u64,
        given: &[u8; OBJECT],
    ) -> Result<u32, Failure> {
        self.meter_objects.create(uid, domain, log, given, self.now)
    }

    /// Takes a block back, unless entries lead through its meters.
    pub(crate) fn destroy_meter_objects(&mut self, uid: u16, first: u32) -> Result<(), Failure> {
        self.meter_objects.destroy(uid, first)
    }

    /// An object's protection domain, and its meters as they were written last.
    pub(crate) fn query_meter_object(&mut self, uid: u16, object: u32) -> Result<(u32, [u8; OBJECT]), Failure> {
        self.meter_objects.query(uid, object)
    }

    /// Writes those bytes of an object that a mask names: its highest bit the first byte. What is not written stays; a meter of
    /// which anything is written begins anew.
    pub(crate) fn write_meter_object(
        &mut self,
        domain: u32,
        object: u32,
        mask: u64,
        data: &[u8; OBJECT],
    ) -> Result<(), String> {
        self.meter_objects.write((domain, object), mask, data, self.now)
    }
}
