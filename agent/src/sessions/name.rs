//! The UFIDs of flows of sessions.

use std::fmt;

use sluice_flow::{ControllerName, Flow, FlowId, FlowTable, Origin, Ufid};

/// Whose flows sessions are.
pub const OWNER: Origin = Origin::Controller(ControllerName::OPI);

/// The name of a session, which its client chooses: OPI's answer to an addition has no place for a name that the agent gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// One of the two flows of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the source of the session.
    Forward,
    /// Back to it.
    Reverse,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Reverse];

    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }
}

/// What the UFID of a flow of a session says.
///
/// It is a UUID of version 8 (RFC 9562, 5.8), whose bits are the maker's: 48 bits that all have, the version, 9 bits of zero, the
/// direction, and the id of the session with the two bits of the variant below its highest two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionFlow {
    /// Of which session.
    pub session: SessionId,
    /// Which of its flows.
    pub direction: Direction,
}

impl SessionFlow {
    /// What the UFIDs begin with.
    const MARK: u128 = 0x6f70_692d_7632;
    const VERSION: u128 = 0x8 << 76;
    const VARIANT: u128 = 0b10 << 62;
    const REVERSE: u128 = 1 << 66;
    /// Bits of the id below those of the variant.
    const LOW_BITS: u32 = 62;
    const LOW: u128 = (1 << Self::LOW_BITS) - 1;

    /// The UFID of the flow.
    pub const fn ufid(self) -> Ufid {
        let id = self.session.0 as u128;
        let direction = match self.direction {
            Direction::Forward => 0,
            Direction::Reverse => Self::REVERSE,
        };
        let id = id >> Self::LOW_BITS << 64 | id & Self::LOW;
        Ufid(Self::MARK << 80 | Self::VERSION | direction | Self::VARIANT | id)
    }

    /// What a UFID says, if it is that of a flow of a session.
    pub fn of_ufid(ufid: Ufid) -> Option<Self> {
        let bits = { ufid.0 };
        let direction = if bits & Self::REVERSE == 0 { Direction::Forward } else { Direction::Reverse };
        let id = (bits >> 64 & 0b11) << Self::LOW_BITS | bits & Self::LOW;
        let named = Self { session: SessionId(u64::try_from(id).ok()?), direction };
        // Whatever else may be in the bits is not ours.
        (named.ufid() == ufid).then_some(named)
    }

    /// What it is of a session, if it is a flow of one.
    pub fn of(flow: &Flow) -> Option<Self> {
        let named = Self::of_ufid(flow.ufid)?;
        (flow.origin == OWNER).then_some(named)
    }

    /// The flow of the other direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        Self { direction: self.direction.opposite(), ..self }
    }
}

/// The other flow of the session that a flow is of, if it has a rule: a session is idle when no packet comes in either direction, and without
/// a rule nobody counts them.
pub fn companion(table: &FlowTable, id: FlowId) -> Option<FlowId> {
    let flow = table.view(id)?.flow;
    let other = table.find(SessionFlow::of(&flow)?.opposite().ufid())?;
    table.placement(other).map(|_| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ufid_says_what_it_was_made_of_and_is_a_uuid_of_version_8() {
        for id in [1, 7, 1001, 12_345_678_910, 1 << 61, 1 << 62, 1 << 63, u64::MAX] {
            for direction in Direction::BOTH {
                let named = SessionFlow { session: SessionId(id), direction };
                let text = named.ufid().to_string();
                assert_eq!(SessionFlow::of_ufid(named.ufid()), Some(named), "{text}");
                assert!(text.starts_with("6f70692d-7632-8"), "{text}");
                assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
            }
        }
        let flow = SessionFlow { session: SessionId(7), direction: Direction::Reverse };
        assert_eq!(flow.ufid().to_string(), "6f70692d-7632-8004-8000-000000000007");
    }

    #[test]
    fn other_ufids_are_of_no_session() {
        let Ufid(bits) = SessionFlow { session: SessionId(7), direction: Direction::Forward }.ufid();
        for other in [0, 7, bits ^ 1 << 67, bits ^ 1 << 63, bits ^ 1 << 76, bits ^ 1 << 127] {
            assert_eq!(SessionFlow::of_ufid(Ufid(other)), None, "{other:x}");
        }
    }
}
