//! What a program can ask for: the table of methods, and those of libibverbs itself.

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::steering::icm::{Kind as Memory, LOG_GRANULARITY, OBJECT_TYPE};

use super::command::{Command, made, pages, send};
use super::ids::{UHW_IN, UHW_OUT, object, write};
use super::objects::Object;
use super::outlet::Outlet;
use super::request::{Native, NativeOut, PROBE, Refused, Request, pin};
use super::state::{ContextId, State};
use super::{completions, device, devx, flow, gids, qp, roots, shared_receives, verbs_flow, work_queues};

/// A method: what carries it out, and which attributes it looks at.
pub(crate) struct Method {
    object: u16,
    method: u16,
    name: &'static str,
    pub(crate) attributes: &'static [u16],
    pub(crate) run: fn(&mut State, ContextId, &Request<'_>) -> Result<(), Refused>,
}

pub(crate) fn find(request: &Request<'_>) -> Result<&'static Method, Refused> {
    let found = METHODS.iter().find(|method| (method.object, method.method) == (request.object, request.method));
    found.ok_or_else(|| Refused::new(Errno::EPROTONOSUPPORT, "not modelled"))
}

/// A request's name for people, also of those that are not modelled.
pub(crate) fn name(request: &Request<'_>) -> String {
    let unknown = |_| format!("method {:#x} of object {:#x}", request.method, request.object);
    find(request).map_or_else(unknown, |method| method.name.to_owned())
}

macro_rules! methods {
    ($($object:ident $method:literal $name:ident [$($attribute:expr),*] $run:path,)*) => {
        &[$(Method {
            object: object::$object,
            method: $method,
            name: stringify!($name),
            attributes: &[$($attribute),*],
            run: $run,
        }),*]
    };
}

const METHODS: &[Method] = methods![
    DEVICE 0x0 INVOKE_WRITE [0, 1, 2, UHW_IN, UHW_OUT] invoke_write,
    DEVICE 0x2 QUERY_PORT [0, 1] device::query_port,
    DEVICE 0x3 GET_CONTEXT [0, 1, UHW_IN, UHW_OUT] device::get_context,
    DEVICE 0x5 QUERY_GID_TABLE [0, 1, 2, 3] gids::query_table,
    DEVICE 0x6 QUERY_GID_ENTRY [0, 1, 2, 3] gids::query_entry,
    DEVICE 0x1000 MLX5_QUERY_PORT [0x1000, 0x1001] device::query_vport,
    PD 0x0 PD_DESTROY [0] destroy,
    PD 0x1000 PD_QUERY [0x1000, 0x1001] query_pd,
    CQ 0x0 CQ_CREATE [0, 1, 2, 3, 4, 5, 6, UHW_IN, UHW_OUT] completions::create_cq,
    CQ 0x1 CQ_DESTROY [0, 1] completions::destroy_cq,
    QP 0x0 QP_CREATE [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, UHW_IN, UHW_OUT] qp::create,
    QP 0x1 QP_DESTROY [0, 1] destroy_qp,
    SRQ 0x0 SRQ_CREATE [0, 1, 4, 5, 6, 7, 9, 10, 11, 12, UHW_IN, UHW_OUT] shared_receives::create,
    SRQ 0x1 SRQ_DESTROY [0, 1] shared_receives::destroy,
    WQ 0x0 WQ_CREATE [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, UHW_IN, UHW_OUT] work_queues::create,
    WQ 0x1 WQ_DESTROY [0, 1] work_queues::destroy,
    RWQ_IND_TBL 0x0 RWQ_IND_TBL_DESTROY [0] destroy,
    MR 0x0 DM_MR_REG [0, 1, 2, 3, 4, 5, 6, 7] register_device_memory,
    MR 0x1 MR_DESTROY [0] destroy,
    DM 0x0 DM_ALLOC [0, 1, 2, 0x1000, 0x1001, 0x1002] allocate_device_memory,
    DM 0x1 DM_FREE [0] destroy,
    ASYNC_EVENT 0x0 ASYNC_EVENT_ALLOC [0] open_events,
    UAR 0x1000 UAR_OBJ_ALLOC [0x1000, 0x1001, 0x1002, 0x1003, 0x1004] allocate_doorbells,
    UAR 0x1001 UAR_OBJ_DESTROY [0x1000] destroy_of_driver,
    DEVX_UMEM 0x1000 DEVX_UMEM_REG [0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x1005] register_umem,
    DEVX_UMEM 0x1001 DEVX_UMEM_DEREG [0x1000] destroy_of_driver,
    DEVX 0x1000 DEVX_OTHER [0x1000, 0x1001] devx::other,
    DEVX 0x1002 DEVX_QUERY_EQN [0x1000, 0x1001] devx::query_event_queue,
    DEVX_OBJ 0x1000 DEVX_OBJ_CREATE [0x1000, 0x1001, 0x1002] devx::create,
    DEVX_OBJ 0x1001 DEVX_OBJ_DESTROY [0x1000] destroy_of_driver,
    DEVX_OBJ 0x1002 DEVX_OBJ_MODIFY [0x1000, 0x1001, 0x1002] devx::modify,
    DEVX_OBJ 0x1003 DEVX_OBJ_QUERY [0x1000, 0x1001, 0x1002] devx::query,
    DEVX_OBJ 0x1004 DEVX_OBJ_ASYNC_QUERY [0x1000, 0x1001, 0x1002, 0x1003, 0x1004] devx::query_later,
    DEVX_ASYNC_CMD_FD 0x1000 DEVX_ASYNC_CMD_FD_ALLOC [0x1000] devx::open_answers,
    FLOW_MATCHER 0x1000 FLOW_MATCHER_CREATE [0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x1005] flow::create_matcher,
    FLOW_MATCHER 0x1001 FLOW_MATCHER_DESTROY [0x1000] destroy_of_driver,
    STEERING_ANCHOR 0x1000 STEERING_ANCHOR_CREATE [0x1000, 0x1001, 0x1002, 0x1003] roots::create_anchor,
    STEERING_ANCHOR 0x1001 STEERING_ANCHOR_DESTROY [0x1000] destroy_of_driver,
    FLOW 0x1000 CREATE_FLOW
        [0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x1005, 0x1006, 0x1007, 0x1008, 0x1009] flow::create_flow,
    FLOW 0x1001 DESTROY_FLOW [0x1000] destroy_of_driver,
    FLOW 0x0 FLOW_DESTROY [0] verbs_flow::destroy_flow,
    COUNTERS 0x0 COUNTERS_CREATE [0] verbs_flow::create_counters,
    COUNTERS 0x1 COUNTERS_DESTROY [0] destroy,
    COUNTERS 0x2 COUNTERS_READ [0, 1, 2] verbs_flow::read_counters,
    FLOW_ACTION 0x1000 CREATE_MODIFY_HEADER [0x1000, 0x1001, 0x1002] flow::create_modify_header,
    FLOW_ACTION 0x1001 CREATE_PACKET_REFORMAT [0x1000, 0x1001, 0x1002, 0x1003] flow::create_packet_reformat,
    FLOW_ACTION 0x1 FLOW_ACTION_DESTROY [0] destroy,
];

impl State {
    /// Sends the command that undoes what made an object.
    pub(crate) fn undo(&mut self, object: &Object) -> Result<(), Refused> {
        let hca = &mut self.hca;
        let numbered = |opcode, id: u64| Command::new(opcode, &l::object::LAYOUT, &[(l::object::ID, id)]);
        match object {
            Object::Pd(id) => send(hca, &numbered(0x801, *id)).map(|_| ()),
            Object::Mr(id) => send(hca, &numbered(0x202, *id)).map(|_| ()),
            Object::Cq(id) => send(hca, &numbered(0x401, *id)).map(|_| ()),
            Object::QueuePair(pair) => pair.destroy(hca),
            Object::Connection(connection) => send(hca, &numbered(0x501, connection.number)).map(|_| ()),
            Object::SharedReceives(id) => send(hca, &numbered(0x90e, *id)).map(|_| ()),
            Object::WorkQueue(queue) => send(hca, &numbered(0x90a, queue.id)).map(|_| ()),
            Object::QueueTable { id, .. } => send(hca, &numbered(0x918, *id)).map(|_| ()),
            Object::Uar(id) => send(hca, &numbered(0x803, *id)).map(|_| ()),
            Object::Umem(id) => send(hca, &numbered(0xa0a, *id)).map(|_| ()),
            Object::Dm { id, .. } => {
                let field = [(l::general_object::ID, *id)];
                let command = Command::new(0xa03, &l::general_object::LAYOUT, &field).modifier(OBJECT_TYPE);
                send(hca, &command).map(|_| ())
            }
            Object::Devx(object) => {
                object.destroy(hca)?;
                roots::sweep(self)
            }
            Object::Matcher(matcher) => flow::destroy_matcher(self, matcher),
            Object::Anchor(anchor) => roots::destroy_anchor(self, *anchor),
            Object::Flow(flow) => flow::destroy_flow(self, flow),
            Object::VerbsFlow(flow) => verbs_flow::destroy(self, flow),
            Object::Counters(counters) => counters.destroy(hca),
            Object::FlowAction(action) => action.destroy(hca),
        }
    }
}

fn destroy(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    state.destroy(context, request.value(0)?)
}

/// Answers with how many events the program has had of the pair, of which there are none here.
fn destroy_qp(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    destroy(state, context, request)?;
    request.output(1, &[])
}

fn destroy_of_driver(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    state.destroy(context, request.value(0x1000)?)
}

fn invoke_write(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const QUERY_DEVICE_EXTENDED: u32 = write::EXTENDED | write::QUERY_DEVICE;
    match request.value_u32(2)? {
        // libibverbs finds out by it whether such commands may come in requests.
        write::QUERY_DEVICE if !request.has(1) => Err(Refused::new(Errno::ENOSPC, PROBE)),
        // The older one's answer is what the other's begins with.
        write::QUERY_DEVICE | QUERY_DEVICE_EXTENDED => device::query(state, request),
        write::ALLOC_PD => alloc_pd(state, context, request),
        write::REG_MR => register_memory(state, context, request),
        write::QUERY_QP => qp::query(state, context, request),
        write::MODIFY_QP | write::MODIFY_QP_EXTENDED => qp::modify(state, context, request),
        write::CREATE_FLOW => verbs_flow::create(state, context, request),
        write::MODIFY_WQ => work_queues::modify(state, context, request),
        write::CREATE_RWQ_IND_TBL => work_queues::create_table(state, context, request),
        write::CREATE_COMP_CHANNEL => completions::create_channel(state, context, request),
        command => Err(Refused::new(Errno::EOPNOTSUPP, format!("command {command:#x} is not modelled"))),
    }
}

fn alloc_pd(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let id = made(&mut state.hca, &Command::new(0x800, &l::plain::LAYOUT, &[]))?;
    let handle = state.keep(context, Object::Pd(id))?;
    request.output(1, &low(handle))?;
    request.output(UHW_OUT, &low(id))
}

fn low(value: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = value.to_le_bytes();
    [a, b, c, d]
}

fn query_pd(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let id = state.pd(context, request.value(0x1000)?)?;
    request.output(0x1001, &low(id))
}

impl State {
    pub(crate) fn pd(&mut self, context: ContextId, handle: u64) -> Result<u64, Refused> {
        match self.object(context, handle)? {
            Object::Pd(id) => Ok(*id),
            other => Err(Refused::new(Errno::EINVAL, format!("{other} is no PD"))),
        }
    }

    pub(crate) fn completion_queue(&mut self, context: ContextId, handle: u64) -> Result<u64, Refused> {
        match self.object(context, handle)? {
            Object::Cq(id) => Ok(*id),
            other => Err(Refused::new(Errno::EINVAL, format!("{other} is no queue of completions"))),
        }
    }

    /// Makes a key with the rights of a memory region.
    fn key(
        &mut self,
        pd: u64,
        (start, length): (u64, u64),
        access: u64,
        mode: u64,
        list: &[u8],
    ) -> Result<u64, Refused> {
        use l::create_mkey as f;
        const LOCAL_WRITE: u64 = 1 << 0;
        const REMOTE_WRITE: u64 = 1 << 1;
        const REMOTE_READ: u64 = 1 << 2;
        const ZERO_BASED: u64 = 1 << 5;
        /// Flags that the kernel may overlook.
        const OPTIONAL: u64 = 0x3ff << 20;
        let known = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | ZERO_BASED | OPTIONAL;
        if access & !known != 0 {
            return Err(Refused::new(Errno::EOPNOTSUPP, format!("access {access:#x} is not modelled")));
        }
        let allowed = |flag: u64| u64::from(access & flag != 0);
        let fields = [
            (f::PD, pd),
            (f::START_ADDR, start),
            (f::LEN, length),
            (f::ACCESS_MODE_1_0, mode & 0x3),
            (f::ACCESS_MODE_4_2, mode >> 2),
            (f::QPN, 0xff_ffff),
            (f::LR, 1),
            (f::LW, allowed(LOCAL_WRITE)),
            (f::RR, allowed(REMOTE_READ)),
            (f::RW, allowed(REMOTE_WRITE)),
            (f::LOG_PAGE_SIZE, 12),
            (f::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, (list.len() as u64).div_ceil(16)),
        ];
        made(&mut self.hca, &Command::new(0x200, &f::LAYOUT, &fields).followed_by(list))
    }
}

fn register_memory(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const PAGES: u64 = 1;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "REG_MR ends too early");
    let wide = |at| native.u64(at).ok_or_else(short);
    let (start, length, virtual_start) = (wide(8)?, wide(16)?, wide(24)?);
    let (pd, access) = (native.u32(32).ok_or_else(short)?, native.u32(36).ok_or_else(short)?);
    if start % 4096 != virtual_start % 4096 {
        return Err(Refused::new(Errno::EINVAL, format!("{start:#x} and {virtual_start:#x} differ within a page")));
    }
    pin(request, start, length)?;
    let pd = state.pd(context, pd.into())?;
    let (list, _) = pages(start, length);
    let id = state.key(pd, (virtual_start, length), access.into(), PAGES, &list)?;
    let handle = state.keep(context, Object::Mr(id))?;
    let answer = NativeOut::new(12).put(0, low(handle)).put(4, low(id << 8)).put(8, low(id << 8));
    request.output(1, answer.bytes())
}

fn register_device_memory(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const STEERING: u64 = 4;
    let (offset, length) = (request.value(1)?, request.value(2)?);
    let pd = state.pd(context, request.value(3)?)?;
    let memory = request.value_u32(5)?;
    let (start, size) = match state.object(context, memory.into())? {
        Object::Dm { address, length, .. } => (*address, *length),
        other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no device memory"))),
    };
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(Refused::new(Errno::EINVAL, format!("{length:#x} bytes at {offset:#x} of {size:#x}")));
    }
    let id = state.key(pd, (start + offset, length), request.value(4)?, STEERING, &[])?;
    let handle = state.keep_using(context, Object::Mr(id), vec![memory])?;
    request.answer(0, handle)?;
    request.output(6, &low(id << 8))?;
    request.output(7, &low(id << 8))
}

