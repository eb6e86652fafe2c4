//! Queue pairs: reliable connections that lead back to the device itself, by which software writes steering memory.
//!
//! Of the opcodes there are NOP, RDMA WRITE and RDMA READ, in order. Connections to anybody else, receiving, and other services
//! are not modelled.

use super::Hca;
use super::function::require;
use super::keys::Use;
use super::ring::Ring;
use super::send::{BLOCK, Request};
use crate::command::layouts as l;
use crate::command::{Answer, Failure, Input, Output, Status};
use crate::memory::Memory;
use crate::objects::{Kind, Name};

/// A queue pair's send side.
#[derive(Debug)]
pub(crate) struct QueuePair {
    ring: Ring,
    cq: u32,
    /// Where software keeps its producer counter.
    doorbell_record: u64,
    consumer: u16,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reset,
    Initialized,
    ReadyToReceive,
    ReadyToSend,
    /// A request has failed.
    Error,
    /// Its memory is gone.
    Lost,
}

const LOG_BLOCK: u32 = 6;

/// Where in a doorbell record the send side's counter is.
const PRODUCER: u64 = 4;

pub(crate) fn create_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_qp as f;
    const RELIABLE_CONNECTION: u64 = 0;
    let service = input.get(f::ST);
    require(
        service == RELIABLE_CONNECTION,
        Status::BadParameter,
        0x0801,
        format!("service {service:#x} is not modelled"),
    )?;
    let valid = input.is_set(f::WQ_UMEM_VALID) && input.is_set(f::DBR_UMEM_VALID);
    require(valid, Status::BadParameter, 0x0802, "only queue pairs in umems are modelled")?;
    let umem = |field| Name { kind: Kind::Umem, id: input.get_u32(field) };
    let uses = vec![
        Name { kind: Kind::Pd, id: input.get_u32(f::PD) },
        Name { kind: Kind::Uar, id: input.get_u32(f::UAR_PAGE) },
        Name { kind: Kind::Cq, id: input.get_u32(f::CQN_SND) },
        Name { kind: Kind::Cq, id: input.get_u32(f::CQN_RCV) },
        umem(f::WQ_UMEM_ID),
        umem(f::DBR_UMEM_ID),
    ];
    let pages = |name: Name| {
        let missing = || Failure::new(Status::BadResource, 0x0803, format!("there is no {name}"));
        hca.queues.umems.get(&name.id).ok_or_else(missing)
    };
    let (work, record) = (pages(umem(f::WQ_UMEM_ID))?, pages(umem(f::DBR_UMEM_ID))?);
    let receives = 1 << (input.get(f::LOG_RQ_SIZE) + input.get(f::LOG_RQ_STRIDE) + 4);
    let start = work.offset() + receives;
    require(start.is_multiple_of(BLOCK as u64), Status::BadParameter, 0x0804, "the send queue is not aligned")?;
    let ring = Ring::new(work.list(), work.log_page(), start / BLOCK as u64, LOG_BLOCK, input.get_u32(f::LOG_SQ_SIZE))?;
    let outside = || Failure::new(Status::BadParameter, 0x0805, "the doorbell record is outside its umem");
    let doorbell_record = record.address(0).ok_or_else(outside)?;
    let cq = input.get_u32(f::CQN_SND);
    let id = hca.objects.create(Kind::Qp, uses)?;
    hca.queues.pairs.insert(id, QueuePair { ring, cq, doorbell_record, consumer: 0, state: State::Reset });
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn rst2init_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    step(hca, input.get_u32(l::rst2init_qp::QPN), State::Reset, State::Initialized)
}

pub(crate) fn init2rtr_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::init2rtr_qp as f;
    let (number, remote) = (input.get_u32(f::QPN), input.get_u32(f::REMOTE_QPN));
    require(number == remote, Status::BadParameter, 0x0806, "only connections with oneself are modelled")?;
    require(input.is_set(f::FL), Status::BadParameter, 0x0807, "only forced loopback is modelled")?;
    step(hca, number, State::Initialized, State::ReadyToReceive)
}

pub(crate) fn rtr2rts_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    step(hca, input.get_u32(l::rtr2rts_qp::QPN), State::ReadyToReceive, State::ReadyToSend)
}

fn step(hca: &mut Hca, number: u32, from: State, to: State) -> Answer {
    hca.objects.check(Kind::Qp, number)?;
    if let Some(pair) = hca.queues.pairs.get_mut(&number) {
        let reason = format!("QP {number:#x} is {:?}, not {from:?}", pair.state);
        require(pair.state == from, Status::BadResourceState, 0x0808, reason)?;
        pair.state = to;
    }
    Ok(Output::empty())
}

pub(crate) fn destroy_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Qp, id)?;
    hca.queues.pairs.remove(&id);
    Ok(Output::empty())
}

