//! A device that keeps its rules over the life of an agent, as the kernel does: what is put in stays until it is taken out.
//!
//! It forwards nothing. Tests say which rules were hit, and change it behind the agent's back.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::backend::{
    Adopter, Adoption, Auditor, Capabilities, Capacity, ChainChange, ChainCompletion, ChainOperation, Change, Claims,
    Completion, Connections, CountedApart, CounterReader, EventStream, Handle, Holding, Injector, InstallQueue,
    InstalledRule, LastCounters, Listing, LooksAt, LookupCounters, LostRule, Meters, MirrorCounters, MirrorFault,
    Mirrors, MissPolicy, Operation, Outcome, Outlet, Placement, PortCounters, ToInspect,
};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::mirror::Mirror;
use sluice_flow::time::Clock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Action, Backend, ChainId, Counters, Flow, FlowId, Generation, Port, PortNumber, Refusal, Ufid};

/// See the [module](self).
pub struct LastingDevice {
    memory: Arc<Mutex<Memory>>,
    clock: Arc<dyn Clock>,
}

/// What is in the device.
#[derive(Default)]
pub struct Memory {
    /// The rules.
    pub rules: BTreeMap<Handle, Rule>,
    /// Rules of others.
    pub foreign: Vec<String>,
    /// Ports that can be sent to.
    pub ports: BTreeSet<PortNumber>,
    /// Mirrors, and what they have copied.
    pub mirrors: BTreeMap<String, u64>,
    /// Mirrors that the device has otherwise than they were set, and whether it has something in their place.
    pub mirror_faults: BTreeMap<String, bool>,
    /// Chains that the agent has open.
    pub open_chains: BTreeSet<ChainId>,
    /// What was done, in order: a verb and the port that the flow matches.
    pub done: Vec<String>,
    /// Whether the device has no room for UFIDs.
    pub is_nameless: bool,
    /// What every installation is refused with, if it is.
    pub refusal: Option<Refusal>,
    /// Rules of which the device tells that somebody else has touched them.
    pub touched: Vec<Handle>,
    /// How many times rules cannot be read back.
    pub failing_reads: usize,
    /// What every removal is refused with, if it is.
    pub removal_refusal: Option<Refusal>,
    last_handle: u64,
}

/// A rule, and whose it is for the agent that runs.
pub struct Rule {
    /// As it is in the device.
    pub flow: Flow,
    /// What it has counted.
    pub counters: Counters,
    owner: Option<(FlowId, Generation)>,
}

impl LastingDevice {
    /// Without rules.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::default(), clock })
    }

    /// Looks at the memory, or changes it behind the agent's back.
    pub fn with<R>(&self, look: impl FnOnce(&mut Memory) -> R) -> R {
        look(&mut self.memory.lock())
    }

    /// What was done since this was last asked.
    pub fn done(&self) -> Vec<String> {
        std::mem::take(&mut self.memory.lock().done)
    }

    /// Begins another run: no rule is a flow's, and no chain is open.
    pub fn restart(&self) {
        self.memory.lock().restart();
    }

    /// Has packets of 100 bytes come in that the rule with this match takes, and those in the chains that it jumps to.
    pub fn pass(&self, flow: &Flow, packets: u64) {
        let mut memory = self.memory.lock();
        memory.mirrors.values_mut().for_each(|copied| *copied += packets);
        let rule = memory.rules.values().find(|rule| rule.flow.is_same(flow));
        let chains = rule.map(|rule| rule.flow.jumps()).unwrap_or_default();
        let hit = |rule: &&mut Rule| rule.flow.is_same(flow) || chains.contains(&rule.flow.chain());
        for rule in memory.rules.values_mut().filter(hit) {
            rule.counters.packets += packets;
            rule.counters.bytes += 100 * packets;
        }
    }

    /// Has packets of 100 bytes hit the rule of a flow.
    pub fn hit(&self, ufid: Ufid, packets: u64) {
        let mut memory = self.memory.lock();
        let rule = memory.rules.values_mut().find(|rule| rule.flow.ufid == ufid).expect("the flow has a rule");
        rule.counters.packets += packets;
        rule.counters.bytes += 100 * packets;
    }
}

impl Memory {
    /// Puts a rule in that is nobody's.
    pub fn put(&mut self, flow: Flow) -> Handle {
        self.insert(flow, None)
    }

    /// The handle of the rule of a flow.
    pub fn handle(&self, ufid: Ufid) -> Handle {
        *self.rules.iter().find(|(_, rule)| rule.flow.ufid == ufid).expect("the flow has a rule").0
    }

    /// What the flow of a rule does, as the agent would have it.
    pub fn change(&mut self, ufid: Ufid, actions: sluice_flow::ActionList) {
        let handle = self.handle(ufid);
        let rule = self.rules.get_mut(&handle).expect("a rule");
        rule.flow = rule.flow.with_actions(actions);
    }

