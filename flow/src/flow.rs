//! A flow as it is wanted: match, actions, priority and expiry under one UFID.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::action::{ActionList, jumps};
use crate::chain::ChainId;
use crate::field::Field;
use crate::key::MaskedKey;
use crate::priority::Priority;
use crate::ufid::{Identity, Seed, Ufid};

/// What is wanted of the device. Immutable: a modification makes a new one under the same UFID and identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The name of the flow.
    pub ufid: Ufid,
    /// Match and priority, hashed.
    pub identity: Identity,
    /// What it matches.
    pub matching: MaskedKey,
    pub(crate) terms: Arc<Terms>,
}

/// What many flows have in common, kept once for all of them; a flow [derefs](Deref) to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// What it does.
    pub actions: ActionList,
    /// Which of two flows of one chain wins.
    pub priority: Priority,
    /// When it goes by itself.
    pub expiry: Expiry,
}

impl Flow {
    /// A flow with the given UFID, or the one that its identity yields.
    pub fn new(
        ufid: Option<Ufid>,
        matching: MaskedKey,
        actions: ActionList,
        priority: Priority,
        expiry: Expiry,
        seed: &Seed,
    ) -> Self {
        let (identity, own_ufid) = seed.names(&matching, priority);
        let terms = Arc::new(Terms { actions, priority, expiry });
        Self { ufid: ufid.unwrap_or(own_ufid), identity, matching, terms }
    }

    /// The same flow, doing something else.
    #[must_use]
    pub fn with_actions(&self, actions: ActionList) -> Self {
        Self { terms: Arc::new(Terms { actions, ..Terms::clone(self) }), ..self.clone() }
    }

    /// Whether it has the match and priority of another, so that there can be only one of them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity && self.priority == other.priority && self.matching == other.matching
    }

    /// The chain that the flow is in: its recirculation id.
    pub fn chain(&self) -> ChainId {
        #[expect(clippy::cast_possible_truncation, reason = "the field has 32 bits")]
        ChainId(self.matching.get(Field::RecircId).0 as u32)
    }

    /// The chains that the flow sends packets to.
    pub fn jumps(&self) -> Vec<ChainId> {
        jumps(&self.actions)
    }
}

impl Deref for Flow {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

/// When a flow goes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry {
    /// Goes after so long without a packet; `None` takes the default of the configuration.
    pub idle: Option<Duration>,
    /// Goes so long after it was accepted, used or not; `None` takes the default of the configuration.
    pub hard: Option<Duration>,
    /// Never ages and is never evicted; the timeouts do not count.
    pub permanent: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_takes_little_memory_besides_the_octets_of_its_key() {
        assert!(size_of::<Flow>() <= 56, "{} octets", size_of::<Flow>());
    }
}
