//! What a device must offer to carry flows.
//!
//! A backend translates, installs, counts and lists. It knows nothing of ageing, queues, sockets or metrics. The agent
//! calls [`Backend`] from any thread, and gives each worker an [`InstallQueue`] of its own, so that nothing on the
//! install path is shared but what the device shares.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::cause::Cause;
use crate::chain::ChainId;
use crate::connection::{Connection, Selection, ZoneLimits};
use crate::counters::{Counters, Reading, Sampled};
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::key::Match;
use crate::meter::{Meter, MeterId};
use crate::mirror::Mirror;
use crate::port::{Port, PortNumber};
use crate::refusal::Refusal;
use crate::time::{Clock, Timestamp};
use crate::timeout::TimeoutPolicy;
use crate::trace::Tracer;
use crate::ufid::Ufid;

/// What a backend is opened with.
pub struct OpenConfig {
    /// The device, in the backend's own naming.
    pub device: String,
    /// Where the backend takes the time from.
    pub clock: Arc<dyn Clock>,
    /// Who is to take rules, where the device leaves the choice.
    pub policy: OffloadPolicy,
    /// What becomes of flags of outer headers that the kernel does not know, where the device is the kernel's.
    pub tunnel_flags: TunnelFlags,
    /// Whose rules they are, where the device keeps them beyond the life of the agent.
    pub owner: Owner,
    /// Where a backend may keep what it has to know in its next run; `None` where nothing is kept.
    pub state_dir: Option<PathBuf>,
}

impl OpenConfig {
    /// A device with the default policies, for an owner whose rules nobody will look for.
    pub fn new(device: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        let (policy, tunnel_flags, owner, state_dir) = Default::default();
        Self { device: device.into(), clock, policy, tunnel_flags, owner, state_dir }
    }
}

/// Who is to take rules, as `tc-policy` of OVS has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadPolicy {
    /// Hardware if it can, and software.
    #[default]
    Any,
    /// Hardware only: what it refuses is refused.
    SkipSoftware,
    /// Software only.
    SkipHardware,
}

impl OffloadPolicy {
    /// All, with their names in the configuration.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Any, "none"), (Self::SkipSoftware, "skip_sw"), (Self::SkipHardware, "skip_hw")];

    /// The one with this name in the configuration.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(policy, known)| (known == name).then_some(policy))
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(policy, name)| (policy == self).then_some(name)).unwrap_or_default()
    }
}

/// What becomes of flags of an outer header that the running kernel knows nothing of: `df` and `csum` in a match before Linux
/// 6.11, and `df` in `set(tunnel(…))` before Linux 6.3. OVS writes them into each of its tunnel flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelFlags {
    /// Those of a match are passed over as long as no other flow differs only in them; where one does, both are refused. Those
    /// that are to be set are passed over.
    #[default]
    Auto,
    /// The flow is refused.
    Exact,
    /// They are passed over, as OVS's own tc offload does, and the rule says so.
    AsOvs,
}

impl TunnelFlags {
    /// All, with their names in the configuration.
    pub const ALL: [(Self, &str); 3] = [(Self::Auto, "auto"), (Self::Exact, "exact"), (Self::AsOvs, "as_ovs")];

    /// The one with this name in the configuration.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(flags, known)| (known == name).then_some(flags))
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(flags, name)| (flags == self).then_some(name)).unwrap_or_default()
    }
}

/// An agent, the same over its restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// As much of it as there is room for in a device's notes. It is random, so that two agents of a machine that share it need not
    /// be feared.
    #[expect(clippy::cast_possible_truncation, reason = "half of it")]
    pub const fn mark(self) -> u32 {
        self.0 as u32
    }
}

/// A device that carries flows.
pub trait Backend: Send + Sync {
    /// What it can do; constant while it is open.
    fn capabilities(&self) -> Capabilities;

