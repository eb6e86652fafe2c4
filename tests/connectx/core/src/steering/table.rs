//! Flow tables, the groups in them and the entries in those.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::domain::{Domain, Target};
use super::fields::{self, Description, MATCH_BYTES};
use super::meter::aso::Metered;

/// What a table does with a packet that no entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// Whatever tables of its kind do.
    Default,
    /// Goes on in a table.
    Table(u32),
}

/// Where in steering memory the trees of a table begin that software owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Roots {
    /// sw_owner_icm_root_0: of the FDB, for packets from the wire; of other tables, for all.
    pub(super) first: u64,
    /// sw_owner_icm_root_1: of the FDB, for packets from vports.
    pub(super) second: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) domain: Domain,
    pub(super) level: u8,
    pub(super) log_size: u8,
    pub(super) reformat: bool,
    pub(super) decap: bool,
    pub(super) termination: bool,
    pub(super) miss: Miss,
    /// Of a table that software owns.
    pub(super) software: Option<Roots>,
    /// By their first index, so that the entry with the lowest index wins.
    pub(super) groups: BTreeMap<u32, Group>,
}

impl Table {
    pub(super) fn size(&self) -> u64 {
        1 << self.log_size
    }

    pub(super) fn group(&self, id: u32) -> Option<&Group> {
        self.groups.values().find(|group| group.id == id)
    }

    pub(super) fn group_mut(&mut self, id: u32) -> Option<&mut Group> {
        self.groups.values_mut().find(|group| group.id == id)
    }

    pub(super) fn entry(&self, index: u32) -> Option<(&Group, &Arc<Entry>)> {
        let (_, group) = self.groups.range(..=index).next_back()?;
        Some((group, group.entries.get(&index)?))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.groups.values().flat_map(|group| group.entries.values())
    }

    /// Whether any group is about which headers are right.
    pub(super) fn checks(&self) -> bool {
        self.groups.values().any(|group| group.checks)
    }

    /// The entry with the lowest index that matches, of those for packets from that side.
    pub(super) fn lookup(&self, key: &[u8; MATCH_BYTES], from_wire: bool) -> Option<(&Group, &Arc<Entry>)> {
        self.groups.values().find_map(|group| Some((group, group.lookup(key, from_wire)?)))
    }
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) enable: u8,
    /// With only the blocks that are enabled.
    pub(super) mask: Box<[u8; MATCH_BYTES]>,
    pub(super) described: Description,
    /// Whether it is about which headers are right.
    checks: bool,
    /// The bytes that are looked at, and which of their bits.
    masked: Vec<(usize, u8)>,
    /// Indexes of entries by what they want in those bytes.
    by_value: HashMap<Box<[u8]>, BTreeSet<u32>>,
    entries: BTreeMap<u32, Arc<Entry>>,
}

impl Group {
    pub(super) fn new(id: u32, first: u32, last: u32, enable: u8, mask: Box<[u8; MATCH_BYTES]>) -> Self {
        // Who asks for a customer's tag asks for the first tag of all: if there shall be none, there is no provider's either, on
        // which Linux relies (`__parse_cls_flower`).
        let mut looked_at = mask.clone();
        for layer in [0, fields::INNER] {
            if fields::CVLAN_TAG.after(layer).is_set(&looked_at[..]) {
                fields::SVLAN_TAG.after(layer).put(&mut looked_at[..], 1);
            }
        }
        let masked = looked_at.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect();
        let described = Description::of(&mask[..]);
        let checks = fields::CHECKS.iter().any(|field| field.is_set(&mask[..]));
        Self {
            id,
            first,
            last,
            enable,
            mask,
            described,
            checks,
            masked,
            by_value: HashMap::new(),
            entries: BTreeMap::new(),
        }
    }

    pub(super) fn insert(&mut self, index: u32, entry: Entry) {
        self.by_value.entry(self.masked(entry.value())).or_default().insert(index);
        self.entries.insert(index, Arc::new(entry));
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Arc<Entry>> {
        let entry = self.entries.remove(&index)?;
        let value = self.masked(entry.value());
        if let Some(indexes) = self.by_value.get_mut(&value) {
            indexes.remove(&index);
            if indexes.is_empty() {
                self.by_value.remove(&value);
            }
        }
        Some(entry)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Fields of a value that lie outside the mask, in words; None if there are none.
    pub(super) fn outside_mask(&self, value: &[u8]) -> Option<String> {
        let mut outside = fields::enabled(value, self.enable);
        for (byte, mask) in outside.iter_mut().zip(self.mask.iter()) {
            *byte &= !mask;
        }
        outside.iter().any(|byte| *byte != 0).then(|| Description::of(&outside).value(value))
    }

    fn lookup(&self, key: &[u8; MATCH_BYTES], from_wire: bool) -> Option<&Arc<Entry>> {
        let indexes = self.by_value.get(&self.masked(&key[..]))?;
        indexes.iter().filter_map(|index| self.entries.get(index)).find(|entry| entry.source.admits(from_wire))
    }

    fn masked(&self, bytes: &[u8]) -> Box<[u8]> {
        self.masked.iter().map(|(at, mask)| bytes.get(*at).copied().unwrap_or(0) & mask).collect()
    }
}

/// Which packets of the FDB an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowSource {
    Any,
    Wire,
    Vports,
}

impl FlowSource {
    fn admits(self, from_wire: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Wire => from_wire,
            Self::Vports => !from_wire,
        }
    }
}

/// What becomes of a packet at last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Drop,
    Forward(Vec<Destination>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) target: Target,
    /// The vhca_id of the function that owns the switch, if the entry says which.
    pub(super) owner: Option<u16>,
    /// Encapsulation for this destination only.
    pub(super) reformat: Option<u32>,
}

/// A tag to push: EtherType and TCI.
pub(super) type Tag = (u16, u16);

/// An entry: what to match is kept in the flow context, as it was given.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) index: u32,
    /// The flow context with its lists.
    pub(super) context: Vec<u8>,
    pub(super) ignore_level: bool,
    pub(super) source: FlowSource,
    pub(super) tag: u32,
    pub(super) counters: Vec<u32>,
    pub(super) decap: bool,
    pub(super) pops: usize,
    pub(super) pushes: Vec<Tag>,
    pub(super) rewrite: Option<u32>,
    pub(super) reformat: Option<u32>,
    /// Meters that color the packet at last.
    pub(super) meters: Vec<Metered>,
    pub(super) verdict: Verdict,
}

impl Entry {
    pub(super) fn value(&self) -> &[u8] {
        use super::layout::flow_context::MATCH_VALUE;
        self.context.get(MATCH_VALUE..MATCH_VALUE + MATCH_BYTES).unwrap_or(&[])
    }

    pub(super) fn destinations(&self) -> &[Destination] {
        match &self.verdict {
            Verdict::Forward(destinations) => destinations,
            Verdict::Allow | Verdict::Drop => &[],
        }
    }

    /// All encapsulations that it uses.
    pub(super) fn reformats(&self) -> impl Iterator<Item = u32> {
        self.reformat.into_iter().chain(self.destinations().iter().filter_map(|destination| destination.reformat))
    }
}
