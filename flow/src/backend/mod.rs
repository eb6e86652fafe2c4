//! What a device must offer to carry flows.
//!
//! A backend translates, installs, counts and lists. It knows nothing of ageing, queues, sockets or metrics. The agent
//! calls [`Backend`] from any thread, and gives each worker an [`InstallQueue`] of its own, so that nothing on the
//! install path is shared but what the device shares.

mod config;
mod counted;
mod injector;
mod queue;
mod rules;

use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::cause::Cause;
use crate::chain::ChainId;
use crate::connection::{Connection, Selection, ZoneLimits};
use crate::flow::Flow;
use crate::id::FlowId;
use crate::meter::{Meter, MeterId};
use crate::mirror::Mirror;
use crate::port::{Port, PortNumber};
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::timeout::TimeoutPolicy;

pub use self::config::{OffloadPolicy, OpenConfig, Owner, TunnelFlags};
pub use self::counted::{
    CounterReader, LookupCounters, MeterCounters, MeterFault, MirrorCounters, MirrorFault, PortCounters,
};
pub use self::injector::{Injector, Sample, Verdict};
pub use self::queue::{Change, Completion, Handle, InstallQueue, Operation, Outcome, Placement};
pub use self::rules::{Adoption, Claims, CountedApart, Doubtful, Holding, InstalledRule, LooksAt};

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

/// Rules and the room for them in hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// How many more rules fit.
    pub free: usize,
    /// How many are in software because they found no room.
    pub waiting: usize,
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
