//! A ring for each class.

use std::future::poll_fn;
use std::task::Poll;

use sluice_control::mirror::filter::program_at;
use sluice_control::mirror::{Class, Plan, Tap};

use super::socket::PacketSocket;
use super::{Block, Ring, RingCounts, RingError, RingSize};
use crate::source::{Batch, NextBatch, Source, SourceError};
use crate::verbs::{Buffer, ProtectionDomain};
use crate::wire::{Cause, Drops, Layout, Port};

/// The taps of a plan that are network devices: one ring for each class that is or was copied, with a filter for the frames of the class at
/// the devices where it is copied. So one class never takes the room of another.
#[derive(Debug)]
pub struct RingSource {
    domain: ProtectionDomain,
    size: RingSize,
    rings: Vec<(Class, Ring)>,
    /// Whose turn it is to be looked at first.
    turn: usize,
    ports: Vec<Port>,
    /// How many plans it has followed.
    plans: u64,
}

impl RingSource {
    /// Opens a source without taps, whose rings have this size each.
    #[must_use]
    pub fn new(domain: &ProtectionDomain, size: RingSize) -> Self {
        Self { domain: domain.clone(), size, rings: Vec::new(), turn: 0, ports: Vec::new(), plans: 0 }
    }

    /// Reads the taps of this plan from now on, and no others. Returns the names of the network devices that are not there; frames of a
    /// device that appears later come after another call.
    ///
    /// # Errors
    /// Fails as [`Ring::open`] and [`Ring::set_filter`]. Rings of some classes may then have their new filters, and the others their old
    /// ones.
    pub fn follow(&mut self, plan: &Plan) -> Result<Vec<String>, RingError> {
        let names = PacketSocket::open().map_err(|source| RingError::Socket { call: "socket", source })?;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for tap in &plan.taps {
            let Some(netdev) = &tap.netdev else { continue };
            match names.ifindex(netdev) {
                Ok(ifindex) => found.push((tap, ifindex)),
                Err(_) => missing.push(netdev.clone()),
            }
        }
        for class in Class::ALL {
            let is_copied = |class| plan.classes.contains(class);
            let taps = found.iter().filter(|(tap, ..)| is_copied(class) && tap.classes.contains(class));
            let interfaces: Vec<u32> = taps.map(|(_, ifindex)| *ifindex).collect();
            let filter = program_at(class, &interfaces)?;
            match self.rings.iter().find(|(of, _)| *of == class) {
                // One that was copied keeps its ring, with what was counted there.
                Some((_, ring)) => {
                    let failed = |source| RingError::Socket { call: "SO_ATTACH_FILTER", source };
                    ring.set_filter(&filter).map_err(failed)?;
                }
                None if interfaces.is_empty() => {}
                None => self.rings.push((class, Ring::open(&self.domain, &filter, self.size)?)),
            }
        }
        let port =
            |(tap, ifindex): &(&Tap, u32)| Port { number: tap.in_port, ifindex: *ifindex, name: tap.name.clone() };
        self.plans += 1;
        self.ports = found.iter().map(port).collect();
        Ok(missing)
    }

    /// Returns what became of the frames of a class; nothing was counted if there is no ring for it.
    ///
    /// # Errors
    /// As [`Ring::counts`].
    pub fn counts(&self, class: Class) -> std::io::Result<RingCounts> {
        match self.rings.iter().find(|(of, _)| *of == class) {
            Some((_, ring)) => ring.counts(),
            None => Ok(RingCounts::default()),
        }
    }
}

impl Source for RingSource {
    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(poll_fn(move |context| {
            for place in 0..self.rings.len() {
                let at = (self.turn + place) % self.rings.len();
                let (class, ring) = &mut self.rings[at];
                match ring.poll_next(context) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(block)) => {
                        self.turn = at + 1;
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
        // An open socket has an answer; one that had none would leave the count where it was.
        let counted = |ring: &Ring| ring.counts().map_or_else(|_| ring.counts.lock().drops, |counts| counts.drops);
        let ring = self.rings.iter().find(|(of, _)| *of == class);
        drops[Cause::RingFull] = ring.map_or(0, |(_, ring)| counted(ring));
        drops
    }

    fn ports(&self) -> Vec<Port> {
        self.ports.clone()
    }

    fn revision(&self) -> u64 {
        self.plans
    }
}

fn batch(class: Class, block: Block) -> Batch {
    let Block { buffer, frames, first_ns, .. } = block;
    Batch { class, layout: Layout::Ring, frames, captured: first_ns, buffer }
}
