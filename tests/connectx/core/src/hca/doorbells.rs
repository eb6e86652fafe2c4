//! Doorbells: what a driver rings them for, and the events and completions that it is told by.

use super::failed::{Failed, Flushing, Syndrome};
use super::queue::{CompletionQueue, SendQueue, State};
use super::request::Request;
use super::ring::{COMPLETION, ERRORS, SOLICITED, completion};
use super::state::Hca;
use crate::memory::{Fault, Memory, read_u32};
use crate::objects::Kind;

/// Types of events (PRM, "Event Types").
const EVENT_COMPLETION: u8 = 0x00;
const EVENT_COMMAND: u8 = 0x0a;

const EVENT: usize = 64;

/// Offsets in a page of doorbells.
const CQ_ARM: u64 = 0x20;
const EQ_ARM: u64 = 0x40;
const EQ_UPDATE: u64 = 0x48;
const SEND: std::ops::Range<u64> = 0x800..0xc00;
/// Where in it a request may be written whole: each as many bytes.
const BLUE_FLAME: u64 = 0x100;

/// Where in a doorbell record of completions the last request for an event is, and the number in it.
const REQUEST: u64 = 4;
const REQUEST_NUMBER: u32 = 28;

impl Hca {
    /// Interrupt vectors to be raised since the last time.
    pub fn take_interrupts(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.queues.interrupts)
    }

    /// Whether there is a queue for the events of finished commands.
    #[must_use]
    pub fn tells_commands(&self) -> bool {
        let (word, bit) = (usize::from(EVENT_COMMAND / 64), EVENT_COMMAND % 64);
        self.queues.events.values().any(|queue| queue.mask[word] >> bit & 1 == 1)
    }

    /// Tells the driver that commands are done: bit n for entry n of the command queue. Before there is a queue for such events
    /// the driver polls, and nobody is told.
    pub fn commands_done(&mut self, memory: &dyn Memory, entries: u32) {
        let mut data = [0; 28];
        data[..4].copy_from_slice(&entries.to_be_bytes());
        self.raise(memory, EVENT_COMMAND, data);
    }

    /// The driver writes into a page of doorbells.
    pub fn doorbell(&mut self, memory: &dyn Memory, uar: u32, offset: u64, data: &[u8]) {
        if self.objects.check(Kind::Uar, uar).is_err() {
            return self.complain(format!("a doorbell in page {uar}, which is nobody's"));
        }
        let word = |at: usize| {
            data.get(at..at + 4).map(|bytes| bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)))
        };
        match (offset, word(0), word(4)) {
            (EQ_ARM | EQ_UPDATE, Some(value), _) => self.event_doorbell(value, offset == EQ_ARM),
            (CQ_ARM, Some(_), Some(number)) => self.completion_doorbell(memory, number & 0xff_ffff),
            (at, Some(_), Some(number)) if SEND.contains(&at) && at.is_multiple_of(BLUE_FLAME) => {
                self.posted(memory, number >> 8);
            }
            // The other half of one that came in two writes, or of a request written whole into the page: the first half, or the
            // first 8 bytes of it, have said all.
            (at, _, _) if SEND.contains(&at) => {}
            _ => self.complain(format!("a write of {} bytes at {offset:#x} of a page of doorbells", data.len())),
        }
    }

    /// Puts an event into every queue that wants its type.
    pub(crate) fn raise(&mut self, memory: &dyn Memory, kind: u8, data: [u8; 28]) {
        let (word, bit) = (usize::from(kind / 64), kind % 64);
        let wants = |mask: &[u64; 4]| mask[word] >> bit & 1 == 1;
        let numbers: Vec<u32> =
            self.queues.events.iter().filter(|(_, queue)| wants(&queue.mask)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.post_event(memory, number, kind, data);
        }
    }

    fn post_event(&mut self, memory: &dyn Memory, number: u32, kind: u8, data: [u8; 28]) {
        let Some(queue) = self.queues.events.get_mut(&number) else { return };
        if queue.producer.wrapping_sub(queue.consumer) & 0xff_ffff >= queue.ring.entries() {
            return self.complain(format!("EQ {number} ran over"));
        }
        let mut bytes = [0; EVENT];
        bytes[1] = kind;
        bytes[32..60].copy_from_slice(&data);
        bytes[EVENT - 1] = queue.ring.owner(queue.producer);
        let written = memory.write(queue.ring.address(queue.producer), &bytes);
        queue.producer = queue.producer.wrapping_add(1);
        if std::mem::take(&mut queue.armed) {
            self.queues.interrupts.push(queue.vector);
        }
        self.note(written);
    }

    fn event_doorbell(&mut self, value: u32, arm: bool) {
        let (number, consumer) = (value >> 24, value & 0xff_ffff);
        let Some(queue) = self.queues.events.get_mut(&number) else {
            return self.complain(format!("a doorbell of EQ {number}, which does not exist"));
        };
        queue.consumer = consumer;
        if arm {
            queue.armed = true;
            // What came in between would else be seen only with the next event.
            if queue.producer & 0xff_ffff != consumer {
                queue.armed = false;
                self.queues.interrupts.push(queue.vector);
            }
        }
    }

    fn completion_doorbell(&mut self, memory: &dyn Memory, number: u32) {
        let Some(queue) = self.queues.completions.get_mut(&number) else {
            return self.complain(format!("a doorbell of CQ {number:#x}, which does not exist"));
        };
        queue.armed = true;
        match read_u32(memory, queue.doorbell_record) {
            Ok(consumer) if consumer & 0xff_ffff == queue.producer & 0xff_ffff => {}
            Ok(_) => self.complete_event(memory, number),
            Err(fault) => self.complain(fault.to_string()),
        }
    }

    /// Has a program's requests for events be found in the doorbell record, since nobody tells of its doorbells.
    ///
    /// Each has a number there, one more than that of the last event, modulo 4. The first has 0, as an untouched record has; so the
    /// record gets another one before the program has the queue.
    pub fn watch_requests(&mut self, memory: &dyn Memory, number: u32) -> Result<(), Fault> {
        const BEFORE_FIRST: u32 = 3;
        let Some(queue) = self.queues.completions.get_mut(&number) else { return Ok(()) };
        memory.write(queue.doorbell_record + REQUEST, &(BEFORE_FIRST << REQUEST_NUMBER).to_be_bytes())?;
        queue.request = Some(BEFORE_FIRST);
        Ok(())
    }

    /// Looks for such requests.
    pub(crate) fn look_for_requests(&mut self, memory: &dyn Memory) {
        const ONLY_SOLICITED: u32 = 1 << 24;
        let watched = self.queues.completions.iter().filter(|(_, queue)| queue.request.is_some());
        let read =
            |(number, queue): (&u32, &CompletionQueue)| (*number, read_u32(memory, queue.doorbell_record + REQUEST));
        let words: Vec<_> = watched.map(read).collect();
        for (number, word) in words {
            let Some(queue) = self.queues.completions.get_mut(&number) else { continue };
            let word = match word {
                Ok(word) => word,
                Err(fault) => {
                    queue.request = None;
                    self.complain(format!("CQ {number:#x}: {fault}"));
                    continue;
                }
            };
            let request = word >> REQUEST_NUMBER & 3;
            if queue.request == Some(request) {
                continue;
            }
            let behind = |counter: u32| counter.wrapping_sub(word) & 0xff_ffff;
            queue.request = Some(request);
            queue.armed = true;
            queue.only_marked = word & ONLY_SOLICITED != 0;
            // What has come in between is told now.
            let is_due = if queue.only_marked {
                queue.behind_marked.is_some_and(|at| (1..=queue.ring.entries()).contains(&behind(at)))
            } else {
                behind(queue.producer) != 0
            };
            if is_due {
                self.complete_event(memory, number);
            }
        }
    }

    fn complete_event(&mut self, memory: &dyn Memory, number: u32) {
        let Some(queue) = self.queues.completions.get_mut(&number) else { return };
        if std::mem::take(&mut queue.armed) {
            let mut data = [0; 28];
            data[24..28].copy_from_slice(&number.to_be_bytes());
            let eq = queue.eq;
            self.post_event(memory, eq, EVENT_COMPLETION, data);
        }
    }

    /// Carries out what is posted to send queues that are ready, without waiting for a doorbell. Answers of how many queues.
    pub(crate) fn run_send_queues(&mut self, memory: &dyn Memory) -> usize {
        let ready = self.queues.sends.iter().filter(|(_, queue)| queue.state == State::Ready);
        let read = |(number, queue): (&u32, &SendQueue)| {
            (*number, queue.consumer, read_u32(memory, queue.doorbell_record + 4))
        };
        let producers: Vec<_> = ready.map(read).collect();
        let mut done = 0;
        for (number, consumer, producer) in producers {
            match producer {
                Ok(producer) if producer & 0xffff == u32::from(consumer) => {}
                Ok(_) => {
                    self.send_doorbell(memory, number);
                    done += 1;
                }
                Err(fault) => {
                    self.lose_sends(number, &fault.to_string());
                }
            }
        }
        done + self.flush_failed_queues(memory)
    }

    /// A send queue has work, be it one of its own or that of a queue pair.
    fn posted(&mut self, memory: &dyn Memory, number: u32) {
        if self.queues.pairs.contains_key(&number) {
            self.run_queue_pair(memory, number);
        } else {
            self.send_doorbell(memory, number);
        }
    }

    fn send_doorbell(&mut self, memory: &dyn Memory, number: u32) {
        loop {
            let Some(queue) = self.queues.sends.get_mut(&number) else {
                return self.complain(format!("a doorbell of SQ {number:#x}, which does not exist"));
            };
            let state = queue.state;
            if state == State::Error && queue.flushing != Flushing::Off {
                self.flush_failed_queues(memory);
                return;
            }
            if state != State::Ready {
                return self.complain(format!("a doorbell of SQ {number:#x}, which is {state:?}"));
            }
            let producer = match read_u32(memory, queue.doorbell_record + 4) {
                Ok(producer) => producer & 0xffff,
                Err(fault) => return self.complain(fault.to_string()),
            };
            if u32::from(queue.consumer) == producer {
                return;
            }
            let at = queue.consumer;
            let request = match Request::read(memory, &queue.ring, at) {
                Ok(request) => request,
                Err(reason) => return self.lose_sends(number, &reason),
            };
            queue.consumer = at.wrapping_add(request.blocks());
            let (cq, user_index) = (queue.cq, queue.user_index);
            if let Err(Failed { syndrome, reason }) = self.carry_out(memory, number, &request) {
                self.complain(format!("SQ {number:#x}: {reason}"));
                return self.fail_send(memory, number, (&request, syndrome));
            }
            if request.wants_completion() {
                self.post_completion(memory, cq, (number, user_index), &request, None);
            }
        }
    }

    /// Tells of a request of a queue, by the queue's number and the driver's own for it.
    pub(crate) fn post_completion(
        &mut self,
        memory: &dyn Memory,
        cq: u32,
        (sq, user_index): (u32, u32),
        request: &Request,
        error: Option<Syndrome>,
    ) {
        const REQUEST_DONE: u8 = 0x0;
        const REQUEST_FAILED: u8 = 0xd;
        let bytes = completion((request.opcode, sq), user_index, request.index, error);
        self.complete(memory, cq, if error.is_none() { REQUEST_DONE } else { REQUEST_FAILED }, bytes);
    }

    /// Writes a completion, of which the last byte is completed here.
    pub(crate) fn complete(&mut self, memory: &dyn Memory, cq: u32, opcode: u8, mut bytes: [u8; COMPLETION]) {
        let Some(queue) = self.queues.completions.get_mut(&cq) else { return };
        let is_solicited = bytes[COMPLETION - 1] & SOLICITED != 0;
        bytes[COMPLETION - 1] |= opcode << 4 | queue.ring.owner(queue.producer);
        let consumer = read_u32(memory, queue.doorbell_record);
        let full = |consumer: u32| queue.producer.wrapping_sub(consumer) & 0xff_ffff >= queue.ring.entries();
        match consumer {
            Ok(consumer) if full(consumer) => return self.complain(format!("CQ {cq:#x} ran over")),
            Ok(_) => {}
            Err(fault) => return self.complain(fault.to_string()),
        }
        let written = memory.write(queue.ring.address(queue.producer), &bytes);
        queue.producer = queue.producer.wrapping_add(1);
        let is_marked = is_solicited || ERRORS.contains(&opcode);
        if is_marked {
            queue.behind_marked = Some(queue.producer);
        }
        let is_wanted = is_marked || !queue.only_marked;
        self.note(written);
        if is_wanted {
            self.complete_event(memory, cq);
        }
    }

    pub(crate) fn note(&mut self, outcome: Result<(), Fault>) {
        if let Err(fault) = outcome {
            self.complain(fault.to_string());
        }
    }
}
