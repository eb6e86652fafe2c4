//! The stories that every backend conforms to.

use std::sync::Arc;

use sluice_flow::Backend;
use sluice_flow::backend::{BackendConfig, Facet, OpenConfig};
use sluice_flow::time::MonotonicClock;
use sluice_offload_tc::{Config, OffloadPolicy};
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
        let config = Config { policy: OffloadPolicy::SkipHardware, ..Config::default() };
        let open = OpenConfig { owner: OWNER, ..OpenConfig::new("system", clock) };
        Opened::plain(config.open(&open).unwrap())
    };
    let send = |_: &dyn Backend, packets| drop(network.send(0, packets));
    let facets = &[Facet::Meters, Facet::Mirrors, Facet::Adoption, Facet::Audit];
    Subject { open: Box::new(open), open_with_room: None, send: Box::new(send), facets }
}
