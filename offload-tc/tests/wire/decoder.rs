//! What we write, read by somebody else: `netlink-bindings`, whose code is generated from the kernel's own description
//! (`Documentation/netlink/specs/tc.yaml`).

use netlink_bindings::tc::{FlowerAttrs as A, OpNewtfilterDo, OptionsMsg};
use sluice_netdev::netlink::message::HEADER;
use sluice_offload_tc::wire::action::{Action, Conntrack, Control, Family, Helper, Operation, conntrack_bit};
use sluice_offload_tc::wire::filter::{Filter, FilterId, Hook};
use sluice_offload_tc::wire::flower::Flower;
use sluice_offload_tc::wire::key::{KEYS, Key, KeyMatch};

#[test]
fn every_key_means_to_others_what_it_means_to_us() {
    let mut otherwise = vec![];
    for spec in KEYS {
        let full = spec.key.full_mask();
        // Each byte of its own, so that an order is seen.
        let value = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10 & full;
        let masks = if spec.mask.is_some() { vec![full, full & !1] } else { vec![full] };
        for mask in masks {
            let wanted = KeyMatch { key: spec.key, value: value & mask, mask };
            let (found_value, found_mask) = read(wanted);
            // A mask that is not there stands for all bits.
            if (found_value, found_mask.unwrap_or(full)) != (Some(wanted.value), mask) {
                otherwise.push(spec.name);
            }
        }
    }
    otherwise.dedup();
    assert_eq!(otherwise, WRONG_IN_THE_DESCRIPTION);
}

/// The description has these in the order of networks, the kernel (`nla_get_u16` in `fl_set_key_vlan` and the like) and the
/// bytes of `tc` in that of the machine.
const WRONG_IN_THE_DESCRIPTION: [&str; 3] = ["vlan_id", "cvlan_id", "mpls_label"];

/// Value and mask as the other decoder finds them.
fn read(wanted: KeyMatch) -> (Option<u128>, Option<u128>) {
    let id = FilterId { hook: Hook::Ingress { interface: 7 }, chain: 3, priority: 5, protocol: 0x0800, handle: 9 };
    let flower = Flower { keys: vec![wanted], ..Flower::default() };
    let mut message = vec![];
    Filter { id, flower }.emit(&mut message, 0, 1).unwrap();
    let (head, attributes) = OpNewtfilterDo::decode_request(&message[HEADER..]);
    assert_eq!((head.ifindex, head.handle, head.parent), (7, 9, 0xffff_fff2));
    assert_eq!(head.info, 5 << 16 | u32::from(0x0800u16.to_be()));
    assert_eq!(attributes.get_chain().unwrap(), 3);
    let OptionsMsg::Flower(options) = attributes.get_options().unwrap() else { panic!("options of another kind") };
    let (mut value, mut mask) = (None, None);
    for attribute in options {
        let attribute = attribute.unwrap();
        if matches!(attribute, A::Act(_)) {
            continue;
        }
        let (key, is_mask, number) = number(attribute);
        assert_eq!(key, wanted.key);
        *(if is_mask { &mut mask } else { &mut value }) = Some(number);
    }
    (value, mask)
}

