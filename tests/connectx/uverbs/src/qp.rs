//! Queue pairs by verbs, of the kind that sends and receives frames as they are (`IBV_QPT_RAW_PACKET`).
//!
//! Such a pair is nothing to the device: the kernel makes a send queue, and a receive queue with a TIR that leads to it.

use std::fmt;

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::Field;

use super::flow::may_steer;
use super::ids::{UHW_IN, UHW_OUT};
use super::kernel::{Command, made, pages, send};
use super::methods::{Object, pin};
use super::request::{Native, NativeOut, Refused, Request};
use super::{ContextId, State, work_queues};

/// What is made for a pair, in the order in which it is.
#[derive(Debug, Clone, Default)]
pub(super) struct QueuePair {
    domain: Option<u64>,
    interface: Option<u64>,
    send: Option<u64>,
    receive: Option<u64>,
    tir: Option<u64>,
    signals_all: bool,
    room: u32,
    state: QueuePairState,
    receives: QueueState,
    sends: QueueState,
}

/// Of one of its queues, by the PRM's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum QueueState {
    #[default]
    Reset = 0,
    Ready = 1,
    Error = 3,
}

impl QueueState {
    fn new(number: u64) -> Result<Self, Refused> {
        match number {
            0 => Ok(Self::Reset),
            1 => Ok(Self::Ready),
            3 => Ok(Self::Error),
            other => Err(Refused::new(Errno::EINVAL, format!("there is no state {other} of a queue"))),
        }
    }

    /// One that was never ready does not fail.
    fn after_error(self) -> Self {
        if self == Self::Reset { Self::Reset } else { Self::Error }
    }
}

/// `enum ib_qp_state`, as far as such pairs have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum QueuePairState {
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
    fn new(number: u8) -> Result<Self, Refused> {
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
}

