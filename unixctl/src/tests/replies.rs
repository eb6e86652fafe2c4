//! Replies: of failures, to those who read slowly or go, and as our client reads them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sluice_control::Client;

use super::{Bench, appctl, read_all, text};
use crate::ServerOptions;

#[test]
fn a_failure_in_the_middle_is_no_success() {
    let bench = Bench::new(ServerOptions::default());
    let mut heard = String::new();
    let error = bench.client().call("late-failure", &[], &mut |text| heard.push_str(text)).unwrap_err();
    assert_eq!(heard, "half");
    assert_eq!(error.to_string(), "the agent closed the connection in the middle");
    if let Some(output) = appctl(&bench, &["late-failure"]) {
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_client_that_does_not_read_holds_its_command_back_and_nobody_else() {
    let bench = Bench::new(ServerOptions::default());
    let mut slow = bench.connect();
    slow.write_all(b"{\"id\":1,\"method\":\"many\",\"params\":[\"10000000\"]}").unwrap();
    let held_at = settled(&bench.lines);
    assert!(held_at < 50_000, "{held_at} lines were written for a client that does not read");
    assert_eq!(bench.client().call_text("echo", &["a"]).unwrap(), "a\n");
    // Once it goes, the command is stopped.
    drop(slow);
    assert!(settled(&bench.lines) < held_at + 5_000);
}

#[test]
fn a_client_that_reads_nothing_for_too_long_is_given_up() {
    let bench = Bench::new(ServerOptions { stall_limit: Duration::from_millis(200), ..ServerOptions::default() });
    let mut slow = bench.connect();
    slow.write_all(b"{\"id\":1,\"method\":\"many\",\"params\":[\"10000000\"]}").unwrap();
    settled(&bench.lines);
    // What was under way arrives, and then the end instead of the rest.
    let rest = read_all(slow);
    assert!(!rest.ends_with('}') && rest.len() < 4 << 20, "{} bytes", rest.len());
}

/// What a counter comes to rest at.
fn settled(counter: &AtomicUsize) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last = usize::MAX;
    while counter.load(Ordering::Relaxed) != last {
        assert!(Instant::now() < deadline, "does not come to rest");
        last = counter.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1));
    }
    last
}

#[test]
fn a_command_that_waits_hears_when_its_client_goes() {
    let mut bench = Bench::new(ServerOptions { stop_deadline: Duration::from_secs(20), ..ServerOptions::default() });
    let mut stream = bench.connect();
    stream.write_all(b"{\"id\":1,\"method\":\"watch\",\"params\":[]}").unwrap();
    let mut begin = [0; 25];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(text(&begin), "{\"id\":1,\"result\":\"begin\\n");
    drop(stream);
    thread::sleep(Duration::from_millis(600));
    bench.stop();
    assert!(bench.wait() < Duration::from_secs(5));
}

#[test]
fn our_client_reads_whatever_a_reply_may_look_like() {
    for (reply, expected) in [
        (
            r#"{"id":0,"result":"a\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\é😀","error":null}"#,
            Ok("aé😀/\u{8}\u{c}\n\r\t\"\\é😀"),
        ),
        (" {\n\"error\" : null , \"result\" : \"x\" , \"id\" : 0 }", Ok("x")),
        (r#"{"id":0,"error":"bad\n"}"#, Err("bad")),
        (r#"{"id":0,"result":null,"error":"bad"}"#, Err("bad")),
        (r#"{"id":null,"error":"who are you\n"}"#, Err("who are you")),
        (
            r#"{"id":1,"result":"x","error":null}"#,
            Err("the reply of the agent is no JSON-RPC: an answer to another request"),
        ),
        (
            r#"{"id":0,"result":null,"error":null}"#,
            Err("the reply of the agent is no JSON-RPC: neither result nor error"),
        ),
        (r#"{"id":0,"result":{"a":1}}"#, Err("the reply of the agent is no JSON-RPC: an unexpected member \"result\"")),
        (r#"{"id":0,"result":"\ud83d"#, Err("the agent closed the connection in the middle")),
        (r#"{"id":0,"result":"\ud83dx"}"#, Err("the reply of the agent is no JSON-RPC: half a surrogate pair")),
        ("", Err("the agent closed the connection in the middle")),
    ] {
        // Byte by byte, so that every character is cut.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let sender = thread::spawn(move || {
            theirs.read_exact(&mut [0; 36]).unwrap();
            for byte in reply.as_bytes() {
                theirs.write_all(&[*byte]).unwrap_or_default();
                thread::yield_now();
            }
        });
        let result = Client::over(ours).call_text("many", &[]);
        sender.join().unwrap();
        match (result, expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text, expected),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{reply}"),
            (result, _) => panic!("{reply}: {result:?}"),
        }
    }
}

#[test]
fn our_client_streams_a_dump_piece_by_piece() {
    let bench = Bench::new(ServerOptions::default());
    let (mut bytes, mut longest) = (0, 0);
    let mut client = bench.client();
    client
        .call("many", &["200000"], &mut |text| {
            bytes += text.len();
            longest = longest.max(text.len());
        })
        .unwrap();
    assert!(bytes > 9_000_000);
    assert!(longest <= 256 << 10, "{longest}");
    assert_eq!(client.call_text("echo", &["and goes on"]).unwrap(), "and goes on\n");
}

#[test]
fn an_agent_that_does_not_answer_is_given_up() {
    let bench = Bench::new(ServerOptions::default());
    let mut client = bench.client();
    client.set_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = client.call_text("sleep", &["400"]).unwrap_err();
    assert_eq!(error.to_string(), "the agent does not answer");
}
