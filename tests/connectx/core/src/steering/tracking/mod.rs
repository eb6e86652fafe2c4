//! Connection tracking by ASO objects: a TCP connection in each. Entries have a packet looked at in one of its directions, and go on
//! to another table that looks at what came of it; requests of send queues (`ACCESS_ASO`) write and read objects.

mod connection;
mod segment;
mod tcp;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use super::Steering;
use super::failure::{Failure, Refusal};
use crate::packet::Headers;
use connection::Connection;
pub(crate) use connection::OBJECT;
use segment::Segment;

/// Objects that there are, as a power of two: so many numbers an entry has room for.
pub(crate) const LOG_ALL: u64 = 24;
/// Objects that come in a block at least, and at most, as powers of two. DPDK takes 64; what a ConnectX says is not known here.
pub(crate) const LOG_GRANULARITY: u64 = 6;
/// See [`LOG_GRANULARITY`].
pub(crate) const LOG_MAX_ALLOCATION: u64 = 20;

/// The end that a packet comes from, by the PRM's numbers in entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The one that sent the SYN.
    Initiator = 0,
    /// The one that answered it.
    Responder = 1,
}

/// What tracking says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is of the connection.
    Valid {
        /// The connection has another state from now on.
        changed: bool,
    },
    /// It is not of the connection, as the connection is now, which stays as it is.
    Invalid,
    /// The connection is not tracked: it is frozen, or nobody has written it.
    Untracked,
    /// It is no TCP, or its header makes no sense.
    Bad,
}

impl Outcome {
    /// Writes it into a register, as DPDK's driver reads it there (`MLX5_CT_SYNDROME_*`): two bits for whether it is valid, invalid or
    /// untracked, and in the lowest bits whether the state changed and whether the packet is bad. Four bits in between are reserved;
    /// those above stay.
    ///
    /// That a bad packet is invalid, too, is our reading: that driver refuses rules that want bad packets to be valid.
    pub(crate) fn put(self, register: &mut u32) {
        const BAD: u32 = 1 << 0;
        const CHANGED: u32 = 1 << 1;
        const INVALID: u32 = 1 << 6;
        const UNTRACKED: u32 = 2 << 6;
        let bits = match self {
            Self::Valid { changed: false } => 0,
            Self::Valid { changed: true } => CHANGED,
            Self::Invalid => INVALID,
            Self::Untracked => UNTRACKED,
            Self::Bad => INVALID | BAD,
        };
        *register = *register & !0xff | bits;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Valid { changed: false } => "valid",
            Self::Valid { changed: true } => "valid, of another state",
            Self::Invalid => "invalid",
            Self::Untracked => "untracked",
            Self::Bad => "bad",
        })
    }
}

/// An object as an entry names it, and where what came of it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// The object's number.
    pub(crate) object: u32,
    pub(crate) direction: Direction,
    /// Register C.
    pub(crate) register: usize,
}

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

impl Steering {
    /// Has an object look at a packet in a direction. Fails if there is no such object.
    pub(super) fn track(&mut self, tracked: Tracked, frame: &[u8], headers: &Headers) -> Result<Outcome, String> {
        let object = tracked.object;
        let connections = &mut self.connections;
        connections.block(object).ok_or_else(|| missing(object).to_string())?;
        let Some(bytes) = connections.written.get_mut(&object) else { return Ok(Outcome::Untracked) };
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
}

/// Whether a sequence number comes after another one (RFC 793, 3.3).
fn is_after(number: u32, other: u32) -> bool {
    other.wrapping_sub(number) >= 1 << 31
}

fn missing(object: u32) -> Refusal {
    Refusal::Unknown { what: "ASO object of connection tracking", id: object }
}
