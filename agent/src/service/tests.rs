//! The service without any codec.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use sluice_flow::backend::OpenConfig;
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::time::{ManualClock, MonotonicClock};
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Clock, Counters, EndReason, Event, Expiry, Flow, FlowState, MaskedKey, Origin, Port, PortKind, PortNumber,
    Priority, Ufid,
};
use sluice_host::lifecycle::Lifecycle;
use sluice_journal::{Journal, JournalOptions, Opened};
use sluice_offload_soft::SoftNic;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::agent::{Agent, Keeping, Parts};
use crate::config::Config;
use crate::sessions::name::{Direction, OWNER, SessionFlow, SessionId};

const SEED: Seed = Seed([7; 16]);
const SOON: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);

/// An agent on a NIC in software with the ports 1 and 2. It does nothing until it is started.
struct World {
    agent: Arc<Agent>,
    service: Service,
    parts: Option<Parts>,
    opened: Option<Opened>,
    lifecycle: Option<Lifecycle>,
    runtime: Runtime,
}

impl World {
    fn new(config: Config) -> Self {
        Self::with_folder(None, config, Arc::new(MonotonicClock::new()))
    }

    fn with_folder(folder: Option<&Path>, mut config: Config, clock: Arc<dyn Clock>) -> Self {
        config.ports = (1..=2).map(port).collect();
        let backend = Arc::new(SoftNic::new(&OpenConfig::new("test", clock.clone())));
        let options = || JournalOptions {
            sync_interval: Duration::from_secs(1),
            clock: clock.clone(),
            wall: Arc::new(SystemTime::now),
        };
        let opened = folder.map(|folder| Journal::open(folder, options()).unwrap());
        let keeping = Keeping { journal: opened.as_ref().map(|opened| opened.journal.clone()), objects: None };
        let (agent, parts) = Agent::with_keeping(backend, keeping, config, SEED, clock).unwrap();
        let runtime = Runtime::new().unwrap();
        let (service, lifecycle) = (Service::new(agent.clone()), Some(Lifecycle::new(runtime.handle().clone())));
        Self { agent, service, parts: Some(parts), opened, lifecycle, runtime }
    }

    /// Runs the workers.
    fn start(&mut self) {
        let lifecycle = self.lifecycle.as_mut().unwrap();
        self.parts.take().unwrap().run(&self.agent, lifecycle, |_| {}).unwrap();
    }

    /// Runs the journal.
    fn keep(&mut self) {
        self.agent.keep_flows(self.opened.take().unwrap(), self.lifecycle.as_mut().unwrap()).unwrap();
    }

    fn state(&self, flow: &Flow) -> Option<FlowState> {
        self.service.view().named(flow.ufid).map(|view| view.state)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let lifecycle = self.lifecycle.take().unwrap();
        self.runtime.block_on(lifecycle.stop());
    }
}

fn port(number: u32) -> Port {
    Port { number: PortNumber(number), name: format!("p{number}").parse().unwrap(), kind: PortKind::Physical }
}

