//! An option of Geneve in a match.
//!
//! OVS matches options by their places behind the header. The device looks for one option by its class and type, wherever it is, and
//! gives the first word of its data. Both are the same where the options of a packet have room for this one only.

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

/// The first eight bytes of sixteen.
fn upper_half(chunk: u128) -> u64 {
    u64::try_from(chunk >> 64).unwrap_or_default()
}

fn refuse(field: Field, reason: &'static str) -> Refusal {
    Refusal::Field { field, reason: reason.into() }
}
