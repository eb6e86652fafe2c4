//! Compaction, and an end of the agent at each of its steps.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io};

use super::super::compact::HEARTBEAT;
use super::super::error::failed;
use super::super::frame::{Contents, Header};
use super::*;
use tempfile::TempDir;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};

/// A table with dead records, in two files, and what is wanted of it.
fn with_dead_records(folder: &Path) -> (Kept, Flows) {
    let fresh: Vec<_> = (0..20).map(|port| udp(port, "2")).collect();
    {
        let kept = Kept::start(folder);
        fresh.iter().for_each(|flow| kept.add(flow));
        fresh[..5].iter().for_each(|flow| kept.delete(flow, EndReason::Deleted));
    }
    let kept = Kept::start(folder);
    let mut wanted = flows(&fresh[5..]);
    for flow in &fresh[5..10] {
        let changed = flow.with_actions(udp(0, "3,4").actions.clone());
        kept.modify(&changed);
        wanted.insert(changed.ufid, changed);
    }
    kept.delete(&fresh[10], EndReason::Idle);
    wanted.remove(&fresh[10].ufid);
    (kept, wanted)
}

#[test]
fn a_compaction_leaves_one_record_a_flow_and_the_same_flows() {
    let scratch = TempDir::new().unwrap();
    let (mut kept, wanted) = with_dead_records(scratch.path());
    assert_eq!(kept.journal.report().records, 31);
    kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
    assert_eq!(kept.journal.report().records, 14);
    let late = udp(99, "2");
    kept.add(&late);
    drop(kept);
    let mut names: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["2.log", "3.log", "reserve"]);
    let (found, log) = read(scratch.path()).unwrap();
    assert_eq!(log.summary.records, 15);
    let mut expected = wanted;
    expected.insert(late.ufid, late);
    assert_eq!(found, expected);
}

#[test]
fn an_end_at_any_step_of_a_compaction_loses_nothing_and_brings_nothing_back() {
    let scratch = TempDir::new().unwrap();
    let (mut kept, mut wanted) = with_dead_records(scratch.path());
    // As `Keeper::compact` does, with changes between the steps and the files as they are then.
    let mut moments = Vec::new();
    let mut next_port = 100..;
    let mut moment = |kept: &Kept, step: &'static str| {
        let added = udp(next_port.next().unwrap(), "2");
        kept.add(&added);
        let gone = wanted.pop_first().unwrap().1;
        kept.delete(&gone, EndReason::Deleted);
        wanted.insert(added.ufid, added);
        let files = TempDir::new().unwrap();
        copy(scratch.path(), files.path());
        moments.push((step, files, wanted.clone()));
    };
    moment(&kept, "before");
    let (finished, first) = kept.keeper.rotate().unwrap();
    moment(&kept, "the new file is begun");
    let path = kept.journal.folder.replacement(finished);
    let file = kept.journal.reserve.lock().lend(&path).unwrap();
    moment(&kept, "the replacement is begun");
    let header = Header { contents: Contents::Everything, number: finished, first };
    let records = kept.keeper.write_everything(&kept.table, header, (&path, &file), &|| false).unwrap();
    assert!(records.is_ok());
    moment(&kept, "the replacement is written");
    let half = fs::read(&path).unwrap();
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).unwrap();
    fs::write(&path, &half[..half.len() / 2]).unwrap();
    moment(&kept, "half of the replacement is on the disk");
    fs::rename(&aside, &path).unwrap();
    fs::copy(&path, &aside).unwrap();
    fs::rename(&path, kept.journal.folder.file(finished)).unwrap();
    moment(&kept, "the replacement has its name, older files are there");
    fs::rename(&aside, &path).unwrap();
    kept.journal.folder.finish_replacement(&path, finished).unwrap();
    moment(&kept, "older files are gone");
    drop(kept);

    for (step, files, expected) in moments {
        assert_eq!(read(files.path()).unwrap().0, expected, "{step}");
        // The next agent goes on from there, and its own compaction does not bring back what was left.
        let mut next = Kept::start(files.path());
        next.keeper.compact(&next.table, &|| false).unwrap().unwrap();
        drop(next);
        assert_eq!(read(files.path()).unwrap().0, expected, "{step}, and compacted by the next agent");
    }
}

