//! Who speaks with whom: the two ends of a connection, as one of its directions has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::packet::headers::{Ipv4, Ipv6, Wire};
use crate::packet::{Extensions, ip_proto};

use super::icmp;

/// Protocols that only connection tracking knows (IANA, Assigned Internet Protocol Numbers).
pub(crate) const DCCP: u8 = 33;
pub(crate) const GRE: u8 = 47;
pub(crate) const UDP_LITE: u8 = 136;

/// Bytes of a GRE header that address translation wants, whatever its flags say.
pub(crate) const GRE_HEADER: usize = 8;

/// The direction of a packet within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Original,
    Reply,
}

impl Direction {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }
}

/// One direction of a connection (`struct nf_conntrack_tuple`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Protocol of IP.
    pub protocol: u8,
    /// Source port; of ICMP, the identifier; 0 for a protocol without ports and for GRE.
    pub source_port: u16,
    /// Destination port; of ICMP, the type (upper byte) and the code; of GRE, the call if it is PPTP's; 0 for a protocol
    /// without ports.
    pub destination_port: u16,
}

impl Tuple {
    /// The direction of a packet; `None` if it ends before its ports do.
    pub(crate) fn read(packet: &[u8], located: &Located) -> Option<Self> {
        let header = packet.get(located.transport..).unwrap_or_default();
        let word = |at: usize| (header.len() >= at + 2).then(|| u16::read(header, at));
        let (source_port, destination_port) = match located.protocol {
            ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP | DCCP | UDP_LITE => (word(0)?, word(2)?),
            ip_proto::ICMP | ip_proto::ICMPV6 => {
                let identifier = word(4)?;
                word(6)?;
                (identifier, word(0)?)
            }
            GRE => (0, call(header)?),
            _ => (0, 0),
        };
        Some(Self {
            source: located.source,
            destination: located.destination,
            protocol: located.protocol,
            source_port,
            destination_port,
        })
    }

    /// The direction of the answer; `None` if nothing answers such a packet.
    pub(crate) fn inverse(&self) -> Option<Self> {
        let (source_port, destination_port) = match self.protocol {
            ip_proto::ICMP | ip_proto::ICMPV6 => {
                let [kind, code] = self.destination_port.to_be_bytes();
                let answer = icmp::answer(self.protocol, kind)?;
                (self.source_port, u16::from_be_bytes([answer, code]))
            }
            _ => (self.destination_port, self.source_port),
        };
        Some(Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_port,
            destination_port,
        })
    }

    /// The ports as OVS shows them (`__ovs_ct_update_key_orig_tp`): of ICMP, type and code.
    pub(crate) fn shown_ports(&self) -> (u16, u16) {
        let own_icmp = if self.source.is_ipv4() { ip_proto::ICMP } else { ip_proto::ICMPV6 };
        if self.protocol == own_icmp {
            let [kind, code] = self.destination_port.to_be_bytes();
            (kind.into(), code.into())
        } else {
            (self.source_port, self.destination_port)
        }
    }
}

/// The version of IP that a packet's Ethernet type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

/// What the network header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// Where the transport header is: in the packet, or behind its end.
    pub(crate) transport: usize,
}

/// Finds the transport header of an IP packet; `None` if there is none (`get_l4proto` in nf_conntrack_core.c).
pub(crate) fn locate(packet: &[u8], family: Family) -> Option<Located> {
    match family {
        Family::V4 => {
            let ip = Ipv4::new(packet)?;
            let transport = ip.header_length();
            if ip.is_later_fragment() || transport < Ipv4::<&[u8]>::LENGTH || transport > packet.len() {
                return None;
            }
            Some(Located {
                source: Ipv4Addr::from(ip.source()).into(),
                destination: Ipv4Addr::from(ip.destination()).into(),
                protocol: ip.protocol(),
                transport,
            })
        }
        Family::V6 => {
            let ip = Ipv6::new(packet)?;
            let (protocol, transport) = skip_extensions(packet)?;
            Some(Located {
                source: Ipv6Addr::from(ip.source()).into(),
                destination: Ipv6Addr::from(ip.destination()).into(),
                protocol,
                transport,
            })
        }
    }
}

/// The call that a GRE header of PPTP names (RFC 2637, 4.1); 0 for another one, even if it is cut off. `None` if it has
/// PPTP's version and does not carry PPP (`gre_pkt_to_tuple` in nf_conntrack_proto_gre.c).
fn call(header: &[u8]) -> Option<u16> {
    const PPP: u16 = 0x880b;
    const CALL: usize = 6;
    if gre_version(header) != Some(1) || header.len() < GRE_HEADER {
        return Some(0);
    }
    (u16::read(header, 2) == PPP).then(|| u16::read(header, CALL))
}

