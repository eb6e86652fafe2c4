//! Ends that leave without a word.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use sluice_mirror::connection::{Connection, Connector};
use sluice_mirror::verbs::{Outcome, Reason};

use crate::collecting::{acceptor, buffer, dialer, meet, send};
use crate::lab::{SETTINGS, local, play};
use crate::stories;

stories![the_kernel_tells_of_a_process_that_is_killed, a_peer_that_does_not_answer_any_more_is_seen_within_two_seconds,];

/// The argument with which this program is a peer that connects to a port, and waits to be killed.
pub(crate) const PEER: &str = "--peer";

pub(crate) fn be_a_peer(port: &str) -> ExitCode {
    play(async {
        let local = local(4, 64);
        let _connection = dialer(port.parse().unwrap(), SETTINGS).next(&local).await.unwrap();
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

fn the_kernel_tells_of_a_process_that_is_killed() {
    play(async {
        let local = local(4, 64);
        let mut acceptor = acceptor(SETTINGS).await;
        for _ in 0..5 {
            let myself = std::env::current_exe().unwrap();
            let port = acceptor.port().to_string();
            let mut peer = Command::new(myself).args([PEER, &port]).stdin(Stdio::null()).spawn().unwrap();
            let connection = acceptor.next(&local).await.unwrap();
            let killed = Instant::now();
            peer.kill().unwrap();
            assert_eq!(connection.gone.await.to_string(), "the other end has disconnected");
            let took = killed.elapsed();
            peer.wait().unwrap();
            println!("a killed peer was seen after {took:?}");
            // 100 ms on a machine with KVM; the emulated one takes a multiple for everything.
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    });
}

fn a_peer_that_does_not_answer_any_more_is_seen_within_two_seconds() {
    play(async {
        let local = local(4, 64);
        let (here, there) = meet(&local, &local).await;
        // The other end stays connected, as a host would whose link is cut, and has no queue pair.
        let Connection { pair, gone: _gone, .. } = there;
        drop(pair);
        let began = Instant::now();
        send(&here, 1, buffer(&local, b"is anybody there"));
        let mut came = Vec::new();
        here.completions.next(&mut came).await.unwrap();
        // The receive requests come back behind it.
        match &came[0].outcome {
            Outcome::SendFailed { failure, .. } => assert_eq!(failure.reason, Reason::NoAnswer),
            other => panic!("{other:?}"),
        }
        let took = began.elapsed();
        println!("a peer that does not answer was seen after {took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}
