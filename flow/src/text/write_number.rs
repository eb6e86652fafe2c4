//! Numbers and addresses, written digit by digit: a dump of a million flows has fifteen million of them, and `fmt` would take
//! most of its time.

use std::net::Ipv6Addr;

/// The two digits of each byte.
const HEXADECIMAL: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut bytes = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    bytes
};

/// The two digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    const DIGITS: &[u8; 10] = b"0123456789";
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [DIGITS[number / 10], DIGITS[number % 10]];
        number += 1;
    }
    pairs
};

/// Writes a decimal number.
pub(super) fn push_decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    let mut rest = value;
    while rest >= 10 {
        from -= 2;
        digits[from..from + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    // A last digit alone, or the zero of nothing at all.
    if rest > 0 || from == digits.len() {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
    }
    out.extend_from_slice(&digits[from..]);
}

/// Writes a decimal number with zeros in front, up to three digits.
pub(super) fn push_three_digits(out: &mut Vec<u8>, value: u32) {
    let [tens, ones] = PAIRS[(value % 100) as usize];
    out.extend_from_slice(&[b'0' + (value / 100 % 10) as u8, tens, ones]);
}

/// Writes a hexadecimal number of so many digits at least, at most 32.
pub(super) fn push_hex(out: &mut Vec<u8>, value: u128, least: usize) {
    let mut digits = [0; 32];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(value.to_be_bytes()) {
        *pair = HEXADECIMAL[usize::from(byte)];
    }
    let needed = (u128::BITS - value.leading_zeros()).div_ceil(4) as usize;
    out.extend_from_slice(&digits[digits.len() - needed.max(least).min(digits.len())..]);
}

/// Writes a hexadecimal number as by C's `%#x`: 0 has no prefix.
pub(super) fn push_prefixed_hex(out: &mut Vec<u8>, value: u128) {
    if value == 0 {
        out.push(b'0');
    } else {
        out.extend_from_slice(b"0x");
        push_hex(out, value, 1);
    }
}

/// Writes a UUID.
pub(super) fn push_uuid(out: &mut Vec<u8>, id: u128) {
    let mut text = [b'-'; 36];
    let mut place = 0;
    for (index, byte) in id.to_be_bytes().into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            place += 1;
        }
        text[place..place + 2].copy_from_slice(&HEXADECIMAL[usize::from(byte)]);
        place += 2;
    }
    out.extend_from_slice(&text);
}

/// Writes an Ethernet address, which is the lower 48 bits of a number.
pub(super) fn push_mac(out: &mut Vec<u8>, address: u128) {
    let mut text = [b':'; 17];
    let bytes = address.to_be_bytes();
    for (place, byte) in text.chunks_mut(3).zip(&bytes[10..]) {
        place[..2].copy_from_slice(&HEXADECIMAL[usize::from(*byte)]);
    }
    out.extend_from_slice(&text);
}

/// Writes an IPv4 address.
pub(super) fn push_ipv4(out: &mut Vec<u8>, address: u32) {
    let mut text = [0; 16];
    let mut length = 0;
    for byte in address.to_be_bytes() {
        if byte >= 100 {
            text[length] = b'0' + byte / 100;
            length += 1;
        }
        let [tens, ones] = PAIRS[usize::from(byte % 100)];
        if byte >= 10 {
            text[length] = tens;
            length += 1;
        }
        text[length] = ones;
        text[length + 1] = b'.';
        length += 2;
    }
    // All but the last dot.
    out.extend_from_slice(&text[..length - 1]);
}

/// Writes an IPv6 address (RFC 5952).
pub(super) fn push_ipv6(out: &mut Vec<u8>, address: u128) {
    let address = Ipv6Addr::from_bits(address);
    if let Some(mapped) = address.to_ipv4_mapped() {
        out.extend_from_slice(b"::ffff:");
        return push_ipv4(out, mapped.to_bits());
    }
    let segments = address.segments();
    let (start, length) = longest_zeros(&segments);
    if length < 2 {
        return push_segments(out, &segments);
    }
    push_segments(out, &segments[..start]);
    out.extend_from_slice(b"::");
    push_segments(out, &segments[start + length..]);
}

/// Where the first one of the longest runs of zeros begins, and how long it is.
fn longest_zeros(segments: &[u16; 8]) -> (usize, usize) {
    let (mut longest, mut current) = ((0, 0), (0, 0));
    for (index, segment) in segments.iter().enumerate() {
        current = match (segment, current) {
            (0, (_, 0)) => (index, 1),
            (0, (start, length)) => (start, length + 1),
            _ => (0, 0),
        };
        if current.1 > longest.1 {
            longest = current;
        }
    }
    longest
}

fn push_segments(out: &mut Vec<u8>, segments: &[u16]) {
    for (index, segment) in segments.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        push_hex(out, u128::from(*segment), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn pushed(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Numbers of every length, and addresses with zeros anywhere.
    fn any_number() -> impl Strategy<Value = u128> {
        (any::<u128>(), 0..128u32, any::<[bool; 8]>()).prop_map(|(number, shift, zeros)| {
            let segments = Ipv6Addr::from_bits(number >> shift).segments();
            let kept = |(segment, zero): (&u16, &bool)| if *zero { 0 } else { *segment };
            let segments: Vec<_> = segments.iter().zip(&zeros).map(kept).collect();
            segments.iter().fold(0, |all, segment| all << 16 | u128::from(*segment))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

        #[test]
        fn all_are_written_as_the_standard_library_writes_them(number in any_number(), least in 0..20usize) {
            let low = u64::try_from(number & u128::from(u64::MAX)).unwrap();
            let half = u32::try_from(number & u128::from(u32::MAX)).unwrap();
            prop_assert_eq!(pushed(|out| push_decimal(out, low)), low.to_string());
            prop_assert_eq!(pushed(|out| push_three_digits(out, half % 1000)), format!("{:03}", half % 1000));
            prop_assert_eq!(pushed(|out| push_hex(out, number, least.max(1))), format!("{number:0least$x}"));
            prop_assert_eq!(pushed(|out| push_ipv4(out, half)), Ipv4Addr::from_bits(half).to_string());
            prop_assert_eq!(pushed(|out| push_ipv6(out, number)), Ipv6Addr::from_bits(number).to_string());
            let mapped = 0xffff_0000_0000 | u128::from(half);
            prop_assert_eq!(pushed(|out| push_ipv6(out, mapped)), Ipv6Addr::from_bits(mapped).to_string());
            prop_assert_eq!(pushed(|out| push_uuid(out, number)), crate::Ufid(number).to_string());
            let bytes = &number.to_be_bytes()[10..];
            let mac = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
            prop_assert_eq!(pushed(|out| push_mac(out, number)), mac);
        }
    }

    #[test]
    fn zero_is_a_digit() {
        assert_eq!(pushed(|out| push_decimal(out, 0)), "0");
        assert_eq!(pushed(|out| push_prefixed_hex(out, 0)), "0");
        assert_eq!(pushed(|out| push_prefixed_hex(out, 0x10)), "0x10");
        assert_eq!(pushed(|out| push_decimal(out, u64::MAX)), u64::MAX.to_string());
    }
}
