//! Matches in the syntax of `tc-flower(8)`.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::forms::{hex, ip_protocol, label, mac, protocol};
use crate::wire::flower::{Flower, OptionsMatch};
use crate::wire::key::{Key, KeyMatch};
use crate::wire::options::Options;

/// How the value of a key is written.
#[derive(Clone, Copy)]
enum Form {
    Mac,
    Ipv4,
    Ipv6,
    Protocol,
    IpProtocol,
    ArpOperation,
    FragmentFlags,
    TunnelFlags,
    States,
    Label,
    Hex,
    Decimal,
}

/// Appends all keys.
pub(super) fn write(flower: &Flower, outer: u16, text: &mut String) {
    for key in flower.keys.iter().filter(|key| !is_said(key, outer)) {
        let (name, form) = spelling(key.key);
        let _ = write!(text, " {name} {}", number(key, form));
    }
    if let Some(OptionsMatch { value, mask }) = &flower.options {
        let (name, [value, mask]) = (name_of(value), [value, mask].map(options));
        let _ = write!(text, " {name} {value}/{mask}");
    }
    if !flower.labels.is_empty() {
        text.push_str(" mpls");
    }
    for entry in &flower.labels {
        let _ = write!(text, " lse depth {}", entry.depth);
        let fields = [
            ("label", entry.label),
            ("tc", entry.class.map(u32::from)),
            ("bos", entry.bottom.map(u32::from)),
            ("ttl", entry.ttl.map(u32::from)),
        ];
        for (name, value) in fields.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let _ = write!(text, " {name} {value}");
        }
    }
    if let Some(cfm) = flower.cfm {
        text.push_str(" cfm");
        for (name, value) in [("mdl", cfm.level), ("op", cfm.opcode)] {
            let _ = value.map_or(Ok(()), |value| write!(text, " {name} {value}"));
        }
    }
}

/// Whether the rule implies the key, such as the Ethernet type that is its protocol.
fn is_said(key: &KeyMatch, outer: u16) -> bool {
    key.key == Key::EthType && key.value == u128::from(outer)
}

fn spelling(key: Key) -> (&'static str, Form) {
    match key {
        Key::EthDst | Key::EthSrc => (key.spec().name, Form::Mac),
        Key::ArpSha => ("arp_sha", Form::Mac),
        Key::ArpTha => ("arp_tha", Form::Mac),
        Key::EthType => ("eth_type", Form::Protocol),
        Key::VlanEthType | Key::CvlanEthType => (key.spec().name, Form::Protocol),
        Key::PppProtocol => ("ppp_proto", Form::Protocol),
        Key::IpProto => ("ip_proto", Form::IpProtocol),
        Key::Ipv4Src => ("src_ip", Form::Ipv4),
        Key::Ipv4Dst => ("dst_ip", Form::Ipv4),
        Key::Ipv6Src => ("src_ip", Form::Ipv6),
        Key::Ipv6Dst => ("dst_ip", Form::Ipv6),
        Key::ArpSip => ("arp_sip", Form::Ipv4),
        Key::ArpTip => ("arp_tip", Form::Ipv4),
        Key::EncIpv4Src => ("enc_src_ip", Form::Ipv4),
        Key::EncIpv4Dst => ("enc_dst_ip", Form::Ipv4),
        Key::EncIpv6Src => ("enc_src_ip", Form::Ipv6),
        Key::EncIpv6Dst => ("enc_dst_ip", Form::Ipv6),
        Key::Flags => ("ip_flags", Form::FragmentFlags),
        Key::TcpSrc | Key::UdpSrc | Key::SctpSrc => ("src_port", Form::Decimal),
        Key::TcpDst | Key::UdpDst | Key::SctpDst => ("dst_port", Form::Decimal),
        Key::IcmpType | Key::Icmpv6Type => ("type", Form::Decimal),
        Key::IcmpCode | Key::Icmpv6Code => ("code", Form::Decimal),
        Key::ArpOp => ("arp_op", Form::ArpOperation),
        Key::EncFlags => ("enc_flags", Form::TunnelFlags),
        Key::IpTos | Key::TcpFlags | Key::EncTos | Key::CtMark | Key::Hash => (key.spec().name, Form::Hex),
        Key::CtLabel => ("ct_label", Form::Label),
        Key::CtState => ("ct_state", Form::States),
        _ => (key.spec().name, Form::Decimal),
    }
}