impl QueuePairState {
    fn number(self) -> u8 {
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

const CREATE_TRANSPORT_DOMAIN: u16 = 0x816;
const CREATE_TIS: u16 = 0x912;
const CREATE_SQ: u16 = 0x904;
const CREATE_RQ: u16 = 0x908;
const CREATE_TIR: u16 = 0x900;

impl QueuePair {
    /// As verbs number it.
    fn number(&self) -> u64 {
        self.send.or(self.receive).unwrap_or_default()
    }

    /// The TIR that leads to its receive queue.
    pub(super) fn tir(&self) -> Option<u64> {
        self.tir
    }

    /// Makes a TIR with these fields, and a transport domain for it.
    pub(super) fn receive_by_hash(
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
    fn receive_by(&mut self, hca: &mut Hca, fields: &[(Field, u64)]) -> Result<Option<u64>, Refused> {
        let answer = send(hca, &Command::new(CREATE_TIR, &l::create_tir::LAYOUT, fields))?;
        let field = |field: Field| field.read(&answer).unwrap_or_default();
        self.tir = Some(field(l::object_out::ID));
        let address = field(l::create_tir_out::ICM_ADDRESS_39_32) << 32 | field(l::create_tir_out::ICM_ADDRESS_31_0);
        Ok((address != 0).then_some(address))
    }

    /// Whether it only spreads frames over queues that are not its own.
    fn hashes(&self) -> bool {
        self.tir.is_some() && self.receive.is_none()
    }

    pub(super) fn destroy(&self, hca: &mut Hca) -> Result<(), Refused> {
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

/// What a program says of a pair (`struct mlx5_ib_create_qp`).
struct Wanted {
    receives: u64,
    sends: u64,
    record: u64,
    sends_number: u32,
    receives_number: u32,
    log_receive: u32,
    user_index: u32,
    uar: u32,
    pd: u64,
}

impl Wanted {
    fn read(given: &[u8], pd: u64) -> Result<Self, Refused> {
        const IN_COMPLETION: u32 = 1 << 1;
        const PAGE_OF_DOORBELLS: u32 = 1 << 10;
        let native = Native(given);
        let short = || Refused::new(Errno::EINVAL, "the driver's part of QP_CREATE ends too early");
        let word = |at| native.u32(at).ok_or_else(short);
        let wide = |at| native.u64(at).ok_or_else(short);
        let flags = word(28)?;
        // Data in a completion is for other services, and asked for always.
        if flags & !IN_COMPLETION != PAGE_OF_DOORBELLS {
            return Err(Refused::new(Errno::EOPNOTSUPP, format!("flags {flags:#x} of a QP are not modelled")));
        }
        Ok(Self {
            receives: wide(0)?,
            record: wide(8)?,
            sends_number: word(16)?,
            receives_number: word(20)?,
            log_receive: word(24)?,
            user_index: word(32)?,
            uar: word(36)?,
            sends: wide(40)?,
            pd,
        })
    }
}

pub(super) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const HANDLE: u16 = 0;
    const PD: u16 = 2;
    const SEND_COMPLETIONS: u16 = 4;
    const RECEIVE_COMPLETIONS: u16 = 5;
    const TABLE: u16 = 6;
    const ROOM: u16 = 8;
    const KIND: u16 = 9;
    const FLAGS: u16 = 10;
    const ROOM_ANSWER: u16 = 13;
    const NUMBER: u16 = 14;
    const RAW_PACKET: u64 = 8;
    const SIGNAL_ALL: u64 = 1 << 12;
    let kind = request.value(KIND)?;
    if kind != RAW_PACKET {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("QPs of type {kind} are not modelled")));
    }
    may_steer(state)?;
    // What a program signals is in its requests; the driver needs not know.
    let flags = request.value_or(FLAGS, 0);
    if flags & !SIGNAL_ALL != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("flags {flags:#x} of a QP are not modelled")));
    }
    let pd = state.pd(context, request.value(PD)?)?;
    let mut pair = QueuePair { signals_all: flags & SIGNAL_ALL != 0, ..QueuePair::default() };
    let mut used = Vec::new();
    let made = if request.has(TABLE) {
        if request.has(SEND_COMPLETIONS) {
            return Err(Refused::new(Errno::EINVAL, "a QP over a table of WQs sends nothing"));
        }
        used.push(request.value_u32(TABLE)?);
        work_queues::create_hashing(state, context, request, &mut pair, request.value(TABLE)?)
    } else {
        let wanted = Wanted::read(&request.input(UHW_IN)?, pd)?;
        let [send_cq, receive_cq] = [SEND_COMPLETIONS, RECEIVE_COMPLETIONS]
            .map(|attribute| state.completion_queue(context, request.value(attribute)?));
        pin(request, wanted.record, 8)?;
        pair.room = wanted.receives_number;
        wanted.make(&mut state.hca, request, &mut pair, (send_cq?, receive_cq?))
    };
    let address = match made {
        Ok(address) => address,
        Err(refused) => {
            pair.destroy(&mut state.hca)?;
            return Err(refused);
        }
    };
    let [number, send, receive, interface, tir] =
        [Some(pair.number()), pair.send, pair.receive, pair.interface, pair.tir]
            .map(|id| u32::try_from(id.unwrap_or_default()).unwrap_or_default());
    // Which of them there are: TIR, TIS, receive queue, send queue, the TIR's address.
    let there = [pair.tir, pair.interface, pair.receive, pair.send, address];
    let there = (0..).zip(there).fold(0, |there, (bit, part)| there | u32::from(part.is_some()) << bit);
    let handle = state.keep_using(context, Object::QueuePair(pair), used)?;
    request.answer(HANDLE, handle)?;
    request.output(ROOM_ANSWER, &request.input(ROOM)?)?;
    request.output(NUMBER, &number.to_le_bytes())?;
    let answer = NativeOut::new(40)
        .u32(8, there)
        .u32(12, tir)
        .u32(16, interface)
        .u32(20, receive)
        .u32(24, send)
        .u64(32, address.unwrap_or_default());
    request.output(UHW_OUT, answer.bytes())
}

