//! Requests that fail, and queue pairs that do.

use std::collections::BTreeSet;

use sluice_mirror::verbs::{
    Failure, Operation, Outcome, Payload, Psn, QueuePair, Reason, Receives, Remote, Retries, SendRequest, SharedMemory,
    State,
};
use sluice_tests::mlx5::{on_device, with_options};
use sluice_tests::world::eventually;

use crate::rig::{ROOM, Rig, completions, one, send};

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::SendFailed { failure, .. } | Outcome::ReceiveFailed { failure, .. } => failure,
        other => panic!("it did not fail: {other:?}"),
    }
}

#[test]
fn a_queue_pair_that_fails_gives_back_exactly_what_is_posted() {
    on_device("bluefield-3", "failures::a_queue_pair_that_fails_gives_back_exactly_what_is_posted", |_| {
        let rig = Rig::new(512);
        rig.post_receives(0..512, 64);
        rig.right.fail().unwrap();
        let mut tags = BTreeSet::new();
        for completion in completions(&rig.received, 512) {
            assert_eq!(completion.queue_pair, rig.right.number());
            let Outcome::ReceiveFailed { tag, buffers, failure } = completion.outcome else { panic!("{completion:?}") };
            assert_eq!((failure.reason, buffers.len(), buffers[0].len()), (Reason::Flushed, 1, 64));
            assert!(tags.insert(tag));
        }
        assert_eq!(tags, (0..512).collect());
        assert_eq!(rig.right.state().unwrap(), State::Error);
        // What is posted from then on comes back, too.
        rig.post_receives(512..513, 64);
        assert_eq!(failure(one(&rig.received)).reason, Reason::Flushed);
        rig.right.send(vec![send(1, Payload::Inline(b"too late"))]).unwrap();
        assert_eq!(failure(one(&rig.sent)).reason, Reason::Flushed);
    });
}

#[test]
fn a_wrong_key_fails_in_words_with_the_vendors_number_and_takes_what_follows_with_it() {
    let name = "failures::a_wrong_key_fails_in_words_with_the_vendors_number_and_takes_what_follows_with_it";
    with_options("bluefield-3", &[], &["there is no key"], name, |_| {
        let rig = Rig::new(16);
        rig.post_receives(0..3, 16);
        let memory = SharedMemory::new(&rig.domain, 64).unwrap();
        let Remote { address, key } = memory.remote();
        let wrong = Operation::Write(Remote { address, key: key ^ 0x5500 });
        let quiet = SendRequest { is_signalled: false, ..send(0, Payload::Inline(b"right")) };
        let wrong = SendRequest { operation: wrong, ..send(1, Payload::Inline(b"wrong")) };
        rig.left.send(vec![quiet, wrong, send(2, Payload::Inline(b"behind"))]).unwrap();
        let mut told = completions(&rig.sent, 2).into_iter().map(|completion| completion.outcome);
        let Some(Outcome::SendFailed { before, failed, failure: why }) = told.next() else { panic!("it did not fail") };
        assert_eq!((before.len(), before[0].tag, failed.tag), (1, 0, 1));
        assert_eq!(
            why.to_string(),
            "the other side does not allow access to that memory by that key (IBV_WC_REM_ACCESS_ERR), vendor error 0x88"
        );
        assert_eq!(failure(told.next().unwrap()).reason, Reason::Flushed);
        // One message came, and then the other side failed, too.
        let told: Vec<_> = completions(&rig.received, 3).into_iter().map(|completion| completion.outcome).collect();
        assert!(matches!(told[0], Outcome::Received(_)), "{told:?}");
        assert_eq!([rig.left.state().unwrap(), rig.right.state().unwrap()], [State::Error; 2]);
    });
}

#[test]
fn a_message_without_a_buffer_is_retried_as_often_as_was_agreed_on() {
    let name = "failures::a_message_without_a_buffer_is_retried_as_often_as_was_agreed_on";
    with_options("bluefield-3", &[], &["had no buffer 4 times"], name, |ports| {
        let rig = Rig::new(16);
        let mut device = ports.control();
        rig.left.send(vec![send(0, Payload::Inline(b"nobody waits for it"))]).unwrap();
        let why = failure(one(&rig.sent));
        assert_eq!((why.reason, why.vendor), (Reason::NoBuffer, 0x87));
        assert_eq!(device.ask("rnr"), "4", "the first, and three more");
    });
}

#[test]
fn a_message_without_a_buffer_waits_for_ever_where_that_was_agreed_on() {
    let name = "failures::a_message_without_a_buffer_waits_for_ever_where_that_was_agreed_on";
    on_device("bluefield-3", name, |ports| {
        let rig = Rig::unconnected(Receives::Own(16));
        rig.connect(7);
        let mut device = ports.control();
        rig.left.send(vec![send(0, Payload::Inline(b"patient"))]).unwrap();
        eventually("it is retried more often than a number of retries can say", || {
            device.ask("rnr").parse::<u64>().unwrap() > 10
        });
        rig.post_receives(0..1, 16);
        assert!(matches!(one(&rig.received), Outcome::Received(_)));
        assert!(matches!(one(&rig.sent), Outcome::Sent(_)));
    });
}

