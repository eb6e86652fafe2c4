//! A backend that breaks one promise, so that it is seen which story notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use sluice_flow::action::ActionList;
use sluice_flow::backend::{
    Adopter, Adoption, Auditor, Capabilities, Capacity, ChainChange, ChainCompletion, ChainOperation, Change, Claims,
    Completion, Connections, CountedApart, CounterReader, EventStream, Facet, Handle, Holding, Injector, InstallQueue,
    InstalledRule, LooksAt, LookupCounters, LostRule, MeterCounters, MeterFault, Meters, MirrorCounters, MirrorFault,
    Mirrors, Operation, Outcome, Outlet, Placement, PortCounters, Room, ToInspect, Verdict,
};
use sluice_flow::connection::{Connection, Selection, ZoneLimits};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::timeout::TimeoutPolicy;
use sluice_flow::trace::Tracer;
use sluice_flow::{Backend, ChainId, Flow, FlowId, Generation, Port, PortNumber, Refusal};

/// What a backend can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Completions carry another generation than the change.
    ForgetsGenerations,
    /// Completions come twice.
    CompletesTwice,
    /// Completions come later, and nobody is woken.
    WakesNobody,
    /// A modification is said to be made.
    IgnoresModifications,
    /// A modification is a removal and an installation.
    ModifiesAnew,
    /// A removal says nothing of what was counted.
    ForgetsLastCounters,
    /// A removal of what is gone is refused.
    RefusesToRemoveNothing,
    /// A refused flow has a rule that drops.
    InstallsTheRefused,
    /// One refusal is that of the whole batch.
    RefusesWholeBatches,
    /// A rule opens the chains that it jumps to.
    OpensChainsItself,
    /// After a worker has gone no other one has anything done.
    DiesWithAWorker,
    /// Packets count twice.
    CountsTwice,
    /// A reading carries another generation than the installation.
    ReadsAsAnother,
    /// What was once read is read for ever.
    ReadsTheRemoved,
    /// All would be taken.
    ExplainsEverything,
    /// Ports that are taken away stay.
    KeepsPorts,
    /// A port that is expected never comes.
    ExpectsNothing,
    /// Chains stay open.
    ClosesNoChain,
    /// Completions of changes to chains come twice.
    CompletesChainsTwice,
    /// A chain may be jumped to by rules of the queue that opened it.
    OpensForOneWorker,
    /// With a chain go the rules that are in it.
    ClosesChainsWithRules,
    /// There are no meters, whatever is under it.
    HidesMeters,
    /// Meters are said to be set.
    SetsNoMeters,
    /// Mirrors are said to be set.
    SetsNoMirrors,
    /// Limits of connections are said to be set.
    ForgetsLimits,
    /// There is room, however many rules wait.
    HasAlwaysRoom,
    /// Packets that are put in vanish.
    SwallowsPackets,
    /// Nothing is ever told.
    TellsNothing,
    /// Rules are said to be lost.
    LosesRules,
    /// Rules stay.
    FlushesNothing,
    /// What earlier runs left stays what it is.
    AdoptsNothing,
    /// No rule is there when it is read back.
    ReadsNothingBack,
    /// A rule is a stray if somebody says so.
    RemovesAnyRule,
}

/// See the [module](self).
pub(crate) struct Broken {
    inner: Arc<dyn Backend>,
    breach: Breach,
    has_lost_a_worker: Arc<AtomicBool>,
}

impl Broken {
    pub(crate) fn new(inner: Arc<dyn Backend>, breach: Breach) -> Self {
        Self { inner, breach, has_lost_a_worker: Arc::default() }
    }

    fn is(&self, breach: Breach) -> bool {
        self.breach == breach
    }
}

struct Queue {
    inner: Box<dyn InstallQueue>,
    backend: Arc<dyn Backend>,
    breach: Breach,
    has_lost_a_worker: Arc<AtomicBool>,
    /// What is done, and not told of yet.
    kept: Vec<Completion>,
    /// Chains that it has opened.
    opened: Vec<ChainId>,
}

fn refused() -> Refusal {
    Refusal::Device { reason: "as the breach demands".into() }
}

