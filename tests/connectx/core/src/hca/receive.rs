//! Receiving: the queue that a frame is for, the driver's buffers, and the completion that tells of it.
//!
//! Queues are cyclic, with lists of buffers as the driver posts them. A frame that does not fit into its buffers, or whose buffers are not
//! under their keys, takes the queue into error. A frame is lost, and counted, where there is no buffer, and lost in silence where the queue is not ready.

use super::failed::Syndrome;
use super::queue::{Dispatch, State};
use super::ring::COMPLETION;
use super::scatter::buffers;
use super::state::Hca;
use crate::memory::{Memory, read_u32};
use crate::packet::checks::{Checks, ip_packet, sum};
use crate::packet::{Headers, Layer, TunnelPorts, edit};
use crate::steering::Received;

impl Hca {
    /// Puts frames into the driver's receive queues.
    pub fn hand_over(&mut self, memory: &dyn Memory, received: &[Received]) {
        for frame in received {
            if let Err(reason) = self.receive_one(memory, frame) {
                self.complain(format!("a frame for TIR {:#x}: {reason}", frame.tir));
            }
        }
    }

    fn receive_one(&mut self, memory: &dyn Memory, received: &Received) -> Result<(), String> {
        let tir = self.queues.tirs.get(&received.tir).ok_or("there is no such TIR")?;
        let headers = Headers::parse(&received.frame, &TunnelPorts::default());
        let hash = tir.hash.as_ref().and_then(|hash| hash.of(&headers));
        let number = match tir.dispatch {
            Dispatch::Queue(number) => number,
            Dispatch::Table(table) => {
                let queues = self.queues.tables.get(&table).ok_or("its table is gone")?;
                let place = hash.unwrap_or_default() as usize % queues.len().max(1);
                *queues.get(place).ok_or("its table is empty")?
            }
        };
        if self.queues.hairpins.receives(number) {
            return self.turn_round(memory, number, received);
        }
        let Some(queue) = self.queues.receives.get_mut(&number).filter(|queue| queue.state == State::Ready) else {
            return Ok(());
        };
        let producer = read_u32(memory, queue.doorbell_record).map_err(|fault| fault.to_string())?;
        if u32::from(queue.consumer) == producer & 0xffff {
            if queue.counter != 0 {
                *self.queues.out_of_buffer.entry(queue.counter).or_default() += 1;
            }
            return Ok(());
        }
        let index = queue.consumer;
        let mut list = vec![0; queue.ring.stride()];
        memory.read(queue.ring.address(u32::from(index)), &mut list).map_err(|fault| fault.to_string())?;
        let mut frame = received.frame.clone();
        let vlan = headers.outer.vlans.first().filter(|vlan| queue.strips_vlan && vlan.ethertype == CUSTOMER_TAG);
        if let Some(vlan) = vlan {
            edit::remove(&mut frame, vlan.at..vlan.at + 4);
        }
        let buffers = buffers(&list);
        let room = buffers.iter().fold(0, |room: usize, buffer| room.saturating_add(buffer.length));
        queue.consumer = index.wrapping_add(1);
        let (cq, user_index) = (queue.cq, queue.user_index);
        if frame.len() > room {
            self.fail_receive(memory, number, (index, Syndrome::LocalLength));
            return Err(format!("{} bytes, and RQ {number:#x} has buffers of {room}", frame.len()));
        }
        if let Err(failed) = self.scatter(memory, &buffers, &frame) {
            self.fail_receive(memory, number, (index, failed.syndrome));
            return Err(failed.reason);
        }
        let tci = vlan.map(|vlan| vlan.tci);
        let completion = completion(received, &frame, Place { queue: number, user_index, index }, tci, hash);
        const RESPONSE_SEND: u8 = 0x2;
        self.complete(memory, cq, RESPONSE_SEND, completion);
        Ok(())
    }
}

const CUSTOMER_TAG: u16 = 0x8100;

/// Where a frame went.
struct Place {
    queue: u32,
    user_index: u32,
    index: u16,
}

