//! Chains that the device has open: each that a rule jumps to, from before the rule is put in until after it is gone.
//!
//! Which chain a rule needs is in the table. A chain is closed only while nobody opens it, and after another look whether it is
//! needed: so who needs it by now waits, and finds it as it was left.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sluice_flow::{Backend, ChainId, Flow, FlowTable, Refusal};

const SHARDS: usize = 64;

/// See the [module](self).
pub(super) struct Doors {
    backend: Arc<dyn Backend>,
    table: Arc<FlowTable>,
    /// Those that are open, or that somebody is about to open or close.
    shards: [Mutex<HashMap<ChainId, Arc<Door>>>; SHARDS],
}

/// Whether the device has a chain open. Locked while the device opens or closes it, and always before the table.
type Door = Mutex<bool>;

impl Doors {
    pub(super) fn new(backend: Arc<dyn Backend>, table: Arc<FlowTable>) -> Self {
        Self { backend, table, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Opens the chains that a rule jumps to, which the table says are needed. May wait for the device.
    pub(super) fn open(&self, rule: &Flow) -> Result<(), Refusal> {
        for chain in rule.jumps() {
            let door = self.shard(chain).entry(chain).or_default().clone();
            let mut is_open = door.lock();
            if !*is_open {
                self.backend.open_chain(chain)?;
                *is_open = true;
            }
        }
        Ok(())
    }

    /// Closes those of these chains that no rule needs. May wait for the device.
    pub(super) fn close(&self, chains: &[ChainId]) {
        for chain in chains.iter().copied() {
            let Some(door) = self.shard(chain).get(&chain).cloned() else { continue };
            let mut is_open = door.lock();
            if *is_open && !self.table.is_chain_held(chain) {
                self.backend.close_chain(chain);
                *is_open = false;
            }
            let is_unused = !*is_open;
            drop(is_open);
            let mut shard = self.shard(chain);
            // Nobody else has it: the shard and this have.
            if is_unused && Arc::strong_count(&door) == 2 {
                shard.remove(&chain);
            }
        }
    }

    fn shard(&self, chain: ChainId) -> MutexGuard<'_, HashMap<ChainId, Arc<Door>>> {
        self.shards[chain.0 as usize % SHARDS].lock()
    }
}
