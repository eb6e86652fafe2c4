//! Requests of reliable connections, carried out at the other side at once, if that answers: NOP, SEND, RDMA WRITE, both with immediate
//! data, too, RDMA READ, and the one that writes arguments of rewrites.
//!
//! An answer needs a queue pair that is ready, is connected back, has an address of this device, and expects the packet that comes.

use std::time::Duration;

use super::failed::{Failed, Syndrome};
use super::key::Use;
use super::pair::{Cause, Connection, PairState, QueuePair, Receives, Service, Waiting, behind};
use super::request::Request;
use super::ring::{SOLICITED, completion};
use super::scatter::{self, Buffer};
use super::state::Hca;
use crate::memory::{Memory, read_u32};
use crate::steering::arguments::ARGUMENT;

const NOP: u8 = 0x00;
const RDMA_WRITE: u8 = 0x08;
const RDMA_WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
const RDMA_READ: u8 = 0x10;
const FLOW_TABLE_ACCESS: u8 = 0x2c;

/// Opcodes of completions at the other side (PRM, "Completion Queue Entry").
const RECEIVED_WRITE: u8 = 0x1;
const RECEIVED_SEND: u8 = 0x2;
const RECEIVED_SEND_IMMEDIATE: u8 = 0x3;
const RECEIVE_FAILED: u8 = 0xe;

/// How far a request has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Waits(Cause),
}

/// A piece of a request's data.
enum Piece {
    Inline(Vec<u8>),
    Under { key: u32, address: u64, length: usize },
}

/// A request of a connection, taken apart.
struct Message {
    opcode: u8,
    immediate: [u8; 4],
    is_solicited: bool,
    /// Key and address at the other side, of those that name them.
    remote: (u32, u64),
    pieces: Vec<Piece>,
}

impl Message {
    fn parse(request: &Request) -> Result<Self, String> {
        const IMMEDIATE: usize = 12;
        const SEGMENTS: usize = 16;
        const INLINE: u32 = 1 << 31;
        let short = || "a request ends within its segments".to_owned();
        let word = |at| request.word(at).ok_or_else(short);
        let address = |at| Ok::<_, String>(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
        let (remote, mut at) = match request.opcode {
            SEND | SEND_IMMEDIATE => ((0, 0), SEGMENTS),
            RDMA_WRITE | RDMA_WRITE_IMMEDIATE | RDMA_READ => ((word(SEGMENTS + 8)?, address(SEGMENTS)?), SEGMENTS + 16),
            opcode => return Err(format!("requests of opcode {opcode:#x} are not modelled")),
        };
        let mut pieces = Vec::new();
        while let Some(length) = request.word(at) {
            let size = (length & !INLINE) as usize;
            if length & INLINE != 0 {
                pieces.push(Piece::Inline(request.bytes(at + 4, size).ok_or_else(short)?.to_vec()));
                at += (4 + size).next_multiple_of(16);
            } else {
                pieces.push(Piece::Under { key: word(at + 4)?, address: address(at + 8)?, length: size });
                at += 16;
            }
        }
        let immediate = word(IMMEDIATE)?.to_be_bytes();
        let (opcode, is_solicited) = (request.opcode, request.is_solicited());
        Ok(Self { opcode, immediate, is_solicited, remote, pieces })
    }

    /// The data that it brings.
    fn gather(&self, hca: &Hca, memory: &dyn Memory) -> Result<Vec<u8>, Failed> {
        let mut data = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Inline(bytes) => data.extend_from_slice(bytes),
                Piece::Under { key, address, length } => {
                    let at = data.len();
                    data.resize(at + length, 0);
                    hca.read_by_key(memory, (*key, *address), Use::LocalRead, &mut data[at..])?;
                }
            }
        }
        Ok(data)
    }
}

