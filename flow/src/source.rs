//! What a source of flows must offer, and what it is given: the counterpart of [`crate::backend`] on the side where flows come from.
//!
//! A source knows another system whose flows are to be offloaded, and says at each moment what that system wants. It hands that to an
//! [`Intake`], which the agent is, and takes from it what the device has counted. The other system stays the one that owns its flows:
//! it ages them, and after a restart of either side the source compares ([`Intake::visit`]) instead of remembering.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::MeterCounters;
use crate::cause::Cause;
use crate::flow::Flow;
use crate::meter::{Meter, MeterId};
use crate::origin::Origin;
use crate::parts::SharedParts;
use crate::port::{Port, PortNumber};
use crate::refusal::Refusal;
use crate::table::FlowState;
use crate::ufid::{Seed, Ufid};

/// A source of flows. It runs on a thread of its own.
pub trait Source: Send {
    /// Whose flows it brings.
    fn origin(&self) -> Origin;

    /// Brings flows until `stops` says so, and is back soon after that. A system that is not there, or goes away, is waited for: its flows are
    /// taken out meanwhile.
    fn run(&mut self, intake: &dyn Intake, stops: &dyn Fn() -> bool);
}

/// Where a source brings its flows. It sees flows of its own origin only, and touches no others.
pub trait Intake {
    /// The seed for flows.
    fn seed(&self) -> &Seed;

    /// What the flows of the table have in common.
    fn parts(&self) -> &Arc<SharedParts>;

    /// Takes a flow on, or new actions of one. A flow of the source that has this match under another UFID makes room.
    ///
    /// # Errors
    /// Returns the reason if the flow was not taken on. What the device refuses is taken on, and shown with its reason.
    fn put(&self, flow: Flow) -> Result<(), Refusal>;

    /// Takes the end of a flow on, if there is such a flow.
    fn delete(&self, ufid: Ufid);

    /// Makes a port of the source usable, if it is not, or another kind of port of one.
    ///
    /// # Errors
    /// Returns the reason, which does not name the port, if somebody else has a port of this number or name, or the device refuses it.
    fn attach(&self, port: Port) -> Result<(), String>;

    /// Takes a port away that the source has attached. Flows that name it are refused until it is back.
    fn detach(&self, port: PortNumber);

    /// The ports that the source has attached.
    fn ports(&self) -> Vec<Port>;

    /// The port of this name, whoever has attached it.
    fn port(&self, name: &str) -> Option<PortNumber>;

    /// Takes a meter of the source on, or another rate of one.
    ///
    /// # Errors
    /// Returns the reason if somebody else has a meter of this number, or the device refuses it. It is as it was then, or gone.
    fn set_meter(&self, meter: Meter) -> Result<(), String>;

    /// Takes the end of a meter on, and of the flows of the source that name it. Returns whether it is gone. As long as the device has rules of
    /// such flows it is not, and this has to be called again.
    fn remove_meter(&self, meter: MeterId) -> bool;

    /// The meters of the source.
    fn meters(&self) -> Vec<MeterId>;

    /// What the device has counted of a meter, as of the last poll, if it tells.
    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters>;

    /// How often the device is asked what it has counted, which a reload may change: to look more often shows nothing new.
    fn poll_interval(&self) -> Duration;

    /// Shows every flow of the source that is wanted.
    fn visit(&self, visit: &mut dyn FnMut(Standing));

    /// Shows those of them of which something is new since this last showed them: a packet that was counted, a rule that is there, a refusal.
    fn visit_news(&self, visit: &mut dyn FnMut(Standing));

    /// Has a source told at once, by whatever thread has asked the device, when the device refuses one of its flows or a change to one, and
    /// when a flow is withheld because a port has gone. To be called once.
    fn hear_refusals(&self, hear: Box<dyn Fn(Ufid) + Send + Sync>);

    /// How many flows of the source are wanted. They are fewer than it has put once somebody has deleted one by a command.
    fn wanted(&self) -> usize;

    /// Shows one of them.
    fn standing(&self, ufid: Ufid) -> Option<Standing>;

    /// Takes what is known of the source, for those who look at the agent.
    fn report(&self, report: SourceReport);
}

/// How a flow of a source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The flow.
    pub ufid: Ufid,
    /// How far it has come.
    pub state: FlowState,
    /// What would have to change before the device takes it, if it is refused and not for good.
    pub waits_for: Option<Cause>,
    /// All that the device has counted of it.
    pub packets: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Time since the last packet that the device has counted; `None` if it has counted none.
    pub idle: Option<Duration>,
    /// All TCP flags that were seen.
    pub tcp_flags: u16,
}

/// What a source tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// What it reads, such as the name of a datapath.
    pub subject: String,
    /// Why there are no flows now, if the system cannot be read.
    pub trouble: Option<String>,
    /// What the system does not hear of its flows, if it does not hear all.
    pub caveat: Option<String>,
    /// What becomes of a packet that misses in a later chain, to which flows of the source have sent it: in words, if the source tells.
    pub chain_miss: Option<&'static str>,
    /// Ports whose flows have no rule, with the reason.
    pub ports_left_out: Vec<(String, String)>,
    /// Flows that the other system has.
    pub flows: usize,
    /// Those of them that could not be read or taken on.
    pub flows_left_out: usize,
    /// Why that is so, and of how many, if the source tells: one of a closed set of sentences.
    pub reasons: Vec<(String, usize)>,
    /// Messages about flows.
    pub messages: u64,
    /// How often messages were lost.
    pub losses: u64,
    /// How often all flows were compared.
    pub comparisons: u64,
}
