//! Fragments wait here until their packet is whole, since only a whole packet can be tracked.
//!
//! The rules are those of Linux (`net/ipv4/ip_fragment.c`, `net/ipv6/netfilter/nf_conntrack_reasm.c` and
//! `inet_frag_queue_insert`): a duplicate is dropped, an overlap drops the packet as a whole (RFC 5722).

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use sluice_flow::port::PortNumber;
use sluice_flow::time::Timestamp;

use crate::packet::Extensions;
use crate::packet::checksum::Sum;
use crate::packet::headers::{IPV4_DONT_FRAGMENT, Ipv4, Ipv6, Ipv6Fragment};

use super::congestion::Congestion;
use super::fragment::{Fragment, Key, fragment_header};
use super::fragmentation::Pieces;
use super::timeouts;
use super::tuple::Family;

const SHARDS: usize = 16;
/// Bytes of one family that may wait, as far as they are counted (`IPFRAG_HIGH_THRESH`, `IPV6_FRAG_HIGH_THRESH`): beyond it, fragments are
/// dropped.
const MEMORY: usize = 4 << 20;
/// What a waiting fragment costs besides its bytes.
const OVERHEAD: usize = 256;

/// What becomes of a fragment.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It waits for the others.
    Waits,
    /// It was the last one missing: the frame of the whole packet.
    Whole(Vec<u8>, Pieces),
    /// It is malformed, a duplicate, an overlap, or there is no room.
    Dropped,
    /// It can be no part of a packet, and goes on by itself.
    Alone,
}

#[derive(Default)]
struct Queue {
    payloads: BTreeMap<usize, Box<[u8]>>,
    /// What is there without a gap, as Linux joins it: only at the end.
    runs: Vec<(usize, usize)>,
    /// The frame of the first fragment up to its payload.
    headers: Option<Box<[u8]>>,
    /// The end of the payload as far as it is known.
    end: usize,
    has_last: bool,
    present: usize,
    largest: usize,
    largest_unfragmentable: usize,
    congestion: Congestion,
    memory: usize,
}

#[derive(Default)]
struct Shard {
    queues: HashMap<Key, Queue, RandomState>,
    /// When which packet has waited long enough, the earliest first. Some are whole by then.
    deadlines: VecDeque<(Timestamp, Key)>,
}

/// All fragments that wait.
pub(crate) struct Reassembly {
    v4: Waiting,
    v6: Waiting,
    hasher: RandomState,
}

/// Fragments of one family that wait. Each has its own room, as in Linux, so that those of one never keep the other's out.
struct Waiting {
    shards: Box<[Mutex<Shard>]>,
    timeout: Duration,
    memory: AtomicUsize,
    lost: AtomicU64,
}

impl Reassembly {
    pub(crate) fn new() -> Self {
        Self {
            v4: Waiting::new(timeouts::IPV4_FRAGMENTS),
            v6: Waiting::new(timeouts::IPV6_FRAGMENTS),
            hasher: RandomState::default(),
        }
    }

    /// Fragments that waited in vain.
    pub(crate) fn lost(&self) -> u64 {
        [&self.v4, &self.v6].iter().map(|waiting| waiting.lost.load(Ordering::Relaxed)).sum()
    }

