//! Sequence numbers of a TCP connection in which a gateway changed the length of what is said.
//!
//! The effect is that of `net/netfilter/nf_conntrack_seqadj.c`.

use crate::packet::checksum::replace;
use crate::packet::headers::{Tcp, Wire};

const SEQUENCE: usize = 4;
const ACKNOWLEDGEMENT: usize = 8;

/// How far the numbers of one direction are shifted (`struct nf_ct_seqadj`): by `before` up to a place, by `after`
/// behind it. Earlier changes are no longer told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adjustment {
    place: u32,
    before: u32,
    after: u32,
}

impl Adjustment {
    /// Notes that the segment with this number became longer by so much, or shorter (`nf_ct_seqadj_set`). One that is
    /// sent again changes nothing.
    pub(crate) fn note(&mut self, sequence: u32, growth: i32) {
        if growth != 0 && (self.before == self.after || is_after(sequence, self.place)) {
            self.place = sequence;
            self.before = self.after;
            self.after = self.after.wrapping_add_signed(growth);
        }
    }

    /// What is added to a sequence number (`nf_ct_seq_offset`).
    pub(crate) fn offset(&self, sequence: u32) -> u32 {
        if is_after(sequence, self.place) { self.after } else { self.before }
    }

    /// The number that the sender knows, for one that the other end acknowledges.
    fn undo(&self, acknowledged: u32) -> u32 {
        acknowledged.wrapping_sub(self.offset(acknowledged.wrapping_sub(self.before)))
    }
}

/// Shifts the numbers of a segment, those of selective acknowledgements (RFC 2018) among them: `own` is what the
/// sender's numbers are shifted by, `other` what those of the other end are. `None` if the segment is malformed, as far
/// as that shows (`nf_ct_seq_adjust`).
pub(crate) fn adjust(segment: &mut [u8], own: &Adjustment, other: &Adjustment) -> Option<()> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const SACK: u8 = 5;
    const BLOCK: usize = 8;
    let header = Tcp::new(&mut *segment)?.header_length();
    let sequence = u32::read(segment, SEQUENCE);
    write(segment, SEQUENCE, sequence.wrapping_add(own.offset(sequence)))?;
    let acknowledged = u32::read(segment, ACKNOWLEDGEMENT);
    write(segment, ACKNOWLEDGEMENT, other.undo(acknowledged))?;
    let mut at = Tcp::<&[u8]>::LENGTH;
    while at < header {
        match *segment.get(at)? {
            END => break,
            NO_OPERATION => at += 1,
            kind => {
                let length = usize::from(*segment.get(at + 1).filter(|_| at + 1 < header)?);
                if length < 2 || at + length > header {
                    return None;
                }
                if kind == SACK && length >= 2 + BLOCK && (length - 2).is_multiple_of(BLOCK) {
                    for edge in (at + 2..at + length).step_by(4) {
                        let acknowledged = u32::read(segment.get(..edge + 4)?, edge);
                        write(segment, edge, other.undo(acknowledged))?;
                    }
                }
                at += length;
            }
        }
    }
    Some(())
}

/// Puts a number in and keeps the checksum right. A number may stand at an odd place, where its bytes count crosswise.
fn write(segment: &mut [u8], at: usize, number: u32) -> Option<()> {
    let new = number.to_be_bytes();
    let old: [u8; 4] = segment.get(at..at + 4)?.try_into().ok()?;
    segment[at..at + 4].copy_from_slice(&new);
    let mut tcp = Tcp::new(segment)?;
    let sum = if at.is_multiple_of(2) {
        replace(tcp.checksum(), &old, &new)
    } else {
        let aligned = |bytes: [u8; 4]| [0, bytes[0], bytes[1], bytes[2], bytes[3], 0];
        replace(tcp.checksum(), &aligned(old), &aligned(new))
    };
    tcp.set_checksum(sum);
    Some(())
}

/// Whether a sequence number lies behind another (RFC 9293, 3.4).
fn is_after(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) >= 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames;
    use crate::conntrack::tuple::Family;

    #[test]
    fn what_comes_behind_a_change_is_shifted_and_what_came_before_it_is_not() {
        let mut adjustment = Adjustment::default();
        adjustment.note(1000, 5);
        adjustment.note(1000, 5);
        assert_eq!([999, 1000, 1001].map(|sequence| adjustment.offset(sequence)), [0, 0, 5]);
        adjustment.note(2000, -7);
        assert_eq!([1500, 2000, 2001].map(|sequence| adjustment.offset(sequence)), [5, 5, (-2i32) as u32]);
    }

    #[test]
    fn numbers_wrap_around() {
        let mut adjustment = Adjustment::default();
        adjustment.note(u32::MAX - 3, 10);
        assert_eq!(adjustment.offset(2), 10);
        assert_eq!(adjustment.offset(u32::MAX - 3), 0);
        assert_eq!(adjustment.undo(12), 2);
    }

    #[test]
    fn every_number_of_a_segment_is_shifted_and_its_checksum_stays_right() {
        let mut own = Adjustment::default();
        own.note(100, 3);
        let mut other = Adjustment::default();
        other.note(500, -4);
        // A block at an odd place, as a single NOP in front of it makes it.
        for nops in [1, 2] {
            let mut options = vec![1; nops];
            options.extend([5, 10]);
            options.extend(700u32.to_be_bytes());
            options.extend(800u32.to_be_bytes());
            options.resize(12, 0);
            let mut segment = frames::tcp(21, 1000, 0x10, 200, 600, 1000, &options);
            segment[12] = 0x80;
            let mut packet = frames::summed(Family::V4, frames::v4("10.0.0.1", "10.0.0.2", 6, &segment));
            adjust(&mut packet[20..], &own, &other).unwrap();
            assert!(frames::is_summed(&packet, Family::V4));
            let number = |at: usize| u32::read(&packet[20..], at);
            assert_eq!([number(4), number(8)], [203, 604]);
            assert_eq!([number(22 + nops), number(26 + nops)], [704, 804]);
        }
    }

    #[test]
    fn an_option_without_an_end_is_malformed() {
        for options in [[8, 0, 0, 0], [8, 9, 0, 0], [1, 1, 1, 8]] {
            let mut segment = frames::tcp(21, 1000, 0x10, 200, 600, 1000, &options);
            segment[12] = 0x60;
            assert_eq!(adjust(&mut segment, &Adjustment::default(), &Adjustment::default()), None);
        }
    }
}
