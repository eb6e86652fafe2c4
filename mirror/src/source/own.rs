//! A mirror must not mirror itself: each copied frame would become a packet of the mirror's connection, which would be copied again.
//!
//! The connection of a RoCE device is UDP to port 4791 on the network device that the RDMA device belongs to, and on those below and above
//! that (bonds, VLANs, bridges). A port there may be mirrored in all classes that cannot take such packets; [`Class::Flow`] takes any.
//!
//! These devices change while a sender runs: the RDMA device gets addresses of a VLAN that is made later, and a device joins a bond or a
//! bridge. So they are asked for anew whenever a plan with such a class is checked.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;

use sluice_control::mirror::{Class, IpSelector, Plan, Selector, Tap, Transport};
use tracing::debug;

use super::following::Names;
use crate::verbs::{CallError, Context};

/// The UDP port of RoCE v2.
const ROCE: u16 = 4791;
const UDP: u8 = 17;

/// Where the network devices of the kernel are.
const SYSFS: &str = "/sys/class/net";

/// A tap of a plan would bring the mirror's own packets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "class {class} of port {port} would mirror the mirror's own connection, which is UDP to port {ROCE} on {netdev}: choose other \
     classes, mirror another port, or force it"
)]
pub struct OwnMirror {
    /// The class that takes such packets.
    pub class: Class,
    /// The port.
    pub port: String,
    /// The network device that the packets pass.
    pub netdev: String,
}

/// Why it is not known whether a plan would bring the mirror's own packets.
#[derive(Debug, thiserror::Error)]
pub enum OwnTrafficError {
    /// The RDMA device does not tell its network devices.
    #[error(transparent)]
    Device(#[from] CallError),
    /// The kernel cannot be asked for network devices.
    #[error("the socket by which network devices are looked up: {0}")]
    Names(#[from] io::Error),
}

/// The network devices that the connections of an RDMA device pass.
pub struct OwnTraffic {
    ask: Ask,
    /// By their names, when they were last asked for.
    passed: BTreeSet<String>,
}

/// Asks for the devices of now.
type Ask = Box<dyn FnMut() -> Result<BTreeSet<String>, OwnTrafficError> + Send>;

impl fmt::Debug for OwnTraffic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OwnTraffic").field("passed", &self.passed).finish_non_exhaustive()
    }
}

impl OwnTraffic {
    /// Asks for those of a device. There are none if it is none of Ethernet.
    ///
    /// # Errors
    /// Fails if the device or the kernel does not tell them.
    pub fn of(context: &Context) -> Result<Self, OwnTrafficError> {
        let (context, names) = (context.clone(), Names::open()?);
        Self::told_by(Box::new(move || {
            let indexes: BTreeSet<u32> = context.gids()?.into_iter().filter_map(|entry| entry.ifindex).collect();
            let names = indexes.into_iter().filter_map(|index| names.name(index));
            Ok(stacked(Path::new(SYSFS), names))
        }))
    }

    fn told_by(mut ask: Ask) -> Result<Self, OwnTrafficError> {
        let passed = ask()?;
        Ok(Self { ask, passed })
    }

    /// Checks the taps of a plan.
    ///
    /// # Errors
    /// Fails at the first that would bring the mirror's own packets.
    pub fn check(&mut self, plan: &Plan) -> Result<(), OwnMirror> {
        let risky = |tap| Some((tap, class_with_roce(plan, tap)?));
        let risky: Vec<(&Tap, Class)> = plan.taps.iter().filter_map(risky).collect();
        // Most plans have no such class, and cost nothing.
        if !risky.is_empty() {
            match (self.ask)() {
                Ok(passed) => self.passed = passed,
                // A device that does not answer carries nothing, and its connection tells of that.
                Err(error) => debug!("what the mirror's own connection passes is as it was: {error}"),
            }
        }
        for (tap, class) in risky {
            // Copies of a port are at its tap, if that is another device.
            let mut names = [Some(&tap.name), tap.netdev.as_ref()].into_iter().flatten();
            if let Some(netdev) = names.find(|name| self.passed.contains(*name)) {
                return Err(OwnMirror { class, port: tap.name.clone(), netdev: netdev.clone() });
            }
        }
        Ok(())
    }
}

/// Of the classes that are copied at a tap, one that packets of RoCE may be of.
fn class_with_roce(plan: &Plan, tap: &Tap) -> Option<Class> {
    tap.classes.iter().find(|class| plan.classes.contains(*class) && takes_roce(*class))
}

/// Network devices of these names, and what is stacked below and above them.
fn stacked(sysfs: &Path, names: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in names {
        for direction in ["lower_", "upper_"] {
            // Apart, for what is below one may be above another.
            let mut found = BTreeSet::new();
            stack(sysfs, &name, direction, &mut found);
            all.append(&mut found);
        }
        all.insert(name);
    }
    all
}

