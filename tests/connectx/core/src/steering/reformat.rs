//! Packet reformat contexts: headers put in front of a packet, or taken away.

use crate::packet::{Headers, Payload, TunnelPorts, edit};

#[derive(Debug)]
pub(super) struct Reformat {
    pub(super) kind: ReformatKind,
    pub(super) data: Vec<u8>,
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
