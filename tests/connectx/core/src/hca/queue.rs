//! What the device knows of its queues.

use std::collections::BTreeMap;

use super::failed::Flushing;
use super::hash::Hash;
use super::key::{Key, Pages};
use super::pair::QueuePair;
use super::ring::Ring;
use super::shared::SharedReceives;
use crate::command::{Failure, Status, require};
use crate::objects::Kind;

/// All queues, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) events: BTreeMap<u32, EventQueue>,
    pub(crate) completions: BTreeMap<u32, CompletionQueue>,
    pub(crate) sends: BTreeMap<u32, SendQueue>,
    pub(crate) receives: BTreeMap<u32, ReceiveQueue>,
    pub(crate) pairs: BTreeMap<u32, QueuePair>,
    /// Receive queues that queue pairs share.
    pub(crate) shared: BTreeMap<u32, SharedReceives>,
    /// Addresses of RoCE, by their index.
    pub(crate) addresses: BTreeMap<u16, [u8; 16]>,
    /// How often a queue pair had no buffer for its other side.
    pub(crate) rnr: u64,
    pub(crate) hairpins: Hairpins,
    /// What memory keys stand for, by the key without its lowest byte.
    pub(crate) keys: BTreeMap<u32, Key>,
    pub(crate) umems: BTreeMap<u32, Pages>,
    /// How frames are spread over receive queues, by TIR.
    pub(crate) tirs: BTreeMap<u32, Tir>,
    /// Receive queues, by the table that lists them.
    pub(crate) tables: BTreeMap<u32, Vec<u32>>,
    /// Frames for which there was no buffer, by Q counter.
    pub(crate) out_of_buffer: BTreeMap<u32, u32>,
    /// Interrupt vectors that are to be raised.
    pub(crate) interrupts: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct EventQueue {
    pub(crate) ring: Ring,
    /// Bit n: events of type n go here. Nothing set: completions.
    pub(crate) mask: [u64; 4],
    pub(crate) uar: u32,
    pub(crate) vector: u32,
    pub(crate) producer: u32,
    pub(crate) consumer: u32,
    pub(crate) armed: bool,
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) ring: Ring,
    pub(crate) eq: u32,
    /// Where the driver keeps its consumer counter.
    pub(crate) doorbell_record: u64,
    pub(crate) producer: u32,
    pub(crate) armed: bool,
    /// Of requests for events that are found in the doorbell record: the last one's number.
    pub(crate) request: Option<u32>,
    /// An event is wanted only for errors and for what is marked for one (solicited).
    pub(crate) only_marked: bool,
    /// Where behind the last such completion is.
    pub(crate) behind_marked: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) ring: Ring,
    pub(crate) cq: u32,
    pub(crate) domain: u32,
    /// The driver's own number of it, for completions.
    pub(crate) user_index: u32,
    /// Where the driver keeps its producer counter.
    pub(crate) doorbell_record: u64,
    pub(crate) consumer: u16,
    pub(crate) state: State,
    /// What becomes of what is posted where it has failed.
    pub(crate) flushing: Flushing,
    /// A request may have several frames.
    pub(crate) several: bool,
}

#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) ring: Ring,
    pub(crate) cq: u32,
    /// The driver's own number of it, for completions.
    pub(crate) user_index: u32,
    /// Where the driver keeps its producer counter.
    pub(crate) doorbell_record: u64,
    pub(crate) consumer: u16,
    pub(crate) state: State,
    /// What becomes of what is posted where it has failed.
    pub(crate) flushing: Flushing,
    /// A customer's tag goes from the frame into the completion.
    pub(crate) strips_vlan: bool,
    /// The Q counter for frames that find no buffer; 0 for none.
    pub(crate) counter: u32,
}

/// Of a send or receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Reset,
    Ready,
    Error,
}

impl State {
    fn new(value: u64) -> Result<Self, Failure> {
        match value {
            0 => Ok(Self::Reset),
            1 => Ok(Self::Ready),
            3 => Ok(Self::Error),
            other => Err(Failure::new(Status::BadParameter, 0x0501, format!("no queue state {other}"))),
        }
    }

    pub(super) fn value(self) -> u64 {
        match self {
            Self::Reset => 0,
            Self::Ready => 1,
            Self::Error => 3,
        }
    }

    /// The step from `from` to `to`, of a queue that is in `self`.
    pub(crate) fn step(self, from: u64, to: u64) -> Result<Self, Failure> {
        let (from, to) = (Self::new(from)?, Self::new(to)?);
        let here = self == from;
        require(here, Status::BadResourceState, 0x0502, format!("the queue is {self:?}, not {from:?}"))?;
        let forward = from == Self::Reset && to == Self::Error;
        require(!forward, Status::BadResourceState, 0x0503, "a queue that was never ready cannot fail")?;
        Ok(to)
    }
}

/// How frames are spread over receive queues.
#[derive(Debug)]
pub(crate) struct Tir {
    pub(crate) dispatch: Dispatch,
    pub(crate) hash: Option<Hash>,
}

/// Where a TIR leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dispatch {
    /// A receive queue.
    Queue(u32),
    /// A table of them, of which the hash picks one.
    Table(u32),
}

/// Queues of each way, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Hairpins {
    pub(super) receives: BTreeMap<u32, Hairpin>,
    pub(super) sends: BTreeMap<u32, Hairpin>,
    /// How often the frame that is under way has come back.
    pub(super) turns: usize,
}

#[derive(Debug)]
pub(super) struct Hairpin {
    pub(super) state: State,
    /// The queue of the other way that it is bound to.
    pub(super) peer: u32,
}

impl Hairpins {
    pub(super) fn of(&mut self, kind: Kind) -> &mut BTreeMap<u32, Hairpin> {
        if kind == Kind::Rq { &mut self.receives } else { &mut self.sends }
    }

    pub(crate) fn forget(&mut self, kind: Kind, id: u32) {
        self.of(kind).remove(&id);
    }

    pub(crate) fn receives(&self, id: u32) -> bool {
        self.receives.contains_key(&id)
    }

    /// The send queue by which frames of a receive queue leave, if both are ready and bound to each other.
    pub(super) fn way_out(&self, receive: u32) -> Option<u32> {
        let ready = |hairpin: &&Hairpin| hairpin.state == State::Ready;
        let peer = self.receives.get(&receive).filter(ready)?.peer;
        self.sends.get(&peer).filter(ready).filter(|send| send.peer == receive).map(|_| peer)
    }
}
