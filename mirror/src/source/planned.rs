//! Packet rings that follow the agent's plan while it changes.

use std::time::Duration;

use sluice_control::mirror::{Class, Plan};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::own::OwnTraffic;
use super::ring::RingSource;
use super::{Batch, NextBatch, Source, SourceError};
use crate::verbs::Buffer;
use crate::wire::{Drops, Port};

/// How soon a plan is followed again of which a network device was not there.
const AGAIN: Duration = Duration::from_secs(1);

/// Packet rings of the network devices that the agent's plan names.
#[derive(Debug)]
pub struct PlannedRings {
    rings: RingSource,
    plan: watch::Receiver<Option<Plan>>,
    own: Option<OwnTraffic>,
    /// When to follow the same plan again.
    again: Option<Instant>,
    /// What was told of devices that are not there.
    missing: Vec<String>,
}

impl PlannedRings {
    /// Has rings follow a plan. A plan that would bring the mirror's own traffic is not followed, if that is given.
    #[must_use]
    pub fn new(rings: RingSource, mut plan: watch::Receiver<Option<Plan>>, own: Option<OwnTraffic>) -> Self {
        plan.mark_changed();
        Self { rings, plan, own, again: None, missing: Vec::new() }
    }

    async fn batch(&mut self) -> Result<Batch, SourceError> {
        loop {
            let again = self.again;
            let is_time = async {
                match again {
                    Some(again) => sleep_until(again).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.plan.changed() => {
                    if changed.is_err() {
                        // The agent's socket has ended with the sender.
                        return self.rings.next().await;
                    }
                }
                () = is_time => {}
                batch = self.rings.next() => return batch,
            }
            self.follow();
        }
    }

    fn follow(&mut self) {
        self.again = None;
        let plan = self.plan.borrow_and_update().clone();
        let Some(mut plan) = plan else { return };
        if let Some(Err(error)) = self.own.as_ref().map(|own| own.check(&plan)) {
            error!("no packet ring is read: {error}");
            plan.taps.clear();
        }
        match self.rings.follow(&plan) {
            Ok(missing) => {
                self.again = (!missing.is_empty()).then(|| Instant::now() + AGAIN);
                if !missing.is_empty() && missing != self.missing {
                    warn!("network devices of the plan are not there: {}", missing.join(", "));
                }
                self.missing = missing;
            }
            Err(error) => {
                warn!("the plan cannot be followed: {error}");
                self.again = Some(Instant::now() + AGAIN);
            }
        }
    }
}

impl Source for PlannedRings {
    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(self.batch())
    }

    fn give_back(&mut self, class: Class, buffer: Buffer) {
        self.rings.give_back(class, buffer);
    }

    fn set_waiting(&mut self, class: Class, is_waiting: bool) {
        self.rings.set_waiting(class, is_waiting);
    }

    fn drops(&self, class: Class) -> Drops {
        self.rings.drops(class)
    }

    fn ports(&self) -> Vec<Port> {
        self.rings.ports()
    }

    fn revision(&self) -> u64 {
        self.rings.revision()
    }
}
