//! The core without a virtual machine: commands as a driver writes them, and rings in a test's memory.

use std::time::Duration;

use super::state::{CommandFault, Hca, Stage, Trouble};
use crate::command::layouts::{self as l, header, output};
use crate::layout::{Field, Layout};
use crate::memory::Memory;
use crate::memory::test::Flat;
use crate::profile::caps::general;
use crate::profile::{BLUEFIELD_2, CONNECTX_6_DX, CONNECTX_6_DX_VFS, Profile, VPORT_ECPF};
use crate::steering::{Port, Walk};

const OK: u8 = 0;
const BAD_OPERATION: u8 = 0x02;
const BAD_PARAMETER: u8 = 0x03;
const BAD_SYSTEM_STATE: u8 = 0x04;
const BAD_RESOURCE: u8 = 0x05;
const RESOURCE_BUSY: u8 = 0x06;
const LIMIT_EXCEEDED: u8 = 0x08;
const BAD_RESOURCE_STATE: u8 = 0x09;
const BAD_INPUT_LENGTH: u8 = 0x50;

/// An input mailbox.
fn input(opcode: u16, op_mod: u16, layout: &Layout, fields: &[(Field, u64)], tail: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; layout.length.max(16)];
    header::OPCODE.write(&mut bytes, opcode.into());
    header::OP_MOD.write(&mut bytes, op_mod.into());
    for (field, value) in fields {
        assert!(field.write(&mut bytes, *value), "{} is outside", field.name());
    }
    bytes.extend_from_slice(tail);
    bytes
}

pub(super) fn run(
    hca: &mut Hca,
    opcode: u16,
    op_mod: u16,
    layout: &Layout,
    fields: &[(Field, u64)],
    tail: &[u8],
) -> Vec<u8> {
    hca.execute(&Flat::new(0), &input(opcode, op_mod, layout, fields, tail))
}

pub(super) fn status(output: &[u8]) -> u8 {
    output::STATUS.read(output).unwrap().to_be_bytes()[7]
}

/// A command that succeeds, and the object that it made.
pub(super) fn made(hca: &mut Hca, opcode: u16, layout: &Layout, fields: &[(Field, u64)], tail: &[u8]) -> u64 {
    let answer = run(hca, opcode, 0, layout, fields, tail);
    assert_eq!(status(&answer), OK, "{:?}", hca.refusals().last());
    l::object_out::ID.read(&answer).unwrap()
}

fn pages(count: u64) -> Vec<u8> {
    (1..=count).flat_map(|page| (page * 4096).to_be_bytes()).collect()
}

/// A device that the driver has initialized.
pub(super) fn initialized(profile: Profile) -> Hca {
    let mut hca = Hca::new(profile);
    let own = [(l::function::EMBEDDED_CPU_FUNCTION, u64::from(profile.embedded_cpu))];
    assert_eq!(status(&run(&mut hca, 0x104, 0, &l::function::LAYOUT, &own, &[])), OK);
    assert_eq!(status(&run(&mut hca, 0x10b, 0, &l::set_issi::LAYOUT, &[(l::set_issi::CURRENT_ISSI, 1)], &[])), OK);
    let give = [(l::manage_pages::INPUT_NUM_ENTRIES, 68)];
    assert_eq!(status(&run(&mut hca, 0x108, 1, &l::manage_pages::LAYOUT, &give, &pages(68))), OK);
    assert_eq!(status(&run(&mut hca, 0x102, 0, &l::init_hca::LAYOUT, &[], &[])), OK);
    assert_eq!(hca.stage(), Stage::Initialized);
    hca
}

#[test]
fn an_unknown_opcode_is_refused_and_kept_with_its_words() {
    let mut hca = initialized(BLUEFIELD_2);
    let answer = run(&mut hca, 0xfff, 0, &l::plain::LAYOUT, &[], &[0xab; 4]);
    assert_eq!(status(&answer), BAD_OPERATION);
    let refusal = hca.refusals().last().unwrap().to_string();
    assert!(
        refusal.starts_with("command 0xfff refused with status 0x2, syndrome 0xa01: not modelled [0fff0000"),
        "{refusal}"
    );
}

