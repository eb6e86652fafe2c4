//! What two right datapaths may do differently.

/// The Ethernet addresses of outer headers: destination, then source.
pub(crate) const OUTER: [u8; 12] = [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa];

const ERSPAN2: &[u8] = &[0x22, 0xeb];

/// A frame without what the sender is free to choose. That is in the outer headers only:
/// - the UDP source port, a hash of the packet inside; a checksum is made one of port 0, so that it is compared all the
///   same;
/// - sequence numbers, which count for as long as a port is there;
/// - the time stamp of ERSPAN version 2.
pub(crate) fn mask(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if !frame.starts_with(&OUTER) {
        return frame;
    }
    let (at, protocol) = match frame[12..14] {
        [0x08, 0x00] => (34, frame[23]),
        _ => (54, frame[20]),
    };
    match protocol {
        17 => mask_udp(&mut frame[at..]),
        47 => mask_gre(&mut frame[at..]),
        _ => {}
    }
    frame
}

fn mask_udp(header: &mut [u8]) {
    let word = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let (source, checksum) = (word(0), word(6));
    header[..2].fill(0);
    if checksum != 0 {
        // RFC 1624, equation 3: a word that becomes zero.
        let sum = (!checksum & 0xffff) + (!source & 0xffff);
        let folded = (sum & 0xffff) + (sum >> 16);
        header[6..8].copy_from_slice(&(!folded).to_be_bytes()[2..]);
    }
}

fn mask_gre(header: &mut [u8]) {
    let has = |bit: u8| usize::from(header[0] & bit != 0);
    let sequence = 4 + 4 * (has(0x80) + has(0x20));
    let is_version2 = header[2..4] == *ERSPAN2;
    if has(0x10) == 1 {
        header[sequence..sequence + 4].fill(0);
    }
    if is_version2 {
        let time_stamp = sequence + 8;
        header[time_stamp..time_stamp + 4].fill(0);
    }
}
