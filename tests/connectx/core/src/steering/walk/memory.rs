//! The walk of a packet through entries in steering memory.

use std::fmt;

use crate::packet::Headers;
use crate::steering::deed::Deed;
use crate::steering::format::{Format, SteeringMemory};
use crate::steering::key::Metadata;
use crate::steering::port::Origin;
use crate::steering::state::Steering;
use crate::steering::ste::entry::{Entry, Lookup, Seen};
use crate::steering::ste::packet::Packet;
use crate::steering::ste::{SteStep, definer, large, zero};

/// Entries that a packet visits at most, which ends loops.
const MAX_ENTRIES: usize = 1024;

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

impl fmt::Display for SteWalk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(out, "{step}"))?;
        match &self.end {
            Ok(address) => writeln!(out, "left steering memory at {address:#x}"),
            Err(why) => writeln!(out, "ended: {why}"),
        }
    }
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
