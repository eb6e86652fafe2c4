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
