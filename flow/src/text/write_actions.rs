//! Actions, written.

use std::fmt;

use super::Style;
use super::write_key::write_attribute;
use super::write_value::write_port;
use crate::action::{Action, ActionKind};

/// Writes a list of actions, `drop` if it is empty.
pub fn write_actions(out: &mut dyn fmt::Write, actions: &[Action], style: &Style<'_>) -> fmt::Result {
    if actions.is_empty() {
        return out.write_str(ActionKind::Drop.name());
    }
    for (index, action) in actions.iter().enumerate() {
        if index > 0 {
            out.write_char(',')?;
        }
        write_action(out, action, style)?;
    }
    Ok(())
}

/// Writes one action.
pub fn write_action(out: &mut dyn fmt::Write, action: &Action, style: &Style<'_>) -> fmt::Result {
    match action {
        Action::Output(port) => write_port(out, *port, style),
        Action::Meter(meter) => write!(out, "meter({meter})"),
        Action::PopVlan => out.write_str("pop_vlan"),
        Action::PushVlan(tag) => {
            out.write_str("push_vlan(")?;
            if tag.tpid != 0x8100 {
                write!(out, "tpid=0x{:04x},", tag.tpid)?;
            }
            write!(out, "vid={},pcp={}{})", tag.vid, tag.pcp, if tag.cfi { "" } else { ",cfi=0" })
        }
        Action::Recirc(chain) => write!(out, "recirc({chain})"),
        Action::Set(set) | Action::SetTunnel(set) => {
            out.write_str("set(")?;
            write_attribute(out, set.attribute, &|field| set.get(field).unwrap_or_default(), false, style)?;
            out.write_char(')')
        }
        Action::Trunc(length) => write!(out, "trunc({length})"),
        Action::Opaque(opaque) => out.write_str(&opaque.text),
    }
}
