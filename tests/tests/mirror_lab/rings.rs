//! Packet rings in registered memory.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_control::mirror::Class;
use sluice_control::mirror::filter::{program, program_at};
use sluice_mirror::connection::{Connection, Local};
use sluice_mirror::source::ring::{Ring, RingSize, RingSource};
use sluice_mirror::source::{PlannedRings, Source};
use sluice_mirror::verbs::{Outcome, Sent};
use sluice_mirror::wire::ring::{RingFrame, frames as frames_of};

use crate::collecting::{meet, receive, send};
use sluice_tests::lab::run;
use tokio::sync::watch;

use crate::lab::{local, play};
use crate::stories;
use crate::wires::{frames, host_cable, is_arp, plan, wire};

stories![
    every_frame_is_in_the_collectors_memory_byte_for_byte_and_in_the_ring_of_its_class,
    a_checksum_that_the_host_left_to_the_device_is_told_and_can_be_filled_in,
    a_ring_without_room_drops_and_counts_every_frame_and_goes_on_once_it_has_blocks_again,
    a_generators_flood_comes_whole_or_is_counted,
    devices_are_taken_on_and_left_without_losing_a_frame_of_the_others,
    a_device_that_is_made_anew_under_its_name_is_read_on,
];

const BLOCK: u32 = 1 << 17;
const SIZE: RingSize = RingSize { block_bytes: BLOCK, blocks: 16, retire_after: Duration::from_millis(8) };

fn every_frame_is_in_the_collectors_memory_byte_for_byte_and_in_the_ring_of_its_class() {
    play(async {
        let ends = Ends::new().await;
        let wire = wire("tap1");
        let mut source = RingSource::new(ends.sender.domain(), SIZE);
        assert_eq!(source.follow(&plan("tap1", &[Class::Arp, Class::Flow])).unwrap(), Vec::<String>::new());
        assert_eq!(source.ports()[0].name, "tap1");
        let sent = frames(3000);
        let arps: Vec<_> = sent.iter().filter(|frame| is_arp(frame)).cloned().collect();
        let mut came = BTreeMap::<&str, Vec<Vec<u8>>>::new();
        let mut tags = 0;
        for part in sent.chunks(500) {
            part.iter().for_each(|frame| wire.send(frame));
            let expected = |came: &BTreeMap<&str, Vec<Vec<u8>>>| came.values().map(Vec::len).sum::<usize>();
            let upto = sent.iter().position(|frame| frame == part.last().unwrap()).unwrap() + 1;
            let all = upto + sent[..upto].iter().filter(|frame| is_arp(frame)).count();
            while expected(&came) < all {
                let batch = source.next().await.unwrap();
                let (class, count, captured) = (batch.class, batch.frames, batch.captured);
                let block = ends.carry(batch.buffer).await;
                let read: Vec<_> = frames_of(&block).unwrap().collect::<Result<_, _>>().unwrap();
                assert_eq!((read.len(), read[0].captured), (usize::try_from(count).unwrap(), captured));
                tags += read.iter().filter(|frame| frame.vlan.is_some()).count();
                came.entry(class.name()).or_default().extend(read.iter().map(whole));
            }
        }
        assert!(came["flow"] == sent, "frames differ");
        assert!(came["arp"] == arps, "frames differ");
        // The kernel has taken the outer tags out of the frames.
        let tagged = |frames: &[Vec<u8>]| {
            frames.iter().filter(|frame| matches!(frame[12], 0x81) || frame[12..14] == [0x88, 0xa8]).count()
        };
        assert_eq!(tags, tagged(&sent) + tagged(&arps));
        for (class, all) in [(Class::Flow, &sent), (Class::Arp, &arps)] {
            let counts = source.counts(class).unwrap();
            assert_eq!((counts.frames, counts.drops), (all.len() as u64, 0));
            assert_eq!(source.drops(class).total(), 0);
        }
    });
}

fn a_checksum_that_the_host_left_to_the_device_is_told_and_can_be_filled_in() {
    play(async {
        let local = local(1, 64);
        let host = host_cable();
        let filter = program_at(Class::Flow, &[ifindex("u1")]).unwrap();
        let mut ring = Ring::open(local.domain(), &filter, SIZE).unwrap();
        for length in [1, 18, 1000, 1471] {
            host.send_to(&vec![0xa5; length], "10.8.0.2:9").unwrap();
            let block = ring.next().await.unwrap();
            let frame = frames_of(&block.buffer).unwrap().next().unwrap().unwrap();
            assert_eq!(block.frames, 1);
            // From the header of UDP on, where its checksum is the fourth number.
            assert_eq!(frame.checksum, Some((34, 6)));
            assert_ne!(sum_of_udp(frame.bytes), 0xffff);
            assert_eq!(sum_of_udp(&whole(&frame)), 0xffff);
        }
    });
}

