//! Packets that flower takes for others than the Open vSwitch module, whose reading the software NIC has.

use sluice_flow::action::{Action, ActionList, visit};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;

const CUT: &str = "a header that ends behind the packet: OVS takes it for none, flower for what there is";
const SNAP: &str = "IEEE 802.3 with SNAP: flower does not look for its type";
const FRAGMENT: &str = "a first fragment: flower does not read the transport header";
const CHECKSUM: &str =
    "a wrong checksum, or none of UDP in IPv6: act_csum makes it right, OVS brings it up to date or leaves it";
const ROUTED: &str = "IPv6 on a route: act_csum sums the next hop up where the last one belongs";
const AUTHENTICATED: &str =
    "IPv6 with an authentication header: flower takes that for the protocol, OVS what is behind it";
const SHORT: &str = "fewer than two bytes behind a tag: the kernel drops it before tc looks (`skb_vlan_untag`)";
const PPPOE: &str = "PPPoE of another version or code, or of no protocol of PPP: flower takes it for none";
const COMPRESSED: &str = "PPPoE with a protocol of PPP of one byte: Linux read it once, and no more";
const OPERATION: &str = "ARP other than a request and a reply: flower does not read it";

/// Why a packet cannot be compared with these flows; `None` if it can.
pub(crate) fn why(frame: &[u8], flows: &[(Match, ActionList)]) -> Option<&'static str> {
    let (eth_type, network) = behind_tags(frame)?;
    if network.len() < 2 && network.len() + 14 < frame.len() {
        return Some(SHORT);
    }
    let looks_at = |attributes: &[Attribute], eth_types: &[u128]| {
        flows.iter().any(|(matching, _)| {
            eth_types.contains(&matching.key.get(Field::EthType))
                && attributes
                    .iter()
                    .flat_map(|attribute| attribute.fields())
                    .any(|spec| matching.mask.get(spec.field) != 0)
        })
    };
    match eth_type {
        0..0x600 => Some(SNAP),
        0x0800 => {
            let (header, behind) = ipv4(network).map_or((None, network), |(header, behind)| (Some(header), behind));
            let Some(header) = header else { return Some(CUT) };
            let fragment = u16::from_be_bytes([header[6], header[7]]);
            if fragment & 0x1fff != 0 {
                return (sum(&[header]) != 0xffff && rewrites(flows)).then_some(CHECKSUM);
            }
            let is_first = fragment & 0x2000 != 0;
            let reads = looks_at(TRANSPORT, &[0x0800]);
            match () {
                () if is_first && reads => Some(FRAGMENT),
                () if is_cut(header[9], behind) => Some(CUT),
                () if !rewrites(flows) => None,
                () if sum(&[header]) != 0xffff => Some(CHECKSUM),
                () => {
                    let length = usize::from(u16::from_be_bytes([header[2], header[3]])).saturating_sub(header.len());
                    let is_right = is_summed_up(&header[12..20], header[9], behind.get(..length).unwrap_or(behind));
                    (!is_right).then_some(CHECKSUM)
                }
            }
        }
        0x86dd => {
            let Some(packet) = ipv6(network) else { return Some(CUT) };
            match () {
                () if packet.is_authenticated && looks_at(&[Attribute::Ipv6], &[0x86dd]) => Some(AUTHENTICATED),
                () if packet.is_first_fragment && looks_at(TRANSPORT, &[0x86dd]) => Some(FRAGMENT),
                () if is_cut(packet.protocol, packet.behind) => Some(CUT),
                () if !rewrites(flows) => None,
                () if packet.is_routed => Some(ROUTED),
                () => (!is_summed_up(&network[8..40], packet.protocol, packet.behind)).then_some(CHECKSUM),
            }
        }
        0x0806 | 0x8035 => match network.get(6..8) {
            Some([0, 1 | 2]) => None,
            _ => looks_at(&[Attribute::Arp], &[0x0806, 0x8035]).then_some(OPERATION),
        },
        0x8864 => match network {
            // RFC 2516, 4; RFC 1661, 2: of a protocol, the first byte is even and the second odd, or the second stands alone.
            [0x11, 0, _, _, _, _, high, ..] if high & 1 == 1 => Some(COMPRESSED),
            [0x11, 0, _, _, _, _, _, low, ..] if low & 1 == 1 => None,
            _ => takes_any_pppoe(flows).then_some(PPPOE),
        },
        0x894f => {
            let words = network.get(1).map_or(0, |byte| usize::from(byte & 0x3f));
            (words < 2 || network.len() < words * 4).then_some(CUT)
        }
        _ => None,
    }
}

