//! The ports of the device, and who is reached through them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use sluice_flow::backend::PortCounters;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;

use crate::packet::Mac;

/// Addresses that a port remembers at most, so that a flood of forged sources cannot fill the memory.
const NEIGHBOURS: usize = 4096;

/// All ports. Packets see a snapshot.
pub(crate) struct Ports {
    map: ArcSwap<PortTable>,
    changing: Mutex<()>,
}

/// The ports at one moment.
#[derive(Clone, Default)]
pub(crate) struct PortTable {
    ports: HashMap<PortNumber, Arc<PortState>, foldhash::fast::RandomState>,
    /// Tunnel ports by underlay and by what is taken out of it.
    tunnels: HashMap<(PortNumber, Entrance), Arc<PortState>, foldhash::fast::RandomState>,
}

/// How the packets of a tunnel port are told from all others on its underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entrance {
    /// They go to a UDP port.
    Udp(u16),
    /// They are GRE, but not ERSPAN.
    Gre,
    /// They are GRE with one of the protocol types of ERSPAN.
    Erspan,
}

impl Entrance {
    /// That of a tunnel; `None` where its protocol needs a UDP port and it has none.
    fn of(tunnel: &Tunnel) -> Option<Self> {
        match tunnel.protocol {
            TunnelProtocol::Gre => Some(Self::Gre),
            TunnelProtocol::Erspan => Some(Self::Erspan),
            TunnelProtocol::Vxlan | TunnelProtocol::Geneve | TunnelProtocol::Gtpu => tunnel.udp_port.map(Self::Udp),
        }
    }
}

/// One port.
pub(crate) struct PortState {
    pub(crate) port: Port,
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    pub(crate) sequence: Sequence,
    neighbours: RwLock<Neighbours>,
}

/// The number of the next packet of a port whose outer header has one.
#[derive(Default)]
pub(crate) struct Sequence(AtomicU32);

impl Sequence {
    /// Counts up with every call.
    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// One that goes its own way from the same number on.
    pub(crate) fn fork(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

/// What frames that came in have told about the network behind a port.
#[derive(Default)]
struct Neighbours {
    /// Who sent from which address.
    macs: HashMap<IpAddr, Mac, foldhash::fast::RandomState>,
    /// The address of this end, IPv4 and IPv6: that to which tunnel packets came.
    own: [Option<IpAddr>; 2],
}

impl PortTable {
    pub(crate) fn get(&self, number: PortNumber) -> Option<&Arc<PortState>> {
        self.ports.get(&number)
    }

    /// The tunnel port that takes such packets out of an underlay.
    pub(crate) fn tunnel(&self, underlay: PortNumber, entrance: Entrance) -> Option<&Arc<PortState>> {
        self.tunnels.get(&(underlay, entrance))
    }

    /// Whether any tunnel runs over a port.
    pub(crate) fn is_underlay(&self, number: PortNumber) -> bool {
        self.tunnels.keys().any(|(underlay, _)| *underlay == number)
    }
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self { map: ArcSwap::default(), changing: Mutex::new(()) }
    }

    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<PortTable>> {
        self.map.load()
    }

    /// Adds a port; the same port again is no news.
    pub(crate) fn attach(&self, port: &Port) -> Result<(), Refusal> {
        let _changing = self.changing.lock();
        let mut table = PortTable::clone(&self.map.load());
        if let Some(taken) = table.get(port.number) {
            return if taken.port == *port { Ok(()) } else { Err(refuse(port, "the number is taken")) };
        }
        let state = Arc::new(PortState::new(port.clone()));
        if let PortKind::Tunnel(tunnel) = &port.kind {
            let is_tunnel = |number| table.get(number).is_some_and(|underlay| underlay.tunnel().is_some());
            if tunnel.underlay == port.number || is_tunnel(tunnel.underlay) {
                return Err(refuse(port, "a tunnel cannot run over a tunnel"));
            }
            let Some(entrance) = Entrance::of(tunnel) else {
                return Err(refuse(port, "a tunnel of its kind needs a UDP port"));
            };
            if table.tunnel(tunnel.underlay, entrance).is_some() {
                return Err(refuse(
                    port,
                    match entrance {
                        Entrance::Udp(_) => "another tunnel has its UDP port on this underlay",
                        Entrance::Gre | Entrance::Erspan => "another tunnel of its kind is on this underlay",
                    },
                ));
            }
            table.tunnels.insert((tunnel.underlay, entrance), Arc::clone(&state));
        }
        table.ports.insert(port.number, state);
        self.map.store(Arc::new(table));
        Ok(())
    }

    /// Takes a port away.
    pub(crate) fn detach(&self, number: PortNumber) -> Result<(), Refusal> {
        let _changing = self.changing.lock();
        let mut table = PortTable::clone(&self.map.load());
        let Some(state) = table.ports.remove(&number) else {
            return Err(Refusal::no_port(number));
        };
        if let Some((tunnel, entrance)) = state.tunnel().and_then(|tunnel| Some((tunnel, Entrance::of(tunnel)?))) {
            table.tunnels.remove(&(tunnel.underlay, entrance));
        }
        self.map.store(Arc::new(table));
        Ok(())
    }
}

fn refuse(port: &Port, reason: &'static str) -> Refusal {
    Refusal::Port { port: port.name.to_string(), number: Some(port.number), reason: reason.into() }
}

impl PortState {
    fn new(port: Port) -> Self {
        Self {
            port,
            rx_packets: AtomicU64::new(0),
            rx_bytes: AtomicU64::new(0),
            tx_packets: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            sequence: Sequence::default(),
            neighbours: RwLock::default(),
        }
    }

