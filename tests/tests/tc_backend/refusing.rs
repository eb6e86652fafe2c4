//! Rules that the kernel does not take.

use sluice_flow::backend::{DeviceEvent, Facet};
use sluice_flow::cause::Cause;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;

use crate::device::{Device, OWNER, TO_B};
use crate::network::Network;
use crate::stories;

stories![
    what_only_hardware_may_take_is_refused_in_the_kernels_words_where_there_is_none,
    a_rule_whose_match_another_one_has_is_refused_as_a_duplicate,
    a_rule_of_a_device_that_went_a_moment_ago_is_refused_with_its_port,
    a_move_is_refused,
    a_meter_that_is_not_there_is_refused_and_one_that_is_counts,
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
    assert_eq!(refusal, Refusal::Unsupported { facet: Facet::Capacity });
    assert!(device.backend.capacity().is_none());
}

fn a_meter_that_is_not_there_is_refused_and_one_that_is_counts(network: &Network) {
    let mut device = Device::open();
    let refusal = device.install(TO_B, "meter(3),2").unwrap_err();
    assert!(refusal.to_string().contains("meter"), "{refusal}");
    assert_eq!(refusal.cause(), Some(Cause::Meter));
    let bands = vec![MeterBand { rate: 1000, burst: 1000 }];
    let meter = Meter { id: MeterId(3), unit: MeterUnit::Kilobits, bands };
    device.meters().set_meter(&meter).unwrap();
    let changed = DeviceEvent::Changed { cause: Cause::Meter };
    assert!(device.events().contains(&changed), "what was refused may be taken now");
    let rule = device.install(TO_B, "meter(3),2").unwrap();
    assert_eq!(network.send(0, 4).len(), 4);
    let metered = device.meters().meter_counters(meter.id).unwrap();
    assert_eq!(metered.packets, 4);
    assert_eq!((metered.packets, metered.bytes), device.counted()[&rule.id], "counted as the flow");
    assert_eq!(device.installed().pop().unwrap().flow.actions, crate::device::flow(TO_B, "meter(3),2").actions);
    assert_eq!(device.meters().remove_meter(meter.id).unwrap_err().label(), "action", "a rule uses it");
    device.remove(rule).unwrap();
    device.meters().remove_meter(meter.id).unwrap();
    assert_eq!(device.meters().meter_counters(meter.id), None);
}
