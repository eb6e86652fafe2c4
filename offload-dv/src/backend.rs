//! The backend: what the agent asks, on whatever thread, becomes work for the thread of the device.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::{
    Adopter, Auditor, Backend, BackendConfig, Capabilities, Capacity, Checker, Connections, CountedApart,
    CounterReader, EventStream, Facet, Handle, Injector, InstallQueue, InstalledRule, LastCounters, Listing, LooksAt,
    LookupCounters, LostRule, Meters, Mirrors, MissPolicy, OpenConfig, PortCounters,
};
use sluice_flow::field::Field;
use sluice_flow::port::{Port, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Clock;
use sluice_flow::{Cause, Flow};

use crate::arrivals::Arrivals;
use crate::config::{Config, ConnectionsOf, KIND};
use crate::connections::{ConnectionSource, ConnectionTable, KernelConnections, SourceError, ToldConnections, Tracker};
use crate::device::{self, Names};
use crate::eswitch;
use crate::events::Events;
use crate::owner::Owner;
use crate::ports::{Moved, Ports};
use crate::queue::Queue;
use crate::reader::Reader;
use crate::translate::{as_seen, translate};
use crate::trial::Trial;
use crate::ways::Ways;

/// Chains that a packet may pass: tables have 64 levels, of which the kernel has the first, mirrors the next four, and the last ten are for
/// rules behind those in the tables of chains. The first chain has two, since packets of tunnels have a table of their own.
const MAX_DEPTH: usize = 48;
/// Changes that are best handed over at once: they wait together until the device has them, for which libmlx5 fills 14 rings.
const BATCH: usize = 256;
/// Workers that help: one thread has the device, and translating takes less time than that needs.
const WORKERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// An mlx5 NIC with our rules.
pub struct DvNic {
    /// These end before the thread of the device.
    _tracker: Option<Tracker>,
    _arrivals: Arrivals,
    connection_table: Option<Box<dyn ConnectionTable>>,
    has_meters: bool,
    names: Names,
    owner: Arc<Owner>,
    ports: Arc<Ports>,
    ways: Arc<Ways>,
    clock: Arc<dyn Clock>,
    events: Events,
}

impl DvNic {
    /// Opens the eswitch that the device manages, and takes its traffic.
    pub fn open(config: &Config, open: &OpenConfig) -> Result<Self, Refusal> {
        let source: Option<Box<dyn ConnectionSource>> = match config.connections {
            None => None,
            Some(ConnectionsOf::Kernel) => Some(Box::new(KernelConnections::open().map_err(no_connections)?)),
            Some(ConnectionsOf::Commands) => Some(Box::new(ToldConnections::new(open.clock.clone()))),
        };
        Self::open_with(config, open, source)
    }

    /// Opens it with a source of connections of the caller's own.
    pub fn open_with(
        config: &Config,
        open: &OpenConfig,
        source: Option<Box<dyn ConnectionSource>>,
    ) -> Result<Self, Refusal> {
        if !config.takeover {
            let reason = "backend \"dv\" takes the traffic of the eswitch from the kernel's tc and from Open vSwitch; `takeover = true` \
                          in [dv] allows that";
            return Err(Refusal::Device { reason: reason.into() });
        }
        let names = device::names(&open.device);
        names.address.as_deref().map_or(Ok(()), eswitch::check)?;
        let events = Events::new();
        let stuck_after = Duration::from_secs(config.stuck_after.get().into());
        let alarmed = events.clone();
        let owner = Arc::new(Owner::start(&names.rdma, stuck_after, move |reason| alarmed.failed(reason))?);
        let ports = Arc::new(Ports::new(config.vports.clone(), names.clone(), owner.clone(), source.is_some())?);
        let (ways, asks) = Ways::start(&owner, &ports, config.leaves_by.clone(), &events)?;
        let (events_of_hops, clock) = (events.clone(), open.clock.clone());
        owner.post(move |desk| desk.rules.set_asks(asks, events_of_hops, clock))?;
        let connection_table = source.as_ref().and_then(|source| source.table());
        let tracker = source.map(|source| {
            owner.call(|desk| desk.rules.switch().accept_connections())??;
            Tracker::start(source, owner.clone(), open.clock.clone())
        });
        let clock = open.clock.clone();
        let has_meters = owner.call(|desk| desk.rules.switch().has_meters())?;
        let _tracker = tracker.transpose()?;
        let told = events.clone();
        let tell = move |Moved { come, gone }: Moved| {
            gone.into_iter().for_each(|port| told.port_changed(port));
            come.into_iter().for_each(|port| told.changed(Cause::Port(Some(port))));
        };
        let _arrivals = Arrivals::start(ports.clone(), tell)?;
        Ok(Self { _tracker, _arrivals, connection_table, has_meters, names, owner, ports, ways, clock, events })
    }

    /// Returns the connections of the source. Fails if there is none, or operators do not see into it.
    pub(crate) fn connection_table(&self) -> Result<&dyn ConnectionTable, Refusal> {
        self.connection_table.as_deref().ok_or(Refusal::Unsupported { facet: Facet::Connections })
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Tells of a port that has come, which goes again if the device does not take it.
    fn tell_of(&self, port: PortNumber) -> Result<(), Refusal> {
        if let Err(refusal) = self.ports.tell() {
            self.ports.detach(port)?;
            return Err(refusal);
        }
        self.changed(Cause::Port(Some(port)));
        Ok(())
    }

    pub(crate) fn changed(&self, cause: Cause) {
        self.events.changed(cause);
    }
}

impl Backend for DvNic {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: KIND.name,
            miss: MissPolicy::Representor,
            chain_miss: KIND.chain_miss,
            max_lag: Duration::ZERO,
            last_counters: LastCounters::Exact,
            modifies_in_place: true,
            max_chain_depth: MAX_DEPTH,
            batch: BATCH,
            workers: Some(WORKERS),
            listing: Listing::Ledger,
        }
    }

    fn meters(&self) -> Option<&dyn Meters> {
        if self.has_meters { Some(self) } else { None }
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        Some(self)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        if self.connection_table.is_some() { Some(self) } else { None }
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        None
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        None
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        None
    }

    fn injector(&self) -> Option<&dyn Injector> {
        None
    }

    fn notes(&self) -> Vec<String> {
        eswitch::notes(&self.names, &self.ports.attached())
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        let rule = translate(flow, &*self.ports)?;
        self.ways.check(flow, &rule.plan, &*self.ports)?;
        Ok(rule.describe(&|vport| self.ports.name_of(vport)))
    }

    fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        let is_of_tunnel =
            [Field::TunnelFlags, Field::GeneveLength].iter().any(|field| flow.matching().get(*field).1 != 0);
        is_of_tunnel.then(|| LooksAt { matching: as_seen(&flow.matching().expand()), holds_apart: true })
    }

    fn attach_port(&self, port: &Port) -> Result<(), Refusal> {
        self.ports.attach(port)?;
        self.tell_of(port.number)
    }

    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        self.ports.expect(port)?;
        self.tell_of(port.number)
    }

    fn is_absent(&self, port: PortNumber) -> bool {
        self.ports.is_absent(port)
    }

    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal> {
        self.ports.detach(port)?;
        // In a device that has failed nothing is known by the port.
        self.ports.tell().or_else(|refusal| if self.owner.check().is_err() { Ok(()) } else { Err(refusal) })
    }

    fn port_counters(&self, _: PortNumber) -> Option<PortCounters> {
        None
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        None
    }

    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        Ok(Box::new(Queue::new(self.owner.clone(), self.ports.clone())))
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(Reader::new(self.owner.clone(), self.clock.clone())))
    }

    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        self.owner.call(|desk| desk.rules.list())?.into_iter().for_each(visit);
        Ok(())
    }

    fn counted_apart(&self, _: Handle) -> Result<Option<CountedApart>, Refusal> {
        Ok(None)
    }

    fn flush(&self) -> Result<usize, Refusal> {
        self.owner.call(|desk| desk.rules.flush())?
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        // What is in the device goes with this process.
        Ok(Vec::new())
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        Ok(Vec::new())
    }

    fn events(&self) -> EventStream {
        self.events.stream()
    }
}

fn no_connections(error: SourceError) -> Refusal {
    Refusal::Device { reason: format!("the kernel's connections: {error}").into() }
}

impl BackendConfig for Config {
    fn open(&self, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
        Ok(Arc::new(DvNic::open(self, config)?))
    }

    fn checker(&self) -> Box<dyn Checker> {
        Box::new(Trial::new(self))
    }
}