impl Queue {
    /// Makes one change as the breach has it.
    fn make(&mut self, change: Change, done: &mut Vec<Completion>) {
        let Change { flow, generation, operation } = change.clone();
        match (self.breach, operation) {
            (Breach::DiesWithAWorker, _) if self.has_lost_a_worker.load(Ordering::SeqCst) => {
                done.push(Completion { flow, generation, result: Err(refused()) });
            }
            (Breach::IgnoresModifications, Operation::Modify(handle, _)) => {
                let result = Ok(Outcome::InPlace { handle, placement: Placement::Hardware });
                done.push(Completion { flow, generation, result });
            }
            (Breach::ModifiesAnew, Operation::Modify(handle, wanted)) => {
                let anew = [Operation::Remove(handle), Operation::Install(wanted)];
                let mut changes = anew.map(|operation| Change { operation, ..change.clone() }).to_vec();
                let mut both = Vec::new();
                self.inner.submit(&mut changes, &mut both);
                both.retain(|done| !matches!(done.result, Ok(Outcome::Removed { .. })));
                done.append(&mut both);
            }
            (Breach::OpensChainsItself, Operation::Install(wanted)) => {
                let open = |chain| ChainChange { chain, operation: ChainOperation::Open };
                wanted.jumps().into_iter().for_each(|chain| self.inner.submit_chain(open(chain), &mut Vec::new()));
                self.inner.submit(&mut vec![change], done);
            }
            (Breach::OpensForOneWorker, Operation::Install(wanted))
                if !wanted.jumps().iter().all(|chain| self.opened.contains(chain)) =>
            {
                done.push(Completion { flow, generation, result: Err(refused()) });
            }
            (Breach::InstallsTheRefused, Operation::Install(wanted)) => {
                self.inner.submit(&mut vec![change.clone()], done);
                if done.last().is_some_and(|done| done.result.is_err()) {
                    let operation = Operation::Install(wanted.with_actions(ActionList::from([])));
                    self.inner.submit(&mut vec![Change { operation, ..change }], &mut Vec::new());
                }
            }
            _ => self.inner.submit(&mut vec![change], done),
        }
    }

    fn spoil(&self, done: &mut Vec<Completion>) {
        match self.breach {
            Breach::ForgetsGenerations => done.iter_mut().for_each(|done| done.generation = Generation(1_000_000)),
            Breach::CompletesTwice => done.extend_from_within(..),
            Breach::RefusesWholeBatches if done.iter().any(|done| done.result.is_err()) => {
                done.iter_mut().for_each(|done| done.result = Err(refused()));
            }
            _ => {}
        }
        for Completion { result, .. } in done {
            if let Ok(Outcome::Removed { last }) = result {
                match self.breach {
                    Breach::ForgetsLastCounters => *last = None,
                    Breach::RefusesToRemoveNothing if last.is_none() => *result = Err(refused()),
                    _ => {}
                }
            }
        }
    }
}

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        let mut made = Vec::new();
        batch.drain(..).for_each(|change| self.make(change, &mut made));
        self.spoil(&mut made);
        if self.breach == Breach::WakesNobody { self.kept.append(&mut made) } else { done.append(&mut made) }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.kept);
    }

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        let made = ChainCompletion { change, result: Ok(()) };
        match (self.breach, change.operation) {
            (Breach::ClosesNoChain, ChainOperation::Close) => done.push(made),
            (Breach::ClosesChainsWithRules, ChainOperation::Close) => {
                self.backend.flush().unwrap();
                self.inner.submit_chain(change, done);
            }
            (Breach::CompletesChainsTwice, _) => {
                self.inner.submit_chain(change, done);
                done.push(made);
            }
            _ => self.inner.submit_chain(change, done),
        }
        self.opened.push(change.chain);
    }

    fn poll_chains(&mut self, done: &mut Vec<ChainCompletion>) {
        self.inner.poll_chains(done);
    }

    fn set_waker(&mut self, _: Waker) {}
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.has_lost_a_worker.store(true, Ordering::SeqCst);
    }
}

struct Reader {
    inner: Box<dyn CounterReader>,
    breach: Breach,
    kept: Vec<Reading>,
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let Self { inner, breach, kept } = self;
        inner.read(&mut |readings, sampled| {
            let mut readings = readings.to_vec();
            for reading in &mut readings {
                match breach {
                    Breach::CountsTwice => reading.counters.packets *= 2,
                    Breach::ReadsAsAnother => reading.installed_as = Generation(1_000_000),
                    _ => {}
                }
            }
            kept.extend_from_slice(&readings);
            visit(&readings, sampled);
            if *breach == Breach::ReadsTheRemoved {
                visit(kept, sampled);
            }
        })?;
        if *breach == Breach::ReadsTheRemoved {
            let now = sluice_flow::Timestamp(0);
            visit(kept, Sampled { earliest: now, latest: now });
        }
        Ok(())
    }
}

