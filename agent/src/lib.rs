//! The agent: where the parts meet.

pub mod agent;
pub mod audit;
pub mod backends;
pub mod commands;
pub mod config;
pub mod coverage;
pub mod daemon;
pub mod device_counters;
pub mod events;
pub mod http;
pub mod inspection;
pub mod journal;
pub mod lifecycle;
pub mod liveness;
pub mod lock;
pub mod log_writer;
pub mod logging;
pub mod metrics;
pub mod objects;
pub mod offload;
pub mod orphans;
pub mod own_folder;
pub mod rebalancing;
mod reload;
mod retrying;
pub mod revalidation;
pub mod run_dir;
pub mod seed;
pub mod unixctl;

#[cfg(test)]
mod scratch;
