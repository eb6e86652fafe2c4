//! Commands on queues: of events, of completions, for sending and for receiving.

use std::collections::BTreeMap;

use super::failed::Flushing;
use super::hairpin;
use super::place::{self, Place};
use super::queue::{CompletionQueue, EventQueue, ReceiveQueue, SendQueue, State};
use super::ring::Ring;
use super::state::Hca;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, require};
use crate::layout::Field;
use crate::objects::{Kind, Name};

const LOG_EVENT: u32 = 6;
const LOG_COMPLETION: u32 = 6;
const LOG_PAGE: u32 = 12;
const VECTORS: u32 = 16;

pub(crate) fn create_eq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_eq as f;
    let uar = input.get_u32(f::UAR_PAGE);
    let vector = input.get_u32(f::INTR);
    require(vector < VECTORS, Status::BadParameter, 0x0504, format!("there is no interrupt vector {vector}"))?;
    let log_size = input.get_u32(f::LOG_EQ_SIZE);
    require(log_size <= 16, Status::LimitExceeded, 0x0505, format!("2^{log_size} events are too many"))?;
    let log_page = input.get_u32(f::LOG_PAGE_SIZE) + LOG_PAGE;
    let ring = Ring::new(input.quadwords(), log_page, input.get(f::PAGE_OFFSET), LOG_EVENT, log_size)?;
    let id = hca.objects.create(Kind::Eq, vec![Name { kind: Kind::Uar, id: uar }])?;
    let masks = [f::EVENT_BITMASK_0, f::EVENT_BITMASK_1, f::EVENT_BITMASK_2, f::EVENT_BITMASK_3];
    let mask = masks.map(|field| input.get(field));
    let queue = EventQueue { ring, mask, uar, vector, producer: 0, consumer: 0, armed: false };
    hca.queues.events.insert(id, queue);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn destroy_eq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::small_object::ID);
    hca.objects.destroy(Kind::Eq, id)?;
    hca.queues.events.remove(&id);
    Ok(Output::empty())
}

pub(crate) fn query_eq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::query_eq_out as out;
    let queue = existing(&mut hca.queues.events, Kind::Eq, input.get_u32(l::small_object::ID))?;
    const ARMED: u64 = 9;
    const FIRED: u64 = 10;
    Ok(Output::new(&out::LAYOUT)
        .set(out::ST, if queue.armed { ARMED } else { FIRED })
        .set(out::LOG_EQ_SIZE, queue.ring.log_size())
        .set(out::UAR_PAGE, queue.uar)
        .set(out::INTR, queue.vector)
        .set(out::CONSUMER_COUNTER, queue.consumer & 0xff_ffff)
        .set(out::PRODUCER_COUNTER, queue.producer & 0xff_ffff))
}

pub(crate) fn create_cq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_cq as f;
    let small = input.get(f::CQE_SZ) == 0;
    require(small, Status::BadParameter, 0x0506, "only completions of 64 bytes are modelled")?;
    let eq = input.get_u32(f::C_EQN);
    let uar = input.get_u32(f::UAR_PAGE);
    let log_size = input.get_u32(f::LOG_CQ_SIZE);
    require(log_size <= 22, Status::LimitExceeded, 0x0507, format!("2^{log_size} completions are too many"))?;
    // Completions may be compressed where that is enabled; here none ever is.
    let place = Place::new(hca, input, &place::COMPLETIONS, (LOG_COMPLETION, log_size))?;
    let Place { ring, doorbell_record, umems } = place;
    let mut uses = vec![Name { kind: Kind::Eq, id: eq }, Name { kind: Kind::Uar, id: uar }];
    uses.extend(umems);
    let id = hca.objects.create(Kind::Cq, uses)?;
    let queue = CompletionQueue {
        ring,
        eq,
        doorbell_record,
        producer: 0,
        armed: false,
        request: None,
        only_marked: false,
        behind_marked: None,
    };
    hca.queues.completions.insert(id, queue);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn destroy_cq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Cq, id)?;
    hca.queues.completions.remove(&id);
    Ok(Output::empty())
}

/// Moderation may be set; completions are never held back here.
pub(crate) fn modify_cq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_cq as f;
    const PERIOD_AND_COUNT: u32 = 0x3;
    const PERIOD_MODE: u32 = 0x10;
    hca.objects.check(Kind::Cq, input.get_u32(f::CQN))?;
    require(input.op_mod() == 0, Status::BadOperation, 0x0508, "a queue of completions cannot change its size here")?;
    let select = input.get_u32(f::MODIFY_FIELD_SELECT);
    let known = select & !(PERIOD_AND_COUNT | PERIOD_MODE) == 0;
    require(known, Status::BadParameter, 0x0509, format!("only moderation can change, not {select:#x}"))?;
    Ok(Output::empty())
}