#[test]
fn accepting_goes_on_while_the_log_is_compacted() {
    let scratch = TempDir::new().unwrap();
    let (mut kept, mut wanted) = with_dead_records(scratch.path());
    let table = kept.table.clone();
    let journal = kept.journal.clone();
    let accepting = std::thread::spawn(move || {
        let mut last = Flows::new();
        for round in 0..300_u16 {
            let flow = udp(1_000 + round % 7, if round % 2 == 0 { "2" } else { "3" });
            match table.find(flow.ufid) {
                Some(id) if round % 3 == 0 => {
                    table.delete(id, EndReason::Deleted, START, None).unwrap();
                    last.remove(&flow.ufid);
                }
                Some(id) => {
                    table.modify(id, flow.clone(), false, START, None).unwrap();
                    last.insert(flow.ufid, flow);
                }
                None => {
                    table.add(flow.clone(), START, None).unwrap();
                    last.insert(flow.ufid, flow);
                }
            }
            journal.wait(Duration::from_secs(10)).unwrap();
        }
        last
    });
    while !accepting.is_finished() {
        kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
    }
    wanted.extend(accepting.join().unwrap());
    drop(kept);
    assert_eq!(read(scratch.path()).unwrap().0, wanted);
}

#[test]
fn a_log_that_has_failed_is_whole_again_after_a_compaction() {
    let scratch = TempDir::new().unwrap();
    let (mut kept, mut wanted) = with_dead_records(scratch.path());
    let error = failed("write", Path::new("/1.log"))(io::Error::from(io::ErrorKind::StorageFull));
    kept.journal.fail(&mut kept.journal.active.lock(), &error);
    let unkept = udp(500, "2");
    kept.add(&unkept);
    let gone = wanted.pop_first().unwrap().1;
    kept.delete(&gone, EndReason::Deleted);
    let report = kept.journal.report();
    assert_eq!((report.failure.as_deref(), report.unkept), (Some("cannot write /1.log: no storage space"), 2));
    kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
    assert_eq!(kept.journal.report().failure, None);
    drop(kept);
    wanted.insert(unkept.ufid, unkept);
    assert_eq!(read(scratch.path()).unwrap().0, wanted);
}

#[test]
fn a_log_that_somebody_removes_is_missed_told_of_and_written_anew() {
    let scratch = TempDir::new().unwrap();
    let (mut kept, wanted) = with_dead_records(scratch.path());
    for entry in fs::read_dir(scratch.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    kept.keeper.touch_if_due();
    assert_eq!(kept.journal.report().failure, None, "it is not looked at all the time");
    kept.clock.advance(HEARTBEAT);
    kept.keeper.touch_if_due();
    let failure = kept.journal.report().failure.unwrap();
    assert!(failure.ends_with(".log is not there any more: somebody has moved or removed it"), "{failure}");
    kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
    kept.clock.advance(HEARTBEAT);
    kept.keeper.touch_if_due();
    kept.journal.sync();
    assert_eq!(kept.journal.report().failure, None, "the new one is there");
    drop(kept);
    assert_eq!(read(scratch.path()).unwrap().0, wanted);
}

#[test]
fn what_a_compaction_has_left_keeps_no_agent_from_starting_on_a_disk_where_it_cannot_be_removed() {
    let scratch = TempDir::new().unwrap();
    fs::create_dir(scratch.path().join("7.new")).unwrap();
    let kept = Kept::start(scratch.path());
    kept.add(&udp(1, "2"));
    assert_eq!(kept.journal.report().failure, None);
}

/// Counts errors that are logged.
struct Errors(Arc<AtomicUsize>);

impl Subscriber for Errors {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.fetch_add(usize::from(*event.metadata().level() == Level::ERROR), Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_disk_that_stays_full_gets_one_line_of_it_and_not_one_every_few_seconds() {
    let scratch = TempDir::new().unwrap();
    let (mut kept, _) = with_dead_records(scratch.path());
    let full = |name: &str| failed("write", Path::new(name))(io::Error::from(io::ErrorKind::StorageFull));
    let errors = Arc::<AtomicUsize>::default();
    let logged = || errors.load(Ordering::Relaxed);
    with_default(Errors(errors.clone()), || {
        (1..=1_000).for_each(|number| kept.keeper.note_failure(&full(&format!("/{number}.log"))));
        assert_eq!(logged(), 1);
        kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
        kept.keeper.note_failure(&full("/5.log"));
        assert_eq!(logged(), 2, "it was possible in between");
    });
}

#[test]
fn flows_of_a_source_take_no_room_of_the_log_and_put_no_compaction_off() {
    const FLOWS: u16 = 12_000;
    let scratch = TempDir::new().unwrap();
    let kept = Kept::start(scratch.path());
    kept.table.census().set_flow_limit(20_000);
    kept.table.census().set_unsettled_limit(20_000);
    for port in 1..=FLOWS {
        kept.table.add(udp(port, "2").with_origin(Origin::OpenVswitch), START, None).unwrap();
    }
    kept.add(&udp(0, "2"));
    let reserved = kept.journal.report().reserved;
    assert!(reserved < 1 << 20, "{reserved} bytes for one flow");
    assert!(!kept.keeper.is_compaction_due(&kept.table));
    // As after so many changes to a few flows.
    kept.journal.counts.records.store(10_100, Ordering::Relaxed);
    assert!(kept.keeper.is_compaction_due(&kept.table));
}
