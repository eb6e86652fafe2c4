//! Netlink messages: `struct nlmsghdr`, and the answers of the kernel with their extended acknowledgement.

use super::attribute::{Attributes, Fields, Malformed, TooLong, Writer};

/// Bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;

/// Bits of [`Header::flags`] (`NLM_F_*`). Some mean different things in requests, dumps and answers.
pub mod flag {
    /// A request.
    pub const REQUEST: u16 = 0x1;
    /// An answer is wanted if all goes well, too.
    pub const ACK: u16 = 0x4;
    /// The kernel shall send what it made of the request.
    pub const ECHO: u16 = 0x8;
    /// A dump was raced by a change.
    pub const DUMP_INTERRUPTED: u16 = 0x10;
    /// Request: what is there is replaced.
    pub const REPLACE: u16 = 0x100;
    /// Request: it must not be there yet.
    pub const EXCLUSIVE: u16 = 0x200;
    /// Request: it may be made.
    pub const CREATE: u16 = 0x400;
    /// Request: all of them.
    pub const DUMP: u16 = 0x300;
    /// Answer: of the request only the header is in it.
    pub const CAPPED: u16 = 0x100;
    /// Answer: attributes follow.
    pub const ACK_ATTRIBUTES: u16 = 0x200;
}

const ERROR: u16 = 2;
const DONE: u16 = 3;
const OVERRUN: u16 = 4;
/// Numbers below are netlink's own.
const FIRST_OF_PROTOCOL: u16 = 16;

/// The header of a message, without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is (`RTM_*`).
    pub kind: u16,
    /// Bits of [`flag`].
    pub flags: u16,
    /// The number by which answers are told apart.
    pub sequence: u32,
    /// The socket that it is from or for; 0 is the kernel.
    pub port: u32,
}

/// Writes a message at the end of a buffer. If it does not fit, the buffer is as it was.
pub fn write(buffer: &mut Vec<u8>, header: Header, body: impl FnOnce(&mut Writer<'_>)) -> Result<(), TooLong> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&header.kind.to_ne_bytes());
    buffer.extend_from_slice(&header.flags.to_ne_bytes());
    buffer.extend_from_slice(&header.sequence.to_ne_bytes());
    buffer.extend_from_slice(&header.port.to_ne_bytes());
    let mut writer = Writer::new(buffer);
    body(&mut writer);
    let done = writer.finish();
    match (done, u32::try_from(buffer.len() - start)) {
        (Ok(()), Ok(length)) => {
            buffer[start..start + 4].copy_from_slice(&length.to_ne_bytes());
            Ok(())
        }
        (done, _) => {
            buffer.truncate(start);
            done.and(Err(TooLong { kind: 0 }))
        }
    }
}

/// Gives a message other flags and another sequence number. What is no message stays as it is.
#[inline]
pub fn readdress(message: &mut [u8], flags: u16, sequence: u32) {
    if let Some((header, _)) = message.split_first_chunk_mut::<HEADER>() {
        header[6..8].copy_from_slice(&flags.to_ne_bytes());
        header[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// The messages of a datagram, one after the other. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Reads a datagram.
    #[inline]
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.read();
        if message.is_err() {
            self.rest = &[];
        }
        Some(message)
    }
}

impl<'a> Messages<'a> {
    #[inline]
    fn read(&mut self) -> Result<Message<'a>, Malformed> {
        let place = "message";
        let mut fields = Fields::new(self.rest, place);
        let length = fields.u32()? as usize;
        let header = Header { kind: fields.u16()?, flags: fields.u16()?, sequence: fields.u32()?, port: fields.u32()? };
        let payload = self.rest.get(HEADER..length).ok_or(Malformed::Truncated { place })?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok(Message { header, payload })
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// What is behind it.
    pub payload: &'a [u8],
}

/// What the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A request was done, or not.
    Acknowledgement(Acknowledgement<'a>),
    /// A dump has ended; with an error if the number is not 0.
    Done(i32),
    /// Messages were lost.
    Overrun,
    /// Something of rtnetlink.
    Content(Message<'a>),
    /// Nothing.
    Noop,
}

/// What became of a request (`struct nlmsgerr`), with the reason if there is one (`enum nlmsgerr_attrs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    /// The number of the error, positive; 0 if it was done.
    pub errno: i32,
    /// The sequence number of the request.
    pub sequence: u32,
    /// The reason in words, or a warning.
    pub text: Option<&'a str>,
    /// Where in the request the attribute is that is at fault.
    pub offset: Option<u32>,
    /// The number of an attribute that is missing.
    pub missing: Option<u32>,
}

const TEXT: u16 = 1;
const OFFSET: u16 = 2;
const MISSING_KIND: u16 = 5;

impl<'a> Message<'a> {
    /// What it says.
    #[inline]
    pub fn answer(&self) -> Result<Answer<'a>, Malformed> {
        Ok(match self.header.kind {
            ERROR => Answer::Acknowledgement(self.acknowledgement()?),
            DONE => Answer::Done(Fields::new(self.payload, "end of a dump").i32()?.saturating_neg()),
            OVERRUN => Answer::Overrun,
            kind if kind < FIRST_OF_PROTOCOL => Answer::Noop,
            _ => Answer::Content(*self),
        })
    }

    fn acknowledgement(&self) -> Result<Acknowledgement<'a>, Malformed> {
        let place = "acknowledgement";
        let mut fields = Fields::new(self.payload, place);
        let errno = fields.i32()?.saturating_neg();
        let request = fields.u32()? as usize;
        let sequence = self.header.sequence;
        if self.header.flags & flag::ACK_ATTRIBUTES == 0 {
            return Ok(Acknowledgement { errno, sequence, ..Acknowledgement::default() });
        }
        let capped = self.header.flags & flag::CAPPED != 0;
        let echoed = if capped { HEADER } else { request.next_multiple_of(4) };
        let attributes = self.payload.get(4 + echoed..).ok_or(Malformed::Truncated { place })?;
        Ok(Acknowledgement { sequence, ..Acknowledgement::with_attributes(errno, attributes)? })
    }
}

