//! The connections of the kernel, from the moment that it is asked to the end of the source or of what it tells.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sluice_ctnetlink::wire::{TCP, status};
use sluice_ctnetlink::{Events, Heard, Requests, SocketError, assured, wait};
use sluice_flow::connection::Direction;
use sluice_flow::source::{Intake, SourceReport, Standing};
use sluice_flow::{Expiry, Flow, MaskedKey, Priority};
use sluice_netdev::{IpsecPolicies, LinkError, NextHop, NoNextHop, PacketPorts, Target};

use crate::entry::{Entry, Event};
use crate::judge::{Reason, judge};
use crate::kernel::{self, Timeouts};
use crate::plan::{Side, TTLS, plan};
use crate::ports::Ports;
use crate::report;
use crate::source::Options;
use crate::table::{By, Connection, Table};
use crate::ways::Ways;

/// The kernel itself says when a connection ends.
const EXPIRY: Expiry = Expiry { idle: None, hard: None, permanent: true };
/// How soon a source that is to stop does.
const NAP: Duration = Duration::from_millis(50);
/// The time between two comparisons, at least.
const BETWEEN_COMPARISONS: Duration = Duration::from_secs(1);
/// How often all connections are compared while there are flows of some of whose changes the kernel tells nothing.
const COMPARE_SILENT: Duration = Duration::from_secs(5);
/// How often all connections are compared in any case.
const COMPARE: Duration = Duration::from_secs(60);
/// After a comparison, none for so many times as long as it took: it must not be all that is done.
const COMPARISON_REST: u32 = 4;
/// The same where it is only made because the kernel does not tell of some connections.
const SILENT_REST: u32 = 20;
/// After a look at what was counted, none for so many times as long as it took.
const LOOK_REST: u32 = 9;
/// But then there is one, since a connection must not outlast its timeout.
const LOOK: Duration = Duration::from_secs(10);
/// How often flows that were not taken on are tried again, and of how many connections at a time.
const RETRY: Duration = Duration::from_secs(10);
const RETRIED: usize = 1024;
/// Connections whose flows are made before it is heard again what ends.
const TURN: usize = 1024;
/// Of so many at a time the kernel is told that it is to be liberal about them.
const BATCH: usize = 128;
/// Events that wait for the end of a comparison, at most.
const MOST_EVENTS: usize = 1 << 18;

