//! Flows in chains: who waits for whom, what is refused, and that nothing stays behind.

use proptest::prelude::*;
use sluice_flow::ChainId;
use sluice_flow::port::GonePort;
use sluice_flow::table::{Completed, Freed};

use super::*;

/// A flow of a chain that jumps to these.
fn jumping(chain: u32, port: u32, to: &[u32]) -> Flow {
    let mut matching = Match::default();
    matching.set_exact(Field::InPort, port.into());
    matching.set_exact(Field::RecircId, chain.into());
    let actions: ActionList = to.iter().map(|chain| Action::Recirc(ChainId(*chain))).collect();
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

fn add(table: &FlowTable, flow: Flow) -> FlowId {
    table.add(flow, NOW, None).unwrap().flow
}

fn complete(table: &FlowTable, id: FlowId, result: Result<Outcome, Refusal>) -> Freed {
    let Completed { freed, .. } = table.complete(&change(table, id), result, NOW);
    freed
}

fn put_in(table: &FlowTable, id: FlowId) -> Freed {
    let freed = complete(table, id, in_place(id.slot.into()));
    assert!(matches!(look(table, id), Look::Nothing));
    freed
}

fn delete(table: &FlowTable, id: FlowId) {
    table.delete(id, EndReason::Deleted, NOW, None).unwrap();
}

fn retired(table: &FlowTable, id: FlowId) -> Freed {
    match look(table, id) {
        Look::Retired { freed, .. } => freed,
        other => panic!("expected its end, found {other:?}"),
    }
}

fn rested(table: &FlowTable, id: FlowId) -> Freed {
    match look(table, id) {
        Look::Freed(freed) => freed,
        other => panic!("expected that others may go on, found {other:?}"),
    }
}

fn gone(number: u32) -> GonePort {
    GonePort { number: PortNumber(number), name: "gone".parse().unwrap() }
}

fn frees(flows: &[FlowId], chains: &[u32]) -> Freed {
    Freed { flows: flows.to_vec(), chains: chains.iter().copied().map(ChainId).collect() }
}

fn refusal(table: &FlowTable, flow: Flow) -> String {
    table.add(flow, NOW, None).unwrap_err().to_string()
}

/// The chains are as if there had never been any.
fn assert_empty(table: &FlowTable) {
    for chain in 0..20 {
        let id = ChainId(chain);
        assert_eq!((table.chain_level(id), table.is_chain_held(id)), (0, false), "chain {chain}");
    }
    // Nothing is in the way of what would close a cycle with anything that was.
    let around: Vec<_> = (1..10).map(|chain| add(table, jumping(chain + 1, 99, &[chain]))).collect();
    around.iter().for_each(|id| delete(table, *id));
    around.iter().for_each(|id| drop(retired(table, *id)));
}

#[test]
fn a_parent_goes_in_after_the_children_before_it_and_out_before_them() {
    let (table, _) = table(100, 100);
    let child = add(&table, jumping(5, 1, &[]));
    let refused = add(&table, jumping(5, 2, &[]));
    let parent = add(&table, jumping(0, 1, &[5]));
    let later = add(&table, jumping(5, 3, &[]));
    assert!(matches!(look(&table, parent), Look::Held));
    assert_eq!(put_in(&table, child), frees(&[], &[]));
    assert!(matches!(look(&table, parent), Look::Held));
    assert_eq!(complete(&table, refused, Err(no())), frees(&[parent], &[]), "the device has had its say");
    assert!(!table.is_chain_held(ChainId(5)));
    put_in(&table, parent);
    assert!(table.is_chain_held(ChainId(5)));
    put_in(&table, later);

    [parent, child].iter().for_each(|id| delete(&table, *id));
    assert!(matches!(look(&table, child), Look::Held));
    assert_eq!(complete(&table, parent, Ok(Outcome::Removed { last: None })), frees(&[child], &[5]));
    assert_eq!(retired(&table, parent), Freed::default());
    complete(&table, child, Ok(Outcome::Removed { last: None }));
    retired(&table, child);
    [refused, later].iter().for_each(|id| delete(&table, *id));
    retired(&table, refused);
    complete(&table, later, Ok(Outcome::Removed { last: None }));
    retired(&table, later);
    assert_empty(&table);
}

#[test]
fn a_child_goes_out_after_a_parent_that_was_modified_to_jump_elsewhere_before() {
    let (table, _) = table(100, 100);
    let [child, parent] = [jumping(5, 1, &[]), jumping(0, 1, &[5])].map(|flow| add(&table, flow));
    [child, parent].iter().for_each(|id| drop(put_in(&table, *id)));
    let other = add(&table, jumping(6, 1, &[]));
    table.modify(parent, jumping(0, 1, &[6]), false, NOW, None).unwrap();
    delete(&table, child);
    for waiting in [child, parent] {
        assert!(matches!(look(&table, waiting), Look::Held), "packets still come here, and cannot go there yet");
    }
    assert_eq!(put_in(&table, other), frees(&[parent], &[]));
    assert!(matches!(look(&table, child), Look::Held));
    assert_eq!(put_in(&table, parent), frees(&[child], &[5]));
    complete(&table, child, Ok(Outcome::Removed { last: None }));
    retired(&table, child);
}

#[test]
fn a_child_does_not_wait_for_a_parent_that_is_to_jump_to_it_again() {
    let (table, _) = table(100, 100);
    let [child, parent] = [jumping(5, 1, &[]), jumping(0, 1, &[5])].map(|flow| add(&table, flow));
    [child, parent].iter().for_each(|id| drop(put_in(&table, *id)));
    table.modify(parent, jumping(0, 1, &[6]), true, NOW, None).unwrap();
    delete(&table, child);
    assert!(matches!(look(&table, child), Look::Held));
    assert_eq!(complete(&table, parent, Err(no())), frees(&[child], &[6]), "the old rule stays, as the caller asked");
    complete(&table, child, Ok(Outcome::Removed { last: None }));
    retired(&table, child);
}

#[test]
fn a_child_does_not_wait_for_a_parent_whose_rule_the_device_has_lost() {
    let (table, _) = table(100, 100);
    let [child, parent] = [jumping(5, 1, &[]), jumping(0, 2, &[5])].map(|flow| add(&table, flow));
    [child, parent].iter().for_each(|id| drop(put_in(&table, *id)));
    table.modify(parent, jumping(0, 2, &[6]), false, NOW, None).unwrap();
    delete(&table, child);
    assert!(matches!(look(&table, child), Look::Held));
    table.lost(LostRule { flow: parent, handle: Handle(parent.slot.into()) }, NOW).unwrap();
    table.withhold(&gone(2), NOW, &mut |_| ());
    assert_eq!(rested(&table, parent), frees(&[child], &[5]));
    complete(&table, child, Ok(Outcome::Removed { last: None }));
    retired(&table, child);
}

#[test]
fn who_would_wait_for_each_other_in_a_circle_go_on_one_after_the_other() {
    let (table, _) = table(100, 100);
    let [old, parent] = [jumping(5, 1, &[]), jumping(0, 1, &[5])].map(|flow| add(&table, flow));
    [old, parent].iter().for_each(|id| drop(put_in(&table, *id)));
    let other = add(&table, jumping(6, 1, &[]));
    table.modify(parent, jumping(0, 1, &[6]), false, NOW, None).unwrap();
    delete(&table, old);
    let new = add(&table, jumping(5, 1, &[]));
    table.modify(other, jumping(6, 1, &[5]), false, NOW, None).unwrap();
    assert!(matches!(look(&table, parent), Look::Held), "for the other");
    assert!(matches!(look(&table, old), Look::Held), "for the parent");
    assert!(matches!(look(&table, new), Look::Nothing), "the old one is still there");
    assert_eq!(rested(&table, other), frees(&[parent, other], &[]), "for it would wait for the new one");
    assert!(matches!(look(&table, other), Look::Held), "for the new one");
    assert_eq!(put_in(&table, parent), frees(&[old], &[5]));
    complete(&table, old, Ok(Outcome::Removed { last: None }));
    retired(&table, old);
    assert_eq!(put_in(&table, new), frees(&[other], &[]));
    put_in(&table, other);
}

/// What callers ask for, and which of the flows that are to be looked at has its turn.
#[derive(Clone, Debug)]
enum Happening {
    /// The flow of a chain with this port is to jump to these chains: it is added, or modified.
    Want(u32, u32, Vec<u32>),
    /// The flow of a chain with this port is deleted.
    Unwant(u32, u32),
    /// One of those that wait for their turn is looked at.
    Turn(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    let name = || (0..4_u32, 1..3_u32);
    let jumps = prop::collection::vec(1..4_u32, 0..3);
    prop_oneof![
        3 => (name(), jumps).prop_map(|((chain, port), jumps)| Happening::Want(chain, port, jumps)),
        2 => name().prop_map(|(chain, port)| Happening::Unwant(chain, port)),
        4 => (0..100_usize).prop_map(Happening::Turn),
    ]
}

/// A worker that looks at flows in any order, and a device that takes everything at once.
struct AnyOrder<'t> {
    table: &'t FlowTable,
    to_look_at: Vec<FlowId>,
}

impl AnyOrder<'_> {
    fn turn(&mut self, number: usize) {
        if self.to_look_at.is_empty() {
            return;
        }
        let id = self.to_look_at.swap_remove(number % self.to_look_at.len());
        match look(self.table, id) {
            Look::Nothing | Look::Held => {}
            Look::Freed(freed) => self.to_look_at.extend(freed.flows),
            Look::Retired { successor, freed, .. } => self.to_look_at.extend(freed.flows.into_iter().chain(successor)),
            Look::Change(change) => {
                let outcome = match &change.operation {
                    Operation::Remove(_) => Ok(Outcome::Removed { last: None }),
                    _ => in_place(id.slot.into()),
                };
                let Completed { freed, .. } = self.table.complete(&change, outcome, NOW);
                self.to_look_at.extend(freed.flows.into_iter().chain([id]));
            }
        }
    }
}