#[test]
fn a_bit_that_is_not_modelled_is_refused() {
    let mut hca = initialized(BLUEFIELD_2);
    let mut bytes = input(0x800, 0, &l::plain::LAYOUT, &[], &[]);
    bytes[4] = 0x80;
    assert_eq!(status(&hca.execute(&Flat::new(0), &bytes)), BAD_PARAMETER);
    let reason = &hca.refusals().last().unwrap().reason;
    assert_eq!(reason, "bits that are not modelled are set in the doubleword at 0x4: 0x80000000");
}

#[test]
fn a_short_input_is_refused() {
    let mut hca = initialized(BLUEFIELD_2);
    let mut bytes = input(0x301, 0, &l::create_eq::LAYOUT, &[], &[]);
    bytes.truncate(0x40);
    assert_eq!(status(&hca.execute(&Flat::new(0), &bytes)), BAD_INPUT_LENGTH);
}

#[test]
fn nothing_can_be_made_before_the_function_is_initialized() {
    let mut hca = Hca::new(BLUEFIELD_2);
    assert_eq!(status(&run(&mut hca, 0x800, 0, &l::plain::LAYOUT, &[], &[])), BAD_SYSTEM_STATE);
    assert_eq!(status(&run(&mut hca, 0x930, 0, &l::plain::LAYOUT, &[], &[])), BAD_SYSTEM_STATE);
    let own = [(l::function::EMBEDDED_CPU_FUNCTION, 1)];
    assert_eq!(status(&run(&mut hca, 0x104, 0, &l::function::LAYOUT, &own, &[])), OK);
    assert_eq!(status(&run(&mut hca, 0x102, 0, &l::init_hca::LAYOUT, &[], &[])), BAD_SYSTEM_STATE);
}

#[test]
fn pages_that_were_lent_come_back_and_none_is_taken_twice() {
    let mut hca = initialized(BLUEFIELD_2);
    let give = [(l::manage_pages::INPUT_NUM_ENTRIES, 1)];
    assert_eq!(status(&run(&mut hca, 0x108, 1, &l::manage_pages::LAYOUT, &give, &pages(1))), BAD_PARAMETER);
    let mut back = 0;
    loop {
        let take = [(l::manage_pages::INPUT_NUM_ENTRIES, 50)];
        let answer = run(&mut hca, 0x108, 2, &l::manage_pages::LAYOUT, &take, &[]);
        let count = l::manage_pages_out::OUTPUT_NUM_ENTRIES.read(&answer).unwrap();
        assert_eq!(answer.len() as u64, 16 + 8 * count);
        if count == 0 {
            break;
        }
        back += count;
    }
    assert_eq!(back, 68);
    assert_eq!(hca.left(), Vec::<String>::new());
}

#[test]
fn a_capability_over_what_the_device_can_do_is_refused() {
    let mut hca = Hca::new(BLUEFIELD_2);
    run(&mut hca, 0x104, 0, &l::function::LAYOUT, &[(l::function::EMBEDDED_CPU_FUNCTION, 1)], &[]);
    let answer = run(&mut hca, 0x100, 1, &l::query_hca_cap::LAYOUT, &[], &[]);
    let mut page = answer[16..].to_vec();
    general::LOG_MAX_QP.write(&mut page, 17);
    assert_eq!(status(&run(&mut hca, 0x109, 0, &l::set_hca_cap::LAYOUT, &[], &page)), OK);
    general::LOG_MAX_QP.write(&mut page, 19);
    assert_eq!(status(&run(&mut hca, 0x109, 0, &l::set_hca_cap::LAYOUT, &[], &page)), LIMIT_EXCEEDED);
    let current = run(&mut hca, 0x100, 1, &l::query_hca_cap::LAYOUT, &[], &[]);
    let most = run(&mut hca, 0x100, 0, &l::query_hca_cap::LAYOUT, &[], &[]);
    assert_eq!(general::LOG_MAX_QP.read(&current[16..]), Some(17));
    assert_eq!(general::LOG_MAX_QP.read(&most[16..]), Some(18));
}

#[test]
fn capabilities_of_an_unknown_type_are_refused() {
    let mut hca = initialized(BLUEFIELD_2);
    assert_eq!(status(&run(&mut hca, 0x100, 0x20 << 1, &l::query_hca_cap::LAYOUT, &[], &[])), BAD_PARAMETER);
}

