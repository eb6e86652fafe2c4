//! What each device is for.

use sluice_netdev::{LagDriver, Role, State, Tunnel, TunnelKind};

use crate::space::{Space, ifindex, known};
use crate::stories;

stories![
    every_kind_of_device_is_told_apart,
    tunnel_devices_tell_what_they_speak_and_on_which_port,
    a_bond_knows_its_members_and_a_team_too,
    the_other_end_of_a_pair_is_named_with_its_namespace,
    a_device_is_off_without_carrier_or_up,
];

fn every_kind_of_device_is_told_apart(space: &Space) {
    space.run("ip link add left type veth peer name right");
    space.run("modprobe tun");
    space.run("ip tuntap add tap0 mode tap");
    space.run("ip tuntap add tun0 mode tun");
    space.run("ip link add dummy0 type dummy");
    space.run("ip link add bridge0 type bridge");
    space.run("ip link add link dummy0 name vlan5 type vlan id 5");
    space.run("ip link add bond0 type bond");
    let monitor = space.monitor();
    for (name, role) in [
        ("lo", Role::Loopback),
        ("left", Role::Veth),
        ("right", Role::Veth),
        ("tap0", Role::Tap),
        ("tun0", Role::Other("tun".into())),
        ("dummy0", Role::Other("dummy".into())),
        ("bridge0", Role::Other("bridge".into())),
        ("vlan5", Role::Other("vlan".into())),
        ("bond0", Role::Lag(LagDriver::Bond)),
    ] {
        assert_eq!(known(&monitor, name).device.role, role, "{name}");
    }
    let below = known(&monitor, "vlan5").device.lower.unwrap();
    assert_eq!((below.ifindex, below.namespace), (ifindex(&monitor, "dummy0"), None));
}

fn tunnel_devices_tell_what_they_speak_and_on_which_port(space: &Space) {
    let devices = [
        ("vxlan external dstport 4789", tunnel(TunnelKind::Vxlan, true, Some(4789), false)),
        ("vxlan external gbp dstport 4790", tunnel(TunnelKind::Vxlan, true, Some(4790), true)),
        ("vxlan id 7 remote 192.0.2.1 dstport 8472", tunnel(TunnelKind::Vxlan, false, Some(8472), false)),
        ("geneve external dstport 6081", tunnel(TunnelKind::Geneve, true, Some(6081), false)),
        ("geneve id 7 remote 192.0.2.1 dstport 6082", tunnel(TunnelKind::Geneve, false, Some(6082), false)),
        ("gretap external", tunnel(TunnelKind::Gretap, true, None, false)),
        ("gretap remote 192.0.2.1 local 192.0.2.2", tunnel(TunnelKind::Gretap, false, None, false)),
        ("ip6gretap external", tunnel(TunnelKind::Ip6Gretap, true, None, false)),
        ("erspan external", tunnel(TunnelKind::Erspan, true, None, false)),
        ("ip6erspan external", tunnel(TunnelKind::Ip6Erspan, true, None, false)),
        ("gre external", tunnel(TunnelKind::Gre, true, None, false)),
    ];
    for (number, (arguments, _)) in devices.iter().enumerate() {
        space.run(&format!("ip link add device{number} type {arguments}"));
    }
    let monitor = space.monitor();
    for (number, (arguments, tunnel)) in devices.into_iter().enumerate() {
        let role = &known(&monitor, &format!("device{number}")).device.role;
        assert_eq!(*role, Role::Tunnel(tunnel), "{arguments}");
    }
}

fn tunnel(kind: TunnelKind, collects_metadata: bool, udp_port: Option<u16>, group_policy: bool) -> Tunnel {
    Tunnel { kind, collects_metadata, udp_port, group_policy }
}

fn a_bond_knows_its_members_and_a_team_too(space: &Space) {
    for (driver, master, first) in [("bond", "bond0", "dummy0"), ("team", "team0", "dummy1")] {
        space.run(&format!("ip link add {first} type dummy"));
        space.run(&format!("ip link add {first}b type dummy"));
        space.run(&format!("ip link add {master} type {driver}"));
        space.run(&format!("ip link set {first} master {master}"));
        space.run(&format!("ip link set {first}b master {master}"));
    }
    let monitor = space.monitor();
    for (driver, master, members) in
        [(LagDriver::Bond, "bond0", ["dummy0", "dummy0b"]), (LagDriver::Team, "team0", ["dummy1", "dummy1b"])]
    {
        assert_eq!(known(&monitor, master).device.role, Role::Lag(driver));
        let found: Vec<_> =
            monitor.links().members(ifindex(&monitor, master)).map(|known| &known.device.name).collect();
        assert_eq!(found, members);
    }
}

fn the_other_end_of_a_pair_is_named_with_its_namespace(space: &Space) {
    let other = space.another();
    space.run("ip link add near type veth peer name far");
    let monitor = space.monitor();
    let far = ifindex(&monitor, "far");
    let end = known(&monitor, "near").device.lower.unwrap();
    assert_eq!((end.ifindex, end.namespace), (far, None));

    space.run(&format!("ip link set far netns {}", other.name()));
    let monitor = space.monitor();
    let end = known(&monitor, "near").device.lower.unwrap();
    assert_eq!(space.name_of(end.namespace.unwrap()), other.name());
}

fn a_device_is_off_without_carrier_or_up(space: &Space) {
    space.run("ip link add left type veth peer name right");
    let state = |name| known(&space.monitor(), name).device.state;
    assert_eq!([state("left"), state("right")], [State::Off, State::Off]);
    space.run("ip link set left up");
    assert_eq!([state("left"), state("right")], [State::NoCarrier, State::Off]);
    space.run("ip link set right up");
    assert_eq!([state("left"), state("right")], [State::Up, State::Up]);
}
