//! The asking end of the control socket, for the command line.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::escape::{clean_bytes, escape};

/// A connection to the control socket of an agent, or of any Open vSwitch daemon. Calls block.
pub struct Client {
    replies: BufReader<UnixStream>,
    next_id: u64,
    on_silence: Option<OnSilence>,
}

/// Asked whether to go on waiting; an error ends the call.
type OnSilence = Box<dyn FnMut() -> io::Result<()> + Send>;

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("replies", &self.replies)
            .field("next_id", &self.next_id)
            .finish_non_exhaustive()
    }
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The agent said no, in these words.
    #[error("{}", .0.trim_end())]
    Refused(String),
    /// The agent cannot be talked to.
    #[error(transparent)]
    Transport(#[from] io::Error),
}

/// A request whose answer is still to be read.
#[derive(Debug)]
#[must_use]
pub struct Asked {
    id: u64,
    sent: io::Result<()>,
}

impl Client {
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self::over(UnixStream::connect(path)?))
    }

    /// A client over a socket that is connected.
    pub fn over(stream: UnixStream) -> Self {
        Self { replies: BufReader::with_capacity(BUFFER, stream), next_id: 0, on_silence: None }
    }

    /// How long to wait for each piece of a reply; forever if not set.
    pub fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.replies.get_ref().set_read_timeout(limit)
    }

    /// How long to wait for each piece of a reply, and for room to send, before `on_silence` is asked whether to go on.
    pub fn set_patience(
        &mut self,
        limit: Duration,
        on_silence: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.set_timeout(Some(limit))?;
        self.replies.get_ref().set_write_timeout(Some(limit))?;
        self.on_silence = Some(Box::new(on_silence));
        Ok(())
    }

    /// Runs a command, and hands its answer on piece by piece as it arrives.
    ///
    /// An error may come after pieces were handed on: the answer then is not complete.
    pub fn call(&mut self, method: &str, params: &[&str], on_text: &mut dyn FnMut(&str)) -> Result<(), ClientError> {
        let asked = self.ask(method, params);
        self.answer(asked, on_text)
    }

    /// Sends a request. Others may be sent before its answer is read, as long as the answers are short: each is kept by the
    /// socket until then.
    pub fn ask(&mut self, method: &str, params: &[&str]) -> Asked {
        let id = self.next_id;
        self.next_id += 1;
        let sent = self.send(&request(id, method, params));
        Asked { id, sent }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.replies.get_mut().write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.was_silent()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The agent neither answers nor takes what is sent.
    fn was_silent(&mut self) -> io::Result<()> {
        match &mut self.on_silence {
            Some(on_silence) => on_silence(),
            None => Err(io::Error::new(io::ErrorKind::TimedOut, "the agent does not answer")),
        }
    }

    /// Reads the answer to a request, in the order in which they were sent, and hands it on piece by piece as it arrives.
    pub fn answer(&mut self, asked: Asked, on_text: &mut dyn FnMut(&str)) -> Result<(), ClientError> {
        // Who refuses a request may do so in the middle of it: the reason is worth more than a broken pipe.
        match (self.read_reply(asked.id, on_text), asked.sent) {
            (Err(ClientError::Transport(_)), Err(error)) => Err(error.into()),
            (result, _) => result,
        }
    }

    /// Runs a command with a short answer.
    pub fn call_text(&mut self, method: &str, params: &[&str]) -> Result<String, ClientError> {
        let mut answer = String::new();
        self.call(method, params, &mut |text| answer.push_str(text))?;
        Ok(answer)
    }

    fn read_reply(&mut self, id: u64, on_text: &mut dyn FnMut(&str)) -> Result<(), ClientError> {
        let mut error = None;
        let mut has_result = false;
        let mut for_id = None;
        if self.symbol()? != b'{' {
            return Err(broken("not an object").into());
        }
        loop {
            let mut name = String::new();
            self.string(&mut limited(&mut name))?;
            if self.symbol()? != b':' {
                return Err(broken("no value for a name").into());
            }
            match (name.as_str(), self.peek()?) {
                ("result", b'"') => {
                    if for_id.as_ref().is_some_and(|for_id| *for_id != id.to_string()) {
                        return Err(broken("an answer to another request").into());
                    }
                    self.string(on_text)?;
                    has_result = true;
                }
                ("error", b'"') => {
                    let mut text = String::new();
                    self.string(&mut limited(&mut text))?;
                    error = Some(text);
                }
                ("result" | "error", b'n') => {
                    self.scalar()?;
                }
                ("id", _) => for_id = Some(self.scalar()?),
                _ => return Err(broken(&format!("an unexpected member \"{name}\"")).into()),
            }
            match self.symbol()? {
                b',' => {}
                b'}' => break,
                _ => return Err(broken("neither a comma nor an end after a value").into()),
            }
        }
        // A request that could not be read is refused without its id.
        match (error, for_id.as_deref()) {
            (Some(text), Some("null")) => Err(ClientError::Refused(text)),
            (_, for_id) if for_id != Some(&id.to_string()) => Err(broken("an answer to another request").into()),
            (Some(text), _) => Err(ClientError::Refused(text)),
            (None, _) if has_result => Ok(()),
            (None, _) => Err(broken("neither result nor error").into()),
        }
    }

    /// Reads a string, handing on what is there whenever the socket has no more.
    fn string(&mut self, on_text: &mut dyn FnMut(&str)) -> io::Result<()> {
        if self.symbol()? != b'"' {
            return Err(broken("not a string"));
        }
        let mut pending = Vec::with_capacity(BUFFER);
        loop {
            if self.replies.buffer().is_empty() || pending.len() >= BUFFER {
                hand_on(&mut pending, on_text)?;
            }
            let available = self.fill()?;
            let (taken, stopped_by) = take_plain(available, &mut pending);
            self.replies.consume(taken);
            match stopped_by {
                None => {}
                Some(b'"') => {
                    self.replies.consume(1);
                    hand_on(&mut pending, on_text)?;
                    return if pending.is_empty() { Ok(()) } else { Err(broken("text that is not UTF-8")) };
                }
                Some(b'\\') => {
                    self.replies.consume(1);
                    let unescaped = self.escape()?;
                    pending.extend_from_slice(unescaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) => return Err(broken("a control character within a string")),
            }
        }
    }

    /// Reads what follows a backslash.
    fn escape(&mut self) -> io::Result<char> {
        Ok(match self.byte()? {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hexadecimal()?;
                let mut units = vec![first];
                if (0xd800..0xdc00).contains(&first) && self.peek_raw()? == b'\\' {
                    self.byte()?;
                    if self.byte()? != b'u' {
                        return Err(broken("half a surrogate pair"));
                    }
                    units.push(self.hexadecimal()?);
                }
                let mut characters = char::decode_utf16(units);
                match (characters.next(), characters.next()) {
                    (Some(Ok(character)), None) => character,
                    _ => return Err(broken("half a surrogate pair")),
                }
            }
            _ => return Err(broken("an unknown escape")),
        })
    }

    fn hexadecimal(&mut self) -> io::Result<u16> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = char::from(self.byte()?).to_digit(16).and_then(|digit| u16::try_from(digit).ok());
            value = value << 4 | digit.ok_or_else(|| broken("an escape that is not hexadecimal"))?;
        }
        Ok(value)
    }

    /// Reads a number or a word.
    fn scalar(&mut self) -> io::Result<String> {
        let mut text = String::new();
        while matches!(self.peek()?, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.') && text.len() < 64 {
            text.push(char::from(self.byte()?));
        }
        if text.is_empty() { Err(broken("an unexpected value")) } else { Ok(text) }
    }

    /// Reads the next byte that is not white space.
    fn symbol(&mut self) -> io::Result<u8> {
        self.peek()?;
        self.byte()
    }

    /// The next byte that is not white space, which stays.
    fn peek(&mut self) -> io::Result<u8> {
        while matches!(self.peek_raw()?, b' ' | b'\t' | b'\n' | b'\r') {
            self.replies.consume(1);
        }
        self.peek_raw()
    }

    fn peek_raw(&mut self) -> io::Result<u8> {
        self.fill().map(|available| available[0])
    }

    fn byte(&mut self) -> io::Result<u8> {
        let byte = self.peek_raw()?;
        self.replies.consume(1);
        Ok(byte)
    }

    /// What has arrived, at least a byte.
    fn fill(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.replies.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.was_silent()?,
                Err(error) => return Err(error),
                Ok([]) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the agent closed the connection in the middle",
                    ));
                }
                Ok(_) => break,
            }
        }
        Ok(self.replies.buffer())
    }
}

