//! Objects that have no ring of their own: domains, keys, pages of doorbells, transport interfaces.

use super::hash::{Hash, HashFunction};
use super::queue::{Dispatch, Tir};
use super::state::Hca;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, modifier, require};
use crate::layout::layouts;
use crate::objects::{Kind, Name};
use crate::steering::address::{Side, Terminal};

/// An object made, and its number as the answer.
pub(crate) fn create(hca: &mut Hca, kind: Kind, uses: Vec<Name>) -> Answer {
    let id = hca.objects.create(kind, uses)?;
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

fn destroy(hca: &mut Hca, kind: Kind, id: u32) -> Answer {
    hca.objects.destroy(kind, id)?;
    Ok(Output::empty())
}

pub(crate) fn alloc_pd(hca: &mut Hca, _: &Input<'_>) -> Answer {
    create(hca, Kind::Pd, vec![])
}

pub(crate) fn dealloc_pd(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::Pd, input.get_u32(l::object::ID))
}

pub(crate) fn alloc_uar(hca: &mut Hca, _: &Input<'_>) -> Answer {
    create(hca, Kind::Uar, vec![])
}

pub(crate) fn dealloc_uar(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::Uar, input.get_u32(l::object::ID))
}

pub(crate) fn create_user_context(hca: &mut Hca, _: &Input<'_>) -> Answer {
    let id = hca.objects.create(Kind::UserContext, vec![])?;
    Ok(Output::new(&l::user_context_out::LAYOUT).set(l::user_context_out::UID, id))
}

pub(crate) fn destroy_user_context(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::UserContext, input.get_u32(l::destroy_user_context::ID))
}

/// Objects without commands of their own: of them, blocks of steering memory.
/// There is no cache of entries, so that nothing is to be done: software waits for its writes before it asks.
pub(crate) fn sync_steering(_: &mut Hca, _: &Input<'_>) -> Answer {
    Ok(Output::empty())
}

pub(crate) fn alloc_transport_domain(hca: &mut Hca, _: &Input<'_>) -> Answer {
    create(hca, Kind::TransportDomain, vec![])
}

pub(crate) fn dealloc_transport_domain(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::TransportDomain, input.get_u32(l::object::ID))
}

pub(crate) fn alloc_q_counter(hca: &mut Hca, _: &Input<'_>) -> Answer {
    create(hca, Kind::QCounter, vec![])
}

pub(crate) fn dealloc_q_counter(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::small_object::ID);
    hca.objects.destroy(Kind::QCounter, id)?;
    hca.queues.out_of_buffer.remove(&id);
    Ok(Output::empty())
}

layouts! {
    q_counter_out 0x100 { OUT_OF_BUFFER 0x30 [31:0] }
}

/// Of what it counts, only a want of buffers happens here.
pub(crate) fn query_q_counter(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::query_q_counter::COUNTER_SET_ID);
    hca.objects.check(Kind::QCounter, id)?;
    let lost = hca.queues.out_of_buffer.get(&id).copied().unwrap_or_default();
    if input.is_set(l::query_q_counter::CLEAR) {
        hca.queues.out_of_buffer.remove(&id);
    }
    Ok(Output::new(&q_counter_out::LAYOUT).set(q_counter_out::OUT_OF_BUFFER, lost))
}

pub(crate) fn query_special_contexts(_: &mut Hca, _: &Input<'_>) -> Answer {
    const RESERVED_LKEY: u32 = 0x100;
    Ok(Output::new(&l::query_special_contexts_out::LAYOUT).set(l::query_special_contexts_out::RESD_LKEY, RESERVED_LKEY))
}

pub(crate) fn create_tis(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_tis as f;
    let mut uses = vec![Name { kind: Kind::TransportDomain, id: input.get_u32(f::TRANSPORT_DOMAIN) }];
    if input.is_set(f::PD) {
        uses.push(Name { kind: Kind::Pd, id: input.get_u32(f::PD) });
    }
    create(hca, Kind::Tis, uses)
}

pub(crate) fn destroy_tis(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::Tis, input.get_u32(l::object::ID))
}

