//! What a flow does: the actions of the OVS datapath as a typed enum.

mod conntrack;
mod encapsulation;
mod headers;
mod list;
mod outer;
mod userspace;

pub use self::conntrack::{Commit, Conntrack, Nat, NatSide, PortPick, Translation};
pub use self::encapsulation::{Encapsulation, EncapsulationOptions, POLICY_FLAGS, tunnel_flag};
pub use self::headers::{EthernetAddresses, MplsEntry, NshHeader, NshMetadata, TunnelPush, VlanTag};
pub use self::list::{Action, ActionKind, ActionList, FieldSet, HashAlgorithm, jumps, named_meters, names_port, visit};
pub use self::outer::{
    GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE, GeneveOption, OuterHeaders, OuterNetwork, OuterTunnel, OuterUdp,
};
pub use self::userspace::{FlowSample, SLOW_PATH_REASONS, SampleDirection, ToController, UserData, Userspace};
