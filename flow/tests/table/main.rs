//! The table's contract, told from outside: lives, generations, waiters, limits and the census.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod adoption;
mod chains;
mod expiry;
mod news;
mod retry;
mod waiting;
mod withheld;

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_flow::backend::{Change, Handle, LostRule, Operation, Outcome, Placement};
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::table::{
    Accepted, Applied, Lane, Limits, Look, Settlement, TableError, Unwritten, UnwrittenReader, Waiter,
};
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Action, ActionList, Cause, EndReason, Event, EventSink, Expiry, Field, Flow, FlowId, FlowState, FlowTable,
    MaskedKey, Match, Origin, PortNumber, Priority, Refusal, Timestamp, Ufid, Wish,
};

const SEED: Seed = Seed([1; 16]);
const NOW: Timestamp = Timestamp(1_000);
const AT_ONCE: Sampled = Sampled { earliest: NOW, latest: NOW };

#[derive(Default)]
struct Journal(Mutex<Vec<String>>);

impl EventSink for Journal {
    fn event(&self, event: &Event) {
        let text = event.to_string().replace(&format!(" ufid:{}", event.flow().ufid), "");
        self.0.lock().push(text);
    }
}

/// A log of what is wanted of which output port.
struct Log {
    reader: UnwrittenReader,
    unwritten: Arc<Unwritten>,
}

impl Log {
    /// Keeps a table, with at most so many slots for ends of lives.
    fn of(flows: usize, most_kept: usize) -> (FlowTable, Self) {
        let (unwritten, reader) = Unwritten::new(most_kept, || ());
        let table = FlowTable::new(SEED, Limits { flows, unsettled: flows }, Arc::new(()));
        (table.kept_by(Some(unwritten.clone())), Self { reader, unwritten })
    }

    /// What it has to write now.
    fn write(&mut self, table: &FlowTable) -> Vec<String> {
        let (mut written, mut mark) = (Vec::new(), self.reader.mark());
        while table.write_next(&mut self.reader, &mut mark, |wish| {
            written.push(match wish {
                Wish::Wanted(flow) => format!("wanted {:?}", flow.actions),
                Wish::Withheld(flow, _) => format!("withheld {:?}", flow.actions),
                Wish::Unwanted(_) => "unwanted".to_owned(),
            });
        }) {}
        written
    }
}

#[derive(Default)]
struct Outcomes(Mutex<Vec<Settlement>>);

impl Waiter for Outcomes {
    fn settled(&self, _request: u32, _flow: FlowId, outcome: &Settlement) {
        self.0.lock().push(outcome.clone());
    }
}

fn table(flows: usize, unsettled: usize) -> (FlowTable, Arc<Journal>) {
    let journal = Arc::new(Journal::default());
    (FlowTable::new(SEED, Limits { flows, unsettled }, journal.clone()), journal)
}

fn another_table(flows: usize) -> FlowTable {
    table(flows, flows).0
}