impl Wanted {
    /// Makes all that a pair is; where in steering memory entries lead to its TIR.
    fn make(
        &self,
        hca: &mut Hca,
        request: &Request<'_>,
        pair: &mut QueuePair,
        (send_cq, receive_cq): (u64, u64),
    ) -> Result<Option<u64>, Refused> {
        const CYCLIC: u64 = 1;
        const LOG_BLOCK: u32 = 6;
        let domain = made(hca, &Command::new(CREATE_TRANSPORT_DOMAIN, &l::plain::LAYOUT, &[]))?;
        pair.domain = Some(domain);
        if self.sends_number > 0 {
            use l::create_sq as f;
            let fields = [(l::create_tis::TRANSPORT_DOMAIN, domain), (l::create_tis::PD, self.pd)];
            let interface = made(hca, &Command::new(CREATE_TIS, &l::create_tis::LAYOUT, &fields))?;
            pair.interface = Some(interface);
            let fields = [
                (f::USER_INDEX, self.user_index.into()),
                (f::CQN, send_cq),
                (f::TIS_LST_SZ, 1),
                (f::TIS_NUM_0, interface),
                (f::FLUSH_IN_ERROR_EN, 1),
                (f::ALLOW_MULTI_PKT_SEND_WQE, 1),
                (f::WQ_TYPE, CYCLIC),
                (f::PD, self.pd),
                (f::UAR_PAGE, self.uar.into()),
                (f::DBR_ADDR, self.record),
                (f::LOG_WQ_STRIDE, LOG_BLOCK.into()),
            ];
            let place = Place { start: self.sends, entries: self.sends_number, log_stride: LOG_BLOCK };
            let command =
                place.of(request, CREATE_SQ, &l::create_sq::LAYOUT, &fields, [f::PAGE_OFFSET, f::LOG_WQ_SZ])?;
            pair.send = Some(made(hca, &command)?);
        }
        if self.receives_number == 0 {
            return Ok(None);
        }
        use l::create_rq as f;
        let fields = [
            // Tags stay in the frame.
            (f::VSD, 1),
            (f::FLUSH_IN_ERROR_EN, 1),
            (f::USER_INDEX, self.user_index.into()),
            (f::CQN, receive_cq),
            (f::WQ_TYPE, CYCLIC),
            (f::PD, self.pd),
            (f::DBR_ADDR, self.record),
            (f::LOG_WQ_STRIDE, self.log_receive.into()),
        ];
        let place = Place { start: self.receives, entries: self.receives_number, log_stride: self.log_receive };
        let command = place.of(request, CREATE_RQ, &l::create_rq::LAYOUT, &fields, [f::PAGE_OFFSET, f::LOG_WQ_SZ])?;
        let receive = made(hca, &command)?;
        pair.receive = Some(receive);
        pair.receive_by(hca, &[(l::create_tir::INLINE_RQN, receive), (l::create_tir::TRANSPORT_DOMAIN, domain)])
    }
}

/// A queue in a program's memory.
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) entries: u32,
    pub(super) log_stride: u32,
}

impl Place {
    /// The command that makes it, with the fields for its offset in its first page and for its size.
    pub(super) fn of(
        &self,
        request: &Request<'_>,
        opcode: u16,
        layout: &sluice_connectx::layout::Layout,
        fields: &[(Field, u64)],
        [offset_field, size_field]: [Field; 2],
    ) -> Result<Command, Refused> {
        if !self.entries.is_power_of_two() || self.log_stride > 12 {
            let reason = format!("a queue of {} entries of 2^{} bytes", self.entries, self.log_stride);
            return Err(Refused::new(Errno::EINVAL, reason));
        }
        let bytes = u64::from(self.entries) << self.log_stride;
        pin(request, self.start, bytes)?;
        let (list, offset) = pages(self.start, bytes);
        // In units of 64 bytes, of which the field has room for 31.
        if !offset.is_multiple_of(64) || offset / 64 > 31 {
            return Err(Refused::new(Errno::EINVAL, format!("the queue at {:#x} is not aligned", self.start)));
        }
        let place = [(offset_field, offset / 64), (size_field, self.entries.ilog2().into())];
        Ok(Command::new(opcode, layout, &[fields, &place].concat()).followed_by(&list))
    }
}

