//! Rules that others take away.

use sluice_flow::backend::{DeviceEvent, LostRule};
use sluice_flow::cause::Cause;
use sluice_flow::port::PortNumber;

use crate::device::{Device, TO_A, TO_B};
use crate::network::{Network, eventually};
use crate::stories;

stories![
    a_qdisc_that_somebody_deletes_is_made_again_and_its_rules_are_told_to_be_lost,
    a_rule_that_somebody_deletes_is_told_to_be_lost_and_can_be_put_in_again,
    rules_that_somebody_flushes_are_told_to_be_lost,
    a_device_that_goes_and_comes_back_gets_its_rules_again,
    a_device_that_is_renamed_stays_the_same_port,
    what_the_backend_itself_removes_is_no_loss,
];

fn a_qdisc_that_somebody_deletes_is_made_again_and_its_rules_are_told_to_be_lost(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    let kept = device.install(TO_A, "1").unwrap();
    network.run("tc qdisc del dev p1 ingress");
    eventually("a reset is told", || device.events().iter().any(|event| matches!(event, DeviceEvent::Reset { .. })));
    assert_eq!(device.backend.resync(), Ok(vec![LostRule { flow: rule.id, handle: rule.handle }]));
    assert_eq!(device.backend.resync(), Ok(vec![]), "told once");
    let again = device.install(TO_B, "2").unwrap();
    assert_ne!(again.handle, rule.handle);
    assert_eq!(network.send(0, 3).len(), 3);
    assert_eq!(network.send(1, 3).len(), 3);
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&kept.id, &again.id]);
}

fn a_rule_that_somebody_deletes_is_told_to_be_lost_and_can_be_put_in_again(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    let other = device.install("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.9)", "2").unwrap();
    let shown = network.run("tc filter show dev p1 ingress");
    let at = shown.find("dst_ip 10.0.0.2").unwrap();
    let line = shown[..at].lines().rev().find(|line| line.contains("handle")).unwrap();
    let word = |name: &str| line.split_whitespace().skip_while(|word| *word != name).nth(1).unwrap().to_owned();
    let (preference, handle) = (word("pref"), word("handle"));
    network.run(&format!("tc filter del dev p1 ingress protocol ip pref {preference} handle {handle} flower"));
    let lost = DeviceEvent::RuleLost(LostRule { flow: rule.id, handle: rule.handle });
    eventually("the loss is told", || device.events().contains(&lost));
    assert_eq!(device.remove(rule), None);
    let again = device.install(TO_B, "2").unwrap();
    assert_eq!(network.send(0, 1).len(), 1);
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&other.id, &again.id]);
}

fn rules_that_somebody_flushes_are_told_to_be_lost(network: &Network) {
    let mut device = Device::open();
    let rules = [TO_B, "in_port(1),eth_type(0x86dd)"].map(|key| device.install(key, "2").unwrap());
    let kept = device.install(TO_A, "1").unwrap();
    network.run("tc filter del dev p1 ingress");
    eventually("a reset is told", || device.events().iter().any(|event| matches!(event, DeviceEvent::Reset { .. })));
    let mut lost = device.backend.resync().unwrap();
    lost.sort_by_key(|lost| lost.flow);
    assert_eq!(lost, rules.map(|rule| LostRule { flow: rule.id, handle: rule.handle }));
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&kept.id]);
}

fn a_device_that_goes_and_comes_back_gets_its_rules_again(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    let kept = device.install(TO_A, "drop").unwrap();
    network.run("ip link del p1");
    eventually("a reset is told", || device.events().iter().any(|event| matches!(event, DeviceEvent::Reset { .. })));
    assert_eq!(device.backend.resync(), Ok(vec![LostRule { flow: rule.id, handle: rule.handle }]));
    let refusal = device.install(TO_B, "2").unwrap_err();
    assert_eq!(refusal.label(), "port", "{refusal}");
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&kept.id]);
    device.events();
    network.plug(1);
    let changed = DeviceEvent::Changed { cause: Cause::Port(Some(PortNumber(1))) };
    eventually("it is told that there is something new", || device.events().contains(&changed));
    let again = device.install(TO_B, "2").unwrap();
    assert_eq!(network.send(0, 4).len(), 4);
    assert_eq!(device.counted()[&again.id].0, 4);
}

fn a_device_that_is_renamed_stays_the_same_port(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    network.run("ip link set p1 down");
    network.run("ip link set p1 name q1");
    network.run("ip link set q1 up");
    let second = device.install("in_port(1),eth_type(0x86dd)", "2").unwrap();
    assert_eq!(network.send(0, 4).len(), 4);
    assert_eq!(device.counted()[&rule.id].0, 4);
    device.remove(second).unwrap();
    assert_eq!(device.backend.resync(), Ok(vec![]));
}

fn what_the_backend_itself_removes_is_no_loss(_: &Network) {
    let mut device = Device::open();
    device.events();
    for _ in 0..50 {
        let rule = device.install(TO_B, "2").unwrap();
        device.counted();
        device.remove(rule).unwrap();
        device.counted();
    }
    assert_eq!(device.backend.resync(), Ok(vec![]));
    assert_eq!(device.events(), []);
}