fn number(key: &KeyMatch, form: Form) -> String {
    let KeyMatch { key, value, mask } = *key;
    let is_exact = mask == key.full_mask();
    let bytes = |number: u128| number.to_be_bytes();
    match form {
        Form::Mac if is_exact => mac(&bytes(value)[10..]),
        Form::Mac => format!("{}/{}", mac(&bytes(value)[10..]), mac(&bytes(mask)[10..])),
        Form::Ipv4 => {
            let [value, mask] = [value, mask].map(|number| u32::try_from(number).unwrap_or_default());
            let mask = prefix(mask.leading_ones(), mask.count_ones(), 32, || Ipv4Addr::from_bits(mask).to_string());
            format!("{}{mask}", Ipv4Addr::from_bits(value))
        }
        Form::Ipv6 => {
            let mask = prefix(mask.leading_ones(), mask.count_ones(), 128, || Ipv6Addr::from_bits(mask).to_string());
            format!("{}{mask}", Ipv6Addr::from_bits(value))
        }
        Form::Protocol => protocol(u16::try_from(value).unwrap_or_default()),
        // tc reads the number as hexadecimal, whether it begins with 0x or not.
        Form::IpProtocol => {
            let name = u8::try_from(value).ok().and_then(ip_protocol);
            name.map_or_else(|| format!("{value:#04x}"), ToOwned::to_owned)
        }
        Form::ArpOperation => match (value, is_exact) {
            (1, true) => "request".into(),
            (2, true) => "reply".into(),
            _ => masked(value, mask, is_exact),
        },
        Form::FragmentFlags => {
            bits(value, mask, &[(1, "frag"), (2, "firstfrag")], |is_set| if is_set { "" } else { "no" }, "/")
        }
        Form::TunnelFlags => {
            let names = [(4, "tuncsum"), (8, "tundf"), (16, "tunoam"), (32, "tuncrit")];
            bits(value, mask, &names, |is_set| if is_set { "" } else { "no" }, "/")
        }
        Form::States => {
            let names = [(1, "new"), (2, "est"), (4, "rel"), (8, "trk"), (16, "inv"), (32, "rpl")];
            bits(value, mask, &names, |is_set| if is_set { "+" } else { "-" }, "")
        }
        Form::Label => label(value, mask),
        Form::Hex if is_exact => format!("{value:#x}"),
        Form::Hex => format!("{value:#x}/{mask:#x}"),
        Form::Decimal => masked(value, mask, is_exact),
    }
}

fn masked(value: u128, mask: u128, is_exact: bool) -> String {
    if is_exact { value.to_string() } else { format!("{value}/{mask:#x}") }
}

/// A prefix length, or the mask if it is not a prefix.
fn prefix(leading: u32, all: u32, width: u32, mask: impl FnOnce() -> String) -> String {
    if all == width {
        String::new()
    } else if leading == all {
        format!("/{leading}")
    } else {
        format!("/{}", mask())
    }
}

fn bits(value: u128, mask: u128, names: &[(u128, &str)], sign: impl Fn(bool) -> &'static str, between: &str) -> String {
    let named = names.iter().filter(|(bit, _)| mask & bit != 0);
    let words: Vec<_> = named.map(|(bit, name)| format!("{}{name}", sign(value & bit != 0))).collect();
    words.join(between)
}

/// tc's name for options of this kind.
pub(super) const fn name_of(options: &Options) -> &'static str {
    match options {
        Options::Geneve(_) => "geneve_opts",
        Options::Vxlan(_) => "vxlan_opts",
        Options::Erspan(_) => "erspan_opts",
        Options::Gtp { .. } => "gtp_opts",
    }
}

/// The options, with colons between their parts.
pub(super) fn options(options: &Options) -> String {
    match options {
        Options::Geneve(list) => {
            let one = |option: &crate::wire::options::GeneveOption| {
                format!("{:04x}:{:02x}:{}", option.class, option.kind, hex(&option.data))
            };
            list.iter().map(one).collect::<Vec<_>>().join(",")
        }
        Options::Vxlan(policy) => policy.to_string(),
        Options::Erspan(header) => format!(
            "{}:{}:{}:{}",
            header.version,
            header.index.unwrap_or_default(),
            header.direction.unwrap_or_default(),
            header.hardware.unwrap_or_default()
        ),
        Options::Gtp { pdu_type, flow } => format!("{pdu_type:02x}:{flow:02x}"),
    }
}
