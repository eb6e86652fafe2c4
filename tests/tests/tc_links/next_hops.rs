//! The ways of packets that this host sends.

use std::time::Duration;

use sluice_netdev::{NextHop, NextHops, Target};
use sluice_tests::world::eventually;

use crate::space::Space;

crate::stories![a_next_hop_says_whether_a_tag_is_put_on];

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
        let target = Target { destination: destination.into(), source: None, ingress: None };
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
