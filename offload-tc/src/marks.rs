//! Whose an object in the kernel is, by the note on it, whatever the note's format.
//!
//! A note is the cookie of an action: up to 16 bytes that the kernel keeps and shows but does not interpret. Each kind
//! begins with its own letters, and has format and agent; the rest is described where it is written.
//!
//! | note | where | letters | format | agent |
//! |---|---|---|---|---|
//! | of a flow's rule ([`Label`](crate::label::Label)) | second action, or first or second where there is no room for the UFID | `slce` | upper half of byte 4 | bytes 8 to 11 |
//! | of a chain end (`backend/ledger/chains.rs`) | first action | `slcemiss` | byte 8 | bytes 12 to 15 |
//! | of a mirror's rule ([`MirrorNote`](crate::label::MirrorNote)) | first action | `slci` | byte 8 | bytes 12 to 15 |
//! | of a meter ([`meters`](crate::meters)) | the shared action | `slcm` | byte 8 | bytes 12 to 15 |
//!
//! # Formats
//!
//! 1. The first. Its builds wrote no number: where later formats have theirs there is a zero.
//! 2. The current one. It has its number, and otherwise what the first has.
//!
//! # What is promised
//!
//! - A build reads notes of its own format and of the one before. When it starts it adopts rules with either, in place and
//!   without a gap, and rewrites their notes in its own format, so that nothing older is left when the next build comes.
//! - Letters, format and agent stay where they are in every format.
//! - Rules with notes of a later format are never touched. They are reported as written by a newer Sluice.
//!
//! Whoever changes what notes contain or mean increments [`Format::CURRENT`], keeps a reader of the previous format, and
//! records rules with it in `tests/tests/tc_agent/upgrade.rs`.

use sluice_flow::backend::Owner;

/// An agent, across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentId(pub u32);

impl From<Owner> for AgentId {
    /// Notes have room for half of the random number; two agents of a machine are unlikely to share it.
    fn from(owner: Owner) -> Self {
        Self(owner.mark())
    }
}

/// The number of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format(pub u8);

impl Format {
    /// The format that this build writes.
    pub const CURRENT: Self = Self(2);
    /// The oldest format that this build reads.
    pub const OLDEST: Self = Self(1);

    /// The format with this number in its place.
    const fn numbered(number: u8) -> Self {
        Self(if number == 0 { Self::OLDEST.0 } else { number })
    }

    /// Whether this build reads it.
    pub fn is_known(self) -> bool {
        (Self::OLDEST..=Self::CURRENT).contains(&self)
    }

    /// Whether a newer build wrote it.
    pub fn is_later(self) -> bool {
        self > Self::CURRENT
    }
}

/// What a note is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The rule of a flow.
    Rule,
    /// The end of a chain.
    ChainEnd,
    /// The rule of a mirror.
    Mirror,
    /// A meter.
    Meter,
}

/// What every note has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What it is on.
    pub on: Marked,
    /// Its format.
    pub format: Format,
    /// Whose it is.
    pub agent: AgentId,
}

impl Mark {
    /// Reads the notes on the first two actions of a rule, empty where there are none; `None` if they are no Sluice agent's.
    pub fn of_rule([first, second]: [&[u8]; 2]) -> Option<Self> {
        let of_flow = |note: &[u8]| {
            let (format, _, agent) = split_rule_note(note)?;
            Some(Self { on: Marked::Rule, format, agent })
        };
        let of = |note: &[u8], letters: &[u8], on| {
            let (format, agent) = read_agent(note.strip_prefix(letters)?.last_chunk()?)?;
            (note.len() == NOTE).then_some(Self { on, format, agent })
        };
        let alone = || of(first, &CHAIN_END, Marked::ChainEnd).or_else(|| of(first, &MIRROR, Marked::Mirror));
        // A UFID comes first, and may look like anything.
        of_flow(second).or_else(alone).or_else(|| of_flow(first))
    }

    /// The same for a shared action.
    pub fn of_meter(note: &[u8]) -> Option<Self> {
        let (format, agent) = read_agent(note.strip_prefix(&METER)?.last_chunk()?)?;
        (note.len() == NOTE).then_some(Self { on: Marked::Meter, format, agent })
    }
}

/// Length of a note in bytes.
const NOTE: usize = 16;
/// `mirror/src/source/psample/` tells it from a UFID.
pub(crate) const RULE: [u8; 4] = *b"slce";
pub(crate) const CHAIN_END: [u8; 8] = *b"slcemiss";
pub(crate) const MIRROR: [u8; 4] = *b"slci";
pub(crate) const METER: [u8; 4] = crate::wire::rule_view::SHARED;

/// Byte 4 of a rule's note: the format, and whether the note follows one with the UFID or stands alone.
pub(crate) const fn place_of_rule(is_behind_ufid: bool) -> u8 {
    Format::CURRENT.0 << 4 | if is_behind_ufid { BEHIND_UFID } else { ALONE }
}

