//! What a daemon needs of its host: folders and locks that are its own, parts that are started and stopped in order and watched
//! while they work, a log that nobody waits for, and the pages that a daemon shows over HTTP (feature `http`).
//!
//! # Example
//!
//! A part that runs until it is told to stop.
//!
//! ```
//! use std::time::Duration;
//!
//! use sluice_host::lifecycle::Lifecycle;
//!
//! let runtime = tokio::runtime::Runtime::new()?;
//! let mut lifecycle = Lifecycle::new(runtime.handle().clone());
//! lifecycle.thread("ticker", Duration::from_secs(1), |stop| {
//!     // Never yields anything; disconnected when it is time to stop.
//!     stop.channel().recv().unwrap_err();
//!     Ok(())
//! })?;
//! assert!(runtime.block_on(lifecycle.stop()).is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bounded;
#[cfg(feature = "http")]
pub mod http;
mod journald;
pub mod lifecycle;
pub mod liveness;
pub mod lock;
mod log_writer;
pub mod logging;
pub mod own_folder;
mod rate_limit;
pub mod run_dir;
pub mod seed;
