//! What the answers to commands have in common, and the least that their inputs must have.

use super::failure::Refusal;
use super::layout;

/// Refuses an input that ends before a command's layout does.
pub(super) fn needs(input: &[u8], bytes: usize) -> Result<(), Refusal> {
    if input.len() < bytes {
        return Err(Refusal::Short { has: input.len(), needs: bytes });
    }
    Ok(())
}

/// An output of this length that says success.
pub(super) fn answer(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

/// The output of a command that made something.
pub(super) fn answer_with_id(id: u32) -> Vec<u8> {
    let mut output = answer(layout::SHORT_OUTPUT);
    layout::OUT_ID.put(&mut output, id);
    output
}
