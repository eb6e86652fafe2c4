//! Two ends that connect over a socket.

use std::future::Future;
use std::time::{Duration, Instant};

use sluice_mirror::connection::{Capacity, Connector, Local};
use sluice_mirror::exchange::{Acceptor, Dialer, ExchangeError, Settings, accept, connect};
use sluice_mirror::terms::{Agreed, HEADER, Refusal, Terms};
use sluice_mirror::verbs::{Access, Payload, Psn, Receives, State};
use sluice_tests::mlx5::on_device;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;

use crate::rig::{Rig, bytes, message, one, send};

const SETTINGS: Settings = Settings {
    terms: Terms { features: 0b011, classes: 9 },
    required: 0,
    port: 1,
    gid_index: 1,
    access: Access { remote_write: false },
    psn: Psn::new(0),
    min_rnr_timer: 12,
    timeout: 14,
    retries: 7,
    rnr_retries: 7,
    patience: Duration::from_secs(10),
};

fn play(story: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(story);
}

/// Connects both queue pairs of a rig.
async fn meet(rig: &Rig, left: &Settings, right: &Settings) -> [Result<Agreed, ExchangeError>; 2] {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let connects = connect(&mut here, (&rig.context, &rig.left), Vec::new(), left);
    let accepts = accept(&mut there, (&rig.context, &rig.right), Vec::new(), right);
    let (connected, accepted) = tokio::join!(connects, accepts);
    [connected, accepted]
}

#[test]
fn two_ends_agree_on_terms_and_options_and_then_on_messages() {
    on_device("bluefield-3", "exchange::two_ends_agree_on_terms_and_options_and_then_on_messages", |_| {
        let rig = Rig::unconnected(Receives::Own(4));
        play(async {
            let left = Settings { psn: Psn::new(0xff_ffff), ..SETTINGS };
            let terms = Terms { features: 0b110, classes: 9 };
            let right = Settings { terms, required: 0b010, psn: Psn::new(77), ..SETTINGS };
            let [connected, accepted] = meet(&rig, &left, &right).await;
            let terms = Terms { features: 0b010, classes: 9 };
            assert_eq!(connected.unwrap(), Agreed { terms, remote: rig.right.number() });
            assert_eq!(accepted.unwrap(), Agreed { terms, remote: rig.left.number() });
        });
        assert_eq!(rig.left.ece().unwrap(), rig.right.ece().unwrap());
        assert_eq!([rig.left.state().unwrap(), rig.right.state().unwrap()], [State::ReadyToSend; 2]);
        for (from, to) in [(&rig.left, &rig.right), (&rig.right, &rig.left)] {
            to.receive(rig.receives(0..1, 64)).unwrap();
            from.send(vec![send(0, Payload::Inline(b"connected"))]).unwrap();
            assert_eq!(bytes(&message(one(&rig.received))), b"connected");
            one(&rig.sent);
        }
    });
}

#[test]
fn terms_that_do_not_fit_are_refused_with_the_reason_on_both_sides() {
    on_device("bluefield-3", "exchange::terms_that_do_not_fit_are_refused_with_the_reason_on_both_sides", |_| {
        play(async {
            let needs = Settings { required: 0b111, ..SETTINGS };
            let classes = Settings { terms: Terms { classes: 8, ..SETTINGS.terms }, ..SETTINGS };
            for (right, why, words) in [
                (needs, Refusal::Features(0b100), "features 0x4 are needed and missing"),
                (classes, Refusal::Classes(9), "9 classes are not as many as here"),
            ] {
                let rig = Rig::unconnected(Receives::Own(4));
                let [connected, accepted] = meet(&rig, &SETTINGS, &right).await;
                assert!(matches!(accepted, Err(ExchangeError::Refused(refusal)) if refusal == why));
                assert!(matches!(connected, Err(ExchangeError::RefusedThere(ref told)) if told == words), "{words}");
                // Nothing was begun at the end that refuses.
                assert_eq!(rig.right.state().unwrap(), State::Reset);
            }
        });
    });
}

