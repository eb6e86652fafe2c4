//! ASO objects of first hits and of meters: changes of actions on them, and what crosses domains.

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_7};
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match, Object};

use crate::destinations::{GREEN, RED, first_hits, meters, parameters, play_in_tables, protection_domain, sent};
use crate::packet::{ICMP, Packet, TCP, UDP};
use crate::rig::field as f;
use crate::rig::{FORMATS, agreeing, counters, exactly, open, play, play_in_switch, read_counter, value, walk};

/// The error number of what cannot be.
const INVALID: i32 = 22;

/// Which lines of an object of first hits were hit, the lowest bit of the last byte first.
fn lines(hits: &Object<'_>, number: u32) -> Vec<u8> {
    let mut query = [0; 16];
    query[..2].copy_from_slice(&0xa02_u16.to_be_bytes());
    query[7] = 0x25;
    query[8..12].copy_from_slice(&number.to_be_bytes());
    hits.query(&query, 0x10 + 0x40 + 0x40).unwrap()[0x50..].to_vec()
}

#[test]
fn a_change_of_first_hits_is_for_rules_that_are_made_after_it() {
    const ONLY_READ: u32 = 0;
    const SET: u32 = 1;
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        play_in_tables(profile, |plugged, context, domain, [first, second, _]| {
            let (_pd, pd) = protection_domain(context);
            let (hits, number) = first_hits(context, pd, 1).unwrap();
            let line = domain.hit(&hits, 3, 3).unwrap();
            let (onward, wire, host) =
                (Action::to_table(second).unwrap(), domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let of = |protocol: u8| exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, protocol.into())]);
            let matcher = first.matcher(0, &of(TCP).0).unwrap();
            let _before = matcher.rule(&of(TCP).1, &[&line, &onward]).unwrap();
            for (offset, flags, register) in [(3, SET, 2), (3, SET, 7), (1024, SET, 3), (3, 2, 3)] {
                assert!(line.change_aso(offset, flags, register).is_err(), "{offset} {flags} {register}");
            }
            line.change_aso(512 + 4, SET, 5).unwrap();
            let _after = matcher.rule(&of(UDP).1, &[&line, &onward]).unwrap();
            line.change_aso(512 + 5, ONLY_READ, 5).unwrap();
            let _reading = matcher.rule(&of(ICMP).1, &[&line, &onward]).unwrap();
            line.change_aso(0, SET, 1).unwrap();
            let known = [(f::REGISTER_C_3, TCP), (f::REGISTER_C_5, UDP), (f::REGISTER_C_5, ICMP)]
                .map(|(register, of)| exactly(&[(register, 1), (f::IP_VERSION, 4), (f::PROTOCOL, of.into())]));
            let matchers = [0, 1].map(|number| second.matcher(0, &known[number].0).unwrap());
            let _known: Vec<_> = [0, 1, 1]
                .iter()
                .zip(&known)
                .map(|(number, (_, of))| matchers[*number].rule(of, &[&host]).unwrap())
                .collect();
            let all = second.matcher(1, &exactly(&[(f::IP_VERSION, 4)]).0).unwrap();
            let _rest = all.rule(&value(&[(f::IP_VERSION, 4)]), &[&wire]).unwrap();
            domain.sync().unwrap();
            assert!(agreeing(plugged, profile, domain) > 0);
            let ports = [TCP, UDP, ICMP].map(|protocol| {
                let packet = Packet::v4(protocol).frame();
                [0; 2].map(|_| sent(plugged, Port::Vport(1), &packet).pop().unwrap().0)
            });
            let hit = [Port::Wire, Port::Vport(0)];
            assert_eq!(ports, [hit, hit, [Port::Wire, Port::Wire]], "the last one only reads");
            let only_the_fourth = [&[0; 63][..], &[1 << 3]].concat();
            assert_eq!(lines(&hits, number), only_the_fourth, "the others are of the second object");
        });
    }
}