impl Hca {
    /// Carries a request of a queue pair out.
    pub(super) fn carry_out_remotely(
        &mut self,
        memory: &dyn Memory,
        number: u32,
        request: &Request,
    ) -> Result<Progress, Failed> {
        match request.opcode {
            NOP => return Ok(Progress::Done),
            FLOW_TABLE_ACCESS => return Ok(self.write_argument(request).map(|()| Progress::Done)?),
            _ => {}
        }
        let is_connected = |pair: &QueuePair| pair.service == Service::ReliableConnection;
        if !self.queues.pairs.get(&number).is_some_and(is_connected) {
            return Err(format!("requests of opcode {:#x} are not modelled", request.opcode).into());
        }
        let message = Message::parse(request)?;
        let data = if message.opcode == RDMA_READ { Vec::new() } else { message.gather(self, memory)? };
        let Some(peer) = self.answering(number) else { return Ok(Progress::Waits(Cause::NoAnswer)) };
        let packets_of = |hca: &Self, length| hca.connection(number).map_or(0, |connection| connection.packets(length));
        let (progress, packets) = match message.opcode {
            SEND | SEND_IMMEDIATE => {
                let packets = packets_of(self, data.len());
                (self.deliver(memory, peer, &message, &data)?, packets)
            }
            RDMA_READ => {
                let length = self.read_remotely(memory, (number, peer), &message)?;
                (Progress::Done, packets_of(self, length))
            }
            _ => {
                let packets = packets_of(self, data.len());
                (self.write_remotely(memory, (number, peer), &message, &data)?, packets)
            }
        };
        if progress == Progress::Done {
            if let Some(pair) = self.queues.pairs.get_mut(&number) {
                pair.connection.next_send = behind(pair.connection.next_send, packets);
            }
            if let Some(pair) = self.queues.pairs.get_mut(&peer) {
                pair.connection.next_receive = behind(pair.connection.next_receive, packets);
            }
        }
        Ok(progress)
    }

    fn connection(&self, number: u32) -> Option<&Connection> {
        self.queues.pairs.get(&number).map(|pair| &pair.connection)
    }

    /// The queue pair that answers what another one sends next.
    fn answering(&self, number: u32) -> Option<u32> {
        let connection = self.connection(number)?;
        let is_here = connection.loopback || self.queues.addresses.values().any(|own| *own == connection.address);
        let answers = |peer: &&QueuePair| {
            peer.service == Service::ReliableConnection
                && matches!(peer.state, PairState::ReadyToReceive | PairState::ReadyToSend)
                && peer.connection.remote == number
                && peer.connection.next_receive == connection.next_send
        };
        let peer = self.queues.pairs.get(&connection.remote).filter(answers);
        peer.filter(|_| is_here).map(|_| connection.remote)
    }

    /// Has a request wait, or fail if it has waited as often as was agreed on.
    pub(super) fn wait(&mut self, number: u32, cause: Cause) -> Result<(), Failed> {
        const UNLIMITED: u8 = 7;
        /// How often somebody is asked who may take for ever to answer.
        const FOR_EVER: Duration = Duration::from_millis(1);
        let clock = self.clock;
        let remote = self.connection(number).map_or(0, |connection| connection.remote);
        let rnr_delay = self.connection(remote).map_or(FOR_EVER, Connection::rnr_delay);
        let Some(pair) = self.queues.pairs.get_mut(&number) else { return Ok(()) };
        let before = pair.waiting.filter(|waiting| waiting.cause == cause).map_or(0, |waiting| waiting.tries);
        let tries = before + 1;
        let connection = &pair.connection;
        let (most, delay) = match cause {
            Cause::NoBuffer if connection.rnr_retries == UNLIMITED => (u32::MAX, rnr_delay),
            Cause::NoBuffer => (connection.rnr_retries.into(), rnr_delay),
            // The last one is waited for, too.
            Cause::NoAnswer => match connection.patience() {
                Some(patience) => (u32::from(connection.retries) + 1, patience),
                None => (u32::MAX, FOR_EVER),
            },
        };
        if tries > most {
            let (syndrome, reason) = match cause {
                Cause::NoBuffer => (Syndrome::NoBuffer, format!("QP {remote:#x} had no buffer {tries} times")),
                Cause::NoAnswer => (Syndrome::NoAnswer, format!("QP {remote:#x} did not answer {before} times")),
            };
            return Err(Failed { syndrome, reason });
        }
        pair.waiting = Some(Waiting { cause, until: clock + delay, tries });
        Ok(())
    }

