//! The agent: table, queue, revalidator and device put together, with what the control socket asks of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, at, never, select};
use parking_lot::Mutex;
use sluice_flow::backend::{DeviceEvent, Holding, OpenConfig};
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortMap;
use sluice_flow::table::Limits;
use sluice_flow::timeout::TimeoutPolicy;
use sluice_flow::ufid::Seed;
use sluice_flow::{Backend, Clock, EndReason, FlowTable, Port, PortNumber, Refusal};
use sluice_revalidator::Revalidator;

use crate::backends;
use crate::config::{Config, Difference};
use crate::device_counters::{DeviceCounters, Published};
use crate::events::Events;
use crate::journal::{Journal, NotWritten};
use crate::lifecycle::Lifecycle;
use crate::liveness::Progress;
use crate::offload::{Adopted, Batch, OffloadQueue, Tally, Worker};
use crate::orphans::Found;
use crate::rebalancing::Rebalancing;
use crate::retrying::RetrySchedule;
use crate::revalidation::{Revalidation, RevalidatorThread};

/// How long the device may take to give an answer before a caller who waits hears that there is none yet.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A running agent, without its sockets.
pub struct Agent {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Every flow.
    pub table: Arc<FlowTable>,
    /// The way into the device.
    pub queue: Arc<OffloadQueue>,
    /// The device.
    pub backend: Arc<dyn Backend>,
    /// Polling and ageing.
    pub revalidation: Revalidation,
    /// What happened.
    pub events: Arc<Events>,
    /// Where what is wanted is kept, if it is.
    pub journal: Option<Arc<Journal>>,
    config: ArcSwap<Config>,
    ports: ArcSwap<PortMap>,
    meters: ArcSwap<BTreeMap<MeterId, Meter>>,
    mirrors: ArcSwap<BTreeMap<String, Mirror>>,
    timeout_policies: ArcSwap<BTreeMap<Box<str>, TimeoutPolicy>>,
    counted: Published,
    adopted: OnceLock<Adopted>,
    /// What other owners had in the device when it was last looked.
    others: Mutex<Vec<Found>>,
    /// Changes of ports, meters, mirrors and timeout policies follow each other. Held while the device makes one; nobody who reads
    /// takes it.
    changing: Mutex<()>,
}

/// What runs on threads of its own.
pub struct Parts {
    /// The offload workers.
    pub workers: Vec<Worker>,
    /// The revalidator.
    pub revalidator: RevalidatorThread,
}

/// Why an agent did not start, or did not take a change.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The device said no.
    #[error("{what}: {refusal}")]
    Device {
        /// While doing what.
        what: String,
        /// Its reason.
        refusal: Refusal,
    },
    /// Something with this number or name is there, or is not there.
    #[error("{0}")]
    Conflict(String),
}

impl Agent {
    /// Opens the configured device and makes an agent for it, whose parts are to be run, and whose wishes a log keeps.
    pub fn open(
        config: Config,
        seed: Seed,
        clock: Arc<dyn Clock>,
        journal: Option<Arc<Journal>>,
    ) -> Result<(Arc<Self>, Parts), AgentError> {
        let open = OpenConfig {
            owner: seed.owner(),
            policy: config.policy,
            tunnel_flags: config.tunnel_flags,
            ..OpenConfig::new(&*config.device, clock.clone())
        };
        let backend = backends::open(&config.backend, &open)
            .map_err(|refusal| AgentError::Device { what: format!("opening {}", config.device), refusal })?;
        Self::kept_in(journal, backend, config, seed, clock)
    }

    /// The same on a device that is open already, without a log.
    pub fn on(
        backend: Arc<dyn Backend>,
        config: Config,
        seed: Seed,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Parts), AgentError> {
        Self::kept_in(None, backend, config, seed, clock)
    }