    /// A dry run: whether the flow would be taken now, and what rule would come of it, in the device's own words; of a flow that
    /// needs more than one, a line for each.
    fn explain(&self, flow: &Flow) -> Result<String, Refusal>;

    /// What the device looks at instead of the match of a flow, if that may be less; `None` if it is the match. Asked for every
    /// flow that is taken on, so that it must be quick.
    fn looks_at(&self, _flow: &Flow) -> Option<LooksAt> {
        None
    }

    /// Makes a port usable.
    fn attach_port(&self, port: &Port) -> Result<(), Refusal>;

    /// The same, and a device that is not there is no refusal: the port is usable once it is.
    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        self.attach_port(port)
    }

    /// Whether a port waits for its device.
    fn is_absent(&self, _port: PortNumber) -> bool {
        false
    }

    /// Takes a port away. Rules that name it stay until their flows go, and do not see traffic.
    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal>;

    /// What the device counts at a port; `None` where it does not.
    fn port_counters(&self, port: PortNumber) -> Option<PortCounters>;

    /// What became of lookups; `None` where the device does not count them.
    fn lookup_counters(&self) -> Option<LookupCounters> {
        None
    }

    /// Makes a meter, or changes its rate.
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal>;

    /// Removes a meter. Refused while rules use it.
    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal>;

    /// What a meter counted; `None` where the device does not tell.
    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters>;

    /// Makes a mirror, or changes it; what it counted goes on. One that an earlier run of the same owner left in the device is
    /// taken over. It copies packets before any flow sees them, and what becomes of them does not change.
    fn set_mirror(&self, _mirror: &Mirror) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend has no mirrors".into() })
    }

    /// Removes a mirror.
    fn remove_mirror(&self, _name: &str) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend has no mirrors".into() })
    }

    /// What a mirror copied, and where it is; `None` where the device does not have it.
    fn mirror_counters(&self, _name: &str) -> Option<MirrorCounters> {
        None
    }

    /// Compares meters with what the device has, and names those that are missing or something else. Puts them right if that is
    /// wanted.
    fn check_meters(&self, _mends: bool) -> Result<Vec<MeterFault>, Refusal> {
        Ok(Vec::new())
    }

    /// Compares mirrors with what the device has, and names those that are missing or something else. Puts them right if that
    /// is wanted.
    fn check_mirrors(&self, _mends: bool) -> Result<Vec<MirrorFault>, Refusal> {
        Ok(Vec::new())
    }

    /// Makes a timeout policy, or changes it; its connections follow it.
    fn set_timeout_policy(&self, _policy: &TimeoutPolicy) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend has no timeout policies".into() })
    }

    /// Removes a timeout policy. Refused while rules use it.
    fn remove_timeout_policy(&self, _name: &str) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend has no timeout policies".into() })
    }

    /// Lists the connections that the device tracks, of a zone or all; none where it tracks none.
    fn connections(&self, _zone: Option<u16>, _visit: &mut dyn FnMut(Connection)) {}

    /// Forgets the connections that are meant. Returns how many there were.
    fn flush_connections(&self, _of: &Selection) -> Result<usize, Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// How many connections there are in each bucket of the table, expired ones that nobody has looked at since included.
    fn connection_buckets(&self) -> Result<Vec<usize>, Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// How many connections there may be.
    fn connection_limit(&self) -> Result<u32, Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// Limits how many connections there may be. What there is stays.
    fn set_connection_limit(&self, _limit: u32) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// Limits how many connections a zone may have, or each zone without a limit of its own; 0 for no limit. What there is
    /// stays.
    fn set_zone_limit(&self, _zone: Option<u16>, _limit: u32) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// Takes the limit of a zone away, so that the default one is in force; or the default one, so that there is none.
    fn remove_zone_limit(&self, _zone: Option<u16>) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// The limits of some zones, in this order; of all that have one of their own if none is named.
    fn zone_limits(&self, _zones: &[u16]) -> Result<ZoneLimits, Refusal> {
        Err(Refusal::Device { reason: "this backend tracks no connections".into() })
    }

    /// Makes a chain ready to be jumped to: from now on it ends, for every packet, in the miss policy.
    fn open_chain(&self, chain: ChainId) -> Result<(), Refusal>;

    /// Gives a chain back that nothing jumps to any more.
    fn close_chain(&self, chain: ChainId);

    /// Has the device take no more rules into hardware than so many, for a backend that only plays hardware. Before anything
    /// is installed.
    fn limit_hardware(&self, _rules: usize) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "how many rules fit is up to this device".into() })
    }

    /// How much room hardware has, if rules that found none are kept in software, count their packets there, and can be
    /// [moved](Operation::Move); otherwise why they cannot take turns.
    fn room(&self) -> Result<Room, &'static str> {
        Err("this backend keeps no rules in software that it counts")
    }

    /// The install queue of one more worker.
    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal>;

    /// A reader of all rules' counters.
    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal>;

    /// Lists what is installed, for adoption and audit.
    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal>;

    /// Takes over the rules that an earlier run of the same owner left in the device, which go on working meanwhile. One that
    /// nobody [claims](Claims) is taken out, and so is one of ours that cannot be read back. Called once, with the ports
    /// attached and before anything is installed. Chains that claimed rules jump to are opened right after it.
    fn adopt(&self, _claims: &mut dyn Claims) -> Result<Adoption, Refusal> {
        Ok(Adoption::default())
    }

    /// Rules that may be something else than what was put in, and are to be [read back](Self::read_back) before this is asked
    /// again: a bounded number, whatever is installed.
    fn doubtful(&self) -> Doubtful {
        Doubtful::default()
    }

    /// Reads rules back that flows have, in full, and shows each with the flow that it is for. One that the device does not have is
    /// not shown.
    fn read_back(&self, _rules: &[Handle], _visit: &mut dyn FnMut(FlowId, InstalledRule)) -> Result<(), Refusal> {
        Ok(())
    }

    /// Shows rules of others that lie where ours do, in the device's own words. They are never touched.
    fn foreign(&self, _visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        Ok(())
    }

    /// What other owners have in the device or have left there, where the device tells: rules that bear the mark of an agent like this
    /// one, and another's number.
    fn holdings(&self) -> Result<Vec<Holding>, Refusal> {
        Ok(Vec::new())
    }

    /// Takes out what the owner of a [holding](Self::holdings) has there, but for what a newer build has written. Says how much that
    /// was. The caller knows that no agent of the owner lives.
    fn remove_holding(&self, _mark: u32) -> Result<usize, Refusal> {
        Err(Refusal::Device { reason: "this backend has no rules but those of its own agent".into() })
    }

    /// Takes out one of the [`Backend::installed`] rules that is no flow's: one of ours that nobody wants, or a second one of
    /// a flow. A rule that a flow has is removed through its worker's queue and never so.
    fn remove_stray(&self, _handle: Handle) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "this backend has no rules but those of flows".into() })
    }

    /// What hardware and software counted of a rule, each by itself; `None` where the device does not tell.
    fn counted_apart(&self, _handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        Ok(None)
    }

    /// Removes every rule of ours from the device, known or not. Says how many there were.
    fn flush(&self) -> Result<usize, Refusal>;

    /// Gives the device back, once it has no rule of ours: removes what was made for ports and meters, in this run or an earlier one,
    /// detaches the ports, and leaves what others use. Says what of ours is left, and why. The last that is asked of a backend.
    fn release(&self) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    /// Compares what the backend believes with what the device has, and names the rules that are gone.
    fn resync(&self) -> Result<Vec<LostRule>, Refusal>;

    /// What happens to the device by itself.
    fn events(&self) -> Receiver<DeviceEvent>;

    /// Where packets can be put in by hand; only a NIC in software has that.
    fn injector(&self) -> Option<&dyn Injector> {
        None
    }
}