impl<'a> Acknowledgement<'a> {
    /// Reads the attributes of an acknowledgement with this error number, positive. Fails if they make no sense.
    pub fn with_attributes(errno: i32, attributes: &'a [u8]) -> Result<Self, Malformed> {
        let mut found = Self { errno, ..Self::default() };
        for attribute in Attributes::new(attributes, "acknowledgement") {
            let attribute = attribute?;
            match attribute.kind {
                TEXT => found.text = Some(attribute.text()?),
                OFFSET => found.offset = Some(attribute.u32()?),
                MISSING_KIND => found.missing = Some(attribute.u32()?),
                // Cookies and policies tell a program, not a reason.
                _ => {}
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Header = Header { kind: 44, flags: flag::REQUEST, sequence: 9, port: 0 };

    fn answer(flags: u16, echoed: &[u8]) -> Vec<u8> {
        let mut buffer = vec![];
        let header = Header { kind: ERROR, flags, sequence: 9, port: 1 };
        write(&mut buffer, header, |writer| {
            writer.raw(&(-95i32).to_ne_bytes());
            writer.raw(echoed);
            writer.put_text(TEXT, "Unsupported key");
            writer.put(OFFSET, &40u32.to_ne_bytes());
        })
        .unwrap();
        buffer
    }

    #[test]
    fn the_reason_is_found_behind_a_request_that_is_echoed_in_full_or_capped() {
        let mut request = vec![];
        write(&mut request, REQUEST, |writer| writer.put(1, &[1, 2, 3])).unwrap();
        for (flags, echoed) in [(0x200, &request[..]), (0x300, &request[..HEADER])] {
            let datagram = answer(flags, echoed);
            let message = Messages::new(&datagram).next().unwrap().unwrap();
            let Answer::Acknowledgement(found) = message.answer().unwrap() else { panic!("no acknowledgement") };
            assert_eq!((found.errno, found.sequence, found.text), (95, 9, Some("Unsupported key")));
            assert_eq!((found.offset, found.missing), (Some(40), None));
        }
    }

    #[test]
    fn answers_cut_short_anywhere_are_errors_and_never_panics() {
        let mut request = vec![];
        write(&mut request, REQUEST, |_| ()).unwrap();
        let whole = answer(0x200, &request);
        for length in 1..whole.len() {
            let mut cut = whole[..length].to_vec();
            assert!(Messages::new(&cut).next().unwrap().is_err(), "{length}");
            // The header now says the same length as there is.
            if length >= HEADER {
                cut[..4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
                let _ = Messages::new(&cut).next().unwrap().unwrap().answer();
            }
        }
    }

    #[test]
    fn a_message_that_does_not_fit_leaves_nothing_behind() {
        let mut buffer = vec![1, 2, 3];
        let result = write(&mut buffer, REQUEST, |writer| writer.nest(2, |writer| writer.raw(&[0; 70_000])));
        assert_eq!(result, Err(TooLong { kind: 2 }));
        assert_eq!(buffer, [1, 2, 3]);
    }
}
