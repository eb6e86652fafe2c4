//! The eswitch that a device manages, as the kernel knows it: its mode, its ports, and who else has rules in it.

use std::collections::BTreeMap;

use sluice_flow::refusal::Refusal;
use sluice_netdev::{
    Control, EswitchMode, FunctionPart, Ifindex, Known, LinkError, Links, Monitor, MonitorOptions, Role, eswitch_mode,
    filters_in_hardware,
};

use crate::device::Names;

/// Fails if the eswitch of the function at `address` does not go by rules, or if the kernel has rules in it already, which would no
/// longer see the packets that they are for.
pub(crate) fn check(address: &str) -> Result<(), Refusal> {
    let failed = |reason: String| Refusal::Device { reason: reason.into() };
    let unknown = |error: LinkError| failed(format!("cannot tell what the kernel does with the eswitch: {error}"));
    if let Some(mode @ (EswitchMode::Legacy | EswitchMode::Other(_))) = eswitch_mode(address).map_err(unknown)? {
        let remedy = format!("`devlink dev eswitch set pci/{address} mode switchdev` changes that");
        return Err(failed(format!(
            "the eswitch of {address} is in {mode} mode, which has no ports for flows; {remedy}"
        )));
    }
    let monitor = Monitor::open(MonitorOptions::default()).map_err(unknown)?;
    let ports = ports(monitor.links(), address);
    let devices: Vec<Ifindex> = ports.iter().map(|port| port.device.ifindex).collect();
    let offloaded = Control::open().and_then(|mut control| filters_in_hardware(&mut control, &devices));
    let offloaded = offloaded.map_err(unknown)?;
    if offloaded.is_empty() {
        return Ok(());
    }
    let name = |at| ports.iter().find(|port| port.device.ifindex == at).map_or("?", |port| port.device.name.as_str());
    let places: Vec<String> = offloaded.into_iter().map(|(at, filters)| format!("{} ({filters})", name(at))).collect();
    let reason = format!(
        "the kernel has filters in the hardware of this eswitch, at {}: from `tc` or an Open vSwitch with hw-offload. What dv takes over \
         they would not see any more; remove them, or use backend \"tc\"",
        places.join(", ")
    );
    Err(failed(reason))
}

/// Returns what a person should know of the eswitch, whose ports that are attached are there or not.
pub(crate) fn notes(names: &Names, attached: &BTreeMap<String, bool>) -> Vec<String> {
    let Some(address) = &names.address else { return Vec::new() };
    let mode = match eswitch_mode(address) {
        Ok(Some(mode)) => format!("in {mode} mode"),
        Ok(None) => "of which the kernel does not tell the mode".to_owned(),
        Err(error) => format!("whose mode is unknown: {error}"),
    };
    let mut notes = vec![format!("eswitch of {address} ({}), {mode}", names.rdma)];
    let list = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(", "));
    let absent = attached.iter().filter(|(_, is_there)| !**is_there).map(|(name, _)| name.as_str()).collect();
    notes.extend(
        list(absent)
            .map(|ports| format!("without network device, so that no flow of theirs is in the device: {ports}")),
    );
    let monitor = match Monitor::open(MonitorOptions::default()) {
        Ok(monitor) => monitor,
        Err(error) => {
            notes.push(format!("its ports are unknown: {error}"));
            return notes;
        }
    };
    let ports = ports(monitor.links(), address);
    let unnamed = ports.iter().map(|port| port.device.name.as_str()).filter(|name| !attached.contains_key(*name));
    notes.extend(list(unnamed.collect()).map(|ports| format!("ports of the eswitch that are no [[port]]: {ports}")));
    let is_subfunction = |known: &&&Known| match known.device.role {
        Role::Representor(function) => matches!(function.part, FunctionPart::Sub(_)),
        _ => false,
    };
    let subfunctions = ports.iter().filter(is_subfunction).map(|port| port.device.name.as_str()).collect();
    notes.extend(list(subfunctions).map(|ports| format!("subfunctions, which were never tried: {ports}")));
    notes
}

/// The network devices of all ports of the eswitch; none if there is no network device for its uplink.
pub(crate) fn ports<'a>(links: &'a Links, address: &str) -> Vec<&'a Known> {
    let is_of_function = |known: &&Known| {
        let by_devlink =
            known.device.devlink.as_ref().is_some_and(|port| *port.bus == *"pci" && *port.device == *address);
        let by_parent = known.device.parent.as_ref().is_some_and(|parent| *parent.name == *address);
        known.device.role == Role::Physical && (by_devlink || by_parent)
    };
    let switch = links.iter().find(is_of_function).and_then(|uplink| uplink.device.switch.as_ref());
    switch.map(|switch| links.ports_of(switch).collect()).unwrap_or_default()
}