/// The install path of one worker. Changes to one flow are never in the queue twice at a time.
pub trait InstallQueue: Send {
    /// Hands a batch over. What is done on return is pushed onto `done`; the rest comes through
    /// [`InstallQueue::later`], in any order. Every change is completed exactly once.
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>);

    /// Completions that come later; `None` if all are done when `submit` returns.
    fn later(&self) -> Option<&Receiver<Completion>> {
        None
    }
}

/// Reads the counters of all rules.
pub trait CounterReader: Send {
    /// Hands every rule's reading to `visit`, in batches of the backend's choosing, each with the time that it is of. A
    /// rule that is missing was not read, which says nothing about it. An error means that not all were read.
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal>;
}

/// A NIC in software, seen from the wire.
pub trait Injector: Send + Sync {
    /// Whether a frame (without FCS) can come in at a port at all.
    fn check(&self, port: PortNumber, frame: &[u8]) -> Result<(), Refusal>;

    /// Lets a frame (without FCS) in at a port, and says what became of it.
    fn inject(&self, port: PortNumber, frame: &[u8]) -> Result<Verdict, Refusal>;

    /// Walks frames through the rules and tells each step, without letting them in.
    fn tracer(&self) -> Box<dyn Tracer + '_>;
}

/// What became of an injected frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The flows that the packet hit, in order.
    pub hits: Vec<FlowId>,
    /// The chain in which it missed, if it did.
    pub missed: Option<ChainId>,
    /// What was sent, in order.
    pub sent: Vec<(PortNumber, Vec<u8>)>,
    /// What sampling groups were told, in order.
    pub samples: Vec<Sample>,
}

