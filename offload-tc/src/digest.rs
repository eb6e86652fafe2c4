//! A digest of a rule's options, in the 32 bits that its notes have left.
//!
//! A terse listing has the notes of rules but not their matches and actions, and takes a third of the time of a full one.
//! The digest still shows whether a rule is what its flow wants: translate the flow again and compare. So a restart need not
//! parse what has not changed, and a rule that an agent was about to change when it was killed is recognized by its old
//! digest. The digest says nothing about a rule that somebody else changed without changing its notes.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

/// See the [module](self). Another build may compute it differently; its rules are then read in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub [u8; 4]);

impl Digest {
    /// The digest of a rule's options as they are written while the digest in its notes is zero.
    pub(crate) fn of(options: &[u8]) -> Self {
        let [a, b, c, d, ..] = FixedState::with_seed(0).hash_one(options).to_be_bytes();
        Self([a, b, c, d])
    }
}
