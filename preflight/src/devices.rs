//! Network devices of ports: whether they are there, what drives them, and whether filters can hang there.

use std::collections::{BTreeMap, BTreeSet};

use sluice_netdev::{
    Control, EswitchMode, Ifindex, IngressQdisc, Known, Links, Monitor, MonitorOptions, Role, eswitch_mode,
    filters_in_hardware, has_feature,
};

use crate::check::Check;
use crate::machine::Machine;
use crate::{FlowsOfOvs, Setup};

/// The network devices of this namespace, and those of the ports among them.
#[derive(Default)]
pub(crate) struct Devices {
    monitor: Option<Monitor>,
    /// Why there are none.
    pub(crate) failure: Option<Check>,
    /// Ports, each with whether Sluice makes its device.
    wanted: Vec<(String, bool)>,
    /// Whether more ports come with the flows of an Open vSwitch.
    more_come: bool,
    /// Driver and firmware by the name of a device.
    drivers: BTreeMap<String, Driver>,
}

struct Driver {
    name: String,
    firmware: Option<String>,
}

impl Devices {
    pub(crate) fn read(machine: &Machine, setup: &Setup<'_>) -> Self {
        let (monitor, failure) = match Monitor::open(MonitorOptions::default()) {
            Ok(monitor) => (Some(monitor), None),
            Err(error) => (None, Some(Check::unknown("network devices", error.to_string()))),
        };
        let of_port = |(name, _): &(String, bool)| {
            let folder = format!("/sys/class/net/{name}/device");
            let driver = machine.target(format!("{folder}/driver"))?;
            let rdma = machine.names(format!("{folder}/infiniband")).into_iter().next();
            let firmware = rdma.and_then(|rdma| machine.text(format!("{folder}/infiniband/{rdma}/fw_ver")));
            Some((name.clone(), Driver { name: driver, firmware }))
        };
        let drivers = setup.ports.iter().filter_map(of_port).collect();
        let more_come = setup.flows_of_ovs != FlowsOfOvs::Left;
        Self { monitor, failure, wanted: setup.ports.clone(), more_come, drivers }
    }

    fn links(&self) -> Option<&Links> {
        self.monitor.as_ref().map(Monitor::links)
    }

    /// The ports that are there.
    fn present(&self) -> impl Iterator<Item = &Known> {
        let links = self.links();
        self.wanted.iter().filter_map(move |(name, _)| links?.named(name))
    }

    pub(crate) fn has_driver(&self, name: &str) -> bool {
        self.drivers.values().any(|driver| driver.name == name)
    }

    /// What drives the ports.
    pub(crate) fn drivers(&self) -> Option<Check> {
        let driver = |(port, Driver { name, firmware }): (&String, &Driver)| match firmware {
            Some(firmware) => format!("{port}: {name}, firmware {firmware}"),
            None => format!("{port}: {name}"),
        };
        let all: Vec<_> = self.drivers.iter().map(driver).collect();
        (!all.is_empty()).then(|| Check::ok("driver", all.join("; ")))
    }

    /// Whether each port has its device.
    pub(crate) fn ports(&self) -> Vec<Check> {
        const NAME: &str = "ports";
        let Some(links) = self.links() else { return Vec::new() };
        let missing = self.wanted.iter().filter(|(name, is_made)| !is_made && links.named(name).is_none());
        let mut checks: Vec<_> = missing
            .map(|(name, _)| {
                let finding =
                    format!("there is no network device {name} here; flows of that port are refused until it comes");
                Check::warn(
                    NAME,
                    finding,
                    "create the function behind it, or mend the name; `ip link` and `devlink port` list what is there",
                )
            })
            .collect();
        if checks.is_empty() {
            checks.push(match self.wanted.len() {
                0 if self.more_come => {
                    Check::ok(NAME, "none are configured; those of Open vSwitch come with its flows")
                }
                0 => Check::warn(NAME, "none are configured", "[[port]] in the configuration, or `sluice add-port`"),
                count => Check::ok(NAME, format!("{count} configured, and all are there")),
            });
        }
        checks.extend(self.switches(links));
        checks
    }

