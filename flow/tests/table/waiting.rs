//! Who waits for an outcome, and for how long a flow has waited.

use std::time::Duration;

use sluice_flow::table::ReplyTo;

use super::*;

/// The requests that were settled, in their order.
#[derive(Default)]
struct Requests(Mutex<Vec<(u32, bool)>>);

impl Waiter for Requests {
    fn settled(&self, request: u32, _flow: FlowId, outcome: &Settlement) {
        self.0.lock().push((request, matches!(outcome, Settlement::Installed(_))));
    }
}

#[test]
fn who_waits_hears_of_an_installation_when_the_worker_has_counted_it() {
    let (table, _) = table(10, 10);
    let waiter = Arc::new(Outcomes::default());
    let accepted = table.add(flow(None, 1, 2), NOW, Some(waiter.clone().into())).unwrap();
    let completed = table.complete(&change(&table, accepted.flow), in_place(7), NOW);
    assert_eq!(*waiter.0.lock(), [], "the worker is still at it");
    assert_eq!(table.census().unsettled(), 1);
    assert!(matches!(look(&table, accepted.flow), Look::Nothing));
    assert_eq!(table.census().unsettled(), 0);
    drop(completed);
    assert_eq!(*waiter.0.lock(), [Settlement::Installed(Placement::Hardware)]);
}

#[test]
fn one_waiter_hears_of_each_of_its_requests_by_its_number() {
    let (table, _) = table(10, 10);
    let waiter = Arc::new(Requests::default());
    let reply_to = ReplyTo::from(waiter.clone());
    let [first, second] = [1, 2].map(|request| {
        let reply_to = Some(reply_to.request(request));
        table.add(flow(None, request, 2), NOW, reply_to).unwrap()
    });
    let installation = change(&table, first.flow);
    // The first request is overtaken while the device is at it.
    table.modify(first.flow, flow(None, 1, 3), false, NOW, Some(reply_to.request(3))).unwrap();
    assert_eq!(*waiter.0.lock(), [(1, false)]);
    install(&table, second, 8);
    complete(&table, &installation, Some(in_place(7)));
    complete(&table, &change(&table, first.flow), Some(in_place(7)));
    assert!(matches!(look(&table, first.flow), Look::Nothing));
    assert_eq!(*waiter.0.lock(), [(1, false), (2, true), (3, true)]);
}

#[test]
fn a_flow_of_an_earlier_run_has_waited_since_it_was_restored() {
    let (table, _) = table(10, 10);
    let restored = table.restore(flow(None, 1, 2), Timestamp(0), Timestamp(1_000)).unwrap();
    let added = table.add(flow(None, 2, 2), Timestamp(1_200), None).unwrap();
    for (accepted, nanoseconds) in [(restored, 500), (added, 300)] {
        let change = change(&table, accepted.flow);
        let completed = table.complete(&change, in_place(accepted.flow.slot.into()), Timestamp(1_500));
        assert_eq!(completed.latency, Some(Duration::from_nanos(nanoseconds)));
    }
    assert_eq!(table.view(restored.flow).unwrap().accepted, Timestamp(0), "it is as old as it was");
}