fn flow(ufid: Option<u128>, port: u32, output: u32) -> Flow {
    let mut matching = Match::default();
    matching.set_exact(Field::InPort, u128::from(port));
    let actions = ActionList::from([Action::Output(PortNumber(output))]);
    Flow::new(ufid.map(Ufid), MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

fn look(table: &FlowTable, id: FlowId) -> Look {
    table.look(id)
}

fn change(table: &FlowTable, id: FlowId) -> Change {
    match look(table, id) {
        Look::Change(change) => change,
        other => panic!("expected a change, found {other:?}"),
    }
}

fn in_place(handle: u64) -> Result<Outcome, Refusal> {
    Ok(Outcome::InPlace { handle: Handle(handle), placement: Placement::Hardware })
}

fn complete(table: &FlowTable, change: &Change, result: Option<Result<Outcome, Refusal>>) {
    table.complete(change, result.unwrap_or(Ok(Outcome::Removed { last: None })), NOW);
}

fn no() -> Refusal {
    Refusal::Device { reason: "no".into() }
}

fn install(table: &FlowTable, accepted: Accepted, handle: u64) {
    let change = change(table, accepted.flow);
    table.complete(&change, in_place(handle), NOW);
    assert!(matches!(look(table, accepted.flow), Look::Nothing));
}

/// Flows that are tried again for these causes.
fn retry(table: &FlowTable, causes: &[Cause]) -> Vec<FlowId> {
    let mut again = Vec::new();
    assert_eq!(table.retry(causes, 0, usize::MAX, NOW, &mut |accepted| again.push(accepted.flow)), None);
    again
}

#[test]
fn a_flow_is_accepted_installed_counted_and_deleted() {
    let (table, journal) = table(10, 10);
    let waiter = Arc::new(Outcomes::default());
    let accepted = table.add(flow(None, 1, 2), NOW, Some(waiter.clone().into())).unwrap();
    assert_eq!(accepted.lane, Lane::Change);
    assert_eq!(table.census().in_state(FlowState::Pending), 1);
    install(&table, accepted, 7);
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Offloaded);
    assert_eq!(*waiter.0.lock(), [Settlement::Installed(Placement::Hardware)]);

    let counters = Counters { packets: 3, bytes: 300, ..Counters::default() };
    let reading = Reading { flow: accepted.flow, installed_as: sluice_flow::Generation(1), counters };
    table.apply(&reading, AT_ONCE);
    assert_eq!(table.view(accepted.flow).unwrap().counters.packets, 3);

    table.delete(accepted.flow, EndReason::Deleted, NOW, Some(waiter.clone().into())).unwrap();
    let removal = change(&table, accepted.flow);
    assert!(matches!(removal.operation, Operation::Remove(Handle(7))));
    let last = Some(Counters { packets: 5, bytes: 500, ..Counters::default() });
    table.complete(&removal, Ok(Outcome::Removed { last }), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Retired { .. }));
    assert!(table.view(accepted.flow).is_none());
    assert_eq!(table.census().live(), 0);
    assert_eq!(table.census().unsettled(), 0);
    assert_eq!(
        *journal.0.lock(),
        ["accepted", "installed in hardware", "deleted, deleted, packets:5, bytes:500"],
        "the last counters count"
    );
}

#[test]
fn the_same_match_and_the_same_ufid_exist_once() {
    let (table, _) = table(10, 10);
    table.add(flow(Some(1), 1, 2), NOW, None).unwrap();
    assert_eq!(table.add(flow(Some(1), 3, 2), NOW, None).unwrap_err(), TableError::Exists(Ufid(1)), "same UFID");
    assert_eq!(table.add(flow(Some(9), 1, 2), NOW, None).unwrap_err(), TableError::Exists(Ufid(1)), "same match");
    assert_eq!(table.census().live(), 1, "a request that is turned away changes nothing");
}

#[test]
fn a_ufid_that_the_identity_of_another_flow_yields_belongs_to_whoever_has_it_first() {
    let own = flow(None, 1, 2);
    let given = |output| flow(Some(own.ufid.0), 2, output);
    let retire = |table: &FlowTable, id| {
        table.delete(id, EndReason::Deleted, NOW, None).unwrap();
        assert!(matches!(look(table, id), Look::Retired { .. }));
    };
    for (first, second) in [(own.clone(), given(3)), (given(3), own.clone())] {
        let (table, _) = table(10, 10);
        let accepted = table.add(first.clone(), NOW, None).unwrap();
        assert_eq!(table.add(second.clone(), NOW, None), Err(TableError::Exists(own.ufid)));
        assert_eq!(table.find(own.ufid), Some(accepted.flow));
        // One that is on its way out gives its name to the next.
        table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
        assert_eq!(table.find(own.ufid), None);
        let next = table.add(second, NOW, None).unwrap();
        assert_eq!(table.find(own.ufid), Some(next.flow));
        assert!(matches!(look(&table, accepted.flow), Look::Retired { .. }));
        assert_eq!(table.find(own.ufid), Some(next.flow));
        retire(&table, next.flow);
        assert_eq!(table.find(own.ufid), None);
        table.add(first, NOW, None).unwrap();
    }
}

