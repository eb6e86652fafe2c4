//! ICMP and ICMPv6: which message begins a connection, which answers it, and which tells of trouble with another.

use crate::packet::ip_proto;

/// Bytes of an ICMP header, behind which an error has the packet that it is about.
pub(crate) const HEADER: usize = 8;

/// What a message is to connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has a connection of its own: a question or an answer, if there is one to it.
    Query,
    /// It is about the connection of the packet that it carries.
    Error,
    /// It is never tracked: neighbour discovery and group membership.
    Untracked,
    /// No such message is known (RFC 1122, 3.2.2).
    Unknown,
}

/// The role of a message (`nf_conntrack_icmpv4_error`, `nf_conntrack_icmpv6_error`).
pub(crate) fn role(protocol: u8, kind: u8) -> Role {
    if protocol == ip_proto::ICMP {
        return match kind {
            3 | 4 | 5 | 11 | 12 => Role::Error,
            0..=18 => Role::Query,
            _ => Role::Unknown,
        };
    }
    match kind {
        0..128 => Role::Error,
        130..=136 | 143 => Role::Untracked,
        _ => Role::Query,
    }
}

/// The type that answers a type, in either direction.
pub(crate) fn answer(protocol: u8, kind: u8) -> Option<u8> {
    let pairs: &[[u8; 2]] = if protocol == ip_proto::ICMP {
        &[[8, 0], [13, 14], [15, 16], [17, 18]]
    } else {
        // Echo (RFC 4443) and node information (RFC 4620).
        &[[128, 129], [139, 140]]
    };
    pairs.iter().find_map(|[question, answer]| match kind {
        _ if kind == *question => Some(*answer),
        _ if kind == *answer => Some(*question),
        _ => None,
    })
}

/// Whether a message of this type begins a connection.
pub(crate) fn is_question(protocol: u8, kind: u8) -> bool {
    let questions: &[u8] = if protocol == ip_proto::ICMP { &[8, 13, 15, 17] } else { &[128, 139] };
    questions.contains(&kind)
}

/// Whether address translation rewrites the identifier of a message (`icmp_manip_pkt`, `icmpv6_manip_pkt`).
pub(crate) fn has_identifier(protocol: u8, kind: u8) -> bool {
    if protocol == ip_proto::ICMP { answer(protocol, kind).is_some() } else { matches!(kind, 128 | 129) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_an_answer_that_is_no_question() {
        for protocol in [ip_proto::ICMP, ip_proto::ICMPV6] {
            for kind in (0..=255).filter(|kind| is_question(protocol, *kind)) {
                let answered = answer(protocol, kind).unwrap();
                assert!(!is_question(protocol, answered));
                assert_eq!(answer(protocol, answered), Some(kind));
                assert_eq!(role(protocol, kind), Role::Query);
            }
        }
    }

    #[test]
    fn neighbour_discovery_is_not_tracked() {
        for kind in [133, 134, 135, 136, 143] {
            assert_eq!(role(ip_proto::ICMPV6, kind), Role::Untracked);
        }
    }
}
