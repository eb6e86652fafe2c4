//! Shared receive queues by verbs, as mlx5_ib makes them of receive memory (RMP).

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;

use super::command::made;
use super::ids::{UHW_IN, UHW_OUT};
use super::objects::Object;
use super::place::Place;
use super::request::{Native, Refused, Request, pin};
use super::state::{ContextId, State};

pub(crate) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use l::create_rmp as f;
    const HANDLE: u16 = 0;
    const PD: u16 = 1;
    const ENTRIES: u16 = 5;
    const BUFFERS: u16 = 6;
    const LIMIT: u16 = 7;
    const KIND: u16 = 9;
    const ENTRIES_ANSWER: u16 = 11;
    const BUFFERS_ANSWER: u16 = 12;
    const BASIC: u64 = 0;
    const READY: u64 = 1;
    /// What links the lists, and an entry of one; no list is shorter than both.
    const SEGMENT: u32 = 16;
    if request.value(KIND)? != BASIC || request.value_or(LIMIT, 0) != 0 {
        return Err(Refused::new(Errno::EOPNOTSUPP, "only basic shared receive queues without a limit are modelled"));
    }
    let given = request.input(UHW_IN)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "the driver's part of SRQ_CREATE ends too early");
    let (start, record) = (native.u64(0).ok_or_else(short)?, native.u64(8).ok_or_else(short)?);
    let pd = state.pd(context, request.value(PD)?)?;
    let endless = || Refused::new(Errno::EINVAL, "a queue without end");
    let (entries, buffers) = (request.value_u32(ENTRIES)?, request.value_u32(BUFFERS)?);
    let stride = buffers.max(1).checked_add(1).and_then(|segments| segments.checked_mul(SEGMENT));
    let stride = stride.and_then(u32::checked_next_power_of_two).ok_or_else(endless)?;
    let room = entries.checked_add(1).and_then(u32::checked_next_power_of_two).ok_or_else(endless)?;
    pin(request, record, 4)?;
    let place = Place { start, entries: room, log_stride: stride.ilog2() };
    let fields = [(f::STATE, READY), (f::PD, pd), (f::DBR_ADDR, record), (f::LOG_WQ_STRIDE, stride.ilog2().into())];
    let command = place.of(request, 0x90c, &f::LAYOUT, &fields, [f::PAGE_OFFSET, f::LOG_WQ_SZ])?;
    let id = made(&mut state.hca, &command)?;
    let handle = state.keep(context, Object::SharedReceives(id))?;
    request.answer(HANDLE, handle)?;
    request.output(ENTRIES_ANSWER, &entries.to_le_bytes())?;
    request.output(BUFFERS_ANSWER, &buffers.to_le_bytes())?;
    request.output(UHW_OUT, &id.to_le_bytes())
}

/// Answers with how many events the program has had of the queue, of which there are none here.
pub(crate) fn destroy(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    state.destroy(context, request.value(0)?)?;
    request.output(1, &[])
}

impl State {
    pub(crate) fn shared_receives(&mut self, context: ContextId, handle: u64) -> Result<u64, Refused> {
        match self.object(context, handle)? {
            Object::SharedReceives(id) => Ok(*id),
            other => Err(Refused::new(Errno::EINVAL, format!("{other} is no shared receive queue"))),
        }
    }
}
