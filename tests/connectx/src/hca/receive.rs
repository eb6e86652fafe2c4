//! Receiving: the queue that a frame is for, the driver's buffers, and the completion that tells of it.
//!
//! Queues are cyclic, with lists of buffers as the driver posts them. A frame is lost, and counted, where there is no buffer, and
//! lost in silence where the queue is not ready. Of two queues a symmetric hash picks the same for both directions; how hardware
//! makes it so is not published, and here the smaller of two addresses, or ports, comes first.

use super::Hca;
use super::queues::State;
use super::ring::COMPLETION;
use crate::memory::{Memory, read_u32};
use crate::packet::{Fragment, Headers, Ip, Layer, Transport, TunnelPorts, edit};
use crate::steering::Received;

/// How frames are spread over receive queues.
#[derive(Debug)]
pub(crate) struct Tir {
    pub(crate) dispatch: Dispatch,
    pub(crate) hash: Option<Hash>,
}

/// Where a TIR leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dispatch {
    /// A receive queue.
    Queue(u32),
    /// A table of them, of which the hash picks one.
    Table(u32),
}

/// A hash over those fields that are selected (PRM, `RX_HASH_FIELD_SELECT`).
#[derive(Debug)]
pub(crate) struct Hash {
    pub(crate) function: HashFunction,
    pub(crate) symmetric: bool,
    pub(crate) outer: u32,
    pub(crate) inner: u32,
}

#[derive(Debug)]
pub(crate) enum HashFunction {
    /// All bytes by exclusive or, inverted.
    InvertedXor8,
    /// That of Microsoft's receive side scaling, with its key.
    Toeplitz([u8; 40]),
}

/// A buffer for part of a frame.
struct Buffer {
    address: u64,
    length: usize,
}

/// Unit of the list of buffers: length, key, address.
const SEGMENT: usize = 16;

impl Hca {
    /// Puts frames into the driver's receive queues.
    pub(crate) fn hand_over(&mut self, memory: &dyn Memory, received: &[Received]) {
        for frame in received {
            if let Err(reason) = self.receive_one(memory, frame) {
                self.complain(format!("a frame for TIR {:#x}: {reason}", frame.tir));
            }
        }
    }

    fn receive_one(&mut self, memory: &dyn Memory, received: &Received) -> Result<(), String> {
        let tir = self.queues.tirs.get(&received.tir).ok_or("there is no such TIR")?;
        let headers = Headers::parse(&received.frame, &TunnelPorts::default());
        let hash = tir.hash.as_ref().and_then(|hash| hash.of(&headers));
        let number = match tir.dispatch {
            Dispatch::Queue(number) => number,
            Dispatch::Table(table) => {
                let queues = self.queues.tables.get(&table).ok_or("its table is gone")?;
                let place = hash.unwrap_or_default() as usize % queues.len().max(1);
                *queues.get(place).ok_or("its table is empty")?
            }
        };
        let Some(queue) = self.queues.receives.get_mut(&number).filter(|queue| queue.state == State::Ready) else {
            return Ok(());
        };
        let producer = read_u32(memory, queue.doorbell_record).map_err(|fault| fault.to_string())?;
        if u32::from(queue.consumer) == producer & 0xffff {
            if queue.counter != 0 {
                *self.queues.out_of_buffer.entry(queue.counter).or_default() += 1;
            }
            return Ok(());
        }
        let index = queue.consumer;
        let mut list = vec![0; queue.ring.stride()];
        memory.read(queue.ring.address(u32::from(index)), &mut list).map_err(|fault| fault.to_string())?;
        let mut frame = received.frame.clone();
        let vlan = headers.outer.vlans.first().filter(|vlan| queue.strips_vlan && vlan.ethertype == CUSTOMER_TAG);
        if let Some(vlan) = vlan {
            edit::remove(&mut frame, vlan.at..vlan.at + 4);
        }
        let buffers = buffers(&list);
        let room: usize = buffers.iter().map(|buffer| buffer.length).sum();
        if frame.len() > room {
            return Err(format!("{} bytes, and RQ {number:#x} has buffers of {room}", frame.len()));
        }
        queue.consumer = index.wrapping_add(1);
        let cq = queue.cq;
        let mut rest = frame.as_slice();
        for buffer in &buffers {
            let (part, left) = rest.split_at(rest.len().min(buffer.length));
            memory.write(buffer.address, part).map_err(|fault| fault.to_string())?;
            rest = left;
        }
        let tci = vlan.map(|vlan| vlan.tci);
        let completion = completion(received, &frame, Place { queue: number, index }, tci, hash);
        const RESPONSE_SEND: u8 = 0x2;
        self.complete(memory, cq, RESPONSE_SEND, completion);
        Ok(())
    }
}