impl Hca {
    /// Carries out what programs have posted to queue pairs, each in its order, and `limit` requests at most. Answers how many it
    /// was: fewer than `limit` means that nothing waits any more.
    pub fn run_queue_pairs(&mut self, memory: &dyn Memory, limit: usize) -> usize {
        let mut done = 0;
        while done < limit {
            let before = done;
            for (number, producer) in self.waiting(memory) {
                while done < limit && self.run_pair(memory, number, producer) {
                    done += 1;
                }
            }
            if done == before {
                break;
            }
        }
        done
    }

    /// Queue pairs with something to do, and up to which counter.
    fn waiting(&mut self, memory: &dyn Memory) -> Vec<(u32, u16)> {
        let works = |pair: &QueuePair| matches!(pair.state, State::ReadyToSend | State::Error);
        let ready = self.queues.pairs.iter().filter(|(_, pair)| works(pair));
        let (numbers, records): (Vec<u32>, Vec<u64>) =
            ready.map(|(number, pair)| (*number, pair.doorbell_record + PRODUCER)).unzip();
        let mut waiting = Vec::new();
        for (number, word) in numbers.into_iter().zip(memory.read_words(&records)) {
            match word {
                Ok(word) => {
                    let [.., high, low] = word.to_be_bytes();
                    let producer = u16::from_be_bytes([high, low]);
                    if self.queues.pairs.get(&number).is_some_and(|pair| pair.consumer != producer) {
                        waiting.push((number, producer));
                    }
                }
                Err(fault) => self.fail(number, State::Lost, &fault.to_string()),
            }
        }
        waiting
    }

    /// Ends a queue pair.
    fn fail(&mut self, number: u32, state: State, reason: &str) {
        self.complain(format!("QP {number:#x}: {reason}"));
        if let Some(pair) = self.queues.pairs.get_mut(&number) {
            pair.state = state;
        }
    }

    /// Whether there are queue pairs at all.
    #[must_use]
    pub fn has_queue_pairs(&self) -> bool {
        !self.queues.pairs.is_empty()
    }

    /// Lets the `number`th write by a queue pair from now on fail with an error completion; 1 is the next.
    pub fn fail_write(&mut self, number: u64) {
        self.failing_write = Some(number);
    }

    /// The next request of a queue pair up to that counter; whether there was one.
    fn run_pair(&mut self, memory: &dyn Memory, number: u32, producer: u16) -> bool {
        let Some(pair) = self.queues.pairs.get_mut(&number) else { return false };
        if pair.consumer == producer {
            return false;
        }
        let failed = pair.state == State::Error;
        let request = match Request::read(memory, &pair.ring, pair.consumer) {
            Ok(request) => request,
            Err(reason) => {
                self.fail(number, State::Lost, &reason);
                return false;
            }
        };
        pair.consumer = pair.consumer.wrapping_add(request.blocks());
        let cq = pair.cq;
        if failed {
            // What comes behind a request that failed comes back as it is.
            self.post_completion(memory, cq, number, &request, false);
            return true;
        }
        let outcome = self.carry_out_remotely(memory, &request);
        if let Err(reason) = &outcome {
            self.fail(number, State::Error, reason);
        }
        if request.wants_completion() || outcome.is_err() {
            self.post_completion(memory, cq, number, &request, outcome.is_ok());
        }
        true
    }

    fn carry_out_remotely(&mut self, memory: &dyn Memory, request: &Request) -> Result<(), String> {
        const NOP: u8 = 0x00;
        const RDMA_WRITE: u8 = 0x08;
        const RDMA_READ: u8 = 0x10;
        const REMOTE: usize = 16;
        const DATA: usize = 32;
        if request.opcode == NOP {
            return Ok(());
        }
        let short = || "a request ends within its segments".to_owned();
        let word = |at| request.word(at).ok_or_else(short);
        let address = |at| Ok::<_, String>(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
        let mut remote = address(REMOTE)?;
        let remote_key = word(REMOTE + 8)?;
        let mut at = DATA;
        while let Some(length) = request.word(at) {
            const INLINE: u32 = 1 << 31;
            let size = (length & !INLINE) as usize;
            let local = if length & INLINE == 0 { Some((word(at + 4)?, address(at + 8)?)) } else { None };
            let mut bytes = vec![0; size];
            match (request.opcode, local) {
                (RDMA_WRITE, local) => {
                    match local {
                        Some(local) => self.read_by_key(memory, local, Use::LocalRead, &mut bytes)?,
                        None => bytes.copy_from_slice(request.bytes(at + 4, size).ok_or_else(short)?),
                    }
                    self.count_down()?;
                    self.write_by_key(memory, (remote_key, remote), Use::RemoteWrite, &bytes)?;
                }
                (RDMA_READ, Some(local)) => {
                    self.read_by_key(memory, (remote_key, remote), Use::RemoteRead, &mut bytes)?;
                    self.write_by_key(memory, local, Use::LocalWrite, &bytes)?;
                }
                (opcode, _) => return Err(format!("requests of opcode {opcode:#x} are not modelled")),
            }
            remote += size as u64;
            at += if local.is_some() { 16 } else { (4 + size).next_multiple_of(16) };
        }
        Ok(())
    }

    fn count_down(&mut self) -> Result<(), String> {
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
