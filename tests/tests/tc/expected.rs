//! What comes out otherwise, and why that is known.

use std::collections::BTreeSet;

use sluice_flow::refusal::Refusal;

/// Scenarios by the beginning of their names. Whatever is not here is a failure.
const LIST: &[(&str, &str)] = &[
    ("key nsh: nothing more", "OVS drops what has a broken NSH header, flower does not look into it"),
    (
        "key num_of_vlans: any 1",
        "of a rule for packets of all types nothing tells that a tag was taken off: 4 bytes are missing in each",
    ),
    ("key num_of_vlans: any 2", "the same"),
    ("key num_of_vlans: any 3", "the same"),
    ("key num_of_vlans: any 4", "the same"),
    ("set sctp: sctp.", "act_csum makes a wrong CRC right, OVS brings it up to date"),
    ("set sctp: half of sctp.", "act_csum makes a wrong CRC right, OVS brings it up to date"),
    ("padded sctp: ", "act_csum computes the CRC over the padding of the frame, too"),
    ("meter: stops the fourth packet", "act_police begins with an empty bucket of packets, OVS with a full one"),
    ("tunnel out: gre over ipv6", "the kernel's gretap is of IPv4; ip6gretap is another device"),
];

/// What the kernel does not take, by a part of its words, and why that is right.
const REFUSALS: &[(&str, &str)] = &[
    ("mutually exclusive", "no packet is of such a connection (`fl_validate_ct_state`)"),
    ("Numerical result out of range", "`act_vlan` puts no tag of the number 4095 on"),
    ("when inv is set", "no packet is of such a connection (`fl_validate_ct_state`)"),
    ("no trk", "no packet is of such a connection (`fl_validate_ct_state`)"),
];

/// Why the kernel is right to refuse; `None` if that is not known.
pub(crate) fn refusal(refusal: &Refusal) -> Option<&'static str> {
    let words = refusal.to_string();
    REFUSALS.iter().find(|(part, _)| words.contains(part)).map(|(_, reason)| *reason)
}

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
