//! Taking over what an earlier run left in the device, before any worker runs.

use std::time::Duration;

use sluice_flow::backend::{Adoption, Claims, Holding, InstalledRule};
use sluice_flow::{Backend, Flow, FlowId, Generation, Refusal, Timestamp, Ufid};

use super::queue::OffloadQueue;
use super::worker::Worker;

/// What was in the device at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Rules that a flow has now.
    pub adopted: usize,
    /// Rules that nobody wanted, and that were taken out.
    pub orphans: usize,
    /// Flows that the device had yet to take, or to take in another form.
    pub outstanding: usize,
    /// How long it took.
    pub duration: Duration,
}

impl OffloadQueue {
    /// Has the flows of the table take over the rules that an earlier run left in the device. The chains that these rules jump
    /// to are open on return; one of the workers, none of which runs yet, opens them.
    /// Those of other owners are taken over, too, where `inherits` says so: their rules become flows as they are read back.
    pub fn adopt(
        &self,
        backend: &dyn Backend,
        workers: &mut [Worker],
        inherits: &mut dyn FnMut(&Holding) -> bool,
    ) -> Result<Adopted, Refusal> {
        let began = self.clock.now();
        let mut claims = AdoptionClaims { queue: self, began, inherits, of_chains: Vec::new() };
        let Adoption { adopted, orphans } =
            backend.adoption().map_or(Ok(Adoption::default()), |adopter| adopter.adopt(&mut claims))?;
        let of_chains = claims.of_chains;
        if let Some(worker) = workers.first_mut() {
            for (id, rule) in of_chains {
                if let Err(refusal) = worker.open_chains(&rule) {
                    let ufid = self.table.view(id).map_or(rule.ufid, |view| view.flow.ufid);
                    tracing::warn!(%ufid, "a chain that a flow jumps to was not opened: {refusal}");
                    self.redo(id);
                }
            }
        }
        let outstanding = self.table.census().unsettled();
        Ok(Adopted { adopted, orphans, outstanding, duration: self.clock.now().since(began) })
    }
}

/// The flows of the table, which take the rules over.
struct AdoptionClaims<'a> {
    queue: &'a OffloadQueue,
    began: Timestamp,
    inherits: &'a mut dyn FnMut(&Holding) -> bool,
    /// Rules that jump to chains.
    of_chains: Vec<(FlowId, Flow)>,
}

impl Claims for AdoptionClaims<'_> {
    fn inherits(&mut self, holding: &Holding) -> bool {
        (self.inherits)(holding)
    }

    fn inherit(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        // A flow may be wanted under another UFID than that which the owner gave it.
        let nameless = InstalledRule { is_named: false, ..rule.clone() };
        if self.queue.table.find_rule(&nameless).is_none()
            && let Err(error) = self.queue.add(rule.flow.clone(), None)
        {
            tracing::warn!(ufid = %rule.flow.ufid, "a rule of another owner is not taken over: {error}");
            return None;
        }
        self.claim(&nameless)
    }

    fn wanted(&self, ufid: Ufid) -> Option<Flow> {
        self.queue.table.wanted(ufid)
    }

    fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        if self.queue.alike.refusal(&rule.flow).is_some() {
            return None;
        }
        let (id, generation) = self.queue.table.adopt(rule, self.began)?;
        if !rule.flow.jumps().is_empty() {
            self.of_chains.push((id, rule.flow.clone()));
        }
        Some((id, generation))
    }
}
