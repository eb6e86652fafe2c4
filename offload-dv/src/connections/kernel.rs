//! The connections of the kernel, by ctnetlink: a listing of all, and events of each.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sluice_ctnetlink::wire::{Name, TCP, Told, UDP};
use sluice_ctnetlink::{BATCH, Event, Events, Heard, Mark, Requests, SocketError, others, wait};
use sluice_flow::connection::Connection;

use super::begun::Begun;
use super::kernel_table::KernelTable;
use super::source::{ConnectionSource, SourceError};
use super::table::ConnectionTable;
use crate::switch::ConnectionChange;
use crate::translate::{is_for_hardware, status};

/// Room for events in the kernel: some ten thousand.
const QUEUE_BYTES: usize = 8 << 20;
/// Events at most that wait for the end of a listing, beside those for which the kernel has room.
const MOST_HEARD: usize = 1 << 18;
/// Connections that have begun, of which it asks at once.
const MOST_ASKED: usize = 256;

/// The connections of the network namespace that it is opened in.
pub struct KernelConnections {
    events: Events,
    requests: Requests,
    /// What was told while connections were listed, and whether all of it was heard.
    heard: Vec<Result<Event, SocketError>>,
    has_missed: bool,
    begun: Begun,
    /// What it has found out since it was asked last.
    found: Vec<ConnectionChange>,
    /// Whether events were lost since all connections were listed: some may have begun of which it has not heard.
    has_lost: bool,
}

impl KernelConnections {
    /// Begins to hear of connections. Fails if the kernel does not track any, or does not tell this process.
    pub fn open() -> Result<Self, SourceError> {
        let requests = Requests::open()?;
        // Each connection that is kept is told of as changed, which would be as many events at a time as there are that move.
        let events = Events::open(QUEUE_BYTES, &others(requests.port()))?;
        let (heard, has_missed, begun, found, has_lost) = Default::default();
        let mut source = Self { events, requests, heard, has_missed, begun, found, has_lost };
        // Whether it tells at all.
        source.list(&mut |_| {})?;
        Ok(source)
    }

    /// Returns all that the kernel knows of a connection that it told something of.
    fn complete(&mut self, part: Connection) -> Result<ConnectionChange, SourceError> {
        let found = self.requests.some(&[Name::of(&part)])?.pop();
        Ok(found.map_or_else(|| gone(&part), |told| ConnectionChange::Is(Box::new(told.connection))))
    }

    fn event(&mut self, part: Connection, is_gone: bool) -> Result<ConnectionChange, SourceError> {
        let change = if is_gone {
            gone(&part)
        } else if part.status & status::SEEN_REPLY == 0 {
            // It is not for hardware yet, whatever else is true of it.
            ConnectionChange::Is(Box::new(part))
        } else {
            // An event tells of some attributes only: those that changed.
            self.complete(part)?
        };
        self.see(&change);
        Ok(change)
    }

    /// Adds what is told within `patience`, and what was before.
    fn hear(&mut self, patience: Duration, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
        let mut told = std::mem::take(&mut self.heard);
        let patience = if told.is_empty() { patience } else { Duration::ZERO };
        wait(&[self.events.as_fd()], patience).map_err(|error| SourceError::Failed(error.to_string()))?;
        let heard = self.events.receive(&mut |event| told.push(event.map_err(SocketError::from)))?;
        let has_missed = std::mem::take(&mut self.has_missed) || heard == Heard::NotAll;
        for event in told {
            let Event { told, is_gone, .. } = event?;
            if is_for_device(&told) {
                changes.push(self.event(told.connection, is_gone)?);
            }
        }
        if has_missed { Err(SourceError::Lost) } else { Ok(()) }
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
            ConnectionChange::Gone { zone, original, .. } => {
                self.begun.remove(&Name { zone: *zone, original: *original });
            }
        }
    }

    /// Returns those that are still for hardware. Of the others it is told next.
    fn standing<'c>(&mut self, connections: &[&'c Connection]) -> Result<Vec<&'c Connection>, SourceError> {
        let names: Vec<_> = connections.iter().copied().map(Name::of).collect();
        let found = self.requests.some(&names)?.into_iter().map(|told| told.connection);
        let (standing, ended) = sort(connections, found);
        self.found.extend(ended);
        Ok(standing)
    }
}