/// Adds what is stacked in one direction.
fn stack(sysfs: &Path, name: &str, direction: &str, found: &mut BTreeSet<String>) {
    // A device that has gone has nothing.
    let entries = sysfs.join(name).read_dir().into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(direction).map(ToOwned::to_owned));
    for next in names.collect::<Vec<_>>() {
        if found.insert(next.clone()) {
            stack(sysfs, &next, direction, found);
        }
    }
}

/// Whether packets of RoCE may be of a class.
fn takes_roce(class: Class) -> bool {
    let may_be = |selector: &IpSelector| match selector.transport {
        Transport::DestinationPort { value, mask } => ROCE & mask == value,
        Transport::Any | Transport::Type { .. } | Transport::SourcePort { .. } => true,
    };
    let is_taken = |selector: &Selector| selector.ip.as_ref().is_some_and(|ip| ip.protocol == UDP && may_be(ip));
    class == Class::Flow || class.selectors().iter().any(is_taken)
}

#[cfg(test)]
mod tests {
    use sluice_control::mirror::{ClassSet, Tap};

    use super::*;

    /// Two VLANs on a bond of two ports, and a device that has nothing to do with them.
    fn devices() -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        let files = [
            ("p0", &["upper_bond0"][..]),
            ("p1", &["upper_bond0"]),
            ("bond0", &["lower_p0", "lower_p1", "upper_bond0.7", "upper_bond0.8"]),
            ("bond0.7", &["lower_bond0"]),
            ("bond0.8", &["lower_bond0"]),
            ("tap-p0", &[]),
        ];
        for (name, links) in files {
            let device = sysfs.path().join(name);
            std::fs::create_dir(&device).unwrap();
            links.iter().for_each(|link| std::fs::write(device.join(link), "").unwrap());
        }
        sysfs
    }

    fn plan(port: &str, netdev: Option<&str>, classes: &[Class]) -> Plan {
        let classes: ClassSet = classes.iter().copied().collect();
        let tap = Tap { in_port: Some(1), name: port.into(), netdev: netdev.map(Into::into), classes };
        Plan { collector: String::new(), classes, taps: vec![tap] }
    }

    #[test]
    fn what_a_connection_passes_is_its_device_and_all_below_and_above() {
        let sysfs = devices();
        let passed = |names: &[&str]| {
            stacked(sysfs.path(), names.iter().map(|name| (*name).to_owned())).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(passed(&["bond0.7"]), ["bond0", "bond0.7", "p0", "p1"]);
        assert_eq!(passed(&["p0"]), ["bond0", "bond0.7", "bond0.8", "p0"]);
        // Also what is above one that is below another.
        assert_eq!(passed(&["bond0.7", "p0"]), ["bond0", "bond0.7", "bond0.8", "p0", "p1"]);
        assert_eq!(passed(&["gone"]), ["gone"]);
        assert_eq!(passed(&[]), Vec::<String>::new());
    }

    #[test]
    fn only_classes_that_take_any_packet_are_refused_at_such_a_port() {
        let sysfs = devices();
        let bond = move || Ok(stacked(sysfs.path(), ["bond0".to_owned()]));
        let mut own = OwnTraffic::told_by(Box::new(bond)).unwrap();
        let protocols: Vec<_> = Class::ALL.into_iter().filter(|class| *class != Class::Flow).collect();
        for netdev in [None, Some("tap-p0"), Some("p0")] {
            assert_eq!(own.check(&plan("p0", netdev, &protocols)), Ok(()));
            let refused = own.check(&plan("p0", netdev, &[Class::Arp, Class::Flow])).unwrap_err();
            assert_eq!((refused.class, &*refused.netdev), (Class::Flow, "p0"));
        }
        assert!(own.check(&plan("copies", Some("p1"), &[Class::Flow])).is_err());
        assert_eq!(own.check(&plan("client", Some("tap-p0"), &[Class::Flow])), Ok(()));
    }

    #[test]
    fn a_plan_is_checked_against_the_devices_of_now_which_are_asked_for_only_if_it_has_a_class_that_takes_any_packet() {
        let answers = [&["p0"][..], &["p0"], &["p0", "p0.7"]]
            .map(|names| Ok(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>()));
        // The last is a device that does not answer any more.
        let gone = || Err(OwnTrafficError::Device(CallError::new("ibv_query_gid_table", io::ErrorKind::NotConnected)));
        let mut answers = answers.into_iter();
        let mut own = OwnTraffic::told_by(Box::new(move || answers.next().unwrap_or_else(gone))).unwrap();
        let vlan = plan("p0.7", None, &[Class::Flow]);
        assert_eq!(own.check(&vlan), Ok(()));
        assert_eq!(own.check(&plan("p0", None, &[Class::Arp])), Ok(()));
        assert!(own.check(&vlan).is_err(), "the RDMA device has an address there now");
        assert!(own.check(&vlan).is_err());
    }
}
