//! Peers that send what nobody expects.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sluice_control::mirror::Class;
use sluice_mirror::collector::{CollectorConfig, Outputs};
use sluice_mirror::connection::{Capacity, Connection, Connector, Local};
use sluice_mirror::exchange::{Dialer, Settings};
use sluice_mirror::source::Batching;
use sluice_mirror::terms::Terms;
use sluice_mirror::verbs::{Operation, Outcome, Payload, SendRequest};
use sluice_mirror::wire::{CAUSES, Drops, Grant, HEADER, Header, Hello, Kind, Layout};
use sluice_tests::mlx5::on_device;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::agent::Agent;
use crate::captures::frames;
use crate::pressure::pipe;
use crate::rig::{CONFIG, Rig, folder, frame, play, settings, speak, until};

/// A peer that is connected as a sender is, and then sends what a test wants.
struct Peer {
    local: Local,
    connection: Connection,
}

impl Peer {
    async fn connect(rig: &Rig) -> Self {
        Self::connect_with(rig, settings()).await
    }

    async fn connect_with(rig: &Rig, settings: Settings) -> Self {
        let capacity = Capacity { sends: 64, send_segments: 1, receives: 64, receive_bytes: 512 };
        let local = Local::open("mlx5_0", capacity).unwrap();
        let mut dialer = Dialer { address: rig.address().to_owned(), settings };
        let connection = dialer.next(&local).await.unwrap();
        Self { local, connection }
    }

    fn send(&self, bytes: &[u8]) {
        let mut buffer = self.local.domain().buffer(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        let request = SendRequest {
            tag: 0,
            operation: Operation::Send,
            immediate: None,
            payload: Payload::Buffers(vec![buffer]),
            is_signalled: true,
            is_solicited: true,
        };
        self.connection.pair.send(vec![request]).unwrap();
    }

    /// Says who it is, and waits to be welcome.
    async fn hello(&self, sender: u64) -> Grant {
        self.greet(sender);
        self.grants().await[0]
    }

    fn greet(&self, sender: u64) {
        let hello = Hello { grants: 64, name: "peer".to_owned(), ports: Vec::new() };
        self.send(&message(sender, Kind::Hello, &hello.bytes(1000)));
    }

    /// Sends heartbeats until the collector has read what was sent before them: it has not room for so many that it has not read, and those
    /// that find no room wait.
    async fn beat_until_read(&self) {
        const BEATS: usize = 60;
        (0..BEATS).for_each(|_| self.send(&message(1, Kind::Heartbeat, &[0; 9 * 8 * CAUSES])));
        let (mut told, mut sent) = (Vec::new(), 0);
        while sent < BEATS {
            timeout(Duration::from_secs(40), self.connection.completions.next(&mut told)).await.unwrap().unwrap();
            sent += told.drain(..).filter(|told| matches!(told.outcome, Outcome::Sent(_))).count();
        }
    }

    /// Waits for the next grants.
    async fn grants(&self) -> Vec<Grant> {
        let (mut told, mut grants) = (Vec::new(), Vec::new());
        while grants.is_empty() {
            let next = timeout(Duration::from_secs(40), self.connection.completions.next(&mut told)).await;
            next.expect("the collector grants").unwrap();
            for completion in told.drain(..) {
                if let Outcome::Received(received) = completion.outcome {
                    grants.push(Grant::parse(&received.buffers[0][..received.length]).unwrap());
                }
            }
        }
        grants
    }

    /// Waits until the collector has ended the connection.
    async fn expect_refusal(self) {
        timeout(Duration::from_secs(10), self.connection.gone).await.expect("the collector ends the connection");
    }
}

fn message(sender: u64, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    Header { sender, length: u32::try_from(payload.len()).unwrap(), kind }.write(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn batch(frames: u32, sequence: u64) -> Kind {
    let (layout, drops) = (Layout::Frames, Drops::default());
    Kind::Batch { class: Class::Arp, layout, frames, sequence, captured: 0, given_up: 0, drops }
}

#[test]
fn each_wrong_message_ends_its_connection_and_an_honest_sender_goes_on() {
    let name = "hostile::each_wrong_message_ends_its_connection_and_an_honest_sender_goes_on";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let collector = rig.collect().await;
            let sender = rig.send(Batching::default());
            let mut agent = speak(agent, |agent| {
                agent.greet();
                agent.copy(&frame(Class::Arp, 0, 64));
            })
            .await;
            rig.acknowledged(Class::Arp, 1).await;
            let refused = || total(&rig, "refused_total");
            let hello = message(7, Kind::Hello, &Hello { grants: 64, ..Hello::default() }.bytes(1000));
            let changed = |at: usize, byte: u8| {
                let mut bytes = hello.clone();
                bytes[at] = byte;
                bytes
            };
            let poor = message(7, Kind::Hello, &Hello { grants: 10, ..Hello::default() }.bytes(1000));
            // Magic, version, kind, length, what was cut off, and messages out of turn.
            let mut wrong = vec![
                changed(0, b's'),
                changed(5, 2),
                changed(6, 9),
                changed(19, 200),
                hello[..hello.len() - 1].to_vec(),
                hello[..5].to_vec(),
                poor,
                message(7, Kind::Heartbeat, &[0; 9 * 8 * CAUSES]),
                message(7, batch(1, 0), &[0; 48]),
            ];
            // And whatever else there is.
            let mut runner = TestRunner::deterministic();
            for _ in 0..10 {
                let bytes = prop::collection::vec(any::<u8>(), 1..300).new_tree(&mut runner).unwrap().current();
                wrong.push(bytes);
            }
            for (count, bytes) in (1_u64..).zip(&wrong) {
                let peer = Peer::connect(&rig).await;
                peer.send(bytes);
                peer.expect_refusal().await;
                until(refused, |refused| *refused == count).await;
                // The honest one goes on.
                agent = speak(agent, move |agent| agent.copy(&frame(Class::Arp, count, 64))).await;
                rig.acknowledged(Class::Arp, count + 1).await;
            }
            collector.stop().await;
            sender.stop().await;
            assert_eq!(rig.sent("batches_total", Class::Arp), wrong.len() as u64 + 1, "none was sent twice");
        });
    });
}

