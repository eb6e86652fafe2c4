//! The device: what the threads that install, count and inject share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender};
use sluice_flow::backend::{DeviceEvent, Handle, OpenConfig, Verdict};
use sluice_flow::counters::Counters;
use sluice_flow::flow::Flow;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::Clock;

use crate::chains::Chains;
use crate::classifier::Unlinked;
use crate::engine::tunnel::{self, Decapsulated};
use crate::engine::{Drops, LookupCounts, Packet, Traversal};
use crate::meters::Meters;
use crate::packet::{Metadata, parse};
use crate::ports::Ports;
use crate::quiescence::Quiescence;
use crate::rules::{self, Rules};
use crate::translate::{self, MIN_FRAME, Program};

/// Events that wait to be read. All of them say "look again", so that one too many is none lost.
const EVENTS: usize = 64;

pub(crate) struct Nic {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rules: Rules,
    pub(crate) chains: Chains,
    pub(crate) ports: Ports,
    pub(crate) meters: Meters,
    pub(crate) drops: Drops,
    pub(crate) lookup_counts: LookupCounts,
    pub(crate) events: Receiver<DeviceEvent>,
    /// Install queues that were handed out.
    pub(crate) queues: AtomicUsize,
    quiescence: Quiescence,
    event_sender: Sender<DeviceEvent>,
}

/// A rule that is off the classifier, but may still be used by packets under way.
pub(crate) struct Removal {
    index: u32,
    unlinked: Option<Unlinked>,
}

impl Nic {
    pub(crate) fn new(config: &OpenConfig) -> Self {
        let (event_sender, events) = crossbeam_channel::bounded(EVENTS);
        Self {
            clock: Arc::clone(&config.clock),
            rules: Rules::new(),
            chains: Chains::new(),
            ports: Ports::new(),
            meters: Meters::default(),
            drops: Drops::default(),
            lookup_counts: LookupCounts::default(),
            events,
            queues: AtomicUsize::new(0),
            quiescence: Quiescence::new(),
            event_sender,
        }
    }

    /// Tells that what was refused may be taken now.
    pub(crate) fn changed(&self) {
        // A full channel holds the same word already.
        let _ = self.event_sender.try_send(DeviceEvent::Changed);
    }

    /// A dry run of [`Nic::install`].
    pub(crate) fn check(&self, flow: &Flow) -> Result<String, Refusal> {
        translate::check(flow, &self.ports.table(), &self.meters)
    }

    /// Puts a rule in.
    pub(crate) fn install(
        &self,
        hint: usize,
        id: FlowId,
        generation: Generation,
        flow: &Arc<Flow>,
    ) -> Result<Handle, Refusal> {
        let program = self.make_program(flow)?;
        let gone = || Refusal::Device { reason: "a slot is gone".into() };
        let Some(index) = self.rules.take(hint, id, generation, Arc::clone(&program)) else {
            self.discard(&program);
            return Err(Refusal::Limit { what: "rules".into(), limit: rules::CAPACITY.into() });
        };
        let matching = translate::matching(flow);
        if program.chain.rules.insert(&matching, flow.priority, index).is_err() {
            self.rules.free(hint, index);
            self.discard(&program);
            let reason = "a rule with the same match and priority is installed";
            return Err(Refusal::Combination { reason: reason.into() });
        }
        self.rules.publish(index).ok_or_else(gone)
    }

    /// Lets a rule do what its flow now says.
    pub(crate) fn modify(&self, handle: Handle, flow: &Arc<Flow>) -> Result<(), Refusal> {
        // While the pin is held, a rule that is found here is not freed, so what is put in its slot is not lost.
        let _pin = self.quiescence.pin();
        let Some((_, slot)) = self.rules.find(handle) else {
            return Err(Refusal::Device { reason: "the rule is gone".into() });
        };
        let is_same = slot.program().as_ref().is_some_and(|program| program.flow.identity == flow.identity);
        if !is_same {
            return Err(Refusal::Combination { reason: "the rule has another match or priority".into() });
        }
        let program = self.make_program(flow)?;
        if let Some(old) = slot.replace(program) {
            self.discard(&old);
        }
        Ok(())
    }

