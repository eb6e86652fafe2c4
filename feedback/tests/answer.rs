//! Messages of any content, in buffers of any split, with memory of any content: what is not about a published flow stays as it was, and
//! what is changed reads as the sum.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use proptest::prelude::*;
use sluice_feed_ovs::wire::FlowMessage;
use sluice_feedback::answer::{change, family};
use sluice_feedback::{Attachment, GRACE, Publisher, Totals, layout};
use sluice_flow::ufid::Ufid;
use sluice_netdev::netlink::message::Messages;

const FAMILY: u16 = 0x1f;
/// In ms of `CLOCK_MONOTONIC`.
const NOW: u64 = 1_000_000;
const DELETE: u8 = 2;
const GET: u8 = 3;

/// What the kernel says of a flow; what is `None` is 0, and left out.
#[derive(Clone, Debug)]
struct Told {
    ufid: u128,
    statistics: Option<(u64, u64)>,
    used: Option<u64>,
    tcp_flags: Option<u8>,
    /// Bytes of a list of actions, which is passed over.
    actions: usize,
}

fn attribute(message: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    message.extend(u16::try_from(4 + payload.len()).unwrap().to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(payload);
    message.resize(message.len().next_multiple_of(4), 0);
}

fn message(family: u16, command: u8, told: &Told) -> Vec<u8> {
    let mut message = vec![0; 4];
    message.extend(family.to_ne_bytes());
    message.extend([0; 10]);
    message.extend([command, 1, 0, 0, 7, 0, 0, 0]);
    let id = told.ufid.to_be_bytes();
    let words: Vec<u8> =
        id.as_chunks::<4>().0.iter().flat_map(|word| u32::from_be_bytes(*word).to_ne_bytes()).collect();
    attribute(&mut message, 9, &words);
    if let Some(used) = told.used {
        attribute(&mut message, 5, &used.to_ne_bytes());
    }
    if let Some((packets, bytes)) = told.statistics {
        attribute(&mut message, 3, &[packets.to_ne_bytes(), bytes.to_ne_bytes()].concat());
    }
    if let Some(flags) = told.tcp_flags {
        attribute(&mut message, 4, &[flags]);
    }
    if told.actions > 0 {
        attribute(&mut message, 11, &vec![0; told.actions]);
    }
    let length = u32::try_from(message.len()).unwrap();
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

/// Receives a datagram into buffers of these lengths, has it changed, and returns what the receiver has then.
fn received(datagram: &[u8], lengths: &[usize], attachment: &Attachment) -> Vec<u8> {
    let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0xee; *length]).collect();
    let mut rest = datagram;
    for buffer in &mut buffers {
        let (here, later) = rest.split_at(buffer.len().min(rest.len()));
        buffer[..here.len()].copy_from_slice(here);
        rest = later;
    }
    let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
    let length = change(&mut datagram.to_vec(), &mut slices, FAMILY, attachment, NOW);
    let all = buffers.concat();
    assert!(length <= all.len().max(datagram.len()));
    assert!(all.get(length..).unwrap_or_default().iter().all(|byte| *byte == 0xee), "written behind the end");
    all[..length.min(all.len())].to_vec()
}

fn read(datagram: &[u8]) -> Vec<FlowMessage> {
    // Uptime 0, so that `used` of the message is told from an absent one and all else is compared as a sum.
    let now = Duration::from_millis(NOW);
    Messages::new(datagram).map(|message| FlowMessage::read(message.unwrap().payload, now).unwrap()).collect()
}

/// A memory, as the library has it.
fn attach(publisher: &Publisher) -> Attachment {
    Attachment::new(publisher.file().try_clone_to_owned().unwrap()).unwrap()
}

fn publisher(flows: &[(u128, Totals)]) -> Publisher {
    let mut publisher = Publisher::create(64, 99).unwrap();
    for (ufid, totals) in flows {
        publisher.publish(Ufid(*ufid), *totals).unwrap();
    }
    publisher
}

const TOTALS: Totals = Totals { packets: 1000, bytes: 64_000, used: NOW - 500, tcp_flags: 0x12 };
const SILENT: Told = Told { ufid: 5, statistics: None, used: None, tcp_flags: None, actions: 0 };

#[test]
fn what_the_kernel_leaves_out_is_added_in_the_buffers_of_ovs_vswitchd() {
    let publisher = publisher(&[(5, TOTALS)]);
    let attachment = attach(&publisher);
    // A dump of as many flows as a datagram has room for, none of which the kernel has seen a packet of: it grows most.
    let datagram = message(FAMILY, GET, &SILENT).repeat(32_768 / 44);
    let changed = received(&datagram, &[4096, 65_536], &attachment);
    let flows = read(&changed);
    assert_eq!(flows.len(), 32_768 / 44);
    for flow in flows {
        assert_eq!((flow.statistics.packets, flow.statistics.bytes, flow.statistics.tcp_flags), (1000, 64_000, 0x12));
        assert_eq!(flow.statistics.used, Some(Duration::from_millis(500)));
    }
    let counters = publisher.counters();
    assert_eq!((counters.datagrams, counters.messages, counters.changed), (1, 744, 744));
}

