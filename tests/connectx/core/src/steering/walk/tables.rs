//! A packet's way: NIC TX, ingress ACL, FDB, egress ACL, NIC RX.

use std::sync::Arc;

use crate::packet::{Headers, edit};
use crate::steering::address::{Side, Terminal};
use crate::steering::deed::Deed;
use crate::steering::domain::{Domain, TableKind, Target};
use crate::steering::icm::Icm;
use crate::steering::key::{self, Metadata};
use crate::steering::port::{Origin, Port, vhca_id};
use crate::steering::reformat::Reformat;
use crate::steering::state::Steering;
use crate::steering::ste;
use crate::steering::step::{Step, TableName, no_table};
use crate::steering::table::{Entry, Miss, Roots, Verdict};
use crate::steering::walk::report::{Received, Walk};

/// Tables that a packet passes at most, which ends loops that ignore_flow_level allows.
const MAX_TABLES: usize = 64;

/// Copies that one packet may become at most; a tree of multi-destination entries grows fast.
const MAX_COPIES: usize = 1024;

/// A packet on its way.
#[derive(Debug, Clone)]
struct Packet {
    frame: Vec<u8>,
    headers: Headers,
    metadata: Metadata,
    tag: Option<u32>,
    tables: usize,
}

/// How a packet left the tables of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Allowed,
    Port(Port),
    Tir(u32),
}

impl Steering {
    /// Walks a frame (without FCS) that arrives at `from` through the tables.
    pub fn receive(&mut self, from: Port, frame: &[u8]) -> Walk {
        self.transmit(Origin { port: from, sqn: 0, metadata: 0 }, frame)
    }

    /// The same for a frame of which more is known.
    pub fn transmit(&mut self, origin: Origin, frame: &[u8]) -> Walk {
        let mut walk = Walk::default();
        walk.steps.push(Step::Arrived { from: origin.port, bytes: frame.len() });
        let packet = Packet {
            frame: frame.to_vec(),
            headers: Headers::parse(frame, &self.tunnels),
            metadata: Metadata {
                source_port: origin.port.vport(),
                vhca_id: self.profile.vhca_id,
                sqn: origin.sqn,
                register_a: origin.metadata,
                ..Metadata::default()
            },
            tag: None,
            tables: 0,
        };
        // What lies in steering memory does not change while a packet walks.
        let memory = std::mem::take(&mut self.icm);
        let walk = Walker { steering: self, memory: &memory, walk, copies: 1 }.run(origin.port, packet);
        self.icm = memory;
        walk
    }

    /// The table that a domain's packets enter: the one that was set, or else the first of level 0.
    fn root(&self, domain: Domain) -> Option<u32> {
        match self.roots.get(&domain) {
            Some(root) => *root,
            None => {
                let mut tables = self.tables.iter();
                tables.find(|(_, table)| table.domain == domain && table.level == 0).map(|(id, _)| id)
            }
        }
    }
}

struct Walker<'a> {
    steering: &'a mut Steering,
    memory: &'a Icm,
    walk: Walk,
    copies: usize,
}

