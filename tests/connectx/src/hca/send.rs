//! Requests of a send queue: what the driver has written, and the frames in it.
//!
//! Of the opcodes there are NOP, SEND, and ACCESS_ASO ([`super::aso`]). Segmentation (LSO), several packets in one request, and requests on keys are not
//! modelled and fail; a checksum that the driver leaves to the device stays as the driver left it.

use super::Hca;
use super::keys::Use;
use super::ring::Ring;
use crate::memory::Memory;
use crate::steering::{Origin, Port};

/// Unit of a send queue.
pub(crate) const BLOCK: usize = 64;
/// Unit of a request.
const SEGMENT: usize = 16;

const NOP: u8 = 0x00;
const SEND: u8 = 0x0a;
const ACCESS_ASO: u8 = 0x2d;

/// When a request gives a completion (PRM, "CE" of the control segment): otherwise with any error.
const COMPLETES_FIRST_ERROR: u8 = 1;
const ALWAYS_COMPLETES: u8 = 2;

/// A request: control segment, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    mode: u8,
    bytes: Vec<u8>,
}

impl Request {
    /// Reads the request at `index`.
    pub(crate) fn read(memory: &dyn Memory, ring: &Ring, index: u16) -> Result<Self, String> {
        let mut bytes = read_block(memory, ring, index)?;
        let segments = usize::from(bytes[7] & 0x3f);
        let length = segments.max(1) * SEGMENT;
        let blocks = length.div_ceil(BLOCK);
        for block in 1..blocks {
            let at = index.wrapping_add(u16::try_from(block).unwrap_or(u16::MAX));
            bytes.extend_from_slice(&read_block(memory, ring, at)?);
        }
        bytes.truncate(length);
        Ok(Self { index, opcode: bytes[3], mode: bytes[11] >> 2 & 3, bytes })
    }

    pub(crate) fn blocks(&self) -> u16 {
        u16::try_from(self.bytes.len().div_ceil(BLOCK)).unwrap_or(u16::MAX)
    }

    pub(crate) fn wants_completion(&self) -> bool {
        self.mode & ALWAYS_COMPLETES != 0
    }

    /// Whether it gives no completion as flushed behind another one.
    pub(crate) fn completes_first_error_only(&self) -> bool {
        self.mode == COMPLETES_FIRST_ERROR
    }

    pub(crate) fn bytes(&self, at: usize, length: usize) -> Option<&[u8]> {
        self.bytes.get(at..at.checked_add(length)?)
    }

    pub(crate) fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at + 4)?;
        Some(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }
}

fn read_block(memory: &dyn Memory, ring: &Ring, index: u16) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; BLOCK];
    memory.read(ring.address(u32::from(index)), &mut bytes).map_err(|fault| fault.to_string())?;
    Ok(bytes)
}

/// What the Ethernet segment says, and where the data begins.
struct Ethernet {
    metadata: u32,
    headers: Vec<u8>,
    vlan: Option<[u8; 2]>,
    data: usize,
}

impl Ethernet {
    fn parse(request: &Request) -> Option<Self> {
        const AT: usize = 16;
        const INSERT_VLAN: u16 = 0x8000;
        let metadata = request.word(AT + 8)?;
        let [first, second, third, fourth] = request.word(AT + 12)?.to_be_bytes();
        let kind = u16::from_be_bytes([first, second]);
        if kind & INSERT_VLAN != 0 {
            return Some(Self { metadata, headers: Vec::new(), vlan: Some([third, fourth]), data: AT + 16 });
        }
        let length = usize::from(kind & 0x3ff);
        let headers = request.bytes.get(AT + 14..AT + 14 + length)?.to_vec();
        let data = (AT + 14 + length.max(2)).next_multiple_of(SEGMENT);
        Some(Self { metadata, headers, vlan: None, data })
    }
}

impl Hca {
    /// Carries a request out. What it sends goes through the flow tables, as from the driver's own vport.
    pub(crate) fn carry_out(&mut self, memory: &dyn Memory, sq: u32, request: &Request) -> Result<(), String> {
        match request.opcode {
            NOP => Ok(()),
            SEND => {
                let (metadata, frame) = self.gather(memory, request)?;
                let port = Port::Vport(self.profile.own_vport());
                let walk = self.walk(Origin { port, sqn: sq, metadata }, &frame);
                self.hand_over(memory, &walk.received);
                self.sent.extend(walk.sent);
                Ok(())
            }
            ACCESS_ASO => self.access_aso(memory, sq, request),
            other => Err(format!("requests of opcode {other:#x} are not modelled")),
        }
    }

    fn gather(&self, memory: &dyn Memory, request: &Request) -> Result<(u32, Vec<u8>), String> {
        const INLINE: u32 = 1 << 31;
        let ethernet = Ethernet::parse(request).ok_or("a request ends within its Ethernet segment")?;
        let mut frame = ethernet.headers;
        let mut at = ethernet.data;
        while let (Some(length), Some(key)) = (request.word(at), request.word(at + 4)) {
            if length & INLINE != 0 {
                let length = (length & !INLINE) as usize;
                let data = request.bytes(at + 4, length).ok_or("a request ends within its data")?;
                frame.extend_from_slice(data);
                at += (4 + length).next_multiple_of(SEGMENT);
                continue;
            }
            let (Some(high), Some(low)) = (request.word(at + 8), request.word(at + 12)) else { break };
            let mut bytes = vec![0; length as usize];
            let address = u64::from(high) << 32 | u64::from(low);
            self.read_by_key(memory, (key, address), Use::LocalRead, &mut bytes)?;
            frame.extend_from_slice(&bytes);
            at += SEGMENT;
        }
        if let Some([high, low]) = ethernet.vlan {
            const ADDRESSES: usize = 12;
            if frame.len() < ADDRESSES {
                return Err("a frame without addresses".to_owned());
            }
            frame.splice(ADDRESSES..ADDRESSES, [0x81, 0x00, high, low]);
        }
        Ok((ethernet.metadata, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::layouts as l;
    use crate::hca::test::{initialized, made};
    use crate::memory::test::Flat;
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
        let (metadata, frame) = hca.gather(&memory, &request).unwrap();
        assert_eq!((metadata, frame), (0, [headers, vec![7; 46]].concat()));
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let (hca, memory, key) = device();
        let request = request(0x8000, &[0x20, 0x64], key, 60);
        let (_, frame) = hca.gather(&memory, &request).unwrap();
        assert_eq!(frame, [vec![7; 12], vec![0x81, 0, 0x20, 0x64], vec![7; 48]].concat());
    }

    #[test]
    fn data_under_a_key_that_does_not_exist_is_refused() {
        let (mut hca, memory, key) = device();
        let request = request(0, &[0, 0], key + 1, 60);
        let reason = hca.carry_out(&memory, 1, &request).unwrap_err();
        assert_eq!(reason, format!("there is no key {:#x}", (key + 1) << 8));
    }
}
