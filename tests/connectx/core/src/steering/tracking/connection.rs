//! What an ASO object of connection tracking holds (PRM `conn_track_aso`): a TCP connection between an initiator and a responder.
//!
//! What each field means is as DPDK's `rte_flow_tcp_dir_param` and `rte_flow_action_conntrack` say it, which its driver writes here
//! one by one. The fields are those of Linux' `struct ip_ct_tcp`, under other names.

use super::outcome::Direction;
use crate::steering::bits::Bits;
use crate::steering::failure::Refusal;

/// Bytes of an object.
pub(crate) const OBJECT: usize = 64;

mod field {
    use super::Bits;
    pub(super) const LAST_END: Bits = Bits::new(0x100, 32);
    pub(super) const LAST_ACK: Bits = Bits::new(0x120, 32);
    pub(super) const LAST_SEQ: Bits = Bits::new(0x140, 32);
    pub(super) const LAST_WIN: Bits = Bits::new(0x160, 16);
    pub(super) const LAST_DIR: Bits = Bits::new(0x17a, 1);
    pub(super) const LAST_INDEX: Bits = Bits::new(0x17b, 5);
    pub(super) const VALID: Bits = Bits::new(0x1e0, 1);
    pub(super) const STATE: Bits = Bits::new(0x1e1, 3);
    pub(super) const FREEZE_TRACK: Bits = Bits::new(0x1e4, 1);
    pub(super) const CONNECTION_ASSURED: Bits = Bits::new(0x1f1, 1);
    pub(super) const SACK_PERMITTED: Bits = Bits::new(0x1f2, 1);
    pub(super) const CHALLENGED_ACKED: Bits = Bits::new(0x1f3, 1);
    pub(super) const MAX_ACK_WINDOW: Bits = Bits::new(0x1f5, 3);
    pub(super) const RETRANSMISSION_COUNTER: Bits = Bits::new(0x1f9, 3);
    pub(super) const RETRANSMISSION_LIMIT_EXCEEDED: Bits = Bits::new(0x1fc, 1);
    pub(super) const RETRANSMISSION_LIMIT: Bits = Bits::new(0x1fd, 3);

    // Of one direction, from the beginning of its tcp_window_params.
    pub(super) const MAX_ACK: Bits = Bits::new(0x00, 32);
    pub(super) const MAX_WIN: Bits = Bits::new(0x20, 32);
    pub(super) const REPLY_END: Bits = Bits::new(0x40, 32);
    pub(super) const SENT_END: Bits = Bits::new(0x60, 32);

    // The same, from the beginning of its flags.
    pub(super) const SCALE: Bits = Bits::new(0x0, 4);
    pub(super) const CLOSE_INITIATED: Bits = Bits::new(0x4, 1);
    pub(super) const LIBERAL_ENABLED: Bits = Bits::new(0x5, 1);
    pub(super) const DATA_UNACKED: Bits = Bits::new(0x6, 1);
    pub(super) const MAX_ACK_SEEN: Bits = Bits::new(0x7, 1);

    /// Bits that are none of the above and not the heartbeat.
    pub(super) const RESERVED: [Bits; 7] = [
        Bits::new(0x170, 10),
        Bits::new(0x180, 64),
        Bits::new(0x1c8, 8),
        Bits::new(0x1d8, 8),
        Bits::new(0x1e5, 11),
        Bits::new(0x1f0, 1),
        Bits::new(0x1f8, 1),
    ];
}

/// Where the windows and the flags of a direction are.
fn places(direction: Direction) -> (usize, usize) {
    match direction {
        Direction::Responder => (0x00, 0x38),
        Direction::Initiator => (0x10, 0x3a),
    }
}

/// As the objects number them (`rte_flow_conntrack_state`): that a SYN was answered is the first that they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    SynReceived,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
}

impl State {
    const ALL: [Self; 6] =
        [Self::SynReceived, Self::Established, Self::FinWait, Self::CloseWait, Self::LastAck, Self::TimeWait];

    fn decode(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u32 == number)
    }
}

/// What a segment does, as the objects name the last one (`rte_flow_conntrack_tcp_last_index`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    None = 0,
    Syn = 1,
    SynAck = 2,
    Fin = 4,
    Ack = 8,
    Rst = 16,
}

impl Kind {
    const ALL: [Self; 6] = [Self::None, Self::Syn, Self::SynAck, Self::Fin, Self::Ack, Self::Rst];

    fn decode(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// What was seen of one direction: of the segments that its end sent, if nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Half {
    /// The highest acknowledgement.
    pub(super) max_ack: u32,
    /// The largest window, scaled.
    pub(super) max_win: u32,
    /// How far it may send: the highest acknowledgement and window of the other end.
    pub(super) reply_end: u32,
    /// The end of what it sent.
    pub(super) sent_end: u32,
    /// Of its windows; 15 is none.
    pub(super) scale: u8,
    pub(super) close_initiated: bool,
    pub(super) liberal: bool,
    pub(super) data_unacked: bool,
    /// Whether the highest acknowledgement has been seen at all.
    pub(super) max_ack_seen: bool,
}

/// The last segment that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) end: u32,
    pub(super) ack: u32,
    pub(super) seq: u32,
    pub(super) win: u16,
    pub(super) direction: Direction,
    pub(super) kind: Kind,
}