fn flow(key: &str, actions: &str) -> Flow {
    let matching = parse_key(key, &()).unwrap().matching;
    let actions = parse_actions(actions, &()).unwrap();
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

fn udp(destination: u16, actions: &str) -> Flow {
    flow(&format!("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={destination})"), actions)
}

fn add(flow: Flow) -> AddFlow {
    AddFlow { flow }
}

#[test]
fn a_flow_is_added_changed_and_deleted_each_with_its_outcome() {
    let mut world = World::new(Config::default());
    world.start();
    let service = &world.service;
    let added = service.add(add(udp(1, "2"))).unwrap().durable().unwrap();
    assert!(matches!(added.outcome(PATIENCE), Ok(Outcome::Installed)));
    let modify = ModifyFlow { flow: udp(1, "drop"), may_create: false, keep_old_rule: false };
    let modified = service.modify(modify).unwrap().durable().unwrap();
    assert!(matches!(modified.outcome(PATIENCE), Ok(Outcome::Installed)));
    let name = FlowName::Ufid(udp(1, "2").ufid);
    let view = service.view().find(&name).unwrap();
    assert_eq!((view.state, &view.flow.actions), (FlowState::Offloaded, &udp(1, "drop").actions));
    let deleted = service.delete(DeleteFlow { flow: name.clone(), of: None }).unwrap().durable().unwrap();
    let Ok(Outcome::Deleted(Some(view))) = deleted.outcome(PATIENCE) else { panic!("it is deleted") };
    assert_eq!(view.flow.ufid, udp(1, "2").ufid);
    assert!(matches!(service.view().find(&name), Err(Error::NotFound)));
}

#[test]
fn what_the_table_does_not_accept_is_told_by_type() {
    let world = World::new(Config::default());
    let service = &world.service;
    let existing = udp(1, "2");
    drop(service.add(add(existing.clone())).unwrap());
    assert!(matches!(service.add(add(existing.clone())), Err(Error::Exists(ufid)) if ufid == existing.ufid));
    let open = flow("eth_type(0x0800)", "2");
    assert!(matches!(service.add(add(open)), Err(Error::InPortMissing)));
    let modify = |flow, may_create| service.modify(ModifyFlow { flow, may_create, keep_old_rule: false });
    assert!(matches!(modify(udp(2, "2"), false), Err(Error::NotFound)));
    assert!(modify(udp(2, "2"), true).is_ok());
    let other = FlowName::Match {
        matching: MaskedKey::new(&existing.matching().expand()),
        priority: Priority::new(3).unwrap(),
    };
    let Err(Error::OtherPriority { wanted, found }) = service.delete(DeleteFlow { flow: other, of: None }) else {
        panic!("there is one at priority 0")
    };
    assert_eq!((wanted.get(), found), (3, vec![Priority::default()]));
}

#[test]
fn a_full_table_is_busy_counts_one_refusal_and_never_keeps_a_deletion_away() {
    let world = World::new(Config { dirty_limit: 1, ..Config::default() });
    let service = &world.service;
    drop(service.add(add(udp(1, "2"))).unwrap());
    assert!(matches!(service.add(add(udp(2, "2"))), Err(Error::Busy(_))));
    let refused: u64 = world.agent.events.counts().refused.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(refused, 1);
    assert!(service.delete(DeleteFlow { flow: FlowName::Like(udp(1, "2")), of: None }).is_ok());
}

#[test]
fn a_batch_waits_for_room_and_counts_what_became_of_each() {
    let mut world = World::new(Config { dirty_limit: 1, ..Config::default() });
    world.start();
    let mut batch = world.service.batch();
    for destination in 1..=50 {
        batch.request(|| FlowRequest::Add(add(udp(destination, "2")))).unwrap();
    }
    batch.request(|| FlowRequest::Add(add(udp(51, "9")))).unwrap();
    assert!(matches!(batch.request(|| FlowRequest::Add(add(udp(1, "2")))), Err(Error::Exists(_))));
    batch.request(|| FlowRequest::Delete(DeleteFlow { flow: FlowName::Like(udp(1, "drop")), of: None })).unwrap();
    let outcome = batch.accepted().durable().unwrap().outcome(PATIENCE).unwrap();
    let BatchOutcome { installed, refused, deleted, superseded, unanswered, refusals } = outcome;
    assert_eq!((installed, refused, deleted, superseded, unanswered), (50, 1, 1, 0, 0));
    assert_eq!(refusals[0].0, Some(udp(51, "9").ufid));
}

#[test]
fn what_the_device_refuses_or_does_not_answer_is_no_outcome() {
    let mut world = World::new(Config::default());
    let accepted = world.service.add(add(udp(1, "2"))).unwrap().durable().unwrap();
    let unanswered = accepted.outcome(SOON);
    assert!(matches!(unanswered, Err(Error::Unanswered { flows: 1, within: SOON })));
    drop(accepted);
    let overtaken = world.service.add(add(udp(2, "2"))).unwrap().durable().unwrap();
    let modify = ModifyFlow { flow: udp(2, "drop"), may_create: false, keep_old_rule: false };
    drop(world.service.modify(modify).unwrap());
    assert!(matches!(overtaken.outcome(SOON), Ok(Outcome::Superseded)));
    drop(overtaken);
    world.start();
    let refused = world.service.add(add(udp(3, "9"))).unwrap().durable().unwrap();
    assert!(matches!(refused.outcome(PATIENCE), Err(Error::Refused(_))));
    assert_eq!(world.state(&udp(3, "9")), Some(FlowState::Refused));
}

#[test]
fn flows_that_are_to_age_do_what_their_owner_wants_by_then_and_none_ages_once_the_owner_is_back() {
    let world = World::new(Config { idle_timeout: None, ..Config::default() });
    let (service, owner) = (&world.service, Origin::Controller("ovn".parse().unwrap()));
    let of_owner = |destination, actions| udp(destination, actions).with_origin(owner);
    (1..=3).for_each(|destination| drop(service.add(add(of_owner(destination, "2"))).unwrap()));
    let modify = |flow| service.modify(ModifyFlow { flow, may_create: false, keep_old_rule: false }).unwrap();
    let (steps, modified) = (Cell::new(0), RefCell::new(Vec::new()));
    let aged = service.age_owned(owner, PATIENCE, &|act| {
        if steps.replace(steps.get() + 1) == 2 {
            return false;
        }
        // All are changed after they were found, and before they are made to age.
        if steps.get() == 1 {
            modified.borrow_mut().extend((1..=3).map(|destination| modify(of_owner(destination, "drop"))));
        }
        act();
        true
    });
    assert_eq!((*aged.durable().unwrap().change(), steps.get()), (2, 3));
    let flows = (1..=3).map(|destination| service.view().named(udp(destination, "2").ufid).unwrap().flow);
    let flows: Vec<_> = flows.collect();
    assert!(flows.iter().all(|flow| flow.actions == udp(1, "drop").actions));
    assert_eq!(flows.iter().filter(|flow| flow.expiry.idle == Some(PATIENCE)).count(), 2);
    for change in modified.into_inner() {
        let unanswered = change.durable().unwrap().outcome(SOON);
        assert!(matches!(unanswered, Err(Error::Unanswered { .. })), "nothing has taken its place: {unanswered:?}");
    }
}

#[test]
fn no_flow_is_deleted_any_more_once_its_owner_is_back() {
    let world = World::new(Config::default());
    let (service, owner) = (&world.service, Origin::Controller("ovn".parse().unwrap()));
    (1..=3).for_each(|destination| drop(service.add(add(udp(destination, "2").with_origin(owner))).unwrap()));
    let steps = Cell::new(0);
    let deleted = service.delete_owned(owner, &|act| {
        let is_over = steps.replace(steps.get() + 1) < 2;
        if is_over {
            act();
        }
        is_over
    });
    assert_eq!((*deleted.durable().unwrap().change(), steps.get()), (2, 3));
    let is_there = |destination| world.state(&udp(destination, "2")).is_some();
    assert_eq!((1..=3).filter(|destination| is_there(*destination)).count(), 1);
}

#[test]
fn a_replacement_changes_nothing_any_more_once_a_later_one_of_the_owner_has_begun() {
    let mut world = World::new(Config::default());
    world.start();
    let (service, owner) = (&world.service, Origin::Controller("ovn".parse().unwrap()));
    let of_owner = |destination, actions| udp(destination, actions).with_origin(owner);
    (1..=3).for_each(|destination| drop(service.add(add(of_owner(destination, "2"))).unwrap()));
    let mut earlier = service.replace(owner);
    service.want(&mut earlier, &of_owner(1, "2")).unwrap();
    let mut later = service.replace(owner);
    service.want(&mut later, &of_owner(1, "drop")).unwrap();
    service.want(&mut later, &of_owner(2, "2")).unwrap();
    assert!(matches!(service.want(&mut earlier, &of_owner(1, "2")), Err(Error::Overtaken(_))));
    assert!(matches!(service.sweep(earlier), Err(Error::Overtaken(_))));
    let named = |destination| service.view().named(udp(destination, "2").ufid);
    assert_eq!(named(1).unwrap().flow.actions, udp(1, "drop").actions, "as the later one wants it");
    assert!(named(2).is_some(), "the earlier one has not named it");
    let done = service.sweep(later).unwrap().durable().unwrap().outcome(PATIENCE).unwrap();
    assert_eq!(done, Replaced { changed: 1, unchanged: 1, deleted: 1, ..Replaced::default() });
}

#[test]
fn at_the_flow_limit_a_flow_takes_the_place_of_one_of_another_name_once_that_is_gone() {
    let mut world = World::new(Config { flow_limit: 1, ..Config::default() });
    let (service, owner) = (Service::new(world.agent.clone()), Origin::Controller("ovn".parse().unwrap()));
    let known = udp(1, "2").with_origin(owner);
    drop(service.add(add(known.clone())).unwrap());
    let matching = MaskedKey::new(&known.matching().expand());
    let (actions, priority, expiry) = (known.actions.clone(), known.priority, known.expiry);
    let renamed = Flow::new(Some(Ufid(7)), matching, actions, priority, expiry, &SEED).with_origin(owner);
    let mut replacement = service.replace(owner);
    thread::scope(|scope| {
        let wanted = scope.spawn(|| service.want(&mut replacement, &renamed));
        while world.state(&known).is_some() {
            thread::yield_now();
        }
        // It is on its way out until a worker has looked at it.
        world.start();
        wanted.join().unwrap().unwrap();
    });
    let done = service.sweep(replacement).unwrap().durable().unwrap().outcome(PATIENCE).unwrap();
    assert_eq!(done, Replaced { added: 1, deleted: 1, ..Replaced::default() });
    assert_eq!(world.state(&renamed), Some(FlowState::Offloaded));
}

/// A session with the id of this number.
fn session(number: u16) -> Session {
    let id = SessionId(number.into());
    let flow = |direction, destination| {
        let (ufid, like) = (SessionFlow { session: id, direction }.ufid(), udp(destination, "2"));
        let matching = MaskedKey::new(&like.matching().expand());
        let actions = like.actions.clone();
        Flow::new(Some(ufid), matching, actions, like.priority, like.expiry, &SEED).with_origin(OWNER)
    };
    let (forward, reverse) = (flow(Direction::Forward, 2 * number), flow(Direction::Reverse, 2 * number + 1));
    Session { id, forward, reverse }
}

#[test]
fn a_session_that_is_deleted_while_it_ends_by_itself_is_told_to_who_deletes_it_or_as_closed() {
    let world = World::new(Config::default());
    let view = world.service.view();
    let end = |flow: Flow, packets| {
        let (reason, accepted) = (EndReason::Idle, view.now());
        let counters = Counters { packets, ..Counters::default() };
        view.session_ends().note(&Event::Deleted { flow, reason, counters, accepted });
    };
    let Session { id, forward, reverse } = session(7);
    end(forward, 5);
    let deleted = world.service.delete_session(id).unwrap().unwrap();
    assert_eq!((deleted.forward.map(|counters| counters.packets), deleted.reverse), (Some(5), None));
    assert!(!view.session_ends().is_ending(id));
    end(session(7).forward, 5);
    end(reverse, 3);
    assert!(world.service.delete_session(id).unwrap().is_none());
    assert_eq!(view.session_ends().take_closed(9).len(), 1);
}

#[test]
fn a_device_that_stalls_is_waited_for_once_and_not_for_each_session() {
    const AT_MOST: Duration = Duration::from_millis(200);
    let world = World::new(Config::default());
    let began = Instant::now();
    let outcomes = world.service.add_sessions((1..=500).map(session).collect(), AT_MOST).unwrap();
    assert_eq!(outcomes.len(), 500);
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::Unanswered { flows: 2, within: AT_MOST })), "{outcome:?}");
    }
    // Once for the outcomes and once for the removals, and not 500 times.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn nothing_is_durable_before_the_journal_has_it() {
    /// Makes a change durable while the journal is written only after a while.
    fn check(change: impl FnOnce(&Service)) {
        let scratch = TempDir::new().unwrap();
        let mut world = World::with_folder(Some(scratch.path()), Config::default(), Arc::new(MonotonicClock::new()));
        let (service, is_written) = (Service::new(world.agent.clone()), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                is_written.store(true, Ordering::Release);
                world.keep();
            });
            change(&service);
            assert!(is_written.load(Ordering::Acquire), "nobody writes the journal yet");
        });
    }
    check(|service| drop(service.add(add(udp(1, "2"))).unwrap().durable().unwrap().receipt()));
    check(|service| {
        // Of no flow there would be nothing to write.
        drop(service.add(add(udp(1, "2"))).unwrap());
        drop(service.flush().durable().unwrap().receipt());
    });
    check(|service| {
        let mut batch = service.batch();
        for flow in 1..=3 {
            batch.request(|| FlowRequest::Add(add(udp(flow, "2")))).unwrap();
        }
        drop(batch.accepted().durable().unwrap().receipt());
    });
}