fn number(attribute: A<'_>) -> (Key, bool, u128) {
    match attribute {
        A::KeyEthDst(number) => (Key::EthDst, false, bytes(number)),
        A::KeyEthDstMask(number) => (Key::EthDst, true, bytes(number)),
        A::KeyEthSrc(number) => (Key::EthSrc, false, bytes(number)),
        A::KeyEthSrcMask(number) => (Key::EthSrc, true, bytes(number)),
        A::KeyNumOfVlans(number) => (Key::NumOfVlans, false, number.into()),
        A::KeyEthType(number) => (Key::EthType, false, number.into()),
        A::KeyVlanId(number) => (Key::VlanId, false, number.into()),
        A::KeyVlanPrio(number) => (Key::VlanPrio, false, number.into()),
        A::KeyVlanEthType(number) => (Key::VlanEthType, false, number.into()),
        A::KeyCvlanId(number) => (Key::CvlanId, false, number.into()),
        A::KeyCvlanPrio(number) => (Key::CvlanPrio, false, number.into()),
        A::KeyCvlanEthType(number) => (Key::CvlanEthType, false, number.into()),
        A::KeyPppoeSid(number) => (Key::PppoeSession, false, number.into()),
        A::KeyPppProto(number) => (Key::PppProtocol, false, number.into()),
        A::KeyIpProto(number) => (Key::IpProto, false, number.into()),
        A::KeyIpTos(number) => (Key::IpTos, false, number.into()),
        A::KeyIpTosMask(number) => (Key::IpTos, true, number.into()),
        A::KeyIpTtl(number) => (Key::IpTtl, false, number.into()),
        A::KeyIpTtlMask(number) => (Key::IpTtl, true, number.into()),
        A::KeyIpv4Src(number) => (Key::Ipv4Src, false, number.to_bits().into()),
        A::KeyIpv4SrcMask(number) => (Key::Ipv4Src, true, number.to_bits().into()),
        A::KeyIpv4Dst(number) => (Key::Ipv4Dst, false, number.to_bits().into()),
        A::KeyIpv4DstMask(number) => (Key::Ipv4Dst, true, number.to_bits().into()),
        A::KeyIpv6Src(number) => (Key::Ipv6Src, false, bytes(number)),
        A::KeyIpv6SrcMask(number) => (Key::Ipv6Src, true, bytes(number)),
        A::KeyIpv6Dst(number) => (Key::Ipv6Dst, false, bytes(number)),
        A::KeyIpv6DstMask(number) => (Key::Ipv6Dst, true, bytes(number)),
        A::KeyFlags(number) => (Key::Flags, false, number.into()),
        A::KeyFlagsMask(number) => (Key::Flags, true, number.into()),
        A::KeyTcpSrc(number) => (Key::TcpSrc, false, number.into()),
        A::KeyTcpSrcMask(number) => (Key::TcpSrc, true, number.into()),
        A::KeyTcpDst(number) => (Key::TcpDst, false, number.into()),
        A::KeyTcpDstMask(number) => (Key::TcpDst, true, number.into()),
        A::KeyTcpFlags(number) => (Key::TcpFlags, false, number.into()),
        A::KeyTcpFlagsMask(number) => (Key::TcpFlags, true, number.into()),
        A::KeyUdpSrc(number) => (Key::UdpSrc, false, number.into()),
        A::KeyUdpSrcMask(number) => (Key::UdpSrc, true, number.into()),
        A::KeyUdpDst(number) => (Key::UdpDst, false, number.into()),
        A::KeyUdpDstMask(number) => (Key::UdpDst, true, number.into()),
        A::KeySctpSrc(number) => (Key::SctpSrc, false, number.into()),
        A::KeySctpSrcMask(number) => (Key::SctpSrc, true, number.into()),
        A::KeySctpDst(number) => (Key::SctpDst, false, number.into()),
        A::KeySctpDstMask(number) => (Key::SctpDst, true, number.into()),
        A::KeyIcmpv4Type(number) => (Key::IcmpType, false, number.into()),
        A::KeyIcmpv4TypeMask(number) => (Key::IcmpType, true, number.into()),
        A::KeyIcmpv4Code(number) => (Key::IcmpCode, false, number.into()),
        A::KeyIcmpv4CodeMask(number) => (Key::IcmpCode, true, number.into()),
        A::KeyIcmpv6Type(number) => (Key::Icmpv6Type, false, number.into()),
        A::KeyIcmpv6TypeMask(number) => (Key::Icmpv6Type, true, number.into()),
        A::KeyIcmpv6Code(number) => (Key::Icmpv6Code, false, number.into()),
        A::KeyIcmpv6CodeMask(number) => (Key::Icmpv6Code, true, number.into()),
        A::KeyArpSip(number) => (Key::ArpSip, false, number.into()),
        A::KeyArpSipMask(number) => (Key::ArpSip, true, number.into()),
        A::KeyArpTip(number) => (Key::ArpTip, false, number.into()),
        A::KeyArpTipMask(number) => (Key::ArpTip, true, number.into()),
        A::KeyArpOp(number) => (Key::ArpOp, false, number.into()),
        A::KeyArpOpMask(number) => (Key::ArpOp, true, number.into()),
        A::KeyArpSha(number) => (Key::ArpSha, false, bytes(number)),
        A::KeyArpShaMask(number) => (Key::ArpSha, true, bytes(number)),
        A::KeyArpTha(number) => (Key::ArpTha, false, bytes(number)),
        A::KeyArpThaMask(number) => (Key::ArpTha, true, bytes(number)),
        A::KeyMplsTtl(number) => (Key::MplsTtl, false, number.into()),
        A::KeyMplsBos(number) => (Key::MplsBos, false, number.into()),
        A::KeyMplsTc(number) => (Key::MplsTc, false, number.into()),
        A::KeyMplsLabel(number) => (Key::MplsLabel, false, number.into()),
        A::KeyPortSrcMin(number) => (Key::PortSrcMin, false, number.into()),
        A::KeyPortSrcMax(number) => (Key::PortSrcMax, false, number.into()),
        A::KeyPortDstMin(number) => (Key::PortDstMin, false, number.into()),
        A::KeyPortDstMax(number) => (Key::PortDstMax, false, number.into()),
        A::KeyL2tpv3Sid(number) => (Key::L2tpv3Session, false, number.into()),
        A::KeySpi(number) => (Key::Spi, false, number.into()),
        A::KeySpiMask(number) => (Key::Spi, true, number.into()),
        A::L2Miss(number) => (Key::L2Miss, false, number.into()),
        A::KeyHash(number) => (Key::Hash, false, number.into()),
        A::KeyHashMask(number) => (Key::Hash, true, number.into()),
        A::KeyCtState(number) => (Key::CtState, false, number.into()),
        A::KeyCtStateMask(number) => (Key::CtState, true, number.into()),
        A::KeyCtZone(number) => (Key::CtZone, false, number.into()),
        A::KeyCtZoneMask(number) => (Key::CtZone, true, number.into()),
        A::KeyCtMark(number) => (Key::CtMark, false, number.into()),
        A::KeyCtMarkMask(number) => (Key::CtMark, true, number.into()),
        A::KeyCtLabels(number) => (Key::CtLabel, false, label(number)),
        A::KeyCtLabelsMask(number) => (Key::CtLabel, true, label(number)),
        A::KeyEncIpv4Src(number) => (Key::EncIpv4Src, false, number.to_bits().into()),
        A::KeyEncIpv4SrcMask(number) => (Key::EncIpv4Src, true, number.to_bits().into()),
        A::KeyEncIpv4Dst(number) => (Key::EncIpv4Dst, false, number.to_bits().into()),
        A::KeyEncIpv4DstMask(number) => (Key::EncIpv4Dst, true, number.to_bits().into()),
        A::KeyEncIpv6Src(number) => (Key::EncIpv6Src, false, bytes(number)),
        A::KeyEncIpv6SrcMask(number) => (Key::EncIpv6Src, true, bytes(number)),
        A::KeyEncIpv6Dst(number) => (Key::EncIpv6Dst, false, bytes(number)),
        A::KeyEncIpv6DstMask(number) => (Key::EncIpv6Dst, true, bytes(number)),
        A::KeyEncKeyId(number) => (Key::EncKeyId, false, number.into()),
        A::KeyEncUdpSrcPort(number) => (Key::EncUdpSrc, false, number.into()),
        A::KeyEncUdpSrcPortMask(number) => (Key::EncUdpSrc, true, number.into()),
        A::KeyEncUdpDstPort(number) => (Key::EncUdpDst, false, number.into()),
        A::KeyEncUdpDstPortMask(number) => (Key::EncUdpDst, true, number.into()),
        A::KeyEncIpTos(number) => (Key::EncTos, false, number.into()),
        A::KeyEncIpTosMask(number) => (Key::EncTos, true, number.into()),
        A::KeyEncIpTtl(number) => (Key::EncTtl, false, number.into()),
        A::KeyEncIpTtlMask(number) => (Key::EncTtl, true, number.into()),
        A::KeyEncFlags(number) => (Key::EncFlags, false, number.into()),
        A::KeyEncFlagsMask(number) => (Key::EncFlags, true, number.into()),
        _ => panic!("no number"),
    }
}

