//! Connections by RDMA CM.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sluice_mirror::cm::{CmError, EventKind, Identifier, Listener, Mode, Settings, connect};
use sluice_mirror::connection::{ConnectError, Connector};
use sluice_mirror::terms::{Refusal, Terms};
use sluice_mirror::verbs::{Ece, Payload, Receives, State};

use crate::collecting::{acceptor, buffer, dialer, meet, receive, send};
use crate::lab::{ADDRESS, SETTINGS, TERMS, local, play};
use crate::rig::{self, Rig};
use crate::stories;

stories![
    both_ends_connect_again_and_again_and_hear_when_the_other_disconnects,
    terms_that_do_not_fit_are_rejected_with_the_reason_in_words,
    what_is_no_mirror_is_rejected_and_the_next_one_connects,
    one_connection_too_many_is_rejected_with_the_reason_in_words,
    a_request_that_was_given_up_is_passed_over,
    an_address_that_leads_nowhere_and_a_port_where_nobody_listens_are_told_apart,
    options_of_both_ends_cross_and_a_device_without_any_connects,
    without_a_runtime_threads_block,
    a_receiver_that_is_late_costs_no_655_milliseconds,
];

fn both_ends_connect_again_and_again_and_hear_when_the_other_disconnects() {
    play(async {
        let local = local(4, 64);
        // Where nobody waits for a receive request, a message that finds none fails.
        let settings = Settings { rnr_retries: 0, ..SETTINGS };
        let mut acceptor = acceptor(settings).await;
        let mut dialer = dialer(acceptor.port(), settings);
        for turn in 0..4 {
            let (there, here) = tokio::join!(acceptor.next(&local), dialer.next(&local));
            let (there, here) = (there.unwrap(), here.unwrap());
            assert_eq!((there.agreed.remote, here.agreed.remote), (here.pair.number(), there.pair.number()));
            assert_eq!((there.agreed.terms, here.agreed.terms), (TERMS, TERMS));
            assert!(there.peer.starts_with(ADDRESS), "{}", there.peer);
            for (from, to) in [(&here, &there), (&there, &here)] {
                send(from, turn, buffer(&local, b"hello"));
                assert_eq!(receive(to).await, b"hello");
                crate::collecting::next(from).await;
            }
            let (stays, leaves) = if turn % 2 == 0 { (here, there) } else { (there, here) };
            drop(leaves);
            assert_eq!(stays.gone.await.to_string(), "the other end has disconnected");
        }
    });
}

fn terms_that_do_not_fit_are_rejected_with_the_reason_in_words() {
    play(async {
        let local = local(4, 64);
        let needs = Settings { required: 0b111, ..SETTINGS };
        let fewer = Settings { terms: Terms { classes: 8, ..TERMS }, ..SETTINGS };
        let of_peer = |error| match error {
            ConnectError::Peer { source, .. } => *source.downcast::<CmError>().unwrap(),
            other => panic!("{other}"),
        };
        for (there, here, why, words) in [
            (needs, SETTINGS, Refusal::Features(0b100), "features 0x4 are needed and missing"),
            (fewer, SETTINGS, Refusal::Classes(9), "9 classes are not as many as here"),
        ] {
            let mut acceptor = acceptor(there).await;
            let mut dialer = dialer(acceptor.port(), here);
            let (accepted, connected) = tokio::join!(acceptor.next(&local), dialer.next(&local));
            let accepted = of_peer(accepted.unwrap_err());
            assert!(matches!(accepted, CmError::Refused(refusal) if refusal == why), "{accepted}");
            let connected = of_peer(connected.unwrap_err());
            assert!(matches!(connected, CmError::RefusedThere(ref told) if told == words), "{connected}");
        }
        // And the other way round: it is the end that connects that refuses the answer.
        let mut acceptor = acceptor(SETTINGS).await;
        let mut dialer = dialer(acceptor.port(), needs);
        let (accepted, connected) = tokio::join!(acceptor.next(&local), dialer.next(&local));
        let (accepted, connected) = (of_peer(accepted.unwrap_err()), of_peer(connected.unwrap_err()));
        assert!(matches!(connected, CmError::Refused(Refusal::Features(0b100))), "{connected}");
        assert!(matches!(accepted, CmError::RefusedThere(ref told) if told.contains("features 0x4")), "{accepted}");
    });
}

