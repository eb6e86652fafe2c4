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
mod line;
mod openflow;
mod pieces;
mod read_extra;
mod read_key;
mod read_line;
mod read_options;
mod read_value;
mod recent_actions;
mod requirement;
mod shapes;
mod tunnel_options;
mod write_key;
mod write_layout;
mod write_line;
mod write_number;
mod write_options;
mod write_value;

pub use actions::{parse_actions, write_action, write_actions};
pub use error::ParseError;
pub use line::{DumpLine, Extra, FlowLine, Offloaded, ParsedKey, Statistics, Style};
pub use openflow::{parse_number, parse_openflow_match};
pub use read_key::parse_key;
pub use read_line::{LineReader, parse_line};
pub use write_layout::write_key;
pub use write_line::{LineWriter, bracketed, sentence_of, write_line};
pub use write_value::write_field_value;
