//! Queue pairs: reliable connections within the device, of which those that lead back to themselves write steering memory; and the one by
//! which mlx5_ib would change keys, which it makes and does not use where a key's pages cannot be changed so.
//!
//! Requests are carried out in order. Connections to other devices, and other services, are not modelled.

use super::failed::Syndrome;
use super::pair::{Connection, PairState, QueuePair, Service};
use super::pair_queues::{NO_RECEIVE_QUEUE, Queues, in_pages, in_umems};
use super::queue::CompletionQueue;
use super::reliable::Progress;
use super::request::Request;
use super::state::Hca;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, require};
use crate::layout::Field;
use crate::memory::{Memory, read_u32};
use crate::objects::{Kind, Name};

/// Where in a doorbell record the send side's counter is.
const PRODUCER: u64 = 4;

pub(crate) fn create_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_qp as f;
    let service = Service::new(input.get(f::ST))?;
    let mut uses = vec![
        Name { kind: Kind::Uar, id: input.get_u32(f::UAR_PAGE) },
        Name { kind: Kind::Cq, id: input.get_u32(f::CQN_SND) },
        Name { kind: Kind::Cq, id: input.get_u32(f::CQN_RCV) },
    ];
    let Queues { ring, receives, doorbell_record } = match service {
        Service::ReliableConnection => {
            uses.push(Name { kind: Kind::Pd, id: input.get_u32(f::PD) });
            if input.is_set(f::WQ_UMEM_VALID) || input.is_set(f::DBR_UMEM_VALID) {
                in_umems(hca, input, &mut uses)?
            } else {
                in_pages(input, &mut uses)?
            }
        }
        Service::Datagram | Service::KeyRegistration => {
            if service == Service::Datagram {
                uses.push(Name { kind: Kind::Pd, id: input.get_u32(f::PD) });
            }
            uses.push(Name { kind: Kind::Xrcd, id: input.get_u32(f::XRCD) });
            uses.push(Name { kind: Kind::Rmp, id: input.get_u32(f::SRQN_RMPN_XRQN) });
            let sends_only = input.get(f::RQ_TYPE) == NO_RECEIVE_QUEUE;
            require(sends_only, Status::BadParameter, 0x080a, "such queue pairs have no receive queue here")?;
            in_pages(input, &mut uses)?
        }
    };
    let (cq, receive_cq) = (input.get_u32(f::CQN_SND), input.get_u32(f::CQN_RCV));
    let ece = agreed(input.get_u32(f::ECE))?;
    let id = hca.objects.create(Kind::Qp, uses)?;
    let pair = QueuePair {
        service,
        ring,
        cq,
        user_index: input.get_u32(f::USER_INDEX),
        doorbell_record,
        consumer: 0,
        state: PairState::Reset,
        receives,
        receive_cq,
        connection: Connection::default(),
        waiting: None,
    };
    hca.queues.pairs.insert(id, pair);
    Ok(Output::new(&l::qp_out::LAYOUT).set(l::qp_out::ID, id).set(l::qp_out::ECE, ece))
}

/// Of the options of connections that a driver names (enhanced connection establishment), those that the device has. Which there are,
/// no public document says: those here are ours. Who names nothing but their version asks for all.
fn agreed(wanted: u32) -> Result<u32, Failure> {
    const VERSION: u32 = 0x1000_0000;
    const OPTIONS: u32 = 0x0000_0007;
    match wanted {
        0 => Ok(0),
        VERSION => Ok(VERSION | OPTIONS),
        _ => {
            let known = wanted & 0xf000_0000 == VERSION;
            require(known, Status::BadParameter, 0x080b, format!("options {wanted:#x} are of another version"))?;
            Ok(VERSION | wanted & OPTIONS)
        }
    }
}

