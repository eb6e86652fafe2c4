//! What comes out otherwise, and why that is known.

use std::collections::BTreeSet;

/// Scenarios by the beginning of their names. Whatever is not here is a failure.
const LIST: &[(&str, &str)] = &[];

/// The line under which a scenario comes, and the reason.
pub(crate) fn reason(name: &str) -> Option<(usize, &'static str)> {
    let line = LIST.iter().position(|(beginning, _)| name.starts_with(beginning))?;
    Some((line, LIST[line].1))
}

/// Lines that nothing came under.
pub(crate) fn needless(used: &BTreeSet<usize>) -> Vec<&'static str> {
    let unused = LIST.iter().enumerate().filter(|(line, _)| !used.contains(line));
    unused.map(|(_, (beginning, _))| *beginning).collect()
}
