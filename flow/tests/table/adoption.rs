//! Rules of an earlier run, and rules that are made anew.

use sluice_flow::backend::InstalledRule;

use super::*;

/// A rule in the device, which counts from here on.
pub(crate) fn found(flow: Flow) -> InstalledRule {
    InstalledRule { handle: Handle(9), flow, is_named: true, rules: 1, placement: Placement::Both, is_current: true }
}

fn restored(table: &FlowTable, flow: &Flow) -> FlowId {
    table.restore(flow.clone(), Timestamp(0), NOW).unwrap().flow
}

#[test]
fn what_is_wanted_under_a_ufid_is_the_flow_as_it_was_last_changed_until_its_end() {
    let (table, _) = table(10, 10);
    let id = table.add(flow(Some(7), 1, 2), NOW, None).unwrap().flow;
    assert_eq!(table.wanted(Ufid(7)), Some(flow(Some(7), 1, 2)));
    table.modify(id, flow(Some(7), 1, 3), true, NOW, None).unwrap();
    assert_eq!(table.wanted(Ufid(7)), Some(flow(Some(7), 1, 3)));
    table.delete(id, EndReason::Deleted, NOW, None).unwrap();
    assert_eq!((table.wanted(Ufid(7)), table.wanted(Ufid(8))), (None, None));
}

#[test]
fn a_rule_of_an_earlier_run_that_is_as_wanted_is_left_alone() {
    let (table, journal) = table(10, 10);
    let wanted = flow(None, 1, 2);
    let id = restored(&table, &wanted);
    let rule = found(flow(None, 1, 2));
    let (adopted, generation) = table.adopt(&rule, NOW).expect("the flow wants it");
    assert_eq!(adopted, id);
    assert_eq!((table.census().unsettled(), table.census().placed(Placement::Both)), (0, 1));
    assert!(matches!(look(&table, id), Look::Nothing));
    let reading = |packets| Reading {
        flow: id,
        installed_as: generation,
        counters: Counters { packets, bytes: 100 * packets, ..Counters::default() },
    };
    assert_eq!(table.apply(&reading(5), AT_ONCE), Applied::Grown, "readings with the generation are the flow's");
    assert_eq!(table.view(id).unwrap().counters.packets, 5);
    assert_eq!(*journal.0.lock(), ["adopted in hardware and software"]);
    assert_eq!(table.adopt(&rule, NOW), None, "a second rule is not the flow's");
}

#[test]
fn an_adopted_rule_is_not_called_idle_before_two_fresh_readings() {
    let (table, _) = table(10, 10);
    let wanted = flow(None, 1, 2);
    let id = restored(&table, &wanted);
    let (_, installed_as) = table.adopt(&found(wanted.clone()), NOW).unwrap();
    let read = |at| {
        let at = Timestamp(at);
        let reading = Reading { flow: id, installed_as, counters: Counters::default() };
        table.apply(&reading, Sampled { earliest: at, latest: at });
        let mut idle = None;
        table.visit_ages(|view| idle = view.idle());
        idle
    };
    assert_eq!(read(NOW.0 + 10), None);
    assert_eq!(read(NOW.0 + 20), Some(std::time::Duration::from_nanos(20)), "counted from the adoption");
}

#[test]
fn a_rule_of_an_earlier_run_that_does_something_else_is_modified_in_place() {
    let (table, journal) = table(10, 10);
    let wanted = flow(None, 1, 2);
    let id = restored(&table, &wanted);
    let (_, generation) = table.adopt(&found(flow(None, 1, 3)), NOW).unwrap();
    assert_eq!(table.view(id).unwrap().state, FlowState::Pending);
    let change = change(&table, id);
    assert!(matches!(&change.operation, Operation::Modify(Handle(9), flow) if *flow == wanted), "{change:?}");
    assert_ne!(change.generation, generation);
    table.complete(&change, in_place(9), NOW);
    assert!(matches!(look(&table, id), Look::Nothing));
    assert_eq!((table.census().unsettled(), table.census().in_state(FlowState::Offloaded)), (0, 1));
    assert_eq!(*journal.0.lock(), ["adopted in hardware and software", "modified in hardware"]);
}

#[test]
fn a_rule_that_matches_something_else_or_that_nobody_wants_is_not_adopted() {
    let (table, journal) = table(10, 10);
    let id = restored(&table, &flow(Some(7), 1, 2));
    assert_eq!(table.adopt(&found(flow(Some(7), 4, 2)), NOW), None, "another match");
    assert_eq!(table.adopt(&found(flow(Some(8), 5, 2)), NOW), None, "no such flow");
    assert!(matches!(change(&table, id).operation, Operation::Install(_)));
    assert!(journal.0.lock().is_empty());
}

