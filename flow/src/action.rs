//! What a flow does: the actions of the OVS datapath as a typed enum.

use std::sync::Arc;

use crate::chain::ChainId;
use crate::field::{Attribute, Field};
use crate::meter::MeterId;
use crate::port::PortNumber;

/// The actions of a flow, in sequence, shared between flows. An empty list drops.
pub type ActionList = Arc<[Action]>;

/// One datapath action (`enum ovs_action_attr` in `include/uapi/linux/openvswitch.h`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Sends the packet, as it is at this point, out of a port.
    Output(PortNumber),
    /// Passes the packet through a meter, which may drop it.
    Meter(MeterId),
    /// Takes the outermost VLAN tag off.
    PopVlan,
    /// Puts a VLAN tag on.
    PushVlan(VlanTag),
    /// Looks the packet up again in another chain.
    Recirc(ChainId),
    /// Rewrites the masked bits of some fields of one header.
    Set(FieldSet),
    /// Says with which outer header the next output to a tunnel port encapsulates.
    SetTunnel(FieldSet),
    /// Cuts the packet to at most so many bytes for the next output only.
    Trunc(u32),
    /// An action that OVS has and this version reads, shows and refuses, but cannot take apart yet.
    Opaque(OpaqueAction),
}

/// The VLAN tag of a push. `tci` fields are those of IEEE 802.1Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol, 0x8100 or 0x88a8.
    pub tpid: u16,
    /// VLAN number, 0 to 4095.
    pub vid: u16,
    /// Priority, 0 to 7.
    pub pcp: u8,
    /// The CFI bit; OVS sets it in every tag that is there.
    pub cfi: bool,
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
}

/// An action that is kept as its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpaqueAction {
    /// Which action it is.
    pub kind: ActionKind,
    /// The whole text, parentheses included.
    pub text: Box<str>,
}

macro_rules! action_kinds {
    ($($kind:ident $name:literal;)*) => {
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
    };
}

action_kinds! {
    AddMpls      "add_mpls";
    CheckPktLen  "check_pkt_len";
    Clone        "clone";
    Ct           "ct";
    CtClear      "ct_clear";
    DecTtl       "dec_ttl";
    Drop         "drop";
    Hash         "hash";
    LbOutput     "lb_output";
    Meter        "meter";
    Output       "output";
    PopEth       "pop_eth";
    PopMpls      "pop_mpls";
    PopNsh       "pop_nsh";
    PopVlan      "pop_vlan";
    Psample      "psample";
    PushEth      "push_eth";
    PushMpls     "push_mpls";
    PushNsh      "push_nsh";
    PushVlan     "push_vlan";
    Recirc       "recirc";
    Sample       "sample";
    Set          "set";
    SetTunnel    "set(tunnel)";
    TnlPop       "tnl_pop";
    TnlPush      "tnl_push";
    Trunc        "trunc";
    Userspace    "userspace";
}

impl Action {
    /// The kind of the action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Output(_) => ActionKind::Output,
            Self::Meter(_) => ActionKind::Meter,
            Self::PopVlan => ActionKind::PopVlan,
            Self::PushVlan(_) => ActionKind::PushVlan,
            Self::Recirc(_) => ActionKind::Recirc,
            Self::Set(_) => ActionKind::Set,
            Self::SetTunnel(_) => ActionKind::SetTunnel,
            Self::Trunc(_) => ActionKind::Trunc,
            Self::Opaque(opaque) => opaque.kind,
        }
    }
}

/// The chains that a list of actions jumps to.
pub fn jumps(actions: &[Action]) -> impl Iterator<Item = ChainId> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Recirc(chain) => Some(*chain),
        _ => None,
    })
}
