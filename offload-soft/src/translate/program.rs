//! What a rule does, ready to be run.

use std::sync::Arc;

use sluice_flow::action::{ActionList, Encapsulation, EthernetAddresses, FieldSet, HashAlgorithm, MplsEntry, VlanTag};
use sluice_flow::port::PortNumber;

use crate::chains::Chain;
use crate::conntrack::Request;
use crate::engine::tunnel::Push;
use crate::meters::MeterState;

/// What a rule does.
pub(crate) struct Program {
    /// The chain that the rule is in.
    pub(crate) chain: Arc<Chain>,
    pub(crate) steps: Box<[Step]>,
    /// What the steps were made from, one by one.
    pub(crate) actions: ActionList,
    /// Whether packets are only sent as they came, or dropped.
    pub(crate) only_outputs: bool,
}

/// An action, with what it refers to at hand.
pub(crate) enum Step {
    CheckPacketLength {
        length: usize,
        greater: List,
        less_or_equal: List,
    },
    Clone(List),
    Conntrack(Box<Request>),
    ConntrackClear,
    DecTtl(List),
    Hash {
        algorithm: HashAlgorithm,
        basis: u32,
    },
    Meter(Arc<MeterState>),
    Output(PortNumber),
    PopEth,
    PopMpls(u16),
    PopNsh,
    PopVlan,
    Psample {
        group: u32,
        cookie: Box<[u8]>,
    },
    PushEth(EthernetAddresses),
    PushMpls {
        entry: MplsEntry,
        /// Behind the Ethernet header, or in front of all.
        inside_ethernet: bool,
    },
    /// A header as it stands on the wire.
    PushNsh(Box<[u8]>),
    PushVlan(VlanTag),
    Recirc(Arc<Chain>),
    Sample {
        probability: u32,
        list: List,
    },
    Set(FieldSet),
    SetTunnel(Arc<Encapsulation>),
    Trunc(usize),
    TunnelPop(PortNumber),
    TunnelPush(Push),
}

/// A list within a list.
#[derive(Clone)]
pub(crate) struct List {
    pub(crate) steps: Arc<[Step]>,
    /// What the steps were made from, one by one.
    pub(crate) actions: ActionList,
    /// Whether it runs at the level of the list around it: it is the last of it, or changes no header
    /// (`actions_may_change_flow` and `last` in net/openvswitch/flow_netlink.c).
    pub(crate) is_level: bool,
}

impl Program {
    /// Lets meters and timeout policies go.
    pub(crate) fn release(&self) {
        release(&self.steps);
    }

    /// Whether nothing is counted per rule of what it refers to, so that rules can share it.
    pub(crate) fn holds_nothing(&self) -> bool {
        use Step as S;
        let holds = |step: &Step| {
            matches!(step, S::Meter(_) | S::Conntrack(_) | S::Clone(_) | S::DecTtl(_) | S::Sample { .. })
                || matches!(step, S::CheckPacketLength { .. } | S::Recirc(_))
        };
        !self.steps.iter().any(holds)
    }
}

/// Lets meters and timeout policies of a list and of all lists within go.
pub(super) fn release(steps: &[Step]) {
    for step in steps {
        match step {
            Step::Meter(meter) => meter.release(),
            Step::Conntrack(request) => request.release(),
            Step::Clone(list) | Step::DecTtl(list) | Step::Sample { list, .. } => release(&list.steps),
            Step::CheckPacketLength { greater, less_or_equal, .. } => {
                release(&greater.steps);
                release(&less_or_equal.steps);
            }
            _ => {}
        }
    }
}
