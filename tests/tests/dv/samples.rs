//! Copies of some packets: what is not left to chance is as in the NIC in software, and the rest is near the share that is asked for.

use sluice_offload_dv::mlx5::Library;
use sluice_offload_dv::switch::Switch;
use sluice_offload_dv::translate::{Templates, translate};
use sluice_tests::mlx5::on_device;

use crate::frames::{Packet, UDP};
use crate::rig::{Rig, Vport, flow};
use crate::same::{Case, case, compare};

const PROFILES: [&str; 2] = ["bluefield-2", "bluefield-3"];
const IPV4: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no)";

fn certain() -> Vec<Case> {
    let four = |actions| case(IPV4, actions, [Packet::v4(UDP)]);
    vec![
        four("sample(sample=100.0%,actions(3)),1"),
        four("sample(sample=100.0%,actions(3,4)),set(ipv4(ttl=9)),1"),
        four("sample(sample=0.0%,actions(3)),1"),
        four("1,sample(sample=0.0%,actions(3)),set(ipv4(ttl=9)),4"),
    ]
}

#[test]
fn a_sample_of_all_packets_or_none_is_as_in_the_nic_in_software() {
    for profile in PROFILES {
        on_device(profile, "samples::a_sample_of_all_packets_or_none_is_as_in_the_nic_in_software", |ports| {
            compare(ports, certain());
        });
    }
}

/// Packets that are sent of a flow that samples one in four.
const PACKETS: u64 = 400;
/// Samples that there may be: five standard deviations of the binomial distribution around 100.
const SAMPLES: std::ops::RangeInclusive<u64> = 57..=143;

#[test]
fn one_in_so_many_packets_is_copied_as_it_is_then_and_all_go_on() {
    for profile in PROFILES {
        on_device(profile, "samples::one_in_so_many_packets_is_copied_as_it_is_then_and_all_go_on", |ports| {
            let mut rig = Rig::open(ports);
            let with = |ttl: u8| Packet { ttl, ..Packet::v4(UDP) }.frame();
            let quarter = "sample(sample=25.0%,actions(3,4))";
            for (actions, sampled, sent) in [
                (format!("{quarter},1"), with(64), vec![(1, with(64))]),
                (
                    format!("2,set(ipv4(ttl=9)),{quarter},set(ipv4(ttl=8)),1"),
                    with(9),
                    vec![(1, with(8)), (2, with(64))],
                ),
                (format!("set(ipv4(ttl=9)),{quarter}"), with(9), vec![]),
            ] {
                let id = rig.add(&flow(IPV4, &actions)).unwrap();
                let copies = [(3, sampled.clone()), (4, sampled)];
                let mut samples = 0;
                for _ in 0..PACKETS {
                    let mut found = rig.inject(2, &with(64));
                    let is_copy = |found: &(u32, Vec<u8>)| copies.contains(found);
                    let copied = found.extract_if(.., |found| is_copy(found)).count();
                    assert!(matches!(copied, 0 | 2), "{actions}: to one port and not to the other");
                    assert_eq!(found, sent, "{actions}");
                    samples += u64::from(copied > 0);
                }
                println!("{actions}: {samples} of {PACKETS}");
                assert!(SAMPLES.contains(&samples), "{actions}: {samples} of {PACKETS}");
                assert_eq!(rig.switch.remove(&[id]).unwrap()[0].packets, PACKETS);
            }
        });
    }
}

#[test]
fn what_the_device_does_not_sample_is_refused_and_what_it_does_is_explained() {
    let rule = |actions: &str| translate(&flow(IPV4, actions), &Vport);
    for (actions, reason) in [
        (
            "sample(sample=50.0%,actions(set(ipv4(ttl=9)),3)),1",
            "sample: the device sends samples to ports as they are, and does nothing else with them",
        ),
        ("sample(sample=50.0%,actions(10)),1", "sample: the device does not put tunnel headers on samples"),
        ("sample(sample=50.0%,actions(3,3)),1", "sample: a sample goes there already"),
        ("sample(sample=30.0%,actions(3)),1", "sample: the device takes one in a whole number of packets"),
        (
            "sample(sample=50.0%,actions(3)),recirc(5)",
            "recirc: copies were sent before, and a packet that misses there would be sent again",
        ),
        ("psample(group=1),1", "psample: sampling groups are the kernel's, which does not see these packets"),
    ] {
        assert_eq!(rule(actions).unwrap_err().to_string(), format!("action {reason}"), "{actions}");
    }
    for (percent, ratio) in [("50.0", 2), ("33.3333333", 3), ("10.0", 10), ("0.1", 1000)] {
        let text =
            rule(&format!("sample(sample={percent}%,actions(3)),1")).unwrap().describe(&|vport| vport.to_string());
        let (_, actions) = text.split_once("; actions ").unwrap();
        assert_eq!(actions, format!("count, sample(one in {ratio}, to 1), to a later rule; then: to 65535"));
    }
}

#[test]
fn a_device_that_loses_registers_copies_before_changes_only() {
    on_device("connectx-5", "samples::a_device_that_loses_registers_copies_before_changes_only", |_| {
        let mut switch = Switch::open(&Library::load().unwrap(), "mlx5_0").unwrap();
        let mut install =
            |actions: &str| switch.install(Templates::new().instance(flow(IPV4, actions), &Vport).unwrap()).map(drop);
        install("1,2").unwrap();
        for actions in ["sample(sample=50.0%,actions(2)),1", "1,set(ipv4(ttl=9)),2"] {
            let reason = "action output: on this device, a packet loses its registers where it is copied";
            assert_eq!(install(actions).unwrap_err().to_string(), reason);
        }
    });
}