#[test]
fn superseded_work_vanishes() {
    let (table, _) = table(10, 10);
    let waiter = Arc::new(Outcomes::default());
    let accepted = table.add(flow(None, 1, 2), NOW, Some(waiter.clone().into())).unwrap();
    for output in 3..6 {
        table.modify(accepted.flow, flow(None, 1, output), false, NOW, None).unwrap();
    }
    assert_eq!(*waiter.0.lock(), [Settlement::Superseded]);
    let Operation::Install(wanted) = change(&table, accepted.flow).operation else { panic!("not an install") };
    assert_eq!(*wanted.actions, [Action::Output(PortNumber(5))], "only the last wish reaches the device");
}

#[test]
fn a_late_answer_does_not_change_a_newer_state() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    let first = change(&table, accepted.flow);
    table.modify(accepted.flow, flow(None, 1, 3), false, NOW, None).unwrap();
    assert!(matches!(look(&table, accepted.flow), Look::Nothing), "one change at a time");
    table.complete(&first, in_place(1), NOW);
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Pending);
    let second = change(&table, accepted.flow);
    assert!(matches!(second.operation, Operation::Modify(Handle(1), _)));
    table.complete(&second, in_place(1), NOW);
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Offloaded);
}

#[test]
fn a_refused_modification_takes_the_old_rule_away() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 1);
    let waiter = Arc::new(Outcomes::default());
    table.modify(accepted.flow, flow(None, 1, 3), false, NOW, Some(waiter.clone().into())).unwrap();
    let modification = change(&table, accepted.flow);
    table.complete(&modification, Err(no()), NOW);
    let removal = change(&table, accepted.flow);
    assert!(matches!(removal.operation, Operation::Remove(Handle(1))));
    table.complete(&removal, Ok(Outcome::Removed { last: None }), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Refused);
    assert_eq!(*waiter.0.lock(), [Settlement::Refused(Arc::new(no()))]);
}

#[test]
fn a_refused_modification_keeps_the_old_rule_when_asked_to() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 1);
    let waiter = Arc::new(Outcomes::default());
    table.modify(accepted.flow, flow(None, 1, 3), true, NOW, Some(waiter.clone().into())).unwrap();
    let modification = change(&table, accepted.flow);
    table.complete(&modification, Err(no()), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    let view = table.view(accepted.flow).unwrap();
    assert_eq!(view.state, FlowState::Offloaded);
    assert_eq!(*view.flow.actions, [Action::Output(PortNumber(2))], "what is shown is what the device does");
    assert_eq!(*waiter.0.lock(), [Settlement::Refused(Arc::new(no()))]);
}