    /// Takes a fragment in: a frame that came in at a port and has an IP header at `network`.
    pub(crate) fn add(
        &self,
        zone: u16,
        port: PortNumber,
        family: Family,
        frame: &[u8],
        network: usize,
        now: Timestamp,
    ) -> Outcome {
        let Some(fragment) = Fragment::read(zone, port, family, frame, network) else {
            return Outcome::Dropped;
        };
        if fragment.lacks_headers {
            return Outcome::Alone;
        }
        let index = (self.hasher.hash_one(fragment.key) >> 32) as usize % SHARDS;
        let waiting = self.waiting(family);
        let mut shard = waiting.shards[index].lock();
        waiting.expire(&mut shard, now);
        if waiting.memory.load(Ordering::Relaxed) > MEMORY {
            return Outcome::Dropped;
        }
        if family == Family::V6 && !fragment.is_last && !fragment.payload.len().is_multiple_of(8) {
            // What waits for it waits in vain, but the fragment passes (`-EPROTO` in `nf_ct_frag6_gather`).
            waiting.lose(&mut shard, &fragment.key);
            return Outcome::Alone;
        }
        let Shard { queues, deadlines } = &mut *shard;
        let queue = queues.entry(fragment.key).or_insert_with(|| {
            deadlines.push_back((now.after(waiting.timeout), fragment.key));
            Queue::default()
        });
        match queue.insert(&fragment, frame) {
            Inserted::Yes => {
                let cost = fragment.kept_headers() + fragment.payload.len() + OVERHEAD;
                queue.memory += cost;
                waiting.memory.fetch_add(cost, Ordering::Relaxed);
            }
            Inserted::Duplicate => return Outcome::Dropped,
            // What a fragment of IPv6 says in vain harms nobody else (`nf_ct_frag6_queue`).
            Inserted::Contradiction if family == Family::V6 && !queue.payloads.is_empty() => return Outcome::Dropped,
            Inserted::Contradiction | Inserted::Broken => {
                waiting.lose(&mut shard, &fragment.key);
                return Outcome::Dropped;
            }
        }
        if queue.headers.is_none() || !queue.has_last || queue.present != queue.end {
            return Outcome::Waits;
        }
        let whole = match family {
            Family::V4 => queue.join_v4(network, fragment.key.identification),
            Family::V6 => queue.join_v6(network, fragment.key.identification),
        };
        waiting.forget(&mut shard, &fragment.key);
        whole.map_or(Outcome::Dropped, |(frame, pieces)| Outcome::Whole(frame, pieces))
    }

