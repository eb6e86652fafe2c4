//! Ports and meters at run time.

use sluice_flow::PortNumber;
use sluice_flow::backend::MeterCounters;
use sluice_flow::meter::{Meter, MeterBand};

use super::Failure;
use super::arguments::Arguments;
use crate::agent::{Agent, AgentError};
use crate::objects::words;
use crate::unixctl::Output;

/// `sluice/add-port`: `NUMBER NAME [KIND] [UDP-PORT] [UNDERLAY]`
pub(super) fn add_port(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    agent.add_port(words::port(&arguments.rest, &agent.ports()).map_err(Failure::new)?)?;
    agent.count_device();
    Ok(())
}

/// `sluice/del-port`
pub(super) fn delete_port(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let number = port(agent, arguments.rest.first().map_or("", String::as_str))?;
    Ok(agent.remove_port(number)?)
}

/// `sluice/add-meter`: `ID kbps|pps RATE[:BURST]...`, a rate for each band
pub(super) fn add_meter(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    agent.set_meter(words::meter(&arguments.rest).map_err(Failure::new)?)?;
    agent.count_device();
    Ok(())
}

/// `sluice/del-meter`
pub(super) fn delete_meter(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let id = words::meter_id(arguments.rest.first().map_or("", String::as_str)).map_err(Failure::new)?;
    Ok(agent.remove_meter(id)?)
}

/// `sluice/show-meters`
pub(super) fn show_meters(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let device = agent.device_counters();
    for Meter { id, unit, bands } in agent.objects().meters() {
        let counters = device.meter(*id);
        write!(out, "meter:{id}, unit:{}", unit.per_second())?;
        if let Some(counters) = counters {
            let MeterCounters { packets, bytes, dropped_packets, .. } = counters;
            write!(out, ", packets:{packets}, bytes:{bytes}, dropped:{dropped_packets}")?;
        }
        writeln!(out)?;
        for (index, MeterBand { rate, burst }) in bands.iter().enumerate() {
            // As OVS does, a band without a burst lets a second's worth pass at once.
            let burst = if *burst == 0 { rate } else { burst };
            write!(out, "  band:{index}, rate:{rate}, burst:{burst}")?;
            if let Some(dropped) = counters.and_then(|counters| counters.bands.get(index)) {
                write!(out, ", dropped:{dropped}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// The port that a number or a name means.
pub(super) fn port(agent: &Agent, text: &str) -> Result<PortNumber, Failure> {
    words::port_number(text, &agent.ports()).map_err(Failure::new)
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(error)
    }
}
