//! The notes by which rules of flows and of mirrors are recognized.

use std::ops::Range;

use sluice_flow::priority::Priority;
use sluice_flow::ufid::Ufid;
use sluice_netdev::netlink::attribute::Writer;

use crate::config::OffloadPolicy;
use crate::digest::Digest;
use crate::marks::{self, AgentId, Format, Mark, Marked};
use crate::wire::action::{Action, Control, Cookie, Operation};
use crate::wire::flower::Flower;

/// The notes on the first two actions of a rule, which say whose it is. A note has 16 bytes, so the UFID fills one of them;
/// it is left out where there is no room for two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The flow, if the notes name it.
    pub ufid: Option<Ufid>,
    /// The agent that installed the rule.
    pub agent: AgentId,
    /// The format that was read; notes are always written in the current one.
    pub format: Format,
    /// The flow's priority.
    pub priority: Priority,
    /// How the flow was written, where several flows have the same rule.
    pub spelling: Spelling,
    /// The digest of the rule; see [`digest`](crate::digest).
    pub digest: Digest,
}

/// Bits of a flow that its rule does not show. A note has room for 20.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spelling(pub u32);

impl Spelling {
    /// The flow does not name its chain, which means chain 0.
    pub const NO_CHAIN: Self = Self(1 << 0);
    /// The flow matches the CFI bit of the outer tag, which OVS sets in every tag.
    pub const CFI: Self = Self(1 << 1);
    /// The flow matches the CFI bit of the inner tag.
    pub const INNER_CFI: Self = Self(1 << 2);
    /// The flow says that there is no inner tag in more than one way.
    pub const NO_INNER_TAG: Self = Self(1 << 3);
    /// The flow says whether there is an outer header, although its port implies that.
    pub const TUNNEL: Self = Self(1 << 4);
    /// The flow says that the outer header has a key, and which.
    pub const TUNNEL_KEY: Self = Self(1 << 5);
    /// The flow matches a connection state without saying that the connection is tracked.
    pub const NOT_TRACKED: Self = Self(1 << 6);
    /// The flow says that the packet has an Ethernet header.
    pub const NAMESPACE: Self = Self(1 << 7);
    /// The flow names the packet type within the namespace.
    pub const PACKET_TYPE: Self = Self(1 << 8);
    /// Sampling every packet is written as a sample of all, and one in N as the nearest probability rather than the one
    /// below.
    pub const SAMPLE: Self = Self(1 << 9);

    /// The flow matches bits of the group policy's flags that the kernel never sets.
    pub const WHOLE_POLICY: Self = Self(1 << 10);

    /// The flow names the protocol of a later IPv6 fragment, which is that of the fragment header.
    pub const FRAGMENT_PROTOCOL: Self = Self(1 << 11);
    /// The flow matches only the lower eight bits of the ARP operation, as OVS does. Shares its bit with flows of another
    /// Ethernet type.
    pub const NARROW_OPERATION: Self = Self::FRAGMENT_PROTOCOL;
    /// The flow matches the number of tags itself, rather than the absence of an (inner) tag. Shares its bit with rules for
    /// an Ethernet type, of which only one without that matches the number for another reason.
    pub const NUMBER_OF_TAGS: Self = Self::FRAGMENT_PROTOCOL;
    /// Sets of a whole IP header name its protocol and `frag`, too, which stay as they are. Shares its bit with later
    /// fragments, whose addresses are not rewritten.
    pub const WHOLE_SET: Self = Self::FRAGMENT_PROTOCOL;

    /// The flow matches bits of the ERSPAN direction that no header has.
    pub const WHOLE_DIRECTION: Self = Self(1 << 12);
    /// The rule matches the UDP port of the outer header, which the flow does not: all packets at its port come to it. Shares its bit with rules for
    /// headers of ERSPAN, which are not in UDP.
    pub const UDP_PORT: Self = Self::WHOLE_DIRECTION;
    /// The flow matches bits of the ERSPAN hardware id that no header has.
    pub const WHOLE_HARDWARE: Self = Self(1 << 13);

