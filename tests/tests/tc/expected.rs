//! What comes out otherwise, and why that is known.

use std::collections::BTreeSet;

/// Scenarios by the beginning of their names. Whatever is not here is a failure.
const LIST: &[(&str, &str)] = &[
    ("key nsh: nothing more", "OVS drops what has a broken NSH header, flower does not look into it"),
    ("set sctp: sctp.", "act_csum makes a wrong CRC right, OVS brings it up to date"),
    ("set sctp: half of sctp.", "act_csum makes a wrong CRC right, OVS brings it up to date"),
    ("padded sctp: ", "act_csum computes the CRC over the padding of the frame, too"),
    ("meter: stops the fourth packet", "act_police begins with an empty bucket of packets, OVS with a full one"),
    ("tunnel out: gre over ipv6", "the kernel's gretap is of IPv4; ip6gretap is another device"),
];

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