impl ConnectionSource for KernelConnections {
    fn list(&mut self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        let Self { events, requests, heard, has_missed, begun, has_lost, .. } = self;
        let mut see = |told: Told| {
            if is_for_device(&told) {
                if *has_lost {
                    begun.see(&told.connection, Instant::now());
                }
                visit(told.connection);
            }
        };
        // The kernel goes on telling, and has little room.
        let mut hear = || {
            if heard.len() < MOST_HEARD {
                let told = events.receive(&mut |event| heard.push(event.map_err(SocketError::from)))?;
                *has_missed |= told == Heard::NotAll;
            }
            Ok(())
        };
        requests.all(Mark::default(), &mut see, &mut hear)?;
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
            // One of TCP that has ended, and that the kernel has for a while all the same, would live on for as long as one that has not. Its
            // end may not have been told. One of UDP is there or not, which the kernel says when it is to be kept.
            let (tcp, udp): (Vec<_>, Vec<_>) = some.iter().partition(|one| one.original.protocol == TCP);
            let standing = self.standing(&tcp)?.into_iter().chain(udp);
            let kept: Vec<_> = standing.map(|connection| (Name::of(connection), Some(connection.timeout))).collect();
            let gone = self.requests.change(&kept)?.gone.into_iter();
            self.found.extend(gone.map(|Name { zone, original }| ConnectionChange::Gone { zone, original, id: None }));
        }
        Ok(())
    }

    fn table(&self) -> Option<Box<dyn ConnectionTable>> {
        Some(Box::new(KernelTable))
    }
}

/// Returns those of the connections that are still for hardware, by what was found of them, and what has become of the others.
fn sort<'c>(
    connections: &[&'c Connection],
    found: impl Iterator<Item = Connection>,
) -> (Vec<&'c Connection>, Vec<ConnectionChange>) {
    let mut found: HashMap<_, _> = found.map(|connection| (Name::of(&connection), connection)).collect();
    let (mut standing, mut ended) = (Vec::new(), Vec::new());
    for connection in connections {
        match found.remove(&Name::of(connection)) {
            Some(now) if is_for_hardware(&now) => standing.push(*connection),
            Some(now) => ended.push(ConnectionChange::Is(Box::new(now))),
            None => ended.push(gone(connection)),
        }
    }
    (standing, ended)
}

fn gone(connection: &Connection) -> ConnectionChange {
    ConnectionChange::Gone { zone: connection.zone, original: connection.original, id: None }
}

/// Whether a connection is of a protocol whose connections the device takes, and in the same zone in both directions. One that is in a zone in
/// one direction only looks here as if it were in zone 0, where its packets do not find it in the kernel.
fn is_for_device(Told { connection, has_zone, .. }: &Told) -> bool {
    let is_in_one_zone = !has_zone || connection.zone != 0;
    is_in_one_zone && matches!(connection.original.protocol, TCP | UDP)
}

#[cfg(test)]
mod tests {
    use super::super::begun_from;
    use super::*;

    fn connection(port: u16) -> Connection {
        Connection { status: status::CONFIRMED | status::SEEN_REPLY, ..begun_from(port) }
    }

    #[test]
    fn of_connections_that_packets_went_by_those_are_kept_that_the_kernel_has_and_the_others_told_of() {
        let asked = [connection(1), connection(2), connection(3)];
        let dying = Connection { status: status::DYING, ..connection(2) };
        let (standing, ended) = sort(&asked.each_ref(), [dying.clone(), connection(3)].into_iter());
        assert_eq!(standing, [&asked[2]]);
        assert_eq!(ended, [gone(&asked[0]), ConnectionChange::Is(Box::new(dying))]);
    }
}
