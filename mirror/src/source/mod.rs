//! Where mirrored frames come from.

pub mod ring;
