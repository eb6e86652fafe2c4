//! Next hops: whom the kernel would give packets for an address to, and by which device.
//!
//! Nothing is read over and over: routes are looked up again when a route, a rule, an address or a device changes, and neighbours are
//! followed one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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
use crate::netlink::message::Messages;
use crate::route::{self, Egress, MacAddress, Neighbour, NeighbourKey, Route};

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
/// alive.
const ASSURANCE: Duration = Duration::from_secs(10);

/// An address, and the one that packets for it come from, if that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Where packets go.
    pub destination: IpAddr,
    /// Where they come from; `None` leaves it to the route.
    pub source: Option<IpAddr>,
    /// The device that they come in by, if they are forwarded; `None` if this host sends them.
    pub ingress: Option<Ifindex>,
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
    /// Whether it puts a tag of a VLAN on (a device of type `vlan`).
    pub puts_tag: bool,
    /// The Ethernet address of whom they are given to.
    pub mac: MacAddress,
    /// The address that they come from.
    pub source: IpAddr,
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
    /// Those that are to be looked at, the next one last.
    fresh: Vec<Target>,
    /// What was notified since the targets were looked at.
    heard: Heard,
    neighbours: BTreeMap<NeighbourKey, Neighbour>,
    /// Devices by which packets leave, until something is notified that ways depend on: most targets have one of a few.
    devices: BTreeMap<Ifindex, Option<Egress>>,
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
    puts_tag: bool,
}

