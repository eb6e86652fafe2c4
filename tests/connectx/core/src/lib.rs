//! A ConnectX (or BlueField) in software, on which the unmodified mlx5_core and the unmodified rdma-core run.
//!
//! The core does no I/O: bytes in, bytes out, and memory behind a trait. [`hca::Hca`] carries out commands and doorbells;
//! [`steering`] holds the flow tables and walks packets through them; [`packet`] takes packets apart, and shares no code with
//! what is tested on it. `sluice-connectx-pci` shows the device to a virtual machine, and `sluice-connectx-uverbs` to programs that
//! use libibverbs.
//!
//! A driver enables the function:
//!
//! ```
//! use sluice_connectx::command::layouts::{function, header};
//! use sluice_connectx::hca::{Hca, Stage};
//! use sluice_connectx::memory::{Fault, Memory};
//! use sluice_connectx::profile::CONNECTX_6_DX;
//!
//! /// A driver that has lent no memory yet.
//! struct Nothing;
//!
//! impl Memory for Nothing {
//!     fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
//!         Err(Fault { address, length: bytes.len() })
//!     }
//!
//!     fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
//!         Err(Fault { address, length: bytes.len() })
//!     }
//! }
//!
//! const ENABLE_HCA: u64 = 0x104;
//! let mut device = Hca::new(CONNECTX_6_DX);
//! let mut command = vec![0; function::LAYOUT.length];
//! header::OPCODE.write(&mut command, ENABLE_HCA);
//! let answer = device.execute(&Nothing, &command);
//! assert_eq!(answer[0], 0, "the status");
//! assert_eq!(device.stage(), Stage::Enabled);
//! ```

pub mod command;
pub mod hca;
pub mod layout;
pub mod memory;
pub mod objects;
pub mod packet;
pub mod profile;
pub mod steering;
