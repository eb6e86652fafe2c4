//! Every action that is modelled: the packet that comes out, byte by byte.

use std::net::IpAddr;

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_7, Profile};
use sluice_connectx::steering::{Port, Walk};
use sluice_libmlx5::dv::{Action, Domain, Kind, Match, Reformat};

use crate::frames::{ethernet, ipv4};
use crate::packet::{Packet, TCP, UDP};
use crate::rig::field as f;
use crate::rig::{FORMATS, GENERATIONS, agreeing, counters, exactly, play, play_in_switch, read_counter, value, walk};

/// A modify-header action of the PRM that sets `length` bits of a field from `offset` on.
pub(crate) fn set(field: u64, offset: u64, length: u64, data: u64) -> u64 {
    1 << 60 | field << 48 | offset << 40 | (length & 0x1f) << 32 | data
}

fn add(field: u64, data: u64) -> u64 {
    2 << 60 | field << 48 | data & 0xffff_ffff
}

pub(crate) fn copy(from: u64, to: u64) -> u64 {
    3 << 60 | from << 48 | to << 16
}

const TTL: u64 = 0x0a;
pub(crate) const REGISTER_C_0: u64 = 0x51;
const REGISTER_C_1: u64 = 0x52;

/// What a rule on a packet does with it: where and how it comes out.
fn after(
    profile: Profile,
    packet: &Packet,
    from: Port,
    actions: impl for<'a> Fn(&'a Domain<'_>) -> Vec<Action<'a>>,
) -> Option<(Port, Vec<u8>)> {
    let frame = packet.frame();
    rewritten(profile, &frame, from, actions)
}

pub(crate) fn rewritten(
    profile: Profile,
    frame: &[u8],
    from: Port,
    actions: impl for<'a> Fn(&'a Domain<'_>) -> Vec<Action<'a>>,
) -> Option<(Port, Vec<u8>)> {
    let mut sent = walked(profile, frame, from, actions).sent;
    assert!(sent.len() <= 1);
    sent.pop()
}

/// The same with all that happened on the way.
pub(crate) fn walked(
    profile: Profile,
    frame: &[u8],
    from: Port,
    actions: impl for<'a> Fn(&'a Domain<'_>) -> Vec<Action<'a>>,
) -> Walk {
    let mut out = Walk::default();
    play_in_switch(profile, |plugged, _, domain, table| {
        // Decap and pop are for packets from the wire only, push and encap for those from vports: a rule is on one side.
        let source = u128::from(if from == Port::Wire { 0xffff_u16 } else { 0 });
        let (mask, wanted) = exactly(&[(f::SOURCE_PORT, source), (f::ETHERTYPE, ethertype(frame).into())]);
        let matcher = table.matcher(0, &mask).unwrap();
        let actions = actions(domain);
        let _rule = matcher.rule(&wanted, &actions.iter().collect::<Vec<_>>()).unwrap();
        domain.sync().unwrap();
        // An entry at least, and as many more as the actions take.
        assert!(agreeing(plugged, profile, domain) > 0);
        out = walk(plugged, from, frame);
    });
    out
}

/// Behind all tags.
fn ethertype(frame: &[u8]) -> u16 {
    let mut at = 12;
    loop {
        let found = u16::from_be_bytes([frame[at], frame[at + 1]]);
        if !matches!(found, 0x8100 | 0x88a8) {
            return found;
        }
        at += 4;
    }
}

#[test]
fn packets_go_to_vports_to_ib_ports_and_nowhere() {
    let packet = Packet::v4(UDP);
    for profile in FORMATS {
        let to = |vport| after(profile, &packet, Port::Wire, |domain| vec![domain.to_vport(vport).unwrap()]);
        assert_eq!(to(0), Some((Port::Vport(0), packet.frame())));
        assert_eq!(to(0xffff), Some((Port::Wire, packet.frame())));
        assert_eq!(after(profile, &packet, Port::Wire, |_| vec![Action::drop_packets().unwrap()]), None);
    }
    let by_port = |port| after(BLUEFIELD_2, &packet, Port::Wire, |domain| vec![domain.to_ib_port(port).unwrap()]);
    assert_eq!(by_port(1), Some((Port::Wire, packet.frame())));
    assert_eq!(by_port(3), Some((Port::Vport(1), packet.frame())));
}

#[test]
fn headers_are_rewritten_with_right_checksums() {
    let packet = Packet::v4(TCP);
    // Of the formats that can do both, each with lists in memory and with patterns and arguments.
    let lists = Profile { rewrites_by_pattern: false, ..CONNECTX_7 };
    for profile in GENERATIONS.into_iter().chain([lists]) {
        let done = |actions: &[u64]| {
            let out = after(profile, &packet, Port::Vport(0), |domain| {
                vec![domain.modify_header(actions).unwrap(), domain.to_vport(0xffff).unwrap()]
            });
            out.unwrap().1
        };
        assert_eq!(done(&[set(TTL, 0, 8, 63)]), Packet { ttl: 63, ..packet.clone() }.frame());
        assert_eq!(done(&[add(TTL, 0xff)]), Packet { ttl: 63, ..packet.clone() }.frame());
        let five = [
            set(0x01, 0, 32, 0x0a0b_0c0d),
            set(0x02, 0, 16, 0x0e0f),
            set(0x16, 0, 32, 0xc000_0263),
            set(0x09, 0, 16, 53),
            add(TTL, 0xff),
        ];
        let wanted = Packet {
            from: [0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f],
            destination: IpAddr::from([192, 0, 2, 99]),
            ports: [1000, 53],
            ttl: 63,
            ..packet.clone()
        };
        assert_eq!(done(&five), wanted.frame());
    }
}

