//! What a backend is configured and opened with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::capabilities::MissPolicy;
use super::device::Backend;
use super::need::Need;
use super::owner::Owner;
use crate::flow::Flow;
use crate::meter::Meter;
use crate::mirror::Mirror;
use crate::port::Port;
use crate::refusal::Refusal;
use crate::time::Clock;
use crate::timeout::TimeoutPolicy;

/// A kind of backend, as its crate describes it.
#[derive(Debug)]
pub struct BackendKind {
    /// The name, as in [`Capabilities::name`](super::Capabilities::name). Its table of the configuration is called the same.
    pub name: &'static str,
    /// The device, if the configuration names none.
    pub device: &'static str,
    /// Returns the one name of a device that has several: what two agents may not both have. Given is one of them.
    pub canonical: fn(&str) -> String,
    /// What becomes of a packet that misses in a later chain, as in [`Capabilities::chain_miss`](super::Capabilities::chain_miss).
    pub chain_miss: MissPolicy,
    /// Whether devices in two network namespaces are two, though they have one name.
    pub is_in_network_namespace: bool,
    /// Whether copies that mirrors make can go to ports of the device only, and not to a program of the host
    /// ([`Outlet::Ports`](super::Outlet::Ports)).
    pub mirrors_to_ports_only: bool,
    /// Keys of its table that stood at the top of the file before there was one, and are still read there.
    pub former_keys: &'static [&'static str],
    /// What it needs of the host.
    pub needs: &'static [Need],
}

/// The configuration of a backend: a value of a type of its crate, read from the backend's own table.
///
/// Nothing of it needs the device to be there until it is [opened](Self::open).
pub trait BackendConfig: fmt::Debug + Send + Sync {
    /// Opens the device. Fails if it is not there, or not such a device; nothing has changed in it then.
    fn open(&self, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal>;

    /// Returns what checks a set of objects, of which it has seen none yet.
    fn checker(&self) -> Box<dyn Checker>;
}

/// Checks the objects of a configuration one after the other, those that others refer to first: fails for one that no device of the kind
/// could take beside those before it. One that passes may still be refused by the device.
///
/// A checker also judges flows without a device ([`flow`](Self::flow)), which `sluice ovs observe` does.
pub trait Checker {
    /// Checks a port. A port with the number of an earlier one takes its place.
    fn port(&mut self, port: &Port) -> Result<(), Refusal>;

    /// Checks a meter.
    fn meter(&mut self, meter: &Meter) -> Result<(), Refusal>;

    /// Checks a timeout policy.
    fn timeout_policy(&mut self, policy: &TimeoutPolicy) -> Result<(), Refusal>;

    /// Checks a mirror.
    fn mirror(&mut self, mirror: &Mirror) -> Result<(), Refusal>;

    /// Checks a flow that names only ports and meters that have passed: runs the translation that an installation runs, and fails with its
    /// refusal. Passing means that the device would be asked: a kernel or a NIC may still refuse the rule.
    fn flow(&mut self, flow: &Flow) -> Result<(), Refusal>;
}

/// What every backend is opened with, beside its own configuration.
pub struct OpenConfig {
    /// The device, in the backend's own naming.
    pub device: String,
    /// Where the backend takes the time from.
    pub clock: Arc<dyn Clock>,
    /// Whose rules they are, where the device keeps them beyond the life of the agent.
    pub owner: Owner,
    /// Where a backend may keep what it has to know in its next run; `None` where nothing is kept.
    pub state_dir: Option<PathBuf>,
}

impl OpenConfig {
    /// A device for an owner whose rules nobody will look for.
    pub fn new(device: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self { device: device.into(), clock, owner: Owner::default(), state_dir: None }
    }
}
