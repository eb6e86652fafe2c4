//! Actions that put headers on.

use std::fmt;

use super::arguments::{HexBytes, arguments, hex_bytes, number, placed, plain_number, value};
use crate::action::{EthernetAddresses, MplsEntry, NshHeader, NshMetadata, VlanTag};
use crate::text::ParseError;
use crate::text::cursor::{Cursor, error_at};
use crate::text::read_value::mac;
use crate::text::write_value::write_mac;

const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_MPLS_UC: u16 = 0x8847;
const ETH_P_MPLS_MC: u16 = 0x8848;
/// The next protocol of an NSH header that is not told: Ethernet (RFC 8300, 2.2).
const NSH_ETHERNET: u8 = 3;
/// Bytes of metadata that an NSH header has room for, as in OVS (`NSH_CTX_HDRS_MAX_LEN`).
const NSH_METADATA: usize = 244;
/// The metadata of an NSH header is counted in words of so many bytes.
const NSH_WORD: usize = 4;

/// Reads the arguments of `push_vlan`.
pub(super) fn read_push_vlan(cursor: &mut Cursor<'_>) -> Result<VlanTag, ParseError> {
    cursor.expect("(")?;
    let (tpid, vid, pcp, cfi) = arguments!(cursor, "push_vlan";
        tpid: number(u16::MAX) => ETH_P_8021Q,
        vid: number(0xfffu16),
        pcp: number(7u8) => 0,
        cfi: number(1u8) => 1,
    );
    Ok(VlanTag { tpid, vid, pcp, cfi: cfi == 1 })
}

/// Writes `push_vlan`.
pub(super) fn write_push_vlan(out: &mut dyn fmt::Write, tag: &VlanTag) -> fmt::Result {
    out.write_str("push_vlan(")?;
    if tag.tpid != ETH_P_8021Q {
        write!(out, "tpid=0x{:04x},", tag.tpid)?;
    }
    write!(out, "vid={},pcp={}{})", tag.vid, tag.pcp, if tag.cfi { "" } else { ",cfi=0" })
}

/// Reads the arguments of `push_mpls` or `add_mpls`.
pub(super) fn read_mpls(cursor: &mut Cursor<'_>, of: &str) -> Result<MplsEntry, ParseError> {
    cursor.expect("(")?;
    let (label, tc, ttl, bos, eth_type) = arguments!(cursor, of;
        label: number(0xf_ffffu32),
        tc: number(7u8),
        ttl: number(u8::MAX),
        bos: number(1u8),
        eth_type: value(read_mpls_type),
    );
    Ok(MplsEntry { label, tc, ttl, bos: bos == 1, eth_type })
}

fn read_mpls_type(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    let start = cursor.offset();
    match plain_number(cursor, u16::MAX)? {
        eth_type @ (ETH_P_MPLS_UC | ETH_P_MPLS_MC) => Ok(eth_type),
        _ => Err(error_at(start, "0x8847 or 0x8848")),
    }
}

/// Writes `push_mpls` or `add_mpls`.
pub(super) fn write_mpls(out: &mut dyn fmt::Write, name: &str, entry: &MplsEntry) -> fmt::Result {
    let MplsEntry { label, tc, ttl, bos, eth_type } = entry;
    write!(out, "{name}(label={label},tc={tc},ttl={ttl},bos={},eth_type={eth_type:#x})", u8::from(*bos))
}

/// Reads the argument of `pop_mpls`.
pub(super) fn read_pop_mpls(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    cursor.expect("(")?;
    let (eth_type,) = arguments!(cursor, "pop_mpls"; eth_type: number(u16::MAX));
    Ok(eth_type)
}

/// Reads the arguments of `push_eth`.
pub(super) fn read_push_eth(cursor: &mut Cursor<'_>) -> Result<EthernetAddresses, ParseError> {
    cursor.expect("(")?;
    let (source, destination) = arguments!(cursor, "push_eth"; src: value(read_mac), dst: value(read_mac));
    Ok(EthernetAddresses { source, destination })
}

/// Reads an Ethernet address.
pub(super) fn read_mac(cursor: &mut Cursor<'_>) -> Result<u64, ParseError> {
    let start = cursor.offset();
    u64::try_from(mac(cursor)?).map_err(|_| error_at(start, "an Ethernet address"))
}