#[test]
fn only_an_embedded_processor_is_told_of_host_functions() {
    let mut hca = initialized(BLUEFIELD_2);
    let answer = run(&mut hca, 0x740, 0, &l::plain::LAYOUT, &[], &[]);
    assert_eq!(l::query_esw_functions_out::HOST_NUM_OF_VFS.read(&answer), Some(2));
    let mut hca = initialized(CONNECTX_6_DX);
    assert_eq!(status(&run(&mut hca, 0x740, 0, &l::plain::LAYOUT, &[], &[])), BAD_OPERATION);
}

#[test]
fn a_host_gets_functions_and_the_driver_an_event() {
    const EQ: u64 = 0x1000;
    use l::create_eq as e;
    let mut hca = initialized(BLUEFIELD_2);
    let memory = Flat::new(0x2000);
    let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
    let fields = [(e::UAR_PAGE, uar), (e::LOG_EQ_SIZE, 2), (e::EVENT_BITMASK_0, 1 << 0xe)];
    made(&mut hca, 0x301, &e::LAYOUT, &fields, &EQ.to_be_bytes());
    assert!(hca.receive(Port::Vport(3), &[0; 60]) == Walk::default() && hca.complaints().len() == 1);
    hca.set_host_vfs(&memory, 3);
    assert_eq!(memory.0.borrow()[0x1001], 0xe, "the type of the event");
    let answer = run(&mut hca, 0x740, 0, &l::plain::LAYOUT, &[], &[]);
    assert_eq!(l::query_esw_functions_out::HOST_NUM_OF_VFS.read(&answer), Some(3));
    hca.receive(Port::Vport(3), &[0; 60]);
    assert_eq!(hca.complaints().len(), 1);
    hca.set_host_vfs(&memory, 9);
    assert_eq!(hca.host_vfs(), 8, "as many as there can be");
    hca.reset();
    assert_eq!(hca.host_vfs(), 8, "they are the host's");
}

#[test]
fn the_driver_of_a_host_enables_its_functions_one_after_the_other() {
    use l::function::FUNCTION_ID;
    const ENABLE: u16 = 0x104;
    const DISABLE: u16 = 0x105;
    let mut hca = initialized(CONNECTX_6_DX_VFS);
    let mut on =
        |opcode, function| status(&run(&mut hca, opcode, 0, &l::function::LAYOUT, &[(FUNCTION_ID, function)], &[]));
    assert_eq!(on(ENABLE, 2), BAD_SYSTEM_STATE);
    assert_eq!([on(ENABLE, 1), on(ENABLE, 2), on(ENABLE, 3)], [OK; 3]);
    assert_eq!(on(ENABLE, 9), BAD_PARAMETER, "there can be eight");
    assert_eq!(on(DISABLE, 2), BAD_SYSTEM_STATE);
    assert_eq!(on(DISABLE, 3), OK);
    assert_eq!(hca.host_vfs(), 2);
    assert!(hca.left().contains(&"2 virtual functions".to_owned()), "{:?}", hca.left());
    hca.receive(Port::Vport(2), &[0; 60]);
    assert_eq!(hca.complaints(), [""; 0]);
    hca.receive(Port::Vport(3), &[0; 60]);
    assert_eq!(hca.complaints().len(), 1, "it is not there any more");
    hca.reset();
    assert_eq!(hca.host_vfs(), 0, "they go with the function that made them");
}

#[test]
fn the_device_says_how_long_the_driver_waits() {
    use l::access_register as a;
    let mut hca = initialized(Profile { health_poll: Duration::from_millis(300), ..BLUEFIELD_2 });
    let answer = run(&mut hca, 0x805, 1, &a::LAYOUT, &[(a::REGISTER_ID, 0xc00e)], &[0; 64]);
    assert_eq!((status(&answer), &answer[16 + 0x14..16 + 0x18]), (OK, &[0, 0, 0x01, 0x2c][..]));
}

