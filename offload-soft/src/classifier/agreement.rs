//! What all rules of a subtable have in common.
//!
//! Where a packet differs from that, no rule of the subtable can match it, which is told without a hash and without a
//! look at the subtable's tables. Masks often go with values: a mask of VXLAN's port is that of one port, one of ARP's
//! fields is that of ARP. (OVS has the like for some fields: tries of prefixes and ports in its classifier, and subtables
//! by input port in its userspace datapath.)

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::key::Key;

use super::table::Word;

/// Values on which the rules of a subtable agree.
pub(super) struct Agreement(Box<[Value]>);

/// One word that the mask touches.
struct Value {
    index: usize,
    /// That of the first rule.
    value: u64,
    /// The bits in which no later rule differed from it. They only get fewer.
    agreed: AtomicU64,
}

impl Agreement {
    /// That of a single rule.
    pub(super) fn of(words: &[Word], key: &Key) -> Self {
        let value = |word: &Word| Value {
            index: word.index,
            value: key.words[word.index] & word.mask,
            agreed: AtomicU64::new(word.mask),
        };
        Self(words.iter().map(value).collect())
    }

    /// Gives up what a rule differs in. To be done before the rule is linked: a lookup that can find the rule then does
    /// not leave the subtable out.
    pub(super) fn narrow(&self, key: &Key) {
        for value in &self.0 {
            let different = value.difference(key);
            if different != 0 {
                value.agreed.fetch_and(!different, Ordering::SeqCst);
            }
        }
    }

    /// Whether there may be a rule for the packet.
    #[inline]
    pub(super) fn admits(&self, key: &Key) -> bool {
        self.0.iter().all(|value| value.difference(key) == 0)
    }
}

impl Clone for Agreement {
    fn clone(&self) -> Self {
        let clone = |value: &Value| {
            let Value { index, value, agreed } = value;
            Value { index: *index, value: *value, agreed: AtomicU64::new(agreed.load(Ordering::SeqCst)) }
        };
        Self(self.0.iter().map(clone).collect())
    }
}

impl Value {
    #[inline]
    fn difference(&self, key: &Key) -> u64 {
        (key.words[self.index] ^ self.value) & self.agreed.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_left_out_by_what_all_rules_share_and_by_nothing_else() {
        let words = [Word { index: 3, mask: 0xffff }, Word { index: 5, mask: 0xff }];
        let key = |third, fifth| {
            let mut key = Key::ZERO;
            (key.words[3], key.words[5]) = (third, fifth);
            key
        };
        let agreement = Agreement::of(&words, &key(0x1234, 7));
        assert!(agreement.admits(&key(0x1234, 7)));
        assert!(agreement.admits(&key(0xab_1234, 7)), "the mask leaves that out");
        assert!(!agreement.admits(&key(0x1235, 7)) && !agreement.admits(&key(0x1234, 8)));
        agreement.narrow(&key(0x1334, 7));
        assert!(agreement.admits(&key(0x1334, 7)) && agreement.admits(&key(0x1234, 7)));
        assert!(!agreement.admits(&key(0x1335, 7)), "the other bits of the word still agree");
        assert!(!agreement.admits(&key(0x1334, 8)), "and so does the other word");
    }
}
