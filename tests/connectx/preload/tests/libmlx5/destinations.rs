//! Several destinations, samplers, meters and first hits: objects of their own, to which entries lead.

use std::time::Duration;

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_7};
use sluice_connectx::steering::Port;
use sluice_connectx_preload::Plugged;
use sluice_libmlx5::dv::{Action, Destination, Domain, Kind, Match, Meter, Object, Reformat, Table, command};
use sluice_libmlx5::verbs::Context;

use crate::actions::set;
use crate::frames::{ethernet, ipv4};
use crate::packet::{Packet, TCP, UDP};
use crate::rig::field as f;
use crate::rig::{FORMATS, agreeing, counters, device, exactly, open, play_in_switch, read_counter, value, walk};

fn to<'a>(action: &'a Action<'a>) -> Destination<'a> {
    Destination { to: action, reformat: None }
}

/// What of packets comes out, in order.
pub(crate) fn sent(plugged: &Plugged, from: Port, frame: &[u8]) -> Vec<(Port, Vec<u8>)> {
    walk(plugged, from, frame).sent
}

/// The switch with tables of levels 1 to 3, of which the first is where all packets come to.
pub(crate) fn play_in_tables(
    profile: sluice_connectx::profile::Profile,
    story: impl FnOnce(&Plugged, &Context, &Domain<'_>, [&Table<'_>; 3]),
) {
    play_in_switch(profile, |plugged, context, domain, first| {
        let (second, third) = (domain.table(2).unwrap(), domain.table(3).unwrap());
        story(plugged, context, domain, [first, &second, &third]);
    });
}

#[test]
fn packets_go_to_several_destinations_and_only_one_copy_gets_a_tunnel() {
    let packet = Packet::v4(UDP).frame();
    let length = u16::try_from(16 + packet.len()).unwrap().to_be_bytes();
    let udp = [0xc0, 0, 0x12, 0xb5, length[0], length[1], 0, 0, 8, 0, 0, 0, 0, 0, 42, 0];
    let whole = ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], UDP, &[&udp[..], &packet].concat()));
    for profile in FORMATS {
        play_in_tables(profile, |plugged, context, domain, [first, second, _]| {
            let (block, id) = counters(context, 0);
            let count = Action::count(&block, 0).unwrap();
            let (wire, host) = (domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let (encap, table) =
                (domain.reformat(Reformat::Encap, &whole[..50]).unwrap(), Action::to_table(second).unwrap());
            assert!(domain.to_all(&[to(&wire)]).is_err(), "one is not several");
            let all = domain
                .to_all(&[to(&host), Destination { to: &wire, reformat: Some(&encap) }, to(&table), to(&count)])
                .unwrap();
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
            let (matcher, behind) = (first.matcher(0, &mask).unwrap(), second.matcher(0, &mask).unwrap());
            let _all = matcher.rule(&wanted, &[&all]).unwrap();
            let _behind = behind.rule(&wanted, &[&wire]).unwrap();
            domain.sync().unwrap();
            assert!(agreeing(plugged, profile, domain) > 0);
            let copies = [(Port::Vport(0), packet.clone()), (Port::Wire, whole.clone()), (Port::Wire, packet.clone())];
            for from in [Port::Vport(0), Port::Wire] {
                assert_eq!(sent(plugged, from, &packet), copies);
            }
            let count = read_counter(&block, id);
            assert_eq!((count.packets, count.bytes), (2, 2 * packet.len() as u64));
        });
    }
}