#[test]
fn a_message_that_nobody_expects_or_answers_fails() {
    let name = "failures::a_message_that_nobody_expects_or_answers_fails";
    with_options("bluefield-3", &[], &["did not answer 4 times"], name, |_| {
        // Of another number than the other side expects; and to a queue pair that is gone.
        for is_gone in [false, true] {
            let rig = Rig::unconnected(Receives::Own(16));
            rig.initialize();
            rig.join([if is_gone { 0x12_3456 } else { 1 }, 9], 7);
            rig.post_receives(0..1, 16);
            let Rig { left, right, sent, received, domain, context } = rig;
            let right = if is_gone {
                drop(right);
                None
            } else {
                Some(right)
            };
            left.send(vec![send(0, Payload::Inline(b"is anybody there"))]).unwrap();
            let why = failure(one(&sent));
            assert_eq!((why.reason, why.vendor), (Reason::NoAnswer, 0x81));
            drop((left, right, sent, received, domain, context));
        }
    });
}

#[test]
fn a_message_that_is_longer_than_its_buffers_fails_on_both_sides() {
    let name = "failures::a_message_that_is_longer_than_its_buffers_fails_on_both_sides";
    with_options("bluefield-3", &[], &["17 bytes, and QP"], name, |_| {
        let rig = Rig::new(16);
        rig.post_receives(0..1, 16);
        rig.left.send(vec![send(0, Payload::Inline(b"seventeen letters"))]).unwrap();
        assert_eq!(failure(one(&rig.sent)).reason, Reason::RemoteRequest);
        let why = failure(one(&rig.received));
        assert_eq!(why.reason, Reason::LocalLength);
    });
}

#[test]
fn dropping_a_queue_pair_with_work_in_flight_brings_all_of_it_back() {
    on_device("bluefield-3", "failures::dropping_a_queue_pair_with_work_in_flight_brings_all_of_it_back", |_| {
        for round in 0..10 {
            let rig = Rig::unconnected(Receives::Own(64));
            rig.connect(7);
            // Messages for which there is no buffer, so that they are in flight for ever, and buffers for which there is no message.
            rig.left.receive(rig.receives(100..110, 16)).unwrap();
            rig.left.send((0..20).map(|tag| send(tag, Payload::Inline(b"in flight"))).collect()).unwrap();
            if round % 2 == 0 {
                rig.post_receives(0..5, 16);
            }
            let Rig { left, right, sent, received, .. } = rig;
            drop(left);
            let mut told = Vec::new();
            sent.poll(&mut told).unwrap();
            assert_eq!(told.len(), 20, "all is there at once");
            let carried_out = told.iter().filter(|told| matches!(told.outcome, Outcome::Sent(_))).count();
            assert!(carried_out <= if round % 2 == 0 { 5 } else { 0 });
            told.clear();
            drop(right);
            received.poll(&mut told).unwrap();
            assert_eq!(told.len(), 10 + if round % 2 == 0 { 5 } else { 0 });
        }
    });
}

#[test]
fn what_the_device_has_not_told_of_comes_back_once_the_queue_pair_is_destroyed() {
    let name = "failures::what_the_device_has_not_told_of_comes_back_once_the_queue_pair_is_destroyed";
    on_device("bluefield-3", name, |_| {
        let rig = Rig::new(16);
        rig.post_receives(0..2, 16);
        // It is carried out without a completion, and no completion follows that would bring it back.
        for tag in [7, 8] {
            let quiet = send(tag, Payload::Buffers(vec![rig.buffer(b"quiet")]));
            rig.left.send(vec![SendRequest { is_signalled: false, ..quiet }]).unwrap();
        }
        completions(&rig.received, 2);
        let Rig { left, sent, .. } = rig;
        drop(left);
        let told = completions(&sent, 2).into_iter().map(|completion| match completion.outcome {
            Outcome::SendFailed { before, failed, failure } => (before.len(), failed, failure.reason),
            other => panic!("the device has told of it: {other:?}"),
        });
        for ((before, failed, reason), tag) in told.zip([7, 8]) {
            assert_eq!((before, failed.tag, reason), (0, tag, Reason::Flushed));
            assert_eq!(failed.buffers[0][..], *b"quiet");
        }
    });
}

#[test]
fn a_queue_pair_that_was_never_connected_goes_with_what_is_posted_to_it() {
    let name = "failures::a_queue_pair_that_was_never_connected_goes_with_what_is_posted_to_it";
    on_device("bluefield-3", name, |_| {
        let rig = Rig::unconnected(Receives::Own(64));
        assert!(rig.right.receive(rig.receives(0..1, 16)).is_err(), "not in RESET");
        rig.initialize();
        rig.post_receives(0..64, 16);
        let refused = rig.right.send(vec![send(0, Payload::Inline(b"not yet"))]).unwrap_err();
        assert_eq!((refused.posted, refused.rest.len()), (0, 1));
        drop(rig.right);
        assert_eq!(completions(&rig.received, 64).len(), 64);
    });
}

#[test]
fn a_transition_out_of_order_is_refused_and_changes_nothing() {
    let name = "failures::a_transition_out_of_order_is_refused_and_changes_nothing";
    with_options("bluefield-3", &[], &["does not become", "state 4 of a QP"], name, |_| {
        let rig = Rig::unconnected(Receives::Own(1));
        let retries = Retries { psn: Psn::new(0), timeout: 14, retries: 7, rnr_retries: 7 };
        assert!(rig.left.connect(&rig.to(&rig.right, 0)).is_err());
        assert!(rig.left.start(&retries).is_err());
        assert_eq!(rig.left.state().unwrap(), State::Reset);
        rig.connect(7);
        // mlx5_ib has no SQD; the connection goes on.
        assert!(rig.left.drain_sends().is_err());
        assert_eq!(rig.left.state().unwrap(), State::ReadyToSend);
        let third = QueuePair::new(&rig.domain, (&rig.sent, &rig.received), Receives::Own(1), ROOM).unwrap();
        assert_eq!(third.state().unwrap(), State::Reset);
    });
}
