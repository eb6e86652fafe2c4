//! Control traffic that is mirrored to a collector over reliable connections of RDMA: so far the verbs that it will be sent with
//! ([`verbs`]), how two ends connect over a socket ([`exchange`]), and what any way to connect gives ([`connection`]).
//!
//! No other crate needs rdma-core at build time, and nothing here is linked into `sluiced`.
//!
//! # Example
//!
//! What is no header of a mirror is refused, and an RDMA device is told of.
//!
//! ```no_run
//! use sluice_mirror::terms::{Refusal, Terms};
//! use sluice_mirror::verbs::{Context, devices};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! assert_eq!(Terms::parse(b"GET / HTTP/1.1\r\n\r\n"), Err(Refusal::Magic));
//! for name in devices()? {
//!     let port = Context::open(&name)?.port(1)?;
//!     println!("{name}: {port:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod addresses;
pub mod cm;
pub mod collector;
pub mod connection;
pub mod exchange;
mod metrics;
mod places;
pub mod program;
pub mod sender;
pub mod source;
pub mod terms;
pub mod verbs;
pub mod wire;