impl Walker<'_> {
    fn run(mut self, from: Port, packet: Packet) -> Walk {
        let manager = self.steering.profile.manager;
        let mut packets = vec![packet];
        if from == Port::Vport(manager) {
            packets = self.passing(Domain { kind: TableKind::NicTransmit, vport: manager }, packets);
            for packet in &mut packets {
                packet.metadata.registers_c = [0; 8];
            }
        }
        packets = self.passing(Domain { kind: TableKind::IngressAcl, vport: from.vport() }, packets);
        for packet in packets {
            self.switch(packet);
        }
        self.walk
    }

    /// What of some packets is allowed through a domain's tables; without tables, everything.
    fn passing(&mut self, domain: Domain, packets: Vec<Packet>) -> Vec<Packet> {
        let Some(root) = self.steering.root(domain) else {
            self.walk.steps.push(no_table(domain));
            return packets;
        };
        let mut passing = Vec::new();
        for packet in packets {
            for (packet, end) in self.through(root, packet) {
                match end {
                    End::Allowed => passing.push(packet),
                    // Only an egress ACL leads to ports, and is not walked here.
                    End::Port(_) | End::Tir(_) => self.drop("that is no place to send a packet from here"),
                }
            }
        }
        passing
    }

    fn switch(&mut self, packet: Packet) {
        let fdb = Domain { kind: TableKind::Fdb, vport: 0 };
        let Some(root) = self.steering.root(fdb) else {
            self.walk.steps.push(no_table(fdb));
            self.drop("a switch without tables is not modelled");
            return;
        };
        for (packet, end) in self.through(root, packet) {
            match end {
                End::Port(port) => self.leave(port, packet),
                End::Allowed | End::Tir(_) => self.drop("no entry of the switch matched"),
            }
        }
    }

    fn leave(&mut self, port: Port, packet: Packet) {
        if self.steering.check_port(port).is_err() {
            self.drop("the vport is gone");
            return;
        }
        let acl = Domain { kind: TableKind::EgressAcl, vport: port.vport() };
        match self.steering.root(acl) {
            None => self.deliver(port, packet),
            Some(root) => {
                for (packet, end) in self.through(root, packet) {
                    match end {
                        End::Allowed => self.deliver(port, packet),
                        End::Port(other) => self.deliver(other, packet),
                        End::Tir(_) => self.drop("an egress ACL has no receive queues"),
                    }
                }
            }
        }
    }

    fn deliver(&mut self, port: Port, mut packet: Packet) {
        self.walk.steps.push(Step::Sent { to: port, bytes: packet.frame.len() });
        self.walk.sent.push((port, packet.frame.clone()));
        let manager = self.steering.profile.manager;
        let receive = Domain { kind: TableKind::NicReceive, vport: manager };
        if port != Port::Vport(manager) {
            return;
        }
        let Some(root) = self.steering.root(receive) else { return };
        let kept = self.steering.fdb_to_vport_registers;
        for (number, register) in packet.metadata.registers_c.iter_mut().enumerate() {
            if kept >> number & 1 == 0 {
                *register = 0;
            }
        }
        packet.metadata.register_a = 0;
        for (packet, end) in self.through(root, packet) {
            match end {
                End::Tir(tir) => {
                    self.walk.steps.push(Step::Received { tir, bytes: packet.frame.len() });
                    self.walk.received.push(Received {
                        tir,
                        tag: packet.tag,
                        metadata: packet.metadata.register_b,
                        frame: packet.frame,
                    });
                }
                End::Allowed | End::Port(_) => self.drop("no receive queue takes it"),
            }
        }
    }

    /// Walks a packet from a table on. Copies come out in the order of the destinations.
    fn through(&mut self, root: u32, packet: Packet) -> Vec<(Packet, End)> {
        let mut ends = Vec::new();
        let mut waiting = vec![(packet, Target::Table(root))];
        while let Some((mut packet, target)) = waiting.pop() {
            let (packet, next) = match target {
                Target::Port(port) => {
                    ends.push((packet, End::Port(port)));
                    continue;
                }
                Target::Tir(tir) => {
                    ends.push((packet, End::Tir(tir)));
                    continue;
                }
                Target::Sampler(id) => {
                    let next = self.sample(id, &packet);
                    (packet, next)
                }
                Target::Table(id) => {
                    packet.tables += 1;
                    if packet.tables > MAX_TABLES {
                        self.drop("it went through too many tables");
                        continue;
                    }
                    self.table(id, packet)
                }
            };
            match next {
                Next::Ended => {}
                Next::Allowed => ends.push((packet, End::Allowed)),
                Next::Miss(id) => waiting.push((packet, Target::Table(id))),
                Next::Copies(mut copies) => {
                    if copies.len() > 1 {
                        let losing = copies.iter_mut().filter(|(_, to)| self.steering.loses_registers(*to));
                        losing.for_each(|(copy, _)| copy.metadata.registers_c[1..].fill(0));
                    }
                    self.copies += copies.len().saturating_sub(1);
                    if self.copies > MAX_COPIES {
                        self.drop("it became too many copies");
                    } else {
                        waiting.extend(copies.into_iter().rev());
                    }
                }
            }
        }
        ends
    }

    fn table(&mut self, id: u32, mut packet: Packet) -> (Packet, Next) {
        let Some(table) = self.steering.tables.get(id) else {
            self.drop("the table is gone");
            return (packet, Next::Ended);
        };
        let name = TableName::new(id, table);
        let kind = table.domain.kind;
        if let Some(roots) = table.software {
            return self.owned_by_software(name, kind, roots, packet);
        }
        let mut key = key::build(&packet.headers, &packet.metadata);
        if table.checks() {
            key::check(&mut key, &packet.headers, &packet.frame);
        }
        let from_wire = packet.metadata.source_port == Port::Wire.vport();
        let Some((group, entry)) = table.lookup(&key, from_wire) else {
            let miss = table.miss;
            let to = match miss {
                Miss::Table(id) => Some(id),
                Miss::Default => None,
            };
            self.walk.steps.push(Step::Missed { table: name, to });
            let next = match (to, kind) {
                (Some(id), _) => Next::Miss(id),
                (
                    None,
                    TableKind::NicTransmit | TableKind::EgressAcl | TableKind::IngressAcl | TableKind::RdmaReceive,
                ) => Next::Allowed,
                (None, TableKind::NicReceive | TableKind::Fdb) => {
                    self.drop("that is what such tables do by default");
                    Next::Ended
                }
            };
            return (packet, next);
        };
        let matched = group.described.value(entry.value());
        let group = group.id;
        let entry = Arc::clone(entry);
        let mut did = Vec::new();
        let next = self.execute(&entry, &mut packet, &mut did).unwrap_or_else(|why| {
            did.push(Deed::Failed(why));
            Next::Ended
        });
        self.walk.steps.push(Step::Hit { table: name, group, entry: entry.index, matched, did });
        (packet, next)
    }

    /// Walks through a table in steering memory, from its root for packets of this side.
    fn owned_by_software(&mut self, table: TableName, kind: TableKind, roots: Roots, packet: Packet) -> (Packet, Next) {
        let source = packet.metadata.source_port;
        let from_wire = source == Port::Wire.vport();
        let (side, root) = match kind {
            TableKind::Fdb if !from_wire => (Side::Transmit, roots.second),
            TableKind::NicTransmit => (Side::Transmit, roots.first),
            _ => (Side::Receive, roots.first),
        };
        self.walk.steps.push(Step::Entered { table, root });
        let mut travelling = ste::packet::Packet {
            frame: packet.frame,
            headers: packet.headers,
            metadata: packet.metadata,
            gvmi: if from_wire { 0 } else { vhca_id(source) },
            tag: packet.tag,
        };
        let mut steps = Vec::new();
        let end = self.steering.follow(self.memory, root, &mut travelling, &mut steps);
        self.walk.steps.extend(steps.into_iter().map(Step::Entry));
        let ste::packet::Packet { frame, headers, metadata, tag, .. } = travelling;
        let mut packet = Packet { frame, headers, metadata, tag, tables: packet.tables };
        let address = match end {
            Ok(address) => address,
            Err(why) => {
                self.walk.steps.push(Step::Ended { why });
                return (packet, Next::Ended);
            }
        };
        let terminal = Terminal::of(address, side);
        let left = |to: &dyn std::fmt::Display| Step::Left { address, to: to.to_string() };
        let (step, next) = match terminal {
            Some(Terminal::Drop) => (left(&"drop"), Next::Ended),
            Some(Terminal::Allow) if kind == TableKind::NicTransmit => (left(&"allow"), Next::Allowed),
            Some(Terminal::Vport(number)) if kind == TableKind::Fdb => {
                let target = Target::Port(Port::of_vport(number));
                (left(&target), Next::Copies(vec![(packet.clone(), target)]))
            }
            Some(Terminal::Tir(id)) if kind == TableKind::NicReceive => {
                let target = Target::Tir(id);
                (left(&target), Next::Copies(vec![(packet.clone(), target)]))
            }
            Some(Terminal::Table(id)) => (left(&Target::Table(id)), Next::Miss(id)),
            Some(Terminal::Sampler(id)) => (left(&format_args!("sampler {id:#x}")), self.sample(id, &packet)),
            Some(Terminal::Meter(id)) => (left(&format_args!("meter {id:#x}")), self.meter(id, &mut packet)),
            other => {
                let why = format!("address {address:#x} ({other:?}) is nowhere that a packet of {kind} can go");
                (Step::Ended { why }, Next::Ended)
            }
        };
        self.walk.steps.push(step);
        (packet, next)
    }

    fn sample(&mut self, id: u32, packet: &Packet) -> Next {
        let Ok(sampler) = self.steering.samplers.seen_by_mut(0, id) else {
            self.drop("the sampler is gone");
            return Next::Ended;
        };
        Next::Copies(sampler.pass().into_iter().map(|target| (packet.clone(), target)).collect())
    }

    fn meter(&mut self, id: u32, packet: &mut Packet) -> Next {
        let now = self.steering.now;
        let Ok(meter) = self.steering.meters.seen_by_mut(0, id) else {
            self.drop("the meter is gone");
            return Next::Ended;
        };
        let (register, color, target) = meter.color(&packet.frame, &packet.headers, now);
        color.put(&mut packet.metadata.registers_c[register]);
        Next::Copies(vec![(packet.clone(), target)])
    }

    /// What an entry does, in the device's order: decap, VLAN pop, modify header, VLAN push, encap, meters, then the
    /// destinations.
    fn execute(&mut self, entry: &Entry, packet: &mut Packet, did: &mut Vec<Deed>) -> Result<Next, &'static str> {
        let bytes = packet.frame.len();
        for &counter in &entry.counters {
            self.steering.counters.count(counter, bytes);
            did.push(Deed::Counted { counter, bytes });
        }
        if entry.decap {
            self.decap(packet, did)?;
        }
        let reformat = entry.reformat.and_then(|id| Some((id, self.steering.reformats.get(id)?)));
        let first = reformat.filter(|(_, reformat)| reformat.comes_first());
        let last = reformat.filter(|(_, reformat)| !reformat.comes_first());
        if let Some((id, reformat)) = first {
            self.reformat(id, reformat, packet, did)?;
        }
        for _ in 0..entry.pops {
            let vlan = *packet.headers.outer.vlans.first().ok_or("there is no VLAN tag to pop")?;
            edit::remove(&mut packet.frame, vlan.at..vlan.at + 4);
            self.parse(packet);
            did.push(Deed::PoppedVlan(vlan.tci));
        }
        if let Some(rewrite) = entry.rewrite.and_then(|id| self.steering.rewrites.get(id)) {
            for action in &rewrite.actions {
                let rewritten = action.apply(&mut packet.frame, &packet.headers, &mut packet.metadata);
                did.push(Deed::Rewrote(rewritten));
            }
            self.parse(packet);
        }
        for &(ethertype, tci) in &entry.pushes {
            let ethernet = packet.headers.outer.ethernet.ok_or("there is no Ethernet header for a VLAN tag")?;
            edit::push_vlan(&mut packet.frame, ethernet.at, ethertype, tci);
            self.parse(packet);
            did.push(Deed::PushedVlan(ethertype, tci));
        }
        if let Some((id, reformat)) = last {
            self.reformat(id, reformat, packet, did)?;
        }
        for &metered in &entry.meters {
            let now = self.steering.now;
            let color = self.steering.meter_objects.color(metered, &packet.frame, &packet.headers, now);
            let color = color.ok_or("nobody has written the meter")?;
            color.put(&mut packet.metadata.registers_c[metered.register]);
            did.push(Deed::Metered { object: metered.object, meter: metered.meter, color });
        }
        if entry.tag != 0 {
            packet.tag = Some(entry.tag);
            did.push(Deed::Tagged(entry.tag));
        }
        match &entry.verdict {
            Verdict::Allow => {
                did.push(Deed::Allowed);
                Ok(Next::Allowed)
            }
            Verdict::Drop => {
                did.push(Deed::Dropped);
                Ok(Next::Ended)
            }
            Verdict::Forward(destinations) => {
                let mut copies = Vec::new();
                for destination in destinations {
                    let mut copy = packet.clone();
                    let reformat = destination.reformat.and_then(|id| Some((id, self.steering.reformats.get(id)?)));
                    if let Some((id, reformat)) = reformat {
                        self.reformat(id, reformat, &mut copy, did)?;
                    }
                    did.push(Deed::Forwarded(destination.target));
                    copies.push((copy, destination.target));
                }
                Ok(Next::Copies(copies))
            }
        }
    }

    fn decap(&self, packet: &mut Packet, did: &mut Vec<Deed>) -> Result<(), &'static str> {
        let inner = packet.headers.inner.as_ref().and_then(|inner| inner.ethernet);
        let at = inner.ok_or("there is no tunnel that carries Ethernet")?.at;
        edit::remove(&mut packet.frame, 0..at);
        self.parse(packet);
        did.push(Deed::Decapsulated(at));
        Ok(())
    }

    fn reformat(
        &self,
        id: u32,
        reformat: &Reformat,
        packet: &mut Packet,
        did: &mut Vec<Deed>,
    ) -> Result<(), &'static str> {
        let from = packet.frame.len();
        reformat.apply(&mut packet.frame, &packet.headers, &self.steering.tunnels)?;
        self.parse(packet);
        did.push(Deed::Reformatted { id, from, to: packet.frame.len() });
        Ok(())
    }

    fn parse(&self, packet: &mut Packet) {
        packet.headers = Headers::parse(&packet.frame, &self.steering.tunnels);
    }

    fn drop(&mut self, why: &'static str) {
        self.walk.steps.push(Step::Dropped { why });
    }
}

/// Where a packet goes after a table.
enum Next {
    Ended,
    Allowed,
    Miss(u32),
    Copies(Vec<(Packet, Target)>),
}