/// Why a session is over before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// Connections cannot be heard of.
    #[error(transparent)]
    Connections(#[from] SocketError),
    /// Ways cannot be followed.
    #[error("next hops: {0}")]
    Ways(#[from] LinkError),
    /// It is not known what the kernel encrypts.
    #[error("policies of IPsec: {0}")]
    Policies(LinkError),
    /// The system does not let this thread wait.
    #[error("cannot wait: {0}")]
    Wait(#[from] std::io::Error),
}

/// The connections of this network namespace.
pub(crate) struct Session<'a> {
    options: &'a Options,
    report: &'a mut SourceReport,
    intake: &'a dyn Intake,
    requests: Requests,
    events: Events,
    ways: Ways,
    policies: IpsecPolicies,
    table: Table,
    ports: Ports,
    /// How long the kernel keeps connections.
    settings: Timeouts,
    /// Whether the kernel forwards IPv6.
    forwards_ipv6: bool,
    /// Whether ways were last asked for with the ports of connections.
    looks_at_ports: bool,
    /// Connections whose flows may have to change.
    unsettled: HashSet<Direction>,
    /// Those of them whose turn it is.
    pending: Vec<Direction>,
    /// All that was told before has been taken.
    heard: Instant,
    /// All must be compared, as soon as that may be.
    must_compare: bool,
    /// When that was last done, and how long it took.
    compared: (Instant, Duration),
    retried: Instant,
    /// When it was last looked what was counted, and how long that took.
    looked: (Instant, Duration),
}

/// What the flows of a connection are to be.
struct Placement {
    entry: Entry,
    sides: [Result<Side, Reason>; 2],
}

impl<'a> Session<'a> {
    /// Begins to listen and brings in what there is.
    pub(crate) fn begin(
        options: &'a Options,
        report: &'a mut SourceReport,
        intake: &'a dyn Intake,
    ) -> Result<Self, Trouble> {
        let requests = Requests::open()?;
        // Before anything is asked, so that nothing is missed that comes after the answer.
        let events = Events::open(options.queue_bytes, &assured(requests.port(), options.mark))?;
        let (ways, table, now) = (Ways::open()?, Table::new(options.after), Instant::now());
        let looks_at_ports = ways.look_at_ports();
        let (ports, unsettled, pending) = Default::default();
        let mut session = Self {
            options,
            report,
            intake,
            requests,
            events,
            ways,
            policies: IpsecPolicies::open().map_err(Trouble::Policies)?,
            table,
            ports,
            settings: Timeouts::read(),
            forwards_ipv6: kernel::forwards_ipv6(),
            looks_at_ports,
            unsettled,
            pending,
            heard: now,
            must_compare: false,
            compared: (now, Duration::ZERO),
            retried: now,
            looked: (now, Duration::ZERO),
        };
        session.compare()?;
        session.settle()?;
        session.report.trouble = None;
        session.look()?;
        tracing::info!("{} connections of the kernel are followed", session.table.connections.len());
        Ok(session)
    }

    /// Follows the kernel until it is to stop.
    pub(crate) fn run(&mut self, stops: &dyn Fn() -> bool) -> Result<(), Trouble> {
        let mut is_settled = self.settle()?;
        while !stops() {
            let (looked, took) = self.looked;
            let between = self.options.interval.max((took * LOOK_REST).min(LOOK));
            let until_look = between.saturating_sub(looked.elapsed());
            let longest = if is_settled { until_look.min(NAP) } else { Duration::ZERO };
            let sockets = [self.events.as_fd(), self.ways.as_fd()].into_iter().chain(self.policies.socket());
            wait(&sockets.collect::<Vec<_>>(), longest)?;
            self.hear()?;
            is_settled = self.settle()?;
            if looked.elapsed() >= between {
                self.look()?;
                is_settled = self.settle()?;
            }
            if self.is_comparison_due() {
                self.compare()?;
                is_settled = self.settle()?;
            }
        }
        Ok(())
    }

    fn is_comparison_due(&self) -> bool {
        let (compared, took) = self.compared;
        let since = compared.elapsed();
        let is_due = |at_least: Duration, rest| since >= at_least.max(took * rest);
        self.must_compare && is_due(BETWEEN_COMPARISONS, COMPARISON_REST)
            || self.table.has_silent() && is_due(COMPARE_SILENT, SILENT_REST)
            || is_due(COMPARE, SILENT_REST)
    }

    /// Takes what has happened to connections. What is lost is made up for by a comparison.
    fn hear(&mut self) -> Result<(), Trouble> {
        let (begun, mut told) = (Instant::now(), Vec::new());
        let heard = self.events.receive(&mut |event| told.extend(Event::of(event)))?;
        self.take_all(told)?;
        match heard {
            Heard::All => self.heard = begun,
            Heard::More => {}
            Heard::NotAll => self.lose(),
        }
        Ok(())
    }

    /// Something was not heard: a flow may be there whose connection is gone.
    fn lose(&mut self) {
        self.report.losses += 1;
        if !std::mem::replace(&mut self.must_compare, true) {
            tracing::warn!("the kernel told more than there was room for, all connections are compared");
        }
    }

    fn take_all(&mut self, told: Vec<Event>) -> Result<(), Trouble> {
        for event in told {
            self.report.messages += 1;
            match event {
                Event::Is(entry, by) => self.take(entry, by)?,
                Event::Gone(original) => self.end(&original),
                Event::Unreadable(malformed) => {
                    tracing::warn!("an event of a connection makes no sense, all are compared: {malformed}");
                    self.must_compare = true;
                }
            }
        }
        Ok(())
    }

    /// Takes what an event tells of a connection.
    fn take(&mut self, mut entry: Entry, by: By) -> Result<(), Trouble> {
        let (original, now) = (entry.original, Instant::now());
        if !Connection::is_meant(&entry, self.options.mark) {
            self.end(&original);
            return Ok(());
        }
        let known = self.table.connections.get(&original);
        let is_said = entry.is_established.is_some() || known.is_some_and(|known| known.entry.is_established.is_some());
        if original.protocol == TCP && !is_said {
            match self.requests.some(&[entry.name()])?.pop().and_then(Entry::of) {
                Some(whole) if Connection::is_meant(&whole, self.options.mark) => entry = whole,
                _ => return Ok(()),
            }
        }
        // TCP has a timeout for each of its states. If the one of an established connection was set after this was told, it is set back.
        let may_be_older = |known: &&Connection| known.refreshed.is_some_and(|refreshed| refreshed >= self.heard);
        if entry.is_established == Some(false)
            && let (Some(known), Some(told)) = (known.filter(may_be_older), entry.timeout)
        {
            let timeout = known.correction(told, self.settings.ending, now).unwrap_or(told);
            self.requests.change(&[(entry.name(), Some(timeout))])?;
        }
        if self.table.put(entry, by, &self.settings, now) {
            self.unsettled.insert(original);
        }
        Ok(())
    }

    /// A connection is gone.
    fn end(&mut self, original: &Direction) {
        if let Some(connection) = self.table.remove(original) {
            connection.ufids().for_each(|ufid| self.intake.delete(ufid));
            connection.targets.iter().for_each(|target| self.ways.release(target, original));
        }
    }

    /// Makes the flows of connections of which something has changed what they should be, but not of all at a time. Returns whether there are
    /// no more of them.
    fn settle(&mut self) -> Result<bool, Trouble> {
        let mut left = TURN;
        self.unsettled.extend(self.table.ripened(Instant::now()));
        if self.policies.renew().map_err(Trouble::Policies)? {
            self.unsettled.extend(self.table.connections.keys());
        }
        while left > 0 {
            self.unsettled.extend(self.ways.poll()?);
            let looks_at_ports = self.ways.look_at_ports();
            if std::mem::replace(&mut self.looks_at_ports, looks_at_ports) != looks_at_ports {
                self.unsettled.extend(self.table.connections.keys());
            }
            if self.pending.is_empty() {
                self.pending.extend(self.unsettled.drain());
            }
            if self.pending.is_empty() {
                return Ok(true);
            }
            let some = self.pending.split_off(self.pending.len().saturating_sub(BATCH.min(left)));
            left -= some.len();
            self.place_all(&some)?;
        }
        Ok(false)
    }

    /// Makes the flows of connections what they should be. While it is not known of one whether there is a next hop, its flows stay as they are.
    fn place_all(&mut self, originals: &[Direction]) -> Result<(), Trouble> {
        let placements: Vec<_> = originals.iter().filter_map(|original| self.placement(original)).collect();
        self.be_liberal(&placements)?;
        for Placement { entry, mut sides } in placements {
            let Some(connection) = self.table.connections.get(&entry.original) else { continue };
            let is_wanted = sides.iter().any(Result::is_ok);
            if is_wanted && connection.is_refused {
                sides = [Err(Reason::NotChanged); 2];
            } else if is_wanted && !connection.has_flows() && self.table.placed() >= self.options.connections {
                sides = [Err(Reason::Limit); 2];
            }
            for (at, side) in sides.into_iter().enumerate() {
                self.place_side(&entry, at, side);
            }
        }
        Ok(())
    }

    /// What the flows of a connection are to be, if that is known.
    fn placement(&mut self, original: &Direction) -> Option<Placement> {
        let connection = self.table.connections.get(original)?;
        let (entry, is_ripe) = (connection.entry.clone(), connection.is_ripe(Instant::now()));
        let (targets, sides) = match judge(&entry) {
            Ok(()) if !is_ripe => (Vec::new(), Some([Err(Reason::Young); 2])),
            Ok(()) if entry.original.source.is_ipv6() && !self.forwards_ipv6 => {
                (Vec::new(), Some([Err(Reason::NotForwarded); 2]))
            }
            Ok(()) if self.is_encrypted(&entry) => (Vec::new(), Some([Err(Reason::Ipsec); 2])),
            Ok(()) => self.sides(&entry),
            Err(reason) => (Vec::new(), Some([Err(reason); 2])),
        };
        if let Some(connection) = self.table.connections.get_mut(original) {
            let before = std::mem::replace(&mut connection.targets, targets);
            let unneeded = before.iter().filter(|target| !connection.targets.contains(target));
            unneeded.for_each(|target| self.ways.release(target, original));
        }
        let mut sides = sides?;
        if !self.options.translated && entry.is_translated() {
            sides = sides.map(|side| side.and(Err(Reason::Translated)));
        }
        Some(Placement { entry, sides })
    }

    /// Whether a policy of IPsec may be for its packets: before the kernel translates where they come from, or after that.
    fn is_encrypted(&self, Entry { original, reply, .. }: &Entry) -> bool {
        let ways = [
            (original.source, reply.source),
            (reply.destination, reply.source),
            (reply.source, original.source),
            (original.destination, original.source),
        ];
        ways.into_iter().any(|(from, to)| self.policies.cover(from, to, original.protocol))
    }

    /// Has the kernel be liberal about connections, before any of their packets passes by. Those that are gone end, and those of which the
    /// kernel refuses it are noted.
    fn be_liberal(&mut self, placements: &[Placement]) -> Result<(), Trouble> {
        let (mut strict, has_room) = (Vec::new(), self.table.placed() < self.options.connections);
        for Placement { entry, sides } in placements {
            let is_wanted = entry.original.protocol == TCP && sides.iter().any(Result::is_ok);
            if let Some(connection) = self.table.connections.get_mut(&entry.original).filter(|_| is_wanted) {
                let is_wanted = has_room || connection.has_flows();
                if is_wanted && !std::mem::replace(&mut connection.is_liberal, true) {
                    strict.push((entry.name(), None));
                }
            }
        }
        let changed = self.requests.change(&strict)?;
        changed.gone.iter().for_each(|gone| self.end(&gone.original));
        self.table.refuse(&changed.refused);
        Ok(())
    }

    /// Makes the flows of one direction what they should be.
    fn place_side(&mut self, entry: &Entry, at: usize, side: Result<Side, Reason>) {
        let Some(connection) = self.table.connections.get_mut(&entry.original) else { return };
        let placed = &mut connection.sides[at];
        placed.reason = side.err();
        let is_closed = placed.variants.map(|variant| variant.is_closed);
        let (received, answers) =
            if at == 0 { (&entry.original, &entry.reply) } else { (&entry.reply, &entry.original) };
        for (variant, is_closed) in is_closed.into_iter().enumerate() {
            let flow = side.as_ref().ok().filter(|_| !is_closed).map(|side| {
                let (matching, actions) = plan(received, answers, side, TTLS[variant]);
                let key = MaskedKey::new(&matching);
                Flow::new(None, key, actions, Priority::default(), EXPIRY, self.intake.seed())
            });
            let taken = flow.and_then(|flow| {
                let ufid = flow.ufid;
                match self.intake.put(flow) {
                    Ok(()) => Some(ufid),
                    Err(refusal) => {
                        tracing::debug!(%ufid, "a connection is left to the kernel: {refusal}");
                        // Nor may it do any longer what it did before.
                        self.intake.delete(ufid);
                        if let Some(connection) = self.table.connections.get_mut(&entry.original) {
                            connection.sides[at].reason = Some(Reason::NotTaken);
                        }
                        None
                    }
                }
            });
            if let Some(before) = self.table.own(entry.original, at, variant, taken) {
                self.intake.delete(before);
            }
        }
    }

    /// What the kernel's ways make of both directions, the original one first, or why they cannot be taken; `None` if that is not known
    /// yet. And whose next hops that needs.
    fn sides(&mut self, entry: &Entry) -> (Vec<Target>, Option<[Result<Side, Reason>; 2]>) {
        let (user, looks_at_ports) = (entry.original, self.looks_at_ports);
        let from = (entry.original.source, entry.original.source_port);
        let to = (entry.reply.source, entry.reply.source_port);
        let forwarded = |from: (IpAddr, u16), to: (IpAddr, u16), ingress: &NextHop| {
            let ports = PacketPorts { protocol: user.protocol, source: from.1, destination: to.1 };
            let ports = looks_at_ports.then_some(ports);
            Target { destination: to.0, source: Some(from.0), ingress: Some(ingress.egress_index), ports }
        };
        let mut targets = Vec::with_capacity(3);
        let mut next_hop = |ways: &mut Ways, target| {
            targets.push(target);
            ways.next_hop(target, user).cloned()
        };
        let all = |reason| Some([Err(reason); 2]);
        // Packets come in where the kernel would send something to who has sent them.
        let home = Target { destination: from.0, source: None, ingress: None, ports: None };
        let home = match next_hop(&mut self.ways, home) {
            None => return (targets, None),
            Some(Err(none)) => return (targets, all(reason(&none))),
            Some(Ok(home)) => home,
        };
        let forward = match next_hop(&mut self.ways, forwarded(from, to, &home)) {
            None => return (targets, None),
            Some(Err(none)) => return (targets, all(reason(&none))),
            Some(Ok(forward)) => forward,
        };
        let backward = match next_hop(&mut self.ways, forwarded(to, from, &forward)) {
            None => return (targets, None),
            Some(Err(none)) => return (targets, all(reason(&none))),
            Some(Ok(backward)) => backward,
        };
        // The kernel tells a sender of a shorter way than by itself.
        if backward.egress_index != home.egress_index || forward.egress_index == home.egress_index {
            return (targets, all(Reason::Asymmetric));
        }
        (targets, Some([self.side(&backward, &forward), self.side(&forward, &backward)]))
    }

    /// A direction whose packets come in at the device by which those of the other one leave.
    fn side(&mut self, ingress: &NextHop, egress: &NextHop) -> Result<Side, Reason> {
        let mut passage = |way: &NextHop| self.ports.passage(way, |device| self.intake.port(device));
        let (from, to) = (passage(ingress)?, passage(egress)?);
        if to.gives_priorities {
            return Err(Reason::Priorities);
        }
        if egress.mtu < ingress.egress_mtu {
            return Err(Reason::Mtu);
        }
        Ok(Side {
            ingress: from.port,
            ingress_tags: from.tags,
            ingress_mac: ingress.egress_mac,
            egress: to.port,
            egress_tags: to.tags,
            egress_mac: egress.egress_mac,
            next_hop: egress.mac,
        })
    }

    /// Has the agent have flows of all connections that there are, and of no others.
    fn compare(&mut self) -> Result<(), Trouble> {
        let begun = Instant::now();
        // What was told before is older than what is read now, and may contradict it.
        self.events.discard()?;
        (self.heard, self.must_compare) = (begun, false);
        self.table.begin_comparison();
        self.settings = Timeouts::read();
        let (table, unsettled, settings) = (&mut self.table, &mut self.unsettled, self.settings);
        let mark = self.options.mark;
        // The kernel goes on telling, and has little room.
        let (events, mut told, mut is_lost) = (&mut self.events, Vec::new(), false);
        let mut corrections = Vec::new();
        self.requests.all(
            mark,
            &mut |told| {
                let Some(entry) = Entry::of(told) else { return };
                let original = entry.original;
                let is_meant = Connection::is_meant(&entry, mark);
                if let (Some(known), Some(false), Some(told)) =
                    (table.connections.get(&original), entry.is_established, entry.timeout)
                    && let Some(timeout) = known.correction(told, settings.ending, Instant::now())
                {
                    corrections.push((entry.name(), Some(timeout)));
                }
                if is_meant && table.put(entry, By::Dump, &settings, begun) {
                    unsettled.insert(original);
                }
            },
            &mut || {
                if told.len() < MOST_EVENTS {
                    is_lost |= events.receive(&mut |event| told.extend(Event::of(event)))? == Heard::NotAll;
                }
                Ok(())
            },
        )?;
        // The event of an end may have been lost, or thrown away above.
        self.requests.change(&corrections)?;
        self.table.gone().iter().for_each(|original| self.end(original));
        self.take_all(told)?;
        if is_lost {
            self.lose();
        }
        self.report.comparisons += 1;
        self.compared = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// Looks at what was counted: keeps alive what packets went by, and tells of it.
    fn look(&mut self) -> Result<(), Trouble> {
        let now = Instant::now();
        let must_retry = self.retried.elapsed() >= RETRY;
        // Somebody may have deleted some by a command.
        let sees_all = must_retry || self.intake.wanted() != self.table.owned();
        if sees_all {
            self.table.begin_look();
        }
        let (table, mut strays) = (&mut self.table, Vec::new());
        let mut count = |standing: Standing| {
            if !table.count(&standing, now) {
                strays.push(standing.ufid);
            }
        };
        if sees_all {
            self.intake.visit(&mut count);
            self.unsettled.extend(self.table.missing());
        } else {
            self.intake.visit_news(&mut count);
        }
        strays.into_iter().for_each(|ufid| self.intake.delete(ufid));
        self.unsettled.extend(self.table.narrow(now));
        self.refresh(now)?;
        let forwarded_ipv6 = std::mem::replace(&mut self.forwards_ipv6, kernel::forwards_ipv6());
        if self.ports.renew(|device| self.intake.port(device)) || forwarded_ipv6 != self.forwards_ipv6 {
            self.unsettled.extend(self.table.connections.keys());
        }
        if must_retry {
            self.retried = now;
            self.settings = Timeouts::read();
            self.retry();
            self.ports.retain(&self.ways.devices());
        }
        self.ways.renew();
        self.ways.prune();
        report::fill(self.report, &self.table);
        self.intake.report(self.report.clone());
        self.looked = (now, now.elapsed());
        Ok(())
    }

    /// Has flows tried again that were not taken on, as far as there is room.
    fn retry(&mut self) {
        let room = self.options.connections.saturating_sub(self.table.placed());
        let is = |known: &Connection, reason| known.sides.iter().any(|side| side.reason == Some(reason));
        let known = || self.table.connections.values();
        let refused = known().filter(|known| is(known, Reason::NotTaken)).take(RETRIED);
        let left = known().filter(|known| is(known, Reason::Limit)).take(room);
        self.unsettled.extend(refused.chain(left).map(|known| known.entry.original));
    }

    /// Sets the timeout of connections anew whose packets only the device sees.
    fn refresh(&mut self, now: Instant) -> Result<(), Trouble> {
        // Timeouts of TCP that ends are the kernel's own, and fixed ones do not change by packets.
        let lasts = |entry: &Entry| {
            let is_fixed = entry.status & status::FIXED_TIMEOUT != 0;
            !is_fixed && (entry.original.protocol != TCP || entry.is_established == Some(true))
        };
        let is_due = |known: &&mut Connection| known.has_moved && known.due <= now && lasts(&known.entry);
        let mut refreshed = Vec::new();
        for connection in self.table.connections.values_mut().filter(is_due) {
            refreshed.push((connection.entry.name(), Some(connection.refresh(now))));
        }
        let changed = self.requests.change(&refreshed)?;
        // The kernel may not tell of their end.
        changed.gone.iter().for_each(|gone| self.end(&gone.original));
        // It must see the packets of those whose timeout it does not let be set.
        self.table.refuse(&changed.refused);
        self.unsettled.extend(changed.refused.iter().map(|name| name.original));
        Ok(())
    }
}

fn reason(none: &NoNextHop) -> Reason {
    match none {
        NoNextHop::NoRoute { .. } => Reason::NoRoute,
        NoNextHop::NotUnicast { .. } => Reason::NotForwarded,
        NoNextHop::NoEgress { .. } => Reason::NoEgress,
        NoNextHop::Unknown { .. } | NoNextHop::Silent { .. } => Reason::NoNeighbour,
    }
}
