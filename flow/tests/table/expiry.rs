//! Flows that are to go at another time.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::Operation;
use sluice_flow::port::GonePort;
use sluice_flow::table::{Look, ReplyTo, Settlement};
use sluice_flow::{EndReason, Expiry, FlowId, FlowState, FlowTable, PortNumber, Timestamp};

use super::{Log, Outcomes, change, complete, flow, in_place, install, look, no, table};

const IDLE: Expiry = Expiry { idle: Some(Duration::from_secs(10)), hard: None, permanent: false };

fn make_idle(table: &FlowTable, id: FlowId) -> bool {
    table.change_expiry(id, Timestamp(9), |_| Some(IDLE))
}

#[test]
fn a_flow_that_is_to_go_at_another_time_is_otherwise_as_it_was_and_no_worker_looks_at_it() {
    let (table, mut log) = Log::of(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    install(&table, accepted, 7);
    log.write(&table);
    let before = table.view(accepted.flow).unwrap();
    assert!(make_idle(&table, accepted.flow));
    let after = table.view(accepted.flow).unwrap();
    assert_eq!((after.generation, after.state, after.handle), (before.generation, before.state, before.handle));
    assert_eq!((&after.flow.actions, after.flow.expiry), (&before.flow.actions, IDLE));
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!((table.census().unsettled(), log.write(&table).len()), (0, 1));
    let index = table.age(accepted.flow).unwrap().class.index();
    assert_eq!(table.expiries()[index], IDLE);

    assert!(!table.change_expiry(accepted.flow, Timestamp(9), |expiry| (*expiry != IDLE).then_some(IDLE)));
    table.delete(accepted.flow, EndReason::Deleted, Timestamp(9), None).unwrap();
    assert!(!make_idle(&table, accepted.flow), "it is not wanted any more");
}

#[test]
fn whoever_waits_for_other_actions_gets_these_and_the_expiry_stays() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    install(&table, accepted, 7);
    let outcomes = Arc::new(Outcomes::default());
    table.modify(accepted.flow, flow(None, 1, 3), true, Timestamp(2), Some(ReplyTo::from(outcomes.clone()))).unwrap();
    assert!(make_idle(&table, accepted.flow));
    let modification = change(&table, accepted.flow);
    let Operation::Modify(_, wanted) = &modification.operation else { panic!("{modification:?}") };
    assert_eq!((&wanted.actions, wanted.expiry), (&flow(None, 1, 3).actions, IDLE));
    // The old rule is kept, and the time of its end with it.
    complete(&table, &modification, Some(Err(no())));
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    let view = table.view(accepted.flow).unwrap();
    assert_eq!((&view.flow.actions, view.flow.expiry), (&flow(None, 1, 2).actions, IDLE));
    let outcomes = outcomes.0.lock();
    assert!(matches!(outcomes[..], [Settlement::Refused(_)]), "{outcomes:?}");
}

#[test]
fn what_the_device_is_about_to_answer_does_not_bring_the_old_expiry_back() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    let installation = change(&table, accepted.flow);
    assert!(make_idle(&table, accepted.flow));
    complete(&table, &installation, Some(in_place(7)));
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    table.modify(accepted.flow, flow(None, 1, 3).with_expiry(IDLE), true, Timestamp(10), None).unwrap();
    complete(&table, &change(&table, accepted.flow), Some(Err(no())));
    let view = table.view(accepted.flow).unwrap();
    assert_eq!((&view.flow.actions, view.flow.expiry), (&flow(None, 1, 2).actions, IDLE));
}

#[test]
fn a_flow_that_waits_for_its_port_goes_on_waiting_for_it() {
    let (table, _) = table(10, 10);
    let accepted = table.add(flow(None, 1, 2), Timestamp(1), None).unwrap();
    let port = GonePort { number: PortNumber(2), name: "old".parse().unwrap() };
    table.withhold(&port, Timestamp(5), &mut |_| ());
    assert!(make_idle(&table, accepted.flow));
    let view = table.view(accepted.flow).unwrap();
    assert_eq!((view.state, view.gone_ports), (FlowState::Refused, vec![port]));
}
