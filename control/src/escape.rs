//! Text within JSON strings.

/// Bytes that are looked at together.
const STRIDE: usize = 16;

/// Writes `text` as it stands within a JSON string.
pub fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    loop {
        let clean = clean_bytes(rest);
        out.extend_from_slice(&rest[..clean]);
        let Some(byte) = rest.get(clean) else { return };
        escape_byte(*byte, out);
        rest = &rest[clean + 1..];
    }
}

/// How many bytes at the beginning stand for themselves. Nearly all do, so that they are looked at many at a time.
pub(crate) fn clean_bytes(text: &[u8]) -> usize {
    let (strides, rest) = text.as_chunks::<STRIDE>();
    let is_clean = |stride: &&[u8; STRIDE]| stride.iter().fold(true, |clean, byte| clean & !is_special(*byte));
    let clean = strides.iter().take_while(is_clean).count();
    let partial = strides.get(clean).map_or(rest, |stride| stride.as_slice());
    clean * STRIDE + partial.iter().take_while(|byte| !is_special(**byte)).count()
}

const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        // Open vSwitch's parser refuses a string with a zero in it, and with it the whole reply.
        0 => out.extend_from_slice("\u{fffd}".as_bytes()),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEXADECIMAL[usize::from(byte >> 4)]);
            out.push(HEXADECIMAL[usize::from(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_escaped_is_what_a_json_parser_reads(text in "[\\x01-\\x7f\"\\\\é😀a-z ]{0,80}") {
            let mut out = vec![b'"'];
            escape(&text, &mut out);
            out.push(b'"');
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }

    #[test]
    fn a_zero_becomes_the_replacement_character() {
        let mut out = Vec::new();
        escape("a\0b", &mut out);
        assert_eq!(out, "a\u{fffd}b".as_bytes());
    }
}
