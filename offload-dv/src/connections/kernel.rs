//! The connections of the kernel, by ctnetlink: a listing of all, and events of each.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sluice_flow::connection::Connection;
use sluice_netdev::netlink::message::flag;

use super::begun::Begun;
use super::kernel_table::KernelTable;
use super::message::{self, DELETE, GET, NEW, TCP, UDP};
use super::socket::Socket;
use super::source::{ConnectionSource, SourceError};
use super::table::ConnectionTable;
use crate::switch::ConnectionChange;
use crate::translate::{is_for_hardware, status};

/// Groups of events: NEW, UPDATE and DESTROY (`NFNLGRP_CONNTRACK_*`).
const GROUPS: [u32; 3] = [1, 2, 3];
/// Requests in a datagram.
const BATCH: usize = 64;
/// Events in a batch at most, as far as they do not come in one datagram.
const MOST_EVENTS: usize = 1_024;
/// Connections that have begun, of which it asks at once.
const MOST_ASKED: usize = 256;

/// The connections of the network namespace that it is opened in.
pub struct KernelConnections {
    events: Socket,
    requests: Socket,
    begun: Begun,
    /// What it has found out since it was asked last.
    found: Vec<ConnectionChange>,
    /// Whether events were lost since all connections were listed: some may have begun of which it has not heard.
    has_lost: bool,
}

impl KernelConnections {
    /// Begins to hear of connections. Fails if the kernel does not track any, or does not tell this process.
    pub fn open() -> Result<Self, SourceError> {
        let mut events = Socket::open()?;
        for group in GROUPS {
            events.listen_to(group)?;
        }
        let (requests, begun, found) = (Socket::open()?, Begun::default(), Vec::new());
        let mut source = Self { events, requests, begun, found, has_lost: false };
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
            None => refused.unless_gone().map(|()| gone(&part)),
        }
    }

    fn event(&mut self, kind: u16, part: Connection) -> Result<ConnectionChange, SourceError> {
        let change = match kind {
            DELETE => gone(&part),
            // It is not for hardware yet, whatever else is true of it.
            _ if part.status & status::SEEN_REPLY == 0 => ConnectionChange::Is(Box::new(part)),
            // An event tells of some attributes only: those that changed.
            _ => self.complete(part)?,
        };
        self.see(&change);
        Ok(change)
    }

    /// Adds what is told within `patience`, and what was before.
    fn hear(&mut self, patience: Duration, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
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

    /// Asks for connections that may have come to be for hardware without anybody's telling.
    fn ask_for_begun(&mut self, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
        for part in self.begun.due(MOST_ASKED, Instant::now()) {
            let change = self.complete(part)?;
            self.see(&change);
            changes.push(change);
        }
        Ok(())
    }

    fn see(&mut self, change: &ConnectionChange) {
        match change {
            ConnectionChange::Is(connection) => self.begun.see(connection, Instant::now()),
            ConnectionChange::Gone { zone, original, .. } => self.begun.remove(*zone, original),
        }
    }

    /// Returns those that are still for hardware. Of the others it is told next.
    fn standing<'c>(&mut self, connections: &'c [Connection]) -> Result<Vec<&'c Connection>, SourceError> {
        let mut found = Vec::new();
        let names = connections.iter().map(message::name);
        let refused = self.requests.ask(GET, 0, names, &mut |payload| {
            found.extend(message::read(payload)?);
            Ok(())
        })?;
        refused.unless_gone()?;
        let (standing, ended): (Vec<_>, Vec<_>) = found.into_iter().partition(is_for_hardware);
        self.found.extend(ended.into_iter().map(|connection| ConnectionChange::Is(Box::new(connection))));
        let name = |connection: &Connection| (connection.zone, connection.original);
        let names: HashSet<_> = standing.iter().map(name).collect();
        Ok(connections.iter().filter(|connection| names.contains(&name(connection))).collect())
    }
}

impl ConnectionSource for KernelConnections {
    fn list(&mut self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        let Self { requests, begun, has_lost, .. } = self;
        requests.dump(&mut |payload| {
            for connection in message::read(payload)?.into_iter().filter(is_for_device) {
                if *has_lost {
                    begun.see(&connection, Instant::now());
                }
                visit(connection);
            }
            Ok(())
        })?;
        self.has_lost = false;
        Ok(())
    }

    fn wait(&mut self, patience: Duration, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
        changes.append(&mut self.found);
        let heard = self.hear(patience, changes);
        if let Err(SourceError::Lost) = heard {
            self.has_lost = true;
            // Of what is left, some may be older than the listing that comes next, and contradict it for good.
            self.events.discard()?;
        }
        heard?;
        self.ask_for_begun(changes)
    }

    fn keep(&mut self, connections: &[Connection]) -> Result<(), SourceError> {
        for some in connections.chunks(BATCH) {
            // One that has ended would else live on for as long as one that has not. Its end may not have been told.
            let standing = self.standing(some)?;
            if !standing.is_empty() {
                let requests = standing.into_iter().map(message::keep);
                self.requests.ask(NEW, 0, requests, &mut |_| Ok(()))?.unless_gone()?;
            }
        }
        Ok(())
    }

    fn table(&self) -> Option<Box<dyn ConnectionTable>> {
        Some(Box::new(KernelTable))
    }
}

fn gone(connection: &Connection) -> ConnectionChange {
    ConnectionChange::Gone { zone: connection.zone, original: connection.original, id: None }
}

/// Whether a connection is of a protocol whose connections the device takes.
fn is_for_device(connection: &Connection) -> bool {
    matches!(connection.original.protocol, TCP | UDP)
}
