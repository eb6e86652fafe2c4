//! What a sender leaves to the device: checksums, and the cutting of a large TCP segment into frames (LSO).
//!
//! Each frame of a large segment has the same headers, but for lengths, sequence number, and what follows from these. The identification of
//! IPv4 counts up in every header, FIN and PSH are in the last frame only, and CWR in the first only: no driver relies on it, and it is
//! what Linux does where hardware cannot.
//!
//! Large segments are frozen: no test of Sluice needs them.

use crate::packet::checks::{addresses, ip_packet};
use crate::packet::{Fragment, Headers, Layer, Transport, TunnelPorts, edit};

/// Flags of an Ethernet segment: checksums that the device fills in.
const TRANSPORT: u8 = 1 << 7;
const IP: u8 = 1 << 6;
const INNER_TRANSPORT: u8 = 1 << 5;
const INNER_IP: u8 = 1 << 4;
/// All that there are.
pub(super) const CHECKSUMS: u8 = TRANSPORT | IP | INNER_TRANSPORT | INNER_IP;

/// Fills in the checksums that are wanted, where there are such headers.
pub(super) fn fill_in(frame: &mut [u8], wanted: u8) {
    let headers = Headers::parse(frame, &TunnelPorts::default());
    // The outer datagram covers what is inside.
    if let Some(inner) = &headers.inner {
        fill_in_layer(frame, inner, (wanted & INNER_IP != 0, wanted & INNER_TRANSPORT != 0));
    }
    fill_in_layer(frame, &headers.outer, (wanted & IP != 0, wanted & TRANSPORT != 0));
}

fn fill_in_layer(frame: &mut [u8], layer: &Layer, (with_ip, with_transport): (bool, bool)) {
    let Some(ip) = &layer.ip else { return };
    let header = ip.at..ip.at + usize::from(ip.ihl) * 4;
    if with_ip && ip.version == 4 && header.end <= frame.len() {
        write(frame, ip.at + 10, 0);
        let sum = edit::checksum(&frame[header]);
        write(frame, ip.at + 10, sum);
    }
    let (at, sum_at, is_udp) = match layer.transport {
        Some(transport @ Transport::Tcp { at, .. }) => (at, transport.checksum_at(), false),
        Some(transport @ Transport::Udp { at, .. }) => (at, transport.checksum_at(), true),
        _ => return,
    };
    let Some(sum_at) = sum_at.filter(|_| with_transport && ip.fragment == Fragment::No) else { return };
    write(frame, sum_at, 0);
    let packet = ip_packet(frame, ip);
    let Some(segment) = packet.get(at - ip.at..).filter(|segment| segment.len() >= sum_at + 2 - at) else { return };
    let mut covered = addresses(ip);
    covered.extend([0, ip.protocol]);
    covered.extend(u32::try_from(segment.len()).unwrap_or(u32::MAX).to_be_bytes());
    covered.extend(segment);
    let sum = edit::checksum(&covered);
    // A datagram with a sum of zero has none.
    write(frame, sum_at, if is_udp && sum == 0 { 0xffff } else { sum });
}

/// Frames of `most` bytes of data each behind the same headers, of which the last one is TCP's.
pub(super) fn segments(headers: &[u8], data: &[u8], most: usize) -> Result<Vec<Vec<u8>>, String> {
    let whole = [headers, data].concat();
    let parsed = Headers::parse(&whole, &TunnelPorts::default());
    let layers = [Some(&parsed.outer), parsed.inner.as_ref()];
    let last = layers.iter().flatten().next_back();
    let Some(Transport::Tcp { at, .. }) = last.and_then(|layer| layer.transport.as_ref()) else {
        return Err("a large segment whose last header is not TCP's".to_owned());
    };
    let at = *at;
    let end = at + usize::from(whole.get(at + 12).copied().unwrap_or_default() >> 4) * 4;
    if end != headers.len() || most == 0 || data.is_empty() {
        return Err(format!("headers of {} bytes, which end at {end}, and {most} bytes to a frame", headers.len()));
    }
    let count = data.len().div_ceil(most);
    let frames = data.chunks(most).enumerate().map(|(number, piece)| {
        let mut frame = [headers, piece].concat();
        for layer in layers.into_iter().flatten() {
            lengthen(&mut frame, layer, number);
        }
        let sequence = u32::from_be_bytes([frame[at + 4], frame[at + 5], frame[at + 6], frame[at + 7]]);
        let ahead = u32::try_from(number * most).unwrap_or(u32::MAX);
        frame[at + 4..at + 8].copy_from_slice(&sequence.wrapping_add(ahead).to_be_bytes());
        const FIN_AND_PUSH: u8 = 0x09;
        const WINDOW_REDUCED: u8 = 0x80;
        if number + 1 < count {
            frame[at + 13] &= !FIN_AND_PUSH;
        }
        if number > 0 {
            frame[at + 13] &= !WINDOW_REDUCED;
        }
        frame
    });
    Ok(frames.collect())
}

/// Lengths of a frame's headers, and which of several it is.
fn lengthen(frame: &mut [u8], layer: &Layer, number: usize) {
    let length = |from: usize| u16::try_from(frame.len().saturating_sub(from)).unwrap_or(u16::MAX);
    let Some(ip) = &layer.ip else { return };
    let (whole, payload) = (length(ip.at), length(ip.at + 40));
    let datagram = match layer.transport {
        Some(Transport::Udp { at, .. }) => Some((at + 4, length(at))),
        _ => None,
    };
    if ip.version == 4 {
        write(frame, ip.at + 2, whole);
        let identification = u16::from_be_bytes([frame[ip.at + 4], frame[ip.at + 5]]);
        write(frame, ip.at + 4, identification.wrapping_add(u16::try_from(number).unwrap_or(u16::MAX)));
    } else {
        write(frame, ip.at + 4, payload);
    }
    if let Some((at, length)) = datagram {
        write(frame, at, length);
    }
}