fn allocate_device_memory(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const START: u16 = 0x1000;
    const TYPE: u16 = 0x1002;
    let kind = match request.value_or(TYPE, 0) {
        1 => Memory::Steering,
        2 => Memory::Rewrites,
        3 => Memory::Patterns,
        kind => return Err(Refused::new(Errno::EOPNOTSUPP, format!("memory of type {kind} is not modelled"))),
    };
    if !(state.privileges.net_raw && state.privileges.sys_rawio) {
        return Err(Refused::new(Errno::EPERM, "steering memory needs CAP_NET_RAW and CAP_SYS_RAWIO"));
    }
    let length = request.value(1)?.max(1 << LOG_GRANULARITY).checked_next_power_of_two();
    let full = || Refused::new(Errno::ENOMEM, "no steering memory is left");
    let length = length.ok_or_else(full)?;
    let address = state.hca.steering().room(kind, length).ok_or_else(full)?;
    let body = NativeOut::new(l::steering_memory::LAYOUT.length);
    let mut body = body.bytes().to_vec();
    l::steering_memory::LOG_SIZE.write(&mut body, length.ilog2().into());
    l::steering_memory::START.write(&mut body, address);
    let command = Command::new(0xa00, &l::general_object::LAYOUT, &[]).modifier(OBJECT_TYPE).followed_by(&body);
    let answer = send(&mut state.hca, &command)?;
    let id = l::general_object_out::ID.read(&answer).unwrap_or_default();
    let handle = state.keep(context, Object::Dm { id, address, length })?;
    request.answer(0, handle)?;
    request.output(START, &address.to_le_bytes())
}