fn a_ring_without_room_drops_and_counts_every_frame_and_goes_on_once_it_has_blocks_again() {
    play(async {
        let local = local(1, 64);
        let wire = wire("tap2");
        let filter = program_at(Class::Flow, &[ifindex("tap2")]).unwrap();
        let mut ring = Ring::open(local.domain(), &filter, RingSize { blocks: 2, ..SIZE }).unwrap();
        let sent = frames(4000);
        let mut held = Vec::new();
        for frame in &sent {
            wire.send(frame);
            held.extend(ring.take());
        }
        // All of its blocks are held, as by a collector that stands still.
        tokio::time::sleep(Duration::from_millis(50)).await;
        held.extend(ring.take());
        let counts = ring.counts().unwrap();
        let kept: Vec<_> = held
            .iter()
            .flat_map(|block| frames_of(&block.buffer).unwrap())
            .map(|frame| whole(&frame.unwrap()))
            .collect();
        assert_eq!(held.len(), 2);
        assert_eq!(counts.frames, kept.len() as u64);
        assert_eq!(counts.frames + counts.drops, sent.len() as u64);
        assert!(counts.drops > 0 && counts.freezes > 0, "{counts:?}");
        // What is there are the first ones, whole.
        assert!(kept == sent[..kept.len()], "frames differ");
        assert!(ring.take().is_none());

        drop(held);
        for frame in &sent[..100] {
            wire.send(frame);
        }
        let mut after = Vec::new();
        while after.len() < 100 {
            let block = ring.next().await.unwrap();
            after.extend(frames_of(&block.buffer).unwrap().map(|frame| whole(&frame.unwrap())));
        }
        assert!(after == sent[..100], "frames differ");
        assert_eq!(ring.counts().unwrap().drops, counts.drops);
    });
}

fn a_generators_flood_comes_whole_or_is_counted() {
    const COUNT: u64 = 60_000;
    run("ip link add g0 type veth peer name g1");
    run("ip link set g0 up");
    run("ip link set g1 up");
    // The first has room for all of them, so that it does not matter how fast they are taken.
    for (blocks, may_drop) in [(256, false), (2, true)] {
        play(async {
            let ends = Ends::new().await;
            let filter = program_at(Class::Flow, &[ifindex("g1")]).unwrap();
            let mut ring = Ring::open(ends.sender.domain(), &filter, RingSize { blocks, ..SIZE }).unwrap();
            let generator = std::thread::spawn(|| generate("g0", COUNT));
            let (mut came, mut messages) = (0, 0);
            let mut is_over = false;
            loop {
                match tokio::time::timeout(Duration::from_millis(200), ring.next()).await {
                    Ok(block) => {
                        let block = block.unwrap();
                        let count = block.frames;
                        let there = ends.carry(block.buffer).await;
                        let read = frames_of(&there).unwrap();
                        assert_eq!(
                            read.filter(|frame| frame.as_ref().unwrap().bytes.len() == 60).count(),
                            count as usize
                        );
                        (came, messages) = (came + u64::from(count), messages + 1);
                    }
                    // Once more, for what came in between.
                    Err(_) if is_over => break,
                    Err(_) => is_over = generator.is_finished(),
                }
            }
            generator.join().unwrap();
            let counts = ring.counts().unwrap();
            println!("{came} of {COUNT} frames in {messages} messages, with {blocks} blocks: {counts:?}");
            assert_eq!((counts.frames, counts.frames + counts.drops), (came, COUNT));
            assert!(may_drop || counts.drops == 0, "{counts:?}");
        });
    }
}

