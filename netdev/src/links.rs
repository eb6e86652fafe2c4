//! The table of devices. A notification changes it, and each change yields an event.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::device::{Device, Ifindex, Role, SwitchId};
use crate::devlink::DevlinkPort;
use crate::event::{Event, Generation, Port};
use crate::ingress::IngressQdisc;
use crate::message::{Destination, Notice};

/// All devices of a namespace.
#[derive(Debug, Default)]
pub struct Links {
    devices: BTreeMap<Ifindex, Known>,
    names: HashMap<String, Ifindex>,
    last: Generation,
}

/// A device, its generation, and the queueing discipline that holds its filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The device.
    pub device: Device,
    /// Its generation.
    pub generation: Generation,
    /// The queueing discipline that holds its filters, if it has one.
    pub qdisc: Option<IngressQdisc>,
}

/// All that can be read at once.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) devices: Vec<Device>,
    pub(crate) unreadable: Vec<(Ifindex, String)>,
    pub(crate) qdiscs: Vec<(Ifindex, IngressQdisc)>,
    pub(crate) devlink: Vec<(Ifindex, DevlinkPort)>,
}

impl Links {
    /// All devices, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Known> {
        self.devices.values()
    }

    /// The device with this number.
    pub fn at(&self, ifindex: Ifindex) -> Option<&Known> {
        self.devices.get(&ifindex)
    }

    /// The device with this name.
    pub fn named(&self, name: &str) -> Option<&Known> {
        self.at(*self.names.get(name)?)
    }

    /// The members of a bond, team or bridge.
    pub fn members(&self, master: Ifindex) -> impl Iterator<Item = &Known> {
        self.iter().filter(move |known| known.device.master == Some(master))
    }

    /// The ports of a switch: plugs and representors.
    pub fn ports_of<'a>(&'a self, switch: &'a SwitchId) -> impl Iterator<Item = &'a Known> {
        self.iter().filter(move |known| known.device.switch.as_ref() == Some(switch))
    }

    /// Applies a notification.
    pub(crate) fn apply(&mut self, notice: Notice, events: &mut Vec<Event>) {
        match notice {
            Notice::Link(device) => self.put(*device, events),
            Notice::Unreadable(ifindex, reason) => events.push(Event::Unreadable { ifindex, reason }),
            Notice::LinkGone(ifindex, destination) => self.remove(ifindex, destination, events),
            Notice::Qdisc(ifindex, qdisc, by) => self.put_qdisc(ifindex, Some(qdisc), Some(by), events),
            Notice::QdiscGone(ifindex, by) => self.put_qdisc(ifindex, None, Some(by), events),
            Notice::FilterPut(filter) => events.push(Event::FilterPut(filter)),
            Notice::FiltersGone(filters) => events.push(Event::FiltersGone(filters)),
            Notice::Actions(by) => events.push(Event::ActionsTouched { by }),
        }
    }

    /// Makes the table equal to what was read, and adds an event for each difference.
    pub(crate) fn become_equal(&mut self, snapshot: Snapshot, events: &mut Vec<Event>) {
        let Snapshot { devices, unreadable, qdiscs, devlink } = snapshot;
        let there: BTreeSet<_> =
            devices.iter().map(|device| device.ifindex).chain(unreadable.iter().map(|(ifindex, _)| *ifindex)).collect();
        let gone: Vec<_> = self.devices.keys().copied().filter(|ifindex| !there.contains(ifindex)).collect();
        for ifindex in gone {
            self.remove(ifindex, None, events);
        }
        for device in devices {
            self.put(device, events);
        }
        events.extend(unreadable.into_iter().map(|(ifindex, reason)| Event::Unreadable { ifindex, reason }));
        let mut qdiscs: BTreeMap<_, _> = qdiscs.into_iter().collect();
        let known: Vec<_> = self.devices.keys().copied().collect();
        for ifindex in known {
            self.put_qdisc(ifindex, qdiscs.remove(&ifindex), None, events);
        }
        self.put_devlink(devlink, events);
    }

    /// Applies what devlink says about all ports.
    pub(crate) fn put_devlink(&mut self, ports: Vec<(Ifindex, DevlinkPort)>, events: &mut Vec<Event>) {
        let mut ports: BTreeMap<_, _> = ports.into_iter().collect();
        for known in self.devices.values_mut() {
            let before = known.device.role.clone();
            known.device.set_devlink(ports.remove(&known.device.ifindex));
            if known.device.role != before {
                events.push(Event::RoleChanged(known.port()));
            }
        }
    }

    fn put(&mut self, mut device: Device, events: &mut Vec<Event>) {
        let ifindex = device.ifindex;
        // Numbers are given again at the earliest when all others were given, or when somebody asks for one.
        if self.at(ifindex).is_some_and(|known| known.device.driver() != device.driver()) {
            self.remove(ifindex, None, events);
        }
        self.names.insert(device.name.clone(), ifindex);
        let Some(known) = self.devices.get_mut(&ifindex) else {
            self.last.0 += 1;
            let known = Known { device, generation: self.last, qdisc: None };
            let port = known.port();
            events.push(Event::Appeared(port.clone()));
            // Where notifications were lost, a device is a member already when it is first seen.
            if let to @ Some(_) = known.device.master {
                events.push(Event::MasterChanged { port, from: None, to });
            }
            self.devices.insert(ifindex, known);
            return;
        };
        device.set_devlink(known.device.devlink.take());
        let before = std::mem::replace(&mut known.device, device);
        let port = known.port();
        let now = &known.device;
        if before.name != now.name && self.names.get(&before.name) == Some(&ifindex) {
            self.names.remove(&before.name);
        }
        if before.name != now.name {
            events.push(Event::Renamed { port: port.clone(), from: before.name });
        }
        if before.switch != now.switch {
            events.push(Event::SwitchChanged { port: port.clone(), from: before.switch, to: now.switch.clone() });
        }
        if before.role != now.role {
            events.push(Event::RoleChanged(port.clone()));
        }
        if before.master != now.master {
            events.push(Event::MasterChanged { port: port.clone(), from: before.master, to: now.master });
        }
        if before.state != now.state {
            events.push(Event::StateChanged { port, from: before.state, to: now.state });
        }
    }

    fn remove(&mut self, ifindex: Ifindex, destination: Option<Destination>, events: &mut Vec<Event>) {
        let Some(known) = self.devices.remove(&ifindex) else { return };
        if self.names.get(&known.device.name) == Some(&ifindex) {
            self.names.remove(&known.device.name);
        }
        let port = known.port();
        events.push(match destination {
            Some(Destination { namespace, ifindex }) => Event::Moved { port, namespace, ifindex },
            None => Event::Gone(port),
        });
    }

    fn put_qdisc(&mut self, ifindex: Ifindex, now: Option<IngressQdisc>, by: Option<u32>, events: &mut Vec<Event>) {
        let Some(known) = self.devices.get_mut(&ifindex) else { return };
        let before = std::mem::replace(&mut known.qdisc, now);
        let port = known.port();
        match (before, now) {
            (None, Some(qdisc)) => events.push(Event::QdiscAdded { port, qdisc, by }),
            (Some(qdisc), None) => events.push(Event::QdiscRemoved { port, qdisc, by }),
            (Some(from), Some(to)) if from != to => events.push(Event::QdiscReplaced { port, from, to, by }),
            _ => {}
        }
    }
}

impl Known {
    /// The device, by its name and its life.
    pub fn port(&self) -> Port {
        let Device { ifindex, name, .. } = &self.device;
        Port { ifindex: *ifindex, name: name.clone(), generation: self.generation }
    }

    /// Returns whether it is a representor of a function of a NIC.
    pub const fn is_representor(&self) -> bool {
        matches!(self.device.role, Role::Representor(_))
    }
}
