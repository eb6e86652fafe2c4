//! Fragments: the device tells them from packets that are whole, and the first one not from the others.

use sluice_offload_dv::translate::translate;
use sluice_tests::mlx5::on_device;

use crate::frames::{Packet, UDP};
use crate::rig::{Rig, Vport, flow, flow_at};

/// More fragments follow, as flags and offset of IPv4 say it; and the offset of a later one.
const FIRST: u16 = 0x2000;
const LATER: u16 = 0x0010;

#[test]
fn a_flow_that_takes_some_fragments_has_whole_packets_in_the_device_and_leaves_fragments_to_software() {
    let name =
        "fragments::a_flow_that_takes_some_fragments_has_whole_packets_in_the_device_and_leaves_fragments_to_software";
    on_device("bluefield-3", name, |ports| {
        let mut rig = Rig::open(ports);
        let whole = Packet::v4(UDP).frame();
        let fragments = [FIRST, LATER].map(|fragment| Packet { fragment, ..Packet::v4(UDP) }.frame());
        let cases = [
            // First ones, later ones, and those that have what is written.
            ("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=0/0x2)", "1"),
            ("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=0/0x1)", "1"),
            ("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17)", "set(udp(dst=2222)),1"),
        ];
        for (key, actions) in cases {
            let id = rig.add(&flow(key, actions)).unwrap();
            assert_eq!(rig.inject(2, &whole), [(1, whole.clone())], "{key}");
            for frame in &fragments {
                assert_eq!(rig.inject(2, frame), [(0, frame.clone())], "{key}");
            }
            assert_eq!(rig.switch.remove(&[id]).unwrap()[0].packets, 1, "{key}");
        }
        // Whoever says nothing of fragments, and writes nothing that they may not have, takes all.
        rig.add(&flow("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17)", "set(ipv4(ttl=64)),1")).unwrap();
        for frame in &fragments {
            assert_eq!(rig.inject(2, frame), [(1, frame.clone())]);
        }
    });
}

#[test]
fn fragments_are_not_left_to_flows_of_lower_priority() {
    let key = "in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=0/0x2)";
    let refusal = translate(&flow_at(3, key, "1"), &Vport).unwrap_err();
    let reason = "fragments are left to software, and may match a flow of lower priority in the device";
    assert_eq!(refusal.to_string(), format!("combination: {reason}"));
    assert!(translate(&flow_at(0, key, "1"), &Vport).is_ok());
    on_device("bluefield-3", "fragments::fragments_are_not_left_to_flows_of_lower_priority", |ports| {
        let mut rig = Rig::open(ports);
        assert_eq!(rig.add(&flow_at(3, key, "1")).unwrap_err().to_string(), format!("combination: {reason}"));
    });
}

#[test]
fn explain_says_that_fragments_are_left_to_software() {
    let said = |key: &str| translate(&flow(key, "1"), &Vport).unwrap().describe(&|vport| vport.to_string());
    let partial = said("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=0/0x2)");
    assert!(partial.contains("; fragments are left to software; actions"), "{partial}");
    let exact = said("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no)");
    assert!(!exact.contains("fragments"), "{exact}");
}
