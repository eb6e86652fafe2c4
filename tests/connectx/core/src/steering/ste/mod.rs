//! Steering by entries in steering memory, which software owns: STEs of format 0 (ConnectX-5), of format 1 (ConnectX-6 Dx,
//! BlueField-2) and of format 2 (ConnectX-7, BlueField-3), which differs from format 1 in how it names registers.
//!
//! Software writes hash tables of 64-byte entries and leads from one to the next by address. An entry says what it matches, what
//! to do on a hit, and where the next table is and by which fields its hash goes; on a miss, where the next entry of the chain is.
//! An address that is not in steering memory ends the walk: it stands for a vport, for dropping or for a table of firmware, as the
//! device's capabilities gave it out.
//!
//! Not modelled, and said so where a walk meets it: hash types other than 0, and inverted matches. Inner headers are not
//! rewritten: no format has places for them, as far as libmlx5
//! 44 knows.

mod act;
mod definer;
mod entry;
pub(crate) mod large;
mod rewrite;
mod zero;

#[cfg(test)]
mod tests;

use std::fmt;

use super::key::Metadata;
use super::step::Deed;
use super::{Origin, Steering};
use crate::packet::Headers;
pub(crate) use definer::Sample;
use entry::{Entry, Lookup, Seen};

/// Bytes of an entry.
pub const ENTRY: usize = 64;

/// Entries that a packet visits at most, which ends loops.
const MAX_ENTRIES: usize = 1024;

/// How entries are written: steering_format_version of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// ConnectX-5.
    Zero,
    /// ConnectX-6 Dx and BlueField-2.
    #[default]
    One,
    /// ConnectX-7 and BlueField-3.
    Two,
}

impl Format {
    /// The number in the capability.
    #[must_use]
    pub fn version(self) -> u64 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// Where the entries are, and the lists of rewrites.
pub trait SteeringMemory {
    /// Whether an address is in steering memory at all. A walk that comes to one without an entry ends there with that as the
    /// reason; at any other address it has left.
    fn covers(&self, address: u64) -> bool;

    /// The entry at an address; None if nobody wrote one.
    fn entry(&self, address: u64) -> Option<[u8; ENTRY]>;

    /// A line of 64 bytes, by number, of the memory for lists of rewrites; None past its end.
    fn rewrites(&self, line: u64) -> Option<[u8; ENTRY]>;

    /// The same of the memory for patterns.
    fn patterns(&self, line: u64) -> Option<[u8; ENTRY]>;
}

/// What became of one packet in tables that software owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteWalk {
    /// The entries that it visited. Each prints as one line.
    pub steps: Vec<SteStep>,
    /// Where it left steering memory, or why it ended there.
    pub end: Result<u64, String>,
    /// The frame as it left.
    pub frame: Vec<u8>,
    /// The flow tag that it was given.
    pub tag: Option<u32>,
}

/// One entry that a packet visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteStep {
    /// Its address.
    pub address: u64,
    /// By which fields it matches: definer mode and index, or 0x400 and the number of a match definer.
    pub lookup: u16,
    /// Whether it matched.
    pub hit: bool,
    /// What it did.
    pub did: Vec<Deed>,
    /// Where it led to.
    pub next: u64,
}

impl fmt::Display for SteStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.hit { "hit" } else { "miss" };
        write!(out, "STE {:#x} lookup {:#06x}: {outcome}", self.address, self.lookup)?;
        self.did.iter().try_for_each(|deed| write!(out, ", {deed}"))?;
        write!(out, ", on to {:#x}", self.next)
    }
}

impl fmt::Display for SteWalk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(out, "{step}"))?;
        match &self.end {
            Ok(address) => writeln!(out, "left steering memory at {address:#x}"),
            Err(why) => writeln!(out, "ended: {why}"),
        }
    }
}

/// A packet on its way through steering memory.
pub(super) struct Packet {
    pub(super) frame: Vec<u8>,
    pub(super) headers: Headers,
    pub(super) metadata: Metadata,
    /// The function that sent it.
    pub(super) gvmi: u16,
    pub(super) tag: Option<u32>,
}

