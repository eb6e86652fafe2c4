//! What the collector knows of each sender.

use std::collections::HashMap;
use std::fmt::Write;

use sluice_control::mirror::{CLASSES, Class};

use super::capture::{Interface, Lost};
use super::mark::{Mark, Marks};
use super::seen::PortKey;
use super::sequence::Sequence;
use crate::wire::{Cause, Drops, Hello, Layout, Port};

/// How many senders are remembered. The one that was heard of longest ago is forgotten first.
const SENDERS: usize = 256;

/// How many interfaces of a sender are remembered. They are made anew when they are asked for.
const INTERFACES: usize = 1024;

/// The header of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) sender: u64,
    pub(super) class: Class,
    pub(super) layout: Layout,
    pub(super) frames: u32,
    pub(super) sequence: u64,
    /// Frames right before it that will not come, and that the sender counts in its drops.
    pub(super) given_up: u32,
    pub(super) drops: Drops,
}

/// All senders, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Senders {
    known: HashMap<u64, Known>,
    heard: u64,
}

/// What is known of a sender.
#[derive(Debug, Default)]
pub(super) struct Known {
    name: String,
    ports: Vec<Port>,
    /// The ports before the last change: frames of one that is gone may still be on their way.
    former_ports: Vec<Port>,
    interfaces: HashMap<PortKey, Interface>,
    pub(super) classes: [ClassState; CLASSES],
    heard: u64,
}

/// What is known of a class.
#[derive(Debug, Default)]
pub(super) struct ClassState {
    pub(super) sequence: Sequence,
    /// Drops that the sender told of, with those of causes that only collectors count; and which of them files tell of already.
    drops: Drops,
    told: Drops,
    missing: u64,
    pub(super) written: u64,
    pub(super) missed: u64,
    pub(super) duplicates: u64,
}

impl Senders {
    /// As an earlier collector has left them. Of more senders than are remembered, those stay that were heard of last.
    pub(super) fn resumed(marks: Marks) -> Self {
        let mut marks: Vec<_> = marks.into_iter().collect();
        marks.sort_unstable_by_key(|(_, marked)| marked.last);
        let forgotten = marks.len().saturating_sub(SENDERS);
        let mut senders = Self::default();
        for (sender, marked) in marks.into_iter().skip(forgotten) {
            senders.known(sender).classes = marked.classes.map(|class| match class {
                Some((next, told)) => ClassState::resumed(next, told),
                None => ClassState::default(),
            });
        }
        senders
    }

    /// Takes what a sender says of itself, and returns up to where each class was taken over.
    pub(super) fn hello(&mut self, sender: u64, hello: Hello) -> [u64; CLASSES] {
        let known = self.known(sender);
        known.name = hello.name;
        if known.ports != hello.ports {
            known.former_ports = std::mem::replace(&mut known.ports, hello.ports);
            known.interfaces.clear();
        }
        known.classes.each_ref().map(|class| class.sequence.acknowledged())
    }

    /// Returns what is known of a sender, which is known from now on.
    pub(super) fn known(&mut self, sender: u64) -> &mut Known {
        self.heard += 1;
        if !self.known.contains_key(&sender) && self.known.len() >= SENDERS {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.heard).map(|(sender, _)| *sender);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        let known = self.known.entry(sender).or_default();
        known.heard = self.heard;
        known
    }

    /// Returns a mark of each class of which something was taken over, of the sender last that was heard of last.
    pub(super) fn marks(&self) -> impl Iterator<Item = Mark> {
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_unstable_by_key(|(_, known)| known.heard);
        known.into_iter().flat_map(|(sender, known)| {
            let marks = Class::ALL.into_iter().zip(&known.classes).map(|(class, state)| {
                let told = (state.told != Drops::default()).then_some(state.told);
                Mark { sender: *sender, class, next: state.sequence.acknowledged(), told }
            });
            marks.filter(|mark| mark.next > 0)
        })
    }

    /// Returns in words what has come from a sender, and what has not.
    pub(super) fn summary(&self, sender: u64) -> String {
        let Some(known) = self.known.get(&sender) else { return String::new() };
        let mut text = format!("sender {}", known.name);
        for (class, state) in Class::ALL.into_iter().zip(&known.classes) {
            let ClassState { written, missed, duplicates, drops, .. } = state;
            if [*written, *missed, *duplicates, drops.total()].iter().all(|count| *count == 0) {
                continue;
            }
            let counts = [(*missed, "missing"), (*duplicates, "twice")];
            // A text takes everything.
            let _ = write!(text, "; {class}: {written} frames");
            for (count, what) in counts.into_iter().chain(drops.iter().map(|(cause, count)| (count, cause.word()))) {
                if count > 0 {
                    let _ = write!(text, ", {count} {what}");
                }
            }
        }
        text
    }
}

impl Known {
    /// Returns the interface of the capture that frames of a port are shown at.
    pub(super) fn interface(&mut self, sender: u64, key: PortKey) -> &Interface {
        // What names ports in frames is up to the sender.
        if self.interfaces.len() >= INTERFACES && !self.interfaces.contains_key(&key) {
            self.interfaces.clear();
        }
        let (name, ports, former_ports) = (&self.name, &self.ports, &self.former_ports);
        self.interfaces.entry(key).or_insert_with(|| {
            let port = ports.iter().chain(former_ports).find(|port| match key {
                PortKey::Number(number) => port.number == number,
                PortKey::Ifindex(ifindex) => port.ifindex == ifindex,
            });
            let number = port.and_then(|port| port.number).or(match key {
                PortKey::Number(number) => number,
                PortKey::Ifindex(_) => None,
            });
            let number = number.map_or_else(|| "port unknown".to_owned(), |number| format!("port {number}"));
            let device = match key {
                PortKey::Ifindex(ifindex) => format!(", ifindex {ifindex}"),
                PortKey::Number(_) => String::new(),
            };
            Interface {
                sender,
                name: port.map_or_else(|| number.clone(), |port| port.name.clone()),
                description: format!("sender {name}, {number}{device}"),
            }
        })
    }
}