    /// A message, put into the next buffers of a queue pair.
    fn deliver(&mut self, memory: &dyn Memory, to: u32, message: &Message, data: &[u8]) -> Result<Progress, Failed> {
        let (index, buffers) = match self.take_receive(memory, to) {
            Ok(Some(taken)) => taken,
            Ok(None) => return Ok(self.without_buffer()),
            Err(reason) => {
                self.fail(to, PairState::Lost, &reason);
                return Ok(Progress::Waits(Cause::NoAnswer));
            }
        };
        let room = buffers.iter().fold(0, |room: usize, buffer| room.saturating_add(buffer.length));
        if data.len() > room {
            self.fail_receiver(memory, to, (index, Syndrome::LocalLength));
            let reason = format!("{} bytes, and QP {to:#x} has buffers of {room}", data.len());
            return Err(Failed { syndrome: Syndrome::RemoteRequest, reason });
        }
        if let Err(Failed { syndrome, reason }) = self.scatter(memory, &buffers, data) {
            self.fail_receiver(memory, to, (index, syndrome));
            return Err(Failed { syndrome: Syndrome::RemoteOperation, reason });
        }
        let opcode = if message.opcode == SEND { RECEIVED_SEND } else { RECEIVED_SEND_IMMEDIATE };
        self.tell_receiver(memory, to, (opcode, index), message, data.len());
        Ok(Progress::Done)
    }

    fn write_remotely(
        &mut self,
        memory: &dyn Memory,
        (from, to): (u32, u32),
        message: &Message,
        data: &[u8],
    ) -> Result<Progress, Failed> {
        self.require_access(from, to, |connection| connection.remote_write)?;
        let receive = if message.opcode == RDMA_WRITE_IMMEDIATE {
            match self.take_receive(memory, to) {
                Ok(Some((index, _))) => Some(index),
                Ok(None) => return Ok(self.without_buffer()),
                Err(reason) => {
                    self.fail(to, PairState::Lost, &reason);
                    return Ok(Progress::Waits(Cause::NoAnswer));
                }
            }
        } else {
            None
        };
        self.count_down()?;
        if !data.is_empty()
            && let Err(failed) = self.write_by_key(memory, message.remote, Use::RemoteWrite, data)
        {
            self.end_other(from, to);
            return Err(failed);
        }
        if let Some(index) = receive {
            self.tell_receiver(memory, to, (RECEIVED_WRITE, index), message, data.len());
        }
        Ok(Progress::Done)
    }

    /// Reads; how many bytes.
    fn read_remotely(
        &mut self,
        memory: &dyn Memory,
        (from, to): (u32, u32),
        message: &Message,
    ) -> Result<usize, Failed> {
        self.require_access(from, to, |connection| connection.remote_read)?;
        let (key, mut remote) = message.remote;
        let mut done = 0;
        for piece in &message.pieces {
            let Piece::Under { key: local, address, length } = piece else {
                return Err("what is read cannot go into the request".into());
            };
            let mut bytes = vec![0; *length];
            if let Err(failed) = self.read_by_key(memory, (key, remote), Use::RemoteRead, &mut bytes) {
                self.end_other(from, to);
                return Err(failed);
            }
            self.write_by_key(memory, (*local, *address), Use::LocalWrite, &bytes)?;
            remote += *length as u64;
            done += length;
        }
        Ok(done)
    }

    fn require_access(&mut self, from: u32, to: u32, allows: impl Fn(&Connection) -> bool) -> Result<(), Failed> {
        if self.connection(to).is_some_and(allows) {
            return Ok(());
        }
        self.end_other(from, to);
        Err(Failed { syndrome: Syndrome::RemoteRequest, reason: format!("QP {to:#x} does not allow such requests") })
    }

    fn without_buffer(&mut self) -> Progress {
        self.queues.rnr += 1;
        Progress::Waits(Cause::NoBuffer)
    }

    /// The next list of buffers of a queue pair, and its place in the queue, if one is posted.
    fn take_receive(&mut self, memory: &dyn Memory, number: u32) -> Result<Option<(u16, Vec<Buffer>)>, String> {
        let Some(pair) = self.queues.pairs.get_mut(&number) else { return Ok(None) };
        let (ring, consumer) = match &mut pair.receives {
            Receives::Nowhere => return Ok(None),
            Receives::Shared(shared) => {
                let shared = *shared;
                return self.take_shared(memory, shared);
            }
            Receives::Own { ring, consumer } => (ring, consumer),
        };
        let posted = read_u32(memory, pair.doorbell_record).map_err(|fault| fault.to_string())?;
        if u32::from(*consumer) == posted & 0xffff {
            return Ok(None);
        }
        let mut list = vec![0; ring.stride()];
        memory.read(ring.address(u32::from(*consumer)), &mut list).map_err(|fault| fault.to_string())?;
        let index = *consumer;
        *consumer = index.wrapping_add(1);
        Ok(Some((index, scatter::buffers(&list))))
    }