/// The lower half of that byte. Notes without a digest had 1 and 2, before there were formats.
const BEHIND_UFID: u8 = 3;
const ALONE: u8 = 4;

/// Format, whether it follows a note with the UFID, and agent of a rule's note.
pub(crate) fn split_rule_note(note: &[u8]) -> Option<(Format, bool, AgentId)> {
    let note: &[u8; NOTE] = note.try_into().ok()?;
    let [a, b, c, d, place, _, _, _, agent @ ..] = *note;
    let is_behind_ufid = match place & 0xf {
        _ if [a, b, c, d] != RULE => return None,
        BEHIND_UFID => true,
        ALONE => false,
        _ => return None,
    };
    let [agent, ..] = agent.as_chunks::<4>().0 else { return None };
    Some((Format::numbered(place >> 4), is_behind_ufid, AgentId(u32::from_be_bytes(*agent))))
}

/// The last eight bytes of the other notes.
pub(crate) fn write_agent(agent: AgentId) -> [u8; 8] {
    let mut bytes = u64::from(agent.0).to_be_bytes();
    bytes[0] = Format::CURRENT.0;
    bytes
}

/// Reads them, in any format.
fn read_agent(bytes: &[u8; 8]) -> Option<(Format, AgentId)> {
    let [number, hole @ .., a, b, c, d] = *bytes;
    let format = Format::numbered(number);
    // Later formats may use these bytes.
    (hole == [0; 3] || format.is_later()).then_some((format, AgentId(u32::from_be_bytes([a, b, c, d]))))
}

/// Reads them, in a format that this build knows.
pub(crate) fn known_agent(bytes: &[u8]) -> Option<AgentId> {
    let (format, agent) = read_agent(bytes.try_into().ok()?)?;
    format.is_known().then_some(agent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Label, MirrorNote};

    /// Notes as the kernel showed them, of builds that wrote the first format.
    const FIRST: [(&str, &str, Marked); 5] = [
        ("01010101010141018101010101010101", "736c6365030000004c52095cab43edc0", Marked::Rule),
        ("736c6365040000004c52095ca0133d9e", "", Marked::Rule),
        ("736c636d00000007000000004c52095c", "736c6365040000004c52095cbd8dddbd", Marked::Rule),
        ("736c63656d697373000000004c52095c", "", Marked::ChainEnd),
        ("736c63694e343e10000000004c52095c", "", Marked::Mirror),
    ];
    const AGENT: AgentId = AgentId(0x4c52_095c);

    fn bytes(hex: &str) -> Vec<u8> {
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// The notes in a later format.
    fn later(note: &[u8], number: u8) -> Vec<u8> {
        let mut note = note.to_vec();
        match note.get(..8) {
            Some(b"slcemiss") => note[8] = number,
            Some([b's', b'l', b'c', b'e', ..]) => note[4] |= number << 4,
            Some([b's', b'l', b'c', ..]) => note[8] = number,
            _ => {}
        }
        note
    }

    #[test]
    fn notes_of_the_first_format_are_read_and_those_of_a_later_one_are_known_by_their_marks_alone() {
        for (first, second, on) in FIRST {
            let notes = [bytes(first), bytes(second)];
            let [first, second] = notes.each_ref().map(Vec::as_slice);
            assert_eq!(Mark::of_rule([first, second]), Some(Mark { on, format: Format(1), agent: AGENT }));
            let is_label =
                Label::read([first, second]).is_some_and(|label| (label.agent, label.format) == (AGENT, Format(1)));
            assert_eq!((is_label, MirrorNote::read(first).is_some()), (on == Marked::Rule, on == Marked::Mirror));
            for (format, is_read) in [(2, true), (3, false), (15, false)] {
                let notes = notes.each_ref().map(|note| later(note, format));
                let [first, second] = notes.each_ref().map(Vec::as_slice);
                let mark = Mark { on, format: Format(format), agent: AGENT };
                assert_eq!(Mark::of_rule([first, second]), Some(mark));
                assert_eq!(Label::read([first, second]).is_some(), is_read && on == Marked::Rule);
                assert_eq!(MirrorNote::read(first).is_some(), is_read && on == Marked::Mirror);
            }
        }
        let meter = bytes("736c636d00000007000000004c52095c");
        assert_eq!(Mark::of_meter(&meter), Some(Mark { on: Marked::Meter, format: Format(1), agent: AGENT }));
        assert_eq!(Mark::of_meter(&later(&meter, 3)).map(|mark| mark.format.is_later()), Some(true));
    }

    #[test]
    fn what_nobody_of_ours_has_written_is_nobodys() {
        for note in
            [&b""[..], b"slce", b"slcf\x24\0\0\0\0\0\0\x01\0\0\0\0", b"slce\x25\0\0\0\0\0\0\x01\0\0\0\0", &[7; 16]]
        {
            assert_eq!(Mark::of_rule([note, &[]]), None, "{note:?}");
            assert_eq!(Mark::of_rule([&[], note]), None, "{note:?}");
            assert_eq!(Mark::of_meter(note), None, "{note:?}");
        }
    }
}