#[test]
fn a_batch_that_is_malformed_inside_or_comes_twice_is_counted_and_left_out() {
    let name = "hostile::a_batch_that_is_malformed_inside_or_comes_twice_is_counted_and_left_out";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let collector = rig.collect().await;
            let peer = Peer::connect(&rig).await;
            let grant = peer.hello(1).await;
            assert_eq!(grant.classes[0].messages, 4);
            // Five frames, it says, in some bytes that are none; then twice the same.
            peer.send(&message(1, batch(5, 0), &[0xff; 200]));
            until(|| rig.collected("dropped_frames_total", Class::Arp), |drops| *drops == 5).await;
            peer.send(&message(1, batch(5, 0), &[0xff; 200]));
            until(|| rig.collected("duplicate_frames_total", Class::Arp), |frames| *frames == 5).await;
            // Frames are missing before these.
            peer.send(&message(1, batch(1, 12), &[0; 40]));
            until(|| rig.collected("missing_frames_total", Class::Arp), |frames| *frames == 7).await;
            until(|| rig.collected("frames_total", Class::Arp), |frames| *frames == 1).await;
            collector.stop().await;
            let comments: Vec<_> = frames(folder(&rig)).into_iter().flat_map(|frame| frame.comments).collect();
            assert_eq!(comments, ["class arp, lost before this frame: 7 missing 5 malformed"]);
        });
    });
}

#[test]
fn a_sender_that_sends_more_than_it_was_granted_is_refused() {
    on_device("bluefield-3", "hostile::a_sender_that_sends_more_than_it_was_granted_is_refused", |_| {
        play(async {
            let rig = Rig::new();
            // Stands still at the first batch, so that nothing is granted any more.
            let (pipe, _written, goes_on) = pipe(100);
            let collector = rig.collect_into_pipe(pipe).await;
            let peer = Peer::connect(&rig).await;
            assert_eq!(peer.hello(1).await.classes[0].messages, 4);
            (0..5).for_each(|sequence| peer.send(&message(1, batch(1, sequence), &[0; 40])));
            peer.expect_refusal().await;
            let peer = Peer::connect(&rig).await;
            drop(goes_on);
            // What was granted was taken.
            assert_eq!(peer.hello(1).await.classes[0].acknowledged, 4);
            collector.stop().await;
        });
    });
}

#[test]
fn what_is_granted_again_comes_for_half_of_the_credit_at_a_time_and_all_of_it_with_the_last_batch() {
    let name =
        "hostile::what_is_granted_again_comes_for_half_of_the_credit_at_a_time_and_all_of_it_with_the_last_batch";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            // Stands still at the first batch.
            let (pipe, _written, goes_on) = pipe(100);
            let collector = rig.collect_into_pipe(pipe).await;
            let peer = Peer::connect(&rig).await;
            assert_eq!(peer.hello(1).await.classes[0].messages, 4);
            (0..4).for_each(|sequence| peer.send(&message(1, batch(1, sequence), &[0; 40])));
            // A heartbeat is answered all the same, and then the batches before it have come, too.
            peer.send(&message(1, Kind::Heartbeat, &[0; 9 * 8 * CAUSES]));
            let [answer] = peer.grants().await[..] else { panic!("one answer") };
            assert_eq!((answer.controls, answer.classes[0].messages), (2, 4));
            drop(goes_on);
            let mut grants = Vec::new();
            while grants.last().is_none_or(|grant: &Grant| grant.classes[0].messages < 8) {
                grants.extend(peer.grants().await);
            }
            let granted: Vec<_> =
                grants.iter().map(|grant| (grant.classes[0].messages, grant.classes[0].acknowledged)).collect();
            assert_eq!(granted, [(6, 2), (8, 4)]);
            // One that comes alone is granted again at once.
            for sequence in 4..20 {
                peer.send(&message(1, batch(1, sequence), &[0; 40]));
                let [grant] = peer.grants().await[..] else { panic!("one grant") };
                assert_eq!((grant.classes[0].messages, grant.classes[0].acknowledged), (sequence + 5, sequence + 1));
            }
            collector.stop().await;
        });
    });
}

