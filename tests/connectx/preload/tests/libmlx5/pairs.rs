//! Queue pairs by verbs for frames as they are, and what tells of their completions.

use std::time::{Duration, Instant};

use sluice_connectx::profile::BLUEFIELD_2;
use sluice_connectx::steering::Port;
use sluice_connectx_preload::{Plugged, plug};
use sluice_connectx_uverbs::Privileges;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match};
use sluice_libmlx5::verbs::{Completion, CompletionQueue, Frame, State};

use crate::frames::checksum;
use crate::rig::field as f;
use crate::rig::{FORMATS, counters, datagram, device, exactly, open, play, read_counter, value, walk};

/// Bytes of a buffer.
const BUFFER: u32 = 256;
/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// So long that what is to come would have come, in milliseconds.
const SILENCE: i32 = 50;
const SOON: i32 = 20_000;

fn frame(last: u8) -> Vec<u8> {
    datagram([10, 0, 0, last])
}

fn completion(queue: &CompletionQueue<'_>) -> Completion {
    let end = Instant::now() + PATIENCE;
    loop {
        match queue.poll().unwrap() {
            Some(completion) => return completion,
            None => assert!(Instant::now() < end, "no completion"),
        }
        std::thread::yield_now();
    }
}

fn received(request: u64, frame: &[u8], tag: u32) -> Completion {
    let bytes = u32::try_from(frame.len()).unwrap();
    Completion { request, status: 0, bytes, is_received: true, pair_or_tag: tag }
}

/// What has gone out of the device.
fn sent(plugged: &Plugged) -> Vec<(Port, Vec<u8>)> {
    plugged.device().with(sluice_connectx::hca::Hca::take_sent)
}

#[test]
fn a_queue_pair_receives_what_flows_and_rules_lead_to_it_and_sends_out_of_the_wire() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            plugged.device().open_slow_path().unwrap();
            let mut memory = vec![0; 4 * BUFFER as usize];
            {
                let protection = context.protection_domain().unwrap();
                let region = protection.register(&mut memory).unwrap();
                let queues = [0, 1].map(|_| context.completion_queue(15).unwrap());
                let [sends, receives] = &queues;
                let pair = protection.queue_pair((sends, 8), (receives, 8)).unwrap();
                pair.start().unwrap();
                for number in 0..3_u16 {
                    pair.receive(number.into(), &region, usize::from(number) * BUFFER as usize, BUFFER).unwrap();
                }
                let domain = Domain::create(context, Kind::NicReceive).unwrap();
                let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
                let (block, first) = counters(context, 0);
                let (count, to) = (Action::count(&block, 0).unwrap(), Action::to_queue_pair(&pair).unwrap());
                let (tag, onward, all) =
                    (Action::tag(0x1234).unwrap(), Action::to_table(&table).unwrap(), Match::default());
                let destination = |last| [(f::IP_VERSION, 4), (f::DESTINATION_V4, u128::from(0x0a00_0000_u32 + last))];
                let (mask, wanted) = exactly(&destination(2));
                let (early, late) = (root.matcher(0, &mask).unwrap(), root.matcher(1, &all).unwrap());
                let _flow = early.rule(&value(&destination(3)), &[&to]).unwrap();
                let _onward = late.rule(&all, &[&onward]).unwrap();
                let matcher = table.matcher(0, &mask).unwrap();
                let _rule = matcher.rule(&wanted, &[&count, &tag, &to]).unwrap();
                domain.sync().unwrap();

                for last in [2, 4, 3] {
                    walk(plugged, Port::Wire, &frame(last));
                }
                assert_eq!(completion(receives), received(0, &frame(2), 0x1234), "by a rule in steering memory");
                assert_eq!(completion(receives), received(1, &frame(3), 0), "by a flow of the kernel's");
                assert_eq!(receives.poll().unwrap(), None, "nothing leads the other one");
                assert_eq!(read_counter(&block, first).packets, 1);

                let length = u32::try_from(frame(2).len()).unwrap();
                pair.send(7, Frame::Registered(&region, 0, length)).unwrap();
                pair.send(8, Frame::Inline(&frame(9))).unwrap();
                for request in [7, 8] {
                    let completion = completion(sends);
                    let told = (completion.request, completion.status, completion.is_received, completion.pair_or_tag);
                    assert_eq!(told, (request, 0, false, pair.number()));
                }
                assert_eq!(sent(plugged), [(Port::Wire, frame(2)), (Port::Wire, frame(9))]);
            }
            let buffers: Vec<_> = memory.chunks(BUFFER as usize).collect();
            for (buffer, last) in [(0, 2), (1, 3)] {
                assert_eq!(buffers[buffer][..frame(last).len()], frame(last), "buffer {buffer}");
            }
            assert_eq!(buffers[2], [0; BUFFER as usize]);
        });
    }
}

