//! Actions, read and written: [a table](table) with a row for each, and one file for the arguments of each family.
//!
//! What is written is what OVS prints, with two exceptions, because OVS's own parser takes only the other spelling: flags
//! of `slow_path` are separated by `|`, not by commas, and an empty list in `clone` and `sample` is nothing at all, not
//! `drop`. Where OVS loses something in printing (the percentage of a sample to a tenth, leading zeros of a cookie and of
//! NSH metadata), all of it is written here, in a form that OVS reads; outer headers for which it has no words are written
//! as `bytes(HEX)`, which is our own. `recirc` stays hexadecimal as in OVS, although OVS itself reads decimal numbers only.

mod arguments;
mod conntrack;
mod headers;
mod lists;
mod set;
mod table;
mod tunnel;
mod userspace;

pub use lists::{parse_actions, write_action, write_actions};
pub(super) use lists::{push_actions, read_actions};