    fn tell_receiver(
        &mut self,
        memory: &dyn Memory,
        number: u32,
        (opcode, index): (u8, u16),
        message: &Message,
        length: usize,
    ) {
        let Some(pair) = self.queues.pairs.get(&number) else { return };
        let mut bytes = completion((0, number), pair.user_index, index, None);
        bytes[36..40].copy_from_slice(&message.immediate);
        bytes[44..48].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        if message.is_solicited {
            bytes[63] |= SOLICITED;
        }
        self.complete(memory, pair.receive_cq, opcode, bytes);
    }

    /// Takes a queue pair into error by what it received.
    fn fail_receiver(&mut self, memory: &dyn Memory, number: u32, (index, syndrome): (u16, Syndrome)) {
        self.return_receive(memory, number, (index, syndrome));
        if let Some(pair) = self.queues.pairs.get_mut(&number) {
            pair.state = PairState::Error;
        }
    }

    /// The other side ends with a connection whose request it refuses, but one that leads to itself ends anyhow.
    fn end_other(&mut self, from: u32, to: u32) {
        if let Some(pair) = self.queues.pairs.get_mut(&to).filter(|_| from != to) {
            pair.state = PairState::Error;
        }
    }

    fn return_receive(&mut self, memory: &dyn Memory, number: u32, (index, syndrome): (u16, Syndrome)) {
        let Some(pair) = self.queues.pairs.get(&number) else { return };
        let completion = completion((0, number), pair.user_index, index, Some(syndrome));
        self.complete(memory, pair.receive_cq, RECEIVE_FAILED, completion);
    }

    /// Gives back what is posted for receiving to queue pairs that have failed, and to no other; how many lists of buffers.
    pub(super) fn flush_pair_receives(&mut self, memory: &dyn Memory) -> usize {
        let has_failed = |(_, pair): &(&u32, &QueuePair)| pair.state == PairState::Error;
        let failed: Vec<u32> = self.queues.pairs.iter().filter(has_failed).map(|(number, _)| *number).collect();
        let mut flushed = 0;
        for number in failed {
            while let Some(pair) = self.queues.pairs.get_mut(&number) {
                let Receives::Own { consumer, .. } = &mut pair.receives else { break };
                match read_u32(memory, pair.doorbell_record) {
                    Ok(posted) if posted & 0xffff == u32::from(*consumer) => break,
                    Ok(_) => {}
                    Err(fault) => {
                        self.fail(number, PairState::Lost, &fault.to_string());
                        break;
                    }
                }
                let index = *consumer;
                *consumer = index.wrapping_add(1);
                self.return_receive(memory, number, (index, Syndrome::Flushed));
                flushed += 1;
            }
        }
        flushed
    }

    /// Writes one argument, which the control segment names.
    fn write_argument(&mut self, request: &Request) -> Result<(), String> {
        const UPDATE_ARGUMENT: u32 = 1;
        const NUMBER: usize = 12;
        /// Behind a segment that is of no use here.
        const ARGUMENT_AT: usize = 64;
        let short = || "a request ends within its segments".to_owned();
        let kind = request.word(0).ok_or_else(short)? >> 24;
        if kind != UPDATE_ARGUMENT {
            return Err(format!("accesses of type {kind} to flow tables are not modelled"));
        }
        let number = request.word(NUMBER).ok_or_else(short)?;
        let bytes = request.bytes(ARGUMENT_AT, ARGUMENT).and_then(|bytes| bytes.try_into().ok()).ok_or_else(short)?;
        self.count_down()?;
        self.steering.arguments.write(number, bytes)
    }

    pub(super) fn count_down(&mut self) -> Result<(), String> {
        match &mut self.failing_write {
            Some(left @ 2..) => {
                *left -= 1;
                Ok(())
            }
            Some(_) => {
                self.failing_write = None;
                Err("a write that was to fail".to_owned())
            }
            None => Ok(()),
        }
    }
}
