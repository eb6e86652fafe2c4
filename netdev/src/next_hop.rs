//! Next hops: whom the kernel would give packets for an address to, and by which device.
//!
//! Nothing is read over and over: all routes are looked up again when a rule, an address or a device changes, those that a changed route may be
//! for when that changes, and neighbours are followed one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::control::{Control, ROOM, receive, wait};
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::kind;
use crate::netlink::attribute::Malformed;
use crate::netlink::message::{Message, Messages};
use crate::route::{self, Egress, MacAddress, Neighbour, NeighbourKey, Route};
use crate::rule;
use crate::vlan::VlanDevice;

/// Multicast groups (`enum rtnetlink_groups`): neighbours, and all that a way may depend on besides.
const NEIGHBOURS: u32 = 3;
const WAYS: [u32; 9] = [
    1,  // links
    5,  // addresses of IPv4
    7,  // routes of IPv4
    8,  // rules of IPv4
    9,  // addresses of IPv6
    11, // routes of IPv6
    19, // rules of IPv6
    24, // whether IPv4 is forwarded
    32, // next hops that routes share
];
/// Bytes of notifications that the kernel keeps.
const RECEIVE_BUFFER: usize = 1 << 20;
/// So often the kernel is asked to make sure of neighbours that it has not heard of lately. What hardware sends does not keep them
/// alive. As often devices are looked at again, since the kernel does not tell when the MTU for IPv6 changes.
const ASSURANCE: Duration = Duration::from_secs(10);

/// Changed routes that are looked at one by one. With more of them, all ways are looked up again.
const ROUTES: usize = 4_096;

/// An address, and the one that packets for it come from, if that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Where packets go.
    pub destination: IpAddr,
    /// Where they come from; `None` leaves it to the route.
    pub source: Option<IpAddr>,
    /// The device that they come in by, if they are forwarded; `None` if this host sends them.
    pub ingress: Option<Ifindex>,
    /// Their ports, where ways may depend on that ([`NextHops::look_at_ports`]).
    pub ports: Option<PacketPorts>,
}

/// The ports of packets of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketPorts {
    /// Of IP.
    pub protocol: u8,
    /// Where they come from.
    pub source: u16,
    /// Where they go.
    pub destination: u16,
}

/// What packets for a target need to get to their next hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The device by which they leave.
    pub egress: String,
    /// Its number.
    pub egress_index: Ifindex,
    /// Its Ethernet address.
    pub egress_mac: MacAddress,
    /// The bytes of the longest packet of IP that it takes on this way.
    pub mtu: u32,
    /// The same on any way: packets that come in by it may be as long, whatever a route says of those that leave.
    pub egress_mtu: u32,
    /// If it is one of a VLAN, which puts a tag on: itself, and those devices of VLANs that are below it, the lowest one last.
    pub vlans: Arc<[VlanDevice]>,
    /// The Ethernet address of whom they are given to.
    pub mac: MacAddress,
    /// The address that they come from.
    pub source: IpAddr,
}

impl NextHop {
    /// The device by which packets leave, and if it is one of a VLAN, those below it.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let below = self.vlans.iter().filter_map(|vlan| vlan.lower.as_deref());
        iter::once(&*self.egress).chain(below)
    }
}

/// Why there is no next hop for now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNextHop {
    /// The kernel has no way, in its words.
    #[error("there is no route to {destination}: {reason}")]
    NoRoute {
        /// Where to.
        destination: IpAddr,
        /// Why.
        reason: String,
    },
    /// It is no address of one other host.
    #[error("{destination} is not reached through a neighbour")]
    NotUnicast {
        /// Where to.
        destination: IpAddr,
    },
    /// The device has no Ethernet header, or is not up.
    #[error("{egress}, by which packets to {destination} leave, is not up or not Ethernet")]
    NoEgress {
        /// Where to.
        destination: IpAddr,
        /// The device.
        egress: String,
    },
    /// Nobody has answered yet.
    #[error("neighbour {neighbour} on {egress} is not known yet")]
    Unknown {
        /// Who.
        neighbour: IpAddr,
        /// The device.
        egress: String,
    },
    /// Nobody answers.
    #[error("neighbour {neighbour} on {egress} does not answer")]
    Silent {
        /// Who.
        neighbour: IpAddr,
        /// The device.
        egress: String,
    },
}

