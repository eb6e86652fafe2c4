//! Many orders in which callers, a worker, a poll and a device that loses rules can meet at the table, by shuttle: the very
//! source of the table, on shuttle's locks and atomics (feature `model`). Chosen at random, by the thousand; not all of them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use sluice_flow::backend::{Change, Handle, LostRule, Operation, Outcome, Placement};
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::port::GonePort;
use sluice_flow::table::queue::{LookQueue, Reader};
use sluice_flow::table::{
    Accepted, Completed, Freed, Limits, Look, ReplyTo, Settlement, TableError, Unwritten, UnwrittenReader, Waiter,
};
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Action, ActionList, ChainId, EndReason, Event, EventSink, Expiry, Field, Flow, FlowId, FlowState, FlowTable,
    Generation, MaskedKey, Match, Origin, PortNumber, Priority, Refusal, Timestamp, Ufid, Wish,
};

const ORDERS: usize = 5_000;
const SEED: Seed = Seed([1; 16]);
/// What the device refuses.
const REFUSED: Action = Action::Output(PortNumber(9));
const SOURCE: Origin = Origin::OpenVswitch;
const NOW: Timestamp = Timestamp(1_000);

/// A table, its one worker's queue, and a device that has at most one rule for a match.
struct World {
    table: FlowTable,
    queue: Arc<LookQueue>,
    device: Mutex<Device>,
    story: Arc<Story>,
    log: Mutex<Log>,
    /// What a source was last shown of each of its flows: how far it had come, and its packets.
    shown: Mutex<BTreeMap<Ufid, (FlowState, u64)>>,
    /// Callers that have not ended.
    callers: AtomicUsize,
    /// Wakes the worker.
    work: Bell,
    /// Rung when the device has a rule.
    rule: Bell,
}

/// What a thread waits for; remembers one ring, as a channel of one place does.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.rung.wait_while(self.is_rung.lock().unwrap(), |is_rung| !*is_rung).unwrap();
        *is_rung = false;
    }
}

impl Waiter for Bell {
    fn settled(&self, _request: u32, _flow: FlowId, _outcome: &Settlement) {
        self.ring();
    }
}

#[derive(Default)]
struct Device {
    next_handle: u64,
    /// Packets that came to any rule.
    packets: u64,
    rules: BTreeMap<Handle, Rule>,
    open: BTreeSet<ChainId>,
}

struct Rule {
    life: FlowId,
    installed_as: Generation,
    flow: Flow,
    packets: u64,
}

/// What a log says is wanted.
struct Log {
    unwritten: Arc<Unwritten>,
    reader: UnwrittenReader,
    wanted: BTreeMap<Ufid, Flow>,
    /// What was given up when everything was last written anew.
    made_up_for: usize,
}

impl Log {
    /// Writes what is in the queue.
    fn write(&mut self, table: &FlowTable) {
        let Self { reader, wanted, .. } = self;
        let mut mark = reader.mark();
        while table.write_next(reader, &mut mark, |wish| match wish {
            Wish::Wanted(flow) | Wish::Withheld(flow, _) => drop(wanted.insert(flow.ufid, flow.clone())),
            Wish::Unwanted(ufid) => drop(wanted.remove(&ufid)),
        }) {}
    }

    /// Writes everything anew, after what is in the queue.
    fn make_up(&mut self, table: &FlowTable) {
        self.made_up_for = self.unwritten.given_up();
        self.write(table);
        self.wanted.clear();
        table.visit(&mut |view| {
            if view.state != FlowState::Deleting {
                self.wanted.insert(view.flow.ufid, view.flow);
            }
            ControlFlow::Continue(())
        });
    }
}

/// What the table said of each UFID.
#[derive(Default)]
struct Story(std::sync::Mutex<Notified>);

#[derive(Default)]
struct Notified {
    accepted: usize,
    deleted: usize,
    packets: u64,
}

impl EventSink for Story {
    fn event(&self, event: &Event) {
        let mut notified = self.0.lock().unwrap();
        match event {
            Event::Accepted(_) => notified.accepted += 1,
            Event::Deleted { counters, .. } => {
                notified.deleted += 1;
                notified.packets += counters.packets;
            }
            _ => {}
        }
    }
}

