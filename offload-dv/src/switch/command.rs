//! Commands of the PRM.

use sluice_flow::refusal::Refusal;

use super::refusal::refuse;
use crate::mlx5::{Context, Object};

/// Bytes of an input without more, and of an output without more.
pub(super) const SHORT: usize = 16;

/// A command of doublewords by their places.
pub(super) fn command<const BYTES: usize>(opcode: u16, words: &[(usize, u32)]) -> [u8; BYTES] {
    let mut input = [0; BYTES];
    input[..2].copy_from_slice(&opcode.to_be_bytes());
    for (at, word) in words {
        input[*at..*at + 4].copy_from_slice(&word.to_be_bytes());
    }
    input
}

/// Makes an object, and returns its number.
pub(super) fn create(context: &Context, input: &[u8]) -> Result<(Object, u32), Refusal> {
    let mut output = [0; SHORT];
    let object = Object::create(context, input, &mut output).map_err(refuse)?;
    Ok((object, u32::from_be_bytes([output[8], output[9], output[10], output[11]])))
}