    /// The flow matches the don't-fragment flag of the outer header, and the rule does not.
    pub const DF_MATCHED: Self = Self(1 << 14);
    /// The value of that match.
    pub const DF_IS_SET: Self = Self(1 << 15);
    /// The flow matches the checksum flag of the outer header, and the rule does not.
    pub const CHECKSUM_MATCHED: Self = Self(1 << 16);
    /// The value of that match.
    pub const CHECKSUM_IS_SET: Self = Self(1 << 17);
    /// The flow sets the don't-fragment flag of outer headers, and the rule does not.
    pub const DF_LEFT_OUT: Self = Self(1 << 18);
    /// The rule is the guard in front of a flow's own, which keeps `dec_ttl` from wrapping.
    pub const GUARD: Self = Self(1 << 19);

    /// Whether the rule leaves out something that its flow says.
    pub(crate) const fn leaves_out(self) -> bool {
        self.0 & (Self::DF_MATCHED.0 | Self::CHECKSUM_MATCHED.0 | Self::DF_LEFT_OUT.0) != 0
    }

    /// Whether all bits of another are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of another.
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The note on the first action of a mirror's rule. It is no flow's note, so a search for flows does not find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MirrorNote {
    /// The agent that put the rule in.
    pub agent: AgentId,
    /// The mirror's number.
    pub number: u32,
}

impl MirrorNote {
    /// Returns the note; `None` if it is no mirror's, or of a format that this build does not read.
    pub fn read(note: &[u8]) -> Option<Self> {
        let (magic, rest) = note.split_first_chunk::<4>()?;
        let (number, agent) = rest.split_first_chunk::<4>()?;
        (*magic == marks::MIRROR)
            .then_some(Self { agent: marks::known_agent(agent)?, number: u32::from_be_bytes(*number) })
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut note = [0; 16];
        note[..4].copy_from_slice(&marks::MIRROR);
        note[4..8].copy_from_slice(&self.number.to_be_bytes());
        note[8..].copy_from_slice(&marks::write_agent(self.agent));
        note
    }
}

/// How to make room for the notes. An action has room for one; a shared action has one already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Actions that do nothing are put in front, so that there is room for both notes.
    #[default]
    Made,
    /// The UFID is left out if there is no room: hardware takes no rule with an action that does nothing
    /// (`tcf_gact_offload_act_setup`). Only in front of two shared actions is such an action added.
    Found,
}

impl Room {
    /// That of rules under a policy.
    pub(crate) const fn under(policy: OffloadPolicy) -> Self {
        match policy {
            OffloadPolicy::SkipHardware => Self::Made,
            OffloadPolicy::Any | OffloadPolicy::SkipSoftware => Self::Found,
        }
    }
}

impl Label {
    /// The bytes of the last note that hold the digest.
    pub(crate) const DIGEST: Range<usize> = 12..16;

    /// Puts the notes on the first two actions. A sample carries the cookie of its action (Linux 6.11, `tcf_sample_act`), so every sample
    /// that has room for it names the flow, too: all of them, where room is made.
    pub fn put(&self, actions: &mut Vec<Action>, room: Room) {
        let has_room = |action: Option<&Action>| action.is_some_and(|action| action.index == 0);
        let rooms = |actions: &[Action]| [0, 1].map(|at| has_room(actions.get(at)));
        let is_enough = |rooms: [bool; 2]| match room {
            Room::Made => rooms == [true; 2],
            Room::Found => rooms != [false; 2],
        };
        while !is_enough(rooms(actions)) || room == Room::Made && is_sample_in_second_place(actions) {
            insert_pass(actions, 0);
        }
        let notes = match (self.ufid, rooms(actions)) {
            (Some(ufid), [true, true]) => [Some({ ufid.0 }.to_be_bytes()), Some(self.note(true))],
            (_, [true, _]) => [Some(self.note(false)), None],
            (_, [false, _]) => [None, Some(self.note(false))],
        };
        for (action, note) in actions.iter_mut().zip(notes) {
            action.cookie = note.map(Into::into);
        }
        name_in_samples(actions, self.ufid);
    }

