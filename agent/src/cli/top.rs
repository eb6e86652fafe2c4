//! `top`: the busiest flows, over and over.

use std::collections::HashMap;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::arguments::Top;
use super::connection::Connection;
use super::error::CliError;
use super::terminal;

const METHOD: &str = "sluice/dump-flows";

/// Clears the screen and goes to its upper left corner (ECMA-48).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// `top`: shows rates once for each `count`, or until Ctrl-C.
pub(super) fn run(connection: &mut Connection, command: &Top, out: &mut dyn Write) -> Result<(), CliError> {
    let mut before = Snapshot::take(connection)?;
    let mut left = command.count;
    while left != Some(0) {
        thread::sleep(command.interval);
        let now = Snapshot::take(connection)?;
        let width = terminal::width();
        let mut table = terminal::table(width, &["packets/s", "bytes/s", "key", "actions"], &[0, 1]);
        for (rate, flow) in busiest(&before, &now, command.rows) {
            let numbers = [format!("{:.0}", rate.packets), format!("{:.0}", rate.bytes)];
            table.add_row(numbers.into_iter().chain([flow.key.clone(), flow.actions.clone()]).collect::<Vec<_>>());
        }
        let clear = if width.is_some() { CLEAR } else { "" };
        let text = format!("{clear}{} flows\n{}\n", now.flows.len(), table.trim_fmt());
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// All flows at one time.
struct Snapshot {
    at: Instant,
    flows: HashMap<String, Flow>,
}

#[derive(Deserialize)]
struct Flow {
    ufid: String,
    key: String,
    actions: String,
    packets: u64,
    bytes: u64,
}

/// How much a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Rate {
    packets: f64,
    bytes: f64,
}

impl Snapshot {
    fn take(connection: &mut Connection) -> Result<Self, CliError> {
        let mut flows = HashMap::new();
        connection.lines(METHOD, &[], &mut |line| {
            let flow: Flow = serde_json::from_str(line).map_err(|_| CliError::answer(METHOD, line))?;
            flows.insert(flow.ufid.clone(), flow);
            Ok(())
        })?;
        Ok(Self { at: Instant::now(), flows })
    }
}

/// The flows that grew most, the first one most of all. One that is new grew from nothing.
fn busiest<'a>(before: &Snapshot, now: &'a Snapshot, rows: usize) -> Vec<(Rate, &'a Flow)> {
    let seconds = now.at.saturating_duration_since(before.at).max(Duration::from_millis(1)).as_secs_f64();
    let mut rates: Vec<_> = now
        .flows
        .values()
        .filter_map(|flow| {
            let (packets, bytes) = before.flows.get(&flow.ufid).map_or((0, 0), |old| (old.packets, old.bytes));
            let grown = (flow.packets.checked_sub(packets)?, flow.bytes.checked_sub(bytes)?);
            #[expect(clippy::cast_precision_loss, reason = "rates for people to read")]
            let rate = Rate { packets: grown.0 as f64 / seconds, bytes: grown.1 as f64 / seconds };
            (grown.0 > 0).then_some((rate, flow))
        })
        .collect();
    rates.sort_by(|(a, _), (b, _)| b.packets.total_cmp(&a.packets).then(b.bytes.total_cmp(&a.bytes)));
    rates.truncate(rows);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at: Instant, packets: &[u64]) -> Snapshot {
        let flow = |(index, packets): (usize, &u64)| {
            let ufid = index.to_string();
            let flow = Flow {
                ufid: ufid.clone(),
                key: ufid.clone(),
                actions: String::new(),
                packets: *packets,
                bytes: packets * 60,
            };
            (ufid, flow)
        };
        Snapshot { at, flows: packets.iter().enumerate().map(flow).collect() }
    }

    #[test]
    fn the_busiest_come_first_and_the_idle_not_at_all() {
        let start = Instant::now();
        let before = snapshot(start, &[100, 5, 7]);
        let now = snapshot(start + Duration::from_secs(2), &[100, 25, 17, 100]);
        let shown: Vec<_> =
            busiest(&before, &now, 2).iter().map(|(rate, flow)| (rate.packets, flow.key.as_str())).collect();
        assert_eq!(shown, [(50.0, "3"), (10.0, "1")]);
    }
}