#[test]
fn a_message_that_there_is_no_room_for_stays_and_is_counted() {
    let publisher = publisher(&[(5, TOTALS)]);
    let attachment = attach(&publisher);
    let one = message(FAMILY, GET, &SILENT);
    let datagram = one.repeat(3);
    let changed = received(&datagram, &[datagram.len() + 40 + 39], &attachment);
    let packets: Vec<_> = read(&changed).iter().map(|flow| flow.statistics.packets).collect();
    assert_eq!(packets, [1000, 0, 0]);
    assert_eq!((publisher.counters().changed, publisher.counters().no_room), (1, 2));
}

#[test]
fn an_answer_about_one_flow_stays_in_the_buffer_that_it_fits_into_and_a_dump_need_not() {
    let publisher = publisher(&[(5, TOTALS)]);
    let attachment = attach(&publisher);
    let mut one = message(FAMILY, GET, &SILENT);
    let full = one.len() + 40;
    let mut packets = |first: usize, flags: u16| {
        one[6..8].copy_from_slice(&flags.to_ne_bytes());
        read(&received(&one, &[first, 65_536], &attachment))[0].statistics.packets
    };
    const MULTI: u16 = 0x2;
    assert_eq!([full, full - 1].map(|first| packets(first, 0)), [1000, 0]);
    assert_eq!([full, full - 1].map(|first| packets(first, MULTI)), [1000, 1000]);
    // What is longer anyway has room behind.
    assert_eq!(packets(full - 41, 0), 1000);
    assert_eq!(publisher.counters().no_room, 1);
}

/// The packets that the answer to a command says of flow 5.
fn packets(command: u8, attachment: &Attachment) -> u64 {
    read(&received(&message(FAMILY, command, &SILENT), &[4096], attachment))[0].statistics.packets
}

#[test]
fn a_withdrawn_flow_counts_in_the_answer_to_its_deletion_for_a_while_and_nowhere_else() {
    let mut publisher = publisher(&[(5, TOTALS)]);
    let attachment = attach(&publisher);
    publisher.withdraw(Ufid(5), NOW - GRACE);
    assert_eq!((packets(GET, &attachment), packets(DELETE, &attachment)), (0, 1000));
    assert_eq!(packets(DELETE, &attachment), 0, "once");
    publisher.publish(Ufid(5), TOTALS).unwrap();
    publisher.withdraw(Ufid(5), NOW - GRACE - 1);
    assert_eq!((packets(GET, &attachment), packets(DELETE, &attachment)), (0, 0));
}

#[test]
fn a_life_that_ovs_vswitchd_has_deleted_counts_no_more_whatever_the_agent_has_heard() {
    let mut publisher = publisher(&[(5, TOTALS)]);
    let attachment = attach(&publisher);
    assert_eq!((packets(GET, &attachment), publisher.is_deleted(Ufid(5))), (1000, false));
    assert_eq!((packets(DELETE, &attachment), publisher.is_deleted(Ufid(5))), (1000, true));
    // The agent, who has not heard of that, goes on with what is another flow by now.
    publisher.publish(Ufid(5), Totals { packets: 1001, ..TOTALS }).unwrap();
    assert_eq!((packets(GET, &attachment), packets(DELETE, &attachment)), (0, 0));
    publisher.withdraw(Ufid(5), NOW);
    publisher.publish(Ufid(5), Totals { packets: 2, ..Totals::default() }).unwrap();
    assert_eq!((packets(GET, &attachment), publisher.is_deleted(Ufid(5))), (2, false));

    // Nor does the next agent go on with it.
    assert_eq!(packets(DELETE, &attachment), 2);
    let mut next = Publisher::create(64, 1).unwrap();
    assert_eq!(next.adopt(publisher.file().try_clone_to_owned().unwrap()), Ok(true));
    assert_eq!((next.len(), next.get(Ufid(5))), (0, None));
}

#[test]
fn a_last_use_that_is_still_to_come_is_now() {
    let publisher = publisher(&[(5, Totals { used: u64::MAX, ..TOTALS })]);
    let changed = received(&message(FAMILY, GET, &SILENT), &[4096], &attach(&publisher));
    assert_eq!(read(&changed)[0].statistics.used, Some(Duration::ZERO));
}

#[test]
fn the_number_of_the_family_is_in_the_answer_to_who_asks_for_it() {
    let answer = |name: &[u8]| {
        let mut message = vec![0, 0, 0, 0, 0x10, 0];
        message.extend([0; 10]);
        message.extend([1, 2, 0, 0]);
        attribute(&mut message, 2, name);
        attribute(&mut message, 1, &FAMILY.to_ne_bytes());
        let length = u32::try_from(message.len()).unwrap();
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message
    };
    assert_eq!(family(&answer(b"ovs_flow\0"), b"ovs_flow\0"), Some(FAMILY));
    assert_eq!(family(&answer(b"ovs_flow_x\0"), b"ovs_flow\0"), None);
    assert_eq!(family(&[answer(b"ovs_vport\0"), answer(b"ovs_flow\0")].concat(), b"ovs_flow\0"), Some(FAMILY));
}

