//! TCP: the state of a connection in the eyes of somebody in the middle, and whether a segment fits its windows.
//!
//! The effect is that of `net/netfilter/nf_conntrack_proto_tcp.c` with its default settings (`tcp_loose` and no
//! `tcp_be_liberal`), after the boundaries of Guido van Rooij, "Real Stateful TCP Packet Filtering in IP Filter".

use std::time::Duration;

use sluice_flow::connection::{self, TcpState};

use super::tcp_segment::{Kind, Segment};
use super::tcp_state::{State, Transition, transition};
use super::timeouts;
use super::tracker::Verdict;
use super::tuple::Direction;

/// What is known of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    /// Behind the last byte that it sent.
    end: u32,
    /// Behind the last byte that it may send.
    max_end: u32,
    /// The largest window that it offered, scaled; 0 while nothing is known.
    max_window: u32,
    /// The highest byte that it acknowledged.
    max_ack: Option<u32>,
    scale: u8,
    scales: bool,
    sack: bool,
    /// Segments out of the window are taken, too.
    liberal: bool,
    /// It sent data that the other end did not acknowledge.
    unacknowledged: bool,
    /// It closed first.
    closed_first: bool,
}

impl Side {
    /// Takes over the options of a SYN, unless there is none (`tcp_options`).
    fn take_options(&mut self, segment: &Segment<'_>) {
        if segment.options.is_empty() {
            return;
        }
        let announced = segment.announced();
        *self = Self {
            end: self.end,
            max_end: self.max_end,
            max_window: self.max_window,
            liberal: self.liberal,
            scale: announced.scale.unwrap_or(0),
            scales: announced.scale.is_some(),
            sack: announced.sack,
            ..Self::default()
        };
    }

    /// The distance below which an acknowledgement is too old (`MAXACKWINDOW`).
    fn ack_reach(&self) -> u32 {
        self.max_window.max(66_000)
    }
}

/// The segment that was seen last, as far as a later one is judged by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    kind: Kind,
    direction: Direction,
    seq: u32,
    ack: u32,
    end: u32,
    window: u16,
    /// What an ignored SYN announced.
    scale: Option<u8>,
    sack: bool,
    /// The answer to an ignored SYN may be a challenge (RFC 5961).
    expects_challenge: bool,
    simultaneous_open: bool,
}

/// The tracker of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    state: State,
    sides: [Side; 2],
    last: Last,
    retransmissions: u8,
}

/// What else is known of the connection that a segment belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances {
    pub(crate) seen_reply: bool,
    pub(crate) assured: bool,
    /// How long the connection would live without this segment.
    pub(crate) remaining: Duration,
    pub(crate) timeouts: timeouts::Tcp,
    /// By how much what it acknowledges was shifted on its way to it.
    pub(crate) shift: u32,
}

/// How a segment fits the windows.
enum Fit {
    Inside,
    Ignore,
    Outside,
}

/// What is to be thought of a RST.
enum Reset {
    /// It is not one of the connection's.
    Invalid,
    /// It need not fit the windows.
    Believed,
    /// It must fit the windows, and leads to this state.
    Checked(State),
}

impl Tcp {
    /// A tracker for a connection that begins with this segment, or is picked up with it; `None` if it cannot
    /// (`tcp_new`).
    pub(crate) fn new(segment: &Segment<'_>) -> Option<Self> {
        let Transition::To(state) = transition(Direction::Original, segment.kind(), State::None) else {
            return None;
        };
        let window = u32::from(segment.window).max(1);
        let mut original = Side { end: segment.end, max_end: segment.end, max_window: window, ..Side::default() };
        let mut reply = Side::default();
        if state == State::SynSent {
            original.take_options(segment);
        } else {
            // Its history is lost: window scaling is not known, nor whether there are selective acknowledgements.
            original.max_end = segment.end.wrapping_add(window);
            (original.sack, original.liberal) = (true, true);
            (reply.sack, reply.liberal) = (true, true);
        }
        let last = Last {
            kind: Kind::None,
            direction: Direction::Original,
            seq: 0,
            ack: 0,
            end: 0,
            window: 0,
            scale: None,
            sack: false,
            expects_challenge: false,
            simultaneous_open: false,
        };
        Some(Self { state: State::None, sides: [original, reply], last, retransmissions: 0 })
    }

