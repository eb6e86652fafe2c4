//! The actions by themselves, and lists of them.

use std::sync::Arc;

use super::conntrack::Conntrack;
use super::headers::{EthernetAddresses, MplsEntry, NshHeader, TunnelPush, VlanTag};
use super::userspace::Userspace;
use crate::chain::ChainId;
use crate::field::{Attribute, Field};
use crate::meter::MeterId;
use crate::port::PortNumber;

/// The actions of a flow, in sequence, shared between flows. An empty list drops.
///
/// A packet is dropped where a list ends, so that the explicit `drop` that OVS prints behind a sample, to count the drop,
/// is no action here.
pub type ActionList = Arc<[Action]>;

/// One datapath action (`enum ovs_action_attr` in `include/uapi/linux/openvswitch.h`).
///
/// Lists within an action are run on the packet as it is at that point; what they do to it is not seen by the actions
/// behind, except for [`Action::Recirc`]'s chain and connection state, which stay with their copy, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Puts a label stack entry in front of all, the Ethernet header included; a [`Action::PushEth`] follows as a rule.
    ///
    /// A netlink message can ask for a place behind the Ethernet header instead (`OVS_MPLS_L3_TUNNEL_FLAG_MASK`). The
    /// text has no word for that, neither in OVS nor here, and OVS itself never sets the flag.
    AddMpls(MplsEntry),
    /// Does one of two things, by the length of the packet.
    CheckPacketLength {
        /// Bytes, from the Ethernet header on.
        length: u16,
        /// What is done to a longer one.
        greater: ActionList,
        /// What is done to any other.
        less_or_equal: ActionList,
    },
    /// Runs a list on a copy.
    Clone(ActionList),
    /// Tracks the connection of the packet.
    Conntrack(Box<Conntrack>),
    /// Forgets what connection tracking found.
    ConntrackClear,
    /// Decrements the time to live or the hop limit; runs the list, and nothing behind it, where that would make 0.
    ///
    /// OVS prints it, but reads it in no form.
    DecTtl(ActionList),
    /// Computes a hash that the next lookup sees as `dp_hash`. OVS prints it, but does not read it.
    Hash {
        /// Over what.
        algorithm: HashAlgorithm,
        /// What it starts from.
        basis: u32,
    },
    /// Sends the packet out of a member of a bond, by its hash.
    LbOutput(u32),
    /// Passes the packet through a meter, which may drop it.
    Meter(MeterId),
    /// Sends the packet, as it is at this point, out of a port.
    Output(PortNumber),
    /// Takes the Ethernet header off. OVS prints it, but does not read it.
    PopEth,
    /// Takes the outermost label stack entry off; the packet then has this Ethernet type. OVS prints it, but does not read
    /// it.
    PopMpls(u16),
    /// Takes the NSH header off.
    PopNsh,
    /// Takes the outermost VLAN tag off.
    PopVlan,
    /// Tells a sampling group of the packet.
    Psample {
        /// The group.
        group: u32,
        /// A note, at most 16 bytes; none if it is empty. OVS prints it without zeros in front, which are lost when that
        /// is read.
        cookie: Box<[u8]>,
    },
    /// Puts an Ethernet header on. OVS prints it, but does not read it.
    PushEth(EthernetAddresses),
    /// Puts a label stack entry on, behind the Ethernet header and the VLAN tags. OVS prints it, but does not read it.
    PushMpls(MplsEntry),
    /// Puts an NSH header on.
    PushNsh(Box<NshHeader>),
    /// Puts a VLAN tag on.
    PushVlan(VlanTag),
    /// Looks the packet up again in another chain. OVS prints the chain in hexadecimal, but reads it in decimal.
    Recirc(ChainId),
    /// Runs a list on some of the packets.
    Sample {
        /// How many: [`u32::MAX`] is every one, 0 is none. OVS prints a tenth of a percent at most; here as many decimals
        /// are written as are needed to read the same number back.
        probability: u32,
        /// What is done to them.
        actions: ActionList,
    },
    /// Rewrites the masked bits of some fields of one header.
    Set(FieldSet),
    /// Says with which outer header the next output to a tunnel port encapsulates.
    SetTunnel(FieldSet),
    /// Takes the outer header off and looks the packet up again, as it comes from this tunnel port.
    TunnelPop(PortNumber),
    /// Puts a whole outer header on and sends the packet.
    TunnelPush(Box<TunnelPush>),
    /// Cuts the packet to at most so many bytes for the next output only.
    Trunc(u32),
    /// Sends the packet to a process.
    Userspace(Box<Userspace>),
}

