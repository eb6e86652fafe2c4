//! What a rule was asked to be, in the 32 bits that its notes have left.
//!
//! A terse listing tells the notes of rules and not what they match and do, and takes a third of the time of a full one. With a
//! digest in the notes it shows all the same whether a rule is what a flow wants: the flow is translated once more, and the
//! digests are compared. So a restart need not take apart what has not changed, and a rule that an agent was about to change when
//! it was killed is known by its old digest. It says nothing of a rule that somebody else changes and leaves the notes on.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use sluice_netdev::netlink::attribute::Writer;

use crate::rule::Label;
use crate::wire::flower::Flower;

/// See the [module](self). Another build of ours may reckon otherwise: then rules are read in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub [u8; 4]);

impl Digest {
    /// Of the options of a rule as they are written, in whose notes the digest is none yet.
    pub(crate) fn of(options: &[u8]) -> Self {
        let [a, b, c, d, ..] = FixedState::with_seed(0).hash_one(options).to_be_bytes();
        Self([a, b, c, d])
    }
}

/// Puts the digest into the notes of a rule that is about to be asked for. One that cannot be written gets none.
pub fn sign(flower: &mut Flower) {
    Label::set_digest(&mut flower.actions, Digest::default());
    let mut options = Vec::new();
    let mut writer = Writer::new(&mut options);
    flower.emit(&mut writer);
    if writer.finish().is_ok() {
        Label::set_digest(&mut flower.actions, Digest::of(&options));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::Format;
    use crate::rule::{AgentId, Room, Spelling};
    use crate::wire::action::{Action, Control, Operation};
    use crate::wire::key::{Key, KeyMatch};

    /// A signed rule.
    fn rule(change: impl FnOnce(&mut Flower)) -> Flower {
        let mut flower = Flower { actions: vec![Action::new(Operation::Generic, Control::Shot)], ..Flower::default() };
        flower.keys = vec![KeyMatch { key: Key::Ipv4Dst, value: 7, mask: 0xff }];
        change(&mut flower);
        let (priority, digest) = Default::default();
        let (format, spelling) = (Format::CURRENT, Spelling::default());
        let label = Label { ufid: None, agent: AgentId(1), format, priority, spelling, digest };
        label.put(&mut flower.actions, Room::Made);
        sign(&mut flower);
        flower
    }

    fn digest(flower: &Flower) -> Digest {
        let note = |at: usize| flower.actions[at].cookie.as_ref().map(|cookie| cookie.octets()).unwrap_or_default();
        Label::read([note(0), note(1)]).unwrap().digest
    }

    #[test]
    fn whatever_a_rule_says_otherwise_is_another_digest_and_the_same_is_the_same() {
        let known = digest(&rule(|_| ()));
        assert_eq!(digest(&rule(|_| ())), known);
        let others = [
            rule(|rule| rule.keys[0].value = 6),
            rule(|rule| rule.keys[0].mask = 0x7f),
            rule(|rule| rule.flags = 1),
            rule(|rule| rule.actions[0].control = Control::Ok),
        ];
        assert!(others.iter().all(|other| digest(other) != known), "{others:?}");
    }

    #[test]
    fn a_digest_is_not_of_itself_and_stays_when_a_rule_goes_on_with_the_actions_of_another() {
        let mut again = rule(|_| ());
        let known = digest(&again);
        sign(&mut again);
        assert_eq!(digest(&again), known);
        Label::go_on_counting(&mut again.actions, 9);
        assert_eq!(digest(&again), known);
    }
}
