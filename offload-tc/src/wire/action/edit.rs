//! Edits of headers (`act_pedit` in its extended form, `include/uapi/linux/tc_act/tc_pedit.h`).

use sluice_netdev::netlink::attribute::{Attribute, Attributes, Fields, Malformed, Writer};

use super::common::{Common, without_parameters};

const PARAMETERS: u16 = 4;
const KEYS: u16 = 5;
const KEY: u16 = 6;
const KEY_HEADER: u16 = 1;
const KEY_COMMAND: u16 = 2;

/// The header that an offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Whatever follows the Ethernet header and the tags.
    Network = 0,
    /// Ethernet.
    Ethernet = 1,
    /// IPv4.
    Ipv4 = 2,
    /// IPv6.
    Ipv6 = 3,
    /// TCP.
    Tcp = 4,
    /// UDP.
    Udp = 5,
}

/// How a word is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bits are set.
    Set = 0,
    /// A number is added, modulo the editable bits, in the machine's byte order.
    Add = 1,
}

/// An edit of one 32-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditKey {
    /// The header that the offset counts from.
    pub header: Header,
    /// How the word is edited.
    pub command: Command,
    /// The offset of the word in bytes, a multiple of 4.
    pub offset: u32,
    /// The new value in network byte order.
    pub value: u32,
    /// The editable bits.
    pub mask: u32,
}

pub(super) fn emit(keys: &[EditKey], common: Common, writer: &mut Writer<'_>) {
    // Translation edits at most ten words at once; more than the count can hold are cut off.
    let count = u8::try_from(keys.len()).unwrap_or(u8::MAX);
    common.put(PARAMETERS, writer, |writer| {
        let flags = 0;
        writer.raw(&[count, flags, 0, 0]);
        for key in keys.iter().take(count.into()) {
            let [at, offset_mask, shift] = [0u32; 3];
            writer.raw(&(!key.mask).to_be_bytes());
            writer.raw(&key.value.to_be_bytes());
            for word in [key.offset, at, offset_mask, shift] {
                writer.raw(&word.to_ne_bytes());
            }
        }
    });
    writer.nest(KEYS, |writer| {
        for key in keys.iter().take(count.into()) {
            writer.nest(KEY, |writer| {
                writer.put(KEY_HEADER, &(key.header as u16).to_ne_bytes());
                writer.put(KEY_COMMAND, &(key.command as u16).to_ne_bytes());
            });
        }
    });
}

pub(super) fn parse(options: Attributes<'_>) -> Result<(Vec<EditKey>, Common), Malformed> {
    let (mut parameters, mut kinds) = (None, Vec::new());
    for attribute in options {
        let attribute = attribute?;
        match attribute.kind {
            PARAMETERS => parameters = Some(attribute),
            KEYS => {
                for key in attribute.nested("pedit keys") {
                    kinds.push(parse_kind(&key?)?);
                }
            }
            1 | 3 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    let parameters = parameters.ok_or(without_parameters("pedit", PARAMETERS))?;
    let mut fields = Fields::new(parameters.payload, "pedit");
    let common = Common::read(&mut fields)?;
    let [count, _flags, _, _] = fields.bytes()?;
    if usize::from(count) != kinds.len() {
        return Err(parameters.value("not as many words as kinds of them"));
    }
    let mut keys = Vec::with_capacity(kinds.len());
    for (header, command) in kinds {
        let mask = !u32::from_be_bytes(fields.bytes()?);
        let value = u32::from_be_bytes(fields.bytes()?);
        let (offset, at, offset_mask, shift) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        if (at, offset_mask, shift) != (0, 0, 0) {
            return Err(parameters.value("an offset that the packet tells"));
        }
        keys.push(EditKey { header, command, offset, value, mask });
    }
    Ok((keys, common))
}

fn parse_kind(key: &Attribute<'_>) -> Result<(Header, Command), Malformed> {
    if key.kind != KEY {
        return Err(key.unknown());
    }
    let (mut header, mut command) = (Header::Network, Command::Set);
    for attribute in key.nested("pedit key") {
        let attribute = attribute?;
        match (attribute.kind, attribute.u16()?) {
            (KEY_HEADER, 0) => header = Header::Network,
            (KEY_HEADER, 1) => header = Header::Ethernet,
            (KEY_HEADER, 2) => header = Header::Ipv4,
            (KEY_HEADER, 3) => header = Header::Ipv6,
            (KEY_HEADER, 4) => header = Header::Tcp,
            (KEY_HEADER, 5) => header = Header::Udp,
            (KEY_COMMAND, 0) => command = Command::Set,
            (KEY_COMMAND, 1) => command = Command::Add,
            (KEY_HEADER | KEY_COMMAND, other) => return Err(attribute.value(other.to_string())),
            _ => return Err(attribute.unknown()),
        }
    }
    Ok((header, command))
}
