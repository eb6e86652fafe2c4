//! Application layer gateways: they read what the ends of a connection say to each other about further ones, and
//! rewrite it where addresses are translated (`ovs_ct_helper` in `net/openvswitch/conntrack.c`).

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use sluice_flow::time::Timestamp;

use crate::engine::Packet;
use crate::packet::checksum::{Sum, pseudo_header};
use crate::packet::headers::{Ipv4, Ipv6, Tcp, Udp, Wire};
use crate::packet::ip_proto;

use super::adjustment::adjust;
use super::connections::Conntrack;
use super::expectation::{Expected, Follow, Refused};
use super::ftp::{self, Announcement, Found};
use super::gateway::{Helper, Kind};
use super::ip::Ip;
use super::membership::{Membership, Relation};
use super::table::{Connection, status};
use super::tftp;
use super::tuple::Direction;
use super::tuple::{Family, locate};

impl Conntrack {
    /// Lets the gateway of a connection see a packet; `None` if it must go no further.
    pub(super) fn help(
        &self,
        packet: &mut Packet,
        ip: Ip,
        (connection, membership): (&Arc<Connection>, Membership),
        now: Timestamp,
    ) -> Option<()> {
        let Some(kind) = connection.lock().helper.as_ref().map(Helper::kind) else {
            return Some(());
        };
        // An ICMP error is about the connection, but none of its packets.
        let located = locate(ip.bytes(packet), ip.family).filter(|located| located.protocol == kind.protocol());
        let Some(located) = located else {
            return Some(());
        };
        let transport = ip.at + located.transport;
        match kind {
            Kind::Ftp => self.help_ftp(packet, ip, transport, (connection, membership), now)?,
            Kind::Tftp => self.help_tftp(packet, transport, connection, now)?,
        }
        if connection.has(status::ADJUSTED) {
            let state = connection.lock();
            let [own, other] = [membership.direction, membership.direction.other()]
                .map(|direction| state.adjustments[direction as usize]);
            adjust(packet.bytes.get_mut(transport..)?, &own, &other)?;
        }
        Some(())
    }

    /// `help` in nf_conntrack_ftp.c.
    fn help_ftp(
        &self,
        packet: &mut Packet,
        ip: Ip,
        transport: usize,
        (connection, membership): (&Arc<Connection>, Membership),
        now: Timestamp,
    ) -> Option<()> {
        if membership.relation != Relation::Established {
            return Some(());
        }
        // Linux makes one piece of it to read it.
        packet.tracked.is_cut_anew();
        let direction = membership.direction;
        let segment = packet.bytes.get(transport..)?;
        let start = transport + Tcp::new(segment)?.header_length();
        let sequence = u32::read(segment, 4);
        let Some(text) = packet.bytes.get(start..).filter(|text| !text.is_empty()) else {
            return Some(());
        };
        let next = sequence.wrapping_add(u32::try_from(text.len()).ok()?);
        let ends_line = text.ends_with(b"\n");
        let begins_line =
            matches!(&connection.lock().helper, Some(Helper::Ftp(lines)) if lines.begins_at(direction, sequence));
        if begins_line {
            let own = connection.tuple(direction).source;
            match ftp::find(direction, text, own) {
                Found::Nothing => {}
                // What is missing would come unseen, so that it has to be said again.
                Found::Part => return None,
                // An end may send its data elsewhere, but then it opens no door there.
                Found::All(found) if found.address != own => {}
                Found::All(found) => {
                    self.expect_data(packet, ip, (start, sequence), (connection, direction), found, now)?
                }
            }
        }
        if ends_line && let Some(Helper::Ftp(lines)) = &mut connection.lock().helper {
            lines.note(direction, next);
        }
        Some(())
    }