#[test]
fn a_vport_keeps_what_the_driver_sets_and_an_unknown_one_is_refused() {
    use l::{modify_nic_vport_context as m, query_nic_vport_context as q, query_nic_vport_context_out as out};
    let mut hca = initialized(BLUEFIELD_2);
    let address = 0x0202_0304_0506;
    let set = |vport| {
        [
            (m::OTHER_VPORT, 1),
            (m::VPORT_NUMBER, vport),
            (m::SELECT_PERMANENT_ADDRESS, 1),
            (m::PERMANENT_ADDRESS, address),
        ]
    };
    assert_eq!(status(&run(&mut hca, 0x755, 0, &m::LAYOUT, &set(1), &[])), OK);
    assert_eq!(status(&run(&mut hca, 0x755, 0, &m::LAYOUT, &set(9), &[])), BAD_PARAMETER);
    let answer = run(&mut hca, 0x754, 0, &q::LAYOUT, &[(q::OTHER_VPORT, 1), (q::VPORT_NUMBER, 1)], &[]);
    assert_eq!(out::PERMANENT_ADDRESS.read(&answer), Some(address));
    let other = run(&mut hca, 0x754, 0, &q::LAYOUT, &[(q::OTHER_VPORT, 1), (q::VPORT_NUMBER, 2)], &[]);
    assert_ne!(out::PERMANENT_ADDRESS.read(&other), Some(address));
    assert_eq!(hca.profile().own_vport(), VPORT_ECPF);
}

#[test]
fn a_register_that_is_not_modelled_is_refused_and_the_mtu_is_kept() {
    use l::access_register as a;
    let mut hca = initialized(BLUEFIELD_2);
    assert_eq!(status(&run(&mut hca, 0x805, 1, &a::LAYOUT, &[(a::REGISTER_ID, 0x9014)], &[0; 16])), BAD_PARAMETER);
    let write = [0, 1, 0, 0, 0, 0, 0, 0, 9000u16.to_be_bytes()[0], 9000u16.to_be_bytes()[1], 0, 0, 0, 0, 0, 0];
    assert_eq!(status(&run(&mut hca, 0x805, 0, &a::LAYOUT, &[(a::REGISTER_ID, 0x5003)], &write)), OK);
    let query = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let answer = run(&mut hca, 0x805, 1, &a::LAYOUT, &[(a::REGISTER_ID, 0x5003)], &query);
    assert_eq!(answer[16 + 12..16 + 14], 9000u16.to_be_bytes());
}

#[test]
fn a_command_fails_as_often_as_it_is_told_to() {
    let mut hca = initialized(BLUEFIELD_2);
    hca.inject(CommandFault {
        opcode: 0x800,
        after: 0,
        times: 1,
        trouble: Trouble::Refused { status: 0x0f, syndrome: 0x1234 },
    });
    let answer = run(&mut hca, 0x800, 0, &l::plain::LAYOUT, &[], &[]);
    assert_eq!((status(&answer), output::SYNDROME.read(&answer)), (0x0f, Some(0x1234)));
    assert_eq!(status(&run(&mut hca, 0x800, 0, &l::plain::LAYOUT, &[], &[])), OK);
    assert!(hca.refusals().is_empty());
    assert_eq!(hca.executed(0x800), 2);
}

/// A send queue with all that it needs, made by commands, in a test's memory.
struct Rings {
    hca: Hca,
    memory: Flat,
    uar: u64,
    eq: u64,
    cq: u64,
    sq: u64,
}

const EQ_PAGE: u64 = 0x1000;
const CQ_PAGE: u64 = 0x2000;
const SQ_PAGE: u64 = 0x3000;
const CQ_RECORD: u64 = 0x4000;
const SQ_RECORD: u64 = 0x4040;
const VECTOR: u32 = 3;

impl Rings {
    fn new() -> Self {
        let mut hca = initialized(BLUEFIELD_2);
        let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let domain = made(&mut hca, 0x816, &l::plain::LAYOUT, &[], &[]);
        use l::{create_cq as c, create_eq as e, create_sq as s, create_tis as t};
        let fields = [(e::UAR_PAGE, uar), (e::INTR, VECTOR.into()), (e::LOG_EQ_SIZE, 2)];
        let eq = made(&mut hca, 0x301, &e::LAYOUT, &fields, &EQ_PAGE.to_be_bytes());
        let fields = [(c::UAR_PAGE, uar), (c::C_EQN, eq), (c::LOG_CQ_SIZE, 2), (c::DBR_ADDR, CQ_RECORD)];
        let cq = made(&mut hca, 0x400, &c::LAYOUT, &fields, &CQ_PAGE.to_be_bytes());
        let tis = made(&mut hca, 0x912, &t::LAYOUT, &[(t::TRANSPORT_DOMAIN, domain), (t::PD, pd)], &[]);
        let fields = [
            (s::CQN, cq),
            (s::PD, pd),
            (s::UAR_PAGE, uar),
            (s::TIS_LST_SZ, 1),
            (s::TIS_NUM_0, tis),
            (s::WQ_TYPE, 1),
            (s::LOG_WQ_STRIDE, 6),
            (s::LOG_WQ_SZ, 4),
            (s::DBR_ADDR, SQ_RECORD),
        ];
        let sq = made(&mut hca, 0x904, &s::LAYOUT, &fields, &SQ_PAGE.to_be_bytes());
        Self { hca, memory: Flat::new(0x10000), uar, eq, cq, sq }
    }

