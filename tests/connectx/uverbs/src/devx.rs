//! DevX: commands that a program writes itself. The kernel lets those through that it knows to be harmless, puts the program's user
//! context into them, and remembers how to undo those that make something.

use nix::errno::Errno;
use sluice_connectx::command::layouts::{
    create_cq, create_mkey, create_qp, create_rq, create_sq, general_object, general_object_out, header, object,
    object_out, output,
};
use sluice_connectx::command::opcode;
use sluice_connectx::hca::{DEAD, command_name};
use sluice_connectx::layout::Field;

use super::command::execute;
use super::objects::{CREATE_FLOW_TABLE, DevxObject, Object};
use super::outlet::Outlet;
use super::request::{Refused, Request};
use super::state::{ContextId, State};

const CREATE_MKEY: u16 = 0x200;
const CREATE_CQ: u16 = 0x400;
const CREATE_QP: u16 = 0x500;
const CREATE_SQ: u16 = 0x904;
const CREATE_RQ: u16 = 0x908;
const ALLOC_FLOW_COUNTER: u16 = 0x939;

/// A command that makes something, and the one that undoes it.
struct Creation {
    make: u16,
    undo: u16,
    names: Names,
}

/// How the undoing command names what is to go.
enum Names {
    /// By its id, at the usual place.
    Id,
    /// By its id and the type of general object.
    GeneralObject,
    /// By table type, table, and what it is in the table.
    InTable(InTable),
    /// As it was named when it was made.
    Same(Field),
}

enum InTable {
    Itself,
    Group,
    Entry,
}

const ID_32: Field = Field::new("ID", 0x8, 31, 0);
const TABLE_TYPE: Field = Field::new("TABLE_TYPE", 0x10, 31, 24);
const TABLE_ID: Field = Field::new("TABLE_ID", 0x14, 23, 0);
const GROUP_ID: Field = Field::new("GROUP_ID", 0x18, 31, 0);
const FLOW_INDEX: Field = Field::new("FLOW_INDEX", 0x20, 31, 0);
const COUNTER_ID: Field = Field::new("FLOW_COUNTER_ID", 0x1c, 31, 0);
const BULK_LOG: Field = Field::new("FLOW_COUNTER_BULK_LOG_SIZE", 0xc, 12, 8);
const BULK: Field = Field::new("FLOW_COUNTER_BULK", 0xc, 7, 0);
const UDP_PORT: Field = Field::new("VXLAN_UDP_PORT", 0xc, 15, 0);
const OTHER_VPORT: Field = Field::new("OTHER_VPORT", 0x8, 31, 0);

const fn creation(make: u16, undo: u16, names: Names) -> Creation {
    Creation { make, undo, names }
}

/// All that may be made, of what is modelled. (mlx5_ib has more: those are refused by the device.)
const CREATIONS: &[Creation] = &[
    creation(CREATE_MKEY, 0x202, Names::Id),
    creation(CREATE_CQ, 0x401, Names::Id),
    creation(CREATE_QP, 0x501, Names::Id),
    creation(0x771, 0x772, Names::Id),
    creation(0x800, 0x801, Names::Id),
    creation(0x816, 0x817, Names::Id),
    creation(0x827, 0x828, Names::Same(UDP_PORT)),
    creation(0x900, 0x902, Names::Id),
    creation(CREATE_SQ, 0x906, Names::Id),
    creation(CREATE_RQ, 0x90a, Names::Id),
    creation(0x912, 0x914, Names::Id),
    creation(0x916, 0x918, Names::Id),
    creation(CREATE_FLOW_TABLE, 0x931, Names::InTable(InTable::Itself)),
    creation(0x933, 0x934, Names::InTable(InTable::Group)),
    creation(0x936, 0x938, Names::InTable(InTable::Entry)),
    creation(ALLOC_FLOW_COUNTER, 0x93a, Names::Id),
    creation(0x93d, 0x93e, Names::Id),
    creation(0x940, 0x941, Names::Id),
    creation(0xa00, 0xa03, Names::GeneralObject),
];

/// Commands that change an object, and where they name it.
const CHANGES: &[(u16, Field)] = &[
    (0x403, object::ID),
    (0x502, object::ID),
    (0x503, object::ID),
    (0x504, object::ID),
    (0x507, object::ID),
    (0x50a, object::ID),
    (0x901, object::ID),
    (0x905, object::ID),
    (0x909, object::ID),
    (0x917, object::ID),
    (0x93c, TABLE_ID),
    (0xa01, general_object::ID),
];

