//! An option of Geneve in a match.
//!
//! OVS matches options by their places behind the header. The device looks for one option by its class and type, wherever it is, and
//! gives the first word of its data. Both are the same where the options of a packet have room for this one only.
//!
//! Of an option of any kind with any data, the device looks at the length of all options alone. So does the kernel's openvswitch module, by whose
//! flows OVN's packets come in later chains (`sluice-feed-ovs` reads them as matches on one option of that length).

use sluice_flow::Match;
use sluice_flow::consume::Remainder;
use sluice_flow::field::{Field, GENEVE_CHUNKS};
use sluice_flow::refusal::Refusal;

use super::bits::Bits;
use super::places::{GENEVE_OPTION_DATA, GENEVE_OPTION_EXISTS};

/// Class, type, length and one word of data (RFC 8926, section 3.5), as bytes.
const BYTES: u128 = 8;
/// The length among them: five bits, in words.
const LENGTH: u64 = 0x1f << 32;
const ONE_WORD: u64 = 1 << 32;
const CLASS_AND_TYPE: u64 = 0xffff_ff00 << 32;
const DATA: u64 = 0xffff_ffff;

/// An option that the device's parser is to look for, with one word of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeneveOption {
    /// Who has defined it.
    pub class: u16,
    /// Which of theirs it is. The highest bit says that it is critical.
    pub kind: u8,
}

/// Takes what a match says of options that are `length` bytes long. The length itself is matched already.
pub(super) fn matched(
    length: Option<u128>,
    rest: &mut Remainder,
    bits: &mut Bits<'_>,
) -> Result<Option<GeneveOption>, Refusal> {
    let [first, others @ ..] = GENEVE_CHUNKS;
    let found = rest.take(first);
    if let Some(chunk) = others.into_iter().find(|chunk| rest.take(*chunk).is_some()) {
        return Err(refuse(chunk, "the device finds one option, of one word of data"));
    }
    let Some((value, mask)) = found else { return Ok(None) };
    if is_of_any_kind(length, (value, mask)) {
        return Ok(None);
    }
    let Some([value, mask]) = (length == Some(BYTES)).then(|| [value, mask].map(upper_half)) else {
        return Err(refuse(first, "the device finds one option, of one word of data"));
    };
    if mask & (CLASS_AND_TYPE | LENGTH) != CLASS_AND_TYPE | LENGTH {
        return Err(refuse(first, "the device finds an option by its whole class and type"));
    }
    if value & LENGTH != ONE_WORD {
        return Err(refuse(first, "the device finds options of one word of data only"));
    }
    let (data, data_mask) = (value & DATA, mask & DATA);
    bits.put(GENEVE_OPTION_DATA, data_mask.into(), data.into());
    if data & data_mask == 0 {
        // So is the data of an option that is not there.
        bits.put_exact(GENEVE_OPTION_EXISTS, 1);
    }
    let [high, low, kind, ..] = value.to_be_bytes();
    Ok(Some(GeneveOption { class: u16::from_be_bytes([high, low]), kind }))
}

/// Returns a match without what it says of an option of any kind beyond the length of all options.
pub(super) fn without_any_kind(mut full: Match) -> Match {
    let [first, others @ ..] = GENEVE_CHUNKS;
    let exact = full.mask.get(Field::GeneveLength) == Field::GeneveLength.full_mask();
    let length = exact.then(|| full.key.get(Field::GeneveLength));
    let is_wild = others.into_iter().all(|chunk| full.mask.get(chunk) == 0);
    if is_wild && is_of_any_kind(length, (full.key.get(first), full.mask.get(first))) {
        full.set(first, 0, 0);
    }
    full
}

/// Whether a chunk matches the length of an option alone, which has all the room that there is for options.
fn is_of_any_kind(length: Option<u128>, (value, mask): (u128, u128)) -> bool {
    let words = u128::from(upper_half(value) & LENGTH) >> 32;
    mask == u128::from(LENGTH) << 64 && length == Some(4 * (1 + words))
}

/// The first eight bytes of sixteen.
fn upper_half(chunk: u128) -> u64 {
    u64::try_from(chunk >> 64).unwrap_or_default()
}

fn refuse(field: Field, reason: &'static str) -> Refusal {
    Refusal::Field { field, reason: reason.into() }
}
