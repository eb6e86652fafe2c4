//! More is wanted than the device takes: what is taken on is done in bounded time, the rest hears "busy", and deletions pass by.
//!
//! Time is counted in changes that the device has made, so that nothing here depends on how fast the machine is. How long a
//! minute of it takes in seconds, and how much memory, is told by the bench of the same name.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use sluice_agent::config::Config;
use sluice_flow::port::PortKind;
use sluice_flow::table::{ReplyTo, Settlement, TableError, Waiter};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{EndReason, FlowId, Port, PortNumber, Refusal};
use sluice_tests::bench::five_tuples;
use sluice_tests::fault::{Faults, FaultyDevice, Plan};
use sluice_tests::lasting::LastingDevice;
use sluice_tests::world::{SEED, World, eventually, quick_config, soft_nic};

#[test]
fn no_more_workers_run_than_help_the_device() {
    let clock = Arc::new(MonotonicClock::new());
    let config = Config { workers: 4, ..quick_config() };
    let workers = |world: &World| world.agent.queue.reports().len();
    assert_eq!(workers(&World::on(LastingDevice::new(clock.clone()), config.clone(), clock)), 1);
    assert_eq!(workers(&World::soft(config)), 4, "a device that says nothing takes as many as there are");
}

/// Flows that may wait for the device.
const LIMIT: u64 = 1_000;
/// Changes that a worker hands to the device before it hears of one: two batches.
const IN_FLIGHT: u64 = 128;
/// Removals that are taken before a change has its turn.
const IN_A_ROW: u64 = 3;

/// Counts what the device has done, and how much it did while each request waited.
struct Ledger {
    served: AtomicU64,
    installed: (Sender<FlowId>, Receiver<FlowId>),
    longest_add: AtomicU64,
    longest_delete: AtomicU64,
    deleted: AtomicU64,
}

/// One request, and what had been done before it.
struct Request {
    ledger: Arc<Ledger>,
    served_before: u64,
}

impl Ledger {
    fn new() -> Arc<Self> {
        let (served, longest_add, longest_delete, deleted) = Default::default();
        Arc::new(Self { served, installed: unbounded(), longest_add, longest_delete, deleted })
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    fn request(self: &Arc<Self>) -> Option<ReplyTo> {
        Some(ReplyTo::new(Request { ledger: self.clone(), served_before: self.served() }))
    }
}

impl Waiter for Request {
    fn settled(&self, _: u32, flow: FlowId, outcome: &Settlement) {
        let ledger = &self.ledger;
        let waited = ledger.served.fetch_add(1, Ordering::SeqCst) - self.served_before;
        match outcome {
            Settlement::Installed(_) => {
                ledger.longest_add.fetch_max(waited, Ordering::SeqCst);
                ledger.installed.0.send(flow).unwrap();
            }
            Settlement::Deleted(_) => {
                ledger.longest_delete.fetch_max(waited, Ordering::SeqCst);
                ledger.deleted.fetch_add(1, Ordering::SeqCst);
            }
            Settlement::Superseded => {}
            Settlement::Refused(refusal) => panic!("{refusal}"),
        }
    }
}

/// One worker and a device that takes a while for each change.
fn slow_world() -> (World, Arc<Faults>) {
    let clock = Arc::new(MonotonicClock::new());
    let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
    faults.set(slow());
    let config = Config { dirty_limit: LIMIT.try_into().unwrap(), workers: 1, ..quick_config() };
    let world = World::on(device, config, clock);
    // Some of the flows go there.
    let port = Port { number: PortNumber(5), name: "p5".parse().expect("a name"), kind: PortKind::Physical };
    world.agent.object_store.put(port).expect("a port");
    (world, faults)
}

fn slow() -> Plan {
    Plan { delay: Duration::from_micros(50), ..Plan::default() }
}

#[test]
fn at_five_times_the_rate_of_the_device_what_is_taken_on_is_done_soon_and_the_rest_is_told_busy() {
    let (world, _) = slow_world();
    let (queue, census) = (&world.agent.queue, world.agent.table.census());
    let ledger = Ledger::new();
    let mut flows = five_tuples(usize::MAX, &SEED);
    let (mut offered, mut accepted, mut busy, mut deletes, mut most_deletes) = (0, 0, 0, 0, 0);
    while ledger.served() < LIMIT * 6 {
        if offered >= (ledger.served() + 1) * 5 {
            std::thread::yield_now();
            continue;
        }
        offered += 1;
        match queue.add(flows.next().unwrap(), ledger.request()) {
            Ok(_) => accepted += 1,
            Err(TableError::Refused(Refusal::Busy { .. })) => busy += 1,
            Err(other) => panic!("neither taken on nor told busy: {other}"),
        }
        // One deletion for every four changes that the device makes.
        if deletes < ledger.served() / 4
            && let Ok(oldest) = ledger.installed.1.try_recv()
        {
            queue.delete(oldest, EndReason::Deleted, ledger.request()).expect("deletions are never turned away");
            deletes += 1;
        }
        let deleting = deletes - ledger.deleted.load(Ordering::SeqCst);
        most_deletes = most_deletes.max(deleting);
        assert!(census.unsettled() as u64 <= LIMIT + deleting + 1, "{} wait", census.unsettled());
    }
    assert_eq!(accepted + busy, offered, "everybody hears something at once");
    assert!(accepted <= ledger.served() + LIMIT, "no more is taken on than is done, and what may wait");
    assert!(busy * 4 >= offered * 3 - LIMIT * 4, "{busy} of {offered} were told busy");
    world.settle();
    assert_eq!(ledger.served(), accepted + deletes, "all that was taken on is done");
    assert_eq!(ledger.deleted.load(Ordering::SeqCst), deletes);
    assert_eq!(world.installed().len() as u64, accepted - deletes);
    let add = ledger.longest_add.load(Ordering::SeqCst);
    assert!(add > LIMIT / 2, "{add}: there was a queue");
    assert!(add <= (LIMIT + 1) * (1 + IN_A_ROW) + IN_FLIGHT, "an add waited for {add} changes");
    let delete = ledger.longest_delete.load(Ordering::SeqCst);
    // Those before it, an add after every third, and what the device had already.
    let bound = IN_FLIGHT + most_deletes + most_deletes / IN_A_ROW + 4;
    assert!(bound < LIMIT / 2 && delete <= bound, "a deletion waited for {delete} changes, not {bound}");
}

#[test]
fn a_deletion_of_a_flow_that_still_waits_keeps_its_place() {
    let (world, faults) = slow_world();
    faults.set(Plan { stalled: true, ..Plan::default() });
    let ledger = Ledger::new();
    let mut flows = five_tuples(usize::MAX, &SEED);
    let add = |flow| world.agent.queue.add(flow, ledger.request());
    let ids: Vec<_> = (0..LIMIT).map(|_| add(flows.next().unwrap()).expect("not yet too many")).collect();
    let last = *ids.last().unwrap();
    let its = Ledger::new();
    world.agent.queue.delete(last, EndReason::Deleted, its.request()).expect("a deletion is never busy");
    faults.set(slow());
    // More is added all the while, behind it.
    let served = || ledger.served();
    eventually("it is gone", || {
        for _ in 0..5 {
            let _ = add(flows.next().unwrap());
        }
        its.served() > 0
    });
    assert!(served() <= LIMIT + IN_FLIGHT, "it waited for {} changes", served());
    assert!(world.agent.table.view(last).is_none());
}
