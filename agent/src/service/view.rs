//! What can be read of an agent.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use sluice_flow::backend::{Capabilities, Connections, CountedApart, Facet, Injector, LooksAt};
use sluice_flow::parts::SharedParts;
use sluice_flow::port::{GonePort, PortMap};
use sluice_flow::source::SourceReport;
use sluice_flow::table::{Census, FlowView};
use sluice_flow::ufid::Seed;
use sluice_flow::{Flow, FlowId, Origin, PortNumber, Refusal, Timestamp, Ufid};
use sluice_journal::JournalReport;
use sluice_objects::{Objects, RefusedObjects};
use sluice_offload::WorkerReport;

use super::error::Error;
use super::faces::AgentView;
use super::flows::{FlowName, find};
use crate::config::Config;
use crate::mirroring::Shown;
use crate::observe::events::Watch;
use crate::observe::history::History;
use crate::observe::measures::Reading;
use crate::upkeep::device_counters::DeviceCounters;
use crate::upkeep::revalidation::Revalidation;

impl AgentView {
    /// The time by which flows are dated.
    pub fn now(&self) -> Timestamp {
        self.agent().clock.now()
    }

    /// The seed that names flows without a UFID of their own.
    pub fn seed(&self) -> &Seed {
        self.agent().table.seed()
    }

    /// What the flows of the table have in common.
    pub fn parts(&self) -> &Arc<SharedParts> {
        self.agent().table.parts()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.agent().config()
    }

    /// The datapath's name as OVS writes it: type and name.
    pub fn datapath(&self) -> String {
        self.agent().datapath()
    }

    /// What the device can do.
    pub fn capabilities(&self) -> Capabilities {
        self.agent().backend.capabilities()
    }

    /// What a person should know of the device, a sentence each.
    pub fn notes_of_device(&self) -> Vec<String> {
        self.agent().backend.notes()
    }

    /// What the device can do beside flows.
    pub fn facets(&self) -> impl Iterator<Item = Facet> {
        Facet::all_of(&*self.agent().backend)
    }

    /// The ports.
    pub fn ports(&self) -> Arc<PortMap> {
        self.agent().ports()
    }

    /// Whether the device of a port is not there.
    pub fn is_absent(&self, port: PortNumber) -> bool {
        self.agent().backend.is_absent(port)
    }

    /// The ports, meters, mirrors and timeout policies in force.
    pub fn objects(&self) -> Arc<Objects> {
        self.agent().objects()
    }

    /// Objects that were made at run time and that the device has refused since a start, so that they are not in force.
    pub fn refused_objects(&self) -> Arc<RefusedObjects> {
        self.agent().object_store.refused()
    }

    /// Whether objects of an earlier run were lost by damage, and what to do.
    pub fn damage_of_objects(&self) -> Option<String> {
        self.agent().object_store.damage()
    }

    /// Finds a flow.
    pub fn find(&self, name: &FlowName) -> Result<FlowView, Error> {
        self.flow(find(self.agent(), name)?).ok_or(Error::NotFound)
    }

    /// A flow, if it still exists.
    pub fn flow(&self, id: FlowId) -> Option<FlowView> {
        self.agent().table.view(id)
    }

    /// The flow of a UFID.
    pub fn named(&self, ufid: Ufid) -> Option<FlowView> {
        self.flow(self.agent().table.find(ufid)?)
    }

    /// Shows every flow until `visit` breaks off.
    pub fn visit(&self, visit: &mut dyn FnMut(FlowView) -> ControlFlow<()>) {
        self.agent().table.visit(visit);
    }

    /// What hardware and software counted of a flow, each by itself; `None` where the device does not tell, or no longer.
    pub fn counted_apart(&self, view: &FlowView) -> Option<CountedApart> {
        self.agent().backend.counted_apart(view.handle?).ok()?
    }

    /// What the device looks at for a flow, where that is less than the flow matches; see [`looks_at`](sluice_flow::Backend::looks_at).
    pub fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        self.agent().backend.looks_at(flow)
    }

    /// How many flows are in which state.
    pub fn census(&self) -> &Census {
        self.agent().table.census()
    }

    /// The ports that are gone for which flows were accepted, and how many flows.
    pub fn withheld(&self) -> Vec<(GonePort, usize)> {
        self.agent().table.withheld()
    }

    /// What each worker has done and has before it, and how many of its flows have a rule. Walks the table.
    pub fn workers(&self) -> Vec<(WorkerReport, usize)> {
        self.agent().queue.reports().into_iter().zip(self.agent().queue.rules()).collect()
    }

    /// What the device has counted beside flows, as of the last poll.
    pub fn device_counters(&self) -> Arc<DeviceCounters> {
        self.agent().device_counters()
    }

    /// Polling and ageing.
    pub fn revalidation(&self) -> &Revalidation {
        &self.agent().revalidation
    }

    /// How the journal does, if there is one.
    pub fn journal(&self) -> Option<JournalReport> {
        self.agent().journal.as_ref().map(|journal| journal.report())
    }

    /// All that is counted, as of now.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading::take(self.agent(), None)
    }

    /// Writes how often what has happened, as `coverage/show` prints it.
    pub(crate) fn write_coverage(&self, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
        self.agent().coverage.write(&self.reading().coverage(), out)
    }

    /// The mirrors of control traffic that are wanted.
    pub fn mirroring(&self) -> Arc<Vec<Shown>> {
        self.agent().mirroring.shown()
    }

    /// What each source of flows told last of itself.
    pub fn sources(&self) -> Vec<(Origin, SourceReport)> {
        self.agent().source_reports.all()
    }

    /// Events as they happen.
    pub fn watch(&self) -> Watch {
        self.agent().events.watch()
    }

    /// The last events, for those who read at their own pace.
    pub fn history(&self) -> &History {
        self.agent().events.history()
    }

    /// The connections that the device tracks, or that it tracks none.
    pub fn connections(&self) -> Result<&dyn Connections, Refusal> {
        Facet::Connections.require(self.agent().backend.connections())
    }

    /// What takes packets by hand, if the device is a NIC in software.
    pub fn injector(&self) -> Option<&dyn Injector> {
        self.agent().backend.injector()
    }
}
