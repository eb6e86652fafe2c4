//! Cutting a packet again that was put together to be tracked.
//!
//! As the OVS kernel datapath does it at output (`ovs_fragment` in `net/openvswitch/actions.c`): a packet longer than the
//! largest piece that it came in leaves in its old pieces, or, if its length has changed, in pieces of that size.
//! An IPv6 packet keeps its identification, where Linux draws a new one.

use crate::packet::checksum::Sum;
use crate::packet::headers::{IPV4_MORE_FRAGMENTS, IPV6_MORE_FRAGMENTS, Ipv4, Ipv6, Ipv6Fragment};
use crate::packet::{Extensions, ip_proto};

use super::reassembly::Pieces;
use super::tuple::Family;

/// The frames that a frame leaves in; `None` if it leaves as it is. Its IP header is at `network`.
pub(crate) fn cut(frame: &[u8], network: usize, family: Family, pieces: &Pieces) -> Option<Vec<Vec<u8>>> {
    let packet = frame.get(network..)?;
    if packet.len() <= pieces.largest {
        return None;
    }
    let (head, extra, place) = match family {
        Family::V4 => (Ipv4::new(packet)?.header_length(), 0, None),
        Family::V6 => {
            let place = fragmentable(packet)?;
            (place.at, Ipv6Fragment::<&[u8]>::LENGTH, Some(place))
        }
    };
    let room = pieces.largest.checked_sub(head + extra).filter(|room| *room >= 8)?;
    let payload = packet.get(head..)?;
    let mut frames = Vec::new();
    let mut offset = 0;
    for length in lengths(payload.len(), room, pieces) {
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

/// The lengths of the pieces of a payload.
fn lengths(payload: usize, room: usize, pieces: &Pieces) -> Vec<usize> {
    let old: &[usize] = &pieces.lengths;
    if old.iter().sum::<usize>() == payload && old.iter().all(|length| *length <= room) {
        return old.to_vec();
    }
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
    if offset > 0 {
        blank_options(header);
    }
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

/// Leaves only those options that are in all fragments (RFC 791, 3.1).
fn blank_options(header: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const IN_ALL: u8 = 0x80;
    let mut at = Ipv4::<&[u8]>::LENGTH;
    while at < header.len() {
        let length = match header[at] {
            END => return,
            NO_OPERATION => 1,
            _ => match header.get(at + 1) {
                Some(length) if *length >= 2 && at + usize::from(*length) <= header.len() => usize::from(*length),
                _ => return,
            },
        };
        if header[at] & IN_ALL == 0 {
            header[at..at + length].fill(NO_OPERATION);
        }
        at += length;
    }
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
    use sluice_flow::time::Timestamp;

    fn join(family: Family, frames: &[Vec<u8>]) -> (Vec<u8>, Pieces) {
        let reassembly = Reassembly::new();
        for frame in frames {
            if let Outcome::Whole(whole, pieces) = reassembly.add(0, family, frame, 14, Timestamp(0)) {
                return (whole, pieces);
            }
        }
        panic!("it never became whole");
    }

    fn framed(packets: [Vec<u8>; 3]) -> [Vec<u8>; 3] {
        packets.map(|packet| [&[0xee; 14][..], &packet].concat())
    }

    #[test]
    fn a_packet_leaves_in_the_pieces_that_it_came_in() {
        let payload: Vec<u8> = (0..100).collect();
        let cuts = [0..16, 16..72, 72..100];
        let v4 = framed(cuts.clone().map(|cut| frames::summed(Family::V4, piece_v4(&payload, cut, 77))));
        let (whole, pieces) = join(Family::V4, &v4);
        assert_eq!(cut(&whole, 14, Family::V4, &pieces).unwrap(), v4);
        let v6 = framed(cuts.map(|cut| piece_v6(&payload, cut, 77)));
        let (whole, pieces) = join(Family::V6, &v6);
        assert_eq!(cut(&whole, 14, Family::V6, &pieces).unwrap(), v6);
    }

    #[test]
    fn a_packet_of_another_length_is_cut_to_the_same_size() {
        let payload: Vec<u8> = (0..200).collect();
        let packet = frames::v4("10.0.0.1", "10.0.0.2", 17, &payload);
        let frame = [&[0xee; 14][..], &packet].concat();
        let pieces = Pieces { largest: 70, lengths: [48, 8].into(), identification: 0 };
        let cut = cut(&frame, 14, Family::V4, &pieces).unwrap();
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [14 + 68, 82, 82, 82, 14 + 20 + 8]);
        let (whole, _) = join(Family::V4, &cut);
        assert_eq!(whole[34..], payload);
    }

    #[test]
    fn a_packet_that_fits_is_left_alone() {
        let packet = frames::v4("10.0.0.1", "10.0.0.2", 17, &[0; 50]);
        let frame = [&[0xee; 14][..], &packet].concat();
        let pieces = Pieces { largest: 70, lengths: [48, 2].into(), identification: 0 };
        assert_eq!(cut(&frame, 14, Family::V4, &pieces), None);
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
            payload.extend([7; 100]);
            let packet = frames::v6("fd00::1", "fd00::2", *chain.first().unwrap_or(&17), &payload);
            let pieces = Pieces { largest: 100, lengths: [].into(), identification: 7 };
            let cut = cut(&packet, 0, Family::V6, &pieces).unwrap();
            let first = fragment_header(&cut[0]).unwrap();
            (first.at - 40) / 8
        };
        assert_eq!(uncut(&[]), 0);
        assert_eq!(uncut(&[HOP_BY_HOP, ROUTING]), 2);
        assert_eq!(uncut(&[DESTINATION]), 1);
        assert_eq!(uncut(&[DESTINATION, ROUTING]), 2);
        assert_eq!(uncut(&[ROUTING, DESTINATION]), 1, "those are for the last station");
        assert_eq!(uncut(&[ROUTING, DESTINATION, ROUTING]), 1);
    }

    #[test]
    fn only_options_for_all_fragments_are_in_all() {
        let mut header = [0u8; 32];
        header[20..28].copy_from_slice(&[7, 3, 4, 0x83, 3, 4, 1, 68]);
        header[28..32].copy_from_slice(&[4, 5, 0, 0]);
        blank_options(&mut header);
        assert_eq!(header[20..32], [1, 1, 1, 0x83, 3, 4, 1, 1, 1, 1, 1, 0]);
    }
}
