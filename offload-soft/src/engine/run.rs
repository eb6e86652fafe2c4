//! Running lists of actions (`do_execute_actions` and `clone_execute` in net/openvswitch/actions.c).

use std::sync::Arc;

use sluice_flow::action::Action;
use sluice_flow::backend::Sample;
use sluice_flow::port::PortNumber;

use super::drops::Loss;
use super::merge::Missing;
use super::packet::Packet;
use super::traversal::Traversal;
use super::{hash, mpls, nsh, rewrite};
use crate::chains::Chain;
use crate::conntrack::{self, Stop};
use crate::packet::{Metadata, parse};
use crate::translate::{List, Program, Step};

/// Programs and lists within each other, up to which what they hold is run at once. Deeper down it waits until the
/// first program is through (`OVS_DEFERRED_ACTION_THRESHOLD`).
const LEVELS: usize = 3;
/// What may wait, for each frame (`DEFERRED_ACTION_FIFO_SIZE`, of which one place is never used).
const MAX_DEFERRED: usize = 9;

/// Something to be done when the first program is through.
pub(crate) struct Deferred {
    packet: Packet,
    depth: usize,
    work: Work,
}

enum Work {
    LookUp(Arc<Chain>),
    Run(List),
}

/// Why a list of actions, and with it those around it, ends before its end.
enum Failure {
    Missing,
    /// It has been counted why.
    Counted,
}

impl From<Missing> for Failure {
    fn from(Missing: Missing) -> Self {
        Self::Missing
    }
}