#[test]
fn a_rule_whose_ufid_the_device_does_not_tell_is_adopted_by_match_and_priority() {
    let (table, _) = table(10, 10);
    let (own, given) = (flow(None, 1, 2), flow(Some(7), 4, 2));
    let wanted = [&own, &given].map(|flow| restored(&table, flow));
    let unnamed = |port, to| {
        let read = flow(Some(99), port, to);
        InstalledRule { is_named: false, ..found(read) }
    };
    assert_eq!([1, 4].map(|port| table.find_rule(&unnamed(port, 2))), wanted.map(Some));
    assert_eq!(table.adopt(&unnamed(5, 2), NOW), None, "no such flow");
    assert_eq!(table.adopt(&unnamed(1, 2), NOW).map(|(id, _)| id), Some(wanted[0]));
    assert_eq!(table.adopt(&unnamed(1, 2), NOW), None, "it has a rule");
    assert_eq!(table.adopt(&unnamed(4, 3), NOW).map(|(id, _)| id), Some(wanted[1]));
    let change = change(&table, wanted[1]);
    assert!(matches!(&change.operation, Operation::Modify(Handle(9), flow) if *flow == given), "{change:?}");
}

#[test]
fn a_rule_that_is_redone_is_modified_though_nothing_else_is_wanted() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
    assert_eq!(table.redo(accepted.flow, NOW), None, "there is no rule yet");
    install(&table, accepted, 1);
    let again = table.redo(accepted.flow, NOW).expect("there is a rule");
    let change = change(&table, again.flow);
    assert!(matches!(change.operation, Operation::Modify(Handle(1), _)));
    table.complete(&change, in_place(1), NOW);
    assert!(matches!(look(&table, again.flow), Look::Nothing));
    assert_eq!(table.census().unsettled(), 0);
}

#[test]
fn a_rule_that_is_made_anew_is_not_kept_because_an_earlier_modification_asked_to() {
    for is_refused in [true, false] {
        let (table, _) = table(10, 10);
        let accepted = table.add(flow(None, 1, 2), NOW, None).unwrap();
        install(&table, accepted, 1);
        table.modify(accepted.flow, flow(None, 1, 3), true, NOW, None).unwrap();
        let modification = change(&table, accepted.flow);
        table.complete(&modification, if is_refused { Err(no()) } else { in_place(1) }, NOW);
        assert!(matches!(look(&table, accepted.flow), Look::Nothing));

        table.redo(accepted.flow, NOW).expect("there is a rule");
        let again = change(&table, accepted.flow);
        table.complete(&again, Err(no()), NOW);
        let removal = change(&table, accepted.flow);
        assert!(matches!(removal.operation, Operation::Remove(Handle(1))), "{removal:?}");
        table.complete(&removal, Ok(Outcome::Removed { last: None }), NOW);
        assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Refused);
    }
}

#[test]
fn rules_that_name_a_port_are_made_anew_and_those_on_their_way_in_as_well() {
    let (table, _) = table(10, 10);
    let add = |port, to| table.add(flow(None, port, to), NOW, None).unwrap();
    let [by_output, by_input, other, waiting, under_way] =
        [(1, 2), (2, 3), (3, 4), (4, 2), (5, 2)].map(|(port, to)| add(port, to));
    for (accepted, handle) in [(by_output, 1), (by_input, 2), (other, 3)] {
        install(&table, accepted, handle);
    }
    let old = change(&table, under_way.flow);
    let mut again = Vec::new();
    table.redo_where(|flow| flow.names_port(PortNumber(2)), NOW, &mut |accepted| again.push(accepted.flow));
    assert_eq!(
        again,
        [by_output, by_input, under_way].map(|accepted| accepted.flow),
        "nobody has looked at the other yet"
    );
    assert!(matches!(look(&table, under_way.flow), Look::Nothing), "the device is to answer first");
    table.complete(&old, in_place(5), NOW);
    assert!(!table.view(under_way.flow).unwrap().is_settled(), "it may name what is gone");
    for (accepted, handle) in [(by_output, 1), (by_input, 2), (under_way, 5)] {
        let change = change(&table, accepted.flow);
        assert!(matches!(change.operation, Operation::Modify(Handle(old), _) if old == handle), "{change:?}");
        table.complete(&change, in_place(handle), NOW);
        assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    }
    install(&table, waiting, 4);
    assert_eq!(table.census().unsettled(), 0);
}