    /// Expects the connection that was announced, and translates the announcement (`nf_nat_ftp`).
    fn expect_data(
        &self,
        packet: &mut Packet,
        ip: Ip,
        (start, sequence): (usize, u32),
        (connection, direction): (&Arc<Connection>, Direction),
        found: Announcement,
        now: Timestamp,
    ) -> Option<()> {
        let other = connection.tuple(direction.other());
        let expected = |port| Expected {
            source: other.source,
            destination: other.destination,
            protocol: ip_proto::TCP,
            destination_port: port,
        };
        if !connection.has(status::SOURCE_NAT | status::DESTINATION_NAT) {
            return self.expectations.expect(connection, expected(found.port), None, now).ok();
        }
        let follow = Follow { direction: direction.other(), port: found.port };
        // The next port at which no connection is expected.
        let port = (found.port..=u16::MAX).find_map(|port| {
            match self.expectations.expect(connection, expected(port), Some(follow), now) {
                Ok(()) => Some(Some(port)),
                Err(Refused::Busy) => None,
                Err(Refused::Full) => Some(None),
            }
        })??;
        let written = ftp::write(found.form, other.destination, port);
        let place = start + found.place.start..start + found.place.end;
        let growth = i32::try_from(written.len()).ok()? - i32::try_from(place.len()).ok()?;
        if replace(packet, ip, place, written.as_bytes()).is_none() {
            self.expectations.forget(connection);
            return None;
        }
        if growth != 0 {
            connection.lock().adjustments[direction as usize].note(sequence, growth);
            connection.set(status::ADJUSTED);
        }
        Some(())
    }

    /// `tftp_help` in nf_conntrack_tftp.c, and `help` in nf_nat_tftp.c.
    fn help_tftp(&self, packet: &Packet, transport: usize, connection: &Arc<Connection>, now: Timestamp) -> Option<()> {
        let payload = packet.bytes.get(transport + Udp::<&[u8]>::LENGTH..).unwrap_or_default();
        if !tftp::is_request(payload) {
            return Some(());
        }
        let answer = connection.tuple(Direction::Reply);
        let expected = Expected {
            source: answer.source,
            destination: answer.destination,
            protocol: ip_proto::UDP,
            destination_port: answer.destination_port,
        };
        let is_translated = connection.has(status::SOURCE_NAT | status::DESTINATION_NAT);
        let follow =
            is_translated.then_some(Follow { direction: Direction::Reply, port: connection.original.source_port });
        self.expectations.expect(connection, expected, follow, now).ok()
    }
}

/// Replaces a part of the payload of a TCP segment, and makes lengths and checksums right; `None`, and no change, if the
/// packet would be too long (`__nf_nat_mangle_tcp_packet`).
fn replace(packet: &mut Packet, ip: Ip, place: Range<usize>, new: &[u8]) -> Option<()> {
    let length = packet.bytes.len() - ip.at - place.len() + new.len();
    let total = u16::try_from(length).ok()?;
    let located = locate(ip.bytes(packet), ip.family)?;
    packet.bytes.splice(place, new.iter().copied());
    let bytes = packet.bytes.get_mut(ip.at..)?;
    match ip.family {
        Family::V4 => {
            let header_length = Ipv4::new(&mut *bytes)?.header_length();
            let mut header = Ipv4::new(bytes.get_mut(..header_length)?)?;
            header.set_total_length(total);
            header.set_checksum(0);
            let sum = Sum::default().bytes(bytes.get(..header_length)?).finish();
            Ipv4::new(&mut *bytes)?.set_checksum(sum);
        }
        Family::V6 => Ipv6::new(&mut *bytes)?.set_payload_length(total - u16::try_from(Ipv6::<&[u8]>::LENGTH).ok()?),
    }
    let segment = bytes.get_mut(located.transport..)?;
    Tcp::new(&mut *segment)?.set_checksum(0);
    let pseudo = match (located.source, located.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo_header(&source.octets(), &destination.octets(), located.protocol, segment.len())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            pseudo_header(&source.octets(), &destination.octets(), located.protocol, segment.len())
        }
        _ => return None,
    };
    let sum = pseudo.bytes(segment).finish();
    Tcp::new(segment)?.set_checksum(sum);
    Some(())
}
