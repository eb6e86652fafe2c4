//! SCTP: the state of an association in the eyes of somebody in the middle, and whether verification tags fit.
//!
//! The effect is that of `net/netfilter/nf_conntrack_proto_sctp.c`, as of Linux 6.1.57. Sections are those of RFC 4960.

use std::time::Duration;

use sluice_flow::connection;

use crate::packet::headers::{Sctp as Header, Wire};

use super::timeouts::sctp as timeout;
use super::tracker::Verdict;
use super::tuple::Direction;

mod chunk {
    pub(super) const DATA: u8 = 0;
    pub(super) const INIT: u8 = 1;
    pub(super) const INIT_ACK: u8 = 2;
    pub(super) const HEARTBEAT: u8 = 4;
    pub(super) const HEARTBEAT_ACK: u8 = 5;
    pub(super) const ABORT: u8 = 6;
    pub(super) const SHUTDOWN: u8 = 7;
    pub(super) const SHUTDOWN_ACK: u8 = 8;
    pub(super) const ERROR: u8 = 9;
    pub(super) const COOKIE_ECHO: u8 = 10;
    pub(super) const COOKIE_ACK: u8 = 11;
    pub(super) const SHUTDOWN_COMPLETE: u8 = 14;
}

/// The state of an association (`enum sctp_conntrack`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    None,
    Closed,
    CookieWait,
    CookieEchoed,
    Established,
    /// The end that began the association shuts it down.
    ShutdownSent,
    /// The other end does.
    ShutdownReceived,
    ShutdownAckSent,
    HeartbeatSent,
}

impl State {
    fn timeout(self) -> Duration {
        match self {
            Self::None | Self::Closed => timeout::CLOSED,
            Self::CookieWait => timeout::COOKIE_WAIT,
            Self::CookieEchoed => timeout::COOKIE_ECHOED,
            Self::Established => timeout::ESTABLISHED,
            Self::ShutdownSent | Self::ShutdownReceived | Self::ShutdownAckSent => timeout::SHUTDOWN,
            Self::HeartbeatSent => timeout::HEARTBEAT_SENT,
        }
    }
}

/// What a chunk makes of a state; `None` if it cannot be (the rules of `sctp_conntracks`).
fn transition(direction: Direction, kind: u8, state: State) -> Option<State> {
    use State::{
        Closed, CookieEchoed, CookieWait, Established, HeartbeatSent, None as Nothing, ShutdownAckSent,
        ShutdownReceived, ShutdownSent,
    };
    let is_known = matches!(kind, 1 | 2 | 4..=11 | 14);
    if !is_known {
        // Data, and whatever was invented since.
        return Some(state);
    }
    let is_original = direction == Direction::Original;
    if !is_original {
        match (state, kind) {
            (Nothing, _) => return None,
            (HeartbeatSent, chunk::HEARTBEAT) => return Some(HeartbeatSent),
            (HeartbeatSent, chunk::HEARTBEAT_ACK) => return Some(Established),
            (HeartbeatSent, _) => return None,
            _ => {}
        }
    }
    Some(match (kind, state) {
        (chunk::SHUTDOWN_ACK, Nothing) => ShutdownAckSent,
        (chunk::HEARTBEAT, Nothing) => HeartbeatSent,
        (_, Nothing) => Closed,
        (chunk::INIT, HeartbeatSent) => CookieWait,
        (chunk::SHUTDOWN_ACK, HeartbeatSent) => ShutdownAckSent,
        (chunk::HEARTBEAT | chunk::HEARTBEAT_ACK, HeartbeatSent) => HeartbeatSent,
        (_, HeartbeatSent) | (chunk::ABORT, _) => Closed,
        (chunk::INIT, ShutdownSent | ShutdownReceived) if is_original => Closed,
        (chunk::INIT_ACK, Closed) if !is_original => CookieWait,
        (chunk::SHUTDOWN, Established) => {
            if is_original {
                ShutdownSent
            } else {
                ShutdownReceived
            }
        }
        (chunk::SHUTDOWN_ACK, ShutdownSent | ShutdownReceived) => ShutdownAckSent,
        (chunk::ERROR, CookieEchoed) if !is_original => Closed,
        (chunk::COOKIE_ECHO, CookieWait) => CookieEchoed,
        (chunk::COOKIE_ACK, CookieEchoed) => Established,
        (chunk::SHUTDOWN_COMPLETE, ShutdownAckSent) => Closed,
        (_, state) => state,
    })
}

/// One chunk of a packet.
#[derive(Clone, Copy, Debug)]
struct Chunk<'a> {
    kind: u8,
    flags: u8,
    value: &'a [u8],
}

impl Chunk<'_> {
    /// The tag that an INIT or an INIT-ACK hands out.
    fn initiate_tag(&self) -> Option<u32> {
        /// Bytes of the fixed part (3.3.2).
        const FIXED: usize = 16;
        (self.value.len() >= FIXED).then(|| u32::read(self.value, 0))
    }
}