/// A packet as a sampling group is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The group.
    pub group: u32,
    /// The note.
    pub cookie: Box<[u8]>,
    /// The packet as it was then, cut if a cut was to come.
    pub bytes: Vec<u8>,
    /// How likely it was that the packet was sampled: [`u32::MAX`] is for certain.
    pub rate: u32,
}

/// A change that the device shall make.
#[derive(Clone, Debug)]
pub struct Change {
    /// The flow it is for; comes back in completion and readings.
    pub flow: FlowId,
    /// The state of the flow that it was asked for; comes back in the completion.
    pub generation: Generation,
    /// What to do.
    pub operation: Operation,
}

/// What to do to a rule.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Put a rule for the flow in.
    Install(Flow),
    /// Make the rule do what the flow now says (its match is the same), without a gap where the device can avoid one.
    /// Counters go on. A refusal leaves the old rule as it was.
    Modify(Handle, Flow),
    /// Have hardware or software carry the rule from now on, without a gap. Counters go on. If there is no room for it in
    /// hardware it stays where it was, and the answer says so.
    Move(Handle, Placement),
    /// Unlink the rule from matching, read its last counters, free it.
    Remove(Handle),
}

/// The end of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The flow.
    pub flow: FlowId,
    /// The generation that the change carried.
    pub generation: Generation,
    /// What came of it.
    pub result: Result<Outcome, Refusal>,
}

/// What a change that was made came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule is there: after an install, a modification or a move.
    InPlace {
        /// How the backend finds it again.
        handle: Handle,
        /// Where it ended up.
        placement: Placement,
    },
    /// The rule is gone.
    Removed {
        /// Its last counters since installation; `None` if they could not be read.
        last: Option<Counters>,
    },
}

/// A backend's own name for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// Where a rule ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In the device.
    Hardware,
    /// In the device, and in software for packets that come past it.
    Both,
    /// Only in software, such as the kernel's tc, in front of which the device passes packets on.
    Software,
    /// The device did not say.
    Unknown,
}

impl Placement {
    /// Every place, with the word for it in metrics.
    pub const ALL: [(Self, &str); 4] =
        [(Self::Hardware, "hardware"), (Self::Both, "both"), (Self::Software, "software"), (Self::Unknown, "unknown")];

