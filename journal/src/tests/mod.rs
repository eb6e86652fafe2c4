//! The log from inside: what is read back after each way in which it may end.

mod compacting;
mod damage;
mod lagging;
mod reading;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Sender, bounded};
use sluice_flow::table::{Limits, Look};
use sluice_flow::time::ManualClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{EndReason, Expiry, Flow, FlowTable, MaskedKey, Origin, Priority, Timestamp, Ufid, text};

use super::folder::Folder;
use super::load::Log;
use super::record::ActionTexts;
use super::{Journal, JournalError, JournalOptions, Keeper, Opened, Restored, WallClock};
use sluice_host::liveness::Progress;

const SEED: Seed = Seed([3; 16]);
const LIMITS: Limits = Limits { flows: 10_000, unsettled: 10_000 };
/// What the clock shows all the time.
const START: Timestamp = Timestamp(1_000_000_000_000);

/// A table whose wishes are kept, without a device.
struct Kept {
    journal: Arc<Journal>,
    table: Arc<FlowTable>,
    keeper: Keeper,
    clock: Arc<ManualClock>,
    restored: Restored,
    stop: Option<Sender<Infallible>>,
    writer: Option<JoinHandle<()>>,
}

impl Kept {
    fn start(folder: &Path) -> Self {
        Self::start_at(folder, SystemTime::now()).unwrap()
    }

    /// With a wall clock that stands.
    fn start_at(folder: &Path, wall: SystemTime) -> Result<Self, JournalError> {
        Self::start_keeping(folder, wall, 1_000)
    }

    /// With at most so many slots that are kept for the ends of flows.
    fn start_keeping(folder: &Path, wall: SystemTime, most_kept: usize) -> Result<Self, JournalError> {
        Self::start_by(folder, Arc::new(move || wall), most_kept)
    }

    /// By a wall clock.
    fn start_by(folder: &Path, wall: WallClock, most_kept: usize) -> Result<Self, JournalError> {
        let clock = Arc::new(ManualClock::default());
        clock.advance(START.since(Timestamp::default()));
        let options = JournalOptions { sync_interval: Duration::from_secs(1), clock: clock.clone(), wall };
        let Opened { journal, saved, writer, keeper } = Journal::open_keeping(folder, options, most_kept)?;
        let table = Arc::new(FlowTable::new(SEED, LIMITS, Arc::new(())).kept_by(Some(journal.unwritten())));
        let withheld = saved.withheld();
        let restored = saved.restore(&SEED, |flow, accepted| table.restore(flow, accepted, START).map(|_| ()))?;
        withheld.into_iter().for_each(|(ufid, ports)| table.withhold_one(ufid, ports, START));
        let (stop, stopped) = bounded(0);
        let kept = table.clone();
        let writer = std::thread::spawn(move || writer.run(&kept, &stopped, &Progress::default()));
        Ok(Self { journal, table, keeper, clock, restored, stop: Some(stop), writer: Some(writer) })
    }

    fn add(&self, flow: &Flow) {
        self.table.add(flow.clone(), START, None).unwrap();
        self.journal.wait(Duration::from_secs(10)).unwrap();
    }

    fn modify(&self, flow: &Flow) {
        let id = self.table.find(flow.ufid).unwrap();
        self.table.modify(id, flow.clone(), false, START, None).unwrap();
        self.journal.wait(Duration::from_secs(10)).unwrap();
    }

    fn delete(&self, flow: &Flow, reason: EndReason) {
        self.table.delete(self.table.find(flow.ufid).unwrap(), reason, START, None).unwrap();
        self.journal.wait(Duration::from_secs(10)).unwrap();
    }

    /// Adds and deletes a flow, without waiting for the log.
    fn pass(&self, flow: &Flow) {
        let accepted = self.table.add(flow.clone(), START, None).unwrap();
        self.table.delete(accepted.flow, EndReason::Deleted, START, None).unwrap();
        assert!(matches!(self.table.look(accepted.flow), Look::Retired { .. }));
    }

    /// Waits until a log that was late has written what there is.
    fn catch_up(&self) {
        while self.journal.wait(Duration::from_secs(10)).is_err() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.writer.take().unwrap().join().unwrap();
    }
}

fn flow(key: &str, actions: &str) -> Flow {
    let parsed = text::parse_key(key, &()).unwrap_or_else(|error| panic!("{}", error.caret(key)));
    let actions = text::parse_actions(actions, &()).unwrap_or_else(|error| panic!("{}", error.caret(actions)));
    Flow::new(parsed.ufid, MaskedKey::new(&parsed.matching), actions, Priority::default(), Expiry::default(), &SEED)
}

fn udp(port: u16, actions: &str) -> Flow {
    flow(&format!("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port})"), actions)
}

type Flows = BTreeMap<Ufid, Flow>;

fn flows<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Flows {
    flows.into_iter().map(|flow| (flow.ufid, flow.clone())).collect()
}

/// What a folder says is wanted. It is left as it is, but for what a compaction has not finished.
fn read(folder: &Path) -> Result<(Flows, Log), JournalError> {
    let folder = Folder::claim(folder)?;
    let log = Log::read(&folder, &folder.files()?)?;
    let mut found = Flows::new();
    log.visit(0..log.len(), &mut ActionTexts::default(), &SEED, &mut |flow, _| drop(found.insert(flow.ufid, flow)))?;
    Ok((found, log))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