    fn make_ready(&mut self) {
        let fields = [(l::modify_sq::SQN, self.sq), (l::modify_sq::STATE, 1)];
        assert_eq!(status(&run(&mut self.hca, 0x905, 0, &l::modify_sq::LAYOUT, &fields, &[])), OK);
    }

    fn arm_eq(&mut self, consumer: u32) {
        let value = (u32::try_from(self.eq).unwrap() << 24 | consumer).to_be_bytes();
        self.ring(0x40, &value);
    }

    fn arm_cq(&mut self, consumer: u32) {
        self.memory.write(CQ_RECORD, &consumer.to_be_bytes()).unwrap();
        let doorbell = [consumer.to_be_bytes(), u32::try_from(self.cq).unwrap().to_be_bytes()].concat();
        self.ring(0x20, &doorbell);
    }

    /// Posts a request of one block, and rings.
    fn post(&mut self, index: u16, opcode: u8) {
        let mut control = [0; 16];
        control[0..4].copy_from_slice(&(u32::from(index) << 8 | u32::from(opcode)).to_be_bytes());
        control[4..8].copy_from_slice(&(u32::try_from(self.sq).unwrap() << 8 | 1).to_be_bytes());
        control[11] = 0x08;
        self.memory.write(SQ_PAGE + u64::from(index % 16) * 64, &control).unwrap();
        self.memory.write(SQ_RECORD + 4, &u32::from(index.wrapping_add(1)).to_be_bytes()).unwrap();
        self.ring(0x800, &control[..8]);
    }

    fn ring(&mut self, offset: u64, data: &[u8]) {
        self.hca.doorbell(&self.memory, u32::try_from(self.uar).unwrap(), offset, data);
    }

