//! Receive queues by verbs, tables of them, and queue pairs that spread frames over such a table by a hash, as mlx5_ib makes them of
//! RQ, RQT and TIR (`mlx5_ib_create_wq`, `mlx5_ib_create_rwq_ind_table`, `create_rss_raw_qp_tir`).
//!
//! Frozen: no test of Sluice needs them.

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;

use super::command::{Command, made, send};
use super::ids::{UHW_IN, UHW_OUT};
use super::objects::{Object, QueuePair, QueueState, WorkQueue};
use super::place::Place;
use super::request::{Native, NativeOut, Refused, Request, pin};
use super::state::{ContextId, State};

/// `enum ibv_wq_flags`.
const STRIPS_TAG: u64 = 1 << 0;

pub(crate) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use l::create_rq as f;
    const HANDLE: u16 = 0;
    const PD: u16 = 1;
    const COMPLETIONS: u16 = 2;
    const KIND: u16 = 4;
    const ROOM: [u16; 2] = [6, 7];
    const FLAGS: u16 = 8;
    const ROOM_ANSWER: [u16; 2] = [9, 10];
    const NUMBER: u16 = 11;
    const RECEIVES: u64 = 0;
    const CYCLIC: u64 = 1;
    if request.value(KIND)? != RECEIVES {
        return Err(Refused::new(Errno::EINVAL, "a WQ only receives"));
    }
    let flags = request.value_or(FLAGS, 0);
    if flags & !STRIPS_TAG != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("flags {flags:#x} of a WQ are not modelled")));
    }
    let pd = state.pd(context, request.value(PD)?)?;
    let queue = request.value_u32(COMPLETIONS)?;
    let cq = state.completion_queue(context, queue.into())?;
    // `struct mlx5_ib_create_wq`.
    let given = request.input(UHW_IN)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "the driver's part of WQ_CREATE ends too early");
    let (start, record) = (native.u64(0).ok_or_else(short)?, native.u64(8).ok_or_else(short)?);
    let word = |at| native.u32(at).ok_or_else(short);
    let (entries, log_stride, user_index) = (word(16)?, word(20)?, word(24)?);
    if word(28)? != 0 || native.u32(32).unwrap_or(0) != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, "signatures and strides of a WQ are not modelled"));
    }
    pin(request, record, 8)?;
    let fields = [
        (f::VSD, u64::from(flags & STRIPS_TAG == 0)),
        (f::FLUSH_IN_ERROR_EN, 1),
        (f::USER_INDEX, user_index.into()),
        (f::CQN, cq),
        (f::WQ_TYPE, CYCLIC),
        (f::PD, pd),
        (f::DBR_ADDR, record),
        (f::LOG_WQ_STRIDE, log_stride.into()),
    ];
    let place = Place { start, entries, log_stride };
    let command = place.of(request, 0x908, &f::LAYOUT, &fields, [f::PAGE_OFFSET, f::LOG_WQ_SZ])?;
    let id = made(&mut state.hca, &command)?;
    let object = Object::WorkQueue(WorkQueue { id, state: QueueState::Reset });
    let handle = state.keep_using(context, object, vec![queue])?;
    request.answer(HANDLE, handle)?;
    for (asked, answer) in ROOM.into_iter().zip(ROOM_ANSWER) {
        request.output(answer, &request.value_u32(asked)?.to_le_bytes())?;
    }
    request.output(NUMBER, &u32::try_from(id).unwrap_or_default().to_le_bytes())?;
    request.output(UHW_OUT, NativeOut::new(8).u32(0, 8).bytes())
}

/// Answers with how many events the program has had of the queue, of which there are none here.
pub(crate) fn destroy(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    state.destroy(context, request.value(0)?)?;
    request.output(1, &[])
}