proptest! {
    #[test]
    fn nobody_waits_for_ever(happenings in prop::collection::vec(happening(), 0..80)) {
        let (table, _) = table(100, 100);
        let mut worker = AnyOrder { table: &table, to_look_at: Vec::new() };
        for happening in happenings {
            let accepted = match happening {
                Happening::Want(chain, port, jumps) => {
                    let flow = jumping(chain, port, &jumps);
                    match table.find(flow.ufid) {
                        // Those that would close a cycle are refused.
                        Some(id) => table.modify(id, flow, false, NOW, None).ok(),
                        None => table.add(flow, NOW, None).ok(),
                    }
                }
                Happening::Unwant(chain, port) => {
                    let id = table.find(jumping(chain, port, &[]).ufid);
                    id.and_then(|id| table.delete(id, EndReason::Deleted, NOW, None).ok())
                }
                Happening::Turn(number) => {
                    worker.turn(number);
                    None
                }
            };
            worker.to_look_at.extend(accepted.map(|accepted| accepted.flow));
        }
        while !worker.to_look_at.is_empty() {
            worker.turn(0);
        }
        let census = table.census();
        prop_assert_eq!((census.unsettled(), census.live()), (0, census.in_state(FlowState::Offloaded)));
    }
}

#[test]
fn a_child_that_is_deleted_before_it_was_looked_at_keeps_nobody_waiting() {
    let (table, _) = table(100, 100);
    let child = add(&table, jumping(5, 1, &[]));
    let parent = add(&table, jumping(0, 1, &[5]));
    assert!(matches!(look(&table, parent), Look::Held));
    delete(&table, child);
    assert_eq!(retired(&table, child), frees(&[parent], &[]));
    put_in(&table, parent);
}

