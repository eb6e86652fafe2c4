//! Requests: one after the other, at once, ahead, and those that are none.

use std::io::Write;
use std::time::Duration;

use sluice_control::ClientError;

use super::{Bench, read_all};
use crate::ServerOptions;

#[test]
fn requests_in_one_write_are_answered_in_order_with_their_ids() {
    let bench = Bench::new(ServerOptions::default());
    let reply = bench.raw(
        b"{\"id\":5,\"method\":\"sleep\",\"params\":[\"50\"]}{\"id\":\"abc\",\"method\":\"fail\",\"params\":[]}\n\
          {\"jsonrpc\":\"2.0\",\"id\":{\"x\":[1]},\"method\":\"echo\",\"params\":[\"\"]}",
    );
    assert_eq!(
        reply,
        "{\"id\":5,\"result\":\"slept\\n\",\"error\":null}{\"id\":\"abc\",\"result\":null,\"error\":\"no such flow\\n\"}\
         {\"id\":{\"x\":[1]},\"result\":\"\",\"error\":null}"
    );
}

#[test]
fn requests_that_are_sent_ahead_are_answered_in_order() {
    let bench = Bench::new(ServerOptions::default());
    let mut client = bench.client();
    // The second is larger than a piece in which the server reads, the third than what it reads ahead.
    let texts = ["first\n".to_owned(), "x\"\\\n".repeat(100_000), "flow\n".repeat(1 << 20)];
    let asked: Vec<_> = ["sleep", "echo", "echo"]
        .into_iter()
        .zip(["50", &texts[0], &texts[1]])
        .map(|(method, argument)| client.ask(method, &[argument]))
        .collect();
    let answers: Vec<_> = asked
        .into_iter()
        .map(|asked| {
            let mut answer = String::new();
            client.answer(asked, &mut |text| answer.push_str(text)).unwrap();
            answer
        })
        .collect();
    assert_eq!(answers, ["slept\n", &texts[0], &texts[1]]);
    assert_eq!(client.call_text("echo", &[&texts[2]]).unwrap(), texts[2]);
}

#[test]
fn the_next_request_is_read_while_one_is_answered() {
    let bench = Bench::new(ServerOptions::default());
    let mut stream = bench.connect();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(br#"{"id":1,"method":"watch","params":[]}"#).unwrap();
    // More than a socket holds. The first command ends only when its client goes.
    let text = "x".repeat(1 << 20);
    stream.write_all(format!(r#"{{"id":2,"method":"echo","params":["{text}"]}}"#).as_bytes()).unwrap();
}

#[test]
fn a_large_request_arrives_whole() {
    let bench = Bench::new(ServerOptions::default());
    let large = "flow\n".repeat(1 << 20);
    assert_eq!(bench.client().call_text("echo", &[&large]).unwrap(), large);
    let small = Bench::new(ServerOptions { request_limit: 1 << 20, ..ServerOptions::default() });
    let error = small.client().call_text("echo", &[&large]).unwrap_err();
    assert!(matches!(&error, ClientError::Refused(text) if text.contains("longer than 1048576 bytes")), "{error}");
}

#[test]
fn what_is_no_request_is_told_why_and_closed() {
    let bench = Bench::new(ServerOptions { request_limit: 1000, ..ServerOptions::default() });
    let long = format!("{{\"id\":1,\"x\":\"{}\"}}", "x".repeat(2000));
    for (request, id, reason) in [
        ("garbage", "null", "a request begins with \"{\", not with \"g\", at byte 0"),
        ("\n\u{0}", "null", "a request begins with \"{\", not with byte 0x00, at byte 1"),
        ("{\"id\":1,,}", "null", "key must be a string at byte 8"),
        ("{\"id\":1,\"method\":\"fail\",\"params\":", "null", "the request ends in the middle"),
        ("{\"id\":null,\"method\":\"fail\",\"params\":[]}", "null", "the \"id\" of a request cannot be null"),
        ("{\"id\":3,\"method\":\"fail\"}", "3", "the request has no \"params\""),
        (&long, "null", "the request that begins at byte 0 is longer than 1000 bytes"),
    ] {
        let reply = bench.raw(request.as_bytes());
        let value: serde_json::Value = serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{reply}: {error}"));
        assert_eq!(value["id"].to_string(), id, "{request}");
        assert_eq!(value["error"].as_str().unwrap(), format!("{reason}\n"), "{request}");
    }
    assert_eq!(
        bench.raw(b"{\"id\":1,\"method\":\"echo\",\"params\":[1]}{\"id\":2,\"method\":\"echo\",\"params\":[1,2]}"),
        "{\"id\":1,\"result\":null,\"error\":\"\\\"echo\\\" command has non-string argument\\n\"}\
         {\"id\":2,\"result\":null,\"error\":\"\\\"echo\\\" command takes at most 1 arguments\\n\"}"
    );
}

#[test]
fn a_request_with_too_many_brackets_is_refused() {
    let bench = Bench::new(ServerOptions::default());
    let reply = bench.raw(format!("{{\"id\":1,\"x\":{}", "[".repeat(100_000)).as_bytes());
    assert!(reply.contains("nested more than 1000 deep at byte 1011"), "{reply}");
}

#[test]
fn half_a_request_and_silence_is_closed_while_others_are_served() {
    let bench = Bench::new(ServerOptions { silence_limit: Duration::from_millis(100), ..ServerOptions::default() });
    let mut silent = bench.connect();
    silent.write_all(b"{\"id\":1,").unwrap();
    let mut idle = bench.client();
    assert_eq!(bench.client().call_text("echo", &["a"]).unwrap(), "a\n");
    assert_eq!(read_all(silent), "{\"id\":null,\"result\":null,\"error\":\"no more of the request for 100ms\\n\"}");
    // Between requests a client may take its time.
    assert_eq!(idle.call_text("echo", &["b"]).unwrap(), "b\n");
}
