//! What a rule was asked to be, in the 32 bits that its notes have left.
//!
//! A terse listing tells the notes of rules and not what they match and do, and takes a third of the time of a full one. With a
//! digest in the notes it shows all the same whether a rule is what a flow wants: the flow is translated once more, and the
//! digests are compared. So a restart need not take apart what has not changed, and a rule that an agent was about to change when
//! it was killed is known by its old digest. It says nothing of a rule that somebody else changes and leaves the notes on.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

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
