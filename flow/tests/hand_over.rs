//! Flows on their way from callers to a worker, with the machine's own threads.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sluice_flow::backend::{Handle, Outcome, Placement};
use sluice_flow::table::queue::{LookQueue, Pushed, Reader};
use sluice_flow::table::{Accepted, Lane, Limits, Look};
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Action, ActionList, EndReason, Event, EventSink, Expiry, Field, Flow, FlowId, FlowState, FlowTable, MaskedKey,
    Match, PortNumber, Priority, Timestamp,
};

const SEED: Seed = Seed([1; 16]);
const NOW: Timestamp = Timestamp(1_000);

struct Nobody;

impl EventSink for Nobody {
    fn event(&self, _event: &Event) {}
}

fn table() -> FlowTable {
    FlowTable::new(SEED, Limits { flows: 1000, unsettled: 1000 }, Arc::new(Nobody))
}

fn flow(port: u32, output: u32) -> Flow {
    let mut matching = Match::default();
    matching.set_exact(Field::InPort, u128::from(port));
    let actions = ActionList::from([Action::Output(PortNumber(output))]);
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

fn add(table: &FlowTable, port: u32) -> Accepted {
    table.add(flow(port, 1), NOW, None).unwrap()
}

/// Does all that a flow needs, on a device that takes everything.
fn work(table: &FlowTable, id: FlowId) {
    while let Look::Change(change) = table.look(id) {
        let outcome = Outcome::InPlace { handle: Handle(id.slot.into()), placement: Placement::Hardware };
        table.complete(&change, Ok(outcome), NOW);
    }
}

#[test]
fn a_flow_is_in_the_queue_once_however_often_it_is_changed() {
    let table = table();
    let (queue, mut reader) = LookQueue::new();
    let accepted = add(&table, 1);
    assert_eq!(table.hand_over(accepted, &queue), Pushed::Queued);
    let removal = table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    assert_eq!(table.hand_over(removal, &queue), Pushed::AlreadyThere);
    let mut queued = Vec::new();
    table.visit_queued(&mut |slot| queued.push(slot));
    assert_eq!(queued, [accepted.flow.slot]);
    assert_eq!(table.take(&mut reader), Some(accepted.flow));
    assert_eq!(table.take(&mut reader), None);
    assert!(queue.is_empty());
}

#[test]
fn removals_go_first_and_changes_still_have_their_turn() {
    let table = table();
    let (queue, mut reader) = LookQueue::new();
    let hand_over = |accepted| assert_eq!(table.hand_over(accepted, &queue), Pushed::Queued);
    let changes: Vec<_> = (0..4).map(|port| add(&table, port)).collect();
    let old: Vec<_> = (10..17).map(|port| add(&table, port)).collect();
    changes.iter().for_each(|accepted| hand_over(*accepted));
    for accepted in &old {
        hand_over(table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap());
    }
    let taken: Vec<_> = std::iter::from_fn(|| table.take(&mut reader)).collect();
    let (c, r) = (|n: usize| changes[n].flow, |n: usize| old[n].flow);
    assert_eq!(taken, [r(0), r(1), r(2), c(0), r(3), r(4), r(5), c(1), r(6), c(2), c(3)]);
}

#[test]
fn what_is_tried_again_goes_after_what_is_new_and_still_has_its_turn() {
    let table = table();
    let (queue, mut reader) = LookQueue::new();
    let tried: Vec<_> = (0..3).map(|port| Accepted { lane: Lane::Retry, ..add(&table, port) }).collect();
    let new: Vec<_> = (10..27).map(|port| add(&table, port)).collect();
    for accepted in tried.iter().chain(&new) {
        assert_eq!(table.hand_over(*accepted, &queue), Pushed::Queued);
    }
    let taken: Vec<_> = std::iter::from_fn(|| table.take(&mut reader)).collect();
    let (first, rest) = new.split_at(LookQueue::CHANGES_IN_A_ROW as usize);
    let expected: Vec<_> = first.iter().chain(&tried[..1]).chain(rest).chain(&tried[1..]).map(|one| one.flow).collect();
    assert_eq!(taken, expected);
}

#[test]
fn a_reader_that_sleeps_is_woken_by_the_first_caller_alone() {
    let table = table();
    let (queue, mut reader) = LookQueue::new();
    assert!(reader.fall_asleep());
    assert_eq!(table.hand_over(add(&table, 1), &queue), Pushed::ReaderSleeps);
    assert_eq!(table.hand_over(add(&table, 2), &queue), Pushed::Queued);
    reader.wake_up();
    assert!(!reader.fall_asleep(), "there is work");
    assert!(table.take(&mut reader).is_some() && table.take(&mut reader).is_some());
    assert!(reader.fall_asleep());
    reader.wake_up();
    assert_eq!(table.hand_over(add(&table, 3), &queue), Pushed::Queued, "it is awake by itself");
}

#[test]
fn with_four_callers_at_once_every_flow_ends_as_it_was_last_wanted() {
    const CALLERS: u32 = 4;
    const FLOWS: u32 = 8;
    const CHANGES: u32 = 3000;
    let table = table();
    let (queue, mut reader) = LookQueue::new();
    let flows: Vec<_> = (0..FLOWS).map(|port| add(&table, port).flow).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (table, queue, flows, is_over) = (&table, &queue, &flows, &is_over);
        let worker = scope.spawn(move || worker_until(table, &mut reader, is_over));
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let waker = worker.thread().clone();
                scope.spawn(move || {
                    for change in 0..CHANGES {
                        let port = (change * 7 + caller) % FLOWS;
                        let wanted = flow(port, 2 + change % 5);
                        let accepted = table.modify(flows[port as usize], wanted, false, NOW, None).unwrap();
                        if table.hand_over(accepted, queue) == Pushed::ReaderSleeps {
                            waker.unpark();
                        }
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        worker.thread().unpark();
    });
    assert_eq!(table.census().unsettled(), 0, "every change has an outcome");
    assert_eq!(table.census().in_state(FlowState::Offloaded), FLOWS as usize);
}

/// Works until there is nothing left and nothing more comes. Who is not woken never ends.
fn worker_until(table: &FlowTable, reader: &mut Reader, is_over: &AtomicBool) {
    loop {
        while let Some(id) = table.take(reader) {
            work(table, id);
        }
        if !reader.fall_asleep() {
            thread::yield_now();
            continue;
        }
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        thread::park();
        reader.wake_up();
    }
}
