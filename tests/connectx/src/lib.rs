//! A ConnectX (or BlueField) in software, on which the unmodified mlx5_core and the unmodified rdma-core run.
//!
//! The core does no I/O: bytes in, bytes out, and memory behind a trait. [`steering`] holds the flow tables and walks packets
//! through them; [`packet`] takes packets apart, and shares no code with what is tested on it.

pub mod packet;
pub mod steering;