impl Backend for Broken {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn meters(&self) -> Option<&dyn Meters> {
        self.inner.meters().filter(|_| !self.is(Breach::HidesMeters)).map(|_| self as &dyn Meters)
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        self.inner.mirrors().map(|_| self as &dyn Mirrors)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        self.inner.connections().map(|_| self as &dyn Connections)
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        self.inner.adoption().map(|_| self as &dyn Adopter)
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        self.inner.audit().map(|_| self as &dyn Auditor)
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        self.inner.capacity().map(|_| self as &dyn Capacity)
    }

    fn injector(&self) -> Option<&dyn Injector> {
        self.inner.injector().map(|_| self as &dyn Injector)
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        if self.is(Breach::ExplainsEverything) { Ok("a rule".into()) } else { self.inner.explain(flow) }
    }

    fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        self.inner.looks_at(flow)
    }

    fn attach_port(&self, port: &Port) -> Result<(), Refusal> {
        self.inner.attach_port(port)
    }

    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        if self.is(Breach::ExpectsNothing) { Ok(()) } else { self.inner.expect_port(port) }
    }

    fn is_absent(&self, port: PortNumber) -> bool {
        self.inner.is_absent(port)
    }

    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal> {
        if self.is(Breach::KeepsPorts) { Ok(()) } else { self.inner.detach_port(port) }
    }

    fn port_counters(&self, port: PortNumber) -> Option<PortCounters> {
        self.inner.port_counters(port)
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        self.inner.lookup_counters()
    }

    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        let (inner, backend, breach) = (self.inner.install_queue()?, self.inner.clone(), self.breach);
        let has_lost_a_worker = self.has_lost_a_worker.clone();
        Ok(Box::new(Queue { inner, backend, breach, has_lost_a_worker, kept: Vec::new(), opened: Vec::new() }))
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(Reader { inner: self.inner.counter_reader()?, breach: self.breach, kept: Vec::new() }))
    }

    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        self.inner.installed(visit)
    }

    fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        self.inner.counted_apart(handle)
    }

    fn flush(&self) -> Result<usize, Refusal> {
        if self.is(Breach::FlushesNothing) { Ok(0) } else { self.inner.flush() }
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        self.inner.release()
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        let lost = LostRule { flow: FlowId { slot: 1, incarnation: 1 }, handle: Handle(1) };
        if self.is(Breach::LosesRules) { Ok(vec![lost]) } else { self.inner.resync() }
    }

    fn events(&self) -> EventStream {
        if self.is(Breach::TellsNothing) { EventStream::silent() } else { self.inner.events() }
    }
}

impl Meters for Broken {
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal> {
        if self.is(Breach::SetsNoMeters) {
            Ok(())
        } else {
            Facet::Meters.require(self.inner.meters())?.set_meter(meter)
        }
    }

    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal> {
        Facet::Meters.require(self.inner.meters())?.remove_meter(meter)
    }

    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters> {
        self.inner.meters()?.meter_counters(meter)
    }

    fn check_meters(&self, mends: bool) -> Result<Vec<MeterFault>, Refusal> {
        Facet::Meters.require(self.inner.meters())?.check_meters(mends)
    }
}

impl Mirrors for Broken {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        let mirrors = Facet::Mirrors.require(self.inner.mirrors())?;
        if self.is(Breach::SetsNoMirrors) { Ok(()) } else { mirrors.set_mirror(mirror) }
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        Facet::Mirrors.require(self.inner.mirrors())?.remove_mirror(name)
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        self.inner.mirrors()?.mirror_counters(name)
    }

    fn check_mirrors(&self, mends: bool) -> Result<Vec<MirrorFault>, Refusal> {
        Facet::Mirrors.require(self.inner.mirrors())?.check_mirrors(mends)
    }

    fn outlet(&self) -> Outlet<'_> {
        self.inner.mirrors().map_or(Outlet::Ports, Mirrors::outlet)
    }
}

impl Broken {
    fn tracked(&self) -> Result<&dyn Connections, Refusal> {
        Facet::Connections.require(self.inner.connections())
    }
}

