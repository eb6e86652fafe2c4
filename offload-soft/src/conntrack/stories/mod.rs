//! What packets become under `ct(…)`.

mod arbitrary;
mod connections;
mod gateways;
mod protocols;
mod segments;
mod translations;

use std::time::Duration;

use sluice_flow::action::{Commit, Conntrack as Action, Nat, NatSide, PortPick, Translation};
use sluice_flow::port::PortNumber;
use sluice_flow::time::{Clock, ManualClock};

use super::tuple::Family;
use super::*;
use crate::engine::Packet;
use crate::packet::{Metadata, parse};

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "192.0.2.9";

pub(super) struct World {
    pub(super) conntrack: Conntrack,
    pub(super) policies: Policies,
    pub(super) clock: ManualClock,
}

impl World {
    pub(super) fn new() -> Self {
        Self { conntrack: Conntrack::new(), policies: Policies::default(), clock: ManualClock::default() }
    }

    pub(super) fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(super) fn again(&self, action: &Action, packet: &mut Packet) -> Result<(), Stop> {
        self.conntrack.execute(&Request::link(action, &self.policies).unwrap(), packet, self.clock.now())
    }

    pub(super) fn send(&self, action: &Action, ip: &[u8]) -> Result<Packet, Stop> {
        let ethernet_type: u16 = if ip[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let frame = [&[0xee; 12], &ethernet_type.to_be_bytes()[..], ip].concat();
        let mut packet = Packet::new(frame, PortNumber(1), Metadata::default());
        packet.layout = parse(&packet.bytes, packet.in_port, &packet.metadata).layout;
        self.again(action, &mut packet)?;
        Ok(packet)
    }

    pub(super) fn state(&self, action: &Action, ip: &[u8]) -> u8 {
        self.send(action, ip).unwrap().metadata.connection.state
    }
}

pub(super) fn look() -> Action {
    Action::default()
}

pub(super) fn commit() -> Action {
    Action { commit: Commit::Yes, ..Action::default() }
}

pub(super) fn in_zone(zone: u16, action: Action) -> Action {
    Action { zone, ..action }
}

pub(super) fn nat() -> Action {
    Action { nat: Some(Nat::Existing), ..Action::default() }
}

pub(super) fn commit_nat(side: NatSide, addresses: &str, ports: Option<(u16, u16)>) -> Action {
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let addresses = Some((first.parse().unwrap(), last.parse().unwrap()));
    let translation = Translation { side, addresses, ports, persistent: false, pick: PortPick::Default };
    Action { nat: Some(Nat::New(translation)), ..commit() }
}

pub(super) fn udp(source: &str, from: u16, destination: &str, to: u16) -> Vec<u8> {
    frames::summed(Family::V4, frames::v4(source, destination, 17, &frames::udp(from, to, b"payload")))
}

pub(super) fn tcp(source: &str, from: u16, destination: &str, to: u16, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let segment = frames::tcp(from, to, flags, seq, ack, 1000, b"");
    frames::summed(Family::V4, frames::v4(source, destination, 6, &segment))
}

fn echo(source: &str, destination: &str, kind: u8, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    let message = [kind, 0, 0, 0, high, low, 0, 1, b'x'];
    frames::summed(Family::V4, frames::v4(source, destination, 1, &message))
}

fn unreachable(source: &str, destination: &str, about: &[u8]) -> Vec<u8> {
    let message = [&[3, 3, 0, 0, 0, 0, 0, 0], about].concat();
    frames::summed(Family::V4, frames::v4(source, destination, 1, &message))
}

pub(super) fn ip(packet: &Packet) -> &[u8] {
    &packet.bytes[14..]
}
