//! What a function receives: tags, TIRs, several of them, and samples.

use sluice_connectx::profile::Profile;
use sluice_connectx::steering::{Port, Received};
use sluice_connectx_preload::Plugged;
use sluice_libmlx5::dv::{Action, Destination, Domain, Kind, Match, Object, Table, Uar, Umem, event_queue};
use sluice_libmlx5::verbs::Context;

use crate::actions::set;
use crate::packet::{Packet, UDP};
use crate::rig::field as f;
use crate::rig::{FORMATS, counters, exactly, object, play, read_counter, walk};

/// Memory of the program's, for queues.
#[repr(align(4096))]
struct Pages([u8; 0x3000]);

/// Plays with a table that all packets to the function come to, another behind it, and two TIRs with their numbers. Receive
/// queues are not ready, so that frames end there.
fn play_received(
    profile: Profile,
    story: impl FnOnce(&Plugged, &Context, &Domain<'_>, [&Table<'_>; 2], [(&Object<'_>, u32); 2]),
) {
    // Completions, buffers, and doorbell records.
    const BUFFERS: u32 = 0x1000;
    const RECORDS: u32 = 0x2000;
    play(profile, |plugged, context| {
        let uar = Uar::allocate(context).unwrap();
        let queue = event_queue(context).unwrap();
        let mut pages = Pages([0; 0x3000]);
        let umem = Umem::register(context, &mut pages.0).unwrap();
        let (_domain, transport) = object(context, 0x816, &[], 16);
        let completion = [
            (0x10, 1 << 25),
            (0x14, umem.number()),
            (0x1c, 6 << 24 | uar.number()),
            (0x24, queue),
            (0x4c, RECORDS),
            (0x58, umem.number()),
        ];
        let (_completion, cqn) = object(context, 0x400, &completion, 0x110);
        let receive = [
            (0x28, cqn),
            (0x50, 1 << 28),
            (0x64, RECORDS + 64),
            (0x70, 6 << 16 | 4),
            (0x78, umem.number()),
            (0x7c, umem.number()),
            (0x84, BUFFERS),
        ];
        let (_receive, rqn) = object(context, 0x908, &receive, 0x110);
        let tir = || object(context, 0x900, &[(0x3c, rqn), (0x44, transport)], 0x110);
        let ((one, first), (other, second)) = (tir(), tir());
        let (switch, own) =
            (Domain::create(context, Kind::Fdb).unwrap(), Domain::create(context, Kind::NicReceive).unwrap());
        // The switch's table is empty, so that packets go to the function that owns it.
        let tables = [&switch, &own].map(|domain| (domain.table(0).unwrap(), domain.table(1).unwrap()));
        let behind = own.table(2).unwrap();
        let [(switch_root, switch_table), (own_root, own_table)] = &tables;
        let (switch_all, own_all) =
            (switch_root.matcher(0, &Match::default()).unwrap(), own_root.matcher(0, &Match::default()).unwrap());
        let (to_switch, to_own) = (Action::to_table(switch_table).unwrap(), Action::to_table(own_table).unwrap());
        let _first = switch_all.rule(&Match::default(), &[&to_switch]).unwrap();
        let _second = own_all.rule(&Match::default(), &[&to_own]).unwrap();
        story(plugged, context, &own, [own_table, &behind], [(&one, first), (&other, second)]);
    });
}

fn received(plugged: &Plugged, frame: &[u8]) -> Vec<Received> {
    walk(plugged, Port::Wire, frame).received
}

#[test]
fn a_function_receives_what_its_rules_lead_to_a_tir_with_tag_and_register() {
    let packet = Packet::v4(UDP);
    for profile in FORMATS {
        play_received(profile, |plugged, context, own, [table, behind], [(one, first), _]| {
            let (block, id) = counters(context, 0);
            let (count, tag) = (Action::count(&block, 0).unwrap(), Action::tag(0x12_3456).unwrap());
            let write = own.modify_header(&[set(0x50, 0, 32, 0xcafe_0001)]).unwrap();
            let (onward, to) = (Action::to_table(behind).unwrap(), Action::to_tir(one).unwrap());
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
            let (matcher, after) = (table.matcher(0, &mask).unwrap(), behind.matcher(0, &mask).unwrap());
            let _writing = matcher.rule(&wanted, &[&write, &count, &onward]).unwrap();
            let _receiving = after.rule(&wanted, &[&tag, &to]).unwrap();
            own.sync().unwrap();
            let frame = packet.frame();
            let expected = Received { tir: first, tag: Some(0x12_3456), metadata: 0xcafe_0001, frame: frame.clone() };
            assert_eq!(received(plugged, &frame), [expected]);
            assert_eq!(received(plugged, &Packet::v6(UDP).frame()), [], "no rule leads it anywhere");
            assert_eq!(read_counter(&block, id).packets, 1);
        });
    }
}

#[test]
fn several_tirs_receive_a_copy_each_and_one_of_so_many_is_sampled() {
    let frame = Packet::v4(UDP).frame();
    for profile in FORMATS {
        play_received(profile, |plugged, context, own, [table, behind], [(one, first), (other, second)]| {
            let (block, id) = counters(context, 0);
            let (count, tag) = (Action::count(&block, 0).unwrap(), Action::tag(7).unwrap());
            let (to_one, to_other) = (Action::to_tir(one).unwrap(), Action::to_tir(other).unwrap());
            let both = own.to_all(&[&to_one, &to_other].map(|to| Destination { to, reformat: None })).unwrap();
            let sampler = Action::sample(2, behind, &[&to_other, &tag, &count], 0).unwrap();
            let (mask, wanted) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, UDP.into())]);
            let (matcher, after) = (table.matcher(0, &mask).unwrap(), behind.matcher(0, &mask).unwrap());
            let _after = after.rule(&wanted, &[&both]).unwrap();
            let _sampling = matcher.rule(&wanted, &[&sampler]).unwrap();
            own.sync().unwrap();
            let got = || -> Vec<_> {
                received(plugged, &frame).into_iter().map(|received| (received.tir, received.tag)).collect()
            };
            assert_eq!(got(), [(first, None), (second, None)]);
            assert_eq!(got(), [(second, Some(7)), (first, None), (second, None)]);
            assert_eq!(read_counter(&block, id).packets, 1);
            assert!(own.to_vport(0).is_err(), "vports are of the switch");
        });
    }
}