const BUFFER: usize = 64 << 10;

/// The longest text that is kept in one piece: names and errors.
const TEXT_LIMIT: usize = 1 << 20;

/// Takes text up to the end of the string or what cannot be taken here, with the ends of lines and the quotes of which a dump is
/// full; says how much that was, and what comes next.
fn take_plain(available: &[u8], text: &mut Vec<u8>) -> (usize, Option<u8>) {
    let mut rest = available;
    loop {
        let plain = clean_bytes(rest);
        text.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        match rest {
            [b'\\', b'n', after @ ..] => {
                text.push(b'\n');
                rest = after;
            }
            [b'\\', b'"', after @ ..] => {
                text.push(b'"');
                rest = after;
            }
            _ => return (available.len() - rest.len(), rest.first().copied()),
        }
    }
}

/// Collects text up to a limit; what is beyond it is cut off.
fn limited(text: &mut String) -> impl FnMut(&str) {
    |piece| {
        let room = TEXT_LIMIT.saturating_sub(text.len());
        text.push_str(&piece[..piece.floor_char_boundary(room)]);
    }
}

/// Hands the whole characters of `pending` on, and keeps the beginning of one that has not arrived in full.
fn hand_on(pending: &mut Vec<u8>, on_text: &mut dyn FnMut(&str)) -> io::Result<()> {
    match std::str::from_utf8(pending) {
        Ok("") => {}
        Ok(text) => {
            on_text(text);
            pending.clear();
        }
        Err(error) if error.error_len().is_some() => return Err(broken("text that is not UTF-8")),
        Err(error) => {
            let whole = error.valid_up_to();
            if let Ok(text) = std::str::from_utf8(&pending[..whole])
                && !text.is_empty()
            {
                on_text(text);
            }
            pending.drain(..whole);
        }
    }
    Ok(())
}

/// A request as it goes over the socket.
fn request(id: u64, method: &str, params: &[&str]) -> Vec<u8> {
    let length: usize = params.iter().map(|param| param.len()).sum();
    let mut request = Vec::with_capacity(length + length / 64 + 256);
    request.extend_from_slice(format!("{{\"id\":{id},\"method\":\"").as_bytes());
    escape(method, &mut request);
    request.extend_from_slice(b"\",\"params\":[");
    for (number, param) in params.iter().enumerate() {
        request.extend_from_slice(if number > 0 { b",\"" } else { b"\"" });
        escape(param, &mut request);
        request.push(b'"');
    }
    request.extend_from_slice(b"]}");
    request
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the reply of the agent is no JSON-RPC: {what}"))
}
