//! What a line of text says.

use std::time::Duration;

use crate::action::ActionList;
use crate::flow::Expiry;
use crate::key::{MaskedKey, Match};
use crate::port::PortNames;
use crate::priority::Priority;
use crate::ufid::Ufid;

/// What introduces the last part of a line.
pub(super) const EXTRA_LABEL: &str = "dp-extra-info:";

/// The letters of TCP flags in a line, in the order in which OVS prints them.
pub(super) const TCP_FLAG_LETTERS: [(&str, u16); 12] = [
    ("S", 0x002),
    ("F", 0x001),
    ("P", 0x008),
    ("R", 0x004),
    ("U", 0x020),
    (".", 0x010),
    ("E", 0x040),
    ("C", 0x080),
    ("N", 0x100),
    ("[200]", 0x200),
    ("[400]", 0x400),
    ("[800]", 0x800),
];

/// A key as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedKey {
    /// The `ufid:` in front of it.
    pub ufid: Option<Ufid>,
    /// What is matched; normalised, the recirculation id always exact.
    pub matching: Match,
}

/// A flow as one line says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowLine {
    /// The `ufid:` in front of it.
    pub ufid: Option<Ufid>,
    /// What is matched; normalised, the recirculation id always exact.
    pub matching: Match,
    /// What is done.
    pub actions: ActionList,
    /// The counters; all zero where the line has none.
    pub statistics: Statistics,
    /// Whether hardware carries the flow; `None` if the line does not say.
    pub offloaded: Option<Offloaded>,
    /// The `dp:` word.
    pub layer: Option<String>,
    /// What `dp-extra-info:` carries.
    pub extra: Extra,
}

/// The counters of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets matched.
    pub packets: u64,
    /// Bytes matched.
    pub bytes: u64,
    /// How long ago the last packet was; `None` if there was never one.
    pub used: Option<Duration>,
    /// All TCP flags seen, in one.
    pub tcp_flags: u16,
}

/// How far hardware carries a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offloaded {
    /// All of it.
    Yes,
    /// The match, but not the actions.
    Partial,
}

/// What `dp-extra-info:` carries: the parts of a flow for which the grammar of OVS has no word, and anything else.
///
/// Its `Display` is the text, empty if all is default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// `priority[N]`.
    pub priority: Priority,
    /// `idle_timeout[SECONDS]`, `hard_timeout[SECONDS]`, `permanent`.
    pub expiry: Expiry,
    /// What is not ours, word for word: `miniflow_bits(4,3)` or `refused[REASON]`, see [`bracketed`](super::bracketed).
    pub other: Option<String>,
}

/// How to write.
#[derive(Clone, Copy, Default)]
pub struct Style<'a> {
    /// Everything, as with `-m`: wildcarded fields, the UFID, the layer.
    pub more: bool,
    /// Writes the names of these ports instead of their numbers.
    pub names: Option<&'a dyn PortNames>,
}

/// A flow to be written as one line.
#[derive(Clone, Copy, Debug)]
pub struct DumpLine<'a> {
    /// Its name; written with [`Style::more`].
    pub ufid: Ufid,
    /// What it matches.
    pub matching: &'a MaskedKey<'a>,
    /// Its counters.
    pub statistics: Statistics,
    /// How far hardware carries it; written with [`Style::more`].
    pub offloaded: Option<Offloaded>,
    /// Who carries it, such as `tc` or `ovs`; written with [`Style::more`], unless it is empty.
    pub layer: &'a str,
    /// What it does.
    pub actions: &'a ActionList,
    /// The text of `dp-extra-info`, see [`Extra`]; written unless it is empty.
    pub extra: &'a str,
}