fn told() -> impl Strategy<Value = Told> {
    let number = 0..u64::MAX / 4;
    (0..12u128, any::<u64>(), (number.clone(), number), 0..NOW, any::<u8>(), 0..4usize).prop_map(
        |(ufid, present, statistics, used, flags, actions)| Told {
            ufid,
            statistics: (present & 1 > 0).then_some(statistics),
            used: (present & 2 > 0).then_some(used),
            tcp_flags: (present & 4 > 0).then_some(flags),
            // An attribute of padding, which is not read.
            actions,
        },
    )
}

fn totals() -> impl Strategy<Value = Totals> {
    let number = 0..u64::MAX / 4;
    (number.clone(), number, 0..NOW, any::<u8>()).prop_map(|(packets, bytes, used, tcp_flags)| Totals {
        packets,
        bytes,
        used,
        tcp_flags,
    })
}

/// Lengths of buffers that hold a datagram, with some room behind.
fn split(length: usize, cuts: &[prop::sample::Index], room: usize) -> Vec<usize> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(length + room + 1)).collect();
    places.extend([0, length + room]);
    places.sort_unstable();
    places.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

proptest! {
    #[test]
    fn changed_messages_read_as_the_sum_in_any_split(
        flows in prop::collection::vec(told(), 1..20),
        published in prop::collection::btree_map(0..12u128, totals(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        room in 0usize..1000,
    ) {
        let published: Vec<_> = published.into_iter().collect();
        let publisher = publisher(&published);
        let datagram: Vec<u8> = flows.iter().flat_map(|flow| message(FAMILY, GET, flow)).collect();
        let before = read(&datagram);
        let lengths = split(datagram.len(), &cuts, room);
        let after = read(&received(&datagram, &lengths, &attach(&publisher)));
        prop_assert_eq!(before.len(), after.len());
        let mut unchanged = 0;
        for (before, after) in before.iter().zip(&after) {
            let totals = published.iter().find(|(ufid, _)| Some(Ufid(*ufid)) == before.ufid).map(|(_, totals)| *totals);
            let mut wanted = before.clone();
            if let Some(totals) = totals {
                let statistics = &mut wanted.statistics;
                statistics.packets += totals.packets;
                statistics.bytes += totals.bytes;
                statistics.tcp_flags |= u16::from(totals.tcp_flags);
                if totals.used > 0 {
                    let idle = Duration::from_millis(NOW - totals.used);
                    statistics.used = Some(statistics.used.map_or(idle, |used| used.min(idle)));
                }
            }
            if *after != wanted {
                prop_assert_eq!(after, before);
                unchanged += 1;
            }
        }
        prop_assert!(unchanged <= publisher.counters().no_room);
    }

    #[test]
    fn other_families_and_unpublished_flows_stay_as_they_were(
        flows in prop::collection::vec(told(), 1..20),
        family in any::<u16>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let published: Vec<_> = (0..12).map(|ufid| (if family == FAMILY { ufid + 100 } else { ufid }, TOTALS)).collect();
        let datagram: Vec<u8> = flows.iter().flat_map(|flow| message(family, GET, flow)).collect();
        let lengths = split(datagram.len(), &cuts, 500);
        prop_assert_eq!(received(&datagram, &lengths, &attach(&publisher(&published))), datagram);
    }

    #[test]
    fn any_bytes_with_memory_of_any_content_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        flow in told(),
        at in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        room in 0usize..100,
        memory in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..60),
    ) {
        let publisher = publisher(&[(5, TOTALS)]);
        let attachment = attach(&publisher);
        scribble(&publisher, &memory);
        // Somewhere in what makes sense.
        let mut datagram = message(FAMILY, GET, &flow).repeat(2);
        let place = at.index(datagram.len() + 1);
        for (number, byte) in bytes.iter().enumerate() {
            if let Some(to) = datagram.get_mut(place + number) { *to = *byte } else { datagram.push(*byte) }
        }
        received(&datagram, &split(datagram.len(), &cuts, room), &attachment);
        family(&datagram, b"ovs_flow\0");
        // As the next agent finds it.
        let mut next = Publisher::create(64, 1).unwrap();
        next.adopt(publisher.file().try_clone_to_owned().unwrap()).ok();
        next.publish(Ufid(5), TOTALS).ok();
        prop_assert!(next.len() <= next.capacity());
        prop_assert_eq!(next.iter().count(), next.len());
    }
}

/// Writes anything anywhere into a memory, behind everybody's back.
fn scribble(publisher: &Publisher, words: &[(prop::sample::Index, u64)]) {
    let file: OwnedFd = publisher.file().try_clone_to_owned().unwrap();
    let file = File::from(file);
    for (place, word) in words {
        let word = if word & 1 == 0 { word & 0xff } else { *word };
        let place = (layout::RECORDS + place.index(128 * layout::RECORD)) & !7;
        file.write_all_at(&word.to_ne_bytes(), place as u64).unwrap();
    }
}
