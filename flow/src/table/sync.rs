//! The atomics of the [queue](super::queue). A model of it puts others in their place, see `flow/tests/queue_model.rs`.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
