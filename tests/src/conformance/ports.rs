//! Ports come and go while the device is in use.

use sluice_flow::{Cause, PortNumber};

use super::device::port;
use super::{Device, Subject, UDP, stories};

stories![
    a_flow_of_a_port_that_is_gone_is_refused_until_the_port_is_back,
    a_port_that_is_expected_and_is_there_is_as_one_that_was_attached,
];

const OUT: PortNumber = PortNumber(2);

/// The refusal names the port, so that the flow is tried again when it comes.
pub fn a_flow_of_a_port_that_is_gone_is_refused_until_the_port_is_back(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    device.backend().detach_port(OUT).expect("the port is there");
    device.backend().detach_port(OUT).expect_err("it is gone");
    assert_eq!(device.backend().port_counters(OUT), None);
    let refusal = device.install(UDP, "2").expect_err("the port is gone");
    assert_eq!((refusal.label(), refusal.cause()), ("port", Some(Cause::Port(Some(OUT)))));
    assert!(device.installed().is_empty());
    device.backend().attach_port(&port(OUT)).expect("the port is there again");
    let rule = device.install(UDP, "2").expect("now it is taken");
    device.send(2);
    assert_eq!(device.packets(rule), Some(2));
}

/// It does not wait for anything.
pub fn a_port_that_is_expected_and_is_there_is_as_one_that_was_attached(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    device.backend().detach_port(OUT).expect("the port is there");
    device.backend().expect_port(&port(OUT)).expect("the port is there again");
    assert!(!device.backend().is_absent(OUT));
    let rule = device.install(UDP, "2").expect("it is taken");
    device.send(2);
    assert_eq!(device.packets(rule), Some(2));
}
