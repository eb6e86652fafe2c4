//! The bytes of an entry.

use super::large::FIELDS;
use crate::packet::Headers;
use crate::steering::bits::Bits;
use crate::steering::format::{ENTRY, Format};
use crate::steering::meter::Color;
use crate::steering::meter::aso::Metered;
use crate::steering::tracking::{Direction, Tracked};

const ENTRY_FORMAT: Bits = Bits::new(0x00, 8);
const COUNTER: Bits = Bits::new(0x08, 24);
const MATCH_DEFINER: Bits = Bits::new(0x30, 8);
const MISS_ADDRESS_39_32: Bits = Bits::new(0x38, 8);
/// In units of an entry.
const MISS_ADDRESS_31_6: Bits = Bits::new(0x40, 26);
const MATCH_POLARITY: Bits = Bits::new(0x5b, 1);
const HASH_DEFINER: Bits = Bits::new(0x70, 8);
const NEXT_TABLE_39_32: Bits = Bits::new(0x78, 8);
/// In units of 32 bytes; the lowest bit that is set is the size of the table in entries.
const NEXT_TABLE_31_5: Bits = Bits::new(0x80, 27);
const HASH_TYPE: Bits = Bits::new(0x9b, 2);
const HASH_AFTER_ACTIONS: Bits = Bits::new(0x9d, 1);
const BYTE_MASK: Bits = Bits::new(0xa0, 16);
const NEXT_ENTRY_FORMAT: Bits = Bits::new(0xb0, 1);
const ACTIONS: usize = 24;
/// Of an entry without a mask.
const MORE_ACTIONS: usize = 20;
const MASK: usize = 32;
const TAG: usize = 48;

/// Entry formats that match 16 bytes of fields under a mask.
const MASK_AND_MATCH: [u32; 2] = [0, 1];

/// The entry format that matches 32 bytes of fields as a match definer has them, and leads to such entries only.
const MATCH: u32 = 4;
/// In place of a definer, of entries that match everything.
const DO_NOT_CARE: u8 = 0x0f;

/// An entry.
pub(in crate::steering) struct Entry {
    pub(in crate::steering) lookup: Lookup,
    pub(in crate::steering) counter: u32,
    pub(in crate::steering) miss: u64,
    pub(in crate::steering) next: Table,
    /// In the order in which they are done, or why they cannot be.
    pub(in crate::steering) actions: Result<Vec<Action>, String>,
    pub(in crate::steering) wanted: Wanted,
}

/// By which fields an entry matches, or a table hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::steering) enum Lookup {
    /// 16 bytes: definer mode and index.
    Fixed(u16),
    /// 32 bytes, by the number of a match definer.
    Defined(u8),
}

/// What an entry matches.
pub(in crate::steering) enum Wanted {
    /// Fields of which these bits are so.
    Masked { mask: [u8; 16], tag: [u8; 16] },
    /// Fields that are so under the definer's mask.
    Whole([u8; FIELDS]),
}

/// What a lookup sees of a packet.
#[derive(Debug, Clone, Copy)]
pub(in crate::steering) enum Seen {
    Fixed([u8; 16]),
    Defined([u8; FIELDS]),
}

/// A hash table that a hit leads to.
pub(in crate::steering) struct Table {
    pub(in crate::steering) lookup: Lookup,
    pub(in crate::steering) base: u64,
    pub(in crate::steering) entries: u64,
    pub(in crate::steering) byte_mask: u16,
    /// Whether the hash is of the packet as the actions leave it.
    pub(in crate::steering) after_actions: bool,
}

