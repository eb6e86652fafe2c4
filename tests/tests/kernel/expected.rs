//! What is refused or differs, and why that is known.

use std::collections::BTreeSet;

/// What may become of a scenario other than that both sides do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The module refuses a flow, so that there is nothing to compare with.
    KernelRefuses,
    /// The software NIC refuses what the module takes, and is meant to.
    OursRefuses,
    /// Something else comes out.
    Differs,
}

use Known::{Differs, KernelRefuses, OursRefuses};

/// Scenarios by the beginning of their names. Whatever is not here is a failure.
const LIST: &[(&str, Known, &str)] = &[
    ("set icmp: icmp.", KernelRefuses, "the module cannot set ICMP"),
    ("set icmp: half of icmp.", KernelRefuses, "the module cannot set ICMP"),
    ("set icmpv6: icmpv6.", KernelRefuses, "the module cannot set ICMPv6"),
    ("set icmpv6: half of icmpv6.", KernelRefuses, "the module cannot set ICMPv6"),
    ("set solicitation: nd.", KernelRefuses, "the module cannot set neighbour discovery"),
    ("set solicitation: half of nd.", KernelRefuses, "the module cannot set neighbour discovery"),
    ("set arp: arp.", KernelRefuses, "the module cannot set ARP"),
    ("set arp: half of arp.", KernelRefuses, "the module cannot set ARP"),
    ("nsh: set", KernelRefuses, "this module takes the halves of a nested attribute for value and mask"),
    ("combined headers: a tag, a label", KernelRefuses, "a label goes behind the tag, which neither does"),
    ("combined headers: a service header on and off", KernelRefuses, "the module does not note that a header went on"),
    ("combined headers: no label, and one again", KernelRefuses, "what was behind the label is not known"),
    ("eth: pop with a tag", KernelRefuses, "the module takes no Ethernet header off in front of a tag"),
    ("userspace:", OursRefuses, "no process is behind the software NIC"),
    ("hash: symmetric", KernelRefuses, "this module knows one algorithm"),
    ("length: trunc to 13", KernelRefuses, "less than an Ethernet header"),
    ("ct: a mark without a commit", KernelRefuses, "a mark is set with a commit only"),
    ("ct: a timeout policy that is not there", OursRefuses, "the flow names what is not there"),
    ("meter: one that is not there", OursRefuses, "the flow names what is not there"),
    ("output to a port that is not there", OursRefuses, "the flow names what is not there"),
    ("tunnel out: without a header", OursRefuses, "the packet could go nowhere"),
    ("tunnel out: gre over ipv6", Differs, "the kernel's gretap is of IPv4; ip6gretap is another device"),
    ("udp-lite: checksums", Differs, "the module sums as for UDP, so that a right checksum is wrong to it"),
    ("padded sctp: ", Differs, "the module computes the CRC over the padding of the frame, too; ours over the packet"),
];

/// The line and the reason for which this may become of a scenario.
pub(crate) fn reason(name: &str, what: Known) -> Option<(usize, &'static str)> {
    let of_it = |(start, known, _): &(&str, Known, &str)| *known == what && name.starts_with(start);
    LIST.iter().position(of_it).map(|line| (line, LIST[line].2))
}

/// The lines that nothing came under.
pub(crate) fn needless(used: &BTreeSet<usize>) -> Vec<&'static str> {
    LIST.iter().enumerate().filter(|(line, _)| !used.contains(line)).map(|(_, (start, ..))| *start).collect()
}
