//! DCCP (RFC 4340): the state of a connection in the eyes of somebody in the middle.
//!
//! The effect is that of `net/netfilter/nf_conntrack_proto_dccp.c` of Linux 6.1. Sections are those of the RFC.

use std::time::Duration;

use crate::packet::headers::Wire;

use super::timeouts::dccp as timeout;
use super::tracker::Verdict;
use super::tuple::Direction;

/// What a packet is for (5.1).
mod kind {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const RESPONSE: u8 = 1;
    pub(super) const DATA: u8 = 2;
    pub(super) const ACK: u8 = 3;
    pub(super) const DATA_ACK: u8 = 4;
    pub(super) const CLOSE_REQUEST: u8 = 5;
    pub(super) const CLOSE: u8 = 6;
    pub(super) const RESET: u8 = 7;
    pub(super) const SYNC: u8 = 8;
    pub(super) const SYNC_ACK: u8 = 9;
}

/// Bytes of the header up to the first number.
const HEADER: usize = 12;

/// A packet as connection tracking reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    kind: u8,
    sequence: u64,
    acknowledged: u64,
    /// Bytes that the checksum covers.
    pub(crate) covered: usize,
}

impl Packet {
    /// Reads a packet; `None` if it is malformed or of a reserved type. Its checksum is not looked at (`dccp_error`).
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        let length = usize::from(header[4]) * 4;
        let kind = header[8] >> 1 & 0xf;
        if !(HEADER..=bytes.len()).contains(&length) || kind > kind::SYNC_ACK {
            return None;
        }
        // Fours of bytes behind the header, plus one; all with zero (9.2).
        let covered = match usize::from(header[5] & 0xf) {
            0 => bytes.len(),
            coverage => (coverage - 1) * 4,
        };
        if covered > bytes.len() {
            return None;
        }
        // Numbers have 24 bits, or 48 with a longer header (5.1).
        let (numbers, sequence) = if header[8] & 1 == 1 {
            let low = bytes.get(HEADER..16).map(|low| u32::read(low, 0))?;
            (16, u64::from(u16::read(header, 10)) << 32 | u64::from(low))
        } else {
            (HEADER, u64::from(u32::read(header, 8) & 0x00ff_ffff))
        };
        let further = match kind {
            kind::DATA => 0,
            kind::REQUEST => 4,
            kind::RESPONSE | kind::RESET => 12,
            _ => 8,
        };
        let further = bytes.get(numbers..numbers + further)?;
        // Linux reads this so in a short header, too, though it has another form there (`dccp_ack_seq`).
        let acknowledged = match further.get(..8) {
            Some(further) => u64::from(u16::read(further, 2)) << 32 | u64::from(u32::read(further, 4)),
            None => 0,
        };
        Some(Self { kind, sequence, acknowledged, covered })
    }
}

/// The state of a connection (`enum ct_dccp_states`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    None,
    Request,
    Respond,
    PartOpen,
    Open,
    CloseRequest,
    Closing,
    TimeWait,
}

impl State {
    fn timeout(self) -> Duration {
        match self {
            Self::None | Self::Request => timeout::REQUEST,
            Self::Respond => timeout::RESPOND,
            Self::PartOpen => timeout::PART_OPEN,
            Self::Open => timeout::OPEN,
            Self::CloseRequest => timeout::CLOSE_REQUEST,
            Self::Closing => timeout::CLOSING,
            Self::TimeWait => timeout::TIME_WAIT,
        }
    }
}

/// What an end is to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Server,
}

/// What a packet does to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    To(State),
    /// It may be valid or not.
    Ignore,
    Invalid,
}

