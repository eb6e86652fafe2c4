//! What a program is told of the device, of its ports and of itself.

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::profile::{LOG_LARGEST_SEGMENT, Profile, VPORT_ECPF, VPORT_UPLINK};
use sluice_connectx::steering::address::{Side, Terminal};
use sluice_connectx::steering::vhca_id;

use super::command::{Command, made};
use super::gids;
use super::ids::{UHW_IN, UHW_OUT};
use super::request::{Native, NativeOut, Refused, Request};
use super::state::{ContextId, State};

pub(crate) fn query(state: &mut State, request: &Request<'_>) -> Result<(), Refused> {
    const LENGTH: u32 = 304;
    const DRIVER_LENGTH: u32 = 100;
    const MELLANOX: u32 = 0x15b3;
    const RAW_PACKET: u32 = 1 << 8;
    const RAW_IP_CSUM: u32 = 1 << 26;
    const STRIPS_TAG: u32 = 1 << 0;
    const IP_CSUM: u32 = 1 << 2;
    /// Fields of hashes: addresses and ports of both kinds, and inner ones.
    const HASHED: u64 = 1 << 31 | 0xff;
    const TOEPLITZ: u8 = 1;
    /// Kinds of tunnels of which the device knows what is inside.
    const TUNNEL_VXLAN: u32 = 1 << 0;
    /// Several frames in one request, of the newer kind, too.
    const SEVERAL_FRAMES: u32 = 1 << 1 | 1 << 2;
    let profile = state.hca.profile();
    let (major, minor, subminor) = profile.firmware;
    let firmware = u64::from(major) << 32 | u64::from(minor) << 16 | u64::from(subminor);
    let guid = node_guid();
    let ports = u8::try_from(ports(profile).len()).unwrap_or(u8::MAX);
    let mut answer = NativeOut::new(LENGTH as usize)
        .u64(0, firmware)
        .put(8, guid.to_be_bytes())
        .put(16, guid.to_be_bytes())
        // max_mr_size and page_size_cap.
        .u64(24, u64::MAX)
        .u64(32, !0xfff)
        .u32(40, MELLANOX)
        .u32(44, profile.device_id.into());
    // From max_qp on, by byte offset: what programs divide by or check against.
    let limits =
        [(52, 1 << 18), (56, 1 << 15), (64, 30), (68, 30), (72, 1 << 20), (76, 1 << 22), (80, 1 << 20), (84, 1 << 20)];
    // Reads at a time, in and out, and shared receive queues: how many, and how large each.
    let limits = limits.into_iter().chain([(88, 16), (100, 16), (156, 1 << 18), (160, 1 << 15), (164, 31)]);
    for (at, limit) in limits {
        answer = answer.u32(at, limit);
    }
    // Tables of receive queues: for raw packets, how many, and how large each.
    // Checksums of raw packets, also in the longer list; tags and sums in completions.
    answer = answer.u32(60, RAW_IP_CSUM).u64(224, RAW_IP_CSUM.into()).u32(252, STRIPS_TAG | IP_CSUM);
    answer = answer.u32(232, RAW_PACKET).u32(236, 1 << 10).u32(240, 1 << 11).u32(248, 1 << 18);
    answer = answer.u16(168, 1).u8(171, ports).u32(180, LENGTH);
    request.output(1, answer.bytes())?;
    let driver = NativeOut::new(DRIVER_LENGTH as usize)
        .u32(4, DRIVER_LENGTH)
        .u32(8, 1 << LOG_LARGEST_SEGMENT)
        .u32(12, RAW_PACKET)
        .u64(16, HASHED)
        .u8(24, TOEPLITZ)
        .u32(56, SEVERAL_FRAMES)
        .u32(96, TUNNEL_VXLAN);
    request.output(UHW_OUT, driver.bytes())
}

/// GUID of the node, as vports have it.
pub(crate) fn node_guid() -> u64 {
    0x0200_0000_0100_0000
}

/// Vports by IB port, from 1 on: the wire, and then representors.
pub(crate) fn ports(profile: &Profile) -> Vec<u16> {
    let mut vports = profile.vports();
    vports.retain(|vport| *vport != VPORT_UPLINK && *vport != VPORT_ECPF);
    if !profile.embedded_cpu {
        // A host's function is the wire's owner, and not its own representor.
        vports.retain(|vport| *vport != 0);
    }
    vports.insert(0, VPORT_UPLINK);
    vports
}

