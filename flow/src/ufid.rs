//! Unique flow identifiers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::backend::Owner;
use crate::key::{Mask, MaskedKey};
use crate::priority::Priority;

/// A unique flow identifier, 128 bits, written as a UUID.
///
/// Aligned as a word, so that a flow has no holes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(Rust, packed(8))]
pub struct Ufid(pub u128);

impl Ufid {
    /// Bytes of its text.
    pub const TEXT_LENGTH: usize = 36;
}

impl fmt::Display for Ufid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        write!(
            out,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            id >> 96,
            id >> 80 & 0xffff,
            id >> 64 & 0xffff,
            id >> 48 & 0xffff,
            id & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Ufid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The text is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UFID: expected 8-4-4-4-12 hexadecimal digits")]
pub struct NotAUfid;

impl FromStr for Ufid {
    type Err = NotAUfid;

    fn from_str(text: &str) -> Result<Self, NotAUfid> {
        let text: &[u8; Self::TEXT_LENGTH] = text.as_bytes().try_into().map_err(|_| NotAUfid)?;
        let mut id = 0u128;
        for (place, byte) in text.iter().enumerate() {
            match (place, byte) {
                (8 | 13 | 18 | 23, b'-') => {}
                (8 | 13 | 18 | 23, _) => return Err(NotAUfid),
                (_, b'0'..=b'9') => id = id << 4 | u128::from(byte - b'0'),
                (_, b'a'..=b'f' | b'A'..=b'F') => id = id << 4 | u128::from((byte & 0xf) + 9),
                _ => return Err(NotAUfid),
            }
        }
        Ok(Self(id))
    }
}

/// What makes two flows the same: chain, priority, mask and masked key (the chain is a field of the key), hashed.
///
/// The hash is keyed, of 62 bits. It finds flows; that two flows are the same is for [`Flow::is_same`](crate::Flow::is_same) to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity(pub u64);

impl Identity {
    /// The identity of a flow whose UFID it has yielded.
    #[expect(clippy::cast_possible_truncation, reason = "one half of it")]
    pub(crate) const fn of_own(ufid: Ufid) -> Self {
        Self(ufid.0 as u64 & u64::MAX >> 2)
    }
}

/// The seed of identities and of UFIDs that the agent chooses. Kept in the state folder, so that a flow keeps its UFID
/// over a restart; secret, so that nobody can choose flows that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 16]);

impl Seed {
    /// A name for the agent whose seed this is. It goes where others can read it, and tells nothing of the seed.
    pub fn owner(&self) -> Owner {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(b"owner");
        Owner(hasher.finish128().h1)
    }

    /// The identity of a match at a priority, and the UFID of such a flow that was given none: the whole hash with the bits
    /// of a version 4 UUID set, as OVS does.
    pub fn names(&self, matching: &MaskedKey<'_>, priority: Priority) -> (Identity, Ufid) {
        const VERSION: u128 = 0xf << 76;
        const VARIANT: u128 = 0b11 << 62;
        let mut hasher = matching.mask().name_prefix(self).hasher;
        priority.hash(&mut hasher);
        hasher.write(matching.bytes());
        let hash = hasher.finish128().as_u128();
        let ufid = Ufid(hash & !VERSION & !VARIANT | 0x4 << 76 | 0b10 << 62);
        (Identity::of_own(ufid), ufid)
    }

    /// What the names of all flows with a mask begin with: as much as there is to hash of most of them.
    pub(crate) fn prefix(&self, mask: &Mask) -> NamePrefix {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write_usize(mask.len());
        for (index, word) in mask.words() {
            hasher.write_usize(index);
            hasher.write_u64(word);
        }
        NamePrefix { seed: *self, hasher }
    }
}

/// The hash of a name, fed with a mask.
#[derive(Clone, Copy)]
pub(crate) struct NamePrefix {
    seed: Seed,
    hasher: SipHasher13,
}

impl NamePrefix {
    pub(crate) fn is_of(&self, seed: &Seed) -> bool {
        self.seed == *seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::key::Match;

    #[test]
    fn text_and_value_agree() {
        let text = "01234567-89ab-4def-8123-456789abcdef";
        assert_eq!(text.parse::<Ufid>().unwrap().to_string(), text);
        for wrong in ["", "01234567-89ab-4def-8123-456789abcde", "0123456789ab4def8123456789abcdef", "x"] {
            assert_eq!(wrong.parse::<Ufid>(), Err(NotAUfid), "{wrong}");
        }
    }

    #[test]
    fn identity_depends_on_mask_value_priority_and_seed_only() {
        let flow = |value, mask| {
            let mut full = Match::default();
            full.set(Field::Ipv4Dst, value, mask);
            MaskedKey::new(&full)
        };
        let seed = Seed([7; 16]);
        let base = seed.names(&flow(0x0a00_0001, 0xffff_ff00), Priority::default());
        assert_eq!(base, seed.names(&flow(0x0a00_0002, 0xffff_ff00), Priority::default()), "masked bits do not count");
        assert_ne!(base, seed.names(&flow(0x0a00_0001, 0xffff_0000), Priority::default()));
        assert_ne!(base, seed.names(&flow(0x0a00_0001, 0xffff_ff00), Priority::new(1).unwrap()));
        assert_ne!(base, Seed([8; 16]).names(&flow(0x0a00_0001, 0xffff_ff00), Priority::default()));
        let uuid = base.1.to_string();
        assert_eq!(&uuid[14..15], "4");
        assert!(matches!(&uuid[19..20], "8" | "9" | "a" | "b"));
    }
}
