//! Flows of verbs, in the kernel's tables: what they take and what not, by priority, and what they leave.

use sluice_connectx::profile::{BLUEFIELD_2, Profile};
use sluice_connectx::steering::Port;
use sluice_connectx_preload::Plugged;
use sluice_libmlx5::verbs::{CompletionQueue, Context, FlowKind, QueuePair, Spec, Wanted};

use crate::frames::{datagram, ethernet, ipv4, ipv6, segment, tagged};
use crate::rig::{FORMATS, device, open, play, walk};

const BUFFER: u32 = 256;
const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EOPNOTSUPP: i32 = 95;
/// Of `enum ibv_flow_flags`.
const DOES_NOT_TRAP: u32 = 1 << 1;
const EGRESS: u32 = 1 << 2;

fn v4(to: [u8; 4]) -> Vec<u8> {
    ethernet(0x0800, &ipv4([10, 0, 0, 1], to, 17, &datagram(1111, 2222)))
}

/// Matches a destination, of which `mask` says the bits of its last byte.
fn to(destination: [u8; 4], mask: u8) -> Spec {
    let filter = |address: [u8; 4]| [&[0; 4][..], &address, &[0; 4]].concat();
    Spec::header(Spec::V4, &filter(destination), &filter([0xff, 0xff, 0xff, mask]))
}

/// Plays with a pair that is ready, and what tells of frames that it has received.
fn play_pair(profile: Profile, story: impl FnOnce(&Plugged, &Context, &QueuePair<'_>, &CompletionQueue<'_>)) {
    play(profile, |plugged, context| {
        plugged.device().open_slow_path().unwrap();
        with_pair(context, |pair, told| story(plugged, context, pair, told));
    });
}

fn with_pair(context: &Context, story: impl FnOnce(&QueuePair<'_>, &CompletionQueue<'_>)) {
    let mut memory = vec![0; BUFFER as usize];
    let protection = context.protection_domain().unwrap();
    let region = protection.register(&mut memory).unwrap();
    let told = context.completion_queue(127).unwrap();
    let pair = protection.queue_pair((&told, 1), (&told, 64)).unwrap();
    pair.start().unwrap();
    (0..64).for_each(|number| pair.receive(number, &region, 0, BUFFER).unwrap());
    story(&pair, &told);
}

/// The tag with which a frame comes to the pair, if it does.
fn comes(plugged: &Plugged, told: &CompletionQueue<'_>, frame: &[u8]) -> Option<u32> {
    walk(plugged, Port::Wire, frame);
    told.poll().unwrap().map(|completion| completion.pair_or_tag)
}

#[test]
fn a_flow_takes_what_its_headers_match_and_nothing_where_one_bit_differs() {
    for profile in FORMATS {
        play_pair(profile, |plugged, _, pair, told| {
            let tcp = |port| ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, &segment(1000, port, 0x10)));
            let v6 = |last| ethernet(0x86dd, &ipv6(1, last, 17, &datagram(1111, 2222)));
            let address = |last: u128| [[0; 16], last.to_be_bytes()].concat();
            let v6_filter = |last| [&address(last)[..], &[0; 8]].concat();
            let mac = |frame: &[u8], vlan: u16| [&frame[..6], &[0; 8], &vlan.to_be_bytes()].concat();
            let plain = v4([10, 0, 0, 2]);
            let mut other_mac = plain.clone();
            other_mac[5] ^= 1;
            let whole = [[0xff; 6].as_slice(), &[0; 10]].concat();
            let vlan = [[0; 14].as_slice(), &[0x0f, 0xff]].concat();
            let ports = |to: u16| [to.to_be_bytes(), [0; 2]].concat();
            for (specs, hit, miss) in [
                (vec![to([10, 0, 0, 2], 0xff)], plain.clone(), v4([10, 0, 0, 3])),
                (vec![to([10, 0, 0, 2], 0xfe)], v4([10, 0, 0, 3]), v4([10, 0, 0, 6])),
                (vec![Spec::header(Spec::ETHERNET, &mac(&plain, 0), &whole)], plain.clone(), other_mac),
                (
                    vec![Spec::header(Spec::ETHERNET, &mac(&plain, 100), &vlan)],
                    tagged(&plain, 0x2000 | 100),
                    tagged(&plain, 101),
                ),
                (
                    vec![to([10, 0, 0, 2], 0xff), Spec::header(Spec::TCP, &ports(80), &ports(u16::MAX))],
                    tcp(80),
                    tcp(81),
                ),
                (vec![Spec::header(Spec::UDP, &ports(2222), &ports(u16::MAX))], plain.clone(), tcp(2222)),
                (vec![Spec::header(Spec::V6, &v6_filter(2), &v6_filter(u128::MAX))], v6(2), v6(3)),
            ] {
                let specs: Vec<_> = specs.iter().collect();
                assert_eq!(comes(plugged, told, &hit), None, "without the flow");
                let flow = pair.flow(FlowKind::Normal, (0, 0), &specs).unwrap();
                assert_eq!(comes(plugged, told, &miss), None, "{specs:?}");
                assert_eq!(comes(plugged, told, &hit), Some(0), "{specs:?}");
                drop(flow);
                assert_eq!(comes(plugged, told, &hit), None, "the flow is gone");
            }
        });
    }
}

