//! Reading a log back: what was wanted when the agent ended.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};
use sluice_flow::ufid::Seed;
use sluice_flow::{ChainId, Flow, Ufid};

use super::JournalError;
use super::folder::{Folder, failed};
use super::record::{
    ActionTexts, Contents, Frames, HEADER, Record, RecordError, Shape, WallTime, body_at, read_header, wanted_ufid,
};

/// Octets of the frame of a 5-tuple's record.
const TYPICAL_FRAME: usize = 90;

/// What the files of a log say, before their flows are taken apart.
#[derive(Default)]
pub(super) struct Log {
    files: Vec<LogFile>,
    shapes: Vec<Shape>,
    wanted: Wanted,
    pub(super) summary: Summary,
}

/// Where the last records of flows are.
#[derive(Default)]
struct Wanted {
    /// One for each flow, in the order of their acceptance; `None` for one that has ended.
    entries: Vec<Option<Entry>>,
    /// Where in `entries` a flow that is wanted is, by its UFID. That is in the file and not here, so that this stays small.
    by_ufid: HashTable<usize>,
    hasher: RandomState,
}

/// What was found in the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Acceptances, changes and ends.
    pub(super) records: u64,
    /// Files.
    pub(super) files: usize,
    /// Octets.
    pub(super) octets: u64,
    /// Octets that are no whole record, at the ends of files: (file, from where, how many, why).
    pub(super) torn: Vec<(PathBuf, usize, usize, &'static str)>,
    /// When the last file was last changed: the agent was alive then.
    pub(super) last_alive: Option<SystemTime>,
}

struct LogFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Where the last record of a flow is.
struct Entry {
    /// The place of its frame.
    at: usize,
    file: usize,
    shape: usize,
    accepted: WallTime,
}

impl Log {
    /// Reads the files of these numbers. Nothing is changed, whatever is found.
    pub(super) fn read(folder: &Folder, numbers: &[u64]) -> Result<Self, JournalError> {
        let mut log = Self::default();
        for number in numbers {
            let path = folder.file(*number);
            let bytes = fs::read(&path).map_err(failed("read", &path))?;
            let changed = fs::metadata(&path).and_then(|data| data.modified()).map_err(failed("read", &path))?;
            log.summary.last_alive = log.summary.last_alive.max(Some(changed));
            log.read_file(path, bytes)?;
        }
        log.summary.files = log.files.len();
        Ok(log)
    }

    /// How many records there are to [visit](Log::visit), those of flows that have ended included.
    pub(super) fn len(&self) -> usize {
        self.wanted.entries.len()
    }

    /// Shows every flow that is wanted among those records, with the time of its acceptance, in the order of the acceptances.
    pub(super) fn visit(
        &self,
        records: Range<usize>,
        texts: &mut ActionTexts,
        seed: &Seed,
        visit: &mut dyn FnMut(Flow, WallTime),
    ) -> Result<(), JournalError> {
        for entry in self.wanted.entries[records].iter().flatten() {
            let file = &self.files[entry.file];
            let flow = match body_at(&file.bytes, entry.at).and_then(Record::read) {
                Ok(Record::Wanted(record)) => record.flow(&self.shapes[entry.shape], texts, seed),
                // It was read as one before.
                Ok(Record::Shape(..) | Record::Unwanted(_)) => Err(RecordError::Short),
                Err(error) => Err(error),
            };
            let wrong = |reason| JournalError::Unreadable { path: file.path.clone(), at: entry.at, reason };
            visit(flow.map_err(wrong)?, entry.accepted);
        }
        Ok(())
    }