#[test]
fn tags_are_pushed_towards_the_wire_and_popped_from_it() {
    let plain = Packet::v4(UDP);
    let tagged = Packet { tags: vec![(0x8100, 0x2064)], ..plain.clone() };
    let twice = Packet { tags: vec![(0x88a8, 0x0007), (0x8100, 0x2064)], ..plain.clone() };
    for profile in FORMATS {
        let pushed = after(profile, &plain, Port::Vport(0), |domain| {
            vec![domain.push_vlan(0x8100, 0x2064).unwrap(), domain.to_vport(0xffff).unwrap()]
        });
        assert_eq!(pushed, Some((Port::Wire, tagged.frame())));
        let pushed = after(profile, &plain, Port::Vport(0), |domain| {
            let tags = [(0x8100, 0x2064), (0x88a8, 0x0007)];
            let mut actions: Vec<_> = tags.map(|(kind, tci)| domain.push_vlan(kind, tci).unwrap()).into();
            actions.push(domain.to_vport(0xffff).unwrap());
            actions
        });
        assert_eq!(pushed, Some((Port::Wire, twice.frame())));
        let popped = after(profile, &tagged, Port::Wire, |domain| {
            vec![Action::pop_vlan().unwrap(), domain.to_vport(0).unwrap()]
        });
        assert_eq!(popped, Some((Port::Vport(0), plain.frame())));
    }
}

#[test]
fn tags_are_exchanged_and_stripped_together_with_other_changes() {
    let plain = Packet::v4(UDP);
    let twice = Packet { tags: vec![(0x88a8, 0x0007), (0x8100, 0x2064)], ..plain.clone() };
    let one = Packet { tags: vec![(0x8100, 0x2064)], ..plain.clone() };
    let other = Packet { tags: vec![(0x88a8, 0x0009)], ..plain.clone() };
    for profile in FORMATS {
        let popped = after(profile, &twice, Port::Wire, |domain| {
            vec![Action::pop_vlan().unwrap(), Action::pop_vlan().unwrap(), domain.to_vport(0).unwrap()]
        });
        assert_eq!(popped, Some((Port::Vport(0), plain.frame())));
        let popped = after(profile, &one, Port::Wire, |domain| {
            let change = domain.modify_header(&[set(TTL, 0, 8, 63)]).unwrap();
            vec![Action::pop_vlan().unwrap(), change, domain.to_vport(0).unwrap()]
        });
        assert_eq!(popped, Some((Port::Vport(0), Packet { ttl: 63, ..plain.clone() }.frame())));
        let pushed = after(profile, &plain, Port::Vport(0), |domain| {
            let change = domain.modify_header(&[set(TTL, 0, 8, 63)]).unwrap();
            vec![change, domain.push_vlan(0x88a8, 0x0009).unwrap(), domain.to_vport(0xffff).unwrap()]
        });
        assert_eq!(pushed, Some((Port::Wire, Packet { ttl: 63, ..other.clone() }.frame())));
    }
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        let sent = after(profile, &one, Port::Vport(0), |domain| {
            vec![
                Action::pop_vlan().unwrap(),
                domain.push_vlan(0x88a8, 0x0009).unwrap(),
                domain.to_vport(0xffff).unwrap(),
            ]
        });
        assert_eq!(sent, Some((Port::Wire, other.frame())));
        // From the wire the library wants a rewrite between the two.
        let received = after(profile, &one, Port::Wire, |domain| {
            let change = domain.modify_header(&[set(TTL, 0, 8, 63)]).unwrap();
            vec![
                Action::pop_vlan().unwrap(),
                change,
                domain.push_vlan(0x88a8, 0x0009).unwrap(),
                domain.to_vport(0).unwrap(),
            ]
        });
        assert_eq!(received, Some((Port::Vport(0), Packet { ttl: 63, ..other.clone() }.frame())));
    }
}