/// A connection that is tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) initiator: Half,
    pub(super) responder: Half,
    pub(super) last: Last,
    pub(super) state: State,
    /// It is left as it is, whatever comes.
    pub(super) frozen: bool,
    pub(super) assured: bool,
    pub(super) sack_permitted: bool,
    pub(super) challenge_acked: bool,
    /// How much older than the largest window an acknowledgement may be, as a power of two.
    pub(super) max_ack_window: u32,
    pub(super) retransmissions: u32,
    pub(super) retransmission_limit_exceeded: bool,
    pub(super) retransmission_limit: u32,
}

impl Connection {
    /// None if the object says that it is not valid.
    pub(super) fn decode(bytes: &[u8; OBJECT]) -> Result<Option<Self>, Refusal> {
        for reserved in field::RESERVED {
            if reserved.is_set(bytes) {
                return Err(Refusal::NotModelled {
                    what: "a reserved bit of conn_track_aso at",
                    value: u32::try_from(reserved.at).unwrap_or(u32::MAX),
                });
            }
        }
        if !field::VALID.is_set(bytes) {
            return Ok(None);
        }
        let (state, index) = (field::STATE.u32(bytes), field::LAST_INDEX.u32(bytes));
        let unknown = |what, value| Refusal::NotModelled { what, value };
        Ok(Some(Self {
            initiator: Half::decode(bytes, Direction::Initiator),
            responder: Half::decode(bytes, Direction::Responder),
            last: Last {
                end: field::LAST_END.u32(bytes),
                ack: field::LAST_ACK.u32(bytes),
                seq: field::LAST_SEQ.u32(bytes),
                win: field::LAST_WIN.u16(bytes),
                // 1 is the original direction (`last_direction`), and so not as in entries.
                direction: if field::LAST_DIR.is_set(bytes) { Direction::Initiator } else { Direction::Responder },
                kind: Kind::decode(index).ok_or(unknown("last_index", index))?,
            },
            state: State::decode(state).ok_or(unknown("state of a connection", state))?,
            frozen: field::FREEZE_TRACK.is_set(bytes),
            assured: field::CONNECTION_ASSURED.is_set(bytes),
            sack_permitted: field::SACK_PERMITTED.is_set(bytes),
            challenge_acked: field::CHALLENGED_ACKED.is_set(bytes),
            max_ack_window: field::MAX_ACK_WINDOW.u32(bytes),
            retransmissions: field::RETRANSMISSION_COUNTER.u32(bytes),
            retransmission_limit_exceeded: field::RETRANSMISSION_LIMIT_EXCEEDED.is_set(bytes),
            retransmission_limit: field::RETRANSMISSION_LIMIT.u32(bytes),
        }))
    }

    /// Writes what packets change. The rest of an object, such as its heartbeat, stays as software wrote it.
    pub(super) fn encode(&self, bytes: &mut [u8; OBJECT]) {
        self.initiator.encode(bytes, Direction::Initiator);
        self.responder.encode(bytes, Direction::Responder);
        for (field, value) in [
            (field::LAST_END, self.last.end),
            (field::LAST_ACK, self.last.ack),
            (field::LAST_SEQ, self.last.seq),
            (field::LAST_WIN, self.last.win.into()),
            (field::LAST_DIR, (self.last.direction == Direction::Initiator).into()),
            (field::LAST_INDEX, self.last.kind as u32),
            (field::STATE, self.state as u32),
            (field::CONNECTION_ASSURED, self.assured.into()),
            (field::CHALLENGED_ACKED, self.challenge_acked.into()),
            (field::RETRANSMISSION_COUNTER, self.retransmissions),
            (field::RETRANSMISSION_LIMIT_EXCEEDED, self.retransmission_limit_exceeded.into()),
        ] {
            field.put(bytes, value);
        }
    }

    /// The end that sends in a direction, and the other one.
    pub(super) fn ends(&mut self, direction: Direction) -> (&mut Half, &mut Half) {
        match direction {
            Direction::Initiator => (&mut self.initiator, &mut self.responder),
            Direction::Responder => (&mut self.responder, &mut self.initiator),
        }
    }
}

impl Half {
    fn decode(bytes: &[u8; OBJECT], direction: Direction) -> Self {
        let (windows, flags) = places(direction);
        let (windows, flags) = (&bytes[windows..], &bytes[flags..]);
        Self {
            max_ack: field::MAX_ACK.u32(windows),
            max_win: field::MAX_WIN.u32(windows),
            reply_end: field::REPLY_END.u32(windows),
            sent_end: field::SENT_END.u32(windows),
            scale: field::SCALE.u8(flags),
            close_initiated: field::CLOSE_INITIATED.is_set(flags),
            liberal: field::LIBERAL_ENABLED.is_set(flags),
            data_unacked: field::DATA_UNACKED.is_set(flags),
            max_ack_seen: field::MAX_ACK_SEEN.is_set(flags),
        }
    }

    fn encode(&self, bytes: &mut [u8; OBJECT], direction: Direction) {
        let (windows, flags) = places(direction);
        for (at, field, value) in [
            (windows, field::MAX_ACK, self.max_ack),
            (windows, field::MAX_WIN, self.max_win),
            (windows, field::REPLY_END, self.reply_end),
            (windows, field::SENT_END, self.sent_end),
            (flags, field::CLOSE_INITIATED, self.close_initiated.into()),
            (flags, field::DATA_UNACKED, self.data_unacked.into()),
            (flags, field::MAX_ACK_SEEN, self.max_ack_seen.into()),
        ] {
            field.put(&mut bytes[at..], value);
        }
    }

    /// A window that it offers, in bytes.
    pub(super) fn scaled(&self, window: u16) -> u32 {
        const NO_SCALE: u8 = 15;
        u32::from(window) << if self.scale == NO_SCALE { 0 } else { self.scale }
    }
}