    /// What operators see of it (`nl_ct_tcp_state_to_dpif` in OVS's lib/netlink-conntrack.c).
    pub(crate) fn shown(&self) -> connection::State {
        let flags = |side: &Side| {
            let known =
                [side.scales, side.sack, side.closed_first, side.liberal, side.unacknowledged, side.max_ack.is_some()];
            known.iter().zip(0..).fold(0, |flags, (is_set, place)| flags | u8::from(*is_set) << place)
        };
        let state = match self.state {
            State::None => TcpState::Closed,
            State::SynSent | State::SynSent2 => TcpState::SynSent,
            State::SynReceived => TcpState::SynRecv,
            State::Established => TcpState::Established,
            State::FinWait => TcpState::FinWait1,
            State::CloseWait => TcpState::CloseWait,
            State::LastAck => TcpState::LastAck,
            State::TimeWait => TcpState::TimeWait,
            State::Close => TcpState::Closing,
        };
        let [original, reply] = &self.sides;
        connection::State::Tcp { state, scales: [original.scale, reply.scale], flags: [flags(original), flags(reply)] }
    }

    /// Whether both ends have agreed that they are connected.
    pub(crate) fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Lets segments out of the window pass from now on (`nf_ct_set_tcp_be_liberal`).
    pub(crate) fn be_liberal(&mut self) {
        self.sides.iter_mut().for_each(|side| side.liberal = true);
    }

    /// Follows a segment (`nf_conntrack_tcp_packet`).
    pub(crate) fn follow(
        &mut self,
        direction: Direction,
        segment: &Segment<'_>,
        circumstances: Circumstances,
    ) -> Verdict {
        let kind = segment.kind();
        let mut old = self.state;
        let mut checks_window = true;
        let new = match transition(direction, kind, old) {
            Transition::Invalid => return Verdict::Invalid(None),
            Transition::To(State::SynSent) if matches!(old, State::TimeWait | State::Close) => {
                let was_closed = self.sides.iter().any(|side| side.closed_first);
                let was_reset = self.last.direction == direction && self.last.kind == Kind::Rst;
                if was_closed || was_reset {
                    return Verdict::Reopen;
                }
                if !self.gets_in_sync(direction, segment) {
                    return self.ignore(direction, segment, old);
                }
                old = State::SynSent;
                State::SynReceived
            }
            Transition::Ignore => {
                if !self.gets_in_sync(direction, segment) {
                    return self.ignore(direction, segment, old);
                }
                old = State::SynSent;
                State::SynReceived
            }
            Transition::To(State::TimeWait) if self.is_challenge(direction, kind, old) => {
                self.last.expects_challenge = false;
                return Verdict::Accept;
            }
            Transition::To(State::SynSent2) => {
                self.last.simultaneous_open = true;
                State::SynSent2
            }
            Transition::To(State::SynReceived)
                if direction == Direction::Reply && kind == Kind::Ack && self.last.simultaneous_open =>
            {
                State::Established
            }
            Transition::To(State::Close) if kind == Kind::Rst => {
                match self.judge_reset(direction, segment, old, circumstances) {
                    Reset::Invalid => return Verdict::Invalid(None),
                    Reset::Believed => {
                        checks_window = false;
                        State::Close
                    }
                    Reset::Checked(state) => state,
                }
            }
            Transition::To(state) => state,
        };
        if checks_window {
            match self.fit(direction, segment, circumstances.shift) {
                Fit::Inside => {}
                Fit::Ignore => return Verdict::Accept,
                Fit::Outside => return Verdict::Invalid(self.shortened(direction, kind, circumstances)),
            }
        }
        self.advance(direction, segment, [old, new], circumstances)
    }