    fn waiting(&self, family: Family) -> &Waiting {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

impl Waiting {
    fn new(timeout: Duration) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            timeout,
            memory: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn expire(&self, shard: &mut Shard, now: Timestamp) {
        while let Some((_, key)) = shard.deadlines.pop_front_if(|(deadline, _)| *deadline <= now) {
            self.lose(shard, &key);
        }
    }

    /// Forgets a packet that will not become whole.
    fn lose(&self, shard: &mut Shard, key: &Key) {
        let waiting = shard.queues.get(key).map_or(0, |queue| queue.payloads.len());
        self.lost.fetch_add(waiting as u64, Ordering::Relaxed);
        self.forget(shard, key);
    }

    fn forget(&self, shard: &mut Shard, key: &Key) {
        if let Some(queue) = shard.queues.remove(key) {
            self.memory.fetch_sub(queue.memory, Ordering::Relaxed);
        }
        shard.deadlines.retain(|(_, other)| other != key);
    }
}

enum Inserted {
    Yes,
    Duplicate,
    /// It is empty, or has another end than one before it, or lies behind the end.
    Contradiction,
    Broken,
}

impl Queue {
    fn insert(&mut self, fragment: &Fragment<'_>, frame: &[u8]) -> Inserted {
        let (start, end) = (fragment.offset, fragment.offset + fragment.payload.len());
        let contradicts = if fragment.is_last {
            end < self.end || self.has_last && end != self.end
        } else {
            self.has_last && end > self.end
        };
        if contradicts {
            return Inserted::Contradiction;
        }
        self.has_last |= fragment.is_last;
        self.end = self.end.max(end);
        if start == end {
            return Inserted::Contradiction;
        }
        match self.runs.last_mut() {
            None => self.runs.push((start, end)),
            Some((_, last)) if *last < end => {
                if start < *last {
                    return Inserted::Broken;
                }
                if start == *last {
                    *last = end;
                } else {
                    self.runs.push((start, end));
                }
            }
            Some(_) => {
                let place = self.runs.partition_point(|(_, run_end)| *run_end <= start);
                match self.runs.get(place) {
                    Some((run_start, _)) if *run_start >= end => self.runs.insert(place, (start, end)),
                    Some((run_start, run_end)) if *run_start <= start && end <= *run_end => {
                        return Inserted::Duplicate;
                    }
                    _ => return Inserted::Broken,
                }
            }
        }
        self.present += fragment.payload.len();
        self.largest = self.largest.max(fragment.size);
        self.congestion.note(fragment.class);
        if fragment.dont_fragment {
            self.largest_unfragmentable = self.largest_unfragmentable.max(fragment.size);
        }
        if start == 0 {
            self.headers = frame.get(..fragment.kept_headers()).map(Into::into);
        }
        self.payloads.insert(start, fragment.payload.into());
        Inserted::Yes
    }

    /// The pieces of a packet whose IP header with its options, or with its extensions, has so many bytes.
    fn pieces(&self, header: usize, identification: u32) -> Pieces {
        let ends = self.payloads.iter().map(|(start, payload)| header + start + payload.len());
        Pieces { largest: self.largest, ends: ends.collect(), identification }
    }

    /// The headers of the first fragment, and all payloads behind it.
    fn join(&self, headers: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(headers.len() + self.end);
        frame.extend_from_slice(headers);
        self.payloads.values().for_each(|payload| frame.extend_from_slice(payload));
        frame
    }

    fn join_v4(&self, network: usize, identification: u32) -> Option<(Vec<u8>, Pieces)> {
        let headers = self.headers.as_deref()?;
        let congestion = self.congestion.joint()?;
        let mut frame = self.join(headers);
        let total = u16::try_from(frame.len().checked_sub(network)?).ok()?;
        let mut ip = Ipv4::new(frame.get_mut(network..)?)?;
        ip.set_tos(ip.tos() | congestion);
        ip.set_total_length(total);
        // A packet whose largest piece may not be cut may not be cut further, either.
        let keeps_flag = self.largest_unfragmentable == self.largest;
        ip.set_flags_and_offset(if keeps_flag { IPV4_DONT_FRAGMENT } else { 0 });
        ip.set_checksum(0);
        let sum = Sum::default().bytes(frame.get(network..headers.len())?).finish();
        Ipv4::new(frame.get_mut(network..)?)?.set_checksum(sum);
        Some((frame, self.pieces(headers.len() - network, identification)))
    }

    fn join_v6(&self, network: usize, identification: u32) -> Option<(Vec<u8>, Pieces)> {
        let headers = self.headers.as_deref()?;
        let congestion = self.congestion.joint()?;
        let Extensions { announced_at, at, .. } = fragment_header(headers.get(network..)?)?;
        let mut headers = headers.to_vec();
        headers[network + announced_at] = headers[network + at];
        headers.drain(network + at..network + at + Ipv6Fragment::<&[u8]>::LENGTH);
        let mut frame = self.join(&headers);
        let payload = frame.len().checked_sub(network + Ipv6::<&[u8]>::LENGTH)?;
        let mut ip = Ipv6::new(frame.get_mut(network..)?)?;
        ip.set_traffic_class(ip.traffic_class() | congestion);
        ip.set_payload_length(u16::try_from(payload).ok()?);
        Some((frame, self.pieces(headers.len() - network, identification)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::{self, piece_v4, piece_v6};
    use std::ops::Range;

    const NOW: Timestamp = Timestamp(5);

    fn add(reassembly: &Reassembly, family: Family, packet: &[u8]) -> Outcome {
        add_at(reassembly, 1, family, packet)
    }

    fn add_at(reassembly: &Reassembly, port: u32, family: Family, packet: &[u8]) -> Outcome {
        let frame = [&[0xee; 14], packet].concat();
        reassembly.add(0, PortNumber(port), family, &frame, 14, NOW)
    }

    fn whole(outcome: Outcome) -> Vec<u8> {
        match outcome {
            Outcome::Whole(frame, _) => frame[14..].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn payload() -> Vec<u8> {
        (0..40).collect()
    }

    fn piece(family: Family, payload: &[u8], bytes: Range<usize>, identification: u16) -> Vec<u8> {
        match family {
            Family::V4 => piece_v4(payload, bytes, identification),
            Family::V6 => piece_v6(payload, bytes, identification),
        }
    }

    fn memory(reassembly: &Reassembly, family: Family) -> usize {
        reassembly.waiting(family).memory.load(Ordering::Relaxed)
    }

    #[test]
    fn fragments_of_both_versions_come_together_in_any_order() {
        let payload = payload();
        let cuts = [0..16, 16..24, 24..40];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let reassembly = Reassembly::new();
            let mut done = (None, None);
            for (place, index) in order.into_iter().enumerate() {
                let v4 = add(&reassembly, Family::V4, &piece_v4(&payload, cuts[index].clone(), 9));
                let v6 = add(&reassembly, Family::V6, &piece_v6(&payload, cuts[index].clone(), 9));
                if place < 2 {
                    assert!(matches!((v4, v6), (Outcome::Waits, Outcome::Waits)), "{order:?}");
                } else {
                    done = (Some(whole(v4)), Some(whole(v6)));
                }
            }
            let (Some(v4), Some(v6)) = done else { panic!() };
            assert_eq!(v4[20..], payload);
            assert_eq!(v4[6..8], [0, 0]);
            assert_eq!(Sum::default().bytes(&v4[..20]).finish(), 0);
            assert_eq!(v6[40..], payload);
            assert_eq!((v6[6], u16::from_be_bytes([v6[4], v6[5]])), (17, 40));
            assert_eq!([Family::V4, Family::V6].map(|family| memory(&reassembly, family)), [0, 0], "nothing is left");
        }
    }

    #[test]
    fn the_largest_piece_and_where_each_ends_are_remembered() {
        let reassembly = Reassembly::new();
        let payload = payload();
        add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
        match add(&reassembly, Family::V4, &piece_v4(&payload, 24..40, 9)) {
            Outcome::Whole(_, pieces) => {
                assert_eq!((pieces.largest, &*pieces.ends), (44, &[44, 60][..]));
                assert_eq!(pieces.ends_in(60), [44, 60]);
                assert_eq!(pieces.ends_in(61), [], "another packet than it was");
                let [few, more] = [28, 48].map(|read| pieces.clone().of_which_is_read(read));
                assert_eq!(
                    (few.ends_in(60), more.ends_in(60)),
                    (&[44, 60][..], &[48, 60][..]),
                    "headers that were read"
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mark_of_congestion_on_a_later_fragment_is_the_packets() {
        let payload = payload();
        for (family, shift) in [(Family::V4, 0), (Family::V6, 4)] {
            let marked = |bytes, mark: u8| {
                let mut packet = piece(family, &payload, bytes, 9);
                packet[1] |= mark << shift;
                packet
            };
            let reassembly = Reassembly::new();
            add(&reassembly, family, &marked(0..24, 2));
            let packet = whole(add(&reassembly, family, &marked(24..40, 3)));
            assert_eq!(packet[1] >> shift, 3);
            if family == Family::V4 {
                assert_eq!(Sum::default().bytes(&packet[..20]).finish(), 0);
            }
            add(&reassembly, family, &marked(0..24, 0));
            assert!(matches!(add(&reassembly, family, &marked(24..40, 3)), Outcome::Dropped), "{family:?}");
        }
    }

    #[test]
    fn a_fragment_that_is_cut_off_is_as_long_as_it_is_in_ipv4_only() {
        let payload = payload();
        for (family, header) in [(Family::V4, 20), (Family::V6, 40)] {
            let reassembly = Reassembly::new();
            add(&reassembly, family, &piece(family, &payload, 0..24, 9));
            let mut last = piece(family, &payload, 24..40, 9);
            last.pop();
            match (add(&reassembly, family, &last), family) {
                (Outcome::Whole(frame, _), Family::V4) => assert_eq!(frame[14 + header..], payload[..39]),
                (Outcome::Dropped, Family::V6) => {}
                (outcome, _) => panic!("{family:?}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn a_duplicate_is_dropped_and_harms_nothing() {
        let reassembly = Reassembly::new();
        let payload = payload();
        add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
        let again = add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
        assert!(matches!(again, Outcome::Dropped));
        assert_eq!(whole(add(&reassembly, Family::V4, &piece_v4(&payload, 24..40, 9)))[20..], payload);
    }

    #[test]
    fn a_first_fragment_of_ipv6_without_all_headers_goes_on_by_itself() {
        let payload = payload();
        let reassembly = Reassembly::new();
        for (protocol, length) in [(6, 24), (17, 8), (58, 8), (47, 8)] {
            for (length, is_alone) in [(length - 8, true), (length, false)] {
                let mut first = piece_v6(&payload, 0..length, protocol.into());
                first[40] = protocol;
                let outcome = add(&reassembly, Family::V6, &first);
                assert_eq!(matches!(outcome, Outcome::Alone), is_alone, "{protocol} in {length} bytes");
            }
        }
        let later = add(&reassembly, Family::V6, &piece_v6(&payload, 8..16, 99));
        assert!(matches!(later, Outcome::Waits));
        let v4 = add(&reassembly, Family::V4, &piece_v4(&payload, 0..8, 9));
        assert!(matches!(v4, Outcome::Waits));
    }

    #[test]
    fn an_overlap_drops_the_packet_as_a_whole() {
        let reassembly = Reassembly::new();
        let payload = payload();
        for (family, piece) in [(Family::V4, piece_v4 as fn(&[u8], _, _) -> _), (Family::V6, piece_v6)] {
            add(&reassembly, family, &piece(&payload, 0..24, 9));
            let overlap = add(&reassembly, family, &piece(&payload, 16..40, 9));
            assert!(matches!(overlap, Outcome::Dropped));
            let rest = add(&reassembly, family, &piece(&payload, 24..40, 9));
            assert!(matches!(rest, Outcome::Waits), "its beginning is gone");
        }
    }

    #[test]
    fn a_fragment_that_contradicts_the_others_takes_them_with_it_in_ipv4_only() {
        let payload = payload();
        for (family, is_lost) in [(Family::V4, true), (Family::V6, false)] {
            // One that ends before the last does, one behind the end, and one of no bytes.
            for contradiction in [
                piece(family, &payload[..32], 24..32, 9),
                piece(family, &[0; 64], 48..56, 9),
                piece(family, &payload, 24..24, 9),
            ] {
                let reassembly = Reassembly::new();
                add(&reassembly, family, &piece(family, &payload, 0..16, 9));
                add(&reassembly, family, &piece(family, &payload, 32..40, 9));
                assert!(matches!(add(&reassembly, family, &contradiction), Outcome::Dropped));
                let missing = add(&reassembly, family, &piece(family, &payload, 16..32, 9));
                assert_eq!(matches!(missing, Outcome::Waits), is_lost, "{family:?}");
                assert_eq!(reassembly.lost(), if is_lost { 2 } else { 0 });
            }
            let reassembly = Reassembly::new();
            add(&reassembly, family, &piece(family, &payload, 24..24, 9));
            let shards = &reassembly.waiting(family).shards;
            assert!(shards.iter().all(|shard| shard.lock().queues.is_empty()), "nothing waits for nothing");
        }
    }

    #[test]
    fn fragments_of_other_packets_and_zones_do_not_mix() {
        let reassembly = Reassembly::new();
        let payload = payload();
        add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
        assert!(matches!(add(&reassembly, Family::V4, &piece_v4(&payload, 24..40, 10)), Outcome::Waits));
        let frame = [&[0xee; 14][..], &piece_v4(&payload, 24..40, 9)].concat();
        assert!(matches!(reassembly.add(1, PortNumber(1), Family::V4, &frame, 14, NOW), Outcome::Waits));
    }

    #[test]
    fn fragments_to_an_address_that_each_link_has_come_together_at_one_port_only() {
        let payload = payload();
        let to = |destination: &str, bytes| {
            let mut packet = piece_v6(&payload, bytes, 9);
            packet[24..40].copy_from_slice(&destination.parse::<std::net::Ipv6Addr>().unwrap().octets());
            packet
        };
        for (destination, is_of_port) in [("fd00::2", false), ("fe80::2", true), ("ff02::1", true), ("ff0e::1", true)] {
            let reassembly = Reassembly::new();
            add_at(&reassembly, 1, Family::V6, &to(destination, 0..24));
            let at_another = add_at(&reassembly, 2, Family::V6, &to(destination, 24..40));
            assert_eq!(matches!(at_another, Outcome::Waits), is_of_port, "{destination}");
            if is_of_port {
                whole(add_at(&reassembly, 1, Family::V6, &to(destination, 24..40)));
            }
        }
        let reassembly = Reassembly::new();
        add_at(&reassembly, 1, Family::V4, &piece_v4(&payload, 0..24, 9));
        whole(add_at(&reassembly, 2, Family::V4, &piece_v4(&payload, 24..40, 9)));
    }

    #[test]
    fn nothing_waits_longer_than_its_time() {
        let payload = payload();
        for (family, piece, seconds) in [(Family::V4, piece_v4 as fn(&[u8], _, _) -> _, 30), (Family::V6, piece_v6, 60)]
        {
            for (late, comes_together) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
                let reassembly = Reassembly::new();
                add(&reassembly, family, &piece(&payload, 0..24, 9));
                let then = NOW.after(Duration::from_secs(seconds) - late);
                let frame = [&[0xee; 14][..], &piece(&payload, 24..40, 9)].concat();
                let outcome = reassembly.add(0, PortNumber(1), family, &frame, 14, then);
                assert_eq!(matches!(outcome, Outcome::Whole(..)), comes_together);
                assert_eq!(reassembly.lost(), u64::from(!comes_together));
            }
        }
    }

    #[test]
    fn a_flood_of_first_fragments_is_bounded() {
        let reassembly = Reassembly::new();
        let payload = vec![0; 1480];
        let mut dropped = 0;
        for identification in 0..4000 {
            let packet = piece_v4(&payload, 0..1472, identification);
            dropped += u32::from(matches!(add(&reassembly, Family::V4, &packet), Outcome::Dropped));
        }
        assert!(dropped > 0);
        assert!(memory(&reassembly, Family::V4) <= MEMORY + 2 * 1500 + OVERHEAD);
    }

    #[test]
    fn long_headers_of_first_fragments_count() {
        let reassembly = Reassembly::new();
        // Destination options of 2048 bytes in front of each fragment header.
        let options = [&[44, 255, 1, 254], &[0; 2044][..]].concat();
        let packet = |identification: u16| {
            let fragment = piece_v6(&[0; 16], 0..8, identification);
            frames::v6("fd00::1", "fd00::2", 60, &[&options[..], &fragment[40..]].concat())
        };
        let is_taken = |packet: &Vec<u8>| matches!(add(&reassembly, Family::V6, packet), Outcome::Waits);
        let waiting = (0..20_000).map(packet).take_while(is_taken).count();
        assert!(waiting * packet(0).len() <= MEMORY + packet(0).len(), "{waiting}");
    }

    #[test]
    fn a_flood_of_one_version_leaves_room_for_the_other() {
        let (flood, payload) = (vec![0; 1480], payload());
        for (flooded, other) in [(Family::V6, Family::V4), (Family::V4, Family::V6)] {
            let reassembly = Reassembly::new();
            let mut identifications = 0..4000;
            assert!(identifications.any(|identification| {
                let first = piece(flooded, &flood, 0..1472, identification);
                matches!(add(&reassembly, flooded, &first), Outcome::Dropped)
            }));
            let first = add(&reassembly, other, &piece(other, &payload, 0..24, 9));
            assert!(matches!(first, Outcome::Waits), "{other:?}");
            whole(add(&reassembly, other, &piece(other, &payload, 24..40, 9)));
        }
    }

    #[test]
    fn a_fragment_of_ipv6_that_ends_too_late_harms_nothing() {
        let reassembly = Reassembly::new();
        let payload = payload();
        add(&reassembly, Family::V6, &piece_v6(&payload, 0..24, 9));
        let mut late = piece_v6(&payload, 24..40, 9);
        late[42..44].copy_from_slice(&0xfff8u16.to_be_bytes());
        assert!(matches!(add(&reassembly, Family::V6, &late), Outcome::Dropped));
        assert_eq!(whole(add(&reassembly, Family::V6, &piece_v6(&payload, 24..40, 9)))[40..], payload);
    }

    #[test]
    fn a_packet_that_would_be_too_long_is_dropped() {
        let reassembly = Reassembly::new();
        let mut last = frames::v4("10.0.0.1", "10.0.0.2", 17, &[0; 64]);
        last[6..8].copy_from_slice(&0x1fffu16.to_be_bytes());
        let mut offset = 0u16;
        add(&reassembly, Family::V4, &last);
        while offset < 0x1fff {
            let length = usize::from(0x1fff - offset).min(1024) * 8;
            let mut packet = frames::v4("10.0.0.1", "10.0.0.2", 17, &vec![0; length]);
            packet[6..8].copy_from_slice(&(0x2000 | offset).to_be_bytes());
            offset += u16::try_from(length / 8).unwrap();
            let outcome = add(&reassembly, Family::V4, &packet);
            assert_eq!(matches!(outcome, Outcome::Dropped), offset == 0x1fff);
        }
    }
}
