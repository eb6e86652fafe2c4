//! What an entry does to a packet on a hit.

use crate::packet::{Headers, edit};
use crate::steering::deed::Deed;
use crate::steering::format::{ENTRY, Format, SteeringMemory};
use crate::steering::state::Steering;
use crate::steering::ste::entry::{Action, Anchor};
use crate::steering::ste::packet::Packet;
use crate::steering::ste::rewrite;

/// Bytes of one action in a list.
const STRIDE: usize = 8;

impl Steering {
    pub(super) fn count(&mut self, counter: u32, packet: &Packet, did: &mut Vec<Deed>) {
        let bytes = packet.frame.len();
        self.counters.count(counter, bytes);
        did.push(Deed::Counted { counter, bytes });
    }

    pub(super) fn act(
        &mut self,
        memory: &dyn SteeringMemory,
        action: Action,
        packet: &mut Packet,
        did: &mut Vec<Deed>,
    ) -> Result<(), String> {
        let place = |packet: &Packet, anchor: Anchor, offset: usize| {
            anchor.find(&packet.headers).map(|at| at + offset).ok_or(format!("the packet has no {anchor:?}"))
        };
        let from = packet.frame.len();
        let done = match action {
            Action::Tag(tag) => {
                packet.tag = Some(tag);
                did.push(Deed::Tagged(tag));
                return Ok(());
            }
            Action::Count(counter) => {
                self.count(counter, packet, did);
                return Ok(());
            }
            Action::Meter(metered) => {
                let color = self.meter_objects.color(metered, &packet.frame, &packet.headers, self.now);
                let color = color.ok_or("nobody has written the meter")?;
                color.put(&mut packet.metadata.registers_c[metered.register]);
                did.push(Deed::Metered { object: metered.object, meter: metered.meter, color });
                return Ok(());
            }
            Action::Track(tracked) => {
                let outcome = self.connections.track(tracked, &packet.frame, &packet.headers)?;
                outcome.put(&mut packet.metadata.registers_c[tracked.register]);
                did.push(Deed::Tracked { object: tracked.object, direction: tracked.direction, outcome });
                return Ok(());
            }
            Action::FirstHit { object, line, register, set } => {
                let was = self.hits.hit(object, line, set)?;
                packet.metadata.registers_c[register] = was.into();
                did.push(Deed::Hit { object, line, was });
                return Ok(());
            }
            Action::Rewrite(bytes) => {
                packet.rewrite(self.profile.steering_format, &bytes, did)?;
                self.parse(packet);
                return Ok(());
            }
            Action::RewriteList { line, actions } => {
                let list = list(line, actions, |line| memory.rewrites(line));
                return self.carry_out(memory, &list.ok_or("the list of rewrites is not all in memory")?, packet, did);
            }
            Action::RewriteByPattern { line, argument, actions } => {
                let mut list =
                    list(line, actions, |line| memory.patterns(line)).ok_or("the pattern is not all in memory")?;
                let filled = self.arguments.fill(argument, list.as_flattened_mut());
                filled.ok_or(format!("argument {argument:#x} is not all there"))?;
                return self.carry_out(memory, &list, packet, did);
            }
            Action::ReplaceTunnel { ethernet } => {
                let at = place(packet, Anchor::InnerIp, 0)?;
                edit::remove(&mut packet.frame, 0..at) && edit::insert(&mut packet.frame, 0, &vec![0; ethernet])
            }
            Action::Insert { anchor, offset, bytes } => {
                let at = place(packet, anchor, offset)?;
                edit::insert(&mut packet.frame, at, &bytes)
            }
            Action::Remove { anchor, offset, bytes } => {
                let at = place(packet, anchor, offset)?;
                edit::remove(&mut packet.frame, at..at + bytes)
            }
            Action::RemoveUpTo { start, end } => {
                let range = place(packet, start, 0)?..place(packet, end, 0)?;
                edit::remove(&mut packet.frame, range)
            }
            Action::InsertContext { id, anchor, offset, bytes, encapsulates } => {
                let at = place(packet, anchor, offset)?;
                let header = self.reformats.get(id).ok_or(format!("packet reformat context {id:#x} does not exist"))?;
                if header.data().len() != bytes {
                    return Err(format!("context {id:#x} has {} bytes, not {bytes}", header.data().len()));
                }
                if encapsulates {
                    edit::encapsulate(&mut packet.frame, header.data(), at, &self.tunnels)
                } else {
                    edit::insert(&mut packet.frame, at, header.data())
                }
            }
        };
        if !done {
            return Err("the frame ends before".to_owned());
        }
        self.parse(packet);
        did.push(Deed::Resized { from, to: packet.frame.len() });
        Ok(())
    }

    /// A list from memory: rewrites, and where the format has them there, headers put in and taken out.
    fn carry_out(
        &mut self,
        memory: &dyn SteeringMemory,
        list: &[[u8; STRIDE]],
        packet: &mut Packet,
        did: &mut Vec<Deed>,
    ) -> Result<(), String> {
        let format = self.profile.steering_format;
        for bytes in list {
            match Action::in_list(bytes, format)? {
                Some(action) => self.act(memory, action, packet, did)?,
                None => packet.rewrite(format, bytes, did)?,
            }
        }
        self.parse(packet);
        Ok(())
    }

    fn parse(&self, packet: &mut Packet) {
        packet.headers = Headers::parse(&packet.frame, &self.tunnels);
    }
}

/// So many actions from a line on; None if not all of them are there.
fn list(line: u64, actions: usize, read: impl Fn(u64) -> Option<[u8; ENTRY]>) -> Option<Vec<[u8; STRIDE]>> {
    let lines = (line..).map_while(read).take(actions.div_ceil(ENTRY / STRIDE));
    let bytes: Vec<u8> = lines.flatten().collect();
    bytes.as_chunks().0.get(..actions).map(<[_]>::to_vec)
}

impl Packet {
    /// Of the fields that share a place, the packet has one at most.
    fn rewrite(&mut self, format: Format, bytes: &[u8; STRIDE], did: &mut Vec<Deed>) -> Result<(), String> {
        let mut rewritten = None;
        for action in rewrite::decode(bytes, format)? {
            let done = action.apply(&mut self.frame, &self.headers, &mut self.metadata);
            let changed = done.change.is_some();
            rewritten = Some(done);
            if changed {
                break;
            }
        }
        did.extend(rewritten.map(Deed::Rewrote));
        Ok(())
    }
}