    /// Whether packets that the device sees are handled by it.
    pub const fn is_in_hardware(self) -> bool {
        matches!(self, Self::Hardware | Self::Both)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Hardware => "hardware",
            Self::Both => "hardware and software",
            Self::Software => "software only",
            Self::Unknown => "unknown place",
        })
    }
}

/// Rules and the room for them in hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// How many more rules fit.
    pub free: usize,
    /// How many are in software because they found no room.
    pub waiting: usize,
}

/// The rule of a flow as the device lists it, or the rules, where a flow needs more than one.
#[derive(Clone, Debug)]
pub struct InstalledRule {
    /// The backend's name for it.
    pub handle: Handle,
    /// The flow, read back from the device as far as it can be.
    pub flow: Flow,
    /// Whether the device tells the UFID; if not, that of `flow` is made up.
    pub is_named: bool,
    /// How many rules of the device it is.
    pub rules: usize,
    /// Where it is; of several, only where all are.
    pub placement: Placement,
    /// Whether the backend would write it so today: for the same ones to take it, and with what the configuration lets a rule leave
    /// out. One that an earlier build has written in another form, or another owner, works as it is and is to be written anew, in
    /// place.
    pub is_current: bool,
}

/// What another owner has in a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// [As much of its number](Owner::mark) as notes have room for.
    pub mark: u32,
    /// Rules of flows.
    pub rules: usize,
    /// Rules at the ends of chains.
    pub chain_ends: usize,
    /// Rules of mirrors.
    pub mirrors: usize,
    /// Meters.
    pub meters: usize,
    /// What a newer build has written, which this one does not touch.
    pub of_newer: usize,
    /// The latest format of the notes on that.
    pub newer_format: Option<u8>,
}

/// What a device looks at where it cannot look at all that a flow matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooksAt {
    /// The match of the flow without what is left out.
    pub matching: Match,
    /// Whether flows for which it is the same are to be held apart: none of them is to have a rule.
    pub holds_apart: bool,
}

/// Rules that may be something else than what was put in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubtful {
    /// Those that somebody else was heard to touch since this was last asked.
    pub told: Vec<Handle>,
    /// Some of all others, each of which has its turn in time.
    pub in_turn: Vec<Handle>,
}

/// Who has claims to the rules that an earlier run left.
pub trait Claims {
    /// Is told what another owner has there, before any rule is shown. Says whether its rules are to be [inherited](Self::inherit).
    fn inherits(&mut self, _holding: &Holding) -> bool {
        false
    }

    /// Is shown a rule of such an owner as it is read back, and says whose it is from now on, as [`Self::claim`] does. One that nobody
    /// takes stays where it is.
    fn inherit(&mut self, _rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        None
    }

    /// The flow that is wanted under a UFID. A backend that knows by it what a rule says need not read that.
    fn wanted(&self, ufid: Ufid) -> Option<Flow>;

    /// Is shown a rule, and says whose it is from now on: the flow, and the generation that readings are to carry.
    fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)>;
}

/// Of one who only knows a rule when it is shown.
impl<F: FnMut(&InstalledRule) -> Option<(FlowId, Generation)>> Claims for F {
    fn wanted(&self, _ufid: Ufid) -> Option<Flow> {
        None
    }

    fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        self(rule)
    }
}

/// What became of the rules of an earlier run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// Those that a flow has now; several of one flow are one.
    pub adopted: usize,
    /// Those that were taken out.
    pub orphans: usize,
}