/// The rules of `dccp_state_table`.
fn transition(role: Role, packet: u8, state: State) -> Transition {
    use State::{CloseRequest, Closing, None, Open, PartOpen, Request, Respond, TimeWait};
    use Transition::{Ignore, Invalid, To};
    let is_client = role == Role::Client;
    match (packet, state) {
        (kind::REQUEST, None) if is_client => To(Request),
        (kind::REQUEST, Request | Respond) if is_client => To(state),
        (_, None) => Invalid,
        (kind::REQUEST, TimeWait) => To(Request),
        (kind::RESPONSE, Request | Respond) if !is_client => To(Respond),
        (kind::RESPONSE, TimeWait) => Invalid,
        (kind::REQUEST | kind::RESPONSE, _) => Ignore,
        (kind::SYNC | kind::SYNC_ACK, _) => Ignore,
        (kind::RESET, TimeWait) => {
            // In the row of the server, Linux has one column too many, so that a repeated reset counts.
            if is_client { Ignore } else { To(TimeWait) }
        }
        (kind::RESET, _) => To(TimeWait),
        (_, TimeWait | Request) => Invalid,
        (kind::ACK | kind::DATA_ACK, Respond | PartOpen) if is_client => To(PartOpen),
        (kind::ACK | kind::DATA | kind::DATA_ACK, Open | Closing) => To(state),
        (kind::ACK | kind::DATA | kind::DATA_ACK, CloseRequest) if is_client => To(CloseRequest),
        (kind::ACK | kind::DATA | kind::DATA_ACK, PartOpen) if !is_client => To(Open),
        (kind::CLOSE_REQUEST, PartOpen | Open | CloseRequest | Closing) if !is_client => To(CloseRequest),
        (kind::CLOSE, PartOpen | Open) => To(Closing),
        (kind::CLOSE, CloseRequest) if is_client => To(Closing),
        (kind::CLOSE, Closing) if !is_client => To(Closing),
        _ => Invalid,
    }
}

/// The tracker of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Dccp {
    state: State,
    /// By direction.
    roles: [Role; 2],
    last: (Direction, u8),
    handshake: u64,
}

impl Dccp {
    /// A tracker for a connection that begins with this packet; `None` if none can (`dccp_new`).
    pub(crate) fn new(packet: &Packet) -> Option<Self> {
        if transition(Role::Client, packet.kind, State::None) == Transition::Invalid {
            return None;
        }
        Some(Self {
            state: State::None,
            roles: [Role::Client, Role::Server],
            last: (Direction::Original, kind::REQUEST),
            handshake: 0,
        })
    }

    /// Follows a packet (`nf_conntrack_dccp_packet`).
    pub(crate) fn follow(&mut self, direction: Direction, packet: &Packet, seen_reply: bool) -> Verdict {
        // The only answer is a refusal.
        if packet.kind == kind::RESET && !seen_reply {
            return Verdict::End;
        }
        let role = self.roles[direction as usize];
        let old = self.state;
        let mut assures = false;
        let new = match transition(role, packet.kind, old) {
            Transition::Invalid => return Verdict::Invalid(None),
            Transition::Ignore => {
                // Both ends agree, only we did not.
                let answers = self.last == (direction.other(), kind::REQUEST) && packet.kind == kind::RESPONSE;
                if !answers {
                    self.last = (direction, packet.kind);
                    return Verdict::Accept;
                }
                self.set_client(direction.other());
                self.handshake = packet.sequence;
                State::Respond
            }
            Transition::To(State::Request) => {
                if old == State::TimeWait && role == Role::Server {
                    self.set_client(direction);
                }
                State::Request
            }
            Transition::To(State::Respond) => {
                if old == State::Request {
                    self.handshake = packet.sequence;
                }
                State::Respond
            }
            Transition::To(State::PartOpen) => {
                let is_ack = packet.kind == kind::ACK && packet.acknowledged == self.handshake;
                assures = old == State::Respond && is_ack;
                State::PartOpen
            }
            Transition::To(state) => state,
        };
        self.last = (direction, packet.kind);
        self.state = new;
        Verdict::Refresh { timeout: new.timeout(), assures }
    }

    fn set_client(&mut self, direction: Direction) {
        self.roles[direction as usize] = Role::Client;
        self.roles[direction.other() as usize] = Role::Server;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Original, Reply};

    /// A packet with long numbers.
    fn packet(kind: u8, sequence: u32, acknowledged: u32) -> Packet {
        let mut bytes = vec![0; 28];
        (bytes[4], bytes[8]) = (7, kind << 1 | 1);
        bytes[12..16].copy_from_slice(&sequence.to_be_bytes());
        bytes[20..24].copy_from_slice(&acknowledged.to_be_bytes());
        Packet::read(&bytes).unwrap()
    }

