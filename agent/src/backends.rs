//! The backends that are built in: the one place that names them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use sluice_flow::backend::OpenConfig;
use sluice_flow::{Backend, Refusal};

type Open = fn(&OpenConfig) -> Result<Arc<dyn Backend>, Refusal>;

/// One of them.
struct Row {
    /// The name, as in `backend` of the configuration.
    name: &'static str,
    /// The device, if the configuration names none.
    device: &'static str,
    /// Whether the configuration says who is to take rules.
    has_policy: bool,
    /// Whether the configuration says what becomes of flags of outer headers that the device does not know.
    has_tunnel_flags: bool,
    /// Whether rules stay in the device when the agent ends.
    keeps_rules: bool,
    /// Whether devices in two network namespaces are two, though they have one name.
    is_in_network_namespace: bool,
    open: Open,
}

const BACKENDS: &[Row] = &[
    Row {
        name: "soft",
        device: "soft0",
        has_policy: false,
        has_tunnel_flags: false,
        keeps_rules: false,
        is_in_network_namespace: false,
        open: sluice_offload_soft::open,
    },
    Row {
        name: "tc",
        device: "tc0",
        has_policy: true,
        has_tunnel_flags: true,
        keeps_rules: true,
        is_in_network_namespace: true,
        open: sluice_offload_tc::open,
    },
];

/// Opens the backend called `name`.
pub fn open(name: &str, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
    match find(name) {
        Some(row) => (row.open)(config),
        None => Err(Refusal::Device { reason: unknown(name).into() }),
    }
}

/// Whether there is a backend called `name`; if not, says which there are.
pub fn check(name: &str) -> Result<(), String> {
    find(name).map(|_| ()).ok_or_else(|| unknown(name))
}

/// The device of a backend, if the configuration names none.
pub fn default_device(name: &str) -> &'static str {
    find(name).map_or("", |row| row.device)
}

/// Whether the configuration of a backend says who is to take rules.
pub fn has_policy(name: &str) -> bool {
    find(name).is_some_and(|row| row.has_policy)
}

/// Whether the configuration of a backend says what becomes of flags of outer headers that its device does not know.
pub fn has_tunnel_flags(name: &str) -> bool {
    find(name).is_some_and(|row| row.has_tunnel_flags)
}

/// Whether rules stay in the device of a backend when the agent ends, however it ends.
pub fn keeps_rules(name: &str) -> bool {
    find(name).is_some_and(|row| row.keeps_rules)
}

/// What all agents of a machine call the device, so that no two use it.
pub fn name_on_machine(name: &str, device: &str) -> io::Result<String> {
    if !find(name).is_some_and(|row| row.is_in_network_namespace) {
        return Ok(device.to_owned());
    }
    // The number of a namespace is its own as long as it exists (namespaces(7)).
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(format!("{device}@net:{namespace}"))
}

fn find(name: &str) -> Option<&'static Row> {
    BACKENDS.iter().find(|row| row.name == name)
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = BACKENDS.iter().map(|row| row.name).collect();
    format!("no backend {name} in this build, only {}", known.join(", "))
}
