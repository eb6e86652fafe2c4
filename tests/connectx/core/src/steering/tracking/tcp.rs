//! The rules by which a connection is tracked.
//!
//! What firmware does is not public. The object's fields are those of Linux' connection tracking, and so are the rules here: the
//! windows of G. van Rooij's "Real Stateful TCP Packet Filtering in IP Filter" as `tcp_in_window` reckons them, and the states of
//! `nf_conntrack_proto_tcp.c`, of which an object knows those from the answered SYN on. DPDK's guide says of the device that closing
//! is not tracked by direction, which is so there, too.
//!
//! These readings are ours:
//! - There is no state for a connection that was reset: it is as if both ends had closed it (time wait).
//! - A new SYN after that is invalid: an object holds one connection, which software has to write anew.
//! - An acknowledgement may be older than the newest data by `max_win` << `max_ack_window`; Linux has 66,000 bytes at least.
//! - A challenge ACK (RFC 5961) has passed when an end answers with an ACK what went before it: a SYN within the connection, or an RST
//!   that is not exactly where the next byte should be.
//! - Retransmissions are counted as in Linux, without consequence: DPDK's guide says of the device that the limit does not work.

use super::connection::{Connection, Kind, Last, State};
use super::outcome::{Direction, Outcome};
use super::segment::{Segment, is_after};

/// What becomes of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    To(State),
    /// The segment passes and may say something of another connection between the same ends: nothing follows from it.
    Ignored,
    Invalid,
}

impl Connection {
    /// Has a segment pass in a direction.
    pub(super) fn track(&mut self, direction: Direction, segment: &Segment) -> Outcome {
        let mut next = match next(self.state, direction, segment.kind) {
            Move::To(state) => state,
            Move::Ignored => {
                self.remember(direction, segment);
                return Outcome::Valid { changed: false };
            }
            Move::Invalid => return Outcome::Invalid,
        };
        if segment.kind == Kind::Rst {
            match self.reset(direction, segment) {
                Some(true) => {}
                Some(false) => next = self.state,
                None => return Outcome::Invalid,
            }
        }
        if self.is_in_window(direction, segment) {
            self.update(direction, segment);
        } else if !self.ends(direction).0.liberal {
            return Outcome::Invalid;
        }
        if segment.kind == Kind::Ack {
            let answers = self.last.direction != direction && matches!(self.last.kind, Kind::Syn | Kind::Rst);
            self.challenge_acked |= answers;
            self.assured |= next == State::Established;
        }
        if segment.kind == Kind::Fin {
            self.ends(direction).0.close_initiated = true;
        }
        self.remember(direction, segment);
        let changed = self.state != next;
        self.state = next;
        Outcome::Valid { changed }
    }

    /// Whether an RST ends the connection; if not, it may be answered by a challenge ACK. None if it is older than what the other end
    /// has acknowledged.
    fn reset(&mut self, direction: Direction, segment: &Segment) -> Option<bool> {
        let (last, established) = (self.last, self.state == State::Established && self.assured);
        let (_, receiver) = self.ends(direction);
        if !receiver.max_ack_seen {
            return Some(true);
        }
        if is_after(receiver.max_ack, segment.sequence) {
            return None;
        }
        // Right behind data of the same end that may not be acknowledged yet.
        let follows = last.kind == Kind::Ack && last.direction == direction && segment.sequence == last.end;
        Some(!established || segment.sequence == receiver.max_ack || follows)
    }

    /// The four bounds: sequence numbers that the other end has room for and has not long acknowledged, acknowledgements of what was
    /// sent and not too long ago.
    fn is_in_window(&mut self, direction: Direction, segment: &Segment) -> bool {
        let max_ack_window = self.max_ack_window;
        let (_, acknowledged) = self.acknowledged(direction, segment);
        let (sender, receiver) = self.ends(direction);
        let oldest_ack = sender.max_win.checked_shl(max_ack_window).unwrap_or(u32::MAX).min(MAX_WINDOW);
        let oldest = sender.sent_end.wrapping_sub(receiver.max_win).wrapping_sub(1);
        !is_after(segment.sequence, sender.reply_end)
            && (receiver.max_win == 0 || is_after(segment.end, oldest))
            && !is_after(acknowledged, receiver.sent_end)
            && is_after(acknowledged, receiver.sent_end.wrapping_sub(oldest_ack).wrapping_sub(1))
    }