/// Asks both queues for their states, from which the pair's follows (`query_raw_packet_qp_state`).
pub(super) fn query(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let given = request.input(0)?;
    let handle = Native(&given).u32(8).ok_or_else(|| Refused::new(Errno::EINVAL, "QUERY_QP ends too early"))?;
    let State { contexts, hca, .. } = state;
    let object = contexts.get_mut(&context).and_then(|context| context.objects.get_mut(&handle));
    let Some(Object::QueuePair(pair)) = object else {
        return Err(Refused::new(Errno::EINVAL, format!("object {handle} is no QP")));
    };
    if pair.hashes() {
        return Err(Refused::new(Errno::ENOSYS, "a QP over a table of WQs has no state"));
    }
    let mut ask = |opcode, id: Option<u64>, field: Field| {
        let Some(id) = id else { return Ok(None) };
        let answer = send(hca, &Command::new(opcode, &l::object::LAYOUT, &[(l::object::ID, id)]))?;
        QueueState::new(field.read(&answer).unwrap_or_default()).map(Some)
    };
    let receives = ask(0x90b, pair.receive, l::query_rq_out::STATE)?;
    let sends = ask(0x907, pair.send, l::query_sq_out::STATE)?;
    use QueueState::{Error, Ready, Reset};
    pair.state = match (receives, sends) {
        (Some(Reset), Some(Reset) | None) => QueuePairState::Reset,
        (Some(Ready), Some(Error)) => QueuePairState::SendError,
        (Some(Error), Some(Error) | None) => QueuePairState::Error,
        (Some(Reset), Some(Ready | Error)) | (None, None) => {
            return Err(Refused::new(Errno::EINVAL, "a QP whose queues do not belong together"));
        }
        _ => pair.state,
    };
    pair.receives = receives.unwrap_or(pair.receives);
    pair.sends = sends.unwrap_or(pair.sends);
    let state = pair.state.number();
    // `struct ib_uverbs_query_qp_resp`: room to receive, both states, the port, and what signals.
    let answer = NativeOut::new(128)
        .u32(68, pair.room)
        .u8(108, state)
        .u8(109, state)
        .u8(116, 1)
        .u8(122, u8::from(pair.signals_all));
    request.output(1, answer.bytes())
}

/// Moves a pair from one state to another, and its queues with it: that for receiving is ready from the second state on (a program tells
/// of buffers in it only when the pair is ready to receive), that for sending in the last.
pub(super) fn modify(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const STATE: u32 = 1 << 0;
    const CURRENT_STATE: u32 = 1 << 1;
    const PORT: u32 = 1 << 5;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "MODIFY_QP ends too early");
    let (handle, mask) = (native.u32(64).ok_or_else(short)?, native.u32(68).ok_or_else(short)?);
    let byte = |at: usize| given.get(at).copied().ok_or_else(short);
    let (to, current, port) = (byte(96)?, byte(97)?, byte(104)?);
    if mask & !(STATE | CURRENT_STATE | PORT) != 0 || mask & STATE == 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("what {mask:#x} changes of a QP is not modelled")));
    }
    let State { contexts, hca, .. } = state;
    let object = contexts.get_mut(&context).and_then(|context| context.objects.get_mut(&handle));
    let Some(Object::QueuePair(pair)) = object else {
        return Err(Refused::new(Errno::EINVAL, format!("object {handle} is no QP")));
    };
    if pair.hashes() {
        return Err(Refused::new(Errno::ENOSYS, "a QP over a table of WQs has no state"));
    }
    use QueuePairState::{Error, Initialized, ReadyToReceive, ReadyToSend, Reset, SendError};
    let (from, to) = (pair.state, QueuePairState::new(to)?);
    let is_there = mask & CURRENT_STATE == 0 || QueuePairState::new(current)? == from;
    let has_port = from != Reset || to != Initialized || mask & PORT != 0 && port > 0;
    let forward = matches!(
        (from, to),
        (Reset, Initialized) | (Initialized, ReadyToReceive) | (ReadyToReceive, ReadyToSend) | (_, Error | Reset)
    );
    if !(is_there && has_port && forward) {
        return Err(Refused::new(Errno::EINVAL, format!("a QP that is {from:?} does not become {to:?} so")));
    }
    let receives = match to {
        Reset => QueueState::Reset,
        Error => pair.receives.after_error(),
        Initialized | ReadyToReceive | ReadyToSend | SendError => QueueState::Ready,
    };
    let sends = match to {
        Reset | Initialized | ReadyToReceive => QueueState::Reset,
        Error | SendError => pair.sends.after_error(),
        ReadyToSend => QueueState::Ready,
    };
    if let Some(id) = pair.receive.filter(|_| receives != pair.receives) {
        use l::modify_rq as f;
        let fields = [(f::RQN, id), (f::RQ_STATE, pair.receives as u64), (f::STATE, receives as u64)];
        send(hca, &Command::new(0x909, &f::LAYOUT, &fields))?;
    }
    pair.receives = receives;
    if let Some(id) = pair.send.filter(|_| sends != pair.sends) {
        use l::modify_sq as f;
        let fields = [(f::SQN, id), (f::SQ_STATE, pair.sends as u64), (f::STATE, sends as u64)];
        send(hca, &Command::new(0x905, &f::LAYOUT, &fields))?;
    }
    pair.sends = sends;
    pair.state = to;
    Ok(())
}
