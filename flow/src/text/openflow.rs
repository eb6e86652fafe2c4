//! An OpenFlow match that selects flows, as `filter=` of OVS's `dpctl/dump-flows` has it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::field::{Attribute, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field};
use crate::key::Match;
use crate::port::PortNames;

/// Reads an OpenFlow match: `FIELD=VALUE[/MASK]` and protocol words, separated by commas or blanks. Fails with the words of OVS where it
/// has some.
pub fn parse_openflow_match(text: &str, names: &dyn PortNames) -> Result<Match, String> {
    let mut wanted = Match::default();
    for part in parts(text) {
        match part.split_once('=') {
            Some((name, value)) => set(&mut wanted, name, value, names)?,
            None => protocol(&mut wanted, part)?,
        }
    }
    Ok(wanted)
}

/// The parts of a text between commas and blanks that are not in parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let parts = text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(character, ',' | ' ' | '\t')
    });
    parts.filter(|part| !part.is_empty())
}

/// Protocol words: Ethernet type, and IP protocol where there is one.
const PROTOCOLS: &[(&str, u16, Option<u8>)] = &[
    ("arp", 0x0806, None),
    ("icmp", 0x0800, Some(1)),
    ("icmp6", 0x86dd, Some(58)),
    ("ip", 0x0800, None),
    ("ipv6", 0x86dd, None),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
    ("rarp", 0x8035, None),
    ("sctp", 0x0800, Some(132)),
    ("sctp6", 0x86dd, Some(132)),
    ("tcp", 0x0800, Some(6)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp", 0x0800, Some(17)),
    ("udp6", 0x86dd, Some(17)),
];

/// OpenFlow names of fields (ovs-fields(7)).
const NAMES: &[(&str, Field)] = &[
    ("arp_op", Field::ArpOp),
    ("arp_sha", Field::ArpSha),
    ("arp_spa", Field::ArpSip),
    ("arp_tha", Field::ArpTha),
    ("arp_tpa", Field::ArpTip),
    ("ct_label", Field::CtLabel),
    ("ct_mark", Field::CtMark),
    ("ct_zone", Field::CtZone),
    ("dl_dst", Field::EthDst),
    ("dl_src", Field::EthSrc),
    ("dl_type", Field::EthType),
    ("dp_hash", Field::DpHash),
    ("eth_dst", Field::EthDst),
    ("eth_src", Field::EthSrc),
    ("eth_type", Field::EthType),
    ("icmp_code", Field::IcmpCode),
    ("icmp_type", Field::IcmpType),
    ("icmpv6_code", Field::Icmpv6Code),
    ("icmpv6_type", Field::Icmpv6Type),
    ("in_port", Field::InPort),
    ("ip_dst", Field::Ipv4Dst),
    ("ip_proto", Field::Ipv4Proto),
    ("ip_src", Field::Ipv4Src),
    ("ipv6_dst", Field::Ipv6Dst),
    ("ipv6_label", Field::Ipv6Label),
    ("ipv6_src", Field::Ipv6Src),
    ("mpls_bos", Field::MplsBos),
    ("mpls_label", Field::MplsLabel),
    ("mpls_tc", Field::MplsTc),
    ("mpls_ttl", Field::MplsTtl),
    ("nd_target", Field::NdTarget),
    ("nw_dst", Field::Ipv4Dst),
    ("nw_proto", Field::Ipv4Proto),
    ("nw_src", Field::Ipv4Src),
    ("nw_tos", Field::Ipv4Tos),
    ("nw_ttl", Field::Ipv4Ttl),
    ("pkt_mark", Field::SkbMark),
    ("recirc_id", Field::RecircId),
    ("tcp_dst", Field::TcpDst),
    ("tcp_src", Field::TcpSrc),
    ("tp_dst", Field::TcpDst),
    ("tp_src", Field::TcpSrc),
    ("tun_dst", Field::TunnelIpv4Dst),
    ("tun_id", Field::TunnelId),
    ("tun_ipv6_dst", Field::TunnelIpv6Dst),
    ("tun_ipv6_src", Field::TunnelIpv6Src),
    ("tun_src", Field::TunnelIpv4Src),
    ("tun_tos", Field::TunnelTos),
    ("tun_ttl", Field::TunnelTtl),
    ("udp_dst", Field::UdpDst),
    ("udp_src", Field::UdpSrc),
];

/// Names of ports of OpenFlow that are reserved (`OFPP_*` in OVS's `openflow-common.h`). No port of a datapath has their numbers, so
/// that they select nothing, as in OVS.
const RESERVED_PORTS: &[(&str, u128)] = &[
    ("UNSET", 0xfff7),
    ("IN_PORT", 0xfff8),
    ("TABLE", 0xfff9),
    ("NORMAL", 0xfffa),
    ("FLOOD", 0xfffb),
    ("ALL", 0xfffc),
    ("CONTROLLER", 0xfffd),
    ("LOCAL", 0xfffe),
    ("ANY", 0xffff),
    ("NONE", 0xffff),
];

/// Kinds of fragments. `yes` and `not_later` are two kinds each, which a filter cannot select, as in OVS.
const FRAGMENTS: &[(&str, u8)] = &[("no", FRAGMENT_NO), ("first", FRAGMENT_FIRST), ("later", FRAGMENT_LATER)];

fn protocol(wanted: &mut Match, word: &str) -> Result<(), String> {
    let (_, eth_type, proto) =
        PROTOCOLS.iter().find(|(name, ..)| *name == word).ok_or_else(|| format!("unknown field {word}"))?;
    wanted.set_exact(Field::EthType, u128::from(*eth_type));
    if let Some(proto) = proto {
        wanted.set_exact(Field::Ipv4Proto, u128::from(*proto));
    }
    Ok(())
}

fn set(wanted: &mut Match, name: &str, text: &str, names: &dyn PortNames) -> Result<(), String> {
    let wrong = || format!("{text}: not a valid value for {name}");
    match name {
        // `OFP_VLAN_NONE`: packets without a tag.
        "dl_vlan" if parse_number(text) == Some(0xffff) => wanted.set_exact(Field::VlanPresent, 0),
        "dl_vlan" | "vlan_vid" => {
            let vid = parse_number(text).filter(|vid| *vid <= Field::VlanVid.full_mask());
            wanted.set_exact(Field::VlanPresent, 1);
            wanted.set_exact(Field::VlanVid, vid.ok_or_else(|| format!("{text}: not a VLAN"))?);
        }
        "dl_vlan_pcp" | "vlan_pcp" => {
            let pcp = parse_number(text).filter(|pcp| *pcp <= Field::VlanPcp.full_mask());
            wanted.set_exact(Field::VlanPresent, 1);
            wanted.set_exact(Field::VlanPcp, pcp.ok_or_else(wrong)?);
        }
        "nw_frag" | "ip_frag" => {
            needs(wanted, name, &[Attribute::Ipv4, Attribute::Ipv6])?;
            let fragment = FRAGMENTS.iter().find(|(known, _)| *known == text);
            let (_, fragment) =
                fragment.ok_or_else(|| format!("{text}: not a kind of fragment, expected no, first or later"))?;
            wanted.set_exact(Field::Ipv4Frag, u128::from(*fragment));
        }
        "packet_type" => {
            let pair =
                text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).and_then(|pair| pair.split_once(','));
            let (namespace, kind) =
                pair.ok_or_else(|| format!("{text}: not a packet type, expected (NAMESPACE,TYPE)"))?;
            for (field, text) in [(Field::PacketTypeNs, namespace), (Field::PacketTypeId, kind)] {
                let part = parse_number(text.trim()).filter(|part| *part <= field.full_mask());
                wanted.set_exact(field, part.ok_or_else(wrong)?);
            }
        }
        _ => return set_field(wanted, name, text, names),
    }
    Ok(())
}

