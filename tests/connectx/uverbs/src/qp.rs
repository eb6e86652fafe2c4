//! Queue pairs by verbs: those that send and receive frames as they are (`IBV_QPT_RAW_PACKET`) here, and others in [`connections`].
//!
//! One for frames is nothing to the device: the kernel makes a send queue, and a receive queue with a TIR that leads to it.

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::Field;

use super::command::{Command, made, send};
use super::connections;
use super::ids::{UHW_IN, UHW_OUT};
use super::objects::{CREATE_TRANSPORT_DOMAIN, Object, QueuePair, QueuePairState, QueueState};
use super::place::Place;
use super::request::{Native, NativeOut, Refused, Request, pin};
use super::state::{ContextId, State, may_steer};
use super::work_queues;

const CREATE_TIS: u16 = 0x912;
const CREATE_SQ: u16 = 0x904;
const CREATE_RQ: u16 = 0x908;

/// What a program says of a pair (`struct mlx5_ib_create_qp`).
pub(crate) struct Wanted {
    pub(crate) receives: u64,
    sends: u64,
    pub(crate) record: u64,
    pub(crate) sends_number: u32,
    pub(crate) receives_number: u32,
    pub(crate) log_receive: u32,
    pub(crate) user_index: u32,
    pub(crate) uar: u32,
    pd: u64,
}

impl Wanted {
    pub(crate) fn read(given: &[u8], pd: u64) -> Result<Self, Refused> {
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

pub(crate) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
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
    const CONNECTION: u64 = 2;
    const RAW_PACKET: u64 = 8;
    const SIGNAL_ALL: u64 = 1 << 12;
    let kind = request.value(KIND)?;
    if kind == CONNECTION {
        return connections::create(state, context, request);
    }
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

/// Asks both queues for their states, from which the pair's follows (`query_raw_packet_qp_state`).
pub(crate) fn query(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let given = request.input(0)?;
    let handle = Native(&given).u32(8).ok_or_else(|| Refused::new(Errno::EINVAL, "QUERY_QP ends too early"))?;
    if connections::is_one(state, context, handle) {
        return connections::query(state, context, request, handle);
    }
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
pub(crate) fn modify(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const STATE: u32 = 1 << 0;
    const CURRENT_STATE: u32 = 1 << 1;
    const PORT: u32 = 1 << 5;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "MODIFY_QP ends too early");
    let (handle, mask) = (native.u32(64).ok_or_else(short)?, native.u32(68).ok_or_else(short)?);
    if connections::is_one(state, context, handle) {
        return connections::modify(state, context, request);
    }
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
