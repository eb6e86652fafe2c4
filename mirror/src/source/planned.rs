//! Packet rings that follow the agent's plan while it changes.

use sluice_control::mirror::{Class, Plan};
use tokio::sync::watch;
use tracing::{error, warn};

use super::following::Following;
use super::own::{OwnMirror, OwnTraffic};
use super::ring::RingSource;
use super::{Batch, NextBatch, Source, SourceError};
use crate::verbs::Buffer;
use crate::wire::{Drops, Port};

/// Packet rings of the network devices that the agent's plan names.
#[derive(Debug)]
pub struct PlannedRings {
    rings: RingSource,
    following: Following,
    own: Option<OwnTraffic>,
    /// What was told of the plan, so that it is told once.
    refused: Option<OwnMirror>,
    failure: String,
}

impl PlannedRings {
    /// Has rings follow a plan. A plan that would bring the mirror's own traffic is not followed, if that is given.
    #[must_use]
    pub fn new(rings: RingSource, plan: watch::Receiver<Option<Plan>>, own: Option<OwnTraffic>) -> Self {
        Self { rings, following: Following::new(plan), own, refused: None, failure: String::new() }
    }

    async fn batch(&mut self) -> Result<Batch, SourceError> {
        loop {
            tokio::select! {
                plan = self.following.next() => self.follow(plan),
                batch = self.rings.next() => return batch,
            }
        }
    }

    fn follow(&mut self, mut plan: Plan) {
        let refused = self.own.as_mut().and_then(|own| own.check(&plan).err());
        if refused.is_some() {
            plan.taps.clear();
        }
        if self.refused != refused {
            refused.iter().for_each(|error| error!("no packet ring is read: {error}"));
            self.refused = refused;
        }
        let failure = match self.rings.follow(&plan) {
            Ok(missing) if missing.is_empty() => String::new(),
            Ok(missing) => format!("network devices of the plan are not there: {}", missing.join(", ")),
            Err(error) => format!("the plan cannot be followed: {error}"),
        };
        if self.failure != failure {
            if !failure.is_empty() {
                warn!("{failure}");
            }
            self.failure = failure;
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

    fn count_drops(&mut self) {
        self.rings.count_drops();
    }

    fn ports(&self) -> Vec<Port> {
        self.rings.ports()
    }

    fn revision(&self) -> u64 {
        self.rings.revision()
    }
}