    /// The same on a device that is open already.
    pub fn kept_in(
        journal: Option<Arc<Journal>>,
        backend: Arc<dyn Backend>,
        config: Config,
        seed: Seed,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Parts), AgentError> {
        let device = |what: String| move |refusal| AgentError::Device { what, refusal };
        if let Some(rules) = config.hardware_rules {
            backend.limit_hardware(rules).map_err(device("hardware_rules".into()))?;
        }
        let events = Arc::new(Events::kept_in(journal.clone()));
        let limits = Limits { flows: config.flow_limit, unsettled: config.dirty_limit };
        let table = Arc::new(FlowTable::new(seed, limits, events.clone()));
        let (queue, mut workers) =
            OffloadQueue::new(table.clone(), &backend, clock.clone(), config.workers, config.chain_depth)
                .map_err(device("opening the install queues".into()))?;
        let queue = Arc::new(queue);
        if let Some(journal) = journal.as_ref().filter(|_| backends::keeps_rules(backend.capabilities().name)) {
            workers.iter_mut().for_each(|worker| worker.write_ahead(journal.clone()));
        }
        let reader = backend.counter_reader().map_err(device("opening the counter reader".into()))?;
        let ageing = ageing(&config);
        let (revalidation, revalidator) = Revalidation::new(
            ageing,
            Revalidator::new(ageing, reader),
            Rebalancing::new(backend.clone(), config.rebalance_interval),
            table.clone(),
            queue.clone(),
            clock.clone(),
        );
        let agent = Arc::new(Self {
            clock,
            table,
            queue,
            backend,
            revalidation,
            events,
            journal,
            config: ArcSwap::from_pointee(Config {
                ports: Vec::new(),
                meters: Vec::new(),
                mirrors: Vec::new(),
                ct_timeouts: Vec::new(),
                ..config.clone()
            }),
            ports: ArcSwap::default(),
            meters: ArcSwap::default(),
            mirrors: ArcSwap::default(),
            timeout_policies: ArcSwap::default(),
            counted: Published::default(),
            adopted: OnceLock::new(),
            others: Mutex::default(),
            changing: Mutex::default(),
        });
        for port in &config.ports {
            agent.add_port(port.clone())?;
        }
        for meter in &config.meters {
            agent.set_meter(meter.clone())?;
        }
        for mirror in &config.mirrors {
            agent.set_mirror(mirror.clone())?;
        }
        for policy in &config.ct_timeouts {
            agent.set_timeout_policy(policy.clone())?;
        }
        agent.config.store(Arc::new(config));
        Ok((agent, Parts { workers, revalidator }))
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// The ports.
    pub fn ports(&self) -> Arc<PortMap> {
        self.ports.load_full()
    }

    /// The meters, by number.
    pub fn meters(&self) -> Vec<Meter> {
        self.meters.load().values().cloned().collect()
    }

    /// The mirrors, by name.
    pub fn mirrors(&self) -> Vec<Mirror> {
        self.mirrors.load().values().cloned().collect()
    }

    /// The timeout policies, by name.
    pub fn timeout_policies(&self) -> Vec<TimeoutPolicy> {
        self.timeout_policies.load().values().cloned().collect()
    }

    /// What the device has counted beside flows, as of the last poll.
    pub fn device_counters(&self) -> Arc<DeviceCounters> {
        self.counted.counters()
    }

    /// Asks the device what it has counted, and publishes it. The poll does so, and who has made an object, so that the next who
    /// asks does not hear that nothing is known of it.
    pub fn count_device(&self) {
        self.counted.renew(|| {
            let ports = self.ports();
            let (meters, mirrors) = (self.meters().into_iter(), self.mirrors().into_iter());
            DeviceCounters::read(
                &*self.backend,
                ports.iter().map(|port| port.number),
                meters.map(|meter| meter.id),
                mirrors.map(|mirror| mirror.name),
            )
        });
    }

    /// What was in the device at the start; `None` before that is known.
    pub fn adopted(&self) -> Option<Adopted> {
        self.adopted.get().copied()
    }

    /// Takes over what an earlier run left in the device.
    fn adopt(&self) -> Result<(), AgentError> {
        let failed = |refusal| AgentError::Device { what: "taking over the rules of an earlier run".into(), refusal };
        let config = self.config();
        let mut others = Vec::new();
        let mut is_inherited = |holding: &Holding| match Found::of(*holding, &config) {
            Ok(found) => {
                others.push(found);
                config.adopt_orphans && found.is_orphan()
            }
            Err(error) => {
                tracing::error!(
                    "of what owner {:08x} has in the device it is not known whose it is: {error}",
                    holding.mark
                );
                false
            }
        };
        let found = self.queue.adopt(&*self.backend, &mut is_inherited).map_err(failed)?;
        let Adopted { adopted, orphans, outstanding, .. } = found;
        self.remember_others(&others);
        for other in others.iter().filter(|other| other.is_orphan()) {
            match config.adopt_orphans {
                true => tracing::info!("orphans taken over as far as they can be read: {other}"),
                false => tracing::warn!(
                    "orphans: {other}. They go on forwarding, and flows of the same match are refused (errno 17). `sluice flush \
                     --orphans` lists and removes them; started with --adopt-orphans the agent takes them over"
                ),
            }
        }
        for other in others.iter().filter(|other| other.holding.of_newer > 0) {
            tracing::warn!("left as it is: {other}");
        }
        tracing::info!("{adopted} rules adopted, {orphans} taken out, {outstanding} flows to be put in");
        // The parts of an agent run once.
        self.adopted.get_or_init(|| found);
        Ok(())
    }

    /// What other owners had in the device when it was last looked: at the start, and whenever orphans are asked for.
    pub fn others(&self) -> Vec<Found> {
        self.others.lock().clone()
    }

    pub(crate) fn remember_others(&self, found: &[Found]) {
        *self.others.lock() = found.to_vec();
    }

    /// The datapath's name as OVS writes it: type and name.
    pub fn datapath(&self) -> String {
        format!("{}@{}", self.backend.capabilities().name, self.config().device)
    }

    /// Adds a port and attaches it.
    pub fn add_port(&self, port: Port) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut ports = PortMap::clone(&self.ports.load());
        let name = port.name.clone();
        ports.insert(port.clone()).map_err(|taken| {
            AgentError::Conflict(format!("port {name}: number {} is {} already", taken.number, taken.name))
        })?;
        self.backend
            .attach_port(&port)
            .map_err(|refusal| AgentError::Device { what: format!("port {name}"), refusal })?;
        self.ports.store(Arc::new(ports));
        Ok(())
    }