    fn insert(&mut self, flow: Flow, owner: Option<(FlowId, Generation)>) -> Handle {
        self.last_handle += 1;
        let handle = Handle(self.last_handle);
        self.rules.insert(handle, Rule { flow, counters: Counters::default(), owner });
        handle
    }

    /// A rule as it is listed.
    fn show(&self, handle: Handle, rule: &Rule) -> InstalledRule {
        let flow = &rule.flow;
        let flow = if self.is_nameless {
            let seed = Seed([0; 16]);
            Flow::new(None, flow.matching(), flow.actions.clone(), flow.priority, flow.expiry, &seed)
        } else {
            flow.clone()
        };
        InstalledRule {
            handle,
            flow,
            is_named: !self.is_nameless,
            rules: 1,
            placement: Placement::Both,
            is_current: true,
        }
    }

    fn restart(&mut self) {
        self.open_chains.clear();
        self.rules.values_mut().for_each(|rule| rule.owner = None);
    }

    fn note(&mut self, verb: &str, flow: &Flow) {
        self.done.push(format!("{verb} {}", flow.ufid));
    }

    fn make(&mut self, change: &Change) -> Result<Outcome, Refusal> {
        match &change.operation {
            Operation::Install(flow) => {
                self.note("install", flow);
                self.check(flow)?;
                let handle = self.insert(flow.clone(), Some((change.flow, change.generation)));
                Ok(Outcome::InPlace { handle, placement: Placement::Both })
            }
            Operation::Modify(handle, flow) => {
                self.note("modify", flow);
                self.check(flow)?;
                let rule = self.rules.get_mut(handle).ok_or_else(|| no_such_rule(*handle))?;
                rule.flow = flow.clone();
                Ok(Outcome::InPlace { handle: *handle, placement: Placement::Both })
            }
            Operation::Move(handle, placement) => Ok(Outcome::InPlace { handle: *handle, placement: *placement }),
            Operation::Remove(handle) => {
                self.lets_go()?;
                let rule = self.rules.remove(handle);
                if let Some(rule) = &rule {
                    self.note("remove", &rule.flow);
                }
                Ok(Outcome::Removed { last: rule.map(|rule| rule.counters) })
            }
        }
    }

    fn lets_go(&self) -> Result<(), Refusal> {
        self.removal_refusal.clone().map_or(Ok(()), Err)
    }

    fn check(&self, flow: &Flow) -> Result<(), Refusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let is_gone = |action: &Action| match action {
            Action::Output(port) if !self.ports.contains(port) => Some(*port),
            _ => None,
        };
        if let Some(port) = flow.actions.iter().find_map(is_gone) {
            return Err(Refusal::no_port(port));
        }
        match flow.jumps().iter().find(|chain| !self.open_chains.contains(chain)) {
            Some(chain) => Err(Refusal::Device { reason: format!("chain {chain} is not open").into() }),
            None => Ok(()),
        }
    }
}

fn no_such_rule(handle: Handle) -> Refusal {
    Refusal::Device { reason: format!("there is no rule {}", handle.0).into() }
}

struct Queue(Arc<Mutex<Memory>>);

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        for change in batch.drain(..) {
            let result = self.0.lock().make(&change);
            done.push(Completion { flow: change.flow, generation: change.generation, result });
        }
    }

    fn poll(&mut self, _done: &mut Vec<Completion>) {}

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        let open_chains = &mut self.0.lock().open_chains;
        match change.operation {
            ChainOperation::Open => open_chains.insert(change.chain),
            ChainOperation::Close => open_chains.remove(&change.chain),
        };
        done.push(ChainCompletion { change, result: Ok(()) });
    }

    fn poll_chains(&mut self, _done: &mut Vec<ChainCompletion>) {}

    fn set_waker(&mut self, _waker: Waker) {}
}

struct Reader {
    memory: Arc<Mutex<Memory>>,
    clock: Arc<dyn Clock>,
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let memory = self.memory.lock();
        let now = self.clock.now();
        let reading = |rule: &Rule| {
            let (flow, installed_as) = rule.owner?;
            Some(Reading { flow, installed_as, counters: rule.counters })
        };
        let readings: Vec<_> = memory.rules.values().filter_map(reading).collect();
        visit(&readings, Sampled { earliest: now, latest: now });
        Ok(())
    }
}