/// `struct ib_uverbs_ex_modify_wq`.
pub(crate) fn modify(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use l::modify_rq as f;
    const STATE: u32 = 1 << 0;
    const CURRENT_STATE: u32 = 1 << 1;
    const FLAGS: u32 = 1 << 2;
    const VLAN_STRIP: u64 = 1 << 1;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "MODIFY_WQ ends too early");
    let word = |at| native.u32(at).ok_or_else(short);
    let (mask, handle) = (word(0)?, word(4)?);
    if mask == 0 || mask & !(STATE | CURRENT_STATE | FLAGS) != 0 {
        return Err(Refused::new(Errno::EINVAL, format!("what {mask:#x} changes of a WQ does not exist")));
    }
    let (flags, changed) = (u64::from(word(16)?), if mask & FLAGS != 0 { u64::from(word(20)?) } else { 0 });
    if changed & !STRIPS_TAG != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("flags {changed:#x} of a WQ are not modelled")));
    }
    let State { contexts, hca, .. } = state;
    let object = contexts.get_mut(&context).and_then(|context| context.objects.get_mut(&handle));
    let Some(Object::WorkQueue(queue)) = object else {
        return Err(Refused::new(Errno::EINVAL, format!("object {handle} is no WQ")));
    };
    let from = if mask & CURRENT_STATE != 0 { state_of(word(12)?)? } else { queue.state };
    let to = if mask & STATE != 0 { state_of(word(8)?)? } else { from };
    let fields = [
        (f::RQN, queue.id),
        (f::RQ_STATE, from as u64),
        (f::STATE, to as u64),
        (f::MODIFY_BITMASK, if changed != 0 { VLAN_STRIP } else { 0 }),
        (f::VSD, u64::from(flags & STRIPS_TAG == 0)),
    ];
    send(hca, &Command::new(0x909, &f::LAYOUT, &fields))?;
    queue.state = to;
    Ok(())
}

/// `enum ib_wq_state`.
fn state_of(number: u32) -> Result<QueueState, Refused> {
    match number {
        0 => Ok(QueueState::Reset),
        1 => Ok(QueueState::Ready),
        2 => Ok(QueueState::Error),
        other => Err(Refused::new(Errno::EINVAL, format!("there is no state {other} of a WQ"))),
    }
}

/// `struct ib_uverbs_ex_create_rwq_ind_table`: the size as a power of two, and handles.
pub(crate) fn create_table(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use l::create_rqt as f;
    const MOST: u32 = 0xd;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "CREATE_RWQ_IND_TBL ends too early");
    let log = native.u32(4).ok_or_else(short)?;
    if native.u32(0) != Some(0) || log > MOST {
        return Err(Refused::new(Errno::EINVAL, format!("a table of 2^{log} queues")));
    }
    let handles: Result<Vec<u32>, Refused> =
        (0..1 << log).map(|place| native.u32(8 + place * 4).ok_or_else(short)).collect();
    let handles = handles?;
    let mut list = Vec::new();
    for handle in &handles {
        match state.object(context, (*handle).into())? {
            Object::WorkQueue(queue) => list.extend(u32::try_from(queue.id).unwrap_or_default().to_be_bytes()),
            other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no WQ"))),
        }
    }
    let size = 1_u64 << log;
    let fields = [(f::RQT_ACTUAL_SIZE, size), (f::RQT_MAX_SIZE, size)];
    let id = made(&mut state.hca, &Command::new(0x916, &f::LAYOUT, &fields).followed_by(&list))?;
    let handle = state.keep_using(context, Object::QueueTable { id, log }, handles)?;
    let low = |value: u64| u32::try_from(value).unwrap_or_default();
    let answer = NativeOut::new(16).u32(4, 16).u32(8, low(handle)).u32(12, low(id));
    request.output(1, answer.bytes())?;
    request.output(UHW_OUT, NativeOut::new(8).u32(0, 8).bytes())
}

/// Bits of `enum mlx5_rx_hash_fields`.
mod fields {
    pub(crate) const SOURCE_V4: u64 = 1 << 0;
    pub(crate) const DESTINATION_V4: u64 = 1 << 1;
    pub(crate) const SOURCE_V6: u64 = 1 << 2;
    pub(crate) const DESTINATION_V6: u64 = 1 << 3;
    pub(crate) const SOURCE_TCP: u64 = 1 << 4;
    pub(crate) const DESTINATION_TCP: u64 = 1 << 5;
    pub(crate) const SOURCE_UDP: u64 = 1 << 6;
    pub(crate) const DESTINATION_UDP: u64 = 1 << 7;
    pub(crate) const INNER: u64 = 1 << 31;
}

