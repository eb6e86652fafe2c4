//! Meters of the device: objects that color packets, and the queue by which they are written.

mod objects;
mod queue;

pub(super) use self::objects::{MeterActions, Meters};
