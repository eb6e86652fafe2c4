//! The mirrors that the agent has the device make, and the plan that follows from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_control::mirror::{Class, ClassSet, MAX_TAPS, Plan, Tap};
use sluice_flow::backend::{Mirrors, Outlet};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortKind, PortMap, PortNumber};
use sluice_flow::{Backend, Refusal};

use super::taps::{Destination, Taps};
use super::wanted::{Wanted, mirrored_classes, mirrored_ports, wanted};
use crate::config;

/// The mirrors as they are. One change is made at a time.
pub(super) struct Stage {
    taps: Taps,
    /// Those that the device has, by name.
    set: BTreeMap<String, Arc<Mirror>>,
    /// Those that it has refused, with the reason as it was logged.
    refused: BTreeMap<String, String>,
}

/// What is to be told and shown after a change.
pub(super) struct Staged {
    pub(super) plan: Plan,
    pub(super) shown: Vec<Shown>,
}

/// A mirror of control traffic that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name, by which the device counts.
    pub name: String,
    /// The class that is copied.
    pub class: Class,
    /// The port whose packets are copied.
    pub port: PortNumber,
    /// Where copies come out: a network device, a port, or the mirror socket.
    pub to: String,
    /// What the device copies; `None` if it does not.
    pub mirror: Option<Arc<Mirror>>,
    /// Why the device does not copy; `None` if it does.
    pub refused: Option<Refusal>,
}

impl Stage {
    pub(super) fn new(mark: u32) -> Self {
        Self { taps: Taps::new(mark), set: BTreeMap::new(), refused: BTreeMap::new() }
    }

    /// Sets the mirrors that are wanted and not there, and removes the others.
    pub(super) fn renew(
        &mut self,
        backend: &dyn Backend,
        mirrors: &dyn Mirrors,
        config: Option<&config::Mirroring>,
        ports: &PortMap,
    ) -> Staged {
        let mut plan = plan_without_taps(config);
        let pairs = pairs(config, ports);
        let names: Vec<_> = pairs.iter().map(|(class, port)| Wanted::name(*class, *port)).collect();
        let gone: Vec<_> = self.set.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            match mirrors.remove_mirror(&name) {
                Ok(()) => _ = self.set.remove(&name),
                Err(refusal) => tracing::error!("mirror {name}: {refusal}"),
            }
        }
        self.taps.retain(backend, &pairs);
        self.refused.retain(|name, _| names.contains(name));
        let outlet = mirrors.outlet();
        let Some(config) = config else { return Staged { plan, shown: Vec::new() } };
        let flows: ClassSet = config.classes.iter().filter(|class| *class == Class::Flow).collect();
        plan.taps = taps_of_flows(&outlet, flows, ports, config.to);
        let mut shown = Vec::with_capacity(pairs.len());
        for (class, port) in pairs {
            let name = Wanted::name(class, port);
            let is_known = plan.taps.iter().any(|tap| tap.in_port == Some(port.0)) || matches!(outlet, Outlet::Ports);
            let destination = match is_known || plan.taps.len() < MAX_TAPS {
                true => self.taps.destination(backend, &outlet, (class, port), config.to),
                false => Err(Refusal::Limit { what: "ports that are mirrored".into(), limit: MAX_TAPS as u64 }),
            };
            let (to, done) = match destination {
                Ok(destination) => {
                    let done = self.set(mirrors, &name, (class, port), destination.port, config.tags);
                    if done.is_ok() {
                        note(&mut plan, &outlet, (class, port), &destination, flows, ports);
                    }
                    (text(&outlet, &destination, ports), done)
                }
                Err(refusal) => (String::new(), Err(refusal)),
            };
            self.log(&name, done.as_ref().err());
            let mirror = done.is_ok().then(|| self.set.get(&name).cloned()).flatten();
            shown.push(Shown { name, class, port, to, mirror, refused: done.err() });
        }
        Staged { plan, shown }
    }

    /// Says of every mirror that is wanted why there is none.
    pub(super) fn refuse_all(
        &mut self,
        refusal: &Refusal,
        config: Option<&config::Mirroring>,
        ports: &PortMap,
    ) -> Staged {
        let refused = |(class, port)| {
            let (name, to) = (Wanted::name(class, port), String::new());
            Shown { name, class, port, to, mirror: None, refused: Some(refusal.clone()) }
        };
        Staged { plan: Plan::default(), shown: pairs(config, ports).into_iter().map(refused).collect() }
    }

    fn set(
        &mut self,
        mirrors: &dyn Mirrors,
        name: &str,
        (class, port): (Class, PortNumber),
        to: PortNumber,
        tags: usize,
    ) -> Result<(), Refusal> {
        let mirror = wanted(class, port, tags).and_then(|wanted| wanted.mirror(vec![to]));
        let mirror = mirror.map_err(|reason| Refusal::Device { reason: reason.into() })?;
        if self.set.get(name).is_some_and(|set| **set == mirror) {
            return Ok(());
        }
        mirrors.set_mirror(&mirror)?;
        self.set.insert(name.to_owned(), Arc::new(mirror));
        Ok(())
    }

    /// Tells of a refusal once.
    fn log(&mut self, name: &str, refusal: Option<&Refusal>) {
        let Some(refusal) = refusal else {
            self.refused.remove(name);
            return;
        };
        let reason = refusal.to_string();
        if self.refused.get(name) != Some(&reason) {
            tracing::error!("mirror {name} is refused: {reason}");
            self.refused.insert(name.to_owned(), reason);
        }
    }
}

