//! Queue pairs by verbs that are reliable connections (`IBV_QPT_RC`), as mlx5_ib makes them of one of the device's.
//!
//! What a transition must bring is as the kernel has it (`ib_modify_qp_is_ok`); what it may bring besides is not modelled. As with
//! mlx5_ib, there is no way to drain the send queue only (SQD).

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::layout::Field;

use super::command::{Command, pages, send};
use super::gids;
use super::ids::{UHW_IN, UHW_OUT};
use super::objects::{Connection, Object, QueuePairState};
use super::qp::Wanted;
use super::request::{Native, NativeOut, Refused, Request, pin};
use super::state::{ContextId, State};

const CREATE_QP: u16 = 0x500;
const QUERY_QP: u16 = 0x50b;

pub(crate) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use l::create_qp as f;
    const HANDLE: u16 = 0;
    const PD: u16 = 2;
    const SHARED: u16 = 3;
    const SEND_COMPLETIONS: u16 = 4;
    const RECEIVE_COMPLETIONS: u16 = 5;
    const ROOM: u16 = 8;
    const FLAGS: u16 = 10;
    const ROOM_ANSWER: u16 = 13;
    const NUMBER: u16 = 14;
    const SIGNAL_ALL: u64 = 1 << 12;
    const SHARED_QUEUE: u64 = 1;
    const NO_RECEIVE_QUEUE: u64 = 3;
    const LOG_BLOCK: u32 = 6;
    const LOG_SEGMENT: u32 = 4;
    let flags = request.value_or(FLAGS, 0);
    if flags & !SIGNAL_ALL != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("flags {flags:#x} of a QP are not modelled")));
    }
    let pd = state.pd(context, request.value(PD)?)?;
    let given = request.input(UHW_IN)?;
    let wanted = Wanted::read(&given, pd)?;
    let ece = Native(&given).u32(48).unwrap_or_default();
    let send_cq = state.completion_queue(context, request.value(SEND_COMPLETIONS)?)?;
    let receive_cq = state.completion_queue(context, request.value(RECEIVE_COMPLETIONS)?)?;
    let mut used = Vec::new();
    let shared = if request.has(SHARED) {
        used.push(request.value_u32(SHARED)?);
        Some(state.shared_receives(context, request.value(SHARED)?)?)
    } else {
        None
    };
    let log = |entries: u32| if entries.is_power_of_two() { Some(entries.ilog2()) } else { None };
    let unequal = || Refused::new(Errno::EINVAL, "the number of entries of a queue is no power of two");
    let mut fields = vec![
        (f::PD, pd),
        (f::UAR_PAGE, wanted.uar.into()),
        (f::USER_INDEX, wanted.user_index.into()),
        (f::CQN_SND, send_cq),
        (f::CQN_RCV, receive_cq),
        (f::DBR_ADDR, wanted.record),
        (f::ECE, ece.into()),
    ];
    let mut bytes = u64::from(wanted.sends_number) << LOG_BLOCK;
    match (shared, wanted.receives_number) {
        (Some(id), _) => fields.extend([(f::RQ_TYPE, SHARED_QUEUE), (f::SRQN_RMPN_XRQN, id)]),
        (None, 0) => fields.push((f::RQ_TYPE, NO_RECEIVE_QUEUE)),
        (None, entries) => {
            let stride =
                wanted.log_receive.checked_sub(LOG_SEGMENT).filter(|stride| *stride < 8).ok_or_else(unequal)?;
            bytes += u64::from(entries) << wanted.log_receive;
            let log_entries = log(entries).ok_or_else(unequal)?;
            fields.extend([(f::LOG_RQ_SIZE, u64::from(log_entries)), (f::LOG_RQ_STRIDE, stride.into())]);
        }
    }
    match wanted.sends_number {
        0 => fields.push((f::NO_SQ, 1)),
        entries => fields.push((f::LOG_SQ_SIZE, log(entries).ok_or_else(unequal)?.into())),
    }
    pin(request, wanted.record, 8)?;
    pin(request, wanted.receives, bytes.max(1))?;
    let (list, offset) = pages(wanted.receives, bytes);
    fields.push((f::PAGE_OFFSET, offset / 64));
    let answer = send(&mut state.hca, &Command::new(CREATE_QP, &f::LAYOUT, &fields).followed_by(&list))?;
    let number = l::qp_out::ID.read(&answer).unwrap_or_default();
    let ece = options(&answer);
    let connection = Connection::new(number, flags & SIGNAL_ALL != 0);
    let handle = state.keep_using(context, Object::Connection(connection), used)?;
    request.answer(HANDLE, handle)?;
    request.output(ROOM_ANSWER, &request.input(ROOM)?)?;
    request.output(NUMBER, &u32::try_from(number).unwrap_or_default().to_le_bytes())?;
    request.output(UHW_OUT, NativeOut::new(40).u32(4, ece).bytes())
}

