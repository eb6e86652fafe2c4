//! Requests of a send queue: what the driver has written, and the frames in it.
//!
//! Of the opcodes there are NOP, SEND, the same of a large segment (LSO), several frames in one request (enhanced MPW), and ACCESS_ASO
//! ([`super::aso`]). Requests on keys, the software parser, and the older kind of several frames are not modelled and fail.

use super::failed::Failed;
use super::key::Use;
use super::offload::{self, CHECKSUMS};
use super::request::{Request, SEGMENT};
use super::state::Hca;
use crate::memory::Memory;
use crate::steering::{Origin, Port};

const NOP: u8 = 0x00;
const SEND: u8 = 0x0a;
const SEND_LARGE: u8 = 0x0e;
const SEND_SEVERAL: u8 = 0x29;
const ACCESS_ASO: u8 = 0x2d;

/// What the Ethernet segment says, and where the data begins.
struct Ethernet {
    /// Checksums that the device fills in.
    checksums: u8,
    /// Bytes of data to a frame of a large segment.
    most: u16,
    metadata: u32,
    headers: Vec<u8>,
    vlan: Option<[u8; 2]>,
    data: usize,
}

impl Ethernet {
    fn parse(request: &Request) -> Option<Self> {
        const AT: usize = 16;
        const INSERT_VLAN: u16 = 0x8000;
        let [checksums, _, high, low] = request.word(AT + 4)?.to_be_bytes();
        let (checksums, most) = (checksums & CHECKSUMS, u16::from_be_bytes([high, low]));
        let metadata = request.word(AT + 8)?;
        let [first, second, third, fourth] = request.word(AT + 12)?.to_be_bytes();
        let kind = u16::from_be_bytes([first, second]);
        if kind & INSERT_VLAN != 0 {
            let vlan = Some([third, fourth]);
            return Some(Self { checksums, most, metadata, headers: Vec::new(), vlan, data: AT + 16 });
        }
        let length = usize::from(kind & 0x3ff);
        let headers = request.bytes.get(AT + 14..AT + 14 + length)?.to_vec();
        let data = (AT + 14 + length.max(2)).next_multiple_of(SEGMENT);
        Some(Self { checksums, most, metadata, headers, vlan: None, data })
    }

    /// What becomes of headers and data.
    fn complete(&self, mut frame: Vec<u8>) -> Result<Vec<u8>, String> {
        if let Some([high, low]) = self.vlan {
            const ADDRESSES: usize = 12;
            if frame.len() < ADDRESSES {
                return Err("a frame without addresses".to_owned());
            }
            frame.splice(ADDRESSES..ADDRESSES, [0x81, 0x00, high, low]);
        }
        offload::fill_in(&mut frame, self.checksums);
        Ok(frame)
    }
}

impl Hca {
    /// Carries a request out. What it sends goes through the flow tables, as from the driver's own vport.
    pub(crate) fn carry_out(&mut self, memory: &dyn Memory, sq: u32, request: &Request) -> Result<(), Failed> {
        match request.opcode {
            NOP => Ok(()),
            SEND_SEVERAL if self.queues.sends.get(&sq).is_some_and(|queue| !queue.several) => {
                Err("several frames in a request, which the queue's context does not allow".into())
            }
            SEND | SEND_LARGE | SEND_SEVERAL => {
                let (metadata, frames) = self.gather(memory, request)?;
                let port = Port::Vport(self.profile.own_vport());
                for frame in frames {
                    let walk = self.walk(Origin { port, sqn: sq, metadata }, &frame);
                    self.hand_over(memory, &walk.received);
                    self.sent.extend(walk.sent);
                }
                Ok(())
            }
            ACCESS_ASO => self.access_aso(memory, sq, request),
            other => Err(format!("requests of opcode {other:#x} are not modelled").into()),
        }
    }

