//! Keeps the file of objects up to date on a thread of its own, which alone waits for the disk: a source of flows has to go on reading what
//! ends, and a command waits for a while only. What could not be written is tried again until it is. So are objects of the last run
//! that the device has refused.

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_channel::{Receiver, after, never, select, tick};
use sluice_host::liveness::Progress;

use crate::agent::Agent;
use crate::bell::bell;

/// How long after a failure it is tried again.
const HEAL: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody has seen to a damaged file, as long as there is one.
const LOOK: Duration = Duration::from_secs(1);

/// How long after a refusal the device is asked again at the earliest.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes the file whenever it is behind, until `stop` is disconnected, and then what is left. Tries again what the device has refused.
pub(crate) fn keep_objects(agent: &Agent, stop: &Receiver<Infallible>, progress: &Progress) {
    let store = &agent.object_store;
    let (waker, rung) = bell();
    store.set_waker(waker);
    let patience = tick(PATIENCE);
    loop {
        progress.waits_for_disk();
        // The store tells of it.
        let is_behind = store.catch_up().is_err();
        // Here, and not where somebody asks: the disk may hang.
        store.look_at_damage();
        let wait = if store.damage().is_some() { Some(LOOK) } else { is_behind.then_some(HEAL) };
        progress.rests();
        select! {
            recv(stop) -> _ => break,
            recv(rung) -> _ => {}
            recv(wait.map_or_else(never, after)) -> _ => {}
            recv(patience) -> _ => {
                progress.works();
                if store.try_refused() {
                    agent.renew_mirroring();
                    agent.count_device();
                }
            }
        }
    }
    progress.waits_for_disk();
    let _ = store.catch_up();
    progress.rests();
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;
    use std::time::SystemTime;

    use sluice_flow::backend::OpenConfig;
    use sluice_flow::port::PortNames;
    use sluice_flow::time::MonotonicClock;
    use sluice_flow::ufid::Seed;
    use sluice_flow::{Port, PortKind, PortNumber};
    use sluice_host::lifecycle::Lifecycle;
    use sluice_journal::{Journal, JournalOptions};
    use sluice_objects::{ChangeError, ObjectsFile};
    use sluice_offload_soft::SoftNic;
    use tempfile::TempDir;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::agent::{Agent, Keeping};
    use crate::config::Config;

    /// An agent on a NIC in software that keeps its objects in a folder.
    fn agent(folder: &Path, journal: Option<Arc<Journal>>) -> Arc<Agent> {
        let clock = Arc::new(MonotonicClock::new());
        let backend = Arc::new(SoftNic::new(&OpenConfig::new("test", clock.clone())));
        let keeping = Keeping { journal, objects: Some(ObjectsFile::open(folder).unwrap()) };
        Agent::with_keeping(backend, keeping, Config::default(), Seed([7; 16]), clock).unwrap().0
    }

    fn port(number: u32) -> Port {
        Port { number: PortNumber(number), name: format!("p{number}").parse().unwrap(), kind: PortKind::Physical }
    }

    fn is_kept(folder: &Path, port: u32) -> bool {
        fs::read_to_string(folder.join("objects")).is_ok_and(|text| text.contains(&format!("port {port} p{port} ")))
    }

    #[test]
    fn a_source_does_not_wait_for_what_a_command_waits_for() {
        let scratch = TempDir::new().unwrap();
        let options = JournalOptions {
            sync_interval: Duration::from_secs(1),
            clock: Arc::new(MonotonicClock::new()),
            wall: Arc::new(SystemTime::now),
        };
        let opened = Journal::open(&scratch.path().join("flows"), options).unwrap();
        let agent = agent(scratch.path(), Some(opened.journal.clone()));
        let runtime = Runtime::new().unwrap();
        let mut lifecycle = Lifecycle::new(runtime.handle().clone());
        thread::scope(|scope| {
            let command = scope.spawn(|| agent.object_store.put(port(1)));
            while agent.ports().number("p1").is_none() {
                thread::yield_now();
            }
            agent.object_store.put_for_source(port(2)).unwrap();
            agent.object_store.remove_for_source::<Port>(&PortNumber(2)).unwrap();
            agent.object_store.put_for_source(port(3)).unwrap();
            assert!(!command.is_finished(), "nobody writes the journal yet");
            agent.keep_flows(opened, &mut lifecycle).unwrap();
            command.join().unwrap().unwrap();
        });
        agent.object_store.catch_up().unwrap();
        assert_eq!([1, 2, 3].map(|port| is_kept(scratch.path(), port)), [true, false, true]);
        assert!(runtime.block_on(lifecycle.stop()).is_clean());
    }

    #[test]
    fn what_could_not_be_written_is_in_force_is_told_of_and_is_written_once_it_can_be() {
        let scratch = TempDir::new().unwrap();
        let agent = agent(scratch.path(), None);
        let store = &agent.object_store;
        // Where the new file would be made.
        let obstacle = scratch.path().join("objects.new");
        fs::create_dir(&obstacle).unwrap();
        store.put_for_source(port(1)).unwrap();
        assert_eq!(store.failure(), None, "a source does not try");
        let refused = store.put(port(2)).unwrap_err();
        assert!(matches!(&refused, ChangeError::NotKept(reason) if reason.contains("objects.new")), "{refused}");
        assert_eq!(agent.ports().iter().count(), 2);
        assert!(store.failure().unwrap().contains("in force, but do not survive a restart: "));

        fs::remove_dir(&obstacle).unwrap();
        let (running, stop) = crossbeam_channel::bounded(0);
        thread::scope(|scope| {
            let keeper = scope.spawn(|| keep_objects(&agent, &stop, &Progress::default()));
            while store.failure().is_some() {
                thread::yield_now();
            }
            assert_eq!([1, 2].map(|port| is_kept(scratch.path(), port)), [true; 2]);
            store.put_for_source(port(3)).unwrap();
            while !is_kept(scratch.path(), 3) {
                thread::yield_now();
            }
            drop(running);
            keeper.join().unwrap();
        });
    }
}
