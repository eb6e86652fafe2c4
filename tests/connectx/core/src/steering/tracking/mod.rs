//! Connection tracking by ASO objects: a TCP connection in each. Entries have a packet looked at in one of its directions, and go on
//! to another table that looks at what came of it; requests of send queues (`ACCESS_ASO`) write and read objects.

mod connection;
mod outcome;
mod segment;
mod tcp;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::packet::Headers;
use crate::steering::failure::{Failure, Refusal};
use connection::Connection;
pub(crate) use connection::OBJECT;
pub(crate) use outcome::Tracked;
pub use outcome::{Direction, Outcome};
use segment::Segment;

/// Objects that there are, as a power of two: so many numbers an entry has room for.
pub(crate) const LOG_ALL: u64 = 24;
/// Objects that come in a block at least, and at most, as powers of two. DPDK takes 64; what a ConnectX says is not known here.
pub(crate) const LOG_GRANULARITY: u64 = 6;
/// See [`LOG_GRANULARITY`].
pub(crate) const LOG_MAX_ALLOCATION: u64 = 20;

/// All objects, in blocks by the number of their first.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    next: u32,
    blocks: BTreeMap<u32, Block>,
    /// Those that are not all zero.
    written: BTreeMap<u32, [u8; OBJECT]>,
}

#[derive(Debug)]
struct Block {
    /// The DevX user context that made it; 0 is the kernel.
    uid: u16,
    /// The protection domain of queues that may read and write.
    domain: u32,
    objects: u32,
}

impl Connections {
    /// A block of 2^`log` objects that are all zero, for queues of a protection domain: the number of the first.
    pub(crate) fn create(&mut self, uid: u16, domain: u32, log: u64) -> Result<u32, Failure> {
        if !(LOG_GRANULARITY..=LOG_MAX_ALLOCATION).contains(&log) {
            let value = u32::try_from(log).unwrap_or(u32::MAX);
            let problem = "is not what log_conn_track_granularity and log_conn_track_max_alloc allow";
            return Err(Refusal::Value { what: "log_obj_range", value, problem }.into());
        }
        let (first, objects) = (self.next, 1 << log);
        if first + objects > 1 << LOG_ALL {
            return Err(Refusal::Full { what: "ASO objects of connection tracking", limit: 1 << LOG_ALL }.into());
        }
        self.next += objects;
        self.blocks.insert(first, Block { uid, domain, objects });
        Ok(first)
    }

    /// Takes a block back.
    pub(crate) fn destroy(&mut self, uid: u16, first: u32) -> Result<(), Failure> {
        let unknown = Refusal::Unknown { what: "block of ASO objects of connection tracking", id: first };
        let block = self.blocks.get(&first).filter(|block| uid == 0 || block.uid == uid).ok_or(unknown)?;
        let end = first + block.objects;
        self.blocks.remove(&first);
        self.written.retain(|object, _| !(first..end).contains(object));
        Ok(())
    }

    /// An object's protection domain, and its bytes.
    pub(crate) fn query(&self, uid: u16, object: u32) -> Result<(u32, [u8; OBJECT]), Failure> {
        let block = self.block(object).filter(|block| uid == 0 || block.uid == uid).ok_or(missing(object))?;
        Ok((block.domain, self.bytes(object)))
    }

    /// An object's bytes, for a queue of a protection domain.
    pub(crate) fn read(&self, domain: u32, object: u32) -> Result<[u8; OBJECT], String> {
        let block = self.block(object).ok_or_else(|| missing(object).to_string())?;
        if block.domain != domain {
            return Err(format!("object {object:#x} is of PD {:#x}, and the queue of {domain:#x}", block.domain));
        }
        Ok(self.bytes(object))
    }

    /// Has those bytes of an object that a mask names, its highest bit the first byte, be as given, for such a queue.
    pub(crate) fn write(&mut self, domain: u32, object: u32, mask: u64, data: &[u8; OBJECT]) -> Result<(), String> {
        let mut bytes = self.read(domain, object)?;
        for at in (0..OBJECT).filter(|at| mask << at >> 63 == 1) {
            bytes[at] = data[at];
        }
        Connection::decode(&bytes).map_err(|refusal| format!("object {object:#x}: {refusal}"))?;
        self.written.insert(object, bytes);
        Ok(())
    }

    /// Has an object look at a packet in a direction. Fails if there is no such object.
    pub(super) fn track(&mut self, tracked: Tracked, frame: &[u8], headers: &Headers) -> Result<Outcome, String> {
        let object = tracked.object;
        self.block(object).ok_or_else(|| missing(object).to_string())?;
        let Some(bytes) = self.written.get_mut(&object) else { return Ok(Outcome::Untracked) };
        // What was written has been looked at then.
        let Ok(Some(mut connection)) = Connection::decode(bytes) else { return Ok(Outcome::Untracked) };
        if connection.frozen {
            return Ok(Outcome::Untracked);
        }
        let Some(segment) = Segment::parse(frame, headers) else { return Ok(Outcome::Bad) };
        let outcome = connection.track(tracked.direction, &segment);
        connection.encode(bytes);
        Ok(outcome)
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    fn bytes(&self, object: u32) -> [u8; OBJECT] {
        self.written.get(&object).copied().unwrap_or([0; OBJECT])
    }

    fn block(&self, object: u32) -> Option<&Block> {
        let (first, block) = self.blocks.range(..=object).next_back()?;
        (object - first < block.objects).then_some(block)
    }
}

fn missing(object: u32) -> Refusal {
    Refusal::Unknown { what: "ASO object of connection tracking", id: object }
}