impl Entry {
    pub(in crate::steering) fn decode(bytes: &[u8; ENTRY]) -> Result<Self, String> {
        let format = ENTRY_FORMAT.u32(bytes);
        let defined = format == MATCH;
        if !MASK_AND_MATCH.contains(&format) && !defined {
            return Err(format!("entry format {format:#x} is not modelled"));
        }
        if MATCH_POLARITY.is_set(bytes) || HASH_TYPE.is_set(bytes) {
            return Err("inverted matches and other hash types are not modelled".to_owned());
        }
        let index = u64::from(NEXT_TABLE_39_32.u32(bytes)) << 27 | u64::from(NEXT_TABLE_31_5.u32(bytes));
        let entries = index & index.wrapping_neg();
        let (lookup, next, byte_mask) = if defined {
            (Lookup::Defined(MATCH_DEFINER.u8(bytes)), Lookup::Defined(HASH_DEFINER.u8(bytes)), 0)
        } else {
            let next = Lookup::fixed(NEXT_ENTRY_FORMAT.u32(bytes), HASH_DEFINER.u8(bytes));
            (Lookup::fixed(format, MATCH_DEFINER.u8(bytes)), next, BYTE_MASK.u16(bytes))
        };
        Ok(Self {
            lookup,
            counter: COUNTER.u32(bytes),
            miss: u64::from(MISS_ADDRESS_39_32.u32(bytes)) << 32 | u64::from(MISS_ADDRESS_31_6.u32(bytes)) << 6,
            next: Table {
                lookup: next,
                base: (index ^ entries) << 5,
                entries,
                byte_mask,
                after_actions: HASH_AFTER_ACTIONS.is_set(bytes),
            },
            actions: actions(&bytes[if defined { MORE_ACTIONS } else { ACTIONS }..MASK]),
            wanted: if defined {
                Wanted::Whole(part(bytes, MASK))
            } else {
                Wanted::Masked { mask: part(bytes, MASK), tag: part(bytes, TAG) }
            },
        })
    }

    /// Whether the outcome depends on the packet.
    pub(in crate::steering) fn wants_fields(&self) -> bool {
        match self.wanted {
            Wanted::Masked { mask, .. } => mask != [0; 16],
            Wanted::Whole(_) => self.lookup != Lookup::Defined(DO_NOT_CARE),
        }
    }

    pub(in crate::steering) fn matches(&self, seen: &Seen) -> bool {
        match (&self.wanted, seen) {
            (Wanted::Masked { mask, tag }, Seen::Fixed(fields)) => {
                fields.iter().zip(mask).map(|(field, mask)| field & mask).eq(*tag)
            }
            (Wanted::Whole(tag), Seen::Defined(fields)) => tag == fields,
            _ => false,
        }
    }
}

/// So many bytes from a place on.
pub(in crate::steering) fn part<const N: usize>(bytes: &[u8; ENTRY], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// The actions, in the order in which they stand.
fn actions(bytes: &[u8]) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (action, length) = Action::decode(&bytes[at..])?;
        actions.extend(action);
        at += length;
    }
    Ok(actions)
}

impl Table {
    /// Whether the place depends on the packet.
    pub(in crate::steering) fn hashes(&self) -> bool {
        self.entries > 1 && (self.byte_mask != 0 || matches!(self.lookup, Lookup::Defined(_)))
    }

    /// The address of the entry that fields hash to.
    pub(in crate::steering) fn place(&self, seen: &Seen) -> u64 {
        if !self.hashes() {
            return self.base;
        }
        let hash = match seen {
            Seen::Fixed(fields) => {
                let mut hashed = *fields;
                for (place, byte) in hashed.iter_mut().enumerate() {
                    if self.byte_mask << place & 0x8000 == 0 {
                        *byte = 0;
                    }
                }
                crc32(&hashed)
            }
            Seen::Defined(fields) => crc32(fields),
        };
        self.base + u64::from(hash.swap_bytes()) % self.entries * 64
    }
}

/// CRC-32 with the reflected polynomial of Ethernet, begun at 0 and not inverted.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

impl Lookup {
    fn fixed(mode: u32, index: u8) -> Self {
        Self::Fixed(u16::from(mode != 0) << 8 | u16::from(index))
    }

    /// What it sees of a packet that nobody looks at.
    pub(in crate::steering) fn nothing(self) -> Seen {
        match self {
            Self::Fixed(_) => Seen::Fixed([0; 16]),
            Self::Defined(_) => Seen::Defined([0; FIELDS]),
        }
    }

    /// In one number, as libmlx5 has it.
    pub(in crate::steering) fn number(self) -> u16 {
        match self {
            Self::Fixed(number) => number,
            Self::Defined(number) => 0x400 | u16::from(number),
        }
    }
}

