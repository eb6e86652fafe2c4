//! The text grammar of the OVS datapath: flows in, flows out.
//!
//! What `ovs-appctl dpctl/dump-flows` prints, with or without `-m`, is read as it is, and what is written here is read
//! back to the same flow. Both directions walk the [field table](crate::field); only what is special in the grammar
//! (VLAN levels with their `encap`, the presence of a tunnel, its options, label stacks, the Ethernet type) has code of
//! its own.
//!
//! The grammar is OVS's, with a few attributes of ours for what OVS does not match and tc-flower does; see the
//! [field table](crate::field). They are written only where a flow matches them.
//!
//! Some things cannot be said in this grammar, and are not written: "there is no VLAN tag" without an Ethernet type, "no
//! tunnel", "no options of this kind" and "no second label stack entry". No text yields them either.
//!
//! In some things OVS does not read what it prints (`lib/odp-util.c`). Both are read here, and what it takes is written:
//! - `ct_tuple6()` has `src_port` and `dst_port` when printed, `tp_src` and `tp_dst` when read.
//! - `nsh()` is not read by it at all, nor is `erspan()` without a version; one that may be any is written as `ver=1/0`.
//! - `geneve({})` is printed for options of which a flow matches nothing, and means that here; it reads it as one option
//!   without data. Data that is left out is printed for wild ones, and read by it as zeros; so they are always written.
//! - `nd_reserved` is printed without its mask, and is therefore read as exact.

mod actions;
mod cursor;
mod error;
mod read_extra;
mod read_key;
mod read_line;
mod read_options;
mod read_value;
mod recent;
mod requirement;
mod shapes;
mod tunnel_options;
mod words;
mod write_key;
mod write_layout;
mod write_line;
mod write_number;
mod write_options;
mod write_value;

use std::time::Duration;

use crate::action::ActionList;
use crate::flow::Expiry;
use crate::key::{MaskedKey, Match};
use crate::port::PortNames;
use crate::priority::Priority;
use crate::ufid::Ufid;

pub use actions::{parse_actions, write_action, write_actions};
pub(crate) use cursor::is_number;
pub use error::ParseError;
pub use read_key::parse_key;
pub use read_line::{LineReader, parse_line};
pub use write_key::write_key;
pub use write_line::{LineWriter, bracketed, sentence_of, write_line};
pub use write_value::write_field_value;

/// How deep parentheses may nest, as in OVS.
const NESTING_LIMIT: usize = 32;

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
    /// What is not ours, word for word: `miniflow_bits(4,3)` or `refused[REASON]`, see [`bracketed`].
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
