//! Frames of the exchange on a stream: a kind, a zero, the length of what follows as two bytes, and that.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::error::ExchangeError;
use crate::terms::HEADER;
use crate::verbs::{Ece, Gid, Mtu, Psn};

/// Bytes of an end: number of the queue pair, first packet, LID, MTU of the port, a zero, GID, vendor and options of the connection.
const END: usize = 36;

/// No frame has more.
const MOST: usize = 256;

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// The header, not checked yet, and the queue pair of the side that connects.
    Offer([u8; HEADER], End),
    /// The same of the other side.
    Answer([u8; HEADER], End),
    /// The reason, in words.
    Refusal(String),
    /// The queue pair can receive and send.
    Ready,
}

/// A queue pair, as the other side needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) number: u32,
    pub(super) psn: Psn,
    pub(super) lid: u16,
    pub(super) mtu: Mtu,
    pub(super) gid: Gid,
    pub(super) ece: Option<Ece>,
}

const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const REFUSAL: u8 = 3;
const READY: u8 = 4;

impl Frame {
    pub(super) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> Result<(), ExchangeError> {
        let (kind, body) = match self {
            Self::Offer(header, end) => (OFFER, [&header[..], &end.bytes()].concat()),
            Self::Answer(header, end) => (ANSWER, [&header[..], &end.bytes()].concat()),
            Self::Refusal(reason) => (REFUSAL, reason.bytes().take(MOST).collect()),
            Self::Ready => (READY, Vec::new()),
        };
        let length = u16::try_from(body.len()).map_err(io::Error::other)?;
        let [high, low] = length.to_be_bytes();
        stream.write_all(&[&[kind, 0, high, low], &body[..]].concat()).await?;
        Ok(stream.flush().await?)
    }

    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, ExchangeError> {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        let [kind, zero, high, low] = head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if zero != 0 || length > MOST {
            return Err(ExchangeError::Unexpected("no frame"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        Self::parse(kind, &body).ok_or(ExchangeError::Unexpected("a frame of an unknown kind, or of another length"))
    }

    fn parse(kind: u8, body: &[u8]) -> Option<Self> {
        match kind {
            OFFER | ANSWER => {
                let (header, end) = body.split_first_chunk::<HEADER>()?;
                let end = End::parse(end.try_into().ok()?)?;
                Some(if kind == OFFER { Self::Offer(*header, end) } else { Self::Answer(*header, end) })
            }
            REFUSAL => Some(Self::Refusal(String::from_utf8_lossy(body).into_owned())),
            READY if body.is_empty() => Some(Self::Ready),
            _ => None,
        }
    }
}

impl End {
    fn bytes(&self) -> [u8; END] {
        let mut bytes = [0; END];
        let ece = self.ece.unwrap_or(Ece { vendor: 0, options: 0 });
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.get().to_be_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_be_bytes());
        bytes[10] = self.mtu.number();
        bytes[12..28].copy_from_slice(&self.gid.0);
        bytes[28..32].copy_from_slice(&ece.vendor.to_be_bytes());
        bytes[32..].copy_from_slice(&ece.options.to_be_bytes());
        bytes
    }

    /// Numbers of queue pairs and packets have 24 bits.
    fn parse(bytes: &[u8; END]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let (number, psn, vendor, options) = (word(0)?, word(4)?, word(28)?, word(32)?);
        let fits = |number: u32| number >> 24 == 0;
        if !fits(number) || !fits(psn) || bytes[11] != 0 {
            return None;
        }
        Some(Self {
            number,
            psn: Psn::new(psn),
            lid: u16::from_be_bytes([bytes[8], bytes[9]]),
            mtu: Mtu::of_number(bytes[10])?,
            gid: Gid(*bytes.get(12..)?.first_chunk()?),
            ece: (vendor != 0).then_some(Ece { vendor, options }),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end() -> impl Strategy<Value = End> {
        let numbers = (0_u32..1 << 24, 0_u32..1 << 24, any::<u16>(), 1_u8..=5, any::<[u8; 16]>());
        (numbers, prop::option::of((1_u32.., any::<u32>()))).prop_map(|((number, psn, lid, mtu, gid), ece)| End {
            number,
            psn: Psn::new(psn),
            lid,
            mtu: Mtu::of_number(mtu).unwrap_or(Mtu::Bytes256),
            gid: Gid(gid),
            ece: ece.map(|(vendor, options)| Ece { vendor, options }),
        })
    }

    proptest! {
        #[test]
        fn an_end_that_was_written_is_read(end in end()) {
            prop_assert_eq!(End::parse(&end.bytes()), Some(end));
        }

        #[test]
        fn any_body_is_a_frame_or_none(kind: u8, body in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(Frame::Offer(header, end) | Frame::Answer(header, end)) = Frame::parse(kind, &body) {
                let again = [&header[..], &end.bytes()].concat();
                // Options of nobody are none.
                let written = if end.ece.is_some() { again == body } else { again[..44] == body[..44] };
                prop_assert!(written);
            }
        }
    }
}