#[test]
fn one_of_so_many_packets_is_sampled_and_all_go_on() {
    let packet = Packet::v4(UDP).frame();
    for profile in FORMATS {
        play_in_tables(profile, |plugged, _, domain, [first, _, third]| {
            let (wire, host) = (domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            // Format 0 loses register C 0 on the way, which a table in front of the third sets again.
            let restore = set(0x51, 0, 32, 0x77);
            let sampler = Action::sample(3, third, &[&host], restore).unwrap();
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
            let (matcher, behind) = (first.matcher(0, &mask).unwrap(), third.matcher(0, &mask).unwrap());
            let _sampling = matcher.rule(&wanted, &[&sampler]).unwrap();
            let _behind = behind.rule(&wanted, &[&wire]).unwrap();
            domain.sync().unwrap();
            assert!(agreeing(plugged, profile, domain) > 0);
            // Each side has a sampler of its own where registers have to be set again.
            for from in [Port::Wire, Port::Vport(0)] {
                let mut samples = 0;
                for _ in 0..6 {
                    let mut copies = sent(plugged, from, &packet);
                    assert_eq!(copies.pop(), Some((Port::Wire, packet.clone())));
                    samples += copies.len();
                    assert!(copies.iter().all(|copy| *copy == (Port::Vport(0), packet.clone())));
                }
                assert_eq!(samples, 2);
            }
        });
    }
}

/// `flow_meter_parameters`: committed and excess rate and size, as mantissa and exponent each.
pub(crate) fn parameters([cir, cbs, eir, ebs]: [(u32, u32); 4]) -> [u8; 32] {
    const VALID: u32 = 1 << 31;
    const COLORLESS: u32 = 3 << 28;
    const WHOLE_FRAMES: u32 = 1 << 24;
    let pair = |size: (u32, u32), rate: (u32, u32)| size.1 << 24 | size.0 << 16 | rate.1 << 8 | rate.0;
    let words = [VALID | COLORLESS | WHOLE_FRAMES, 0, pair(cbs, cir), 0, pair(ebs, eir), 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.try_into().unwrap()
}

pub(crate) const GREEN: u128 = 2;
const YELLOW: u128 = 1;
pub(crate) const RED: u128 = 0;

#[test]
fn a_meter_colors_packets_by_what_came_before_and_how_long_ago() {
    let packet = Packet::v4(UDP).frame();
    assert!(packet.len() < 64);
    for profile in FORMATS {
        play_in_tables(profile, |plugged, _, domain, [first, second, _]| {
            // 64 bytes at once and as many more for yellow; some 954 bytes a second, and none for yellow.
            let mut like =
                Meter { active: true, register: 1, parameters: parameters([(1, 20), (1, 6), (0, 0), (1, 6)]) };
            let meter = Action::meter(second, like).unwrap();
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
            let matcher = first.matcher(0, &mask).unwrap();
            let _metering = matcher.rule(&wanted, &[&meter]).unwrap();
            let ports = [(GREEN, 0xffff), (YELLOW, 0)];
            let low = |color| Match::default().with(f::REGISTER_C_1.0, 32, color);
            let colors = second.matcher(0, &low(0xff)).unwrap();
            let actions: Vec<_> = ports.iter().map(|(_, port)| domain.to_vport(*port).unwrap()).collect();
            let end = Action::drop_packets().unwrap();
            let _rules: Vec<_> =
                ports.iter().zip(&actions).map(|((color, _), to)| colors.rule(&low(*color), &[to]).unwrap()).collect();
            let _red = colors.rule(&low(RED), &[&end]).unwrap();
            domain.sync().unwrap();
            assert!(agreeing(plugged, profile, domain) > 0);
            let color = || match sent(plugged, Port::Wire, &packet).pop() {
                Some((Port::Wire, _)) => GREEN,
                Some((Port::Vport(0), _)) => YELLOW,
                _ => RED,
            };
            let pass = |time| plugged.device().with(|hca| hca.pass_time(time));
            assert_eq!([color(), color(), color()], [GREEN, YELLOW, RED]);
            pass(Duration::from_secs(1));
            assert_eq!([color(), color()], [GREEN, RED], "nothing fills what was in excess");
            const ACTIVE: u64 = 1;
            const ALL: u64 = 0x1f;
            like.active = false;
            meter.change_meter(like, ACTIVE).unwrap();
            assert_eq!([color(), color()], [GREEN, GREEN]);
            let wider = Meter { active: true, parameters: parameters([(1, 20), (1, 7), (1, 20), (1, 6)]), ..like };
            meter.change_meter(wider, ALL).unwrap();
            pass(Duration::from_secs(1));
            assert_eq!([color(), color(), color(), color()], [GREEN, GREEN, YELLOW, RED]);
        });
    }
}

/// An object of first hits in ranges of 2^`log`.
pub(crate) fn first_hits(context: &Context, pd: u32, log: u8) -> std::io::Result<(Object<'_>, u32)> {
    let mut input = [0; 0x10 + 0x40];
    input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
    input[7] = 0x25;
    input[12] = log;
    input[0x20..0x24].copy_from_slice(&pd.to_be_bytes());
    let (object, output) = Object::create(context, &input, 16)?;
    Ok((object, u32::from_be_bytes(output[8..12].try_into().unwrap())))
}

/// A protection domain by a command.
pub(crate) fn protection_domain(context: &Context) -> (Object<'_>, u32) {
    let mut input = [0; 16];
    input[..2].copy_from_slice(&0x800_u16.to_be_bytes());
    let (object, output) = Object::create(context, &input, 16).unwrap();
    (object, u32::from_be_bytes(output[8..12].try_into().unwrap()) & 0xff_ffff)
}

#[test]
fn the_first_hit_of_a_line_is_told_from_those_that_follow() {
    let packet = Packet::v4(TCP).frame();
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        play_in_tables(profile, |plugged, context, domain, [first, second, _]| {
            let (_pd, pd) = protection_domain(context);
            let (hits, number) = first_hits(context, pd, 1).unwrap();
            assert!(domain.hit(&hits, 0, 2).is_err(), "of each pair of registers the odd one is given");
            assert!(domain.hit(&hits, 1024, 3).is_err(), "two objects of 512 lines");
            // A line of the second object.
            let line = domain.hit(&hits, 512 + 9, 3).unwrap();
            let (onward, wire, host) =
                (Action::to_table(second).unwrap(), domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, TCP.into())]);
            let matcher = first.matcher(0, &mask).unwrap();
            let _hitting = matcher.rule(&wanted, &[&line, &onward]).unwrap();
            let (mask, fresh) = exactly(&[(f::REGISTER_C_3, 0)]);
            let behind = second.matcher(0, &mask).unwrap();
            let _fresh = behind.rule(&fresh, &[&wire]).unwrap();
            let _known = behind.rule(&value(&[(f::REGISTER_C_3, 1)]), &[&host]).unwrap();
            domain.sync().unwrap();
            assert!(agreeing(plugged, profile, domain) > 0);
            let lines = |object: u32| {
                let mut query = [0; 16];
                query[..2].copy_from_slice(&0xa02_u16.to_be_bytes());
                query[7] = 0x25;
                query[8..12].copy_from_slice(&object.to_be_bytes());
                hits.query(&query, 0x10 + 0x40 + 0x40).unwrap()[0x50..].to_vec()
            };
            assert_eq!(lines(number), [0; 64]);
            let ports: Vec<_> = (0..3).map(|_| sent(plugged, Port::Vport(0), &packet).pop().unwrap().0).collect();
            assert_eq!(ports, [Port::Wire, Port::Vport(0), Port::Vport(0)]);
            assert_eq!(lines(number), [0; 64], "it is a line of the other object");
        });
    }
}

