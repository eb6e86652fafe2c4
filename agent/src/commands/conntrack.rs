//! Tracked connections: `dpctl/dump-conntrack`, `dpctl/flush-conntrack` and `dpctl/ct-…`, with the text of `lib/ct-dpif.c` and
//! `lib/dpctl.c` of OVS.

use std::fmt;

use sluice_flow::backend::Connections;
use sluice_flow::connection::{Connection, Direction, STATUS, State, TCP_FLAGS, TcpState};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::connection_line;
use super::connection_selection;
use super::failure::Failure;
use crate::service::AgentView;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Protocols of IP by the names of OVS; others are shown as numbers.
const NAMES: &[(u8, &str)] = &[(ICMP, "icmp"), (ICMPV6, "icmpv6"), (6, "tcp"), (17, "udp"), (132, "sctp")];

/// `dpctl/dump-conntrack`
pub(super) fn dump(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let zone = zone(agent, arguments)?;
    let mut done = Ok(());
    let Ok(tracked) = agent.connections() else { return Ok(()) };
    let shown = tracked.visit_connections(zone, &mut |connection| {
        if done.is_ok() {
            done = write_connection(out, &connection, arguments.more, arguments.statistics);
        }
    });
    shown.map_err(|refusal| Failure::new(format_args!("dumping conntrack entry: {refusal}")))?;
    Ok(done?)
}

/// `sluice/add-connection`
pub(super) fn add(agent: &AgentView, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let [text] = &arguments.rest[..] else { return Err(Failure::new("expected one connection")) };
    let connection = connection_line::parse(text)
        .map_err(|reason| Failure::os(format_args!("parsing connection: {reason}"), "Invalid argument"))?;
    let added = agent.connections().and_then(|tracked| tracked.add_connection(&connection));
    added.map_err(|refusal| Failure::new(format_args!("the connection cannot be added: {refusal}")))
}

/// `dpctl/flush-conntrack`
pub(super) fn flush(agent: &AgentView, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let selection = match arguments.after_datapath(agent, 5)? {
        [unknown, ..] if !unknown.is_empty() && !unknown.contains('=') => {
            return Err(Failure::os(format_args!("opening datapath {unknown}"), "No such device"));
        }
        rest => connection_selection::parse(rest).map_err(|reason| Failure::os(reason, "Invalid argument"))?,
    };
    match agent.connections().and_then(|tracked| tracked.flush_connections(&selection)) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(Failure::new(format_args!("failed to flush conntrack: {refusal}"))),
    }
}

/// `dpctl/ct-get-nconns`
pub(super) fn count(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    nothing_more(arguments.after_datapath(agent, 0)?)?;
    let count = agent.connections().and_then(Connections::connection_count);
    let count = count.map_err(|refusal| Failure::new(format_args!("nconns could not be retrieved: {refusal}")))?;
    Ok(writeln!(out, "{count}")?)
}

/// `dpctl/ct-get-maxconns`
pub(super) fn limit(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    nothing_more(arguments.after_datapath(agent, 0)?)?;
    let limit = agent.connections().and_then(Connections::connection_limit);
    let limit = limit.map_err(|refusal| Failure::new(format_args!("maxconns could not be retrieved: {refusal}")))?;
    Ok(writeln!(out, "{limit}")?)
}

/// `dpctl/ct-set-maxconns`
pub(super) fn set_limit(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let malformed = || Failure::os("maxconns missing or malformed", "Invalid argument");
    let [limit] = arguments.after_datapath(agent, 1)? else { return Err(malformed()) };
    let limit = limit.parse().map_err(|_| malformed())?;
    let set = agent.connections().and_then(|tracked| tracked.set_connection_limit(limit));
    set.map_err(|refusal| Failure::new(format_args!("ct set maxconns failed: {refusal}")))?;
    Ok(writeln!(out, "setting maxconns successful")?)
}

/// `dpctl/ct-bkts [gt=N]`: connections by bucket; of those with at most N, only that there are some.
pub(super) fn buckets(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    const IN_A_ROW: usize = 8;
    let more_than: usize = match arguments.after_datapath(agent, 1)? {
        [] => 0,
        [text, rest @ ..] => {
            nothing_more(rest)?;
            let number = text.strip_prefix("gt=").and_then(|number| number.parse::<u16>().ok());
            let wrong = || Failure::os(format_args!("{text}: expected gt=N"), "Invalid argument");
            number.ok_or_else(wrong)?.into()
        }
    };
    let buckets = agent.connections().and_then(Connections::connection_buckets);
    let buckets = buckets.map_err(|refusal| Failure::new(format_args!("starting conntrack dump: {refusal}")))?;
    let total: usize = buckets.iter().sum();
    writeln!(out, "Total Buckets: {}\nCurrent Connections: {total}\n", buckets.len())?;
    if buckets.is_empty() || total == 0 {
        return Ok(());
    }
    let rule = "+-----------+-----------------------------------------+";
    write!(out, "{rule}\n|  Buckets  |         Connections per Buckets         |\n{rule}")?;
    for (first, row) in (0..).step_by(IN_A_ROW).zip(buckets.chunks(IN_A_ROW)) {
        write!(out, "\n {first:3}..{:3}   | ", first + IN_A_ROW - 1)?;
        for count in row {
            if *count > more_than { write!(out, "{count:5}")? } else { write!(out, "{:>5}", ".")? }
        }
    }
    Ok(write!(out, "\n\n")?)
}

