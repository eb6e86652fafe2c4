//! Hairpin queues: what a receive queue gets leaves by the send queue that it is bound to, without the driver.
//!
//! There is no queue in between: a frame leaves at once, or is lost where one of the two is not ready. What the flow tables of what is
//! sent see of it is the frame and the send queue; no register goes along.
//!
//! Frozen: no test of Sluice needs them.

use super::queue::{Hairpin, State};
use super::state::Hca;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, require};
use crate::layout::Field;
use crate::memory::Memory;
use crate::objects::{Kind, Name};
use crate::profile::{LOG_HAIRPIN_DATA, LOG_HAIRPIN_FRAMES, LOG_HAIRPIN_QUEUES};
use crate::steering::{Origin, Port, Received, vhca_id};

/// Fields of a command that makes such a queue.
pub(crate) struct Sizes {
    state: Field,
    buffer: Field,
    frames: Field,
    data: Field,
}

pub(crate) const RECEIVE: Sizes = {
    use l::create_rq as f;
    Sizes {
        state: f::STATE,
        buffer: f::HAIRPIN_DATA_BUFFER_TYPE,
        frames: f::LOG_HAIRPIN_NUM_PACKETS,
        data: f::LOG_HAIRPIN_DATA_SZ,
    }
};

pub(crate) const SEND: Sizes = {
    use l::create_sq as f;
    Sizes {
        state: f::STATE,
        buffer: f::HAIRPIN_WQ_BUFFER_TYPE,
        frames: f::LOG_HAIRPIN_NUM_PACKETS,
        data: f::LOG_HAIRPIN_DATA_SZ,
    }
};

