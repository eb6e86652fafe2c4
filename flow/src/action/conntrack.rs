//! `ct(…)`: connection tracking, with address translation.

use std::net::IpAddr;

/// The arguments of a `ct` action (`enum ovs_ct_attr` in `include/uapi/linux/openvswitch.h`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conntrack {
    /// Whether the connection is entered into the table; without, it is only looked up.
    pub commit: Commit,
    /// The zone: connections of one zone know nothing of another's.
    pub zone: u16,
    /// Value and mask of the mark to be set, which datapaths do on a commit only.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label to be set, which datapaths do on a commit only.
    pub label: Option<(u128, u128)>,
    /// The application layer gateway, such as `ftp`, of at most 15 characters.
    pub helper: Option<Box<str>>,
    /// The timeout policy, by its name of at most 31 characters.
    pub timeout: Option<Box<str>>,
    /// Address translation.
    pub nat: Option<Nat>,
}

/// Whether a connection is entered into the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Commit {
    /// No.
    #[default]
    No,
    /// Yes.
    Yes,
    /// Yes, and an entry for the other direction is thrown away first.
    Force,
}

/// Address translation of a `ct` action (`enum ovs_nat_attr`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Nat {
    /// `nat`: what the connection already has, both ways.
    Existing,
    /// A new translation for a connection that is committed.
    New(Translation),
}

/// What is translated, and into what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Translation {
    /// Which address.
    pub side: NatSide,
    /// The addresses to choose from, first and last of one family; `None` translates into the own address, which
    /// resolves clashes of ports only.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The ports to choose from, first and last, none of them 0; only with addresses.
    pub ports: Option<(u16, u16)>,
    /// The same address for every connection of a host, across restarts. OVS forgets this and [`Self::pick`] when it
    /// reads them without an address.
    pub persistent: bool,
    /// How a port is picked.
    pub pick: PortPick,
}

/// The address that is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatSide {
    /// `src`.
    Source,
    /// `dst`.
    Destination,
}

/// How a port is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortPick {
    /// The packet's own if it is free.
    #[default]
    Default,
    /// `hash`: by a hash of the connection.
    Hash,
    /// `random`.
    Random,
}
