//! Commands on flow tables, and what stands in them.

use nix::errno::Errno;
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::layouts;

use super::command::{Command, send};
use super::request::Refused;

layouts! {
    create_table 0x40 {
        TABLE_TYPE 0x10 [31:24], REFORMAT 0x18 [31], DECAP 0x18 [30], MISS_ACTION 0x18 [27:24], LEVEL 0x18 [23:16],
        LOG_SIZE 0x18 [7:0], MISS_TABLE 0x1c [23:0],
    }
    modify_table 0x40 {
        SELECT 0xc [15:0], TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], MISS_ACTION 0x18 [27:24], MISS_TABLE 0x1c [23:0],
    }
    /// Names a table, a group or an entry that is meant.
    named 0x40 { TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], GROUP_ID 0x18 [31:0], FLOW_INDEX 0x20 [31:0] }
    /// Names anything else, or answers with its number.
    numbered 0x10 { ID 0x8 [31:0] }
    create_group 0x400 {
        TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], START 0x1c [31:0], END 0x24 [31:0], CRITERIA 0x3c [7:0],
    }
    /// Followed by lists of destinations and counters.
    set_entry 0x340 {
        TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], MODIFY_ENABLE 0x18 [7:0], FLOW_INDEX 0x20 [31:0], GROUP_ID 0x44 [31:0], TAG 0x48 [23:0],
        ACTION 0x4c [15:0], DESTINATIONS 0x50 [23:0], COUNTERS 0x54 [23:0], REFORMAT_ID 0x58 [31:0],
        MODIFY_HEADER_ID 0x5c [31:0],
    }
}

/// Bits of an entry's action field.
pub(crate) mod action {
    pub(crate) const ALLOW: u64 = 0x1;
    pub(crate) const DROP: u64 = 0x2;
    pub(crate) const FORWARD: u64 = 0x4;
    pub(crate) const COUNT: u64 = 0x8;
    pub(crate) const REFORMAT: u64 = 0x10;
    pub(crate) const MODIFY_HEADER: u64 = 0x40;
}

/// Types of destinations.
pub(crate) mod to {
    pub(crate) const VPORT: u32 = 0;
    pub(crate) const TABLE: u32 = 1;
    pub(crate) const TIR: u32 = 2;
}

/// Bytes of a match parameter that the device knows.
pub(crate) const MATCH: usize = 512;

/// Where masks and values begin in commands.
pub(crate) const MASK: usize = 0x40;

/// See [`MASK`].
pub(crate) const VALUE: usize = 0x80;

/// The switch's type of table.
pub(crate) const FDB: u8 = 4;

/// PRM types of the tables that programs may have flows in: of what a function receives, of what it sends, and of the switch.
pub(crate) const TYPES: [u8; 3] = [0, 1, FDB];

/// The PRM's type of table for one of the interface.
pub(crate) fn table_type(kind: u64) -> Result<u8, Refused> {
    let known = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind)).copied();
    known.ok_or_else(|| Refused::new(Errno::EOPNOTSUPP, format!("flow tables of type {kind} are not modelled")))
}

/// An element of an entry's lists.
pub(crate) fn destination(kind: u32, id: u64) -> [u8; 8] {
    let word = u64::from(kind) << 24 | id & 0xff_ffff;
    // A counter has all 32 bits for its id, of which 24 are used.
    (word << 32).to_be_bytes()
}

/// Has all packets of a kind come to a table first, or to none: those of programs are none, whatever their level.
pub(crate) fn set_root(hca: &mut Hca, table_type: u8, table: Option<u64>) -> Result<(), Refused> {
    const DISCONNECT: u16 = 1;
    let fields = [(named::TABLE_TYPE, table_type.into()), (named::TABLE_ID, table.unwrap_or(0))];
    let command = Command::new(0x92f, &named::LAYOUT, &fields);
    let command = if table.is_none() { command.modifier(DISCONNECT) } else { command };
    send(hca, &command).map(|_| ())
}
