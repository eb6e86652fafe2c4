//! Flow tables, groups and entries, and what becomes of a packet in them.
//!
//! [`Steering::command`] takes the PRM commands that build the tables, checked as firmware checks them; [`Steering::receive`]
//! walks a packet through what they built, and says at every step what it did and why.

mod failure;

pub use failure::{Failure, status};

/// Where a packet enters the device's switch, or leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// The network: the uplink, vport 0xffff.
    Wire,
    /// The function behind a vport: 0 is the host's PF, 0xfffe an embedded CPU's.
    Vport(u16),
}

/// What became of one packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walk {
    /// Frames that left the switch, in order, and where.
    pub sent: Vec<(Port, Vec<u8>)>,
    /// How it came to that. Each prints as one line.
    pub steps: Vec<Step>,
}

/// One step of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {}

/// All steering objects of one device.
#[derive(Debug, Default)]
pub struct Steering {}

impl Steering {
    /// Whether `opcode` is a command for [`Self::command`].
    pub fn handles(opcode: u16) -> bool {
        matches!(opcode, 0x827..=0x828 | 0x92f..=0x942)
    }

    /// Carries out one command. `input` is the whole input mailbox from the opcode on; the answer is the whole output
    /// mailbox, with status and syndrome zero.
    pub fn command(&mut self, opcode: u16, _uid: u16, _input: &[u8]) -> Result<Vec<u8>, Failure> {
        Err(Failure {
            status: status::BAD_OPERATION,
            syndrome: 0,
            reason: format!("no steering command {opcode:#x} yet"),
        })
    }

    /// Walks a frame (without FCS) that arrives at `from` through the tables.
    pub fn receive(&mut self, _from: Port, _frame: &[u8]) -> Walk {
        Walk::default()
    }

    /// How many steering objects exist, for a leak check.
    pub fn objects_left(&self) -> usize {
        0
    }
}