/// What was notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Heard {
    #[default]
    Nothing,
    /// Neighbours.
    Neighbours,
    /// Anything that ways depend on.
    Ways,
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
        Ok(Self {
            notifications: socket,
            control: Control::open()?,
            targets: BTreeMap::new(),
            fresh: Vec::new(),
            heard: Heard::Nothing,
            neighbours: BTreeMap::new(),
            devices: BTreeMap::new(),
            assured: Instant::now(),
            woken,
            wake: Arc::new(wake),
            buffer: vec![0; ROOM],
        })
    }

    /// Returns what ends a wait.
    pub fn waker(&self) -> NextHopsWaker {
        NextHopsWaker(self.wake.clone())
    }

    /// Follows a target, whose next hop is told by the next [`poll`](Self::poll).
    pub fn follow(&mut self, target: Target) {
        self.targets.entry(target).or_insert_with(|| {
            self.fresh.push(target);
            Followed { route: None, told: None }
        });
    }

    /// No longer follows a target.
    pub fn forget(&mut self, target: Target) {
        self.retain(|known| *known != target);
    }

    /// Follows only those of its targets any longer that are wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&Target) -> bool) {
        self.targets.retain(|target, _| is_wanted(target));
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
        let found = self.look()?;
        if !found.is_empty() || longest.is_zero() {
            return Ok(found);
        }
        let failed = |errno: Errno| LinkError::Socket { step: "wait", source: errno.into() };
        wait(&[self.notifications.as_fd(), self.woken.as_fd()], longest.min(ASSURANCE)).map_err(failed)?;
        while matches!((&self.woken).read(&mut [0; 64]), Ok(1..)) {}
        self.look()
    }

    fn look(&mut self) -> Result<Vec<Found>, LinkError> {
        self.listen()?;
        let heard = std::mem::take(&mut self.heard);
        if heard == Heard::Ways {
            self.devices.clear();
            self.targets.values_mut().for_each(|followed| followed.route = None);
        }
        let is_due = self.assured.elapsed() >= ASSURANCE;
        if heard != Heard::Nothing || is_due {
            self.fresh = self.targets.keys().copied().collect();
        }
        if is_due {
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
            if followed.told.as_ref() != Some(&next) {
                followed.told = Some(next.clone());
                found.push((target, next));
            }
        }
        Ok(found)
    }

    /// Reads notifications.
    fn listen(&mut self) -> Result<(), LinkError> {
        loop {
            match receive(&self.notifications, &mut self.buffer) {
                Ok(None) => return Ok(()),
                Ok(Some(length)) => self.hear(length),
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    self.neighbours.clear();
                    self.heard = Heard::Ways;
                }
                Err(source) => return Err(LinkError::Socket { step: "listen", source }),
            }
        }
    }

    /// Reads the notifications at the start of the buffer.
    fn hear(&mut self, length: usize) {
        for message in Messages::new(&self.buffer[..length]) {
            let read = message.and_then(|message| Ok((message.header.kind, route::read_neighbour(&message)?)));
            match read {
                Ok((_, Some((key, neighbour)))) => {
                    if let Some(known) = self.neighbours.get_mut(&key) {
                        *known = neighbour;
                        self.heard = self.heard.max(Heard::Neighbours);
                    }
                }
                // A bridge tells by the same messages what it learns and forgets, on which no way depends.
                Ok((kind::NEW_NEIGHBOUR | kind::DELETE_NEIGHBOUR, None)) => {}
                // About something else, or it may have been about anything.
                Ok((_, None)) | Err(_) => self.heard = Heard::Ways,
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
        let Some(Way { route, name, mac, mtu, egress_mtu, puts_tag }) =
            self.targets.get(&target).and_then(|followed| followed.route.as_ref())
        else {
            return Ok(Err(NoNextHop::NotUnicast { destination }));
        };
        let (key, egress, egress_mac) = ((route.egress, route.neighbour), name.clone(), *mac);
        let (mtu, egress_mtu, puts_tag) = (*mtu, *egress_mtu, *puts_tag);
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
                Ok(NextHop { egress, egress_index: key.0, egress_mac, mtu, egress_mtu, puts_tag, mac, source })
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
        let Target { destination, source, ingress } = target;
        let route = match route::route(&mut self.control, destination, source, ingress) {
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
                let mtu = route.mtu.unwrap_or(egress.mtu);
                let (name, egress_mtu, puts_tag) = (egress.name.clone(), egress.mtu, egress.puts_tag);
                let way = |mac| Way { route, name, mac, mtu, egress_mtu, puts_tag };
                egress.mac.map(way).ok_or_else(|| none(egress.name))
            }
            Some(egress) => Err(none(egress.name)),
            None => Err(none(format!("device {}", route.egress))),
        })
    }

    /// Has the kernel make sure of neighbours that it has not heard of lately.
    fn assure(&mut self) -> Result<(), LinkError> {
        self.assured = Instant::now();
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
    fn neighbour(&self) -> Option<NeighbourKey> {
        self.route.as_ref().map(|way| (way.route.egress, way.route.neighbour))
    }
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
mod tests {
    use super::*;
    use crate::netlink::message::{Header, write};

    const AF_BRIDGE: u8 = 7;
    const AF_INET: u8 = 2;

    /// What a message with this payload has to do with ways.
    fn heard(kind: u16, payload: &[u8]) -> Heard {
        let mut next_hops = NextHops::open().unwrap();
        let key = (Ifindex(3), Ipv4Addr::new(192, 0, 2, 2).into());
        next_hops.neighbours.insert(key, Neighbour::default());
        next_hops.buffer.clear();
        let header = Header { kind, flags: 0, sequence: 0, port: 0 };
        write(&mut next_hops.buffer, header, |writer| writer.raw(payload)).unwrap();
        next_hops.hear(next_hops.buffer.len());
        next_hops.heard
    }

    #[test]
    fn what_a_bridge_learns_and_forgets_has_no_way_looked_up_again() {
        let neighbour = |family: u8| {
            let address = [8, 0, 1, 0, 192, 0, 2, 2];
            [&[family, 0, 0, 0][..], &3_u32.to_ne_bytes(), &2_u16.to_ne_bytes(), &[0, 0], &address].concat()
        };
        for kind in [kind::NEW_NEIGHBOUR, kind::DELETE_NEIGHBOUR] {
            assert_eq!(heard(kind, &neighbour(AF_BRIDGE)), Heard::Nothing);
            assert_eq!(heard(kind, &neighbour(AF_INET)), Heard::Neighbours);
            assert_eq!(heard(kind, &neighbour(AF_INET)[..3]), Heard::Ways, "it may have been about anything");
        }
        assert_eq!(heard(kind::NEW_ROUTE, &[0; 12]), Heard::Ways);
    }

    #[test]
    fn a_neighbour_that_the_kernel_refuses_to_look_for_is_not_known_and_no_error() {
        let mut next_hops = NextHops::open().unwrap();
        let key = (Ifindex(i32::MAX.cast_unsigned()), Ipv4Addr::new(192, 0, 2, 1).into());
        assert_eq!(next_hops.neighbour(key).unwrap(), Neighbour::default());
        assert!(next_hops.neighbours.contains_key(&key), "it is asked for again");
    }

    #[test]
    fn what_an_error_kept_from_being_looked_at_is_told_afterwards() {
        let mut next_hops = NextHops::open().unwrap();
        for last in [1, 2] {
            let destination = Ipv4Addr::new(127, 0, 0, last).into();
            next_hops.follow(Target { destination, source: None, ingress: None });
        }
        next_hops.control = Control::to_nobody().unwrap();
        for _ in 0..3 {
            assert!(matches!(next_hops.poll(Duration::ZERO), Err(LinkError::Socket { .. })));
        }
        next_hops.control = Control::open().unwrap();
        assert_eq!(next_hops.poll(Duration::ZERO).unwrap().len(), 2);
    }
}
