//! What happens to devices.

use sluice_netdev::{Event, Role, State, TunnelKind};

use crate::space::{Space, events, events_until, ifindex, known};
use crate::stories;

stories![
    a_device_appears_and_goes,
    a_name_that_comes_back_is_another_generation,
    a_number_that_comes_back_is_another_generation,
    a_name_that_changes_keeps_the_generation,
    a_name_that_passes_to_another_device_names_that_one,
    a_device_goes_up_and_down,
    a_device_moves_to_another_namespace_and_comes_back,
    a_namespace_that_goes_takes_the_other_end_with_it,
    a_member_joins_a_bond_and_leaves_it,
    a_port_that_leaves_a_bridge_is_not_gone,
    a_number_that_passes_to_another_kind_of_device_is_another_generation,
];

fn a_device_appears_and_goes(space: &Space) {
    let mut monitor = space.monitor();
    space.run("ip link add dummy0 type dummy");
    let appeared = events(&mut monitor);
    let port = known(&monitor, "dummy0").port();
    assert_eq!(appeared, [Event::Appeared(port.clone())]);
    space.run("ip link del dummy0");
    assert_eq!(events(&mut monitor), [Event::Gone(port)]);
    assert_eq!(monitor.links().named("dummy0"), None);
}

fn a_name_that_comes_back_is_another_generation(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    let mut monitor = space.monitor();
    let first = known(&monitor, "dummy0").port();
    space.run("ip link del dummy0");
    space.run("ip link add dummy0 type dummy");
    let events = events(&mut monitor);
    let second = known(&monitor, "dummy0").port();
    assert_eq!(events, [Event::Gone(first.clone()), Event::Appeared(second.clone())]);
    assert_ne!(first.ifindex, second.ifindex);
    assert_ne!(first.generation, second.generation);
}

fn a_number_that_comes_back_is_another_generation(space: &Space) {
    space.run("ip link add dummy0 index 77 type dummy");
    let mut monitor = space.monitor();
    let first = known(&monitor, "dummy0").port();
    space.run("ip link del dummy0");
    space.run("ip link add dummy0 index 77 type dummy");
    events(&mut monitor);
    let second = known(&monitor, "dummy0").port();
    assert_eq!(first.ifindex, second.ifindex);
    assert_ne!(first.generation, second.generation);
}

fn a_name_that_changes_keeps_the_generation(space: &Space) {
    space.run("ip link add before type dummy");
    let mut monitor = space.monitor();
    let before = known(&monitor, "before").port();
    space.run("ip link set before name after");
    let events = events(&mut monitor);
    let after = known(&monitor, "after").port();
    assert_eq!((before.ifindex, before.generation), (after.ifindex, after.generation));
    assert_eq!(events, [Event::Renamed { port: after, from: "before".into() }]);
    assert_eq!(monitor.links().named("before"), None);
}

fn a_name_that_passes_to_another_device_names_that_one(space: &Space) {
    space.run("ip link add port type dummy");
    space.run("ip link add other type dummy");
    let mut monitor = space.monitor();
    let [first, second] = ["port", "other"].map(|name| known(&monitor, name).port());
    space.run("ip link set port name third");
    space.run("ip link set other name port");
    events(&mut monitor);
    let now = known(&monitor, "port");
    assert_eq!((now.device.ifindex, now.generation), (second.ifindex, second.generation));
    assert_eq!(known(&monitor, "third").generation, first.generation);
}

fn a_device_goes_up_and_down(space: &Space) {
    space.run("ip link add left type veth peer name right");
    let mut monitor = space.monitor();
    let port = known(&monitor, "left").port();
    let changes = |events: Vec<Event>| -> Vec<_> {
        let of_left = |event| match event {
            Event::StateChanged { port: of, from, to } if of == port => Some((from, to)),
            _ => None,
        };
        events.into_iter().filter_map(of_left).collect()
    };
    space.run("ip link set left up");
    assert_eq!(changes(events(&mut monitor)), [(State::Off, State::NoCarrier)]);
    space.run("ip link set right up");
    assert_eq!(changes(events(&mut monitor)), [(State::NoCarrier, State::Up)]);
    space.run("ip link set right down");
    assert_eq!(changes(events(&mut monitor)), [(State::Up, State::NoCarrier)]);
    space.run("ip link set left down");
    assert_eq!(changes(events(&mut monitor)), [(State::NoCarrier, State::Off)]);
}

