//! The thread that follows next hops and the kernel's policies of IPsec, and tells the thread of the device which way packets go.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use parking_lot::Mutex;
use sluice_flow::refusal::Refusal;
use sluice_flow::{Cause, Flow};
use sluice_netdev::{Found, IpsecPolicies, LinkError, NextHop, NextHops, NoNextHop, PolicyList, Target};

use crate::asks::{Ask, Asks};
use crate::events::Events;
use crate::ipsec;
use crate::owner::Owner;
use crate::ports::Ports;
use crate::switch::{Led, Way, no_way};
use crate::translate::{Hop, Plan, Vports};

/// A wait without anything to do.
const LONGEST: Duration = Duration::from_secs(10);
/// A wait after the kernel could not be asked.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// What is known of the ways to next hops, and the policies of IPsec.
#[derive(Default)]
pub(crate) struct Ways {
    hops: Mutex<HashMap<Hop, Result<Way, NoWay>>>,
    policies: Mutex<PolicyList>,
}

/// Why the device sends no packets to a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NoWay {
    reason: String,
    /// Whether the kernel sends them all the same, so that flows that lead there are to leave the device. Otherwise they are dropped there, as
    /// the kernel drops them.
    is_for_kernel: bool,
}

impl Ways {
    /// Starts the thread.
    pub(crate) fn start(
        owner: &Arc<Owner>,
        ports: &Arc<Ports>,
        leaves_by: BTreeMap<String, String>,
        events: &Events,
    ) -> Result<(Arc<Self>, Asks), Refusal> {
        let failed = |reason: String| Refusal::Device { reason: reason.into() };
        let unfollowed = |error: String| failed(format!("next hops cannot be followed: {error}"));
        let next_hops = NextHops::open().map_err(|error| unfollowed(error.to_string()))?;
        let policies = IpsecPolicies::open();
        let policies = policies.map_err(|error| failed(format!("policies of IPsec are not known: {error}")))?;
        let list = policies.list().clone();
        let ways = Arc::new(Self { policies: Mutex::new(list.clone()), ..Self::default() });
        owner.post(move |desk| drop(desk.rules.set_policies(list)))?;
        let (asks, asked) = Asks::new(next_hops.waker());
        let follower = Follower {
            next_hops,
            policies,
            targets: BTreeMap::new(),
            ways: ways.clone(),
            asked,
            owner: Arc::downgrade(owner),
            ports: Arc::downgrade(ports),
            leaves_by,
            events: events.clone(),
        };
        let run = thread::Builder::new().name("dv-next-hops".to_owned()).spawn(|| follower.run());
        run.map_err(|error| unfollowed(error.to_string()))?;
        Ok((ways, asks))
    }

    /// Fails for a flow of packets that the kernel must decrypt, or that leads to a next hop of which it is known that there is no way.
    pub(crate) fn check(&self, flow: &Flow, plan: &Plan, vports: &dyn Vports) -> Result<(), Refusal> {
        ipsec::check_received(&self.policies.lock(), flow, vports)?;
        let hops = self.hops.lock();
        plan.hops().into_iter().try_for_each(|hop| match hops.get(&hop) {
            Some(Err(NoWay { reason, .. })) => Err(no_way(hop, reason)),
            _ => Ok(()),
        })
    }
}

struct Follower {
    next_hops: NextHops,
    policies: IpsecPolicies,
    targets: BTreeMap<Target, Followed>,
    ways: Arc<Ways>,
    asked: Receiver<Ask>,
    /// Its queue may hold what ends this thread.
    owner: Weak<Owner>,
    /// Keep the owner.
    ports: Weak<Ports>,
    /// See [`Config`](crate::Config).
    leaves_by: BTreeMap<String, String>,
    events: Events,
}

#[derive(Default)]
struct Followed {
    /// Whose way the target's is.
    hops: Vec<Hop>,
    /// `None` until something is found.
    found: Option<Result<NextHop, NoNextHop>>,
}

