//! One frame's way through the device.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::backend::{CopiedPacket, Sample, Verdict};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::id::FlowId;
use sluice_flow::key::Key;
use sluice_flow::port::{PortKind, PortNumber};
use sluice_flow::time::Timestamp;
use sluice_flow::trace::TraceEvent;

use super::drops::{Drops, Loss};
use super::merge::Missing;
use super::packet::Packet;
use super::random::Random;
use super::record::Recorder;
use super::run::Deferred;
use super::tunnel::{self, Decapsulated, Payload, Push};
use crate::chains::Chain;
use crate::conntrack::{self, Conntrack, Cut};
use crate::jumps::MAX_DEPTH;
use crate::mirrors::{MirrorState, Mirrors};
use crate::packet::{Metadata, parse};
use crate::ports::{PortState, PortTable};
use crate::programs::Programs;
use crate::quiescence::Pin;
use crate::rules::{Count, Rules, Slot};

/// Lookups that one frame may cause, over all copies that `recirc` in the middle of a list makes of it.
const MAX_LOOKUPS: usize = 64;

/// Lookups, over all chains that there ever were.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts {
    /// In chain 0, with a rule that took the packet.
    pub(crate) hits: AtomicU64,
    /// In later chains, without one.
    pub(crate) chain_misses: AtomicU64,
}

/// One frame's way through the device.
pub(crate) struct Traversal<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) programs: &'a Programs,
    /// Chain 0.
    pub(crate) root: &'a Chain,
    pub(crate) ports: &'a PortTable,
    /// What is copied on its way into chain 0.
    pub(crate) mirrors: &'a [MirrorState],
    /// Who hands out what goes to a port of kind mirror.
    pub(crate) outlet: &'a Mirrors,
    pub(crate) conntrack: &'a Conntrack,
    pub(crate) drops: &'a Drops,
    pub(crate) lookup_counts: &'a LookupCounts,
    pub(crate) pin: &'a Pin<'a>,
    pub(crate) now: Timestamp,
    pub(crate) random: &'a Random,
    /// Writes down what is done, and keeps the device from counting it.
    pub(crate) recorder: Option<&'a mut Recorder>,
    pub(crate) lookups: usize,
    /// Programs, and lists that change headers, within each other.
    pub(crate) level: usize,
    /// What waits, and places of what is done.
    pub(crate) deferred: Vec<Option<Deferred>>,
    pub(crate) observer: &'a mut dyn Observer,
}

/// Where a frame that leaves has come from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(super) in_port: PortNumber,
    /// The place of the rule that took it last.
    pub(super) rule: Option<u32>,
}

impl Origin {
    fn of(packet: &Packet) -> Self {
        Self { in_port: packet.in_port, rule: packet.rule }
    }
}

/// Who is told what becomes of frames.
pub(crate) trait Observer {
    /// A rule took the packet.
    fn hit(&mut self, _flow: FlowId) {}

    /// No rule of a chain took it.
    fn missed(&mut self, _chain: ChainId) {}

    /// A frame left through a port.
    fn sent(&mut self, port: PortNumber, frame: &[u8]);

    /// A sampling group is told of it.
    fn sampled(&mut self, _sample: Sample) {}
}

impl Observer for Verdict {
    fn hit(&mut self, flow: FlowId) {
        self.hits.push(flow);
    }

    fn missed(&mut self, chain: ChainId) {
        self.missed.get_or_insert(chain);
    }

    fn sent(&mut self, port: PortNumber, frame: &[u8]) {
        self.sent.push((port, frame.to_vec()));
    }

    fn sampled(&mut self, sample: Sample) {
        self.samples.push(sample);
    }
}

