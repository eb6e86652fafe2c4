//! The agent.

pub mod config;
pub mod http;
pub mod lifecycle;
pub mod lock;
pub mod logging;
pub mod run_dir;
pub mod unixctl;
