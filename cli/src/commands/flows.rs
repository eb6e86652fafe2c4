//! Commands about single flows, and about all.

use std::io::Write;

use clap::Args;
use sluice_control::duration::parse_duration;

use crate::command::{Agent, Outcome, Request, Run, given};
use crate::error::CliError;

/// Delete all flows, or what other agents left
#[derive(Debug, Args)]
pub(crate) struct Flush {
    /// Keep the flows; list by owner what other owners have in the device, and remove it only with --owner or --yes. Never removes
    /// what a running agent has or a newer sluice has written. To adopt the rules instead, start `sluiced --adopt-orphans`
    #[arg(long)]
    orphans: bool,
    /// Remove what this owner left
    #[arg(long, value_name = "ID", requires = "orphans")]
    owner: Vec<String>,
    /// Remove what all owners left whose agent does not run
    #[arg(long, requires = "orphans", conflicts_with = "owner")]
    yes: bool,
}

impl Run for Flush {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        if self.orphans {
            let owners = self.owner.iter().map(|owner| format!("--owner={owner}"));
            let params: Vec<_> = owners.chain(given([(self.yes, "--yes")])).collect();
            agent.print("sluice/flush-orphans", &params, out)?;
        } else {
            agent.print("sluice/flush", &[], out)?;
        }
        Ok(Outcome::Done)
    }
}

/// Show one flow
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
    json: bool,
    #[arg(value_name = "UFID")]
    ufid: String,
}

impl Run for GetFlow {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let method = if self.json { "sluice/get-flow" } else { "dpctl/get-flow" };
        let options = given([(self.more, "-m"), (self.names, "--names")]);
        agent.print(method, &options.chain([self.ufid.clone()]).collect::<Vec<_>>(), out)?;
        Ok(Outcome::Done)
    }
}

/// Add a flow and wait until the device has it
#[derive(Debug, Args)]
pub(crate) struct AddFlow {
    #[command(flatten)]
    flow: FlowAndActions,
}

impl Request for AddFlow {
    const METHOD: &str = "dpctl/add-flow";

    fn params(&self) -> Vec<String> {
        self.flow.params()
    }
}

/// Change the actions of a flow
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

impl Request for ModFlow {
    const METHOD: &str = "dpctl/mod-flow";

    fn params(&self) -> Vec<String> {
        given([(self.may_create, "--may-create"), (self.keep_old_rule, "--keep-old-rule")])
            .chain(self.flow.params())
            .collect()
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
        params.extend(given([(self.permanent, "--permanent"), (self.no_wait, "--no-wait")]));
        params.extend([self.key.clone(), self.actions.clone()]);
        params
    }
}

/// Delete a flow
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

impl Request for DelFlow {
    const METHOD: &str = "dpctl/del-flow";

    fn params(&self) -> Vec<String> {
        let mut params: Vec<_> = self.priority.iter().map(|value| format!("--priority={value}")).collect();
        params.extend(given([(self.statistics, "-s"), (self.no_wait, "--no-wait")]));
        params.push(self.flow.clone());
        params
    }
}

/// A priority, as it was typed.
pub(super) fn priority(text: &str) -> Result<String, String> {
    match text.parse::<u8>() {
        Ok(0..=15) => Ok(text.to_owned()),
        _ => Err("expected a number from 0 to 15".to_owned()),
    }
}

fn duration(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned())
}
