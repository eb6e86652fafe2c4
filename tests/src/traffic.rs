//! Rules spread evenly over masks, and packets that match them: the same for the software NIC, OVS's classifier and OVS's
//! datapath.

use std::sync::Arc;

use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Field, Flow, Key, MaskedKey, Match, Priority, text};

/// The port that packets come in at.
pub const IN_PORT: u32 = 1;
/// The port that rules send them to.
pub const OUT_PORT: u32 = 2;
/// An odd number, so that its multiples go through all residues of a power of two in an order of no use to a cache.
const STRIDE: usize = 0x9e37_79b1;

/// TCP over IPv4. Rules do not overlap: the destination port, exact under every mask, says which mask a packet is for, and
/// the highest 20 bits of the source address say which rule.
#[derive(Clone, Copy)]
pub struct Traffic {
    /// Rules.
    pub rules: usize,
    /// Masks among which they are spread; at most 1,000.
    pub masks: usize,
}

/// What differs between packets.
#[derive(Clone, Copy)]
pub struct Variable {
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
}

impl Traffic {
    /// The match of a rule.
    pub fn matching(self, rule: usize) -> Match {
        let kind = rule % self.masks;
        let Variable { source, destination, source_port, destination_port } = self.example(rule);
        let mut matching = Match::default();
        matching.set_exact(Field::RecircId, 0);
        matching.set_exact(Field::InPort, IN_PORT.into());
        matching.set_exact(Field::EthType, 0x0800);
        matching.set_exact(Field::Ipv4Proto, 6);
        matching.set_exact(Field::Ipv4Frag, 0);
        let prefix = |width: usize, length: usize| ((1u128 << length) - 1) << (width - length);
        // With one mask all of the 5-tuple counts; each further one leaves another number of bits out.
        matching.set(Field::Ipv4Src, source.into(), prefix(32, 32 - kind % 13));
        matching.set(Field::Ipv4Dst, destination.into(), prefix(32, 32 - kind / 13 % 33));
        matching.set(Field::TcpSrc, source_port.into(), prefix(16, 16 - kind / 429 % 17));
        matching.set_exact(Field::TcpDst, destination_port.into());
        matching
    }

    /// The rule as a flow that sends to [`OUT_PORT`].
    pub fn flows(self) -> impl Iterator<Item = Flow> {
        let actions = text::parse_actions(&OUT_PORT.to_string(), &()).expect("actions");
        (0..self.rules).map(move |rule| {
            let matching = MaskedKey::new(&self.matching(rule));
            let seed = Seed([0; 16]);
            Flow::new(None, matching, Arc::clone(&actions), Priority::default(), Expiry::default(), &seed)
        })
    }

    /// A packet for each of so many rules, in an order that jumps about.
    pub fn packets(self, count: usize) -> Vec<Variable> {
        (0..count).map(|packet| self.example(packet.wrapping_mul(STRIDE) % self.rules)).collect()
    }

    fn example(self, rule: usize) -> Variable {
        let kind = rule % self.masks;
        Variable {
            source: u32::try_from(rule / self.masks).expect("few rules") << 12,
            destination: 0x0a00_0001,
            source_port: 40_000,
            destination_port: u16::try_from(kind).expect("few masks"),
        }
    }
}

/// A TCP segment without data in a frame of 64 bytes, of which 60 are here: the FCS is not.
pub const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let start = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6];
    let mut at = 0;
    while at < start.len() {
        frame[at] = start[at];
        at += 1;
    }
    // Data offset, and an acknowledgement.
    frame[46] = 0x50;
    frame[47] = 0x10;
    frame
};

impl Variable {
    /// Writes it into a copy of [`FRAME`].
    pub fn write(self, frame: &mut [u8; 60]) {
        frame[26..30].copy_from_slice(&self.source.to_be_bytes());
        frame[30..34].copy_from_slice(&self.destination.to_be_bytes());
        frame[34..36].copy_from_slice(&self.source_port.to_be_bytes());
        frame[36..38].copy_from_slice(&self.destination_port.to_be_bytes());
    }
    /// Writes it into the key of [`FRAME`].
    pub fn write_key(self, key: &mut Key) {
        key.set(Field::Ipv4Src, self.source.into());
        key.set(Field::Ipv4Dst, self.destination.into());
        key.set(Field::TcpSrc, self.source_port.into());
        key.set(Field::TcpDst, self.destination_port.into());
    }
}