#[test]
fn a_child_whose_port_goes_before_it_was_looked_at_keeps_nobody_waiting() {
    let (table, _) = table(100, 100);
    let child = add(&table, jumping(5, 2, &[]));
    let parent = add(&table, jumping(0, 1, &[5]));
    assert!(matches!(look(&table, parent), Look::Held));
    table.withhold(&gone(2), NOW, &mut |_| ());
    assert_eq!(rested(&table, child), frees(&[parent], &[]));
    assert!(matches!(look(&table, child), Look::Nothing));
    put_in(&table, parent);

    table.release(|port| *port == gone(2), NOW, &mut |_| ());
    put_in(&table, child);
    let later = add(&table, jumping(0, 3, &[5]));
    put_in(&table, later);
}

#[test]
fn a_child_that_an_earlier_run_withheld_keeps_nobody_waiting() {
    for child_is_first in [true, false] {
        let (table, _) = table(100, 100);
        let of_child = jumping(5, 2, &[]);
        let child = table.restore(of_child.clone(), NOW, NOW).unwrap().flow;
        let parent = table.restore(jumping(0, 1, &[5]), NOW, NOW).unwrap().flow;
        table.withhold_one(of_child.ufid, vec![gone(2)], NOW);
        if child_is_first {
            assert!(matches!(look(&table, child), Look::Nothing), "nobody waits yet");
        } else {
            assert!(matches!(look(&table, parent), Look::Held));
            assert_eq!(rested(&table, child), frees(&[parent], &[]));
        }
        put_in(&table, parent);
    }
}

