//! Cutting a packet again that was put together to be tracked.
//!
//! As the OVS kernel datapath does it at output (`ovs_fragment` in `net/openvswitch/actions.c`, `ip_do_fragment`,
//! `ip6_fragment`): a packet longer than the largest piece that it came in leaves in its old pieces, or, where these cannot
//! be kept, in pieces of that size. Each has all IPv4 options. An IPv6 packet keeps its identification, where Linux draws a
//! new one.

use std::sync::Arc;

use crate::packet::checksum::Sum;
use crate::packet::headers::{IPV4_MORE_FRAGMENTS, IPV6_MORE_FRAGMENTS, Ipv4, Ipv6, Ipv6Fragment};
use crate::packet::{Extensions, MIN_FRAME, ip_proto};

use super::tuple::Family;

/// What every link of IPv6 carries in one piece, so that Linux cuts nothing to less (`IPV6_MIN_MTU`).
const IPV6_MINIMUM: usize = 1280;

/// How a packet came in pieces, so that it leaves alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Bytes of the largest piece, from the IP header on (`mru`).
    pub(crate) largest: usize,
    /// Where in the whole packet each piece ends, from the IP header on.
    pub(crate) ends: Arc<[usize]>,
    /// What all pieces have in common.
    pub(crate) identification: u32,
}

impl Pieces {
    /// The same for a packet of which Linux has read so many bytes at least: these become part of the first piece.
    pub(super) fn of_which_is_read(mut self, read: usize) -> Self {
        if self.ends.first().is_some_and(|first| *first < read) {
            let behind = self.ends.iter().copied().filter(|end| *end > read);
            self.ends = std::iter::once(read).chain(behind).collect();
        }
        self
    }

    /// Whether a packet of so many bytes without its outermost tag leaves as it is, with an Ethernet header or without
    /// (`do_output`).
    pub(super) fn let_pass(&self, length: usize, is_ethernet: bool) -> bool {
        length <= self.largest + if is_ethernet { MIN_FRAME } else { 0 }
    }

    /// Where pieces end in a packet that has so many bytes now. If the length has changed there are none.
    pub(super) fn ends_in(&self, length: usize) -> &[usize] {
        match *self.ends {
            [_, .., last] if last == length => &self.ends,
            _ => &[],
        }
    }
}

/// How a packet leaves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// As it is.
    Whole,
    /// In these frames.
    Pieces(Vec<Vec<u8>>),
    /// Not at all, since what every piece would have to have in front is malformed or too long.
    Impossible,
}

/// How a frame leaves that is too long and whose IP header is at `network`. Its packet is cut at `ends`, from the IP header
/// on, if these fit.
pub(super) fn cut(frame: &[u8], network: usize, family: Family, pieces: &Pieces, ends: &[usize]) -> Cut {
    in_pieces(frame, network, family, pieces, ends).map_or(Cut::Impossible, Cut::Pieces)
}

fn in_pieces(frame: &[u8], network: usize, family: Family, pieces: &Pieces, ends: &[usize]) -> Option<Vec<Vec<u8>>> {
    let packet = frame.get(network..)?;
    let (head, room, place) = match family {
        Family::V4 => {
            let head = Ipv4::new(packet)?.header_length();
            (head, pieces.largest.checked_sub(head)?, None)
        }
        Family::V6 => {
            let place = fragmentable(packet)?;
            let head = place.at + Ipv6Fragment::<&[u8]>::LENGTH;
            (place.at, pieces.largest.max(IPV6_MINIMUM).checked_sub(head)?, Some(place))
        }
    };
    let payload = packet.get(head..).filter(|_| room >= 8)?;
    let lengths = old_lengths(head, packet.len(), room, ends).unwrap_or_else(|| new_lengths(payload.len(), room));
    let mut frames = Vec::new();
    let mut offset = 0;
    for length in lengths {
        let is_last = offset + length == payload.len();
        let body = payload.get(offset..offset + length)?;
        let mut headers = frame[..network + head].to_vec();
        match place {
            None => mark_v4(&mut headers, network, offset, length, is_last)?,
            Some(place) => mark_v6(&mut headers, network, place, offset, length, is_last, pieces.identification)?,
        }
        headers.extend_from_slice(body);
        frames.push(headers);
        offset += length;
    }
    Some(frames)
}