/// Commands that ask for an object, and where they name it.
const QUERIES: &[(u16, Field)] = &[
    (0x773, Field::new("COUNTER_SET_ID", 0x1c, 7, 0)),
    (0x907, object::ID),
    (0x90b, object::ID),
    (0x932, TABLE_ID),
    (0x935, GROUP_ID),
    (0x937, FLOW_INDEX),
    (0x93b, COUNTER_ID),
    (0xa02, general_object::ID),
];

/// Commands on no object.
const GENERAL: &[u16] = &[0x100, 0x101, 0x10a, 0x740, 0x750, 0x752, 0x754, 0x760, 0x770, 0xb00];

pub(crate) fn other(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let command = command(state, context, request.input(0x1000)?)?;
    let opcode = opcode(&command);
    if !GENERAL.contains(&opcode) {
        return Err(Refused::new(Errno::EINVAL, format!("{} is not for programs", command_name(opcode))));
    }
    answer(state, request, &command, 0x1001)
}

pub(crate) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let mut command = command(state, context, request.input(0x1001)?)?;
    let opcode = opcode(&command);
    let creation = CREATIONS.iter().find(|creation| creation.make == opcode);
    let Some(creation) = creation else {
        return Err(Refused::new(Errno::EINVAL, format!("{} makes nothing for programs", command_name(opcode))));
    };
    // A program names umems, and the kernel says that it does.
    let umems: &[Field] = match opcode {
        // Of keys, those over other keys excepted.
        CREATE_MKEY if is_indirect(&command) => &[],
        CREATE_MKEY => &[create_mkey::MKEY_UMEM_VALID],
        CREATE_CQ => &[create_cq::UMEM_VALID],
        CREATE_QP => &[create_qp::DBR_UMEM_VALID, create_qp::WQ_UMEM_VALID],
        CREATE_SQ => &[create_sq::DBR_UMEM_VALID, create_sq::UMEM_VALID],
        CREATE_RQ => &[create_rq::DBR_UMEM_VALID, create_rq::UMEM_VALID],
        _ => &[],
    };
    for field in umems {
        field.write(&mut command, 1);
    }
    let output = answer_with(state, request, &command, 0x1002)?;
    let object = creation.made(&command, &output);
    let handle = state.keep(context, Object::Devx(object))?;
    request.answer(0x1000, handle)
}

/// Whether a key that a command makes is over other keys.
fn is_indirect(command: &[u8]) -> bool {
    const KLM: u64 = 2;
    const KLM_OF_FIXED_SIZE: u64 = 3;
    let mode = |field: Field| field.read(command).unwrap_or_default();
    let mode = mode(create_mkey::ACCESS_MODE_4_2) << 2 | mode(create_mkey::ACCESS_MODE_1_0);
    matches!(mode, KLM | KLM_OF_FIXED_SIZE)
}

impl Creation {
    fn made(&self, command: &[u8], output: &[u8]) -> DevxObject {
        let mut undo = vec![0; 0x40];
        header::OPCODE.write(&mut undo, self.undo.into());
        header::UID.write(&mut undo, header::UID.read(command).unwrap_or_default());
        let mut copy = |field: Field| field.write(&mut undo, field.read(command).unwrap_or_default());
        let wide = self.make == ALLOC_FLOW_COUNTER || matches!(self.make, 0x93d | 0x940);
        let mut id = if wide { ID_32.read(output) } else { object_out::ID.read(output) }.unwrap_or_default();
        match &self.names {
            Names::Id => {
                ID_32.write(&mut undo, id);
            }
            Names::Same(field) => {
                copy(*field);
                id = field.read(command).unwrap_or_default();
            }
            Names::GeneralObject => {
                copy(header::OP_MOD);
                id = general_object_out::ID.read(output).unwrap_or_default();
                general_object::ID.write(&mut undo, id);
            }
            Names::InTable(place) => {
                copy(OTHER_VPORT);
                copy(TABLE_TYPE);
                match place {
                    InTable::Itself => {
                        TABLE_ID.write(&mut undo, id);
                    }
                    InTable::Group => {
                        copy(TABLE_ID);
                        GROUP_ID.write(&mut undo, id);
                    }
                    InTable::Entry => {
                        copy(TABLE_ID);
                        copy(FLOW_INDEX);
                        id = FLOW_INDEX.read(command).unwrap_or_default();
                    }
                }
            }
        }
        let table_type = TABLE_TYPE.read(command).unwrap_or_default().to_be_bytes()[7];
        let counters = if self.make == ALLOC_FLOW_COUNTER { counters(command) } else { 0 };
        DevxObject { made_by: self.make, id, counters, table_type, undo }
    }
}