    /// What a segment that fits does.
    fn advance(
        &mut self,
        direction: Direction,
        segment: &Segment<'_>,
        [old, new]: [State; 2],
        circumstances: Circumstances,
    ) -> Verdict {
        let kind = segment.kind();
        self.last.kind = kind;
        self.last.direction = direction;
        self.state = new;
        if old != new && new == State::FinWait {
            self.sides[direction as usize].closed_first = true;
        }
        let timeout = self.timeout(kind, new, &circumstances.timeouts);
        if !circumstances.seen_reply {
            // The only answer is a refusal, which is common: there is no connection.
            if segment.is_rst() {
                return Verdict::End;
            }
            // Otherwise who tries again and again would keep a translation alive for ever.
            if kind == Kind::Syn && old == State::SynSent {
                return Verdict::Accept;
            }
            let is_picked_up = new == State::Established;
            let timeout = if is_picked_up { timeout.min(circumstances.timeouts.unacknowledged) } else { timeout };
            return Verdict::Refresh { timeout, assures: false };
        }
        let assures = !circumstances.assured
            && matches!(old, State::SynReceived | State::Established)
            && new == State::Established;
        Verdict::Refresh { timeout, assures }
    }

    fn timeout(&self, kind: Kind, state: State, timeouts: &timeouts::Tcp) -> Duration {
        /// Retransmissions after which the other end seems to be gone (`tcp_max_retrans`).
        const MAX_RETRANSMISSIONS: u8 = 3;
        let timeout = state.timeout(timeouts);
        if self.retransmissions >= MAX_RETRANSMISSIONS && timeout > timeouts.retransmission {
            timeouts.retransmission
        } else if kind == Kind::Rst {
            timeouts.close
        } else if self.sides.iter().any(|side| side.unacknowledged) && timeout > timeouts.unacknowledged {
            timeouts.unacknowledged
        } else if self.last.window == 0 && timeout > timeouts.retransmission {
            timeouts.retransmission
        } else {
            timeout
        }
    }

    /// A SYN-ACK that answers a SYN that was ignored: both ends agree, only we did not. What the SYN said is taken over.
    fn gets_in_sync(&mut self, direction: Direction, segment: &Segment<'_>) -> bool {
        let last = self.last;
        let answers = segment.kind() == Kind::SynAck
            && last.kind == Kind::Syn
            && last.direction != direction
            && segment.ack == last.end;
        if !answers {
            return false;
        }
        self.last.expects_challenge = false;
        self.sides[last.direction as usize] = Side {
            end: last.end,
            max_end: last.end,
            max_window: u32::from(last.window).max(1),
            max_ack: None,
            scale: last.scale.unwrap_or(0),
            scales: last.scale.is_some(),
            sack: last.sack,
            ..Side::default()
        };
        let side = &mut self.sides[direction as usize];
        *side = Side { liberal: side.liberal, ..Side::default() };
        true
    }

    /// Notes a segment that may be valid or not, to judge the answer to it.
    fn ignore(&mut self, direction: Direction, segment: &Segment<'_>, old: State) -> Verdict {
        let kind = segment.kind();
        self.last = Last { kind, direction, seq: segment.seq, end: segment.end, window: segment.window, ..self.last };
        if kind == Kind::Syn && direction == Direction::Original {
            let announced = segment.announced();
            self.last.scale = announced.scale;
            self.last.sack = announced.sack;
            self.last.simultaneous_open = false;
            self.last.expects_challenge = old == State::LastAck;
        }
        if old == State::SynSent && kind == Kind::Ack && direction == Direction::Reply {
            self.last.ack = segment.ack;
        }
        Verdict::Accept
    }

    /// An ACK that answers a SYN in the middle of closing, and acknowledges no FIN (RFC 5961).
    fn is_challenge(&self, direction: Direction, kind: Kind, old: State) -> bool {
        old == State::LastAck
            && kind == Kind::Ack
            && self.last.direction != direction
            && self.last.kind == Kind::Syn
            && self.last.expects_challenge
    }

