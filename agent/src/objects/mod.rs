//! The objects that flows refer to: ports, meters, timeout policies and mirrors. Each came from the configuration file or at run
//! time, and the two are known apart: a reload compares the file with what is in force, and what came at run time stays.
//!
//! A kind of object implements [`ObjectKind`]: its name, its text, and how a device makes it. Everything else is the same for all
//! kinds: a [`Registry`] of each, [`Steps`] that lead from what is in force to what is wanted and back, the [file](ObjectsFile) in the
//! state folder, and the [store](ObjectStore) that makes one change at a time.

mod file;
mod id;
mod meter;
mod mirror;
mod number;
mod port;
mod registry;
mod set;
mod steps;
mod store;
mod timeout_policy;

pub use self::file::{ObjectsFile, ObjectsFileError, Saved};
pub use self::id::{ObjectError, ObjectId};
pub use self::meter::meter_id;
pub use self::port::port_number;
pub use self::registry::{Absence, Entry, ObjectKind, Origin, Registry};
pub use self::set::Objects;
pub use self::steps::{Steps, check, difference, make};
pub use self::store::{ChangeError, ObjectStore};
