//! Any packets, whole and broken.

use sluice_flow::action::{Commit, Conntrack as Action, NatSide};

use super::{CLIENT, SERVER, World, commit_nat, ip, look, nat};
use crate::conntrack::tuple::{Family, locate};
use crate::conntrack::*;

/// A packet that begins a connection, from one host to another.
fn packet_of(protocol: u8, family: Family, hosts: [u8; 2], ports: [u16; 2], body: &[u8]) -> Vec<u8> {
    let payload = match protocol {
        6 => frames::tcp(ports[0], ports[1], 0x02, 7, 0, 1000, b""),
        17 => frames::udp(ports[0], ports[1], body),
        _ => {
            let mut init = vec![1, 0, 0, 20, 0, 0, 0, 9];
            init.extend([0; 12]);
            frames::sctp(ports[0], ports[1], 0, &init)
        }
    };
    let packet = match family {
        Family::V4 => {
            let [source, destination] = hosts.map(|host| format!("10.0.0.{host}"));
            frames::v4(&source, &destination, protocol, &payload)
        }
        Family::V6 => {
            let [source, destination] = hosts.map(|host| format!("fd00::{host}"));
            frames::v6(&source, &destination, protocol, &payload)
        }
    };
    frames::summed(family, packet)
}

proptest::proptest! {
    #[test]
    fn whatever_is_translated_has_right_checksums_and_finds_back(
        protocol in proptest::sample::select(vec![6u8, 17, 132]),
        is_v4: bool,
        is_source: bool,
        hosts in [1u8..100, 100..200],
        ports: [u16; 2],
        range: Option<(u16, u16)>,
        body in proptest::collection::vec(0u8.., 0..40),
    ) {
        let family = if is_v4 { Family::V4 } else { Family::V6 };
        let addresses = if is_v4 { "198.51.100.1-198.51.100.9" } else { "2001:db8::1-2001:db8::9" };
        let side = if is_source { NatSide::Source } else { NatSide::Destination };
        let world = World::new();
        let question = packet_of(protocol, family, hosts, ports, &body);
        let sent = world.send(&commit_nat(side, addresses, range), &question).unwrap();
        assert!(frames::is_summed(ip(&sent), family));
        assert_ne!(ip(&sent), question);

        let left = Tuple::read(ip(&sent), &locate(ip(&sent), family).unwrap()).unwrap();
        let answer = packet_of(protocol, family, [hosts[1], hosts[0]], [ports[1], ports[0]], &body);
        let mut translated = answer.clone();
        let target = left.inverse().unwrap();
        for side in [NatSide::Source, NatSide::Destination] {
            rewrite::translate(&mut translated, family, &target, side).unwrap();
        }
        if protocol == 17 {
            let received = world.send(&nat(), &translated).unwrap();
            assert_eq!(ip(&received), answer);
        }
    }

    #[test]
    fn no_packet_however_broken_does_harm(
        protocol in proptest::sample::select(vec![6u8, 17, 132, 1, 58, 33, 47, 136, 50]),
        is_v4: bool,
        body in proptest::collection::vec(0u8.., 0..120),
        flips in proptest::collection::vec((0usize..60, 0u8..), 0..4),
        length in 0usize..160,
    ) {
        let world = World::new();
        let mut packet = if is_v4 {
            frames::v4(CLIENT, SERVER, protocol, &body)
        } else {
            frames::v6("fd00::1", "fd00::2", protocol, &body)
        };
        for (at, value) in flips {
            if let Some(byte) = packet.get_mut(at).filter(|_| at > 0) {
                *byte = value;
            }
        }
        packet.truncate(length.max(1));
        let action = commit_nat(NatSide::Source, if is_v4 { "198.51.100.1" } else { "2001:db8::1" }, None);
        for action in [look(), action, nat(), Action { commit: Commit::Force, ..look() }] {
            if let Ok(packet) = world.send(&action, &packet) {
                for is_last in [true, false] {
                    cut(&packet, &packet.bytes, is_last);
                }
            }
        }
    }
}