#[test]
fn checksums_that_a_program_leaves_to_the_device_are_right_on_the_wire() {
    play(BLUEFIELD_2, |plugged, context| {
        plugged.device().open_slow_path().unwrap();
        let right = frame(2);
        let mut wrong = right.clone();
        // Of IPv4, and of UDP.
        (wrong[24], wrong[40], wrong[41]) = (wrong[24] ^ 1, 0, 0);
        let mut memory = wrong.clone();
        let protection = context.protection_domain().unwrap();
        let region = protection.register(&mut memory).unwrap();
        let told = context.completion_queue(15).unwrap();
        let pair = protection.queue_pair((&told, 8), (&told, 1)).unwrap();
        pair.start().unwrap();
        let length = u32::try_from(wrong.len()).unwrap();
        pair.send(0, Frame::Registered(&region, 0, length)).unwrap();
        pair.send_with_checksums(1, Frame::Registered(&region, 0, length)).unwrap();
        pair.send_with_checksums(2, Frame::Inline(&wrong)).unwrap();
        (0..3).for_each(|request| assert_eq!(completion(&told).request, request));
        let filled = &mut right.clone();
        let covered = [&right[26..34], &[0, 17], &right[38..40], &right[34..40], &[0, 0], &right[42..]].concat();
        let udp = checksum(&covered);
        filled[40..42].copy_from_slice(&udp.to_be_bytes());
        let wire = |frame: &[u8]| (Port::Wire, frame.to_vec());
        assert_eq!(sent(plugged), [wire(&wrong), wire(filled), wire(filled)]);
    });
}

/// Plays with a queue pair to which all frames from the wire come, its two queues of completions on a channel, and buffers in it.
macro_rules! play_told {
    ($plugged:ident, $context:ident, $channel:ident, $queues:ident, $pair:ident, $region:ident, $story:block) => {
        let mut memory = vec![0; 4 * BUFFER as usize];
        $plugged.device().open_slow_path().unwrap();
        let protection = $context.protection_domain().unwrap();
        let $region = protection.register(&mut memory).unwrap();
        let $channel = $context.channel().unwrap();
        let $queues = [0, 1].map(|_| $context.completion_queue_on(15, &$channel).unwrap());
        let $pair = protection.queue_pair((&$queues[0], 8), (&$queues[1], 8)).unwrap();
        $pair.start().unwrap();
        (0..6).for_each(|number| $pair.receive(number, &$region, 0, BUFFER).unwrap());
        let domain = Domain::create(&$context, Kind::NicReceive).unwrap();
        let root = domain.table(0).unwrap();
        let (all, to) = (Match::default(), Action::to_queue_pair(&$pair).unwrap());
        let every = root.matcher(0, &all).unwrap();
        let _rule = every.rule(&all, &[&to]).unwrap();
        $story
    };
}

#[test]
fn a_channel_tells_once_of_each_queue_that_wants_it_and_of_what_came_before_it_did() {
    play(BLUEFIELD_2, |plugged, context| {
        play_told!(plugged, context, channel, queues, pair, region, {
            let [sends, receives] = &queues;
            let come = || drop(walk(plugged, Port::Wire, &frame(2)));
            come();
            assert!(!channel.tells_within(SILENCE).unwrap(), "nobody wants to be told");
            receives.request(false).unwrap();
            assert!(receives.is(channel.wait().unwrap()), "what came before");
            completion(receives);
            come();
            assert!(!channel.tells_within(SILENCE).unwrap(), "it was told once");
            completion(receives);
            receives.request(false).unwrap();
            sends.request(false).unwrap();
            assert!(!channel.tells_within(SILENCE).unwrap(), "nothing has come");
            come();
            come();
            assert!(receives.is(channel.wait().unwrap()));
            assert!(!channel.tells_within(SILENCE).unwrap(), "of two completions it tells once");
            pair.send(1, Frame::Registered(&region, 0, 60)).unwrap();
            assert!(channel.tells_within(SOON).unwrap());
            assert!(sends.is(channel.wait().unwrap()));
            // More often than there are numbers for requests.
            for _ in 0..9 {
                sends.request(false).unwrap();
                while sends.poll().unwrap().is_some() {}
                pair.send(2, Frame::Registered(&region, 0, 60)).unwrap();
                assert!(channel.tells_within(SOON).unwrap());
                assert!(sends.is(channel.wait().unwrap()));
            }
            assert!(!channel.tells_within(SILENCE).unwrap());
        });
        sent(plugged);
    });
}

