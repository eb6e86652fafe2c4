//! Rules of policy routing (`include/uapi/linux/fib_rules.h`).

use crate::control::Control;
use crate::error::LinkError;
use crate::kind;
use crate::netlink::attribute::{Attributes, Malformed};
use crate::netlink::message::Message;

/// Bytes of `struct fib_rule_hdr`.
const HEADER: usize = 12;
/// `FRA_IP_PROTO`, `FRA_SPORT_RANGE` and `FRA_DPORT_RANGE`
const OF_PORTS: [u16; 3] = [22, 23, 24];

/// Returns whether some rule, of IPv4 or IPv6, is only for packets of a protocol or with some ports, so that packets from one address to another
/// may take different ways.
pub(crate) fn rules_look_at_ports(control: &mut Control) -> Result<bool, LinkError> {
    let of_all_families = [0; HEADER];
    let each = |found: &mut bool, message: &Message<'_>| {
        *found |= looks_at_ports(message)?;
        Ok(())
    };
    control.dump("list the rules of routing", kind::GET_RULE, |writer| writer.raw(&of_all_families), each)
}

fn looks_at_ports(message: &Message<'_>) -> Result<bool, Malformed> {
    let mut found = false;
    if message.header.kind == kind::NEW_RULE {
        for attribute in Attributes::new(message.payload.get(HEADER..).unwrap_or_default(), "rule of routing") {
            found |= OF_PORTS.contains(&attribute?.kind);
        }
    }
    Ok(found)
}