#[test]
fn a_change_of_a_meter_is_for_rules_that_are_made_after_it() {
    const COMES_GREEN: u32 = 1 << 2;
    let packets = [Packet::v4(TCP).frame(), Packet::v4(UDP).frame()];
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        play_in_tables(profile, |plugged, context, domain, [first, second, _]| {
            let (_pd, pd) = protection_domain(context);
            let like = [parameters([(0, 0); 4]), parameters([(1, 9), (2, 9), (0, 0), (0, 0)])];
            let meters = meters(context, pd, like).unwrap();
            let meter = domain.aso(&meters, 2 * 7, COMES_GREEN, 5).unwrap();
            let (onward, wire, host) =
                (Action::to_table(second).unwrap(), domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let of = |protocol: u8| exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, protocol.into())]);
            let matcher = first.matcher(0, &of(TCP).0).unwrap();
            let _starving = matcher.rule(&of(TCP).1, &[&meter, &onward]).unwrap();
            for (offset, flags, register) in [(14, COMES_GREEN, 4), (128, COMES_GREEN, 5), (14, 0, 5), (14, 16, 5)] {
                assert!(meter.change_aso(offset, flags, register).is_err(), "{offset} {flags} {register}");
            }
            meter.change_aso(2 * 9 + 1, COMES_GREEN, 5).unwrap();
            let _passing = matcher.rule(&of(UDP).1, &[&meter, &onward]).unwrap();
            let low = |color| Match::default().with(f::REGISTER_C_5.0, 32, color);
            let colors = second.matcher(0, &low(0xff)).unwrap();
            let _green = colors.rule(&low(GREEN), &[&wire]).unwrap();
            let _red = colors.rule(&low(RED), &[&host]).unwrap();
            domain.sync().unwrap();
            let ports = packets.each_ref().map(|packet| sent(plugged, Port::Vport(1), packet).pop().unwrap().0);
            assert_eq!(ports, [Port::Vport(0), Port::Wire]);
        });
    }
}

#[test]
fn an_action_on_first_hits_of_one_domain_acts_in_another_of_its_context_and_in_none_of_another() {
    let packet = Packet::v4(TCP).frame();
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        play_in_switch(profile, |plugged, context, switch, switch_table| {
            let own = Domain::create(context, Kind::NicReceive).unwrap();
            let [root, first, second] = [0, 1, 2].map(|level| own.table(level).unwrap());
            let all = root.matcher(0, &Match::default()).unwrap();
            let (to_first, to_second) = (Action::to_table(&first).unwrap(), Action::to_table(&second).unwrap());
            let _jump = all.rule(&Match::default(), &[&to_first]).unwrap();
            let (_pd, pd) = protection_domain(context);
            let (hits, _) = first_hits(context, pd, 0).unwrap();
            let (line, to_own) = (switch.hit(&hits, 3, 3).unwrap(), switch.to_vport(profile.own_vport()).unwrap());
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, TCP.into())]);
            let (in_switch, behind) = (switch_table.matcher(0, &mask).unwrap(), first.matcher(0, &mask).unwrap());
            let in_switch_too = in_switch.rule(&wanted, &[&line, &to_own]).unwrap();
            let _behind = behind.rule(&wanted, &[&line, &to_second]).unwrap();
            let (block, id) = counters(context, 0);
            let (count, end) = (Action::count(&block, 0).unwrap(), Action::drop_packets().unwrap());
            let (mask, known) = exactly(&[(f::REGISTER_C_3, 1)]);
            let told = second.matcher(0, &mask).unwrap();
            let _known = told.rule(&known, &[&count, &end]).unwrap();
            own.sync().unwrap();
            switch.sync().unwrap();
            walk(plugged, Port::Wire, &packet);
            assert_eq!(read_counter(&block, id).packets, 1, "the line was hit in the switch");

            // By another context of the same device.
            let other = open(plugged);
            {
                let elsewhere = Domain::create(&other, Kind::NicReceive).unwrap();
                let table = elsewhere.table(1).unwrap();
                let matcher = table.matcher(0, &exactly(&[(f::IP_VERSION, 4)]).0).unwrap();
                let error = matcher.rule(&value(&[(f::IP_VERSION, 4)]), &[&line, &end]).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(INVALID));
            }
            drop(in_switch_too);
        });
    }
}

#[test]
fn the_library_links_no_first_hits_and_no_meters_to_other_domains() {
    const NOT_SUPPORTED: i32 = 95;
    for profile in FORMATS {
        play(profile, |_, context| {
            let (switch, own) =
                (Domain::create(context, Kind::Fdb).unwrap(), Domain::create(context, Kind::NicReceive).unwrap());
            let (_pd, pd) = protection_domain(context);
            let objects = if profile == CONNECTX_5 {
                vec![counters(context, 0).0]
            } else {
                vec![first_hits(context, pd, 0).unwrap().0, meters(context, pd, [parameters([(0, 0); 4]); 2]).unwrap()]
            };
            for object in objects {
                let link = object.link(&switch, &own, 1, 1).unwrap_err();
                assert_eq!(link.raw_os_error(), Some(NOT_SUPPORTED));
                let unlink = object.unlink(&own).unwrap_err();
                // Of what was not linked, where anything can be.
                let why = if profile == CONNECTX_5 { NOT_SUPPORTED } else { INVALID };
                assert_eq!(unlink.raw_os_error(), Some(why));
            }
        });
    }
}
