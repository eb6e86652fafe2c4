//! What two right datapaths may do differently.

use sluice_flow::port::PortNumber;

use super::UNDERLAY;

/// A frame without what the sender is free to choose: the identification of a fragment of IPv6; on the underlay the identification of the outer IPv4 header and
/// the outer UDP source port, and the checksums over them; the sequence number and the time of ERSPAN, which go on from
/// one scenario to the next. That there is a UDP checksum stays.
pub(super) fn mask(port: PortNumber, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    mask_identification(&mut frame);
    if port == PortNumber(UNDERLAY) {
        match (frame.get(12..14), frame.get(23), frame.get(20)) {
            (Some([0x08, 0x00]), Some(protocol), _) => {
                let is_udp = *protocol == 17;
                frame[18..20].fill(0);
                frame[24..26].fill(0);
                if is_udp {
                    mask_udp(&mut frame[34..]);
                } else {
                    mask_erspan(&mut frame[34..]);
                }
            }
            (Some([0x86, 0xdd]), _, Some(17)) => mask_udp(&mut frame[54..]),
            (Some([0x86, 0xdd]), _, Some(47)) => mask_erspan(&mut frame[54..]),
            _ => {}
        }
    }
    frame
}

fn mask_identification(frame: &mut [u8]) {
    let mut type_at = 12;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(type_at..type_at + 2) {
        type_at += 4;
    }
    let (Some([0x86, 0xdd]), Some(first)) = (frame.get(type_at..type_at + 2), frame.get(type_at + 8)) else {
        return;
    };
    let (mut next, mut at) = (*first, type_at + 42);
    while let (0 | 43 | 60, Some([following, length, ..])) = (next, frame.get(at..)) {
        (next, at) = (*following, at + 8 * (usize::from(*length) + 1));
    }
    if let (44, Some(identification)) = (next, frame.get_mut(at + 4..at + 8)) {
        identification.fill(0);
    }
}

fn mask_erspan(header: &mut [u8]) {
    let is_version_2 = matches!(header, [0x10, 0, 0x22, 0xeb, ..]);
    if is_version_2 || matches!(header, [0x10, 0, 0x88, 0xbe, ..]) {
        header[4..8].fill(0);
        if is_version_2 {
            header[12..16].fill(0);
        }
    }
}

fn mask_udp(header: &mut [u8]) {
    if let [a, b, _, _, _, _, c, d, ..] = header {
        let has_checksum = (*c, *d) != (0, 0);
        (*a, *b, *c, *d) = (0, 0, 0, u8::from(has_checksum));
    }
}
