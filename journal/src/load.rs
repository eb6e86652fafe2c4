//! Reading a log back: what was wanted when the agent ended.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};
use sluice_flow::port::GonePort;
use sluice_flow::ufid::Seed;
use sluice_flow::{ChainId, Flow, Ufid};

use super::error::{JournalError, failed};
use super::folder::Folder;
use super::frame::{Beginning, Contents, EVERYTHING, Found, Frames, body_at};
use super::loss::{Loss, Losses, Place};
use super::record::{ActionTexts, Index, Indexed, OpenIndex, Record, RecordError, Shape, WallTime, wanted_ufid};

/// Bytes of the frame of a 5-tuple's record.
const TYPICAL_FRAME: usize = 94;

/// What the files of a log say, before their flows are taken apart.
#[derive(Default)]
pub(super) struct Log {
    files: Vec<LogFile>,
    /// One whose records are damaged is `None`.
    shapes: Vec<Option<Shape>>,
    wanted: Wanted,
    /// Flows that wait for ports that are gone: few, and mostly none.
    pub(super) withheld: HashMap<Ufid, Vec<GonePort>>,
    position: Position,
    /// What no index covers of the records before the position.
    tail: OpenIndex,
    losses: Losses,
    pub(super) summary: Summary,
}

/// Which record is the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// The very first.
    #[default]
    Start,
    /// The one with this number.
    At(u64),
    /// The file that said so is damaged.
    Unknown,
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
    /// Bytes.
    pub(super) bytes: u64,
    /// Bytes that are no whole record, at the ends of files: (file, from where, how many, why).
    pub(super) torn: Vec<(PathBuf, usize, usize, &'static str)>,
    /// Whether the last file says that nothing more was written to it.
    pub(super) is_ended: bool,
    /// When the last file was last changed: the agent was alive then.
    pub(super) last_alive: Option<SystemTime>,
}