    #[test]
    fn every_packet_does_in_every_state_what_it_does_in_linux() {
        use State::{CloseRequest, Closing, None, Open, PartOpen, Request, Respond, TimeWait};
        const STATES: [State; 8] = [None, Request, Respond, PartOpen, Open, CloseRequest, Closing, TimeWait];
        // The number of the state that a packet leads to from each, `i` to ignore, `x` for invalid.
        let row = |role, kind| {
            STATES
                .map(|state| match transition(role, kind, state) {
                    Transition::To(new) => STATES.iter().position(|state| *state == new).unwrap().to_string(),
                    Transition::Ignore => "i".into(),
                    Transition::Invalid => "x".into(),
                })
                .concat()
        };
        for (kind, client, server) in [
            (kind::REQUEST, "112iiii1", "xiiiiii1"),
            (kind::RESPONSE, "xiiiiiix", "x22iiiix"),
            (kind::ACK, "xx33456x", "xxx44x6x"),
            (kind::DATA, "xxxx456x", "xxx44x6x"),
            (kind::DATA_ACK, "xx33456x", "xxx44x6x"),
            (kind::CLOSE_REQUEST, "xxxxxxxx", "xxx5555x"),
            (kind::CLOSE, "xxx666xx", "xxx66x6x"),
            (kind::RESET, "x777777i", "x7777777"),
            (kind::SYNC, "xiiiiiii", "xiiiiiii"),
            (kind::SYNC_ACK, "xiiiiiii", "xiiiiiii"),
        ] {
            assert_eq!(row(Role::Client, kind), client, "type {kind}");
            assert_eq!(row(Role::Server, kind), server, "type {kind}");
        }
    }

    #[test]
    fn a_handshake_makes_a_connection_that_lives_for_hours() {
        let request = packet(kind::REQUEST, 100, 0);
        let mut connection = Dccp::new(&request).unwrap();
        let lives = |timeout, assures| Verdict::Refresh { timeout, assures };
        assert_eq!(connection.follow(Original, &request, false), lives(timeout::REQUEST, false));
        let verdict = connection.follow(Reply, &packet(kind::RESPONSE, 500, 100), true);
        assert_eq!(verdict, lives(timeout::RESPOND, false));
        let verdict = connection.follow(Original, &packet(kind::ACK, 101, 500), true);
        assert_eq!(verdict, lives(timeout::PART_OPEN, true));
        let verdict = connection.follow(Reply, &packet(kind::DATA, 501, 0), true);
        assert_eq!(verdict, lives(timeout::OPEN, false));
        assert_eq!(connection.follow(Original, &packet(kind::SYNC, 102, 501), true), Verdict::Accept);
        let verdict = connection.follow(Original, &packet(kind::CLOSE, 103, 501), true);
        assert_eq!(verdict, lives(timeout::CLOSING, false));
        let verdict = connection.follow(Reply, &packet(kind::RESET, 502, 103), true);
        assert_eq!(verdict, lives(timeout::TIME_WAIT, false));
        let verdict = connection.follow(Reply, &packet(kind::REQUEST, 900, 0), true);
        assert_eq!(verdict, lives(timeout::REQUEST, false));
        assert_eq!(connection.roles, [Role::Server, Role::Client], "it began anew, the other way round");
    }

    #[test]
    fn a_refusal_ends_it_at_once() {
        let request = packet(kind::REQUEST, 100, 0);
        let mut connection = Dccp::new(&request).unwrap();
        connection.follow(Original, &request, false);
        assert_eq!(connection.follow(Reply, &packet(kind::RESET, 0, 100), false), Verdict::End);
    }

    #[test]
    fn only_a_request_begins_a_connection() {
        for kind in 1..=9 {
            assert!(Dccp::new(&packet(kind, 1, 1)).is_none(), "type {kind}");
        }
    }

    #[test]
    fn malformed_packets_are_told() {
        let mut good = vec![0; 16];
        good[4] = 4;
        assert_eq!(Packet::read(&good).unwrap().covered, 16);
        for (at, byte) in [(4, 2), (4, 5), (5, 6), (8, 10 << 1), (8, kind::ACK << 1), (8, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Packet::read(&bad).is_none(), "byte {at}");
        }
        assert!(Packet::read(&good[..11]).is_none());
    }
}