#[test]
fn two_connections_of_one_sender_that_wait_for_an_output_are_both_answered() {
    let name = "hostile::two_connections_of_one_sender_that_wait_for_an_output_are_both_answered";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            // Stands still at the first batch.
            let (pipe, _written, goes_on) = pipe(100);
            let collector = rig.collect_into_pipe(pipe).await;
            let first = Peer::connect(&rig).await;
            first.hello(1).await;
            first.send(&message(1, batch(1, 0), &[0; 40]));
            until(|| rig.collected("latency_seconds_count", Class::Arp), |frames| *frames == 1).await;
            let patient = Settings { rnr_retries: 7, ..settings() };
            let others = [Peer::connect_with(&rig, patient).await, Peer::connect_with(&rig, patient).await];
            for peer in &others {
                peer.greet(1);
                peer.beat_until_read().await;
            }
            drop(goes_on);
            for peer in &others {
                assert_eq!(peer.grants().await[0].classes[0].acknowledged, 1);
            }
            collector.stop().await;
        });
    });
}

#[test]
fn a_sender_that_does_not_wait_for_the_answer_to_its_hello_is_refused() {
    on_device("bluefield-3", "hostile::a_sender_that_does_not_wait_for_the_answer_to_its_hello_is_refused", |_| {
        play(async {
            let rig = Rig::new();
            // Stands still at the first batch, so that no hello is answered any more.
            let (pipe, _written, goes_on) = pipe(100);
            let collector = rig.collect_into_pipe(pipe).await;
            let peer = Peer::connect(&rig).await;
            peer.hello(1).await;
            peer.send(&message(1, batch(1, 0), &[0; 40]));
            until(|| rig.collected("latency_seconds_count", Class::Arp), |frames| *frames == 1).await;
            let hello = message(1, Kind::Hello, &Hello { grants: 64, ..Hello::default() }.bytes(1000));
            (0..2).for_each(|_| peer.send(&hello));
            peer.expect_refusal().await;
            drop(goes_on);
            Peer::connect(&rig).await.hello(1).await;
            collector.stop().await;
        });
    });
}

#[test]
fn one_sender_too_many_is_refused_with_the_reason_before_it_is_connected() {
    let name = "hostile::one_sender_too_many_is_refused_with_the_reason_before_it_is_connected";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let outputs = Outputs { files: Some(rig.files()), ..Outputs::default() };
            let collector = rig.collect_into(outputs, &CollectorConfig { connections: 1, ..CONFIG }).await;
            // Whoever says nothing takes nobody's place.
            let _silent =
                [TcpStream::connect(rig.address()).await.unwrap(), TcpStream::connect(rig.address()).await.unwrap()];
            let first = Peer::connect(&rig).await;
            first.hello(1).await;
            let local = Local::open("mlx5_0", CAPACITY).unwrap();
            let mut dialer = Dialer { address: rig.address().to_owned(), settings: settings() };
            for refusals in 1..=3 {
                let refused = dialer.next(&local).await.unwrap_err().to_string();
                let words = "the other end refuses: there are 1 connections already, and no more are taken";
                assert!(refused.ends_with(words), "{refused}");
                until(|| total(&rig, "refused_total"), |count| *count >= refusals).await;
            }
            assert_eq!(total(&rig, "connections_total"), 1);
            drop(first);
            // The collector hears of it in its own time.
            let mut next = dialer.next(&local).await;
            while next.is_err() {
                next = dialer.next(&local).await;
            }
            collector.stop().await;
        });
    });
}

/// A counter of the collector that has no labels.
fn total(rig: &Rig, name: &str) -> u64 {
    let text = prometheus::TextEncoder::new().encode_to_string(&rig.collected.gather()).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("sluice_mirror_collect_{name} "))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn peers_that_do_not_come_to_terms_are_refused_with_the_reason_before_they_have_a_queue_pair() {
    let name = "hostile::peers_that_do_not_come_to_terms_are_refused_with_the_reason_before_they_have_a_queue_pair";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let collector = rig.collect().await;
            let mut stream = TcpStream::connect(rig.address()).await.unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap_or_default();
            let local = Local::open("mlx5_0", CAPACITY).unwrap();
            let terms = Terms { classes: 5, ..settings().terms };
            let mut dialer = Dialer { address: rig.address().to_owned(), settings: Settings { terms, ..settings() } };
            let refused = dialer.next(&local).await.unwrap_err().to_string();
            assert!(refused.contains("5 classes are not as many as here"), "{refused}");
            Peer::connect(&rig).await.hello(3).await;
            collector.stop().await;
        });
    });
}

const CAPACITY: Capacity = Capacity { sends: 4, send_segments: 1, receives: 4, receive_bytes: 512 };