    /// Reads the notes on a rule.
    pub(crate) fn of(flower: &Flower) -> Option<Self> {
        Self::read(Self::notes(flower))
    }

    /// The notes on a rule, whoever wrote them; empty where there are none.
    pub(crate) fn notes(flower: &Flower) -> [&[u8]; 2] {
        let note = |at: usize| flower.actions.get(at)?.cookie.as_ref().map(Cookie::bytes);
        [0, 1].map(|at| note(at).unwrap_or_default())
    }

    /// Whether these are the notes of a guard.
    pub(crate) fn is_of_guard(notes: [&[u8]; 2]) -> bool {
        Self::read(notes).is_some_and(|label| label.spelling.has(Spelling::GUARD))
    }

    /// The kernel's index of the pass in front of a flow's rule, if there is one.
    pub(crate) fn pass_in(flower: &Flower, ufid: Ufid) -> Option<u32> {
        Self::of(flower).filter(|label| label.ufid == Some(ufid))?.pass_of(&flower.actions)
    }

    /// Changes the digest in existing notes.
    pub(crate) fn set_digest(actions: &mut [Action], digest: Digest) {
        let notes = actions.iter_mut().take(2).filter_map(|action| action.cookie.as_mut());
        if let Some(note) = notes.last()
            && let Ok(mut bytes) = <[u8; 16]>::try_from(note.bytes())
        {
            bytes[Self::DIGEST].copy_from_slice(&digest.0);
            *note = bytes.into();
        }
    }

    /// The kernel's index of the pass in front of the actions, which has counted all packets.
    pub fn pass_of(&self, actions: &[Action]) -> Option<u32> {
        let ufid = { self.ufid?.0 }.to_be_bytes();
        let first = actions.first().filter(|action| is_pass(action) && action.index != 0)?;
        first.cookie.filter(|cookie| cookie.bytes() == ufid).map(|_| first.index)
    }

    /// Makes actions begin with an existing pass, so that it goes on counting: a rule that replaces another can use its
    /// actions before the kernel releases them.
    pub fn go_on_counting(actions: &mut Vec<Action>, pass: u32) {
        if !actions.first().is_some_and(is_pass) {
            let notes = [0, 1].map(|at| actions.get_mut(at).and_then(|action| action.cookie.take()));
            let ufid = Self::read(notes.each_ref().map(|note| note.as_ref().map_or(&[][..], Cookie::bytes)));
            insert_pass(actions, 0);
            if is_sample_in_second_place(actions) {
                insert_pass(actions, 1);
            }
            for (action, note) in actions.iter_mut().zip(notes) {
                action.cookie = note;
            }
            name_in_samples(actions, ufid.and_then(|label| label.ufid));
        }
        if let Some(first) = actions.first_mut() {
            first.index = pass;
        }
    }

    /// Reads notes, empty ones where there are none; `None` if they are not ours.
    pub fn read([first, second]: [&[u8]; 2]) -> Option<Self> {
        let both = || {
            Some(Self {
                ufid: Some(Ufid(u128::from_be_bytes(first.try_into().ok()?))),
                ..Self::read_note(second, true)?
            })
        };
        both().or_else(|| Self::read_note(first, false)).or_else(|| Self::read_note(second, false))
    }

    /// Whether some of an agent's notes are left on a rule, though not enough to [read](Self::read) them: one is missing or
    /// somebody else's. A note as long as a UFID may be one, whatever follows: tc gives an action without a cookie the
    /// cookie of the action before it.
    pub fn has_left_traces(agent: AgentId, notes: [&[u8]; 2]) -> bool {
        match Mark::of_rule(notes) {
            Some(mark) => mark.on == Marked::Rule && mark.agent == agent && mark.format.is_known(),
            None => notes[0].len() == size_of::<Ufid>(),
        }
    }

