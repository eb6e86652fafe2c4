//! Requests and buffers that fail, and those that a failed queue has not come to: each comes back with an error (PRM, "Completion with
//! Error", and `flush_in_error_en` of a queue's context).

use super::failed::{Flushing, Syndrome};
use super::queue::State;
use super::request::Request;
use super::ring::completion;
use super::state::Hca;
use crate::memory::{Memory, read_u32};

impl Hca {
    /// Gives back what is posted to queues that have failed; how many queues had something.
    pub(crate) fn flush_failed_queues(&mut self, memory: &dyn Memory) -> usize {
        let is_due = |state: State, flushing: Flushing| state == State::Error && flushing != Flushing::Off;
        let sends = self.queues.sends.iter().filter(|(_, queue)| is_due(queue.state, queue.flushing));
        let sends: Vec<u32> = sends.map(|(number, _)| *number).collect();
        let receives = self.queues.receives.iter().filter(|(_, queue)| is_due(queue.state, queue.flushing));
        let receives: Vec<u32> = receives.map(|(number, _)| *number).collect();
        let sends = sends.into_iter().filter(|number| self.flush_sends(memory, *number)).count();
        sends + receives.into_iter().filter(|number| self.flush_receives(memory, *number)).count()
    }

    /// Whether there is a queue that gives back what is posted from now on.
    pub(crate) fn has_failed_receives(&self) -> bool {
        self.queues.receives.values().any(|queue| queue.state == State::Error && queue.flushing != Flushing::Off)
    }

    /// Takes a send queue into error by a request, which comes back, and so do those behind it.
    pub(crate) fn fail_send(&mut self, memory: &dyn Memory, number: u32, (request, syndrome): (&Request, Syndrome)) {
        let Some(queue) = self.queues.sends.get_mut(&number) else { return };
        queue.state = State::Error;
        if queue.flushing == Flushing::On {
            queue.flushing = Flushing::Told;
        }
        let (cq, user_index) = (queue.cq, queue.user_index);
        self.post_completion(memory, cq, (number, user_index), request, Some(syndrome));
        self.flush_failed_queues(memory);
    }

    /// The same of a receive queue and the list of buffers at `index`.
    pub(crate) fn fail_receive(&mut self, memory: &dyn Memory, number: u32, (index, syndrome): (u16, Syndrome)) {
        let Some(queue) = self.queues.receives.get_mut(&number) else { return };
        queue.state = State::Error;
        self.return_buffers(memory, number, (index, syndrome));
        self.flush_failed_queues(memory);
    }

    /// A send queue whose memory is gone.
    pub(crate) fn lose_sends(&mut self, number: u32, reason: &str) {
        self.complain(format!("SQ {number:#x}: {reason}"));
        if let Some(queue) = self.queues.sends.get_mut(&number) {
            queue.state = State::Error;
            queue.flushing = Flushing::Off;
        }
    }

    fn flush_sends(&mut self, memory: &dyn Memory, number: u32) -> bool {
        let mut any = false;
        while let Some(queue) = self.queues.sends.get_mut(&number) {
            let request = match read_u32(memory, queue.doorbell_record + 4) {
                Ok(producer) if producer & 0xffff == u32::from(queue.consumer) => break,
                Ok(_) => Request::read(memory, &queue.ring, queue.consumer),
                Err(fault) => Err(fault.to_string()),
            };
            let request = match request {
                Ok(request) => request,
                Err(reason) => {
                    self.lose_sends(number, &reason);
                    break;
                }
            };
            any = true;
            queue.consumer = queue.consumer.wrapping_add(request.blocks());
            let is_first = std::mem::replace(&mut queue.flushing, Flushing::Told) == Flushing::On;
            let (cq, user_index) = (queue.cq, queue.user_index);
            if is_first || !request.completes_first_error_only() {
                self.post_completion(memory, cq, (number, user_index), &request, Some(Syndrome::Flushed));
            }
        }
        any
    }

    fn flush_receives(&mut self, memory: &dyn Memory, number: u32) -> bool {
        let Some(queue) = self.queues.receives.get_mut(&number) else { return false };
        let posted = match read_u32(memory, queue.doorbell_record) {
            Ok(producer) => (producer & 0xffff).wrapping_sub(queue.consumer.into()) & 0xffff,
            Err(fault) => {
                queue.flushing = Flushing::Off;
                self.complain(format!("RQ {number:#x}: {fault}"));
                return false;
            }
        };
        for _ in 0..posted {
            let Some(queue) = self.queues.receives.get_mut(&number) else { break };
            let index = queue.consumer;
            queue.consumer = index.wrapping_add(1);
            self.return_buffers(memory, number, (index, Syndrome::Flushed));
        }
        posted > 0
    }