#[test]
fn a_refused_add_stays_listed_and_is_tried_again() {
    let (table, journal) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    let install = change(&table, accepted.flow);
    table.complete(&install, Err(no()), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!(table.census().in_state(FlowState::Refused), 1);
    let mut again = Vec::new();
    table.retry(&[Cause::Port(None)], 0, 10, NOW, &mut |accepted| again.push(accepted));
    assert!(again.is_empty(), "only what waits for the cause");
    table.retry(&[Cause::Time], 0, 10, NOW, &mut |accepted| again.push(accepted));
    assert_eq!(again, [Accepted { flow: accepted.flow, lane: Lane::Retry }]);
    let again = change(&table, accepted.flow);
    assert!(matches!(again.operation, Operation::Install(_)));
    table.complete(&again, Err(no()), NOW);
    assert_eq!(*journal.0.lock(), ["accepted", "refused, device: no"], "the same refusal again is no news");
}

#[test]
fn a_ufid_that_comes_again_is_a_new_life_that_waits_for_the_old_one() {
    let (table, journal) = table(10, 10);
    let first = table.add(flow(Some(1), 1, 2), NOW, None).unwrap();
    install(&table, first, 1);
    table.delete(first.flow, EndReason::Deleted, NOW, None).unwrap();
    let second = table.add(flow(Some(1), 1, 3), NOW, None).unwrap();
    assert_ne!(first.flow, second.flow);
    assert_eq!(table.find(Ufid(1)), Some(second.flow));
    assert!(matches!(look(&table, second.flow), Look::Nothing), "the old rule is still in the device");
    let removal = change(&table, first.flow);
    table.complete(&removal, Ok(Outcome::Removed { last: None }), NOW);
    match look(&table, first.flow) {
        Look::Retired { successor, .. } => assert_eq!(successor, Some(second.flow)),
        other => panic!("expected the end of the first life, found {other:?}"),
    }
    install(&table, second, 2);
    let ends = journal.0.lock().iter().filter(|event| event.starts_with("deleted")).count();
    assert_eq!(ends, 1, "the end of a life is told");
}

#[test]
fn limits_turn_new_work_away_but_never_a_deletion() {
    let (table, _) = table(3, 2);
    let first = table.add(flow(None, 1, 2), NOW, None).unwrap();
    let second = table.add(flow(None, 2, 2), NOW, None).unwrap();
    let TableError::Refused(busy) = table.add(flow(None, 3, 2), NOW, None).unwrap_err() else { panic!() };
    assert_eq!(busy.label(), "busy");
    install(&table, first, 1);
    install(&table, second, 2);
    let third = table.add(flow(None, 3, 2), NOW, None).unwrap();
    install(&table, third, 3);
    let TableError::Refused(full) = table.add(flow(None, 4, 2), NOW, None).unwrap_err() else { panic!() };
    assert_eq!(full.label(), "limit");
    for accepted in [first, second, third] {
        table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    }
    assert_eq!(table.census().unsettled(), 3);
    assert_eq!(table.census().live(), 3);
}

#[test]
fn a_removal_that_fails_is_not_repeated_until_the_device_changes() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 1);
    let waiter = Arc::new(Outcomes::default());
    table.delete(accepted.flow, EndReason::Deleted, NOW, Some(waiter.clone().into())).unwrap();
    let removal = change(&table, accepted.flow);
    table.complete(&removal, Err(no()), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Deleting);
    assert_eq!(*waiter.0.lock(), [Settlement::Refused(Arc::new(no()))]);
    assert_eq!(retry(&table, &[Cause::Time]), [accepted.flow]);
    let removal = change(&table, accepted.flow);
    table.complete(&removal, Ok(Outcome::Removed { last: None }), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Retired { .. }));
}

#[test]
fn a_rule_that_the_device_lost_is_put_in_again_and_its_count_goes_on() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 1);
    let reading = |installed_as, packets| Reading {
        flow: accepted.flow,
        installed_as: sluice_flow::Generation(installed_as),
        counters: Counters { packets, ..Counters::default() },
    };
    table.apply(&reading(1, 4), AT_ONCE);
    table.lost(LostRule { flow: accepted.flow, handle: Handle(1) }, NOW).unwrap();
    install(&table, accepted, 2);
    assert_eq!(table.view(accepted.flow).unwrap().counters.packets, 4);
}

#[test]
fn a_rule_that_is_lost_before_its_worker_says_that_it_is_there_is_put_in_again() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    let installation = change(&table, accepted.flow);
    assert_eq!(table.lost(LostRule { flow: accepted.flow, handle: Handle(1) }, NOW), None, "the worker looks anyway");
    let outcome = Outcome::InPlace { handle: Handle(1), placement: Placement::Hardware };
    table.complete(&installation, Ok(outcome), NOW);
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Install(_)));
}