    fn judge_reset(
        &self,
        direction: Direction,
        segment: &Segment<'_>,
        old: State,
        circumstances: Circumstances,
    ) -> Reset {
        // The ports may be in use again by now, so what is known of the windows is worth nothing.
        if old.is_closing() {
            return Reset::Believed;
        }
        let mut new = State::Close;
        let is_established = old == State::Established && circumstances.assured;
        let acknowledged = self.sides[direction.other() as usize].max_ack;
        if let Some(acknowledged) = acknowledged.filter(|_| self.last.kind != Kind::Syn) {
            if segment.seq == 0 && !is_established {
                return Reset::Checked(new);
            }
            if before(segment.seq, acknowledged) {
                return Reset::Invalid;
            }
            let is_exact = segment.seq == acknowledged;
            let follows_data =
                self.last.kind == Kind::Ack && self.last.direction == direction && segment.seq == self.last.end;
            if !is_established || is_exact || follows_data {
                return Reset::Checked(new);
            }
            // The other end will challenge it (RFC 5961), so the connection goes on.
            new = old;
        }
        let answers_ignored_syn = circumstances.seen_reply && self.last.kind == Kind::Syn;
        let answers_half_open = !circumstances.assured && self.last.kind == Kind::Ack;
        if (answers_ignored_syn || answers_half_open) && segment.ack == self.last.end {
            return Reset::Believed;
        }
        let answers_challenge = old == State::SynSent
            && self.last.kind == Kind::Ack
            && self.last.direction == Direction::Reply
            && segment.seq == self.last.ack;
        if answers_challenge { Reset::Believed } else { Reset::Checked(new) }
    }

    /// Whether a segment fits the windows; they are moved by it (`tcp_in_window`).
    fn fit(&mut self, direction: Direction, segment: &Segment<'_>, shift: u32) -> Fit {
        let [mut sender, mut receiver] = [direction, direction.other()].map(|direction| self.sides[direction as usize]);
        let fit = self.fit_sides((direction, segment, shift), &mut sender, &mut receiver);
        self.sides[direction as usize] = sender;
        self.sides[direction.other() as usize] = receiver;
        fit
    }

