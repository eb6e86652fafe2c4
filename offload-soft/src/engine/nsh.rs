//! `push_nsh`, `pop_nsh` and `set(nsh(…))` (`net/nsh/nsh.c` and `set_nsh` in net/openvswitch/actions.c; RFC 8300).

use sluice_flow::action::{ActionKind, FieldSet, NshHeader, NshMetadata};
use sluice_flow::field::Field;
use sluice_flow::refusal::Refusal;

use super::merge::{Missing, merge, narrow};
use super::packet::Packet;
use crate::packet::eth_type;
use crate::packet::headers::{Nsh, NshContexts};

const BASE: usize = Nsh::<&[u8]>::LENGTH;
/// Bytes of TLVs at most (`NSH_CTX_HDRS_MAX_LEN` in include/net/nsh.h).
const MAX_TLVS: usize = 248;

/// The numbers of next protocols, with the Ethernet types that they stand for (`tun_p_to_eth_p` in
/// include/net/tun_proto.h).
const PROTOCOLS: [(u8, u16); 5] =
    [(1, eth_type::IPV4), (2, eth_type::IPV6), (3, eth_type::TEB), (4, eth_type::NSH), (5, eth_type::MPLS)];

/// The Ethernet type that a next protocol stands for.
pub(crate) fn ethernet_type(next_protocol: u8) -> Option<u16> {
    PROTOCOLS.iter().find(|(number, _)| *number == next_protocol).map(|(_, ethernet_type)| *ethernet_type)
}

/// The next protocol that stands for an Ethernet type.
pub(crate) fn next_protocol(ethernet_type: u16) -> Option<u8> {
    PROTOCOLS.iter().find(|(_, is)| *is == ethernet_type).map(|(number, _)| *number)
}

/// A header as it stands on the wire. Its next protocol is that of the packet, filled in when it is pushed.
pub(crate) fn write(header: &NshHeader) -> Result<Box<[u8]>, Refusal> {
    let refuse = |reason: &'static str| Err(Refusal::Action { action: ActionKind::PushNsh, reason: reason.into() });
    if header.flags > 3 || header.ttl > 63 || header.path >= 1 << 24 {
        return refuse("the flags, the time to live or the path identifier are too large");
    }
    let (kind, metadata) = match &header.metadata {
        NshMetadata::Contexts(contexts) => (1, contexts.iter().flat_map(|context| context.to_be_bytes()).collect()),
        NshMetadata::Tlvs(tlvs) if tlvs.is_empty() || tlvs.len() > MAX_TLVS || tlvs.len() % 4 != 0 => {
            return refuse("metadata of type 2 is 4 to 248 bytes long, in units of four");
        }
        NshMetadata::Tlvs(tlvs) => (2, tlvs.to_vec()),
    };
    let mut bytes = vec![0; BASE];
    if let Some(mut nsh) = Nsh::new(bytes.as_mut_slice()) {
        nsh.set_length((BASE + metadata.len()) / 4);
        nsh.set_flags(header.flags);
        nsh.set_ttl(header.ttl);
        nsh.set_metadata_type(kind);
        nsh.set_next_protocol(header.next_protocol);
        nsh.set_path_and_index(header.path << 8 | u32::from(header.index));
    }
    bytes.extend(metadata);
    Ok(bytes.into())
}

/// Puts a header in front of all; what was there is what comes behind it.
pub(super) fn push(packet: &mut Packet, header: &[u8]) -> Result<(), Missing> {
    let behind = if packet.is_ethernet() { eth_type::TEB } else { packet.protocol() };
    let next = next_protocol(behind).ok_or(Missing)?;
    packet.take_tag_aside();
    packet.put_in_front(header);
    Nsh::new(packet.bytes.as_mut_slice()).ok_or(Missing)?.set_next_protocol(next);
    packet.begins_with(eth_type::NSH);
    Ok(())
}

/// Takes the header off that the packet begins with.
pub(super) fn pop(packet: &mut Packet) -> Result<(), Missing> {
    if packet.is_ethernet() || packet.protocol() != eth_type::NSH {
        return Err(Missing);
    }
    let header = Nsh::new(packet.bytes.as_slice()).ok_or(Missing)?;
    let length = header.header_length();
    let inner = ethernet_type(header.next_protocol()).ok_or(Missing)?;
    if length < BASE || length > packet.bytes.len() {
        return Err(Missing);
    }
    packet.bytes.drain(..length);
    packet.begins_with(inner);
    if inner == eth_type::TEB {
        packet.is_a_frame_again();
    }
    Ok(())
}

/// Rewrites the header that comes behind the Ethernet header, or that the packet begins with.
pub(super) fn set(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.layout.payload_at;
    let mut header = packet.bytes.get_mut(at..).and_then(Nsh::new).ok_or(Missing)?;
    let (length, kind) = (header.header_length(), header.metadata_type());
    header.set_flags(narrow(merge(set, Field::NshFlags, header.flags())));
    header.set_ttl(narrow(merge(set, Field::NshTtl, header.ttl())));
    let (path, index) = (header.path_and_index() >> 8, header.path_and_index() & 0xff);
    let path: u32 = narrow(merge(set, Field::NshPathId, path));
    let index: u32 = narrow(merge(set, Field::NshServiceIndex, index));
    header.set_path_and_index(path << 8 | index);
    match kind {
        1 => {
            let bytes = packet.bytes.get_mut(at + BASE..at + length).ok_or(Missing)?;
            let mut contexts = NshContexts::new(bytes).ok_or(Missing)?;
            contexts.set_context_1(narrow(merge(set, Field::NshContext1, contexts.context_1())));
            contexts.set_context_2(narrow(merge(set, Field::NshContext2, contexts.context_2())));
            contexts.set_context_3(narrow(merge(set, Field::NshContext3, contexts.context_3())));
            contexts.set_context_4(narrow(merge(set, Field::NshContext4, contexts.context_4())));
            Ok(())
        }
        // Metadata of type 2 has no contexts.
        2 => Ok(()),
        _ => Err(Missing),
    }
}
