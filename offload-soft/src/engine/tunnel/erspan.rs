//! ERSPAN versions 1 and 2 in GRE, as in `net/ipv4/ip_gre.c` and `include/net/erspan.h`.

use sluice_flow::action::{Encapsulation, EncapsulationOptions, tunnel_flag};
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;

use super::gre;
use super::header::{Payload, TunnelHeader};
use crate::packet::MIN_FRAME;
use crate::packet::headers::{Erspan, Erspan2, Ethernet, GRE_CHECKSUM, GRE_SEQUENCE, Gre, VlanTagged};
use crate::packet::{Metadata, Network, TunnelOptions, eth_type, parse};

/// GRE with a sequence number.
const GRE: usize = 8;
const BASE: usize = Erspan::<&[u8]>::LENGTH;
const VERSION_2: usize = Erspan2::<&[u8]>::LENGTH;
/// Version 1: the mirrored frame has its VLAN tag in front of its payload (`ERSPAN_ENCAP_INFRAME`).
const TAG_IN_FRAME: u16 = 3;
/// Version 2: the mirrored frame is shorter (`BSO_SHORT`) or longer (`BSO_OVERSIZED`) than a frame should be.
const SHORT: u16 = 1;
const OVERSIZED: u16 = 2;
const SHORTEST_FRAME: usize = 60;
const LONGEST_FRAME: usize = 1514;
/// Version 2: there is an Ethernet frame inside.
const FRAME_INSIDE: u16 = 0x8000;
const SESSION: u16 = 0x03ff;
const INDEX: u32 = 0x000f_ffff;

pub(super) fn write(frame: &mut Vec<u8>, payload: Payload<'_>, encapsulation: &Encapsulation) -> Option<()> {
    if payload.layer3.is_some() || payload.bytes.len() < MIN_FRAME {
        return None;
    }
    let session = u16::try_from(encapsulation.id).ok()? & SESSION;
    let mut header = [0; GRE + VERSION_2];
    let mut gre = Gre::new(header.as_mut_slice())?;
    gre.set_flags(GRE_SEQUENCE);
    let length = match encapsulation.options {
        EncapsulationOptions::Erspan1 { index } => {
            gre.set_protocol(eth_type::ERSPAN);
            let tag = tag(payload.bytes);
            let state = if tag.is_some() { TAG_IN_FRAME } else { 0 };
            write_base(&mut header, 1, tag, class(payload.bytes), state, session)?;
            Erspan::new(&mut header[GRE..])?.set_index_or_time(index);
            GRE + BASE
        }
        EncapsulationOptions::Erspan2 { direction, hardware_id } => {
            gre.set_protocol(eth_type::ERSPAN2);
            let state = match payload.bytes.len() {
                ..SHORTEST_FRAME => SHORT,
                SHORTEST_FRAME..=LONGEST_FRAME => 0,
                _ => OVERSIZED,
            };
            write_base(&mut header, 2, tag(payload.bytes), class(payload.bytes), state, session)?;
            let hardware = u16::from(hardware_id) << 4 | u16::from(direction) << 3;
            Erspan2::new(&mut header[GRE..])?.set_frame_and_hardware(FRAME_INSIDE | hardware);
            GRE + VERSION_2
        }
        _ => return None,
    };
    frame.extend_from_slice(&header[..length]);
    Some(())
}

fn write_base(header: &mut [u8], version: u16, tag: Option<u16>, class: u16, state: u16, session: u16) -> Option<()> {
    let mut erspan = Erspan::new(&mut header[GRE..])?;
    erspan.set_version_and_vlan(version << 12 | tag.unwrap_or(0) & 0x0fff);
    erspan.set_class_and_session(class << 13 | state << 11 | session);
    Some(())
}

/// The tag control information of a mirrored frame; only a customer tag counts (`ETH_P_8021Q`).
fn tag(frame: &[u8]) -> Option<u16> {
    let ethernet = Ethernet::new(frame)?;
    let tagged = VlanTagged::new(frame.get(12..)?)?;
    (ethernet.ethernet_type() == eth_type::VLAN).then(|| tagged.tci())
}

/// The class of service that goes with the type of service of a mirrored frame (`tos_to_cos`). Of IPv6 Linux takes no more
/// than four bits of the traffic class for all of it, which always comes to 0.
fn class(frame: &[u8]) -> u16 {
    let parsed = parse(frame, PortNumber(0), &Metadata::default());
    match parsed.layout.network {
        Some((Network::Ipv4, _)) => u16::try_from(parsed.key.get(Field::Ipv4Tos) >> 5).unwrap_or(0),
        _ => 0,
    }
}

/// The session is the key, which is always there (`erspan_rcv`). Type I, which has no header, is not taken.
pub(super) fn read(bytes: &[u8]) -> Option<TunnelHeader> {
    let gre = gre::checked(bytes)?;
    let at = gre.header_length();
    let erspan = Erspan::new(bytes.get(at..)?)?;
    let (options, length) = match (gre.protocol(), erspan.version_and_vlan() >> 12) {
        (eth_type::ERSPAN, 1) => (TunnelOptions::Erspan1 { index: erspan.index_or_time() & INDEX }, BASE),
        (eth_type::ERSPAN2, 2) => {
            let hardware = Erspan2::new(bytes.get(at..)?)?.frame_and_hardware();
            let [_, low] = (hardware >> 4).to_be_bytes();
            let direction = u8::from(hardware & 8 != 0);
            (TunnelOptions::Erspan2 { direction, hardware_id: low & 0x3f }, VERSION_2)
        }
        _ => return None,
    };
    let checksum = if gre.flags() & GRE_CHECKSUM != 0 { tunnel_flag::CHECKSUM } else { 0 };
    Some(TunnelHeader {
        id: u64::from(erspan.class_and_session() & SESSION),
        flags: tunnel_flag::KEY | checksum,
        options,
        payload: at + length..bytes.len(),
        layer3: None,
    })
}