/// Over what a hash is computed (`enum ovs_hash_alg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// Addresses and ports of IP, in any way that tells connections apart.
    L4,
    /// The same in both directions of a connection.
    SymmetricL4,
}

/// Fields of one attribute with the bits to set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldSet {
    /// The header.
    pub attribute: Attribute,
    /// (field, value, mask), in table order; the value has no bit outside the mask, no mask is zero.
    pub fields: Box<[(Field, u128, u128)]>,
}

impl FieldSet {
    /// Value and mask of one field, if the set touches it.
    pub fn get(&self, field: Field) -> Option<(u128, u128)> {
        self.fields.iter().find(|(f, _, _)| *f == field).map(|(_, value, mask)| (*value, *mask))
    }

    /// Whether every bit of every field of the attribute is set, as in OVS's `set()` without masks.
    pub fn is_whole(&self) -> bool {
        self.attribute.fields().all(|spec| self.get(spec.field).is_some_and(|(_, mask)| mask == spec.field.full_mask()))
    }
}

macro_rules! action_kinds {
    ($($kind:ident $name:literal $($action:ident)?;)*) => {
        /// The kind of an action, without its arguments: a closed set, fit for a metric label.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ActionKind {
            $(#[doc = concat!("`", $name, "`")] $kind,)*
        }

        impl ActionKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name that OVS prints.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }

        impl Action {
            /// The kind of the action.
            pub fn kind(&self) -> ActionKind {
                match self { $($(Self::$action { .. } => ActionKind::$kind,)?)* }
            }
        }
    };
}

action_kinds! {
    // kind      name            action; an empty list drops
    AddMpls      "add_mpls"      AddMpls;
    CheckPktLen  "check_pkt_len" CheckPacketLength;
    Clone        "clone"         Clone;
    Ct           "ct"            Conntrack;
    CtClear      "ct_clear"      ConntrackClear;
    DecTtl       "dec_ttl"       DecTtl;
    Drop         "drop";
    Hash         "hash"          Hash;
    LbOutput     "lb_output"     LbOutput;
    Meter        "meter"         Meter;
    Output       "output"        Output;
    PopEth       "pop_eth"       PopEth;
    PopMpls      "pop_mpls"      PopMpls;
    PopNsh       "pop_nsh"       PopNsh;
    PopVlan      "pop_vlan"      PopVlan;
    Psample      "psample"       Psample;
    PushEth      "push_eth"      PushEth;
    PushMpls     "push_mpls"     PushMpls;
    PushNsh      "push_nsh"      PushNsh;
    PushVlan     "push_vlan"     PushVlan;
    Recirc       "recirc"        Recirc;
    Sample       "sample"        Sample;
    Set          "set"           Set;
    SetTunnel    "set(tunnel)"   SetTunnel;
    TnlPop       "tnl_pop"       TunnelPop;
    TnlPush      "tnl_push"      TunnelPush;
    Trunc        "trunc"         Trunc;
    Userspace    "userspace"     Userspace;
}

impl Action {
    /// The lists that the action may run, in the order in which they are written.
    pub fn lists(&self) -> impl Iterator<Item = &ActionList> {
        let lists = match self {
            Self::CheckPacketLength { greater, less_or_equal, .. } => [Some(greater), Some(less_or_equal)],
            Self::Clone(list) | Self::DecTtl(list) | Self::Sample { actions: list, .. } => [Some(list), None],
            _ => [None, None],
        };
        lists.into_iter().flatten()
    }
}

/// Visits the actions of a list and of all lists within, each before what is behind it.
pub fn visit(actions: &[Action], see: &mut dyn FnMut(&Action)) {
    for action in actions {
        see(action);
        action.lists().for_each(|list| visit(list, see));
    }
}

/// Whether a list of actions names a port, at any depth.
pub fn names_port(actions: &[Action], port: PortNumber) -> bool {
    let mut is_named = false;
    visit(actions, &mut |action| {
        is_named |= match action {
            Action::Output(named) | Action::TunnelPop(named) => *named == port,
            Action::TunnelPush(push) => push.tunnel_port == port || push.out_port == port,
            _ => false,
        };
    });
    is_named
}

/// The meters that a list of actions names, at any depth.
pub fn named_meters(actions: &[Action]) -> Vec<MeterId> {
    let mut named = Vec::new();
    visit(actions, &mut |action| {
        if let Action::Meter(meter) = action {
            named.push(*meter);
        }
    });
    named
}

/// The chains that a list of actions jumps to, from any depth.
pub fn jumps(actions: &[Action]) -> Vec<ChainId> {
    let mut found = Vec::new();
    visit(actions, &mut |action| {
        if let Action::Recirc(chain) = action {
            found.push(*chain);
        }
    });
    found
}
