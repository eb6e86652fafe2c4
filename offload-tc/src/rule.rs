//! A flow as a rule of flower, apart from priority and handle, which are given to it; and the note by which we know it again.

use sluice_flow::backend::Owner;
use sluice_flow::priority::Priority;
use sluice_flow::ufid::Ufid;

use crate::wire::action::{Action, Control, Operation};
use crate::wire::filter::Hook;
use crate::wire::flower::Flower;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it is attached.
    pub hook: Hook,
    /// The chain.
    pub chain: u32,
    /// Which of two flows of the chain wins.
    pub priority: Priority,
    /// The Ethernet type of the packets that are looked at, 3 for all; of a tagged packet the outermost.
    pub protocol: u16,
    /// What it matches and does.
    pub flower: Flower,
}

/// The notes on the first two actions of a rule: whose it is. A note has room for 16 octets, so that the UFID fills the
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The flow.
    pub ufid: Ufid,
    /// The agent that put the rule in.
    pub agent: AgentId,
    /// The flow's priority.
    pub priority: Priority,
    /// How the flow was written where a rule says the same in one way only.
    pub spelling: Spelling,
}

/// An agent, over its restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentId(pub u64);

impl From<Owner> for AgentId {
    fn from(owner: Owner) -> Self {
        Self(owner.0)
    }
}

/// Bits of a flow that go without saying in a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spelling(pub u16);

impl Spelling {
    /// The chain is not said, which means the first.
    pub const NO_CHAIN: Self = Self(1 << 0);
    /// The CFI bit of the outer tag is said, which OVS sets in every tag.
    pub const CFI: Self = Self(1 << 1);
    /// The CFI bit of the inner tag is said.
    pub const INNER_CFI: Self = Self(1 << 2);
    /// That there is no inner tag is said besides that there is none.
    pub const NO_INNER_TAG: Self = Self(1 << 3);
    /// That there is an outer header, or none, is said besides what the port says.
    pub const TUNNEL: Self = Self(1 << 4);
    /// That the outer header has a key is said besides which.
    pub const TUNNEL_KEY: Self = Self(1 << 5);
    /// That the connection is tracked is not said, though another state is.
    pub const NOT_TRACKED: Self = Self(1 << 6);
    /// That the packet has an Ethernet header is said.
    pub const NAMESPACE: Self = Self(1 << 7);
    /// The type within that is said.
    pub const PACKET_TYPE: Self = Self(1 << 8);
    /// What is told of every packet is written as a sample of all.
    pub const SAMPLE_OF_ALL: Self = Self(1 << 9);

    /// Bits of the flags of a group policy that the kernel never sets are said, too.
    pub const WHOLE_POLICY: Self = Self(1 << 10);

    /// The protocol of a later fragment of IPv6 is said, which is that of the fragment header.
    pub const FRAGMENT_PROTOCOL: Self = Self(1 << 11);

    /// Bits of the direction of ERSPAN that no header has are said, too.
    pub const WHOLE_DIRECTION: Self = Self(1 << 12);
    /// Bits of the hardware of ERSPAN that no header has are said, too.
    pub const WHOLE_HARDWARE: Self = Self(1 << 13);

    /// Whether all bits of another are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of another.
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// "slce"
const MAGIC: [u8; 4] = *b"slce";
const VERSION: u8 = 1;

impl Label {
    /// Puts the notes on the first two actions. Actions that rules share keep their own, so that such ones get a pass before
    /// them that has room.
    pub fn put(&self, actions: &mut Vec<Action>) {
        let has_room = |action: Option<&Action>| action.is_some_and(|action| action.index == 0);
        let mut passes: u32 = 0;
        while !(has_room(actions.first()) && has_room(actions.get(1))) {
            actions.insert(0, PASS);
            passes += 1;
        }
        for target in actions.iter_mut().flat_map(jump_target) {
            *target += passes;
        }
        let [first, second] = self.notes();
        for (action, note) in actions.iter_mut().zip([first, second]) {
            action.cookie = Some(note.into());
        }
    }

