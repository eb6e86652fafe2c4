//! Numbers in the arguments of commands.

use std::str::FromStr;

/// Reads a number; `what` says of what.
pub(super) fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a {what}"))
}
