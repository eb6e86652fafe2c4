//! bindgen 0.72 in the place of 0.59, which rdma-sys 0.3.0 makes its bindings with and which panics with the libclang of Debian 13. What
//! its build script calls is there in both.

pub use newer::*;
