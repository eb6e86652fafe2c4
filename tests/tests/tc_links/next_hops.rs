//! The ways of packets that this host sends.

use std::net::IpAddr;
use std::time::Duration;

use sluice_netdev::{NextHop, NextHops, NoNextHop, PacketPorts, Target, VlanDevice, VlanTag};
use sluice_tests::world::eventually;

use crate::space::Space;

crate::stories![
    a_next_hop_says_which_tags_are_put_on_and_by_which_device_its_packets_leave,
    a_way_follows_routes_rules_for_ports_and_how_long_packets_of_ipv6_may_be,
];

fn a_next_hop_says_which_tags_are_put_on_and_by_which_device_its_packets_leave(space: &Space) {
    space.run("ip link add p0 type veth peer name far");
    space.run("ip link add link p0 name p0.7 type vlan id 7");
    space.run("ip link add link p0 name p0.8 type vlan protocol 802.1ad id 8");
    space.run("ip link add link p0.8 name p0.8.9 type vlan id 9 egress-qos-map 1:0 2:5");
    for device in ["far", "p0", "p0.8"] {
        space.run(&format!("ip link set {device} up"));
    }
    let networks = [("p0", [192, 0, 2, 2]), ("p0.7", [198, 51, 100, 2]), ("p0.8.9", [203, 0, 113, 2])];
    networks.into_iter().for_each(|(device, neighbour)| address(space, device, neighbour));
    let mut next_hops = NextHops::open().unwrap();
    let device = |protocol, id, lower: Option<&str>, gives_priorities| VlanDevice {
        tag: VlanTag { protocol, id },
        gives_priorities,
        lower: lower.map(str::to_owned),
    };
    let single = device(0x8100, 7, Some("p0"), false);
    let stacked = [device(0x8100, 9, Some("p0.8"), true), device(0x88a8, 8, Some("p0"), false)];
    for ((device, neighbour), vlans) in networks.into_iter().zip([&[][..], std::slice::from_ref(&single), &stacked]) {
        eventually_has(&mut next_hops, device, neighbour, vlans);
    }

    // A change is told of, without anything else.
    let [(_, _), (single_name, neighbour), (stacked_name, other_neighbour)] = networks;
    space.run("ip link set p0.8.9 type vlan egress-qos-map 2:0");
    let plain = device(0x8100, 9, Some("p0.8"), false);
    eventually_has(&mut next_hops, stacked_name, other_neighbour, &[plain, stacked[1].clone()]);
    space.run("ip link set p0.8 down");
    eventually(&format!("nothing leaves by {stacked_name}"), || {
        next_hop(&mut next_hops, other_neighbour).is_some_and(|told| told.is_err())
    });

    // What has the number of the device below in another network namespace is not that device.
    let other = space.another();
    space.run(&format!("ip link set p0.7 netns {}", other.name()));
    other.enter();
    address(&other, single_name, neighbour);
    let alone = VlanDevice { lower: None, ..single };
    eventually_has(&mut NextHops::open().unwrap(), single_name, neighbour, &[alone]);
    space.enter();
}

/// Brings a device up, with an address in the network of a neighbour, which is known.
fn address(space: &Space, device: &str, neighbour: [u8; 4]) {
    let [a, b, c, _] = neighbour;
    space.run(&format!("ip link set {device} up"));
    space.run(&format!("ip address add {a}.{b}.{c}.1/24 dev {device}"));
    let neighbour = IpAddr::from(neighbour);
    space.run(&format!("ip neighbour add {neighbour} lladdr 02:00:00:00:00:02 dev {device}"));
}

#[track_caller]
fn eventually_has(next_hops: &mut NextHops, device: &str, neighbour: [u8; 4], vlans: &[VlanDevice]) {
    eventually(&format!("{neighbour:?} is behind {device}, {vlans:?}"), || {
        let told = next_hop(next_hops, neighbour);
        told.and_then(Result::ok).is_some_and(|next| next.egress == device && *next.vlans == *vlans)
    });
}

