//! `filter=`: an OpenFlow match that selects flows, as `dpctl/dump-flows` of OVS takes it.

use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_flow::port::PortNames;
use sluice_flow::{Field, MaskedKey, Match};

/// A match of which only the bits that a flow does not wildcard are held against it (`lib/dpctl.c`, dump-flows).
pub(super) struct Filter(Match);

impl Filter {
    /// Reads an OpenFlow match: `FIELD=VALUE[/MASK]` and protocol words, separated by commas or blanks.
    pub(super) fn parse(text: &str, names: &dyn PortNames) -> Result<Self, String> {
        let mut wanted = Match::default();
        for part in text.split([',', ' ', '\t']).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((name, value)) => set(&mut wanted, name, value, names)?,
                None => protocol(&mut wanted, part)?,
            }
        }
        Ok(Self(wanted))
    }

    /// Whether a flow could concern a packet that the filter describes.
    pub(super) fn agrees_with(&self, matching: &MaskedKey<'_>) -> bool {
        let Match { key, mask } = &self.0;
        let mut stored = matching.mask().words().zip(matching.values());
        stored.all(|((word, flow_mask), value)| (value ^ key.words[word]) & flow_mask & mask.words[word] == 0)
    }
}

/// Protocol words: Ethernet type, and IP protocol where there is one.
const PROTOCOLS: &[(&str, u16, Option<u8>)] = &[
    ("arp", 0x0806, None),
    ("icmp", 0x0800, Some(1)),
    ("icmp6", 0x86dd, Some(58)),
    ("ip", 0x0800, None),
    ("ipv6", 0x86dd, None),
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
    ("ct_mark", Field::CtMark),
    ("ct_zone", Field::CtZone),
    ("dl_dst", Field::EthDst),
    ("dl_src", Field::EthSrc),
    ("dl_type", Field::EthType),
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
    ("ipv6_src", Field::Ipv6Src),
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
    ("udp_dst", Field::UdpDst),
    ("udp_src", Field::UdpSrc),
];

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
    if name == "dl_vlan" || name == "vlan_vid" {
        let vid = number(text).filter(|vid| *vid <= 0xfff).ok_or_else(|| format!("{text}: not a VLAN"))?;
        wanted.set_exact(Field::VlanPresent, 1);
        wanted.set_exact(Field::VlanVid, vid);
        return Ok(());
    }
    let (_, field) = NAMES.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("unknown field {name}"))?;
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    let read = |text: &str| match field {
        Field::InPort => number(text).or_else(|| names.number(text).map(|port| u128::from(port.0))),
        _ => number(text).or_else(|| address(text)),
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

fn prefix_mask(prefix: u32, width: u32) -> u128 {
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    all & !all.checked_shr(prefix).unwrap_or(0)
}

fn number(text: &str) -> Option<u128> {
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
    let mut octets = text.split(':');
    let mut mac = 0;
    for _ in 0..6 {
        mac = mac << 8 | u128::from(u8::from_str_radix(octets.next()?, 16).ok()?);
    }
    octets.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let agrees = |text: &str| Filter::parse(text, &()).map(|filter| filter.agrees_with(&flow()));
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
    fn wrong_filters_name_what_is_wrong() {
        let error = |text: &str| Filter::parse(text, &()).err().unwrap_or_default();
        assert_eq!(error("bogus"), "unknown field bogus");
        assert_eq!(error("nw_dst=x"), "x: not a valid value for nw_dst");
        assert_eq!(error("tp_dst=70000"), "70000: not a valid value for tp_dst");
        assert_eq!(error("dl_vlan=5000"), "5000: not a VLAN");
    }
}
