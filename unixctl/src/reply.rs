//! A reply on its way: JSON text that leaves in pieces while the command still writes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_control::escape;
use tokio::sync::mpsc;

use super::command::Output;

/// Turns what a command writes into the pieces of a JSON-RPC reply, and waits while the client is slow.
pub(super) struct Reply {
    id: String,
    pieces: mpsc::Sender<Vec<u8>>,
    stopping: Arc<AtomicBool>,
    piece_size: usize,
    piece: Vec<u8>,
    /// Whether the beginning has left, after which there is no way to call it a failure.
    begun: bool,
    deferred: bool,
    /// The last byte written, escapes aside.
    last: Option<u8>,
}

/// What becomes of the connection after a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum After {
    Continue,
    Close,
    /// It is still to come: the answer to the request of this id.
    Defer(String),
}

impl Reply {
    pub(super) fn new(id: String, pieces: mpsc::Sender<Vec<u8>>, stopping: Arc<AtomicBool>, piece_size: usize) -> Self {
        let piece = head(&id);
        Self { id, pieces, stopping, piece_size, piece, begun: false, deferred: false, last: None }
    }

    /// Ends the reply with what the command came to.
    pub(super) fn finish(mut self, result: Result<(), String>) -> After {
        match result {
            Ok(()) if self.deferred && self.last.is_none() => After::Defer(self.id),
            Ok(()) => {
                let unfinished_line = self.last.is_some_and(|byte| byte != b'\n');
                if unfinished_line {
                    escape("\n", &mut self.piece);
                }
                self.piece.extend_from_slice(b"\",\"error\":null}");
                if self.send().is_ok() { After::Continue } else { After::Close }
            }
            Err(_) if self.begun => After::Close,
            Err(text) => {
                self.piece = failure(&self.id, &text);
                if self.send().is_ok() { After::Continue } else { After::Close }
            }
        }
    }

    fn send(&mut self) -> fmt::Result {
        self.begun = true;
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(self.piece_size));
        self.pieces.blocking_send(piece).map_err(|_| fmt::Error)
    }
}

impl fmt::Write for Reply {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while !rest.is_empty() {
            let room = self.piece_size.saturating_sub(self.piece.len()).max(1);
            let (part, after) = rest.split_at(rest.ceil_char_boundary(room.min(rest.len())));
            escape(part, &mut self.piece);
            self.last = part.as_bytes().last().copied();
            rest = after;
            if self.piece.len() >= self.piece_size {
                self.send()?;
            }
        }
        Ok(())
    }
}

impl Output for Reply {
    fn flush(&mut self) -> fmt::Result {
        if self.piece.is_empty() || self.last.is_none() { Ok(()) } else { self.send() }
    }

    fn is_wanted(&self) -> bool {
        !self.pieces.is_closed() && !self.stopping.load(Ordering::Relaxed)
    }

    fn defer(&mut self) {
        self.deferred = true;
    }
}

/// A whole reply that tells of a success.
pub(super) fn success(id: &str, text: &str) -> Vec<u8> {
    let mut reply = head(id);
    escape(text, &mut reply);
    if !text.is_empty() && !text.ends_with('\n') {
        escape("\n", &mut reply);
    }
    reply.extend_from_slice(b"\",\"error\":null}");
    reply
}

/// A whole reply that tells of a failure.
pub(super) fn failure(id: &str, text: &str) -> Vec<u8> {
    // JSON-RPC 1.0 wants both members; clients that are strict about it refuse a reply without one.
    let mut reply = format!("{{\"id\":{id},\"result\":null,\"error\":\"").into_bytes();
    escape(text, &mut reply);
    if !text.is_empty() && !text.ends_with('\n') {
        escape("\n", &mut reply);
    }
    reply.extend_from_slice(b"\"}");
    reply
}

fn head(id: &str) -> Vec<u8> {
    format!("{{\"id\":{id},\"result\":\"").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write;

    fn reply(piece_size: usize) -> (Reply, mpsc::Receiver<Vec<u8>>) {
        let (sender, receiver) = mpsc::channel(1000);
        (Reply::new("7".to_owned(), sender, Arc::default(), piece_size), receiver)
    }

    fn received(mut receiver: mpsc::Receiver<Vec<u8>>) -> String {
        let mut all = Vec::new();
        while let Ok(piece) = receiver.try_recv() {
            all.extend(piece);
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_short_answer_is_one_piece_and_gets_its_newline() {
        let (mut reply, receiver) = reply(100);
        write!(reply, "hello \"{}\"", 5).unwrap();
        assert_eq!(reply.finish(Ok(())), After::Continue);
        assert_eq!(receiver.len(), 1);
        assert_eq!(received(receiver), r#"{"id":7,"result":"hello \"5\"\n","error":null}"#);
    }

    #[test]
    fn an_empty_answer_stays_empty() {
        let (reply, receiver) = reply(100);
        reply.finish(Ok(()));
        assert_eq!(received(receiver), r#"{"id":7,"result":"","error":null}"#);
    }

    #[test]
    fn a_failure_before_the_first_piece_is_a_proper_one() {
        let (mut reply, receiver) = reply(100);
        reply.write_str("never seen").unwrap();
        assert_eq!(reply.finish(Err("no\tluck".to_owned())), After::Continue);
        assert_eq!(received(receiver), r#"{"id":7,"result":null,"error":"no\tluck\n"}"#);
    }

    #[test]
    fn a_failure_after_the_first_piece_closes() {
        let (mut reply, receiver) = reply(20);
        reply.write_str("0123456789\n").unwrap();
        assert_eq!(reply.finish(Err("too late".to_owned())), After::Close);
        assert_eq!(received(receiver), r#"{"id":7,"result":"01"#);
    }

    #[test]
    fn writing_fails_once_the_client_is_gone() {
        let (mut reply, receiver) = reply(10);
        assert!(reply.is_wanted());
        drop(receiver);
        assert!(!reply.is_wanted());
        assert!(reply.write_str("0123456789").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_what_a_json_parser_reads(
            parts in proptest::collection::vec("[\\x01-\\x7fé😀\u{7ff}]{0,40}", 0..20),
            piece_size in 1_usize..100,
        ) {
            let (mut reply, receiver) = reply(piece_size);
            for part in &parts {
                reply.write_str(part).unwrap();
                reply.flush().unwrap();
            }
            reply.finish(Ok(()));
            let value: serde_json::Value = serde_json::from_str(&received(receiver)).unwrap();
            let mut expected = parts.concat();
            if !expected.is_empty() && !expected.ends_with('\n') {
                expected.push('\n');
            }
            prop_assert_eq!(value["result"].as_str(), Some(expected.as_str()));
        }
    }
}