#[test]
fn a_queue_that_goes_takes_along_what_a_channel_has_not_told_of_it() {
    play(BLUEFIELD_2, |_, context| {
        let channel = context.channel().unwrap();
        let protection = context.protection_domain().unwrap();
        let [gone, staying] = [0, 1].map(|_| context.completion_queue_on(15, &channel).unwrap());
        for queue in [&gone, &staying] {
            let pair = protection.queue_pair((queue, 1), (queue, 1)).unwrap();
            pair.start().unwrap();
            queue.request(false).unwrap();
            pair.send(0, Frame::Inline(&frame(2))).unwrap();
            assert!(channel.tells_within(SOON).unwrap());
            while queue.poll().unwrap().is_none() {}
        }
        drop(gone);
        assert!(staying.is(channel.wait().unwrap()));
        assert!(!channel.tells_within(SILENCE).unwrap());
    });
}

#[test]
fn a_queue_that_wants_to_be_told_of_errors_only_hears_of_a_frame_that_is_not_under_a_key() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        play_told!(plugged, context, channel, queues, pair, region, {
            let [sends, _] = &queues;
            sends.request(true).unwrap();
            pair.send(1, Frame::Registered(&region, 0, 60)).unwrap();
            assert_eq!(completion(sends).status, 0);
            assert!(!channel.tells_within(SILENCE).unwrap());
            pair.send(2, Frame::Registered(&region, 4 * BUFFER as usize, 60)).unwrap();
            assert!(channel.tells_within(SOON).unwrap());
            assert!(sends.is(channel.wait().unwrap()));
            let completion = completion(sends);
            assert_eq!((completion.request, completion.status), (2, NOT_UNDER_A_KEY));
        });
    }
    drop(context);
    let complaints = plugged.device().with(|hca| hca.complaints().to_vec());
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("are not under key"), "{complaints:?}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

/// Of `enum ibv_wc_status`.
const TOO_LONG: u32 = 1;
const NOT_UNDER_A_KEY: u32 = 4;
const FLUSHED: u32 = 5;

#[test]
fn what_a_queue_pair_has_not_come_to_when_it_fails_is_flushed() {
    play(BLUEFIELD_2, |plugged, context| {
        let mut memory = vec![0; BUFFER as usize];
        let protection = context.protection_domain().unwrap();
        let region = protection.register(&mut memory).unwrap();
        let queues = [0, 1].map(|_| context.completion_queue(15).unwrap());
        let [sends, receives] = &queues;
        let pair = protection.queue_pair((sends, 8), (receives, 8)).unwrap();
        pair.start().unwrap();
        (0..3).for_each(|number| pair.receive(number, &region, 0, BUFFER).unwrap());
        // Carried out only when the pair has failed.
        plugged.device().hold();
        (10..12).for_each(|number| pair.send(number, Frame::Registered(&region, 0, 60)).unwrap());
        pair.become_state(State::Error).unwrap();
        plugged.device().release();
        pair.receive(3, &region, 0, BUFFER).unwrap();
        pair.send(12, Frame::Registered(&region, 0, 60)).unwrap();
        for (queue, requests) in [(receives, 0..4), (sends, 10..13)] {
            for request in requests {
                let told = completion(queue);
                assert_eq!((told.request, told.status), (request, FLUSHED));
            }
            assert_eq!(queue.poll().unwrap(), None);
        }
        assert_eq!(sent(plugged), []);
        // From the beginning it sends again.
        pair.become_state(State::Reset).unwrap();
        pair.start().unwrap();
        pair.send(13, Frame::Registered(&region, 0, 60)).unwrap();
        assert_eq!((completion(sends).status, plugged.device().with(|hca| hca.complaints().len())), (0, 0));
    });
}