    /// Everything that a rule needs besides its place: jumps noted, meters held.
    fn make_program(&self, flow: &Arc<Flow>) -> Result<Arc<Program>, Refusal> {
        self.check(flow)?;
        let jumps: Vec<_> = flow.jumps().collect();
        self.chains.add_jumps(flow.chain(), &jumps)?;
        match translate::link(flow, &self.chains, &self.meters) {
            Ok(program) => Ok(Arc::new(program)),
            Err(refusal) => {
                self.chains.remove_jumps(flow.chain(), &jumps);
                self.chains.forget_if_unused(flow.chain());
                Err(refusal)
            }
        }
    }

    /// Undoes [`Nic::make_program`].
    fn discard(&self, program: &Program) {
        program.release();
        self.chains.remove_jumps(program.chain.id, &program.jumps());
    }

    /// Takes a rule out of matching: the first half of a removal. `None` if it is gone already.
    pub(crate) fn unlink(&self, handle: Handle) -> Option<Removal> {
        let (index, slot) = self.rules.claim(handle)?;
        let program = slot.program();
        let unlinked = program.as_ref().and_then(|program| {
            let matching = translate::matching(&program.flow);
            program.chain.rules.remove(&matching, program.flow.priority, index)
        });
        Some(Removal { index, unlinked })
    }

    /// Waits until no packet can count on what was unlinked before.
    pub(crate) fn settle(&self) {
        self.quiescence.wait();
    }

    /// Reads last counters and frees: the second half of a removal, after [`Nic::settle`].
    pub(crate) fn free(&self, hint: usize, removal: Removal) -> Option<Counters> {
        let counters = self.rules.slot(removal.index)?.counters();
        if let Some(unlinked) = removal.unlinked {
            unlinked.give_back();
        }
        if let Some(program) = self.rules.free(hint, removal.index) {
            self.discard(&program);
            let (chain, is_unused) = (program.chain.id, program.chain.is_unused());
            drop(program);
            if is_unused {
                self.chains.forget_if_unused(chain);
            }
        }
        Some(counters)
    }

    /// Lets a frame in at a port.
    pub(crate) fn inject(&self, port: PortNumber, frame: &[u8]) -> Result<Verdict, Refusal> {
        let ports = self.ports.table();
        let refuse = |reason: &'static str| Refusal::Port { port: port.to_string(), reason: reason.into() };
        let state = ports.get(port).ok_or_else(|| refuse("there is no such port"))?;
        if state.tunnel().is_some() {
            return Err(refuse("frames come to a tunnel port through its underlay"));
        }
        if frame.len() < MIN_FRAME {
            return Err(Refusal::Device { reason: format!("{} bytes are no Ethernet frame", frame.len()).into() });
        }
        state.count_rx(frame.len());

        let pin = self.quiescence.pin();
        let mut traversal = Traversal {
            rules: &self.rules,
            ports: &ports,
            drops: &self.drops,
            lookup_counts: &self.lookup_counts,
            pin: &pin,
            now: self.clock.now(),
            lookups: 0,
            verdict: Verdict::default(),
        };
        let mut packet = Packet::new(Vec::new(), port, Metadata::default());
        let mut inner = 0..frame.len();
        if ports.is_underlay(port) {
            let parsed = parse(frame, port, &packet.metadata);
            if let (Some(address), Some(mac)) = (tunnel::sender(&parsed), tunnel::sender_mac(frame, &parsed)) {
                state.learn(address, mac);
            }
            let tunnel_port = tunnel::udp_port(&parsed).and_then(|udp_port| ports.tunnel(port, udp_port));
            if let Some((tunnel_port, tunnel)) = tunnel_port.and_then(|port| port.tunnel().map(|tunnel| (port, tunnel)))
            {
                match tunnel::decapsulate(frame, &parsed, tunnel.protocol) {
                    Decapsulated::Plain => {}
                    Decapsulated::Malformed => {
                        self.drops.decapsulation.fetch_add(1, Ordering::Relaxed);
                        return Ok(traversal.verdict);
                    }
                    Decapsulated::Inner { range, metadata } => {
                        state.learn_own(metadata.destination());
                        tunnel_port.count_rx(range.len());
                        packet.in_port = tunnel_port.port.number;
                        packet.metadata.tunnel = Some(metadata);
                        inner = range;
                    }
                }
            }
        }
        packet.bytes = frame[inner].to_vec();
        traversal.look_up(self.chains.root(), packet, 0);
        Ok(traversal.verdict)
    }
}
