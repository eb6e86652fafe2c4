//! Receive queues by verbs, tables of them, and queue pairs that spread frames by a hash; states of queue pairs as verbs tell them.

use std::time::{Duration, Instant};

use sluice_connectx::profile::BLUEFIELD_2;
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match};
use sluice_libmlx5::verbs::{CompletionQueue, Frame, QueuePair, State, WorkQueue, WorkState};

use crate::frames::{ethernet, ipv4, segment};
use crate::rig::{FORMATS, device, object, open, play, walk};

/// Source, destination, and hashes over both with ports, and without.
type Connection = ([u8; 4], u16, [u8; 4], u16, u32, u32);

/// Key, connections and hashes of Microsoft's "Verifying the RSS Hash Calculation": over addresses and ports, and over addresses.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];
const CONNECTIONS: [Connection; 5] = [
    ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x51cc_c178, 0x323e_8fc2),
    ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xc626_b0ea, 0xd718_262a),
    ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0x5c2b_394a, 0xd2d0_a5de),
    ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0xafc7_327f, 0x8298_9176),
    ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x10e8_28a2, 0x5d18_09c5),
];

/// Of `enum ibv_rx_hash_fields`.
const ADDRESSES: u64 = 0x3;
const TCP_PORTS: u64 = 0x30;
const V6_SOURCE: u64 = 0x4;

const BUFFER: u32 = 256;
/// Of `enum ibv_wc_status`.
const FLUSHED: u32 = 5;

fn frames() -> Vec<Vec<u8>> {
    let frame = |(source, from, destination, to, ..): Connection| {
        ethernet(0x0800, &ipv4(source, destination, 6, &segment(from, to, 0x10)))
    };
    CONNECTIONS.into_iter().map(frame).collect()
}

/// The number of the queue whose completions tell of a frame, of which there is one.
fn taken(queues: &[CompletionQueue<'_>]) -> Option<usize> {
    let told: Vec<_> = queues.iter().enumerate().filter(|(_, queue)| queue.poll().unwrap().is_some()).collect();
    assert!(told.len() <= 1, "{told:?}");
    told.first().map(|(number, _)| *number)
}

#[test]
fn a_hash_picks_the_queue_from_a_table_and_another_table_another_one() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            plugged.device().open_slow_path().unwrap();
            let mut memory = vec![0; BUFFER as usize];
            let protection = context.protection_domain().unwrap();
            let region = protection.register(&mut memory).unwrap();
            let told = [0; 4].map(|_| context.completion_queue(63).unwrap());
            let queues: Vec<WorkQueue<'_>> = told.iter().map(|told| protection.work_queue(told, 16).unwrap()).collect();
            for queue in &queues {
                queue.become_state(WorkState::Ready).unwrap();
                (0..16).for_each(|number| queue.receive(number, &region, 0, BUFFER).unwrap());
            }
            let forward: Vec<_> = queues.iter().collect();
            let backward: Vec<_> = queues.iter().rev().collect();
            let tables = [forward, backward].map(|queues| context.work_table(&queues).unwrap());
            for (table, fields, hash, turned) in
                [(0, ADDRESSES | TCP_PORTS, 0, false), (0, ADDRESSES, 1, false), (1, ADDRESSES | TCP_PORTS, 0, true)]
            {
                let pair = protection.hashing_pair(&tables[table], &mut KEY.clone(), fields).unwrap();
                let domain = Domain::create(context, Kind::NicReceive).unwrap();
                let root = domain.table(0).unwrap();
                let (all, to) = (Match::default(), Action::to_queue_pair(&pair).unwrap());
                let every = root.matcher(0, &all).unwrap();
                let _rule = every.rule(&all, &[&to]).unwrap();
                for (frame, (.., ports, addresses)) in frames().iter().zip(CONNECTIONS) {
                    let place = [ports, addresses][hash] as usize % 4;
                    walk(plugged, Port::Wire, frame);
                    assert_eq!(taken(&told), Some(if turned { 3 - place } else { place }), "{fields:#x}");
                }
                let why = pair.query().unwrap_err();
                assert_eq!(why.raw_os_error(), Some(errno::EOPNOTSUPP), "libmlx5 asks for none such");
            }
            // One that fails takes nothing, and gives back what it has.
            queues[3].become_state(WorkState::Error).unwrap();
            let back = std::iter::from_fn(|| told[3].poll().unwrap());
            assert!(back.inspect(|told| assert_eq!(told.status, FLUSHED)).count() > 0);
        });
    }
}

