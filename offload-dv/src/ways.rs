//! The thread that follows next hops, and tells the thread of the device which way packets go.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use sluice_flow::Cause;
use sluice_flow::backend::{DeviceEvent, EventSender};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{LinkError, NextHop, NextHops, NoNextHop, Target};

use crate::asks::{Ask, Asks};
use crate::owner::Owner;
use crate::ports::Ports;
use crate::switch::Way;
use crate::translate::Hop;

/// A wait without anything to do.
const LONGEST: Duration = Duration::from_secs(10);

/// Starts the thread.
pub(crate) fn start(owner: &Arc<Owner>, ports: &Arc<Ports>, events: &EventSender) -> Result<Asks, Refusal> {
    let failed = |reason: String| Refusal::Device { reason: format!("next hops cannot be followed: {reason}").into() };
    let next_hops = NextHops::open().map_err(|error| failed(error.to_string()))?;
    let (asks, asked) = Asks::new(next_hops.waker());
    let follower = Follower {
        next_hops,
        hops: BTreeMap::new(),
        asked,
        owner: Arc::downgrade(owner),
        ports: Arc::downgrade(ports),
        events: events.clone(),
    };
    let run = move || {
        if let Err(error) = follower.run() {
            tracing::error!("next hops are no longer followed: {error}");
        }
    };
    thread::Builder::new().name("dv-next-hops".to_owned()).spawn(run).map_err(|error| failed(error.to_string()))?;
    Ok(asks)
}

struct Follower {
    next_hops: NextHops,
    /// Whose way a target's is.
    hops: BTreeMap<Target, Vec<Hop>>,
    asked: Receiver<Ask>,
    /// Its queue may hold what ends this thread.
    owner: Weak<Owner>,
    /// Keep the owner.
    ports: Weak<Ports>,
    events: EventSender,
}

impl Follower {
    fn run(mut self) -> Result<(), LinkError> {
        while self.hear() {
            for (target, found) in self.next_hops.poll(LONGEST)? {
                for hop in self.hops.get(&target).into_iter().flatten() {
                    self.tell(*hop, &found);
                }
            }
        }
        Ok(())
    }

    /// Does what was asked. Returns whether anybody may ask again.
    fn hear(&mut self) -> bool {
        loop {
            match self.asked.try_recv() {
                Ok(Ask::Follow(hop)) => {
                    let target = target(hop);
                    self.hops.entry(target).or_default().push(hop);
                    // It is told anew, also if another one has the same way.
                    self.next_hops.forget(target);
                    self.next_hops.follow(target);
                }
                Ok(Ask::Forget(hop)) => {
                    let target = target(hop);
                    if let Some(hops) = self.hops.get_mut(&target) {
                        hops.retain(|other| *other != hop);
                        if hops.is_empty() {
                            self.hops.remove(&target);
                            self.next_hops.forget(target);
                        }
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn tell(&self, hop: Hop, found: &Result<NextHop, NoNextHop>) {
        let (Some(owner), Some(ports)) = (self.owner.upgrade(), self.ports.upgrade()) else { return };
        let way = way(hop, found, &ports);
        let events = self.events.clone();
        let is_known = way.is_ok();
        let told = owner.post(move |desk| {
            if let Err(refusal) = desk.rules.set_way(hop, way) {
                let _ = events.send(DeviceEvent::Failed(refusal.to_string()));
            } else if is_known {
                let _ = events.send(DeviceEvent::Changed { cause: Cause::Neighbour(Some(hop.destination)) });
            }
        });
        if let Err(refusal) = told {
            tracing::error!("a change of a next hop did not reach the device: {refusal}");
        }
    }
}

fn way(hop: Hop, found: &Result<NextHop, NoNextHop>, ports: &Ports) -> Result<Way, String> {
    let NextHop { egress, egress_mac, mac, source, .. } = found.as_ref().map_err(NoNextHop::to_string)?;
    let port = ports.name_of(hop.underlay);
    if *egress != port {
        return Err(format!("packets leave by {egress}, not by {port}"));
    }
    Ok(Way { egress_mac: *egress_mac, mac: *mac, source: *source })
}

fn target(hop: Hop) -> Target {
    Target { destination: hop.destination, source: hop.source, ingress: None }
}