impl Connections for Broken {
    fn set_timeout_policy(&self, policy: &TimeoutPolicy) -> Result<(), Refusal> {
        self.tracked()?.set_timeout_policy(policy)
    }

    fn remove_timeout_policy(&self, name: &str) -> Result<(), Refusal> {
        self.tracked()?.remove_timeout_policy(name)
    }

    fn visit_connections(&self, zone: Option<u16>, visit: &mut dyn FnMut(Connection)) -> Result<(), Refusal> {
        self.tracked()?.visit_connections(zone, visit)
    }

    fn add_connection(&self, connection: &Connection) -> Result<(), Refusal> {
        self.tracked()?.add_connection(connection)
    }

    fn flush_connections(&self, of: &Selection) -> Result<usize, Refusal> {
        self.tracked()?.flush_connections(of)
    }

    fn connection_buckets(&self) -> Result<Vec<usize>, Refusal> {
        self.tracked()?.connection_buckets()
    }

    fn connection_count(&self) -> Result<usize, Refusal> {
        self.tracked()?.connection_count()
    }

    fn connection_limit(&self) -> Result<u32, Refusal> {
        self.tracked()?.connection_limit()
    }

    fn set_connection_limit(&self, limit: u32) -> Result<(), Refusal> {
        if self.is(Breach::ForgetsLimits) { Ok(()) } else { self.tracked()?.set_connection_limit(limit) }
    }

    fn set_zone_limit(&self, zone: Option<u16>, limit: u32) -> Result<(), Refusal> {
        self.tracked()?.set_zone_limit(zone, limit)
    }

    fn remove_zone_limit(&self, zone: Option<u16>) -> Result<(), Refusal> {
        self.tracked()?.remove_zone_limit(zone)
    }

    fn zone_limits(&self, zones: &[u16]) -> Result<ZoneLimits, Refusal> {
        self.tracked()?.zone_limits(zones)
    }
}

impl Adopter for Broken {
    fn adopt(&self, claims: &mut dyn Claims) -> Result<Adoption, Refusal> {
        let adopter = Facet::Adoption.require(self.inner.adoption())?;
        if self.is(Breach::AdoptsNothing) { Ok(Adoption::default()) } else { adopter.adopt(claims) }
    }

    fn holdings(&self) -> Result<Vec<Holding>, Refusal> {
        Facet::Adoption.require(self.inner.adoption())?.holdings()
    }

    fn remove_holding(&self, mark: u32) -> Result<usize, Refusal> {
        Facet::Adoption.require(self.inner.adoption())?.remove_holding(mark)
    }
}

impl Auditor for Broken {
    fn to_inspect(&self) -> ToInspect {
        self.inner.audit().map(Auditor::to_inspect).unwrap_or_default()
    }

    fn read_back(&self, rules: &[Handle], visit: &mut dyn FnMut(FlowId, InstalledRule)) -> Result<(), Refusal> {
        let rules = if self.is(Breach::ReadsNothingBack) { &[] } else { rules };
        Facet::Audit.require(self.inner.audit())?.read_back(rules, visit)
    }

    fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        Facet::Audit.require(self.inner.audit())?.foreign(visit)
    }

    fn remove_stray(&self, handle: Handle) -> Result<(), Refusal> {
        let removed = Facet::Audit.require(self.inner.audit())?.remove_stray(handle);
        if self.is(Breach::RemovesAnyRule) { Ok(()) } else { removed }
    }
}

impl Capacity for Broken {
    fn room(&self) -> Room {
        let room = self.inner.capacity().map(Capacity::room).unwrap_or_default();
        if self.is(Breach::HasAlwaysRoom) { Room { free: 1, ..room } } else { room }
    }

    fn limit(&self) -> Option<usize> {
        self.inner.capacity().and_then(Capacity::limit)
    }
}

impl Injector for Broken {
    fn check(&self, port: PortNumber, frame: &[u8]) -> Result<(), Refusal> {
        Facet::Injector.require(self.inner.injector())?.check(port, frame)
    }

    fn inject(&self, port: PortNumber, frame: &[u8]) -> Result<Verdict, Refusal> {
        let injector = Facet::Injector.require(self.inner.injector())?;
        if self.is(Breach::SwallowsPackets) { Ok(Verdict::default()) } else { injector.inject(port, frame) }
    }

    fn tracer(&self) -> Box<dyn Tracer + '_> {
        self.inner.injector().unwrap().tracer()
    }
}
