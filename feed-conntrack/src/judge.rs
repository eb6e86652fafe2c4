//! Which connections the device may forward, by what the kernel tells of them.

use sluice_ctnetlink::wire::{TCP, status};

use crate::entry::Entry;

/// Why a direction of a connection is left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Reason {
    /// `nf_conntrack_ftp` and the like.
    #[error("a helper of the kernel reads their packets")]
    Helper,
    /// The kernel adds to them.
    #[error("their sequence numbers are changed")]
    SequenceNumbers,
    /// Two would forward the same packets.
    #[error("a flowtable of nftables forwards them")]
    Flowtable,
    /// The device's rules would not do it in full.
    #[error(
        "the kernel translates them, and rules of tc in software leave a wrong checksum in what is still to be cut into segments (GRO)"
    )]
    Translated,
    /// TCP that ends.
    #[error("they are not established")]
    NotEstablished,
    /// What is not forwarded is no flow.
    #[error("one end is this host itself, or no unicast address")]
    NotForwarded,
    /// They would leave in the clear.
    #[error("a policy of IPsec is for them")]
    Ipsec,
    /// In one direction or the other.
    #[error("the kernel has no route")]
    NoRoute,
    /// Nobody has answered yet, or any more.
    #[error("the next hop has no Ethernet address yet")]
    NoNeighbour,
    /// It has no Ethernet header, or is not up.
    #[error("the device that they leave by is not up or not Ethernet")]
    NoEgress,
    /// A device that the configuration does not name.
    #[error("they come or leave by a device that is no port of the agent")]
    NoPort,
    /// A flow puts the same tag on all packets.
    #[error("they leave by a VLAN device that gives packets priorities (egress-qos-map)")]
    Priorities,
    /// What comes in at a port would not leave by it.
    #[error("answers take another way than the packets that they answer, or both the same device")]
    Asymmetric,
    /// The kernel says so to the sender, or makes fragments.
    #[error("packets may be longer than the route or the device takes that they leave by")]
    Mtu,
    /// `after` of the configuration.
    #[error("they are younger than connections with flows are to be")]
    Young,
    /// `connections` of the configuration.
    #[error("there are as many connections with flows as may be")]
    Limit,
    /// Nobody would set their timeout anew, or they are not left alone about their windows.
    #[error("the kernel does not let them be changed")]
    NotChanged,
    /// The intake has said why.
    #[error("the agent has not taken the flow")]
    NotTaken,
}

/// Says whether the device may forward what belongs to a connection. That it is assured, so that it is no longer only begun, is the
/// caller's to see.
///
/// # Errors
/// Returns why it may not.
pub(crate) fn judge(entry: &Entry) -> Result<(), Reason> {
    let has = |bits: u32| entry.status & bits != 0;
    if entry.has_helper {
        return Err(Reason::Helper);
    }
    if has(status::SEQUENCE_ADJUSTED) {
        return Err(Reason::SequenceNumbers);
    }
    if has(status::OFFLOADED) {
        return Err(Reason::Flowtable);
    }
    if has(status::DYING) || entry.original.protocol == TCP && entry.is_established != Some(true) {
        return Err(Reason::NotEstablished);
    }
    Ok(())
}