fn what_is_no_mirror_is_rejected_and_the_next_one_connects() {
    play(async {
        let local = local(4, 64);
        let mut acceptor = acceptor(SETTINGS).await;
        let port = acceptor.port();
        let of_another_version = *b"SLMR\0\x07\0\x10\0\0\0\x03\x09\0\0\0";
        for (sent, words) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "it does not begin as a mirror's header does"),
            (&[], "it does not begin as a mirror's header does"),
            (&of_another_version, "version 7 of the header is not known here, where it is 1"),
        ] {
            let asked = async {
                let end = local.unconnected().unwrap();
                let identifier = resolved(port).await;
                identifier.connect(end.pair().number(), sent).unwrap();
                identifier.expect(EventKind::ConnectResponse, deadline()).await.unwrap_err()
            };
            let (refused, told) = tokio::join!(acceptor.next(&local), asked);
            assert!(refused.unwrap_err().to_string().contains(words));
            assert!(matches!(told, CmError::RefusedThere(ref told) if told == words), "{told}");
        }
        let mut asks = dialer(port, SETTINGS);
        let (accepted, connected) = tokio::join!(acceptor.next(&local), asks.next(&local));
        assert!(accepted.is_ok() && connected.is_ok());
        // An end may have other reasons.
        let listener = Listener::bind(at(0), Mode::Reactor).unwrap();
        let mut asks = dialer(listener.port(), SETTINGS);
        let refuses = async { listener.next(None).await.unwrap().refuse("no room for another sender").unwrap() };
        let ((), refused) = tokio::join!(refuses, asks.next(&local));
        let words = refused.unwrap_err().to_string();
        assert!(words.ends_with("the other end refuses: no room for another sender"), "{words}");
    });
}

fn one_connection_too_many_is_rejected_with_the_reason_in_words() {
    play(async {
        let asked = local(4, 64).limited_to(1);
        let asks = local(4, 64);
        let mut acceptor = acceptor(SETTINGS).await;
        let mut dialer = dialer(acceptor.port(), SETTINGS);
        for _ in 0..2 {
            let (there, here) = tokio::join!(acceptor.next(&asked), dialer.next(&asks));
            let (there, _here) = (there.unwrap(), here.unwrap());
            let (refuses, refused) = tokio::join!(acceptor.next(&asked), dialer.next(&asks));
            let words = "there are 1 connections already, and no more are taken";
            let (refuses, refused) = (refuses.unwrap_err().to_string(), refused.unwrap_err().to_string());
            assert!(refuses.ends_with(words), "{refuses}");
            assert!(refused.ends_with(&format!("the other end refuses: {words}")), "{refused}");
            drop(there);
        }
    });
}

fn a_request_that_was_given_up_is_passed_over() {
    play(async {
        let local = local(4, 64);
        let gives_up = async |port| {
            let end = local.unconnected().unwrap();
            resolved(port).await.connect(end.pair().number(), &terms()).unwrap();
        };
        let listener = Listener::bind(at(0), Mode::Reactor).unwrap();
        gives_up(listener.port()).await;
        let request = listener.next(Some(deadline())).await.unwrap();
        let latest = deadline();
        while request.identifier().initial().is_ok() {
            assert!(Instant::now() < latest);
            tokio::task::yield_now().await;
        }
        let mut end = local.unconnected().unwrap();
        let receives = end.receives();
        let accepted = request.accept((local.context(), end.pair()), receives, &SETTINGS).await;
        assert!(matches!(accepted, Err(CmError::GivenUp)), "{accepted:?}");

        let mut acceptor = acceptor(SETTINGS).await;
        for _ in 0..3 {
            gives_up(acceptor.port()).await;
        }
        // What has come before this connection is over when it is made.
        drop(meet(&local, &local).await);
        let mut asks = dialer(acceptor.port(), SETTINGS);
        let (accepted, connected) = tokio::join!(acceptor.next(&local), asks.next(&local));
        let (accepted, connected) = (accepted.unwrap(), connected.unwrap());
        assert_eq!(accepted.agreed.remote, connected.pair.number());
    });
}

fn an_address_that_leads_nowhere_and_a_port_where_nobody_listens_are_told_apart() {
    play(async {
        let local = local(4, 64);
        let settings = Settings { patience: Duration::from_secs(1), ..SETTINGS };
        let mut outcomes = vec![];
        for address in [&format!("{ADDRESS}:1"), "192.0.2.1:18515", "127.0.0.1:18515", "no.such.host.invalid:1"] {
            let mut dialer = sluice_mirror::cm::Dialer { address: address.to_owned(), settings };
            outcomes.push(dialer.next(&local).await.unwrap_err());
        }
        let words: Vec<_> = outcomes.iter().map(ToString::to_string).collect();
        assert_eq!(words[0], format!("{ADDRESS}:1: nobody listens at that port"));
        assert!(matches!(outcomes[1], ConnectError::Address { .. }), "{words:?}");
        // A device of loopback's address is found, and no path.
        assert!(words[2].starts_with("127.0.0.1:18515: rdma_resolve_route: "), "{words:?}");
        assert!(matches!(outcomes[3], ConnectError::Address { .. }), "{words:?}");
    });
}