/// What is told of the next hop of a destination, if that is something new.
fn next_hop(next_hops: &mut NextHops, destination: [u8; 4]) -> Option<Result<NextHop, NoNextHop>> {
    let target = Target { destination: destination.into(), source: None, ingress: None, ports: None };
    next_hops.follow(target);
    let told = next_hops.poll(Duration::from_millis(100)).unwrap();
    told.into_iter().rev().find_map(|(of, next)| (of == target).then_some(next))
}

fn a_way_follows_routes_rules_for_ports_and_how_long_packets_of_ipv6_may_be(space: &Space) {
    for (device, far, network) in [("p0", "far0", "1"), ("p1", "far1", "2")] {
        space.run(&format!("ip link add {device} type veth peer name {far}"));
        // An address that the kernel takes by itself would be told of a second later.
        for device in [device, far] {
            space.run(&format!("ip link set {device} addrgenmode none"));
        }
        space.run(&format!("ip address add 192.0.{network}.1/24 dev {device}"));
        space.run(&format!("ip address add fd0{network}::1/64 dev {device} nodad"));
        for neighbour in [format!("192.0.{network}.2"), format!("fd0{network}::2")] {
            space.run(&format!("ip neighbour add {neighbour} lladdr 02:00:00:00:00:02 dev {device}"));
        }
        for device in [device, far] {
            space.run(&format!("ip link set {device} up"));
        }
    }
    space.run("ip route add default via 192.0.1.2");
    space.run("ip route add fd09::/64 via fd01::2");
    let mut next_hops = NextHops::open().unwrap();
    let to = |destination: &str, ports| {
        let destination: IpAddr = destination.parse().unwrap();
        Target { destination, source: None, ingress: None, ports }
    };
    let mut eventually_is = |target: Target, expected: (&str, u32)| {
        next_hops.follow(target);
        let mut last: Option<NextHop> = None;
        eventually(&format!("{target:?} leaves by {expected:?}"), || {
            let told = next_hops.poll(Duration::from_millis(100)).unwrap();
            let next = told.into_iter().rev().find_map(|(of, next)| next.ok().filter(|_| of == target));
            last = next.or(last.take());
            last.as_ref().is_some_and(|next| (&*next.egress, next.mtu) == expected)
        });
        next_hops.look_at_ports()
    };

    // A route, whose change is for some addresses.
    let [near, other] = ["198.51.100.7", "203.0.113.7"].map(|address| to(address, None));
    eventually_is(other, ("p0", 1_500));
    eventually_is(near, ("p0", 1_500));
    space.run("ip route add 198.51.100.0/24 via 192.0.2.2");
    eventually_is(near, ("p1", 1_500));
    space.run("ip route replace 198.51.100.0/24 via 192.0.2.2 mtu 1300");
    eventually_is(near, ("p1", 1_300));
    space.run("ip route delete 198.51.100.0/24");
    assert!(!eventually_is(near, ("p0", 1_500)), "no rule looks at ports");

    // A rule for some ports.
    let names = PacketPorts { protocol: 17, source: 40_000, destination: 53 };
    let names = to("203.0.113.7", Some(names));
    eventually_is(names, ("p0", 1_500));
    space.run("ip route add default via 192.0.2.2 table 7");
    space.run("ip rule add ipproto udp dport 53 table 7");
    assert!(eventually_is(names, ("p1", 1_500)));
    space.run("ip rule delete ipproto udp dport 53 table 7");
    assert!(!eventually_is(names, ("p0", 1_500)));

    // What nobody is told of.
    let far = to("fd09::7", None);
    eventually_is(far, ("p0", 1_500));
    std::fs::write("/proc/sys/net/ipv6/conf/p0/mtu", "1400").unwrap();
    eventually_is(far, ("p0", 1_400));
}