/// The completion of a frame (PRM, "Completion Queue Entry"), but for its last byte.
fn completion(
    received: &Received,
    frame: &[u8],
    place: Place,
    vlan: Option<u16>,
    hash: Option<u32>,
) -> [u8; COMPLETION] {
    const HASHED_IP: u8 = 0x04;
    const HAS_VLAN: u8 = 0x01;
    const ETHERNET_OK: u8 = 0x01;
    const IP_OK: u8 = 0x02;
    const TRANSPORT_OK: u8 = 0x04;
    let mut bytes = [0; COMPLETION];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    if let Some(hash) = hash {
        put(12, &hash.to_be_bytes());
        put(16, &[HASHED_IP]);
    }
    let layer = Headers::parse(frame, &TunnelPorts::default()).outer;
    let mut checked = ETHERNET_OK;
    let checks = Checks::of(&layer, frame);
    if let Some(ip) = &layer.ip {
        put(20, &sum(ip_packet(frame, ip)).to_be_bytes());
        if checks.ip_is_right() {
            checked |= IP_OK;
        }
        if checks.l4_checksum {
            checked |= TRANSPORT_OK;
        }
    }
    put(24, &(place.queue & 0xff_ffff).to_be_bytes());
    put(28, &[checked, vlan.map_or(0, |_| HAS_VLAN) | kind_of_ip(&layer) << 2]);
    put(30, &vlan.unwrap_or_default().to_be_bytes());
    put(32, &place.user_index.to_be_bytes());
    put(36, &received.metadata.to_be_bytes());
    put(44, &u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
    put(56, &(received.tag.unwrap_or_default() & 0xff_ffff).to_be_bytes());
    put(60, &place.index.to_be_bytes());
    bytes
}

fn kind_of_ip(layer: &Layer) -> u8 {
    match layer.ip.map(|ip| ip.version) {
        Some(6) => 1,
        Some(_) => 2,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::layouts as l;
    use crate::hca::test::{initialized, made, run, status};
    use crate::memory::test::Flat;
    use crate::packet::sample::{ethernet, ipv4, tagged, tcp_frame, udp};
    use crate::profile::BLUEFIELD_2;

    const CQ_PAGE: u64 = 0x1000;
    const RQ_PAGE: u64 = 0x2000;
    const CQ_RECORD: u64 = 0x3000;
    const RQ_RECORD: u64 = 0x3040;
    const BUFFERS: [u64; 2] = [0x4000, 0x5000];

    /// A receive queue of four entries of two buffers each, and a TIR that leads to it.
    struct Receiver {
        hca: Hca,
        memory: Flat,
        rq: u64,
        tir: u32,
        key: u32,
        counter: u64,
    }

    impl Receiver {
        fn new(strips_vlan: bool) -> Self {
            use l::{create_cq as c, create_mkey as k, create_rq as r, create_tir as t};
            let mut hca = initialized(BLUEFIELD_2);
            let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
            let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
            let counter = made(&mut hca, 0x771, &l::plain::LAYOUT, &[], &[]);
            let domain = made(&mut hca, 0x816, &l::plain::LAYOUT, &[], &[]);
            let fields = [(l::create_eq::UAR_PAGE, uar)];
            let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &fields, &0x6000_u64.to_be_bytes());
            let fields = [(c::UAR_PAGE, uar), (c::C_EQN, eq), (c::LOG_CQ_SIZE, 2), (c::DBR_ADDR, CQ_RECORD)];
            let cq = made(&mut hca, 0x400, &c::LAYOUT, &fields, &CQ_PAGE.to_be_bytes());
            let fields = [
                (r::CQN, cq),
                (r::PD, pd),
                (r::COUNTER_SET_ID, counter),
                (r::FLUSH_IN_ERROR_EN, 1),
                (r::WQ_TYPE, 1),
                (r::VSD, u64::from(!strips_vlan)),
                (r::LOG_WQ_STRIDE, 5),
                (r::LOG_WQ_SZ, 2),
                (r::DBR_ADDR, RQ_RECORD),
            ];
            let rq = made(&mut hca, 0x908, &r::LAYOUT, &fields, &RQ_PAGE.to_be_bytes());
            let fields = [(t::INLINE_RQN, rq), (t::TRANSPORT_DOMAIN, domain)];
            let tir = made(&mut hca, 0x900, &t::LAYOUT, &fields, &[]);
            let fields = [(k::PD, pd), (k::LW, 1), (k::LENGTH64, 1)];
            let key = made(&mut hca, 0x200, &k::LAYOUT, &fields, &[]) << 8;
            let (tir, key) = (tir.try_into().unwrap(), key.try_into().unwrap());
            Self { hca, memory: Flat::new(0x10000), rq, tir, key, counter }
        }

        fn ready(mut self) -> Self {
            let fields = [(l::modify_rq::RQN, self.rq), (l::modify_rq::STATE, 1)];
            assert_eq!(status(&run(&mut self.hca, 0x909, 0, &l::modify_rq::LAYOUT, &fields, &[])), 0);
            self
        }

        /// Posts the entry of an index, as the driver does: with the bit for padding set.
        fn post(&mut self, index: u16, lengths: [u32; 2]) {
            let segments = lengths.into_iter().zip(BUFFERS).flat_map(|(length, address)| {
                let words = [(length | 1 << 31) & if length == 0 { 0 } else { u32::MAX }, self.key];
                [words.map(u32::to_be_bytes).concat(), address.to_be_bytes().to_vec()].concat()
            });
            let list: Vec<u8> = segments.collect();
            self.memory.write(RQ_PAGE + u64::from(index % 4) * 32, &list).unwrap();
            self.memory.write(RQ_RECORD, &u32::from(index.wrapping_add(1)).to_be_bytes()).unwrap();
        }

        fn receive(&mut self, frame: &[u8]) {
            let received = Received { tir: self.tir, tag: Some(0x1234), metadata: 0x77, frame: frame.to_vec() };
            self.hca.hand_over(&self.memory, &[received]);
        }

        fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
            let mut bytes = vec![0; length];
            self.memory.read(address, &mut bytes).unwrap();
            bytes
        }

        /// Opcode, syndrome and index of the first completions.
        fn failures(&self) -> [(u8, u8, u8); 3] {
            [0, 1, 2].map(|number| {
                let completion = self.bytes(CQ_PAGE + number * 64, 64);
                (completion[63] >> 4, completion[55], completion[61])
            })
        }

        fn out_of_buffer(&mut self) -> u8 {
            let fields = [(l::query_q_counter::COUNTER_SET_ID, self.counter)];
            run(&mut self.hca, 0x773, 0, &l::query_q_counter::LAYOUT, &fields, &[])[0x33]
        }
    }

    #[test]
    fn a_frame_fills_its_buffers_in_order_and_its_completion_tells_of_it() {
        let mut receiver = Receiver::new(false).ready();
        receiver.post(0, [20, 100]);
        let frame = tcp_frame();
        receiver.receive(&frame);
        assert_eq!(receiver.hca.complaints(), Vec::<String>::new());
        assert_eq!(receiver.bytes(BUFFERS[0], 20), frame[..20]);
        assert_eq!(receiver.bytes(BUFFERS[1], frame.len() - 20), frame[20..]);
        let completion = receiver.bytes(CQ_PAGE, 64);
        // Right sums over IPv4 and TCP, IPv4, register B, length, tag, first entry.
        assert_eq!((completion[28], completion[29]), (0x7, 2 << 2));
        assert_eq!(completion[36..40], [0, 0, 0, 0x77]);
        assert_eq!(usize::from(completion[47]), frame.len());
        assert_eq!(completion[56..60], [0, 0, 0x12, 0x34]);
        assert_eq!((&completion[60..62], completion[63]), (&[0, 0][..], 0x20));
        // In ones' complement, the header that is right adds nothing.
        assert_eq!(completion[20..22], sum(&frame[34..]).to_be_bytes());
    }

    #[test]
    fn a_checksum_that_is_wrong_is_not_said_to_be_right() {
        let mut receiver = Receiver::new(false).ready();
        receiver.post(0, [200, 0]);
        let mut frame = tcp_frame();
        frame[50] ^= 1;
        receiver.receive(&frame);
        assert_eq!(receiver.bytes(CQ_PAGE, 64)[28], 0x3);
    }

    #[test]
    fn a_tag_goes_into_the_completion_where_the_queue_strips_it() {
        let frame = ethernet(
            0x8100,
            &tagged(3 << 13 | 100, 0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &udp(1, 2, &[7; 9]))),
        );
        for strips in [true, false] {
            let mut receiver = Receiver::new(strips).ready();
            receiver.post(0, [200, 0]);
            receiver.receive(&frame);
            let completion = receiver.bytes(CQ_PAGE, 64);
            let length = frame.len() - if strips { 4 } else { 0 };
            assert_eq!((usize::from(completion[47]), completion[29] & 1), (length, u8::from(strips)));
            let tci: u16 = if strips { 3 << 13 | 100 } else { 0 };
            assert_eq!(completion[30..32], tci.to_be_bytes());
            assert_eq!(receiver.bytes(BUFFERS[0] + 12, 2), if strips { [8, 0] } else { [0x81, 0] });
        }
    }

    #[test]
    fn without_a_buffer_a_frame_is_lost_and_counted() {
        let mut receiver = Receiver::new(false).ready();
        receiver.post(0, [200, 0]);
        (0..3).for_each(|_| receiver.receive(&tcp_frame()));
        assert_eq!(receiver.out_of_buffer(), 2);
        receiver.post(1, [200, 0]);
        receiver.receive(&tcp_frame());
        assert_eq!(receiver.bytes(CQ_PAGE + 64, 64)[60..62], [0, 1]);
    }

    #[test]
    fn a_queue_that_is_not_ready_takes_nothing_and_one_with_too_small_buffers_fails() {
        let mut receiver = Receiver::new(false);
        receiver.post(0, [200, 0]);
        receiver.receive(&tcp_frame());
        assert_eq!(receiver.out_of_buffer(), 0);
        let mut receiver = receiver.ready();
        receiver.post(0, [20, 0]);
        receiver.post(1, [200, 0]);
        receiver.receive(&tcp_frame());
        assert_eq!(receiver.hca.complaints().len(), 1);
        // Too long, and flushed; nothing is written, and nothing more comes.
        receiver.receive(&tcp_frame());
        assert_eq!(receiver.failures(), [(0xe, 0x01, 0), (0xe, 0x05, 1), (0, 0, 0)]);
        assert_eq!((receiver.bytes(BUFFERS[0], 4), receiver.out_of_buffer()), (vec![0; 4], 0));
    }

    #[test]
    fn buffers_that_are_under_no_key_take_the_queue_into_error() {
        let mut receiver = Receiver::new(false).ready();
        receiver.key ^= 0x100;
        receiver.post(0, [200, 0]);
        receiver.receive(&tcp_frame());
        assert_eq!(receiver.failures()[..2], [(0xe, 0x04, 0), (0, 0, 0)]);
    }
}