impl Traversal<'_> {
    /// Does what a rule says.
    pub(super) fn run_program(&mut self, program: &Program, packet: Packet, depth: usize) {
        self.level += 1;
        let done = self.run(&program.steps, &program.actions, packet, depth);
        self.note(done);
        let mut next = 0;
        while self.level == 1 && next < self.deferred.len() {
            match self.deferred[next].take() {
                Some(Deferred { packet, depth, work: Work::LookUp(chain) }) => {
                    let done = self.look_up(&chain, packet, depth);
                    self.note(done.map_err(Failure::from));
                }
                Some(Deferred { packet, depth, work: Work::Run(list) }) => {
                    let done = self.run(&list.steps, &list.actions, packet, depth);
                    self.note(done);
                }
                None => {}
            }
            next += 1;
        }
        self.level -= 1;
    }

    fn note(&mut self, done: Result<(), Failure>) {
        if let Err(Failure::Missing) = done {
            // As in the kernel, where the action fails and the packet goes no further.
            self.lose(Loss::MissingHeader);
        }
    }

    /// Runs a list. A packet that an action fails on goes no further, in the lists around it either.
    fn run(&mut self, steps: &[Step], actions: &[Action], packet: Packet, depth: usize) -> Result<(), Failure> {
        if let Some(recorder) = &mut self.recorder {
            recorder.enter();
        }
        let done = self.run_steps(steps, actions, packet, depth);
        if let Some(recorder) = &mut self.recorder {
            recorder.leave();
        }
        done
    }

    fn run_steps(
        &mut self,
        steps: &[Step],
        actions: &[Action],
        mut packet: Packet,
        depth: usize,
    ) -> Result<(), Failure> {
        let last = steps.len().saturating_sub(1);
        for (index, step) in steps.iter().enumerate() {
            let is_last = index == last;
            let recorded = self.recorder.as_mut().map(|recorder| recorder.begin(&actions[index], &packet));
            match step {
                Step::Output(port) => {
                    self.output(*port, &packet, is_last);
                    packet.kept = usize::MAX;
                }
                Step::Set(set) => rewrite::apply(&mut packet, set)?,
                Step::CheckPacketLength { length, greater, less_or_equal } => {
                    let list = if conntrack::length(&packet) > *length { greater } else { less_or_equal };
                    self.nested(list, take_or_copy(&mut packet, is_last), depth)?;
                }
                Step::Conntrack(action) => match self.conntrack.execute(action, &mut packet, self.now) {
                    Ok(()) => {}
                    Err(Stop::Waits) => return Ok(()),
                    Err(Stop::Dropped) => {
                        self.lose(Loss::Conntrack);
                        return Err(Failure::Counted);
                    }
                },
                Step::ConntrackClear => conntrack::clear(&mut packet),
                Step::Clone(list) => self.nested(list, take_or_copy(&mut packet, is_last), depth)?,
                Step::DecTtl(list) => {
                    if !rewrite::dec_ttl(&mut packet)? {
                        return self.nested(list, packet, depth);
                    }
                }
                Step::Hash { algorithm, basis } => {
                    let key = parse(&packet.bytes, packet.in_port, &packet.metadata).key;
                    packet.metadata.hash = hash::connection(&key, *algorithm, *basis);
                }
                Step::Meter(meter) => {
                    let meter = match &mut self.recorder {
                        Some(recorder) => recorder.meter(meter),
                        None => meter,
                    };
                    if !meter.passes(packet.length(), self.now) {
                        return Ok(());
                    }
                }
                Step::PopEth => packet.pop_eth()?,
                Step::PopMpls(ethernet_type) => mpls::pop(&mut packet, *ethernet_type)?,
                Step::PopNsh => nsh::pop(&mut packet)?,
                Step::PopVlan => packet.pop_vlan()?,
                Step::Psample { group, cookie } => {
                    let bytes = packet.bytes[..packet.kept.min(packet.length()) + packet.tag_length()].to_vec();
                    let rate = packet.probability;
                    self.observer.sampled(Sample { group: *group, cookie: cookie.clone(), bytes, rate });
                    packet.kept = usize::MAX;
                }
                Step::PushEth(addresses) => packet.push_eth(*addresses)?,
                Step::PushMpls { entry, inside_ethernet } => mpls::push(&mut packet, *entry, *inside_ethernet),
                Step::PushNsh(header) => nsh::push(&mut packet, header)?,
                Step::PushVlan(tag) => packet.push_vlan(*tag)?,
                Step::Recirc(chain) => self.recirculate(chain, take_or_copy(&mut packet, is_last), depth)?,
                Step::Sample { probability, list } => {
                    let random = self.recorder.as_ref().map_or(self.random, |recorder| &recorder.random);
                    if random.picks(*probability) {
                        let mut sampled = take_or_copy(&mut packet, is_last);
                        sampled.probability = both(sampled.probability, *probability);
                        self.nested(list, sampled, depth)?;
                    }
                }
                Step::SetTunnel(encapsulation) => packet.encapsulation = Some(Arc::clone(encapsulation)),
                Step::TunnelPop(port) => self.tunnel_pop(*port, &take_or_copy(&mut packet, is_last), depth)?,
                Step::TunnelPush(push) => {
                    if !self.tunnel_push(push, &mut packet) {
                        self.lose(Loss::Output);
                        return Ok(());
                    }
                    if is_last {
                        self.output(push.out_port, &packet, true);
                    }
                }
                Step::Trunc(bytes) => packet.kept = *bytes,
            }
            if let (Some(recorder), Some(recorded)) = (&mut self.recorder, recorded) {
                recorder.finish(recorded, &packet);
            }
        }
        Ok(())
    }

    fn nested(&mut self, list: &List, packet: Packet, depth: usize) -> Result<(), Failure> {
        if list.is_level {
            return self.run(&list.steps, &list.actions, packet, depth);
        }
        if self.level > LEVELS {
            self.defer(packet, depth, || Work::Run(list.clone()));
            return Ok(());
        }
        self.level += 1;
        let done = self.run(&list.steps, &list.actions, packet, depth);
        self.level -= 1;
        done
    }

    fn recirculate(&mut self, chain: &Arc<Chain>, mut packet: Packet, depth: usize) -> Result<(), Missing> {
        packet.metadata.chain = chain.id;
        if self.level > LEVELS {
            self.defer(packet, depth + 1, || Work::LookUp(Arc::clone(chain)));
            return Ok(());
        }
        self.look_up(chain, packet, depth + 1)
    }

    fn defer(&mut self, packet: Packet, depth: usize, work: impl FnOnce() -> Work) {
        if self.deferred.len() == MAX_DEFERRED {
            self.lose(Loss::Deferred);
        } else {
            self.deferred.push(Some(Deferred { packet, depth, work: work() }));
        }
    }
}

/// The packet itself for the last that is done with it, else a copy.
fn take_or_copy(packet: &mut Packet, is_last: bool) -> Packet {
    if is_last {
        return std::mem::replace(packet, empty());
    }
    let mut copy = packet.clone();
    copy.tracked.is_cut_anew();
    copy
}

fn empty() -> Packet {
    Packet::new(Vec::new(), PortNumber(0), Metadata::default())
}

/// The probability that both happen; where it is too small to be told, that of the inner one, as in the kernel.
fn both(outer: u32, inner: u32) -> u32 {
    let outer = if outer == 0 { u32::MAX } else { outer };
    u32::try_from(u64::from(outer) * u64::from(inner) / u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
