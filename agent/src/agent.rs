//! The agent: table, queue, revalidator and device put together, with what the control socket asks of them.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, TryRecvError, at, never, select};
use parking_lot::Mutex;
use sluice_flow::backend::{DeviceEvent, Holding, NoEvent, OpenConfig};
use sluice_flow::meter::MeterId;
use sluice_flow::port::{GonePort, PortMap};
use sluice_flow::table::Limits;
use sluice_flow::ufid::Seed;
use sluice_flow::{Backend, Clock, EndReason, FlowTable, Refusal};
use sluice_host::lifecycle::Lifecycle;
use sluice_host::liveness::Progress;
use sluice_journal::{Journal, JournalError, Opened};
use sluice_objects::{ObjectError, ObjectStore, Objects, ObjectsFile, Saved};
use sluice_offload::{Adopted, Batch, OffloadQueue, Tally, Worker};
use sluice_revalidator::{Companion, Revalidator};

use crate::bell::bell;
use crate::config::{Config, Difference};
use crate::mirroring::Mirroring;
use crate::observe::coverage::Coverage;
use crate::observe::events::Events;
use crate::observe::recent::Recent;
use crate::sessions::name::companion;
use crate::source::Reports;
use crate::upkeep::audit::Audit;
use crate::upkeep::device_counters::{DeviceCounters, Published};
use crate::upkeep::difference::Kind;
use crate::upkeep::inspection::Inspection;
use crate::upkeep::object_file::keep_objects;
use crate::upkeep::orphans::Found;
use crate::upkeep::rebalancing::Rebalancing;
use crate::upkeep::reinstatement::Reinstatement;
use crate::upkeep::retrying::RetrySchedule;
use crate::upkeep::revalidation::{Revalidation, RevalidatorThread};

/// How long the journal or the device may take to answer before a caller who waits hears that there is no answer yet.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The part that ends when the device fails.
pub const DEVICE_WATCH: &str = "device-watch";

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
    /// How fast it happened.
    pub coverage: Coverage,
    /// Where what is wanted is kept, if it is.
    pub journal: Option<Arc<Journal>>,
    /// Ports, meters, mirrors and timeout policies.
    pub object_store: ObjectStore,
    config: ArcSwap<Config>,
    counted: Published,
    adopted: OnceLock<Adopted>,
    /// The mirror of control traffic.
    pub mirroring: Mirroring,
    /// What sources of flows told last of themselves.
    pub source_reports: Reports,
    /// The last audit and the last reload.
    pub recent: Recent,
    /// Flows of earlier runs on their way back into the device.
    pub reinstatement: Reinstatement,
    /// What other owners had in the device when it was last looked.
    others: Mutex<Vec<Found>>,
    /// Changes of the configuration follow each other; nobody who reads it takes this.
    reloading: Mutex<()>,
    /// Rung for the watch over the device: it waits for other things by now, or one of them has come.
    watch_bell: (Waker, Receiver<()>),
}

/// What outlives an agent, as far as it is kept.
#[derive(Default)]
pub struct Keeping {
    /// Flows.
    pub journal: Option<Arc<Journal>>,
    /// Ports, meters, mirrors and timeout policies, with those that the last run left.
    pub objects: Option<(ObjectsFile, Saved)>,
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
    /// A port, meter, mirror or timeout policy cannot be as it is wanted.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl Agent {
    /// Opens the configured device and makes an agent for it. Its parts are still to be run; `keeping` is where its flows and objects survive it.
    pub fn open(
        config: Config,
        seed: Seed,
        clock: Arc<dyn Clock>,
        keeping: Keeping,
    ) -> Result<(Arc<Self>, Parts), AgentError> {
        let open = OpenConfig {
            owner: seed.owner(),
            state_dir: Some(config.state_dir()),
            ..OpenConfig::new(&*config.device, clock.clone())
        };
        let backend = config
            .backend
            .open(&open)
            .map_err(|refusal| AgentError::Device { what: format!("opening {}", config.device), refusal })?;
        Self::with_keeping(backend, keeping, config, seed, clock)
    }

