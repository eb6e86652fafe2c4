//! The backends that are built in: the one place that names them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use sluice_flow::backend::OpenConfig;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, Refusal};

use crate::objects::{self, Absence, Object, ObjectError, Objects};

type Open = fn(&OpenConfig) -> Result<Arc<dyn Backend>, Refusal>;
type Check = fn(&[Object]) -> Result<(), ObjectError>;

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
    /// Whether the configuration says how many rules hardware takes.
    has_hardware_limit: bool,
    /// Whether rules stay in the device when the agent ends.
    keeps_rules: bool,
    /// Whether devices in two network namespaces are two, though they have one name.
    is_in_network_namespace: bool,
    open: Open,
    check: Check,
}

const BACKENDS: &[Row] = &[
    Row {
        name: "soft",
        device: "soft0",
        has_policy: false,
        has_tunnel_flags: false,
        has_hardware_limit: true,
        keeps_rules: false,
        is_in_network_namespace: false,
        open: sluice_offload_soft::open,
        check: check_with_soft,
    },
    Row {
        name: "tc",
        device: "tc0",
        has_policy: true,
        has_tunnel_flags: true,
        has_hardware_limit: false,
        keeps_rules: true,
        is_in_network_namespace: true,
        open: sluice_offload_tc::open,
        check: check_for_tc,
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

/// Whether the backend can take these objects, as far as that can be said without its device.
pub fn check_objects(name: &str, objects: &[Object]) -> Result<(), ObjectError> {
    find(name).map_or(Ok(()), |row| (row.check)(objects))
}

/// Whether the configuration of a backend says how many rules its hardware takes.
pub fn has_hardware_limit(name: &str) -> bool {
    find(name).is_some_and(|row| row.has_hardware_limit)
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

/// A NIC in software is made of nothing but memory: one that nobody uses is asked.
fn check_with_soft(objects: &[Object]) -> Result<(), ObjectError> {
    let scratch = sluice_offload_soft::SoftNic::new(&OpenConfig::new("check", Arc::new(MonotonicClock::new())));
    let steps = objects::difference(&Objects::default(), objects)?;
    objects::make(&scratch, &Objects::default(), steps, Absence::Tolerated).map(|_| ())
}

fn check_for_tc(objects: &[Object]) -> Result<(), ObjectError> {
    objects::difference(&Objects::default(), objects)?;
    for object in objects {
        let result = match object {
            Object::Port(port) => sluice_offload_tc::check_port(port),
            Object::Meter(meter) => sluice_offload_tc::meters::check(meter),
            Object::TimeoutPolicy(_) => {
                Err(Refusal::Device { reason: "the kernel's timeout policies are not set through tc".into() })
            }
            Object::Mirror(_) => Ok(()),
        };
        result.map_err(|refusal| object.error(&refusal))?;
    }
    Ok(())
}

fn find(name: &str) -> Option<&'static Row> {
    BACKENDS.iter().find(|row| row.name == name)
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = BACKENDS.iter().map(|row| row.name).collect();
    format!("no backend {name} in this build, only {}", known.join(", "))
}