#[test]
fn a_frame_that_is_longer_than_its_buffer_ends_receiving() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        play_told!(plugged, context, channel, queues, pair, region, {
            let [sends, receives] = &queues;
            // Behind six that are large enough.
            pair.receive(6, &region, 0, 20).unwrap();
            pair.receive(7, &region, 0, BUFFER).unwrap();
            for request in 0..6 {
                walk(&plugged, Port::Wire, &frame(2));
                assert_eq!(completion(receives).request, request);
            }
            receives.request(true).unwrap();
            walk(&plugged, Port::Wire, &frame(2));
            assert!(channel.tells_within(SOON).unwrap());
            assert!(receives.is(channel.wait().unwrap()));
            for wanted in [(6, TOO_LONG), (7, FLUSHED)] {
                let told = completion(receives);
                assert_eq!((told.request, told.status), wanted);
            }
            pair.send(8, Frame::Registered(&region, 0, 60)).unwrap();
            assert_eq!(completion(sends).status, 0, "sending goes on");
        });
    }
    drop(context);
    let complaints = plugged.device().with(|hca| hca.complaints().to_vec());
    assert!(complaints.len() == 1 && complaints[0].contains("has buffers of 20"), "{complaints:?}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn a_queue_pair_receives_and_sends_as_its_state_says() {
    play(BLUEFIELD_2, |plugged, context| {
        plugged.device().open_slow_path().unwrap();
        let mut memory = vec![0; BUFFER as usize];
        let protection = context.protection_domain().unwrap();
        let region = protection.register(&mut memory).unwrap();
        let queues = [0, 1].map(|_| context.completion_queue(15).unwrap());
        let [sends, receives] = &queues;
        let pair = protection.queue_pair((sends, 8), (receives, 8)).unwrap();
        let domain = Domain::create(context, Kind::NicReceive).unwrap();
        let root = domain.table(0).unwrap();
        let (all, to) = (Match::default(), Action::to_queue_pair(&pair).unwrap());
        let every = root.matcher(0, &all).unwrap();
        let _rule = every.rule(&all, &[&to]).unwrap();
        let comes = || {
            walk(plugged, Port::Wire, &frame(2));
            receives.poll().unwrap().is_some()
        };
        pair.become_state(State::Initialized).unwrap();
        (0..4).for_each(|number| pair.receive(number, &region, 0, BUFFER).unwrap());
        assert!(!comes());
        pair.become_state(State::ReadyToReceive).unwrap();
        assert!(comes());
        pair.become_state(State::ReadyToSend).unwrap();
        pair.send(0, Frame::Inline(&frame(3))).unwrap();
        completion(sends);
        assert_eq!(sent(plugged), [(Port::Wire, frame(3))]);
        assert!(comes());
        pair.become_state(State::Error).unwrap();
        (2..4).for_each(|request| assert_eq!(completion(receives).request, request, "flushed"));
        assert!(!comes());
        pair.become_state(State::Reset).unwrap();
        assert!(!comes());
        pair.start().unwrap();
        pair.receive(9, &region, 0, BUFFER).unwrap();
        assert!(comes());
    });
}

#[test]
fn queue_pairs_need_a_privilege_and_go_through_their_states_in_order() {
    let plugged = plug(BLUEFIELD_2, Privileges::NONE).unwrap();
    let context = open(&plugged);
    {
        let protection = context.protection_domain().unwrap();
        let queue = context.completion_queue(15).unwrap();
        assert!(protection.queue_pair((&queue, 8), (&queue, 8)).is_err());
    }
    drop(context);
    assert!(plugged.device().refusals()[0].contains("CAP_NET_RAW"), "{:?}", plugged.device().refusals());

    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let protection = context.protection_domain().unwrap();
        let queue = context.completion_queue(15).unwrap();
        let pair = protection.queue_pair((&queue, 8), (&queue, 8)).unwrap();
        assert!(pair.become_state(State::ReadyToSend).is_err());
        pair.start().unwrap();
        assert!(pair.become_state(State::Initialized).is_err());
        assert!(pair.become_state(State::ReadyToReceive).is_err());
    }
    drop(context);
    let refusals = plugged.device().refusals();
    assert_eq!(refusals.len(), 3, "{refusals:#?}");
    assert!(refusals.iter().all(|refusal| refusal.contains("does not become")), "{refusals:#?}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
