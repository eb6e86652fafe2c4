//! Meters as objects.

use sluice_flow::backend::{Checker, Facet};
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::port::PortNames;
use sluice_flow::{Backend, Refusal};

use super::id::ObjectId;
use super::number::parsed;
use super::registry::{Absence, ObjectKind, Registry};
use super::set::Objects;

impl ObjectKind for Meter {
    type Id = MeterId;

    const KEY: &'static str = "meter";

    fn id(&self) -> MeterId {
        self.id
    }

    fn check(&self, checker: &mut dyn Checker) -> Result<(), Refusal> {
        checker.meter(self)
    }

    fn make(&self, backend: &dyn Backend, _: Absence) -> Result<(), Refusal> {
        Facet::Meters.require(backend.meters())?.set_meter(self)
    }

    fn unmake(id: &MeterId, backend: &dyn Backend) -> Result<(), Refusal> {
        Facet::Meters.require(backend.meters())?.remove_meter(*id)
    }

    /// `ID kbps|pps RATE[:BURST]...`, a rate for each band.
    fn read(words: &[String], _: &dyn PortNames) -> Result<Self, String> {
        let [id, unit, bands @ ..] = words else { return Err("a number, a unit and a rate are needed".into()) };
        let unit = match unit.as_str() {
            "kbps" => MeterUnit::Kilobits,
            "pps" => MeterUnit::Packets,
            unknown => return Err(format!("{unknown}: not a unit, expected kbps or pps")),
        };
        let band = |text: &String| {
            let (rate, burst) = text.split_once(':').unwrap_or((text, "0"));
            Ok(MeterBand { rate: parsed(rate, "rate")?, burst: parsed(burst, "burst")? })
        };
        let bands = bands.iter().map(band).collect::<Result<_, String>>()?;
        Ok(Self { id: meter_id(id)?, unit, bands })
    }

    fn write(&self) -> String {
        let Self { id, unit, bands } = self;
        let unit = if *unit == MeterUnit::Kilobits { "kbps" } else { "pps" };
        let bands = bands.iter().map(|MeterBand { rate, burst }| format!("{rate}:{burst}"));
        [id.to_string(), unit.to_owned()].into_iter().chain(bands).collect::<Vec<_>>().join(" ")
    }

    fn registry(objects: &Objects) -> &Registry<Self> {
        &objects.meters
    }

    fn registry_mut(objects: &mut Objects) -> &mut Registry<Self> {
        &mut objects.meters
    }
}

impl From<MeterId> for ObjectId {
    fn from(id: MeterId) -> Self {
        Self::Meter(id)
    }
}

/// The number of a meter.
pub fn meter_id(text: &str) -> Result<MeterId, String> {
    parsed(text, "meter").map(MeterId)
}
