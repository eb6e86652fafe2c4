//! What who writes records and who reads them agree on.

pub(super) const KIND_SHAPE: u8 = 1;
pub(super) const KIND_WANTED: u8 = 2;
pub(super) const KIND_UNWANTED: u8 = 3;
pub(super) const KIND_INDEX: u8 = 4;
pub(super) const KIND_END: u8 = 5;

pub(super) const NO_TIMEOUT: u64 = u64::MAX;
pub(super) const PERMANENT: u8 = 1;
/// The flow waits for ports that are gone, which are listed.
pub(super) const WITHHELD: u8 = 2;
/// A controller wants the flow, whose name follows.
pub(super) const OF_CONTROLLER: u8 = 4;
