//! The device of the packet target, with rules for every header and every action, and the frames that go into it.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::action::jumps;
use sluice_flow::backend::{
    Backend, ChainChange, ChainOperation, Change, Connections, Injector, Meters, OpenConfig, Operation, Verdict,
};
use sluice_flow::chain::ChainId;
use sluice_flow::connection::Selection;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::time::ManualClock;
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, FlowId, Generation, MaskedKey, Priority};
use sluice_offload_soft::SoftNic;

/// Match and actions. None overlaps another.
pub(crate) const RULES: &[(&str, &str)] = include!("rules.in");

/// Ports that are wires, from 1 on. Behind them there is a tunnel port of each kind, from 10 on.
const WIRES: u32 = 9;
/// The wire under the tunnels.
const UNDERLAY: PortNumber = PortNumber(6);

/// A device with [`RULES`], each a flow with its place in the list as slot.
pub(crate) struct Device {
    nic: SoftNic,
    clock: Arc<ManualClock>,
}

impl Device {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let nic = SoftNic::with_seed(&OpenConfig::new("soft", clock.clone()), 1);
        let wires = (1..=WIRES).map(|number| (number, PortKind::Physical));
        let tunnels = (10..).zip(TunnelProtocol::ALL).map(|(number, protocol)| {
            let udp_port = protocol.default_udp_port();
            (number, PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: UNDERLAY }))
        });
        for (number, kind) in wires.chain(tunnels) {
            let port = Port { number: PortNumber(number), name: format!("p{number}").parse().expect("a name"), kind };
            nic.attach_port(&port).expect("a free port");
        }
        for (id, unit, rate) in [(1, MeterUnit::Packets, 10), (2, MeterUnit::Kilobits, 100)] {
            nic.set_meter(&Meter::simple(MeterId(id), unit, rate, 3)).expect("a new meter");
        }
        let mut policy = TimeoutPolicy::new("short");
        policy.set(TimeoutKey::UdpSingle, 5);
        nic.set_timeout_policy(&policy).expect("a new policy");
        let device = Self { nic, clock };
        device.install();
        device
    }

    fn install(&self) {
        let mut queue = self.nic.install_queue().expect("a queue");
        for (slot, (key, actions)) in (0..).zip(RULES) {
            let parsed = parse_key(key, &()).unwrap_or_else(|error| panic!("{}", error.caret(key)));
            let actions = parse_actions(actions, &()).unwrap_or_else(|error| panic!("{}", error.caret(actions)));
            for chain in jumps(&actions).into_iter().filter(|chain| *chain != ChainId::ROOT) {
                queue.submit_chain(ChainChange { chain, operation: ChainOperation::Open }, &mut Vec::new());
            }
            let matching = MaskedKey::new(&parsed.matching);
            let flow = Flow::new(None, matching, actions, Priority::default(), Expiry::default(), &Seed([0; 16]));
            let operation = Operation::Install(flow);
            let change = Change { flow: FlowId { slot, incarnation: 1 }, generation: Generation(1), operation };
            let mut done = Vec::new();
            queue.submit(&mut vec![change], &mut done);
            done.iter().for_each(|completion| assert!(completion.result.is_ok(), "{key}: {:?}", completion.result));
        }
    }

    /// Forgets connections and lets fragments and meters be late, so that an input does the same each time.
    pub(crate) fn forget(&self) {
        self.clock.advance(Duration::from_secs(120));
        self.nic.flush_connections(&Selection::default()).expect("connections can be flushed");
    }

    /// Lets a frame in, and what then leaves by the wire under the tunnels lets in there, as if a peer had sent it.
    pub(crate) fn play(&self, frame: &Frame) -> Vec<Verdict> {
        self.clock.advance(frame.pause);
        let Ok(verdict) = self.nic.inject(frame.port, &frame.bytes) else { return Vec::new() };
        let outer: Vec<_> = verdict.sent.iter().filter(|(port, _)| *port == UNDERLAY).collect();
        let back = outer.iter().filter_map(|(_, bytes)| self.nic.inject(UNDERLAY, bytes).ok()).collect::<Vec<_>>();
        std::iter::once(verdict).chain(back).collect()
    }
}

/// A frame on its way in.
pub(crate) struct Frame {
    port: PortNumber,
    /// How long nothing came before it.
    pause: Duration,
    pub(crate) bytes: Vec<u8>,
}

/// The frames of an input: for each a byte for the port, one for pause and checksums, two for the length, and its own.
pub(crate) fn frames(mut input: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((&[port, flags, high, low], rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        let mut bytes = bytes.to_vec();
        if flags & 0x80 == 0 {
            // Who guesses will not guess a checksum, and nothing that has a wrong one comes far.
            mend(&mut bytes);
        }
        let pause = Duration::from_secs((1 << (flags & 0x0f)) - 1);
        frames.push(Frame { port: PortNumber(1 + u32::from(port) % WIRES), pause, bytes });
        input = rest;
    }
    frames
}

/// Puts right checksums into an Ethernet frame with IP and TCP, UDP or ICMP.
fn mend(frame: &mut [u8]) {
    let Some((ethernet, ip)) = frame.split_at_mut_checked(14) else { return };
    let (pseudo, protocol, payload) = match (&ethernet[12..], ip.first()) {
        ([0x08, 0x00], Some(0x45)) if ip.len() >= 20 => {
            let (header, payload) = ip.split_at_mut(20);
            header[10..12].fill(0);
            let sum = checksum(&[header]);
            header[10..12].copy_from_slice(&sum);
            (header[12..20].to_vec(), header[9], payload)
        }
        ([0x86, 0xdd], Some(_)) if ip.len() >= 40 => {
            let (header, payload) = ip.split_at_mut(40);
            (header[8..40].to_vec(), header[6], payload)
        }
        _ => return,
    };
    let at = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return,
    };
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let Some(place) = payload.get_mut(at..at + 2) else { return };
    place.fill(0);
    let pseudo = if protocol == 1 { Vec::new() } else { [&pseudo, &length[..], &[0, protocol]].concat() };
    let sum = checksum(&[&pseudo, payload]);
    payload[at..at + 2].copy_from_slice(&sum);
}

/// The one's complement sum of 16-bit words, of which only the last part may have an odd byte.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words.map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0))).sum();
    let folded = (0..4).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    (!u16::try_from(folded).unwrap_or_default()).to_be_bytes()
}
