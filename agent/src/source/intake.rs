//! What a source brings, on its way into the table.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::action::named_meters;
use sluice_flow::backend::MeterCounters;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::parts::SharedParts;
use sluice_flow::port::PortNames;
use sluice_flow::source::{Intake, SourceReport, Standing};
use sluice_flow::table::{FlowView, TableError};
use sluice_flow::ufid::Seed;
use sluice_flow::{EndReason, Field, Flow, FlowState, Origin, Port, PortNumber, Refusal, Ufid};
use sluice_host::liveness::Progress;
use sluice_objects::{ObjectError, Origin as ObjectOrigin};

use crate::agent::Agent;
use crate::service::Patience;

/// Times that a new flow is tried again: two may be in its way, one with its name and one with its match, and both may go meanwhile.
const RETRIES: usize = 4;

/// The agent as one source sees it.
pub(super) struct AgentIntake<'a> {
    agent: &'a Agent,
    origin: Origin,
    /// A comparison of many flows is one step for the source, and work for each.
    progress: &'a Progress,
    patience: Cell<Patience>,
}

impl<'a> AgentIntake<'a> {
    pub(super) fn new(agent: &'a Agent, origin: Origin, progress: &'a Progress) -> Self {
        Self { agent, origin, progress, patience: Cell::default() }
    }

    /// Whether the device may still have a rule of the source.
    pub(super) fn has_rules(&self) -> bool {
        self.count_flows(1) > 0
    }