fn set_field(wanted: &mut Match, name: &str, text: &str, names: &dyn PortNames) -> Result<(), String> {
    let (_, field) = NAMES.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("unknown field {name}"))?;
    if field.spec().attribute == Attribute::Mpls {
        needs(wanted, name, &[Attribute::Mpls])?;
    }
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    let read = |text: &str| match field {
        Field::InPort => {
            parse_number(text).or_else(|| names.number(text).map(|port| u128::from(port.0))).or_else(|| {
                RESERVED_PORTS
                    .iter()
                    .find(|(reserved, _)| reserved.eq_ignore_ascii_case(text))
                    .map(|(_, number)| *number)
            })
        }
        _ => parse_number(text).or_else(|| address(text)),
    };
    let fits = |number: &u128| *number <= field.full_mask();
    let value = read(value).filter(fits).ok_or_else(|| format!("{text}: not a valid value for {name}"))?;
    let mask = match mask {
        None => field.full_mask(),
        Some(mask) => match (mask.parse::<u32>(), field.spec().width) {
            // CIDR: a plain number is a prefix length for addresses.
            (Ok(prefix), width @ (32 | 128)) if prefix <= width => prefix_mask(prefix, width),
            _ => read(mask).filter(fits).ok_or_else(|| format!("{text}: not a valid mask for {name}"))?,
        },
    };
    wanted.set(*field, value, mask);
    Ok(())
}

/// Headers share places in a key, so that the filter must say first which one is meant; so it must in OVS.
fn needs(wanted: &Match, name: &str, attributes: &[Attribute]) -> Result<(), String> {
    let is_met = attributes.iter().any(|attribute| wanted.meets(attribute.spec().requires));
    if is_met { Ok(()) } else { Err(format!("prerequisites not met for setting {name}")) }
}