#[test]
fn what_is_durable_survives_the_agent() {
    let scratch = TempDir::new().unwrap();
    let mut first = World::with_folder(Some(scratch.path()), Config::default(), Arc::new(MonotonicClock::new()));
    first.keep();
    let receipt = first.service.add(add(udp(1, "2"))).unwrap().durable().unwrap().receipt();
    let folder = TempDir::new().unwrap();
    // As it is at the moment of the receipt, which is all that a kill leaves.
    for file in std::fs::read_dir(scratch.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    drop((receipt, first));
    let mut second = World::with_folder(Some(folder.path()), Config::default(), Arc::new(MonotonicClock::new()));
    second.keep();
    assert!(second.service.view().named(udp(1, "2").ufid).is_some());
}

#[test]
fn a_journal_that_is_late_makes_no_change_durable_and_stops_none() {
    let (scratch, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::default()));
    let world = World::with_folder(Some(scratch.path()), Config::default(), clock.clone());
    drop(world.service.add(add(udp(1, "2"))).unwrap());
    clock.advance(Duration::from_secs(60));
    let accepted = world.service.add(add(udp(2, "2"))).unwrap();
    assert!(matches!(accepted.durable(), Err(Error::NotDurable(_))));
    assert_eq!(world.state(&udp(2, "2")), Some(FlowState::Pending));
}

