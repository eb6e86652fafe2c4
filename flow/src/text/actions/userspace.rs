//! Actions that tell somebody of a packet.

use std::fmt;

use super::arguments::{
    HexBytes, arguments, flag, hex_bytes, number, parenthesised, placed_flag, plain_number, read_arguments, value,
};
use crate::action::{Action, FlowSample, SLOW_PATH_REASONS, SampleDirection, ToController, UserData, Userspace};
use crate::port::PortNames;
use crate::text::cursor::{Cursor, error_at};
use crate::text::read_value::read_port;
use crate::text::write_value::{Hex, write_port};
use crate::text::{ParseError, Style};

/// Bytes that the attributes of a `userspace` action may come to: those of a netlink attribute without its header
/// (`nl_attr_oversized` in `lib/netlink.c` of OVS).
const ATTRIBUTES_LIMIT: usize = 0xffff - ATTRIBUTE_HEADER;
const ATTRIBUTE_HEADER: usize = 4;
/// Bytes of the cookie of `psample`, as in OVS (`OVS_PSAMPLE_COOKIE_MAX_SIZE`).
const COOKIE: usize = 16;

/// Reads the arguments of `userspace`.
pub(super) fn read_userspace(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<Userspace, ParseError> {
    const NAMES: &[&str] =
        &["pid", "sFlow", "slow_path", "flow_sample", "ipfix", "controller", "userdata", "actions", "tunnel_out_port"];
    cursor.expect("(")?;
    let (mut pid, mut data, mut actions, mut tunnel_port) = (None, None, false, None);
    let mut data_start = cursor.offset();
    let end = read_arguments(cursor, "userspace", NAMES, &mut |cursor, name| {
        let start = cursor.offset() - name.len();
        let note = match name {
            "pid" => {
                pid = Some(number(u32::MAX)(cursor)?);
                return Ok(());
            }
            "actions" => {
                actions = true;
                return Ok(());
            }
            "tunnel_out_port" => {
                tunnel_port = Some(value(|cursor| read_port(cursor, names))(cursor)?);
                return Ok(());
            }
            "sFlow" => read_sflow(cursor)?,
            "slow_path" => parenthesised(read_reasons)(cursor)?,
            "flow_sample" => read_flow_sample(cursor, names)?,
            "ipfix" => read_ipfix(cursor, names)?,
            "controller" => read_controller(cursor)?,
            _ => parenthesised(read_bytes)(cursor)?,
        };
        if data.replace(note).is_some() {
            return Err(error_at(start, format!("one note: there is another at byte {data_start}")));
        }
        data_start = start;
        Ok(())
    })?;
    let pid = pid.ok_or_else(|| error_at(end, "pid in userspace()"))?;
    let userspace = Userspace { pid, data, actions, tunnel_port };
    let excess = attributes_size(&userspace).saturating_sub(ATTRIBUTES_LIMIT);
    if excess > 0 {
        return Err(error_at(
            data_start,
            format!("userdata shorter by {excess} bytes, which is what netlink can carry"),
        ));
    }
    Ok(userspace)
}

/// Bytes of the attributes in a netlink message.
fn attributes_size(userspace: &Userspace) -> usize {
    let number = ATTRIBUTE_HEADER + 4;
    let data = match &userspace.data {
        Some(UserData::Bytes(bytes)) => ATTRIBUTE_HEADER + bytes.len().next_multiple_of(4),
        _ => 0,
    };
    let actions = if userspace.actions { ATTRIBUTE_HEADER } else { 0 };
    let tunnel_port = if userspace.tunnel_port.is_some() { number } else { 0 };
    number + data + actions + tunnel_port
}

fn read_sflow(cursor: &mut Cursor<'_>) -> Result<UserData, ParseError> {
    cursor.expect("(")?;
    let (vid, pcp, output) = arguments!(cursor, "sFlow";
        vid: number(0xfffu16),
        pcp: number(7u8),
        output: number(u32::MAX),
    );
    Ok(UserData::SFlow { vid, pcp, output })
}

/// Reads reasons by name or by number; OVS prints commas between them, and reads bars.
fn read_reasons(cursor: &mut Cursor<'_>) -> Result<UserData, ParseError> {
    let mut reasons = 0;
    while cursor.peek() != Some(b')') {
        let start = cursor.offset();
        if cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            reasons |= plain_number(cursor, u32::MAX)?;
        } else {
            let name = cursor.take_name();
            let Some((_, bit)) = SLOW_PATH_REASONS.iter().find(|(reason, _)| *reason == name) else {
                let names: Vec<_> = SLOW_PATH_REASONS.iter().map(|(reason, _)| *reason).collect();
                return Err(error_at(start, format!("a reason: {}", names.join(", "))));
            };
            reasons |= bit;
        }
        if !cursor.eat("|") && !cursor.eat(",") {
            break;
        }
    }
    Ok(UserData::SlowPath(reasons))
}

