//! How numbers and addresses are written.

use std::fmt::Write;

/// An Ethernet type by its name, if tc has one (`ll_proto_n2a`).
pub(super) fn protocol(number: u16) -> String {
    match number {
        0x0003 => "all".into(),
        0x0800 => "ip".into(),
        0x0806 => "arp".into(),
        0x8035 => "rarp".into(),
        0x86dd => "ipv6".into(),
        0x8100 => "802.1Q".into(),
        0x88a8 => "802.1ad".into(),
        0x8847 => "mpls_uc".into(),
        0x8848 => "mpls_mc".into(),
        other => format!("{other:#06x}"),
    }
}

/// The name of an IP protocol, if tc has one.
pub(super) const fn ip_protocol(number: u8) -> Option<&'static str> {
    match number {
        1 => Some("icmp"),
        6 => Some("tcp"),
        17 => Some("udp"),
        58 => Some("icmpv6"),
        132 => Some("sctp"),
        _ => None,
    }
}

/// Value and mask of a label of connections: tc has them as the bytes that the kernel has, and does not take a number.
pub(super) fn label(value: u128, mask: u128) -> String {
    let [value, mask] = [value, mask].map(|number| hex(&number.to_ne_bytes()));
    format!("{value}/{mask}")
}

/// Bytes as an Ethernet address.
pub(super) fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
