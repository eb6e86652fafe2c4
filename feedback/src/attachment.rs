//! The library's side of the memory: records to be read, counters and marks to be written, and nothing else within its reach.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;

use crate::layout::{METERS, PART, RECORD, RECORDS, STATUS, marks};
use crate::marks::Marks;
use crate::memory::{Refusal, Region, Shape, inspect};
use crate::meters::MeterTable;
use crate::records::Records;
use crate::status::{Counters, count_meter_change};

/// A memory that is mapped to be read.
pub struct Attachment {
    file: OwnedFd,
    shape: Shape,
    /// Read-only.
    records: Region,
    status: Region,
    marks: Region,
}

impl Attachment {
    /// Maps a memory, or says why it is not used.
    pub fn new(file: OwnedFd) -> Result<Self, Refusal> {
        let shape = inspect(file.as_fd())?;
        let length = shape.slots.saturating_mul(RECORD);
        let records = Region::map(file.as_fd(), RECORDS, length, false).map_err(|_| Refusal::Map)?;
        let status = Region::map(file.as_fd(), STATUS, PART, true).map_err(|_| Refusal::Map)?;
        let marks = Region::map(file.as_fd(), marks(shape.slots), shape.slots.saturating_mul(8), true)
            .map_err(|_| Refusal::Map)?;
        Ok(Self { file, shape, records, status, marks })
    }

    /// The memory itself, to give it back.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether that is the same memory.
    pub fn is(&self, file: BorrowedFd<'_>) -> bool {
        match (fstat(&self.file), fstat(file)) {
            (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Adds to the counters that the agent sees.
    pub fn count(&self, counters: Counters) {
        counters.add_to(self.status.words());
    }

    /// Settings of meters, to be told.
    pub(crate) fn meters(&self) -> MeterTable<'_> {
        MeterTable(self.status.words().get((METERS - STATUS) / 8..).unwrap_or_default())
    }

    /// Lets the agent see that some of them have changed.
    pub(crate) fn count_meter_change(&self) {
        count_meter_change(self.status.words());
    }

    pub(crate) fn records(&self) -> Records<'_> {
        Records::new(self.records.words(), self.shape.slots, self.shape.epoch)
    }

    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks(self.marks.words())
    }
}
