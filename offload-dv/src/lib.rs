//! Flows in the steering tables of an mlx5 NIC, written from userspace, past the kernel's flow code.
//!
//! Under construction: it is no backend of the agent yet. What is here, from the bottom up: [`mlx5`] has the bindings to libmlx5,
//! [`translate`] makes of a flow what a rule takes or says why not, and [`switch`] keeps the rules of a device.

pub mod mlx5;
pub mod switch;
pub mod translate;
