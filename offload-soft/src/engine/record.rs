//! A packet's way, written down while it goes.

use std::sync::Arc;

use sluice_flow::action::Action;
use sluice_flow::chain::ChainId;
use sluice_flow::key::Key;
use sluice_flow::trace::{ActionEffect, Lookup, Step, TraceEvent, TriedSubtable};

use super::Packet;
use super::random::Random;
use crate::classifier::Tried;
use crate::meters::MeterState;
use crate::packet::parse;
use crate::ports::{PortState, Sequence};
use crate::rules::{Rules, Slot};
use crate::translate::fields_of;

/// What is written down, and copies of what packets change in the device.
pub(crate) struct Recorder {
    pub(crate) steps: Vec<Step>,
    depth: usize,
    /// Of the meters that packets came to, so that no tokens of the device are spent.
    meters: Vec<(Arc<MeterState>, MeterState)>,
    /// Of the sequences of the tunnel ports that packets left through, so that no numbers of the device are.
    sequences: Vec<(Arc<PortState>, Sequence)>,
    /// Of the dice.
    pub(super) random: Random,
}

impl Recorder {
    pub(crate) fn new(random: Random) -> Self {
        Self { steps: Vec::new(), depth: 0, meters: Vec::new(), sequences: Vec::new(), random }
    }

    pub(crate) fn note(&mut self, event: TraceEvent) {
        self.steps.push(Step { depth: self.depth, event });
    }

    pub(super) fn enter(&mut self) {
        self.depth += 1;
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Writes down where a packet was looked up, and what was found.
    pub(super) fn looked_up(
        &mut self,
        chain: ChainId,
        key: &Key,
        tried: Vec<Tried>,
        found: Option<u32>,
        rules: &Rules,
    ) {
        let fields = |index: u32| rules.slot(index)?.flow().map(|flow| fields_of(&flow));
        let tried = tried.into_iter().map(|subtable| TriedSubtable {
            priority: subtable.priority,
            fields: subtable.example.and_then(fields).unwrap_or_default(),
            rules: subtable.rules,
        });
        let hit = found.and_then(|index| rules.slot(index)).map(Slot::flow_id);
        self.note(TraceEvent::Lookup(Box::new(Lookup { chain, key: *key, tried: tried.collect(), hit })));
    }

    /// Writes down that an action begins; [`Recorder::finish`] gets what comes back.
    pub(super) fn begin(&mut self, action: &Action, packet: &Packet) -> usize {
        let key = key_of(packet);
        let lengths = [packet.bytes.len(); 2];
        let effect = ActionEffect { action: action.clone(), keys: [key; 2], lengths };
        self.note(TraceEvent::Action(Box::new(effect)));
        self.steps.len() - 1
    }

    /// Writes down what the action has done to the packet, unless the packet has gone on from within it.
    pub(super) fn finish(&mut self, place: usize, packet: &Packet) {
        if let TraceEvent::Action(effect) = &mut self.steps[place].event
            && !packet.bytes.is_empty()
        {
            effect.keys[1] = key_of(packet);
            effect.lengths[1] = packet.bytes.len();
        }
    }

    /// The meter's copy.
    pub(super) fn meter(&mut self, meter: &Arc<MeterState>) -> &MeterState {
        let known = self.meters.iter().position(|(of, _)| Arc::ptr_eq(of, meter));
        let place = known.unwrap_or_else(|| {
            self.meters.push((Arc::clone(meter), meter.fork()));
            self.meters.len() - 1
        });
        &self.meters[place].1
    }

    /// The copy of the port's sequence.
    pub(super) fn sequence(&mut self, port: &Arc<PortState>) -> &Sequence {
        let known = self.sequences.iter().position(|(of, _)| Arc::ptr_eq(of, port));
        let place = known.unwrap_or_else(|| {
            self.sequences.push((Arc::clone(port), port.sequence.fork()));
            self.sequences.len() - 1
        });
        &self.sequences[place].1
    }
}

fn key_of(packet: &Packet) -> Key {
    parse(&packet.bytes, packet.in_port, &packet.metadata).key
}
