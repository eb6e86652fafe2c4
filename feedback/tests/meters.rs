//! What ovs-vswitchd asks for meters is told to the agent once the kernel has agreed, and what the agent has counted is in the kernel's answers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::Path;

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use sluice_feedback::answer::meter::{agreed, change_meters, requested};
use sluice_feedback::protocol::{Message, send};
use sluice_feedback::{
    Attachment, Handover, METER_COUNT, MeterCount, MeterSetter, Publisher, Setting, SettingKind, Totals,
};
use sluice_flow::meter::MeterUnit;

const FAMILY: u16 = 0x20;
const DATAPATH: u32 = 7;
const SOCKET: i32 = 11;

/// `enum ovs_meter_cmd`
const SET: u8 = 2;
const DELETE: u8 = 3;
const GET: u8 = 4;

/// A message of which the attributes are these.
fn message(command: u8, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(24 + attributes.len()).unwrap();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(FAMILY.to_ne_bytes());
    message.extend([1, 0]);
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend([command, 1, 0, 0]);
    message.extend(DATAPATH.to_ne_bytes());
    message.extend(attributes);
    message
}

fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + payload.len()).unwrap();
    let mut attribute = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    attribute.extend(payload);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

fn word(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

fn band(kind: u32, rate: u32, burst: u32) -> Vec<u8> {
    attribute(0, &[word(1, kind), word(2, rate), word(3, burst)].concat())
}

/// As ovs-vswitchd asks for it.
fn set(meter: u32, sequence: u32, bands: &[Vec<u8>]) -> Vec<u8> {
    message(SET, sequence, &[word(1, meter), attribute(2, &[]), attribute(4, &bands.concat())].concat())
}

fn delete(meter: u32, sequence: u32) -> Vec<u8> {
    message(DELETE, sequence, &word(1, meter))
}

fn kilobits(rate: u32, burst: u32) -> SettingKind {
    SettingKind::Band { unit: MeterUnit::Kilobits, rate, burst }
}

/// What the kernel answers who asks what a meter has counted.
fn counted(meter: u32, [packets, bytes, dropped_packets, dropped_bytes]: [u64; 4]) -> Vec<u8> {
    let pair = |one: u64, other: u64| [one.to_ne_bytes(), other.to_ne_bytes()].concat();
    let band = attribute(0, &attribute(4, &pair(dropped_packets, dropped_bytes)));
    let used = attribute(5, &[0; 8]);
    message(GET, 1, &[word(1, meter), attribute(3, &pair(packets, bytes)), used, attribute(4, &band)].concat())
}

/// Sends a request that the kernel agrees to.
fn agree(setter: &MeterSetter, meter: u32, request: &[u8]) {
    let asked = requested(request, FAMILY).unwrap();
    setter.ask(SOCKET, &asked);
    let answer = message(request[16], asked.sequence, &word(1, meter));
    setter.take(SOCKET, agreed(&answer, FAMILY).unwrap());
}

fn memory() -> (Publisher, Attachment) {
    let publisher = Publisher::create(64, 1).unwrap();
    let attachment = Attachment::new(publisher.file().try_clone_to_owned().unwrap()).unwrap();
    (publisher, attachment)
}

/// The meters that the agent is told of, without their lives.
fn told(publisher: &Publisher) -> Vec<(u32, SettingKind)> {
    publisher.meters().unwrap().into_iter().map(|(meter, setting)| (meter, setting.kind)).collect()
}

fn life(publisher: &Publisher, meter: u32) -> u16 {
    publisher.meters().unwrap().iter().find(|(number, _)| *number == meter).unwrap().1.life
}

/// What ovs-vswitchd reads then.
fn read(answer: &[u8], attachment: &Attachment) -> Vec<u8> {
    let mut received = answer.to_vec();
    change_meters(&mut answer.to_vec(), &mut [IoSliceMut::new(&mut received)], FAMILY, attachment);
    received
}

#[test]
fn a_meter_is_told_of_once_the_kernel_has_agreed_to_it() {
    let (setter, (publisher, attachment)) = (MeterSetter::new(), memory());
    let request = requested(&set(3, 100, &[band(1, 1_000, 50)]), FAMILY).unwrap();
    setter.ask(SOCKET, &request);
    setter.publish(&attachment);
    assert_eq!((told(&publisher), publisher.meter_changes()), (vec![], 0));
    for (socket, sequence) in [(SOCKET + 1, 100), (SOCKET, 99)] {
        setter.take(socket, agreed(&message(SET, sequence, &word(1, 3)), FAMILY).unwrap());
        setter.publish(&attachment);
        assert_eq!(told(&publisher), [], "that is the answer to something else");
    }
    setter.take(SOCKET, agreed(&message(SET, 100, &word(1, 3)), FAMILY).unwrap());
    setter.publish(&attachment);
    assert_eq!((told(&publisher), publisher.meter_changes()), (vec![(3, kilobits(1_000, 50))], 1));
    assert_eq!(publisher.meters().unwrap()[0].1.datapath, DATAPATH);
    setter.publish(&attachment);
    assert_eq!(publisher.meter_changes(), 1, "nothing has changed");
}

#[test]
fn another_rate_is_of_the_same_life_and_another_meter_of_the_number_is_not() {
    let (setter, (publisher, attachment)) = (MeterSetter::new(), memory());
    agree(&setter, 3, &set(3, 1, &[band(1, 1_000, 50)]));
    setter.publish(&attachment);
    let first = life(&publisher, 3);
    agree(&setter, 3, &set(3, 2, &[band(1, 2_000, 0)]));
    setter.publish(&attachment);
    assert_eq!((told(&publisher), life(&publisher, 3)), (vec![(3, kilobits(2_000, 0))], first));
    agree(&setter, 3, &delete(3, 3));
    agree(&setter, 3, &set(3, 4, &[band(1, 2_000, 0)]));
    setter.publish(&attachment);
    assert_eq!(told(&publisher), [(3, kilobits(2_000, 0))]);
    assert_ne!(life(&publisher, 3), first);
    agree(&setter, 3, &delete(3, 5));
    setter.publish(&attachment);
    assert_eq!(told(&publisher), []);
}

#[test]
fn a_memory_that_comes_later_has_all_meters_and_none_of_an_earlier_process() {
    let (setter, (publisher, attachment)) = (MeterSetter::new(), memory());
    for meter in [0, METER_COUNT - 1, METER_COUNT, u32::MAX] {
        agree(&setter, meter, &set(meter, meter, &[band(1, meter, 1)]));
    }
    setter.renew();
    setter.publish(&attachment);
    assert_eq!(told(&publisher), [(0, kilobits(0, 1)), (METER_COUNT - 1, kilobits(METER_COUNT - 1, 1))]);
    let next = MeterSetter::new();
    next.begin(77);
    agree(&next, 5, &set(5, 1, &[band(1, 9, 9)]));
    next.publish(&attachment);
    assert_eq!((told(&publisher), life(&publisher, 5)), (vec![(5, kilobits(9, 9))], 77));
}

#[test]
fn bands_that_the_device_knows_nothing_of_make_a_meter_of_another_kind() {
    let kind = |request: &[u8]| requested(request, FAMILY).map(|asked| asked.kind);
    assert_eq!(kind(&set(1, 1, &[band(1, 5, 6)])), Some(kilobits(5, 6)));
    let packets = message(SET, 1, &[word(1, 1), attribute(4, &band(1, 5, 6))].concat());
    assert_eq!(kind(&packets), Some(SettingKind::Band { unit: MeterUnit::Packets, rate: 5, burst: 6 }));
    for bands in [vec![], vec![band(2, 5, 6)], vec![band(1, 5, 6), band(1, 7, 8)], vec![attribute(0, &word(1, 1))]] {
        assert_eq!(kind(&set(1, 1, &bands)), Some(SettingKind::Other), "{bands:?}");
    }
    assert_eq!(kind(&message(SET, 1, &word(1, 1))), None, "without bands");
    assert_eq!(kind(&counted(1, [0; 4])), None, "that asks for nothing to change");
    assert_eq!(requested(&set(1, 1, &[band(1, 5, 6)]), FAMILY + 1), None);
}

#[test]
fn what_the_agent_has_counted_is_added_to_the_meter_that_it_was_told_of() {
    let (setter, (mut publisher, attachment)) = (MeterSetter::new(), memory());
    agree(&setter, 3, &set(3, 1, &[band(1, 1_000, 50)]));
    setter.publish(&attachment);
    let answer = counted(3, [10, 1_000, 1, 100]);
    assert_eq!(read(&answer, &attachment), answer, "nothing is published");
    for (count, packets) in [(MeterCount::Reached, 7), (MeterCount::Dropped, 2)] {
        let totals = Totals { packets, bytes: packets * 100, ..Totals::default() };
        publisher.publish(count.name(3), totals).unwrap();
        publisher.publish(count.name(4), totals).unwrap();
    }
    assert_eq!(read(&answer, &attachment), counted(3, [17, 1_700, 3, 300]));
    let other = counted(4, [10, 1_000, 1, 100]);
    assert_eq!(read(&other, &attachment), other, "that is not one of this datapath");

    // From the moment that the kernel has another meter, and not only when the agent has heard of it.
    agree(&setter, 3, &delete(3, 2));
    agree(&setter, 3, &set(3, 3, &[band(1, 1_000, 50)]));
    setter.publish(&attachment);
    assert_eq!(read(&answer, &attachment), answer);
    assert!(publisher.is_deleted(MeterCount::Reached.name(3)));
    publisher.withdraw(MeterCount::Reached.name(3), 1);
    publisher.publish(MeterCount::Reached.name(3), Totals { packets: 1, bytes: 100, ..Totals::default() }).unwrap();
    assert_eq!(read(&answer, &attachment), counted(3, [11, 1_100, 1, 100]));
}

#[test]
fn names_of_counts_are_those_of_meters_and_no_others() {
    for count in MeterCount::ALL {
        assert_eq!(MeterCount::meter_of(count.name(0xdead_beef)), Some(0xdead_beef));
    }
    assert_eq!(MeterCount::meter_of(sluice_flow::ufid::Ufid(5)), None);
}

#[test]
fn meters_are_known_as_long_as_a_library_that_tells_of_them_has_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feedback.sock");
    let (mut publisher, _) = memory();
    let mut handover = Handover::bind(&path).unwrap();
    let mut after = |library: Option<&OwnedFd>, message| {
        if let Some(library) = library {
            assert!(send(library, message, None));
        }
        handover.serve(&mut publisher);
        handover.tells_meters()
    };
    let (older, library) = (connect_to(&path), connect_to(&path));
    assert_eq!(after(Some(&older), Message::Hello { tells_meters: false }), Some(false));
    assert_eq!(after(Some(&older), Message::Taken), Some(false));
    assert_eq!(after(Some(&library), Message::Hello { tells_meters: true }), None);
    assert_eq!(after(Some(&library), Message::Taken), Some(true));
    drop(library);
    assert_eq!(after(None, Message::Taken), Some(false));
    let library = connect_to(&path);
    assert_eq!(after(Some(&library), Message::Hello { tells_meters: true }), None);
    assert_eq!(after(Some(&library), Message::Refused(4)), Some(false));
}

