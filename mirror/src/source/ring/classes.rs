//! A ring for each class.

use std::future::poll_fn;
use std::task::Poll;

use sluice_control::mirror::filter::program_at;
use sluice_control::mirror::{Class, Plan, Tap};

use super::{Block, Ring, RingCounts, RingError, RingSize};
use crate::source::following::Names;
use crate::source::{Batch, NextBatch, Source, SourceError};
use crate::verbs::{Buffer, ProtectionDomain};
use crate::wire::{Cause, Drops, Layout, Port};

/// The taps of a plan that are network devices: one ring for each class that is or was copied, with a filter for the frames of the class at
/// the devices where it is copied. So one class never takes the room of another.
#[derive(Debug)]
pub struct RingSource {
    domain: ProtectionDomain,
    size: RingSize,
    rings: Vec<ClassRing>,
    /// Whose turn it is to be looked at first.
    turn: usize,
    ports: Vec<Port>,
    revision: u64,
}

#[derive(Debug)]
struct ClassRing {
    class: Class,
    /// The devices of its filter, by their indexes.
    interfaces: Vec<u32>,
    ring: Ring,
}

impl RingSource {
    /// Opens a source without taps, whose rings have this size each.
    #[must_use]
    pub fn new(domain: &ProtectionDomain, size: RingSize) -> Self {
        Self { domain: domain.clone(), size, rings: Vec::new(), turn: 0, ports: Vec::new(), revision: 0 }
    }

    /// Reads the taps of this plan from now on, and no others. Returns the names of the network devices that are not there. A device that
    /// appears later, or that is made anew under its name, is read after another call; one that changes nothing costs little.
    ///
    /// # Errors
    /// Fails at the first class for which [`Ring::open`] or [`Ring::set_filter`] fail, which stays as it was; all others are read as is
    /// wanted. Fails, and changes nothing, if the kernel cannot be asked for devices.
    pub fn follow(&mut self, plan: &Plan) -> Result<Vec<String>, RingError> {
        let names = Names::open().map_err(RingError::Names)?;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for tap in &plan.taps {
            let Some(netdev) = &tap.netdev else { continue };
            match names.ifindex(netdev) {
                Some(ifindex) => found.push((tap, ifindex)),
                None => missing.push(netdev.clone()),
            }
        }
        let mut failed = None;
        for class in Class::ALL {
            let is_copied = |class| plan.classes.contains(class);
            let taps = found.iter().filter(|(tap, _)| is_copied(class) && tap.classes.contains(class));
            if let Err(error) = self.read(class, taps.map(|(_, ifindex)| *ifindex).collect()) {
                failed.get_or_insert(RingError::Class { class, source: Box::new(error) });
            }
        }
        let port =
            |(tap, ifindex): &(&Tap, u32)| Port { number: tap.in_port, ifindex: *ifindex, name: tap.name.clone() };
        let ports = found.iter().map(port).collect();
        if self.ports != ports {
            (self.ports, self.revision) = (ports, self.revision + 1);
        }
        failed.map_or(Ok(missing), Err)
    }

    /// Reads a class at these devices and no others.
    fn read(&mut self, class: Class, interfaces: Vec<u32>) -> Result<(), RingError> {
        match self.rings.iter_mut().find(|of| of.class == class) {
            Some(of) if of.interfaces == interfaces => {}
            // One that was copied keeps its ring, with what was counted there.
            Some(of) => {
                let failed = |source| RingError::Socket { call: "SO_ATTACH_FILTER", source };
                of.ring.set_filter(&program_at(class, &interfaces)?).map_err(failed)?;
                of.interfaces = interfaces;
            }
            None if interfaces.is_empty() => {}
            None => {
                let ring = Ring::open(&self.domain, &program_at(class, &interfaces)?, self.size)?;
                self.rings.push(ClassRing { class, interfaces, ring });
            }
        }
        Ok(())
    }

    fn ring(&self, class: Class) -> Option<&Ring> {
        self.rings.iter().find(|of| of.class == class).map(|of| &of.ring)
    }

    /// Returns what became of the frames of a class; nothing was counted if there is no ring for it.
    ///
    /// # Errors
    /// As [`Ring::counts`].
    pub fn counts(&self, class: Class) -> std::io::Result<RingCounts> {
        self.ring(class).map_or_else(|| Ok(RingCounts::default()), Ring::counts)
    }
}

impl Source for RingSource {
    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(poll_fn(move |context| {
            for place in 0..self.rings.len() {
                let at = (self.turn + place) % self.rings.len();
                let ClassRing { class, ring, .. } = &mut self.rings[at];
                match ring.poll_next(context) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(block)) => {
                        self.turn = at + 1;
                        if block.is_losing {
                            ask(ring);
                        }
                        return Poll::Ready(Ok(batch(*class, block)));
                    }
                    Poll::Ready(Err(source)) => {
                        let origin = format!("the packet ring of class {class}");
                        return Poll::Ready(Err(SourceError::Io { origin, source }));
                    }
                }
            }
            Poll::Pending
        }))
    }

    /// The block goes back to the kernel.
    fn give_back(&mut self, _: Class, buffer: Buffer) {
        drop(buffer);
    }

    fn drops(&self, class: Class) -> Drops {
        let mut drops = Drops::default();
        drops[Cause::RingFull] = self.ring(class).map_or(0, |ring| ring.counts.lock().drops);
        drops
    }

    fn count_drops(&mut self) {
        self.rings.iter().for_each(|of| ask(&of.ring));
    }

    fn ports(&self) -> Vec<Port> {
        self.ports.clone()
    }

    fn revision(&self) -> u64 {
        self.revision
    }
}

/// Has a ring count what was lost.
fn ask(ring: &Ring) {
    // An open socket has an answer; one that had none would leave the count where it was.
    ring.counts().map(drop).unwrap_or_default();
}

fn batch(class: Class, block: Block) -> Batch {
    let Block { buffer, frames, first_ns, .. } = block;
    Batch { class, layout: Layout::Ring, frames, captured: first_ns, buffer }
}
