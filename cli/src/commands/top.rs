//! `top`: the busiest flows, over and over.

mod flows;
mod screen;

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::Value;
use sluice_control::duration::parse_duration;

use self::flows::{Busy, History, Look, look};
use self::screen::{Key, Keyboard};
use super::statistics;
use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;
use crate::terminal;

/// Goes to the upper left corner and clears what is below (ECMA-48).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show the busiest flows, over and over, until Ctrl-C
///
/// On a terminal, p sorts by packets, b by bytes, k by key; / filters by a text in key or actions; space stops and goes on; q ends.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Show at most this many flows [default: as fit the terminal, or 20]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// Measure rates over this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Show this many times; without it until Ctrl-C
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Packets)]
    sort: Sort,
    /// Show only flows with this text in their key or actions
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The flow with the most packets a second.
    Packets,
    /// The flow with the most bytes a second.
    Bytes,
    /// The first key in alphabetical order.
    Key,
}

/// What can be changed while it runs.
struct View {
    sort: Sort,
    filter: String,
    /// A filter that is being typed.
    typed: Option<String>,
    is_paused: bool,
}

impl Run for Top {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let mut connection = agent.connect()?;
        let keyboard = terminal::width().and_then(|_| Keyboard::open());
        let mut view = View { sort: self.sort, filter: self.filter.clone(), typed: None, is_paused: false };
        let mut history = History::default();
        let mut before = look(&mut connection, None, &view.filter, view.sort, 0)?.now;
        let mut copied_before = Copied::look(&mut connection)?;
        let mut left = self.count;
        while left != Some(0) {
            if !self.wait(keyboard.as_ref(), &mut view, out)? {
                break;
            }
            if view.is_paused {
                continue;
            }
            let (width, height) = (terminal::width(), terminal::height());
            // Title, help, mirrored classes, header and lines around it.
            let rows =
                self.rows.unwrap_or_else(|| height.map_or(20, |height| usize::from(height).saturating_sub(7).max(1)));
            let found = look(&mut connection, Some(&before), &view.filter, view.sort, rows)?;
            history.note(&found.busiest);
            let copied = Copied::look(&mut connection)?;
            let mirrored = copied.since(&copied_before);
            copied_before = copied;
            let clear = if width.is_some() { CLEAR } else { "" };
            let keys = if keyboard.is_some() { format!("{}\n", view.help()) } else { String::new() };
            let text = format!(
                "{clear}{}\n{keys}{mirrored}{}\n",
                title(&found),
                frame(&found, &view, &history, width, self.interval)
            );
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
            before = found.now;
            left = left.map(|left| left - 1);
        }
        Ok(Outcome::Done)
    }
}

impl Top {
    /// Waits for the time of the next frame, and does what keys say meanwhile. False at the end.
    fn wait(&self, keyboard: Option<&Keyboard>, view: &mut View, out: &mut dyn Write) -> Result<bool, CliError> {
        let Some(keyboard) = keyboard else {
            thread::sleep(self.interval);
            return Ok(true);
        };
        let deadline = Instant::now() + self.interval;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let keys = keyboard.keys(left);
            if !keys.iter().all(|key| view.takes(*key)) {
                return Ok(false);
            }
            if left.is_zero() {
                return Ok(true);
            }
            if view.typed.is_some() {
                let prompt = format!("\x1b[2;1H\x1b[K{}", view.help());
                out.write_all(prompt.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
            }
        }
    }
}

impl View {
    /// Does what a key says. False if it is the end.
    fn takes(&mut self, key: Key) -> bool {
        if let Some(typed) = &mut self.typed {
            match key {
                Key::Letter(letter) => typed.push(letter),
                Key::Erase => drop(typed.pop()),
                Key::Enter => self.filter = self.typed.take().unwrap_or_default(),
                Key::Escape => self.typed = None,
                Key::End => return false,
            }
            return true;
        }
        match key {
            Key::Letter('p') => self.sort = Sort::Packets,
            Key::Letter('b') => self.sort = Sort::Bytes,
            Key::Letter('k') => self.sort = Sort::Key,
            Key::Letter('/') => self.typed = Some(self.filter.clone()),
            Key::Letter(' ') => self.is_paused = !self.is_paused,
            Key::Letter('q') | Key::End => return false,
            _ => {}
        }
        true
    }