pub(crate) fn create_sq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_sq as f;
    const CYCLIC: u64 = 1;
    const LOG_BLOCK: u32 = 6;
    if input.is_set(f::HAIRPIN) {
        let number = input.get(f::TIS_LST_SZ);
        require(number == 1, Status::BadParameter, 0x0514, "a hairpin queue has one transport interface")?;
        let uses = used(input, &[(Kind::Tis, f::TIS_NUM_0), (Kind::Pd, f::PD)]);
        return hairpin::create(hca, input, Kind::Sq, &hairpin::SEND, uses);
    }
    no_hairpin(input, [f::HAIRPIN_WQ_BUFFER_TYPE, f::LOG_HAIRPIN_NUM_PACKETS, f::LOG_HAIRPIN_DATA_SZ])?;
    require(input.get(f::STATE) == 0, Status::BadParameter, 0x050a, "a queue begins in reset")?;
    require(input.get(f::WQ_TYPE) == CYCLIC, Status::BadParameter, 0x050b, "a send queue is cyclic")?;
    require(input.get_u32(f::LOG_WQ_STRIDE) == LOG_BLOCK, Status::BadParameter, 0x050c, "a stride is 64 bytes")?;
    let (cq, domain) = (input.get_u32(f::CQN), input.get_u32(f::PD));
    let mut uses = vec![
        Name { kind: Kind::Cq, id: cq },
        Name { kind: Kind::Pd, id: domain },
        Name { kind: Kind::Uar, id: input.get_u32(f::UAR_PAGE) },
    ];
    // A queue for internal operations sends nothing, and needs no transport interface.
    match input.get(f::TIS_LST_SZ) {
        0 => {}
        1 => uses.push(Name { kind: Kind::Tis, id: input.get_u32(f::TIS_NUM_0) }),
        more => return Err(Failure::new(Status::LimitExceeded, 0x050d, format!("{more} transport interfaces"))),
    }
    let Place { ring, doorbell_record, umems } =
        Place::new(hca, input, &place::SENDS, (LOG_BLOCK, input.get_u32(f::LOG_WQ_SZ)))?;
    uses.extend(umems);
    let id = hca.objects.create(Kind::Sq, uses)?;
    let user_index = input.get_u32(f::USER_INDEX);
    let flushing = Flushing::new(input.is_set(f::FLUSH_IN_ERROR_EN));
    let several = input.is_set(f::ALLOW_MULTI_PKT_SEND_WQE);
    let queue = SendQueue {
        ring,
        cq,
        domain,
        user_index,
        doorbell_record,
        consumer: 0,
        state: State::Reset,
        flushing,
        several,
    };
    hca.queues.sends.insert(id, queue);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn modify_sq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_sq as f;
    let none = input.get(f::MODIFY_BITMASK) == 0;
    require(none, Status::BadParameter, 0x050e, "rate limits are not modelled")?;
    let step = (input.get(f::SQ_STATE), input.get(f::STATE));
    let peer = (input.get_u32(f::HAIRPIN_PEER_RQ), input.get(f::HAIRPIN_PEER_VHCA));
    if let Some(changed) = hairpin::modify(hca, Kind::Sq, input.get_u32(f::SQN), step, peer) {
        return changed.map(|()| Output::empty());
    }
    require(peer == (0, 0), Status::BadParameter, 0x0515, "the queue is no hairpin")?;
    let queue = existing(&mut hca.queues.sends, Kind::Sq, input.get_u32(f::SQN))?;
    queue.state = queue.state.step(input.get(f::SQ_STATE), input.get(f::STATE))?;
    if queue.state == State::Reset {
        queue.consumer = 0;
        queue.flushing = queue.flushing.restarted();
    }
    Ok(Output::empty())
}

pub(crate) fn destroy_sq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Sq, id)?;
    hca.queues.hairpins.forget(Kind::Sq, id);
    hca.queues.sends.remove(&id);
    Ok(Output::empty())
}

pub(crate) fn query_sq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::query_sq_out as out;
    let queue = existing(&mut hca.queues.sends, Kind::Sq, input.get_u32(l::object::ID))?;
    Ok(Output::new(&out::LAYOUT).set(out::STATE, queue.state.value()).set(out::CQN, queue.cq))
}

