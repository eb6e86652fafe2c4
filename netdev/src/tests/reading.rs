//! What the messages of the kernel say.

use super::{golden, read, read_golden, written};
use crate::device::{Device, Ifindex, NamespaceId, ParentDevice, Role, State};
use crate::devlink::{self, DevlinkPort, Flavour};
use crate::ingress::IngressQdisc;
use crate::message::{Destination, Notice};
use crate::netlink::attribute::Malformed;
use crate::port_name::{Function, FunctionPart};
use crate::touched_filters::{Attachment, Block, TouchedFilters};
use crate::tunnel::{Tunnel, TunnelKind};

fn device(name: &str) -> Device {
    match read_golden(name) {
        Notice::Link(device) => *device,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_loopback_device_is_up_and_has_no_driver() {
    let lo = device("link-lo");
    assert_eq!((lo.name.as_str(), lo.ifindex, lo.state), ("lo", Ifindex(1), State::Up));
    assert_eq!((&lo.role, lo.driver(), &lo.switch), (&Role::Loopback, None, &None));
}

#[test]
fn a_pair_names_its_other_end() {
    let veth = device("link-veth");
    assert_eq!((veth.name.as_str(), veth.role, veth.state), ("v0", Role::Veth, State::Off));
    let end = veth.lower.unwrap();
    assert_eq!((end.ifindex, end.namespace), (Ifindex(2), None));
}

#[test]
fn tunnel_devices_tell_their_options_and_whose_they_are() {
    let vxlan = device("link-vxlan");
    let tunnel = Tunnel { kind: TunnelKind::Vxlan, collects_metadata: true, udp_port: Some(4790), group_policy: true };
    assert_eq!((vxlan.role, vxlan.alias.as_deref()), (Role::Tunnel(tunnel), Some("sluice")));
    let gretap = device("link-gretap").role;
    let tunnel = Tunnel { kind: TunnelKind::Gretap, collects_metadata: true, udp_port: None, group_policy: false };
    assert_eq!(gretap, Role::Tunnel(tunnel));
}

#[test]
fn a_plug_and_a_representor_of_one_nic_have_the_same_switch() {
    let [plug, representor] = ["link-plug", "link-representor"].map(device);
    assert_eq!((&plug.role, plug.port_name.as_deref()), (&Role::Physical, Some("p1")));
    let function = Function { controller: None, physical: 0, part: FunctionPart::Virtual(0) };
    assert_eq!((&representor.role, representor.port_name.as_deref()), (&Role::Representor(function), Some("pf0vf0")));
    assert!(plug.switch.is_some());
    assert_eq!(plug.switch, representor.switch);
    assert_eq!(plug.parent, Some(ParentDevice { bus: "netdevsim".into(), name: "netdevsim10".into() }));
}

#[test]
fn a_device_that_moved_says_where_to() {
    let there = Destination { namespace: Some(NamespaceId(0)), ifindex: Some(Ifindex(8)) };
    assert_eq!(read_golden("link-moved"), Notice::LinkGone(Ifindex(8), Some(there)));
}

#[test]
fn queueing_disciplines_for_filters_tell_their_blocks() {
    let blocks = IngressQdisc::CLSACT.with_ingress_block(Block(7)).with_egress_block(Block(8));
    assert_eq!(read_golden("qdisc-blocks"), Notice::Qdisc(Ifindex(3), blocks, 77));
    assert_eq!(read_golden("qdisc-ingress"), Notice::Qdisc(Ifindex(2), IngressQdisc::INGRESS, 77));
    assert_eq!(read_golden("qdisc-removed"), Notice::QdiscGone(Ifindex(2), 77));
    let (kind, payload) = golden("qdisc-noqueue");
    assert_eq!(read(kind, &payload), Ok(None));
}

#[test]
fn filters_that_were_flushed_tell_where_they_were() {
    let attachment = Attachment::Ingress(Ifindex(2));
    let loss = TouchedFilters { attachment, chain: 3, priority: 5, protocol: 0x0800, handle: None, by: 77 };
    assert_eq!(read_golden("filter-flushed"), Notice::FiltersGone(loss));
}

#[test]
fn devlink_ports_tell_what_is_behind_them() {
    let port = |index, flavour| DevlinkPort { bus: "netdevsim".into(), device: "netdevsim10".into(), index, flavour };
    let (_, plug) = golden("devlink-plug");
    let flavour = Flavour::Physical { port: Some(1), part: None };
    assert_eq!(devlink::read(&plug), Ok(Some((Ifindex(9), port(0, flavour)))));
    let (_, representor) = golden("devlink-representor");
    let function = Function { controller: None, physical: 0, part: FunctionPart::Virtual(0) };
    assert_eq!(devlink::read(&representor), Ok(Some((Ifindex(10), port(128, Flavour::Function(function))))));
}

/// As on a DPU, for a subfunction of the host.
fn external_subfunction(with_numbers: bool) -> Vec<u8> {
    written(|writer| {
        writer.raw(&[3, 1, 0, 0]);
        writer.put_text(1, "pci");
        writer.put_text(2, "0000:03:00.0");
        writer.put(3, &32_768_u32.to_ne_bytes());
        writer.put(6, &12_u32.to_ne_bytes());
        writer.put(77, &7_u16.to_ne_bytes());
        if with_numbers {
            writer.put(150, &1_u32.to_ne_bytes());
            writer.put(127, &0_u16.to_ne_bytes());
            writer.put(164, &88_u32.to_ne_bytes());
            writer.put(149, &[1]);
        }
    })
}

#[test]
fn a_function_of_another_host_has_its_controller() {
    let (ifindex, port) = devlink::read(&external_subfunction(true)).unwrap().unwrap();
    let function = Function { controller: Some(1), physical: 0, part: FunctionPart::Sub(88) };
    assert_eq!((ifindex, port.flavour), (Ifindex(12), Flavour::Function(function)));
    let Flavour::Function(function) = port.flavour else { panic!() };
    assert_eq!(function.to_string(), "c1pf0sf88");
}

#[test]
fn a_function_without_its_numbers_is_none_that_is_known() {
    let (_, port) = devlink::read(&external_subfunction(false)).unwrap().unwrap();
    assert_eq!(port.flavour, Flavour::Other(7));
    let nameless = written(|writer| writer.raw(&[3, 1, 0, 0]));
    assert_eq!(devlink::read(&nameless), Err(Malformed::Missing { place: "devlink port", kind: 1 }));
}

#[test]
fn a_port_of_a_bridge_and_a_scan_of_a_wireless_device_are_no_news_of_a_device() {
    const BRIDGE: u8 = 7;
    let (kind, mut link) = golden("link-veth");
    link[0] = BRIDGE;
    assert_eq!(read(kind, &link), Ok(None));
    assert_eq!(read(17, &link), Ok(None));
    // IFLA_IFNAME and IFLA_WIRELESS and nothing else.
    let scan = [&golden("link-veth").1[..16], &[7, 0, 3, 0, b'v', b'0', 0, 0, 8, 0, 11, 0, 1, 2, 3, 4]].concat();
    assert_eq!(read(kind, &scan), Ok(None));
}

#[test]
fn a_text_at_a_device_that_is_no_text_is_passed_over() {
    let (kind, mut link) = golden("link-vxlan");
    let at = link.windows(6).position(|bytes| bytes == b"sluice").unwrap();
    link[at..at + 6].fill(0xff);
    let mut known = device("link-vxlan");
    known.alias = None;
    assert_eq!(read(kind, &link), Ok(Some(Notice::Link(Box::new(known)))));
}

#[test]
fn a_device_of_which_no_sense_can_be_made_is_told_by_its_number() {
    let (kind, link) = golden("link-veth");
    let is_unreadable = |payload: &[u8]| matches!(read(kind, payload), Ok(Some(Notice::Unreadable(Ifindex(3), _))));
    assert!(is_unreadable(&link[..16]), "without a name");
    // IFLA_MTU of one byte.
    assert!(is_unreadable(&[&link[..], &[5, 0, 4, 0, 1, 0, 0, 0]].concat()));
    // One that goes is gone all the same.
    let gone = read(17, &[&link[..], &[5, 0, 4, 0, 1, 0, 0, 0]].concat());
    assert_eq!(gone, Ok(Some(Notice::LinkGone(Ifindex(3), None))));
}

#[test]
fn messages_cut_short_or_changed_anywhere_are_no_panic() {
    for line in include_str!("golden.txt").lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(' ').next().unwrap();
        let (kind, whole) = golden(name);
        let look = |payload: &[u8]| {
            if kind == 0 {
                let _ = devlink::read(payload);
            } else {
                let _ = read(kind, payload);
            }
        };
        for length in 0..whole.len() {
            look(&whole[..length]);
        }
        for at in 0..whole.len() {
            for value in [0, 4, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                look(&changed);
            }
        }
    }
}
