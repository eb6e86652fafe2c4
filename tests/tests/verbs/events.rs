//! Completions by events, on tokio's reactor.

use std::future::Future;
use std::time::Duration;

use sluice_mirror::verbs::{CompletionChannel, CompletionQueue, Payload, QueuePair, Receives, SendRequest};
use sluice_tests::mlx5::on_device;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::rig::{ROOM, Rig, completions, message, send, tags};

fn play(story: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(story);
}

/// A rig whose both queues of completions are told of by one channel.
fn rig() -> Rig {
    let first = Rig::unconnected(Receives::Own(1));
    let channel = CompletionChannel::new(&first.context).unwrap();
    let queue = || CompletionQueue::with_events(&channel, 512).unwrap();
    let (sent, received) = (queue(), queue());
    let pair = || QueuePair::new(&first.domain, (&sent, &received), Receives::Own(256), ROOM).unwrap();
    let (left, right) = (pair(), pair());
    let rig = Rig { left, right, sent, received, domain: first.domain.clone(), context: first.context.clone() };
    rig.connect(7);
    rig
}

#[test]
fn one_channel_tells_each_queue_of_its_own_completions() {
    on_device("bluefield-3", "events::one_channel_tells_each_queue_of_its_own_completions", |_| {
        play(async {
            let rig = rig();
            rig.post_receives(0..256, 16);
            // More than are acknowledged at a time, and by two tasks at once.
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            for tag in 0..100 {
                rig.left.send(vec![send(tag, Payload::Inline(b"event"))]).unwrap();
                let (mut here, mut there) = (Vec::new(), Vec::new());
                let (one, other) = tokio::join!(rig.sent.next(&mut here), rig.received.next(&mut there));
                assert_eq!((one.unwrap(), other.unwrap()), (1, 1));
                sent.extend(here.into_iter().flat_map(|completion| tags(completion.outcome)));
                received.extend(there.into_iter().map(|completion| message(completion.outcome).tag));
            }
            assert_eq!((sent, received), ((0..100).collect(), (0..100).collect()));
        });
    });
}

#[test]
fn nothing_is_lost_by_who_stops_waiting() {
    on_device("bluefield-3", "events::nothing_is_lost_by_who_stops_waiting", |_| {
        play(async {
            let rig = rig();
            rig.post_receives(0..1, 16);
            let mut told = Vec::new();
            let silence = timeout(Duration::from_millis(20), rig.received.next(&mut told)).await;
            assert!(silence.is_err() && told.is_empty(), "nothing was sent yet");
            rig.left.send(vec![send(0, Payload::Inline(b"late"))]).unwrap();
            assert_eq!(timeout(Duration::from_secs(10), rig.received.next(&mut told)).await.unwrap().unwrap(), 1);
        });
    });
}

#[test]
fn an_event_of_what_was_polled_already_hides_no_later_one() {
    on_device("bluefield-3", "events::an_event_of_what_was_polled_already_hides_no_later_one", |_| {
        play(async {
            let rig = rig();
            rig.post_receives(0..20, 16);
            let mut told = Vec::new();
            for tag in (0..20).step_by(2) {
                let silence = timeout(Duration::from_millis(5), rig.received.next(&mut told)).await;
                assert!(silence.is_err() && told.is_empty(), "nothing was sent yet");
                rig.left.send(vec![send(tag, Payload::Inline(b"polled"))]).unwrap();
                told.extend(completions(&rig.received, 1));
                let silence = timeout(Duration::from_millis(5), rig.received.next(&mut told)).await;
                assert!(silence.is_err() && told.len() == 1, "nothing more was sent");
                rig.left.send(vec![send(tag + 1, Payload::Inline(b"waited for"))]).unwrap();
                assert_eq!(timeout(Duration::from_secs(10), rig.received.next(&mut told)).await.unwrap().unwrap(), 1);
                told.clear();
            }
        });
    });
}

#[test]
fn who_waits_for_solicited_messages_sleeps_through_others() {
    on_device("bluefield-3", "events::who_waits_for_solicited_messages_sleeps_through_others", |_| {
        play(async {
            let rig = rig();
            rig.post_receives(0..8, 16);
            let mut told = Vec::new();
            {
                let waits = rig.received.next_solicited(&mut told);
                tokio::pin!(waits);
                let asleep = timeout(Duration::from_millis(20), &mut waits).await.is_err();
                assert!(asleep, "nothing was sent yet");
                rig.left.send(vec![send(0, Payload::Inline(b"not for you"))]).unwrap();
                let asleep = timeout(Duration::from_millis(50), &mut waits).await.is_err();
                assert!(asleep, "nobody is told of it");
                let solicited = SendRequest { is_solicited: true, ..send(1, Payload::Inline(b"for you")) };
                rig.left.send(vec![solicited]).unwrap();
                assert_eq!(timeout(Duration::from_secs(10), waits).await.unwrap().unwrap(), 2);
            }
            assert_eq!(told.len(), 2);
        });
    });
}

#[test]
fn a_channel_needs_a_runtime_and_a_queue_without_one_is_only_polled() {
    on_device("bluefield-3", "events::a_channel_needs_a_runtime_and_a_queue_without_one_is_only_polled", |_| {
        let rig = Rig::unconnected(Receives::Own(1));
        assert!(CompletionChannel::new(&rig.context).is_err());
        play(async {
            let refused = rig.received.next(&mut Vec::new()).await.unwrap_err();
            assert_eq!(refused.source.kind(), std::io::ErrorKind::Unsupported);
        });
    });
}
