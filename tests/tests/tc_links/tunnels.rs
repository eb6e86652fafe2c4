//! Tunnel devices that are made here, and those that are there.

use sluice_netdev::{
    Control, Mismatch, Ownership, Role, State, TunnelError, TunnelKind, WantedProtocol, WantedTunnel, ensure_tunnel,
    remove_tunnel,
};

use crate::space::Space;
use crate::stories;

stories![
    devices_of_every_kind_are_made_known_again_and_removed,
    a_right_device_of_somebody_else_is_adopted_and_left,
    a_device_that_went_down_is_set_up_again,
    a_name_of_something_else_is_refused,
    a_tunnel_device_that_differs_is_refused_with_what_differs,
    a_udp_port_that_is_taken_is_refused_in_the_kernels_words,
    what_is_no_name_of_a_device_is_refused_before_the_kernel_is_asked,
    a_device_that_is_gone_cannot_be_removed,
];

const MARK: &str = "sluice test";

fn wanted(name: &str, protocol: WantedProtocol) -> WantedTunnel {
    WantedTunnel { name: name.into(), protocol }
}

fn vxlan(udp_port: u16, group_policy: bool) -> WantedProtocol {
    WantedProtocol::Vxlan { udp_port: udp_port.try_into().unwrap(), group_policy }
}

fn geneve(udp_port: u16) -> WantedProtocol {
    WantedProtocol::Geneve { udp_port: udp_port.try_into().unwrap() }
}

fn ensure(control: &mut Control, wanted: &WantedTunnel) -> Result<Ownership, TunnelError> {
    ensure_tunnel(control, wanted, MARK).map(|(_, ownership)| ownership)
}

fn devices_of_every_kind_are_made_known_again_and_removed(space: &Space) {
    let mut control = space.control();
    let all = [
        (wanted("t0", vxlan(4789, false)), &["vxlan external", "dstport 4789"][..]),
        (wanted("t1", vxlan(4790, true)), &["vxlan external", "dstport 4790", "gbp"]),
        (wanted("t2", geneve(6081)), &["geneve external", "dstport 6081"]),
        (wanted("t3", WantedProtocol::Gretap), &["gretap external"]),
        (wanted("t4", WantedProtocol::Ip6Gretap), &["ip6gretap external"]),
        (wanted("t5", WantedProtocol::Erspan), &["erspan external"]),
        (wanted("t6", WantedProtocol::Ip6Erspan), &["ip6erspan external"]),
    ];
    for (wanted, words) in &all {
        let (device, ownership) = ensure_tunnel(&mut control, wanted, MARK).unwrap();
        assert_eq!((ownership, device.state), (Ownership::Made, State::Up), "{wanted:?}");
        // The judge of what it is is iproute2.
        let said = space.run(&format!("ip -d link show {}", wanted.name));
        for word in words.iter().chain(&[MARK]) {
            assert!(said.contains(word), "{word} is not in {said}");
        }
    }
    // As after a restart.
    let mut control = space.control();
    for (wanted, _) in &all {
        assert_eq!(ensure(&mut control, wanted).unwrap(), Ownership::Made);
    }
    for (wanted, _) in &all {
        remove_tunnel(&mut control, &wanted.name, MARK).unwrap();
    }
    let left = space.run("ip -o link");
    assert!(!left.contains(": t"), "{left}");
}

fn a_right_device_of_somebody_else_is_adopted_and_left(space: &Space) {
    space.run("ip link add vxlan9 type vxlan external dstport 4789");
    space.run("ip link set vxlan9 alias theirs");
    let mut control = space.control();
    assert_eq!(ensure(&mut control, &wanted("vxlan9", vxlan(4789, false))).unwrap(), Ownership::Adopted);
    let refused = remove_tunnel(&mut control, "vxlan9", MARK).unwrap_err();
    assert!(matches!(refused, TunnelError::Foreign { .. }), "{refused}");
    assert!(space.run("ip link show vxlan9").contains("alias theirs"));
}

fn a_device_that_went_down_is_set_up_again(space: &Space) {
    let mut control = space.control();
    let wanted = wanted("geneve9", geneve(6081));
    ensure(&mut control, &wanted).unwrap();
    space.run("ip link set geneve9 down");
    let (device, ownership) = ensure_tunnel(&mut control, &wanted, MARK).unwrap();
    assert_eq!((device.state, ownership), (State::Up, Ownership::Made));
    assert!(matches!(device.role, Role::Tunnel(_)));
}

fn a_name_of_something_else_is_refused(space: &Space) {
    space.run("ip link add taken type dummy");
    let mut control = space.control();
    for (name, is_driver) in [("taken", "dummy"), ("lo", "device without a driver's name")] {
        let refused = ensure(&mut control, &wanted(name, vxlan(4789, false))).unwrap_err();
        assert!(matches!(&refused, TunnelError::Taken { driver, .. } if driver == is_driver), "{refused}");
        let refused = remove_tunnel(&mut control, name, MARK).unwrap_err();
        assert!(matches!(refused, TunnelError::Foreign { .. }), "{refused}");
    }
}

fn a_tunnel_device_that_differs_is_refused_with_what_differs(space: &Space) {
    space.run("ip link add tun0 type vxlan external dstport 4789");
    space.run("ip link add single type vxlan id 7 remote 192.0.2.1 dstport 4800");
    let mut control = space.control();
    let with_groups = wanted("tun0", vxlan(4789, true));
    for (wanted, difference) in [
        (wanted("tun0", vxlan(4790, false)), Mismatch::UdpPort { found: Some(4789) }),
        (wanted("tun0", geneve(6081)), Mismatch::Kind { found: TunnelKind::Vxlan }),
        (with_groups, Mismatch::GroupPolicy { found: false }),
        (wanted("single", vxlan(4800, false)), Mismatch::Metadata { found: false }),
    ] {
        let refused = ensure(&mut control, &wanted).unwrap_err();
        let TunnelError::Different { mismatch, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*mismatch, difference);
    }
}

fn a_udp_port_that_is_taken_is_refused_in_the_kernels_words(space: &Space) {
    let mut control = space.control();
    ensure(&mut control, &wanted("first", vxlan(4789, false))).unwrap();
    let refused = ensure(&mut control, &wanted("second", vxlan(4789, false))).unwrap_err();
    let said = refused.to_string();
    assert!(said.starts_with("add tunnel device: File exists"), "{said}");
    assert!(said.ends_with("A VXLAN device with the specified VNI already exists"), "{said}");
    assert!(!space.run("ip -o link").contains("second"));
}

fn what_is_no_name_of_a_device_is_refused_before_the_kernel_is_asked(space: &Space) {
    let mut control = space.control();
    for name in ["", "a/b", "a b", "a:b", "sixteen_letters_", ".", ".."] {
        let refused = ensure(&mut control, &wanted(name, WantedProtocol::Gretap)).unwrap_err();
        assert!(matches!(refused, TunnelError::BadName { .. }), "{name}: {refused}");
    }
}

fn a_device_that_is_gone_cannot_be_removed(space: &Space) {
    let mut control = space.control();
    ensure(&mut control, &wanted("tun0", WantedProtocol::Gretap)).unwrap();
    space.run("ip link del tun0");
    let refused = remove_tunnel(&mut control, "tun0", MARK).unwrap_err();
    assert!(matches!(refused, TunnelError::Gone { .. }), "{refused}");
}