pub(crate) fn create_tir(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_tir as f;
    const DIRECT: u64 = 0;
    const INDIRECT: u64 = 1;
    let (queue, dispatch) = match input.get(f::DISP_TYPE) {
        DIRECT => {
            let id = input.get_u32(f::INLINE_RQN);
            (Name { kind: Kind::Rq, id }, Dispatch::Queue(id))
        }
        INDIRECT => {
            let id = input.get_u32(f::INDIRECT_TABLE);
            (Name { kind: Kind::Rqt, id }, Dispatch::Table(id))
        }
        other => return Err(Failure::new(Status::BadParameter, 0x0402, format!("no dispatch type {other}"))),
    };
    require(input.get(f::PACKET_MERGE_MASK) == 0, Status::BadParameter, 0x0403, "LRO is not modelled")?;
    let hash = hash(input)?;
    let mut uses = vec![queue];
    // Without one it is in the function's own domain, as DPDK has it where frames are dropped.
    if input.is_set(f::TRANSPORT_DOMAIN) {
        uses.push(Name { kind: Kind::TransportDomain, id: input.get_u32(f::TRANSPORT_DOMAIN) });
    }
    let id = hca.objects.create(Kind::Tir, uses)?;
    hca.steering.add_tir(id);
    hca.queues.tirs.insert(id, Tir { dispatch, hash });
    let output = Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id);
    if !hca.profile.software_steering {
        return Ok(output);
    }
    use l::create_tir_out as out;
    let address = Terminal::Tir(id).address(Side::Receive);
    Ok(output.set(out::ICM_ADDRESS_39_32, address >> 32).set(out::ICM_ADDRESS_31_0, address))
}

/// Hash and loopback may change; frames do not come back here, so that nothing is kept of the latter.
pub(crate) fn modify_tir(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_tir as f;
    let id = input.get_u32(f::TIRN);
    hca.objects.check(Kind::Tir, id)?;
    require(!input.is_set(f::SELECT_PACKET_MERGE), Status::BadParameter, 0x0404, "LRO is not modelled")?;
    if input.is_set(f::SELECT_HASH) {
        let hash = hash(input)?;
        if let Some(tir) = hca.queues.tirs.get_mut(&id) {
            tir.hash = hash;
        }
    }
    Ok(Output::empty())
}

/// How a TIR's frames are spread. The places are the same in both of its commands.
fn hash(input: &Input<'_>) -> Result<Option<Hash>, Failure> {
    use l::create_tir as f;
    let function = match input.raw(f::RX_HASH_FN) {
        0 => return Ok(None),
        1 => HashFunction::InvertedXor8,
        2 => {
            let mut key = [0; 40];
            let words = [f::TOEPLITZ_KEY_0, f::TOEPLITZ_KEY_1, f::TOEPLITZ_KEY_2, f::TOEPLITZ_KEY_3, f::TOEPLITZ_KEY_4];
            for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&input.raw(word).to_be_bytes());
            }
            HashFunction::Toeplitz(key)
        }
        other => return Err(Failure::new(Status::BadParameter, 0x0407, format!("no hash function {other}"))),
    };
    let selector = |field| u32::try_from(input.raw(field)).unwrap_or_default();
    Ok(Some(Hash {
        function,
        symmetric: input.raw(f::RX_HASH_SYMMETRIC) != 0,
        outer: selector(f::OUTER_SELECTOR),
        inner: selector(f::INNER_SELECTOR),
    }))
}

pub(crate) fn destroy_tir(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.check(Kind::Tir, id)?;
    hca.steering
        .remove_tir(id)
        .map_err(|failure| Failure::new(Status::ResourceBusy, failure.syndrome, failure.reason))?;
    hca.queues.tirs.remove(&id);
    destroy(hca, Kind::Tir, id)
}

pub(crate) fn create_rqt(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_rqt as f;
    let uses = receive_queues(input, input.get_u16(f::RQT_ACTUAL_SIZE), input.get_u16(f::RQT_MAX_SIZE))?;
    let queues = uses.iter().map(|name| name.id).collect();
    let id = hca.objects.create(Kind::Rqt, uses)?;
    hca.queues.tables.insert(id, queues);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn modify_rqt(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_rqt as f;
    let id = input.get_u32(f::RQTN);
    hca.objects.check(Kind::Rqt, id)?;
    if !input.is_set(f::SELECT_RQN_LIST) {
        return Err(modifier(input.op_mod()));
    }
    let uses = receive_queues(input, input.get_u16(f::RQT_ACTUAL_SIZE), u16::MAX)?;
    let queues = uses.iter().map(|name| name.id).collect();
    hca.objects.change(Kind::Rqt, id, uses)?;
    hca.queues.tables.insert(id, queues);
    Ok(Output::empty())
}

pub(crate) fn destroy_rqt(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Rqt, id)?;
    hca.queues.tables.remove(&id);
    Ok(Output::empty())
}

fn receive_queues(input: &Input<'_>, actual: u16, most: u16) -> Result<Vec<Name>, Failure> {
    let given = input.doublewords();
    let actual = usize::from(actual);
    require(
        actual > 0 && actual <= usize::from(most),
        Status::BadParameter,
        0x0405,
        "a table of no size, or over its most",
    )?;
    require(given.len() >= actual, Status::BadInputLength, 0x0406, "the list is shorter than it says")?;
    Ok(given[..actual].iter().map(|number| Name { kind: Kind::Rq, id: number & 0xff_ffff }).collect())
}