    /// Detaches a port and takes it out.
    pub fn remove_port(&self, number: PortNumber) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut ports = PortMap::clone(&self.ports.load());
        let port = ports.remove(number).ok_or_else(|| AgentError::Conflict(format!("there is no port {number}")))?;
        self.backend
            .detach_port(number)
            .map_err(|refusal| AgentError::Device { what: format!("port {}", port.name), refusal })?;
        self.ports.store(Arc::new(ports));
        Ok(())
    }

    /// Makes a meter or changes its rate.
    pub fn set_meter(&self, meter: Meter) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut meters = BTreeMap::clone(&self.meters.load());
        self.backend
            .set_meter(&meter)
            .map_err(|refusal| AgentError::Device { what: format!("meter {}", meter.id), refusal })?;
        meters.insert(meter.id, meter);
        self.meters.store(Arc::new(meters));
        Ok(())
    }

    /// Removes a meter.
    pub fn remove_meter(&self, id: MeterId) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut meters = BTreeMap::clone(&self.meters.load());
        if !meters.contains_key(&id) {
            return Err(AgentError::Conflict(format!("there is no meter {id}")));
        }
        self.backend.remove_meter(id).map_err(|refusal| AgentError::Device { what: format!("meter {id}"), refusal })?;
        meters.remove(&id);
        self.meters.store(Arc::new(meters));
        Ok(())
    }

    /// Makes a mirror or changes it.
    pub fn set_mirror(&self, mirror: Mirror) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut mirrors = BTreeMap::clone(&self.mirrors.load());
        self.backend
            .set_mirror(&mirror)
            .map_err(|refusal| AgentError::Device { what: format!("mirror {}", mirror.name), refusal })?;
        mirrors.insert(mirror.name.clone(), mirror);
        self.mirrors.store(Arc::new(mirrors));
        Ok(())
    }

    /// Removes a mirror.
    pub fn remove_mirror(&self, name: &str) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut mirrors = BTreeMap::clone(&self.mirrors.load());
        if !mirrors.contains_key(name) {
            return Err(AgentError::Conflict(format!("there is no mirror {name}")));
        }
        self.backend
            .remove_mirror(name)
            .map_err(|refusal| AgentError::Device { what: format!("mirror {name}"), refusal })?;
        mirrors.remove(name);
        self.mirrors.store(Arc::new(mirrors));
        Ok(())
    }

    /// Makes a timeout policy or changes it.
    pub fn set_timeout_policy(&self, policy: TimeoutPolicy) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut policies = BTreeMap::clone(&self.timeout_policies.load());
        self.backend
            .set_timeout_policy(&policy)
            .map_err(|refusal| AgentError::Device { what: format!("timeout policy {}", policy.name), refusal })?;
        policies.insert(policy.name.clone(), policy);
        self.timeout_policies.store(Arc::new(policies));
        Ok(())
    }

    /// Removes a timeout policy.
    pub fn remove_timeout_policy(&self, name: &str) -> Result<(), AgentError> {
        let _one_at_a_time = self.changing.lock();
        let mut policies = BTreeMap::clone(&self.timeout_policies.load());
        if !policies.contains_key(name) {
            return Err(AgentError::Conflict(format!("there is no timeout policy {name}")));
        }
        self.backend
            .remove_timeout_policy(name)
            .map_err(|refusal| AgentError::Device { what: format!("timeout policy {name}"), refusal })?;
        policies.remove(name);
        self.timeout_policies.store(Arc::new(policies));
        Ok(())
    }

    /// Waits until all that this caller has had accepted is written to the log, if there is one. Who answers a request calls it
    /// first.
    pub fn wait_for_journal(&self) -> Result<(), NotWritten> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.wait(ANSWER_TIME))
    }

    /// Removes every flow and waits for it.
    pub fn flush(&self) -> Tally {
        let batch = Arc::new(Batch::default());
        self.queue.delete_all(EndReason::Flushed, &batch);
        batch.wait(ANSWER_TIME)
    }

    /// Takes over what of a new configuration can be taken over while running. No flow is touched; a port, meter, mirror or
    /// timeout policy that is refused is left as it was and named.
    pub fn reload(&self, new: &Config) -> (Difference, Vec<AgentError>) {
        let old = self.config();
        let (merged, difference) = old.take_over(new);
        self.table.census().set_flow_limit(merged.flow_limit);
        self.table.census().set_unsettled_limit(merged.dirty_limit);
        self.revalidation.configure(ageing(&merged), merged.rebalance_interval);
        let mut errors = Vec::new();
        let is_kept = |mirror: &Mirror| merged.mirrors.iter().any(|kept| kept.name == mirror.name);
        let mut attempt = |result: Result<(), AgentError>| errors.extend(result.err());
        for gone in old.mirrors.iter().filter(|mirror| !is_kept(mirror)) {
            attempt(self.remove_mirror(&gone.name));
        }
        for gone in old.ports.iter().filter(|port| !merged.ports.contains(port)) {
            attempt(self.remove_port(gone.number));
        }
        for port in merged.ports.iter().filter(|port| !old.ports.contains(port)) {
            attempt(self.add_port(port.clone()));
        }
        for gone in old.meters.iter().filter(|meter| merged.meters.iter().all(|kept| kept.id != meter.id)) {
            attempt(self.remove_meter(gone.id));
        }
        for meter in merged.meters.iter().filter(|meter| !old.meters.contains(meter)) {
            attempt(self.set_meter(meter.clone()));
        }
        for mirror in merged.mirrors.iter().filter(|mirror| !old.mirrors.contains(mirror)) {
            attempt(self.set_mirror(mirror.clone()));
        }
        let is_kept = |policy: &TimeoutPolicy| merged.ct_timeouts.iter().any(|kept| kept.name == policy.name);
        for gone in old.ct_timeouts.iter().filter(|policy| !is_kept(policy)) {
            attempt(self.remove_timeout_policy(&gone.name));
        }
        for policy in merged.ct_timeouts.iter().filter(|policy| !old.ct_timeouts.contains(policy)) {
            attempt(self.set_timeout_policy(policy.clone()));
        }
        self.config.store(Arc::new(merged));
        self.count_device();
        (difference, errors)
    }

    /// Takes what happens to the device until `stop` says so: refused flows are tried again when what they wait for has changed,
    /// all that wait for something every retry interval, and lost rules are put in again. Gives the reason if the device died.
    pub fn watch_device(&self, stop: &Receiver<Infallible>, progress: &Progress) -> Result<(), String> {
        let events = self.backend.events();
        let mut schedule = RetrySchedule::new(Instant::now());
        loop {
            progress.works();
            let interval = self.config().retry_interval;
            if let Some(causes) = schedule.take_due(Instant::now(), interval) {
                self.queue.retry(causes);
            }
            progress.rests();
            select! {
                recv(stop) -> _ => return Ok(()),
                recv(schedule.next(interval).map_or_else(never, at)) -> _ => {}
                recv(events) -> event => match event {
                    Ok(DeviceEvent::Changed { cause }) => schedule.note(cause),
                    Ok(DeviceEvent::RuleLost(rule)) => self.queue.lost(rule),
                    Ok(DeviceEvent::PortChanged(port)) => self.queue.redo_port(port),
                    Ok(DeviceEvent::Reset { .. }) => {
                        progress.works();
                        self.resync()?;
                        schedule.note_all();
                    }
                    Ok(DeviceEvent::Failed(reason)) => return Err(reason),
                    Ok(_) => {}
                    Err(_) => return Err("the backend has ended".into()),
                },
            }
        }
    }

    fn resync(&self) -> Result<(), String> {
        let lost = self.backend.resync().map_err(|refusal| refusal.to_string())?;
        tracing::warn!("the device was reset and lost {} rules, which are put in again", lost.len());
        lost.into_iter().for_each(|rule| self.queue.lost(rule));
        Ok(())
    }
}