impl Steering {
    /// Walks a frame through the tables whose root entry is at `root`. `gvmi` is the function that sent it. Counters move.
    pub fn walk_memory(
        &mut self,
        memory: &dyn SteeringMemory,
        root: u64,
        origin: Origin,
        gvmi: u16,
        frame: &[u8],
    ) -> SteWalk {
        let mut packet = Packet {
            frame: frame.to_vec(),
            headers: Headers::parse(frame, &self.tunnels),
            metadata: Metadata {
                source_port: origin.port.vport(),
                sqn: origin.sqn,
                register_a: origin.metadata,
                ..Metadata::default()
            },
            gvmi,
            tag: None,
        };
        let mut steps = Vec::new();
        let end = self.follow(memory, root, &mut packet, &mut steps);
        SteWalk { steps, end, frame: packet.frame, tag: packet.tag }
    }

    /// Walks from the entry at `root` on, to the address where the packet leaves steering memory.
    pub(super) fn follow(
        &mut self,
        memory: &dyn SteeringMemory,
        root: u64,
        packet: &mut Packet,
        steps: &mut Vec<SteStep>,
    ) -> Result<u64, String> {
        let format = self.profile.steering_format;
        let mut address = root;
        while let Some(bytes) = memory.entry(address) {
            if steps.len() == MAX_ENTRIES {
                return Err(format!("it visited {MAX_ENTRIES} entries"));
            }
            let entry = match format {
                Format::Zero => zero::decode(&bytes)?,
                Format::One | Format::Two => Entry::decode(&bytes)?,
            };
            let mut did = Vec::new();
            let hit = entry.matches(&self.see(packet, entry.lookup, entry.wants_fields())?);
            let outcome = if hit { self.hit(memory, &entry, packet, &mut did) } else { Ok(entry.miss) };
            // A step that went wrong shows the entry itself as the next.
            let next = *outcome.as_ref().unwrap_or(&address);
            steps.push(SteStep { address, lookup: entry.lookup.number(), hit, did, next });
            address = outcome?;
        }
        if memory.covers(address) {
            return Err(format!("nobody wrote an entry at {address:#x}"));
        }
        Ok(address)
    }

    /// Counts, carries out the actions, and finds the next entry by its hash.
    fn hit(
        &mut self,
        memory: &dyn SteeringMemory,
        entry: &Entry,
        packet: &mut Packet,
        did: &mut Vec<Deed>,
    ) -> Result<u64, String> {
        if entry.counter != 0 {
            self.count(entry.counter, packet, did);
        }
        let table = &entry.next;
        let before = self.see(packet, table.lookup, table.hashes())?;
        for action in entry.actions.clone()? {
            self.act(memory, action, packet, did)?;
        }
        let after = self.see(packet, table.lookup, table.hashes())?;
        Ok(table.place(if table.after_actions { &after } else { &before }))
    }
}

impl Steering {
    /// What a lookup sees of a packet; one that is not modelled is refused if anybody wants to know.
    fn see(&self, packet: &Packet, lookup: Lookup, wanted: bool) -> Result<Seen, String> {
        if !wanted {
            return Ok(lookup.nothing());
        }
        match lookup {
            Lookup::Fixed(number) => {
                let fields = match self.profile.steering_format {
                    Format::Zero => zero::fields,
                    Format::One | Format::Two => definer::fields,
                };
                let fields = fields(number, &packet.headers, &packet.metadata, packet.gvmi);
                fields.map(Seen::Fixed).ok_or_else(|| format!("lookup {number:#06x} is not modelled"))
            }
            Lookup::Defined(number) => {
                let definer = self.definers.get(number).ok_or(format!("there is no match definer {number:#04x}"))?;
                let fields = large::fields(definer.format, packet)
                    .ok_or_else(|| format!("definers of format {} are not modelled", definer.format))?;
                let mut masked = fields;
                masked.iter_mut().zip(definer.mask).for_each(|(field, mask)| *field &= mask);
                Ok(Seen::Defined(masked))
            }
        }
    }
}
