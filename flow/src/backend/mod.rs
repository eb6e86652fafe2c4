//! What a device must offer to carry flows.
//!
//! A backend translates, installs, counts and lists. It knows nothing of ageing, queues, sockets or metrics. What every device must
//! have is [`Backend`]; everything else is a facet, a trait of its own, which a backend hands out or not.
//!
//! No method of these traits has a body here: a backend says of each what it does, and a decorator that forgets one does not compile.

mod adopter;
mod capabilities;
mod capacity;
mod config;
mod counted;
mod device;
mod events;
mod facet;
mod injector;
mod need;
mod objects;
mod owner;
mod queue;
mod rules;

pub use self::adopter::{Adopter, Auditor};
pub use self::capabilities::{Capabilities, LastCounters, Listing, MissPolicy};
pub use self::capacity::{Capacity, Room};
pub use self::config::{BackendConfig, BackendKind, Checker, OpenConfig};
pub use self::counted::{
    CounterReader, LookupCounters, MeterCounters, MeterFault, MirrorCounters, MirrorFault, PortCounters,
};
pub use self::device::Backend;
pub use self::events::{DeviceEvent, EventSender, EventStream, LostRule, NoEvent, NoRoom};
pub use self::facet::Facet;
pub use self::injector::Injector;
pub use self::need::Need;
pub use self::objects::{Connections, CopiedPacket, CopySink, HandsOut, Meters, Mirrors, Outlet};
pub use self::owner::Owner;
pub use self::queue::{
    ChainChange, ChainCompletion, ChainOperation, Change, Completion, Handle, InstallQueue, Operation, Outcome,
    Placement,
};
pub use self::rules::{Adoption, Claims, CountedApart, Holding, InstalledRule, LooksAt, ToInspect};
pub use crate::trace::{Sample, Verdict};
