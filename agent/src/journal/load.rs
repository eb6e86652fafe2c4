//! Reading a log back: what was wanted when the agent ended.

use std::collections::{BTreeSet, HashMap, hash_map};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sluice_flow::ufid::Seed;
use sluice_flow::{ChainId, Flow, Ufid};

use super::JournalError;
use super::folder::{Folder, failed};
use super::record::{
    ActionTexts, Contents, FRAME_HEADER, Frames, HEADER, Record, RecordError, Shape, WallTime, read_header,
};

/// Octets of the record of a 5-tuple.
const TYPICAL_RECORD: usize = 100;

/// What the files of a log say, before their flows are taken apart.
#[derive(Default)]
pub(super) struct Log {
    files: Vec<LogFile>,
    shapes: Vec<Shape>,
    /// The last record of each flow, in the order of their acceptance; `None` for one that has ended.
    entries: Vec<Option<Entry>>,
    /// Where in `entries` a flow that is wanted is.
    wanted: HashMap<Ufid, usize>,
    pub(super) summary: Summary,
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
    file: usize,
    at: usize,
    body: Range<usize>,
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

    /// Shows every flow that is wanted, with the time of its acceptance, in the order of the acceptances.
    pub(super) fn visit(&self, seed: &Seed, visit: &mut dyn FnMut(Flow, WallTime)) -> Result<(), JournalError> {
        let mut texts = ActionTexts::default();
        for entry in self.entries.iter().flatten() {
            let file = &self.files[entry.file];
            let flow = match Record::read(&file.bytes[entry.body.clone()]) {
                Ok(Record::Wanted(wanted)) => wanted.flow(&self.shapes[entry.shape], &mut texts, seed),
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
        let file = LogFile { path, bytes };
        let wrong = |at, reason| JournalError::Unreadable { path: file.path.clone(), at, reason };
        let bytes = &file.bytes;
        self.summary.octets += bytes.len() as u64;
        match read_header(bytes).map_err(|reason| wrong(0, reason))? {
            Some(Contents::Everything) => {
                self.wanted.clear();
                self.entries.clear();
                self.summary.records = 0;
            }
            Some(Contents::Changes) => {}
            None => {
                self.summary.torn.push((file.path.clone(), 0, bytes.len(), "the file ends within its header"));
                self.files.push(file);
                return Ok(());
            }
        }
        // A guess at how many flows there are, so that what is large need not grow step by step.
        self.wanted.reserve(bytes.len() / TYPICAL_RECORD);
        self.entries.reserve(bytes.len() / TYPICAL_RECORD);
        // Numbers of shapes are of one file only.
        let mut shapes = HashMap::new();
        let mut frames = Frames::at(bytes, HEADER);
        loop {
            let (at, body) = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(torn) => {
                    self.summary.torn.push((file.path.clone(), torn.at, bytes.len() - torn.at, torn.reason));
                    break;
                }
            };
            match Record::read(body).map_err(|reason| wrong(at, reason))? {
                Record::Shape(number, shape) => {
                    shapes.insert(number, self.shapes.len());
                    self.shapes.push(shape);
                    continue;
                }
                Record::Wanted(wanted) => {
                    let unknown = RecordError::UnknownShape(wanted.shape);
                    let shape = *shapes.get(&wanted.shape).ok_or_else(|| wrong(at, unknown))?;
                    let body = at + FRAME_HEADER..at + FRAME_HEADER + body.len();
                    let mut new = Entry { file: self.files.len(), at, body, shape, accepted: wanted.accepted };
                    match self.wanted.entry(wanted.ufid) {
                        hash_map::Entry::Occupied(known) => {
                            let entry = &mut self.entries[*known.get()];
                            // The flow is changed: its life began earlier.
                            new.accepted = entry.as_ref().map_or(new.accepted, |entry| entry.accepted);
                            *entry = Some(new);
                        }
                        hash_map::Entry::Vacant(vacant) => {
                            vacant.insert(self.entries.len());
                            self.entries.push(Some(new));
                        }
                    }
                }
                Record::Unwanted(ufid) => {
                    if let Some(index) = self.wanted.remove(&ufid) {
                        self.entries[index] = None;
                    }
                }
            }
            self.summary.records += 1;
        }
        self.files.push(file);
        Ok(())
    }
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