    fn bytes<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(address, &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn a_request_ends_in_a_completion_an_event_and_an_interrupt() {
    let mut rings = Rings::new();
    rings.make_ready();
    rings.arm_eq(0);
    rings.arm_cq(0);
    rings.post(0, 0);
    let completion = rings.bytes::<64>(CQ_PAGE);
    assert_eq!(completion[60..], [0, 0, 0, 0]);
    assert_eq!(u64::from(u32::from_be_bytes(completion[56..60].try_into().unwrap())), rings.sq);
    let event = rings.bytes::<64>(EQ_PAGE);
    assert_eq!(u64::from(u32::from_be_bytes(event[56..60].try_into().unwrap())), rings.cq);
    assert_eq!(rings.hca.take_interrupts(), [VECTOR]);
    assert_eq!(rings.hca.complaints(), Vec::<String>::new());
}

#[test]
fn a_queue_that_is_not_armed_completes_in_silence_and_speaks_when_it_is() {
    let mut rings = Rings::new();
    rings.make_ready();
    rings.arm_eq(0);
    rings.post(0, 0);
    assert!(rings.hca.take_interrupts().is_empty());
    rings.arm_cq(0);
    assert_eq!(rings.hca.take_interrupts(), [VECTOR]);
}

#[test]
fn owner_bits_turn_with_every_lap() {
    let mut rings = Rings::new();
    rings.make_ready();
    for index in 0..6 {
        rings.arm_cq(u32::from(index));
        rings.post(index, 0);
        let slot = CQ_PAGE + u64::from(index % 4) * 64;
        assert_eq!(rings.bytes::<1>(slot + 63), [u8::from(index >= 4)]);
    }
}

#[test]
fn a_queue_of_completions_that_nobody_reads_runs_over_and_says_so() {
    let mut rings = Rings::new();
    rings.make_ready();
    (0..5).for_each(|index| rings.post(index, 0));
    assert_eq!(rings.hca.complaints(), [format!("CQ {:#x} ran over", rings.cq)]);
}

#[test]
fn a_request_that_is_not_modelled_fails_and_stops_its_queue() {
    const REMOTE_WRITE: u8 = 0x08;
    let mut rings = Rings::new();
    rings.make_ready();
    rings.post(0, REMOTE_WRITE);
    let completion = rings.bytes::<64>(CQ_PAGE);
    assert_eq!(completion[63] >> 4, 0xd);
    rings.post(1, 0);
    assert_eq!(rings.hca.complaints().len(), 2, "{:?}", rings.hca.complaints());
}

#[test]
fn a_doorbell_of_nobody_is_a_complaint() {
    let mut rings = Rings::new();
    let memory = Flat::new(16);
    rings.hca.doorbell(&memory, 99, 0x40, &[0; 4]);
    rings.ring(0x800, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 1]);
    assert_eq!(rings.hca.complaints().len(), 2);
}

#[test]
fn a_queue_goes_from_reset_to_ready_only_once_and_only_from_where_it_is() {
    let mut rings = Rings::new();
    rings.make_ready();
    let fields = [(l::modify_sq::SQN, rings.sq), (l::modify_sq::STATE, 1)];
    assert_eq!(status(&run(&mut rings.hca, 0x905, 0, &l::modify_sq::LAYOUT, &fields, &[])), BAD_RESOURCE_STATE);
}

#[test]
fn what_a_queue_uses_cannot_go_before_it() {
    let mut rings = Rings::new();
    let destroy =
        |hca: &mut Hca, opcode, id| status(&run(hca, opcode, 0, &l::object::LAYOUT, &[(l::object::ID, id)], &[]));
    assert_eq!(destroy(&mut rings.hca, 0x401, rings.cq), RESOURCE_BUSY);
    assert_eq!(destroy(&mut rings.hca, 0x906, rings.sq), OK);
    assert_eq!(destroy(&mut rings.hca, 0x401, rings.cq), OK);
    assert_eq!(destroy(&mut rings.hca, 0x401, rings.cq), BAD_RESOURCE);
    let left = rings.hca.left();
    assert!(left.iter().any(|name| name == &format!("EQ {:#x}", rings.eq)), "{left:?}");
}

#[test]
fn a_queue_with_too_few_pages_is_refused() {
    use l::create_eq as e;
    let mut hca = initialized(BLUEFIELD_2);
    let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
    let fields = [(e::UAR_PAGE, uar), (e::LOG_EQ_SIZE, 7)];
    let answer = run(&mut hca, 0x301, 0, &e::LAYOUT, &fields, &EQ_PAGE.to_be_bytes());
    assert_eq!(status(&answer), BAD_INPUT_LENGTH);
}

#[test]
fn a_counter_that_a_queue_is_given_later_stays_until_the_queue_has_another_one() {
    use l::{create_cq as c, create_rq as r, modify_rq as m};
    const COUNTER_SET: u64 = 1 << 3;
    let mut hca = initialized(BLUEFIELD_2);
    let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
    let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &[(l::create_eq::UAR_PAGE, uar)], &pages(1));
    let cq = made(&mut hca, 0x400, &c::LAYOUT, &[(c::UAR_PAGE, uar), (c::C_EQN, eq)], &pages(1));
    let rq = made(&mut hca, 0x908, &r::LAYOUT, &[(r::CQN, cq), (r::WQ_TYPE, 1), (r::LOG_WQ_STRIDE, 4)], &pages(1));
    let counters = [0, 1].map(|_| made(&mut hca, 0x771, &l::plain::LAYOUT, &[], &[]));
    let give = |hca: &mut Hca, from, counter| {
        let fields = [
            (m::RQN, rq),
            (m::MODIFY_BITMASK, COUNTER_SET),
            (m::RQ_STATE, from),
            (m::STATE, 1),
            (m::COUNTER_SET_ID, counter),
        ];
        status(&run(hca, 0x909, 0, &m::LAYOUT, &fields, &[]))
    };
    let free = |hca: &mut Hca, counter| {
        let fields = [(l::small_object::ID, counter)];
        status(&run(hca, 0x772, 0, &l::small_object::LAYOUT, &fields, &[]))
    };
    assert_eq!(give(&mut hca, 0, counters[1] + 1), BAD_RESOURCE, "nobody's");
    assert_eq!(give(&mut hca, 0, counters[0]), OK, "it is still in reset");
    assert_eq!(free(&mut hca, counters[0]), RESOURCE_BUSY);
    assert_eq!(give(&mut hca, 1, counters[1]), OK);
    assert_eq!((free(&mut hca, counters[0]), free(&mut hca, counters[1])), (OK, RESOURCE_BUSY));
}