    fn read_note(note: &[u8], is_behind_ufid: bool) -> Option<Self> {
        let (format, is_behind, agent) = marks::split_rule_note(note)?;
        let (head, rest) = note.split_first_chunk::<8>()?;
        let [.., priority, high, low] = *head;
        // The upper half of the byte is the upper part of the spelling.
        let (spelling, priority) = (priority >> 4, priority & 0xf);
        if is_behind != is_behind_ufid || !format.is_known() {
            return None;
        }
        Some(Self {
            ufid: None,
            agent,
            format,
            priority: Priority::new(priority)?,
            spelling: Spelling(u32::from_be_bytes([0, spelling, high, low])),
            digest: Digest(rest.get(4..)?.try_into().ok()?),
        })
    }

    fn note(&self, is_behind_ufid: bool) -> [u8; 16] {
        let [_, upper, high, low] = self.spelling.0.to_be_bytes();
        let [a, b, c, d] = marks::RULE;
        let place = marks::place_of_rule(is_behind_ufid);
        let mut note = [0; 16];
        note[..8].copy_from_slice(&[a, b, c, d, place, upper << 4 | self.priority.get(), high, low]);
        note[8..12].copy_from_slice(&self.agent.0.to_be_bytes());
        note[Self::DIGEST].copy_from_slice(&self.digest.0);
        note
    }

    /// Removes the notes, and the passes that were put in front for them.
    pub fn take_off(actions: &mut Vec<Action>) {
        let mut passes: u32 = 0;
        for action in actions.iter_mut() {
            action.cookie = None;
        }
        while actions.first().is_some_and(is_pass) {
            actions.remove(0);
            passes += 1;
        }
        for target in actions.iter_mut().flat_map(jump_target) {
            *target = target.saturating_sub(passes);
        }
    }
}

/// Puts the digest into the notes of a rule. A rule that cannot be written gets none.
pub fn sign(flower: &mut Flower) {
    Label::set_digest(&mut flower.actions, Digest::default());
    let mut options = Vec::new();
    let mut writer = Writer::new(&mut options);
    flower.emit(&mut writer);
    if writer.finish().is_ok() {
        Label::set_digest(&mut flower.actions, Digest::of(&options));
    }
}

/// Puts a pass before an action, which may be jumped to.
fn insert_pass(actions: &mut Vec<Action>, at: usize) {
    actions.insert(at, PASS);
    for target in actions.iter_mut().flat_map(jump_target) {
        *target += 1;
    }
}

/// Whether a sample has the place of the note that does not name the flow.
fn is_sample_in_second_place(actions: &[Action]) -> bool {
    actions.get(1).is_some_and(is_sample)
}

/// Puts the UFID on the samples behind the notes.
fn name_in_samples(actions: &mut [Action], ufid: Option<Ufid>) {
    for action in actions.iter_mut().skip(2).filter(|action| is_sample(action)) {
        action.cookie = ufid.map(|ufid| ufid.0.to_be_bytes().into());
    }
}

fn is_sample(action: &Action) -> bool {
    matches!(action.operation, Operation::Sample { .. })
}

const PASS: Action = Action::new(Operation::Generic, Control::Pipe);

fn is_pass(action: &Action) -> bool {
    matches!(action.operation, Operation::Generic) && action.control == Control::Pipe
}

