//! Which way a packet goes, and what tracking says of it.

use std::fmt;

/// The end that a packet comes from, by the PRM's numbers in entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The one that sent the SYN.
    Initiator = 0,
    /// The one that answered it.
    Responder = 1,
}

/// What tracking says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is of the connection.
    Valid {
        /// The connection has another state from now on.
        changed: bool,
    },
    /// It is not of the connection, as the connection is now, which stays as it is.
    Invalid,
    /// The connection is not tracked: it is frozen, or nobody has written it.
    Untracked,
    /// It is no TCP, or its header makes no sense.
    Bad,
}

impl Outcome {
    /// Writes it into a register, as DPDK's driver reads it there (`MLX5_CT_SYNDROME_*`): two bits for whether it is valid, invalid or
    /// untracked, and in the lowest bits whether the state changed and whether the packet is bad. Four bits in between are reserved;
    /// those above stay.
    ///
    /// That a bad packet is invalid, too, is our reading: that driver refuses rules that want bad packets to be valid.
    pub(crate) fn put(self, register: &mut u32) {
        const BAD: u32 = 1 << 0;
        const CHANGED: u32 = 1 << 1;
        const INVALID: u32 = 1 << 6;
        const UNTRACKED: u32 = 2 << 6;
        let bits = match self {
            Self::Valid { changed: false } => 0,
            Self::Valid { changed: true } => CHANGED,
            Self::Invalid => INVALID,
            Self::Untracked => UNTRACKED,
            Self::Bad => INVALID | BAD,
        };
        *register = *register & !0xff | bits;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Valid { changed: false } => "valid",
            Self::Valid { changed: true } => "valid, of another state",
            Self::Invalid => "invalid",
            Self::Untracked => "untracked",
            Self::Bad => "bad",
        })
    }
}

/// An object as an entry names it, and where what came of it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// The object's number.
    pub(crate) object: u32,
    pub(crate) direction: Direction,
    /// Register C.
    pub(crate) register: usize,
}