#[test]
fn a_rule_is_not_taken_for_another_that_was_lost_before() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 2);
    assert_eq!(table.lost(LostRule { flow: accepted.flow, handle: Handle(1) }, NOW), None);
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Offloaded);
}

#[test]
fn a_reading_of_an_earlier_life_counts_for_nobody() {
    let (table, _) = table(10, 10);
    let first = table.add(flow(Some(1), 1, 2), NOW, None).unwrap();
    table.delete(first.flow, EndReason::Deleted, NOW, None).unwrap();
    assert!(matches!(look(&table, first.flow), Look::Retired { .. }));
    let second = table.add(flow(Some(1), 1, 2), NOW, None).unwrap();
    assert_eq!(second.flow.slot, first.flow.slot);
    install(&table, second, 7);
    let counters = Counters { packets: 4, bytes: 400, ..Counters::default() };
    let late = Reading { flow: first.flow, installed_as: sluice_flow::Generation(1), counters };
    assert_eq!(table.apply(&late, AT_ONCE), Applied::Foreign);
    assert_eq!(table.view(second.flow).unwrap().counters, Counters::default());
}

#[test]
fn slots_are_used_again() {
    let (table, _) = table(1_000, 1_000);
    let mut highest = 0;
    for _ in 0..100 {
        let all: Vec<_> = (0..1_000).map(|port| table.add(flow(None, port, 2), NOW, None).unwrap()).collect();
        for accepted in all {
            install(&table, accepted, 7);
            table.delete(accepted.flow, EndReason::Flushed, NOW, None).unwrap();
            let removal = change(&table, accepted.flow);
            table.complete(&removal, Ok(Outcome::Removed { last: None }), NOW);
            assert!(matches!(look(&table, accepted.flow), Look::Retired { .. }));
            highest = highest.max(accepted.flow.slot);
        }
    }
    assert!(highest < 64 * 256, "slot {highest} was taken though at most 1,000 were in use");
}

#[test]
fn a_rule_that_is_lost_while_it_is_removed_is_counted_once() {
    let (table, journal) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 1);
    let counters = Counters { packets: 4, bytes: 400, ..Counters::default() };
    let reading = Reading { flow: accepted.flow, installed_as: sluice_flow::Generation(1), counters };
    table.apply(&reading, AT_ONCE);
    table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    let removal = change(&table, accepted.flow);
    table.lost(LostRule { flow: accepted.flow, handle: Handle(1) }, NOW);
    table.complete(&removal, Ok(Outcome::Removed { last: Some(counters) }), NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Retired { .. }));
    assert_eq!(journal.0.lock().last().unwrap(), "deleted, deleted, packets:4, bytes:400");
}

/// Masks and lists of actions that are in use.
fn shared(table: &FlowTable) -> (usize, usize) {
    (table.parts().masks(), table.parts().action_lists())
}

#[test]
fn equal_masks_and_actions_are_kept_once_and_given_back() {
    let (table, _) = table(2_000, 2_000);
    let all: Vec<_> = (0..1_000).map(|port| table.add(flow(None, port, 2), NOW, None).unwrap()).collect();
    assert_eq!(shared(&table), (1, 1));
    let other = another_table(1);
    other.add(table.view(all[0].flow).unwrap().flow, NOW, None).unwrap();
    assert_eq!(shared(&other), (1, 1), "whoever else keeps them");
    drop(other);
    for accepted in all {
        table.delete(accepted.flow, EndReason::Flushed, NOW, None).unwrap();
        assert!(matches!(look(&table, accepted.flow), Look::Retired { .. }));
    }
    assert_eq!(shared(&table), (0, 0));
}