/// Options of the connection that the device takes (ECE), in its answer.
fn options(answer: &[u8]) -> u32 {
    l::qp_out::ECE.read(answer).and_then(|ece| u32::try_from(ece).ok()).unwrap_or_default()
}

/// Whether a request is for a connection, by its handle.
pub(crate) fn is_one(state: &mut State, context: ContextId, handle: u32) -> bool {
    matches!(state.object(context, handle.into()), Ok(Object::Connection(_)))
}

/// Attributes that a transition changes, by their bit in the mask: where they are in a request to modify (`struct ib_uverbs_modify_qp`) and
/// in the answer to a query (`struct ib_uverbs_query_qp_resp`), and their length.
struct Attribute {
    bit: u32,
    given: usize,
    answered: usize,
    length: usize,
}

const ACCESS: Attribute = Attribute { bit: 1 << 3, given: 88, answered: 100, length: 4 };
const PKEY_INDEX: Attribute = Attribute { bit: 1 << 4, given: 92, answered: 104, length: 2 };
const PORT: Attribute = Attribute { bit: 1 << 5, given: 104, answered: 116, length: 1 };
const PATH: Attribute = Attribute { bit: 1 << 7, given: 0, answered: 0, length: 32 };
const MTU: Attribute = Attribute { bit: 1 << 8, given: 98, answered: 110, length: 1 };
const TIMEOUT: Attribute = Attribute { bit: 1 << 9, given: 105, answered: 117, length: 1 };
const RETRIES: Attribute = Attribute { bit: 1 << 10, given: 106, answered: 118, length: 1 };
const RNR_RETRIES: Attribute = Attribute { bit: 1 << 11, given: 107, answered: 119, length: 1 };
const RECEIVE_PSN: Attribute = Attribute { bit: 1 << 12, given: 76, answered: 88, length: 4 };
const READS_OUT: Attribute = Attribute { bit: 1 << 13, given: 101, answered: 113, length: 1 };
const MIN_RNR_TIMER: Attribute = Attribute { bit: 1 << 15, given: 103, answered: 115, length: 1 };
const SEND_PSN: Attribute = Attribute { bit: 1 << 16, given: 80, answered: 92, length: 4 };
const READS_IN: Attribute = Attribute { bit: 1 << 17, given: 102, answered: 114, length: 1 };
const REMOTE: Attribute = Attribute { bit: 1 << 20, given: 84, answered: 96, length: 4 };

const TO_INITIALIZED: &[Attribute] = &[ACCESS, PKEY_INDEX, PORT];
const TO_READY_TO_RECEIVE: &[Attribute] = &[PATH, MTU, RECEIVE_PSN, MIN_RNR_TIMER, READS_IN, REMOTE];
const TO_READY_TO_SEND: &[Attribute] = &[TIMEOUT, RETRIES, RNR_RETRIES, READS_OUT, SEND_PSN];