/// How many flow counters a command allocates.
fn counters(command: &[u8]) -> u64 {
    const UNIT: u64 = 128;
    let [log, units] = [BULK_LOG, BULK].map(|field| field.read(command).unwrap_or_default());
    if units > 0 { UNIT * units } else { 1 << log }
}

pub(crate) fn modify(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let command = on_object(state, context, request, CHANGES)?;
    answer(state, request, &command, 0x1002)
}

pub(crate) fn query(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let command = on_object(state, context, request, QUERIES)?;
    answer(state, request, &command, 0x1002)
}

/// A query whose answer comes out of a file, behind a number of the program's.
pub(crate) fn query_later(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let command = on_object(state, context, request, QUERIES)?;
    let length = usize::try_from(request.value(0x1004)?).unwrap_or(0);
    let file = request.value(0x1002)?;
    let mut answer = request.value(0x1003)?.to_le_bytes().to_vec();
    let State { contexts, hca, .. } = state;
    let outlet = contexts.get(&context).and_then(|context| context.answers.get(&file));
    let outlet = outlet.ok_or_else(|| Refused::new(Errno::EBADF, format!("file {file} takes no answers")))?;
    let mut output = execute(hca, &command);
    output.resize(length, 0);
    answer.extend(output);
    // Who has asked does not wait for an answer that is late.
    let late = hca.take_lateness();
    let put = if late.is_zero() { outlet.put(&answer) } else { outlet.put_later(answer, late) };
    put.map_err(|errno| Refused::new(errno, format!("file {file} takes no more answers")))
}

pub(crate) fn open_answers(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let (outlet, file) = Outlet::open()?;
    state.context(context)?.answers.insert(file, outlet);
    request.answer(0x1000, file)
}

pub(crate) fn query_event_queue(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let number = u32::try_from(state.kernel.event_queue).unwrap_or_default();
    request.output(0x1001, &number.to_le_bytes())
}

/// A command that names the object that the request is for.
fn on_object(
    state: &mut State,
    context: ContextId,
    request: &Request<'_>,
    allowed: &[(u16, Field)],
) -> Result<Vec<u8>, Refused> {
    let command = command(state, context, request.input(0x1001)?)?;
    let opcode = opcode(&command);
    let Some((_, field)) = allowed.iter().find(|(allowed, _)| *allowed == opcode) else {
        return Err(Refused::new(Errno::EINVAL, format!("{} is not for programs here", command_name(opcode))));
    };
    let named = field.read(&command).unwrap_or_default();
    match state.object(context, request.value(0x1000)?)? {
        // A block of counters is asked for from anywhere in it.
        Object::Devx(object) if object.is(named) => Ok(command),
        other => Err(Refused::new(Errno::EINVAL, format!("{} names {named:#x}, not {other}", command_name(opcode)))),
    }
}

/// The command with the program's user context in it.
fn command(state: &mut State, context: ContextId, mut command: Vec<u8>) -> Result<Vec<u8>, Refused> {
    let uid = state.context(context)?.uid;
    if uid == 0 {
        return Err(Refused::new(Errno::EINVAL, "the context was opened without DevX"));
    }
    if !header::UID.write(&mut command, uid.into()) {
        return Err(Refused::new(Errno::EINVAL, "a command without header"));
    }
    Ok(command)
}

fn answer(state: &mut State, request: &Request<'_>, command: &[u8], to: u16) -> Result<(), Refused> {
    answer_with(state, request, command, to).map(|_| ())
}

/// Carries a command out and writes its output, also where it was refused, as newer kernels do.
fn answer_with(state: &mut State, request: &Request<'_>, command: &[u8], to: u16) -> Result<Vec<u8>, Refused> {
    let output = execute(&mut state.hca, command);
    request.output(to, &output)?;
    match output::STATUS.read(&output) {
        Some(0) => Ok(output),
        Some(status) if status == u64::from(DEAD) => {
            Err(Refused::new(Errno::EIO, format!("{} of a dead device", command_name(opcode(command)))))
        }
        status => {
            let status = status.unwrap_or_default();
            Err(Refused::new(Errno::EREMOTEIO, format!("{} had status {status:#x}", command_name(opcode(command)))))
        }
    }
}