#[test]
fn a_child_that_is_withheld_is_waited_for_until_its_predecessor_is_gone() {
    let (table, _) = table(100, 100);
    let first = add(&table, jumping(5, 2, &[]));
    put_in(&table, first);
    delete(&table, first);
    let second = add(&table, jumping(5, 2, &[]));
    table.withhold(&gone(2), NOW, &mut |_| ());
    let parent = add(&table, jumping(0, 1, &[5]));
    assert!(matches!(look(&table, second), Look::Nothing), "the rule of the first is still there");
    assert!(matches!(look(&table, parent), Look::Held));
    complete(&table, first, Ok(Outcome::Removed { last: None }));
    retired(&table, first);
    assert_eq!(rested(&table, second), frees(&[parent], &[]));
    put_in(&table, parent);
}

#[test]
fn a_child_that_comes_again_is_waited_for_until_its_predecessor_is_gone() {
    let (table, _) = table(100, 100);
    let first = add(&table, jumping(5, 1, &[6]));
    put_in(&table, first);
    delete(&table, first);
    let second = add(&table, jumping(5, 1, &[7]));
    let parent = add(&table, jumping(0, 1, &[5]));
    assert!(matches!(look(&table, second), Look::Nothing), "the rule of the first is still there");
    assert!(matches!(look(&table, parent), Look::Held));
    assert_eq!(complete(&table, first, Ok(Outcome::Removed { last: None })), frees(&[], &[6]));
    retired(&table, first);
    assert_eq!((table.is_chain_held(ChainId(7)), table.chain_level(ChainId(6))), (false, 0));
    let install = change(&table, second);
    assert!(table.is_chain_held(ChainId(7)), "from before the device hears of it");
    let Completed { freed, .. } = table.complete(&install, in_place(9), NOW);
    assert_eq!(freed, frees(&[parent], &[]));
}

#[test]
fn where_a_flow_jumps_is_where_it_is_wanted_to_and_where_its_rule_still_does() {
    let (table, _) = table(100, 100);
    let id = add(&table, jumping(1, 1, &[2, 4]));
    put_in(&table, id);
    table.modify(id, jumping(1, 1, &[3, 4]), false, NOW, None).unwrap();
    for back in [2, 3, 4] {
        let told = refusal(&table, jumping(back, 9, &[1]));
        assert!(told.contains("would close a cycle"), "{told}");
    }
    assert_eq!(complete(&table, id, in_place(1)), frees(&[], &[2]));
    let back = add(&table, jumping(2, 9, &[1]));
    delete(&table, back);
    retired(&table, back);
    // A refused modification takes the old rule away, and jumps nowhere but where it is still wanted to.
    table.modify(id, jumping(1, 1, &[5]), false, NOW, None).unwrap();
    complete(&table, id, Err(no()));
    assert_eq!(complete(&table, id, Ok(Outcome::Removed { last: None })), frees(&[], &[3, 4]));
    assert!(refusal(&table, jumping(5, 9, &[1])).contains("would close a cycle"));
    // One that is refused and whose old rule is kept jumps where that does.
    table.modify(id, jumping(1, 1, &[6]), false, NOW, None).unwrap();
    put_in(&table, id);
    table.modify(id, jumping(1, 1, &[7]), true, NOW, None).unwrap();
    complete(&table, id, Err(no()));
    assert_eq!((table.chain_level(ChainId(7)), table.chain_level(ChainId(6))), (0, 1));
    delete(&table, id);
    complete(&table, id, Ok(Outcome::Removed { last: None }));
    retired(&table, id);
    assert_empty(&table);
}

