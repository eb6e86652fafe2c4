//! A mirror must not mirror itself: each copied frame would become a packet of the mirror's connection, which would be copied again.
//!
//! The connection of a RoCE device is UDP to port 4791 on the network device that the RDMA device belongs to, and on those below and above
//! that (bonds, VLANs, bridges). A port there may be mirrored in all classes that cannot take such packets; [`Class::Flow`] takes any.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use sluice_control::mirror::{Class, IpSelector, Plan, Selector, Transport};

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
    /// The kernel does not.
    #[error("{SYSFS}: {0}")]
    NetworkDevices(#[from] io::Error),
}

/// The network devices that the connections of an RDMA device pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTraffic(BTreeSet<String>);

impl OwnTraffic {
    /// Asks for those of a device. There are none if it is none of Ethernet.
    ///
    /// # Errors
    /// Fails if the device or the kernel does not tell them.
    pub fn of(context: &Context) -> Result<Self, OwnTrafficError> {
        let indexes = context.gids()?.into_iter().filter_map(|entry| entry.ifindex);
        Ok(Self::find(Path::new(SYSFS), &indexes.collect())?)
    }

    /// Those of these indexes, and what is stacked below and above them.
    fn find(sysfs: &Path, indexes: &BTreeSet<u32>) -> io::Result<Self> {
        let mut found = BTreeSet::new();
        for entry in sysfs.read_dir()? {
            let entry = entry?;
            // Files that are no devices have none, nor have those that go at this moment.
            let index = std::fs::read_to_string(entry.path().join("ifindex")).ok();
            if index.and_then(|text| text.trim().parse().ok()).is_some_and(|index| indexes.contains(&index)) {
                let name = entry.file_name().to_string_lossy().into_owned();
                for direction in ["lower_", "upper_"] {
                    stack(sysfs, &name, direction, &mut found);
                }
                found.insert(name);
            }
        }
        Ok(Self(found))
    }

    /// Checks the taps of a plan.
    ///
    /// # Errors
    /// Fails at the first that would bring the mirror's own packets.
    pub fn check(&self, plan: &Plan) -> Result<(), OwnMirror> {
        for tap in &plan.taps {
            // Copies of a port are at its tap, if that is another device.
            let netdev =
                [Some(&tap.name), tap.netdev.as_ref()].into_iter().flatten().find(|name| self.0.contains(*name));
            let Some(netdev) = netdev else { continue };
            let copied = tap.classes.iter().filter(|class| plan.classes.contains(*class));
            if let Some(class) = copied.into_iter().find(|class| takes_roce(*class)) {
                return Err(OwnMirror { class, port: tap.name.clone(), netdev: netdev.clone() });
            }
        }
        Ok(())
    }
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

    /// A VLAN on a bond of two ports, and a device that has nothing to do with them.
    fn devices() -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        let files = [
            ("p0", 2, &["upper_bond0"][..]),
            ("p1", 3, &["upper_bond0"]),
            ("bond0", 4, &["lower_p0", "lower_p1", "upper_bond0.7"]),
            ("bond0.7", 5, &["lower_bond0"]),
            ("tap-p0", 6, &[]),
        ];
        for (name, index, links) in files {
            let device = sysfs.path().join(name);
            std::fs::create_dir(&device).unwrap();
            std::fs::write(device.join("ifindex"), format!("{index}\n")).unwrap();
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
        let passed = |index| OwnTraffic::find(sysfs.path(), &[index].into()).unwrap().0.into_iter().collect::<Vec<_>>();
        assert_eq!(passed(5), ["bond0", "bond0.7", "p0", "p1"]);
        assert_eq!(passed(2), ["bond0", "bond0.7", "p0"]);
        assert_eq!(passed(9), Vec::<String>::new());
    }

    #[test]
    fn only_classes_that_take_any_packet_are_refused_at_such_a_port() {
        let sysfs = devices();
        let own = OwnTraffic::find(sysfs.path(), &[4].into()).unwrap();
        let protocols: Vec<_> = Class::ALL.into_iter().filter(|class| *class != Class::Flow).collect();
        for netdev in [None, Some("tap-p0"), Some("p0")] {
            assert_eq!(own.check(&plan("p0", netdev, &protocols)), Ok(()));
            let refused = own.check(&plan("p0", netdev, &[Class::Arp, Class::Flow])).unwrap_err();
            assert_eq!((refused.class, &*refused.netdev), (Class::Flow, "p0"));
        }
        assert!(own.check(&plan("copies", Some("p1"), &[Class::Flow])).is_err());
        assert_eq!(own.check(&plan("client", Some("tap-p0"), &[Class::Flow])), Ok(()));
    }
}