/// A packet whose chunks may be together.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<'a> {
    tag: u32,
    chunks: Vec<Chunk<'a>>,
}

impl<'a> Chunks<'a> {
    /// Reads a packet; `None` if it is malformed or has chunks together that may not be (`do_basic_checks`).
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        const CHUNK_HEADER: usize = 4;
        Header::new(bytes)?;
        let mut chunks: Vec<Chunk<'a>> = Vec::new();
        let mut at = Header::<&[u8]>::LENGTH;
        let mut must_be_alone = false;
        while let Some(header) = bytes.get(at..at + CHUNK_HEADER) {
            let (kind, length) = (header[0], usize::from(u16::read(header, 2)));
            must_be_alone |= matches!(kind, chunk::INIT | chunk::INIT_ACK | chunk::SHUTDOWN_COMPLETE);
            let must_be_first = matches!(kind, chunk::COOKIE_ACK | chunk::COOKIE_ECHO) || must_be_alone;
            if length == 0 || must_be_first && !chunks.is_empty() {
                return None;
            }
            chunks.push(Chunk { kind, flags: header[1], value: &bytes[at + CHUNK_HEADER..] });
            at += length.next_multiple_of(4);
        }
        (!chunks.is_empty()).then(|| Self { tag: u32::read(bytes, 4), chunks })
    }

    fn has(&self, kind: u8) -> bool {
        self.chunks.iter().any(|chunk| chunk.kind == kind)
    }
}

/// The tracker of an association.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sctp {
    state: State,
    /// The tag that packets of a direction must have; 0 while it is not known.
    tags: [u32; 2],
    /// Whether an INIT was seen in a direction, and no end to the handshake.
    inits: [bool; 2],
    /// The direction of a heartbeat with a tag that does not fit, which the other end has to confirm.
    doubtful_heartbeat: Option<Direction>,
}

impl Sctp {
    /// A tracker for an association that begins with this packet; `None` if none can (`sctp_new`).
    pub(crate) fn new(packet: &Chunks<'_>) -> Option<Self> {
        // Out of the blue these are to be thrown away (8.4).
        if [chunk::ABORT, chunk::SHUTDOWN_COMPLETE, chunk::COOKIE_ACK].into_iter().any(|kind| packet.has(kind)) {
            return None;
        }
        let mut new = Self::default();
        for chunk in &packet.chunks {
            if transition(Direction::Original, chunk.kind, State::None)? == State::None {
                return None;
            }
            match chunk.kind {
                chunk::INIT if packet.tag != 0 => return None,
                chunk::INIT => new.tags[Direction::Reply as usize] = chunk.initiate_tag()?,
                chunk::HEARTBEAT => new.tags[Direction::Original as usize] = packet.tag,
                _ => new.tags[Direction::Reply as usize] = packet.tag,
            }
        }
        Some(new)
    }

    /// What operators see of it.
    pub(crate) fn shown(&self) -> connection::State {
        let state = match self.state {
            State::None | State::Closed => "CLOSED",
            State::CookieWait => "COOKIE_WAIT",
            State::CookieEchoed => "COOKIE_ECHOED",
            State::Established => "ESTABLISHED",
            State::ShutdownSent => "SHUTDOWN_SENT",
            State::ShutdownReceived => "SHUTDOWN_RECD",
            State::ShutdownAckSent => "SHUTDOWN_ACK_SENT",
            State::HeartbeatSent => "HEARTBEAT_SENT",
        };
        connection::State::Sctp { state, tags: self.tags }
    }

    /// Follows a packet (`nf_conntrack_sctp_packet`).
    pub(crate) fn follow(&mut self, direction: Direction, packet: &Chunks<'_>, is_confirmed: bool) -> Verdict {
        let judges_itself = [
            chunk::INIT,
            chunk::SHUTDOWN_COMPLETE,
            chunk::COOKIE_ECHO,
            chunk::ABORT,
            chunk::SHUTDOWN_ACK,
            chunk::HEARTBEAT,
            chunk::HEARTBEAT_ACK,
        ];
        let own = direction as usize;
        if packet.tag != self.tags[own] && !judges_itself.into_iter().any(|kind| packet.has(kind)) {
            return Verdict::Invalid(None);
        }
        let mut refreshes = true;
        let mut assures = false;
        for chunk in &packet.chunks {
            match self.check_tag(direction, packet, chunk, refreshes) {
                Tag::Fits => {}
                Tag::Wrong => return Verdict::Invalid(None),
                Tag::Doubtful => {
                    refreshes = false;
                    continue;
                }
            }
            let old = self.state;
            let Some(new) = transition(direction, chunk.kind, old) else {
                return Verdict::Invalid(None);
            };
            let is_noted = match chunk.kind {
                chunk::INIT => self.note_init(direction, chunk),
                chunk::INIT_ACK => self.note_init_ack(direction, chunk),
                _ => Some(()),
            };
            if is_noted.is_none() {
                return Verdict::Invalid(None);
            }
            // Who tries again and again would keep a translation alive for ever.
            if chunk.kind == chunk::INIT && (old, new) == (State::Closed, State::Closed) && is_confirmed {
                refreshes = false;
            }
            self.state = new;
            assures |= old != new && new == State::Established;
        }
        match refreshes {
            true => Verdict::Refresh { timeout: self.state.timeout(), assures },
            false => Verdict::Accept,
        }
    }