    fn fit_sides(
        &mut self,
        (direction, segment, shift): (Direction, &Segment<'_>, u32),
        sender: &mut Side,
        receiver: &mut Side,
    ) -> Fit {
        let mut seq = segment.seq;
        let mut end = segment.end;
        let mut ack = segment.ack;
        let mut sack = if receiver.sack { segment.highest_sack() } else { ack };
        let mut window = u32::from(segment.window);
        // Each end acknowledges what it got, but what is known of the other is what that sent.
        ack = ack.wrapping_sub(shift);
        sack = sack.wrapping_sub(shift);

        let is_restart =
            segment.is_syn() && after(end, sender.end) && matches!(self.state, State::SynSent | State::SynReceived);
        if sender.max_window == 0 && !segment.is_syn() {
            sender.end = end;
            sender.max_window = (window << sender.scale).max(1);
            sender.max_end = end.wrapping_add(sender.max_window);
            if receiver.max_window == 0 {
                // Nothing came from there yet, so what is acknowledged must have been sent.
                receiver.end = sack;
                receiver.max_end = sack;
            } else if sack == receiver.end.wrapping_add(1) {
                // Probably the answer to a keep-alive.
                receiver.end = sack;
            }
        } else if sender.max_window == 0 || is_restart {
            let is_first = sender.max_window == 0;
            sender.end = end;
            sender.max_end = end;
            sender.max_window = window.max(1);
            sender.take_options(segment);
            // Both ends must offer scaling, or there is none (RFC 7323).
            if direction == Direction::Reply && !(sender.scales && receiver.scales) {
                sender.scale = 0;
                receiver.scale = 0;
            }
            if !segment.is_ack() && (is_first || direction == Direction::Reply) {
                return Fit::Inside;
            }
        }

        let has_broken_ack = segment.is_ack() && segment.is_rst() && ack == 0;
        if !segment.is_ack() || has_broken_ack {
            ack = receiver.end;
            sack = ack;
        }
        if segment.is_rst() && seq == 0 && self.state == State::SynSent {
            // A RST that answers a SYN.
            seq = sender.end;
            end = seq;
        }

        let outside = |fit: Fit, sender: &Side| if sender.liberal { Fit::Inside } else { fit };
        let lower_end = sender.end.wrapping_sub(receiver.max_window).wrapping_sub(1);
        let lower_ack = receiver.end.wrapping_sub(sender.ack_reach()).wrapping_sub(1);
        if after(seq, sender.max_end) {
            let overshot = end.wrapping_sub(sender.max_end).wrapping_add(1);
            let fits_otherwise = receiver.max_window != 0
                && after(end, lower_end)
                && after(sack, lower_ack)
                && overshot <= receiver.max_window
                && !after(sack, receiver.end);
            if fits_otherwise {
                // More than the window allows, which the other end may acknowledge all the same.
                sender.end = end;
                sender.unacknowledged = true;
                return outside(Fit::Ignore, sender);
            }
            return outside(Fit::Outside, sender);
        }
        if after(sack, receiver.end) {
            return outside(Fit::Outside, sender);
        }
        let reaches_window = receiver.max_window == 0 || after(end, lower_end);
        if !reaches_window || !after(sack, lower_ack) {
            return outside(Fit::Ignore, sender);
        }

        if !segment.is_syn() {
            window <<= sender.scale;
        }
        sender.max_window = sender.max_window.max(window.wrapping_add(sack.wrapping_sub(ack)));
        if after(end, sender.end) {
            sender.end = end;
            sender.unacknowledged = true;
        }
        if segment.is_ack() && sender.max_ack.is_none_or(|highest| after(ack, highest)) {
            sender.max_ack = Some(ack);
        }
        if receiver.max_window != 0 && after(end, sender.max_end) {
            receiver.max_window = receiver.max_window.wrapping_add(end.wrapping_sub(sender.max_end));
        }
        let allowed = sack.wrapping_add(window);
        if after(allowed, receiver.max_end.wrapping_sub(1)) {
            receiver.max_end = allowed.wrapping_add(u32::from(window == 0));
        }
        if ack == receiver.end {
            receiver.unacknowledged = false;
        }
        if segment.kind() == Kind::Ack {
            self.count_retransmissions(direction, segment.window, [seq, ack, end]);
        }
        Fit::Inside
    }

    fn count_retransmissions(&mut self, direction: Direction, window: u16, [seq, ack, end]: [u32; 3]) {
        let seen = Last { direction, seq, ack, end, window, ..self.last };
        if seen == self.last {
            self.retransmissions = self.retransmissions.saturating_add(1);
        } else {
            self.last = seen;
            self.retransmissions = 0;
        }
    }

    /// A FIN or RST out of the window that answers one: the connection is out of step with us, and need not stay for
    /// days (`nf_tcp_handle_invalid`).
    fn shortened(&mut self, direction: Direction, kind: Kind, circumstances: Circumstances) -> Option<Duration> {
        let closes = |kind| matches!(kind, Kind::Rst | Kind::Fin);
        if !circumstances.assured || !closes(kind) {
            return None;
        }
        if self.last.direction == direction || !closes(self.last.kind) {
            self.last.kind = kind;
            self.last.direction = direction;
            return None;
        }
        let is_long = circumstances.remaining >= timeouts::INVALID_FLOOR;
        let timeout = circumstances.timeouts.unacknowledged;
        (is_long && circumstances.remaining > timeout).then_some(timeout)
    }
}

/// Whether a sequence number lies before another (RFC 9293, 3.4).
fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) >= 1 << 31
}

fn after(a: u32, b: u32) -> bool {
    before(b, a)
}
