//! Packet reformat contexts: headers put in front of a packet, or taken away.

use super::failure::Refusal;
use super::layout::{self, bytes};
use super::{Steering, answer, answer_with_id, needs};
use crate::packet::{Headers, Payload, TunnelPorts, edit};

#[derive(Debug)]
pub(super) struct Reformat {
    pub(super) kind: ReformatKind,
    data: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReformatKind {
    /// Headers go in front of the frame.
    L2ToTunnel,
    /// Headers go in front of the IP packet, in place of Ethernet.
    L2ToL3Tunnel,
    /// All headers up to the inner IP packet give way to an Ethernet header.
    L3TunnelToL2,
    InsertHeader {
        anchor: Anchor,
        offset: u8,
    },
    RemoveHeader {
        anchor: Anchor,
        offset: u8,
        size: usize,
    },
}

/// Where an offset counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Mac,
    Ip,
    Transport,
}

/// Values of reformat_type.
mod kind {
    pub(super) const L2_TO_VXLAN: u8 = 0x0;
    pub(super) const L2_TO_NVGRE: u8 = 0x1;
    pub(super) const L2_TO_L2_TUNNEL: u8 = 0x2;
    pub(super) const L3_TUNNEL_TO_L2: u8 = 0x3;
    pub(super) const L2_TO_L3_TUNNEL: u8 = 0x4;
    pub(super) const INSERT_HEADER: u8 = 0xf;
    pub(super) const REMOVE_HEADER: u8 = 0x10;
}

impl Steering {
    pub(super) fn alloc_packet_reformat_context(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::REFORMAT_DATA)?;
        let size = usize::from(layout::REFORMAT_SIZE.u16(input));
        let offset = layout::REFORMAT_OFFSET.u8(input);
        let number = layout::REFORMAT_TYPE.u8(input);
        let takes_data = number != kind::REMOVE_HEADER;
        if takes_data && size == 0 {
            return Err(Refusal::Value { what: "reformat_data_size", value: 0, problem: "leaves nothing to put in" });
        }
        let max = self.profile.max_encap_header_size;
        if size > max {
            return Err(Refusal::Limit { what: "reformat_data_size", value: size, limit: max });
        }
        let kind = match number {
            kind::L2_TO_VXLAN | kind::L2_TO_NVGRE | kind::L2_TO_L2_TUNNEL => ReformatKind::L2ToTunnel,
            kind::L3_TUNNEL_TO_L2 => ReformatKind::L3TunnelToL2,
            kind::L2_TO_L3_TUNNEL => ReformatKind::L2ToL3Tunnel,
            kind::INSERT_HEADER => ReformatKind::InsertHeader { anchor: anchor(input)?, offset },
            kind::REMOVE_HEADER => ReformatKind::RemoveHeader { anchor: anchor(input)?, offset, size },
            value => return Err(Refusal::NotModelled { what: "reformat_type", value: value.into() }),
        };
        let data = if takes_data {
            needs(input, bytes::REFORMAT_DATA + size)?;
            input[bytes::REFORMAT_DATA..bytes::REFORMAT_DATA + size].to_vec()
        } else {
            Vec::new()
        };
        Ok(answer_with_id(self.reformats.add(uid, Reformat { kind, data })?))
    }

    pub(super) fn dealloc_packet_reformat_context(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.reformats.remove(uid, layout::IN_ID.u32(input))?;
        Ok(answer(layout::SHORT_OUTPUT))
    }
}

impl Reformat {
    /// What it puts in.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Whether it comes before all other changes of an entry; what puts headers in front comes last.
    pub(super) fn comes_first(&self) -> bool {
        matches!(self.kind, ReformatKind::L3TunnelToL2 | ReformatKind::RemoveHeader { .. })
    }

    /// Changes the frame, or says why it cannot.
    pub(super) fn apply(
        &self,
        frame: &mut Vec<u8>,
        headers: &Headers,
        ports: &TunnelPorts,
    ) -> Result<(), &'static str> {
        let place = |anchor: Anchor, offset: u8| {
            anchor.find(headers).map(|at| at + usize::from(offset)).ok_or("the packet has no such header")
        };
        match self.kind {
            ReformatKind::L2ToTunnel => edit::encapsulate(frame, &self.data, 0, ports),
            ReformatKind::L2ToL3Tunnel => {
                let ip = headers.outer.ip.as_ref().ok_or("there is no IP packet to carry")?;
                edit::encapsulate(frame, &self.data, ip.at, ports)
            }
            ReformatKind::L3TunnelToL2 => match headers.tunnel.as_ref().and_then(|tunnel| tunnel.payload) {
                Some((Payload::Ip, at)) => edit::remove(frame, 0..at) && edit::insert(frame, 0, &self.data),
                _ => return Err("there is no tunnel that carries IP"),
            },
            ReformatKind::InsertHeader { anchor, offset } => edit::insert(frame, place(anchor, offset)?, &self.data),
            ReformatKind::RemoveHeader { anchor, offset, size } => {
                let at = place(anchor, offset)?;
                edit::remove(frame, at..at + size)
            }
        }
        .then_some(())
        .ok_or("the frame ends before")
    }
}

impl Anchor {
    fn find(self, headers: &Headers) -> Option<usize> {
        match self {
            Self::Mac => headers.outer.ethernet.map(|ethernet| ethernet.at),
            Self::Ip => headers.outer.ip.map(|ip| ip.at),
            Self::Transport => headers.outer.transport.map(|transport| transport.at()),
        }
    }
}

fn anchor(input: &[u8]) -> Result<Anchor, Refusal> {
    match layout::REFORMAT_ANCHOR.u8(input) {
        0x1 => Ok(Anchor::Mac),
        0x7 => Ok(Anchor::Ip),
        0x9 => Ok(Anchor::Transport),
        value => Err(Refusal::NotModelled { what: "reformat anchor", value: value.into() }),
    }
}