/// A target and its next hop from now on.
pub type Found = (Target, Result<NextHop, NoNextHop>);

/// Follows the next hops of targets, in the network namespace of the thread that opened it.
pub struct NextHops {
    notifications: Socket,
    control: Control,
    targets: BTreeMap<Target, Followed>,
    /// The targets by the addresses whose routes they depend on: where packets go, and where they come from, since the kernel takes no packet
    /// from where it would not send one (`rp_filter`).
    addressed: BTreeMap<IpAddr, BTreeSet<Target>>,
    /// Those that are to be looked at, the next one last.
    fresh: Vec<Target>,
    /// What was notified since the targets were looked at.
    heard: Heard,
    neighbours: BTreeMap<NeighbourKey, Neighbour>,
    /// Devices by which packets leave, until something is notified that ways depend on: most targets have one of a few.
    devices: BTreeMap<Ifindex, Option<Egress>>,
    /// Whether rules look at ports.
    look_at_ports: bool,
    assured: Instant,
    /// Becomes readable when somebody wakes it.
    woken: UnixStream,
    wake: Arc<UnixStream>,
    buffer: Vec<u8>,
}

/// Ends the wait of a [`NextHops::poll`] from another thread.
#[derive(Clone)]
pub struct NextHopsWaker(Arc<UnixStream>);

impl NextHopsWaker {
    /// Has a wait end, or the next one not begin.
    pub fn wake(&self) {
        // If there is no room, it is awake.
        let _ = (&*self.0).write(&[0]);
    }
}

struct Followed {
    /// Whether it is to be looked at.
    is_fresh: bool,
    route: Option<Way>,
    told: Option<Result<NextHop, NoNextHop>>,
}

/// A route with what is known of its device.
struct Way {
    route: Route,
    name: String,
    mac: MacAddress,
    mtu: u32,
    egress_mtu: u32,
    vlans: Arc<[VlanDevice]>,
}

/// What was notified.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    /// Something that any way may depend on.
    may_be_any: bool,
    /// The first and last addresses that changed routes are for.
    routes: BTreeSet<(IpAddr, IpAddr)>,
    /// Neighbours that have another Ethernet address, none any more, or do not answer.
    neighbours: BTreeSet<NeighbourKey>,
}

