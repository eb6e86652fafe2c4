//! Whether the headers of a packet are right: what they say of lengths, and their checksums.
//!
//! What is right is as NVIDIA's documentation of DPDK has it ("Steering by Integrity Check Flags"): a network header, if the packet
//! is not longer than the frame; a UDP header, if its length is none that the packet has not; a TCP header, if its options end
//! within the packet. Checksums count apart from that. These readings are ours: a UDP datagram without a checksum has a right one,
//! and a fragment has neither a transport header nor a checksum of one that is right.

use super::{BytesAt, Fragment, Ip, Layer, Transport, edit};

/// Which headers of a layer are right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checks {
    /// The network header.
    pub(crate) l3: bool,
    /// The transport header, of TCP or UDP.
    pub(crate) l4: bool,
    /// The checksum of an IPv4 header.
    pub(crate) ipv4_checksum: bool,
    /// The checksum of TCP or UDP.
    pub(crate) l4_checksum: bool,
    ip_has_none: bool,
}

impl Checks {
    /// Of one layer of a frame.
    pub(crate) fn of(layer: &Layer, frame: &[u8]) -> Self {
        let Some(ip) = &layer.ip else { return Self::default() };
        let header = frame.get(ip.at..ip.at + usize::from(ip.ihl) * 4);
        Self {
            l3: end_of(frame, ip) <= frame.len(),
            l4: transport_is_whole(frame, ip, layer),
            ipv4_checksum: ip.version == 4 && header.is_some_and(|header| sum(header) == 0xffff),
            l4_checksum: transport_is_right(frame, ip, layer),
            ip_has_none: ip.version == 6,
        }
    }

    /// Whether the checksum of the network header is right, or it has none.
    pub(crate) fn ip_is_right(&self) -> bool {
        self.ipv4_checksum || self.ip_has_none
    }
}

/// The IP packet without what fills up the frame.
pub(crate) fn ip_packet<'a>(frame: &'a [u8], ip: &Ip) -> &'a [u8] {
    frame.get(ip.at..end_of(frame, ip).clamp(ip.at, frame.len())).unwrap_or_default()
}

/// Where it ends, as its header has it.
fn end_of(frame: &[u8], ip: &Ip) -> usize {
    let length = |at: usize| frame.u16_at(at).map_or(0, usize::from);
    if ip.version == 4 { ip.at + length(ip.at + 2) } else { ip.at + 40 + length(ip.at + 4) }
}

fn transport_is_whole(frame: &[u8], ip: &Ip, layer: &Layer) -> bool {
    if ip.fragment != Fragment::No {
        return false;
    }
    let packet = ip_packet(frame, ip);
    let room = |at: usize| packet.len().saturating_sub(at - ip.at);
    match layer.transport {
        Some(Transport::Udp { at, .. }) => {
            frame.u16_at(at + 4).is_some_and(|length| (8..=room(at)).contains(&length.into()))
        }
        Some(Transport::Tcp { at, .. }) => {
            frame.u8_at(at + 12).is_some_and(|offset| (20..=room(at)).contains(&(usize::from(offset >> 4) * 4)))
        }
        _ => false,
    }
}

fn transport_is_right(frame: &[u8], ip: &Ip, layer: &Layer) -> bool {
    if ip.fragment != Fragment::No {
        return false;
    }
    let (at, without) = match layer.transport {
        Some(Transport::Tcp { at, .. }) => (at, false),
        Some(Transport::Udp { at, .. }) => (at, frame.get(at + 6..at + 8) == Some(&[0, 0])),
        _ => return false,
    };
    let packet = ip_packet(frame, ip);
    let Some(segment) = packet.get(at - ip.at..) else { return false };
    let mut covered = addresses(ip);
    covered.extend([0, ip.protocol]);
    covered.extend(u32::try_from(segment.len()).unwrap_or(u32::MAX).to_be_bytes());
    covered.extend(segment);
    without || sum(&covered) == 0xffff
}

pub(crate) fn addresses(ip: &Ip) -> Vec<u8> {
    [ip.source, ip.destination].into_iter().flat_map(|address| address_bytes(ip.version, address)).collect()
}

/// An address as it stands in the header.
pub(crate) fn address_bytes(version: u8, address: u128) -> Vec<u8> {
    if version == 4 { address.to_be_bytes()[12..].to_vec() } else { address.to_be_bytes().to_vec() }
}

/// The sum in ones' complement.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    !edit::checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::sample::{ethernet, ipv4, tcp_frame, udp};
    use crate::packet::{Headers, TunnelPorts};

    fn checks(frame: &[u8]) -> [bool; 4] {
        let Checks { l3, l4, ipv4_checksum, l4_checksum, .. } =
            Checks::of(&Headers::parse(frame, &TunnelPorts::default()).outer, frame);
        [l3, l4, ipv4_checksum, l4_checksum]
    }

    #[test]
    fn each_mistake_is_told_by_the_check_that_it_is_for() {
        let whole = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &udp(1111, 2222, b"payload")));
        assert_eq!(checks(&whole), [true; 4], "a datagram without a checksum");
        let with = |change: fn(&mut Vec<u8>)| {
            let mut frame = whole.clone();
            change(&mut frame);
            checks(&frame)
        };
        assert_eq!(with(|frame| frame.truncate(frame.len() - 1)), [false, false, true, true]);
        assert_eq!(with(|frame| frame[24] ^= 1), [true, true, false, true]);
        assert_eq!(with(|frame| frame[39] += 1), [true, false, true, true], "longer than the packet");
        assert_eq!(with(|frame| frame[41] = 1), [true, true, true, false]);
        assert_eq!(checks(&ethernet(0x0806, &[0; 46])), [false; 4]);
    }

    #[test]
    fn options_of_tcp_end_within_the_packet() {
        let mut frame = tcp_frame();
        assert!(checks(&frame)[1]);
        frame[46] = 0xf0;
        assert!(!checks(&frame)[1]);
        frame[46] = 0x40;
        assert!(!checks(&frame)[1], "shorter than the header");
    }
}
