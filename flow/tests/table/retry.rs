//! Refused flows: which are tried again, how many at a time, and in whose way.

use super::*;

fn refused(table: &FlowTable, port: u32, refusal: Refusal) -> FlowId {
    let accepted = table.add(flow(None, port, 2), NOW, None).unwrap();
    refuse(table, accepted.flow, refusal);
    accepted.flow
}

fn refuse(table: &FlowTable, id: FlowId, refusal: Refusal) {
    table.complete(&change(table, id), Err(refusal), NOW);
    assert!(matches!(look(table, id), Look::Nothing));
}

fn never() -> Refusal {
    Refusal::Field { field: Field::CtState, reason: "no".into() }
}

fn port(number: u32) -> Cause {
    Cause::Port(Some(PortNumber(number)))
}

#[test]
fn only_flows_that_wait_for_the_cause_are_tried_again() {
    let (table, _) = table(1_000, 1_000);
    let absent = |number| Refusal::no_port(PortNumber(number));
    let first = refused(&table, 1, absent(7));
    // In another chunk of the table.
    for port in 1_000..1_300 {
        refused(&table, port, never());
    }
    let second = refused(&table, 2, absent(8));
    let full = refused(&table, 3, Refusal::Limit { what: "rules".into(), limit: 1 }.until(Cause::Room));
    assert!(retry(&table, &[Cause::Meter, port(9)]).is_empty());
    assert_eq!(retry(&table, &[port(7)]), [first]);
    refuse(&table, first, absent(8));
    assert!(retry(&table, &[port(7)]).is_empty());
    let mut both = retry(&table, &[port(8)]);
    both.sort_unstable();
    assert_eq!(both, [first, second], "what one cause passed over still waits for another");
    assert_eq!(retry(&table, &[Cause::Room, Cause::Time]), [full]);
    assert!(retry(&table, &Cause::ALL.map(|(cause, _)| cause)).is_empty(), "what can never change is left alone");
    assert_eq!(table.census().in_state(FlowState::Refused), 300);
}

#[test]
fn a_refusal_that_is_out_of_date_when_the_table_hears_of_it_is_none() {
    const LATER: Timestamp = Timestamp(NOW.0 + 1);
    let (table, journal) = table(10, 10);
    let waiter = Arc::new(Outcomes::default());
    let id = table.add(flow(None, 1, 2), NOW, Some(waiter.clone().into())).unwrap().flow;
    let absent = || Err(Refusal::no_port(PortNumber(7)));
    let first = change(&table, id);
    table.note_change(port(7), LATER);
    assert!(retry(&table, &[port(7)]).is_empty(), "it is in the device's hands");
    table.complete(&first, absent(), LATER);
    let second = change(&table, id);
    assert!(matches!(second.operation, Operation::Install(_)));
    assert!(waiter.0.lock().is_empty(), "who waits for the outcome hears nothing of it");
    // Nothing has changed since.
    table.complete(&second, absent(), LATER);
    assert!(matches!(look(&table, id), Look::Nothing));
    assert!(matches!(waiter.0.lock()[..], [Settlement::Refused(_)]));
    assert_eq!(journal.0.lock().iter().filter(|event| event.starts_with("refused")).count(), 1);
}

#[test]
fn what_changes_while_the_old_rule_of_a_refused_modification_goes_is_not_lost() {
    const LATER: Timestamp = Timestamp(NOW.0 + 1);
    for has_changed in [true, false] {
        let (table, _) = table(10, 10);
        let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
        install(&table, accepted, 1);
        let waiter = Arc::new(Outcomes::default());
        table.modify(accepted.flow, flow(None, 1, 7), false, NOW, Some(waiter.clone().into())).unwrap();
        table.complete(&change(&table, accepted.flow), Err(Refusal::no_port(PortNumber(7))), NOW);
        let removal = change(&table, accepted.flow);
        if has_changed {
            table.note_change(port(7), LATER);
            assert!(retry(&table, &[port(7)]).is_empty(), "it is in the device's hands");
        }
        table.complete(&removal, Ok(Outcome::Removed { last: None }), LATER);
        if has_changed {
            table.complete(&change(&table, accepted.flow), in_place(2), LATER);
        }
        assert!(matches!(look(&table, accepted.flow), Look::Nothing));
        let is_installed = *waiter.0.lock() == [Settlement::Installed(Placement::Hardware)];
        assert_eq!(is_installed, has_changed);
    }
}

#[test]
fn who_waits_hears_of_the_outcome_also_if_the_flow_is_tried_again_before_the_worker_tells() {
    let (table, _) = table(10, 10);
    let waiter = Arc::new(Outcomes::default());
    let id = table.add(flow(None, 1, 2), NOW, Some(waiter.clone().into())).unwrap().flow;
    table.complete(&change(&table, id), Err(no()), NOW);
    assert_eq!(retry(&table, &[Cause::Time]), [id]);
    assert_eq!((table.census().retries(), table.census().unsettled()), (0, 1), "it is counted once");
    assert_eq!(*waiter.0.lock(), [], "nothing has taken its place");
    refuse(&table, id, no());
    assert_eq!(*waiter.0.lock(), [Settlement::Refused(Arc::new(no()))]);
    assert_eq!((table.census().retries(), table.census().unsettled()), (0, 0));
}