struct LogFile {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Of version 1.
    is_old: bool,
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
        let mut files = Vec::new();
        for number in numbers {
            let path = folder.file(*number);
            let bytes = fs::read(&path).map_err(failed("read", &path))?;
            let changed = fs::metadata(&path).and_then(|data| data.modified()).map_err(failed("read", &path))?;
            log.summary.last_alive = log.summary.last_alive.max(Some(changed));
            files.push((*number, path, bytes));
        }
        log.read_files(files)?;
        Ok(log)
    }

    /// Reads files with the numbers and paths that their names say.
    pub(super) fn read_files(&mut self, files: Vec<(u64, PathBuf, Vec<u8>)>) -> Result<(), JournalError> {
        let mut begun = Vec::new();
        for (number, path, bytes) in files {
            let wrong = |reason| JournalError::Unreadable { path: path.clone(), at: 0, reason };
            let beginning = Beginning::read(&bytes, number).map_err(|reason| wrong(reason.into()))?;
            // A file is what it says itself, should its name be another one.
            let own = match beginning {
                Beginning::Known(header) => header.number,
                _ => number,
            };
            begun.push((
                own,
                number,
                LogFile { path, bytes, is_old: matches!(beginning, Beginning::Old(_)) },
                beginning,
            ));
        }
        begun.sort_by_key(|(own, ..)| *own);
        for (own, number, file, beginning) in begun {
            if own != number {
                self.losses.found(&file.path, 0, 0, 0, "the file was written under another number");
            }
            self.read_file(own, file, beginning)?;
        }
        self.summary.files = self.files.len();
        let Self { losses, shapes, wanted, files, .. } = self;
        for entry in &mut wanted.entries {
            if let Some(ufid) = ufid_of(entry, files)
                && entry.as_ref().is_some_and(|entry| shapes[entry.shape].is_none())
            {
                losses.lose(ufid);
                *entry = None;
            }
        }
        Ok(())
    }

    /// How many records there are to [visit](Log::visit), those of flows that have ended included.
    pub(super) fn len(&self) -> usize {
        self.wanted.entries.len()
    }

    /// The number of the next record, and what no index covers of those before.
    pub(super) fn rest(&self) -> (u64, OpenIndex) {
        match self.position {
            Position::At(number) => (number, self.tail.clone()),
            Position::Start | Position::Unknown => (0, OpenIndex::from(0)),
        }
    }

    /// What is missing, if anything is damaged.
    pub(super) fn loss(&self) -> Option<Loss> {
        let doubtful = self.wanted.entries.iter().flatten().filter(|entry| self.is_doubtful(entry)).count();
        self.losses.loss(doubtful as u64)
    }

    fn is_doubtful(&self, entry: &Entry) -> bool {
        self.losses.in_doubt_before().is_some_and(|place| entry.place() < place)
    }

    /// Shows every flow that is wanted among those records, with the time of its acceptance, in the order of the acceptances.
    pub(super) fn visit(
        &self,
        records: Range<usize>,
        texts: &mut ActionTexts,
        seed: &Seed,
        visit: &mut dyn FnMut(Flow, WallTime),
    ) -> Result<(), JournalError> {
        self.visit_those(records, texts, seed, &|_| true, visit)
    }

    /// Shows every flow that a missing record may have ended or changed.
    pub(super) fn visit_doubtful(&self, seed: &Seed, visit: &mut dyn FnMut(Flow)) -> Result<(), JournalError> {
        let is_doubtful = |entry: &Entry| self.is_doubtful(entry);
        let texts = &mut ActionTexts::default();
        self.visit_those(0..self.len(), texts, seed, &is_doubtful, &mut |flow, _| visit(flow))
    }

    fn visit_those(
        &self,
        records: Range<usize>,
        texts: &mut ActionTexts,
        seed: &Seed,
        is_shown: &dyn Fn(&Entry) -> bool,
        visit: &mut dyn FnMut(Flow, WallTime),
    ) -> Result<(), JournalError> {
        for entry in self.wanted.entries[records].iter().flatten().filter(|entry| is_shown(entry)) {
            let file = &self.files[entry.file];
            let body = body_at(&file.bytes, entry.at, file.is_old).ok_or(RecordError::Short);
            let flow = match (body.and_then(Record::read), &self.shapes[entry.shape]) {
                (Ok(Record::Wanted(record)), Some(shape)) => record.flow(shape, texts, seed),
                // It was read as one before.
                (Ok(_), _) => Err(RecordError::Short),
                (Err(error), _) => Err(error),
            };
            let wrong = |reason| JournalError::Unreadable { path: file.path.clone(), at: entry.at, reason };
            visit(flow.map_err(wrong)?, entry.accepted);
        }
        Ok(())
    }

    /// Reads what follows what was read so far.
    fn read_file(&mut self, number: u64, file: LogFile, beginning: Beginning) -> Result<(), JournalError> {
        let index = self.files.len();
        self.files.push(file);
        self.summary.bytes += self.files[index].bytes.len() as u64;
        let first = self.first_of(index, beginning);
        let Self { files, shapes: all_shapes, wanted, withheld, position, tail, losses, summary } = self;
        let LogFile { path, bytes, .. } = &files[index];
        let wrong = |at, reason| JournalError::Unreadable { path: path.clone(), at, reason };
        let is_everything = beginning.contents() == Some(Contents::Everything);
        if is_everything {
            wanted.clear();
            withheld.clear();
            losses.clear();
            summary.records = 0;
        }
        if let Beginning::Damaged(_) = beginning {
            losses.found(path, 0, 0, 0, "the header is damaged");
        }
        // A guess at how many flows there are, so that what is large need not grow step by step.
        wanted.reserve(bytes.len() / TYPICAL_FRAME, files);
        // Numbers of shapes are of one file only.
        let mut shapes = HashMap::new();
        let mut is_damaged = false;
        summary.is_ended = false;
        let mut frames = Frames::of(bytes, number, beginning, first);
        loop {
            let (at, number, body) = match frames.next() {
                Found::Record { at, number, body } => (at, number, body),
                Found::Damage(damage) => {
                    is_damaged = true;
                    *tail = OpenIndex::from(damage.missing.end);
                    losses.add(path, Place { file: index, at: damage.at }, damage);
                    continue;
                }
                Found::Torn(torn) => {
                    summary.torn.push((path.clone(), torn.at, torn.bytes, torn.reason));
                    break;
                }
                Found::End => break,
            };
            let record = Record::read(body).map_err(|reason| wrong(at, reason))?;
            record.add_to(tail);
            match record {
                Record::Shape(number, shape) => {
                    let place = *shapes.entry(number).or_insert(all_shapes.len());
                    all_shapes.resize_with(all_shapes.len().max(place + 1), || None);
                    all_shapes[place] = Some(shape);
                    continue;
                }
                Record::Wanted(record) => {
                    if !is_damaged && !shapes.contains_key(&record.shape) {
                        return Err(wrong(at, RecordError::UnknownShape(record.shape)));
                    }
                    let shape = *shapes.entry(record.shape).or_insert(all_shapes.len());
                    all_shapes.resize_with(all_shapes.len().max(shape + 1), || None);
                    let entry = Entry { at, file: index, shape, accepted: record.accepted };
                    wanted.put(record.ufid, entry, files);
                    losses.is_wanted(record.ufid);
                    if !record.gone_ports.is_empty() {
                        withheld.insert(record.ufid, record.gone_ports);
                    } else if !withheld.is_empty() {
                        withheld.remove(&record.ufid);
                    }
                }
                Record::Unwanted(ufid) => {
                    wanted.end(ufid, files);
                    losses.has_ended(ufid);
                    withheld.remove(&ufid);
                }
                Record::Index(records) => {
                    *tail = OpenIndex::from(number);
                    Record::Index(records).add_to(tail);
                    losses.learn(&records, wanted, files);
                    continue;
                }
                Record::End(records) => {
                    summary.is_ended = true;
                    losses.learn(&records, wanted, files);
                    continue;
                }
            }
            summary.records += 1;
        }
        *position = match beginning {
            Beginning::Torn => *position,
            Beginning::Known(header) if is_everything => Position::At(header.first),
            Beginning::Damaged(_) if is_everything => Position::Unknown,
            Beginning::Old(_) if is_everything => Position::At(0),
            _ => Position::At(frames.expected()),
        };
        if is_everything {
            if !summary.is_ended && !matches!(beginning, Beginning::Old(_)) {
                let next = frames.expected();
                losses.gap(path, Place { file: index, at: bytes.len() }, next..next + 1, "the file ends too early");
            }
            *tail = OpenIndex::from(if let Position::At(number) = *position { number } else { 0 });
        }
        Ok(())
    }

    /// The number of the first record of a file, which is compared with what was read before.
    fn first_of(&mut self, index: usize, beginning: Beginning) -> u64 {
        let place = Place { file: index, at: 0 };
        let path = &self.files[index].path;
        let expected = match self.position {
            Position::At(number) => Some(number),
            Position::Start => Some(0),
            Position::Unknown => None,
        };
        match beginning {
            _ if beginning.contents() == Some(Contents::Everything) => EVERYTHING,
            Beginning::Known(header) => {
                self.losses.end_is_known();
                match expected {
                    Some(expected) if expected < header.first => {
                        let missing = expected..header.first;
                        self.losses.gap(path, place, missing, "what was written before this file is missing");
                        self.tail = OpenIndex::from(header.first);
                    }
                    Some(expected) if expected > header.first => {
                        self.losses.found(path, 0, 0, 0, "the file does not continue the one before it");
                        self.tail = OpenIndex::from(header.first);
                    }
                    _ => {}
                }
                header.first
            }
            Beginning::Damaged(_) => expected.or_else(|| Frames::first_number(&self.files[index].bytes)).unwrap_or(0),
            Beginning::Old(_) | Beginning::Torn => expected.unwrap_or(0),
        }
    }
}