/// Makes a pair that only receives, by a hash; where in steering memory entries lead to it.
pub(crate) fn create_hashing(
    state: &mut State,
    context: ContextId,
    request: &Request<'_>,
    pair: &mut QueuePair,
    table: u64,
) -> Result<Option<u64>, Refused> {
    use l::create_tir as f;
    const INDIRECT: u64 = 1;
    const TOEPLITZ: u8 = 1;
    const TOEPLITZ_FUNCTION: u64 = 2;
    const KEY: usize = 40;
    const TUNNELS: u32 = 1 << 2;
    let refused = |errno, why: String| Err(Refused::new(errno, why));
    let Object::QueueTable { id, log } = *state.object(context, table)? else {
        return refused(Errno::EINVAL, format!("object {table} is no table of WQs"));
    };
    // `struct mlx5_ib_create_qp_rss`.
    let given = request.input(UHW_IN)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "the driver's part of QP_CREATE ends too early");
    let selected = native.u64(0).ok_or_else(short)?;
    let (mask, flags) = (native.u32(144).ok_or_else(short)?, native.u32(148).ok_or_else(short)?);
    if mask != 0 || flags & !TUNNELS != 0 {
        return refused(Errno::EOPNOTSUPP, format!("flags {flags:#x} of a hash are not modelled"));
    }
    let is_inner = selected & fields::INNER != 0;
    if is_inner && flags & TUNNELS == 0 {
        return refused(Errno::EOPNOTSUPP, "inner headers are for pairs of tunnels".to_owned());
    }
    if given[8] != TOEPLITZ {
        return refused(Errno::EOPNOTSUPP, format!("there is no hash {}", given[8]));
    }
    if usize::from(given[9]) != KEY {
        return refused(Errno::EINVAL, format!("a key of {} bytes", given[9]));
    }
    let mut wanted = vec![(f::DISP_TYPE, INDIRECT), (f::INDIRECT_TABLE, id), (f::RX_HASH_FN, TOEPLITZ_FUNCTION)];
    wanted.push((f::TUNNELED_OFFLOAD_EN, u64::from(flags & TUNNELS != 0)));
    let key = [f::TOEPLITZ_KEY_0, f::TOEPLITZ_KEY_1, f::TOEPLITZ_KEY_2, f::TOEPLITZ_KEY_3, f::TOEPLITZ_KEY_4];
    for (field, part) in key.into_iter().zip(given[16..16 + KEY].as_chunks().0) {
        wanted.push((field, u64::from_be_bytes(*part)));
    }
    let selector = selector(selected & !fields::INNER, log)?;
    wanted.push((if is_inner { f::INNER_SELECTOR } else { f::OUTER_SELECTOR }, selector));
    pair.receive_by_hash(&mut state.hca, wanted)
}

/// As the TIR has it: the kinds of network and transport header, and which fields of them.
fn selector(selected: u64, log: u32) -> Result<u64, Refused> {
    use fields::*;
    const V6: u64 = 1 << 31;
    const UDP: u64 = 1 << 30;
    let any = |bits: u64| selected & bits != 0;
    let both = [
        (SOURCE_V4 | DESTINATION_V4, SOURCE_V6 | DESTINATION_V6),
        (SOURCE_TCP | DESTINATION_TCP, SOURCE_UDP | DESTINATION_UDP),
    ];
    let known = both.iter().fold(0, |known, (one, other)| known | one | other);
    if selected & !known != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("a hash over {selected:#x} is not modelled")));
    }
    // Over nothing, a table of one queue will do.
    let of_nothing = selected == 0 && log > 0;
    if of_nothing || both.iter().any(|(one, other)| any(*one) && any(*other)) {
        return Err(Refused::new(Errno::EINVAL, format!("there is no hash over {selected:#x}")));
    }
    let parts = [
        (SOURCE_V4 | SOURCE_V6, 1),
        (DESTINATION_V4 | DESTINATION_V6, 1 << 1),
        (SOURCE_TCP | SOURCE_UDP, 1 << 2),
        (DESTINATION_TCP | DESTINATION_UDP, 1 << 3),
        (SOURCE_V6 | DESTINATION_V6, V6),
        (SOURCE_UDP | DESTINATION_UDP, UDP),
    ];
    Ok(parts.into_iter().filter(|(bits, _)| any(*bits)).fold(0, |selector, (_, bit)| selector | bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_over_one_kind_of_each_header_at_most() {
        use fields::*;
        let refused = |selected, log| selector(selected, log).unwrap_err().errno;
        assert_eq!(selector(SOURCE_V4 | DESTINATION_V4 | DESTINATION_TCP, 3).unwrap(), 0b1011);
        assert_eq!(selector(SOURCE_V6 | SOURCE_UDP, 3).unwrap(), 0b101 | 3 << 30);
        assert_eq!(selector(0, 0).unwrap(), 0);
        assert_eq!(refused(0, 1), Errno::EINVAL);
        assert_eq!(refused(SOURCE_V4 | DESTINATION_V6, 1), Errno::EINVAL);
        assert_eq!(refused(SOURCE_TCP | SOURCE_UDP, 1), Errno::EINVAL);
        assert_eq!(refused(1 << 8, 1), Errno::EOPNOTSUPP);
    }
}