#[test]
fn flows_that_are_tried_again_take_no_room_from_new_ones() {
    let (table, _) = table(100, 2);
    let refused: Vec<_> = (0..20).map(|port| refused(&table, port, no())).collect();
    assert_eq!(table.census().unsettled(), 0);
    let mut tried = Vec::new();
    let mut next = table.retry(&[Cause::Time], 0, 8, NOW, &mut |accepted| tried.push(accepted.flow));
    assert_eq!((tried.len(), table.census().retries(), table.census().unsettled()), (8, 8, 0));
    let new = table.add(flow(None, 100, 2), NOW, None).unwrap();
    install(&table, new, 100);
    while let Some(from) = next {
        let before = tried.len();
        for id in tried.drain(..before / 2 + 1) {
            refuse(&table, id, no());
        }
        next = table.retry(&[Cause::Time], from, 8, NOW, &mut |accepted| tried.push(accepted.flow));
        assert!(table.census().retries() <= 8);
    }
    tried.drain(..).for_each(|id| install(&table, Accepted { flow: id, lane: Lane::Retry }, id.slot.into()));
    assert_eq!(table.census().retries(), 0);
    let offloaded = refused.iter().filter(|id| table.view(**id).unwrap().is_settled()).count();
    assert_eq!(offloaded + table.census().in_state(FlowState::Refused), 20, "each was tried once, and none twice");
    assert!(offloaded > 0);
}

#[test]
fn a_flow_that_is_changed_while_it_is_tried_again_is_new_work() {
    let (table, journal) = table(10, 10);
    let id = refused(&table, 1, no());
    assert_eq!(retry(&table, &[Cause::Time]), [id]);
    let changed = table.modify(id, flow(None, 1, 3), false, NOW, None).unwrap();
    assert_eq!((changed.lane, table.census().retries(), table.census().unsettled()), (Lane::Change, 0, 1));
    refuse(&table, id, no());
    let refusals = journal.0.lock().iter().filter(|event| event.starts_with("refused")).count();
    assert_eq!(refusals, 2, "the same refusal of something else is news");
    assert_eq!(retry(&table, &[Cause::Time]), [id]);
    let removal = table.delete(id, EndReason::Deleted, NOW, None).unwrap();
    assert_eq!((removal.lane, table.census().retries()), (Lane::Removal, 0));
    assert!(matches!(look(&table, id), Look::Retired { .. }));
    assert_eq!((table.census().retries(), table.census().unsettled()), (0, 0));
}

/// A flow whose modification the device has refused, and then the removal of the old rule as well.
fn stuck(table: &FlowTable) -> FlowId {
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(table, accepted, 1);
    table.modify(accepted.flow, flow(None, 1, 3), false, NOW, None).unwrap();
    table.complete(&change(table, accepted.flow), Err(no()), NOW);
    refuse(table, accepted.flow, no());
    accepted.flow
}

#[test]
fn a_deletion_asks_the_device_also_if_it_would_not_let_the_rule_go_before() {
    let (table, _) = table(10, 10);
    let id = stuck(&table);
    let waiter = Arc::new(Outcomes::default());
    table.delete(id, EndReason::Deleted, NOW, Some(waiter.clone().into())).unwrap();
    let removal = change(&table, id);
    assert!(matches!(removal.operation, Operation::Remove(Handle(1))));
    complete(&table, &removal, None);
    assert!(matches!(look(&table, id), Look::Retired { .. }));
    assert!(matches!(waiter.0.lock()[..], [Settlement::Deleted(_)]));
}

#[test]
fn a_flow_ends_when_the_rule_goes_by_itself_that_the_device_would_not_let_go() {
    let (table, _) = table(10, 10);
    let id = stuck(&table);
    table.delete(id, EndReason::Deleted, NOW, None).unwrap();
    table.complete(&change(&table, id), Err(no()), NOW);
    assert!(matches!(look(&table, id), Look::Nothing));
    table.lost(LostRule { flow: id, handle: Handle(1) }, NOW).unwrap();
    assert!(matches!(look(&table, id), Look::Retired { .. }));
}

#[test]
fn a_removal_that_fails_holds_nothing_up_that_is_wanted_since() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    install(&table, accepted, 1);
    table.modify(accepted.flow, flow(None, 1, 3), false, NOW, None).unwrap();
    table.complete(&change(&table, accepted.flow), Err(no()), NOW);
    let removal = change(&table, accepted.flow);
    table.modify(accepted.flow, flow(None, 1, 4), false, NOW, None).unwrap();
    table.complete(&removal, Err(no()), NOW);
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Modify(Handle(1), _)));
}
