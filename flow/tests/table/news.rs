//! What is new of the flows of a source since it was last shown.

use super::*;

const OVS: Origin = Origin::OpenVswitch;

fn of(origin: Origin, port: u32) -> Flow {
    flow(None, port, 2).with_origin(origin)
}

/// What a source is shown: the port that each flow matches, how far it has come, and its packets.
fn news(table: &FlowTable, source: Origin) -> Vec<(u128, FlowState, u64)> {
    let mut news = Vec::new();
    table.visit_news(source, &mut |view| {
        let (port, _) = view.flow.matching().get(Field::InPort);
        news.push((port, view.state, view.counters.packets));
    });
    news
}

fn count(table: &FlowTable, flow: FlowId, installed_as: u32, packets: u64) {
    let counters = Counters { packets, bytes: packets * 100, ..Counters::default() };
    table.apply(&Reading { flow, installed_as: sluice_flow::Generation(installed_as), counters }, AT_ONCE);
}

#[test]
fn a_source_is_shown_a_rule_and_what_it_counts_once() {
    let (table, _) = table(10, 10);
    let accepted = table.add(of(OVS, 1), NOW, None).unwrap();
    assert_eq!(news(&table, OVS), [], "nothing has come of it yet");
    install(&table, accepted, 7);
    assert_eq!(news(&table, OVS), [(1, FlowState::Offloaded, 0)]);
    assert_eq!(news(&table, OVS), []);
    count(&table, accepted.flow, 1, 3);
    count(&table, accepted.flow, 1, 5);
    assert_eq!(news(&table, OVS), [(1, FlowState::Offloaded, 5)]);
    count(&table, accepted.flow, 1, 5);
    assert_eq!(news(&table, OVS), [], "no packet has come");
}

#[test]
fn what_is_counted_while_a_flow_is_changed_is_shown_again_with_the_outcome() {
    let (table, _) = table(10, 10);
    let accepted = table.add(of(OVS, 1), NOW, None).unwrap();
    install(&table, accepted, 7);
    news(&table, OVS);
    for (output, result, state) in [(3, in_place(7), FlowState::Offloaded), (4, Err(no()), FlowState::Refused)] {
        let wanted = flow(None, 1, output).with_origin(OVS);
        table.modify(accepted.flow, wanted, false, NOW, None).unwrap();
        let modification = change(&table, accepted.flow);
        assert_eq!(news(&table, OVS), []);
        complete(&table, &modification, Some(result));
        if state == FlowState::Refused {
            // The old rule would forward wrongly, so it goes first.
            let removal = change(&table, accepted.flow);
            complete(&table, &removal, None);
        }
        assert_eq!(news(&table, OVS), [(1, state, 0)]);
    }
}

#[test]
fn a_source_is_shown_a_rule_that_the_device_has_lost_once_it_is_back() {
    let (table, _) = table(10, 10);
    let accepted = table.add(of(OVS, 1), NOW, None).unwrap();
    install(&table, accepted, 7);
    count(&table, accepted.flow, 1, 3);
    news(&table, OVS);
    let again = table.lost(LostRule { flow: accepted.flow, handle: Handle(7) }, NOW).unwrap();
    install(&table, again, 8);
    assert_eq!(news(&table, OVS), [(1, FlowState::Offloaded, 3)]);
}

#[test]
fn each_source_is_shown_its_own_flows_and_no_others_are_followed() {
    let (table, _) = table(10, 10);
    for (port, origin) in (1..).zip([OVS, Origin::Conntrack, Origin::Command]) {
        let accepted = table.add(of(origin, port), NOW, None).unwrap();
        install(&table, accepted, port.into());
    }
    assert_eq!(news(&table, OVS), [(1, FlowState::Offloaded, 0)]);
    assert_eq!(news(&table, Origin::Conntrack), [(2, FlowState::Offloaded, 0)], "it is not lost to the other");
    assert_eq!(news(&table, Origin::Command), []);
}

#[test]
fn flows_that_a_source_wants_are_counted_until_somebody_deletes_them() {
    let (table, _) = table(10, 10);
    let wanted = || table.census().wanted_by(OVS);
    let [first, _] = [1, 2].map(|port| table.add(of(OVS, port), NOW, None).unwrap());
    table.add(of(Origin::Command, 3), NOW, None).unwrap();
    assert_eq!(wanted(), Some(2));
    install(&table, first, 7);
    table.delete(first.flow, EndReason::Deleted, NOW, None).unwrap();
    assert_eq!(wanted(), Some(1), "its rule is still there");
    table.add(of(OVS, 1), NOW, None).unwrap();
    assert_eq!(wanted(), Some(2));
    assert_eq!(table.census().wanted_by(Origin::Command), None);
}

#[test]
fn a_flow_of_a_source_is_not_logged_in_the_slot_of_a_life_whose_end_was_given_up() {
    let (table, mut log) = Log::of(10, 0);
    let typed = table.add(flow(Some(1), 1, 2), NOW, None).unwrap();
    table.delete(typed.flow, EndReason::Deleted, NOW, None).unwrap();
    assert!(matches!(look(&table, typed.flow), Look::Retired { .. }));
    let followed = table.add(flow(Some(2), 2, 3).with_origin(OVS), NOW, None).unwrap();
    assert_eq!(
        (followed.flow.slot, log.unwritten.given_up()),
        (typed.flow.slot, 1),
        "the log is yet to look at the slot"
    );
    assert!(log.write(&table).is_empty(), "the next run would take it for a flow of a command");
}

#[test]
fn flows_of_sources_are_no_part_of_what_a_log_keeps() {
    let (table, _) = table(10, 10);
    let followed = [1, 2].map(|port| table.add(of(OVS, port), NOW, None).unwrap());
    let typed = table.add(of(Origin::Command, 3), NOW, None).unwrap();
    assert_eq!((table.census().live(), table.census().logged()), (3, 1));
    install(&table, followed[0], 7);
    for accepted in [followed[0], typed] {
        table.delete(accepted.flow, EndReason::Deleted, NOW, None).unwrap();
    }
    assert!(matches!(look(&table, typed.flow), Look::Retired { .. }));
    complete(&table, &change(&table, followed[0].flow), None);
    assert!(matches!(look(&table, followed[0].flow), Look::Retired { .. }));
    assert_eq!((table.census().live(), table.census().logged()), (1, 0));
}