pub(crate) fn create_rq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_rq as f;
    const CYCLIC: u64 = 1;
    const IN_LINE: u64 = 0;
    if input.is_set(f::HAIRPIN) {
        let uses = used(input, &[(Kind::Pd, f::PD), (Kind::QCounter, f::COUNTER_SET_ID)]);
        return hairpin::create(hca, input, Kind::Rq, &hairpin::RECEIVE, uses);
    }
    no_hairpin(input, [f::HAIRPIN_DATA_BUFFER_TYPE, f::LOG_HAIRPIN_NUM_PACKETS, f::LOG_HAIRPIN_DATA_SZ])?;
    require(input.get(f::STATE) == 0, Status::BadParameter, 0x050f, "a queue begins in reset")?;
    require(input.get(f::WQ_TYPE) == CYCLIC, Status::BadParameter, 0x0510, "only cyclic receive queues are modelled")?;
    require(
        input.get(f::MEM_RQ_TYPE) == IN_LINE,
        Status::BadParameter,
        0x0511,
        "only queues of their own memory are modelled",
    )?;
    let mut uses = vec![Name { kind: Kind::Cq, id: input.get_u32(f::CQN) }];
    // A queue that never gets a buffer, for dropping, belongs to no domain.
    uses.extend(used(input, &[(Kind::Pd, f::PD), (Kind::QCounter, f::COUNTER_SET_ID)]));
    let size = (input.get_u32(f::LOG_WQ_STRIDE), input.get_u32(f::LOG_WQ_SZ));
    let Place { ring, doorbell_record, umems } = Place::new(hca, input, &place::RECEIVES, size)?;
    uses.extend(umems);
    let queue = ReceiveQueue {
        ring,
        cq: input.get_u32(f::CQN),
        user_index: input.get_u32(f::USER_INDEX),
        doorbell_record,
        consumer: 0,
        state: State::Reset,
        flushing: Flushing::new(input.is_set(f::FLUSH_IN_ERROR_EN)),
        strips_vlan: !input.is_set(f::VSD),
        counter: input.get_u32(f::COUNTER_SET_ID),
    };
    let id = hca.objects.create(Kind::Rq, uses)?;
    hca.queues.receives.insert(id, queue);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn modify_rq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_rq as f;
    const VLAN_STRIP: u64 = 1 << 1;
    const SCATTER_FCS: u64 = 1 << 2;
    const COUNTER_SET: u64 = 1 << 3;
    let id = input.get_u32(f::RQN);
    let select = input.get(f::MODIFY_BITMASK);
    let known = select & !(VLAN_STRIP | SCATTER_FCS | COUNTER_SET) == 0;
    require(known, Status::BadParameter, 0x0512, format!("what {select:#x} changes is not modelled"))?;
    let step = (input.get(f::RQ_STATE), input.get(f::STATE));
    let peer = (input.get_u32(f::HAIRPIN_PEER_SQ), input.get(f::HAIRPIN_PEER_VHCA));
    if let Some(changed) = hairpin::modify(hca, Kind::Rq, id, step, peer) {
        require(select == 0, Status::BadParameter, 0x0516, "of a hairpin queue only the state changes")?;
        return changed.map(|()| Output::empty());
    }
    require(peer == (0, 0), Status::BadParameter, 0x0517, "the queue is no hairpin")?;
    let queue = existing(&mut hca.queues.receives, Kind::Rq, id)?;
    let state = queue.state.step(input.get(f::RQ_STATE), input.get(f::STATE))?;
    if select & COUNTER_SET != 0 {
        let counter = input.get_u32(f::COUNTER_SET_ID);
        hca.objects.exchange(Kind::Rq, id, Name { kind: Kind::QCounter, id: counter })?;
        queue.counter = counter;
    }
    queue.state = state;
    if queue.state == State::Reset {
        queue.consumer = 0;
        queue.flushing = queue.flushing.restarted();
    }
    if select & VLAN_STRIP != 0 {
        queue.strips_vlan = !input.is_set(f::VSD);
    }
    Ok(Output::empty())
}

pub(crate) fn destroy_rq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Rq, id)?;
    hca.queues.hairpins.forget(Kind::Rq, id);
    hca.queues.receives.remove(&id);
    Ok(Output::empty())
}

pub(crate) fn query_rq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::query_rq_out as out;
    let queue = existing(&mut hca.queues.receives, Kind::Rq, input.get_u32(l::object::ID))?;
    Ok(Output::new(&out::LAYOUT)
        .set(out::VSD, u32::from(!queue.strips_vlan))
        .set(out::STATE, queue.state.value())
        .set(out::CQN, queue.cq))
}

/// What a command names in fields that may be left empty.
fn used(input: &Input<'_>, fields: &[(Kind, Field)]) -> Vec<Name> {
    let set = fields.iter().filter(|(_, field)| input.is_set(*field));
    set.map(|(kind, field)| Name { kind: *kind, id: input.get_u32(*field) }).collect()
}

/// Refuses what is for hairpin queues only.
fn no_hairpin(input: &Input<'_>, fields: [Field; 3]) -> Result<(), Failure> {
    let none = fields.iter().all(|field| !input.is_set(*field));
    require(none, Status::BadParameter, 0x0518, "the queue is no hairpin")
}

fn existing<T>(queues: &mut BTreeMap<u32, T>, kind: Kind, id: u32) -> Result<&mut T, Failure> {
    let missing = || Failure::new(Status::BadResource, 0x0513, format!("there is no {}", Name { kind, id }));
    queues.get_mut(&id).ok_or_else(missing)
}
