//! Switches of the kernel's own simulator: plugs, representors, devlink.

use std::process::Command;
use std::time::Duration;

use sluice_netdev::{Event, Flavour, Function, FunctionPart, Monitor, Role};
use sluice_tests::daemon::{binary, new_folder, run};
use sluice_tests::lab::netdevsim::Nic;

use crate::space::{Space, events, known};
use crate::stories;

stories![
    plugs_and_representors_of_each_eswitch_are_found,
    a_representor_that_comes_and_goes_is_noticed,
    a_port_that_devlink_knows_later_than_its_device_is_known_all_the_same,
    a_nic_that_is_reloaded_has_other_ports_of_the_same_eswitch,
    preflight_tells_of_each_port_what_it_lacks,
];

const fn function(number: u32) -> Function {
    Function { controller: None, physical: 0, part: FunctionPart::Virtual(number) }
}

fn plugs_and_representors_of_each_eswitch_are_found(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    let nics = [(Nic::new(10, 2), 2), (Nic::new(11, 3), 3)];
    let monitor = space.monitor();
    let mut switches = vec![];
    for (nic, functions) in &nics {
        let bus = nic.name();
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

/// The driver of Linux 6.1 makes the device first. Who listens all the time is likely to ask devlink in between.
fn a_port_that_devlink_knows_later_than_its_device_is_known_all_the_same(space: &Space) {
    let nic = Nic::new(14, 1);
    let mut monitor = space.monitor();
    nic.set_functions(0);
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| nic.set_functions(4));
        while !maker.is_finished() {
            monitor.poll(Duration::from_millis(1)).unwrap();
        }
    });
    events(&mut monitor);
    let representors: Vec<_> = monitor.links().iter().filter(|known| known.is_representor()).collect();
    assert_eq!(representors.len(), 4);
    for known in representors {
        let Role::Representor(function) = known.device.role else { unreachable!() };
        assert_eq!(known.device.devlink.as_ref().unwrap().flavour, Flavour::Function(function));
    }
}

fn a_nic_that_is_reloaded_has_other_ports_of_the_same_eswitch(space: &Space) {
    let nic = Nic::new(13, 1);
    let mut monitor = space.monitor();
    let plug = |monitor: &Monitor| monitor.links().iter().find(|known| known.device.role == Role::Physical).cloned();
    let before = plug(&monitor).unwrap();
    nic.reload();
    let events = events(&mut monitor);
    let after = plug(&monitor).unwrap();
    assert!(events.contains(&Event::Gone(before.port())), "{events:#?}");
    assert!(events.contains(&Event::Appeared(after.port())), "{events:#?}");
    assert_ne!(before.generation, after.generation);
    assert_eq!(before.device.switch, after.device.switch);
    let ports = monitor.links().ports_of(before.device.switch.as_ref().unwrap());
    assert!(ports.map(|known| known.generation).all(|generation| generation > before.generation));
}

fn preflight_tells_of_each_port_what_it_lacks(space: &Space) {
    let nic = Nic::new(15, 2);
    let [plug, representor, other] = &nic.devices()[..] else { panic!("{:?}", nic.devices()) };
    space.run(&format!("ethtool -K {plug} hw-tc-offload on"));
    space.run("ip link add shared type dummy");
    space.run("tc qdisc add dev shared ingress_block 22 clsact");
    space.run("ip link add plain type dummy");
    space.run("tc qdisc add dev plain clsact");
    let folder = new_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let ports = [plug.as_str(), representor, "shared", "plain", "missing"].into_iter().zip(1..);
    let ports: String =
        ports.map(|(name, number)| format!("[[port]]\nnumber = {number}\nname = \"{name}\"\n")).collect();
    let file = folder.join("sluiced.toml");
    std::fs::write(&file, format!("backend = \"tc\"\nrun_dir = \"{}/run\"\n{ports}", folder.display())).unwrap();
    let ran = run(Command::new(binary("sluiced")).args(["--preflight", "--config"]).arg(&file));
    assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
    let has = |start: &str, words: &str| {
        let is_it = |line: &str| line.starts_with(start) && line.contains(words);
        assert!(ran.out.lines().any(is_it), "{start} … {words}: {}", ran.out);
    };
    has("ok    capability", "CAP_NET_ADMIN");
    has("ok    kernel option", "CONFIG_NET_CLS_FLOWER=");
    has("warn  kernel option", "CONFIG_NET_TC_SKB_EXT is not set");
    has("ok    hw-tc-offload", &format!("{plug}: on"));
    has("warn  hw-tc-offload", &format!("{representor}: off"));
    has("ok    representors", &format!("has 1 that are ports; no ports of Sluice: {other}"));
    has("warn  ports", "no network device missing");
    has("ok    qdisc", "plain: clsact is there");
    has("FAIL  qdisc", "shared: clsact ingress_block 22");
    let refusing = ran.out.lines().filter(|line| line.starts_with("FAIL")).count();
    assert_eq!(refusing, 1, "{}", ran.out);
}
