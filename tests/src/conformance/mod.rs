//! What every backend and every decorator promises, as stories that are played with each of them.
//!
//! A backend joins by a [`Subject`]: in `tests/tests/conformance.rs`, or in a test of the virtual machine if it needs a kernel of its
//! own. A story knows nothing but the [contract](sluice_flow::backend); what only some backends have, it asks for as a facet.

pub mod adoption;
pub mod chains;
pub mod counters;
mod device;
pub mod events;
pub mod facets;
pub mod order;
pub mod ports;
pub mod refusing;
pub mod shutdown;
mod worker;

use std::sync::Arc;

use sluice_flow::Backend;
use sluice_flow::backend::Facet;

pub use self::device::{Device, Rule, UDP, flow};
pub use self::worker::Worker;

/// A story by its name.
pub type Story = (&'static str, fn(&Subject<'_>));

/// Stories under the names of their functions.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        /// The stories of this group.
        pub const STORIES: &[super::Story] = &[$((stringify!($name), $name)),+];
    };
}
pub(crate) use stories;

/// Every group of stories.
pub const STORIES: &[&[Story]] = &[
    order::STORIES,
    counters::STORIES,
    refusing::STORIES,
    chains::STORIES,
    ports::STORIES,
    adoption::STORIES,
    facets::STORIES,
    events::STORIES,
    shutdown::STORIES,
];

/// Actions that every device refuses: there is no such port.
pub(crate) const REFUSED: &str = "9";

/// Has packets come in.
pub type Send<'a> = dyn Fn(&dyn Backend, u32) + 'a;

/// A device whose backend is to conform, and what a story needs to know of it.
pub struct Subject<'a> {
    /// Opens the device as the next run of the same agent does: without ports, and with what the last run left in it.
    pub open: Box<dyn Fn() -> Opened + 'a>,
    /// The same, so that hardware takes so many rules; only of a device that is configured for that.
    pub open_with_room: Option<Box<dyn Fn(usize) -> Opened + 'a>>,
    /// Has so many of the packets that [`UDP`] matches come in at port 1, and returns when the device has handled them.
    pub send: Box<Send<'a>>,
    /// The facets that it has, in order.
    pub facets: &'static [Facet],
}

/// An open device.
pub struct Opened {
    /// The device.
    pub backend: Arc<dyn Backend>,
    /// Of a decorator, the device under it.
    pub under: Option<Arc<dyn Backend>>,
    /// Holds all changes back while it is told `true`, of a device that can be made to.
    pub stall: Option<Box<dyn Fn(bool) + Sync>>,
}

impl Opened {
    /// A device that is no decorator and does everything at once.
    pub fn plain(backend: Arc<dyn Backend>) -> Self {
        Self { backend, under: None, stall: None }
    }
}

/// Plays every story, each on a device of its own, and returns the names of those that fail.
pub fn play<'a>(subject: impl Fn() -> Subject<'a> + Sync) -> Vec<&'static str> {
    let fails = |(name, story): &Story| {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name((*name).to_owned());
            thread.spawn_scoped(scope, || story(&subject())).expect("a thread starts").join().is_err()
        })
    };
    STORIES.iter().copied().flatten().filter(|story| fails(story)).map(|(name, _)| *name).collect()
}
