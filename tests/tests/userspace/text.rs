//! Flows as OVS 3.1 reads them.

use std::fmt::Write as _;

use sluice_flow::MaskedKey;
use sluice_flow::action::Action;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::text::{Style, write_actions, write_key};

/// What our text says with `-m` of fields that are wild, though OVS never does.
const WRITTEN_WILD: [Attribute; 3] = [Attribute::CtTuple4, Attribute::CtTuple6, Attribute::NdExt];

/// The match with what OVS wants in each: an exact port, an exact time to live of a tunnel, the flag `key` with an
/// identifier, `nd()` for each neighbour message.
pub(crate) fn as_ovs_wants(full: &Match) -> Match {
    let mut full = *full;
    full.set_exact(Field::InPort, full.key.get(Field::InPort).max(1));
    if full.is_exactly(Field::TunnelPresent, 1) {
        full.set_exact(Field::TunnelTtl, full.key.get(Field::TunnelTtl));
        let flags = full.key.get(Field::TunnelFlags);
        if full.mask.get(Field::TunnelId) == 0 {
            full.set(Field::TunnelFlags, flags, 0b1011);
        } else {
            full.set_exact(Field::TunnelFlags, flags | 0b0100);
        }
    }
    let is_icmpv6 = full.is_exactly(Field::EthType, 0x86dd) && full.is_exactly(Field::Ipv6Proto, 58);
    if is_icmpv6 && full.is_exactly(Field::Icmpv6Code, 0) && matches!(full.key.get(Field::Icmpv6Type), 135 | 136) {
        full.set_exact(Field::NdTarget, full.key.get(Field::NdTarget));
    }
    full
}

pub(crate) fn key(full: &Match) -> String {
    let mut text = String::new();
    write_key(&mut text, &MaskedKey::new(full), &Style { more: true, names: None }).expect("a text can be written");
    for attribute in WRITTEN_WILD {
        let is_wild = attribute.fields().all(|spec| full.mask.get(spec.field) == 0);
        if let Some(start) = text.find(&format!(",{}(", attribute.name())).filter(|_| is_wild) {
            let length = text[start..].find(')').expect("a closing parenthesis") + 1;
            text.replace_range(start..start + length, "");
        }
    }
    // We write a wild one with `-m`, too, where there is none.
    if full.is_exactly(Field::PacketTypeNs, 1) {
        text = text.replace(",eth()", "");
    }
    text
}

/// OVS writes the number of a chain in hexadecimal and reads it in decimal (`parse_odp_action` in `lib/odp-util.c`).
pub(crate) fn actions(actions: &[Action]) -> String {
    let mut ours = String::new();
    write_actions(&mut ours, actions, &Style::default()).expect("a text can be written");
    let mut parts = ours.split("recirc(0x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once(')').expect("a closing parenthesis");
        let number = u32::from_str_radix(number, 16).expect("a number in hexadecimal");
        write!(text, "recirc({number}){rest}").expect("a text can be written");
    }
    text
}
