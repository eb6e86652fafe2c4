//! `push_mpls`, `add_mpls`, `pop_mpls` and `set(mpls(…))` (`skb_mpls_push`, `skb_mpls_pop` and `skb_mpls_update_lse` in
//! net/core/skbuff.c).

use sluice_flow::action::{FieldSet, MplsEntry};
use sluice_flow::field::MPLS_ENTRIES;

use super::merge::{Missing, merge, narrow};
use super::packet::Packet;
use crate::packet::MIN_FRAME;
use crate::packet::headers::{LabelStackEntry, Wire};
use crate::packet::{Network, eth_type, is_mpls};

const ENTRY: usize = LabelStackEntry::<&[u8]>::LENGTH;

/// Puts an entry behind the Ethernet header and its tags, or in front of all.
pub(super) fn push(packet: &mut Packet, entry: MplsEntry, inside_ethernet: bool) {
    let word = entry.label << 12 | u32::from(entry.tc) << 9 | u32::from(entry.bos) << 8 | u32::from(entry.ttl);
    let at = packet.layout.payload_at;
    let in_front = !(inside_ethernet && packet.is_ethernet() && at >= MIN_FRAME);
    if in_front {
        packet.take_tag_aside();
    }
    let labelled = network(packet).map(|(kind, at)| (kind, at + ENTRY));
    if in_front {
        packet.put_in_front(&word.to_be_bytes());
        packet.begins_with(entry.eth_type);
    } else {
        packet.bytes.splice(at..at, word.to_be_bytes());
        // The type that stands behind the addresses, or behind the outermost tag, which the kernel keeps elsewhere.
        // Where there is a second tag it is the one that is lost (`skb_mod_eth_type`).
        let type_at = packet.type_at();
        entry.eth_type.write(&mut packet.bytes, type_at);
        packet.is_followed_by(entry.eth_type);
        packet.layout.tags = packet.layout.tags.min(1);
    }
    packet.layout.under_labels = labelled;
}

/// Where the network header is or was before labels were pushed.
fn network(packet: &Packet) -> Option<(Network, usize)> {
    packet.layout.network.or(packet.layout.under_labels)
}

/// Takes the outermost entry off, and says what comes behind it. A packet that has none stays as it is.
pub(super) fn pop(packet: &mut Packet, ethernet_type: u16) -> Result<(), Missing> {
    // Behind two tags the kernel does not see it (`skb->protocol` is that of the second one).
    if !is_mpls(packet.protocol()) {
        return Ok(());
    }
    let at = packet.layout.payload_at;
    if packet.bytes.len() < at + ENTRY {
        return Err(Missing);
    }
    packet.bytes.drain(at..at + ENTRY);
    let uncovered = network(packet).and_then(|(kind, at)| Some((kind, at.checked_sub(ENTRY)?)));
    if packet.is_ethernet() {
        ethernet_type.write(&mut packet.bytes, at - 2);
        packet.is_followed_by(ethernet_type);
    } else {
        packet.begins_with(ethernet_type);
    }
    packet.layout.under_labels = uncovered;
    if ethernet_type == eth_type::TEB && !packet.is_ethernet() {
        packet.is_a_frame_again();
    }
    Ok(())
}

/// Rewrites the outermost entry.
pub(super) fn set(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    if !is_mpls(packet.protocol()) {
        return Err(Missing);
    }
    let at = packet.layout.payload_at;
    let mut entry = packet.bytes.get_mut(at..).and_then(LabelStackEntry::new).ok_or(Missing)?;
    let [label, tc, ttl, bos] = MPLS_ENTRIES[0];
    let label: u32 = narrow(merge(set, label, entry.label()));
    let tc: u8 = narrow(merge(set, tc, entry.tc()));
    let ttl: u8 = narrow(merge(set, ttl, entry.ttl()));
    let bos: u8 = narrow(merge(set, bos, u8::from(entry.is_bottom())));
    entry.set_word(label << 12 | u32::from(tc) << 9 | u32::from(bos) << 8 | u32::from(ttl));
    Ok(())
}