#[test]
fn a_device_that_has_no_first_hits_refuses_their_objects_and_so_does_the_library() {
    let plugged = device(CONNECTX_5);
    let context = open(&plugged);
    {
        let (_pd, pd) = protection_domain(&context);
        assert!(first_hits(&context, pd, 0).is_err());
        let domain = Domain::create(&context, Kind::Fdb).unwrap();
        let (block, _) = counters(&context, 0);
        assert!(domain.hit(&block, 0, 1).is_err());
    }
    drop(context);
    let refusals = plugged.device().refusals();
    assert!(refusals.iter().any(|line| line.contains("general objects of type 0x25")), "{refusals:?}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

/// A block of 64 objects, with the same two meters in each.
pub(crate) fn meters(context: &Context, pd: u32, each: [[u8; 32]; 2]) -> std::io::Result<Object<'_>> {
    let mut input = [0; 0x10 + 0x80];
    input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
    input[7] = 0x24;
    input[12] = 6;
    input[0x20..0x24].copy_from_slice(&pd.to_be_bytes());
    input[0x50..].copy_from_slice(each.as_flattened());
    Ok(Object::create(context, &input, 16)?.0)
}

#[test]
fn a_meter_in_an_aso_object_colors_packets_and_the_next_table_tells_them_apart() {
    let packet = Packet::v4(UDP).frame();
    const COMES_GREEN: u32 = 1 << 2;
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        play_in_tables(profile, |plugged, context, domain, [first, second, _]| {
            let (_pd, pd) = protection_domain(context);
            // 128 bytes at once, some 1.9 million a second; the other one lets nothing pass.
            let like = [parameters([(0, 0); 4]), parameters([(1, 9), (2, 6), (0, 0), (0, 0)])];
            let meters = meters(context, pd, like).unwrap();
            assert!(domain.aso(&meters, 128, COMES_GREEN, 5).is_err(), "two meters of 64 objects");
            let (meter, other) = (
                domain.aso(&meters, 2 * 7 + 1, COMES_GREEN, 5).unwrap(),
                domain.aso(&meters, 2 * 7, COMES_GREEN, 3).unwrap(),
            );
            let (onward, wire, host) =
                (Action::to_table(second).unwrap(), domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let of = |protocol: u8| exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, protocol.into())]);
            let (mask, wanted) = of(UDP);
            let matcher = first.matcher(0, &mask).unwrap();
            let _metering = matcher.rule(&wanted, &[&meter, &onward]).unwrap();
            let _starving = matcher.rule(&of(TCP).1, &[&other, &onward]).unwrap();
            let low = |color| Match::default().with(f::REGISTER_C_5.0, 32, color);
            let colors = second.matcher(0, &low(0xff)).unwrap();
            let _green = colors.rule(&low(GREEN), &[&wire]).unwrap();
            let _red = colors.rule(&low(RED), &[&host]).unwrap();
            domain.sync().unwrap();
            assert!(agreeing(plugged, profile, domain) > 0);
            let port = || sent(plugged, Port::Vport(1), &packet).pop().unwrap().0;
            assert_eq!([port(), port(), port()], [Port::Wire, Port::Wire, Port::Vport(0)]);
            plugged.device().with(|hca| hca.pass_time(Duration::from_micros(40)));
            assert_eq!([port(), port()], [Port::Wire, Port::Vport(0)]);
            let starved = sent(plugged, Port::Vport(1), &Packet::v4(TCP).frame());
            assert_eq!(starved[0].0, Port::Vport(0), "of the other register nothing is asked, and it is red there");
        });
    }
}

