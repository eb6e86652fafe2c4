//! What the device tells by itself.

use std::time::Duration;

use sluice_flow::Cause;
use sluice_flow::backend::{DeviceEvent, Facet, NoEvent};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};

use super::{Device, Subject, UDP, stories};

stories![
    what_flows_were_refused_for_want_of_is_told_when_it_is_there,
    a_device_that_nothing_has_happened_to_has_lost_nothing,
];

/// How long the device may take to tell of something.
const PATIENCE: Duration = Duration::from_secs(5);

/// So that they are tried again.
pub fn what_flows_were_refused_for_want_of_is_told_when_it_is_there(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    if !device.has(Facet::Meters) {
        return;
    }
    let events = device.backend().events();
    let refusal = device.install(UDP, "meter(3),2").expect_err("there is no such meter");
    assert_eq!(refusal.cause(), Some(Cause::Meter));
    let meter = Meter::simple(MeterId(3), MeterUnit::Kilobits, 1_000_000, 1_000_000);
    device.backend().meters().expect("meters").set_meter(&meter).expect("it is made");
    while events.next_within(PATIENCE).expect("the meter is told of") != (DeviceEvent::Changed { cause: Cause::Meter })
    {
    }
    device.install(UDP, "meter(3),2").expect("now it is taken");
}

/// And its stream of events goes on.
pub fn a_device_that_nothing_has_happened_to_has_lost_nothing(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let rule = device.install(UDP, "2").expect("it is taken");
    assert_eq!(device.backend().resync(), Ok(vec![]));
    let events = device.backend().events();
    // What has happened by now is told, and then no end.
    let last = std::iter::from_fn(|| Some(events.try_next())).find_map(Result::err);
    assert_eq!(last, Some(NoEvent::Yet), "the backend has not ended");
    device.send(1);
    assert_eq!(device.packets(rule), Some(1));
}
