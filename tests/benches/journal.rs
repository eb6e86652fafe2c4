//! What the log of flows costs: handing a flow over, accepting many, reading them back.
//!
//! Side by side in one run: rounds with and without the log alternate. Floors are a bare write of the same bytes in as many
//! pieces, and a bare read of them. Writes `target/bench/journal.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use sluice_agent::config::Config;
use sluice_agent::observe::events::Events;
use sluice_flow::table::Limits;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Clock, Flow, FlowTable};
use sluice_host::liveness::Progress;
use sluice_journal::{Journal, JournalOptions, Opened};
use sluice_tests::bench::{self, timed};
use sluice_tests::fault::{FaultyDevice, Plan};
use sluice_tests::world::{SEED, World, quick_config, soft_nic};

/// The daemon's: what an operator runs is what is measured.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 5;
/// Flows that are handed over in a round.
const HANDED_OVER: u16 = 20_000;
/// Flows that are accepted and read back.
const FLOWS: usize = 1_000_000;
/// Flows of one request.
const REQUEST: usize = 1_000;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    if std::env::args().any(|argument| argument == "--load") {
        return only_load();
    }
    let [without, with] = hand_over();
    println!("{:<46} {:>8} {:>8}", "hand-over, nanoseconds a flow", "p50", "p99");
    println!("{:<46} {:>8} {:>8}", "without a log", without.0, without.1);
    println!("{:<46} {:>8} {:>8}", "with a log", with.0, with.1);
    println!("with / without, p50: {:.2}", with.0 as f64 / without.0 as f64);

    let flows: Vec<_> = bench::five_tuples(FLOWS, &SEED).collect();
    let mut rounds: Vec<_> = (0..3).map(|_| million(&flows)).collect();
    rounds.sort_by_key(|round| round.load);
    let median = |of: fn(&Million) -> Duration| {
        let mut all: Vec<_> = rounds.iter().map(of).collect();
        all.sort();
        all[all.len() / 2]
    };
    let [bare_table, kept, written, load, read] = [
        |m: &Million| m.without,
        |m: &Million| m.with,
        |m: &Million| m.floor,
        |m: &Million| m.load,
        |m: &Million| m.read,
    ]
    .map(median);
    let nanos = |span: Duration| span.as_secs_f64() * 1e9 / FLOWS as f64;
    let seconds = |span: Duration| span.as_secs_f64();
    println!("{FLOWS} flows of 10 masks, accepted and answered in requests of {REQUEST}, median of 3:");
    println!("{:<46} {:>8.0} ns a flow", "without a log", nanos(bare_table));
    println!("{:<46} {:>8.0} ns a flow", "with a log", nanos(kept));
    println!("{:<46} {:>8.0} ns a flow", "floor: a bare write of the same bytes", nanos(written));
    println!("{:<46} {:>8.3} s", "read back into a table", seconds(load));
    println!("{:<46} {:>8.3} s", "floor: a bare read of the file", seconds(read));
    println!(
        "with / without: {:.2}, log / bare write: {:.1}, load / bare read: {:.0}; {} bytes a flow",
        seconds(kept) / seconds(bare_table),
        (seconds(kept) - seconds(bare_table)) / seconds(written),
        seconds(load) / seconds(read),
        rounds[0].bytes / FLOWS as u64,
    );
    bench::write(
        "journal",
        &json!({
            "hand_over": {
                "unit": "nanoseconds a flow",
                "without": { "p50": without.0, "p99": without.1 },
                "with": { "p50": with.0, "p99": with.1 },
                "with_to_without_p50": with.0 as f64 / without.0 as f64,
            },
            "accepted": {
                "unit": "nanoseconds a flow",
                "flows": FLOWS,
                "without": nanos(bare_table),
                "with": nanos(kept),
                "bare_write": nanos(written),
                "with_to_without": seconds(kept) / seconds(bare_table),
            },
            "load": {
                "unit": "seconds",
                "flows": FLOWS,
                "load": seconds(load),
                "bare_read": seconds(read),
                "bytes": rounds[0].bytes,
            },
            "rows": [
                {
                    "name": "accepted flow with the log of flows, beside one without", "unit": "ns a flow",
                    "ours": nanos(kept), "peer": nanos(bare_table), "ratio": seconds(kept) / seconds(bare_table),
                },
                {
                    "name": format!("{FLOWS} flows read back at start, beside a bare read of the file"), "unit": "s",
                    "ours": seconds(load), "peer": seconds(read), "ratio": seconds(load) / seconds(read),
                    "to_reach": "2 s", "reached": load < Duration::from_secs(2),
                },
            ],
        }),
    );
}