    fn update(&mut self, direction: Direction, segment: &Segment) {
        let (acknowledgement, acknowledged) = self.acknowledged(direction, segment);
        let (sender, receiver) = self.ends(direction);
        let window = if segment.synchronizes { segment.window.into() } else { sender.scaled(segment.window) };
        let reaches = window.wrapping_add(acknowledged.wrapping_sub(acknowledgement));
        sender.max_win = sender.max_win.max(reaches);
        if is_after(segment.end, sender.sent_end) {
            sender.sent_end = segment.end;
            sender.data_unacked = true;
        }
        if segment.acknowledges && (!sender.max_ack_seen || is_after(acknowledgement, sender.max_ack)) {
            sender.max_ack = acknowledgement;
            sender.max_ack_seen = true;
        }
        // More than the other end had room for: it must have had it.
        if receiver.max_win != 0 && is_after(segment.end, sender.reply_end) {
            receiver.max_win = receiver.max_win.wrapping_add(segment.end.wrapping_sub(sender.reply_end));
        }
        let room = acknowledged.wrapping_add(window.max(1));
        if is_after(room, receiver.reply_end) {
            receiver.reply_end = room;
        }
        if acknowledgement == receiver.sent_end {
            receiver.data_unacked = false;
        }
        let again = self.last == Last::of(direction, segment);
        if segment.kind == Kind::Ack && again {
            const MOST: u32 = 7;
            self.retransmissions = (self.retransmissions + 1).min(MOST);
            self.retransmission_limit_exceeded |= self.retransmissions > self.retransmission_limit;
        } else {
            self.retransmissions = 0;
        }
    }

    /// What a segment acknowledges, in a row and at all. One that acknowledges nothing counts as if it acknowledged all, and so does an
    /// RST of stacks that say nothing there.
    fn acknowledged(&mut self, direction: Direction, segment: &Segment) -> (u32, u32) {
        let selective = segment.selective.filter(|_| self.sack_permitted);
        let (_, receiver) = self.ends(direction);
        if !segment.acknowledges || segment.kind == Kind::Rst && segment.acknowledgement == 0 {
            return (receiver.sent_end, receiver.sent_end);
        }
        (segment.acknowledgement, selective.unwrap_or(segment.acknowledgement))
    }

    fn remember(&mut self, direction: Direction, segment: &Segment) {
        self.last = Last::of(direction, segment);
    }
}

/// The largest window that RFC 7323 allows.
const MAX_WINDOW: u32 = 0xffff << 14;

impl Last {
    fn of(direction: Direction, segment: &Segment) -> Self {
        Self {
            end: segment.end,
            ack: segment.acknowledgement,
            seq: segment.sequence,
            win: segment.window,
            direction,
            kind: segment.kind,
        }
    }
}

/// What a segment makes of a state, if it lies in the window.
fn next(state: State, direction: Direction, kind: Kind) -> Move {
    use Direction::{Initiator, Responder};
    match (kind, direction, state) {
        (Kind::Syn, Initiator, State::SynReceived) => Move::To(State::SynReceived),
        // Not of this connection, but the one that answers may know nothing of it.
        (Kind::Syn, Initiator, State::Established | State::FinWait | State::CloseWait | State::LastAck) => {
            Move::Ignored
        }
        (Kind::Syn, _, _) => Move::Invalid,
        // Both ends may open a connection at the same time.
        (Kind::SynAck, Initiator, State::SynReceived) => Move::To(State::SynReceived),
        (Kind::SynAck, Initiator, _) => Move::Invalid,
        (Kind::SynAck, Responder, _) => Move::Ignored,
        (Kind::Fin, _, State::SynReceived | State::Established) => Move::To(State::FinWait),
        // Or the first one again: who sent it is not looked at.
        (Kind::Fin, _, State::FinWait | State::CloseWait | State::LastAck) => Move::To(State::LastAck),
        (Kind::Ack, Responder, State::SynReceived) => Move::To(State::SynReceived),
        (Kind::Ack, _, State::SynReceived | State::Established) => Move::To(State::Established),
        (Kind::Ack, _, State::FinWait | State::CloseWait) => Move::To(State::CloseWait),
        (Kind::Ack, _, State::LastAck) => Move::To(State::TimeWait),
        (Kind::Fin | Kind::Ack, _, State::TimeWait) | (Kind::Rst, ..) => Move::To(State::TimeWait),
        (Kind::None, ..) => Move::Invalid,
    }
}
