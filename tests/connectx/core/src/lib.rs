//! A ConnectX (or BlueField) in software, on which the unmodified mlx5_core and the unmodified rdma-core run.
//!
//! The core does no I/O: bytes in, bytes out, and memory behind a trait. [`hca::Hca`] carries out commands and doorbells;
//! [`steering`] holds the flow tables and walks packets through them; [`packet`] takes packets apart, and shares no code with
//! what is tested on it. [`pci`] shows the device to a virtual machine, and [`uverbs`] to programs that use libibverbs.

pub mod command;
pub mod hca;
pub mod layout;
pub mod memory;
pub mod objects;
pub mod packet;
pub mod profile;
pub mod steering;
