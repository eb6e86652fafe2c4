//! Reads the flows of a running, unmodified Open vSwitch.
//!
//! From the bottom up: [`wire`] reads the messages of the kernel's module, [`Kernel`] asks it, [`Listener`] hears what changes, and
//! [`Vswitchd`] asks ovs-vswitchd. [`observe`] has the backends judge the flows that these, or a dump in a file, tell of; [`source`] brings
//! those of a datapath to the agent, for as long as they are there. All of it reads and changes nothing in OVS.
//!
//! # Example
//!
//! A dump of which `tc` would take one flow of two:
//!
//! ```
//! use sluice_feed_ovs::observe::{Backend, Observer};
//! use sluice_flow::backend::BackendConfig;
//!
//! let dump = "\
//! recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(frag=no), packets:90, bytes:9000, used:0.1s, actions:2
//! recirc_id(0),in_port(2),dp_hash(0x1/0xf),eth(),eth_type(0x0806), packets:10, bytes:420, used:0.1s, actions:1
//! ";
//! let tc = Backend::new(&sluice_offload_tc::KIND, || sluice_offload_tc::Config::default().checker());
//! let mut observer = Observer::new(vec![tc]);
//! observer.begin("a dump");
//! observer.text(dump.as_bytes())?;
//! let report = observer.report();
//! let tc = &report.backends[0];
//! assert_eq!((tc.taken.flows, tc.taken.packets), (1, 90));
//! assert_eq!(tc.refusals[0].about, "dp_hash");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod families;
mod kernel;
mod listener;
pub mod observe;
pub mod source;
mod tunnel_name;
mod vswitchd;
pub mod wire;

pub use kernel::{Kernel, KernelError};
pub use listener::{Change, Heard, Listener, Notification};
pub use vswitchd::{Flows, Vswitchd, VswitchdError};
