//! Flows in the steering tables of an mlx5 NIC, written from userspace, past the kernel's flow code.
//!
//! From the bottom up: [`mlx5`] has the bindings to libmlx5, [`translate`] makes of a flow what a rule takes or says why not, [`switch`]
//! keeps the rules of an eswitch, and [`DvNic`] is the backend. One thread calls libmlx5; workers translate, and hand it what is
//! translated.

mod asks;
mod backend;
mod config;
pub mod connections;
mod desk;
mod device;
mod eswitch;
mod in_hand;
mod meters;
mod mirrors;
pub mod mlx5;
mod owner;
mod ports;
mod queue;
mod reader;
mod rules;
pub mod switch;
pub mod translate;
mod watch;
mod ways;

pub use backend::DvNic;
pub use config::{Config, ConnectionsOf, KIND};
pub use rules::BYTES_A_RULE;