impl NextHops {
    /// Starts to listen.
    pub fn open() -> Result<Self, LinkError> {
        let failed = |step| move |source| LinkError::Socket { step, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open"))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(failed("bind"))?;
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))
            .map_err(|errno| failed("set the receive buffer")(errno.into()))?;
        for group in WAYS.into_iter().chain([NEIGHBOURS]) {
            socket.add_membership(group).map_err(failed("join a multicast group"))?;
        }
        let (woken, wake) = UnixStream::pair().map_err(failed("open a pair"))?;
        woken.set_nonblocking(true).and_then(|()| wake.set_nonblocking(true)).map_err(failed("do not block"))?;
        let mut control = Control::open()?;
        Ok(Self {
            notifications: socket,
            look_at_ports: look_at_ports(&mut control)?,
            control,
            targets: BTreeMap::new(),
            addressed: BTreeMap::new(),
            fresh: Vec::new(),
            heard: Heard::default(),
            neighbours: BTreeMap::new(),
            devices: BTreeMap::new(),
            assured: Instant::now(),
            woken,
            wake: Arc::new(wake),
            buffer: vec![0; ROOM],
        })
    }

    /// Whether a rule of routing is only for packets of a protocol or with some ports, as of the last [`poll`](Self::poll): without them, it is
    /// not known which way packets take.
    pub const fn look_at_ports(&self) -> bool {
        self.look_at_ports
    }

    /// Returns what ends a wait.
    pub fn waker(&self) -> NextHopsWaker {
        NextHopsWaker(self.wake.clone())
    }

    /// Follows a target, whose next hop is told by the next [`poll`](Self::poll).
    pub fn follow(&mut self, target: Target) {
        self.targets.entry(target).or_insert_with(|| {
            self.fresh.push(target);
            for address in [Some(target.destination), target.source].into_iter().flatten() {
                self.addressed.entry(address).or_default().insert(target);
            }
            Followed { is_fresh: true, route: None, told: None }
        });
    }

    /// No longer follows a target.
    pub fn forget(&mut self, target: Target) {
        self.retain(|known| *known != target);
    }

    /// Follows only those of its targets any longer that are wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&Target) -> bool) {
        self.targets.retain(|target, _| is_wanted(target));
        self.addressed.retain(|_, targets| {
            targets.retain(|target| self.targets.contains_key(target));
            !targets.is_empty()
        });
        let in_use: BTreeSet<_> = self.targets.values().filter_map(Followed::neighbour).collect();
        self.neighbours.retain(|key, _| in_use.contains(key));
    }

    /// Returns the targets that are followed.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.targets.keys().copied()
    }

    /// Returns the next hops that are others than they were told before. If none is, waits for something to happen, at most for `longest`;
    /// may return nothing before. After an error, the next call goes on with what is left to be looked at.
    pub fn poll(&mut self, longest: Duration) -> Result<Vec<Found>, LinkError> {
        self.poll_beside(None, longest)
    }

    /// The same, and waits no longer either once this other socket becomes readable, which the caller reads.
    pub fn poll_beside(&mut self, other: Option<BorrowedFd<'_>>, longest: Duration) -> Result<Vec<Found>, LinkError> {
        let found = self.look()?;
        if !found.is_empty() || longest.is_zero() {
            return Ok(found);
        }
        let failed = |errno: Errno| LinkError::Socket { step: "wait", source: errno.into() };
        let sockets: Vec<_> = [self.notifications.as_fd(), self.woken.as_fd()].into_iter().chain(other).collect();
        wait(&sockets, longest.min(ASSURANCE)).map_err(failed)?;
        while matches!((&self.woken).read(&mut [0; 64]), Ok(1..)) {}
        self.look()
    }

    fn look(&mut self) -> Result<Vec<Found>, LinkError> {
        self.listen()?;
        if self.heard.may_be_any {
            self.look_at_ports = look_at_ports(&mut self.control)?;
        }
        self.refresh();
        if self.assured.elapsed() >= ASSURANCE {
            // Those that had no way are asked for again.
            self.renew(|_| true, |_| ());
            self.assure()?;
        }
        let mut found = Vec::new();
        while let Some(target) = self.fresh.pop() {
            if !self.targets.contains_key(&target) {
                continue;
            }
            let next = match self.resolve(target) {
                Ok(next) => next,
                Err(error) => {
                    // It is looked at again after all others.
                    self.fresh.insert(0, target);
                    return if found.is_empty() { Err(error) } else { Ok(found) };
                }
            };
            let Some(followed) = self.targets.get_mut(&target) else { continue };
            followed.is_fresh = false;
            if followed.told.as_ref() != Some(&next) {
                followed.told = Some(next.clone());
                found.push((target, next));
            }
        }
        Ok(found)
    }

    /// Has targets looked at of which something was notified.
    fn refresh(&mut self) {
        let Heard { may_be_any, routes, neighbours } = std::mem::take(&mut self.heard);
        if may_be_any || routes.len() > ROUTES {
            self.devices.clear();
            self.renew(|_| true, |followed| followed.route = None);
            return;
        }
        for (first, last) in routes {
            for target in self.addressed.range(first..=last).flat_map(|(_, targets)| targets) {
                if let Some(followed) = self.targets.get_mut(target) {
                    followed.route = None;
                    followed.look(*target, &mut self.fresh);
                }
            }
        }
        if !neighbours.is_empty() {
            self.renew(|followed| followed.neighbour().is_some_and(|key| neighbours.contains(&key)), |_| ());
        }
    }

    /// Has some targets looked at, after a change of what is known of them.
    fn renew(&mut self, is_one: impl Fn(&Followed) -> bool, change: impl Fn(&mut Followed)) {
        for (target, followed) in self.targets.iter_mut().filter(|(_, followed)| is_one(followed)) {
            change(followed);
            followed.look(*target, &mut self.fresh);
        }
    }

    /// Reads notifications.
    fn listen(&mut self) -> Result<(), LinkError> {
        loop {
            match receive(&self.notifications, &mut self.buffer) {
                Ok(None) => return Ok(()),
                Ok(Some(length)) => self.hear(length),
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    self.neighbours.clear();
                    self.heard.may_be_any = true;
                }
                Err(source) => return Err(LinkError::Socket { step: "listen", source }),
            }
        }
    }

    /// Reads the notifications at the start of the buffer.
    fn hear(&mut self, length: usize) {
        for message in Messages::new(&self.buffer[..length]) {
            match message.and_then(|message| news(&message)) {
                Ok(News::Neighbour(key, neighbour)) => {
                    if let Some(known) = self.neighbours.get_mut(&key) {
                        let is_same = (known.mac, known.has_failed) == (neighbour.mac, neighbour.has_failed);
                        *known = neighbour;
                        if !is_same {
                            self.heard.neighbours.insert(key);
                        }
                    }
                }
                Ok(News::Route(addresses)) => {
                    if self.heard.routes.len() <= ROUTES {
                        self.heard.routes.insert(addresses.into_inner());
                    }
                }
                Ok(News::Nothing) => {}
                // About something else, or it may have been about anything.
                Ok(News::Other) | Err(_) => self.heard.may_be_any = true,
            }
        }
    }

    fn resolve(&mut self, target: Target) -> Result<Result<NextHop, NoNextHop>, LinkError> {
        let Target { destination, .. } = target;
        let is_known = self.targets.get(&target).is_some_and(|followed| followed.route.is_some());
        if !is_known {
            let way = match self.way(target)? {
                Ok(way) => way,
                Err(none) => return Ok(Err(none)),
            };
            if let Some(followed) = self.targets.get_mut(&target) {
                followed.route = Some(way);
            }
        }
        let Some(Way { route, name, mac, mtu, egress_mtu, vlans }) =
            self.targets.get(&target).and_then(|followed| followed.route.as_ref())
        else {
            return Ok(Err(NoNextHop::NotUnicast { destination }));
        };
        let (key, egress, egress_mac) = ((route.egress, route.neighbour), name.clone(), *mac);
        let (mtu, egress_mtu, vlans) = (*mtu, *egress_mtu, vlans.clone());
        let source = route.source.unwrap_or(match destination {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        });
        let known = match self.neighbours.get(&key) {
            Some(known) => *known,
            None => self.neighbour(key)?,
        };
        Ok(match known {
            Neighbour { mac: Some(mac), .. } => {
                Ok(NextHop { egress, egress_index: key.0, egress_mac, mtu, egress_mtu, vlans, mac, source })
            }
            Neighbour { has_failed: true, .. } => Err(NoNextHop::Silent { neighbour: key.1, egress }),
            _ => Err(NoNextHop::Unknown { neighbour: key.1, egress }),
        })
    }

    /// Begins to follow a neighbour, which the kernel is to find if it does not know it.
    fn neighbour(&mut self, key: NeighbourKey) -> Result<Neighbour, LinkError> {
        // Its device may be gone, which is notified. The table of neighbours may be full: it is asked for again with those that are not certain.
        let known = unless_refused(route::neighbour(&mut self.control, key))?.unwrap_or_default();
        if known.mac.is_none() {
            unless_refused(route::solicit(&mut self.control, key))?;
        }
        self.neighbours.insert(key, known);
        Ok(known)
    }

    fn way(&mut self, target: Target) -> Result<Result<Way, NoNextHop>, LinkError> {
        let Target { destination, .. } = target;
        let route = match route::route(&mut self.control, target) {
            Ok(Some(route)) => route,
            Ok(None) => return Ok(Err(NoNextHop::NotUnicast { destination })),
            Err(LinkError::Refused { reason, .. }) => {
                return Ok(Err(NoNextHop::NoRoute { destination, reason: reason.to_string() }));
            }
            Err(error) => return Err(error),
        };
        let none = |egress| NoNextHop::NoEgress { destination, egress };
        let device = match self.devices.get(&route.egress) {
            Some(known) => known.clone(),
            None => {
                let device = route::egress(&mut self.control, route.egress)?;
                self.devices.insert(route.egress, device.clone());
                device
            }
        };
        Ok(match device {
            Some(egress) if egress.is_up => {
                let of_device = match destination {
                    IpAddr::V4(_) => egress.mtu,
                    IpAddr::V6(_) => egress.mtu6.map_or(egress.mtu, |mtu6| mtu6.min(egress.mtu)),
                };
                let mtu = route.mtu.map_or(of_device, |mtu| mtu.min(of_device));
                let (name, egress_mtu, vlans) = (egress.name.clone(), egress.mtu, egress.vlans);
                let way = |mac| Way { route, name, mac, mtu, egress_mtu, vlans };
                egress.mac.map(way).ok_or_else(|| none(egress.name))
            }
            Some(egress) => Err(none(egress.name)),
            None => Err(none(format!("device {}", route.egress))),
        })
    }

    /// Has the kernel make sure of neighbours that it has not heard of lately, and looks at devices again.
    fn assure(&mut self) -> Result<(), LinkError> {
        self.assured = Instant::now();
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for ifindex in devices {
            let device = route::egress(&mut self.control, ifindex)?;
            if self.devices.insert(ifindex, device.clone()) != Some(device) {
                let leaves_by_it =
                    |followed: &Followed| followed.neighbour().is_some_and(|(egress, _)| egress == ifindex);
                self.renew(leaves_by_it, |followed| followed.route = None);
            }
        }
        let doubtful: Vec<_> =
            self.neighbours.iter().filter(|(_, known)| !known.is_certain).map(|(key, _)| *key).collect();
        for key in doubtful {
            // Its device may be gone, which is notified.
            unless_refused(route::solicit(&mut self.control, key))?;
        }
        Ok(())
    }
}