#[test]
fn what_is_no_mirror_is_refused_and_the_same_queue_pair_connects_afterwards() {
    let name = "exchange::what_is_no_mirror_is_refused_and_the_same_queue_pair_connects_afterwards";
    on_device("bluefield-3", name, |_| {
        let rig = Rig::unconnected(Receives::Own(4));
        play(async {
            let offer = |header: [u8; HEADER]| [&[1, 0, 0, 52][..], &header, &[0; 36]].concat();
            let mut of_another_version = *b"SLMR\0\x07\0\x10\0\0\0\x03\x09\0\0\0";
            let wrong_version = offer(of_another_version);
            of_another_version[5] = 1;
            of_another_version[7] = 20;
            for (sent, words) in [
                (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "no frame"),
                (vec![1, 0, 0, 3, 1, 2, 3], "a frame of an unknown kind, or of another length"),
                (vec![4, 0, 0, 0], "no offer"),
                // Of no known MTU; and otherwise right.
                (wrong_version, "a frame of an unknown kind, or of another length"),
                (vec![1, 0], "the stream to the other end"),
            ] {
                let (mut here, mut there) = UnixStream::pair().unwrap();
                here.write_all(&sent).await.unwrap();
                here.shutdown().await.unwrap();
                let refused = accept(&mut there, (&rig.context, &rig.right), Vec::new(), &SETTINGS).await.unwrap_err();
                assert!(refused.to_string().contains(words), "{refused}");
            }
            // As above, with an MTU: now the header is looked at, and the other end hears what is wrong with it.
            for (version, length, words) in [(7, 16, "version 7"), (1, 20, "a header of 20 bytes")] {
                let mut bytes = offer(of_another_version);
                (bytes[9], bytes[11], bytes[30]) = (version, length, 3);
                let (mut here, mut there) = UnixStream::pair().unwrap();
                here.write_all(&bytes).await.unwrap();
                let refused = accept(&mut there, (&rig.context, &rig.right), Vec::new(), &SETTINGS).await.unwrap_err();
                assert!(matches!(refused, ExchangeError::Refused(_)), "{refused}");
                drop(there);
                let mut told = Vec::new();
                here.read_to_end(&mut told).await.unwrap();
                assert!(String::from_utf8_lossy(&told[4..]).contains(words), "{told:?}");
            }
            let [connected, accepted] = meet(&rig, &SETTINGS, &SETTINGS).await;
            assert!(connected.is_ok() && accepted.is_ok());
        });
    });
}

#[test]
fn an_end_that_says_nothing_is_not_waited_for_longer_than_was_wanted() {
    on_device("bluefield-3", "exchange::an_end_that_says_nothing_is_not_waited_for_longer_than_was_wanted", |_| {
        let rig = Rig::unconnected(Receives::Own(4));
        play(async {
            let (mut here, _there) = UnixStream::pair().unwrap();
            let settings = Settings { patience: Duration::from_millis(50), ..SETTINGS };
            let began = Instant::now();
            let silence = connect(&mut here, (&rig.context, &rig.left), Vec::new(), &settings).await.unwrap_err();
            assert!(matches!(silence, ExchangeError::Silence), "{silence}");
            assert!(began.elapsed() >= Duration::from_millis(50));
        });
    });
}

#[test]
fn a_message_finds_a_receive_request_from_the_first_moment_and_each_end_hears_that_the_other_has_left() {
    let name =
        "exchange::a_message_finds_a_receive_request_from_the_first_moment_and_each_end_hears_that_the_other_has_left";
    on_device("bluefield-3", name, |_| {
        play(async {
            let capacity = Capacity { sends: 8, send_segments: 2, receives: 4, receive_bytes: 64 };
            let local = Local::open("mlx5_0", capacity).unwrap();
            // Where nobody waits for a receive request, a message that finds none fails.
            let settings = Settings { rnr_retries: 0, ..SETTINGS };
            let mut acceptor = Acceptor::bind("127.0.0.1:0", settings).await.unwrap();
            let address = acceptor.address().unwrap();
            // One that says nothing stands in nobody's way.
            let _silent = TcpStream::connect(address).await.unwrap();
            let mut dialer = Dialer { address: address.to_string(), settings };
            for turn in 0..2 {
                let (there, here) = tokio::join!(acceptor.next(&local), dialer.next(&local));
                let (there, here) = (there.unwrap(), here.unwrap());
                assert_eq!(there.agreed.remote, here.pair.number());
                for (from, to) in [(&here, &there), (&there, &here)] {
                    let mut buffer = local.domain().buffer(5).unwrap();
                    buffer.copy_from_slice(b"hello");
                    from.pair.send(vec![send(0, Payload::Buffers(vec![buffer]))]).unwrap();
                    let mut came = Vec::new();
                    to.completions.next(&mut came).await.unwrap();
                    assert_eq!(bytes(&message(came.pop().unwrap().outcome)), b"hello");
                    from.completions.next(&mut came).await.unwrap();
                }
                let (stays, leaves) = if turn == 0 { (here, there) } else { (there, here) };
                drop(leaves);
                assert_eq!(stays.gone.await.to_string(), "the other end has closed its socket");
            }
        });
    });
}
