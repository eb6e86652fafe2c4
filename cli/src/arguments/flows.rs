//! What is typed about flows: which ones, and what becomes of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sluice_control::duration::parse_duration;

/// `flush`
#[derive(Debug, Args)]
pub(crate) struct Flush {
    /// Keep the flows; list by owner what other owners have in the device, and remove it only with --owner or --yes. Never removes
    /// what a running agent has or a newer sluice has written. To adopt the rules instead, start `sluiced --adopt-orphans`
    #[arg(long)]
    pub(crate) orphans: bool,
    /// Remove what this owner left
    #[arg(long, value_name = "ID", requires = "orphans")]
    owner: Vec<String>,
    /// Remove what all owners left whose agent does not run
    #[arg(long, requires = "orphans", conflicts_with = "owner")]
    yes: bool,
}

impl Flush {
    /// The parameters of `sluice/flush-orphans`.
    pub(crate) fn params(&self) -> Vec<String> {
        let owners = self.owner.iter().map(|owner| format!("--owner={owner}"));
        owners.chain(self.yes.then(|| "--yes".to_owned())).collect()
    }
}

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
    pub(crate) json: bool,
    /// Print a table that fits the terminal
    #[arg(long, conflicts_with_all = ["more", "names"])]
    pub(crate) table: bool,
    /// type=offloaded, non-offloaded, partially-offloaded, tc, soft or all, and filter=MATCH
    #[arg(value_name = "type=..|filter=..")]
    selection: Vec<String>,
}

impl DumpFlows {
    pub(crate) fn params(&self) -> Vec<&str> {
        let options = [(self.more, "-m"), (self.names, "--names")];
        let options = options.into_iter().filter_map(|(given, option)| given.then_some(option));
        options.chain(self.selection.iter().map(String::as_str)).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Show at most this many flows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,
    /// Measure rates over this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// Show this many times; without it until Ctrl-C
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct GetFlow {
    /// Print everything, as with dump-flows
    #[arg(short, long)]
    more: bool,
    /// Print ports by name
    #[arg(long)]
    names: bool,
    /// Print a JSON object, with the counters of hardware and software apart
    #[arg(long, conflicts_with_all = ["more", "names"])]
    pub(crate) json: bool,
    #[arg(value_name = "UFID")]
    ufid: String,
}

impl GetFlow {
    pub(crate) fn params(&self) -> Vec<&str> {
        let options = [(self.more, "-m"), (self.names, "--names")];
        let options = options.into_iter().filter_map(|(given, option)| given.then_some(option));
        options.chain([self.ufid.as_str()]).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// An existing flow, or the key of one that might exist
    #[arg(value_name = "UFID|KEY", required_unless_present = "file")]
    flow: Option<String>,
    /// The actions that go with a key
    #[arg(value_name = "ACTIONS")]
    actions: Option<String>,
    /// Explain a whole dump of OVS or a file for add-flows instead ("-" is standard input): which flows would not be taken, and
    /// why. Exits 2 if a line is not understood or no flow would be taken
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flow", "actions", "priority"])]
    pub(crate) file: Option<PathBuf>,
    /// The priority of the flow, 0 to 15, higher wins
    #[arg(long, value_name = "N", value_parser = priority)]
    priority: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Explain {
    pub(crate) fn params(&self) -> Vec<String> {
        let option = self.json.then(|| "--json".to_owned()).into_iter();
        let option = option.chain(self.priority.iter().map(|value| format!("--priority={value}")));
        option.chain(self.flow.clone()).chain(self.actions.clone()).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddFlow {
    #[command(flatten)]
    flow: FlowAndActions,
}

impl AddFlow {
    pub(crate) fn params(&self) -> Vec<String> {
        self.flow.params()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ModFlow {
    #[command(flatten)]
    flow: FlowAndActions,
    /// Add the flow if it does not exist
    #[arg(long)]
    may_create: bool,
    /// Leave the old rule in the device if it refuses the new one
    #[arg(long)]
    keep_old_rule: bool,
}

impl ModFlow {
    pub(crate) fn params(&self) -> Vec<String> {
        let options = [(self.may_create, "--may-create"), (self.keep_old_rule, "--keep-old-rule")];
        let options = options.into_iter().filter(|(given, _)| *given).map(|(_, option)| option.to_owned());
        options.chain(self.flow.params()).collect()
    }
}

#[derive(Debug, Args)]
struct FlowAndActions {
    /// What the flow matches, such as "in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2)"
    #[arg(value_name = "KEY")]
    key: String,
    /// What is done with its packets, such as "2" or "push_vlan(vid=7,pcp=0),3" or "drop"
    #[arg(value_name = "ACTIONS")]
    actions: String,
    /// The priority of the flow, 0 to 15, higher wins
    #[arg(long, value_name = "N", value_parser = priority)]
    priority: Option<String>,
    /// Delete the flow after this time without a packet, such as 500ms, 10s or 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<String>,
    /// Delete the flow after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hard_timeout: Option<String>,
    /// Never age or evict the flow
    #[arg(long)]
    permanent: bool,
    /// Return once the flow is accepted, before the device has answered
    #[arg(long)]
    no_wait: bool,
}

impl FlowAndActions {
    fn params(&self) -> Vec<String> {
        let mut params = Vec::new();
        let valued = [
            ("--priority", &self.priority),
            ("--idle-timeout", &self.idle_timeout),
            ("--hard-timeout", &self.hard_timeout),
        ];
        params.extend(valued.into_iter().filter_map(|(option, value)| Some(format!("{option}={}", value.as_ref()?))));
        let flags = [(self.permanent, "--permanent"), (self.no_wait, "--no-wait")];
        params.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, option)| option.to_owned()));
        params.extend([self.key.clone(), self.actions.clone()]);
        params
    }
}

#[derive(Debug, Args)]
pub(crate) struct DelFlow {
    /// The flow's key, or its UFID
    #[arg(value_name = "KEY|UFID")]
    flow: String,
    /// The priority that goes with the key, if not 0
    #[arg(long, value_name = "N", value_parser = priority)]
    priority: Option<String>,
    /// Print the last counters
    #[arg(short, long)]
    statistics: bool,
    /// Return before the device has answered
    #[arg(long, conflicts_with = "statistics")]
    no_wait: bool,
}

impl DelFlow {
    pub(crate) fn params(&self) -> Vec<String> {
        let mut params: Vec<_> = self.priority.iter().map(|value| format!("--priority={value}")).collect();
        let flags = [(self.statistics, "-s"), (self.no_wait, "--no-wait")];
        params.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, option)| option.to_owned()));
        params.push(self.flow.clone());
        params
    }
}

fn priority(text: &str) -> Result<String, String> {
    match text.parse::<u8>() {
        Ok(0..=15) => Ok(text.to_owned()),
        _ => Err("expected a number from 0 to 15".to_owned()),
    }
}

fn duration(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned())
}
