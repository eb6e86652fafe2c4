//! `ct` (`enum ovs_ct_attr`) and the address translation in it (`enum ovs_nat_attr`).

use std::net::IpAddr;

use sluice_flow::action::{Commit, Conntrack, Nat, NatSide, PortPick, Translation};
use sluice_netdev::netlink::attribute::{Attribute, Malformed};

const PLACE: &str = "OVS_ACTION_ATTR_CT";
const NAT_PLACE: &str = "OVS_CT_ATTR_NAT";

/// Reads `OVS_ACTION_ATTR_CT`. Which events others hear of the connection is passed over.
pub(super) fn read_conntrack(ct: &Attribute<'_>) -> Result<Conntrack, Malformed> {
    let mut read = Conntrack::default();
    for part in ct.nested(PLACE) {
        let part = part?;
        match part.kind {
            1 => read.commit = Commit::Yes,
            2 => read.zone = part.u16()?,
            3 => {
                let [a, b, c, d, mask @ ..]: [u8; 8] = part.bytes()?;
                read.mark = Some((u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes(mask)));
            }
            4 => {
                let bytes: [u8; 32] = part.bytes()?;
                let ([value, mask], []) = bytes.as_chunks::<16>() else { return Err(part.length()) };
                // The kernel stores labels with the lowest byte first on every machine that Sluice runs on.
                read.label = Some((u128::from_le_bytes(*value), u128::from_le_bytes(*mask)));
            }
            5 => read.helper = Some(part.text()?.into()),
            6 => read.nat = Some(read_nat(&part)?),
            7 => read.commit = Commit::Force,
            8 => {}
            9 => read.timeout = Some(part.text()?.into()),
            _ => return Err(part.unknown()),
        }
    }
    Ok(read)
}

fn read_nat(nat: &Attribute<'_>) -> Result<Nat, Malformed> {
    let (mut side, mut addresses, mut ports) = (None, [None; 2], [None; 2]);
    let (mut persistent, mut pick) = (false, PortPick::Default);
    for part in nat.nested(NAT_PLACE) {
        let part = part?;
        match part.kind {
            1 => side = Some(NatSide::Source),
            2 => side = Some(NatSide::Destination),
            3 => addresses[0] = Some(address(&part)?),
            4 => addresses[1] = Some(address(&part)?),
            5 => ports[0] = Some(part.u16()?),
            6 => ports[1] = Some(part.u16()?),
            7 => persistent = true,
            8 => pick = PortPick::Hash,
            9 => pick = PortPick::Random,
            _ => return Err(part.unknown()),
        }
    }
    let Some(side) = side else { return Ok(Nat::Existing) };
    // The module leaves the last one out if it is the first.
    let range = |[first, last]: [Option<IpAddr>; 2]| first.map(|first| (first, last.unwrap_or(first)));
    let ports = ports[0].map(|first| (first, ports[1].unwrap_or(first)));
    Ok(Nat::New(Translation { side, addresses: range(addresses), ports, persistent, pick }))
}

fn address(part: &Attribute<'_>) -> Result<IpAddr, Malformed> {
    match part.payload.len() {
        4 => Ok(IpAddr::from(part.bytes::<4>()?)),
        _ => Ok(IpAddr::from(part.bytes::<16>()?)),
    }
}