fn nothing_more(rest: &[String]) -> Result<(), Failure> {
    match rest {
        [] => Ok(()),
        [extra, ..] => Err(Failure::os(format_args!("{extra}: expected nothing more"), "Invalid argument")),
    }
}

/// `dpctl/ct-stats-show`
pub(super) fn statistics(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    /// The rows of OVS, which has none for ICMPv6.
    const ROWS: &[(u8, &str)] =
        &[(6, "TCP"), (17, "UDP"), (136, "UDPLITE"), (132, "SCTP"), (ICMP, "ICMP"), (33, "DCCP"), (2, "IGMP")];
    let zone = zone(agent, arguments)?;
    let (mut counts, mut states) = ([0usize; 256], vec![0usize; TcpState::ALL.len()]);
    let mut count = |connection: Connection| {
        counts[usize::from(connection.original.protocol)] += 1;
        if let State::Tcp { state, .. } = connection.state {
            states[state.in_short() as usize] += 1;
        }
    };
    if let Ok(tracked) = agent.connections() {
        let shown = tracked.visit_connections(zone, &mut count);
        shown.map_err(|refusal| Failure::new(format_args!("dumping conntrack entry: {refusal}")))?;
    }
    writeln!(out, "Connections Stats:\n    Total: {}", counts.iter().sum::<usize>())?;
    let mut other = counts.iter().sum::<usize>() - counts[usize::from(ICMPV6)];
    for (protocol, name) in ROWS {
        let count = counts[usize::from(*protocol)];
        other -= count;
        if count > 0 {
            writeln!(out, "  {name}: {count}")?;
        }
        if *name == "TCP" && count > 0 && arguments.more {
            writeln!(out, "    Conn per TCP states:")?;
            for (state, count) in TcpState::ALL.iter().zip(&states).filter(|(_, count)| **count > 0) {
                writeln!(out, "\t  [{}]={count}", state.name())?;
            }
        }
    }
    if other > 0 {
        writeln!(out, "  Other: {other}")?;
    }
    Ok(())
}

/// The zone that is meant, if one is.
fn zone(agent: &AgentView, arguments: &Arguments) -> Result<Option<u16>, Failure> {
    match arguments.after_datapath(agent, 1)? {
        [] => Ok(None),
        [text] => match text.strip_prefix("zone=").map(str::parse) {
            Some(Ok(zone)) => Ok(Some(zone)),
            _ => Err(Failure::os(format_args!("{text}: expected zone=N"), "Invalid argument")),
        },
        [_, rest @ ..] => nothing_more(rest).map(|()| None),
    }
}

/// A line (`ct_dpif_format_entry`). Packets, bytes and times are not counted, as in Linux by default.
fn write_connection(out: &mut dyn Output, connection: &Connection, more: bool, statistics: bool) -> fmt::Result {
    let protocol = connection.original.protocol;
    match NAMES.iter().find(|(number, _)| *number == protocol) {
        Some((_, name)) => write!(out, "{name}")?,
        None => write!(out, "{protocol}")?,
    }
    write_direction(out, "orig", &connection.original)?;
    write_direction(out, "reply", &connection.reply)?;
    if more {
        write!(out, ",id={}", connection.id)?;
    }
    if connection.zone != 0 {
        write!(out, ",zone={}", connection.zone)?;
    }
    if more {
        write!(out, ",status={}", flags(connection.status, &STATUS))?;
    }
    if statistics {
        write!(out, ",timeout={}", connection.timeout.as_secs())?;
    }
    if connection.mark != 0 {
        write!(out, ",mark={}", connection.mark)?;
    }
    if connection.label != 0 {
        write!(out, ",labels={:#x}", connection.label)?;
    }
    match &connection.state {
        State::Other => {}
        State::Tcp { state, .. } if !more => write!(out, ",protoinfo=(state={})", state.in_short().name())?,
        State::Tcp { state, scales: [original, reply], flags: [original_flags, reply_flags] } => {
            let name = state.name();
            write!(out, ",protoinfo=(state_orig={name},state_reply={name}")?;
            if *original != 0 || *reply != 0 {
                write!(out, ",wscale_orig={original},wscale_reply={reply}")?;
            }
            let [original, reply] = [original_flags, reply_flags].map(|bits| flags((*bits).into(), &TCP_FLAGS));
            write!(out, ",flags_orig={original},flags_reply={reply})")?;
        }
        State::Sctp { state, tags: [original, reply] } => {
            write!(out, ",protoinfo=(state={state},vtag_orig={original},vtag_reply={reply})")?;
        }
    }
    if let Some(helper) = connection.helper {
        write!(out, ",helper={helper}")?;
    }
    if let Some(parent) = connection.parent.as_ref().filter(|_| more) {
        write_direction(out, "parent", parent)?;
    }
    writeln!(out)
}

fn write_direction(out: &mut dyn Output, name: &str, direction: &Direction) -> fmt::Result {
    let Direction { source, destination, protocol, source_port, destination_port } = direction;
    write!(out, ",{name}=(src={source},dst={destination},")?;
    if matches!(*protocol, ICMP | ICMPV6) {
        let [kind, code] = destination_port.to_be_bytes();
        write!(out, "id={source_port},type={kind},code={code})")
    } else {
        write!(out, "sport={source_port},dport={destination_port})")
    }
}

/// The names of the bits that are set, or `0`.
fn flags(bits: u32, names: &[&str]) -> String {
    let set: Vec<_> = (0..).zip(names).filter(|(place, _)| bits >> place & 1 == 1).map(|(_, name)| *name).collect();
    if set.is_empty() { "0".to_owned() } else { set.join("|") }
}
