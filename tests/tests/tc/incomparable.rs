//! Packets that flower takes for others than the Open vSwitch module, whose reading the software NIC has.

use sluice_flow::action::{Action, ActionList, visit};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;

const CUT: &str = "a header that ends behind the packet: OVS takes it for none, flower for what there is";
const SNAP: &str = "IEEE 802.3 with SNAP: flower does not look for its type";
const FRAGMENT: &str = "a first fragment: flower does not read the transport header";
const CHECKSUM: &str = "a wrong checksum: act_csum makes it right, OVS brings it up to date";
const OPERATION: &str = "ARP other than a request and a reply: flower does not read it";

/// Why a packet cannot be compared with these flows; `None` if it can.
pub(crate) fn why(frame: &[u8], flows: &[(Match, ActionList)]) -> Option<&'static str> {
    let (eth_type, network) = behind_tags(frame)?;
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
                return (sum(header) != 0xffff && rewrites(flows)).then_some(CHECKSUM);
            }
            let is_first = fragment & 0x2000 != 0;
            let reads = looks_at(TRANSPORT, &[0x0800]);
            match () {
                () if is_first && reads => Some(FRAGMENT),
                () if is_cut(header[9], behind) => Some(CUT),
                () if sum(header) != 0xffff && rewrites(flows) => Some(CHECKSUM),
                () => None,
            }
        }
        0x86dd => match ipv6(network) {
            None => Some(CUT),
            Some((_, _, true)) if looks_at(TRANSPORT, &[0x86dd]) => Some(FRAGMENT),
            Some((protocol, behind, _)) => is_cut(protocol, behind).then_some(CUT),
        },
        0x0806 | 0x8035 => match network.get(6..8) {
            Some([0, 1 | 2]) => None,
            _ => looks_at(&[Attribute::Arp], &[0x0806, 0x8035]).then_some(OPERATION),
        },
        0x894f => {
            let words = network.get(1).map_or(0, |octet| usize::from(octet & 0x3f));
            (words < 2 || network.len() < words * 4).then_some(CUT)
        }
        _ => None,
    }
}

const TRANSPORT: &[Attribute] =
    &[Attribute::Tcp, Attribute::TcpFlags, Attribute::Udp, Attribute::Sctp, Attribute::Icmp];

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

/// Protocol and what is behind the header, and whether it is a first fragment, if all headers are whole.
fn ipv6(network: &[u8]) -> Option<(u8, &[u8], bool)> {
    let (header, mut rest) = network.split_at_checked(40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut protocol = header[6];
    let mut is_first = false;
    loop {
        let length = match protocol {
            0 | 43 | 60 => usize::from(*rest.get(1)?) * 8 + 8,
            51 => usize::from(*rest.get(1)?) * 4 + 8,
            44 => 8,
            _ => return Some((protocol, rest, is_first)),
        };
        let (extension, behind) = rest.split_at_checked(length)?;
        if protocol == 44 {
            let place = u16::from_be_bytes([extension[2], extension[3]]);
            if place & 0xfff8 != 0 {
                return Some((44, behind, false));
            }
            is_first |= place & 1 != 0;
        }
        (protocol, rest) = (extension[0], behind);
    }
}

/// Whether a transport header is not all there.
fn is_cut(protocol: u8, behind: &[u8]) -> bool {
    let wanted = match protocol {
        6 => behind.get(12).map_or(usize::MAX, |octet| usize::from(octet >> 4) * 4).max(20),
        17 | 1 | 58 => 8,
        132 => 12,
        _ => 0,
    };
    let is_short = protocol == 6 && behind.get(12).is_some_and(|octet| octet >> 4 < 5);
    behind.len() < wanted || is_short
}

/// The sum of RFC 1071.
fn sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}