#[test]
fn the_same_hash_leads_elsewhere_when_its_table_changes() {
    const CREATE_RQT: u16 = 0x916;
    const MODIFY_RQT: u16 = 0x917;
    const CREATE_TIR: u16 = 0x900;
    const LIST: usize = 0x110;
    play(BLUEFIELD_2, |plugged, context| {
        plugged.device().open_slow_path().unwrap();
        let mut memory = vec![0; BUFFER as usize];
        let protection = context.protection_domain().unwrap();
        let region = protection.register(&mut memory).unwrap();
        let told = [0; 4].map(|_| context.completion_queue(63).unwrap());
        let queues: Vec<WorkQueue<'_>> = told.iter().map(|told| protection.work_queue(told, 16).unwrap()).collect();
        for queue in &queues {
            queue.become_state(WorkState::Ready).unwrap();
            (0..16).for_each(|number| queue.receive(number, &region, 0, BUFFER).unwrap());
        }
        let list = |order: [usize; 4]| (LIST..).step_by(4).zip(order.map(|queue| queues[queue].number()));
        let words: Vec<_> = [(0x34, 4), (0x38, 4)].into_iter().chain(list([0, 1, 2, 3])).collect();
        let (table, rqtn) = object(context, CREATE_RQT, &words, LIST + 16);
        let (_domain, transport) = object(context, 0x816, &[], 16);
        let key = (0x48..).step_by(4).zip(KEY.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)));
        let hash = [(0x24, 1 << 28), (0x40, rqtn), (0x44, 2 << 28 | transport), (0x70, 0xf)];
        let words: Vec<_> = hash.into_iter().chain(key).collect();
        let (tir, _) = object(context, CREATE_TIR, &words, LIST);
        let domain = Domain::create(context, Kind::NicReceive).unwrap();
        let root = domain.table(0).unwrap();
        let (all, to) = (Match::default(), Action::to_tir(&tir).unwrap());
        let every = root.matcher(0, &all).unwrap();
        let _rule = every.rule(&all, &[&to]).unwrap();
        let play = |order: [usize; 4]| {
            for (frame, (.., ports, _)) in frames().iter().zip(CONNECTIONS) {
                walk(plugged, Port::Wire, frame);
                assert_eq!(taken(&told), Some(order[ports as usize % 4]), "{order:?}");
            }
        };
        play([0, 1, 2, 3]);
        let mut input = vec![0; LIST + 16];
        input[..2].copy_from_slice(&MODIFY_RQT.to_be_bytes());
        let words = [(0x8, rqtn), (0x14, 1), (0x38, 4)];
        for (at, word) in words.into_iter().chain(list([3, 0, 1, 2])) {
            input[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        table.modify(&input).unwrap();
        play([3, 0, 1, 2]);
    });
}

/// Numbers of errors.
mod errno {
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EOPNOTSUPP: i32 = 95;
}

#[test]
fn hashes_and_states_that_there_are_not_are_refused_as_the_kernel_refuses_them() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let protection = context.protection_domain().unwrap();
        let told = context.completion_queue(15).unwrap();
        let queues = [0, 1].map(|_| protection.work_queue(&told, 4).unwrap());
        let table = context.work_table(&[&queues[0], &queues[1]]).unwrap();
        for (key, fields, number) in [
            (40, ADDRESSES | V6_SOURCE, errno::EINVAL),
            (40, 0x50, errno::EINVAL),
            (40, 0, errno::EINVAL),
            (39, ADDRESSES, errno::EINVAL),
            (40, ADDRESSES | 1 << 31, errno::EOPNOTSUPP),
        ] {
            let refused = protection.hashing_pair(&table, &mut vec![1; key], fields).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(number), "{fields:#x}");
        }
        assert!(queues[0].become_state(WorkState::Error).is_err(), "it was never ready");
        assert_eq!(queues[0].why_it_stays().raw_os_error(), Some(errno::EBUSY), "the table has it");
    }
    drop(context);
    assert_eq!(plugged.device().refusals().len(), 8, "{:#?}", plugged.device().refusals());
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn a_queue_pair_tells_its_state_also_when_only_sending_has_failed() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let mut memory = vec![0; BUFFER as usize];
        let protection = context.protection_domain().unwrap();
        let region = protection.register(&mut memory).unwrap();
        let told = context.completion_queue(15).unwrap();
        let pair = protection.queue_pair((&told, 8), (&told, 8)).unwrap();
        let is = |pair: &QueuePair<'_>, state: State| assert_eq!(pair.query().unwrap(), (state as u32, 8));
        is(&pair, State::Reset);
        for state in [State::Initialized, State::ReadyToReceive, State::ReadyToSend] {
            pair.become_state(state).unwrap();
            is(&pair, state);
        }
        pair.send(1, Frame::Registered(&region, BUFFER as usize, 60)).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while told.poll().unwrap().is_none() {
            assert!(Instant::now() < end);
        }
        is(&pair, State::SendError);
        pair.become_state(State::Error).unwrap();
        is(&pair, State::Error);
        pair.become_state(State::Reset).unwrap();
        is(&pair, State::Reset);
    }
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
    assert!(plugged.device().with(|hca| hca.complaints()[0].contains("are not under key")));
    assert!(
        plugged.device().refusals().iter().all(|line| line.contains("QUERY_ESW_FUNCTIONS")),
        "{:?}",
        plugged.device().refusals()
    );
}