const CUSTOMER_TAG: u16 = 0x8100;

/// Where a frame went.
struct Place {
    queue: u32,
    index: u16,
}

fn buffers(list: &[u8]) -> Vec<Buffer> {
    // The highest bit asks for padding in front, which the capabilities do not offer.
    const LENGTH: u32 = 0x7fff_ffff;
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let buffer = |segment: &[u8]| Buffer {
        address: number(&segment[8..16]),
        length: number(&segment[..4]) as usize & LENGTH as usize,
    };
    list.chunks_exact(SEGMENT).map(buffer).filter(|buffer| buffer.length > 0).collect()
}

/// The completion of a frame (PRM, "Completion Queue Entry"), but for its last byte.
fn completion(
    received: &Received,
    frame: &[u8],
    place: Place,
    vlan: Option<u16>,
    hash: Option<u32>,
) -> [u8; COMPLETION] {
    const HASHED_IP: u8 = 0x04;
    const HAS_VLAN: u8 = 0x01;
    const ETHERNET_OK: u8 = 0x01;
    const IP_OK: u8 = 0x02;
    const TRANSPORT_OK: u8 = 0x04;
    let mut bytes = [0; COMPLETION];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    if let Some(hash) = hash {
        put(12, &hash.to_be_bytes());
        put(16, &[HASHED_IP]);
    }
    let layer = Headers::parse(frame, &TunnelPorts::default()).outer;
    let mut checked = ETHERNET_OK;
    if let Some(ip) = &layer.ip {
        put(20, &sum(ip_packet(frame, ip)).to_be_bytes());
        if ip_is_right(frame, ip) {
            checked |= IP_OK;
        }
        if transport_is_right(frame, ip, &layer) {
            checked |= TRANSPORT_OK;
        }
    }
    put(24, &(place.queue & 0xff_ffff).to_be_bytes());
    put(28, &[checked, vlan.map_or(0, |_| HAS_VLAN) | kind_of_ip(&layer) << 2]);
    put(30, &vlan.unwrap_or_default().to_be_bytes());
    put(36, &received.metadata.to_be_bytes());
    put(44, &u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
    put(56, &(received.tag.unwrap_or_default() & 0xff_ffff).to_be_bytes());
    put(60, &place.index.to_be_bytes());
    bytes
}

fn kind_of_ip(layer: &Layer) -> u8 {
    match layer.ip.map(|ip| ip.version) {
        Some(6) => 1,
        Some(_) => 2,
        None => 0,
    }
}

/// The IP packet without what fills up the frame.
fn ip_packet<'a>(frame: &'a [u8], ip: &Ip) -> &'a [u8] {
    let length = |at: usize| {
        frame.get(at..at + 2).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])))
    };
    let end = if ip.version == 4 { ip.at + length(ip.at + 2) } else { ip.at + 40 + length(ip.at + 4) };
    frame.get(ip.at..end.clamp(ip.at, frame.len())).unwrap_or_default()
}

fn ip_is_right(frame: &[u8], ip: &Ip) -> bool {
    ip.version == 6 || frame.get(ip.at..ip.at + usize::from(ip.ihl) * 4).is_some_and(|header| sum(header) == 0xffff)
}

