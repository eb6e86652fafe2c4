//! A disk that does not answer. Its part is played by who holds the lock under which the log is written, which is what a write
//! that hangs does.

use super::*;
use sluice_host::lifecycle::Lifecycle;
use tempfile::TempDir;

#[test]
fn a_disk_that_hangs_is_told_of_and_nobody_waits_for_it() {
    let scratch = TempDir::new().unwrap();
    let kept = Kept::start(scratch.path());
    let (early, late) = (udp(1, "2"), udp(2, "2"));
    kept.add(&early);
    {
        let _hanging = kept.journal.active.lock();
        kept.table.add(late.clone(), START, None).unwrap();
        kept.pass(&udp(3, "2"));
        kept.clock.advance(Duration::from_secs(4));
        assert_eq!(kept.journal.report().failure, None, "a disk may be slow");
        kept.clock.advance(Duration::from_secs(3));
        let report = kept.journal.report();
        assert!(report.lag.write >= Duration::from_secs(7) && report.lag.kept_slots == 1, "{:?}", report.lag);
        let failure = report.failure.unwrap();
        assert!(failure.starts_with("the log of flows is 7 s behind"), "{failure}");
        assert!(kept.journal.wait(Duration::from_secs(1_000)).is_err(), "it is said at once");
    }
    kept.catch_up();
    kept.journal.sync();
    let report = kept.journal.report();
    assert_eq!((report.failure, report.lag.kept_slots), (None, 0));
    drop(kept);
    assert_eq!(read(scratch.path()).unwrap().0, flows([&early, &late]));
}

#[test]
fn flows_that_come_and_go_while_the_disk_hangs_take_a_bounded_number_of_slots() {
    const MOST: usize = 64;
    let scratch = TempDir::new().unwrap();
    let mut kept = Kept::start_keeping(scratch.path(), SystemTime::now(), MOST).unwrap();
    let stays = udp(1, "2");
    kept.add(&stays);
    let hanging = kept.journal.active.lock();
    for round in 0..100 {
        (0..100).for_each(|port| kept.pass(&udp(2 + port + round, "2")));
    }
    let report = kept.journal.report();
    // The beginning of a life in a slot that is still in the queue counts, too.
    let given_up = report.lag.given_up;
    assert!(report.lag.kept_slots == MOST && (10_000 - MOST..20_000).contains(&given_up), "{:?}", report.lag);
    assert!(report.failure.unwrap().contains(&format!("{given_up} ends of flows could not wait for the disk")));
    drop(hanging);
    kept.catch_up();

    // Killed now: the log tells how many ends it does not have.
    let killed = TempDir::new().unwrap();
    copy(scratch.path(), killed.path());
    let (found, log) = read(killed.path()).unwrap();
    assert_eq!(found, flows([&stays]));
    assert_eq!(log.loss().map(|loss| (loss.changes, loss.doubtful)), Some((given_up as u64, 1)));
    assert!(kept.journal.report().failure.is_some(), "not before everything is written anew");

    kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
    assert_eq!(kept.journal.report().failure, None);
    let late = udp(5_000, "2");
    kept.add(&late);
    drop(kept);
    let (found, log) = read(scratch.path()).unwrap();
    assert_eq!((found, log.loss()), (flows([&stays, &late]), None));
}

#[test]
fn nobody_waits_for_a_log_that_has_nothing_to_write() {
    let scratch = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::default());
    let options = JournalOptions { sync_interval: Duration::from_secs(1), clock, wall: Arc::new(SystemTime::now) };
    // It does not run.
    let Opened { journal, writer, .. } = Journal::open(scratch.path(), options).unwrap();
    let table = FlowTable::new(SEED, LIMITS, Arc::new(())).kept_by(Some(journal.unwritten()));
    table.add(udp(1, "2").with_origin(Origin::OpenVswitch), START, None).unwrap();
    assert!(journal.wait(Duration::ZERO).is_ok(), "a source knows its flows itself");
    table.add(udp(2, "2"), START, None).unwrap();
    assert!(journal.wait(Duration::ZERO).is_err());
    drop(writer);
}

#[test]
fn a_log_that_hangs_in_the_disk_is_named_and_is_no_reason_for_a_restart() {
    let scratch = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::default());
    let options = JournalOptions { sync_interval: Duration::from_secs(1), clock, wall: Arc::new(SystemTime::now) };
    let opened = Journal::open(scratch.path(), options).unwrap();
    let journal = opened.journal.clone();
    let table = Arc::new(FlowTable::new(SEED, LIMITS, Arc::new(())).kept_by(Some(journal.unwritten())));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut lifecycle = Lifecycle::new(runtime.handle().clone());
    opened.run(&table, |_, _| Ok(()), &mut lifecycle).unwrap();
    let hanging = journal.active.lock();
    table.add(udp(1, "2"), START, None).unwrap();
    // Each look is a second after the one before.
    let mut second = 0;
    let hang = loop {
        second += 1;
        match lifecycle.liveness().look(Timestamp(second * 1_000_000_000)) {
            Ok(()) => std::thread::yield_now(),
            Err(hang) => break hang,
        }
    };
    assert!(hang.to_string().contains(" s: the disk does not answer") && hang.is_of_disk(), "{hang}");
    drop(hanging);
    assert!(runtime.block_on(lifecycle.stop()).is_clean());
}
