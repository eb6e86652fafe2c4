//! Messages about flows, datapaths, ports and meters of the kernel's Open vSwitch module, which also an ovs-vswitchd writes that hands its flows
//! over, and about connections that the kernel tracks: whatever they hold, they are read or refused, and what is read can be shown.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sluice_ctnetlink::wire::Told;
use sluice_feed_ovs::wire::{Datapath, FlowMessage, Vport, read_meter};
use sluice_flow::MaskedKey;
use sluice_flow::text::{Style, write_actions, write_key};

fuzz_target!(|message: &[u8]| {
    let Some((kind, payload)) = message.split_first() else { return };
    match kind % 5 {
        0 => read_flow(payload),
        1 => drop(Datapath::read(payload)),
        2 => drop(Vport::read(payload)),
        3 => drop(read_meter(payload)),
        _ => drop(Told::read(payload)),
    }
});

fn read_flow(payload: &[u8]) {
    let named = FlowMessage::read_name(payload);
    let Ok(flow) = FlowMessage::read(payload, Duration::from_secs(1)) else { return };
    assert_eq!(named, Ok((flow.datapath, flow.ufid)), "its name is read first, and all of it after that");
    let mut written = String::new();
    if let Some(matching) = &flow.matching {
        write_key(&mut written, &MaskedKey::new(matching), &Style::default()).expect("a string takes all");
    }
    if let Some(actions) = &flow.actions {
        write_actions(&mut written, actions, &Style::default()).expect("a string takes all");
    }
}
