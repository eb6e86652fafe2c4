//! Where a queue and its doorbell record lie: in pages that the command lists, as the kernel makes queues, or in umems that it
//! names, as programs do.

use super::Hca;
use super::function::require;
use super::keys::Pages;
use super::ring::Ring;
use crate::command::layouts as l;
use crate::command::{Failure, Input, Status};
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
