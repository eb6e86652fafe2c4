//! Messages of psample: headers of netlink and generic netlink, and attributes (`enum psample_nl_attr` in `linux/psample.h`). Numbers are
//! in the host's byte order.

use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of `struct nlmsghdr`, of `struct genlmsghdr` behind it, and of `struct nlattr`.
const NETLINK: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
const ALIGNMENT: usize = 4;

/// `PSAMPLE_CMD_SAMPLE`.
const SAMPLE: u8 = 0;

/// Numbers of attributes.
mod attribute {
    pub(super) const INGRESS: u16 = 0;
    pub(super) const ORIGINAL_LENGTH: u16 = 2;
    pub(super) const GROUP: u16 = 3;
    pub(super) const SEQUENCE: u16 = 4;
    pub(super) const DATA: u16 = 6;
    pub(super) const TIMESTAMP: u16 = 13;
    pub(super) const COOKIE: u16 = 15;
    /// Of a type, what is its number.
    pub(super) const NUMBER: u16 = 0x3fff;
}

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    pub(super) group: u32,
    /// Number of the sample in its group.
    pub(super) sequence: u32,
    /// The last 16 bits of the index of the network device that the frame came in at.
    pub(super) ingress: Option<u16>,
    /// Bytes that the frame had.
    pub(super) original_length: u32,
    /// Nanoseconds since 1970: when it was taken, or from a kernel that does not tell, when it was read.
    pub(super) time_ns: u64,
    /// The cookie of the action.
    pub(super) cookie: Option<&'a [u8]>,
    /// The frame, or as much of it as was wanted.
    pub(super) frame: &'a [u8],
}

/// The samples of a datagram. What is none is passed over.
pub(super) fn samples(datagram: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(word(rest, 0)?).ok().filter(|length| *length >= NETLINK)?;
        let message = rest.get(..length)?;
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(message)
    })
    .filter_map(|message| sample(message.get(NETLINK..)?))
}

fn sample(generic: &[u8]) -> Option<Sample<'_>> {
    let (header, attributes) = generic.split_at_checked(GENERIC)?;
    if header.first() != Some(&SAMPLE) {
        return None;
    }
    let find = |number| self::attributes(attributes).find_map(|(of, value)| (of == number).then_some(value));
    let number = |of| word(find(of)?, 0);
    let frame = find(attribute::DATA)?;
    let told = find(attribute::TIMESTAMP).and_then(|value| Some(u64::from_ne_bytes(*value.first_chunk()?)));
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
    Some(Sample {
        group: number(attribute::GROUP)?,
        sequence: number(attribute::SEQUENCE)?,
        ingress: find(attribute::INGRESS).and_then(|value| Some(u16::from_ne_bytes(*value.first_chunk()?))),
        original_length: number(attribute::ORIGINAL_LENGTH)?,
        time_ns: told.or_else(now).unwrap_or_default(),
        cookie: find(attribute::COOKIE),
        frame,
    })
}

/// Attributes with their numbers. Ends at the first that leads out of the bytes.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let half = |at: usize| Some(u16::from_ne_bytes(*rest.get(at..)?.first_chunk()?));
        let (length, kind) = (usize::from(half(0)?), half(2)?);
        let value = rest.get(ATTRIBUTE..length)?;
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind & attribute::NUMBER, value))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_samples_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for sample in samples(&bytes) {
                prop_assert!(sample.frame.len() <= bytes.len());
            }
        }

        /// Numbers that are small enough to be lengths.
        #[test]
        fn small_numbers_are_samples_or_nothing(words in prop::collection::vec(0_u16..40, 0..150)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            prop_assert!(samples(&bytes).count() <= bytes.len() / NETLINK);
        }
    }
}
