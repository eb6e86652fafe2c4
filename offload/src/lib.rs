//! The offload queue: wishes in, rules in the device, without anybody waiting for the device.
//!
//! The queue says "look", not "do". A change to what is wanted of a flow is a change to its record in the table; the flow
//! is then handed to the worker that its slot picks, unless it waits there already. The worker reads the record when it
//! gets there. So superseded work vanishes, changes to one identity keep their order, and a queue can never outgrow the
//! table. How many flows may wait for the device is bounded by the table's limit on unsettled flows.
//!
//! # Example
//!
//! A worker on a thread of its own, and the NIC in software.
//!
//! ```
//! use std::sync::Arc;
//! use std::thread;
//! use std::time::Duration;
//!
//! use sluice_flow::backend::OpenConfig;
//! use sluice_flow::table::Limits;
//! use sluice_flow::time::MonotonicClock;
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Backend, Expiry, Flow, FlowTable, MaskedKey, Port, PortKind, PortNumber, Priority, text};
//! use sluice_host::liveness::Progress;
//! use sluice_offload::{Batch, OffloadQueue};
//! use sluice_offload_soft::SoftNic;
//!
//! let (seed, clock) = (Seed([7; 16]), Arc::new(MonotonicClock::new()));
//! let device: Arc<dyn Backend> = Arc::new(SoftNic::new(&OpenConfig::new("example", clock.clone())));
//! for (number, name) in [(1, "client"), (2, "server")] {
//!     device.attach_port(&Port { number: PortNumber(number), name: name.parse()?, kind: PortKind::Physical })?;
//! }
//! let table = Arc::new(FlowTable::new(seed, Limits { flows: 10, unsettled: 10 }, Arc::new(())));
//! let (queue, workers) = OffloadQueue::new(table, &device, clock, 1, 16)?;
//!
//! let matching = text::parse_key("in_port(1),eth_type(0x0800)", &())?.matching;
//! let actions = text::parse_actions("2", &())?;
//! let flow = Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &seed);
//!
//! let (stop, stopped) = crossbeam_channel::bounded(0);
//! thread::scope(|scope| {
//!     for worker in workers {
//!         let stopped = stopped.clone();
//!         scope.spawn(move || worker.run(&stopped, &Progress::default()));
//!     }
//!     let batch = Arc::new(Batch::default());
//!     batch.expect_one();
//!     queue.add(flow, Some(batch.clone().into())).expect("there is room");
//!     assert_eq!(batch.wait(Duration::from_secs(10)).installed, 1);
//!     // The worker ends when nobody can stop it any more.
//!     drop(stop);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adoption;
mod alike;
mod batch;
mod chains;
mod inbox;
mod queue;
mod retries;
mod room;
mod series;
mod worker;

pub use self::adoption::Adopted;
pub use self::batch::{Batch, Tally};
pub use self::queue::OffloadQueue;
pub use self::series::Series;
pub use self::worker::{Installation, LATENCY_BUCKETS, Worker, WorkerReport};