/// The target of the jump that is taken if a length is exceeded.
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
    use crate::wire::key::{Key, KeyMatch};

    fn label() -> Label {
        let (priority, spelling) = (Priority::new(15).unwrap(), Spelling(0x9_0102));
        let (ufid, format, digest) = (Some(Ufid(7 << 100)), Format::CURRENT, Digest([1, 2, 3, 4]));
        Label { ufid, agent: AgentId(9 << 20), format, priority, spelling, digest }
    }

    fn read(actions: &[Action]) -> Option<Label> {
        let note = |at: usize| actions.get(at)?.cookie.as_ref().map(Cookie::bytes);
        Label::read([0, 1].map(|at| note(at).unwrap_or_default()))
    }

    fn drop() -> Action {
        Action::new(Operation::Generic, Control::Shot)
    }

    fn meter() -> Action {
        let police = Police { conform: Control::Pipe, rate: None, burst: 0, mtu: 100, packets: None };
        Action { index: 5, ..Action::new(Operation::Police(Box::new(police)), Control::Jump(2)) }
    }

    #[test]
    fn traces_are_left_by_one_of_two_notes_and_by_none_of_another_agent() {
        let mut actions = vec![drop()];
        label().put(&mut actions, Room::Made);
        let [first, second] = [0, 1].map(|at| actions[at].cookie.as_ref().unwrap().bytes());
        let has_left = |agent, notes| Label::has_left_traces(AgentId(agent), notes);
        for notes in [[first, &[]], [first, first], [&[], second], [&second[..4], second]] {
            assert_eq!((Label::read(notes), has_left(9 << 20, notes)), (None, true), "{notes:?}");
        }
        assert!(
            !has_left(5, [&[], second]) && !has_left(9 << 20, [&[], &[]]) && !has_left(9 << 20, [&first[1..], &[]])
        );
    }

    #[test]
    fn a_single_action_gets_a_pass_in_front_so_that_both_notes_fit() {
        let drop = drop();
        let mut actions = vec![drop.clone()];
        label().put(&mut actions, Room::Made);
        assert_eq!((actions.len(), actions[0].control), (2, Control::Pipe));
        assert_eq!(read(&actions), Some(label()));
        Label::take_off(&mut actions);
        assert_eq!(actions, [drop]);
    }

    #[test]
    fn where_no_room_is_made_the_ufid_is_left_out_if_it_finds_none() {
        let unnamed = Label { ufid: None, ..label() };
        let wanted = [
            (vec![drop()], unnamed),
            (vec![drop(), meter()], unnamed),
            (vec![meter(), drop()], unnamed),
            (vec![drop(), drop()], label()),
        ];
        for (before, expected) in wanted {
            let mut actions = before.clone();
            label().put(&mut actions, Room::Found);
            assert_eq!(actions.len(), before.len());
            assert_eq!(read(&actions), Some(expected), "{before:?}");
            assert!(actions.iter().all(|action| action.index == 0 || action.cookie.is_none()), "{before:?}");
            Label::take_off(&mut actions);
            assert_eq!(actions, before);
        }
        // The kernel shows the note of the shared action.
        let mut actions = vec![meter(), drop()];
        label().put(&mut actions, Room::Found);
        actions[0].cookie = Some([9; 16].into());
        assert_eq!(read(&actions), Some(unnamed));
    }

    #[test]
    fn no_sample_has_the_note_that_is_no_name_where_room_is_made() {
        let sample = || Action::new(Operation::Sample { rate: 1, group: 5, truncate: None }, Control::Pipe);
        let name = Some(Cookie::from({ label().ufid.unwrap().0 }.to_be_bytes()));
        for before in
            [vec![sample(), drop()], vec![drop(), sample()], vec![sample(), sample()], vec![drop(), drop(), sample()]]
        {
            let mut actions = before.clone();
            label().put(&mut actions, Room::Made);
            let mut counting = actions.clone();
            Label::go_on_counting(&mut counting, 9);
            for mut actions in [actions, counting] {
                let mut samples = actions.iter().filter(|action| is_sample(action));
                assert!(samples.all(|sample| sample.cookie == name), "{actions:?}");
                assert_eq!(read(&actions), Some(label()));
                Label::take_off(&mut actions);
                assert_eq!(actions, before);
            }
        }
    }

    #[test]
    fn in_front_of_two_shared_actions_there_is_a_pass_whatever_room_is_wanted() {
        let mut actions = vec![meter(), meter(), drop()];
        label().put(&mut actions, Room::Found);
        assert_eq!((actions.len(), actions[0].control, actions[1].control), (4, Control::Pipe, Control::Jump(3)));
        assert_eq!(read(&actions), Some(Label { ufid: None, ..label() }));
        Label::take_off(&mut actions);
        assert_eq!(actions, [meter(), meter(), drop()]);
    }

    #[test]
    fn shared_actions_keep_their_own_notes_and_jumps_still_lead_where_they_led() {
        let before = vec![meter(), drop(), drop()];
        let mut actions = before.clone();
        label().put(&mut actions, Room::Made);
        assert_eq!((actions.len(), actions[2].control, actions[2].cookie), (5, Control::Jump(4), None));
        assert_eq!(read(&actions), Some(label()));
        Label::take_off(&mut actions);
        assert_eq!(actions, before);
    }

    #[test]
    fn what_takes_the_place_of_a_rule_counts_on_with_its_pass_whatever_it_does() {
        let drop = drop();
        let mut there = vec![drop.clone()];
        label().put(&mut there, Room::Made);
        assert_eq!(label().pass_of(&there), None, "the kernel has not numbered it");
        there[0].index = 9;
        assert_eq!(label().pass_of(&there), Some(9));
        for other in [Some(Ufid(1)), None] {
            assert_eq!(Label { ufid: other, ..label() }.pass_of(&there), None, "of another rule");
        }
        let jump = Action { index: 0, ..meter() };
        for before in [vec![drop.clone()], vec![jump, drop.clone(), drop]] {
            let mut actions = before.clone();
            label().put(&mut actions, Room::Made);
            Label::go_on_counting(&mut actions, 9);
            assert_eq!((actions[0].index, actions[0].control), (9, Control::Pipe));
            assert_eq!(read(&actions), Some(label()));
            assert!(actions[2..].iter().all(|action| action.cookie.is_none()));
            Label::take_off(&mut actions);
            assert_eq!(actions, before);
        }
    }

    #[test]
    fn notes_of_others_are_nobody_of_ours() {
        let (first, second) = ([7; 16], label().note(true));
        assert!(Label::read([&first, &second]).is_some());
        assert_eq!(Label::read([&second, &first]), None);
        assert_eq!(Label::read([&first, &[]]), None);
        assert_eq!(Label::read([&first[..15], &second]), None);
        assert_eq!(Label::read([&first, &[&b"slcf"[..], &second[4..]].concat()]), None);
        for before_or_after in [0x21, 0x22, 0x25, 0x33] {
            let other = [&second[..4], &[before_or_after], &second[5..]].concat();
            assert_eq!(Label::read([&first, &other]), None);
        }
    }

    /// A signed rule.
    fn rule(change: impl FnOnce(&mut Flower)) -> Flower {
        let mut flower = Flower { actions: vec![Action::new(Operation::Generic, Control::Shot)], ..Flower::default() };
        flower.keys = vec![KeyMatch { key: Key::Ipv4Dst, value: 7, mask: 0xff }];
        change(&mut flower);
        let (priority, digest) = Default::default();
        let (format, spelling) = (Format::CURRENT, Spelling::default());
        let label = Label { ufid: None, agent: AgentId(1), format, priority, spelling, digest };
        label.put(&mut flower.actions, Room::Made);
        sign(&mut flower);
        flower
    }

    fn digest(flower: &Flower) -> Digest {
        let note = |at: usize| flower.actions[at].cookie.as_ref().map(|cookie| cookie.bytes()).unwrap_or_default();
        Label::read([note(0), note(1)]).unwrap().digest
    }

    #[test]
    fn whatever_a_rule_says_otherwise_is_another_digest_and_the_same_is_the_same() {
        let known = digest(&rule(|_| ()));
        assert_eq!(digest(&rule(|_| ())), known);
        let others = [
            rule(|rule| rule.keys[0].value = 6),
            rule(|rule| rule.keys[0].mask = 0x7f),
            rule(|rule| rule.flags = 1),
            rule(|rule| rule.actions[0].control = Control::Ok),
        ];
        assert!(others.iter().all(|other| digest(other) != known), "{others:?}");
    }

    #[test]
    fn a_digest_is_not_of_itself_and_stays_when_a_rule_goes_on_with_the_actions_of_another() {
        let mut again = rule(|_| ());
        let known = digest(&again);
        sign(&mut again);
        assert_eq!(digest(&again), known);
        Label::go_on_counting(&mut again.actions, 9);
        assert_eq!(digest(&again), known);
    }
}
