//! `top`: the busiest flows, over and over.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use sluice_control::duration::parse_duration;
use sluice_flow::Ufid;

use super::statistics;
use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;
use crate::terminal;

const METHOD: &str = "sluice/dump-flows";

/// Clears the screen and goes to its upper left corner (ECMA-48).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Show the busiest flows, over and over, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Show at most this many flows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Measure rates over this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Show this many times; without it until Ctrl-C
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl Run for Top {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let mut connection = agent.connect()?;
        let (mut before, _) = look(&mut connection, None, 0)?;
        let mut copied_before = Copied::look(&mut connection)?;
        let mut left = self.count;
        while left != Some(0) {
            thread::sleep(self.interval);
            let (now, busiest) = look(&mut connection, Some(&before), self.rows)?;
            let width = terminal::width();
            let mut table = terminal::table(width, &["packets/s", "bytes/s", "key", "actions"], &[0, 1]);
            for Busy { rate, key, actions } in busiest.0 {
                let numbers = [format!("{:.0}", rate.packets), format!("{:.0}", rate.bytes)];
                table.add_row(numbers.into_iter().chain([key, actions]).collect::<Vec<_>>());
            }
            let copied = Copied::look(&mut connection)?;
            let mirrored = copied.since(&copied_before);
            copied_before = copied;
            let clear = if width.is_some() { CLEAR } else { "" };
            let text = format!("{clear}{} flows\n{mirrored}{}\n", now.flows.len(), table.trim_fmt());
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
            before = now;
            left = left.map(|left| left - 1);
        }
        Ok(Outcome::Done)
    }
}

/// What the mirror of control traffic has copied at one time, by class.
struct Copied {
    at: Instant,
    classes: Vec<(String, u64)>,
}

impl Copied {
    fn look(connection: &mut Connection) -> Result<Self, CliError> {
        let statistics = statistics::get(connection)?;
        let classes = statistics.pointer("/mirroring/packets").and_then(Value::as_object).into_iter().flatten();
        let classes = classes.filter_map(|(class, count)| Some((class.clone(), count.as_u64()?))).collect();
        Ok(Self { at: Instant::now(), classes })
    }

    /// Says in a line how many packets a second are copied of each class; nothing if nothing is mirrored.
    fn since(&self, before: &Self) -> String {
        let seconds = self.at.saturating_duration_since(before.at).max(Duration::from_millis(1)).as_secs_f64();
        let rate = |(class, count): &(String, u64)| {
            let known = before.classes.iter().find(|(known, _)| known == class).map_or(0, |(_, count)| *count);
            #[expect(clippy::cast_precision_loss, reason = "rates for people to read")]
            let rate = count.saturating_sub(known) as f64 / seconds;
            format!("{class} {rate:.0}")
        };
        let rates: Vec<_> = self.classes.iter().map(rate).collect();
        if rates.is_empty() { String::new() } else { format!("mirrored packets/s: {}\n", rates.join(", ")) }
    }
}

/// What all flows have counted at one time. Their texts are not kept, so that a million of them fit.
struct Snapshot {
    at: Instant,
    flows: HashMap<Ufid, Counted>,
}

#[derive(Clone, Copy)]
struct Counted {
    packets: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Flow<'a> {
    #[serde(borrow)]
    ufid: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    actions: Cow<'a, str>,
    packets: u64,
    bytes: u64,
}

/// How much a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Rate {
    packets: f64,
    bytes: f64,
}

/// A flow that grew.
struct Busy {
    rate: Rate,
    key: String,
    actions: String,
}

/// The flows that grew most, the first one most of all. One that is new grew from nothing.
struct Busiest(Vec<Busy>);

/// Goes through all flows once.
fn look(connection: &mut Connection, before: Option<&Snapshot>, rows: usize) -> Result<(Snapshot, Busiest), CliError> {
    let known = before.map_or(0, |before| before.flows.len());
    let mut now = Snapshot { at: Instant::now(), flows: HashMap::with_capacity(known) };
    let mut busiest = Busiest(Vec::new());
    connection.lines(METHOD, &[], &mut |line| {
        let flow: Flow<'_> = serde_json::from_str(line).map_err(|_| CliError::answer(METHOD, line))?;
        let ufid = flow.ufid.parse().map_err(|_| CliError::answer(METHOD, line))?;
        now.flows.insert(ufid, Counted { packets: flow.packets, bytes: flow.bytes });
        if let Some(rate) = before.and_then(|before| before.rate(ufid, &flow, now.at)) {
            busiest.take(rate, &flow, rows);
        }
        Ok(())
    })?;
    Ok((now, busiest))
}

impl Snapshot {
    /// How fast a flow has grown since, if it has.
    fn rate(&self, ufid: Ufid, flow: &Flow<'_>, now: Instant) -> Option<Rate> {
        let seconds = now.saturating_duration_since(self.at).max(Duration::from_millis(1)).as_secs_f64();
        let Counted { packets, bytes } = self.flows.get(&ufid).copied().unwrap_or(Counted { packets: 0, bytes: 0 });
        let grown = (flow.packets.checked_sub(packets)?, flow.bytes.checked_sub(bytes)?);
        #[expect(clippy::cast_precision_loss, reason = "rates for people to read")]
        let rate = Rate { packets: grown.0 as f64 / seconds, bytes: grown.1 as f64 / seconds };
        (grown.0 > 0).then_some(rate)
    }
}

impl Busiest {
    /// Takes a flow in if it is one of the first `rows`.
    fn take(&mut self, rate: Rate, flow: &Flow<'_>, rows: usize) {
        let place = self.0.partition_point(|busy| busy.rate >= rate);
        if place < rows {
            self.0.truncate(rows - 1);
            self.0.insert(place, Busy { rate, key: flow.key.to_string(), actions: flow.actions.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_told_as_rates_by_class_and_only_where_there_is_a_mirror() {
        let at = Instant::now();
        let classes = |arp, bfd| vec![("arp".to_owned(), arp), ("bfd".to_owned(), bfd)];
        let before = Copied { at, classes: classes(10, 5) };
        let now = Copied { at: at + Duration::from_secs(2), classes: classes(30, 5) };
        assert_eq!(now.since(&before), "mirrored packets/s: arp 10, bfd 0\n");
        let none = || Copied { at, classes: Vec::new() };
        assert_eq!(none().since(&none()), "");
    }

    #[test]
    fn the_busiest_come_first_and_the_idle_not_at_all() {
        let at = Instant::now();
        let flows = [100, 5, 7].into_iter().zip(0..);
        let counted = |packets: u64| Counted { packets, bytes: packets * 60 };
        let before = Snapshot { at, flows: flows.map(|(packets, ufid)| (Ufid(ufid), counted(packets))).collect() };
        let mut busiest = Busiest(Vec::new());
        for (packets, ufid) in [100, 25, 17, 100].into_iter().zip(0..) {
            let key = ufid.to_string();
            let (ufid, key) = (Ufid(ufid), Cow::Borrowed(key.as_str()));
            let flow = Flow { ufid: "".into(), key, actions: "".into(), packets, bytes: packets * 60 };
            if let Some(rate) = before.rate(ufid, &flow, at + Duration::from_secs(2)) {
                busiest.take(rate, &flow, 2);
            }
        }
        let shown: Vec<_> = busiest.0.iter().map(|busy| (busy.rate.packets, busy.key.as_str())).collect();
        assert_eq!(shown, [(50.0, "3"), (10.0, "1")]);
    }
}
