//! The software NIC remembers what it approved, and so must never approve what it would refuse if it looked anew.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::HashSet;
use std::sync::Arc;

use sluice_flow::backend::{Backend, ChainChange, ChainOperation, Change, Handle, InstallQueue, Operation, Outcome};
use sluice_flow::key::Mask;
use sluice_flow::port::PortNumber;
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{ActionList, ChainId, Expiry, Flow, MaskedKey, Priority, Refusal, text};
use sluice_tests::generate::{self, Profile, collect};
use sluice_tests::world::{SEED, soft_nic};

/// A device with the ports and chains of generated flows, and one install queue.
struct Device {
    nic: Arc<dyn Backend>,
    queue: Box<dyn InstallQueue>,
}

impl Device {
    fn new() -> Self {
        let nic = soft_nic(Arc::new(MonotonicClock::new()));
        generate::ports().iter().for_each(|port| nic.attach_port(port).unwrap());
        let queue = nic.install_queue().unwrap();
        Self { nic, queue }
    }

    fn install(&mut self, flow: &Flow) -> Result<Handle, Refusal> {
        match self.submit(Operation::Install(flow.clone()))? {
            Outcome::InPlace { handle, .. } => Ok(handle),
            other => panic!("{other:?}"),
        }
    }

    fn remove(&mut self, rule: Handle) {
        self.submit(Operation::Remove(rule)).unwrap();
    }

    fn submit(&mut self, operation: Operation) -> Result<Outcome, Refusal> {
        let change = Change { flow: FlowId { slot: 1, incarnation: 1 }, generation: Generation(1), operation };
        let mut done = Vec::new();
        self.queue.submit(&mut vec![change], &mut done);
        done.pop().expect("it answers at once").result
    }
}

fn flow(mask: &Arc<Mask>, matching: &MaskedKey, actions: &ActionList) -> Flow {
    let matching = MaskedKey::under(mask.clone(), &matching.key());
    Flow::new(None, matching, actions.clone(), Priority::default(), Expiry::default(), &SEED)
}

#[test]
fn of_flows_that_share_masks_and_actions_the_same_are_taken_as_of_flows_looked_at_one_by_one() {
    let (sets, _) = collect(&Arc::new(Profile::everything()), 400);
    let (mut taken, mut refused) = (0, 0);
    for set in sets {
        let matches: Vec<_> = set.iter().map(|flow| MaskedKey::new(&flow.matching)).collect();
        let mut device = Device::new();
        for mask in matches.iter().map(MaskedKey::mask) {
            // Jumps are looked at in the light of those of other rules, which one that is not installed has not.
            for actions in
                set.iter().map(|flow| &flow.actions).filter(|actions| sluice_flow::action::jumps(actions).is_empty())
            {
                let (mut seen, mut kept) = (HashSet::new(), None);
                for matching in &matches {
                    let flow = flow(mask, matching, actions);
                    if !seen.insert(MaskedKey::new(&flow.matching().expand())) {
                        continue;
                    }
                    let fresh = device.nic.explain(&flow).map(drop);
                    let installed = device.install(&flow);
                    assert_eq!(installed.clone().map(drop), fresh, "{:?} {:?}", flow.matching(), flow.actions);
                    match installed {
                        Err(_) => refused += 1,
                        // The first stays, so that its approval does.
                        Ok(rule) if kept.is_none() => kept = Some(rule),
                        Ok(rule) => {
                            taken += 1;
                            device.remove(rule);
                        }
                    }
                }
                kept.into_iter().for_each(|rule| device.remove(rule));
            }
        }
    }
    assert!(taken > 500 && refused > 500, "{taken} taken, {refused} refused: little was compared");
}

#[test]
fn an_approval_does_not_outlive_the_ports_that_it_was_given_for() {
    let mut device = Device::new();
    let parsed = |text| MaskedKey::new(&text::parse_key(text, &()).unwrap().matching);
    let [first, second, other] =
        ["in_port(1),skb_mark(1)", "in_port(1),skb_mark(2)", "in_port(3),skb_mark(2)"].map(parsed);
    let actions = text::parse_actions("2", &()).unwrap();
    device.install(&flow(first.mask(), &first, &actions)).unwrap();
    let rule = device.install(&flow(first.mask(), &second, &actions)).unwrap();
    device.remove(rule);

    device.nic.detach_port(PortNumber(3)).unwrap();
    let refusal = device.install(&flow(first.mask(), &other, &actions)).unwrap_err();
    assert_eq!(refusal.to_string(), "port 3: there is no such port");
    device.nic.detach_port(PortNumber(2)).unwrap();
    let refusal = device.install(&flow(first.mask(), &second, &actions)).unwrap_err();
    assert_eq!(refusal.to_string(), "port 2: there is no such port");
}

#[test]
fn an_approval_is_for_one_chain() {
    let mut device = Device::new();
    let change = ChainChange { chain: ChainId(7), operation: ChainOperation::Open };
    device.queue.submit_chain(change, &mut Vec::new());
    let parsed = |text| MaskedKey::new(&text::parse_key(text, &()).unwrap().matching);
    let [root, later] = ["recirc_id(0),in_port(1)", "recirc_id(0x7),in_port(1)"].map(parsed);
    let actions = text::parse_actions("push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),2", &()).unwrap();
    let kept =
        device.install(&flow(root.mask(), &later, &actions)).expect("in a later chain it may have no such header");
    let refusal = device.install(&flow(root.mask(), &root, &actions)).unwrap_err();
    assert_eq!(refusal.label(), "combination", "{refusal}");
    device.remove(kept);
}
