//! Queues and pairs of them, as verbs have them.

use std::fmt;

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::Field;

use crate::command::{Command, made, send};
use crate::request::Refused;

/// What is made for a pair, in the order in which it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueuePair {
    pub(crate) domain: Option<u64>,
    pub(crate) interface: Option<u64>,
    pub(crate) send: Option<u64>,
    pub(crate) receive: Option<u64>,
    pub(crate) tir: Option<u64>,
    pub(crate) signals_all: bool,
    pub(crate) room: u32,
    pub(crate) state: QueuePairState,
    pub(crate) receives: QueueState,
    pub(crate) sends: QueueState,
}

/// A reliable connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) signals_all: bool,
    /// As far as a program has brought it, or as the device has said last.
    pub(crate) state: QueuePairState,
    /// What a query is answered with, but for the state (`struct ib_uverbs_query_qp_resp`).
    pub(crate) answer: [u8; 128],
}

impl Connection {
    pub(crate) fn new(number: u64, signals_all: bool) -> Self {
        Self { number, signals_all, state: QueuePairState::Reset, answer: [0; 128] }
    }
}

/// Of one of its queues, by the PRM's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum QueueState {
    #[default]
    Reset = 0,
    Ready = 1,
    Error = 3,
}

impl QueueState {
    pub(crate) fn new(number: u64) -> Result<Self, Refused> {
        match number {
            0 => Ok(Self::Reset),
            1 => Ok(Self::Ready),
            3 => Ok(Self::Error),
            other => Err(Refused::new(Errno::EINVAL, format!("there is no state {other} of a queue"))),
        }
    }

    /// One that was never ready does not fail.
    pub(crate) fn after_error(self) -> Self {
        if self == Self::Reset { Self::Reset } else { Self::Error }
    }
}

/// `enum ib_qp_state`, as far as such pairs have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum QueuePairState {
    #[default]
    Reset,
    Initialized,
    ReadyToReceive,
    ReadyToSend,
    /// Sending has failed, and receiving has not.
    SendError,
    Error,
}

impl QueuePairState {
    pub(crate) fn new(number: u8) -> Result<Self, Refused> {
        Ok(match number {
            0 => Self::Reset,
            1 => Self::Initialized,
            2 => Self::ReadyToReceive,
            3 => Self::ReadyToSend,
            5 => Self::SendError,
            6 => Self::Error,
            other => return Err(Refused::new(Errno::EOPNOTSUPP, format!("state {other} of a QP is not modelled"))),
        })
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Reset => 0,
            Self::Initialized => 1,
            Self::ReadyToReceive => 2,
            Self::ReadyToSend => 3,
            Self::SendError => 5,
            Self::Error => 6,
        }
    }
}

impl fmt::Display for QueuePair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "QP {:#x}", self.number())
    }
}

impl QueuePair {
    /// As verbs number it.
    pub(crate) fn number(&self) -> u64 {
        self.send.or(self.receive).unwrap_or_default()
    }

    /// The TIR that leads to its receive queue.
    pub(crate) fn tir(&self) -> Option<u64> {
        self.tir
    }

    /// Makes a TIR with these fields, and a transport domain for it.
    pub(crate) fn receive_by_hash(
        &mut self,
        hca: &mut Hca,
        mut fields: Vec<(Field, u64)>,
    ) -> Result<Option<u64>, Refused> {
        let domain = made(hca, &Command::new(CREATE_TRANSPORT_DOMAIN, &l::plain::LAYOUT, &[]))?;
        self.domain = Some(domain);
        fields.push((l::create_tir::TRANSPORT_DOMAIN, domain));
        self.receive_by(hca, &fields)
    }

    /// Makes a TIR; where in steering memory entries lead to it.
    pub(crate) fn receive_by(&mut self, hca: &mut Hca, fields: &[(Field, u64)]) -> Result<Option<u64>, Refused> {
        let answer = send(hca, &Command::new(CREATE_TIR, &l::create_tir::LAYOUT, fields))?;
        let field = |field: Field| field.read(&answer).unwrap_or_default();
        self.tir = Some(field(l::object_out::ID));
        let address = field(l::create_tir_out::ICM_ADDRESS_39_32) << 32 | field(l::create_tir_out::ICM_ADDRESS_31_0);
        Ok((address != 0).then_some(address))
    }

    /// Whether it only spreads frames over queues that are not its own.
    pub(crate) fn hashes(&self) -> bool {
        self.tir.is_some() && self.receive.is_none()
    }

    pub(crate) fn destroy(&self, hca: &mut Hca) -> Result<(), Refused> {
        let parts = [
            (0x902, self.tir),
            (0x90a, self.receive),
            (0x906, self.send),
            (0x914, self.interface),
            (0x817, self.domain),
        ];
        parts.into_iter().filter_map(|(opcode, id)| Some((opcode, id?))).try_for_each(|(opcode, id)| {
            send(hca, &Command::new(opcode, &l::object::LAYOUT, &[(l::object::ID, id)])).map(|_| ())
        })
    }
}

pub(crate) const CREATE_TRANSPORT_DOMAIN: u16 = 0x816;

pub(crate) const CREATE_TIR: u16 = 0x900;

/// A receive queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkQueue {
    pub(crate) id: u64,
    pub(crate) state: QueueState,
}