fn read_flow_sample(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<UserData, ParseError> {
    cursor.expect("(")?;
    let (probability, collector_set_id, obs_domain_id, obs_point_id, output_port, ingress, egress) = arguments!(
        cursor, "flow_sample";
        probability: number(u16::MAX),
        collector_set_id: number(u32::MAX),
        obs_domain_id: number(u32::MAX),
        obs_point_id: number(u32::MAX),
        output_port: value(|cursor| read_port(cursor, names)),
        ingress: flag => false,
        egress: placed_flag("egress") => None,
    );
    let direction = match (ingress, egress) {
        (true, Some(offset)) => return Err(error_at(offset, "ingress or egress, not both")),
        (true, None) => Some(SampleDirection::Ingress),
        (false, Some(_)) => Some(SampleDirection::Egress),
        (false, None) => None,
    };
    Ok(UserData::FlowSample(FlowSample {
        probability,
        collector_set_id,
        obs_domain_id,
        obs_point_id,
        output_port,
        direction,
    }))
}

fn read_ipfix(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<UserData, ParseError> {
    cursor.expect("(")?;
    let (output_port,) = arguments!(cursor, "ipfix"; output_port: value(|cursor| read_port(cursor, names)));
    Ok(UserData::Ipfix { output_port })
}

fn read_controller(cursor: &mut Cursor<'_>) -> Result<UserData, ParseError> {
    cursor.expect("(")?;
    let (reason, dont_send, continuation, recirc_id, rule_cookie, controller_id, max_len) = arguments!(
        cursor, "controller";
        reason: number(u16::MAX),
        dont_send: number(1u8),
        continuation: number(1u8),
        recirc_id: number(u32::MAX),
        rule_cookie: number(u64::MAX),
        controller_id: number(u16::MAX),
        max_len: number(u16::MAX),
    );
    let (dont_send, continuation) = (dont_send == 1, continuation == 1);
    Ok(UserData::Controller(ToController {
        reason,
        dont_send,
        continuation,
        recirc_id,
        rule_cookie,
        controller_id,
        max_len,
    }))
}

fn read_bytes(cursor: &mut Cursor<'_>) -> Result<UserData, ParseError> {
    let start = cursor.offset();
    let bytes = hex_bytes(cursor);
    if cursor.since(start).len() % 2 == 1 {
        return Err(cursor.error("another hexadecimal digit: two make an byte"));
    }
    Ok(UserData::Bytes(bytes.into()))
}

/// Reads the arguments of `psample`.
pub(super) fn read_psample(cursor: &mut Cursor<'_>) -> Result<Action, ParseError> {
    cursor.expect("(")?;
    let (group, cookie) = arguments!(cursor, "psample";
        group: number(u32::MAX),
        cookie: value(read_cookie) => Box::default(),
    );
    Ok(Action::Psample { group, cookie })
}

/// Reads a cookie. OVS prints it without zeros in front, and `0` if there is nothing else; a byte may be half, a zero in
/// front of it may be lost.
fn read_cookie(cursor: &mut Cursor<'_>) -> Result<Box<[u8]>, ParseError> {
    let start = cursor.offset();
    let prefixed = cursor.eat("0x");
    let cookie = hex_bytes(cursor);
    let zero = !prefixed && cursor.since(start) == "0";
    if cookie.is_empty() || cookie.len() > COOKIE || !prefixed && !zero {
        return Err(error_at(start, format!("0x and the hexadecimal digits of at most {COOKIE} bytes")));
    }
    Ok(cookie.into())
}

/// Writes `userspace`.
pub(super) fn write_userspace(out: &mut dyn fmt::Write, userspace: &Userspace, style: &Style<'_>) -> fmt::Result {
    write!(out, "userspace(pid={}", userspace.pid)?;
    if let Some(data) = &userspace.data {
        out.write_char(',')?;
        write_data(out, data, style)?;
    }
    if userspace.actions {
        out.write_str(",actions")?;
    }
    if let Some(port) = userspace.tunnel_port {
        out.write_str(",tunnel_out_port=")?;
        write_port(out, port, style)?;
    }
    out.write_char(')')
}

fn write_data(out: &mut dyn fmt::Write, data: &UserData, style: &Style<'_>) -> fmt::Result {
    match data {
        UserData::SFlow { vid, pcp, output } => write!(out, "sFlow(vid={vid},pcp={pcp},output={output}"),
        UserData::SlowPath(reasons) => {
            out.write_str("slow_path(")?;
            write_reasons(out, *reasons)
        }
        UserData::FlowSample(FlowSample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            output_port,
            direction,
        }) => {
            write!(out, "flow_sample(probability={probability},collector_set_id={collector_set_id}")?;
            write!(out, ",obs_domain_id={obs_domain_id},obs_point_id={obs_point_id},output_port=")?;
            write_port(out, *output_port, style)?;
            out.write_str(match direction {
                Some(SampleDirection::Ingress) => ",ingress",
                Some(SampleDirection::Egress) => ",egress",
                None => "",
            })
        }
        UserData::Ipfix { output_port } => {
            out.write_str("ipfix(output_port=")?;
            write_port(out, *output_port, style)
        }
        UserData::Controller(ToController {
            reason,
            dont_send,
            continuation,
            recirc_id,
            rule_cookie,
            controller_id,
            max_len,
        }) => {
            let [dont_send, continuation] = [dont_send, continuation].map(|flag| u8::from(*flag));
            write!(out, "controller(reason={reason},dont_send={dont_send},continuation={continuation}")?;
            write!(out, ",recirc_id={recirc_id},rule_cookie={}", Hex((*rule_cookie).into()))?;
            write!(out, ",controller_id={controller_id},max_len={max_len}")
        }
        UserData::Bytes(bytes) => write!(out, "userdata({}", HexBytes(bytes)),
    }?;
    out.write_char(')')
}

/// Writes the names of reasons, then all bits without a name as one number.
fn write_reasons(out: &mut dyn fmt::Write, reasons: u32) -> fmt::Result {
    let mut unnamed = reasons;
    let mut separator = "";
    for (name, bit) in SLOW_PATH_REASONS.iter().filter(|(_, bit)| reasons & bit != 0) {
        write!(out, "{separator}{name}")?;
        separator = "|";
        unnamed &= !bit;
    }
    if unnamed != 0 || reasons == 0 { write!(out, "{separator}{}", Hex(unnamed.into())) } else { Ok(()) }
}

/// Writes `psample`.
pub(super) fn write_psample(out: &mut dyn fmt::Write, group: u32, cookie: &[u8]) -> fmt::Result {
    write!(out, "psample(group={group}")?;
    if !cookie.is_empty() {
        write!(out, ",cookie=0x{}", HexBytes(cookie))?;
    }
    out.write_char(')')
}