#[test]
fn what_is_turned_away_leaves_nothing_behind() {
    let (table, _) = table(3, 2);
    table.limit_chain_depth(3);
    let root = add(&table, flow(None, 1, 2));
    install(&table, Accepted { flow: root, lane: Lane::Change }, 1);
    let waiting = [2, 3].map(|port| add(&table, flow(None, port, 2)));
    let busy = table.modify(root, jumping(0, 1, &[5]), false, NOW, None).unwrap_err();
    assert_eq!(busy, TableError::OtherMatch(flow(None, 1, 2).ufid), "it says its chain");
    let jump: ActionList = [Action::Recirc(ChainId(5))].into();
    let busy = table.modify(root, flow(None, 1, 2).with_actions(jump), false, NOW, None).unwrap_err();
    assert!(busy.to_string().starts_with("busy"), "{busy}");
    assert!(refusal(&table, jumping(0, 9, &[5])).starts_with("limit"));
    waiting.iter().for_each(|id| delete(&table, *id));
    waiting.iter().for_each(|id| drop(retired(&table, *id)));
    let way = add(&table, jumping(1, 1, &[2]));
    let told = refusal(&table, jumping(2, 9, &[6, 7, 1]));
    assert!(told.contains("would close a cycle"), "{told}");
    let deep = add(&table, jumping(2, 1, &[3]));
    assert_eq!(table.census().unsettled(), 2);
    delete(&table, deep);
    retired(&table, deep);
    let actions: ActionList = [Action::Recirc(ChainId(1))].into();
    let told = table.modify(root, flow(None, 1, 2).with_actions(actions), false, NOW, None);
    assert!(told.is_ok(), "two jumps pass three chains");
    delete(&table, way);
    retired(&table, way);
    put_in(&table, root);
    delete(&table, root);
    complete(&table, root, Ok(Outcome::Removed { last: None }));
    retired(&table, root);
    assert_eq!(table.chain_level(ChainId(1)), 0);
}

#[test]
fn thousands_of_jumps_come_and_go_and_leave_nothing_behind() {
    // 16 layers of 35 chains, each of which leads to all of the two layers below it. Under one lock, with a search for each
    // jump, these took twenty seconds.
    let (table, _) = table(1_000, 1_000);
    table.limit_chain_depth(16);
    let below = |layer: u32| (layer + 1..(layer + 3).min(16)).flat_map(|layer| layer * 35 + 1..(layer + 1) * 35 + 1);
    let flow_of = |chain: u32| jumping(chain + 1, 1, &below(chain / 35).collect::<Vec<_>>());
    let ids: Vec<_> = (0..560).map(|chain| add(&table, flow_of(chain))).collect();
    assert_eq!(table.chain_level(ChainId(560)), 15);
    assert!(refusal(&table, jumping(560, 2, &[600])).contains("too many chains"));
    assert!(refusal(&table, jumping(560, 2, &[1])).contains("would close a cycle"));
    ids.iter().for_each(|id| delete(&table, *id));
    ids.iter().for_each(|id| drop(retired(&table, *id)));
    assert_empty(&table);
}

#[test]
fn a_rule_of_an_earlier_run_holds_open_what_it_jumps_to_until_it_jumps_elsewhere() {
    let (table, _) = table(100, 100);
    let wanted = jumping(1, 1, &[2]);
    let id = table.restore(wanted, NOW, NOW).unwrap().flow;
    let back = table.restore(jumping(3, 1, &[1]), NOW, NOW).unwrap().flow;
    // With what is wanted it would close a cycle.
    let rule = adoption::found(jumping(1, 1, &[3]));
    assert_eq!(table.adopt(&rule, NOW).map(|(id, _)| id), Some(id));
    assert!(table.is_chain_held(ChainId(3)));
    assert!(matches!(look(&table, back), Look::Held), "it is yet to do what is wanted");
    assert_eq!(complete(&table, id, in_place(1)), frees(&[back], &[3]));
    assert!(table.is_chain_held(ChainId(2)));
    put_in(&table, back);
    for id in [id, back] {
        delete(&table, id);
        complete(&table, id, Ok(Outcome::Removed { last: None }));
        retired(&table, id);
    }
    assert_empty(&table);
}