impl AsFd for NextHops {
    /// Becomes readable when something was notified, and the next [`poll`](NextHops::poll) may tell of it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

impl Followed {
    /// Has it looked at.
    fn look(&mut self, target: Target, fresh: &mut Vec<Target>) {
        if !std::mem::replace(&mut self.is_fresh, true) {
            fresh.push(target);
        }
    }

    fn neighbour(&self) -> Option<NeighbourKey> {
        self.route.as_ref().map(|way| (way.route.egress, way.route.neighbour))
    }
}

/// What a notification is about.
enum News {
    Neighbour(NeighbourKey, Neighbour),
    /// A route for these addresses.
    Route(RangeInclusive<IpAddr>),
    /// What no way depends on.
    Nothing,
    Other,
}

fn news(message: &Message<'_>) -> Result<News, Malformed> {
    Ok(match message.header.kind {
        // A bridge tells by the same messages what it learns and forgets.
        kind::NEW_NEIGHBOUR | kind::DELETE_NEIGHBOUR => {
            route::read_neighbour(message)?.map_or(News::Nothing, |(key, neighbour)| News::Neighbour(key, neighbour))
        }
        _ => route::read_destinations(message)?.map_or(News::Other, News::Route),
    })
}

/// Whether rules look at ports. A kernel without rules refuses to list them.
fn look_at_ports(control: &mut Control) -> Result<bool, LinkError> {
    Ok(unless_refused(rule::rules_look_at_ports(control))?.unwrap_or(false))
}

/// What the kernel refuses about one neighbour says nothing of the others.
fn unless_refused<T>(answer: Result<T, LinkError>) -> Result<Option<T>, LinkError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(LinkError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