    /// Reads what follows what was read so far.
    pub(super) fn read_file(&mut self, path: PathBuf, bytes: Vec<u8>) -> Result<(), JournalError> {
        let number = self.files.len();
        self.files.push(LogFile { path, bytes });
        let Self { files, shapes: all_shapes, wanted, summary } = self;
        let LogFile { path, bytes } = &files[number];
        let wrong = |at, reason| JournalError::Unreadable { path: path.clone(), at, reason };
        summary.octets += bytes.len() as u64;
        match read_header(bytes).map_err(|reason| wrong(0, reason))? {
            Some(Contents::Everything) => {
                wanted.clear();
                summary.records = 0;
            }
            Some(Contents::Changes) => {}
            None => {
                summary.torn.push((path.clone(), 0, bytes.len(), "the file ends within its header"));
                return Ok(());
            }
        }
        // A guess at how many flows there are, so that what is large need not grow step by step.
        wanted.reserve(bytes.len() / TYPICAL_FRAME, files);
        // Numbers of shapes are of one file only.
        let mut shapes = HashMap::new();
        let mut frames = Frames::at(bytes, HEADER);
        loop {
            let (at, body) = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(torn) => {
                    summary.torn.push((path.clone(), torn.at, bytes.len() - torn.at, torn.reason));
                    break;
                }
            };
            match Record::read(body).map_err(|reason| wrong(at, reason))? {
                Record::Shape(number, shape) => {
                    shapes.insert(number, all_shapes.len());
                    all_shapes.push(shape);
                    continue;
                }
                Record::Wanted(record) => {
                    let unknown = RecordError::UnknownShape(record.shape);
                    let shape = *shapes.get(&record.shape).ok_or_else(|| wrong(at, unknown))?;
                    let entry = Entry { at, file: number, shape, accepted: record.accepted };
                    wanted.put(record.ufid, entry, files);
                }
                Record::Unwanted(ufid) => wanted.end(ufid, files),
            }
            summary.records += 1;
        }
        Ok(())
    }
}

impl Wanted {
    fn clear(&mut self) {
        self.by_ufid.clear();
        self.entries.clear();
    }

    fn reserve(&mut self, flows: usize, files: &[LogFile]) {
        let Self { entries, by_ufid, hasher } = self;
        by_ufid.reserve(flows, |index| hasher.hash_one(ufid_of(&entries[*index], files)));
        entries.reserve(flows);
    }

    fn put(&mut self, ufid: Ufid, mut entry: Entry, files: &[LogFile]) {
        let Self { entries, by_ufid, hasher } = self;
        let hash = |index: &usize| hasher.hash_one(ufid_of(&entries[*index], files));
        let is_it = |index: &usize| ufid_of(&entries[*index], files) == Some(ufid);
        match by_ufid.entry(hasher.hash_one(Some(ufid)), is_it, hash) {
            hash_table::Entry::Occupied(known) => {
                let before = &mut entries[*known.get()];
                // The flow is changed: its life began earlier.
                entry.accepted = before.as_ref().map_or(entry.accepted, |before| before.accepted);
                *before = Some(entry);
            }
            hash_table::Entry::Vacant(vacant) => {
                vacant.insert(entries.len());
                entries.push(Some(entry));
            }
        }
    }

    fn end(&mut self, ufid: Ufid, files: &[LogFile]) {
        let Self { entries, by_ufid, hasher } = self;
        let is_it = |index: &usize| ufid_of(&entries[*index], files) == Some(ufid);
        if let Ok(known) = by_ufid.find_entry(hasher.hash_one(Some(ufid)), is_it) {
            let (index, _) = known.remove();
            entries[index] = None;
        }
    }
}

/// The UFID of the flow that a record is of; `None` for one that has ended.
fn ufid_of(entry: &Option<Entry>, files: &[LogFile]) -> Option<Ufid> {
    let entry = entry.as_ref()?;
    wanted_ufid(body_at(&files[entry.file].bytes, entry.at).ok()?)
}

impl Summary {
    /// For how long no agent has been there, as far as the files tell.
    pub(super) fn away(&self, now: SystemTime) -> Option<Duration> {
        Some(now.duration_since(self.last_alive?).unwrap_or_default())
    }
}

/// Puts flows in an order in which chains come before those that jump to them; within a chain, the order stays.
pub(super) fn children_first<T>(flows: &mut [(Flow, T)]) {
    let edges: BTreeSet<_> =
        flows.iter().flat_map(|(flow, _)| flow.jumps().into_iter().map(|to| (flow.chain(), to))).collect();
    if edges.is_empty() {
        return;
    }
    // Jumps on the longest way to a chain. They have no cycles, or the agent would not have taken them on; a log that
    // says otherwise must not keep it busy for ever.
    let mut depth: HashMap<ChainId, usize> = HashMap::new();
    for _ in 0..=edges.len() {
        let mut is_settled = true;
        for (from, to) in &edges {
            let below = depth.get(from).copied().unwrap_or(0) + 1;
            let known = depth.entry(*to).or_default();
            if *known < below {
                *known = below;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    flows.sort_by_key(|(flow, _)| std::cmp::Reverse(depth.get(&flow.chain()).copied().unwrap_or(0)));
}