    /// The frames of a request, complete.
    fn gather(&self, memory: &dyn Memory, request: &Request) -> Result<(u32, Vec<Vec<u8>>), Failed> {
        const SOFTWARE_PARSER: u32 = 0x00ff_0000;
        let ethernet = Ethernet::parse(request).ok_or("a request ends within its Ethernet segment")?;
        let by_software =
            request.word(16) != Some(0) || request.word(20).is_some_and(|word| word & SOFTWARE_PARSER != 0);
        if by_software || request.modifier() != 0 {
            return Err("the software parser, and modifiers of sends, are not modelled".into());
        }
        let pieces = self.pieces(memory, request, ethernet.data)?;
        let frames = match request.opcode {
            SEND_LARGE => {
                if ethernet.vlan.is_some() {
                    return Err("a tag for frames of a large segment is not modelled".into());
                }
                offload::segments(&ethernet.headers, &pieces.concat(), ethernet.most.into())?
            }
            SEND_SEVERAL if !ethernet.headers.is_empty() => {
                return Err("headers for several frames are not modelled".into());
            }
            SEND_SEVERAL => pieces,
            _ => vec![[ethernet.headers.as_slice(), &pieces.concat()].concat()],
        };
        let frames: Result<Vec<_>, _> = frames.into_iter().map(|frame| ethernet.complete(frame)).collect();
        Ok((ethernet.metadata, frames?))
    }

    /// The pieces of data that begin at a place, each with something in it.
    fn pieces(&self, memory: &dyn Memory, request: &Request, mut at: usize) -> Result<Vec<Vec<u8>>, Failed> {
        const INLINE: u32 = 1 << 31;
        let mut pieces = Vec::new();
        while let (Some(length), Some(key)) = (request.word(at), request.word(at + 4)) {
            if length & INLINE != 0 {
                let length = (length & !INLINE) as usize;
                pieces.push(request.bytes(at + 4, length).ok_or("a request ends within its data")?.to_vec());
                at += (4 + length).next_multiple_of(SEGMENT);
                continue;
            }
            let (Some(high), Some(low)) = (request.word(at + 8), request.word(at + 12)) else { break };
            let mut bytes = vec![0; length as usize];
            let address = u64::from(high) << 32 | u64::from(low);
            self.read_by_key(memory, (key, address), Use::LocalRead, &mut bytes)?;
            pieces.push(bytes);
            at += SEGMENT;
        }
        pieces.retain(|piece| !piece.is_empty());
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::layouts as l;
    use crate::hca::failed::{Flushing, Syndrome};
    use crate::hca::queue::{SendQueue, State};
    use crate::hca::request::ALWAYS_COMPLETES;
    use crate::hca::ring::Ring;
    use crate::hca::test::{initialized, made};
    use crate::memory::test::Flat;
    use crate::packet::sample::tcp_frame;
    use crate::profile::BLUEFIELD_2;

    const DATA: u64 = 0x800;

    /// A request with `inline` in its Ethernet segment and one piece of data.
    fn request(kind: u16, inline: &[u8], key: u64, length: u32) -> Request {
        let mut bytes = vec![0; 30];
        bytes[28..30].copy_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(inline);
        bytes.resize(bytes.len().next_multiple_of(SEGMENT), 0);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(key << 8).unwrap().to_be_bytes());
        bytes.extend_from_slice(&DATA.to_be_bytes());
        Request { index: 0, opcode: SEND, mode: ALWAYS_COMPLETES, bytes }
    }

    fn device() -> (Hca, Flat, u64) {
        let mut hca = initialized(BLUEFIELD_2);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let key = [(l::create_mkey::PD, pd), (l::create_mkey::LENGTH64, 1)];
        let key = made(&mut hca, 0x200, &l::create_mkey::LAYOUT, &key, &[]);
        let memory = Flat::new(0x1000);
        memory.write(DATA, &[7; 64]).unwrap();
        (hca, memory, key)
    }

    #[test]
    fn a_frame_is_its_inline_headers_and_then_its_data() {
        let (hca, memory, key) = device();
        let headers: Vec<u8> = (0..18).collect();
        let request = request(18, &headers, key, 46);
        let frames = hca.gather(&memory, &request).unwrap();
        assert_eq!(frames, (0, vec![[headers, vec![7; 46]].concat()]));
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let (hca, memory, key) = device();
        let request = request(0x8000, &[0x20, 0x64], key, 60);
        let (_, frames) = hca.gather(&memory, &request).unwrap();
        assert_eq!(frames, [[vec![7; 12], vec![0x81, 0, 0x20, 0x64], vec![7; 48]].concat()]);
    }