fn open_events(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let (outlet, file) = Outlet::open()?;
    state.context(context)?.events.push(outlet);
    request.answer(0, file)
}

fn allocate_doorbells(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const PAGE: u32 = 4096;
    let id = made(&mut state.hca, &Command::new(0x802, &l::plain::LAYOUT, &[]))?;
    let handle = state.keep(context, Object::Uar(id))?;
    request.answer(0x1000, handle)?;
    request.output(0x1002, &(id * u64::from(PAGE)).to_le_bytes())?;
    request.output(0x1003, &PAGE.to_le_bytes())?;
    request.output(0x1004, &low(id))
}

fn register_umem(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    use l::create_umem as f;
    let (address, length) = (request.value(0x1001)?, request.value(0x1002)?);
    pin(request, address, length)?;
    let (list, offset) = pages(address, length);
    let fields = [(f::PAGE_OFFSET, offset), (f::NUM_OF_MTT, (list.len() / 8) as u64)];
    let id = made(&mut state.hca, &Command::new(0xa08, &f::LAYOUT, &fields).followed_by(&list))?;
    let handle = state.keep(context, Object::Umem(id))?;
    request.answer(0x1000, handle)?;
    request.output(0x1004, &low(id))
}

impl State {
    /// Carries a request out, or notes why not.
    pub(crate) fn request(&mut self, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
        let outcome = find(request).and_then(|method| {
            request.require_known(method.attributes)?;
            (method.run)(self, context, request)
        });
        if let Err(refused) = &outcome
            && !refused.is_an_answer()
        {
            let (name, Refused { errno, reason }) = (name(request), refused);
            self.refusals.push(format!("{name} refused with {errno:?}: {reason} [{}]", request.describe()));
        }
        outcome
    }
}
