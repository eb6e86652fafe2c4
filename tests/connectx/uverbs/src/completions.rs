//! Queues of completions by verbs, and the files by which programs hear of completions that they have asked to hear of.

use std::collections::BTreeMap;

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;

use super::command::{Command, made, pages};
use super::objects::Object;
use super::outlet::Outlet;
use super::process::Process;
use super::request::{Native, Refused, Request, pin};
use super::state::{Channel, ContextId, Listener, State};

pub(crate) fn create_channel(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let (outlet, file) = Outlet::open()?;
    state.context(context)?.channels.insert(file, Channel { outlet, told: BTreeMap::new() });
    request.output(1, &u32::try_from(file).unwrap_or_default().to_le_bytes())
}

pub(crate) fn create_cq(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use super::ids::{UHW_IN, UHW_OUT};
    use l::create_cq as f;
    const HANDLE: u16 = 0;
    const ENTRIES: u16 = 1;
    const NAME: u16 = 2;
    const CHANNEL: u16 = 3;
    const ROOM: u16 = 6;
    let given = request.input(UHW_IN)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "CREATE_CQ ends too early");
    let (buffer, record) = (native.u64(0).ok_or_else(short)?, native.u64(8).ok_or_else(short)?);
    let size = native.u32(16).ok_or_else(short)?;
    if size != 64 {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("completions of {size} bytes are not modelled")));
    }
    let entries = request.value_u32(ENTRIES)?.checked_add(1).and_then(u32::checked_next_power_of_two);
    let entries = entries.ok_or_else(|| Refused::new(Errno::EINVAL, "a queue without end"))?;
    let bytes = u64::from(entries) * 64;
    pin(request, buffer, bytes)?;
    pin(request, record, 8)?;
    let listener = if request.has(CHANNEL) {
        let listener = Listener { context, file: request.value(CHANNEL)?, name: request.value(NAME)? };
        if !state.context(context)?.channels.contains_key(&listener.file) {
            return Err(Refused::new(Errno::EBADF, format!("file {} is no completion channel", listener.file)));
        }
        Some(listener)
    } else {
        None
    };
    let (list, offset) = pages(buffer, bytes);
    if !offset.is_multiple_of(64) {
        return Err(Refused::new(Errno::EINVAL, format!("the queue at {buffer:#x} is not aligned")));
    }
    let fields = [
        (f::LOG_CQ_SIZE, u64::from(entries.ilog2())),
        (f::PAGE_OFFSET, offset / 64),
        (f::UAR_PAGE, state.kernel.uar),
        (f::C_EQN, state.kernel.event_queue),
        (f::DBR_ADDR, record),
    ];
    let id = made(&mut state.hca, &Command::new(0x400, &f::LAYOUT, &fields).followed_by(&list))?;
    let handle = state.keep(context, Object::Cq(id))?;
    if let Some(listener) = listener {
        let number = u32::try_from(id).unwrap_or_default();
        state.hca.watch_requests(&Process, number)?;
        state.listeners.insert(number, listener);
    }
    request.answer(HANDLE, handle)?;
    request.output(ROOM, &(entries - 1).to_le_bytes())?;
    request.output(UHW_OUT, &id.to_le_bytes())
}

/// Answers with how many events the program has had of the queue, so that it can wait until it is done with all of them. Those that it
/// has not read yet it never will.
pub(crate) fn destroy_cq(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const HANDLE: u16 = 0;
    const ANSWER: u16 = 1;
    let handle = request.value(HANDLE)?;
    let number = match state.object(context, handle)? {
        Object::Cq(id) => u32::try_from(*id).unwrap_or_default(),
        other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no queue of completions"))),
    };
    state.destroy(context, handle)?;
    let mut had = 0;
    if let Some(Listener { file, name, .. }) = state.listeners.remove(&number)
        && let Some(channel) = state.context(context)?.channels.get_mut(&file)
    {
        let unread = channel.outlet.take_back();
        let (own, others): (Vec<_>, Vec<_>) = unread.into_iter().partition(|event| *event == name.to_le_bytes());
        for event in others {
            channel.outlet.put(&event).map_err(|errno| Refused::new(errno, "a channel that is full"))?;
        }
        had = channel.told.remove(&name).unwrap_or_default() - u32::try_from(own.len()).unwrap_or_default();
    }
    request.output(ANSWER, &[had.to_le_bytes(), [0; 4]].concat())
}

impl State {
    /// Tells programs of completions that they want to hear of.
    pub(crate) fn tell_completions(&mut self) {
        for number in self.kernel.take_events(&mut self.hca) {
            let Some(Listener { context, file, name }) = self.listeners.get(&number).copied() else { continue };
            let context = self.contexts.get_mut(&context);
            let Some(channel) = context.and_then(|context| context.channels.get_mut(&file)) else { continue };
            match channel.outlet.put(&name.to_le_bytes()) {
                Ok(()) => *channel.told.entry(name).or_default() += 1,
                Err(errno) => self.hca.complain(format!("an event of CQ {number:#x} is lost: {errno}")),
            }
        }
    }
}
