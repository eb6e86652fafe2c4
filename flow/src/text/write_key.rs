//! Keys, written: first what they look like, which is the same for all keys of one mask and the same headers, then the values.

use super::Style;
use super::pieces::{Get, Pieces};
use super::read_value::is_in_parentheses;
use super::tunnel_options::TUNNEL_OPTIONS;
use super::write_options::{is_mentioned, write_options};
use crate::field::{
    ATTRIBUTES, Attribute, FRAGMENT_LATER, Field, FieldSpec, Form, MPLS_ENTRIES, MPLS_PRESENT, Requirement,
};
use crate::key::Match;

/// Types of ICMPv6 (RFC 4861, 4.3 and 4.4).
const ND_NEIGHBOR_SOLICIT: u128 = 135;
const ND_NEIGHBOR_ADVERT: u128 = 136;

/// Says what a key looks like.
///
/// It depends on the mask and on no values but those of the fields that [`SHAPE`](super::write_layout) holds: what looks at the value
/// of another one here is wrong for every key but the first.
pub(super) fn describe_key(out: &mut impl Pieces, full: &Match, style: &Style<'_>) {
    let mut writer = KeyWriter { out, full, more: style.more, separator: "", encapsulations: 0 };
    for row in ATTRIBUTES {
        writer.write_row(row.attribute);
    }
    for _ in 0..writer.encapsulations {
        writer.out.text(")");
    }
}

/// Says what some fields of an attribute look like, as `name(...)`. `get` tells value and mask of a field; with `wild`, fields of
/// mask zero are written, too.
pub(super) fn describe_attribute(out: &mut impl Pieces, attribute: Attribute, get: Get<'_>, wild: bool) {
    if attribute == Attribute::Mpls {
        return describe_stack(out, get);
    }
    let is_tag = matches!(attribute, Attribute::Vlan | Attribute::Cvlan);
    out.text(if is_tag { Attribute::Vlan.name() } else { attribute.name() });
    out.text("(");
    let mut separator = "";
    for spec in attribute.fields() {
        let options = TUNNEL_OPTIONS.iter().find(|options| options.present == spec.field);
        if let Some(options) = options.filter(|options| is_mentioned(options, get)) {
            out.text(std::mem::replace(&mut separator, ","));
            write_options(out, options, get);
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
        out.text(std::mem::replace(&mut separator, ","));
        out.text(spec.name);
        out.text(open);
        out.value(spec.field);
        out.text(close);
    }
    out.text(")");
}

fn describe_stack(out: &mut impl Pieces, get: Get<'_>) {
    let is_there = |(present, entry): (&Field, &[Field; 4])| {
        get(*present) == (1, 1) || entry.iter().any(|field| get(*field).1 != 0)
    };
    let behind_first = MPLS_PRESENT[1..].iter().zip(&MPLS_ENTRIES[1..]).rposition(is_there);
    let entries = behind_first.map_or(1, |last| last + 2);
    let is_exact = MPLS_ENTRIES[..entries].iter().flatten().all(|field| get(*field).1 == field.full_mask());
    out.text("mpls(");
    out.stack(entries, is_exact);
    out.text(")");
}

/// The CFI bit is 1 where a tag is matched and the bit not written; see the reader.
fn shows_cfi(value: u128, mask: u128, tag_mask: u128) -> bool {
    let unwritten = if tag_mask == 0 { (0, 0) } else { (1, 1) };
    (value, mask) != unwritten
}

struct KeyWriter<'a, P> {
    out: &'a mut P,
    full: &'a Match,
    more: bool,
    separator: &'static str,
    /// How many `encap(` are open.
    encapsulations: usize,
}

impl<P: Pieces> KeyWriter<'_, P> {
    fn write_row(&mut self, attribute: Attribute) {
        match attribute {
            Attribute::Vlan => self.write_tag(attribute, Field::VlanPresent, Field::VlanTpid),
            Attribute::Cvlan => self.write_tag(attribute, Field::CvlanPresent, Field::CvlanTpid),
            // A tunnel's wild fields are those of both IP versions: nobody wants to read them.
            Attribute::Tunnel if self.is_present(Field::TunnelPresent) => self.write(attribute, false),
            // Says that packets begin with an Ethernet header, unless packet_type() says it.
            Attribute::Ethernet if !self.more && !self.constrains(Attribute::PacketType) => {
                self.write(attribute, false)
            }
            _ if !self.full.meets(attribute.spec().requires) => {}
            _ if self.constrains(attribute) || self.more && self.is_implied(attribute) => {
                // What is wild in an NSH header OVS never writes.
                self.write(attribute, self.more && !matches!(attribute, Attribute::Tunnel | Attribute::Nsh));
            }
            _ => {}
        }
    }

    fn write_tag(&mut self, attribute: Attribute, present: Field, tpid: Field) {
        if !self.is_present(present) {
            return;
        }
        if self.full.mask.get(tpid) != 0 {
            self.out.text(std::mem::replace(&mut self.separator, ","));
            self.out.text("eth_type(");
            self.out.value(tpid);
            self.out.text(")");
        }
        self.write(attribute, self.more);
        self.out.text(",encap(");
        self.separator = "";
        self.encapsulations += 1;
    }

    fn write(&mut self, attribute: Attribute, wild: bool) {
        self.out.text(std::mem::replace(&mut self.separator, ","));
        let full = self.full;
        describe_attribute(self.out, attribute, &|field| (full.key.get(field), full.mask.get(field)), wild);
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
            // OVS does not have them, and shall read what does not look at them.
            Attribute::NumOfVlans | Attribute::Pppoe | Attribute::Cfm | Attribute::L2tpv3 | Attribute::Ipsec => false,
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