/// Writes `push_eth`.
pub(super) fn write_push_eth(out: &mut dyn fmt::Write, addresses: &EthernetAddresses) -> fmt::Result {
    out.write_str("push_eth(src=")?;
    write_mac(out, addresses.source.into())?;
    out.write_str(",dst=")?;
    write_mac(out, addresses.destination.into())?;
    out.write_char(')')
}

/// Reads the arguments of `push_nsh`, all of which have a default.
pub(super) fn read_push_nsh(cursor: &mut Cursor<'_>) -> Result<NshHeader, ParseError> {
    cursor.expect("(")?;
    let context = || value(placed(|cursor| plain_number(cursor, u32::MAX)));
    let (flags, ttl, kind, next_protocol, path, index, c1, c2, c3, c4, tlvs) = arguments!(cursor, "push_nsh";
        flags: number(3u8) => 0,
        ttl: number(63u8) => 63,
        mdtype: value(read_metadata_type) => 1,
        np: number(u8::MAX) => NSH_ETHERNET,
        spi: number(0xff_ffffu32) => 0,
        si: number(u8::MAX) => u8::MAX,
        c1: context() => None,
        c2: context() => None,
        c3: context() => None,
        c4: context() => None,
        md2: value(placed(read_tlvs)) => None,
    );
    let contexts = [c1, c2, c3, c4];
    let metadata = match (kind, contexts.into_iter().flatten().next(), tlvs) {
        (2, Some(context), _) => return Err(error_at(context.offset, "md2, not contexts, with mdtype=2")),
        (2, None, tlvs) => NshMetadata::Tlvs(tlvs.map(|tlvs| tlvs.value).unwrap_or_default()),
        (_, _, Some(tlvs)) => return Err(error_at(tlvs.offset, "contexts, not md2, with mdtype=1")),
        (..) => NshMetadata::Contexts(contexts.map(|context| context.map_or(0, |context| context.value))),
    };
    Ok(NshHeader { flags, ttl, next_protocol, path, index, metadata })
}

fn read_metadata_type(cursor: &mut Cursor<'_>) -> Result<u8, ParseError> {
    let start = cursor.offset();
    match plain_number(cursor, u8::MAX)? {
        kind @ (1 | 2) => Ok(kind),
        _ => Err(error_at(start, "1 (contexts) or 2 (TLVs)")),
    }
}

/// Reads the TLVs. OVS prints them without zeros in front, and `0` for none at all; as they are whole words, the zeros can
/// be put back.
fn read_tlvs(cursor: &mut Cursor<'_>) -> Result<Box<[u8]>, ParseError> {
    let start = cursor.offset();
    let prefixed = cursor.eat("0x");
    let mut tlvs = hex_bytes(cursor);
    if !prefixed && cursor.since(start) != "0" {
        return Err(error_at(start, "hexadecimal digits after 0x"));
    }
    if !prefixed {
        tlvs.clear();
    }
    tlvs.splice(0..0, std::iter::repeat_n(0, tlvs.len().next_multiple_of(NSH_WORD) - tlvs.len()));
    if tlvs.len() > NSH_METADATA {
        return Err(error_at(start, format!("at most {NSH_METADATA} bytes")));
    }
    Ok(tlvs.into())
}

/// Writes `push_nsh`.
pub(super) fn write_push_nsh(out: &mut dyn fmt::Write, header: &NshHeader) -> fmt::Result {
    let kind = match &header.metadata {
        NshMetadata::Contexts(_) => 1,
        NshMetadata::Tlvs(_) => 2,
    };
    let NshHeader { flags, ttl, next_protocol, path, index, metadata } = header;
    write!(out, "push_nsh(flags={flags},ttl={ttl},mdtype={kind},np={next_protocol},spi={path:#x},si={index}")?;
    match metadata {
        NshMetadata::Contexts([c1, c2, c3, c4]) => write!(out, ",c1={c1:#x},c2={c2:#x},c3={c3:#x},c4={c4:#x})"),
        // OVS prints "md2=0", which it does not read, and takes TLVs that are not there for none, too.
        NshMetadata::Tlvs(tlvs) if tlvs.is_empty() => out.write_char(')'),
        NshMetadata::Tlvs(tlvs) => write!(out, ",md2=0x{})", HexBytes(tlvs)),
    }
}
