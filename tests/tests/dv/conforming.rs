//! The backend conforms to the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::Backend;
use sluice_flow::backend::{Facet, OpenConfig};
use sluice_flow::time::MonotonicClock;
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::conformance::{Opened, Subject, play};
use sluice_tests::frames;
use sluice_tests::mlx5::{Out, Ports, on_device};

use crate::rig::{HOST, MARKER, ends, marker, representor, wait_for};

fn open() -> Arc<dyn Backend> {
    // Port 1 is a function, and port 2 the uplink.
    let [(uplink, _), (function, _), ..] = *ends();
    let vports = BTreeMap::from([("p1".to_owned(), function), ("p2".to_owned(), uplink)]);
    let config = Config { takeover: true, vports, ..Config::default() };
    let open = OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new()));
    Arc::new(DvNic::open(&config, &open).unwrap())
}

/// Has packets come in, and behind them one that no rule takes: when that is at the representor, they are done with.
fn send(ports: &Ports, representor: &Out, packets: u32) {
    let (_, function) = ends()[1];
    (0..packets).for_each(|_| ports.send(function, &frames::udp(53)));
    ports.send(function, &marker(MARKER));
    wait_for(representor, &marker(MARKER));
}

#[test]
fn the_backend_conforms() {
    for profile in ["bluefield-3", HOST] {
        on_device(profile, "conforming::the_backend_conforms", |ports| {
            let representor = ports.out(representor());
            let subject = || Subject {
                open: Box::new(|| Opened::plain(open())),
                open_with_room: None,
                send: Box::new(|_, packets| send(ports, &representor, packets)),
                facets: &[Facet::Meters, Facet::Mirrors],
            };
            assert_eq!(play(subject), [""; 0]);
        });
    }
}
