//! What the table's threads meet at: locks and atomics. Models put others in their place: loom's, of the
//! [queue](super::queue) alone, in `flow/tests/queue_model.rs`; shuttle's, of the whole table, with the feature `model` in
//! `flow/tests/table_model.rs`.

#[cfg(not(feature = "model"))]
pub(super) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(feature = "model"))]
pub(super) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(feature = "model"))]
pub(super) use std::thread::yield_now;

#[cfg(feature = "model")]
pub(super) use self::model::Mutex;
#[cfg(feature = "model")]
pub(super) use shuttle::sync::MutexGuard;
#[cfg(feature = "model")]
pub(super) use shuttle::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(feature = "model")]
pub(super) use shuttle::thread::yield_now;

#[cfg(feature = "model")]
mod model {
    use shuttle::sync::{MutexGuard, PoisonError};

    /// Shuttle's, with the face of `parking_lot`'s: a thread that fails leaves no mark, for the model ends with it.
    #[derive(Default)]
    pub(in crate::table) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in crate::table) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Nobody acts on it.
        pub(in crate::table) fn is_locked(&self) -> bool {
            false
        }
    }
}
