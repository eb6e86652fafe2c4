//! The devices that there are.

use std::time::Duration;

use super::{Profile, Room};
use crate::steering::Format;
use crate::steering::ste::large;

/// All profiles.
pub const PROFILES: &[Profile] = &[
    BLUEFIELD_2,
    BLUEFIELD_2_HOST,
    BLUEFIELD_3,
    CONNECTX_5,
    CONNECTX_5_VFS,
    CONNECTX_6_DX,
    CONNECTX_6_DX_FIRMWARE_STEERING,
    CONNECTX_6_DX_NO_ESWITCH,
    CONNECTX_6_DX_VFS,
    CONNECTX_7,
];

/// More than a test needs.
const ROOM: Room = Room { entries: 1 << 24, counters: 0xff_ffff };

/// A BlueField-2 as its own processor sees it, with two virtual functions of the host.
pub const BLUEFIELD_2: Profile = Profile {
    name: "bluefield-2",
    device_id: 0xa2d6,
    embedded_cpu: true,
    eswitch_manager: true,
    host_vfs: 2,
    host_total_vfs: 8,
    steering_format: Format::One,
    rewrites_by_pattern: false,
    match_definers: 0,
    finds_more: false,
    has_software_steering: true,
    software_steering: false,
    command_timeout: Duration::from_secs(60),
    health_poll: Duration::from_secs(2),
    room: ROOM,
    firmware: (24, 35, 1000),
    psid: "SLU0000000002",
};

/// A BlueField-2 as its host sees it: the physical function, while the switch is managed by the card's own processor.
pub const BLUEFIELD_2_HOST: Profile = Profile {
    name: "bluefield-2-host",
    embedded_cpu: false,
    eswitch_manager: false,
    host_vfs: 0,
    host_total_vfs: 0,
    psid: "SLU0000000006",
    ..BLUEFIELD_2
};

/// A BlueField-3 as its own processor sees it.
pub const BLUEFIELD_3: Profile = Profile {
    name: "bluefield-3",
    device_id: 0xa2dc,
    steering_format: Format::Two,
    rewrites_by_pattern: true,
    match_definers: large::FORMATS,
    finds_more: true,
    firmware: (32, 35, 1000),
    psid: "SLU0000000003",
    ..BLUEFIELD_2
};

/// A ConnectX-6 Dx in a host, without virtual functions.
pub const CONNECTX_6_DX: Profile = Profile {
    name: "connectx-6-dx",
    device_id: 0x101d,
    embedded_cpu: false,
    eswitch_manager: true,
    host_vfs: 0,
    host_total_vfs: 0,
    steering_format: Format::One,
    rewrites_by_pattern: true,
    match_definers: large::FORMATS,
    finds_more: true,
    has_software_steering: true,
    software_steering: false,
    command_timeout: Duration::from_secs(60),
    health_poll: Duration::from_secs(2),
    room: ROOM,
    firmware: (22, 35, 1000),
    psid: "SLU0000000001",
};

/// A ConnectX-5 in a host.
pub const CONNECTX_5: Profile = Profile {
    name: "connectx-5",
    device_id: 0x1017,
    steering_format: Format::Zero,
    rewrites_by_pattern: false,
    match_definers: 0,
    finds_more: false,
    firmware: (16, 35, 1000),
    psid: "SLU0000000004",
    ..CONNECTX_6_DX
};

/// A ConnectX-7 in a host.
pub const CONNECTX_7: Profile = Profile {
    name: "connectx-7",
    device_id: 0x1021,
    steering_format: Format::Two,
    rewrites_by_pattern: true,
    firmware: (28, 35, 1000),
    psid: "SLU0000000005",
    ..CONNECTX_6_DX
};

/// As [`CONNECTX_6_DX`], where somebody else manages the switch.
pub const CONNECTX_6_DX_NO_ESWITCH: Profile =
    Profile { name: "connectx-6-dx-no-eswitch", eswitch_manager: false, ..CONNECTX_6_DX };

/// As [`CONNECTX_6_DX`], where all tables are the firmware's.
pub const CONNECTX_6_DX_FIRMWARE_STEERING: Profile =
    Profile { name: "connectx-6-dx-firmware-steering", has_software_steering: false, ..CONNECTX_6_DX };

/// As [`CONNECTX_6_DX`], with virtual functions, which its driver enables.
pub const CONNECTX_6_DX_VFS: Profile =
    Profile { name: "connectx-6-dx-vfs", host_total_vfs: 8, psid: "SLU0000000007", ..CONNECTX_6_DX };

/// As [`CONNECTX_5`], with virtual functions.
pub const CONNECTX_5_VFS: Profile =
    Profile { name: "connectx-5-vfs", host_total_vfs: 8, psid: "SLU0000000008", ..CONNECTX_5 };
