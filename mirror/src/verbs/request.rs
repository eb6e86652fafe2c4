//! Work requests.

use std::ptr::null_mut;

use rdma_sys as sys;

use super::error::CallError;
use super::memory::Buffer;

/// A request to send.
#[derive(Debug)]
pub struct SendRequest<'a> {
    /// A number that its completion has.
    pub tag: u64,
    /// What is done with the data.
    pub operation: Operation,
    /// Data that goes along, and that the other side finds in its completion.
    pub immediate: Option<u32>,
    /// The data.
    pub payload: Payload<'a>,
    /// Whether it gives a completion of its own if it is carried out. One that does not comes back with the next that does. A queue pair
    /// signals a request anyway if half of its room would else be taken by requests that are not.
    pub is_signalled: bool,
    /// Whether the other side hears of it also if that has asked for solicited events only.
    pub is_solicited: bool,
}

/// What is done with the data of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It goes into the next receive request of the other side.
    Send,
    /// It goes into memory of the other side, which hears of it if there is immediate data; that takes a receive request, too.
    Write(Remote),
}

/// A place in memory of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Its address there.
    pub address: u64,
    /// The key that it is under there.
    pub key: u32,
}

/// Data of a request.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Buffers, one behind the other, which the queue pair has until the request is over.
    Buffers(Vec<Buffer>),
    /// Bytes that are copied into the request itself. There is room for as many as [`Room::inline`](super::Room::inline) says.
    Inline(&'a [u8]),
}

/// A request to receive.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// A number that its completion has.
    pub tag: u64,
    /// Where the message goes, one behind the other.
    pub buffers: Vec<Buffer>,
}

/// Of a chain of requests, those that were not posted: the first is the one that was refused (`bad_wr`). Those before it were posted.
#[derive(Debug, thiserror::Error)]
#[error("request {posted} of the chain is refused: {error}")]
pub struct PostError<R> {
    /// How many were posted.
    pub posted: usize,
    /// The others, as they were.
    pub rest: Vec<R>,
    /// Why the first of these was refused.
    pub error: CallError,
}

impl Payload<'_> {
    pub(super) fn segments(&self) -> Result<Vec<sys::ibv_sge>, CallError> {
        match self {
            Self::Buffers(buffers) => buffers.iter().map(Buffer::segment).collect(),
            Self::Inline(bytes) => {
                let too_long = |_| CallError::new("ibv_post_send", std::io::ErrorKind::InvalidInput);
                let length = u32::try_from(bytes.len()).map_err(too_long)?;
                Ok(vec![sys::ibv_sge { addr: bytes.as_ptr().addr() as u64, length, lkey: 0 }])
            }
        }
    }
}

impl SendRequest<'_> {
    /// As libibverbs has it, but for the link to the next. The segments must live as long.
    pub(super) fn raw(&self, number: u64, is_signalled: bool, segments: &mut [sys::ibv_sge]) -> sys::ibv_send_wr {
        use sys::ibv_send_flags as flags;
        use sys::ibv_wr_opcode as opcode;
        let opcode = match (self.operation, self.immediate) {
            (Operation::Send, None) => opcode::IBV_WR_SEND,
            (Operation::Send, Some(_)) => opcode::IBV_WR_SEND_WITH_IMM,
            (Operation::Write(_), None) => opcode::IBV_WR_RDMA_WRITE,
            (Operation::Write(_), Some(_)) => opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
        };
        let remote = match self.operation {
            Operation::Send => Remote { address: 0, key: 0 },
            Operation::Write(remote) => remote,
        };
        let is_inline = matches!(self.payload, Payload::Inline(_));
        let wanted = [
            (is_signalled, flags::IBV_SEND_SIGNALED),
            (self.is_solicited, flags::IBV_SEND_SOLICITED),
            (is_inline, flags::IBV_SEND_INLINE),
        ];
        sys::ibv_send_wr {
            wr_id: number,
            next: null_mut(),
            sg_list: segments.as_mut_ptr(),
            num_sge: i32::try_from(segments.len()).unwrap_or(i32::MAX),
            opcode,
            send_flags: wanted.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag.0),
            imm_data_invalidated_rkey_union: sys::imm_data_invalidated_rkey_union_t {
                imm_data: self.immediate.unwrap_or_default().to_be(),
            },
            wr: sys::wr_t { rdma: sys::rdma_t { remote_addr: remote.address, rkey: remote.key } },
            qp_type: sys::qp_type_t { xrc: sys::xrc_t { remote_srqn: 0 } },
            bind_mw_tso_union: sys::bind_mw_tso_union_t { tso: sys::tso_t { hdr: null_mut(), hdr_sz: 0, mss: 0 } },
        }
    }

    /// The buffers that it keeps.
    pub(super) fn into_buffers(self) -> Vec<Buffer> {
        match self.payload {
            Payload::Buffers(buffers) => buffers,
            Payload::Inline(_) => Vec::new(),
        }
    }
}

/// Receive requests as libibverbs has them, linked.
pub(super) struct ReceiveChain {
    raw: Vec<sys::ibv_recv_wr>,
    _segments: Vec<Vec<sys::ibv_sge>>,
}

impl ReceiveChain {
    /// With these numbers.
    pub(super) fn new(requests: &[ReceiveRequest], numbers: &[u64]) -> Result<Self, CallError> {
        let segments = requests.iter().map(|request| request.buffers.iter().map(Buffer::segment).collect());
        let mut segments = segments.collect::<Result<Vec<Vec<_>>, _>>()?;
        let mut raw: Vec<_> = segments
            .iter_mut()
            .zip(numbers)
            .map(|(segments, number)| sys::ibv_recv_wr {
                wr_id: *number,
                next: null_mut(),
                sg_list: segments.as_mut_ptr(),
                num_sge: i32::try_from(segments.len()).unwrap_or(i32::MAX),
            })
            .collect();
        let first = raw.as_mut_ptr();
        for place in 1..raw.len() {
            raw[place - 1].next = first.wrapping_add(place);
        }
        Ok(Self { raw, _segments: segments })
    }

    /// The place of a request in the chain; 0 for one that is not in it.
    pub(super) fn place(&self, request: *const sys::ibv_recv_wr) -> usize {
        self.raw.iter().position(|own| std::ptr::eq(own, request)).unwrap_or(0)
    }

    pub(super) fn first(&mut self) -> *mut sys::ibv_recv_wr {
        if self.raw.is_empty() { null_mut() } else { self.raw.as_mut_ptr() }
    }
}