impl Attribute {
    /// Its number in a request, of at most four bytes.
    fn of(&self, given: &[u8]) -> u64 {
        let bytes = given.get(self.given..self.given + self.length).unwrap_or_default();
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Moves a connection from one state to another, and answers with the options that the device takes.
pub(crate) fn modify(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use QueuePairState::{Error, Initialized, ReadyToReceive, ReadyToSend, Reset};
    const STATE: u32 = 1 << 0;
    const CURRENT_STATE: u32 = 1 << 1;
    const HANDLE: usize = 64;
    const MASK: usize = 68;
    const TO: usize = 96;
    const FROM: usize = 97;
    const LENGTH: usize = 112;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "MODIFY_QP ends too early");
    if given.len() < LENGTH {
        return Err(short());
    }
    let (handle, mask) = (native.u32(HANDLE).ok_or_else(short)?, native.u32(MASK).ok_or_else(short)?);
    let connection = state.connection(context, handle)?;
    let (from, to) = (connection.state, QueuePairState::new(given[TO])?);
    let is_there = mask & CURRENT_STATE == 0 || QueuePairState::new(given[FROM])? == from;
    let attributes = match (from, to) {
        (Reset, Initialized) => TO_INITIALIZED,
        (Initialized, ReadyToReceive) => TO_READY_TO_RECEIVE,
        (ReadyToReceive, ReadyToSend) => TO_READY_TO_SEND,
        (_, Error | Reset) => &[],
        _ => return Err(Refused::new(Errno::EINVAL, format!("a connection that is {from:?} does not become {to:?}"))),
    };
    let needed = attributes.iter().fold(0, |bits, attribute| bits | attribute.bit);
    let others = mask & !(STATE | CURRENT_STATE);
    if !is_there || mask & STATE == 0 || needed & !others != 0 {
        let reason = format!("from {from:?} to {to:?} with attributes {others:#x}, and {needed:#x} are needed");
        return Err(Refused::new(Errno::EINVAL, reason));
    }
    if others & !needed != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("attributes {others:#x} of a QP are not modelled")));
    }
    let ece = request.input(UHW_IN).ok().and_then(|driver| Native(&driver).u32(12)).unwrap_or_default();
    let number = connection.number;
    let command = match to {
        Initialized => initialize(state, number, &given)?,
        ReadyToReceive => ready_to_receive(state, number, &given)?,
        ReadyToSend => ready_to_send(number, &given),
        _ => {
            let opcode = if to == Error { 0x507 } else { 0x50a };
            Command::new(opcode, &l::object::LAYOUT, &[(l::object::ID, number)])
        }
    };
    let is_forward = !attributes.is_empty();
    let command = if is_forward { command.put(ECE_AT, &ece.to_be_bytes()) } else { command };
    let answer = send(&mut state.hca, &command)?;
    let connection = state.connection(context, handle)?;
    connection.state = to;
    for Attribute { given: at, answered, length, .. } in attributes {
        connection.answer[*answered..answered + length].copy_from_slice(&given[*at..at + length]);
    }
    request.output(1, NativeOut::new(8).u32(4, 8).bytes())?;
    let answered = if is_forward { options(&answer) } else { 0 };
    request.output(UHW_OUT, NativeOut::new(16).u32(0, 16).u32(8, answered).bytes())
}

/// Where in the commands of transitions the options are.
const ECE_AT: usize = 0x14;

fn initialize(state: &State, number: u64, given: &[u8]) -> Result<Command, Refused> {
    use l::rst2init_qp as f;
    const REMOTE_WRITE: u64 = 1 << 1;
    const REMOTE_READ: u64 = 1 << 2;
    const LOCAL_WRITE: u64 = 1 << 0;
    let (port, pkey, access) = (PORT.of(given), PKEY_INDEX.of(given), ACCESS.of(given));
    // Representors have no RoCE.
    if port != 1 || pkey != 0 || !gids::has_roce(state.hca.profile()) {
        return Err(Refused::new(Errno::EINVAL, format!("port {port} has no partition {pkey} with RoCE")));
    }
    if access & !(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ) != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("access {access:#x} to a QP is not modelled")));
    }
    let allowed = |flag: u64| u64::from(access & flag != 0);
    let fields = [(f::QPN, number), (f::RWE, allowed(REMOTE_WRITE)), (f::RRE, allowed(REMOTE_READ))];
    Ok(Command::new(0x502, &f::LAYOUT, &fields))
}

