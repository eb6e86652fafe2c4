//! `dump-flows`: as OVS prints flows, as JSON, or as a table.

use std::io::Write;

use clap::Args;
use comfy_table::{Row, Table};
use serde::Deserialize;

use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;
use crate::terminal;

const METHOD: &str = "sluice/dump-flows";

/// Rows of one table. A longer dump becomes several, so that no dump is held in memory as a whole.
const ROWS: usize = 5_000;

/// List the flows, as `ovs-appctl dpctl/dump-flows` does
#[derive(Debug, Args)]
pub(crate) struct DumpFlows {
    /// Print everything: UFID, fields that are not matched, offload state, refusal; with --json, also the counters of hardware
    /// and software apart, which are read from the device flow by flow
    #[arg(short, long)]
    more: bool,
    /// Print ports by name
    #[arg(long)]
    names: bool,
    /// Print a JSON array
    #[arg(long, conflicts_with_all = ["names", "table"])]
    json: bool,
    /// Print a table that fits the terminal, a line a flow; what does not fit is cut off
    #[arg(long, conflicts_with_all = ["more", "names"])]
    table: bool,
    /// type=offloaded, non-offloaded, partially-offloaded, all or the name of a backend, and filter=MATCH
    #[arg(value_name = "type=..|filter=..")]
    selection: Vec<String>,
}

impl DumpFlows {
    fn params(&self) -> Vec<&str> {
        let options = [(self.more, "-m"), (self.names, "--names")];
        let options = options.into_iter().filter_map(|(given, option)| given.then_some(option));
        options.chain(self.selection.iter().map(String::as_str)).collect()
    }
}

impl Run for DumpFlows {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let (mut connection, params) = (agent.connect()?, self.params());
        if self.json {
            array(&mut connection, &params, out)?;
        } else if self.table {
            table(&mut connection, &params, terminal::width(), out)?;
        } else {
            connection.print("dpctl/dump-flows", &params, out)?;
        }
        Ok(Outcome::Done)
    }
}

/// The objects of the agent's lines, as the elements of an array.
fn array(connection: &mut Connection, params: &[&str], out: &mut dyn Write) -> Result<(), CliError> {
    let mut before = "[\n";
    connection.lines(METHOD, params, &mut |line| {
        let written = write!(out, "{before}{line}");
        before = ",\n";
        written.map_err(CliError::Output)
    })?;
    let end = if before == ",\n" { "\n]\n" } else { "[]\n" };
    out.write_all(end.as_bytes()).map_err(CliError::Output)
}

/// What the table shows of a flow.
#[derive(Deserialize)]
struct Flow {
    key: String,
    actions: String,
    packets: u64,
    bytes: u64,
    used_seconds: Option<f64>,
    state: String,
    refusal: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    reason: String,
}

fn table(
    connection: &mut Connection,
    params: &[&str],
    width: Option<u16>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut table = empty_table(width);
    connection.lines(METHOD, params, &mut |line| {
        let flow: Flow = serde_json::from_str(line).map_err(|_| CliError::answer(METHOD, line))?;
        table.add_row(row(flow, width.is_some()));
        if table.row_count() == ROWS {
            let full = std::mem::replace(&mut table, empty_table(width));
            write_table(&full, out)?;
        }
        Ok(())
    })?;
    if table.is_empty() { Ok(()) } else { write_table(&table, out) }
}

fn empty_table(width: Option<u16>) -> Table {
    terminal::table(width, &["key", "actions", "packets", "bytes", "used", "state", "reason"], &[2, 3, 4])
}

fn row(flow: Flow, fits: bool) -> Row {
    // On a terminal a flow is one line. What says nothing goes first, so that what is cut off is at the end.
    let shortened = |text: String| if fits { text.replace("recirc_id(0),", "").replace("eth(),", "") } else { text };
    let cells = [
        shortened(flow.key),
        flow.actions,
        flow.packets.to_string(),
        flow.bytes.to_string(),
        flow.used_seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.3}s")),
        flow.state,
        flow.refusal.map(|refusal| refusal.reason).unwrap_or_default(),
    ];
    let mut row = Row::from(cells);
    if fits {
        row.max_height(1);
    }
    row
}

fn write_table(table: &Table, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "{}", table.trim_fmt()).map_err(CliError::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(width: Option<u16>) -> String {
        let mut table = empty_table(width);
        let flow = Flow {
            key: "recirc_id(0),in_port(client),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)".into(),
            actions: "set(ipv4(ttl=63)),server".into(),
            packets: 12,
            bytes: 1_234,
            used_seconds: Some(0.5),
            state: "refused".into(),
            refusal: Some(Refusal { reason: "field dp_hash: the device has no such field".into() }),
        };
        table.add_row(row(flow, width.is_some()));
        table.trim_fmt()
    }

    #[test]
    fn a_table_fits_the_terminal_and_is_a_line_a_flow_elsewhere() {
        for width in [20, 80, 100, 200] {
            let text = rendered(Some(width));
            assert!(width < 80 || text.lines().all(|line| line.chars().count() <= width.into()), "{text}");
            // The header, the line below it and those around, and the flow.
            assert!(width < 80 || text.lines().count() == 5, "{text}");
        }
        let text = rendered(None);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(" recirc_id(0),in_port(client),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no) "));
        assert!(!text.contains('\u{1b}'));
    }
}