#[test]
fn meters_and_connections_in_aso_objects_are_refused_on_a_device_that_has_none() {
    let plugged = device(CONNECTX_5);
    let context = open(&plugged);
    for kind in [0x24, 0x31] {
        let mut input = [0; 0x10 + 0x80];
        input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
        input[7] = kind;
        assert!(Object::create(&context, &input, 16).is_err());
        let refusals = plugged.device().refusals().join("\n");
        let why = format!("status 0x3, syndrome 0x408: general objects of type {kind:#x} are not modelled");
        assert!(refusals.contains(&why), "{refusals}");
    }
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn objects_that_cannot_be_are_refused_with_status_and_syndrome() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    // A sampler between tables that do not exist, and one that samples none of its packets.
    let sampler = |ratio: u8, table: u8| {
        let mut input = [0; 0x10 + 0x28];
        input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
        input[7] = 0x20;
        input[0x18] = 4;
        input[0x1f] = ratio;
        (input[0x23], input[0x27]) = (table, table);
        Object::create(&context, &input, 16).is_err()
    };
    assert!(sampler(1, 77) && sampler(0, 77));
    assert!(command(&context, &[0xa, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0], 16).is_err(), "not for programs");
    let refusals = plugged.device().refusals().join("\n");
    for why in ["status 0x5", "flow table 0x4d does not exist", "sample_ratio"] {
        assert!(refusals.contains(why), "{why} in\n{refusals}");
    }
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