    /// The special rules for verification tags (8.5.1), and those for heartbeats of a second path.
    fn check_tag(&mut self, direction: Direction, packet: &Chunks<'_>, chunk: &Chunk<'_>, refreshes: bool) -> Tag {
        const REFLECTED: u8 = 1;
        let (own, other) = (direction as usize, direction.other() as usize);
        let fits = match chunk.kind {
            chunk::INIT => packet.tag == 0,
            chunk::ABORT | chunk::SHUTDOWN_COMPLETE => {
                packet.tag == self.tags[if chunk.flags & REFLECTED == 0 { own } else { other }]
            }
            chunk::COOKIE_ECHO => packet.tag == self.tags[own],
            chunk::COOKIE_ACK => {
                self.inits = [false; 2];
                true
            }
            chunk::HEARTBEAT | chunk::HEARTBEAT_ACK => {
                if self.tags[own] == 0 {
                    self.tags[own] = packet.tag;
                    return Tag::Fits;
                }
                if packet.tag == self.tags[own] {
                    self.doubtful_heartbeat = None;
                    return Tag::Fits;
                }
                if packet.has(chunk::DATA) || !refreshes {
                    return Tag::Wrong;
                }
                if chunk.kind == chunk::HEARTBEAT {
                    self.doubtful_heartbeat = Some(direction);
                    return Tag::Doubtful;
                }
                if self.doubtful_heartbeat != Some(direction.other()) {
                    return Tag::Wrong;
                }
                self.doubtful_heartbeat = None;
                self.tags[own] = packet.tag;
                self.tags[other] = 0;
                true
            }
            _ => true,
        };
        if fits { Tag::Fits } else { Tag::Wrong }
    }

    fn note_init(&mut self, direction: Direction, chunk: &Chunk<'_>) -> Option<()> {
        let (own, other) = (direction as usize, direction.other() as usize);
        let tag = chunk.initiate_tag()?;
        if self.inits == [true; 2] {
            self.inits[other] = false;
        }
        self.inits[own] = true;
        self.tags[other] = tag;
        Some(())
    }

    fn note_init_ack(&mut self, direction: Direction, chunk: &Chunk<'_>) -> Option<()> {
        let other = direction.other() as usize;
        let tag = chunk.initiate_tag()?;
        let known = self.tags[other];
        let contradicts = !self.inits[other] && known != 0 && known != tag;
        let collides = self.inits == [true; 2] && known != tag;
        if contradicts || collides {
            return None;
        }
        self.tags[other] = tag;
        Some(())
    }
}