    /// One piece of data more, in the request itself.
    fn inline(request: &mut Request, data: &[u8]) {
        request.bytes.extend((1 << 31 | u32::try_from(data.len()).unwrap()).to_be_bytes());
        request.bytes.extend(data);
        request.bytes.resize(request.bytes.len().next_multiple_of(SEGMENT), 0);
    }

    #[test]
    fn pieces_are_one_frame_or_several_as_the_opcode_says() {
        let (hca, memory, key) = device();
        let mut request = request(0, &[0, 0], key, 60);
        inline(&mut request, &[9; 61]);
        assert_eq!(hca.gather(&memory, &request).unwrap().1, [[vec![7; 60], vec![9; 61]].concat()]);
        request.opcode = SEND_SEVERAL;
        assert_eq!(hca.gather(&memory, &request).unwrap().1, [vec![7; 60], vec![9; 61]]);
        // The same tag for all of them.
        request.bytes[28..32].copy_from_slice(&[0x80, 0, 0x20, 0x64]);
        let lengths = hca.gather(&memory, &request).unwrap().1.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths, [64, 65]);
    }

    #[test]
    fn a_large_segment_goes_out_in_frames_with_right_checksums() {
        let (hca, memory, key) = device();
        let frame = tcp_frame();
        let mut request = request(54, &frame[..54], key, 40);
        request.opcode = SEND_LARGE;
        // Both checksums, and 30 bytes to a frame.
        request.bytes[20] = 0xc0;
        request.bytes[23] = 30;
        let (_, frames) = hca.gather(&memory, &request).unwrap();
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [84, 64]);
        for frame in &frames {
            let mut again = frame.clone();
            again[24..26].fill(0xee);
            again[50..52].fill(0xee);
            offload::fill_in(&mut again, CHECKSUMS);
            assert_eq!(*frame, again);
        }
    }

    #[test]
    fn several_frames_are_for_queues_that_allow_them() {
        let (mut hca, memory, key) = device();
        let mut request = request(0, &[0, 0], key, 60);
        request.opcode = SEND_SEVERAL;
        for several in [true, false] {
            let queue = SendQueue {
                ring: Ring::new(vec![0], 12, 0, 6, 0).unwrap(),
                cq: 0,
                domain: 0,
                user_index: 0,
                doorbell_record: 0,
                consumer: 0,
                state: State::Ready,
                flushing: Flushing::Off,
                several,
            };
            hca.queues.sends.insert(1, queue);
            assert_eq!(hca.carry_out(&memory, 1, &request).is_ok(), several);
        }
    }

    #[test]
    fn sends_that_are_not_modelled_fail() {
        let (hca, memory, key) = device();
        for (opcode, changes) in [
            (SEND, &[(0, 1)][..]),
            (SEND, &[(19, 7)]),
            (SEND, &[(21, 1)]),
            (SEND_LARGE, &[]),
            (SEND_LARGE, &[(23, 30), (28, 0x80)]),
            (SEND_SEVERAL, &[(29, 2)]),
        ] {
            let mut request = request(0, &[0, 0], key, 60);
            request.opcode = opcode;
            changes.iter().for_each(|(at, value)| request.bytes[*at] = *value);
            assert!(hca.gather(&memory, &request).is_err(), "{opcode:#x} {changes:?}");
        }
    }

    #[test]
    fn data_under_a_key_that_does_not_exist_is_refused() {
        let (mut hca, memory, key) = device();
        let request = request(0, &[0, 0], key + 1, 60);
        let Failed { syndrome, reason } = hca.carry_out(&memory, 1, &request).unwrap_err();
        assert_eq!(syndrome, Syndrome::LocalProtection);
        assert_eq!(reason, format!("there is no key {:#x}", (key + 1) << 8));
    }
}
