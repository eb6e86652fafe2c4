//! Flows whose ports are gone.

use sluice_flow::backend::{Handle, Operation};
use sluice_flow::port::GonePort;
use sluice_flow::table::{Accepted, Look};
use sluice_flow::{Cause, FlowState, FlowTable, PortNumber, Refusal, Timestamp};

use super::{change, complete, flow, in_place, install, look, no, table};

fn gone(number: u32, name: &str) -> GonePort {
    GonePort { number: PortNumber(number), name: name.parse().unwrap() }
}

fn collect(walk: impl FnOnce(&mut dyn FnMut(Accepted)) -> usize) -> Vec<Accepted> {
    let mut all = Vec::new();
    let count = walk(&mut |accepted| all.push(accepted));
    assert_eq!(count, all.len());
    all
}

fn withhold(table: &FlowTable, port: &GonePort) -> Vec<Accepted> {
    collect(|enqueue| table.withhold(port, Timestamp(5), enqueue))
}

fn release(table: &FlowTable, port: &GonePort) -> Vec<Accepted> {
    collect(|enqueue| table.release(|gone| gone == port, Timestamp(6), enqueue))
}

#[test]
fn a_flow_whose_port_is_gone_is_refused_until_that_port_is_back() {
    let (table, _) = table(10, 10);
    let to_two = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    let elsewhere = table.add(flow(None, 3, 4), Timestamp(1), None).unwrap();
    install(&table, to_two, 7);
    install(&table, elsewhere, 8);

    let old = gone(2, "old");
    assert_eq!(withhold(&table, &old).iter().map(|accepted| accepted.flow).collect::<Vec<_>>(), [to_two.flow]);
    let removal = change(&table, to_two.flow);
    complete(&table, &removal, None);
    assert!(matches!(look(&table, to_two.flow), Look::Nothing));
    let view = table.view(to_two.flow).unwrap();
    assert_eq!((view.state, view.handle), (FlowState::Refused, None));
    assert_eq!(view.refusal.unwrap().to_string(), "port 2: old, for which the flow was accepted, is gone");
    assert_eq!(table.withheld(), [(old.clone(), 1)]);
    assert_eq!(table.census().unsettled(), 0);
    assert_eq!(table.view(elsewhere.flow).unwrap().state, FlowState::Offloaded);

    // Another port of the number is another port, and whatever else happens is no reason to ask the device.
    assert!(release(&table, &gone(2, "new")).is_empty());
    assert!(withhold(&table, &gone(2, "new")).is_empty(), "it is bound to the first one");
    let port = Cause::Port(Some(PortNumber(2)));
    assert_eq!(table.retry(&[port], 0, 10, Timestamp(6), &mut |_| panic!("tried again")), None);
    assert!(matches!(look(&table, to_two.flow), Look::Nothing));

    assert_eq!(release(&table, &old).len(), 1);
    complete(&table, &change(&table, to_two.flow), Some(in_place(9)));
    assert!(matches!(look(&table, to_two.flow), Look::Nothing));
    let view = table.view(to_two.flow).unwrap();
    assert_eq!((view.state, view.refusal), (FlowState::Offloaded, None));
    assert!(table.withheld().is_empty());
}

#[test]
fn a_flow_that_is_modified_is_accepted_for_the_port_that_has_the_number_now() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    install(&table, accepted, 7);
    withhold(&table, &gone(1, "old"));
    complete(&table, &change(&table, accepted.flow), None);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));

    table.modify(accepted.flow, flow(None, 1, 3), false, Timestamp(7), None).unwrap();
    complete(&table, &change(&table, accepted.flow), Some(in_place(8)));
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Offloaded);
    assert!(release(&table, &gone(1, "old")).is_empty());
}

#[test]
fn a_flow_waits_for_all_of_its_ports() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    withhold(&table, &gone(1, "a"));
    withhold(&table, &gone(2, "b"));
    assert!(matches!(look(&table, accepted.flow), Look::Nothing), "it never was in the device");
    assert_eq!(table.withheld(), [(gone(1, "a"), 1), (gone(2, "b"), 1)]);
    release(&table, &gone(1, "a"));
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    let expected = Refusal::PortGone { number: PortNumber(2), name: "b".parse().unwrap() };
    assert_eq!(*table.view(accepted.flow).unwrap().refusal.unwrap(), expected);
    release(&table, &gone(2, "b"));
    assert!(matches!(look(&table, accepted.flow), Look::Change(_)));
}

#[test]
fn a_rule_that_the_device_takes_while_its_port_goes_is_taken_out_again() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    let late = change(&table, accepted.flow);
    withhold(&table, &gone(2, "old"));
    complete(&table, &late, Some(in_place(7)));
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Pending, "never said to be offloaded");
    complete(&table, &change(&table, accepted.flow), None);
    assert_eq!(table.view(accepted.flow).unwrap().state, FlowState::Refused);
}

#[test]
fn a_refused_modification_does_not_go_back_to_a_rule_that_names_a_port_that_went_meanwhile() {
    // Of the old rule, and of neither rule.
    for (port, stays) in [(2, false), (9, true)] {
        let (table, _) = table(10, 10);
        let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
        install(&table, accepted, 7);
        table.modify(accepted.flow, flow(None, 1, 3), true, Timestamp(2), None).unwrap();
        assert!(withhold(&table, &gone(port, "old")).is_empty(), "what is wanted does not name it");
        complete(&table, &change(&table, accepted.flow), Some(Err(no())));
        if !stays {
            let removal = change(&table, accepted.flow);
            assert!(matches!(removal.operation, Operation::Remove(Handle(7))));
            complete(&table, &removal, None);
        }
        assert!(matches!(look(&table, accepted.flow), Look::Nothing));
        let state = table.view(accepted.flow).unwrap().state;
        assert_eq!(state, if stays { FlowState::Offloaded } else { FlowState::Refused });
    }
}

#[test]
fn a_refused_modification_of_a_withheld_flow_does_not_go_back_to_its_old_rule() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    install(&table, accepted, 7);
    withhold(&table, &gone(2, "old"));
    for output in [3, 4] {
        table.modify(accepted.flow, flow(None, 1, output), true, Timestamp(6), None).unwrap();
    }
    complete(&table, &change(&table, accepted.flow), Some(Err(no())));
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Remove(Handle(7))));
}

#[test]
fn a_rule_that_the_device_took_after_its_port_went_is_not_gone_back_to() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    let late = change(&table, accepted.flow);
    table.modify(accepted.flow, flow(None, 1, 3), true, Timestamp(2), None).unwrap();
    assert!(withhold(&table, &gone(2, "old")).is_empty(), "what is wanted does not name it");
    complete(&table, &late, Some(in_place(7)));
    complete(&table, &change(&table, accepted.flow), Some(Err(no())));
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Remove(Handle(7))));
}

#[test]
fn ports_that_are_back_at_the_same_time_have_a_flow_looked_at_once() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    let ports = [gone(1, "one"), gone(2, "two")];
    ports.iter().for_each(|port| assert_eq!(withhold(&table, port), [accepted]));
    let back = collect(|enqueue| table.release(|gone| ports.contains(gone), Timestamp(6), enqueue));
    assert_eq!(back, [accepted]);
    assert!(matches!(change(&table, accepted.flow).operation, Operation::Install(_)));
}