#[test]
fn a_flow_is_explained_whether_it_exists_or_not() {
    let mut world = World::new(Config { idle_timeout: Some(PATIENCE), ..Config::default() });
    world.start();
    let view = world.service.view();
    let candidate = view.explain(&Explain::Candidate(udp(1, "9"))).unwrap();
    assert!(candidate.known.is_none() && candidate.verdict.is_err());
    assert!(view.explain(&Explain::Candidate(udp(1, "2"))).unwrap().verdict.is_ok());
    let added = world.service.add(add(udp(1, "2"))).unwrap().durable().unwrap();
    added.outcome(PATIENCE).unwrap();
    for wanted in [Explain::Candidate(udp(1, "2")), Explain::Known(FlowName::Ufid(udp(1, "2").ufid))] {
        let known = view.explain(&wanted).unwrap().known.unwrap();
        assert_eq!((known.view.state, known.expires.idle), (FlowState::Offloaded, Some(PATIENCE)));
    }
}

#[test]
fn a_flow_that_its_owner_wants_again_is_accepted_for_the_port_that_has_the_number_now() {
    let mut world = World::new(Config::default());
    world.start();
    let (service, owner) = (&world.service, Origin::Controller("ovn".parse().unwrap()));
    let wanted = udp(1, "2").with_origin(owner);
    let replaced = || {
        let mut replacement = service.replace(owner);
        service.want(&mut replacement, &wanted).unwrap();
        service.sweep(replacement).unwrap().durable().unwrap().outcome(PATIENCE).unwrap()
    };
    assert_eq!(replaced(), Replaced { added: 1, ..Replaced::default() });
    assert_eq!(replaced(), Replaced { unchanged: 1, ..Replaced::default() });
    drop(service.remove::<Port>(&PortNumber(2)).unwrap());
    assert_eq!(
        replaced(),
        Replaced { unchanged: 1, ..Replaced::default() },
        "it stays withheld for the one that is gone"
    );
    assert_eq!(service.view().named(wanted.ufid).unwrap().gone_ports.len(), 1);
    drop(service.put(Port { name: "other".parse().unwrap(), ..port(2) }).unwrap());
    assert_eq!(replaced(), Replaced { changed: 1, ..Replaced::default() });
    assert_eq!(world.state(&wanted), Some(FlowState::Offloaded));
}
