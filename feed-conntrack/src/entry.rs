//! Connections as this source knows them: those of TCP and UDP that are in no zone of conntrack.

use std::time::Duration;

use sluice_ctnetlink as ctnetlink;
use sluice_ctnetlink::wire::{Name, TCP, Told, UDP, status};
use sluice_flow::connection::{Connection, Direction, State, TcpState};
use sluice_netdev::netlink::attribute::Malformed;

use crate::kernel::Timeouts;
use crate::table::By;

/// What is told of a connection. An event tells all of it but the state of TCP, if that has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its packets as they come in, in the direction that it began in.
    pub(crate) original: Direction,
    /// The answers as they come in.
    pub(crate) reply: Direction,
    /// A number of its own, most likely: another one of the same directions has another.
    pub(crate) id: u32,
    /// Bits of [`status`].
    pub(crate) status: u32,
    /// What rules of nftables have marked it with.
    pub(crate) mark: u32,
    /// Whether a helper reads its packets.
    pub(crate) has_helper: bool,
    /// Of TCP, if it is told: whether it is established.
    pub(crate) is_established: Option<bool>,
    /// How long the kernel keeps it without a packet, in whole seconds, if it is told.
    pub(crate) timeout: Option<Duration>,
}

impl Entry {
    /// What is told of a connection that packets are routed of; `None` if it is of another protocol, or in a zone: the connections of others,
    /// such as Open vSwitch, may have the same addresses and ports.
    pub(crate) fn of(Told { connection, has_timeout, has_zone }: Told) -> Option<Self> {
        if has_zone || !matches!(connection.original.protocol, TCP | UDP) {
            return None;
        }
        let Connection { original, reply, id, status, mark, timeout, state, helper, .. } = connection;
        let has_helper = helper.is_some() || status & status::HELPER != 0;
        let is_established = match state {
            State::Tcp { state, .. } => Some(state == TcpState::Established),
            _ => None,
        };
        let timeout = has_timeout.then_some(timeout);
        Some(Self { original, reply, id, status, mark, has_helper, is_established, timeout })
    }

    /// By which the kernel is asked for it.
    pub(crate) const fn name(&self) -> Name {
        Name { zone: 0, original: self.original }
    }

    /// Whether answers do not come back as the packets that they answer came in: the kernel translates addresses or ports.
    pub(crate) fn is_translated(&self) -> bool {
        let Self { original, reply, .. } = self;
        let answers = Direction {
            source: original.destination,
            destination: original.source,
            source_port: original.destination_port,
            destination_port: original.source_port,
            ..*original
        };
        answers != *reply
    }

    /// Whether another one tells the same of a connection, apart from how long it is kept and how it is marked.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let told = |entry: &Self| (entry.status, entry.has_helper, entry.is_established);
        self.is_of_same(other) && told(self) == told(other)
    }

    /// Whether a policy of its own says how long the kernel keeps it after the packet that this tells of, and not what the kernel is set to.
    /// Which policy a connection has the kernel does not tell.
    pub(crate) fn has_policy(&self, settings: &Timeouts) -> bool {
        let protocol = self.original.protocol;
        let lasts = protocol != TCP || self.is_established == Some(true);
        self.timeout.is_some_and(|told| lasts && !settings.has(protocol, told))
    }

    /// Whether another one is about the same connection, and not about a later one in its place.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        let named = |entry: &Self| (entry.original, entry.reply, entry.id);
        named(self) == named(other)
    }
}

/// What has happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It is new, or something of it has changed.
    Is(Entry, By),
    /// It is gone.
    Gone(Direction),
    /// Of something, but nobody can read of what.
    Unreadable(Malformed),
}

impl Event {
    /// What an event of the kernel says; `None` if it is about none of these connections.
    pub(crate) fn of(event: Result<ctnetlink::Event, Malformed>) -> Option<Self> {
        Some(match event {
            Ok(ctnetlink::Event { told, is_gone: true, .. }) => Self::Gone(Entry::of(told)?.original),
            Ok(ctnetlink::Event { told, is_of_packet: true, .. }) => Self::Is(Entry::of(told)?, By::Packet),
            Ok(ctnetlink::Event { told, .. }) => Self::Is(Entry::of(told)?, By::Request),
            Err(malformed) => Self::Unreadable(malformed),
        })
    }
}