pub(crate) fn query_port(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const ACTIVE: u8 = 4;
    const MTU_1024: u8 = 3;
    const MTU_4096: u8 = 5;
    const LINK_UP: u8 = 5;
    const ETHERNET: u8 = 2;
    const WIDTH_4X: u8 = 2;
    const EDR: u8 = 32;
    let number = request.value(0)?;
    let known = usize::try_from(number).is_ok_and(|number| (1..=ports(state.hca.profile()).len()).contains(&number));
    if !known {
        return Err(Refused::new(Errno::EINVAL, format!("there is no port {number}")));
    }
    // What is not the wire's is a representor, without RoCE.
    let gids = if number == 1 && gids::has_roce(state.hca.profile()) { gids::LENGTH } else { 0 };
    let answer = NativeOut::new(48)
        .u32(4, 1 << 30)
        .u32(16, gids)
        .u16(20, 1)
        .u8(26, ACTIVE)
        .u8(27, MTU_4096)
        .u8(28, MTU_1024)
        .u8(34, WIDTH_4X)
        .u8(35, EDR)
        .u8(36, LINK_UP)
        .u8(37, ETHERNET);
    request.output(1, answer.bytes())
}

pub(crate) fn query_vport(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    /// Vport, its vhca_id, both addresses, and the switch's owner; register C0 is not used here.
    const ALL_BUT_REGISTER: u64 = 0x2f;
    let number = request.value(0x1000)?;
    let ports = ports(state.hca.profile());
    let place = usize::try_from(number).unwrap_or(0).checked_sub(1);
    let missing = || Refused::new(Errno::EOPNOTSUPP, format!("there is no port {number}"));
    let vport = place.and_then(|place| ports.get(place)).copied().ok_or_else(missing)?;
    if !state.hca.profile().eswitch_manager {
        return Err(Refused::new(Errno::EOPNOTSUPP, "the function does not manage the switch"));
    }
    let owner = vhca_id(state.hca.profile().own_vport());
    let terminal = Terminal::Vport(vport);
    let answer = NativeOut::new(40)
        .u64(0, ALL_BUT_REGISTER)
        .u16(8, vport)
        .u16(10, if vport == VPORT_UPLINK { owner } else { vhca_id(vport) })
        .u16(12, owner)
        .u64(16, terminal.address(Side::Receive))
        .u64(24, terminal.address(Side::Transmit));
    request.output(0x1001, answer.bytes())
}

pub(crate) fn get_context(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const DEVX: u32 = 1;
    const COMPLETION_VECTORS: u32 = 2;
    const LENGTH: u32 = 72;
    const LOG_DOORBELL_PAGE: u32 = 12;
    const TAKES_OPTIONS: u32 = 1 << 2;
    let given = request.input(UHW_IN)?;
    let flags = Native(&given).u32(8).unwrap_or_default();
    if flags & DEVX != 0 && state.context(context)?.uid == 0 {
        let made = made(&mut state.hca, &Command::new(0xa04, &l::create_user_context::LAYOUT, &[]))?;
        state.context(context)?.uid = u16::try_from(made).unwrap_or_default();
    }
    request.output(0, &COMPLETION_VECTORS.to_le_bytes())?;
    request.output(1, &0_u64.to_le_bytes())?;
    let answer = NativeOut::new(LENGTH as usize)
        .u32(0, 1 << 18)
        .u32(4, 512)
        // Pages of doorbells come one by one, so that there are none to begin with.
        .u32(8, 0)
        .u32(12, 64)
        .u16(16, 1024)
        .u16(18, 512)
        .u32(20, 1 << 15)
        .u32(24, 1 << 15)
        .u32(28, 1 << 15)
        .u16(32, u16::try_from(ports(state.hca.profile()).len()).unwrap_or(1))
        // The options of connections (ECE) can be asked for and set.
        .u32(36, TAKES_OPTIONS)
        .u32(40, LENGTH)
        // Version of completions; queries of the device may carry the driver's part; inline is not needed.
        .u8(44, 1)
        .u8(45, 1)
        .u8(46, 1)
        .u32(56, LOG_DOORBELL_PAGE)
        .u32(60, 1);
    request.output(UHW_OUT, answer.bytes())
}
