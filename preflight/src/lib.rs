//! Looks at a machine for what Sluice needs of it: whether the kernel, the NIC, the limits of the process and whoever else is there
//! let a backend do its work. Nothing is changed.
//!
//! What a backend needs is data, its [`Need`]s, so that nothing here knows a backend. Each [`Check`] is one line with its cure.
//!
//! ```no_run
//! use sluice_flow::backend::Need;
//! use sluice_preflight::{FlowsOfOvs, Machine, Setup, Verdict, look};
//!
//! let needs = &[Need::Capability { name: "CAP_NET_ADMIN", bit: 12 }];
//! let (ports, flows_of_ovs) = (vec![("p0".into(), false)], FlowsOfOvs::Left);
//! let setup = Setup { backend: "tc", device: "tc0", needs, ports, flows_of_ovs, agent: None };
//! for check in look(&Machine::default(), &setup) {
//!     println!("{check}");
//!     assert_ne!(check.verdict, Verdict::Refuses);
//! }
//! ```

mod check;
mod devices;
mod kernel;
mod library;
mod limits;
mod machine;
mod ovs;

pub use self::check::{Check, Verdict, to_json, to_text};
pub use self::machine::Machine;
pub use self::ovs::check as foreign_offload;

use sluice_flow::backend::Need;

use self::devices::Devices;
use self::kernel::Options;

/// What the machine is looked at for.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The name of the backend.
    pub backend: &'a str,
    /// Its device.
    pub device: &'a str,
    /// What it needs.
    pub needs: &'a [Need],
    /// The ports, each with whether Sluice makes its network device itself, as it does for tunnels.
    pub ports: Vec<(String, bool)>,
    /// Whether the agent takes the flows of an Open vSwitch.
    pub flows_of_ovs: FlowsOfOvs,
    /// The process of the agent if it runs, whose limits count then; otherwise those of this process do.
    pub agent: Option<u32>,
}

/// Whether the agent takes the flows of an Open vSwitch (`[source.ovs]`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowsOfOvs {
    /// It has flows of its own only.
    #[default]
    Left,
    /// It reads them from the kernel's datapath.
    Read,
    /// It has them handed over.
    HandedOver,
}

/// Looks, and says what was found, in the order in which one would mend it.
pub fn look(machine: &Machine, setup: &Setup<'_>) -> Vec<Check> {
    let mut checks = vec![kernel::release(), limits::huge_pages(machine)];
    let of_process = limits::Process::read(machine, setup.agent);
    let options = Options::read(machine);
    let wants_devices = setup.needs.iter().any(|need| {
        matches!(need, Need::NetworkDevices | Need::TrafficControl | Need::OwnEswitch | Need::KernelOption { .. })
    });
    let devices = if wants_devices { Devices::read(machine, setup) } else { Devices::default() };
    checks.extend(devices.failure.clone());
    checks.extend(devices.drivers());
    for need in setup.needs {
        match *need {
            Need::Capability { name, bit } => checks.push(of_process.capability(name, bit)),
            Need::KernelOption { name, driver, is_required, purpose } => {
                if driver.is_none_or(|driver| devices.has_driver(driver)) {
                    checks.push(options.check(name, is_required, purpose));
                }
            }
            Need::Library { name, folder, package } => checks.push(library::check(machine, name, folder, package)),
            Need::PinnedMemory => checks.push(of_process.pinned_memory()),
            Need::NetworkDevices => checks.extend(devices.ports()),
            Need::TrafficControl => checks.extend(devices.traffic_control()),
            Need::OwnEswitch => checks.extend(devices.own_eswitch(machine, setup.device)),
        }
    }
    if wants_devices {
        checks.push(ovs::check(machine, setup));
    }
    checks
}
