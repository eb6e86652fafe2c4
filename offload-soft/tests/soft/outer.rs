//! Outer headers, read by a small decoder of its own.

/// An outer header, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    /// IPv4 or IPv6 addresses, source first.
    pub(crate) addresses: (Vec<u8>, Vec<u8>),
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    /// Destination, and whether there is a checksum.
    pub(crate) udp: Option<(u16, bool)>,
    /// The tunnel header and what is in it.
    pub(crate) tunnel: Vec<u8>,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

/// Reads an outer header whose lengths must be those of the frame.
pub(crate) fn read(frame: &[u8]) -> Outer {
    let (at, addresses, tos, ttl, protocol) = match word(frame, 12) {
        0x0800 => {
            assert_eq!(frame[14], 0x45);
            assert_eq!(usize::from(word(frame, 16)), frame.len() - 14, "length of IPv4");
            (34, (frame[26..30].to_vec(), frame[30..34].to_vec()), frame[15], frame[22], frame[23])
        }
        0x86dd => {
            assert_eq!(frame[14] >> 4, 6);
            assert_eq!(usize::from(word(frame, 18)), frame.len() - 54, "length of IPv6");
            let class = u8::try_from(word(frame, 14) >> 4 & 0xff).unwrap();
            (54, (frame[22..38].to_vec(), frame[38..54].to_vec()), class, frame[21], frame[20])
        }
        other => panic!("Ethernet type {other:#x}"),
    };
    let (udp, tunnel) = match protocol {
        17 => {
            assert_eq!(usize::from(word(frame, at + 4)), frame.len() - at, "length of UDP");
            (Some((word(frame, at + 2), word(frame, at + 6) != 0)), at + 8)
        }
        _ => (None, at),
    };
    Outer { addresses, tos, ttl, protocol, udp, tunnel: frame[tunnel..].to_vec() }
}

/// The Internet checksum over all of it, which is zero where one is right.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
