//! Where the queues of a queue pair lie.

use super::pair::Receives;
use super::request::BLOCK;
use super::ring::Ring;
use super::state::Hca;
use crate::command::{Failure, Input, Status, layouts as l, require};
use crate::objects::{Kind, Name};

const LOG_BLOCK: u32 = 6;
/// Unit of an entry of a receive queue: one segment.
const LOG_SEGMENT: u32 = 4;
const LOG_PAGE: u32 = 12;

/// How a queue pair receives (PRM, `rq_type`).
const OWN_QUEUE: u64 = 0;
const SHARED_QUEUE: u64 = 1;
pub(super) const NO_RECEIVE_QUEUE: u64 = 3;

/// Both queues of a pair, and its doorbell record.
pub(super) struct Queues {
    pub(super) ring: Ring,
    pub(super) receives: Receives,
    pub(super) doorbell_record: u64,
}

/// The queues of a pair that a program has put into ranges of its memory: that for sending behind that for receiving.
pub(super) fn in_umems(hca: &Hca, input: &Input<'_>, uses: &mut Vec<Name>) -> Result<Queues, Failure> {
    use l::create_qp as f;
    let valid = input.is_set(f::WQ_UMEM_VALID) && input.is_set(f::DBR_UMEM_VALID);
    require(valid, Status::BadParameter, 0x0802, "a queue pair is in umems, or in none")?;
    let own = input.get(f::RQ_TYPE) == OWN_QUEUE;
    require(own, Status::BadParameter, 0x080c, "in umems only queue pairs with a receive queue are modelled")?;
    let mut pages = |field| {
        let name = Name { kind: Kind::Umem, id: input.get_u32(field) };
        uses.push(name);
        let missing = || Failure::new(Status::BadResource, 0x0803, format!("there is no {name}"));
        hca.queues.umems.get(&name.id).ok_or_else(missing)
    };
    let (work, record) = (pages(f::WQ_UMEM_ID)?, pages(f::DBR_UMEM_ID)?);
    let outside = || Failure::new(Status::BadParameter, 0x0805, "the doorbell record is outside its umem");
    let doorbell_record = record.address(0).ok_or_else(outside)?;
    let (ring, receives) = queues(input, work.list(), work.log_page(), work.offset())?;
    Ok(Queues { ring, receives, doorbell_record })
}

/// The same of a pair whose pages the driver lists, which may receive from a shared queue, or not at all.
pub(super) fn in_pages(input: &Input<'_>, uses: &mut Vec<Name>) -> Result<Queues, Failure> {
    use l::create_qp as f;
    let log_page = input.get_u32(f::LOG_PAGE_SIZE) + LOG_PAGE;
    let (ring, receives) = queues(input, input.quadwords(), log_page, input.get(f::PAGE_OFFSET) * BLOCK as u64)?;
    if let Receives::Shared(id) = receives {
        uses.push(Name { kind: Kind::Rmp, id });
    }
    Ok(Queues { ring, receives, doorbell_record: input.get(f::DBR_ADDR) })
}

/// What lies in a pair's pages from `start` on.
fn queues(input: &Input<'_>, pages: Vec<u64>, log_page: u32, start: u64) -> Result<(Ring, Receives), Failure> {
    use l::create_qp as f;
    let aligned = |start: u64| {
        require(start.is_multiple_of(BLOCK as u64), Status::BadParameter, 0x0804, "a queue is not aligned")?;
        Ok(start / BLOCK as u64)
    };
    let (receives, length) = match input.get(f::RQ_TYPE) {
        OWN_QUEUE => {
            let (log_stride, log_size) = (input.get_u32(f::LOG_RQ_STRIDE) + LOG_SEGMENT, input.get_u32(f::LOG_RQ_SIZE));
            let ring = Ring::new(pages.clone(), log_page, aligned(start)?, log_stride, log_size)?;
            (Receives::Own { ring, consumer: 0 }, 1 << (log_stride + log_size))
        }
        SHARED_QUEUE => (Receives::Shared(input.get_u32(f::SRQN_RMPN_XRQN)), 0),
        NO_RECEIVE_QUEUE => (Receives::Nowhere, 0),
        kind => {
            return Err(Failure::new(
                Status::BadParameter,
                0x080d,
                format!("receiving of kind {kind} is not modelled"),
            ));
        }
    };
    // One that sends nothing has no place for that: a place that nobody looks at.
    let start = if input.is_set(f::NO_SQ) { start } else { start + length };
    Ok((Ring::new(pages, log_page, aligned(start)?, LOG_BLOCK, input.get_u32(f::LOG_SQ_SIZE))?, receives))
}
