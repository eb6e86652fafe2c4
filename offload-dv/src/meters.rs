//! Meters: rate limits that flows refer to.

use crossbeam_channel::bounded;
use sluice_flow::Cause;
use sluice_flow::backend::{MeterCounters, MeterFault, Meters};
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::refusal::Refusal;

use crate::backend::DvNic;
use crate::desk::Desk;

impl Meters for DvNic {
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal> {
        let meter = meter.clone();
        if self.owner().call(move |desk| desk.rules.switch().set_meter(&meter))?? {
            self.changed(Cause::Meter);
        }
        Ok(())
    }

    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal> {
        self.owner().call(move |desk| desk.rules.switch().remove_meter(meter))?
    }

    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters> {
        // Those of both bulks, each when it is told.
        let count = |which: usize| {
            let (tell, told) = bounded(1);
            let ask = move |desk: &mut Desk| {
                // Who asked hears of nothing if there is no such meter.
                let Some(bulks) = desk.rules.switch().bulks_of_meter(meter) else { return };
                desk.ask_then(bulks[which], move |rules, is_done| {
                    let counts = rules.switch().meter_counts(meter).filter(|_| is_done);
                    tell.send(counts.map(|counts| counts[which])).unwrap_or_default();
                });
            };
            self.owner().post(ask).ok()?;
            self.owner().wait(&told).ok()?
        };
        let (passed, dropped) = (count(0)?, count(1)?);
        Some(MeterCounters {
            packets: passed.packets + dropped.packets,
            bytes: passed.bytes + dropped.bytes,
            dropped_packets: dropped.packets,
            dropped_bytes: Some(dropped.bytes),
            bands: vec![dropped.packets],
        })
    }

    fn check_meters(&self, _: bool) -> Result<Vec<MeterFault>, Refusal> {
        // What this process has in the device nobody else changes.
        Ok(Vec::new())
    }
}