    /// Makes an agent for a device that is open already.
    pub fn with_keeping(
        backend: Arc<dyn Backend>,
        keeping: Keeping,
        config: Config,
        seed: Seed,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Parts), AgentError> {
        let Keeping { journal, objects: kept } = keeping;
        let device = |what: String| move |refusal| AgentError::Device { what, refusal };
        let events = Arc::new(Events::default());
        let limits = Limits { flows: config.flow_limit, unsettled: config.dirty_limit };
        let unwritten = journal.as_ref().map(|journal| journal.unwritten());
        let table = Arc::new(FlowTable::new(seed, limits, events.clone()).kept_by(unwritten));
        let (queue, mut workers) =
            OffloadQueue::new(table.clone(), &backend, clock.clone(), config.workers, config.chain_depth)
                .map_err(device("opening the install queues".into()))?;
        let queue = Arc::new(queue);
        if let Some(journal) = journal.as_ref().filter(|_| backend.adoption().is_some()) {
            workers.iter_mut().for_each(|worker| worker.write_ahead(journal.clone()));
        }
        let reader = backend.counter_reader().map_err(device("opening the counter reader".into()))?;
        let ageing = ageing(&config);
        let (revalidation, revalidator) = Revalidation::new(
            ageing,
            Revalidator::new(ageing, reader).with_companions(companions(events.clone())),
            Rebalancing::new(backend.clone(), config.rebalance_interval),
            Inspection::new(backend.clone(), table.clone(), queue.clone()),
            table.clone(),
            queue.clone(),
            clock.clone(),
        );
        let object_store =
            ObjectStore::open(backend.clone(), queue.clone(), (journal.clone(), ANSWER_TIME), &config.objects(), kept)?;
        let mirroring = Mirroring::new(backend.clone(), seed.owner().mark());
        let agent = Arc::new(Self {
            clock,
            table,
            queue,
            backend,
            revalidation,
            events,
            coverage: Coverage::default(),
            journal,
            config: ArcSwap::from_pointee(config),
            object_store,
            counted: Published::default(),
            adopted: OnceLock::new(),
            mirroring,
            source_reports: Reports::default(),
            recent: Recent::default(),
            reinstatement: Reinstatement::default(),
            others: Mutex::default(),
            reloading: Mutex::default(),
            watch_bell: bell(),
        });
        Ok((agent, Parts { workers, revalidator }))
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// The ports, meters, mirrors and timeout policies in force.
    pub fn objects(&self) -> Arc<Objects> {
        self.object_store.in_force()
    }

    /// The ports.
    pub fn ports(&self) -> Arc<PortMap> {
        self.object_store.ports()
    }

    /// Whether other ports have numbers of these by now, for which the flows that are withheld for these may be accepted anew.
    pub(crate) fn has_in_place_of(&self, gone: &[GonePort]) -> bool {
        let ports = self.ports();
        gone.iter().any(|gone| ports.get(gone.number).is_some())
    }

    /// What the device has counted beside flows, as of the last poll.
    pub fn device_counters(&self) -> Arc<DeviceCounters> {
        self.counted.counters()
    }

    /// Asks the device what it has counted, and publishes it. The poll does so, and who has made an object, so that the next who
    /// asks does not hear that nothing is known of it.
    pub fn count_device(&self) {
        self.counted.renew(|| {
            let (objects, mirroring) = (self.objects(), self.mirroring.shown());
            let of_classes =
                mirroring.iter().filter(|mirror| mirror.refused.is_none()).map(|mirror| mirror.name.clone());
            let counters = DeviceCounters::read(
                &*self.backend,
                objects.ports().iter().map(|port| port.number),
                objects.meters().map(|meter| meter.id),
                objects.mirrors().map(|mirror| mirror.name.clone()).chain(of_classes),
            );
            self.mirroring.copied().note(&mirroring, |name| counters.mirror(name));
            counters
        });
    }

    /// Forgets what a meter that is gone has counted: another one may have its number before the next poll.
    pub fn forget_meter(&self, meter: MeterId) {
        self.counted.forget_meter(meter);
    }

    /// What was in the device at the start; `None` before that is known.
    pub fn adopted(&self) -> Option<Adopted> {
        self.adopted.get().copied()
    }

    /// Takes over what an earlier run left in the device.
    fn adopt(&self, workers: &mut [Worker]) -> Result<(), AgentError> {
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
        let found = self.queue.adopt(&*self.backend, workers, &mut is_inherited).map_err(failed)?;
        let Adopted { adopted, orphans, outstanding, .. } = found;
        self.remember_others(&others);
        for other in others.iter().filter(|other| other.is_orphan()) {
            match config.adopt_orphans {
                true => tracing::info!("orphans taken over as far as they can be read: {other}"),
                false => tracing::warn!(
                    "orphans: {other}. They go on forwarding, and flows of the same match are refused (errno 17). `sluice flush \
                     --orphans` lists them, and with --yes removes them; started with --adopt-orphans the agent takes them over"
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

    /// Notes what an audit found.
    pub fn note_audit(&self, found: &Audit) {
        self.recent.note_audit(found, self.clock.now());
        let wrong: usize = Kind::ALL.iter().map(|kind| found.count(*kind)).sum();
        if wrong > 0 {
            self.events.note(format!("an audit found {wrong} differences between table and device"));
        }
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

    /// Takes on the flows that earlier runs have left, and runs the log that this agent was made with. To be called before the agent's
    /// parts run.
    pub fn keep_flows(&self, opened: Opened, lifecycle: &mut Lifecycle) -> Result<(), JournalError> {
        if self.backend.adoption().is_none() {
            self.reinstatement.begin(self.clock.now());
        }
        let take = |flow, accepted| self.queue.restore(flow, accepted).map(|_| ());
        opened.run(&self.table, take, lifecycle)
    }

    /// Looks whether the flows of earlier runs are back in a device whose rules went with the earlier agent, and tells of it. Returns
    /// whether there is nothing more to look for.
    pub fn look_for_reinstatement(&self) -> bool {
        let restored = self.journal.as_ref().map(|journal| journal.report().restored).unwrap_or_default();
        let unsettled = self.table.census().unsettled();
        let gap = self.reinstatement.look(self.clock.now(), unsettled, restored.away.unwrap_or_default());
        if let (Some(gap), flows @ 1..) = (gap, restored.flows) {
            let gap = gap.as_secs_f64();
            tracing::info!(
                "{flows} flows of earlier runs have their answer; they were without rules for at most {gap:.1} s"
            );
        }
        !self.reinstatement.is_under_way()
    }

    /// Removes every flow and waits for it.
    pub fn flush(&self) -> Tally {
        let batch = Arc::new(Batch::default());
        self.queue.delete_all(EndReason::Flushed, &batch);
        batch.wait(ANSWER_TIME)
    }

    /// Takes over what of a new configuration can be taken over while running, and says what that is. If a port, meter, mirror or
    /// timeout policy is refused, nothing is changed. What came at run time stays.
    pub fn reload(&self, new: &Config) -> Result<Difference, ObjectError> {
        let _one_at_a_time = self.reloading.lock();
        let (merged, mut difference) = self.config().take_over(new);
        difference.applicable.extend(self.object_store.reload(&new.objects())?.into_iter().map(str::to_owned));
        self.table.census().set_flow_limit(merged.flow_limit);
        self.table.census().set_unsettled_limit(merged.dirty_limit);
        self.revalidation.configure(ageing(&merged), merged.rebalance_interval);
        self.config.store(Arc::new(merged));
        difference.applicable.sort();
        difference.applicable.dedup();
        self.renew_mirroring();
        self.count_device();
        // The retry interval may be another one.
        self.watch_bell.0.wake_by_ref();
        Ok(difference)
    }

    /// Has the device mirror the control traffic that the configuration wants of the ports that there are now. May wait for the device.
    pub fn renew_mirroring(&self) {
        self.mirroring.renew(|| (self.config(), self.ports()));
    }

    /// Takes what happens to the device until `stop` says so: refused flows are tried again when what they wait for has changed,
    /// all that wait for something every retry interval, and lost rules are put in again. Gives the reason if the device died.
    pub fn watch_device(&self, stop: &Receiver<Infallible>, progress: &Progress) -> Result<(), String> {
        let (waker, rung) = &self.watch_bell;
        let events = self.backend.events();
        events.set_waker(waker.clone());
        let mut schedule = RetrySchedule::new(Instant::now());
        while stop.try_recv() != Err(TryRecvError::Disconnected) {
            progress.works();
            let interval = self.config().retry_interval;
            if let Some(causes) = schedule.take_due(Instant::now(), interval) {
                self.queue.retry(causes);
                self.renew_mirroring();
            }
            match events.try_next() {
                Ok(DeviceEvent::Changed { cause }) => {
                    self.queue.note_change(cause);
                    schedule.note(cause);
                }
                Ok(DeviceEvent::RuleLost(rule)) => self.queue.lost(rule),
                // Somebody has removed the network device of a tap.
                Ok(DeviceEvent::PortChanged(port)) if port.is_tap() => self.renew_mirroring(),
                Ok(DeviceEvent::PortChanged(port)) => self.queue.redo_port(port),
                Ok(DeviceEvent::Reset { .. }) => {
                    self.resync()?;
                    schedule.note_all();
                }
                Ok(DeviceEvent::Failed(reason)) => return Err(reason),
                Ok(_) => {}
                Err(NoEvent::Ended) => return Err("the backend has ended".into()),
                Err(NoEvent::Yet) => {
                    progress.rests();
                    select! {
                        recv(stop) -> _ => {}
                        recv(schedule.next(interval).map_or_else(never, at)) -> _ => {}
                        recv(rung) -> _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn resync(&self) -> Result<(), String> {
        let lost = self.backend.resync().map_err(|refusal| refusal.to_string())?;
        match lost.len() {
            0 => tracing::info!("the device was reset, and all rules are there"),
            count => tracing::warn!("the device was reset and lost {count} rules, which are put in again"),
        }
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
        mut self,
        agent: &Arc<Agent>,
        lifecycle: &mut Lifecycle,
        before_workers_stop: impl FnOnce(&Agent) + Send + 'static,
    ) -> io::Result<()> {
        agent.object_store.bind_restored_flows();
        // Before what nobody has set is taken out of the device.
        agent.renew_mirroring();
        agent.adopt(&mut self.workers).map_err(io::Error::other)?;
        if agent.object_store.is_kept() {
            let kept = agent.clone();
            lifecycle.thread("object-keeper", Self::STOP_DEADLINE, move |stop| {
                keep_objects(&kept, stop.channel(), stop.progress());
                Ok(())
            })?;
        }
        for (index, worker) in self.workers.into_iter().enumerate() {
            let queue = Arc::downgrade(agent);
            let is_awaited = move || queue.upgrade().is_some_and(|agent| agent.queue.is_awaited(index));
            lifecycle.awaited_thread(&format!("offload-{index}"), Self::STOP_DEADLINE, is_awaited, move |stop| {
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
        lifecycle.thread(DEVICE_WATCH, Self::STOP_DEADLINE, move |stop| {
            watched.watch_device(stop.channel(), stop.progress())
        })
    }
}

/// Without sessions, no flow that ends is looked at for one.
fn companions(events: Arc<Events>) -> Companion {
    Box::new(move |table, id| events.session_ends().is_used().then(|| companion(table, id)).flatten())
}

fn ageing(config: &Config) -> sluice_revalidator::Config {
    sluice_revalidator::Config {
        idle_timeout: config.idle_timeout,
        hard_timeout: config.hard_timeout,
        poll_interval: config.poll_interval,
    }
}