/// Makes one, of a kind that tells which way.
pub(crate) fn create(hca: &mut Hca, input: &Input<'_>, kind: Kind, sizes: &Sizes, uses: Vec<Name>) -> Answer {
    require(hca.profile.software_steering, Status::BadParameter, 0x0b01, "the device has no hairpin queues")?;
    require(input.get(sizes.state) == 0, Status::BadParameter, 0x0b02, "a queue begins in reset")?;
    require(input.get(sizes.buffer) == 0, Status::BadParameter, 0x0b03, "only buffers of the device's are modelled")?;
    let (frames, data) = (input.get(sizes.frames), input.get(sizes.data));
    let reason = format!("2^{frames} frames of 2^{data} bytes");
    require(frames <= LOG_HAIRPIN_FRAMES && data <= LOG_HAIRPIN_DATA, Status::LimitExceeded, 0x0b04, reason)?;
    let room = hca.queues.hairpins.of(kind).len() < 1 << LOG_HAIRPIN_QUEUES;
    require(room, Status::LimitExceeded, 0x0b05, "all hairpin queues are in use")?;
    let id = hca.objects.create(kind, uses)?;
    hca.queues.hairpins.of(kind).insert(id, Hairpin { state: State::Reset, peer: 0 });
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

/// Changes the state of one, from and to; None if it is no such queue. One that becomes ready names its peer, and the peer's function.
pub(crate) fn modify(
    hca: &mut Hca,
    kind: Kind,
    id: u32,
    (from, to): (u64, u64),
    (peer, function): (u32, u64),
) -> Option<Result<(), Failure>> {
    let own = u64::from(vhca_id(hca.profile.own_vport()));
    let hairpins = &mut hca.queues.hairpins;
    let other = if kind == Kind::Rq { Kind::Sq } else { Kind::Rq };
    let is_there = hairpins.of(other).contains_key(&peer);
    let hairpin = hairpins.of(kind).get_mut(&id)?;
    let mut change = || {
        let to = hairpin.state.step(from, to)?;
        if to == State::Ready {
            let reason = format!("function {function:#x} is not modelled as a peer");
            require(function == own, Status::BadParameter, 0x0b06, reason)?;
            let reason = format!("there is no hairpin {} to be bound to", Name { kind: other, id: peer });
            require(is_there, Status::BadResource, 0x0b07, reason)?;
            hairpin.peer = peer;
        }
        hairpin.state = to;
        Ok(())
    };
    Some(change())
}

impl Hca {
    /// Has a frame that a hairpin queue gets leave.
    pub(crate) fn turn_round(&mut self, memory: &dyn Memory, queue: u32, received: &Received) -> Result<(), String> {
        const MOST_TURNS: usize = 8;
        let Some(sqn) = self.queues.hairpins.way_out(queue) else { return Ok(()) };
        if self.queues.hairpins.turns >= MOST_TURNS {
            return Err(format!("it has come back {MOST_TURNS} times"));
        }
        self.queues.hairpins.turns += 1;
        let port = Port::Vport(self.profile.own_vport());
        let walk = self.walk(Origin { port, sqn, metadata: 0 }, &received.frame);
        self.hand_over(memory, &walk.received);
        self.sent.extend(walk.sent);
        self.queues.hairpins.turns -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::test::{initialized, made, run, status};
    use crate::hca::vports::counters_out;
    use crate::memory::test::Flat;
    use crate::packet::sample::tcp_frame;
    use crate::profile::{BLUEFIELD_2, VPORT_ECPF};

    const READY: u64 = 1;
    const BAD_PARAMETER: u8 = Status::BadParameter as u8;
    const BAD_RESOURCE: u8 = Status::BadResource as u8;

    /// A device with a hairpin queue each way, which are not bound, and a TIR that leads to the one.
    struct Rig {
        hca: Hca,
        receive: u64,
        send: u64,
        tir: u32,
    }

    impl Rig {
        fn new() -> Self {
            use l::{create_rq as r, create_sq as s};
            let mut hca = initialized(BLUEFIELD_2.with_software_steering());
            let domain = made(&mut hca, 0x816, &l::plain::LAYOUT, &[], &[]);
            let tis = made(&mut hca, 0x912, &l::create_tis::LAYOUT, &[(l::create_tis::TRANSPORT_DOMAIN, domain)], &[]);
            let fields = [(r::HAIRPIN, 1), (r::LOG_HAIRPIN_NUM_PACKETS, 10), (r::LOG_HAIRPIN_DATA_SZ, 16)];
            let receive = made(&mut hca, 0x908, &r::LAYOUT, &fields, &[]);
            let send =
                made(&mut hca, 0x904, &s::LAYOUT, &[(s::HAIRPIN, 1), (s::TIS_LST_SZ, 1), (s::TIS_NUM_0, tis)], &[]);
            let fields = [(l::create_tir::INLINE_RQN, receive), (l::create_tir::TRANSPORT_DOMAIN, domain)];
            let tir = made(&mut hca, 0x900, &l::create_tir::LAYOUT, &fields, &[]);
            Self { hca, receive, send, tir: tir.try_into().unwrap() }
        }

        fn own(&self) -> u64 {
            vhca_id(VPORT_ECPF).into()
        }

        fn bind_send(&mut self, peer: u64, function: u64) -> u8 {
            use l::modify_sq as f;
            let fields =
                [(f::SQN, self.send), (f::STATE, READY), (f::HAIRPIN_PEER_RQ, peer), (f::HAIRPIN_PEER_VHCA, function)];
            status(&run(&mut self.hca, 0x905, 0, &f::LAYOUT, &fields, &[]))
        }

        fn bind_receive(&mut self, peer: u64) -> u8 {
            use l::modify_rq as f;
            let own = self.own();
            let fields =
                [(f::RQN, self.receive), (f::STATE, READY), (f::HAIRPIN_PEER_SQ, peer), (f::HAIRPIN_PEER_VHCA, own)];
            status(&run(&mut self.hca, 0x909, 0, &f::LAYOUT, &fields, &[]))
        }

        /// How many frames the function has sent, after one more has been received.
        fn sent(&mut self) -> u64 {
            let received = Received { tir: self.tir, tag: None, metadata: 0, frame: tcp_frame() };
            self.hca.hand_over(&Flat::new(0), &[received]);
            let counters = run(&mut self.hca, 0x770, 0, &l::query_vport_counter::LAYOUT, &[], &[]);
            counters_out::UNICAST_OUT.read(&counters).unwrap()
        }
    }

    #[test]
    fn a_frame_leaves_only_when_both_queues_are_ready_and_bound_to_each_other() {
        let mut rig = Rig::new();
        let (receive, send, own) = (rig.receive, rig.send, rig.own());
        assert_eq!(rig.sent(), 0);
        assert_eq!(rig.bind_send(receive, own), 0);
        assert_eq!(rig.sent(), 0);
        assert_eq!(rig.bind_receive(send), 0);
        assert_eq!(rig.sent(), 1);
        let destroyed = run(&mut rig.hca, 0x906, 0, &l::object::LAYOUT, &[(l::object::ID, send)], &[]);
        assert_eq!((status(&destroyed), rig.sent()), (0, 1));
        assert_eq!(rig.hca.complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_peer_that_is_not_there_or_of_another_function_is_refused() {
        let mut rig = Rig::new();
        let (receive, send, own) = (rig.receive, rig.send, rig.own());
        assert_eq!(rig.bind_send(receive + 1, own), BAD_RESOURCE);
        assert_eq!(rig.bind_send(receive, own + 1), BAD_PARAMETER);
        assert_eq!(rig.bind_receive(send + 1), BAD_RESOURCE);
        assert_eq!(rig.bind_send(receive, own), 0);
    }

    #[test]
    fn what_is_over_the_capabilities_or_in_memory_of_the_drivers_is_refused() {
        use l::create_rq as f;
        let mut hca = initialized(BLUEFIELD_2.with_software_steering());
        for field in
            [(f::LOG_HAIRPIN_DATA_SZ, LOG_HAIRPIN_DATA + 1), (f::LOG_HAIRPIN_NUM_PACKETS, LOG_HAIRPIN_FRAMES + 1)]
        {
            let answer = run(&mut hca, 0x908, 0, &f::LAYOUT, &[(f::HAIRPIN, 1), field], &[]);
            assert_eq!(status(&answer), Status::LimitExceeded as u8);
        }
        let locked = [(f::HAIRPIN, 1), (f::HAIRPIN_DATA_BUFFER_TYPE, 1)];
        assert_eq!(status(&run(&mut hca, 0x908, 0, &f::LAYOUT, &locked, &[])), BAD_PARAMETER);
        let mut without = initialized(BLUEFIELD_2);
        assert_eq!(status(&run(&mut without, 0x908, 0, &f::LAYOUT, &[(f::HAIRPIN, 1)], &[])), BAD_PARAMETER);
    }
}