impl World {
    fn new(callers: usize, most_kept: usize) -> (Arc<Self>, Reader) {
        let story = Arc::<Story>::default();
        let (unwritten, log_reader) = Unwritten::new(most_kept, || ());
        let table = FlowTable::new(SEED, Limits { flows: 100, unsettled: 100 }, story.clone());
        let table = table.kept_by(Some(unwritten.clone()));
        let log = Log { unwritten, reader: log_reader, wanted: BTreeMap::new(), made_up_for: 0 };
        let (queue, reader) = LookQueue::new();
        let (device, callers) = (Mutex::default(), AtomicUsize::new(callers));
        let (shown, work, rule) = Default::default();
        (Arc::new(Self { table, queue, device, story, log: Mutex::new(log), shown, callers, work, rule }), reader)
    }

    fn hand_over(&self, accepted: Accepted) {
        let _ = self.table.hand_over(accepted, &self.queue);
        self.work.ring();
    }

    /// Looks whether the log says what is wanted in the end.
    fn check_log(&self) {
        let mut log = self.log.lock().unwrap();
        log.write(&self.table);
        if log.unwritten.given_up() != log.made_up_for {
            return;
        }
        let mut wanted = BTreeMap::new();
        self.table.visit(&mut |view| {
            if view.flow.origin.is_logged() {
                wanted.insert(view.flow.ufid, view.flow);
            }
            ControlFlow::Continue(())
        });
        assert_eq!(log.wanted, wanted, "the log says what is wanted");
        assert_eq!(log.unwritten.kept(), 0, "no slot is kept for what is written");
    }

    /// Does something that is accepted, and waits for its outcome.
    fn wait_for(&self, ask: impl FnOnce(ReplyTo) -> Result<Accepted, TableError>) -> FlowId {
        let outcome = Arc::<Bell>::default();
        let accepted = ask(outcome.clone().into()).expect("it is accepted");
        self.hand_over(accepted);
        outcome.wait();
        accepted.flow
    }

    fn add(&self, flow: Flow) -> Result<FlowId, TableError> {
        let accepted = self.table.add(flow, NOW, None)?;
        self.hand_over(accepted);
        Ok(accepted.flow)
    }

    fn modify(&self, flow: Flow) -> Option<FlowId> {
        let accepted = self.table.modify(self.table.find(flow.ufid)?, flow, false, NOW, None).ok()?;
        self.hand_over(accepted);
        Some(accepted.flow)
    }

    fn delete(&self, ufid: Ufid) -> Option<FlowId> {
        let id = self.table.find(ufid)?;
        let accepted = self.table.delete(id, EndReason::Deleted, NOW, None).ok()?;
        self.hand_over(accepted);
        Some(id)
    }

    fn withhold(&self, port: &GonePort) {
        self.table.withhold(port, NOW, &mut |accepted| self.hand_over(accepted));
    }

    fn release(&self, port: &GonePort) {
        self.table.release(|gone| gone == port, NOW, &mut |accepted| self.hand_over(accepted));
    }

    /// The device loses the rule of a life, if it has one.
    fn lose(&self, flow: FlowId) {
        let lost: Vec<_> = {
            let mut device = self.device.lock().unwrap();
            device.rules.extract_if(.., |_, rule| rule.life == flow).collect()
        };
        for (handle, _) in lost {
            self.table.lost(LostRule { flow, handle }, NOW).into_iter().for_each(|accepted| self.hand_over(accepted));
        }
    }

    /// Packets of the lives that have ended.
    fn counted(&self) -> u64 {
        self.story.0.lock().unwrap().packets
    }

    /// Lets a packet come to every rule as soon as there is one, and the table hear of it.
    fn poll(&self) {
        self.rule.wait();
        let readings = self.device.lock().unwrap().count();
        self.table.take_readings(&readings, Sampled { earliest: NOW, latest: NOW });
    }

    /// Shows the source what is new of its flows.
    fn show_news(&self) {
        self.table.visit_news(SOURCE, &mut |view| {
            self.shown.lock().unwrap().insert(view.flow.ufid, (view.state, view.counters.packets));
        });
    }

    /// Works until every caller has ended and nothing is left to do. What the device has done is completed as late as can be:
    /// when there is nothing else to look at.
    fn work(&self, mut reader: Reader) {
        let mut done = Vec::new();
        loop {
            let is_last_look = self.callers.load(Ordering::SeqCst) == 0;
            if let Some(id) = self.table.take(&mut reader) {
                done.extend(self.look(id));
            } else if let Some((change, outcome)) = done.pop() {
                let Completed { freed, .. } = self.table.complete(&change, outcome, NOW);
                self.set_free(freed);
                done.extend(self.look(change.flow));
            } else if is_last_look {
                break;
            } else {
                self.work.wait();
            }
        }
    }