#[test]
fn a_flow_takes_what_is_in_a_tunnel() {
    play_pair(BLUEFIELD_2, |plugged, _, pair, told| {
        let inner = v4([10, 0, 0, 2]);
        let tunnelled = |network: u8| {
            let vxlan = [&[8, 0, 0, 0, 0, 0, network, 0][..], &inner].concat();
            let length = u16::try_from(8 + vxlan.len()).unwrap();
            let udp = [&[0x13, 0x88, 0x12, 0xb5][..], &length.to_be_bytes(), &[0, 0], &vxlan].concat();
            ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], 17, &udp))
        };
        let network = Spec::header(Spec::VXLAN, &77_u32.to_be_bytes(), &0x00ff_ffff_u32.to_be_bytes());
        let udp = Spec::header(Spec::UDP, &[0x12, 0xb5, 0, 0], &[0xff, 0xff, 0, 0]);
        let inside = |last| {
            let filter = |address: [u8; 4]| [&[0; 4][..], &address, &[0; 4]].concat();
            Spec::header(Spec::V4 | Spec::INNER, &filter([10, 0, 0, last]), &filter([0xff; 4]))
        };
        for (specs, is_taken) in [([&udp, &network, &inside(2)], true), ([&udp, &network, &inside(3)], false)] {
            let _flow = pair.flow(FlowKind::Normal, (0, 0), &specs).unwrap();
            assert_eq!(comes(plugged, told, &tunnelled(77)).is_some(), is_taken);
            assert_eq!(comes(plugged, told, &tunnelled(76)), None);
            assert_eq!(comes(plugged, told, &inner), None);
        }
    });
}

#[test]
fn flows_drop_tag_and_count_by_priority() {
    play_pair(BLUEFIELD_2, |plugged, context, pair, told| {
        let counters = [0, 1].map(|_| context.counters().unwrap());
        for counters in &counters {
            counters.want(Wanted::Bytes, 0).unwrap();
            counters.want(Wanted::Packets, 2).unwrap();
        }
        let (one, many) = (to([10, 0, 0, 2], 0xff), to([10, 0, 0, 2], 0xf0));
        let (tag, none) = (Spec::tag(0x1234), Spec::drop_packets());
        let counts = [&counters[0], &counters[1]].map(Spec::count);
        let flow = pair.flow(FlowKind::Normal, (1, 0), &[&many, &tag, &counts[0]]).unwrap();
        let frame = v4([10, 0, 0, 2]);
        assert_eq!(comes(plugged, told, &frame), Some(0x1234));
        let dropping = pair.flow(FlowKind::Normal, (0, 0), &[&one, &none, &counts[1]]).unwrap();
        (0..3).for_each(|_| assert_eq!(comes(plugged, told, &frame), None));
        assert_eq!(comes(plugged, told, &v4([10, 0, 0, 3])), Some(0x1234));
        let bytes = frame.len() as u64;
        let read = || [0, 1].map(|number: usize| counters[number].read(3).unwrap());
        assert_eq!(read(), [vec![2 * bytes, 0, 2], vec![3 * bytes, 0, 3]]);
        drop(dropping);
        assert_eq!(comes(plugged, told, &frame), Some(0x1234));
        drop(flow);
        assert_eq!(comes(plugged, told, &frame), None);
    });
}

#[test]
fn default_flows_take_what_nobody_takes() {
    play_pair(BLUEFIELD_2, |plugged, _, pair, told| {
        let (one, tag) = (to([10, 0, 0, 2], 0xff), Spec::tag(7));
        let alone = v4([10, 0, 0, 3]);
        let mut group = alone.clone();
        group[0] |= 1;
        let flow = pair.flow(FlowKind::Normal, (15, 0), &[&one, &tag]).unwrap();
        let multicast = pair.flow(FlowKind::MulticastDefault, (0, 0), &[]).unwrap();
        assert_eq!([&group, &alone].map(|frame| comes(plugged, told, frame)), [Some(0), None]);
        drop(multicast);
        let all = pair.flow(FlowKind::AllDefault, (0, 0), &[]).unwrap();
        assert_eq!([&group, &alone].map(|frame| comes(plugged, told, frame)), [Some(0), Some(0)]);
        assert_eq!(comes(plugged, told, &v4([10, 0, 0, 2])), Some(7));
        drop(all);
        assert_eq!(comes(plugged, told, &group), None);
        drop(flow);
    });
}