fn options_of_both_ends_cross_and_a_device_without_any_connects() {
    play(async {
        let rig = Rig::unconnected(Receives::Own(4));
        // Soft-RoCE has no options of its own, so that these are made up; the connection manager carries any.
        assert_eq!(rig.left.ece().unwrap_err().source.raw_os_error(), Some(95));
        let (offered, agreed) = (Ece { vendor: 0x15b3, options: 0x3000_0002 }, Ece { vendor: 0x15b3, options: 2 });
        let listener = Listener::bind(at(0), Mode::Reactor).unwrap();
        let asks = async {
            let identifier = resolved(listener.port()).await;
            identifier.set_local_ece(offered).unwrap();
            identifier.connect(rig.left.number(), &terms()).unwrap();
            identifier.expect(EventKind::ConnectResponse, deadline()).await.unwrap();
            assert_eq!(identifier.remote_ece().unwrap(), Some(agreed));
        };
        let asked = async {
            let request = listener.next(Some(deadline())).await.unwrap();
            assert_eq!(request.identifier().remote_ece().unwrap(), Some(offered));
            request.identifier().set_local_ece(agreed).unwrap();
            let settings = Settings { patience: Duration::from_millis(300), ..SETTINGS };
            // It waits for the last message of who asks, which does not go on.
            request.accept((&rig.context, &rig.right), Vec::new(), &settings).await.map(drop)
        };
        let ((), accepted) = tokio::join!(asks, asked);
        assert!(accepted.is_err());
        assert_eq!(rig.right.state().unwrap(), State::ReadyToSend);
    });
}

fn without_a_runtime_threads_block() {
    let rig = Rig::unconnected(Receives::Own(4));
    let listener = Listener::bind(at(0), Mode::Blocking).unwrap();
    assert!(matches!(now(listener.next(Some(Instant::now()))), Err(CmError::Silence)));
    let port = listener.port();
    let (here, there) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let request = now(listener.next(Some(deadline()))).unwrap();
            now(request.accept((&rig.context, &rig.right), rig.receives(0..1, 64), &SETTINGS)).unwrap()
        });
        let to = (at(port), Mode::Blocking);
        let here = now(connect(to, (&rig.context, &rig.left), Vec::new(), &SETTINGS)).unwrap();
        (here, asked.join().unwrap())
    });
    rig.left.send(vec![rig::send(0, Payload::Inline(b"blocking"))]).unwrap();
    assert_eq!(rig::bytes(&rig::message(rig::one(&rig.received))), b"blocking");
    drop(here);
    let (event, _) = now(there.identifier.event(Some(deadline()))).unwrap();
    assert_eq!(event.kind, EventKind::Disconnected);
}

fn a_receiver_that_is_late_costs_no_655_milliseconds() {
    play(async {
        let (asks, asked) = (local(1, 64), local(1, 64));
        let (here, there) = meet(&asks, &asked).await;
        for tag in 0..2 {
            send(&here, tag, buffer(&asks, b"early"));
        }
        // The first has taken the only receive request, so that the second comes again and again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let posted = Instant::now();
        assert_eq!(receive(&there).await, b"early");
        assert_eq!(receive(&there).await, b"early");
        let took = posted.elapsed();
        println!("the second message came {took:?} after there was room for it");
        assert!(took < Duration::from_millis(300), "{took:?}");
    });
}

fn at(port: u16) -> SocketAddr {
    format!("{ADDRESS}:{port}").parse().unwrap()
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// The terms of a mirror, as private data.
fn terms() -> Vec<u8> {
    b"SLMR\0\x01\0\x10\0\0\0\x03\x09\0\0\0".to_vec()
}

/// An identifier that has found the way to a port of the device.
async fn resolved(port: u16) -> Identifier {
    let identifier = Identifier::new(Mode::Reactor).unwrap();
    identifier.resolve_address(at(port), Duration::from_secs(2)).unwrap();
    identifier.expect(EventKind::AddressResolved, deadline()).await.unwrap();
    identifier.resolve_route(Duration::from_secs(2)).unwrap();
    identifier.expect(EventKind::RouteResolved, deadline()).await.unwrap();
    identifier
}

/// What a future gives that is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it did not block"),
    }
}
