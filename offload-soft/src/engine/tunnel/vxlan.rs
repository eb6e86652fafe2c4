//! VXLAN (RFC 7348) with the group policy extension, as in `drivers/net/vxlan/vxlan_core.c`.

use sluice_flow::action::{Encapsulation, EncapsulationOptions, POLICY_FLAGS, tunnel_flag};

use super::header::{Payload, TunnelHeader};
use crate::packet::TunnelOptions;
use crate::packet::headers::{VXLAN_GBP, VXLAN_VNI, Vxlan};

const LENGTH: usize = Vxlan::<&[u8]>::LENGTH;
/// The bits of the first word that the group policy has besides its flag.
const GBP_BITS: u32 = 0x00ff_ffff;

pub(super) fn write(frame: &mut Vec<u8>, payload: Payload<'_>, encapsulation: &Encapsulation) -> Option<()> {
    if payload.layer3.is_some() {
        return None;
    }
    let mut header = [0; LENGTH];
    let mut vxlan = Vxlan::new(header.as_mut_slice())?;
    vxlan.set_flags(match encapsulation.options {
        // A policy of nothing is not sent (`vxlan_build_gbp_hdr`).
        EncapsulationOptions::VxlanGbp { id, flags } if id != 0 || flags != 0 => {
            VXLAN_VNI | VXLAN_GBP | u32::from(flags) << 16 | u32::from(id)
        }
        _ => VXLAN_VNI,
    });
    vxlan.set_vni_and_reserved(encapsulation.id << 8);
    frame.extend_from_slice(&header);
    Some(())
}

/// Linux drops what has bits set that it does not know (`vxlan_rcv`).
pub(super) fn read(bytes: &[u8]) -> Option<TunnelHeader> {
    let vxlan = Vxlan::new(bytes)?;
    let (flags, id) = (vxlan.flags(), vxlan.vni_and_reserved());
    let (known, options) = if flags & VXLAN_GBP == 0 {
        (VXLAN_VNI, TunnelOptions::None)
    } else {
        let [_, policy, high, low] = flags.to_be_bytes();
        let id = u16::from_be_bytes([high, low]);
        (VXLAN_VNI | VXLAN_GBP | GBP_BITS, TunnelOptions::VxlanGbp { id, flags: policy & POLICY_FLAGS })
    };
    let is_known = flags & VXLAN_VNI != 0 && flags & !known == 0 && id & 0xff == 0;
    is_known.then(|| TunnelHeader {
        id: u64::from(id >> 8),
        flags: tunnel_flag::KEY,
        options,
        payload: LENGTH..bytes.len(),
        layer3: None,
    })
}
