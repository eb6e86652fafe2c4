//! Adds what is published to the kernel's answers about flows.
//!
//! This runs in ovs-vswitchd. It cannot panic: no place is looked at that may not be there, and no sum can overflow.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod message;
pub mod meter;
mod output;

use std::hint::black_box;
use std::io::IoSliceMut;

use crate::GRACE;
use crate::attachment::Attachment;
use crate::layout::Life;
use crate::layout::record::REACH;
use crate::marks::Marks;
use crate::records::{Found, Records, Totals};
use crate::status::Counters;
use message::{
    ATTRIBUTE_HEADER, Flow, NETLINK_HEADER, aligned, attribute, attributes, half, leading_name, long, message, put,
};
use output::Output;

/// `GENL_ID_CTRL`: the family that tells of families.
pub const CONTROLLER: u16 = 0x10;

/// The type of the first message of a datagram, which is that of all of them but the last of a dump.
pub fn kind(datagram: &[u8]) -> Option<u16> {
    half(datagram, 4)
}

/// Whether a datagram is a part of a dump, for which ovs-vswitchd makes more room if need be.
fn is_of_dump(datagram: &[u8]) -> bool {
    /// `NLM_F_MULTI`
    const PART: u16 = 0x2;
    half(datagram, 6).is_some_and(|flags| flags & PART != 0)
}

/// The number of a family, if a datagram tells of it; the name ends with a zero byte. The kernel gives the number when its module is loaded.
pub fn family(datagram: &[u8], name: &[u8]) -> Option<u16> {
    /// `struct genlmsghdr`
    const HEADER: usize = NETLINK_HEADER + 4;
    let mut at = 0;
    while let Some((kind, end)) = message(datagram, at) {
        let (mut number, mut is_wanted) = (None, false);
        if kind == CONTROLLER
            && let Some(family) = datagram.get(at..end)
        {
            // `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`
            attributes(family, HEADER, |kind, place, length| match (kind, length) {
                (1, 2) => number = half(family, place),
                (2, _) => is_wanted = family.get(place..).is_some_and(|rest| rest.starts_with(name)),
                _ => {}
            });
        }
        if is_wanted && number.is_some() {
            return number;
        }
        at = aligned(end);
    }
    None
}

/// Changes a datagram that was received, and returns how long it is afterwards.
///
/// `datagram` is a copy of what was received into `buffers`, of which its place and that behind it are written. What is not about a flow
/// with a record stays as it is, and so does a message that the buffers have no room for. `now` is in ms of `CLOCK_MONOTONIC`.
pub fn change(
    datagram: &mut [u8],
    buffers: &mut [IoSliceMut<'_>],
    family: u16,
    attachment: &Attachment,
    now: u64,
) -> usize {
    let room = buffers.iter().fold(0usize, |sum, buffer| sum.saturating_add(buffer.len()));
    if room < datagram.len() {
        return datagram.len();
    }
    // ovs-vswitchd asks for flows that it does not know one by one, into 2,048 bytes of its stack (`ukey_create_from_dpif_flow` of
    // ofproto-dpif-upcall.c), and ends if an answer goes beyond them.
    let kept = buffers.first().map_or(0, |first| first.len());
    let room = if !is_of_dump(datagram) && datagram.len() <= kept { kept } else { room };
    let mut answer = Answer {
        records: attachment.records(),
        marks: attachment.marks(),
        now,
        room: room.saturating_sub(datagram.len()),
        grown: 0,
        output: Output::new(buffers),
        counters: Counters { datagrams: 1, ..Counters::default() },
    };
    answer.change(datagram, family);
    attachment.count(answer.counters);
    datagram.len().saturating_add(answer.grown)
}

struct Answer<'a, 'b, 'c> {
    records: Records<'a>,
    marks: Marks<'a>,
    now: u64,
    /// Bytes that the buffers have left.
    room: usize,
    /// Bytes that were added.
    grown: usize,
    output: Output<'b, 'c>,
    counters: Counters,
}

