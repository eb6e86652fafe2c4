//! Ports and meters at run time.

use serde_json::{Value, json};
use sluice_flow::backend::MeterCounters;
use sluice_flow::meter::{Meter, MeterBand};
use sluice_flow::{Port, PortNumber};
use sluice_objects::{ObjectKind, meter_id, port_number};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::{AgentView, Receipt, Service};

/// `sluice/add-port`: `NUMBER NAME [KIND] [UDP-PORT] [UNDERLAY]`
pub(super) fn add_port(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    put::<Port>(service, arguments)
}

/// `sluice/del-port`
pub(super) fn delete_port(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    let text = arguments.rest.first().map_or("", String::as_str);
    let refused = || port_number(text, &*service.view().refused_objects()).ok();
    let number = port(service.view(), text).or_else(|unknown| refused().ok_or(unknown))?;
    remove::<Port>(service, &number)
}

/// `sluice/add-meter`: `ID kbps|pps RATE[:BURST]...`, a rate for each band
pub(super) fn add_meter(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    put::<Meter>(service, arguments)
}

/// `sluice/del-meter`
pub(super) fn delete_meter(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    let id = meter_id(arguments.rest.first().map_or("", String::as_str)).map_err(Failure::new)?;
    remove::<Meter>(service, &id)
}

/// Makes or changes the object that the arguments describe.
pub(super) fn put<T: ObjectKind>(service: &Service, arguments: &Arguments) -> Result<Receipt, Failure> {
    let object = T::read(&arguments.rest, &*service.view().ports()).map_err(Failure::new)?;
    Ok(service.put(object).map_err(Failure::new)?.receipt())
}

/// Removes an object.
pub(super) fn remove<T: ObjectKind>(service: &Service, id: &T::Id) -> Result<Receipt, Failure> {
    Ok(service.remove::<T>(id).map_err(Failure::new)?.receipt())
}

/// `sluice/show-meters [--json]`
pub(super) fn show_meters(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let device = agent.device_counters();
    let objects = agent.objects();
    if arguments.json {
        let meters: Value = objects.meters().map(|meter| of_meter(meter, device.meter(meter.id))).collect();
        return Ok(writeln!(out, "{meters}")?);
    }
    for Meter { id, unit, bands } in objects.meters() {
        let counters = device.meter(*id);
        write!(out, "meter:{id}, unit:{}", unit.per_second())?;
        if let Some(counters) = counters {
            let MeterCounters { packets, bytes, dropped_packets, .. } = counters;
            write!(out, ", packets:{packets}, bytes:{bytes}, dropped:{dropped_packets}")?;
        }
        writeln!(out)?;
        for (index, MeterBand { rate, burst }) in bands.iter().enumerate() {
            let burst = burst_in_force(*rate, *burst);
            write!(out, "  band:{index}, rate:{rate}, burst:{burst}")?;
            if let Some(dropped) = counters.and_then(|counters| counters.bands.get(index)) {
                write!(out, ", dropped:{dropped}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// A meter with the keys of `docs/json.md`. What the device does not count is null.
fn of_meter(Meter { id, unit, bands }: &Meter, counters: Option<&MeterCounters>) -> Value {
    let band = |(index, MeterBand { rate, burst }): (usize, &MeterBand)| {
        let dropped = counters.and_then(|counters| counters.bands.get(index));
        json!({ "rate": rate, "burst": burst_in_force(*rate, *burst), "dropped_packets": dropped })
    };
    json!({
        "id": id.0,
        "unit": unit.per_second(),
        "packets": counters.map(|counters| counters.packets),
        "bytes": counters.map(|counters| counters.bytes),
        "dropped_packets": counters.map(|counters| counters.dropped_packets),
        "dropped_bytes": counters.and_then(|counters| counters.dropped_bytes),
        "bands": bands.iter().enumerate().map(band).collect::<Value>(),
    })
}

/// As OVS does, a band without a burst lets a second's worth pass at once.
const fn burst_in_force(rate: u64, burst: u64) -> u64 {
    if burst == 0 { rate } else { burst }
}

/// The port that a number or a name means.
pub(super) fn port(agent: &AgentView, text: &str) -> Result<PortNumber, Failure> {
    port_number(text, &*agent.ports()).map_err(Failure::new)
}
