//! Packets on their way through the device: looked up, counted, rewritten, sent.

pub(crate) mod rewrite;
pub(crate) mod tunnel;

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::action::VlanTag;
use sluice_flow::backend::Verdict;
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::time::Timestamp;

use crate::chains::{Chain, MAX_DEPTH};
use crate::packet::headers::{Ethernet, VlanTagged};
use crate::packet::{Layout, Metadata, Network, Transport, parse};
use crate::ports::PortTable;
use crate::quiescence::Pin;
use crate::rules::{Count, Rules};
use crate::translate::{Encapsulation, MIN_FRAME, Program, Step};
use rewrite::Missing;

/// Lookups that one frame may cause, over all copies that `recirc` in the middle of a list makes of it.
const MAX_LOOKUPS: usize = 64;
/// Octets of the two Ethernet addresses, behind which tags stand.
const ADDRESSES: usize = 12;
/// Octets of a VLAN tag.
const TAG: usize = 4;

/// Packets that went nowhere though a rule took them, by reason.
#[derive(Debug, Default)]
pub struct Drops {
    /// A header that an action rewrites was cut off or malformed.
    pub missing_header: AtomicU64,
    /// An output port was detached, or a frame became too long for an outer header.
    pub output: AtomicU64,
    /// A tunnel packet on an underlay was malformed or had a wrong checksum.
    pub decapsulation: AtomicU64,
    /// There were too many lookups.
    pub lookups: AtomicU64,
}

impl Drops {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        let Self { missing_header, output, decapsulation, lookups } = self;
        [missing_header, output, decapsulation, lookups].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Lookups, over all chains that there ever were.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts {
    /// In chain 0, with a rule that took the packet.
    pub(crate) hits: AtomicU64,
    /// In later chains, without one.
    pub(crate) chain_misses: AtomicU64,
}

/// One packet and what is known of it.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) in_port: PortNumber,
    pub(crate) metadata: Metadata,
    /// Where the headers are, kept up as tags come and go.
    pub(crate) layout: Layout,
}

impl Packet {
    pub(crate) fn new(bytes: Vec<u8>, in_port: PortNumber, metadata: Metadata) -> Self {
        Self { bytes, in_port, metadata, layout: Layout::default() }
    }

    pub(crate) fn network(&self, kind: Network) -> Result<usize, Missing> {
        self.layout.network.filter(|(is, _)| *is == kind).map(|(_, at)| at).ok_or(Missing)
    }

    pub(crate) fn transport(&self, kind: Transport) -> Result<usize, Missing> {
        self.layout.transport.filter(|(is, _)| *is == kind).map(|(_, at)| at).ok_or(Missing)
    }

    fn push_vlan(&mut self, tag: VlanTag) -> Result<(), Missing> {
        if self.bytes.len() < MIN_FRAME {
            return Err(Missing);
        }
        self.bytes.splice(ADDRESSES..ADDRESSES, [0; TAG]);
        let mut header = VlanTagged::new(&mut self.bytes[ADDRESSES..]).ok_or(Missing)?;
        header.set_tpid(tag.tpid);
        // The CFI bit only says that there is a tag; on the wire OVS sends it as zero (`push_vlan` in actions.c).
        header.set_tci(u16::from(tag.pcp) << 13 | tag.vid);
        self.layout.shift(|at| at + TAG);
        Ok(())
    }

    fn pop_vlan(&mut self) -> Result<(), Missing> {
        let is_tagged = Ethernet::new(self.bytes.as_slice())
            .is_some_and(|ethernet| matches!(ethernet.ethernet_type(), 0x8100 | 0x88a8));
        if !is_tagged || self.bytes.len() < MIN_FRAME + TAG {
            return Err(Missing);
        }
        self.bytes.drain(ADDRESSES..ADDRESSES + TAG);
        self.layout.shift(|at| at - TAG);
        Ok(())
    }
}

impl Layout {
    fn shift(&mut self, moved: impl Fn(usize) -> usize) {
        self.network = self.network.map(|(kind, at)| (kind, moved(at)));
        self.transport = self.transport.map(|(kind, at)| (kind, moved(at)));
        self.end = moved(self.end);
    }
}

/// One frame's way through the device.
pub(crate) struct Traversal<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) ports: &'a PortTable,
    pub(crate) drops: &'a Drops,
    pub(crate) lookup_counts: &'a LookupCounts,
    pub(crate) pin: &'a Pin<'a>,
    pub(crate) now: Timestamp,
    pub(crate) lookups: usize,
    pub(crate) verdict: Verdict,
}