impl Answer<'_, '_, '_> {
    fn change(&mut self, datagram: &mut [u8], family: u16) {
        self.touch(datagram, family);
        let mut at = 0;
        while at < datagram.len() {
            let Some((kind, end)) = message(datagram, at) else {
                self.counters.malformed = self.counters.malformed.wrapping_add(1);
                break;
            };
            // The last message need not end on a border.
            let next = aligned(end).min(datagram.len());
            let padding = aligned(end).saturating_sub(next);
            let added =
                datagram.get_mut(at..end).filter(|_| kind == family).and_then(|message| self.add(message, padding));
            let bytes = datagram.get(at..next).unwrap_or_default();
            match &added {
                None if self.grown == 0 => self.output.skip(bytes.len()),
                None => self.output.write(bytes),
                Some(added) => {
                    self.output.write(bytes);
                    if !added.bytes().is_empty() {
                        self.output.write([0; 3].get(..padding).unwrap_or_default());
                        self.output.write(added.bytes());
                        self.grown = self.grown.saturating_add(padding).saturating_add(added.length);
                    }
                }
            }
            at = next;
        }
        if self.grown > 0 {
            self.output.write(datagram.get(at..).unwrap_or_default());
        }
    }

    /// Reads a word of each record that will be wanted. Most of what a look costs is the wait for memory, and those of looks that do not
    /// depend on each other go on at the same time.
    fn touch(&self, datagram: &[u8], family: u16) {
        let (mut at, mut sum) = (0, 0);
        while let Some((kind, end)) = message(datagram, at) {
            if kind == family
                && let Some(name) = leading_name(datagram, at)
            {
                let home = self.records.home(name);
                sum ^= self.records.load(home, REACH) ^ self.marks.load(home);
            }
            at = aligned(end);
        }
        black_box(sum);
    }

    /// Adds to one message in its place, and returns what is to come behind it. `None` if it stays as it is.
    fn add(&mut self, message: &mut [u8], padding: usize) -> Option<Added> {
        let Some(flow) = Flow::read(message) else {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        };
        let name = flow.name?;
        self.counters.messages = self.counters.messages.wrapping_add(1);
        let record = match self.records.find(name) {
            Found::At(record) => record,
            Found::No => return None,
            Found::Torn => {
                self.counters.torn = self.counters.torn.wrapping_add(1);
                return None;
            }
        };
        let is_wanted = match record.life {
            Life::Live => true,
            Life::Ended(at) => flow.is_deletion && self.now.abs_diff(at) <= GRACE,
            Life::Free => false,
        };
        // What was deleted before is another life of the UFID, which the agent has not heard of yet.
        if !is_wanted || self.marks.has(&record) {
            return None;
        }
        if flow.is_deletion {
            self.marks.set(&record);
        }
        let mut totals = record.totals;
        // A time that is still to come would keep the flow for as long.
        totals.used = totals.used.min(self.now);
        let added = Added::new(&flow, &totals);
        if added.length > 0 {
            let Some(left) = self.room.checked_sub(added.length.saturating_add(padding)) else {
                self.counters.no_room = self.counters.no_room.wrapping_add(1);
                return None;
            };
            self.room = left;
            let length = aligned(message.len()).saturating_add(added.length);
            put(message, 0, u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        }
        add_in_place(message, &flow, &totals);
        self.counters.changed = self.counters.changed.wrapping_add(1);
        Some(added)
    }
}

/// Adds to the attributes that are there. The kernel leaves out those that are 0.
fn add_in_place(message: &mut [u8], flow: &Flow, totals: &Totals) {
    let mut raise = |place: usize, raised: &dyn Fn(u64) -> u64| {
        if let (true, Some(before)) = (place > 0, long(message, place)) {
            put(message, place, raised(before).to_ne_bytes());
        }
    };
    let bytes = if flow.statistics > 0 { flow.statistics.wrapping_add(8) } else { 0 };
    raise(flow.statistics, &|packets| packets.wrapping_add(totals.packets));
    raise(bytes, &|bytes| bytes.wrapping_add(totals.bytes));
    raise(flow.used, &|used| used.max(totals.used));
    if let (true, Some(flags)) = (flow.tcp_flags > 0, message.get_mut(flow.tcp_flags)) {
        *flags |= totals.tcp_flags;
    }
}

/// Attributes that come behind a message.
struct Added {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Added {
    /// Bytes of all three.
    const MOST: usize = 20 + 12 + 8;

    fn new(flow: &Flow, totals: &Totals) -> Self {
        let mut added = Self { bytes: [0; Self::MOST], length: 0 };
        if flow.statistics == 0 && (totals.packets, totals.bytes) != (0, 0) {
            let ([a, b, c, d, e, f, g, h], bytes) = (totals.packets.to_ne_bytes(), totals.bytes.to_ne_bytes());
            let [i, j, k, l, m, n, o, p] = bytes;
            added.push(attribute::STATS, [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]);
        }
        if flow.used == 0 && totals.used > 0 {
            added.push(attribute::USED, totals.used.to_ne_bytes());
        }
        if flow.tcp_flags == 0 && totals.tcp_flags > 0 {
            added.push(attribute::TCP_FLAGS, [totals.tcp_flags]);
        }
        added
    }

    fn push<const N: usize>(&mut self, kind: u16, payload: [u8; N]) {
        let length = ATTRIBUTE_HEADER.saturating_add(N);
        let at = self.length;
        put(&mut self.bytes, at, u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
        put(&mut self.bytes, at.wrapping_add(2), kind.to_ne_bytes());
        put(&mut self.bytes, at.wrapping_add(ATTRIBUTE_HEADER), payload);
        self.length = at.saturating_add(aligned(length));
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