fn prefix_mask(prefix: u32, width: u32) -> u128 {
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    all & !all.checked_shr(prefix).unwrap_or(0)
}

/// Reads a decimal number, or a hexadecimal one after `0x`.
pub fn parse_number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn address(text: &str) -> Option<u128> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(u128::from(address.to_bits()));
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.to_bits());
    }
    let mut bytes = text.split(':');
    let mut mac = 0;
    for _ in 0..6 {
        mac = mac << 8 | u128::from(u8::from_str_radix(bytes.next()?, 16).ok()?);
    }
    bytes.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::MaskedKey;

    fn of(text: &str) -> MaskedKey<'static> {
        MaskedKey::new(&crate::text::parse_key(text, &()).unwrap().matching)
    }

    fn flow() -> MaskedKey<'static> {
        let mut matching = Match::default();
        matching.set_exact(Field::InPort, 1);
        matching.set_exact(Field::EthType, 0x0800);
        matching.set(Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000);
        matching.set_exact(Field::Ipv4Proto, 6);
        MaskedKey::new(&matching)
    }

    #[test]
    fn only_bits_that_the_flow_looks_at_count() {
        let agrees = |text: &str| parse_openflow_match(text, &()).map(|filter| flow().could_concern(&filter));
        assert_eq!(agrees("in_port=1"), Ok(true));
        assert_eq!(agrees("in_port=2"), Ok(false));
        assert_eq!(agrees("tcp,nw_dst=10.1.2.3"), Ok(true));
        assert_eq!(agrees("ip,nw_dst=11.1.2.3"), Ok(false));
        assert_eq!(agrees("ip,nw_dst=11.1.2.3/0.255.0.0"), Ok(true));
        assert_eq!(agrees("nw_dst=11.0.0.0/7"), Ok(true));
        assert_eq!(agrees("udp"), Ok(false));
        assert_eq!(agrees("tcp,tp_dst=80"), Ok(true), "the flow does not look at ports");
    }

    #[test]
    fn fragments_tags_labels_packet_types_and_reserved_ports_select_as_in_ovs() {
        let later = of("in_port(1),eth(),eth_type(0x0800),ipv4(frag=later)");
        let tagged = of("in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4(frag=no))");
        let labelled = of("in_port(1),eth(),eth_type(0x8847),mpls(label=5,tc=1,ttl=2,bos=1)");
        let other = of("recirc_id(1),in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(frag=no)");
        // As ovs-vswitchd 3.1 with its dummy datapath selects the first three.
        for (text, expected) in [
            ("in_port=ANY", [false; 4]),
            ("in_port=any", [false; 4]),
            ("in_port=LOCAL", [false; 4]),
            ("ip,nw_frag=later", [true, false, false, false]),
            ("ip,nw_frag=no", [false, true, false, true]),
            ("ip,ip_frag=first", [false; 4]),
            ("dl_vlan=0xffff", [true, false, true, true]),
            ("dl_vlan=65535", [true, false, true, true]),
            ("dl_vlan=5", [false, true, false, false]),
            ("dl_vlan_pcp=3", [false, true, false, false]),
            ("dl_vlan_pcp=2", [false; 4]),
            ("mpls", [false, false, true, false]),
            ("mplsm", [false; 4]),
            ("mpls,mpls_label=5,mpls_bos=1,mpls_tc=1", [false, false, true, false]),
            ("mpls,mpls_label=6", [false; 4]),
            ("packet_type=(0,0)", [true, true, true, false]),
            ("packet_type=(1,0x800),in_port=1", [true, true, true, true]),
        ] {
            let filter = parse_openflow_match(text, &()).unwrap();
            let found = [&later, &tagged, &labelled, &other].map(|flow| flow.could_concern(&filter));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn wrong_filters_name_what_is_wrong() {
        let error = |text: &str| parse_openflow_match(text, &()).err().unwrap_or_default();
        assert_eq!(error("bogus"), "unknown field bogus");
        assert_eq!(error("nw_dst=x"), "x: not a valid value for nw_dst");
        assert_eq!(error("tp_dst=70000"), "70000: not a valid value for tp_dst");
        assert_eq!(error("dl_vlan=5000"), "5000: not a VLAN");
        assert_eq!(error("dl_vlan_pcp=8"), "8: not a valid value for dl_vlan_pcp");
        assert_eq!(error("nw_frag=no"), "prerequisites not met for setting nw_frag");
        assert_eq!(error("mpls_label=5"), "prerequisites not met for setting mpls_label");
        assert_eq!(error("ip,nw_frag=yes"), "yes: not a kind of fragment, expected no, first or later");
        assert_eq!(error("packet_type=1"), "1: not a packet type, expected (NAMESPACE,TYPE)");
        assert_eq!(error("packet_type=(0,0x10000)"), "(0,0x10000): not a valid value for packet_type");
    }
}