/// What the verification tag says of a chunk.
enum Tag {
    Fits,
    Wrong,
    /// A heartbeat that may come by another path.
    Doubtful,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(tag: u32, chunks: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0x10, 0, 0, 80];
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0; 4]);
        for (kind, flags, value) in chunks {
            bytes.extend([*kind, *flags]);
            bytes.extend(u16::try_from(4 + value.len()).unwrap().to_be_bytes());
            bytes.extend(*value);
        }
        bytes
    }

    fn init(tag: u32) -> Vec<u8> {
        [&tag.to_be_bytes()[..], &[0; 12]].concat()
    }

    fn established() -> Sctp {
        use Direction::{Original, Reply};
        let first = packet(0, &[(chunk::INIT, 0, &init(0xaaaa))]);
        let first = Chunks::read(&first).unwrap();
        let mut association = Sctp::new(&first).unwrap();
        association.follow(Original, &first, false);
        for (direction, tag, kind, value) in [
            (Reply, 0xaaaa, chunk::INIT_ACK, init(0xbbbb)),
            (Original, 0xbbbb, chunk::COOKIE_ECHO, vec![0; 4]),
            (Reply, 0xaaaa, chunk::COOKIE_ACK, vec![]),
        ] {
            let bytes = packet(tag, &[(kind, 0, &value)]);
            let verdict = association.follow(direction, &Chunks::read(&bytes).unwrap(), true);
            assert!(matches!(verdict, Verdict::Refresh { .. }), "chunk {kind}");
        }
        association
    }

    #[test]
    fn every_chunk_does_in_every_state_what_it_does_in_linux() {
        const STATES: [State; 9] = [
            State::None,
            State::Closed,
            State::CookieWait,
            State::CookieEchoed,
            State::Established,
            State::ShutdownSent,
            State::ShutdownReceived,
            State::ShutdownAckSent,
            State::HeartbeatSent,
        ];
        // The number of the state that a chunk leads to from each, or `x`.
        let row = |direction, kind| {
            let number = |new| STATES.iter().position(|state| *state == new).unwrap().to_string();
            STATES.map(|state| transition(direction, kind, state).map_or("x".into(), number)).concat()
        };
        for (kind, original, reply) in [
            (chunk::INIT, "112341172", "x1234567x"),
            (chunk::INIT_ACK, "112345671", "x2234567x"),
            (chunk::ABORT, "111111111", "x1111111x"),
            (chunk::SHUTDOWN, "112355671", "x1236567x"),
            (chunk::SHUTDOWN_ACK, "712347777", "x1234777x"),
            (chunk::ERROR, "112345671", "x1214567x"),
            (chunk::COOKIE_ECHO, "113345671", "x1334567x"),
            (chunk::COOKIE_ACK, "112445671", "x1244567x"),
            (chunk::SHUTDOWN_COMPLETE, "112345611", "x1234561x"),
            (chunk::HEARTBEAT, "812345678", "x12345678"),
            (chunk::HEARTBEAT_ACK, "112345678", "x12345674"),
        ] {
            assert_eq!(row(Direction::Original, kind), original, "chunk {kind}");
            assert_eq!(row(Direction::Reply, kind), reply, "chunk {kind}");
        }
    }

    #[test]
    fn four_chunks_make_an_association_that_lives_for_minutes() {
        let mut association = established();
        assert_eq!(association.state, State::Established);
        let data = packet(0xbbbb, &[(chunk::DATA, 3, &[0; 16])]);
        let verdict = association.follow(Direction::Original, &Chunks::read(&data).unwrap(), true);
        assert_eq!(verdict, Verdict::Refresh { timeout: timeout::ESTABLISHED, assures: false });
    }

    #[test]
    fn a_wrong_tag_is_not_of_the_association() {
        let mut association = established();
        for kind in [chunk::DATA, chunk::ABORT, chunk::COOKIE_ECHO] {
            let bytes = packet(0xdead, &[(kind, 0, &[0; 16])]);
            let verdict = association.follow(Direction::Original, &Chunks::read(&bytes).unwrap(), true);
            assert_eq!(verdict, Verdict::Invalid(None), "chunk {kind}");
        }
        assert_eq!(association.state, State::Established);
    }

    #[test]
    fn a_shutdown_takes_three_chunks() {
        use Direction::{Original, Reply};
        let mut association = established();
        for (direction, tag, kind, state) in [
            (Original, 0xbbbb, chunk::SHUTDOWN, State::ShutdownSent),
            (Reply, 0xaaaa, chunk::SHUTDOWN_ACK, State::ShutdownAckSent),
            (Original, 0xbbbb, chunk::SHUTDOWN_COMPLETE, State::Closed),
        ] {
            let bytes = packet(tag, &[(kind, 0, &[])]);
            association.follow(direction, &Chunks::read(&bytes).unwrap(), true);
            assert_eq!(association.state, state);
        }
    }

    #[test]
    fn an_abort_may_reflect_the_tag_of_the_other_end() {
        let mut association = established();
        let bytes = packet(0xbbbb, &[(chunk::ABORT, 1, &[])]);
        let verdict = association.follow(Direction::Reply, &Chunks::read(&bytes).unwrap(), true);
        assert_eq!(verdict, Verdict::Refresh { timeout: timeout::CLOSED, assures: false });
    }

    #[test]
    fn chunks_that_must_be_alone_are_not_taken_together() {
        assert!(Chunks::read(&packet(0, &[(chunk::INIT, 0, &init(1)), (chunk::DATA, 0, &[0; 12])])).is_none());
        assert!(Chunks::read(&packet(1, &[(chunk::DATA, 0, &[0; 12]), (chunk::COOKIE_ECHO, 0, &[])])).is_none());
        assert!(Chunks::read(&packet(1, &[])).is_none());
        assert!(Chunks::read(&packet(1, &[(chunk::COOKIE_ECHO, 0, &[]), (chunk::DATA, 0, &[0; 12])])).is_some());
    }

    #[test]
    fn an_association_does_not_begin_with_its_end() {
        for kind in [chunk::ABORT, chunk::SHUTDOWN_COMPLETE, chunk::COOKIE_ACK, chunk::DATA] {
            let bytes = packet(5, &[(kind, 0, &[0; 12])]);
            assert!(Sctp::new(&Chunks::read(&bytes).unwrap()).is_none(), "chunk {kind}");
        }
    }
}