impl Parts {
    /// How long a part may take to stop. A worker whose device hangs is left behind.
    const STOP_DEADLINE: Duration = Duration::from_secs(5);

    /// Runs the parts, and the watch over the device, in the order in which they need each other, once the flows that there are
    /// have taken over what is in the device. `before_workers_stop` is run once nothing but the workers runs any more.
    pub fn run(
        self,
        agent: &Arc<Agent>,
        lifecycle: &mut Lifecycle,
        before_workers_stop: impl FnOnce(&Agent) + Send + 'static,
    ) -> io::Result<()> {
        agent.adopt().map_err(io::Error::other)?;
        for (index, worker) in self.workers.into_iter().enumerate() {
            lifecycle.thread(&format!("offload-{index}"), Self::STOP_DEADLINE, move |stop| {
                worker.run(stop.channel(), stop.progress());
                Ok(())
            })?;
        }
        let last = agent.clone();
        lifecycle.thread("last-work", ANSWER_TIME + Self::STOP_DEADLINE, move |stop| {
            // Nothing is ever sent on it: it ends when it is time to stop.
            let _ = stop.channel().recv();
            before_workers_stop(&last);
            Ok(())
        })?;
        let counting = agent.clone();
        lifecycle.thread("revalidator", Self::STOP_DEADLINE, move |stop| {
            self.revalidator.run(stop.channel(), stop.progress(), || counting.count_device());
            Ok(())
        })?;
        let watched = agent.clone();
        lifecycle.thread("device-watch", Self::STOP_DEADLINE, move |stop| {
            watched.watch_device(stop.channel(), stop.progress())
        })
    }
}

fn ageing(config: &Config) -> sluice_revalidator::Config {
    sluice_revalidator::Config {
        idle_timeout: config.idle_timeout,
        hard_timeout: config.hard_timeout,
        poll_interval: config.poll_interval,
    }
}