    /// Of each eswitch with ports of ours, its representors, and whether it is one with rules.
    fn switches(&self, links: &Links) -> Vec<Check> {
        let switches: BTreeSet<_> = self.present().filter_map(|known| known.device.switch.clone()).collect();
        let of_switch = |switch| {
            let is_ours = |known: &&Known| self.wanted.iter().any(|(name, _)| *name == known.device.name);
            let (ours, others): (Vec<_>, Vec<_>) =
                links.ports_of(&switch).filter(|known| known.is_representor()).partition(is_ours);
            let others: Vec<_> = others.iter().map(|known| known.device.name.as_str()).collect();
            let rest =
                if others.is_empty() { String::new() } else { format!("; no ports of Sluice: {}", others.join(", ")) };
            Check::ok("representors", format!("eswitch {switch} has {} that are ports{rest}", ours.len()))
        };
        switches.into_iter().map(of_switch).collect()
    }

    /// Whether filters can hang at the ports, and whether their driver takes filters over.
    pub(crate) fn traffic_control(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        for known in self.present() {
            let name = known.device.name.as_str();
            checks.push(qdisc(name, known));
            if matches!(known.device.role, Role::Physical | Role::Representor(_)) {
                checks.push(offload(name));
            }
            if let (Role::Physical, Some(parent)) = (&known.device.role, &known.device.parent)
                && *parent.bus == *"pci"
            {
                checks.extend(switchdev(&parent.name, false));
            }
        }
        checks
    }

    /// Whether a device is an mlx5 function whose eswitch is free to be taken over.
    pub(crate) fn own_eswitch(&self, machine: &Machine, device: &str) -> Vec<Check> {
        const NAME: &str = "device";
        let Some(address) = pci_address(machine, device) else {
            let known = machine.names("/sys/class/infiniband").join(", ");
            let there = if known.is_empty() { "there is no RDMA device".into() } else { format!("there is {known}") };
            return vec![Check::refuses(
                NAME,
                format!("no device {device}; {there}"),
                "load mlx5_ib, or set `device` in the configuration",
            )];
        };
        let folder = format!("/sys/bus/pci/devices/{address}");
        let driver = machine.target(format!("{folder}/driver"));
        let rdma = machine.names(format!("{folder}/infiniband")).into_iter().next();
        let firmware = rdma.as_ref().and_then(|rdma| machine.text(format!("{folder}/infiniband/{rdma}/fw_ver")));
        let mut checks = vec![match (driver.as_deref(), &rdma) {
            (Some("mlx5_core"), Some(rdma)) => {
                Check::ok(NAME, format!("{rdma} at {address}, firmware {}", firmware.as_deref().unwrap_or("unknown")))
            }
            (Some("mlx5_core"), None) => {
                Check::refuses(NAME, format!("{address} has no RDMA device"), "modprobe mlx5_ib")
            }
            (driver, _) => {
                let finding = format!("{address} is driven by {}, not by mlx5_core", driver.unwrap_or("nothing"));
                Check::refuses(NAME, finding, "set `device` in the configuration to an mlx5 function")
            }
        }];
        checks.extend(switchdev(&address, true));
        checks.extend(self.foreign_filters(&address));
        checks
    }

    /// What others have in the hardware of an eswitch.
    fn foreign_filters(&self, address: &str) -> Option<Check> {
        const NAME: &str = "foreign rules";
        let links = self.links()?;
        let is_uplink = |known: &&Known| {
            known.device.role == Role::Physical
                && known.device.parent.as_ref().is_some_and(|parent| *parent.name == *address)
        };
        let switch = links.iter().find(is_uplink)?.device.switch.as_ref()?;
        let devices: Vec<Ifindex> = links.ports_of(switch).map(|known| known.device.ifindex).collect();
        Some(match Control::open().and_then(|mut control| filters_in_hardware(&mut control, &devices)) {
            Err(error) => Check::unknown(NAME, error.to_string()),
            Ok(found) if found.is_empty() => {
                Check::ok(NAME, "the kernel has no filters in the hardware of the eswitch")
            }
            Ok(found) => {
                let name = |at| links.at(at).map_or("?", |known| known.device.name.as_str());
                let places: Vec<_> = found.into_iter().map(|(at, count)| format!("{} ({count})", name(at))).collect();
                let finding =
                    format!("the kernel has filters in the hardware of the eswitch, at {}", places.join(", "));
                Check::refuses(NAME, finding, "remove them (`tc filter show dev PORT ingress`), or use backend \"tc\"")
            }
        })
    }
}

