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
mod tests;