#[test]
fn what_an_entry_of_the_generation_cannot_do_the_library_refuses() {
    let refused = |profile: Profile, source: u16, actions: &dyn for<'a> Fn(&'a Domain<'_>) -> Vec<Action<'a>>| {
        play_in_switch(profile, |_, _, domain, table| {
            let (mask, wanted) = exactly(&[(f::SOURCE_PORT, source.into())]);
            let matcher = table.matcher(0, &mask).unwrap();
            let actions = actions(domain);
            assert!(matcher.rule(&wanted, &actions.iter().collect::<Vec<_>>()).is_err());
        });
    };
    refused(CONNECTX_5, 0, &|domain| vec![Action::pop_vlan().unwrap(), domain.to_vport(0xffff).unwrap()]);
    refused(CONNECTX_5, 0xffff, &|domain| vec![domain.push_vlan(0x8100, 1).unwrap(), domain.to_vport(0).unwrap()]);
    for profile in FORMATS {
        // No place is known where inner headers would be rewritten.
        play_in_switch(profile, |_, _, domain, _| {
            assert!(domain.modify_header(&[set(0x3a, 0, 8, 63)]).is_err());
            assert!(domain.modify_header(&[set(0x45, 0, 32, 0)]).is_err());
        });
        // What comes after the end is never done.
        refused(profile, 0, &|domain| vec![domain.to_vport(0xffff).unwrap(), domain.push_vlan(0x8100, 1).unwrap()]);
    }
}

#[test]
fn the_default_of_a_table_can_be_asked_for() {
    let packet = Packet::v4(UDP);
    for profile in FORMATS {
        let out = after(profile, &packet, Port::Wire, |_| vec![Action::default_miss().unwrap()]);
        assert_eq!(out, Some((Port::Vport(profile.own_vport()), packet.frame())));
    }
}

#[test]
fn tunnel_headers_are_put_on_towards_the_wire_and_taken_off_from_it() {
    let inside = Packet::v4(TCP).frame();
    let length = u16::try_from(16 + inside.len()).unwrap().to_be_bytes();
    let udp = [0xc0, 0, 0x12, 0xb5, length[0], length[1], 0, 0, 8, 0, 0, 0, 0, 0, 42, 0];
    let whole = ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], UDP, &[&udp[..], &inside].concat()));
    let headers = &whole[..50];
    for profile in FORMATS {
        let out = rewritten(profile, &inside, Port::Vport(0), |domain| {
            vec![domain.reformat(Reformat::Encap, headers).unwrap(), domain.to_vport(0xffff).unwrap()]
        });
        let (port, frame) = out.unwrap();
        assert_eq!((port, &frame[50..]), (Port::Wire, &inside[..]));
        assert_eq!(frame, whole, "lengths and the checksum are of the whole packet");
        let back = rewritten(profile, &whole, Port::Wire, |domain| {
            vec![domain.reformat(Reformat::Decap, &[]).unwrap(), domain.to_vport(0).unwrap()]
        });
        assert_eq!(back, Some((Port::Vport(0), inside.clone())));
    }
}

#[test]
fn registers_that_one_table_writes_are_matched_by_the_next_to_the_bit() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let (root, first, second) = (domain.table(0).unwrap(), domain.table(1).unwrap(), domain.table(2).unwrap());
            let all = root.matcher(0, &Match::default()).unwrap();
            let (to_first, to_second) = (Action::to_table(&first).unwrap(), Action::to_table(&second).unwrap());
            let _jump = all.rule(&Match::default(), &[&to_first]).unwrap();
            let (mask, any) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
            let matcher = first.matcher(0, &mask).unwrap();
            let write = domain.modify_header(&[set(REGISTER_C_1, 8, 8, 0x5a), copy(0x16, REGISTER_C_0)]).unwrap();
            let _write = matcher.rule(&any, &[&write, &to_second]).unwrap();
            let fields = |low| [(f::REGISTER_C_0, 0x0a09_0909_u128), (f::REGISTER_C_1, low)];
            let (mask, wanted) = exactly(&fields(0x5a00));
            let registers = second.matcher(0, &mask).unwrap();
            let (block, id) = counters(context, 0);
            let (count, to) = (Action::count(&block, 0).unwrap(), domain.to_vport(0xffff).unwrap());
            let arrives = || {
                domain.sync().unwrap();
                let walk = walk(plugged, Port::Vport(0), &Packet::v4(UDP).frame());
                walk.sent.first().map(|(port, _)| *port) == Some(Port::Wire)
            };
            {
                let _rule = registers.rule(&wanted, &[&count, &to]).unwrap();
                assert!(arrives());
            }
            let _rule = registers.rule(&value(&fields(0x5b00)), &[&count, &to]).unwrap();
            assert!(!arrives());
            assert_eq!(read_counter(&block, id).packets, 1);
        });
    }
}

#[test]
fn of_several_matches_the_lower_priority_number_wins_and_tables_follow_each_other() {
    play_in_switch(CONNECTX_5, |plugged, _, domain, table| {
        let (to_wire, end) = (domain.to_vport(0xffff).unwrap(), Action::drop_packets().unwrap());
        let (narrow, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
        let (wide, any) = exactly(&[(f::ETHERTYPE, 0x0800)]);
        let (low, high) = (table.matcher(5, &wide).unwrap(), table.matcher(2, &narrow).unwrap());
        let _low = low.rule(&any, &[&end]).unwrap();
        let _high = high.rule(&wanted, &[&to_wire]).unwrap();
        domain.sync().unwrap();
        let port =
            |protocol| walk(plugged, Port::Vport(0), &Packet::v4(protocol).frame()).sent.first().map(|sent| sent.0);
        assert_eq!(port(UDP), Some(Port::Wire));
        assert_eq!(port(TCP), None);
    });
}
