//! Reads an outer header back as the fields that set it.

use sluice_flow::action::FieldSet;
use sluice_flow::field::{Attribute, Field};

use super::fields::{CHECKSUM, DONT_FRAGMENT, TUNNEL_KEY};
use super::options;
use super::refuse::Unreadable;
use crate::label::Spelling;
use crate::wire::action::Encapsulation;

/// The fields, without those at their defaults: no source, no ToS, no flag.
pub(super) fn read(header: &Encapsulation, spelling: Spelling) -> Result<FieldSet, Unreadable> {
    let mut fields = Vec::new();
    let mut say = |field: Field, value: u128| {
        if value != 0 {
            fields.push((field, value, field.full_mask()));
        }
    };
    if let Some((source, destination)) = header.ipv4 {
        say(Field::TunnelIpv4Src, source.to_bits().into());
        say(Field::TunnelIpv4Dst, destination.to_bits().into());
    }
    if let Some((source, destination)) = header.ipv6 {
        say(Field::TunnelIpv6Src, source.to_bits());
        say(Field::TunnelIpv6Dst, destination.to_bits());
    }
    say(Field::TunnelTos, header.tos.unwrap_or_default().into());
    say(Field::TunnelTtl, header.ttl.unwrap_or_default().into());
    say(Field::TunnelTpDst, header.port.unwrap_or_default().into());
    let mut flags = 0;
    if let Some(key) = header.key {
        flags |= TUNNEL_KEY;
        fields.push((Field::TunnelId, key.into(), Field::TunnelId.full_mask()));
    }
    flags |= if header.no_checksum { 0 } else { CHECKSUM };
    let no_fragment = header.no_fragment || spelling.has(Spelling::DF_LEFT_OUT);
    flags |= if no_fragment { DONT_FRAGMENT } else { 0 };
    if flags != 0 {
        fields.push((Field::TunnelFlags, flags.into(), Field::TunnelFlags.full_mask()));
    }
    if let Some(value) = &header.options {
        let said = options::whole(value).ok_or(Unreadable("options that no flow sets"))?;
        fields.extend(said);
    }
    fields.sort_unstable_by_key(|(field, ..)| *field);
    Ok(FieldSet { attribute: Attribute::Tunnel, fields: fields.into() })
}