fn a_device_moves_to_another_namespace_and_comes_back(space: &Space) {
    let other = space.another();
    space.run("ip link add traveller index 90 type dummy");
    let mut monitor = space.monitor();
    let before = known(&monitor, "traveller").port();
    space.run(&format!("ip link set traveller netns {}", other.name()));
    let moved = events(&mut monitor);
    let [Event::Moved { port, namespace: Some(namespace), ifindex: Some(there) }] = &moved[..] else {
        panic!("{moved:#?}")
    };
    assert_eq!((port, there), (&before, &before.ifindex));
    assert_eq!(space.name_of(*namespace), other.name());

    space.run(&format!("ip -n {} link set traveller netns {}", other.name(), space.name()));
    let back = events(&mut monitor);
    let now = known(&monitor, "traveller").port();
    assert_eq!(back, [Event::Appeared(now.clone())]);
    // The number is the same, but its filters stayed behind.
    assert_eq!(now.ifindex, before.ifindex);
    assert_ne!(now.generation, before.generation);
}

fn a_namespace_that_goes_takes_the_other_end_with_it(space: &Space) {
    let other = space.another();
    space.run("ip link add near type veth peer name far");
    space.run(&format!("ip link set far netns {}", other.name()));
    let mut monitor = space.monitor();
    let near = known(&monitor, "near").port();
    drop(other);
    let events = events_until(&mut monitor, |event| matches!(event, Event::Gone(_)));
    assert!(events.contains(&Event::Gone(near)), "{events:#?}");
}

fn a_member_joins_a_bond_and_leaves_it(space: &Space) {
    space.run("ip link add bond0 type bond");
    space.run("ip link add dummy0 type dummy");
    let mut monitor = space.monitor();
    let bond = ifindex(&monitor, "bond0");
    let master_changes = |events: Vec<Event>| -> Vec<_> {
        let change = |event| match event {
            Event::MasterChanged { port, from, to } => Some((port.name, from, to)),
            _ => None,
        };
        events.into_iter().filter_map(change).collect()
    };
    space.run("ip link set dummy0 master bond0");
    assert_eq!(master_changes(events(&mut monitor)), [("dummy0".into(), None, Some(bond))]);
    assert_eq!(monitor.links().members(bond).count(), 1);
    space.run("ip link set dummy0 nomaster");
    assert_eq!(master_changes(events(&mut monitor)), [("dummy0".into(), Some(bond), None)]);
    assert_eq!(monitor.links().members(bond).count(), 0);
}

/// The kernel tells of it by an `RTM_DELLINK` of the bridge's.
fn a_port_that_leaves_a_bridge_is_not_gone(space: &Space) {
    space.run("ip link add bridge0 type bridge");
    space.run("ip link add dummy0 type dummy");
    space.run("ip link set dummy0 master bridge0");
    let mut monitor = space.monitor();
    let port = known(&monitor, "dummy0").port();
    space.run("ip link set dummy0 nomaster");
    let events = events(&mut monitor);
    assert!(!events.iter().any(|event| matches!(event, Event::Gone(_) | Event::Appeared(_))), "{events:#?}");
    assert_eq!(known(&monitor, "dummy0").port(), port);
}

fn a_number_that_passes_to_another_kind_of_device_is_another_generation(space: &Space) {
    space.run("ip link add tunnel0 type geneve external dstport 6081");
    let mut monitor = space.monitor();
    let first = known(&monitor, "tunnel0").port();
    space.run("ip link del tunnel0");
    space.run(&format!("ip link add tunnel0 index {} type vxlan external dstport 4789", first.ifindex));
    let events = events(&mut monitor);
    let second = known(&monitor, "tunnel0");
    assert_eq!(events, [Event::Gone(first), Event::Appeared(second.port())]);
    assert!(matches!(second.device.role, Role::Tunnel(tunnel) if tunnel.kind == TunnelKind::Vxlan));
}
