//! Options and other arguments of a command.

use std::time::Duration;

use sluice_control::duration::parse_duration;
use sluice_flow::{Expiry, Priority};
use sluice_unixctl::Peer;

use super::failure::Failure;
use crate::service::AgentView;

/// The arguments of a command, options taken out.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// Who asks, if it is a client.
    pub(super) peer: Option<Peer>,
    /// What is not an option, in order.
    pub(super) rest: Vec<String>,
    /// `-m`.
    pub(super) more: bool,
    /// `-s`.
    pub(super) statistics: bool,
    /// `--names` or `--no-names`; without either, names go with `-m`.
    pub(super) names: Option<bool>,
    /// `--may-create`.
    pub(super) may_create: bool,
    /// `--no-wait`.
    pub(super) no_wait: bool,
    /// `--keep-old-rule`.
    pub(super) keep_old_rule: bool,
    /// `--fix`.
    pub(super) fix: bool,
    /// `--yes`.
    pub(super) yes: bool,
    /// `--owner=ID`, each time.
    pub(super) owners: Vec<u32>,
    /// `--json`.
    pub(super) json: bool,
    /// `--priority=N`.
    pub(super) priority: Option<Priority>,
    /// `--idle-timeout=`, `--hard-timeout=`, `--permanent`.
    pub(super) expiry: Option<Expiry>,
}

impl Arguments {
    /// Takes the options out that the command has.
    pub(super) fn parse(args: &[String], options: &[&str]) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        for arg in args {
            if arg.len() < 2 || !arg.starts_with('-') {
                parsed.rest.push(arg.clone());
                continue;
            }
            let (option, value) = match arg.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (arg.as_str(), None),
            };
            if !options.contains(&option) {
                return Err(Failure(format!("Unrecognized option {arg}")));
            }
            match (option, value) {
                ("-m" | "--more", None) => parsed.more = true,
                ("-s" | "--statistics", None) => parsed.statistics = true,
                ("--names", None) => parsed.names = Some(true),
                ("--no-names", None) => parsed.names = Some(false),
                ("--may-create", None) => parsed.may_create = true,
                ("--no-wait", None) => parsed.no_wait = true,
                ("--keep-old-rule", None) => parsed.keep_old_rule = true,
                ("--fix", None) => parsed.fix = true,
                ("--yes", None) => parsed.yes = true,
                ("--owner", Some(value)) => {
                    let owner = u32::from_str_radix(value, 16);
                    let owner =
                        owner.map_err(|_| Failure::new(format_args!("{arg}: an owner is a hexadecimal number")))?;
                    parsed.owners.push(owner);
                }
                ("--json", None) => parsed.json = true,
                ("--permanent", None) => parsed.expiry.get_or_insert_default().permanent = true,
                ("--priority", Some(value)) => parsed.priority = Some(priority(value)?),
                ("--idle-timeout", Some(value)) => {
                    parsed.expiry.get_or_insert_default().idle = Some(duration(option, value)?);
                }
                ("--hard-timeout", Some(value)) => {
                    parsed.expiry.get_or_insert_default().hard = Some(duration(option, value)?);
                }
                ("--clear", None) => {
                    return Err(Failure::new("--clear is not possible: the counters of a flow never run backwards"));
                }
                _ => return Err(Failure(format!("Unrecognized option {arg}"))),
            }
        }
        Ok(parsed)
    }

    /// What is left after an optional datapath name in front, which must be ours. `most` arguments can follow it.
    pub(super) fn after_datapath(&self, agent: &AgentView, most: usize) -> Result<&[String], Failure> {
        let is_name = |arg: &String| *arg == agent.datapath() || *arg == agent.config().device;
        match self.rest.split_first() {
            Some((first, rest)) if is_name(first) => Ok(rest),
            Some((first, _)) if self.rest.len() > most || looks_like_datapath(first) => {
                Err(Failure::os(format!("opening datapath {first}"), "No such device"))
            }
            _ => Ok(&self.rest),
        }
    }

    /// Whether ports are written by name.
    pub(super) fn with_names(&self) -> bool {
        self.names.unwrap_or(self.more)
    }
}

/// Whether an argument is of the form `type@name`.
fn looks_like_datapath(arg: &str) -> bool {
    arg.contains('@') && !arg.contains(['(', '='])
}

fn priority(text: &str) -> Result<Priority, Failure> {
    let number = text.parse().ok().and_then(Priority::new);
    number
        .ok_or_else(|| Failure::new(format_args!("--priority takes a number from 0 to {}, not {text}", Priority::MAX)))
}

fn duration(option: &str, text: &str) -> Result<Duration, Failure> {
    parse_duration(text).map_err(|error| Failure::new(format_args!("{option}: {error}")))
}
