//! Keys, written.

use std::fmt;

use super::read_value::is_in_parentheses;
use super::requirement::is_met;
use super::tunnel_options::TUNNEL_OPTIONS;
use super::write_options::{is_mentioned, write_options};
use super::{Style, write_field_value};
use crate::field::{
    ATTRIBUTES, Attribute, FRAGMENT_LATER, Field, FieldSpec, Form, MPLS_ENTRIES, MPLS_PRESENT, Requirement,
};
use crate::key::{MaskedKey, Match};

/// Types of ICMPv6 (RFC 4861, 4.3 and 4.4).
const ND_NEIGHBOR_SOLICIT: u128 = 135;
const ND_NEIGHBOR_ADVERT: u128 = 136;

/// Writes a key in the order of OVS.
///
/// What is wildcarded is left out, or with [`Style::more`] written as `X/0` where the rest of the match implies that the
/// header is there.
pub fn write_key(out: &mut dyn fmt::Write, matching: &MaskedKey, style: &Style<'_>) -> fmt::Result {
    let full = matching.expand();
    let mut writer = KeyWriter { out, full: &full, style, separator: "", encapsulations: 0 };
    for row in ATTRIBUTES {
        writer.write_row(row.attribute)?;
    }
    for _ in 0..writer.encapsulations {
        writer.out.write_char(')')?;
    }
    Ok(())
}

/// Writes some fields of an attribute, as `name(...)`. `get` tells value and mask of a field; with `wild`, fields of mask
/// zero are written, too.
pub(super) fn write_attribute(
    out: &mut dyn fmt::Write,
    attribute: Attribute,
    get: &dyn Fn(Field) -> (u128, u128),
    wild: bool,
    style: &Style<'_>,
) -> fmt::Result {
    if attribute == Attribute::Mpls {
        return write_stack(out, get);
    }
    let is_tag = matches!(attribute, Attribute::Vlan | Attribute::Cvlan);
    write!(out, "{}(", if is_tag { Attribute::Vlan.name() } else { attribute.name() })?;
    let mut separator = "";
    for spec in attribute.fields() {
        let options = TUNNEL_OPTIONS.iter().find(|options| options.present == spec.field);
        if let Some(options) = options.filter(|options| is_mentioned(options, get)) {
            out.write_str(std::mem::replace(&mut separator, ","))?;
            write_options(out, options, get, style)?;
        }
        if !is_in_parentheses(spec) {
            continue;
        }
        let (value, mask) = get(spec.field);
        let shown = match spec.field {
            Field::VlanCfi => shows_cfi(value, mask, get(Field::VlanVid).1 | get(Field::VlanPcp).1),
            Field::CvlanCfi => shows_cfi(value, mask, get(Field::CvlanVid).1 | get(Field::CvlanPcp).1),
            // A fragment bit has no masked form.
            Field::Ipv4Frag | Field::Ipv6Frag => mask != 0,
            _ => mask != 0 || wild,
        };
        if !shown {
            continue;
        }
        let (open, close) = match spec.form {
            _ if spec.name.is_empty() => ("", ""),
            Form::Flags(_) => ("(", ")"),
            _ => ("=", ""),
        };
        write!(out, "{separator}{}{open}", spec.name)?;
        write_field_value(out, spec.field, value, mask, style)?;
        out.write_str(close)?;
        separator = ",";
    }
    out.write_char(')')
}

/// OVS writes a stack without masks, or each field of each entry with its mask, some of them without `0x`
/// (`format_mpls` in `lib/odp-util.c`).
fn write_stack(out: &mut dyn fmt::Write, get: &dyn Fn(Field) -> (u128, u128)) -> fmt::Result {
    let is_there = |(present, entry): (&Field, &[Field; 4])| {
        get(*present) == (1, 1) || entry.iter().any(|field| get(*field).1 != 0)
    };
    let behind_first = MPLS_PRESENT[1..].iter().zip(&MPLS_ENTRIES[1..]).rposition(is_there);
    let entries = &MPLS_ENTRIES[..behind_first.map_or(1, |last| last + 2)];
    let is_exact = entries.iter().flatten().all(|field| get(*field).1 == field.full_mask());
    let mut separator = "mpls(";
    for [label, tc, ttl, bos] in entries.iter().map(|entry| entry.map(get)) {
        out.write_str(separator)?;
        if is_exact {
            write!(out, "label={},tc={},ttl={},bos={}", label.0, tc.0, ttl.0, bos.0)?;
        } else {
            write!(out, "label={}/{:#x},tc={}/{:x},", label.0, label.1, tc.0, tc.1)?;
            write!(out, "ttl={}/{:#x},bos={}/{:x}", ttl.0, ttl.1, bos.0, bos.1)?;
        }
        separator = ",";
    }
    out.write_char(')')
}