/// What an entry does on a hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::steering) enum Action {
    Tag(u32),
    Count(u32),
    /// One of set, add and copy.
    Rewrite([u8; 8]),
    /// So many of them, from this line of the memory of lists on.
    RewriteList {
        line: u64,
        actions: usize,
    },
    /// So many of them, from this line of the memory of patterns on, with values from arguments of 64 bytes each.
    RewriteByPattern {
        line: u64,
        argument: u32,
        actions: usize,
    },
    /// Takes everything up to the inner IP packet away, and puts so many bytes of zero in its place, for an Ethernet header that
    /// rewrites then fill in.
    ReplaceTunnel {
        ethernet: usize,
    },
    /// Colored by a meter in an ASO object.
    Meter(Metered),
    /// Looked at by an ASO object that tracks a connection.
    Track(Tracked),
    /// Whether a line of an ASO object has been hit before goes into a register C, and then it has been.
    FirstHit {
        object: u32,
        line: u16,
        register: usize,
        set: bool,
    },
    Insert {
        anchor: Anchor,
        offset: usize,
        bytes: [u8; 4],
    },
    Remove {
        anchor: Anchor,
        offset: usize,
        bytes: usize,
    },
    RemoveUpTo {
        start: Anchor,
        end: Anchor,
    },
    /// Puts in what a packet reformat context holds.
    InsertContext {
        id: u32,
        anchor: Anchor,
        offset: usize,
        bytes: usize,
        encapsulates: bool,
    },
}

/// Where offsets count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::steering) enum Anchor {
    Start,
    FirstVlan,
    Ip,
    InnerEthernet,
    InnerIp,
}

impl Action {
    /// One of a list in memory that is no rewrite: format 0 has none of those.
    pub(in crate::steering) fn in_list(bytes: &[u8; 8], format: Format) -> Result<Option<Self>, String> {
        const REMOVE: u8 = 0x08;
        const REMOVE_UP_TO: u8 = 0x09;
        const INSERT: u8 = 0x0a;
        if format == Format::Zero || !matches!(bytes[0], REMOVE | REMOVE_UP_TO | INSERT) {
            return Ok(None);
        }
        Self::decode(bytes).map(|(action, _)| action)
    }

    /// One action, and how many bytes it takes. Sizes and offsets are in units of 2 bytes.
    fn decode(bytes: &[u8]) -> Result<(Option<Self>, usize), String> {
        const SINGLE: usize = 4;
        const DOUBLE: usize = 8;
        const ENCAPSULATES: u32 = 1;
        let data = || {
            let mut data = [0; 4];
            data.iter_mut().zip(&bytes[SINGLE..]).for_each(|(byte, given)| *byte = *given);
            data
        };
        let anchor = |at| Anchor::decode(Bits::new(at, 6).u32(bytes));
        let halves = |at, width| Bits::new(at, width).u16(bytes);
        let id = Bits::new(0, 8).u32(bytes);
        Ok(match id {
            0x00 => (None, SINGLE),
            0x08 => {
                let (offset, size) = (usize::from(halves(0x12, 7)) * 2, usize::from(halves(0x1a, 6)) * 2);
                (Some(Self::Remove { anchor: anchor(0x0a)?, offset, bytes: size }), SINGLE)
            }
            0x09 => (Some(Self::RemoveUpTo { start: anchor(0x0a)?, end: anchor(0x12)? }), SINGLE),
            0x0c => (Some(Self::Tag(Bits::new(8, 24).u32(bytes))), SINGLE),
            0x14 => (Some(Self::Count(Bits::new(8, 24).u32(bytes))), SINGLE),
            0x0f => {
                let line = u64::from(Bits::new(0x10, 16).u32(bytes));
                (Some(Self::RewriteList { line, actions: usize::from(Bits::new(8, 8).u8(bytes)) }), SINGLE)
            }
            0x0e if bytes.len() >= DOUBLE => {
                let action = Self::RewriteByPattern {
                    line: u64::from(Bits::new(0x08, 24).u32(bytes)),
                    argument: Bits::new(0x28, 24).u32(bytes),
                    actions: usize::from(Bits::new(0x20, 8).u8(bytes)),
                };
                (Some(action), DOUBLE)
            }
            0x12 if bytes.len() >= DOUBLE => (Some(aso(bytes)?), DOUBLE),
            0x05..=0x07 if bytes.len() >= DOUBLE => {
                let mut action = [0; DOUBLE];
                action.copy_from_slice(&bytes[..DOUBLE]);
                (Some(Self::Rewrite(action)), DOUBLE)
            }
            0x0a if bytes.len() >= DOUBLE => {
                let offset = usize::from(halves(0x10, 7)) * 2;
                (Some(Self::Insert { anchor: anchor(0x0a)?, offset, bytes: data() }), DOUBLE)
            }
            0x0b if bytes.len() >= DOUBLE => {
                let action = Self::InsertContext {
                    id: u32::from_be_bytes(data()),
                    anchor: anchor(0x0a)?,
                    offset: usize::from(halves(0x10, 7)) * 2,
                    bytes: usize::from(halves(0x17, 6)) * 2,
                    encapsulates: Bits::new(0x1d, 3).u32(bytes) == ENCAPSULATES,
                };
                (Some(action), DOUBLE)
            }
            id => return Err(format!("action {id:#04x} is not modelled")),
        })
    }
}