/// The classes and ports of all mirrors that are wanted, by port.
fn pairs(config: Option<&config::Mirroring>, ports: &PortMap) -> Vec<(Class, PortNumber)> {
    let Some(config) = config else { return Vec::new() };
    let of_port =
        |number: PortNumber| mirrored_classes(config).iter().map(move |class| (class, number)).collect::<Vec<_>>();
    mirrored_ports(config, ports).flat_map(|port| of_port(port.number)).collect()
}

fn plan_without_taps(config: Option<&config::Mirroring>) -> Plan {
    let Some(config) = config else { return Plan::default() };
    let collector = config.collector.map(|address| address.to_string()).unwrap_or_default();
    Plan { collector, classes: config.classes, taps: Vec::new() }
}

/// The mirror ports that actions of flows copy to.
fn taps_of_flows(outlet: &Outlet<'_>, flows: ClassSet, ports: &PortMap, to: Option<PortNumber>) -> Vec<Tap> {
    let mirror_ports = ports.iter().filter(|port| match outlet {
        // Their copies carry the port that they came in at.
        Outlet::Sink(_) => false,
        Outlet::NetworkDevices => port.kind == PortKind::Mirror,
        Outlet::Ports => Some(port.number) == to,
    });
    let netdev = |name: String| matches!(outlet, Outlet::NetworkDevices).then_some(name);
    let tap = |name: String| Tap { in_port: None, netdev: netdev(name.clone()), name, classes: flows };
    let is_of_use = |_: &&sluice_flow::Port| !flows.is_empty() || matches!(outlet, Outlet::Ports);
    mirror_ports.filter(is_of_use).take(MAX_TAPS).map(|port| tap(port.name.to_string())).collect()
}

/// Notes in the plan that a class is copied at a port.
fn note(
    plan: &mut Plan,
    outlet: &Outlet<'_>,
    (class, port): (Class, PortNumber),
    destination: &Destination,
    flows: ClassSet,
    ports: &PortMap,
) {
    let in_port = (!matches!(outlet, Outlet::Ports)).then_some(port.0);
    if let Some(tap) = plan.taps.iter_mut().find(|tap| tap.in_port == in_port && tap.netdev == destination.netdev) {
        return tap.classes.insert(class);
    }
    let mut classes = if matches!(outlet, Outlet::Sink(_)) { flows } else { ClassSet::EMPTY };
    classes.insert(class);
    let name = ports.get(port).map(|port| port.name.to_string()).unwrap_or_default();
    plan.taps.push(Tap { in_port, name, netdev: destination.netdev.clone(), classes });
}

/// Where copies come out, in words.
fn text(outlet: &Outlet<'_>, Destination { port, netdev }: &Destination, ports: &PortMap) -> String {
    match (outlet, netdev) {
        (Outlet::Sink(_), _) => sluice_control::mirror::MIRROR_SOCKET.to_owned(),
        (_, Some(netdev)) => netdev.clone(),
        (_, None) => ports.get(*port).map_or_else(|| port.to_string(), |port| port.name.to_string()),
    }
}