#[test]
fn a_log_has_every_change_to_what_is_wanted_in_order() {
    let (table, mut log) = Log::of(10, 10);
    let wanted = |output: u32| format!("wanted {:?}", [Action::Output(PortNumber(output))]);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    assert_eq!(log.write(&table), [wanted(2)]);
    install(&table, accepted, 7);
    table.modify(accepted.flow, flow(None, 1, 3), true, NOW, None).unwrap();
    assert_eq!(log.write(&table), [wanted(3)]);
    table.complete(&change(&table, accepted.flow), Err(no()), NOW);
    assert_eq!(log.write(&table), [wanted(2)], "a modification that is given up for the old rule is told, too");
    table.delete(accepted.flow, EndReason::Idle, NOW, None).unwrap();
    table.add(flow(None, 1, 4), NOW, None).unwrap();
    assert_eq!(log.write(&table), ["unwanted".to_owned(), wanted(4)]);
    assert!(log.write(&table).is_empty() && log.unwritten.is_empty());
}

#[test]
fn a_flow_of_a_source_is_not_logged_and_only_the_source_changes_it() {
    let (table, mut log) = Log::of(10, 10);
    let of_source = |output| flow(Some(1), 1, output).with_origin(Origin::OpenVswitch);
    let accepted = table.add(of_source(2), NOW, None).unwrap();
    table.add(flow(None, 2, 3), NOW, None).unwrap();
    assert_eq!(log.write(&table), ["wanted [Output(PortNumber(3))]"]);
    let typed = table.modify(accepted.flow, flow(Some(1), 1, 4), false, NOW, None).unwrap_err();
    assert_eq!(typed, TableError::OtherOrigin(Ufid(1), Origin::OpenVswitch));
    assert_eq!(typed.to_string(), format!("flow ufid:{} belongs to Open vSwitch", Ufid(1)));
    table.modify(accepted.flow, of_source(4), false, NOW, None).unwrap();
    table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    assert!(log.write(&table).is_empty());
}

#[test]
fn a_log_that_falls_behind_does_not_outgrow_the_table() {
    const KEPT: usize = 512;
    let (table, mut log) = Log::of(10, KEPT);
    let slots = |table: &FlowTable| {
        let mut slots = 0;
        let last = table.add(flow(None, 1, 2), NOW, None).unwrap();
        slots += last.flow.slot;
        end(table, last);
        slots
    };
    fn end(table: &FlowTable, accepted: Accepted) {
        table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
        assert!(matches!(look(table, accepted.flow), Look::Retired { .. }));
    }
    for change in 0..100 {
        let accepted = table.add(flow(None, 1, change), NOW, None).unwrap();
        table.modify(accepted.flow, flow(None, 1, change + 1), false, NOW, None).unwrap();
        end(&table, accepted);
    }
    assert_eq!(
        (log.unwritten.kept(), log.unwritten.given_up()),
        (100, 0),
        "a life is one record, whatever happened in it"
    );
    assert_eq!(log.write(&table), vec!["unwanted"; 100]);
    assert_eq!(log.unwritten.kept(), 0);
    let most = (0..10_000).map(|_| slots(&table)).max().unwrap();
    assert!((most as usize) < 10 * KEPT, "slot {most} is used");
    assert!(log.unwritten.kept() == KEPT && log.unwritten.given_up() >= 10_000 - KEPT);
    log.write(&table);
    let before = log.unwritten.given_up();
    for _ in 0..KEPT {
        slots(&table);
    }
    assert_eq!(log.unwritten.given_up(), before, "slots are free again");
}

#[test]
fn a_flow_of_an_earlier_run_is_taken_on_past_the_limits_and_as_old_as_it_is() {
    let (table, mut log) = Log::of(1, 1);
    let first = table.restore(flow(Some(5), 1, 2), Timestamp(10), NOW).unwrap();
    table.restore(flow(None, 2, 2), Timestamp(20), NOW).unwrap();
    assert_eq!((table.census().live(), table.census().unsettled()), (2, 2));
    assert_eq!(table.view(first.flow).unwrap().accepted, Timestamp(10));
    assert_eq!(table.restore(flow(Some(6), 1, 2), NOW, NOW).unwrap_err(), TableError::Exists(Ufid(5)));
    assert!(matches!(table.add(flow(None, 3, 2), NOW, None), Err(TableError::Refused(Refusal::Limit { .. }))));
    assert!(log.write(&table).is_empty(), "nothing new is wanted");
    install(&table, first, 7);
}

