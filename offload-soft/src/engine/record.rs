//! A packet's way, written down while it goes.

use std::sync::Arc;

use sluice_flow::action::Action;
use sluice_flow::key::Key;
use sluice_flow::trace::{ActionEffect, Lookup, Step, TraceEvent, TriedSubtable};

use super::Packet;
use crate::chains::Chain;
use crate::classifier::View;
use crate::meters::MeterState;
use crate::packet::parse;
use crate::rules::{Rules, Slot};
use crate::translate::fields_of;

/// What is written down.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) steps: Vec<Step>,
    depth: usize,
    /// Copies of the meters that packets came to, so that no tokens of the device are spent.
    meters: Vec<(Arc<MeterState>, MeterState)>,
}

impl Recorder {
    pub(crate) fn note(&mut self, event: TraceEvent) {
        self.steps.push(Step { depth: self.depth, event });
    }

    pub(super) fn enter(&mut self) {
        self.depth += 1;
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Looks a packet up and writes down where.
    pub(super) fn look_up(&mut self, chain: &Chain, view: &View<'_>, key: &Key, rules: &Rules) -> Option<u32> {
        let (tried, found) = view.trace(key);
        let fields = |index: u32| rules.slot(index)?.flow().map(|flow| fields_of(&flow));
        let tried = tried.into_iter().map(|subtable| TriedSubtable {
            priority: subtable.priority,
            fields: subtable.example.and_then(fields).unwrap_or_default(),
            rules: subtable.rules,
        });
        let hit = found.and_then(|index| rules.slot(index)).map(Slot::flow_id);
        self.note(TraceEvent::Lookup(Box::new(Lookup { chain: chain.id, key: *key, tried: tried.collect(), hit })));
        found
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
}

fn key_of(packet: &Packet) -> Key {
    parse(&packet.bytes, packet.in_port, &packet.metadata).key
}