    fn set_free(&self, freed: Freed) {
        freed.flows.into_iter().filter_map(|id| self.table.look_again(id)).for_each(|next| self.hand_over(next));
        for chain in freed.chains.into_iter().filter(|chain| !self.table.is_chain_held(*chain)) {
            let mut device = self.device.lock().unwrap();
            assert!(!device.rules.values().any(|rule| rule.flow.jumps().contains(&chain)), "a rule jumps there");
            device.open.remove(&chain);
        }
    }

    fn look(&self, id: FlowId) -> Option<(Change, Result<Outcome, Refusal>)> {
        match self.table.look(id) {
            Look::Nothing | Look::Held => None,
            Look::Freed(freed) => {
                self.set_free(freed);
                None
            }
            Look::Retired { successor, freed, .. } => {
                self.set_free(freed);
                successor.into_iter().filter_map(|id| self.table.look_again(id)).for_each(|next| self.hand_over(next));
                None
            }
            Look::Change(change) => {
                let mut device = self.device.lock().unwrap();
                if let Operation::Install(flow) | Operation::Modify(_, flow) = &change.operation {
                    let jumps = flow.jumps();
                    assert!(jumps.iter().all(|chain| self.table.is_chain_held(*chain)), "nobody closes it");
                    device.open.extend(jumps);
                }
                let outcome = device.make(&change);
                drop(device);
                self.rule.ring();
                Some((change, outcome))
            }
        }
    }
}

impl Device {
    /// A packet comes to every rule.
    fn count(&mut self) -> Vec<Reading> {
        let count = |rule: &mut Rule| {
            rule.packets += 1;
            self.packets += 1;
            let counters = Counters { packets: rule.packets, ..Counters::default() };
            Reading { flow: rule.life, installed_as: rule.installed_as, counters }
        };
        self.rules.values_mut().map(count).collect()
    }

    fn make(&mut self, change: &Change) -> Result<Outcome, Refusal> {
        if let Operation::Install(flow) | Operation::Modify(_, flow) = &change.operation
            && flow.actions.contains(&REFUSED)
        {
            return Err(Refusal::Device { reason: "no".into() });
        }
        Ok(match &change.operation {
            Operation::Install(flow) => {
                assert!(!self.rules.values().any(|rule| rule.flow.is_same(flow)), "two rules for a match");
                let handle = Handle(self.next_handle);
                self.next_handle += 1;
                let rule = Rule { life: change.flow, installed_as: change.generation, flow: flow.clone(), packets: 0 };
                self.rules.insert(handle, rule);
                Outcome::InPlace { handle, placement: Placement::Hardware }
            }
            Operation::Modify(handle, flow) => {
                // A rule that the device has lost meanwhile cannot be changed; it will be notified so.
                if let Some(rule) = self.rules.get_mut(handle) {
                    rule.flow = flow.clone();
                }
                Outcome::InPlace { handle: *handle, placement: Placement::Hardware }
            }
            Operation::Move(handle, placement) => Outcome::InPlace { handle: *handle, placement: *placement },
            Operation::Remove(handle) => {
                let last =
                    self.rules.remove(handle).map(|rule| Counters { packets: rule.packets, ..Counters::default() });
                Outcome::Removed { last }
            }
        })
    }
}