impl Traversal<'_> {
    /// Takes a frame that comes in at a port, out of its tunnel if it is in one.
    pub(crate) fn enter(&mut self, port: &PortState, frame: &[u8]) {
        let number = port.port.number;
        let mut packet = Packet::new(Vec::new(), number, Metadata::default());
        let mut inner = 0..frame.len();
        if self.is_counted() {
            port.count_rx(frame.len());
        }
        if self.ports.is_underlay(number) {
            let parsed = parse(frame, number, &packet.metadata);
            if self.is_counted()
                && let (Some(address), Some(mac)) = (tunnel::sender(&parsed), tunnel::sender_mac(frame, &parsed))
            {
                port.learn(address, mac);
            }
            let from = tunnel::entrance(frame, &parsed).and_then(|entrance| self.ports.tunnel(number, entrance));
            if let Some((from, tunnel)) = from.and_then(|from| from.tunnel().map(|tunnel| (from, tunnel))) {
                match tunnel::decapsulate(frame, &parsed, tunnel.protocol) {
                    Decapsulated::Plain => {}
                    Decapsulated::Malformed => return self.lose(Loss::Entrance),
                    Decapsulated::Inner { range, layer3, metadata } => {
                        match &mut self.recorder {
                            Some(recorder) => recorder.note(TraceEvent::Decapsulated(from.port.number)),
                            None => {
                                port.learn_own(metadata.destination());
                                from.count_rx(range.len());
                            }
                        }
                        packet.in_port = from.port.number;
                        packet.metadata.tunnel = Some(metadata);
                        packet.metadata.layer3 = layer3;
                        inner = range;
                    }
                }
            }
        }
        packet.bytes = frame[inner].to_vec();
        if let Some(tunnel) = &packet.metadata.tunnel
            && tunnel::ecn::decapsulate(tunnel.tos, &mut packet.bytes, packet.metadata.layer3).is_none()
        {
            return self.lose(Loss::Entrance);
        }
        if self.look_up(self.root, packet, 0).is_err() {
            // As in the kernel (`ovs_vport_receive` in net/openvswitch/vport.c).
            self.lose(Loss::Malformed);
        }
    }

    /// Looks a packet up and does what its rule says; fails if no key can be made of the packet.
    pub(crate) fn look_up(&mut self, chain: &Chain, mut packet: Packet, depth: usize) -> Result<(), Missing> {
        if depth >= MAX_DEPTH || self.lookups >= MAX_LOOKUPS {
            self.lose(Loss::Lookups);
            return Ok(());
        }
        self.lookups += 1;
        let parsed = parse(&packet.bytes, packet.in_port, &packet.metadata);
        packet.layout = parsed.layout;
        if packet.layout.is_malformed {
            return Err(Missing);
        }
        let view = chain.rules.view(self.pin);
        let (tried, found) = match &self.recorder {
            Some(_) => view.trace(&parsed.key),
            None => (Vec::new(), view.lookup(&parsed.key)),
        };
        // A copy carries the flow that takes the packet, though it is made before anything is done with the packet.
        if chain.id == ChainId::ROOT && !self.mirrors.is_empty() {
            let origin = Origin { in_port: packet.in_port, rule: found };
            self.mirror(&parsed.key, &packet.bytes, packet.is_ethernet(), origin);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.looked_up(chain.id, &parsed.key, tried, found, self.rules);
        }
        packet.rule = found;
        let Some(slot) = found.and_then(|index| self.rules.slot(index)) else {
            self.miss(chain);
            return Ok(());
        };
        self.hit(slot, &parsed.key, packet.counted_length());
        if self.is_counted() && chain.id == ChainId::ROOT {
            self.lookup_counts.hits.fetch_add(1, Ordering::Relaxed);
        }
        let programs = self.programs;
        if let Some(program) = programs.get(slot.program()).as_ref() {
            self.run_program(program, packet, depth);
        }
        Ok(())
    }

    /// Sends the copies that mirrors take of a packet.
    pub(super) fn mirror(&mut self, key: &Key, bytes: &[u8], is_ethernet: bool, origin: Origin) {
        for mirror in self.mirrors.iter().filter(|mirror| mirror.takes(key)) {
            match &mut self.recorder {
                Some(recorder) => recorder.note(TraceEvent::Mirrored(mirror.name.to_string())),
                None => mirror.count(bytes.len()),
            }
            for copy in &*mirror.copies {
                match self.ports.get(*copy) {
                    Some(port) if is_ethernet => self.leave(port, bytes, origin),
                    _ => self.lose(Loss::Copy),
                }
            }
        }
    }

    /// No rule of the chain took the packet.
    pub(super) fn miss(&mut self, chain: &Chain) {
        self.observer.missed(chain.id);
        if self.is_counted() {
            chain.count_miss();
            if chain.id != ChainId::ROOT {
                self.lookup_counts.chain_misses.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A rule took the packet, of so many bytes.
    pub(super) fn hit(&mut self, slot: &Slot, key: &Key, length: usize) {
        if self.is_counted() {
            let tcp_flags = u16::try_from(key.get(Field::TcpFlags)).unwrap_or_default();
            slot.count(Count { bytes: length as u64, at: self.now, tcp_flags });
        }
        self.observer.hit(slot.flow_id());
    }

    /// Whether the device counts what the packet does.
    pub(crate) fn is_counted(&self) -> bool {
        self.recorder.is_none()
    }

    /// The packet goes no further.
    pub(crate) fn lose(&mut self, loss: Loss) {
        match &mut self.recorder {
            Some(recorder) => recorder.note(TraceEvent::Dropped(loss.reason())),
            None => _ = self.drops.of(loss).fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Sends a packet out, which is the last that is done with it or not.
    pub(super) fn output(&mut self, number: PortNumber, packet: &Packet, is_last: bool) {
        let frame = &packet.bytes[..packet.cut_length()];
        let sent = match conntrack::cut(packet, frame, is_last) {
            Cut::Whole => self.send(number, frame, packet),
            Cut::Pieces(pieces) => pieces.iter().try_for_each(|piece| self.send(number, piece, packet)),
            Cut::Impossible => None,
        };
        if sent.is_none() {
            self.lose(Loss::Output);
        }
    }

    /// `None` if it cannot leave.
    fn send(&mut self, number: PortNumber, bytes: &[u8], packet: &Packet) -> Option<()> {
        let port = self.ports.get(number)?;
        let Some(tunnel) = port.tunnel() else {
            if packet.is_ethernet() {
                self.leave(port, bytes, Origin::of(packet));
            } else {
                // Such a port is one of Ethernet frames (`ovs_vport_send` in net/openvswitch/vport.c).
                self.lose(Loss::WithoutEthernet);
            }
            return Some(());
        };
        let underlay = self.ports.get(tunnel.underlay)?;
        let payload = Payload { bytes, layer3: packet.metadata.layer3 };
        let encapsulation = packet.encapsulation.as_deref()?;
        let sequence = match &mut self.recorder {
            Some(recorder) => recorder.sequence(port),
            None => &port.sequence,
        };
        let outer = tunnel::encapsulate(payload, encapsulation, sequence, tunnel, underlay, self.now)?;
        if self.is_counted() {
            port.count_tx(bytes.len());
        }
        self.leave(underlay, &outer, Origin::of(packet));
        Some(())
    }

    pub(super) fn leave(&mut self, port: &PortState, frame: &[u8], origin: Origin) {
        let number = port.port.number;
        if self.is_counted() {
            port.count_tx(frame.len());
            if port.port.kind == PortKind::Mirror {
                self.hand_out(number, frame, origin);
            }
        }
        // What the agent itself picks up leaves through no port.
        if number.is_tap() {
            return;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.note(TraceEvent::Sent { port: number, frame: frame.to_vec() });
        }
        self.observer.sent(number, frame);
    }

    fn hand_out(&self, to: PortNumber, frame: &[u8], Origin { in_port, rule }: Origin) {
        let slot = rule.and_then(|index| self.rules.slot(index));
        let ufid = slot.and_then(Slot::flow).map(|flow| flow.ufid);
        self.outlet.hand_out(&CopiedPacket { to, in_port, ufid, frame });
    }

    /// Puts outer headers on; what is behind in the list is done to the outer packet, as in OVS (`push_tnl_action` in
    /// `lib/dpif-netdev.c`). Whether that was possible.
    pub(super) fn tunnel_push(&mut self, push: &Push, packet: &mut Packet) -> bool {
        packet.bytes.truncate(packet.cut_length());
        packet.kept = usize::MAX;
        let payload = Payload { bytes: &packet.bytes, layer3: packet.metadata.layer3 };
        let length = payload.bytes.len();
        let Some(port) = self.ports.get(push.tunnel_port) else {
            return false;
        };
        let sequence = match &mut self.recorder {
            Some(recorder) => recorder.sequence(port),
            None => &port.sequence,
        };
        let Some(outer) = push.apply(payload, sequence, self.now) else {
            return false;
        };
        if self.is_counted() {
            port.count_tx(length);
        }
        packet.bytes = outer;
        packet.metadata.tunnel = None;
        packet.metadata.layer3 = None;
        packet.metadata.is_whole = false;
        packet.layout = parse(&packet.bytes, packet.in_port, &packet.metadata).layout;
        true
    }

    /// Takes outer headers off and looks up what was inside from the start, as it came from the tunnel port.
    pub(super) fn tunnel_pop(&mut self, number: PortNumber, packet: &Packet, depth: usize) -> Result<(), Missing> {
        let parsed = parse(&packet.bytes, packet.in_port, &packet.metadata);
        let port = self.ports.get(number).and_then(|port| port.tunnel().map(|tunnel| (port, tunnel)));
        let Some((port, tunnel)) = port else {
            self.lose(Loss::Output);
            return Ok(());
        };
        match tunnel::decapsulate(&packet.bytes, &parsed, tunnel.protocol) {
            Decapsulated::Inner { range, layer3, metadata } => {
                if self.is_counted() {
                    port.count_rx(range.len());
                }
                let metadata = Metadata { tunnel: Some(metadata), layer3, ..Metadata::default() };
                let inner = Packet::new(packet.bytes[range].to_vec(), number, metadata);
                self.look_up(self.root, inner, depth + 1)
            }
            Decapsulated::Plain | Decapsulated::Malformed => {
                self.lose(Loss::Decapsulation);
                Ok(())
            }
        }
    }
}
