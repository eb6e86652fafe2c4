//! What the agent tells in numbers, each told once.
//!
//! A row of [`MEASURES`] says where a number is read, under which name and labels it is a metric, where it is in the object of
//! `sluice/stats` and what `coverage/show` calls it. So these cannot differ, and a new number is a new row.

mod measure;
mod mirroring;
mod number;
mod reading;
mod sessions;
mod shown;
mod sources;
mod table;

pub(crate) use self::measure::{Durations, Kind, Measure, Metric, Read};
pub(crate) use self::number::Number;
pub(crate) use self::reading::Reading;
pub(crate) use self::table::{INSTALL_DURATION, MEASURES, latency_examples};