/// Counters of one rule, since it was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedApart {
    /// By hardware.
    pub hardware: Counters,
    /// By software.
    pub software: Counters,
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The name, as in `--backend` and in the `dp:` part of a dumped flow.
    pub name: &'static str,
    /// What becomes of a packet that misses in chain 0.
    pub miss: MissPolicy,
    /// What becomes of a packet that misses in a later chain, after its headers may have changed.
    pub chain_miss: MissPolicy,
    /// How old a reading may be.
    pub max_lag: Duration,
    /// How good the counters of a removed rule are.
    pub last_counters: LastCounters,
    /// Whether a modification leaves no gap in which no rule matches.
    pub modifies_in_place: bool,
    /// How many chains a packet may pass one after the other.
    pub max_chain_depth: usize,
    /// How many changes are best handed over at once.
    pub batch: usize,
}

/// What becomes of a packet that no rule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissPolicy {
    /// It is counted and dropped.
    Drop,
    /// It goes to the representor of the port that it came from.
    Representor,
    /// It goes the kernel's own way.
    Kernel,
}

impl MissPolicy {
    /// What it means, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Drop => "counted and dropped",
            Self::Representor => "to the representor of the port it came from",
            Self::Kernel => "the kernel's own way",
        }
    }
}

/// How good the counters of a removed rule are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCounters {
    /// They hold every packet that the rule took.
    Exact,
    /// Packets in flight while the rule was unlinked may be missing.
    Bounded,
}

/// Packets, bytes and drops at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
}

/// What became of lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounters {
    /// Packets that a rule of chain 0 took.
    pub hits: u64,
    /// Packets that none of chain 0 took.
    pub misses: u64,
    /// Times that a packet went to a later chain and none took it there.
    pub chain_misses: u64,
    /// Packets that a rule took and that then went nowhere, though not by its actions.
    pub lost: u64,
}

/// What a meter let pass and held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterCounters {
    /// Packets that reached the meter.
    pub packets: u64,
    /// Bytes that reached the meter.
    pub bytes: u64,
    /// Packets that it dropped.
    pub dropped_packets: u64,
    /// Bytes that it dropped; `None` where the device does not count them.
    pub dropped_bytes: Option<u64>,
    /// Packets that each band dropped since it was set; empty where the device does not tell.
    pub bands: Vec<u64>,
}

/// What a mirror copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Packets that were copied, however many copies were made of each.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What copies them. Packets that hardware carries past a mirror in software are not copied.
    pub placement: Placement,
}

/// A meter that is not in the device as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterFault {
    /// Which.
    pub meter: MeterId,
    /// Whether the device has something in its place.
    pub is_there: bool,
    /// What came of putting it right; `None` if that was not wanted.
    pub mended: Option<Result<(), Refusal>>,
}

impl MeterFault {
    /// Whether it was put right, as far as that was wanted.
    pub fn is_mended(&self) -> bool {
        !matches!(self.mended, Some(Err(_)))
    }
}

/// A mirror that is not in the device as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorFault {
    /// Its name.
    pub name: String,
    /// Whether the device has something in its place.
    pub is_there: bool,
    /// What came of putting it right; `None` if that was not wanted.
    pub mended: Option<Result<(), Refusal>>,
}

impl MirrorFault {
    /// Whether it was put right, as far as that was wanted.
    pub fn is_mended(&self) -> bool {
        !matches!(self.mended, Some(Err(_)))
    }
}

/// A rule that went by itself. Told by its handle, too, since it may have been put in only just now, or be another one by now:
/// a backend does not use a handle again while the loss of the rule that had it is still to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRule {
    /// The flow that it was for.
    pub flow: FlowId,
    /// The backend's name for it.
    pub handle: Handle,
}

/// What happens to a device by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// Rules that were refused for a cause may be taken now.
    Changed {
        /// What has changed.
        cause: Cause,
    },
    /// A rule is gone.
    RuleLost(LostRule),
    /// The device behind a port has gone or has come, and may be another one of the same name. Rules that name the port, as
    /// where packets come from or where they go, must be made anew.
    PortChanged(PortNumber),
    /// The device is in an unknown state: everything must be compared and put in again.
    Reset {
        /// When.
        at: Timestamp,
    },
    /// The device is dead, in its own words.
    Failed(String),
}
