//! Records: the bodies of the [frames](super::frame) of a log of flows. The first byte of a body is its kind; a kind that is not
//! known is refused, so that a new kind of record is a new version of the file.
//!
//! A match is written by the *names* of its fields, not as words of a key: the words are laid out by the field table,
//! which changes, and fields of different headers share them. Names and masks are written as a shape of their own, and a
//! flow is the number of its shape and the values. A shape is written again when it is used for the second time, and now and then
//! after that, for many flows depend on it. Actions are OVS text, whose grammar is read by every version and written by one
//! place, [`ActionTexts`].
//!
//! An index follows every 64 records at most and says of each what it is and of which flow: so it is known what a damaged
//! record was about.

mod encoder;
mod error;
mod fields;
mod format;
mod index;
mod read;
mod texts;
mod wall_time;

pub(crate) use self::encoder::Encoder;
pub use self::error::{NotWritable, RecordError};
pub(crate) use self::index::{Index, Indexed, OpenIndex};
pub(crate) use self::read::{Record, Shape, wanted_ufid};
pub(crate) use self::texts::ActionTexts;
pub(crate) use self::wall_time::WallTime;
