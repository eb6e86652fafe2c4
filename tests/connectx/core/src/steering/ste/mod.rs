//! Steering by entries in steering memory, which software owns: STEs of format 0 (ConnectX-5), of format 1 (ConnectX-6 Dx,
//! BlueField-2) and of format 2 (ConnectX-7, BlueField-3), which differs from format 1 in how it names registers.
//!
//! Software writes hash tables of 64-byte entries and leads from one to the next by address. An entry says what it matches, what
//! to do on a hit, and where the next table is and by which fields its hash goes; on a miss, where the next entry of the chain is.
//! An address that is not in steering memory ends the walk: it stands for a vport, for dropping or for a table of firmware, as the
//! device's capabilities gave it out.
//!
//! Not modelled, and said so where a walk meets it: hash types other than 0, and inverted matches. Inner headers are not
//! rewritten: no format has places for them, as far as libmlx5 44 knows.

pub(in crate::steering) mod definer;
pub(in crate::steering) mod entry;
pub(crate) mod large;
pub(in crate::steering) mod packet;
pub(in crate::steering) mod rewrite;
mod step;
pub(in crate::steering) mod zero;

#[cfg(test)]
mod tests;

pub(crate) use definer::Sample;
pub use step::SteStep;
