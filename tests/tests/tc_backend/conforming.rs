//! The stories that every backend conforms to.

use std::sync::Arc;

use sluice_flow::Backend;
use sluice_flow::backend::{Facet, OffloadPolicy, OpenConfig};
use sluice_flow::time::MonotonicClock;
use sluice_tests::conformance::{self, Opened, Subject};

use crate::Play;
use crate::device::OWNER;
use crate::network::Network;

/// All of them, in a network of their own each.
pub(crate) fn stories() -> impl Iterator<Item = (&'static str, Play)> {
    let stories = conformance::STORIES.iter().copied().flatten();
    stories.map(|(name, story)| (*name, Box::new(move |network: &Network| story(&subject(network))) as Play))
}

/// The classifier, which the kernel's software carries.
fn subject(network: &Network) -> Subject<'_> {
    let open = || {
        let clock = Arc::new(MonotonicClock::new());
        let policy = OffloadPolicy::SkipHardware;
        let config = OpenConfig { policy, owner: OWNER, ..OpenConfig::new("system", clock) };
        Opened::plain(sluice_offload_tc::open(&config).unwrap())
    };
    let send = |_: &dyn Backend, packets| drop(network.send(0, packets));
    let facets = &[Facet::Meters, Facet::Mirrors, Facet::Adoption, Facet::Audit];
    Subject { open: Box::new(open), send: Box::new(send), facets }
}