impl Service {
    fn new(value: u64) -> Result<Self, Failure> {
        match value {
            0x0 => Ok(Self::ReliableConnection),
            0x2 => Ok(Self::Datagram),
            0xc => Ok(Self::KeyRegistration),
            other => Err(Failure::new(Status::BadParameter, 0x0801, format!("service {other:#x} is not modelled"))),
        }
    }
}

pub(crate) fn rst2init_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::rst2init_qp as f;
    step(hca, input, (f::QPN, f::ECE), (PairState::Reset, PairState::Initialized), |connection| {
        connection.remote_write = input.is_set(f::RWE);
        connection.remote_read = input.is_set(f::RRE);
    })
}

pub(crate) fn init2rtr_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::init2rtr_qp as f;
    /// Of the numbers of packets' lengths, the first is that of 256 bytes (`enum ib_mtu`).
    const LOG_BEFORE_FIRST: u32 = 7;
    let address = u128::from(input.get(f::RGID_0)) << 64 | u128::from(input.get(f::RGID_1));
    step(hca, input, (f::QPN, f::ECE), (PairState::Initialized, PairState::ReadyToReceive), |connection| {
        connection.remote = input.get_u32(f::REMOTE_QPN);
        connection.loopback = input.is_set(f::FL);
        connection.address = address.to_be_bytes();
        connection.log_mtu = input.get_u32(f::MTU) + LOG_BEFORE_FIRST;
        connection.next_receive = input.get_u32(f::NEXT_RCV_PSN);
        connection.min_rnr_timer = input.get(f::MIN_RNR_NAK).to_be_bytes()[7];
    })
}

pub(crate) fn rtr2rts_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::rtr2rts_qp as f;
    step(hca, input, (f::QPN, f::ECE), (PairState::ReadyToReceive, PairState::ReadyToSend), |connection| {
        connection.next_send = input.get_u32(f::NEXT_SEND_PSN);
        [connection.timeout, connection.retries, connection.rnr_retries] =
            [f::ACK_TIMEOUT, f::RETRY_COUNT, f::RNR_RETRY].map(|field| input.get(field).to_be_bytes()[7]);
    })
}

/// Whatever state it is in; what is posted comes back.
pub(crate) fn fail_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    end(hca, input.get_u32(l::object::ID), PairState::Error)
}

/// Whatever state it is in; what is posted is forgotten.
pub(crate) fn reset_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    end(hca, input.get_u32(l::object::ID), PairState::Reset)
}

fn end(hca: &mut Hca, number: u32, to: PairState) -> Answer {
    hca.objects.check(Kind::Qp, number)?;
    if let Some(pair) = hca.queues.pairs.get_mut(&number) {
        require(
            to == PairState::Reset || pair.state != PairState::Reset,
            Status::BadResourceState,
            0x0809,
            "it is in reset",
        )?;
        pair.state = to;
        pair.waiting = None;
        if to == PairState::Reset {
            pair.reset();
        }
    }
    Ok(Output::empty())
}

fn step(
    hca: &mut Hca,
    input: &Input<'_>,
    (number, ece): (Field, Field),
    (from, to): (PairState, PairState),
    change: impl FnOnce(&mut Connection),
) -> Answer {
    let number = input.get_u32(number);
    hca.objects.check(Kind::Qp, number)?;
    let ece = agreed(input.get_u32(ece))?;
    if let Some(pair) = hca.queues.pairs.get_mut(&number) {
        let reason = format!("QP {number:#x} is {:?}, not {from:?}", pair.state);
        require(pair.state == from, Status::BadResourceState, 0x0808, reason)?;
        pair.state = to;
        change(&mut pair.connection);
    }
    Ok(Output::new(&l::qp_out::LAYOUT).set(l::qp_out::ECE, ece))
}