/// A flow of a chain, of which there is one.
fn of_chain(chain: u32, action: Action) -> Flow {
    let mut matching = Match::default();
    matching.set_exact(Field::RecircId, u128::from(chain));
    let actions = ActionList::from([action]);
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

const fn jump(chain: u32) -> Action {
    Action::Recirc(ChainId(chain))
}

fn flow(port: u32, output: u32) -> Flow {
    let mut matching = Match::default();
    matching.set_exact(Field::InPort, u128::from(port));
    let actions = ActionList::from([Action::Output(PortNumber(output))]);
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

/// Runs the callers beside the worker, each a number of times in another order, and looks at what is left in the end.
fn explore(callers: &'static [fn(&World)], check: fn(&World)) {
    explore_with_log(callers, 100, |world| world.log.lock().unwrap().write(&world.table), check);
}

/// The same, with a log that keeps at most so many slots, and does this beside them.
fn explore_with_log(callers: &'static [fn(&World)], most_kept: usize, log: fn(&World), check: fn(&World)) {
    let model = move || {
        let (world, reader) = World::new(callers.len(), most_kept);
        let logging = {
            let world = world.clone();
            thread::spawn(move || (0..2).for_each(|_| log(&world)))
        };
        let threads: Vec<_> = callers
            .iter()
            .map(|caller| {
                let world = world.clone();
                thread::spawn(move || {
                    caller(&world);
                    world.callers.fetch_sub(1, Ordering::SeqCst);
                    world.work.ring();
                })
            })
            .collect();
        world.work(reader);
        threads.into_iter().chain([logging]).for_each(|thread| thread.join().expect("a caller ends"));
        world.check_log();
        let census = world.table.census();
        assert_eq!(census.unsettled(), 0, "every accepted change has an outcome");
        assert_eq!(census.in_state(FlowState::Pending) + census.in_state(FlowState::Deleting), 0);
        assert_eq!(
            census.live(),
            world.device.lock().unwrap().rules.len() + census.in_state(FlowState::Refused),
            "every flow has its rule, no rule is left over"
        );
        check(&world);
    };
    let mut config = shuttle::Config::new();
    // Unoptimised, a caller in the table takes more than the 32 KiB that are usual.
    config.stack_size = 1 << 18;
    shuttle::Runner::new(RandomScheduler::new(ORDERS), config.clone()).run(model);
    shuttle::Runner::new(PctScheduler::new(3, ORDERS), config).run(model);
}

fn outputs(world: &World) -> Vec<Action> {
    world.device.lock().unwrap().rules.values().flat_map(|rule| rule.flow.actions.iter().cloned()).collect()
}

fn notified(world: &World) -> (usize, usize) {
    let notified = world.story.0.lock().unwrap();
    (notified.accepted, notified.deleted)
}

#[test]
fn a_flow_that_two_add_and_delete_is_one_life_after_the_other() {
    fn caller(world: &World) {
        let flow = flow(1, 1);
        for _ in 0..2 {
            let _ = world.add(flow.clone());
            world.delete(flow.ufid);
        }
    }
    explore(&[caller, caller], |world| {
        let (accepted, deleted) = notified(world);
        assert_eq!(accepted, deleted, "as many lives have ended as began");
        assert_eq!(world.table.census().live(), 0);
    });
}

#[test]
fn the_device_ends_with_the_last_of_two_changes_that_was_accepted() {
    fn modify(world: &World, output: u32) {
        let flow = flow(1, output);
        let id = match world.add(flow.clone()) {
            Ok(_) => return,
            Err(_) => world.table.find(flow.ufid).expect("nobody deletes it"),
        };
        let accepted = world.table.modify(id, flow, false, NOW, None).expect("nobody deletes it");
        world.hand_over(accepted);
    }
    explore(&[|world| modify(world, 1), |world| modify(world, 2)], |world| {
        let flow = flow(1, 1);
        let id = world.table.find(flow.ufid).expect("it is there");
        let wanted = world.table.view(id).expect("it is there").flow;
        assert_eq!(outputs(world), wanted.actions.to_vec());
    });
}

#[test]
fn a_rule_that_the_device_loses_comes_back_unless_its_flow_is_deleted() {
    fn lose(world: &World) {
        if let Some(id) = world.table.find(flow(1, 1).ufid) {
            world.lose(id);
        }
    }
    fn add_and_delete(world: &World) {
        let _ = world.add(flow(1, 1));
        let _ = world.add(flow(2, 1));
        world.delete(flow(1, 1).ufid);
        let _ = world.add(flow(1, 2));
    }
    explore(&[lose, add_and_delete], |world| {
        assert_eq!(world.table.census().live(), 2);
        assert_eq!(world.table.census().in_state(FlowState::Offloaded), 2);
    });
}

#[test]
fn every_packet_is_counted_once_and_in_its_own_life() {
    fn one_life_after_the_other(world: &World) {
        let first = world.wait_for(|outcome| world.table.add(flow(1, 1), NOW, Some(outcome)));
        world.wait_for(|outcome| world.table.delete(first, EndReason::Deleted, NOW, Some(outcome)));
        world.wait_for(|outcome| world.table.add(flow(1, 1), NOW, Some(outcome)));
    }
    explore(&[one_life_after_the_other, World::poll], |world| {
        let device = world.device.lock().unwrap();
        let in_second: u64 = device.rules.values().map(|rule| rule.packets).sum();
        assert_eq!(world.counted() + in_second, device.packets);
        let second = world.table.find(flow(1, 1).ufid).and_then(|id| world.table.view(id)).expect("it is there");
        assert!(second.counters.packets <= in_second, "a packet of the first life is counted in the second");
    });
}

#[test]
fn a_reading_of_a_rule_that_was_lost_is_not_counted_for_the_one_in_its_place() {
    fn lose_and_delete(world: &World) {
        let id = world.wait_for(|outcome| world.table.add(flow(1, 1), NOW, Some(outcome)));
        world.lose(id);
        world.delete(flow(1, 1).ufid);
    }
    explore(&[lose_and_delete, World::poll], |world| {
        // What the lost rule counted since it was last read is gone with it.
        assert!(world.counted() <= world.device.lock().unwrap().packets);
    });
}

#[test]
fn a_source_that_is_shown_what_is_new_knows_in_the_end_how_each_flow_stands() {
    fn change(world: &World) {
        let of_source = |port, output| flow(port, output).with_origin(SOURCE);
        let id = world.add(of_source(1, 1)).expect("nobody else does");
        let accepted = world.table.modify(id, of_source(1, 2), false, NOW, None).expect("nobody deletes it");
        world.hand_over(accepted);
        let Action::Output(PortNumber(refused)) = REFUSED else { unreachable!() };
        world.add(of_source(2, refused)).expect("nobody else does");
    }
    fn follow(world: &World) {
        (0..4).for_each(|_| world.show_news());
    }
    explore(&[change, World::poll, follow], |world| {
        world.show_news();
        let mut stand = BTreeMap::new();
        world.table.visit(&mut |view| {
            stand.insert(view.flow.ufid, (view.state, view.counters.packets));
            ControlFlow::Continue(())
        });
        assert_eq!(stand.len(), 2);
        assert_eq!(*world.shown.lock().unwrap(), stand);
    });
}

#[test]
fn a_log_that_gave_ends_up_is_whole_once_everything_is_written_after_what_was_in_its_queue() {
    fn caller(world: &World) {
        for output in 1..=2 {
            let _ = world.add(flow(1, output));
            let _ = world.add(flow(2, output));
            world.delete(flow(1, 1).ufid);
        }
    }
    let make_up = |world: &World| world.log.lock().unwrap().make_up(&world.table);
    explore_with_log(&[caller, caller], 0, make_up, |_| {});
}

#[test]
fn flows_of_two_chains_wait_for_each_other_and_for_nobody_who_is_gone() {
    fn parent(world: &World) {
        let _ = world.add(of_chain(1, Action::Output(PortNumber(1))));
        let _ = world.add(of_chain(0, jump(1)));
        world.modify(of_chain(0, jump(2)));
        world.delete(of_chain(0, jump(1)).ufid);
        let _ = world.add(of_chain(0, jump(1)));
    }
    fn children(world: &World) {
        let child = of_chain(1, jump(2));
        let _ = world.add(of_chain(2, REFUSED));
        world.delete(child.ufid);
        let _ = world.add(child.clone());
        // It would close a cycle while the other one is there, if only on its way out.
        world.modify(of_chain(2, jump(1)));
        world.delete(child.ufid);
        world.delete(of_chain(2, jump(1)).ufid);
    }
    explore(&[parent, children], |world| {
        let held = [1, 2].map(|chain| world.table.is_chain_held(ChainId(chain)));
        let level = [1, 2].map(|chain| world.table.chain_level(ChainId(chain)));
        assert_eq!((held, level), ([true, false], [1, 0]), "as only what is there jumps");
        assert_eq!(world.device.lock().unwrap().open, BTreeSet::from([ChainId(1)]));
    });
}

#[test]
fn a_child_that_is_deleted_after_its_parent_goes_after_it() {
    fn both(world: &World) {
        for _ in 0..2 {
            let _ = world.add(of_chain(1, Action::Output(PortNumber(1))));
            let _ = world.add(of_chain(0, jump(1)));
            world.delete(of_chain(0, jump(1)).ufid);
            world.delete(of_chain(1, jump(2)).ufid);
        }
    }
    fn modify(world: &World) {
        world.modify(of_chain(0, Action::Output(PortNumber(1))));
        world.modify(of_chain(0, REFUSED));
    }
    explore(&[both, modify], |world| {
        assert_eq!(world.table.census().live(), 0);
        assert!(world.device.lock().unwrap().open.is_empty());
        assert_eq!(world.table.chain_level(ChainId(1)), 0);
    });
}

#[test]
fn a_parent_goes_in_whenever_the_port_of_its_child_goes() {
    fn flows(world: &World) {
        let _ = world.add(of_chain(1, Action::Output(PortNumber(1))));
        let _ = world.add(of_chain(0, jump(1)));
        world.modify(of_chain(0, jump(1)));
    }
    fn port(world: &World) {
        let port = |name: &str| GonePort { number: PortNumber(1), name: name.parse().expect("it is a name") };
        world.withhold(&port("first"));
        world.release(&port("first"));
        world.withhold(&port("second"));
    }
    explore(&[flows, port], |world| {
        let id = world.table.find(of_chain(0, jump(1)).ufid).expect("nobody deletes it");
        assert_eq!(world.table.view(id).expect("it is there").state, FlowState::Offloaded);
    });
}