    /// How many flows of the source there are, be they wanted or on their way out; of more than so many, so many.
    pub(super) fn count_flows(&self, at_most: usize) -> usize {
        let mut count = 0;
        self.agent.table.visit(&mut |view| {
            count += usize::from(view.flow.origin == self.origin);
            if count < at_most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        count
    }

    /// The flow that a UFID names, whoever wants it.
    fn named(&self, ufid: Ufid) -> Option<FlowView> {
        self.agent.table.view(self.agent.table.find(ufid)?)
    }

    /// How a flow stands, if it is one of the source that is wanted.
    fn standing_of(&self, view: &FlowView) -> Option<Standing> {
        let is_wanted = view.flow.origin == self.origin && view.state != FlowState::Deleting;
        is_wanted.then(|| Standing {
            ufid: view.flow.ufid,
            state: view.state,
            waits_for: view.refusal.as_ref().filter(|_| view.state == FlowState::Refused).and_then(|why| why.cause()),
            packets: view.counters.packets,
            bytes: view.counters.bytes,
            idle: view.counters.used.map(|used| self.agent.clock.now().since(used)),
            tcp_flags: view.counters.tcp_flags,
        })
    }

    fn try_put(&self, flow: &Flow) -> Result<(), TableError> {
        // Most are new: what there is is looked at only where one is in the way.
        let mut added = self.agent.queue.add(flow.clone(), None);
        for _ in 0..RETRIES {
            let Err(TableError::Exists(ufid)) = added else { break };
            match self.named(ufid) {
                Some(known) if known.flow.origin != self.origin => {
                    return Err(TableError::OtherOrigin(ufid, known.flow.origin));
                }
                Some(known) if ufid == flow.ufid && known.flow.matching() == flow.matching() => {
                    // One that is withheld is accepted anew for the ports that have its numbers now, if any have: without, it would be taken
                    // by whichever port comes next.
                    let is_as_known = known.flow.actions == flow.actions
                        && known.flow.brings_meters == flow.brings_meters
                        && !self.agent.has_in_place_of(&known.gone_ports);
                    if !is_as_known {
                        self.agent.queue.modify(flow.clone(), false, None)?;
                    }
                    return Ok(());
                }
                // Open vSwitch has given the name to another flow, or has made the flow anew under another name.
                Some(known) => self.end(&known),
                // It is gone meanwhile.
                None => {}
            }
            added = self.agent.queue.add(flow.clone(), None);
        }
        added.map(|_| ())
    }

    fn end(&self, known: &FlowView) {
        // One that is gone meanwhile is what is wanted.
        let _ = self.agent.queue.delete(known.id, EndReason::Deleted, None);
    }

    /// Ends the flows that name a meter.
    fn end_flows_of(&self, meter: MeterId) {
        let mut ended = Vec::new();
        self.agent.table.visit(&mut |view| {
            let is_wanted = view.flow.origin == self.origin && view.state != FlowState::Deleting;
            if is_wanted && named_meters(&view.flow.actions).contains(&meter) {
                ended.push(view);
            }
            ControlFlow::Continue(())
        });
        ended.iter().for_each(|known| self.end(known));
    }
}

impl Intake for AgentIntake<'_> {
    fn seed(&self) -> &Seed {
        self.agent.table.seed()
    }

    fn parts(&self) -> &Arc<SharedParts> {
        self.agent.table.parts()
    }

    fn put(&self, flow: Flow) -> Result<(), Refusal> {
        self.progress.works();
        let (_, mask) = flow.matching().get(Field::InPort);
        if mask != Field::InPort.full_mask() {
            return Err(Refusal::Combination { reason: "a flow for all ports".into() });
        }
        let flow = flow.with_origin(self.origin);
        let mut patience = self.patience.get();
        let refusal = loop {
            match self.try_put(&flow) {
                Ok(()) => {
                    self.patience.set(Patience::default());
                    return Ok(());
                }
                Err(TableError::Refused(Refusal::Busy { .. })) if !patience.is_over() => {
                    patience.wait_for_room(self.agent);
                }
                Err(TableError::Refused(refusal)) => break refusal,
                Err(other) => break Refusal::Combination { reason: other.to_string().into() },
            }
        };
        self.patience.set(patience);
        self.agent.events.count_refusal(&refusal);
        Err(refusal)
    }

    fn delete(&self, ufid: Ufid) {
        if let Some(known) = self.named(ufid).filter(|known| known.flow.origin == self.origin) {
            self.end(&known);
        }
    }

    fn attach(&self, port: Port) -> Result<(), String> {
        let objects = self.agent.objects();
        let known = objects.ports().iter().find(|known| known.number == port.number || known.name == port.name);
        match known {
            Some(known) if *known == port => return Ok(()),
            Some(known) if self.ports().contains(known) => self.detach(known.number),
            // What it is, who has attached it knows.
            Some(known) if known.number == port.number && known.name == port.name => return Ok(()),
            Some(_) | None => {}
        }
        let title = format!("port {}: ", port.name);
        self.agent.object_store.put_for_source(port).map_err(|ObjectError { reason, .. }| {
            let rest = reason.strip_prefix(&title).map(str::to_owned);
            rest.unwrap_or(reason)
        })?;
        self.agent.renew_mirroring();
        Ok(())
    }

    fn detach(&self, port: PortNumber) {
        match self.agent.object_store.remove_for_source::<Port>(&port) {
            Ok(()) => self.agent.renew_mirroring(),
            Err(error) => tracing::warn!("port {port}, which is gone, is kept: {error}"),
        }
    }

    fn ports(&self) -> Vec<Port> {
        self.agent.objects().ports_of(ObjectOrigin::Source).cloned().collect()
    }

    fn port(&self, name: &str) -> Option<PortNumber> {
        self.agent.ports().number(name)
    }

    fn set_meter(&self, meter: Meter) -> Result<(), String> {
        let objects = self.agent.objects();
        match objects.of::<Meter>().get(&meter.id) {
            Some(known) if known.origin != ObjectOrigin::Source => {
                return Err(format!("there is another meter {}, which is no source's", meter.id));
            }
            Some(known) if known.object == meter => return Ok(()),
            Some(_) | None => {}
        }
        self.agent.object_store.put_for_source(meter).map_err(|error| error.to_string())
    }

    fn remove_meter(&self, meter: MeterId) -> bool {
        self.end_flows_of(meter);
        if !self.meters().contains(&meter) {
            return true;
        }
        match self.agent.object_store.remove_for_source::<Meter>(&meter) {
            Ok(()) => {
                self.agent.forget_meter(meter);
                true
            }
            Err(error) => {
                tracing::debug!("meter {meter}, which is gone, is kept for now: {error}");
                false
            }
        }
    }

    fn meters(&self) -> Vec<MeterId> {
        self.agent.objects().meters_of(ObjectOrigin::Source).map(|meter| meter.id).collect()
    }

    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters> {
        self.agent.device_counters().meter(meter).cloned()
    }

    fn poll_interval(&self) -> Duration {
        self.agent.config().poll_interval
    }

    fn visit(&self, visit: &mut dyn FnMut(Standing)) {
        self.agent.table.visit(&mut |view| {
            self.standing_of(&view).into_iter().for_each(&mut *visit);
            ControlFlow::Continue(())
        });
    }

    fn visit_news(&self, visit: &mut dyn FnMut(Standing)) {
        self.agent.table.visit_news(self.origin, &mut |view| self.standing_of(&view).into_iter().for_each(&mut *visit));
    }

    fn hear_refusals(&self, hear: Box<dyn Fn(Ufid) + Send + Sync>) {
        self.agent.events.tell_refusals_of(self.origin, hear);
    }

    fn wanted(&self) -> usize {
        self.agent.table.census().wanted_by(self.origin).unwrap_or(0)
    }

    fn standing(&self, ufid: Ufid) -> Option<Standing> {
        self.standing_of(&self.named(ufid)?)
    }

    fn report(&self, report: SourceReport) {
        self.agent.source_reports.note(self.origin, report);
    }
}