pub(crate) fn query_qp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::query_qp_out as out;
    let number = input.get_u32(l::object::ID);
    hca.objects.check(Kind::Qp, number)?;
    let missing = || Failure::new(Status::BadResource, 0x080e, format!("there is no QP {number:#x}"));
    let pair = hca.queues.pairs.get(&number).ok_or_else(missing)?;
    let state: u32 = match pair.state {
        PairState::Reset => 0,
        PairState::Initialized => 1,
        PairState::ReadyToReceive => 2,
        PairState::ReadyToSend => 3,
        PairState::Error | PairState::Lost => 6,
    };
    let (sent, received) = (pair.cq, pair.receive_cq);
    Ok(Output::new(&out::LAYOUT).set(out::STATE, state).set(out::CQN_SND, sent).set(out::CQN_RCV, received))
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
            done += self.flush_pair_receives(memory);
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

    /// Carries out what is posted to one queue pair, whose doorbell was rung.
    pub(super) fn run_queue_pair(&mut self, memory: &dyn Memory, number: u32) {
        for (_, producer) in self.waiting(memory).into_iter().filter(|(waiting, _)| *waiting == number) {
            while self.run_pair(memory, number, producer) {}
        }
    }

    /// Queue pairs with something to do, and up to which counter.
    fn waiting(&mut self, memory: &dyn Memory) -> Vec<(u32, u16)> {
        let (mut waiting, mut lost) = (Vec::new(), Vec::new());
        for (number, pair) in &self.queues.pairs {
            if !matches!(pair.state, PairState::ReadyToSend | PairState::Error) {
                continue;
            }
            match read_u32(memory, pair.doorbell_record + PRODUCER) {
                Ok(word) => {
                    let [.., high, low] = word.to_be_bytes();
                    let producer = u16::from_be_bytes([high, low]);
                    if pair.consumer != producer {
                        waiting.push((*number, producer));
                    }
                }
                Err(fault) => lost.push((*number, fault)),
            }
        }
        for (number, fault) in lost {
            self.fail(number, PairState::Lost, &fault.to_string());
        }
        waiting
    }

    /// Ends a queue pair.
    pub(super) fn fail(&mut self, number: u32, state: PairState, reason: &str) {
        self.complain(format!("QP {number:#x}: {reason}"));
        if let Some(pair) = self.queues.pairs.get_mut(&number) {
            pair.state = state;
        }
    }

    /// The same, and then all that is posted to send queues, as if there had been a doorbell for each, and requests for events.
    pub fn run_queues(&mut self, memory: &dyn Memory, limit: usize) -> usize {
        let done = self.run_queue_pairs(memory, limit);
        let done = if done < limit { done + self.run_send_queues(memory) } else { done };
        self.look_for_requests(memory);
        done
    }

    /// Whether there are queues to which programs post, at all.
    #[must_use]
    pub fn has_queues(&self) -> bool {
        let watched = |queue: &CompletionQueue| queue.request.is_some();
        !self.queues.pairs.is_empty()
            || !self.queues.sends.is_empty()
            || self.queues.completions.values().any(watched)
            || self.has_failed_receives()
    }

    /// Lets the `number`th write by a queue pair, or into an ASO object, from now on fail with an error completion; 1 is the next.
    pub fn fail_write(&mut self, number: u64) {
        self.failing_write = Some(number);
    }

    /// The next request of a queue pair up to that counter; whether there was one.
    fn run_pair(&mut self, memory: &dyn Memory, number: u32, producer: u16) -> bool {
        let Some(pair) = self.queues.pairs.get_mut(&number) else { return false };
        if pair.consumer == producer {
            return false;
        }
        let failed = pair.state == PairState::Error;
        if !failed && pair.waiting.is_some_and(|waiting| self.clock < waiting.until) {
            return false;
        }
        let request = match Request::read(memory, &pair.ring, pair.consumer) {
            Ok(request) => request,
            Err(reason) => {
                self.fail(number, PairState::Lost, &reason);
                return false;
            }
        };
        let next = pair.consumer.wrapping_add(request.blocks());
        let sender = (number, pair.user_index);
        let cq = pair.cq;
        if failed {
            // What comes behind a request that failed comes back as it is.
            pair.consumer = next;
            self.post_completion(memory, cq, sender, &request, Some(Syndrome::Flushed));
            return true;
        }
        let outcome = match self.carry_out_remotely(memory, number, &request) {
            Ok(Progress::Done) => Ok(()),
            Ok(Progress::Waits(cause)) => match self.wait(number, cause) {
                Ok(()) => return false,
                Err(failed) => Err(failed),
            },
            Err(failed) => Err(failed),
        };
        if let Some(pair) = self.queues.pairs.get_mut(&number) {
            pair.consumer = next;
            pair.waiting = None;
        }
        if let Err(failed) = &outcome {
            self.fail(number, PairState::Error, &failed.reason);
        }
        if request.wants_completion() || outcome.is_err() {
            self.post_completion(memory, cq, sender, &request, outcome.err().map(|failed| failed.syndrome));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::test::{initialized, made, run, status};
    use crate::memory::test::Flat;
    use crate::profile::BLUEFIELD_2;
    use crate::steering::icm::{Kind as Region, OBJECT_TYPE};

    const WORK: u64 = 0x1000;
    const COMPLETIONS: u64 = 0x2000;
    const RECORD: u64 = 0x3000;
    const COMPLETION_RECORD: u64 = 0x3100;
    const DATA: u64 = 0x4000;
    /// Behind a receive queue of 64 bytes.
    const SENDS: u64 = WORK + 64;

    /// A queue pair in flat memory, keys over data and over steering memory, and where that is.
    struct Rig {
        hca: Hca,
        memory: Flat,
        qp: u64,
        data_key: u32,
        steering_key: u32,
        posted: u32,
    }

    fn key(hca: &mut Hca, pd: u64, mode: u64, start: u64, length: u64, list: &[u8]) -> u32 {
        use l::create_mkey as f;
        let fields = [
            (f::PD, pd),
            (f::ACCESS_MODE_1_0, mode & 3),
            (f::ACCESS_MODE_4_2, mode >> 2),
            (f::START_ADDR, start),
            (f::LEN, length),
            (f::LW, 1),
            (f::RR, 1),
            (f::RW, 1),
            (f::LOG_PAGE_SIZE, 12),
        ];
        u32::try_from(made(hca, 0x200, &f::LAYOUT, &fields, list) << 8).unwrap()
    }

    fn umem(hca: &mut Hca, address: u64) -> u64 {
        use l::create_umem as f;
        let fields = [(f::PAGE_OFFSET, address & 0xfff), (f::NUM_OF_MTT, 1)];
        made(hca, 0xa08, &f::LAYOUT, &fields, &(address & !0xfff).to_be_bytes())
    }

    fn rig() -> Rig {
        let mut hca = initialized(BLUEFIELD_2.with_software_steering());
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let eq = [(l::create_eq::LOG_EQ_SIZE, 6), (l::create_eq::UAR_PAGE, uar)];
        let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &eq, &0x5000_u64.to_be_bytes());
        let cq = [
            (l::create_cq::LOG_CQ_SIZE, 4),
            (l::create_cq::UAR_PAGE, uar),
            (l::create_cq::C_EQN, eq),
            (l::create_cq::DBR_ADDR, COMPLETION_RECORD),
        ];
        let cq = made(&mut hca, 0x400, &l::create_cq::LAYOUT, &cq, &COMPLETIONS.to_be_bytes());
        let (work, record) = (umem(&mut hca, WORK), umem(&mut hca, RECORD));
        let mut body = [0; 0x40];
        l::steering_memory::LOG_SIZE.write(&mut body, 12);
        l::steering_memory::START.write(&mut body, Region::Steering.start());
        let block = run(&mut hca, 0xa00, OBJECT_TYPE, &l::general_object::LAYOUT, &[], &body);
        assert_eq!(status(&block), 0);
        let data_key = key(&mut hca, pd, 1, DATA, 0x100, &DATA.to_be_bytes());
        let steering_key = key(&mut hca, pd, 4, Region::Steering.start(), 0x1000, &[]);
        let fields = [
            (l::create_qp::PD, pd),
            (l::create_qp::UAR_PAGE, uar),
            (l::create_qp::CQN_SND, cq),
            (l::create_qp::CQN_RCV, cq),
            (l::create_qp::LOG_RQ_STRIDE, 2),
            (l::create_qp::LOG_SQ_SIZE, 4),
            (l::create_qp::WQ_UMEM_ID, work),
            (l::create_qp::WQ_UMEM_VALID, 1),
            (l::create_qp::DBR_UMEM_ID, record),
            (l::create_qp::DBR_UMEM_VALID, 1),
        ];
        let qp = made(&mut hca, 0x500, &l::create_qp::LAYOUT, &fields, &[]);
        let step = |hca: &mut Hca, opcode, layout, fields: &[_]| run(hca, opcode, 0, layout, fields, &[]);
        let early = step(&mut hca, 0x504, &l::rtr2rts_qp::LAYOUT, &[(l::rtr2rts_qp::QPN, qp)]);
        assert_eq!(status(&early), Status::BadResourceState as u8);
        let itself = [(l::init2rtr_qp::QPN, qp), (l::init2rtr_qp::REMOTE_QPN, qp), (l::init2rtr_qp::FL, 1)];
        let access = [(l::rst2init_qp::QPN, qp), (l::rst2init_qp::RRE, 1), (l::rst2init_qp::RWE, 1)];
        assert_eq!(status(&step(&mut hca, 0x502, &l::rst2init_qp::LAYOUT, &access)), 0);
        assert_eq!(status(&step(&mut hca, 0x503, &l::init2rtr_qp::LAYOUT, &itself)), 0);
        assert_eq!(status(&step(&mut hca, 0x504, &l::rtr2rts_qp::LAYOUT, &[(l::rtr2rts_qp::QPN, qp)])), 0);
        Rig { hca, memory: Flat::new(0x6000), qp, data_key, steering_key, posted: 0 }
    }

    impl Rig {
        /// Posts a request for 64 bytes between `DATA` and steering memory, with a completion, and carries it out.
        fn post(&mut self, opcode: u8, remote_key: u32, remote: u64) {
            let mut bytes = [0; 64];
            bytes[3] = opcode;
            bytes[7] = 3;
            bytes[11] = 0x08;
            bytes[16..24].copy_from_slice(&remote.to_be_bytes());
            bytes[24..28].copy_from_slice(&remote_key.to_be_bytes());
            bytes[32..36].copy_from_slice(&64_u32.to_be_bytes());
            bytes[36..40].copy_from_slice(&self.data_key.to_be_bytes());
            bytes[40..48].copy_from_slice(&DATA.to_be_bytes());
            self.memory.write(SENDS + u64::from(self.posted) * 64, &bytes).unwrap();
            self.posted += 1;
            self.memory.write(RECORD + 4, &self.posted.to_be_bytes()).unwrap();
            assert_eq!(self.hca.run_queue_pairs(&self.memory, 16), 1);
        }

        /// Opcode of the completion of a request.
        fn completion(&self, number: u64) -> u8 {
            let mut byte = [0];
            self.memory.read(COMPLETIONS + number * 64 + 63, &mut byte).unwrap();
            byte[0] >> 4
        }
    }

    const WRITE: u8 = 0x08;
    const READ: u8 = 0x10;
    const DONE: u8 = 0x0;
    const FAILED: u8 = 0xd;

    #[test]
    fn what_is_written_to_steering_memory_is_read_back_from_it() {
        let mut rig = rig();
        rig.memory.write(DATA, &[7; 64]).unwrap();
        rig.post(WRITE, rig.steering_key, 0x40);
        assert_eq!(rig.hca.steering().entry_at(Region::Steering.start() + 0x40), Some([7; 64]));
        rig.memory.write(DATA, &[0; 64]).unwrap();
        rig.post(READ, rig.steering_key, 0x40);
        let mut back = [0; 64];
        rig.memory.read(DATA, &mut back).unwrap();
        assert_eq!((back, rig.completion(0), rig.completion(1)), ([7; 64], DONE, DONE));
        assert_eq!(rig.hca.complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_write_that_fails_ends_the_queue_and_what_follows_comes_back() {
        let mut rig = rig();
        rig.hca.fail_write(2);
        for _ in 0..3 {
            rig.post(WRITE, rig.steering_key, 0);
        }
        assert_eq!([0, 1, 2].map(|number| rig.completion(number)), [DONE, FAILED, FAILED]);
        assert_eq!(rig.hca.complaints(), [format!("QP {:#x}: a write that was to fail", rig.qp)]);
    }

    #[test]
    fn a_pair_that_a_command_fails_gives_back_what_is_posted_and_begins_anew_after_a_reset() {
        const FLUSHED: u8 = 5;
        let mut rig = rig();
        let end = |rig: &mut Rig, opcode| {
            let fields = [(l::object::ID, rig.qp)];
            status(&run(&mut rig.hca, opcode, 0, &l::object::LAYOUT, &fields, &[]))
        };
        rig.post(WRITE, rig.steering_key, 0);
        assert_eq!(end(&mut rig, 0x507), 0);
        rig.post(WRITE, rig.steering_key, 0);
        let mut syndrome = [0];
        rig.memory.read(COMPLETIONS + 64 + 55, &mut syndrome).unwrap();
        assert_eq!((rig.completion(0), rig.completion(1), syndrome), (DONE, FAILED, [FLUSHED]));
        assert_eq!(end(&mut rig, 0x50a), 0);
        assert_eq!(end(&mut rig, 0x507), Status::BadResourceState as u8);
        assert_eq!(rig.hca.run_queue_pairs(&rig.memory, 16), 0, "nothing is carried out in reset");
    }

    #[test]
    fn keys_let_nothing_through_that_is_not_theirs() {
        for (key, remote, why) in
            [(0xffff_ff00, 0, "there is no key 0xffffff00"), (0, 0xfc1, "64 bytes at 0xfc1 are not under key")]
        {
            let mut rig = rig();
            let key = if key == 0 { rig.steering_key } else { key };
            rig.post(WRITE, key, remote);
            let mut syndrome = [0];
            rig.memory.read(COMPLETIONS + 55, &mut syndrome).unwrap();
            assert_eq!((rig.completion(0), syndrome), (FAILED, [Syndrome::RemoteAccess as u8]));
            assert!(rig.hca.complaints()[0].contains(why), "{:?}", rig.hca.complaints());
        }
    }

    #[test]
    fn what_a_queue_pair_uses_stays_until_it_is_gone() {
        let mut rig = rig();
        let umem = [(l::object::ID, rig.hca.queues.umems.keys().copied().map(u64::from).next().unwrap())];
        let destroy =
            |hca: &mut Hca, opcode, fields: &[_]| status(&run(hca, opcode, 0, &l::object::LAYOUT, fields, &[]));
        assert_eq!(destroy(&mut rig.hca, 0xa0a, &umem), Status::ResourceBusy as u8);
        assert_eq!(destroy(&mut rig.hca, 0x501, &[(l::object::ID, rig.qp)]), 0);
        assert_eq!(destroy(&mut rig.hca, 0xa0a, &umem), 0);
    }

    #[test]
    fn a_device_without_software_steering_has_none_of_its_memory() {
        let mut hca = initialized(BLUEFIELD_2);
        let answer = run(&mut hca, 0xa00, OBJECT_TYPE, &l::general_object::LAYOUT, &[], &[0; 0x40]);
        assert_eq!(status(&answer), Status::BadParameter as u8);
    }
}