#[test]
fn what_mlx5_ib_refuses_is_refused_with_its_error_and_leaves_nothing() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    plugged.device().open_slow_path().unwrap();
    with_pair(&context, |pair, told| {
        let counters = context.counters().unwrap();
        let one = to([10, 0, 0, 2], 0xff);
        let life = Spec::header(Spec::V4, &[0; 12], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let ports = |kind| Spec::header(kind, &[0; 4], &[0; 4]);
        let (tcp, udp) = (ports(Spec::TCP), ports(Spec::UDP));
        let count = Spec::count(&counters);
        let wide = Spec::tag(1 << 24);
        for (kind, priority, flags, specs, errno) in [
            (FlowKind::Normal, 16, 0, vec![&one], ENOMEM),
            (FlowKind::Normal, 0, 0, vec![&life], EOPNOTSUPP),
            (FlowKind::Normal, 0, 0, vec![&tcp, &udp], EINVAL),
            (FlowKind::Normal, 0, 0, vec![&one, &wide], EINVAL),
            (FlowKind::Normal, 0, 0, vec![&one, &count], EINVAL),
            (FlowKind::Normal, 0, 1 << 3, vec![&one], EINVAL),
            (FlowKind::Normal, 0, DOES_NOT_TRAP, vec![&one], EOPNOTSUPP),
            (FlowKind::AllDefault, 0, EGRESS, vec![], EINVAL),
            (FlowKind::Sniffer, 0, 0, vec![], EOPNOTSUPP),
        ] {
            let refused = pair.flow(kind, (priority, flags), &specs).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(errno), "{kind:?} {priority} {flags:#x} {specs:?}");
        }
        assert_eq!(comes(&plugged, told, &v4([10, 0, 0, 2])), None);
        let counters = context.counters().unwrap();
        counters.want(Wanted::Bytes, 2).unwrap();
        let count = Spec::count(&counters);
        let _flow = pair.flow(FlowKind::Normal, (0, 0), &[&one, &count]).unwrap();
        assert_eq!(counters.read(3).unwrap(), [0; 3]);
        assert_eq!(counters.read(2).unwrap_err().raw_os_error(), Some(EINVAL), "too little room");
    });
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn a_flow_for_multicast_only_is_behind_all_others() {
    play_pair(BLUEFIELD_2, |plugged, _, pair, told| {
        let group = [0x01, 0, 0x5e, 0, 0, 1];
        let mut frame = v4([10, 0, 0, 2]);
        frame[..6].copy_from_slice(&group);
        let filter = |address: [u8; 6]| [&address[..], &[0; 10]].concat();
        let of_group = Spec::header(Spec::ETHERNET, &filter(group), &filter([0xff; 6]));
        let (one, first, second) = (to([10, 0, 0, 2], 0xff), Spec::tag(1), Spec::tag(2));
        let _multicast = pair.flow(FlowKind::Normal, (0, 0), &[&of_group, &first]).unwrap();
        assert_eq!(comes(plugged, told, &frame), Some(1));
        let _last = pair.flow(FlowKind::Normal, (15, 0), &[&one, &second]).unwrap();
        assert_eq!(comes(plugged, told, &frame), Some(2));
    });
}

#[test]
fn flows_of_two_pairs_for_the_same_packets_give_them_to_both_unless_they_do_not_agree() {
    const EEXIST: i32 = 17;
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    plugged.device().open_slow_path().unwrap();
    with_pair(&context, |one, told| {
        with_pair(&context, |other, other_told| {
            let frame = v4([10, 0, 0, 2]);
            let (these, tag, drops) = (to([10, 0, 0, 2], 0xff), Spec::tag(5), Spec::drop_packets());
            let comes = || {
                let one = comes(&plugged, told, &frame);
                (one, other_told.poll().unwrap().map(|completion| completion.pair_or_tag))
            };
            let first = one.flow(FlowKind::Normal, (0, 0), &[&these, &tag]).unwrap();
            assert_eq!(comes(), (Some(5), None));
            let second = other.flow(FlowKind::Normal, (0, 0), &[&these]).unwrap();
            assert_eq!(comes(), (Some(5), Some(5)));
            for wrong in [vec![&these, &drops], vec![&these, &drops, &tag]] {
                let refused = other.flow(FlowKind::Normal, (0, 0), &wrong).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(EEXIST));
            }
            let other_tag = Spec::tag(6);
            assert!(other.flow(FlowKind::Normal, (0, 0), &[&these, &other_tag]).is_err());
            let again = one.flow(FlowKind::Normal, (0, 0), &[&these]).unwrap();
            assert_eq!(comes(), (Some(5), Some(5)), "each has it once");
            assert_eq!(told.poll().unwrap(), None);
            drop(first);
            assert_eq!(comes(), (Some(5), Some(5)), "the entry keeps its tag");
            drop(again);
            assert_eq!(comes(), (None, Some(5)));
            drop(second);
            assert_eq!(comes(), (None, None));
        });
    });
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