fn bytes(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// A label is a number of the machine.
fn label(bytes: &[u8]) -> u128 {
    u128::from_ne_bytes(bytes.try_into().unwrap())
}

#[test]
fn a_helper_of_connections_means_to_others_what_it_means_to_us() {
    use netlink_bindings::tc::{ActCtAttrs, ActOptionsMsg};
    let helper = Helper { name: "ftp".into(), family: Family::Ipv6, protocol: 6 };
    let track = Conntrack { bits: conntrack_bit::COMMIT, zone: 9, helper: Some(helper), ..Conntrack::default() };
    let action = Action::new(Operation::Conntrack(Box::new(track)), Control::Pipe);
    let mut told = vec![];
    with_options(action, |options| {
        let ActOptionsMsg::Ct(options) = options else { panic!("options of another kind") };
        for attribute in options {
            match attribute.unwrap() {
                ActCtAttrs::HelperName(name) => told.push(name.to_str().unwrap().to_owned()),
                ActCtAttrs::HelperFamily(number) | ActCtAttrs::HelperProto(number) => told.push(number.to_string()),
                ActCtAttrs::Zone(zone) => told.push(zone.to_string()),
                _ => {}
            }
        }
    });
    assert_eq!(told, ["9", "ftp", "10", "6"]);
}

/// Shows the options of an action in a rule as the other decoder finds them.
fn with_options(action: Action, see: impl FnOnce(netlink_bindings::tc::ActOptionsMsg<'_>)) {
    let id = FilterId { hook: Hook::Ingress { interface: 7 }, chain: 3, priority: 5, protocol: 0x0800, handle: 9 };
    let mut message = vec![];
    Filter { id, flower: Flower { actions: vec![action], ..Flower::default() } }.emit(&mut message, 0, 1).unwrap();
    let (_, attributes) = OpNewtfilterDo::decode_request(&message[HEADER..]);
    let OptionsMsg::Flower(options) = attributes.get_options().unwrap() else { panic!("options of another kind") };
    see(options.get_act().unwrap().next().unwrap().get_options().unwrap());
}