/// The version of a GRE header, if its first four bytes are there.
pub(crate) fn gre_version(header: &[u8]) -> Option<u8> {
    let [_, flags, _, _, ..] = header else { return None };
    Some(flags & 7)
}

/// The protocol behind the extension headers, and where it begins; `None` if none is there (`ipv6_skip_exthdr`).
fn skip_extensions(packet: &[u8]) -> Option<(u8, usize)> {
    let mut headers = Extensions::of(packet)?;
    while headers.is_extension() {
        if headers.is_later_fragment() {
            return None;
        }
        headers.step()?;
    }
    (headers.protocol != ip_proto::NONE).then_some((headers.protocol, headers.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::{self, tuple};

    #[test]
    fn an_answer_comes_from_where_the_question_went() {
        let question = tuple(17, "10.0.0.1:1000", "10.0.0.2:53");
        assert_eq!(question.inverse().unwrap(), tuple(17, "10.0.0.2:53", "10.0.0.1:1000"));
        assert_eq!(question.inverse().unwrap().inverse().unwrap(), question);
    }

    #[test]
    fn an_echo_is_answered_by_a_reply_with_the_same_identifier() {
        let packet = frames::v4("10.0.0.1", "10.0.0.2", 1, &[8, 0, 0, 0, 0x12, 0x34, 0, 1]);
        let echo = Tuple::read(&packet, &locate(&packet, Family::V4).unwrap()).unwrap();
        assert_eq!((echo.source_port, echo.destination_port), (0x1234, 0x0800));
        let reply = echo.inverse().unwrap();
        assert_eq!((reply.source_port, reply.destination_port), (0x1234, 0x0000));
        assert_eq!(echo.shown_ports(), (8, 0));
    }

    #[test]
    fn nothing_answers_an_error() {
        let packet = frames::v4("10.0.0.1", "10.0.0.2", 1, &[3, 1, 0, 0, 0, 0, 0, 0]);
        let error = Tuple::read(&packet, &locate(&packet, Family::V4).unwrap()).unwrap();
        assert_eq!(error.inverse(), None);
    }

    #[test]
    fn extension_headers_are_walked_and_a_later_fragment_has_no_ports() {
        let udp = [0x10, 0, 0, 53, 0, 8, 0, 0];
        let mut payload = vec![17, 0, 1, 4, 0, 0, 0, 0];
        payload.extend(udp);
        let packet = frames::v6("2001:db8::1", "2001:db8::2", ip_proto::HOP_BY_HOP, &payload);
        let located = locate(&packet, Family::V6).unwrap();
        assert_eq!((located.protocol, located.transport), (17, 48));
        payload[..8].copy_from_slice(&[17, 0, 0, 8, 0, 0, 0, 1]);
        let packet = frames::v6("2001:db8::1", "2001:db8::2", ip_proto::FRAGMENT, &payload);
        assert!(locate(&packet, Family::V6).is_none());
    }

    #[test]
    fn what_lies_behind_a_header_that_is_cut_off_has_a_tuple_if_it_needs_no_ports() {
        for (protocol, is_tracked) in [(99, true), (GRE, true), (17, false), (58, false)] {
            let packet = frames::v6("fd00::1", "fd00::2", ip_proto::HOP_BY_HOP, &[protocol, 1, 1, 4, 0, 0, 0, 0]);
            let located = locate(&packet, Family::V6).unwrap();
            assert_eq!(located.transport, 56, "behind the packet");
            assert_eq!(Tuple::read(&packet, &located).is_some(), is_tracked, "{protocol}");
        }
    }

    #[test]
    fn gre_has_a_tuple_whatever_it_carries_and_pptp_its_call() {
        let call = |header: &[u8]| {
            let packet = frames::v4("10.0.0.1", "10.0.0.2", GRE, header);
            Tuple::read(&packet, &locate(&packet, Family::V4).unwrap()).map(|tuple| tuple.destination_port)
        };
        assert_eq!([call(&[]), call(&[7]), call(&[0, 0, 8, 0])], [Some(0); 3]);
        assert_eq!(call(&[0x30, 1, 0x88, 0x0b, 0, 0, 0x12, 0x34]), Some(0x1234));
        assert_eq!(call(&[0x30, 1, 0x88, 0x0b, 0, 0, 0x12]), Some(0), "the call is cut off");
        assert_eq!(call(&[0x30, 1, 0x08, 0x00, 0, 0, 0x12, 0x34]), None, "another enhanced GRE");
    }

    #[test]
    fn a_header_that_is_cut_off_has_no_tuple() {
        for length in 0..4 {
            let packet = frames::v4("10.0.0.1", "10.0.0.2", 6, &[0; 4][..length]);
            assert_eq!(Tuple::read(&packet, &locate(&packet, Family::V4).unwrap()), None);
        }
    }
}