fn connect_to(path: &Path) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

proptest! {
    #[test]
    fn messages_of_any_content_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        at in any::<prop::sample::Index>(),
        is_request in any::<bool>(),
        table in prop::collection::vec((0..METER_COUNT, any::<u64>(), any::<u64>()), 0..20),
    ) {
        use std::os::unix::fs::FileExt;

        let (setter, (mut publisher, attachment)) = (MeterSetter::new(), memory());
        publisher.publish(MeterCount::Reached.name(3), Totals { packets: 7, ..Totals::default() }).unwrap();
        agree(&setter, 3, &set(3, 1, &[band(1, 1_000, 50)]));
        setter.publish(&attachment);
        let file = std::fs::File::from(publisher.file().try_clone_to_owned().unwrap());
        for (meter, first, second) in table {
            let words = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
            file.write_all_at(&words, sluice_feedback::layout::METERS as u64 + u64::from(meter) * 16).unwrap();
        }
        let mut message = if is_request { set(3, 1, &[band(1, 1_000, 50)]) } else { counted(3, [1, 2, 3, 4]) };
        let place = at.index(message.len() + 1);
        for (number, byte) in bytes.iter().enumerate() {
            if let Some(to) = message.get_mut(place + number) { *to = *byte } else { message.push(*byte) }
        }
        prop_assert_eq!(read(&message, &attachment).len(), message.len());
        if let Some(request) = requested(&message, FAMILY) {
            setter.ask(SOCKET, &request);
        }
        if let Some(agreed) = agreed(&message, FAMILY) {
            setter.take(SOCKET, agreed);
        }
        // Whatever is in the memory, the library makes it right.
        setter.renew();
        setter.publish(&attachment);
        let known = |setting: &Setting| setting.kind != SettingKind::None;
        prop_assert!(publisher.meters().unwrap().iter().all(|(meter, setting)| *meter < METER_COUNT && known(setting)));
    }
}
