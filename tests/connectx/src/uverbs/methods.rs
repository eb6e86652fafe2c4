//! What a program can ask for: the table of methods, and those of libibverbs itself.

use std::fmt;

use nix::errno::Errno;

use super::devx::DevxObject;
use super::flow::{Flow, FlowAction, Matcher};
use super::ids::{UHW_IN, UHW_OUT, object, write};
use super::kernel::{Command, made, pages, send};
use super::outlet::Outlet;
use super::qp::QueuePair;
use super::request::{Native, NativeOut, Refused, Request};
use super::roots::{self, Anchor};
use super::verbs_flow::{Counters, VerbsFlow};
use super::work_queues::WorkQueue;
use super::{ContextId, State, completions, devx, flow, qp, verbs_flow, work_queues};
use crate::command::layouts as l;
use crate::hca::Hca;
use crate::hca::function::vhca_id;
use crate::profile::{LOG_LARGEST_SEGMENT, Profile, VPORT_ECPF, VPORT_UPLINK};
use crate::steering::address::{Side, Terminal};
use crate::steering::icm::{Kind as Memory, LOG_GRANULARITY, OBJECT_TYPE};

/// A method: what carries it out, and which attributes it looks at.
pub(super) struct Method {
    object: u16,
    method: u16,
    name: &'static str,
    pub(super) attributes: &'static [u16],
    pub(super) run: fn(&mut State, ContextId, &Request<'_>) -> Result<(), Refused>,
}

pub(super) fn find(request: &Request<'_>) -> Result<&'static Method, Refused> {
    let found = METHODS.iter().find(|method| (method.object, method.method) == (request.object, request.method));
    found.ok_or_else(|| Refused::new(Errno::EPROTONOSUPPORT, "not modelled"))
}

/// A request's name for people, also of those that are not modelled.
pub(super) fn name(request: &Request<'_>) -> String {
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
    DEVICE 0x2 QUERY_PORT [0, 1] query_port,
    DEVICE 0x3 GET_CONTEXT [0, 1, UHW_IN, UHW_OUT] get_context,
    DEVICE 0x5 QUERY_GID_TABLE [0, 1, 2, 3] query_gid_table,
    DEVICE 0x6 QUERY_GID_ENTRY [0, 1, 2, 3] query_gid_entry,
    DEVICE 0x1000 MLX5_QUERY_PORT [0x1000, 0x1001] query_vport,
    PD 0x0 PD_DESTROY [0] destroy,
    PD 0x1000 PD_QUERY [0x1000, 0x1001] query_pd,
    CQ 0x0 CQ_CREATE [0, 1, 2, 3, 4, 5, 6, UHW_IN, UHW_OUT] completions::create_cq,
    CQ 0x1 CQ_DESTROY [0, 1] completions::destroy_cq,
    QP 0x0 QP_CREATE [0, 2, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, UHW_IN, UHW_OUT] qp::create,
    QP 0x1 QP_DESTROY [0, 1] destroy_qp,
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

/// What a program has made.
#[derive(Debug, Clone)]
pub(super) enum Object {
    Pd(u64),
    /// By its key without the lowest byte.
    Mr(u64),
    /// Steering memory: object id, address and length.
    Dm {
        id: u64,
        address: u64,
        length: u64,
    },
    Cq(u64),
    QueuePair(QueuePair),
    WorkQueue(WorkQueue),
    /// A table of 2^`log` receive queues.
    QueueTable {
        id: u64,
        log: u32,
    },
    Uar(u64),
    Umem(u64),
    Devx(DevxObject),
    Matcher(Matcher),
    Anchor(Anchor),
    Flow(Flow),
    FlowAction(FlowAction),
    VerbsFlow(VerbsFlow),
    Counters(Counters),
}

impl fmt::Display for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pd(id) => write!(out, "PD {id:#x}"),
            Self::Mr(id) => write!(out, "MR {id:#x}"),
            Self::Dm { id, length, .. } => write!(out, "DM {id:#x} of {length:#x} bytes"),
            Self::Cq(id) => write!(out, "CQ {id:#x}"),
            Self::QueuePair(pair) => write!(out, "{pair}"),
            Self::WorkQueue(queue) => write!(out, "WQ {:#x}", queue.id),
            Self::QueueTable { id, .. } => write!(out, "table {id:#x} of WQs"),
            Self::Uar(id) => write!(out, "UAR {id:#x}"),
            Self::Umem(id) => write!(out, "umem {id:#x}"),
            Self::Devx(object) => write!(out, "{object}"),
            Self::Matcher(_) => out.write_str("flow matcher"),
            Self::Anchor(_) => out.write_str("steering anchor"),
            Self::Flow(_) => out.write_str("flow"),
            Self::VerbsFlow(_) => out.write_str("flow of verbs"),
            Self::Counters(_) => out.write_str("counters"),
            Self::FlowAction(_) => out.write_str("flow action"),
        }
    }
}

