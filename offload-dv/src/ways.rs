//! The thread that follows next hops, and tells the thread of the device which way packets go.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use sluice_flow::Cause;
use sluice_flow::backend::{DeviceEvent, EventSender};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{Found, NextHop, NextHops, NoNextHop, Target};

use crate::asks::{Ask, Asks};
use crate::owner::Owner;
use crate::ports::Ports;
use crate::switch::Way;
use crate::translate::Hop;

/// A wait without anything to do.
const LONGEST: Duration = Duration::from_secs(10);
/// A wait after the kernel could not be asked.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Starts the thread.
pub(crate) fn start(
    owner: &Arc<Owner>,
    ports: &Arc<Ports>,
    leaves_by: BTreeMap<String, String>,
    events: &EventSender,
) -> Result<Asks, Refusal> {
    let failed = |reason: String| Refusal::Device { reason: format!("next hops cannot be followed: {reason}").into() };
    let next_hops = NextHops::open().map_err(|error| failed(error.to_string()))?;
    let (asks, asked) = Asks::new(next_hops.waker());
    let follower = Follower {
        next_hops,
        hops: BTreeMap::new(),
        asked,
        owner: Arc::downgrade(owner),
        ports: Arc::downgrade(ports),
        leaves_by,
        events: events.clone(),
    };
    let run = thread::Builder::new().name("dv-next-hops".to_owned()).spawn(|| follower.run());
    run.map_err(|error| failed(error.to_string()))?;
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
    /// See [`Config`](crate::Config).
    leaves_by: BTreeMap<String, String>,
    events: EventSender,
}

impl Follower {
    /// Follows next hops as long as anybody may ask. A failure never ends it: the device would go on sending to old addresses.
    fn run(mut self) {
        let mut failure = None;
        while self.hear() {
            match self.next_hops.poll(LONGEST) {
                Ok(found) => {
                    failure = None;
                    self.tell_all(found);
                }
                Err(error) => {
                    let reason = error.to_string();
                    if failure.as_ref() != Some(&reason) {
                        tracing::error!("next hops are not followed until the kernel answers again: {reason}");
                        failure = Some(reason);
                    }
                    thread::sleep(BETWEEN_TRIES);
                }
            }
        }
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

    fn tell_all(&self, found: Vec<Found>) {
        for (target, found) in found {
            for hop in self.hops.get(&target).into_iter().flatten() {
                self.tell(*hop, &found);
            }
        }
    }

    fn tell(&self, hop: Hop, found: &Result<NextHop, NoNextHop>) {
        let (Some(owner), Some(ports)) = (self.owner.upgrade(), self.ports.upgrade()) else { return };
        let way = way(found, &ports.name_of(hop.underlay), &self.leaves_by);
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

/// The way to a next hop that is found, if it leaves by this port.
fn way(found: &Result<NextHop, NoNextHop>, port: &str, leaves_by: &BTreeMap<String, String>) -> Result<Way, String> {
    let NextHop { egress, egress_mac, puts_tag, mac, source, .. } = found.as_ref().map_err(NoNextHop::to_string)?;
    if egress != port && leaves_by.get(egress).is_none_or(|leaves_by| leaves_by != port) {
        return Err(format!("packets leave by {egress}, not by {port}, and no `leaves_by` in [dv] says otherwise"));
    }
    if *puts_tag {
        return Err(format!(
            "packets leave by {egress}, which puts a tag on, and the device would send them without one"
        ));
    }
    Ok(Way { egress_mac: *egress_mac, mac: *mac, source: *source })
}

fn target(hop: Hop) -> Target {
    Target { destination: hop.destination, source: hop.source, ingress: None, ports: None }
}

#[cfg(test)]
mod tests {
    use sluice_netdev::Ifindex;

    use super::*;

    #[test]
    fn packets_leave_by_the_port_itself_or_by_a_device_that_is_said_to_lead_there() {
        let by = |egress: &str| {
            Ok(NextHop {
                egress: egress.to_owned(),
                egress_index: Ifindex(7),
                egress_mac: [2, 0, 0, 0, 0, 1],
                mtu: 1500,
                egress_mtu: 1500,
                puts_tag: egress.contains('.'),
                mac: [2, 0, 0, 0, 0, 2],
                source: [192, 0, 2, 1].into(),
            })
        };
        let leaves_by = BTreeMap::from(["br-ex", "p0.7"].map(|name| (name.to_owned(), "p0".to_owned())));
        let (p0, bridge) = (way(&by("p0"), "p0", &leaves_by), way(&by("br-ex"), "p0", &leaves_by));
        assert_eq!(p0.clone().map(|way| way.egress_mac), Ok([2, 0, 0, 0, 0, 1]));
        assert_eq!(p0, bridge);
        for (egress, port) in [("br-ex", "p1"), ("br-int", "p0")] {
            let reason = way(&by(egress), port, &leaves_by).unwrap_err();
            assert!(reason.starts_with(&format!("packets leave by {egress}, not by {port}")), "{reason}");
        }
        let reason = way(&by("p0.7"), "p0", &leaves_by).unwrap_err();
        assert!(reason.starts_with("packets leave by p0.7, which puts a tag on"), "{reason}");
    }
}