/// A UDP datagram without a checksum is right, too.
fn transport_is_right(frame: &[u8], ip: &Ip, layer: &Layer) -> bool {
    if ip.fragment != Fragment::No {
        return false;
    }
    let (at, without) = match layer.transport {
        Some(Transport::Tcp { at, .. }) => (at, false),
        Some(Transport::Udp { at, .. }) => (at, frame.get(at + 6..at + 8) == Some(&[0, 0])),
        _ => return false,
    };
    let packet = ip_packet(frame, ip);
    let Some(segment) = packet.get(at - ip.at..) else { return false };
    let mut covered = addresses(ip);
    covered.extend([0, ip.protocol]);
    covered.extend((segment.len() as u32).to_be_bytes());
    covered.extend(segment);
    without || sum(&covered) == 0xffff
}

fn addresses(ip: &Ip) -> Vec<u8> {
    [ip.source, ip.destination].into_iter().flat_map(|address| octets(ip.version, address)).collect()
}

fn octets(version: u8, address: u128) -> Vec<u8> {
    if version == 4 { address.to_be_bytes()[12..].to_vec() } else { address.to_be_bytes().to_vec() }
}

/// The sum in ones' complement.
fn sum(bytes: &[u8]) -> u16 {
    !edit::checksum(bytes)
}

impl Hash {
    /// The hash of a packet, if it has any of the fields.
    fn of(&self, headers: &Headers) -> Option<u32> {
        const SOURCE_ADDRESS: u32 = 1;
        const DESTINATION_ADDRESS: u32 = 1 << 1;
        const SOURCE_PORT: u32 = 1 << 2;
        const DESTINATION_PORT: u32 = 1 << 3;
        let (layer, selected) = match &headers.inner {
            Some(inner) if self.inner & 0x3fff_ffff != 0 => (inner, self.inner),
            _ => (&headers.outer, self.outer),
        };
        let ip = layer.ip.as_ref()?;
        let ports = match layer.transport {
            Some(Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination, .. }) => {
                Some((source, destination))
            }
            _ => None,
        };
        let (mut source, mut destination) = (ip.source, ip.destination);
        let (mut source_port, mut destination_port) = ports.unwrap_or_default();
        if self.symmetric {
            (source, destination) = (source.min(destination), source.max(destination));
            (source_port, destination_port) = (source_port.min(destination_port), source_port.max(destination_port));
        }
        let mut input = Vec::new();
        for (bit, address) in [(SOURCE_ADDRESS, source), (DESTINATION_ADDRESS, destination)] {
            if selected & bit != 0 {
                input.extend(octets(ip.version, address));
            }
        }
        for (bit, port) in [(SOURCE_PORT, source_port), (DESTINATION_PORT, destination_port)] {
            if selected & bit != 0 && ports.is_some() {
                input.extend(port.to_be_bytes());
            }
        }
        (!input.is_empty()).then(|| match &self.function {
            HashFunction::InvertedXor8 => u32::from(!input.iter().fold(0, |all, byte| all ^ byte)),
            HashFunction::Toeplitz(key) => toeplitz(key, &input),
        })
    }
}

fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let bit = |number: usize| u32::from(key.get(number / 8).copied().unwrap_or_default() >> (7 - number % 8) & 1);
    let mut window = (0..32).fold(0, |window, number| window << 1 | bit(number));
    let mut hash = 0;
    for number in 0..input.len() * 8 {
        if input[number / 8] >> (7 - number % 8) & 1 == 1 {
            hash ^= window;
        }
        window = window << 1 | bit(number + 32);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and sums of Microsoft's "Verifying the RSS Hash Calculation".
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
        0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
        0x01, 0xfa,
    ];

    #[test]
    fn the_hash_is_that_of_the_published_examples() {
        let input = [66, 9, 149, 187, 161, 142, 100, 80];
        assert_eq!(toeplitz(&KEY, &input), 0x323e_8fc2);
        let ports: Vec<u8> = [&input[..], &2794_u16.to_be_bytes(), &1766_u16.to_be_bytes()].concat();
        assert_eq!(toeplitz(&KEY, &ports), 0x51cc_c178);
    }
}