/// The lengths of the payloads of pieces that end at `ends`, as far as the packet goes; `None` if there is but one, or if
/// one may not be a fragment or has no room.
fn old_lengths(head: usize, packet: usize, room: usize, ends: &[usize]) -> Option<Vec<usize>> {
    let mut lengths = Vec::new();
    let mut start = head;
    for end in ends.iter().copied().filter(|end| *end < packet).chain([packet]) {
        let is_last = end == packet;
        lengths.push(end.checked_sub(start).filter(|length| *length <= room && (is_last || length % 8 == 0))?);
        start = end;
    }
    (lengths.len() > 1).then_some(lengths)
}

/// The lengths of the payloads of pieces that are as large as they may be.
fn new_lengths(payload: usize, room: usize) -> Vec<usize> {
    let full = room & !7;
    let mut lengths = Vec::new();
    let mut left = payload;
    while left > room {
        lengths.push(full);
        left -= full;
    }
    lengths.push(left);
    lengths
}

fn mark_v4(headers: &mut [u8], network: usize, offset: usize, length: usize, is_last: bool) -> Option<()> {
    let header = headers.get_mut(network..)?;
    let total = u16::try_from(header.len() + length).ok()?;
    let mut ip = Ipv4::new(&mut *header)?;
    let more = if is_last { 0 } else { IPV4_MORE_FRAGMENTS };
    // The flag that forbids fragments is gone, as it is in Linux.
    ip.set_flags_and_offset(more | u16::try_from(offset / 8).ok()?);
    ip.set_total_length(total);
    ip.set_checksum(0);
    let sum = Sum::default().bytes(header).finish();
    Ipv4::new(header)?.set_checksum(sum);
    Some(())
}

fn mark_v6(
    headers: &mut Vec<u8>,
    network: usize,
    place: Extensions<'_>,
    offset: usize,
    length: usize,
    is_last: bool,
    identification: u32,
) -> Option<()> {
    let mut bytes = [0; Ipv6Fragment::<&[u8]>::LENGTH];
    let mut header = Ipv6Fragment::new(&mut bytes)?;
    header.set_next_header(place.protocol);
    header.set_offset_and_more(u16::try_from(offset).ok()? | if is_last { 0 } else { IPV6_MORE_FRAGMENTS });
    header.set_identification(identification);
    *headers.get_mut(network + place.announced_at)? = ip_proto::FRAGMENT;
    headers.extend_from_slice(&bytes);
    let payload = headers.len() - network - Ipv6::<&[u8]>::LENGTH + length;
    Ipv6::new(headers.get_mut(network..)?)?.set_payload_length(u16::try_from(payload).ok()?);
    Some(())
}