impl Backend for LastingDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "lasting",
            miss: MissPolicy::Kernel,
            chain_miss: MissPolicy::Kernel,
            max_lag: Duration::ZERO,
            last_counters: LastCounters::Exact,
            modifies_in_place: true,
            max_chain_depth: 16,
            batch: 16,
            // All wait for one memory.
            workers: Some(NonZeroUsize::MIN),
            listing: Listing::Device,
        }
    }

    fn meters(&self) -> Option<&dyn Meters> {
        None
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        Some(self)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        None
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        Some(self)
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        Some(self)
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        None
    }

    fn injector(&self) -> Option<&dyn Injector> {
        None
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        self.memory.lock().check(flow)?;
        Ok(format!("a rule for {}", flow.ufid))
    }

    fn looks_at(&self, _flow: &Flow) -> Option<LooksAt> {
        None
    }

    fn attach_port(&self, port: &Port) -> Result<(), Refusal> {
        self.memory.lock().ports.insert(port.number);
        Ok(())
    }

    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        self.attach_port(port)
    }

    fn is_absent(&self, _port: PortNumber) -> bool {
        false
    }

    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal> {
        let is_known = self.memory.lock().ports.remove(&port);
        if is_known { Ok(()) } else { Err(Refusal::no_port(port)) }
    }

    fn port_counters(&self, _port: PortNumber) -> Option<PortCounters> {
        None
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        None
    }

    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        Ok(Box::new(Queue(self.memory.clone())))
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(Reader { memory: self.memory.clone(), clock: self.clock.clone() }))
    }

    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        let memory = self.memory.lock();
        for (handle, rule) in &memory.rules {
            visit(memory.show(*handle, rule));
        }
        Ok(())
    }

    fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        let memory = self.memory.lock();
        let counted = |rule: &Rule| CountedApart { hardware: rule.counters, software: Counters::default() };
        Ok(memory.rules.get(&handle).map(counted))
    }

    fn flush(&self) -> Result<usize, Refusal> {
        let mut memory = self.memory.lock();
        memory.lets_go()?;
        Ok(std::mem::take(&mut memory.rules).len())
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        Ok(Vec::new())
    }

    fn events(&self) -> EventStream {
        EventStream::silent()
    }
}

impl Mirrors for LastingDevice {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        self.memory.lock().mirrors.entry(mirror.name.clone()).or_default();
        Ok(())
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        let removed = self.memory.lock().mirrors.remove(name);
        let refusal = || Refusal::Device { reason: format!("there is no mirror {name}").into() };
        removed.map(|_| ()).ok_or_else(refusal)
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        let packets = *self.memory.lock().mirrors.get(name)?;
        Some(MirrorCounters { packets, bytes: 100 * packets, placement: Placement::Hardware })
    }

    fn check_mirrors(&self, mends: bool) -> Result<Vec<MirrorFault>, Refusal> {
        let mut memory = self.memory.lock();
        let mended = mends.then(|| memory.refusal.clone().map_or(Ok(()), Err));
        let fault = |(name, is_there): (&String, &bool)| MirrorFault {
            name: name.clone(),
            is_there: *is_there,
            mended: mended.clone(),
        };
        let faults = memory.mirror_faults.iter().map(fault).collect();
        if mended == Some(Ok(())) {
            memory.mirror_faults.clear();
        }
        Ok(faults)
    }

    fn outlet(&self) -> Outlet<'_> {
        Outlet::Ports
    }
}

impl Adopter for LastingDevice {
    /// The agent that asks is a new one: nothing is open or owned, whatever the last one left.
    fn adopt(&self, claims: &mut dyn Claims) -> Result<Adoption, Refusal> {
        let mut memory = self.memory.lock();
        memory.restart();
        let before = memory.rules.len();
        for (handle, mut rule) in std::mem::take(&mut memory.rules) {
            rule.owner = claims.claim(&memory.show(handle, &rule));
            if rule.owner.is_some() {
                memory.rules.insert(handle, rule);
            }
        }
        let adopted = memory.rules.len();
        Ok(Adoption { adopted, orphans: before - adopted })
    }

    fn holdings(&self) -> Result<Vec<Holding>, Refusal> {
        Ok(Vec::new())
    }

    fn remove_holding(&self, mark: u32) -> Result<usize, Refusal> {
        Err(Refusal::Device { reason: format!("owner {mark:08x} has nothing here").into() })
    }
}

impl Auditor for LastingDevice {
    fn to_inspect(&self) -> ToInspect {
        ToInspect { touched: std::mem::take(&mut self.memory.lock().touched), due: Vec::new() }
    }

    fn read_back(&self, rules: &[Handle], visit: &mut dyn FnMut(FlowId, InstalledRule)) -> Result<(), Refusal> {
        let mut memory = self.memory.lock();
        if memory.failing_reads > 0 {
            memory.failing_reads -= 1;
            return Err(Refusal::Device { reason: "it cannot be read".into() });
        }
        for handle in rules {
            let rule = memory.rules.get(handle);
            if let Some((rule, (flow, _))) = rule.and_then(|rule| Some((rule, rule.owner?))) {
                visit(flow, memory.show(*handle, rule));
            }
        }
        Ok(())
    }

    fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        self.memory.lock().foreign.iter().cloned().for_each(visit);
        Ok(())
    }

    fn remove_stray(&self, handle: Handle) -> Result<(), Refusal> {
        let mut memory = self.memory.lock();
        let rule = memory.rules.get(&handle).ok_or_else(|| no_such_rule(handle))?;
        if rule.owner.is_some() {
            return Err(Refusal::Device { reason: format!("rule {} is a flow's", handle.0).into() });
        }
        memory.rules.remove(&handle);
        Ok(())
    }
}