    /// Reads the notes; `None` if they are not ours.
    pub fn read(notes: [&[u8]; 2]) -> Option<Self> {
        let ufid = Ufid(u128::from_be_bytes(notes[0].try_into().ok()?));
        let (head, rest) = notes[1].split_first_chunk::<8>()?;
        let [a, b, c, d, version, priority, high, low] = *head;
        if [a, b, c, d] != MAGIC || version != VERSION {
            return None;
        }
        Some(Self {
            ufid,
            agent: AgentId(u64::from_be_bytes(rest.try_into().ok()?)),
            priority: Priority::new(priority)?,
            spelling: Spelling(u16::from_be_bytes([high, low])),
        })
    }

    fn notes(&self) -> [[u8; 16]; 2] {
        let [high, low] = self.spelling.0.to_be_bytes();
        let [a, b, c, d] = MAGIC;
        let mut second = [0; 16];
        second[..8].copy_from_slice(&[a, b, c, d, VERSION, self.priority.get(), high, low]);
        second[8..].copy_from_slice(&self.agent.0.to_be_bytes());
        [{ self.ufid.0 }.to_be_bytes(), second]
    }

    /// Takes the passes off that were put in front for the notes, and the notes.
    pub fn take_off(actions: &mut Vec<Action>) {
        let mut passes: u32 = 0;
        for action in actions.iter_mut() {
            action.cookie = None;
        }
        while actions
            .first()
            .is_some_and(|action| matches!(action.operation, Operation::Generic) && action.control == Control::Pipe)
        {
            actions.remove(0);
            passes += 1;
        }
        for target in actions.iter_mut().flat_map(jump_target) {
            *target = target.saturating_sub(passes);
        }
    }
}

const PASS: Action = Action::new(Operation::Generic, Control::Pipe);

/// Where a length that is exceeded leads to.
fn jump_target(action: &mut Action) -> Option<&mut u32> {
    match &mut action.control {
        Control::Jump(target) => Some(target),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::action::Police;

    fn label() -> Label {
        let spelling = Spelling(0x0102);
        Label { ufid: Ufid(7 << 100), agent: AgentId(9 << 50), priority: Priority::new(15).unwrap(), spelling }
    }

    fn read(actions: &[Action]) -> Option<Label> {
        Label::read([0, 1].map(|at| actions[at].cookie.as_ref().unwrap().octets()))
    }

    #[test]
    fn a_single_action_gets_a_pass_in_front_so_that_both_notes_fit() {
        let drop = Action::new(Operation::Generic, Control::Shot);
        let mut actions = vec![drop.clone()];
        label().put(&mut actions);
        assert_eq!((actions.len(), actions[0].control), (2, Control::Pipe));
        assert_eq!(read(&actions), Some(label()));
        Label::take_off(&mut actions);
        assert_eq!(actions, [drop]);
    }

    #[test]
    fn shared_actions_keep_their_own_notes_and_jumps_still_lead_where_they_led() {
        let police = Police { conform: Control::Pipe, rate: None, burst: 0, mtu: 100, packets: None };
        let shared = Action { index: 5, ..Action::new(Operation::Police(Box::new(police)), Control::Jump(2)) };
        let drop = Action::new(Operation::Generic, Control::Shot);
        let before = vec![shared, drop.clone(), drop];
        let mut actions = before.clone();
        label().put(&mut actions);
        assert_eq!((actions.len(), actions[2].control, actions[2].cookie), (5, Control::Jump(4), None));
        assert_eq!(read(&actions), Some(label()));
        Label::take_off(&mut actions);
        assert_eq!(actions, before);
    }

    #[test]
    fn notes_of_others_are_nobody_of_ours() {
        let [first, second] = label().notes();
        assert!(Label::read([&first, &second]).is_some());
        assert_eq!(Label::read([&first, &[]]), None);
        assert_eq!(Label::read([&first[..15], &second]), None);
        assert_eq!(Label::read([&first, &[&b"slcf"[..], &second[4..]].concat()]), None);
        assert_eq!(Label::read([&first, &[&b"slce\x02"[..], &second[5..]].concat()]), None);
    }
}
