//! What was read a short while ago and is likely to come again: most flows have a mask and actions that others have, too.
//!
//! Each thing has one place, picked by its hash, where the newest of those that share it is. That bounds the memory and the
//! time, whatever is read.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::action::ActionList;
use crate::field::KEY_WORDS;
use crate::flow::{Expiry, Flow, Manner, Terms};
use crate::key::{Key, Mask, MaskedKey, Match, WordIndexes};
use crate::origin::Origin;
use crate::parts::SharedParts;
use crate::priority::Priority;
use crate::ufid::{Seed, Ufid};

pub(crate) const PLACES: usize = 64;

/// Makes flows of one owner one after the other, as [`Flow::new`] makes one, and faster: the mask and all else that they have in common with
/// earlier ones are kept at hand.
pub struct FlowMaker {
    seed: Seed,
    origin: Origin,
    goes_on: bool,
    masks: RecentMasks,
    actions: RecentActionLists,
    terms: RecentTerms,
}

impl FlowMaker {
    /// Makes flows named by this seed and wanted by this owner.
    pub fn new(seed: Seed, origin: Origin) -> Self {
        let (goes_on, masks, actions, terms) = Default::default();
        Self { seed, origin, goes_on, masks, actions, terms }
    }

    /// Makes flows for the table whose parts these are.
    #[must_use]
    pub fn sharing(self, parts: Arc<SharedParts>) -> Self {
        Self { terms: self.terms.sharing(parts), ..self }
    }

    /// Makes flows of a datapath that takes a packet on in the later chain where it missed, or does not.
    #[must_use]
    pub fn going_on(self, goes_on: bool) -> Self {
        Self { goes_on, ..self }
    }

    /// A list of actions that an earlier flow had, if that is equal, and otherwise this one.
    pub fn known_actions(&mut self, actions: ActionList) -> ActionList {
        self.actions.share(actions)
    }

    /// A flow with the given UFID, or the one that its identity yields. Clones of one list of actions are known again, equal lists are not.
    /// `brings_meters` says whether a source has told the agent of all the meters that the actions name.
    pub fn make(
        &mut self,
        ufid: Option<Ufid>,
        matching: &Match,
        actions: &ActionList,
        priority: Priority,
        expiry: Expiry,
        brings_meters: bool,
    ) -> Flow {
        let mask = self.masks.share(&matching.mask, ALL_WORDS);
        let matching = MaskedKey::under(mask.clone(), &matching.key);
        Flow::with_terms(ufid, &matching, priority, &self.seed, |has_given_ufid| {
            let Self { origin, goes_on, .. } = *self;
            let manner = Manner { priority, expiry, origin, goes_on, brings_meters, has_given_ufid };
            self.terms.share(&mask, actions, manner)
        })
    }
}

/// Masks by their full form.
#[derive(Default)]
pub(crate) struct RecentMasks(Vec<Option<(Key, Arc<Mask>)>>);

impl RecentMasks {
    /// The compact form of a full mask. `written` are the words that it may touch.
    pub(crate) fn share(&mut self, full: &Key, written: u128) -> Arc<Mask> {
        self.0.resize_with(PLACES, || None);
        let recent = &mut self.0[place(hash_of(full, written))];
        match recent {
            Some((known, mask)) if known == full => mask.clone(),
            _ => recent.insert((*full, Arc::new(Mask::new(full)))).1.clone(),
        }
    }
}

/// Lists of actions by what is in them.
#[derive(Default)]
struct RecentActionLists {
    places: Vec<Option<ActionList>>,
    hasher: RandomState,
}

impl RecentActionLists {
    fn share(&mut self, actions: ActionList) -> ActionList {
        self.places.resize_with(PLACES, || None);
        let recent = &mut self.places[place(self.hasher.hash_one(&actions))];
        match recent {
            Some(known) if *known == actions => known.clone(),
            _ => recent.insert(actions).clone(),
        }
    }
}

/// Terms by the mask and the actions that they were made of: not by equal ones, for those that were read lately are the same.
#[derive(Default)]
pub(crate) struct RecentTerms {
    places: Vec<Option<MadeTerms>>,
    hasher: RandomState,
    /// Where equal terms are kept once, if they are to be.
    parts: Option<Arc<SharedParts>>,
}

/// Terms, which may have another mask and list of actions than those that they were made of, equal to them.
struct MadeTerms {
    mask: Arc<Mask>,
    actions: ActionList,
    terms: Arc<Terms>,
}

impl RecentTerms {
    /// Has equal terms kept once.
    pub(crate) fn sharing(self, parts: Arc<SharedParts>) -> Self {
        Self { parts: Some(parts), ..self }
    }