const TRANSPORT: &[Attribute] = &[
    Attribute::Tcp,
    Attribute::TcpFlags,
    Attribute::Udp,
    Attribute::Sctp,
    Attribute::Icmp,
    Attribute::L2tpv3,
    Attribute::Ipsec,
];

/// Whether a flow is for all frames of the type of PPPoE.
fn takes_any_pppoe(flows: &[(Match, ActionList)]) -> bool {
    flows.iter().any(|(matching, _)| {
        matching.is_exactly(Field::EthType, 0x8864) && !matching.is_exactly(Field::PppoePresent, 1)
    })
}

fn rewrites(flows: &[(Match, ActionList)]) -> bool {
    let mut does = false;
    for (_, actions) in flows {
        visit(actions, &mut |action| {
            does |= matches!(action, Action::Set(set) if set.attribute != Attribute::Ethernet)
                || matches!(action, Action::DecTtl(_));
        });
    }
    does
}

fn behind_tags(frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut rest = frame.get(12..)?;
    for _ in 0..2 {
        match rest {
            [0x81, 0x00, _, _, behind @ ..] | [0x88, 0xa8, _, _, behind @ ..] => rest = behind,
            _ => {}
        }
    }
    let (eth_type, network) = rest.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*eth_type), network))
}

/// Header and what is behind it, if it is whole.
fn ipv4(network: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = *network.first()?;
    let length = usize::from(first & 15) * 4;
    let (header, behind) = network.split_at_checked(length)?;
    (first >> 4 == 4 && length >= 20).then_some((header, behind))
}

/// A packet of IPv6 whose headers are whole.
struct Ipv6<'a> {
    protocol: u8,
    behind: &'a [u8],
    is_first_fragment: bool,
    is_authenticated: bool,
    /// Its destination is not the last one.
    is_routed: bool,
}

fn ipv6(network: &[u8]) -> Option<Ipv6<'_>> {
    let (header, rest) = network.split_at_checked(40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    // Behind it there may be padding.
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let rest = rest.get(..length).unwrap_or(rest);
    let mut found =
        Ipv6 { protocol: header[6], behind: rest, is_first_fragment: false, is_authenticated: false, is_routed: false };
    loop {
        let length = match found.protocol {
            0 | 43 | 60 => usize::from(*found.behind.get(1)?) * 8 + 8,
            51 => usize::from(*found.behind.get(1)?) * 4 + 8,
            44 => 8,
            _ => return Some(found),
        };
        let (extension, behind) = found.behind.split_at_checked(length)?;
        match found.protocol {
            51 => found.is_authenticated = true,
            43 => found.is_routed |= extension[3] != 0,
            44 => {
                let place = u16::from_be_bytes([extension[2], extension[3]]);
                if place & 0xfff8 != 0 {
                    return Some(Ipv6 { behind, ..found });
                }
                found.is_first_fragment |= place & 1 != 0;
            }
            _ => {}
        }
        (found.protocol, found.behind) = (extension[0], behind);
    }
}

/// Whether the checksum behind the addresses is right, if it is one over them.
fn is_summed_up(addresses: &[u8], protocol: u8, behind: &[u8]) -> bool {
    let covers_addresses = match (protocol, behind) {
        (6 | 58, _) => true,
        // Without a checksum; both leave it at that in IPv4.
        (17, [_, _, _, _, _, _, 0, 0, ..]) if addresses.len() == 8 => return true,
        (17, _) => true,
        (1, _) => false,
        _ => return true,
    };
    let Ok(length) = u32::try_from(behind.len()) else { return false };
    let pseudo = [&length.to_be_bytes()[..], &[0, 0, 0, protocol]].concat();
    let parts: [&[u8]; 3] = if covers_addresses { [addresses, &pseudo, behind] } else { [&[], &[], behind] };
    sum(&parts) == 0xffff
}

/// Whether a transport header is not all there.
fn is_cut(protocol: u8, behind: &[u8]) -> bool {
    let wanted = match protocol {
        6 => behind.get(12).map_or(usize::MAX, |byte| usize::from(byte >> 4) * 4).max(20),
        17 | 1 | 58 => 8,
        132 => 12,
        _ => 0,
    };
    let is_short = protocol == 6 && behind.get(12).is_some_and(|byte| byte >> 4 < 5);
    behind.len() < wanted || is_short
}

/// The sum of RFC 1071 over some parts, of which all but the last have whole words.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}
