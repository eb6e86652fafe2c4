//! Rules that the kernel does not take.

use sluice_flow::backend::OffloadPolicy;
use sluice_flow::refusal::Refusal;

use crate::device::{Device, OWNER, TO_B};
use crate::network::Network;
use crate::stories;

stories![
    what_only_hardware_may_take_is_refused_in_the_kernels_words_where_there_is_none,
    a_rule_whose_match_another_one_has_is_refused_as_a_duplicate,
    a_rule_of_a_device_that_went_a_moment_ago_is_refused_with_its_port,
    a_move_is_refused,
    a_meter_is_refused_by_name,
];

fn what_only_hardware_may_take_is_refused_in_the_kernels_words_where_there_is_none(_: &Network) {
    let mut device = Device::bare(OffloadPolicy::SkipSoftware, OWNER);
    device.attach(1);
    device.attach(2);
    let refusal = device.install(TO_B, "2").unwrap_err();
    assert!(matches!(&refusal, Refusal::Kernel { errno: 95, .. }), "{refusal}");
    assert_eq!(device.installed().len(), 0);
    assert_eq!(device.counted().len(), 0);
}

fn a_rule_whose_match_another_one_has_is_refused_as_a_duplicate(_: &Network) {
    let mut device = Device::open();
    device.install(TO_B, "2").unwrap();
    let refusal = device.install(TO_B, "drop").unwrap_err();
    assert!(matches!(&refusal, Refusal::Kernel { errno: 17, .. }), "{refusal}");
    assert_eq!(device.installed().len(), 1);
}

fn a_rule_of_a_device_that_went_a_moment_ago_is_refused_with_its_port(network: &Network) {
    let mut device = Device::open();
    network.run("ip link del p1");
    let refusal = device.install(TO_B, "2").unwrap_err();
    assert_eq!(refusal.label(), "port", "{refusal}");
}

fn a_move_is_refused(_: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    let refusal = device.relocate(rule).unwrap_err();
    assert_eq!(refusal.label(), "device");
    assert!(device.backend.room().is_err());
}

fn a_meter_is_refused_by_name(_: &Network) {
    let mut device = Device::open();
    let refusal = device.install(TO_B, "meter(3),2").unwrap_err();
    assert!(refusal.to_string().contains("meter"), "{refusal}");
}
