//! The objects that flows refer to: ports, meters, timeout policies and mirrors. An object comes from the configuration file or is
//! made at run time, and its [`Origin`] says which: a reload compares the file with what is in force, and what was made at run time stays.
//!
//! A kind of object implements [`ObjectKind`]: its name, its text, and how a device makes it. Everything else is the same for all
//! kinds: a [`Registry`] of each, the [`Steps`] from what is in force to what is wanted and back, the [file](ObjectsFile) in the
//! state folder, and the [store](ObjectStore) that makes one change at a time.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use sluice_flow::backend::OpenConfig;
//! use sluice_flow::meter::{Meter, MeterId, MeterUnit};
//! use sluice_flow::time::MonotonicClock;
//! use sluice_objects::{Absence, Objects, difference, make};
//!
//! let device = sluice_offload_soft::SoftNic::new(&OpenConfig::new("nic0", Arc::new(MonotonicClock::new())));
//! let mut file = Objects::default();
//! file.configure(Meter::simple(MeterId(1), MeterUnit::Packets, 1_000, 0));
//!
//! let steps = difference(&Objects::default(), &file)?;
//! let in_force = make(&device, &Objects::default(), &steps, Absence::Refused)?;
//! assert_eq!((steps.keys(), in_force.meters().count()), (vec!["meter"], 1));
//! // What is in force already needs no step.
//! assert!(difference(&in_force, &file)?.keys().is_empty());
//! # Ok::<(), sluice_objects::ObjectError>(())
//! ```

mod file;
mod id;
mod keeper;
mod meter;
mod mirror;
mod number;
mod port;
mod refused;
mod registry;
mod set;
mod steps;
mod store;
#[cfg(test)]
mod tests;
mod timeout_policy;

pub use self::file::{ObjectsFile, ObjectsFileError, Saved};
pub use self::id::{ObjectError, ObjectId};
pub use self::meter::meter_id;
pub use self::port::port_number;
pub use self::refused::RefusedObjects;
pub use self::registry::{Absence, Entry, ObjectKind, Origin, Registry};
pub use self::set::Objects;
pub use self::steps::{Steps, check, difference, make};
pub use self::store::{ChangeError, ObjectStore};
