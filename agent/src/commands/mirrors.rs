//! Mirrors at run time.

use std::fmt::Write as _;

use sluice_flow::backend::MirrorCounters;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortMap, PortNames};
use sluice_flow::text::{self, Style};
use sluice_flow::{MaskedKey, PortNumber};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use super::ports;
use crate::mirroring::Shown;
use crate::service::{AgentView, Receipt, Service};

/// `sluice/add-mirror`: `NAME KEY PORT[,PORT]...`
pub(super) fn add(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    ports::put::<Mirror>(service, arguments)
}

/// `sluice/del-mirror`
pub(super) fn delete(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    ports::remove::<Mirror>(service, &arguments.rest.first().cloned().unwrap_or_default())
}

/// `sluice/show-mirrors`
pub(super) fn show(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let (names, device) = (agent.ports(), agent.device_counters());
    for Mirror { name, matches, copies } in agent.objects().mirrors() {
        let copies: Vec<_> = copies.iter().map(|port| port_text(*port, &names)).collect();
        let mut key = String::new();
        let style = Style { more: false, names: Some(&*names) };
        // Writing to a string does not fail.
        let _ = text::write_key(&mut key, &MaskedKey::new(&matches[0]), &style);
        write!(out, "mirror:{name}, key:{key}, ports:{}", copies.join(","))?;
        counted(device.mirror(name), out)?;
    }
    for Shown { name, class, port, to, refused, .. } in agent.mirroring().iter() {
        write!(out, "mirror:{name}, class:{class}, in_port:{}", port_text(*port, &names))?;
        match refused {
            Some(refusal) => writeln!(out, ", refused[{refusal}]")?,
            None => {
                write!(out, ", to:{to}")?;
                counted(device.mirror(name), out)?;
            }
        }
    }
    Ok(())
}

fn counted(counters: Option<MirrorCounters>, out: &mut dyn Output) -> std::fmt::Result {
    match counters {
        Some(MirrorCounters { packets, bytes, placement }) => {
            writeln!(out, ", packets:{packets}, bytes:{bytes}, in:{placement}")
        }
        None => writeln!(out, ", not in the device"),
    }
}

fn port_text(port: PortNumber, names: &PortMap) -> String {
    let mut text = String::new();
    let _ = match names.name(port) {
        Some(name) => text.write_str(name),
        None => write!(text, "{port}"),
    };
    text
}
