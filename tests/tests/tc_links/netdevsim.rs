//! Switches of the kernel's own simulator: plugs, representors, devlink.

use std::process::Command;

use sluice_offload_tc::links::{Event, Flavour, Function, FunctionPart, Monitor, Role};

use crate::space::{Space, events, known};
use crate::stories;

stories![
    plugs_and_representors_of_each_eswitch_are_found,
    a_representor_that_comes_and_goes_is_noticed,
    a_bond_becomes_a_port_of_the_switch_of_its_members,
];

/// Loads the driver; whether it fits this kernel.
pub(crate) fn load(path: &str) -> bool {
    let psample = Command::new("modprobe").arg("psample").status();
    let netdevsim = Command::new("insmod").arg(path).status();
    [psample, netdevsim].into_iter().all(|status| status.is_ok_and(|status| status.success()))
}

/// A simulated NIC, gone when this is.
struct Nic {
    number: u32,
}

impl Nic {
    /// Makes one with a plug and virtual functions, in switchdev mode. The namespace is that of the process that writes.
    fn new(number: u32, functions: u32) -> Self {
        write("new_device", &format!("{number} 1"));
        let nic = Self { number };
        nic.set_functions(functions);
        let output = Command::new("devlink")
            .args(["dev", "eswitch", "set", &format!("netdevsim/netdevsim{number}"), "mode", "switchdev"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        nic
    }

    fn set_functions(&self, functions: u32) {
        write(&format!("devices/netdevsim{}/sriov_numvfs", self.number), &functions.to_string());
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        write("del_device", &self.number.to_string());
    }
}

fn write(file: &str, text: &str) {
    std::fs::write(format!("/sys/bus/netdevsim/{file}"), text).unwrap_or_else(|error| panic!("{file}: {error}"));
}

const fn function(number: u32) -> Function {
    Function { controller: None, physical: 0, part: FunctionPart::Virtual(number) }
}

fn plugs_and_representors_of_each_eswitch_are_found(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    let nics = [(Nic::new(10, 2), 2), (Nic::new(11, 3), 3)];
    let monitor = space.monitor();
    let mut switches = vec![];
    for (Nic { number }, functions) in &nics {
        let bus = format!("netdevsim{number}");
        let is_of_it = |monitor: &Monitor| -> Vec<_> {
            let all = monitor.links().iter();
            let its = all.filter(|known| known.device.parent.as_ref().is_some_and(|parent| *parent.name == *bus));
            its.cloned().collect()
        };
        let its = is_of_it(&monitor);
        let switch = its[0].device.switch.clone().unwrap();
        let ports: Vec<_> = monitor.links().ports_of(&switch).cloned().collect();
        assert_eq!(ports, its);
        let roles: Vec<_> = ports.iter().map(|port| port.device.role.clone()).collect();
        let expected = (0..*functions).map(|number| Role::Representor(function(number)));
        assert_eq!(roles, [Role::Physical].into_iter().chain(expected).collect::<Vec<_>>());
        let names: Vec<_> = ports.iter().map(|port| port.device.port_name.clone().unwrap()).collect();
        assert_eq!(&*names[0], "p1");
        assert_eq!(&*names[1], "pf0vf0");
        for (port, name) in ports.iter().zip(names) {
            let devlink = port.device.devlink.as_ref().unwrap_or_else(|| panic!("no devlink port at {name}"));
            assert_eq!((&*devlink.bus, &*devlink.device), ("netdevsim", bus.as_str()));
        }
        let flavour = &ports[1].device.devlink.as_ref().unwrap().flavour;
        assert_eq!(*flavour, Flavour::Function(function(0)));
        switches.push(switch);
    }
    assert_ne!(switches[0], switches[1]);
    assert_eq!(known(&monitor, "dummy0").device.switch, None);
}

fn a_representor_that_comes_and_goes_is_noticed(space: &Space) {
    let nic = Nic::new(12, 1);
    let mut monitor = space.monitor();
    nic.set_functions(0);
    let gone = events(&mut monitor);
    let [Event::Gone(gone)] = &gone[..] else { panic!("{gone:#?}") };
    nic.set_functions(2);
    let appeared: Vec<_> = events(&mut monitor)
        .into_iter()
        .filter_map(|event| if let Event::Appeared(port) = event { Some(port) } else { None })
        .collect();
    assert_eq!(appeared.len(), 2);
    for (port, number) in appeared.iter().zip(0..) {
        let known = monitor.links().at(port.ifindex).unwrap();
        assert_eq!(known.device.role, Role::Representor(function(number)));
        assert_eq!(known.device.devlink.as_ref().unwrap().flavour, Flavour::Function(function(number)));
        assert!(known.is_representor());
        assert_ne!(port.generation, gone.generation);
    }
}

fn a_bond_becomes_a_port_of_the_switch_of_its_members(space: &Space) {
    let _nic = Nic::new(13, 1);
    space.run("ip link add bond0 type bond");
    let mut monitor = space.monitor();
    let plug = monitor.links().iter().find(|known| known.device.role == Role::Physical).unwrap().clone();
    space.run(&format!("ip link set {} master bond0", plug.device.name));
    let events = events(&mut monitor);
    let change = Event::SwitchChanged { port: known(&monitor, "bond0").port(), from: None, to: plug.device.switch };
    assert!(events.contains(&change), "{events:#?}");
}
