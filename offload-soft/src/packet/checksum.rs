//! Checksums: the Internet checksum (RFC 1071) in full and incrementally (RFC 1624), and CRC32c (RFC 9260).

/// One's complement sum of 16-bit words, not yet folded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes that start at an even offset; an odd last one counts as the upper half of a word.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let (words, last) = bytes.as_chunks::<2>();
        for word in words {
            self.0 += u64::from(u16::from_be_bytes(*word));
        }
        if let [byte] = last {
            self.0 += u64::from(*byte) << 8;
        }
        self
    }

    /// Adds a word.
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// The checksum: the complement of the folded sum.
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The sum of the pseudo header of TCP, UDP and ICMPv6 (RFC 793, RFC 8200); addresses of either family as bytes.
pub fn pseudo_header(source: &[u8], destination: &[u8], protocol: u8, length: usize) -> Sum {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    Sum::default().bytes(source).bytes(destination).word(u16::from(protocol)).bytes(&length.to_be_bytes())
}

/// The checksum after `old` was replaced by `new` in what it covers (RFC 1624, equation 3). Both are of equal, even
/// length and lie at an even offset.
pub fn replace(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let (old_words, _) = old.as_chunks::<2>();
    let removed = old_words.iter().fold(Sum::default(), |sum, word| sum.word(!u16::from_be_bytes(*word)));
    removed.bytes(new).word(!checksum).finish()
}

/// The checksum of UDP after [`replace`]: none stays none, and a sum of zero is sent as all ones (RFC 768).
pub fn replace_udp(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    if checksum == 0 {
        return 0;
    }
    match replace(checksum, old, new) {
        0 => 0xffff,
        replaced => replaced,
    }
}

/// CRC32c of the parts one after the other, as a number whose bytes stand least significant first on the wire.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc = crc >> 8 ^ CRC32C_TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)];
    }
    !crc
}

const CRC32C_TABLE: [u32; 256] = {
    // The polynomial of Castagnoli, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfcs_come_out() {
        // RFC 1071, section 3.
        assert_eq!(Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).finish(), !0xddf2);
        // RFC 1624, section 4: 0x5555 becomes 0x3285 under checksum 0xdd2f.
        assert_eq!(replace(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
        // RFC 3720, appendix B.4: 32 bytes of zeroes, of ones, and "123456789" from the catalogue of CRCs.
        assert_eq!(crc32c(&[&[0; 32]]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[&[0xff; 32]]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn a_udp_checksum_of_zero_stays_none_and_never_becomes_none() {
        assert_eq!(replace_udp(0, &[1, 2], &[3, 4]), 0);
        assert_eq!(replace_udp(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0xffff);
    }

    proptest::proptest! {
        #[test]
        fn replacing_equals_summing_again(before: [u8; 32], at in 0usize..14, new: [u8; 4]) {
            let old_sum = Sum::default().bytes(&before).finish();
            let mut after = before;
            after[2 * at..2 * at + 4].copy_from_slice(&new);
            let replaced = replace(old_sum, &before[2 * at..2 * at + 4], &new);
            let full = Sum::default().bytes(&after).finish();
            // 0x0000 and 0xffff are the same number in one's complement.
            assert_eq!(replaced % 0xffff, full % 0xffff);
        }
    }
}