#[test]
fn slots_are_used_again_whichever_flows_come_and_go() {
    const FLOWS: usize = 2_000;
    let (table, _) = table(FLOWS + 1, FLOWS + 1);
    let mut there = std::collections::VecDeque::new();
    let mut slots = 0;
    for port in 0..50_000 {
        let accepted = table.add(flow(None, port, 2), NOW, None).unwrap();
        slots = slots.max(accepted.flow.slot as usize + 1);
        there.push_back(accepted.flow);
        if there.len() > FLOWS {
            let oldest = there.pop_front().unwrap();
            table.delete(oldest, EndReason::Deleted, NOW, None).unwrap();
            assert!(matches!(look(&table, oldest), Look::Retired { .. }));
        }
    }
    assert!(slots < 3 * FLOWS + 500, "{slots} slots for {FLOWS} flows");
}

#[test]
fn a_move_changes_where_the_rule_is_and_nothing_else() {
    let (table, journal) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 7);
    assert_eq!(table.place(accepted.flow, Placement::Hardware), None, "it is there");
    assert_eq!(table.place(accepted.flow, Placement::Software), Some(accepted));
    assert_eq!(table.census().unsettled(), 0, "nobody waits for it");
    let relocation = change(&table, accepted.flow);
    assert!(matches!(relocation.operation, Operation::Move(Handle(7), Placement::Software)));
    let software = Ok(Outcome::InPlace { handle: Handle(8), placement: Placement::Software });
    table.complete(&relocation, software, NOW);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!((table.census().in_state(FlowState::Offloaded), table.census().in_state(FlowState::Partial)), (0, 1));
    let counters = Counters { packets: 3, bytes: 300, ..Counters::default() };
    let reading = Reading { flow: accepted.flow, installed_as: sluice_flow::Generation(1), counters };
    assert_eq!(table.apply(&reading, AT_ONCE), Applied::Grown, "the rule is the same");
    assert_eq!(*journal.0.lock(), ["accepted", "installed in hardware", "moved to software only"]);

    table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Remove(Handle(8))));
}

#[test]
fn what_is_wanted_goes_before_a_move_and_a_move_that_comes_to_nothing_is_over() {
    let (table, journal) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 7);
    table.place(accepted.flow, Placement::Software).unwrap();
    table.modify(accepted.flow, flow(None, 1, 3), false, NOW, None).unwrap();
    let modification = change(&table, accepted.flow);
    assert!(matches!(modification.operation, Operation::Modify(Handle(7), _)));
    table.complete(&modification, in_place(7), NOW);
    for answer in [Err(no()), in_place(7)] {
        table.place(accepted.flow, Placement::Software).unwrap();
        let relocation = change(&table, accepted.flow);
        assert!(matches!(relocation.operation, Operation::Move(..)));
        table.complete(&relocation, answer, NOW);
        assert!(matches!(look(&table, accepted.flow), Look::Nothing), "it is not tried again by itself");
    }
    assert_eq!(table.census().unsettled(), 0);
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Offloaded, "the flow is not refused");
    assert_eq!(table.view(accepted.flow).unwrap().refusal, None);
    let told = journal.0.lock().split_off(2);
    assert_eq!(told, ["accepted", "modified in hardware", "refused, device: no"]);

    table.place(accepted.flow, Placement::Software).unwrap();
    table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Remove(_)), "nobody moves what goes");
    assert_eq!(table.place(accepted.flow, Placement::Software), None);
}