/// An object of asynchronous operations, by its number and type; of the types, connection tracking, meters and first
/// hits are modelled.
fn aso(bytes: &[u8]) -> Result<Action, String> {
    const CONNECTION_TRACKING: u32 = 1;
    const FLOW_METER: u32 = 2;
    const FIRST_HIT: u32 = 4;
    const BEFORE_DIRECTION: Bits = Bits::new(0x28, 23);
    const DIRECTION: Bits = Bits::new(0x3f, 1);
    const ONLY_READ: Bits = Bits::new(0x36, 1);
    const ACTION: Bits = Bits::new(0x3c, 1);
    const INITIAL_COLOR: Bits = Bits::new(0x3d, 2);
    let object = Bits::new(0x08, 24).u32(bytes);
    // Registers go by pairs, of which the odd one is given.
    let register = usize::from(Bits::new(0x20, 2).u8(bytes)) * 2 + 1;
    match Bits::new(0x24, 4).u32(bytes) {
        CONNECTION_TRACKING if BEFORE_DIRECTION.is_set(bytes) => {
            Err("reserved bits of an ASO of connection tracking are set".to_owned())
        }
        CONNECTION_TRACKING => {
            let direction = if DIRECTION.is_set(bytes) { Direction::Responder } else { Direction::Initiator };
            Ok(Action::Track(Tracked { object, direction, register }))
        }
        FIRST_HIT => Ok(Action::FirstHit {
            object,
            line: Bits::new(0x37, 9).u16(bytes),
            register,
            set: !ONLY_READ.is_set(bytes),
        }),
        FLOW_METER if ACTION.is_set(bytes) => Err("the action of a meter is not modelled".to_owned()),
        FLOW_METER if !Color::begins(INITIAL_COLOR.u32(bytes)) => {
            Err("packets that come to a meter yellow or red are not modelled".to_owned())
        }
        FLOW_METER => Ok(Action::Meter(Metered { object, meter: usize::from(Bits::new(0x3f, 1).u8(bytes)), register })),
        kind => Err(format!("ASO of type {kind} is not modelled")),
    }
}

impl Anchor {
    fn decode(number: u32) -> Result<Self, String> {
        Ok(match number {
            0x00 => Self::Start,
            0x02 => Self::FirstVlan,
            0x07 => Self::Ip,
            0x13 => Self::InnerEthernet,
            0x19 => Self::InnerIp,
            number => return Err(format!("anchor {number:#04x} is not modelled")),
        })
    }

    pub(in crate::steering) fn find(self, headers: &Headers) -> Option<usize> {
        let inner = headers.inner.as_ref();
        match self {
            Self::Start => Some(0),
            Self::FirstVlan => headers.outer.vlans.first().map(|vlan| vlan.at),
            Self::Ip => headers.outer.ip.map(|ip| ip.at),
            Self::InnerEthernet => inner?.ethernet.map(|ethernet| ethernet.at),
            Self::InnerIp => inner?.ip.map(|ip| ip.at),
        }
    }
}