    fn help(&self) -> String {
        if let Some(typed) = &self.typed {
            return format!("filter: {typed}_ (Enter takes it, Escape does not)");
        }
        let sort = match self.sort {
            Sort::Packets => "packets",
            Sort::Bytes => "bytes",
            Sort::Key => "key",
        };
        let filter = if self.filter.is_empty() { String::new() } else { format!(", with \"{}\"", self.filter) };
        let paused = if self.is_paused { ", STOPPED" } else { "" };
        format!("by {sort}{filter}{paused}; p packets, b bytes, k key, / filter, space stop, q end")
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

fn title(found: &Look) -> String {
    let Look { now, packets, bytes, grown, .. } = found;
    let (flows, packets, bytes) = (now.len(), rate(*packets), rate(*bytes));
    format!("{flows} flows, {grown} of them with packets, {packets} packets/s, {bytes} bytes/s")
}

fn frame(found: &Look, view: &View, history: &History, width: Option<u16>, interval: Duration) -> String {
    let Look { now, busiest, shown, .. } = found;
    if busiest.is_empty() {
        let filter = &view.filter;
        return match (now.len(), *shown) {
            (0, _) => "There are no flows: `sluice add-flow` adds one.".into(),
            (_, 0) if !filter.is_empty() => format!("No flow has \"{filter}\" in its key or actions."),
            _ => format!(
                "No flow has counted a packet for {interval:?}. Counters are as old as the last poll (`sluice show`); flows that are not \
                 in the device count nothing (`sluice dump-flows -m type=non-offloaded`)."
            ),
        };
    }
    let mut table = terminal::table(width, &["packets/s", "bytes/s", "trend", "in", "key", "actions"], &[0, 1]);
    for Busy { ufid, rate: busy, placement, key, actions } in busiest {
        let shortened =
            if width.is_some() { key.replace("recirc_id(0),", "").replace("eth(),", "") } else { key.clone() };
        let trend = history.sparkline(*ufid, view.sort == Sort::Bytes);
        let cells = [rate(busy.packets), rate(busy.bytes), trend, placement.clone(), shortened, actions.clone()];
        let mut row = comfy_table::Row::from(cells);
        if width.is_some() {
            row.max_height(1);
        }
        table.add_row(row);
    }
    table.trim_fmt()
}

fn rate(rate: f64) -> String {
    format!("{rate:.0}")
}

#[cfg(test)]
mod tests {
    use super::flows::Snapshot;
    use super::*;

    fn view() -> View {
        View { sort: Sort::Packets, filter: String::new(), typed: None, is_paused: false }
    }

    #[test]
    fn keys_sort_filter_stop_and_end() {
        let mut view = view();
        let type_in = |view: &mut View, text: &str| text.chars().all(|letter| view.takes(Key::Letter(letter)));
        assert!(type_in(&mut view, "b"));
        assert_eq!(view.sort, Sort::Bytes);
        // While a filter is typed, letters are letters.
        assert!(
            type_in(&mut view, "/quick p")
                && view.takes(Key::Erase)
                && view.takes(Key::Erase)
                && view.takes(Key::Enter)
        );
        assert_eq!((view.filter.as_str(), view.sort), ("quick", Sort::Bytes));
        assert!(type_in(&mut view, "/x") && view.takes(Key::Escape));
        assert_eq!(view.filter, "quick");
        assert!(type_in(&mut view, " ") && view.is_paused);
        assert!(!view.takes(Key::Letter('q')) && !view.takes(Key::End));
    }

    #[test]
    fn an_empty_frame_says_why_it_is_empty() {
        let of = |flows: usize, shown: usize, filter: &str| {
            let found = Look { now: Snapshot::of(flows), shown, ..Look::default() };
            let view = View { filter: filter.into(), ..view() };
            frame(&found, &view, &History::default(), None, Duration::from_secs(1))
        };
        assert!(of(0, 0, "").starts_with("There are no flows"));
        assert!(of(3, 0, "tcp").contains("No flow has \"tcp\""));
        assert!(of(3, 3, "").starts_with("No flow has counted a packet for 1s."));
    }

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
}