    /// The terms of a mask and actions, and what they say besides.
    pub(crate) fn share(&mut self, mask: &Arc<Mask>, actions: &ActionList, manner: Manner) -> Arc<Terms> {
        self.places.resize_with(PLACES, || None);
        let addresses = (Arc::as_ptr(mask).addr(), Arc::as_ptr(actions).addr());
        let recent = &mut self.places[place(self.hasher.hash_one(addresses))];
        if let Some(made) = recent
            && Arc::ptr_eq(&made.mask, mask)
            && Arc::ptr_eq(&made.actions, actions)
            && made.terms.manner() == manner
        {
            return made.terms.clone();
        }
        let new = Arc::new(Terms::new(mask.clone(), actions.clone(), manner));
        let terms = self.parts.as_ref().map_or_else(|| new.clone(), |parts| parts.keep(&new));
        recent.insert(MadeTerms { mask: mask.clone(), actions: actions.clone(), terms }).terms.clone()
    }
}

/// A hash of what is not zero, which is little. Masks that were made to collide are made each time, and no more.
fn hash_of(mask: &Key, written: u128) -> u64 {
    let numbers = WordIndexes(written).filter(|number| mask.words[*number] != 0);
    numbers.fold(1, |hash: u64, number| {
        (hash ^ mask.words[number] ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

pub(crate) fn place(hash: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a place")]
    let hash = hash as usize;
    hash % PLACES
}

/// The words of a mask of which nobody says which it may touch.
const ALL_WORDS: u128 = u128::MAX >> (128 - KEY_WORDS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{FlowTable, Limits};
    use crate::text::{LineReader, parse_actions, parse_key};
    use crate::time::Timestamp;

    #[test]
    fn flows_of_a_source_say_what_it_does_and_equal_actions_are_one_list() {
        let seed = Seed([3; 16]);
        let mut maker = FlowMaker::new(seed, Origin::OpenVswitch).going_on(true);
        let [first, second] = [(); 2].map(|()| maker.known_actions(parse_actions("meter(1),2", &()).unwrap()));
        assert!(Arc::ptr_eq(&first, &second));
        let matching = parse_key("in_port(1),eth_type(0x0800)", &()).unwrap().matching;
        let (priority, expiry) = Default::default();
        let told = maker.make(Some(Ufid(7)), &matching, &first, priority, expiry, true);
        let untold = maker.make(Some(Ufid(7)), &matching, &first, priority, expiry, false);
        assert!(told.brings_meters && !untold.brings_meters);
        let alone = Flow::new(Some(Ufid(7)), MaskedKey::new(&matching), first, priority, expiry, &seed);
        assert_eq!(untold, alone.with_origin(Origin::OpenVswitch).going_on());
    }

    #[test]
    fn a_flow_that_is_made_with_the_parts_of_a_table_is_the_very_one_that_it_keeps() {
        let seed = Seed([3; 16]);
        let table = FlowTable::new(seed, Limits { flows: 10, unsettled: 10 }, Arc::new(()));
        let (key, output) = ("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.", "2");
        let text = |host: u8| format!("{key}{host}), actions:{output}");
        let is_kept_as_made = |flow: Flow| {
            let made = flow.clone();
            let accepted = table.add(flow, Timestamp(1), None).unwrap();
            table.view(accepted.flow).unwrap().flow.is_clone_of(&made)
        };
        // Readers that know nothing of each other, as each batch has one.
        let of_text = || LineReader::new(&()).sharing(table.parts().clone());
        for host in 1..=2 {
            let mut reader = of_text();
            reader.read(&text(host)).unwrap();
            assert!(is_kept_as_made(reader.flow(&seed)));
        }
        let mut maker = FlowMaker::new(seed, Origin::default()).sharing(table.parts().clone());
        let matching = parse_key(&format!("{key}3)"), &()).unwrap().matching;
        let actions = parse_actions(output, &()).unwrap();
        assert!(is_kept_as_made(maker.make(None, &matching, &actions, Priority::default(), Expiry::default(), false)));
        assert_eq!((table.parts().masks(), table.parts().action_lists()), (1, 1));

        let mut stranger = LineReader::new(&());
        stranger.read(&text(4)).unwrap();
        assert!(!is_kept_as_made(stranger.flow(&seed)), "its terms are equal, but others");
    }

    #[test]
    fn flows_are_as_if_each_was_made_by_itself_and_share_what_they_have_in_common() {
        let seed = Seed([3; 16]);
        let origin = Origin::Controller("maker".parse().unwrap());
        let mut maker = FlowMaker::new(seed, origin);
        let actions = parse_actions("2", &()).unwrap();
        let mut made = Vec::new();
        for text in ["in_port(1),eth_type(0x0800)", "in_port(2),eth_type(0x0800)", "in_port(2)"] {
            let matching = parse_key(text, &()).unwrap().matching;
            let flow = maker.make(None, &matching, &actions, Priority::default(), Expiry::default(), false);
            let key = MaskedKey::new(&matching);
            let alone = Flow::new(None, key, actions.clone(), Priority::default(), Expiry::default(), &seed);
            assert_eq!(flow, alone.with_origin(origin));
            made.push(flow);
        }
        let is_shared =
            |one: usize, other: usize| Arc::ptr_eq(made[one].matching().mask(), made[other].matching().mask());
        assert!(is_shared(0, 1));
        assert!(!is_shared(1, 2));
    }
}
