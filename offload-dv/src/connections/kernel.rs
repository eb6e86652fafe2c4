//! The connections of the kernel, by ctnetlink: a listing of all, and events of each.

use std::time::Duration;

use sluice_flow::connection::Connection;
use sluice_netdev::netlink::message::flag;

use super::kernel_table::KernelTable;
use super::message::{self, DELETE, GET, NEW, TCP, UDP};
use super::socket::Socket;
use super::source::{ConnectionSource, SourceError};
use super::table::ConnectionTable;
use crate::switch::ConnectionChange;

/// Groups of events: NEW, UPDATE and DESTROY (`NFNLGRP_CONNTRACK_*`).
const GROUPS: [u32; 3] = [1, 2, 3];
/// Requests in a datagram.
const BATCH: usize = 64;
/// Events in a batch at most, as far as they do not come in one datagram.
const MOST_EVENTS: usize = 1_024;

/// The connections of the network namespace that it is opened in.
pub struct KernelConnections {
    events: Socket,
    requests: Socket,
}

impl KernelConnections {
    /// Begins to hear of connections. Fails if the kernel does not track any, or does not tell this process.
    pub fn open() -> Result<Self, SourceError> {
        let mut events = Socket::open()?;
        for group in GROUPS {
            events.listen_to(group)?;
        }
        let mut source = Self { events, requests: Socket::open()? };
        // Whether it tells at all.
        source.list(&mut |_| {})?;
        Ok(source)
    }

    /// Returns all that the kernel knows of a connection that it told something of.
    fn complete(&mut self, part: Connection) -> Result<ConnectionChange, SourceError> {
        let name = message::name(&part);
        let mut found = None;
        let refused = self.requests.ask(GET, flag::ACK, [name], &mut |payload| {
            found = message::read(payload)?;
            Ok(())
        })?;
        match found {
            Some(found) => Ok(ConnectionChange::Is(Box::new(found))),
            None => refused.unless_gone().map(|()| ConnectionChange::Gone { zone: part.zone, original: part.original }),
        }
    }

    fn event(&mut self, kind: u16, part: Connection) -> Result<ConnectionChange, SourceError> {
        const SEEN_REPLY: u32 = 1 << 1;
        match kind {
            DELETE => Ok(ConnectionChange::Gone { zone: part.zone, original: part.original }),
            // It is not for hardware yet, whatever else is true of it.
            _ if part.status & SEEN_REPLY == 0 => Ok(ConnectionChange::Is(Box::new(part))),
            // An event tells of some attributes only: those that changed.
            _ => self.complete(part),
        }
    }
}

impl ConnectionSource for KernelConnections {
    fn list(&mut self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        self.requests.dump(&mut |payload| {
            message::read(payload)?.into_iter().filter(is_for_device).for_each(&mut *visit);
            Ok(())
        })
    }

    fn wait(&mut self, patience: Duration, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
        let mut patience = Some(patience);
        while changes.len() < MOST_EVENTS {
            let mut told = Vec::new();
            let is_more = self.events.receive(patience.take(), &mut |message| {
                if matches!(message.header.kind, NEW | DELETE) {
                    let part = message::read(message.payload)?.filter(is_for_device);
                    told.extend(part.map(|part| (message.header.kind, part)));
                }
                Ok(())
            })?;
            for (kind, part) in told {
                changes.push(self.event(kind, part)?);
            }
            if !is_more {
                break;
            }
        }
        Ok(())
    }

    fn keep(&mut self, connections: &[Connection]) -> Result<(), SourceError> {
        for some in connections.chunks(BATCH) {
            self.requests.ask(NEW, 0, some.iter().map(message::keep), &mut |_| Ok(()))?.unless_gone()?;
        }
        Ok(())
    }

    fn table(&self) -> Option<Box<dyn ConnectionTable>> {
        Some(Box::new(KernelTable))
    }
}

/// Whether a connection is of a protocol whose connections the device takes.
fn is_for_device(connection: &Connection) -> bool {
    matches!(connection.original.protocol, TCP | UDP)
}