impl ClassState {
    /// As an earlier collector has left it.
    fn resumed(next: u64, told: Drops) -> Self {
        Self { sequence: Sequence::resumed(next), drops: told, told, ..Self::default() }
    }

    /// Takes the totals that a sender has told.
    pub(super) fn take_drops(&mut self, drops: Drops) {
        for (cause, count) in drops.iter() {
            self.drops[cause] = self.drops[cause].max(count);
        }
    }

    /// Notes frames that have come and are in no file.
    pub(super) fn dropped_here(&mut self, cause: Cause, frames: u64) {
        self.drops[cause] = self.drops[cause].saturating_add(frames);
    }

    /// Notes frames that have not come.
    pub(super) fn miss(&mut self, frames: u64) {
        self.missing = self.missing.saturating_add(frames);
        self.missed = self.missed.saturating_add(frames);
    }

    /// Returns what no file tells of yet.
    pub(super) fn lost(&self, class: Class) -> Option<Lost> {
        let news = |(cause, count): (Cause, u64)| (cause, count - self.told[cause]);
        let news = self.drops.iter().map(news).filter(|(_, count)| *count > 0);
        let mut frames = self.missing;
        let mut causes = format!("class {class}, lost before this frame:");
        if self.missing > 0 {
            let _ = write!(causes, " {} missing", self.missing);
        }
        for (cause, count) in news {
            frames = frames.saturating_add(count);
            let _ = write!(causes, " {count} {}", cause.word());
        }
        (frames > 0).then_some(Lost { frames, causes })
    }

    /// Returns all drops that there were, if no file tells of some of them yet.
    pub(super) fn untold(&self) -> Option<Drops> {
        (self.drops != self.told).then_some(self.drops)
    }

    /// Notes that a file tells of everything.
    pub(super) fn told(&mut self) {
        (self.told, self.missing) = (self.drops, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::mark::Marked;

    #[test]
    fn of_too_many_senders_those_are_resumed_that_were_heard_of_last_and_marked_in_that_order() {
        let marked = |last| {
            let mut marked = Marked { last, ..Marked::default() };
            marked.classes[0] = Some((last, Drops::default()));
            marked
        };
        let all = 3 * SENDERS as u64;
        // By numbers in no order.
        let number = |last: u64| last.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut senders = Senders::resumed((1..=all).map(|last| (number(last), marked(last))).collect());
        let order = |senders: &Senders| senders.marks().map(|mark| mark.next).collect::<Vec<_>>();
        assert_eq!(order(&senders), (2 * SENDERS as u64 + 1..=all).collect::<Vec<_>>());
        // The next one takes the place of the one that was heard of longest ago.
        senders.known(number(2 * SENDERS as u64 + 1));
        senders.known(1);
        assert_eq!(senders.known.len(), SENDERS);
        let left = (2 * SENDERS as u64 + 3..=all).chain([2 * SENDERS as u64 + 1]);
        assert_eq!(order(&senders), left.collect::<Vec<_>>());
    }

    #[test]
    fn frames_of_a_port_that_has_just_gone_are_shown_at_it_and_a_number_is_that_of_its_latest_port() {
        let mut senders = Senders::default();
        let port = |number, ifindex, name: &str| Port { number: Some(number), ifindex, name: name.to_owned() };
        let hello = |ports: &[Port]| Hello { ports: ports.to_vec(), ..Hello::default() };
        senders.hello(7, hello(&[port(1, 11, "stays"), port(2, 12, "goes"), port(3, 13, "goes, too")]));
        senders.hello(7, hello(&[port(1, 11, "stays"), port(2, 14, "comes")]));
        let known = senders.known(7);
        let mut name = |key| known.interface(7, key).name.clone();
        assert_eq!([11, 12, 14].map(|ifindex| name(PortKey::Ifindex(ifindex))), ["stays", "goes", "comes"]);
        assert_eq!([1, 2, 3].map(|number| name(PortKey::Number(Some(number)))), ["stays", "comes", "goes, too"]);
    }

    #[test]
    fn a_sender_whose_frames_name_ever_more_ports_costs_no_more_memory() {
        let mut known = Known::default();
        for number in 0..10 * INTERFACES {
            let number = u32::try_from(number).unwrap();
            let interface = known.interface(7, PortKey::Number(Some(number)));
            assert_eq!(interface.name, format!("port {number}"));
            assert!(known.interfaces.len() <= INTERFACES);
        }
    }

    #[test]
    fn numbers_that_nobody_can_have_counted_are_told_as_the_greatest() {
        let mut drops = Drops::default();
        (drops[Cause::RingFull], drops[Cause::QueueFull]) = (u64::MAX, 5);
        let mut senders = Senders::default();
        let state = &mut senders.known(7).classes[Class::Arp.index()];
        state.take_drops(drops);
        state.miss(u64::MAX);
        state.written = 1;
        let lost = state.lost(Class::Arp).unwrap();
        assert_eq!(lost.frames, u64::MAX);
        assert!(lost.causes.ends_with(&format!("{0} missing {0} ring-full 5 queue-full", u64::MAX)), "{}", lost.causes);
        let told = format!("; arp: 1 frames, {0} missing, {0} ring-full, 5 queue-full", u64::MAX);
        assert!(senders.summary(7).ends_with(&told), "{}", senders.summary(7));
    }
}