impl Follower {
    /// Follows next hops as long as anybody may ask. A failure never ends it: the device would go on sending to old addresses, or in the clear.
    fn run(mut self) {
        let mut failure = None;
        while self.hear() {
            match self.follow() {
                Ok(()) => failure = None,
                Err(error) => {
                    let reason = error.to_string();
                    if failure.as_ref() != Some(&reason) {
                        tracing::error!(
                            "next hops and policies of IPsec are not followed until the kernel answers again: {reason}"
                        );
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
                    self.targets.entry(target).or_default().hops.push(hop);
                    // It is told anew, also if another one has the same way.
                    self.ways.hops.lock().remove(&hop);
                    self.next_hops.forget(target);
                    self.next_hops.follow(target);
                }
                Ok(Ask::Forget(hop)) => {
                    let target = target(hop);
                    self.ways.hops.lock().remove(&hop);
                    if let Some(followed) = self.targets.get_mut(&target) {
                        followed.hops.retain(|other| *other != hop);
                        if followed.hops.is_empty() {
                            self.targets.remove(&target);
                            self.next_hops.forget(target);
                        }
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Waits for something to change, and tells of it.
    fn follow(&mut self) -> Result<(), LinkError> {
        let polled = self.next_hops.poll_beside(self.policies.socket(), LONGEST);
        // Of policies also while there is no word of next hops, and the other way round.
        let renewed = self.policies.renew();
        let polled = polled.map(|found| self.take(found));
        if renewed? {
            // Ways first: what goes out in the clear is worse than what comes in so.
            self.targets.values().for_each(|followed| self.tell(followed));
            self.tell_policies(self.policies.list().clone());
        }
        polled
    }

    fn take(&mut self, found: Vec<Found>) {
        for (target, found) in found {
            if let Some(followed) = self.targets.get_mut(&target) {
                followed.found = Some(found);
            }
            self.targets.get(&target).into_iter().for_each(|followed| self.tell(followed));
        }
    }

    /// Tells of the next hops of a target which way is another one than was told.
    fn tell(&self, Followed { hops, found }: &Followed) {
        let (Some(owner), Some(ports), Some(found)) = (self.owner.upgrade(), self.ports.upgrade(), found) else {
            return;
        };
        for hop in hops {
            let way = way(*hop, found, &ports.name_of(hop.underlay), &self.leaves_by, self.policies.list());
            if self.ways.hops.lock().insert(*hop, way.clone()).as_ref() != Some(&way) {
                self.tell_way(&owner, &ports, *hop, way);
            }
        }
    }

    fn tell_way(&self, owner: &Owner, ports: &Arc<Ports>, hop: Hop, way: Result<Way, NoWay>) {
        let (events, ports) = (self.events.clone(), Arc::downgrade(ports));
        let is_for_kernel = way.as_ref().is_err_and(|none| none.is_for_kernel);
        // Who waits for it hears why in vain, too, if nothing may come of itself.
        let is_news = way.is_ok() || is_for_kernel;
        told(owner.post(move |desk| {
            let Led { is_used, refused } = match desk.rules.set_way(hop, way.map_err(|none| none.reason)) {
                Ok(led) => led,
                Err(refusal) => return events.failed(refusal.to_string()),
            };
            if let Some(refusal) = &refused {
                tracing::warn!("flows that lead to {} leave the device: {refusal}", hop.destination);
            }
            if is_used && (is_for_kernel || refused.is_some()) {
                // Each of its flows is tried again, and refused.
                let tunnels = ports.upgrade().map(|ports| ports.tunnels());
                tunnels.into_iter().flatten().for_each(|port| events.port_changed(port));
            }
            if is_news {
                events.changed(Cause::Neighbour(Some(hop.destination)));
            }
        }));
    }

    /// Tells of the policies, for packets that come by tunnels.
    fn tell_policies(&self, policies: PolicyList) {
        let Some(owner) = self.owner.upgrade() else { return };
        let events = self.events.clone();
        self.ways.policies.lock().clone_from(&policies);
        told(owner.post(move |desk| {
            desk.rules.set_policies(policies).into_iter().for_each(|port| events.port_changed(port));
            events.changed(Cause::Module);
        }));
    }
}

fn told(told: Result<(), Refusal>) {
    if let Err(refusal) = told {
        tracing::error!("a change of next hops or policies of IPsec did not reach the device: {refusal}");
    }
}

/// The way to a next hop that is found, if it leaves by this port, and may do so as it is.
fn way(
    hop: Hop,
    found: &Result<NextHop, NoNextHop>,
    port: &str,
    leaves_by: &BTreeMap<String, String>,
    policies: &PolicyList,
) -> Result<Way, NoWay> {
    let for_kernel = |reason| Err(NoWay { reason, is_for_kernel: true });
    let NextHop { egress, egress_mac, vlans, mac, source, .. } = match found {
        Ok(next) => next,
        Err(none) => return Err(NoWay { reason: none.to_string(), is_for_kernel: false }),
    };
    if let Some(reason) = ipsec::why_not_sent(policies, hop, hop.source.unwrap_or(*source)) {
        return for_kernel(reason);
    }
    if egress != port && leaves_by.get(egress).is_none_or(|leaves_by| leaves_by != port) {
        return for_kernel(format!(
            "packets leave by {egress}, not by {port}, and no `leaves_by` in [dv] says otherwise"
        ));
    }
    if !vlans.is_empty() {
        return for_kernel(format!(
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
    use sluice_netdev::{Ifindex, VlanDevice, VlanTag};

    use super::*;
    use crate::translate::{Protocol, UPLINK};

    #[test]
    fn packets_leave_by_the_port_itself_or_by_a_device_that_is_said_to_lead_there() {
        let tagged = VlanDevice {
            tag: VlanTag { protocol: 0x8100, id: 7 },
            gives_priorities: false,
            lower: Some("p0".to_owned()),
        };
        let by = |egress: &str| {
            Ok(NextHop {
                egress: egress.to_owned(),
                egress_index: Ifindex(7),
                egress_mac: [2, 0, 0, 0, 0, 1],
                mtu: 1500,
                egress_mtu: 1500,
                vlans: egress.contains('.').then(|| tagged.clone()).into_iter().collect(),
                mac: [2, 0, 0, 0, 0, 2],
                source: [192, 0, 2, 1].into(),
            })
        };
        let leaves_by = BTreeMap::from(["br-ex", "p0.7"].map(|name| (name.to_owned(), "p0".to_owned())));
        let hop = Hop {
            destination: [192, 0, 2, 9].into(),
            source: None,
            underlay: UPLINK,
            protocol: Protocol::Vxlan,
            udp_port: Some(4789),
        };
        let way = |found: &_, port: &str, leaves_by: &_| way(hop, found, port, leaves_by, &PolicyList::default());
        let elsewhere = |egress: &str, port: &str| {
            let none = way(&by(egress), port, &leaves_by).unwrap_err();
            assert!(none.is_for_kernel, "{none:?}");
            none.reason
        };
        let (p0, bridge) = (way(&by("p0"), "p0", &leaves_by), way(&by("br-ex"), "p0", &leaves_by));
        assert_eq!(p0.clone().map(|way| way.egress_mac), Ok([2, 0, 0, 0, 0, 1]));
        assert_eq!(p0, bridge);
        for (egress, port) in [("br-ex", "p1"), ("br-int", "p0")] {
            let reason = elsewhere(egress, port);
            assert!(reason.starts_with(&format!("packets leave by {egress}, not by {port}")), "{reason}");
        }
        let reason = elsewhere("p0.7", "p0");
        assert!(reason.starts_with("packets leave by p0.7, which puts a tag on"), "{reason}");
        let silent = Err(NoNextHop::Silent { neighbour: [192, 0, 2, 2].into(), egress: "p0".to_owned() });
        assert!(way(&silent, "p0", &leaves_by).is_err_and(|none| !none.is_for_kernel), "the kernel drops them, too");
    }
}
