//! What [quiescence](super::quiescence) is made of. A model of it puts others in their place, see
//! `offload-soft/tests/quiescence_model.rs`.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::thread::yield_now;
