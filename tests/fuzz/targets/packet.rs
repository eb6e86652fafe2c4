//! Frames: whatever comes in at a port, the device parses it, runs its rules on it and goes on.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use sluice_flow::backend::{Backend, Change, Injector, OpenConfig, Operation};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::time::ManualClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, FlowId, Generation, MaskedKey, Priority};
use sluice_offload_soft::SoftNic;

/// Rules for every header that is taken apart. They overlap, so later ones have lower priorities.
const RULES: &[(&str, &str)] = include!("rules.in");

fuzz_target!(|frames: Vec<Vec<u8>>| {
    static DEVICE: OnceLock<Arc<SoftNic>> = OnceLock::new();
    let device = DEVICE.get_or_init(device);
    for frame in frames {
        let longest = frame.len() + 512;
        if let Ok(verdict) = device.inject(PortNumber(1), &frame) {
            assert!(verdict.sent.iter().all(|(_, sent)| sent.len() <= longest));
        }
    }
});

fn device() -> Arc<SoftNic> {
    let clock = Arc::new(ManualClock::default());
    let device = Arc::new(SoftNic::new(&OpenConfig { device: "soft".into(), clock }));
    for number in 1..=4 {
        let port = Port { number: PortNumber(number), name: format!("p{number}"), kind: PortKind::Physical };
        device.attach_port(&port).expect("a free port");
    }
    let mut queue = device.install_queue().expect("a queue");
    for (index, (key, actions)) in RULES.iter().enumerate() {
        let matching = MaskedKey::new(&parse_key(key, &()).unwrap_or_else(|error| panic!("{key}: {error}")).matching);
        let actions = parse_actions(actions, &()).unwrap_or_else(|error| panic!("{actions}: {error}"));
        let seed = Seed([0; 16]);
        let flow = Flow::new(None, matching, actions, Priority::default(), Expiry::default(), &seed);
        let slot = u32::try_from(index).expect("few rules");
        let operation = Operation::Install(Arc::new(flow));
        let change = Change { flow: FlowId { slot, incarnation: 1 }, generation: Generation(1), operation };
        let mut done = Vec::new();
        queue.submit(&mut vec![change], &mut done);
        done.iter().for_each(|completion| assert!(completion.result.is_ok(), "{key}: {:?}", completion.result));
    }
    device
}
