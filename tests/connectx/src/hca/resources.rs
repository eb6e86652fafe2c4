//! Objects that have no ring of their own: domains, keys, pages of doorbells, transport interfaces.

use super::Hca;
use super::function::{modifier, require};
use crate::command::layouts as l;
use crate::command::{Answer, Failure, Input, Output, Status};
use crate::layout::layouts;
use crate::objects::{Kind, Name};

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
    destroy(hca, Kind::QCounter, input.get_u32(l::small_object::ID))
}

layouts! {
    q_counter_out 0x100 { OUT_OF_BUFFER 0x30 [31:0] }
}

/// Nothing that it counts happens here: no packet reaches a receive queue yet.
pub(crate) fn query_q_counter(hca: &mut Hca, input: &Input<'_>) -> Answer {
    hca.objects.check(Kind::QCounter, input.get_u32(l::query_q_counter::COUNTER_SET_ID))?;
    Ok(Output::new(&q_counter_out::LAYOUT))
}

/// A key over all of the memory (physical addresses, or by address with access mode PA). Tables of pages are not modelled.
pub(crate) fn create_mkey(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_mkey as f;
    const PHYSICAL: u64 = 0;
    let mode = input.get(f::ACCESS_MODE_4_2) << 2 | input.get(f::ACCESS_MODE_1_0);
    require(mode == PHYSICAL, Status::BadParameter, 0x0401, format!("access mode {mode} is not modelled"))?;
    create(hca, Kind::Mkey, vec![Name { kind: Kind::Pd, id: input.get_u32(f::PD) }])
}

pub(crate) fn destroy_mkey(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::Mkey, input.get_u32(l::object::ID))
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
    let queue = match input.get(f::DISP_TYPE) {
        DIRECT => Name { kind: Kind::Rq, id: input.get_u32(f::INLINE_RQN) },
        INDIRECT => Name { kind: Kind::Rqt, id: input.get_u32(f::INDIRECT_TABLE) },
        other => return Err(Failure::new(Status::BadParameter, 0x0402, format!("no dispatch type {other}"))),
    };
    require(input.get(f::PACKET_MERGE_MASK) == 0, Status::BadParameter, 0x0403, "LRO is not modelled")?;
    let domain = Name { kind: Kind::TransportDomain, id: input.get_u32(f::TRANSPORT_DOMAIN) };
    let id = hca.objects.create(Kind::Tir, vec![queue, domain])?;
    hca.steering.add_tir(id);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

/// Hash and loopback may change; no packet is hashed yet, so that nothing more is kept of them.
pub(crate) fn modify_tir(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_tir as f;
    hca.objects.check(Kind::Tir, input.get_u32(f::TIRN))?;
    require(!input.is_set(f::SELECT_PACKET_MERGE), Status::BadParameter, 0x0404, "LRO is not modelled")?;
    Ok(Output::empty())
}

pub(crate) fn destroy_tir(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.check(Kind::Tir, id)?;
    hca.steering
        .remove_tir(id)
        .map_err(|failure| Failure::new(Status::ResourceBusy, failure.syndrome, failure.reason))?;
    destroy(hca, Kind::Tir, id)
}

pub(crate) fn create_rqt(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_rqt as f;
    let uses = receive_queues(input, input.get_u16(f::RQT_ACTUAL_SIZE), input.get_u16(f::RQT_MAX_SIZE))?;
    create(hca, Kind::Rqt, uses)
}

pub(crate) fn modify_rqt(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_rqt as f;
    let id = input.get_u32(f::RQTN);
    hca.objects.check(Kind::Rqt, id)?;
    if !input.is_set(f::SELECT_RQN_LIST) {
        return Err(modifier(input.op_mod()));
    }
    let uses = receive_queues(input, input.get_u16(f::RQT_ACTUAL_SIZE), u16::MAX)?;
    hca.objects.change(Kind::Rqt, id, uses)?;
    Ok(Output::empty())
}

pub(crate) fn destroy_rqt(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::Rqt, input.get_u32(l::object::ID))
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