fn ready_to_receive(state: &State, number: u64, given: &[u8]) -> Result<Command, Refused> {
    use l::init2rtr_qp as f;
    const SOURCE: usize = 24;
    const HOPS: usize = 25;
    const CLASS: usize = 26;
    const LEVEL: usize = 27;
    const IS_GLOBAL: usize = 30;
    const FLOW_LABEL: usize = 16;
    const LARGEST_MTU: u64 = 5;
    let (source, mtu) = (given[SOURCE], MTU.of(given));
    if given[IS_GLOBAL] == 0 || gids::entry(state.hca.profile(), source.into()).is_none() {
        let reason = format!("a path without an address, or from address {source}, which there is not");
        return Err(Refused::new(Errno::EINVAL, reason));
    }
    if !(1..=LARGEST_MTU).contains(&mtu) {
        return Err(Refused::new(Errno::EINVAL, format!("there is no MTU {mtu}")));
    }
    let half = |at: usize| given[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let flow_label = Native(given).u32(FLOW_LABEL).unwrap_or_default();
    let fields: [(Field, u64); 13] = [
        (f::QPN, number),
        (f::MTU, mtu),
        (f::REMOTE_QPN, REMOTE.of(given) & 0xff_ffff),
        (f::GRH, 1),
        (f::SRC_ADDR_INDEX, source.into()),
        (f::HOP_LIMIT, given[HOPS].into()),
        (f::TCLASS, given[CLASS].into()),
        (f::SL, (given[LEVEL] & 0xf).into()),
        (f::FLOW_LABEL, (flow_label & 0xf_ffff).into()),
        (f::RGID_0, half(0)),
        (f::RGID_1, half(8)),
        (f::MIN_RNR_NAK, MIN_RNR_TIMER.of(given) & 0x1f),
        (f::NEXT_RCV_PSN, RECEIVE_PSN.of(given) & 0xff_ffff),
    ];
    Ok(Command::new(0x503, &f::LAYOUT, &fields))
}

fn ready_to_send(number: u64, given: &[u8]) -> Command {
    use l::rtr2rts_qp as f;
    let fields = [
        (f::QPN, number),
        (f::ACK_TIMEOUT, TIMEOUT.of(given) & 0x1f),
        (f::RETRY_COUNT, RETRIES.of(given) & 0x7),
        (f::RNR_RETRY, RNR_RETRIES.of(given) & 0x7),
        (f::NEXT_SEND_PSN, SEND_PSN.of(given) & 0xff_ffff),
    ];
    Command::new(0x504, &f::LAYOUT, &fields)
}

/// Answers with what transitions have brought, and with the state that the device says.
pub(crate) fn query(state: &mut State, context: ContextId, request: &Request<'_>, handle: u32) -> Result<(), Refused> {
    const NAMES: [QueuePairState; 4] = {
        use QueuePairState::{Initialized, ReadyToReceive, ReadyToSend, Reset};
        [Reset, Initialized, ReadyToReceive, ReadyToSend]
    };
    let number = state.connection(context, handle)?.number;
    let command = Command::new(QUERY_QP, &l::object::LAYOUT, &[(l::object::ID, number)]);
    let answer = send(&mut state.hca, &command)?;
    let told = l::query_qp_out::STATE.read(&answer).and_then(|told| usize::try_from(told).ok()).unwrap_or_default();
    let connection = state.connection(context, handle)?;
    connection.state = NAMES.get(told).copied().unwrap_or(QueuePairState::Error);
    let mut answer = connection.answer;
    [answer[108], answer[109]] = [connection.state.number(); 2];
    answer[122] = u8::from(connection.signals_all);
    request.output(1, &answer)
}

impl State {
    fn connection(&mut self, context: ContextId, handle: u32) -> Result<&mut Connection, Refused> {
        match self.context(context)?.objects.get_mut(&handle) {
            Some(Object::Connection(connection)) => Ok(connection),
            _ => Err(Refused::new(Errno::EINVAL, format!("object {handle} is no connection"))),
        }
    }
}
