//! Frames that come in together, and are looked up together.

use std::sync::atomic::Ordering;

use sluice_flow::key::Key;

use super::drops::Loss;
use super::packet::Packet;
use super::traversal::{Origin, Traversal};
use crate::packet::{Layout, Metadata, parse_into};
use crate::ports::PortState;
use crate::translate::{Program, Step};

/// Frames in a burst. Half of what OVS takes (`NETDEV_MAX_BURST`), as their keys are to stay in the nearest cache.
const SIZE: usize = 16;

/// What is known of the frames of a burst, one by one.
pub(crate) struct Burst {
    keys: [Key; SIZE],
    layouts: [Layout; SIZE],
    found: [Option<u32>; SIZE],
}

impl Burst {
    /// Frames that it takes.
    pub(crate) const SIZE: usize = SIZE;

    pub(crate) fn new() -> Self {
        Self { keys: [Key::ZERO; SIZE], layouts: [Layout::default(); SIZE], found: [None; SIZE] }
    }
}

impl Traversal<'_> {
    /// Takes a burst of frames that come in at a port over which no tunnel runs, and that is not recorded.
    pub(crate) fn enter_burst(&mut self, port: &PortState, frames: &[&[u8]], burst: &mut Burst) {
        let number = port.port.number;
        let metadata = Metadata::default();
        let Burst { keys, layouts, found } = burst;
        let count = frames.len().min(SIZE);
        for ((frame, key), layout) in frames.iter().zip(&mut *keys).zip(&mut *layouts) {
            *layout = parse_into(frame, number, &metadata, key);
        }
        port.count_rx_burst(count, frames.iter().take(count).map(|frame| frame.len()).sum());
        self.root.rules.view(self.pin).lookup_batch(&keys[..count], &mut found[..count]);
        if !self.mirrors.is_empty() {
            let known = frames.iter().zip(&*keys).zip(&*layouts).zip(&*found);
            for (((frame, key), _), rule) in known.filter(|((_, layout), _)| !layout.is_malformed) {
                self.mirror(key, frame, true, Origin { in_port: number, rule: *rule });
            }
        }
        let slots = found.map(|index| index.and_then(|index| self.rules.slot(index)));
        // Read for all, so that they are fetched at the same time.
        std::hint::black_box(slots.iter().flatten().fold(0, |sum, slot| sum ^ slot.flow_id().slot));
        let mut hits = 0;
        let known = frames.iter().zip(&*keys).zip(&*layouts);
        for ((((frame, key), layout), slot), rule) in known.zip(slots).zip(&*found) {
            if layout.is_malformed {
                self.lose(Loss::Malformed);
                continue;
            }
            let Some(slot) = slot else {
                self.miss(self.root);
                continue;
            };
            hits += 1;
            self.hit(slot, key, frame.len());
            let programs = self.programs;
            if let Some(program) = programs.get(slot.program()).as_ref() {
                self.run_on_frame(program, Origin { in_port: number, rule: *rule }, frame, layout);
            }
        }
        self.lookup_counts.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// Does what a rule says with a frame that just came in. One that is only sent on is not copied.
    fn run_on_frame(&mut self, program: &Program, origin: Origin, frame: &[u8], layout: &Layout) {
        if !program.only_outputs {
            let mut packet = Packet::new(frame.to_vec(), origin.in_port, Metadata::default());
            packet.rule = origin.rule;
            packet.layout = *layout;
            self.lookups = 1;
            self.level = 0;
            self.deferred.clear();
            return self.run_program(program, packet, 0);
        }
        for step in &program.steps {
            if let Step::Output(number) = step {
                match self.ports.get(*number) {
                    Some(port) if port.tunnel().is_none() => self.leave(port, frame, origin),
                    // It is not there, or there is no outer header for it.
                    _ => self.lose(Loss::Output),
                }
            }
        }
    }
}
