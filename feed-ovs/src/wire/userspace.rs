//! `userspace` (`enum ovs_userspace_attr`), and the note that ovs-vswitchd puts into it.

use sluice_flow::action::{FlowSample, SampleDirection, ToController, UserData, Userspace};
use sluice_flow::port::PortNumber;
use sluice_netdev::netlink::attribute::{Attribute, Malformed};

const PLACE: &str = "OVS_ACTION_ATTR_USERSPACE";
/// Bytes of the note (`struct user_action_cookie` in `lib/odp-util.h` of OVS), of which the first half is the same for all types.
const NOTE: usize = 48;

/// Reads `OVS_ACTION_ATTR_USERSPACE`.
pub(super) fn read_userspace(userspace: &Attribute<'_>) -> Result<Userspace, Malformed> {
    let mut read = Userspace { pid: 0, data: None, actions: false, tunnel_port: None };
    for part in userspace.nested(PLACE) {
        let part = part?;
        match part.kind {
            1 => read.pid = part.u32()?,
            2 => read.data = Some(read_user_data(part.payload)),
            3 => read.tunnel_port = Some(PortNumber(part.u32()?)),
            4 => read.actions = true,
            _ => return Err(part.unknown()),
        }
    }
    Ok(read)
}

/// Reads a note: of 48 bytes what ovs-vswitchd means by it, as OVS itself prints it, and anything else as bytes.
pub fn read_user_data(bytes: &[u8]) -> UserData {
    let known = <&[u8; NOTE]>::try_from(bytes).ok().and_then(read_note);
    known.unwrap_or_else(|| UserData::Bytes(bytes.into()))
}

fn read_note(note: &[u8; NOTE]) -> Option<UserData> {
    let half = |at: usize| u16::from_ne_bytes([note[at], note[at + 1]]);
    let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
    let word = |at: usize| if cfg!(target_endian = "little") { word(at).rotate_left(16) } else { word(at) };
    let big = |at: usize| note[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some(match half(0) {
        1 => {
            let control = u16::from_be_bytes([note[24], note[25]]);
            UserData::SFlow { vid: control & 0xfff, pcp: note[24] >> 5, output: word(28) }
        }
        2 => UserData::SlowPath(word(28)),
        3 => UserData::FlowSample(FlowSample {
            probability: half(24),
            collector_set_id: word(28),
            obs_domain_id: word(32),
            obs_point_id: word(36),
            output_port: PortNumber(word(40)),
            direction: match word(44) {
                1 => Some(SampleDirection::Ingress),
                2 => Some(SampleDirection::Egress),
                _ => None,
            },
        }),
        4 => UserData::Ipfix { output_port: PortNumber(word(24)) },
        5 => UserData::Controller(ToController {
            dont_send: note[24] != 0,
            continuation: note[25] != 0,
            reason: half(26),
            recirc_id: word(28),
            rule_cookie: big(32),
            controller_id: half(40),
            max_len: half(42),
        }),
        _ => return None,
    })
}