/// What of a program's outputs is still to come, besides the packet itself.
#[derive(Default)]
struct Pending<'p> {
    /// Octets to be left off by the next output.
    cut: usize,
    encapsulation: Option<&'p Encapsulation>,
}

impl Traversal<'_> {
    /// Looks a packet up and does what its rule says.
    pub(crate) fn look_up(&mut self, chain: &Chain, mut packet: Packet, depth: usize) {
        if depth >= MAX_DEPTH || self.lookups >= MAX_LOOKUPS {
            self.drops.lookups.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.lookups += 1;
        let parsed = parse(&packet.bytes, packet.in_port, &packet.metadata);
        packet.layout = parsed.layout;
        let slot = chain.rules.view(self.pin).lookup(&parsed.key).and_then(|index| self.rules.slot(index));
        let Some(slot) = slot else {
            chain.count_miss();
            if chain.id != ChainId::ROOT {
                self.lookup_counts.chain_misses.fetch_add(1, Ordering::Relaxed);
            }
            self.verdict.missed.get_or_insert(chain.id);
            return;
        };
        let tcp_flags = u16::try_from(parsed.key.get(Field::TcpFlags)).unwrap_or_default();
        slot.count(Count { bytes: packet.bytes.len() as u64, at: self.now, tcp_flags });
        if chain.id == ChainId::ROOT {
            self.lookup_counts.hits.fetch_add(1, Ordering::Relaxed);
        }
        self.verdict.hits.push(slot.flow());
        if let Some(program) = slot.program().as_ref() {
            self.run(program, packet, depth);
        }
    }

    fn run(&mut self, program: &Program, mut packet: Packet, depth: usize) {
        let mut pending = Pending::default();
        let last = program.steps.len().saturating_sub(1);
        for (index, step) in program.steps.iter().enumerate() {
            let done = match step {
                Step::Output(port) => {
                    self.output(*port, &packet, &pending);
                    pending.cut = 0;
                    Ok(())
                }
                Step::Meter(meter) => {
                    if !meter.passes(packet.bytes.len(), self.now) {
                        return;
                    }
                    Ok(())
                }
                Step::PopVlan => packet.pop_vlan(),
                Step::PushVlan(tag) => packet.push_vlan(*tag),
                Step::Recirc(chain) => {
                    let is_last = index == last;
                    let mut again = if is_last { std::mem::replace(&mut packet, empty()) } else { packet.clone() };
                    again.metadata.chain = chain.id;
                    self.look_up(chain, again, depth + 1);
                    Ok(())
                }
                Step::Set(set) => rewrite::apply(&mut packet, set),
                Step::SetTunnel(encapsulation) => {
                    pending.encapsulation = Some(encapsulation);
                    Ok(())
                }
                Step::Trunc(bytes) => {
                    pending.cut = packet.bytes.len().saturating_sub(*bytes);
                    Ok(())
                }
            };
            if let Err(Missing) = done {
                // As in the kernel, where the action fails and the packet goes no further.
                self.drops.missing_header.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    fn output(&mut self, number: PortNumber, packet: &Packet, pending: &Pending<'_>) {
        let length = packet.bytes.len();
        let left =
            if pending.cut == 0 { length } else { length.saturating_sub(pending.cut).max(MIN_FRAME).min(length) };
        if self.send(number, &packet.bytes[..left], pending).is_none() {
            self.drops.output.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `None` if the frame cannot leave.
    fn send(&mut self, number: PortNumber, frame: &[u8], pending: &Pending<'_>) -> Option<()> {
        let port = self.ports.get(number)?;
        let Some(tunnel) = port.tunnel() else {
            port.count_tx(frame.len());
            self.verdict.sent.push((number, frame.to_vec()));
            return Some(());
        };
        let underlay = self.ports.get(tunnel.underlay)?;
        let outer = tunnel::encapsulate(frame, pending.encapsulation?, tunnel, underlay)?;
        port.count_tx(frame.len());
        underlay.count_tx(outer.len());
        self.verdict.sent.push((tunnel.underlay, outer));
        Some(())
    }
}

fn empty() -> Packet {
    Packet::new(Vec::new(), PortNumber(0), Metadata::default())
}