/// Median and 99th percentile without and with a log, for a device that stalls and so takes no time away.
fn hand_over() -> [(u64, u64); 2] {
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (with_log, samples) in samples.iter_mut().enumerate() {
            let folder = Folder::new();
            let clock = Arc::new(MonotonicClock::new());
            let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
            let limit = usize::from(HANDED_OVER) * 2;
            let config = Config { dirty_limit: limit, flow_limit: limit, ..quick_config() };
            let world = match with_log {
                0 => World::on(device, config, clock),
                _ => World::with_journal_in(&folder.0, device, config, clock),
            };
            let flows: Vec<_> = (0..HANDED_OVER).map(|port| world.udp_flow(port, "2")).collect();
            faults.set(Plan { stalled: true, ..Plan::default() });
            for flow in flows {
                let began = Instant::now();
                std::hint::black_box(world.agent.queue.add(flow, None).expect("accepted"));
                samples.push(u64::try_from(began.elapsed().as_nanos()).expect("less than centuries"));
            }
            faults.set(Plan::default());
            world.settle();
            world.wait_for_journal();
            let kept = world.agent.journal.as_ref().map(|journal| journal.report().written);
            assert_eq!(kept, (with_log == 1).then_some(u64::from(HANDED_OVER)), "every flow is in the log afterwards");
        }
    }
    samples.map(|mut samples| {
        samples.sort_unstable();
        (samples[samples.len() / 2], samples[samples.len() * 99 / 100])
    })
}

/// Flows of ten masks: the 5-tuple with more and more of the rest of a packet.
struct Million {
    without: Duration,
    with: Duration,
    floor: Duration,
    load: Duration,
    read: Duration,
    bytes: u64,
}

/// Accepts all flows without and with a log, writes the same bytes, and reads them back.
fn million(flows: &[Flow]) -> Million {
    let folder = Folder::new();
    let without = accept(flows, None);
    let opened = open(&folder.0);
    let with = accept(flows, Some(opened));
    let file = folder.0.join("1.log");
    let bytes = fs::read(&file).expect("the log");

    let (began, mut bare) = (Instant::now(), File::create(folder.0.join("bare")).expect("a file"));
    for piece in bytes.chunks(bytes.len().div_ceil(FLOWS / REQUEST)) {
        bare.write_all(piece).expect("written");
    }
    let floor = began.elapsed();

    let (read, load) = read_back(&folder.0, flows);
    Million { without, with, floor, load, read, bytes: bytes.len() as u64 }
}

/// The time that a bare read of the log takes, and that it takes to have all flows in a table again.
fn read_back(folder: &Path, flows: &[Flow]) -> (Duration, Duration) {
    let file = folder.join("1.log");
    let (read, bytes) = timed(|| fs::read(&file).expect("the log"));
    drop(bytes);
    let began = Instant::now();
    let Opened { saved, journal, .. } = open(folder);
    let table = table(None);
    let now = MonotonicClock::new().now();
    let restored = saved
        .restore(&SEED, |flow, accepted| table.restore(flow, accepted, now).map(|_| ()))
        .expect("the log is whole");
    let load = began.elapsed();
    assert_eq!((restored.flows, restored.turned_away), (FLOWS as u64, 0));
    assert_eq!(table.census().live(), FLOWS);
    for flow in flows.iter().step_by(997) {
        let id = table.find(flow.ufid).expect("the flow");
        assert_eq!(table.view(id).expect("the flow").flow, *flow);
    }
    drop(journal);
    (read, load)
}

/// Reads the same log back again and again, to be profiled and to be compared with another build.
fn only_load() {
    let flows: Vec<_> = bench::five_tuples(FLOWS, &SEED).collect();
    let folder = Folder::new();
    accept(&flows, Some(open(&folder.0)));
    for _ in 0..ROUNDS {
        let before = bench::processor_time();
        let (read, load) = read_back(&folder.0, &flows);
        let spent = bench::processor_time() - before;
        let [load, read, spent] = [load, read, spent].map(|span| span.as_secs_f64());
        println!("{load:.3} s, a bare read {read:.3} s; both took {spent:.3} s of all processors");
    }
}

/// The time that it takes to have all flows accepted and, with a log, written.
fn accept(flows: &[Flow], opened: Option<Opened>) -> Duration {
    let clock = MonotonicClock::new();
    let Some(Opened { journal, writer, .. }) = opened else {
        let table = table(None);
        return accept_in(flows, &table, &clock, &|| ());
    };
    let table = Arc::new(table(Some(&journal)));
    let (stop, stopped) = crossbeam_channel::bounded(0);
    let kept = table.clone();
    let writing = std::thread::spawn(move || writer.run(&kept, &stopped, &Progress::default()));
    let took = accept_in(flows, &table, &clock, &|| journal.wait(Duration::from_secs(60)).expect("written"));
    drop(stop);
    writing.join().expect("the writer ends");
    assert_eq!(journal.report().written, FLOWS as u64);
    took
}

fn accept_in(flows: &[Flow], table: &FlowTable, clock: &MonotonicClock, answer: &dyn Fn()) -> Duration {
    let copies: Vec<_> = flows.to_vec();
    let began = Instant::now();
    for (number, flow) in (1..).zip(copies) {
        table.add(flow, clock.now(), None).expect("accepted");
        if number % REQUEST == 0 {
            answer();
        }
    }
    began.elapsed()
}

fn table(journal: Option<&Arc<Journal>>) -> FlowTable {
    let limits = Limits { flows: FLOWS, unsettled: FLOWS };
    FlowTable::new(SEED, limits, Arc::new(Events::default())).kept_by(journal.map(|journal| journal.unwritten()))
}

fn open(folder: &Path) -> Opened {
    let options = JournalOptions {
        sync_interval: Duration::from_secs(1),
        clock: Arc::new(MonotonicClock::new()),
        wall: Arc::new(SystemTime::now),
    };
    Journal::open(folder, options).expect("the log opens")
}

/// A folder that goes with the round.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = sluice_tests::daemon::new_folder();
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
