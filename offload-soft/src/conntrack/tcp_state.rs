//! The states of a TCP connection in the eyes of somebody in the middle, and what leads from one to another.

use std::time::Duration;

use super::tcp_segment::Kind;
use super::timeouts::Tcp as Timeouts;
use super::tuple::Direction;

/// The state of a connection (`enum tcp_conntrack`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    None,
    SynSent,
    SynReceived,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Close,
    /// A SYN from each end, and no answer yet: a simultaneous open.
    SynSent2,
}

impl State {
    pub(crate) fn timeout(self, timeouts: &Timeouts) -> Duration {
        match self {
            Self::None | Self::SynSent => timeouts.syn_sent,
            Self::SynReceived => timeouts.syn_received,
            Self::Established => timeouts.established,
            Self::FinWait => timeouts.fin_wait,
            Self::CloseWait => timeouts.close_wait,
            Self::LastAck => timeouts.last_ack,
            Self::TimeWait => timeouts.time_wait,
            Self::Close => timeouts.close,
            Self::SynSent2 => timeouts.syn_sent2,
        }
    }

    pub(crate) fn is_closing(self) -> bool {
        matches!(self, Self::FinWait | Self::LastAck | Self::TimeWait | Self::Close | Self::CloseWait)
    }
}

/// What a segment of a kind does to a state.
pub(crate) enum Transition {
    To(State),
    /// It may be valid or not; the other end will say.
    Ignore,
    Invalid,
}

/// The rules of `tcp_conntracks`.
pub(crate) fn transition(direction: Direction, kind: Kind, state: State) -> Transition {
    use State::{Close, CloseWait, Established, FinWait, LastAck, None, SynReceived, SynSent, SynSent2, TimeWait};
    use Transition::{Ignore, Invalid, To};
    let is_original = direction == Direction::Original;
    match (kind, state) {
        (Kind::None, _) | (Kind::Rst | Kind::Fin, None) => Invalid,
        (Kind::Rst, _) => To(Close),
        (Kind::Fin, SynSent | SynSent2) => Invalid,
        (Kind::Fin, SynReceived | Established) => To(FinWait),
        (Kind::Fin, FinWait | CloseWait | LastAck) => To(LastAck),
        (Kind::Fin, TimeWait | Close) => To(state),
        (Kind::Ack, None) if is_original => To(Established),
        (Kind::Ack, None) => Invalid,
        (Kind::Ack, SynSent | SynSent2) => {
            if is_original {
                Invalid
            } else {
                Ignore
            }
        }
        (Kind::Ack, SynReceived) => To(if is_original { Established } else { SynReceived }),
        (Kind::Ack, FinWait | CloseWait) => To(CloseWait),
        (Kind::Ack, LastAck | TimeWait) => To(TimeWait),
        (Kind::Ack, Established | Close) => To(state),
        (Kind::Syn, None | SynSent | TimeWait | Close) if is_original => To(SynSent),
        (Kind::Syn, SynSent2) => To(SynSent2),
        (Kind::Syn, _) if is_original => Ignore,
        (Kind::Syn, SynSent) => To(SynSent2),
        (Kind::Syn, TimeWait) => To(SynSent),
        (Kind::Syn, _) => Invalid,
        (Kind::SynAck, SynSent2) => To(SynReceived),
        (Kind::SynAck, SynReceived) if is_original => To(SynReceived),
        (Kind::SynAck, SynSent) if !is_original => To(SynReceived),
        (Kind::SynAck, None) => Invalid,
        (Kind::SynAck, _) => {
            if is_original {
                Invalid
            } else {
                Ignore
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 10] = [
        State::None,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait,
        State::CloseWait,
        State::LastAck,
        State::TimeWait,
        State::Close,
        State::SynSent2,
    ];

    /// One letter for each state, in the order above: its number, `i` to ignore, `x` for invalid.
    fn row(direction: Direction, kind: Kind) -> String {
        let letter = |state| match transition(direction, kind, state) {
            Transition::To(new) => STATES.iter().position(|state| *state == new).unwrap().to_string(),
            Transition::Ignore => "i".into(),
            Transition::Invalid => "x".into(),
        };
        STATES.map(letter).concat()
    }

    #[test]
    fn every_segment_does_in_every_state_what_it_does_in_linux() {
        for (kind, original, reply) in [
            (Kind::Syn, "11iiiii119", "x9xxxxx1x9"),
            (Kind::SynAck, "xx2xxxxxx2", "x2iiiiiii2"),
            (Kind::Fin, "xx4466678x", "xx4466678x"),
            (Kind::Ack, "3x3355778x", "xi2355778i"),
            (Kind::Rst, "x888888888", "x888888888"),
            (Kind::None, "xxxxxxxxxx", "xxxxxxxxxx"),
        ] {
            assert_eq!(row(Direction::Original, kind), original, "{kind:?}");
            assert_eq!(row(Direction::Reply, kind), reply, "{kind:?}");
        }
    }
}