fn qdisc(name: &str, known: &Known) -> Check {
    const NAME: &str = "qdisc";
    match known.qdisc {
        None => Check::ok(NAME, format!("{name}: nobody has one there")),
        Some(found) if found.serves(&IngressQdisc::INGRESS) => {
            Check::ok(NAME, format!("{name}: {found} is there, which serves; it stays its maker's"))
        }
        Some(found) => Check::refuses(
            NAME,
            format!("{name}: {found} is there, whose filters are shared with other devices"),
            format!(
                "tc qdisc del dev {name} {}, if its maker can do without",
                if found.kind == IngressQdisc::CLSACT.kind { "clsact" } else { "ingress" }
            ),
        ),
    }
}

fn offload(name: &str) -> Check {
    const NAME: &str = "hw-tc-offload";
    match has_feature(name, "hw-tc-offload") {
        Ok(Some(true)) => Check::ok(NAME, format!("{name}: on")),
        Ok(Some(false)) => Check::warn(
            NAME,
            format!("{name}: off, so that rules stay in the kernel"),
            format!("ethtool -K {name} hw-tc-offload on, if its driver has it"),
        ),
        Ok(None) => Check::unknown(NAME, format!("{name}: the kernel does not tell")),
        Err(error) => Check::unknown(NAME, format!("{name}: {error}")),
    }
}

/// The mode of the eswitch that a function manages, if it manages one.
fn switchdev(address: &str, is_required: bool) -> Option<Check> {
    const NAME: &str = "switchdev";
    match eswitch_mode(address) {
        Ok(None) if is_required => {
            Some(Check::unknown(NAME, format!("{address}: the kernel does not tell the mode of an eswitch")))
        }
        Ok(None) => None,
        Ok(Some(EswitchMode::Switchdev)) => Some(Check::ok(NAME, format!("{address}: switchdev"))),
        Ok(Some(mode)) => {
            let finding = format!("{address}: {mode} mode, in which there are no representors and no rules");
            let cure = format!("devlink dev eswitch set pci/{address} mode switchdev");
            Some(if is_required { Check::refuses(NAME, finding, cure) } else { Check::warn(NAME, finding, cure) })
        }
        Err(error) => Some(Check::unknown(NAME, format!("{address}: {error}"))),
    }
}

/// The address on the PCI bus of a device that is named by that, by its RDMA device, or by the network device of its uplink.
fn pci_address(machine: &Machine, device: &str) -> Option<String> {
    if device.contains('/') {
        return None;
    }
    if machine.path(format!("/sys/bus/pci/devices/{device}")).exists() {
        return Some(device.to_owned());
    }
    ["infiniband", "net"].into_iter().find_map(|class| machine.target(format!("/sys/class/{class}/{device}/device")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;

    #[test]
    fn nobody_is_told_to_configure_ports_that_open_vswitch_brings() {
        let said = |flows_of_ovs| {
            let setup =
                Setup { backend: "tc", device: "tc0", needs: &[], ports: Vec::new(), flows_of_ovs, agent: None };
            let checks = Devices::read(&Machine::default(), &setup).ports();
            checks.into_iter().next().map(|check| check.verdict)
        };
        // Where there is no netlink there is nothing to be said.
        if let Some(verdict) = said(FlowsOfOvs::Left) {
            assert_eq!(verdict, Verdict::Warn);
            assert_eq!([FlowsOfOvs::Read, FlowsOfOvs::HandedOver].map(said), [Some(Verdict::Ok); 2]);
        }
    }
}