fn write(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::sample::{ethernet, ipv4, tcp_frame, udp};

    /// With sums that are right, and bytes behind them that fill up the frame.
    fn datagram(destination: u8) -> Vec<u8> {
        let mut frame = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, destination], 17, &udp(1, 2, b"seven by")));
        frame.extend([0xee; 6]);
        frame
    }

    fn without(frame: &[u8], places: &[usize]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        places.iter().for_each(|at| frame[*at..*at + 2].fill(0xab));
        frame
    }

    #[test]
    fn only_checksums_that_are_wanted_are_filled_in() {
        const IP_SUM: usize = 24;
        const TCP_SUM: usize = 50;
        let right = tcp_frame();
        let wrong = without(&right, &[IP_SUM, TCP_SUM]);
        for (wanted, left) in
            [(0, &[IP_SUM, TCP_SUM][..]), (IP, &[TCP_SUM]), (TRANSPORT, &[IP_SUM]), (IP | TRANSPORT, &[])]
        {
            let mut frame = wrong.clone();
            fill_in(&mut frame, wanted);
            assert_eq!(frame, without(&right, left), "{wanted:#x}");
        }
        let mut frame = wrong.clone();
        fill_in(&mut frame, INNER_IP | INNER_TRANSPORT);
        assert_eq!(frame, wrong, "nothing is inside");
    }

    #[test]
    fn what_fills_up_a_frame_is_in_no_checksum_and_a_sum_of_zero_is_all_ones() {
        let mut frame = without(&datagram(2), &[24, 40]);
        fill_in(&mut frame, CHECKSUMS);
        let layer = Headers::parse(&frame, &TunnelPorts::default()).outer;
        let mut covered = addresses(&layer.ip.unwrap());
        covered.extend([0, 17, 0, 0, 0, 16]);
        covered.extend(&frame[34..50]);
        assert_eq!((edit::checksum(&covered), edit::checksum(&frame[14..34])), (0, 0));
        // Whatever it lacks to zero goes into the data.
        let word = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let lacking = word(40) + word(42);
        let folded = u16::try_from((lacking & 0xffff) + (lacking >> 16)).unwrap();
        frame[42..44].copy_from_slice(&folded.to_be_bytes());
        fill_in(&mut frame, TRANSPORT);
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }

    /// A frame in a VXLAN tunnel, in which it begins at 50.
    fn tunnelled(inner: &[u8]) -> Vec<u8> {
        let vxlan = [&[8, 0, 0, 0, 0, 0, 77, 0], inner].concat();
        ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], 17, &udp(5000, 4789, &vxlan)))
    }

    #[test]
    fn checksums_in_a_tunnel_are_filled_in_and_then_that_of_the_tunnel() {
        const INSIDE: usize = 50;
        let right = tunnelled(&tcp_frame());
        let (inner_ip, inner_tcp) = (INSIDE + 24, INSIDE + 50);
        let mut frame = without(&right, &[24, inner_ip, inner_tcp]);
        fill_in(&mut frame, IP | INNER_TRANSPORT);
        assert_eq!(frame, without(&right, &[inner_ip]));
        fill_in(&mut frame, CHECKSUMS);
        assert_eq!(frame[INSIDE..], right[INSIDE..]);
        let ip = Headers::parse(&frame, &TunnelPorts::default()).outer.ip.unwrap();
        let length = u32::try_from(frame.len() - 34).unwrap().to_be_bytes();
        let covered = [&addresses(&ip)[..], &[0, 17], &length, &frame[34..]].concat();
        assert_eq!((edit::checksum(&covered), frame[40..42] == [0, 0]), (0, false));
    }

    #[test]
    fn a_large_segment_in_a_tunnel_has_right_lengths_in_every_header() {
        let whole = tunnelled(&tcp_frame());
        let frames = segments(&whole[..104], &[7; 15], 10).unwrap();
        let lengths = |frame: &Vec<u8>| {
            let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            // Of both IP packets, and of the datagram between them.
            [word(16), word(38), word(66)].map(|length| frame.len() - length)
        };
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [114, 109]);
        assert_eq!(frames.iter().map(lengths).collect::<Vec<_>>(), [[14, 34, 64]; 2]);
    }

    #[test]
    fn a_large_segment_comes_in_frames_with_lengths_numbers_and_flags() {
        let frame = tcp_frame();
        let (headers, data) = (&frame[..54], vec![7; 25]);
        let mut headers = headers.to_vec();
        headers[38..42].copy_from_slice(&0xffff_fffb_u32.to_be_bytes());
        headers[47] = 0x99;
        let frames = segments(&headers, &data, 10).unwrap();
        let told = |frame: &Vec<u8>| {
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            (frame.len(), word(16), word(18), frame[38..42].to_vec(), frame[47])
        };
        let id = u16::from_be_bytes([headers[18], headers[19]]);
        let wanted = [
            (64, 50, id, vec![0xff, 0xff, 0xff, 0xfb], 0x90),
            (64, 50, id + 1, vec![0, 0, 0, 5], 0x10),
            (59, 45, id + 2, vec![0, 0, 0, 15], 0x19),
        ];
        assert_eq!(frames.iter().map(told).collect::<Vec<_>>(), wanted);
        for (headers, data, most) in
            [(&headers[..53], &data[..], 10), (&headers, &data, 0), (&headers, &[], 10), (&datagram(2), &data, 10)]
        {
            assert!(segments(headers, data, most).is_err());
        }
    }
}