/// Where in an IPv6 packet the part begins that is cut: behind hop-by-hop options, routing headers, and destination
/// options, unless these come behind a routing header (`ip6_find_1stfragopt`; the home address option of RFC 6275 is not
/// looked for).
fn fragmentable(packet: &[u8]) -> Option<Extensions<'_>> {
    let mut headers = Extensions::of(packet)?;
    let mut is_routed = false;
    loop {
        match headers.protocol {
            ip_proto::HOP_BY_HOP => {}
            ip_proto::ROUTING => is_routed = true,
            ip_proto::DESTINATION if !is_routed => {}
            _ => return Some(headers),
        }
        headers.step()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::fragment::fragment_header;
    use crate::conntrack::frames::{self, piece_v4, piece_v6};
    use crate::conntrack::reassembly::{Outcome, Reassembly};
    use sluice_flow::port::PortNumber;
    use sluice_flow::time::Timestamp;

    fn join(family: Family, frames: &[Vec<u8>]) -> (Vec<u8>, Pieces) {
        let reassembly = Reassembly::new();
        for frame in frames {
            if let Outcome::Whole(whole, pieces) = reassembly.add(0, PortNumber(1), family, frame, 14, Timestamp(0)) {
                return (whole, pieces);
            }
        }
        panic!("it never became whole");
    }

    fn framed(packets: [Vec<u8>; 3]) -> [Vec<u8>; 3] {
        packets.map(|packet| [&[0xee; 14][..], &packet].concat())
    }

    fn pieces_of(cut: Cut) -> Vec<Vec<u8>> {
        match cut {
            Cut::Pieces(frames) => frames,
            other => panic!("{other:?}"),
        }
    }

    /// The pieces of a packet, joined and cut again.
    fn again(family: Family, frames: &[Vec<u8>], read: usize) -> Vec<Vec<u8>> {
        let (whole, pieces) = join(family, frames);
        let pieces = pieces.of_which_is_read(read);
        pieces_of(cut(&whole, 14, family, &pieces, pieces.ends_in(whole.len() - 14)))
    }

    #[test]
    fn a_packet_leaves_in_the_pieces_that_it_came_in() {
        let payload: Vec<u8> = (0..100).collect();
        let cuts = [0..16, 16..72, 72..100];
        let v4 = framed(cuts.clone().map(|cut| frames::summed(Family::V4, piece_v4(&payload, cut, 77))));
        assert_eq!(again(Family::V4, &v4, 28), v4);
        let v6 = framed(cuts.map(|cut| piece_v6(&payload, cut, 77)));
        assert_eq!(again(Family::V6, &v6, 48), v6);
    }

    #[test]
    fn options_of_ipv4_are_in_every_piece() {
        let payload: Vec<u8> = (0..60).collect();
        let options = [7, 7, 4, 0, 0, 0, 0, 0];
        let with_options = |mut packet: Vec<u8>| {
            packet.splice(20..20, options);
            packet[0] = 0x47;
            packet[3] += 8;
            packet
        };
        let cuts = [0..24, 24..48, 48..60];
        let frames = framed(cuts.map(|cut| with_options(piece_v4(&payload, cut, 77))));
        for frame in again(Family::V4, &frames, 36) {
            assert_eq!(frame[34..42], options);
        }
    }

    #[test]
    fn old_pieces_are_kept_behind_options_that_were_not_in_every_piece_before() {
        let mut payload = vec![17, 0, 1, 4, 0, 0, 0, 0];
        payload.extend(0..100);
        let destination_options = |mut packet: Vec<u8>| {
            packet[40] = ip_proto::DESTINATION;
            packet
        };
        let cuts = [0..24, 24..72, 72..108];
        let frames = framed(cuts.map(|cut| destination_options(piece_v6(&payload, cut, 77))));
        let again = again(Family::V6, &frames, 56);
        let bodies: Vec<_> = again.iter().map(|frame| frame.len() - 14 - 40 - 8 - 8).collect();
        assert_eq!(bodies, [16, 48, 36]);
    }

    #[test]
    fn a_packet_is_cut_anew_where_its_old_pieces_cannot_be_kept() {
        let payload: Vec<u8> = (0..200).collect();
        let packet = frames::v4("10.0.0.1", "10.0.0.2", 17, &payload);
        let frame = [&[0xee; 14][..], &packet].concat();
        let pieces = Pieces { largest: 70, ends: [].into(), identification: 0 };
        let lengths = |ends: &[usize]| {
            let frames = pieces_of(cut(&frame, 14, Family::V4, &pieces, ends));
            assert_eq!(join(Family::V4, &frames).0[34..], payload);
            frames.iter().map(|frame| frame.len() - 34).collect::<Vec<_>>()
        };
        let anew = [48, 48, 48, 48, 8];
        assert_eq!(lengths(&[]), anew);
        assert_eq!(lengths(&[60, 108, 156, 180, 220]), [40, 48, 48, 24, 40]);
        assert_eq!(lengths(&[64, 112, 160, 208, 220]), anew, "a piece of no multiple of eight");
        assert_eq!(lengths(&[60, 116, 164, 212, 220]), anew, "one that is too large");
        assert_eq!(lengths(&[12, 60, 108, 156, 204, 220]), anew, "one that ends in the header");
    }

    #[test]
    fn a_frame_that_was_cut_off_leaves_in_as_many_pieces_as_there_is_something_of() {
        let payload: Vec<u8> = (0..100).collect();
        let cuts = [0..16, 16..72, 72..100];
        let frames = framed(cuts.map(|cut| piece_v4(&payload, cut, 77)));
        let (whole, pieces) = join(Family::V4, &frames);
        let ends = pieces.ends_in(120);
        let frames = pieces_of(cut(&whole[..whole.len() - 20], 14, Family::V4, &pieces, ends));
        assert_eq!(frames.iter().map(|frame| frame.len() - 34).collect::<Vec<_>>(), [16, 56, 8]);
    }

    #[test]
    fn ipv6_is_cut_anew_to_no_less_than_every_link_carries() {
        let payload: Vec<u8> = vec![7; 1500];
        let packet = frames::v6("fd00::1", "fd00::2", 17, &payload);
        for (largest, first) in [(600, 1280), (1280, 1280), (1399, 1392)] {
            let pieces = Pieces { largest, ends: [].into(), identification: 7 };
            let frames = pieces_of(cut(&packet, 0, Family::V6, &pieces, &[]));
            assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [first, 1500 + 2 * 48 - first]);
        }
    }

    #[test]
    fn a_packet_that_fits_is_left_alone() {
        let pieces = Pieces { largest: 70, ends: [68, 70].into(), identification: 0 };
        assert_eq!([84, 85].map(|length| pieces.let_pass(length, true)), [true, false]);
        assert_eq!([70, 71].map(|length| pieces.let_pass(length, false)), [true, false]);
    }

    #[test]
    fn a_packet_whose_headers_have_no_end_does_not_leave() {
        let mut payload = [17, 255].to_vec();
        payload.resize(200, 0);
        let packet = frames::v6("fd00::1", "fd00::2", ip_proto::HOP_BY_HOP, &payload);
        let pieces = Pieces { largest: 100, ends: [].into(), identification: 7 };
        assert_eq!(cut(&packet, 0, Family::V6, &pieces, &[]), Cut::Impossible);
    }

    #[test]
    fn headers_of_ipv6_that_are_in_every_fragment_are_those_of_linux() {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const DESTINATION: u8 = 60;
        let uncut = |chain: &[u8]| {
            let next = chain.iter().skip(1).chain(&[17]);
            let mut payload: Vec<u8> = next.flat_map(|next| [*next, 0, 1, 4, 0, 0, 0, 0]).collect();
            payload.truncate(chain.len() * 8);
            payload.extend([7; 1400]);
            let packet = frames::v6("fd00::1", "fd00::2", *chain.first().unwrap_or(&17), &payload);
            let pieces = Pieces { largest: 100, ends: [].into(), identification: 7 };
            let frames = pieces_of(cut(&packet, 0, Family::V6, &pieces, &[]));
            let first = fragment_header(&frames[0]).unwrap();
            (first.at - 40) / 8
        };
        assert_eq!(uncut(&[]), 0);
        assert_eq!(uncut(&[HOP_BY_HOP, ROUTING]), 2);
        assert_eq!(uncut(&[DESTINATION]), 1);
        assert_eq!(uncut(&[DESTINATION, ROUTING]), 2);
        assert_eq!(uncut(&[ROUTING, DESTINATION]), 1, "those are for the last station");
        assert_eq!(uncut(&[ROUTING, DESTINATION, ROUTING]), 1);
    }
}