fn devices_are_taken_on_and_left_without_losing_a_frame_of_the_others() {
    play(async {
        let local = local(1, 64);
        let (stays, comes) = (wire("tap3"), wire("tap4"));
        // Nothing is read before all is sent, so that all of it must have room, also if the machine is slow to send it.
        let size = RingSize { blocks: 64, retire_after: Duration::from_millis(500), ..SIZE };
        let mut source = RingSource::new(local.domain(), size);
        let mut both = plan("tap3", &[Class::Flow]);
        assert!(source.follow(&both).unwrap().is_empty());
        let alone = both.clone();
        both.taps.extend(plan("tap4", &[Class::Flow]).taps);
        both.taps.extend(plan("tap9", &[Class::Flow]).taps);
        let sent = frames(1200);
        for (at, frame) in sent.iter().enumerate() {
            match at {
                400 => {
                    assert_eq!(source.follow(&both).unwrap(), ["tap9"]);
                    let revision = source.revision();
                    assert_eq!(source.follow(&both).unwrap(), ["tap9"]);
                    assert_eq!(source.revision(), revision, "nothing has changed");
                }
                800 => assert!(source.follow(&alone).unwrap().is_empty()),
                _ => {}
            }
            stays.send(frame);
            comes.send(frame);
        }
        let mut came = BTreeMap::<u32, Vec<Vec<u8>>>::new();
        while came.values().map(Vec::len).sum::<usize>() < 1600 {
            let batch = source.next().await.unwrap();
            for frame in frames_of(&batch.buffer).unwrap() {
                let frame = frame.unwrap();
                came.entry(frame.ifindex).or_default().push(whole(&frame));
            }
            source.give_back(batch.class, batch.buffer);
        }
        assert!(came[&ifindex("tap3")] == sent, "frames differ");
        assert!(came[&ifindex("tap4")] == sent[400..800], "frames differ");
        assert_eq!(source.ports().iter().map(|port| &*port.name).collect::<Vec<_>>(), ["tap3"]);
        // A program for all devices is taken, too.
        drop(Ring::open(local.domain(), &program(Class::Bgp), SIZE).unwrap());
    });
}

fn a_device_that_is_made_anew_under_its_name_is_read_on() {
    play(async {
        let local = local(1, 64);
        // The agent tells its plan once: to it nothing has changed.
        let (_tell, told) = watch::channel(Some(plan("tap8", &[Class::Flow])));
        let mut source = PlannedRings::new(RingSource::new(local.domain(), SIZE), told, None);
        let mut before = 0;
        for _ in 0..3 {
            let wire = wire("tap8");
            let index = ifindex("tap8");
            assert_ne!(index, before);
            before = index;
            let mut came = 0;
            // What is sent before the device is found is copied nowhere, and the last of another one may come late.
            while came == 0 {
                wire.send(&frames(1)[0]);
                let Ok(batch) = tokio::time::timeout(Duration::from_millis(50), source.next()).await else { continue };
                let batch = batch.unwrap();
                came =
                    frames_of(&batch.buffer).unwrap().filter(|frame| frame.as_ref().unwrap().ifindex == index).count();
                source.give_back(batch.class, batch.buffer);
            }
            assert_eq!(source.ports().iter().map(|port| port.ifindex).collect::<Vec<_>>(), [index]);
        }
    });
}

/// A sender and a collector, connected by the device.
struct Ends {
    sender: Local,
    here: Connection,
    there: Connection,
}

impl Ends {
    async fn new() -> Self {
        let (sender, collector) = (local(1, 64), local(8, BLOCK as usize));
        let (here, there) = meet(&sender, &collector).await;
        Self { sender, here, there }
    }

    /// Sends a block from where it is, and returns what came of it at the other end. It has gone back to the kernel then.
    async fn carry(&self, block: sluice_mirror::verbs::Buffer) -> Vec<u8> {
        let copy = block.to_vec();
        send(&self.here, 0, block);
        let came = receive(&self.there).await;
        match crate::collecting::next(&self.here).await {
            Outcome::Sent(sent) => assert!(matches!(&sent[..], [Sent { buffers, .. }] if buffers.len() == 1)),
            other => panic!("{other:?}"),
        }
        assert!(came == copy, "the block differs");
        came
    }
}

/// The frame as it was on the wire.
fn whole(frame: &RingFrame<'_>) -> Vec<u8> {
    let mut whole = Vec::new();
    assert_eq!(frame.restore(&mut whole) as usize, whole.len());
    whole
}

fn ifindex(name: &str) -> u32 {
    std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).unwrap().trim().parse().unwrap()
}

/// The sum over a frame's UDP over IPv4 with its pseudo header, which is all ones if the checksum is right.
fn sum_of_udp(frame: &[u8]) -> u32 {
    let (ip, udp) = (&frame[14..34], &frame[34..]);
    let pseudo = [&ip[12..20], &[0, 17], &udp[4..6]].concat();
    let words = |bytes: &[u8]| {
        bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))).sum::<u32>()
    };
    let sum = words(&pseudo) + words(udp);
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

/// Has the kernel's generator send so many frames of 60 bytes, and returns when it has.
fn generate(device: &str, count: u64) {
    let tell =
        |file: &str, words: &str| std::fs::write(format!("/proc/net/pktgen/{file}"), format!("{words}\n")).unwrap();
    tell("kpktgend_0", "rem_device_all");
    tell("kpktgend_0", &format!("add_device {device}"));
    for words in [&format!("count {count}"), "pkt_size 60", "delay 0", "dst_mac 02:00:00:00:00:02"] {
        tell(device, words);
    }
    // It returns when all are sent.
    tell("pgctrl", "start");
}