/// The CFI bit is 1 where a tag is matched and the bit not written; see the reader.
fn shows_cfi(value: u128, mask: u128, tag_mask: u128) -> bool {
    let unwritten = if tag_mask == 0 { (0, 0) } else { (1, 1) };
    (value, mask) != unwritten
}

struct KeyWriter<'a> {
    out: &'a mut dyn fmt::Write,
    full: &'a Match,
    style: &'a Style<'a>,
    separator: &'static str,
    /// How many `encap(` are open.
    encapsulations: usize,
}

impl KeyWriter<'_> {
    fn write_row(&mut self, attribute: Attribute) -> fmt::Result {
        match attribute {
            Attribute::Vlan => self.write_tag(attribute, Field::VlanPresent, Field::VlanTpid),
            Attribute::Cvlan => self.write_tag(attribute, Field::CvlanPresent, Field::CvlanTpid),
            // A tunnel's wild fields are those of both IP versions: nobody wants to read them.
            Attribute::Tunnel if self.is_present(Field::TunnelPresent) => self.write(attribute, false),
            Attribute::Ethernet if !self.style.more && !self.constrains(attribute) => {
                // Says that packets begin with an Ethernet header, unless packet_type() says it.
                if self.constrains(Attribute::PacketType) { Ok(()) } else { self.write(attribute, false) }
            }
            _ if !is_met(attribute.spec().requires, self.full) => Ok(()),
            _ if self.constrains(attribute) || self.style.more && self.is_implied(attribute) => {
                // What is wild in an NSH header OVS never writes.
                self.write(attribute, self.style.more && !matches!(attribute, Attribute::Tunnel | Attribute::Nsh))
            }
            _ => Ok(()),
        }
    }

    fn write_tag(&mut self, attribute: Attribute, present: Field, tpid: Field) -> fmt::Result {
        if !self.is_present(present) {
            return Ok(());
        }
        let (value, mask) = self.get(tpid);
        if mask != 0 {
            write!(self.out, "{}eth_type(", std::mem::replace(&mut self.separator, ","))?;
            write_field_value(self.out, tpid, value, mask, self.style)?;
            self.out.write_char(')')?;
        }
        self.write(attribute, self.style.more)?;
        self.out.write_str(",encap(")?;
        self.separator = "";
        self.encapsulations += 1;
        Ok(())
    }

    fn write(&mut self, attribute: Attribute, wild: bool) -> fmt::Result {
        self.out.write_str(std::mem::replace(&mut self.separator, ","))?;
        let full = self.full;
        write_attribute(self.out, attribute, &|field| (full.key.get(field), full.mask.get(field)), wild, self.style)
    }

    fn get(&self, field: Field) -> (u128, u128) {
        (self.full.key.get(field), self.full.mask.get(field))
    }

    fn is_present(&self, field: Field) -> bool {
        self.full.is_exactly(field, 1)
    }

    fn constrains(&self, attribute: Attribute) -> bool {
        let is_constrained =
            |spec: &FieldSpec| (is_in_parentheses(spec) || spec.is_nested()) && self.full.mask.get(spec.field) != 0;
        attribute.fields().any(is_constrained)
    }

    /// Whether every packet that is matched has the header, so that it is written even if it is wild. Its requirement is
    /// met already.
    fn is_implied(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::Tunnel | Attribute::InPort | Attribute::PacketType | Attribute::EthType => false,
            Attribute::CtTuple4 | Attribute::CtTuple6 | Attribute::TcpFlags | Attribute::NdExt => false,
            // OVS takes no neighbour message without it (`parse_l2_5_onward` in `lib/odp-util.c`).
            Attribute::Nd => {
                let types = [ND_NEIGHBOR_SOLICIT, ND_NEIGHBOR_ADVERT];
                types.iter().any(|number| self.full.is_exactly(Field::Icmpv6Type, *number))
                    && self.full.is_exactly(Field::Icmpv6Code, 0)
            }
            // OVS does not read it.
            Attribute::Nsh => false,
            // A packet of another type begins with what its type says.
            Attribute::Ethernet => self.full.key.get(Field::PacketTypeNs) == 0,
            _ => match attribute.spec().requires {
                Requirement::Nothing | Requirement::EthType(_) => true,
                Requirement::IpProto(_) | Requirement::EthTypeAndProto(..) => {
                    !self.full.is_exactly(Field::Ipv4Frag, FRAGMENT_LATER.into())
                }
            },
        }
    }
}