    fn return_buffers(&mut self, memory: &dyn Memory, number: u32, (index, syndrome): (u16, Syndrome)) {
        const RESPONSE_FAILED: u8 = 0xe;
        let Some(queue) = self.queues.receives.get(&number) else { return };
        let completion = completion((0, number), queue.user_index, index, Some(syndrome));
        self.complete(memory, queue.cq, RESPONSE_FAILED, completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::layouts as l;
    use crate::hca::test::{initialized, made, status};
    use crate::layout::{Field, Layout};
    use crate::memory::test::Flat;
    use crate::profile::BLUEFIELD_2;

    const SENDS: u64 = 0x1000;
    const RECEIVES: u64 = 0x2000;
    const COMPLETIONS: u64 = 0x3000;
    const RECORD: u64 = 0x4000;
    const NOP: u8 = 0;
    /// No request of a send queue.
    const WRONG: u8 = 0x7f;

    /// A ready send queue and a ready receive queue of eight entries each, with one queue of completions.
    struct Rig {
        hca: Hca,
        memory: Flat,
        sq: u64,
        rq: u64,
    }

    /// What a completion says: whether of a request or of buffers that failed, why, and which.
    #[derive(Debug, PartialEq, Eq)]
    struct Told(u8, u8, u8);

    const DONE: u8 = 0x0;
    const REQUEST: u8 = 0xd;
    const RESPONSE: u8 = 0xe;
    const FLUSHED: u8 = 5;

    fn rig(flushes: u64) -> Rig {
        use l::{create_cq as c, create_rq as r, create_sq as s};
        let mut hca = initialized(BLUEFIELD_2);
        let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &[(l::create_eq::UAR_PAGE, uar)], &[0; 8]);
        let fields = [(c::UAR_PAGE, uar), (c::C_EQN, eq), (c::LOG_CQ_SIZE, 5), (c::DBR_ADDR, RECORD)];
        let cq = made(&mut hca, 0x400, &c::LAYOUT, &fields, &COMPLETIONS.to_be_bytes());
        let fields = [
            (s::CQN, cq),
            (s::FLUSH_IN_ERROR_EN, flushes),
            (s::WQ_TYPE, 1),
            (s::PD, pd),
            (s::UAR_PAGE, uar),
            (s::LOG_WQ_STRIDE, 6),
            (s::LOG_WQ_SZ, 3),
            (s::DBR_ADDR, RECORD + 0x40),
        ];
        let sq = made(&mut hca, 0x904, &s::LAYOUT, &fields, &SENDS.to_be_bytes());
        let fields = [
            (r::CQN, cq),
            (r::FLUSH_IN_ERROR_EN, flushes),
            (r::WQ_TYPE, 1),
            (r::PD, pd),
            (r::LOG_WQ_STRIDE, 4),
            (r::LOG_WQ_SZ, 3),
            (r::DBR_ADDR, RECORD + 0x80),
        ];
        let rq = made(&mut hca, 0x908, &r::LAYOUT, &fields, &RECEIVES.to_be_bytes());
        let mut rig = Rig { hca, memory: Flat::new(0x5000), sq, rq };
        rig.step(0, 1);
        rig
    }

    impl Rig {
        /// Moves both queues from one state to another.
        fn step(&mut self, from: u64, to: u64) {
            use l::modify_rq as r;
            self.step_sends(from, to);
            self.command(0x909, &r::LAYOUT, [(r::RQN, self.rq), (r::RQ_STATE, from), (r::STATE, to)]);
        }

        fn step_sends(&mut self, from: u64, to: u64) {
            use l::modify_sq as s;
            self.command(0x905, &s::LAYOUT, [(s::SQN, self.sq), (s::SQ_STATE, from), (s::STATE, to)]);
        }

        fn command(&mut self, opcode: u16, layout: &Layout, fields: [(Field, u64); 3]) {
            let mut input = vec![0; layout.length];
            input[..2].copy_from_slice(&opcode.to_be_bytes());
            fields.iter().for_each(|(field, value)| assert!(field.write(&mut input, *value)));
            assert_eq!(status(&self.hca.execute(&self.memory, &input)), 0);
        }

        /// Posts requests from an index on: opcode and when each gives a completion.
        fn post_sends(&mut self, first: u8, requests: &[(u8, u8)]) {
            for ((opcode, mode), index) in requests.iter().zip(first..) {
                let mut bytes = [0; 64];
                (bytes[2], bytes[3], bytes[7], bytes[11]) = (index, *opcode, 1, mode << 2);
                self.memory.write(SENDS + u64::from(index % 8) * 64, &bytes).unwrap();
            }
            let producer = u32::from(first) + u32::try_from(requests.len()).unwrap();
            self.memory.write(RECORD + 0x44, &producer.to_be_bytes()).unwrap();
        }

        fn post_receives(&mut self, producer: u32) {
            self.memory.write(RECORD + 0x80, &producer.to_be_bytes()).unwrap();
        }

        fn completions(&self) -> Vec<Told> {
            let entry = |number| {
                let mut bytes = [0; 64];
                self.memory.read(COMPLETIONS + number * 64, &mut bytes).unwrap();
                Told(bytes[63] >> 4, bytes[55], bytes[61])
            };
            let count = self.hca.queues.completions.values().next().unwrap().producer;
            (0..u64::from(count)).map(entry).collect()
        }
    }

    #[test]
    fn what_is_posted_when_queues_are_moved_into_error_comes_back_and_so_does_what_is_posted_later() {
        let mut rig = rig(1);
        rig.post_sends(0, &[(NOP, 0), (NOP, 2)]);
        rig.post_receives(2);
        rig.step(1, 3);
        let back = |kind, index| Told(kind, FLUSHED, index);
        let mut wanted = vec![back(REQUEST, 0), back(REQUEST, 1), back(RESPONSE, 0), back(RESPONSE, 1)];
        assert_eq!(rig.completions(), wanted);
        rig.post_sends(2, &[(NOP, 2)]);
        rig.post_receives(3);
        assert!(rig.hca.has_queues());
        rig.hca.run_queues(&rig.memory, 16);
        wanted.extend([back(REQUEST, 2), back(RESPONSE, 2)]);
        assert_eq!(rig.completions(), wanted);
        assert_eq!(rig.hca.complaints(), Vec::<String>::new());
    }

    #[test]
    fn behind_a_request_that_fails_come_back_those_that_do_not_only_tell_of_a_first_error() {
        let mut rig = rig(1);
        rig.post_sends(0, &[(NOP, 2), (NOP, 0), (WRONG, 1), (NOP, 1), (NOP, 0), (NOP, 2)]);
        rig.hca.run_queues(&rig.memory, 16);
        let mut wanted =
            vec![Told(DONE, 0, 0), Told(REQUEST, 2, 2), Told(REQUEST, FLUSHED, 4), Told(REQUEST, FLUSHED, 5)];
        assert_eq!(rig.completions(), wanted);
        assert_eq!(rig.hca.complaints().len(), 1);
        // Anew, the first error is none yet.
        rig.step_sends(3, 0);
        rig.step_sends(0, 1);
        rig.post_sends(0, &[(NOP, 1), (NOP, 1)]);
        rig.step_sends(1, 3);
        wanted.push(Told(REQUEST, FLUSHED, 0));
        assert_eq!(rig.completions(), wanted);
    }

    #[test]
    fn nothing_comes_back_of_queues_that_do_not_ask_for_it() {
        let mut rig = rig(0);
        rig.post_sends(0, &[(WRONG, 0), (NOP, 2)]);
        rig.post_receives(2);
        rig.hca.run_queues(&rig.memory, 16);
        assert_eq!(rig.completions(), [Told(REQUEST, 2, 0)], "but for what failed");
        assert_eq!(rig.hca.run_queues(&rig.memory, 16), 0);
        assert_eq!(rig.completions().len(), 1);
    }

    #[test]
    fn queues_whose_memory_is_gone_are_left_alone() {
        let mut rig = rig(1);
        rig.post_sends(0, &[(NOP, 2)]);
        rig.hca.queues.sends.values_mut().for_each(|queue| queue.doorbell_record = 0x10_0000);
        rig.hca.queues.receives.values_mut().for_each(|queue| queue.doorbell_record = 0x10_0000);
        rig.step(1, 3);
        assert_eq!(rig.hca.complaints().len(), 2);
        assert_eq!(rig.hca.run_queues(&rig.memory, 16), 0);
        assert_eq!((rig.hca.complaints().len(), rig.completions()), (2, vec![]));
    }
}
