//! The arguments of actions: one file for each family, which reads and writes it.
//!
//! What is written is what OVS prints, with two exceptions, because OVS's own parser takes only the other spelling: flags
//! of `slow_path` are separated by `|`, not by commas, and an empty list in `clone` and `sample` is nothing at all, not
//! `drop`. Where OVS loses something in printing (the percentage of a sample to a tenth, leading zeros of a cookie and of
//! NSH metadata), all of it is written here, in a form that OVS reads; outer headers for which it has no words are written
//! as `bytes(HEX)`, which is our own. `recirc` stays hexadecimal as in OVS, although OVS itself reads decimal numbers only.

mod arguments;
pub(super) mod conntrack;
pub(super) mod headers;
pub(super) mod lists;
pub(super) mod tunnel;
pub(super) mod userspace;
