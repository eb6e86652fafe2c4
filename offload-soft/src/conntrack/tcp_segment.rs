//! A TCP segment as connection tracking reads it.

use crate::packet::headers::{Tcp, Wire};

/// The flags of a TCP header (RFC 9293, RFC 3168).
pub(crate) mod flag {
    pub(crate) const FIN: u16 = 0x01;
    pub(crate) const SYN: u16 = 0x02;
    pub(crate) const RST: u16 = 0x04;
    pub(crate) const ACK: u16 = 0x10;
    pub(crate) const URG: u16 = 0x20;
}

/// What a segment is for (`enum tcp_bit_set`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
    None,
}

/// A whole TCP header, and how far its payload goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    flags: u16,
    /// Behind the last byte in sequence; SYN and FIN count as one each.
    pub(crate) end: u32,
    pub(crate) options: &'a [u8],
}

/// What a SYN announces by its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The window scale (RFC 7323), at most 14.
    pub(crate) scale: Option<u8>,
    /// Selective acknowledgements (RFC 2018).
    pub(crate) sack: bool,
}

impl<'a> Segment<'a> {
    /// Reads a segment; `None` if its header is cut off or malformed, or has flags that do not go together (`tcp_error`
    /// in nf_conntrack_proto_tcp.c). Its checksum is not looked at.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = Tcp::new(bytes)?;
        let options = bytes.get(Tcp::<&[u8]>::LENGTH..header.header_length())?;
        let flags = header.flags() & (flag::FIN | flag::SYN | flag::RST | flag::ACK | flag::URG);
        let may_be_urgent = [flag::SYN, flag::ACK, flag::FIN | flag::ACK].contains(&(flags & !flag::URG));
        let is_valid = may_be_urgent || [flag::RST, flag::RST | flag::ACK, flag::SYN | flag::ACK].contains(&flags);
        if !is_valid {
            return None;
        }
        let seq = u32::read(bytes, 4);
        let payload = u32::try_from(bytes.len() - header.header_length()).ok()?;
        let numbered = payload + u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
        Some(Self {
            seq,
            ack: u32::read(bytes, 8),
            window: u16::read(bytes, 14),
            flags,
            end: seq.wrapping_add(numbered),
            options,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.is_rst() {
            Kind::Rst
        } else if self.is_syn() {
            if self.is_ack() { Kind::SynAck } else { Kind::Syn }
        } else if self.flags & flag::FIN != 0 {
            Kind::Fin
        } else if self.is_ack() {
            Kind::Ack
        } else {
            Kind::None
        }
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.flags & flag::SYN != 0
    }

    pub(crate) fn is_ack(&self) -> bool {
        self.flags & flag::ACK != 0
    }

    pub(crate) fn is_rst(&self) -> bool {
        self.flags & flag::RST != 0
    }

    pub(crate) fn announced(&self) -> Announced {
        const MAX_SCALE: u8 = 14;
        let mut announced = Announced::default();
        for (kind, data) in self.options() {
            match (kind, data) {
                (3, [scale]) => announced.scale = Some((*scale).min(MAX_SCALE)),
                (4, []) => announced.sack = true,
                _ => {}
            }
        }
        announced
    }

    /// The highest byte that is acknowledged, selectively or not.
    pub(crate) fn highest_sack(&self) -> u32 {
        let blocks = self.options().find(|(kind, data)| *kind == 5 && !data.is_empty() && data.len() % 8 == 0);
        let Some((_, blocks)) = blocks else {
            return self.ack;
        };
        let is_after = |a: u32, b: u32| b.wrapping_sub(a) >= 1 << 31;
        blocks
            .chunks_exact(8)
            .map(|block| u32::read(block, 4))
            .fold(self.ack, |highest, right| if is_after(right, highest) { right } else { highest })
    }

    /// The options with data, up to the first that is malformed.
    fn options(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            while let [1, behind @ ..] = rest {
                rest = behind;
            }
            let [kind, length, ..] = *rest else {
                return None;
            };
            let length = usize::from(length);
            if kind == 0 || length < 2 {
                return None;
            }
            let data = rest.get(2..length)?;
            rest = &rest[length..];
            Some((kind, data))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::tcp;

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        let is_valid = |flags| Segment::read(&tcp(1, 2, flags, 0, 0, 1000, b"")).is_some();
        for flags in [0x02, 0x12, 0x22, 0x04, 0x14, 0x11, 0x31, 0x10, 0x30, 0x18, 0x10 | 0xc0] {
            assert!(is_valid(flags), "{flags:#x}");
        }
        for flags in [0x00, 0x01, 0x03, 0x06, 0x07, 0x13, 0x16, 0x20, 0x24, 0x32, 0x3f, 0x15] {
            assert!(!is_valid(flags), "{flags:#x}");
        }
    }

    #[test]
    fn a_header_that_claims_more_than_there_is_is_refused() {
        let mut bytes = tcp(1, 2, 0x10, 0, 0, 1000, b"");
        bytes[12] = 0x60;
        assert!(Segment::read(&bytes).is_none());
        bytes[12] = 0x40;
        assert!(Segment::read(&bytes).is_none());
    }

    #[test]
    fn options_are_read_up_to_the_first_malformed_one() {
        let options = [1, 3, 3, 20, 4, 2, 8, 0, 0, 0, 0, 0];
        let mut bytes = tcp(1, 2, 0x02, 7, 0, 1000, &options);
        bytes[12] = 0x80;
        let segment = Segment::read(&bytes).unwrap();
        assert_eq!(segment.announced(), Announced { scale: Some(14), sack: true });
        assert_eq!(segment.end, 8, "options are no payload");
    }

    #[test]
    fn the_highest_selective_acknowledgement_counts() {
        let mut options = vec![1, 1, 5, 18];
        for edge in [200u32, 300, 400, 500] {
            options.extend(edge.to_be_bytes());
        }
        let mut bytes = tcp(1, 2, 0x10, 7, 100, 1000, &options);
        bytes[12] = 0xa0;
        assert_eq!(Segment::read(&bytes).unwrap().highest_sack(), 500);
    }
}