    /// The tunnel, if the port is one.
    pub(crate) fn tunnel(&self) -> Option<&Tunnel> {
        match &self.port.kind {
            PortKind::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }

    pub(crate) fn count_rx(&self, bytes: usize) {
        self.count_rx_burst(1, bytes);
    }

    pub(crate) fn count_rx_burst(&self, frames: usize, bytes: usize) {
        self.rx_packets.fetch_add(frames as u64, Ordering::Relaxed);
        self.rx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_tx(&self, bytes: usize) {
        self.tx_packets.fetch_add(1, Ordering::Relaxed);
        self.tx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> PortCounters {
        PortCounters {
            rx_packets: self.rx_packets.load(Ordering::Relaxed),
            rx_bytes: self.rx_bytes.load(Ordering::Relaxed),
            tx_packets: self.tx_packets.load(Ordering::Relaxed),
            tx_bytes: self.tx_bytes.load(Ordering::Relaxed),
        }
    }

    /// The port's own Ethernet address: locally administered, unicast, and made of its number.
    pub(crate) fn mac(&self) -> Mac {
        let [a, b, c, d] = self.port.number.0.to_be_bytes();
        [0x02, 0x00, a, b, c, d]
    }

    /// Remembers who has an address.
    pub(crate) fn learn(&self, address: IpAddr, mac: Mac) {
        let is_one = !address.is_unspecified() && !address.is_multicast() && mac[0] & 1 == 0;
        if !is_one || self.neighbours.read().macs.get(&address) == Some(&mac) {
            return;
        }
        let mut neighbours = self.neighbours.write();
        if neighbours.macs.len() < NEIGHBOURS || neighbours.macs.contains_key(&address) {
            neighbours.macs.insert(address, mac);
        }
    }

    /// Who has an address, if it is known.
    pub(crate) fn neighbour(&self, address: IpAddr) -> Option<Mac> {
        self.neighbours.read().macs.get(&address).copied()
    }

    /// Remembers the address of this end.
    pub(crate) fn learn_own(&self, address: IpAddr) {
        let family = usize::from(address.is_ipv6());
        if !address.is_multicast() && self.neighbours.read().own[family] != Some(address) {
            self.neighbours.write().own[family] = Some(address);
        }
    }

    /// The IPv4 or IPv6 address of this end, if it is known.
    pub(crate) fn own(&self, is_ipv6: bool) -> Option<IpAddr> {
        self.neighbours.read().own[usize::from(is_ipv6)]
    }
}
