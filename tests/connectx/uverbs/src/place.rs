//! Where a queue lies in a program's memory.

use nix::errno::Errno;
use sluice_connectx::layout::Field;

use super::command::{Command, pages};
use super::request::{Refused, Request, pin};

/// A queue in a program's memory.
pub(crate) struct Place {
    pub(crate) start: u64,
    pub(crate) entries: u32,
    pub(crate) log_stride: u32,
}

impl Place {
    /// The command that makes it, with the fields for its offset in its first page and for its size.
    pub(crate) fn of(
        &self,
        request: &Request<'_>,
        opcode: u16,
        layout: &sluice_connectx::layout::Layout,
        fields: &[(Field, u64)],
        [offset_field, size_field]: [Field; 2],
    ) -> Result<Command, Refused> {
        if !self.entries.is_power_of_two() || self.log_stride > 12 {
            let reason = format!("a queue of {} entries of 2^{} bytes", self.entries, self.log_stride);
            return Err(Refused::new(Errno::EINVAL, reason));
        }
        let bytes = u64::from(self.entries) << self.log_stride;
        pin(request, self.start, bytes)?;
        let (list, offset) = pages(self.start, bytes);
        // In units of 64 bytes, of which the field has room for 31.
        if !offset.is_multiple_of(64) || offset / 64 > 31 {
            return Err(Refused::new(Errno::EINVAL, format!("the queue at {:#x} is not aligned", self.start)));
        }
        let place = [(offset_field, offset / 64), (size_field, self.entries.ilog2().into())];
        Ok(Command::new(opcode, layout, &[fields, &place].concat()).followed_by(&list))
    }
}
