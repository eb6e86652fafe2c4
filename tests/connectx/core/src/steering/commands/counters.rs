//! Flow counters.

use crate::steering::counters::{BULK_UNIT, MOST_AT_ONCE, QUERY_ALIGNMENT, WHAT};
use crate::steering::failure::Refusal;
use crate::steering::layout;
use crate::steering::layout::bytes;
use crate::steering::mailbox::{answer, answer_with_id, needs};
use crate::steering::state::Steering;

impl Steering {
    pub(super) fn alloc_flow_counter(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        let log = layout::COUNTER_BULK_LOG.u32(input);
        let bulk = layout::COUNTER_BULK.u8(input);
        let number = match (log, bulk) {
            (0, 0) => 1,
            (0, bulk) => BULK_UNIT * usize::from(bulk),
            (log, 0) if log < 24 => 1 << log,
            (log, _) => {
                return Err(Refusal::Value {
                    what: "flow_counter_bulk_log_size",
                    value: log,
                    problem: "is too large, or comes together with flow_counter_bulk",
                });
            }
        };
        let id = self.counters.allocate(uid, number)?;
        Ok(answer_with_id(id))
    }

    pub(super) fn dealloc_flow_counter(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.counters.free(uid, layout::IN_ID.u32(input))?;
        Ok(answer(layout::SHORT_OUTPUT))
    }

    /// Counters of a range that are not allocated read as zero, as long as one of them is: the kernel's ranges are rounded to
    /// multiples of four. Where they are to go to memory ([`Dump`]), they are in the output all the same, for whoever has the memory.
    pub(super) fn query_flow_counter(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::QUERY_COUNTER)?;
        let first = layout::COUNTER_ID.u32(input);
        let number = layout::COUNTER_NUMBER.u32(input);
        if number > MOST_AT_ONCE {
            let problem = "is more than a bulk query may ask for";
            return Err(Refusal::Value { what: "num_of_counters", value: number, problem });
        }
        if number == 0 {
            self.counters.exists(uid, first)?;
        } else if !first.is_multiple_of(QUERY_ALIGNMENT) || !number.is_multiple_of(QUERY_ALIGNMENT) {
            let problem = "is not aligned to 4, as a bulk query must be";
            return Err(Refusal::Value { what: "flow counter range", value: first, problem });
        }
        let ids = first..first.saturating_add(number.max(1));
        if !ids.clone().any(|id| self.counters.exists(uid, id).is_ok()) {
            return Err(Refusal::Unknown { what: WHAT, id: first });
        }
        let mut output = answer(layout::SHORT_OUTPUT);
        for id in ids {
            let count = self.counters.told(id);
            output.extend(count.packets.to_be_bytes());
            output.extend(count.bytes.to_be_bytes());
            if layout::COUNTER_CLEAR.is_set(input) {
                self.counters.clear(id);
            }
        }
        Ok(output)
    }
}
