//! What a trace shows, and that it leaves the device as it was.

use sluice_flow::action::{Action, FieldSet};
use sluice_flow::backend::Injector;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::trace::{Trace, TraceEvent, Tracer};

use crate::frames::Ip4;
use crate::harness::{Device, flow, is_ipv4, output};
use crate::outer::{long, read};

fn frame() -> Vec<u8> {
    Ip4::default().frame(99, &[])
}

fn trace(tracer: &mut dyn Tracer) -> Trace {
    tracer.trace(PortNumber(2), &frame()).unwrap()
}

/// The numbers that the outer headers of what was sent carry.
fn numbers(sent: &[(PortNumber, Vec<u8>)]) -> Vec<u32> {
    sent.iter().map(|(_, frame)| long(&read(frame).tunnel, 4)).collect()
}

#[test]
fn a_trace_shows_the_numbers_of_the_next_packets_and_uses_none_up() {
    let mut device = Device::with_tunnels();
    let fields = [
        (Field::TunnelIpv4Src, 0xac10_0001),
        (Field::TunnelIpv4Dst, 0xac10_0002),
        (Field::ErspanPresent, 1),
        (Field::ErspanVersion, 1),
    ];
    let fields = fields.map(|(field, value)| (field, value, field.full_mask())).into();
    let outer = Action::SetTunnel(FieldSet { attribute: Attribute::Tunnel, fields });
    device.add(flow(|full| full.set_exact(Field::InPort, 2), vec![outer, output(13), output(13)])).unwrap();
    assert_eq!(numbers(&device.inject(2, &frame()).sent), [0, 1]);
    for _ in 0..2 {
        let mut tracer = device.nic.tracer();
        assert_eq!(numbers(&trace(&mut *tracer).verdict.sent), [2, 3]);
        assert_eq!(numbers(&trace(&mut *tracer).verdict.sent), [4, 5], "one goes on from the other");
    }
    assert_eq!(numbers(&device.inject(2, &frame()).sent), [2, 3]);
}

#[test]
fn a_trace_throws_its_own_dice_which_fall_as_those_of_the_next_packets() {
    let mut device = Device::new();
    let sample = Action::Sample { probability: u32::MAX / 2, actions: [output(3)].into() };
    device.add(flow(is_ipv4, vec![sample])).unwrap();
    let mut tracer = device.nic.tracer();
    let traced: Vec<_> = (0..64).map(|_| trace(&mut *tracer).verdict.sent).collect();
    let sent: Vec<_> = (0..64).map(|_| device.inject(2, &frame()).sent).collect();
    assert_eq!(traced, sent);
}

#[test]
fn a_trace_does_not_change_the_order_in_which_subtables_are_tried() {
    let mut device = Device::new();
    device.add(flow(|full: &mut Match| full.set_exact(Field::EthSrc, 1), vec![])).unwrap();
    device.add(flow(is_ipv4, vec![output(3)])).unwrap();
    let tried = |device: &Device| match &trace(&mut *device.nic.tracer()).steps[0].event {
        TraceEvent::Lookup(lookup) => lookup.tried.len(),
        other => panic!("{other:?}"),
    };
    for _ in 0..10 {
        assert_eq!(tried(&device), 2);
        // They are sorted by what was found in them.
        device.readings();
    }
    device.inject(2, &frame());
    device.readings();
    assert_eq!(tried(&device), 1, "a packet was found there");
}