impl Losses {
    /// Takes from an index what is to know of records that are missing.
    fn learn(&mut self, index: &Index<'_>, wanted: &mut Wanted, files: &[LogFile]) {
        if !self.has_gaps() {
            return;
        }
        for (number, indexed) in index.records() {
            let Some(place) = self.close(number) else { continue };
            let is_older = |ufid| wanted.place_of(ufid, files).map(|known| known < place);
            match indexed {
                Indexed::Other => {}
                Indexed::Unwanted(ufid) => {
                    if is_older(ufid) == Some(true) {
                        wanted.end(ufid, files);
                    }
                    self.forget(ufid);
                }
                Indexed::Wanted(ufid) => match is_older(ufid) {
                    Some(false) => {}
                    // What it did before is no longer wanted, and what it is to do now is not known.
                    Some(true) => {
                        wanted.end(ufid, files);
                        self.lose(ufid);
                    }
                    None => self.lose_unless_ended(ufid),
                },
            }
        }
    }
}

impl Entry {
    const fn place(&self) -> Place {
        Place { file: self.file, at: self.at }
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

    /// Where the last record of a flow is.
    fn place_of(&self, ufid: Ufid, files: &[LogFile]) -> Option<Place> {
        let is_it = |index: &usize| ufid_of(&self.entries[*index], files) == Some(ufid);
        let index = self.by_ufid.find(self.hasher.hash_one(Some(ufid)), is_it)?;
        self.entries[*index].as_ref().map(Entry::place)
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
    let LogFile { bytes, is_old, .. } = &files[entry.file];
    wanted_ufid(body_at(bytes, entry.at, *is_old)?)
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
