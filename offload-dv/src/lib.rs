//! Flows in the steering tables of an mlx5 NIC, written from userspace, past the kernel's flow code.
//!
//! Under construction: what is here are the bindings to libmlx5. It is no backend of the agent yet.

pub mod mlx5;
