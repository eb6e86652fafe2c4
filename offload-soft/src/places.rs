//! Where one worker has put and found rules lately: most of a great many flows have one of a few masks.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;
use sluice_flow::key::Mask;

use crate::classifier::Hint;

/// Places that are kept; at more, all are forgotten.
const MANY: usize = 4096;

/// The places of one worker, by the address of the mask, which flows share, and by chain.
#[derive(Default)]
pub(crate) struct Places(HashMap<(usize, ChainId), Place, foldhash::fast::RandomState>);

struct Place {
    /// Keeps the address from becoming that of another mask, but not the mask itself.
    _mask: Weak<Mask>,
    hint: Hint,
}

impl Places {
    /// That of a flow, in the classifier of its chain.
    pub(crate) fn of(&mut self, flow: &Flow) -> &mut Hint {
        if self.0.len() > MANY {
            self.0.clear();
        }
        let matching = flow.matching();
        let key = (Arc::as_ptr(matching.mask()).addr(), flow.chain());
        let new = || Place { _mask: Arc::downgrade(matching.mask()), hint: Hint::default() };
        &mut self.0.entry(key).or_insert_with(new).hint
    }
}
