//! Which rules may have been changed by others: those that others were heard to touch, and all others in turn, because not
//! every change is heard. Each round names a bounded number, however many rules there are.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_flow::backend::{Handle, ToInspect};

use super::ledger::Ledger;

/// At most this many touched rules are named in a round; the others follow in the next.
const MOST_TOUCHED: usize = 4096;
/// Slots of the ledger whose rules have their turn in a round.
const IN_TURN: u32 = 128;
/// The same while all rules should be looked at soon.
const IN_HASTE: u32 = 4096;

/// What is to be looked at.
#[derive(Default)]
pub(super) struct Doubts {
    rules: Mutex<Rules>,
    /// Somebody else may have changed meters.
    meters: AtomicBool,
    /// Mirrors are to be checked once more: the kernel announces a deletion just before it does it.
    mirrors: AtomicBool,
}

#[derive(Default)]
struct Rules {
    touched: BTreeSet<Handle>,
    /// The slot of the ledger that has its turn next.
    next: u32,
    /// The number of slots that are still to be looked at in haste.
    in_haste: u32,
}

impl Doubts {
    /// Somebody else touched a rule.
    pub(super) fn about(&self, rule: Handle) {
        self.rules.lock().touched.insert(rule);
    }

    /// Somebody else may have touched any rule.
    pub(super) fn about_all(&self, ledger: &Ledger) {
        self.rules.lock().in_haste = ledger.slot_count();
    }

    /// Somebody else may have touched meters.
    pub(super) fn about_meters(&self) {
        self.meters.store(true, Ordering::Relaxed);
    }

    /// Somebody else may have touched mirrors.
    pub(super) fn about_mirrors(&self) {
        self.mirrors.store(true, Ordering::Relaxed);
    }

    /// Whether meters were in doubt; clears the doubt.
    pub(super) fn take_meters(&self) -> bool {
        self.meters.swap(false, Ordering::Relaxed)
    }

    /// Whether mirrors were in doubt; clears the doubt.
    pub(super) fn take_mirrors(&self) -> bool {
        self.mirrors.swap(false, Ordering::Relaxed)
    }

    /// What is to be looked at in this round, and whether every rule has had its turn since the first one.
    pub(super) fn take(&self, ledger: &Ledger) -> (ToInspect, bool) {
        let mut rules = self.rules.lock();
        let touched = match rules.touched.iter().nth(MOST_TOUCHED).copied() {
            None => std::mem::take(&mut rules.touched),
            Some(first_left) => {
                let left = rules.touched.split_off(&first_left);
                std::mem::replace(&mut rules.touched, left)
            }
        };
        let places = ledger.slot_count();
        let at_most = if rules.in_haste > 0 { IN_HASTE } else { IN_TURN };
        let first = if rules.next < places { rules.next } else { 0 };
        let end = places.min(first.saturating_add(at_most));
        rules.next = end;
        rules.in_haste = rules.in_haste.saturating_sub(end - first);
        let is_round_over = end == places;
        let mut due = ledger.installed_at(first..end);
        due.retain(|rule| !touched.contains(rule));
        (ToInspect { touched: touched.into_iter().collect(), due }, is_round_over)
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::id::{FlowId, Generation};

    use super::*;
    use crate::backend::counted::Counted;
    use crate::backend::ledger::ShardCursor;
    use crate::backend::ledger::record::{Place, Record};
    use crate::marks::AgentId;
    use crate::wire::filter::Hook;

    /// A ledger with this many installed rules, and one that is being installed.
    fn ledger(rules: u32) -> (Ledger, Vec<Handle>) {
        let place = Place { hook: Hook::Ingress { interface: 3 }, chain: 0, priority: 61_004, protocol: 0x0800 };
        let ledger = Ledger::new(AgentId(1));
        let mut turn = ShardCursor::new(0);
        let mut arrive =
            |slot| ledger.insert(&mut turn, Record::new(FlowId { slot, incarnation: 0 }, Generation(1), place));
        let handles: Vec<_> = (0..rules).map(&mut arrive).collect();
        handles.iter().for_each(|handle| ledger.settle(*handle, place, Counted::default(), None));
        arrive(rules);
        (ledger, handles)
    }

    #[test]
    fn every_rule_has_its_turn_and_again_after_all_others() {
        let (ledger, handles) = ledger(3 * IN_TURN);
        let doubts = Doubts::default();
        for _ in 0..2 {
            let (mut seen, mut rounds) = (BTreeSet::new(), 0);
            loop {
                let (ToInspect { touched, due }, is_over) = doubts.take(&ledger);
                assert!(touched.is_empty() && due.len() <= IN_TURN as usize);
                seen.extend(due);
                rounds += 1;
                if is_over {
                    break;
                }
            }
            assert_eq!(seen, handles.iter().copied().collect());
            assert!(rounds >= 3, "{rounds}");
        }
    }

    #[test]
    fn what_was_heard_comes_first_and_in_bounded_numbers() {
        let (ledger, handles) = ledger(3);
        let doubts = Doubts::default();
        doubts.about(handles[1]);
        doubts.about(handles[1]);
        assert_eq!(doubts.take(&ledger).0.touched, [handles[1]]);
        assert_eq!(doubts.take(&ledger).0.touched, []);
        (0..MOST_TOUCHED as u64 + 7).for_each(|number| doubts.about(Handle(number)));
        assert_eq!([(); 3].map(|()| doubts.take(&ledger).0.touched.len()), [MOST_TOUCHED, 7, 0]);
    }

    #[test]
    fn in_haste_many_rules_are_looked_at_in_a_round_until_all_were() {
        let (ledger, handles) = ledger(10 * IN_TURN);
        let doubts = Doubts::default();
        doubts.take(&ledger);
        doubts.about_all(&ledger);
        let [first, second, third] = [(); 3].map(|()| doubts.take(&ledger).0.due);
        let seen: BTreeSet<_> = first.iter().chain(&second).copied().collect();
        assert_eq!(seen, handles.into_iter().collect(), "wherever the turn was");
        assert!(third.len() <= IN_TURN as usize, "there is no haste any more");
    }
}
