//! What is notified, and which ways are looked up again for it.

use super::*;
use crate::netlink::message::{Header, write};

const AF_BRIDGE: u8 = 7;
const AF_INET: u8 = 2;

const NEIGHBOUR: NeighbourKey = (Ifindex(3), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));
/// `NUD_REACHABLE`, `NUD_STALE` and `NUD_FAILED`
const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const FAILED: u16 = 0x20;

/// Has it hear a message with this payload.
fn hear(next_hops: &mut NextHops, kind: u16, payload: &[u8]) {
    next_hops.buffer.clear();
    let header = Header { kind, flags: 0, sequence: 0, port: 0 };
    write(&mut next_hops.buffer, header, |writer| writer.raw(payload)).unwrap();
    next_hops.hear(next_hops.buffer.len());
}

/// What is heard by a message with this payload, where the neighbour has answered lately.
fn heard(kind: u16, payload: &[u8]) -> Heard {
    let mut next_hops = NextHops::open().unwrap();
    let known = Neighbour { mac: Some([2, 0, 0, 0, 0, 2]), has_failed: false, is_certain: true };
    next_hops.neighbours.insert(NEIGHBOUR, known);
    hear(&mut next_hops, kind, payload);
    next_hops.heard
}

/// The payload of a message about the neighbour.
fn neighbour(family: u8, state: u16) -> Vec<u8> {
    let attributes = [8, 0, 1, 0, 192, 0, 2, 2, 10, 0, 2, 0, 2, 0, 0, 0, 0, 2, 0, 0];
    [&[family, 0, 0, 0][..], &3_u32.to_ne_bytes(), &state.to_ne_bytes(), &[0, 0], &attributes].concat()
}

#[test]
fn only_what_a_way_may_depend_on_has_one_looked_up_again() {
    let other = || Heard { may_be_any: true, ..Heard::default() };
    for kind in [kind::NEW_NEIGHBOUR, kind::DELETE_NEIGHBOUR] {
        assert_eq!(heard(kind, &neighbour(AF_BRIDGE, FAILED)), Heard::default(), "a bridge learns and forgets");
        let failed = Heard { neighbours: [NEIGHBOUR].into(), ..Heard::default() };
        assert_eq!(heard(kind, &neighbour(AF_INET, FAILED)), failed);
        assert_eq!(heard(kind, &neighbour(AF_INET, FAILED)[..3]), other(), "it may have been about anything");
    }
    assert_eq!(heard(kind::NEW_NEIGHBOUR, &neighbour(AF_INET, REACHABLE)), Heard::default());
    assert_eq!(heard(kind::NEW_NEIGHBOUR, &neighbour(AF_INET, STALE)), Heard::default(), "it is where it was");
    assert_eq!(heard(kind::NEW_LINK, &[0; 16]), other());
    assert_eq!(heard(kind::NEW_ROUTE, &[0; 12]), other(), "of no family that is known");
}

#[test]
fn a_changed_route_has_those_ways_looked_up_again_that_go_or_come_from_where_it_is_for() {
    let mut next_hops = NextHops::open().unwrap();
    let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 1, 0, last));
    let target = |destination, source| Target { destination: address(destination), source, ingress: None, ports: None };
    let targets = [target(1, None), target(9, Some(address(2))), target(9, Some(address(5))), target(9, None)];
    for target in targets {
        next_hops.follow(target);
    }
    let looked_at = |next_hops: &mut NextHops| {
        next_hops.refresh();
        let fresh = std::mem::take(&mut next_hops.fresh);
        next_hops.targets.values_mut().for_each(|followed| followed.is_fresh = false);
        BTreeSet::from_iter(fresh)
    };
    looked_at(&mut next_hops);
    let route = |length, destination: u8| {
        let header = [AF_INET, length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        [&header[..], &[8, 0, 1, 0, 10, 1, 0, destination]].concat()
    };
    hear(&mut next_hops, kind::NEW_ROUTE, &route(30, 0));
    hear(&mut next_hops, kind::DELETE_ROUTE, &route(30, 0));
    assert_eq!(looked_at(&mut next_hops), [targets[0], targets[1]].into());
    hear(&mut next_hops, kind::DELETE_ROUTE, &route(32, 7));
    assert_eq!(looked_at(&mut next_hops), BTreeSet::new());
    hear(&mut next_hops, kind::DELETE_ROUTE, &route(0, 0));
    assert_eq!(looked_at(&mut next_hops), targets.into());

    for number in 0..=u16::try_from(ROUTES).unwrap() {
        let [high, low] = number.to_be_bytes();
        let elsewhere = [&route(32, 0)[..16], &[10, 2, high, low]].concat();
        hear(&mut next_hops, kind::NEW_ROUTE, &elsewhere);
    }
    assert_eq!(looked_at(&mut next_hops), targets.into(), "that many are not looked at one by one");
    next_hops.retain(|known| *known == targets[1]);
    hear(&mut next_hops, kind::DELETE_ROUTE, &route(30, 0));
    assert_eq!(looked_at(&mut next_hops), [targets[1]].into());
    assert_eq!(next_hops.addressed.len(), 2);
}

#[test]
fn a_neighbour_that_the_kernel_refuses_to_look_for_is_not_known_and_no_error() {
    let mut next_hops = NextHops::open().unwrap();
    let key = (Ifindex(i32::MAX.cast_unsigned()), Ipv4Addr::new(192, 0, 2, 1).into());
    assert_eq!(next_hops.neighbour(key).unwrap(), Neighbour::default());
    assert!(next_hops.neighbours.contains_key(&key), "it is asked for again");
}

#[test]
fn what_an_error_kept_from_being_looked_at_is_told_afterwards() {
    let mut next_hops = NextHops::open().unwrap();
    for last in [1, 2] {
        let destination = Ipv4Addr::new(127, 0, 0, last).into();
        next_hops.follow(Target { destination, source: None, ingress: None, ports: None });
    }
    next_hops.control = Control::to_nobody().unwrap();
    for _ in 0..3 {
        assert!(matches!(next_hops.poll(Duration::ZERO), Err(LinkError::Socket { .. })));
    }
    next_hops.control = Control::open().unwrap();
    assert_eq!(next_hops.poll(Duration::ZERO).unwrap().len(), 2);
}
