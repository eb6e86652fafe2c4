//! The ways of packets that this host sends.

use std::net::IpAddr;
use std::time::Duration;

use sluice_netdev::{NextHop, NextHops, PacketPorts, Target};
use sluice_tests::world::eventually;

use crate::space::Space;

crate::stories![
    a_next_hop_says_whether_a_tag_is_put_on,
    a_way_follows_routes_rules_for_ports_and_how_long_packets_of_ipv6_may_be,
];

fn a_next_hop_says_whether_a_tag_is_put_on(space: &Space) {
    space.run("ip link add p0 type veth peer name far");
    space.run("ip link add link p0 name p0.7 type vlan id 7");
    for (device, network) in [("p0", "192.0.2"), ("p0.7", "198.51.100")] {
        space.run(&format!("ip address add {network}.1/24 dev {device}"));
        space.run(&format!("ip neighbour add {network}.2 lladdr 02:00:00:00:00:02 dev {device}"));
    }
    for device in ["far", "p0", "p0.7"] {
        space.run(&format!("ip link set {device} up"));
    }
    let mut next_hops = NextHops::open().unwrap();
    let mut of = |destination: [u8; 4]| {
        let target = Target { destination: destination.into(), source: None, ingress: None, ports: None };
        next_hops.follow(target);
        let mut found: Option<NextHop> = None;
        eventually("the next hop is known", || {
            let told = next_hops.poll(Duration::from_millis(100)).unwrap();
            found = told.into_iter().rev().find_map(|(of, next)| next.ok().filter(|_| of == target));
            found.is_some()
        });
        found.map(|next| (next.egress, next.puts_tag))
    };
    assert_eq!(of([192, 0, 2, 2]), Some(("p0".to_owned(), false)));
    assert_eq!(of([198, 51, 100, 2]), Some(("p0.7".to_owned(), true)));
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