impl State {
    /// Sends the command that undoes what made an object.
    pub(super) fn undo(&mut self, object: &Object) -> Result<(), Refused> {
        let hca = &mut self.hca;
        let numbered = |opcode, id: u64| Command::new(opcode, &l::object::LAYOUT, &[(l::object::ID, id)]);
        match object {
            Object::Pd(id) => send(hca, &numbered(0x801, *id)).map(|_| ()),
            Object::Mr(id) => send(hca, &numbered(0x202, *id)).map(|_| ()),
            Object::Cq(id) => send(hca, &numbered(0x401, *id)).map(|_| ()),
            Object::QueuePair(pair) => pair.destroy(hca),
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
        write::QUERY_DEVICE if !request.has(1) => Err(Refused::new(Errno::ENOSPC, super::PROBE)),
        // The older one's answer is what the other's begins with.
        write::QUERY_DEVICE | QUERY_DEVICE_EXTENDED => query_device(state, request),
        write::ALLOC_PD => alloc_pd(state, context, request),
        write::REG_MR => register_memory(state, context, request),
        write::QUERY_QP => qp::query(state, context, request),
        write::MODIFY_QP => qp::modify(state, context, request),
        write::CREATE_FLOW => verbs_flow::create(state, context, request),
        write::MODIFY_WQ => work_queues::modify(state, context, request),
        write::CREATE_RWQ_IND_TBL => work_queues::create_table(state, context, request),
        write::CREATE_COMP_CHANNEL => completions::create_channel(state, context, request),
        command => Err(Refused::new(Errno::EOPNOTSUPP, format!("command {command:#x} is not modelled"))),
    }
}

fn query_device(state: &mut State, request: &Request<'_>) -> Result<(), Refused> {
    const LENGTH: u32 = 304;
    const DRIVER_LENGTH: u32 = 96;
    const MELLANOX: u32 = 0x15b3;
    const RAW_PACKET: u32 = 1 << 8;
    const RAW_IP_CSUM: u32 = 1 << 26;
    const STRIPS_TAG: u32 = 1 << 0;
    const IP_CSUM: u32 = 1 << 2;
    /// Fields of hashes: addresses and ports of both kinds, and inner ones.
    const HASHED: u64 = 1 << 31 | 0xff;
    const TOEPLITZ: u8 = 1;
    /// Several frames in one request, of the newer kind, too.
    const SEVERAL_FRAMES: u32 = 1 << 1 | 1 << 2;
    let profile = state.hca.profile();
    let (major, minor, subminor) = profile.firmware;
    let firmware = u64::from(major) << 32 | u64::from(minor) << 16 | u64::from(subminor);
    let guid = node_guid();
    let ports = u8::try_from(ports(profile).len()).unwrap_or(u8::MAX);
    let mut answer = NativeOut::new(LENGTH as usize)
        .u64(0, firmware)
        .put(8, guid.to_be_bytes())
        .put(16, guid.to_be_bytes())
        // max_mr_size and page_size_cap.
        .u64(24, u64::MAX)
        .u64(32, !0xfff)
        .u32(40, MELLANOX)
        .u32(44, profile.device_id.into());
    // From max_qp on, by byte offset: what programs divide by or check against.
    let limits =
        [(52, 1 << 18), (56, 1 << 15), (64, 30), (68, 30), (72, 1 << 20), (76, 1 << 22), (80, 1 << 20), (84, 1 << 20)];
    for (at, limit) in limits {
        answer = answer.u32(at, limit);
    }
    // Tables of receive queues: for raw packets, how many, and how large each.
    // Checksums of raw packets, also in the longer list; tags and sums in completions.
    answer = answer.u32(60, RAW_IP_CSUM).u64(224, RAW_IP_CSUM.into()).u32(252, STRIPS_TAG | IP_CSUM);
    answer = answer.u32(232, RAW_PACKET).u32(236, 1 << 10).u32(240, 1 << 11).u32(248, 1 << 18);
    answer = answer.u16(168, 1).u8(171, ports).u32(180, LENGTH);
    request.output(1, answer.bytes())?;
    let driver = NativeOut::new(DRIVER_LENGTH as usize)
        .u32(4, DRIVER_LENGTH)
        .u32(8, 1 << LOG_LARGEST_SEGMENT)
        .u32(12, RAW_PACKET)
        .u64(16, HASHED)
        .u8(24, TOEPLITZ)
        .u32(56, SEVERAL_FRAMES);
    request.output(UHW_OUT, driver.bytes())
}

/// GUID of the node, as vports have it.
pub(super) fn node_guid() -> u64 {
    0x0200_0000_0100_0000
}

/// Vports by IB port, from 1 on: the wire, and then representors.
pub(super) fn ports(profile: &Profile) -> Vec<u16> {
    let mut vports = profile.vports();
    vports.retain(|vport| *vport != VPORT_UPLINK && *vport != VPORT_ECPF);
    if !profile.embedded_cpu {
        // A host's function is the wire's owner, and not its own representor.
        vports.retain(|vport| *vport != 0);
    }
    vports.insert(0, VPORT_UPLINK);
    vports
}

fn query_port(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const ACTIVE: u8 = 4;
    const MTU_1024: u8 = 3;
    const MTU_4096: u8 = 5;
    const LINK_UP: u8 = 5;
    const ETHERNET: u8 = 2;
    const WIDTH_4X: u8 = 2;
    const EDR: u8 = 32;
    let number = request.value(0)?;
    let known = usize::try_from(number).is_ok_and(|number| (1..=ports(state.hca.profile()).len()).contains(&number));
    if !known {
        return Err(Refused::new(Errno::EINVAL, format!("there is no port {number}")));
    }
    let answer = NativeOut::new(48)
        .u32(4, 1 << 30)
        .u8(26, ACTIVE)
        .u8(27, MTU_4096)
        .u8(28, MTU_1024)
        .u8(34, WIDTH_4X)
        .u8(35, EDR)
        .u8(36, LINK_UP)
        .u8(37, ETHERNET);
    request.output(1, answer.bytes())
}

/// There are no addresses, since nobody has configured a network.
fn query_gid_table(_: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    request.output(2, &[])?;
    request.output(3, &0_u64.to_le_bytes())
}

fn query_gid_entry(_: &mut State, _: ContextId, _: &Request<'_>) -> Result<(), Refused> {
    Err(Refused::new(Errno::ENODATA, "there are no addresses"))
}

fn query_vport(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    /// Vport, its vhca_id, both addresses, and the switch's owner; register C0 is not used here.
    const ALL_BUT_REGISTER: u64 = 0x2f;
    let number = request.value(0x1000)?;
    let ports = ports(state.hca.profile());
    let place = usize::try_from(number).unwrap_or(0).checked_sub(1);
    let missing = || Refused::new(Errno::EOPNOTSUPP, format!("there is no port {number}"));
    let vport = place.and_then(|place| ports.get(place)).copied().ok_or_else(missing)?;
    if !state.hca.profile().eswitch_manager {
        return Err(Refused::new(Errno::EOPNOTSUPP, "the function does not manage the switch"));
    }
    let owner = vhca_id(state.hca.profile().own_vport());
    let terminal = Terminal::Vport(vport);
    let answer = NativeOut::new(40)
        .u64(0, ALL_BUT_REGISTER)
        .u16(8, vport)
        .u16(10, if vport == VPORT_UPLINK { owner } else { vhca_id(vport) })
        .u16(12, owner)
        .u64(16, terminal.address(Side::Receive))
        .u64(24, terminal.address(Side::Transmit));
    request.output(0x1001, answer.bytes())
}

fn get_context(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const DEVX: u32 = 1;
    const COMPLETION_VECTORS: u32 = 2;
    const LENGTH: u32 = 72;
    const LOG_DOORBELL_PAGE: u32 = 12;
    let given = request.input(UHW_IN)?;
    let flags = Native(&given).u32(8).unwrap_or_default();
    if flags & DEVX != 0 && state.context(context)?.uid == 0 {
        let made = made(&mut state.hca, &Command::new(0xa04, &l::create_user_context::LAYOUT, &[]))?;
        state.context(context)?.uid = u16::try_from(made).unwrap_or_default();
    }
    request.output(0, &COMPLETION_VECTORS.to_le_bytes())?;
    request.output(1, &0_u64.to_le_bytes())?;
    let answer = NativeOut::new(LENGTH as usize)
        .u32(0, 1 << 18)
        .u32(4, 512)
        // Pages of doorbells come one by one, so that there are none to begin with.
        .u32(8, 0)
        .u32(12, 64)
        .u16(16, 1024)
        .u16(18, 512)
        .u32(20, 1 << 15)
        .u32(24, 1 << 15)
        .u32(28, 1 << 15)
        .u16(32, u16::try_from(ports(state.hca.profile()).len()).unwrap_or(1))
        .u32(40, LENGTH)
        // Version of completions; queries of the device may carry the driver's part; inline is not needed.
        .u8(44, 1)
        .u8(45, 1)
        .u8(46, 1)
        .u32(56, LOG_DOORBELL_PAGE)
        .u32(60, 1);
    request.output(UHW_OUT, answer.bytes())
}

pub(super) fn destroy_user_context(hca: &mut Hca, uid: u16) -> Result<(), Refused> {
    let field = [(l::destroy_user_context::ID, uid.into())];
    send(hca, &Command::new(0xa06, &l::destroy_user_context::LAYOUT, &field)).map(|_| ())
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
    pub(super) fn pd(&mut self, context: ContextId, handle: u64) -> Result<u64, Refused> {
        match self.object(context, handle)? {
            Object::Pd(id) => Ok(*id),
            other => Err(Refused::new(Errno::EINVAL, format!("{other} is no PD"))),
        }
    }

    pub(super) fn completion_queue(&mut self, context: ContextId, handle: u64) -> Result<u64, Refused> {
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

/// Whether the program has memory there, as the kernel finds out when it pins it.
pub(super) fn pin(request: &Request<'_>, start: u64, length: u64) -> Result<(), Refused> {
    let mut byte = [0];
    let end = start.checked_add(length).ok_or_else(|| Refused::new(Errno::EINVAL, "memory without end"))?;
    if length == 0 {
        return Err(Refused::new(Errno::EINVAL, "memory without length"));
    }
    request.memory().read(start, &mut byte)?;
    let mut at = (start | 0xfff) + 1;
    while at < end {
        request.memory().read(at, &mut byte)?;
        at += 4096;
    }
    Ok(())
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
    let address = state.hca.steering.icm.room(kind, length).ok_or_else(full)?;
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
