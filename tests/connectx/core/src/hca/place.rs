//! Where a queue and its doorbell record lie: in pages that the command lists, as the kernel makes queues, or in umems that it
//! names, as programs do.

use super::key::Pages;
use super::ring::Ring;
use super::state::Hca;
use crate::command::{Failure, Input, Status, layouts as l, require};
use crate::layout::Field;
use crate::objects::{Kind, Name};

/// A queue's ring and its record, and the umems that they are in.
pub(crate) struct Place {
    pub(crate) ring: Ring,
    pub(crate) doorbell_record: u64,
    pub(crate) umems: Vec<Name>,
}

/// The fields of a command that say where.
pub(crate) struct Fields {
    log_page: Field,
    page_offset: Field,
    umem_valid: Field,
    umem: Field,
    umem_offset: Field,
    record_umem_valid: Field,
    record_umem: Field,
    record: Field,
}

macro_rules! fields {
    ($command:ident, $log_page:ident) => {
        Fields {
            log_page: l::$command::$log_page,
            page_offset: l::$command::PAGE_OFFSET,
            umem_valid: l::$command::UMEM_VALID,
            umem: l::$command::UMEM_ID,
            umem_offset: l::$command::UMEM_OFFSET,
            record_umem_valid: l::$command::DBR_UMEM_VALID,
            record_umem: l::$command::DBR_UMEM_ID,
            record: l::$command::DBR_ADDR,
        }
    };
}

pub(crate) const COMPLETIONS: Fields = fields!(create_cq, LOG_PAGE_SIZE);
pub(crate) const SENDS: Fields = fields!(create_sq, LOG_WQ_PG_SZ);
pub(crate) const RECEIVES: Fields = fields!(create_rq, LOG_WQ_PG_SZ);

const LOG_PAGE: u32 = 12;
/// Unit of a queue's offset.
const BLOCK: u64 = 64;

impl Place {
    /// Of a queue with entries of 2^`log_stride` bytes.
    pub(crate) fn new(
        hca: &Hca,
        input: &Input<'_>,
        fields: &Fields,
        (log_stride, log_size): (u32, u32),
    ) -> Result<Self, Failure> {
        let mut umems = Vec::new();
        let mut umem = |field: Field| {
            let name = Name { kind: Kind::Umem, id: input.get_u32(field) };
            umems.push(name);
            let missing = || Failure::new(Status::BadResource, 0x0901, format!("there is no {name}"));
            hca.queues.umems.get(&name.id).ok_or_else(missing)
        };
        let ring = if input.is_set(fields.umem_valid) {
            let pages: &Pages = umem(fields.umem)?;
            let start = pages.offset().checked_add(input.get(fields.umem_offset));
            let start = start.filter(|start| start.is_multiple_of(BLOCK));
            let unaligned = || Failure::new(Status::BadParameter, 0x0902, "the queue is not aligned in its umem");
            Ring::new(pages.list(), pages.log_page(), start.ok_or_else(unaligned)? / BLOCK, log_stride, log_size)?
        } else {
            let log_page = input.get_u32(fields.log_page) + LOG_PAGE;
            Ring::new(input.quadwords(), log_page, input.get(fields.page_offset), log_stride, log_size)?
        };
        let record = input.get(fields.record);
        let doorbell_record = if input.is_set(fields.record_umem_valid) {
            const RECORD: u64 = 8;
            require(record.is_multiple_of(RECORD), Status::BadParameter, 0x0903, "the doorbell record is not aligned")?;
            let outside = || Failure::new(Status::BadParameter, 0x0904, "the doorbell record is outside its umem");
            umem(fields.record_umem)?.address(record).ok_or_else(outside)?
        } else {
            record
        };
        Ok(Self { ring, doorbell_record, umems })
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Status;
    use crate::command::layouts as l;
    use crate::hca::test::{initialized, made, run, status};
    use crate::profile::BLUEFIELD_2;

    #[test]
    fn a_queue_in_a_umem_lies_where_its_offsets_say_and_keeps_the_umem() {
        use l::create_cq as f;
        let mut hca = initialized(BLUEFIELD_2);
        let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let eq = [(l::create_eq::UAR_PAGE, uar)];
        let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &eq, &0x6000_u64.to_be_bytes());
        // Two pages that do not lie side by side.
        let umem = [(l::create_umem::PAGE_OFFSET, 0x80), (l::create_umem::NUM_OF_MTT, 2)];
        let list = [0x1000_u64, 0x9000].map(u64::to_be_bytes).concat();
        let umem = made(&mut hca, 0xa08, &l::create_umem::LAYOUT, &umem, &list);
        let queue = |offset, record| {
            [
                (f::UAR_PAGE, uar),
                (f::C_EQN, eq),
                (f::LOG_CQ_SIZE, 2),
                (f::UMEM_VALID, 1),
                (f::UMEM_ID, umem),
                (f::UMEM_OFFSET, offset),
                (f::DBR_UMEM_VALID, 1),
                (f::DBR_UMEM_ID, umem),
                (f::DBR_ADDR, record),
            ]
        };
        for (offset, record) in [(0x20, 0), (0x40, 4), (0x1f00, 0), (0x40, 0x1f80)] {
            assert_ne!(
                status(&run(&mut hca, 0x400, 0, &f::LAYOUT, &queue(offset, record), &[])),
                0,
                "{offset:#x} {record:#x}"
            );
        }
        let number = made(&mut hca, 0x400, &f::LAYOUT, &queue(0x40, 0x1000), &[]);
        let cq = &hca.queues.completions[&u32::try_from(number).unwrap()];
        assert_eq!((cq.ring.address(0), cq.ring.address(3)), (0x10c0, 0x1180));
        assert_eq!(cq.doorbell_record, 0x9080);
        let umem = [(l::object::ID, umem)];
        let destroyed = run(&mut hca, 0xa0a, 0, &l::object::LAYOUT, &umem, &[]);
        assert_eq!(status(&destroyed), Status::ResourceBusy as u8);
    }
}
