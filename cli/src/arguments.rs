//! What is typed: commands, options, and the help that explains them.

use std::env;
use std::fmt::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand};
use sluice_control::duration::parse_duration;

use crate::speed::Speed;

const DEFAULT_RUN_DIR: &str = "/run/sluice";
const RUN_DIR_VARIABLE: &str = "SLUICE_RUN_DIR";

/// Shows and changes the flows that a running sluiced keeps in the NIC
#[derive(Debug, Parser)]
#[command(name = "sluice", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Where the control socket is [default: $SLUICE_RUN_DIR, or /run/sluice]
    #[arg(long, global = true, value_name = "DIR", display_order = 900)]
    run_dir: Option<PathBuf>,
    /// How long the agent may show no sign of life, or none; a command that it works on takes as long as it takes
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", display_order = 901)]
    pub(crate) timeout: Patience,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    pub(crate) fn run_dir(&self) -> PathBuf {
        let from_environment = || env::var_os(RUN_DIR_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.run_dir.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT_RUN_DIR.into())
    }
}

/// How long to wait for an agent; `None` is for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(pub(crate) Option<Duration>);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { parse_duration(text).map(|limit| Self(Some(limit))) }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the datapath: backend, ports, flows by state, limits
    Show {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List the flows, as `ovs-appctl dpctl/dump-flows` does
    DumpFlows(DumpFlows),
    /// Show one flow
    GetFlow(GetFlow),
    /// Say why a flow is in the device, why it is not, or whether it would be
    Explain(Explain),
    /// Show everything that is counted
    Stats {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what happens to flows as it happens, until Ctrl-C
    Watch {
        /// As a JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show the busiest flows, over and over, until Ctrl-C
    Top(Top),
    /// Compare what the table says is in the device with what the device says
    Audit {
        /// Put in what is missing, change back what was changed, take out what no flow wants, and compare again; rules of
        /// others are listed and never touched
        #[arg(long)]
        fix: bool,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },

    /// Add a flow and wait until the device has it
    AddFlow(AddFlow),
    /// Add the flows of a file, a line each; a dump of OVS will do
    AddFlows {
        /// Lines as dump-flows prints them, each with "add", "modify" or "delete" in front if need be; "-" is standard
        /// input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Change the actions of a flow
    ModFlow(ModFlow),
    /// Delete a flow
    DelFlow(DelFlow),
    /// Delete the flows of a file, or all
    DelFlows {
        /// Lines as dump-flows prints them, actions may be left out; "-" is standard input
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete all flows, or what other agents left
    Flush(Flush),

    /// Add a port, which survives a restart
    ///
    /// Flows that were accepted for this port, by number and name, before it was removed are put in again.
    AddPort(AddPort),
    /// Remove a port; the flows that name it are refused until it is back
    ///
    /// A flow is accepted for a port, not for its number: a port of another name that is given the number gets nothing of its
    /// traffic. mod-flow accepts a flow anew, for the ports that have its numbers then. A port of the configuration file is
    /// back at the next start or reload.
    DelPort {
        /// Its number or name
        #[arg(value_name = "PORT")]
        port: String,
    },
    /// Add a meter, or change its rate
    AddMeter(AddMeter),
    /// Remove a meter
    DelMeter {
        /// Its number
        #[arg(value_name = "ID")]
        id: u32,
    },
    /// List the meters
    ShowMeters {
        /// As a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Add a mirror, or change it: packets are copied before any flow sees them
    AddMirror {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// Which packets, as in the key of a flow; of one port
        #[arg(value_name = "KEY")]
        key: String,
        /// Where copies go, by number or name
        #[arg(value_name = "PORT[,PORT...]")]
        ports: String,
    },
    /// Remove a mirror
    DelMirror {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the mirrors
    ShowMirrors,
    /// Add a timeout policy for connections, or change it
    AddCtTimeout(AddCtTimeout),
    /// Remove a timeout policy
    DelCtTimeout {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the timeout policies
    ShowCtTimeouts,

    /// Wait until the agent is ready, as after a start in the background
    Wait,
    /// Apply the changed configuration file without losing a flow
    Reload,
    /// Let the frames of a capture into a port of the software NIC
    Replay(Replay),
    /// Walk a packet through the installed flows and tell each step, without letting it in
    Trace(Trace),
}

/// `flush`
#[derive(Debug, Args)]
pub(crate) struct Flush {
    /// Leave the flows alone; list by owner what other owners have in the device, and remove it only if --owner or --yes is given.
    /// What a running agent has, or a newer sluice has written, is never removed. To take the rules over instead, start
    /// `sluiced --adopt-orphans`
    #[arg(long)]
    pub(crate) orphans: bool,
    /// Remove what this owner left
    #[arg(long, value_name = "ID", requires = "orphans")]
    owner: Vec<String>,
    /// Remove what all owners left of which no agent is running
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
    /// Everything: UFID, fields that are not matched, offload state, refusal; with --json, what hardware and software counted
    /// apart, which is asked of the device flow by flow
    #[arg(short, long)]
    more: bool,
    /// Ports by name
    #[arg(long)]
    names: bool,
    /// As a JSON array
    #[arg(long, conflicts_with_all = ["names", "table"])]
    pub(crate) json: bool,
    /// As a table that fits the terminal
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
    /// How many flows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,
    /// Over how long rates are taken
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// How many times; without it until Ctrl-C
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct GetFlow {
    /// Everything, as with dump-flows
    #[arg(short, long)]
    more: bool,
    /// Ports by name
    #[arg(long)]
    names: bool,
    /// As a JSON object, with what hardware and software counted apart
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
    /// A flow that is there, or the key of one that might be
    #[arg(value_name = "UFID|KEY", required_unless_present = "file")]
    flow: Option<String>,
    /// The actions that go with a key
    #[arg(value_name = "ACTIONS")]
    actions: Option<String>,
    /// A whole dump of OVS instead, or a file for add-flows, "-" is standard input: which flows would not be taken, and why.
    /// Exits 2 if a line is not understood or no flow would be taken
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flow", "actions", "priority"])]
    pub(crate) file: Option<PathBuf>,
    /// The priority of the flow, 0 to 15, higher wins
    #[arg(long, value_name = "N", value_parser = priority)]
    priority: Option<String>,
    /// As one JSON object
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
    /// Add the flow if it is not there
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
    /// Delete the flow after so long without a packet, such as 500ms, 10s or 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<String>,
    /// Delete the flow after so long
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

#[derive(Debug, Args)]
pub(crate) struct AddPort {
    #[arg(value_name = "NUMBER")]
    number: u32,
    /// The network device for tc, any word for soft; 1 to 64 bytes without blanks and any of (),"/=#
    #[arg(value_name = "NAME")]
    name: String,
    /// physical, representor, internal, vxlan, geneve, gre, erspan, gtpu or mirror
    #[arg(long, value_name = "KIND", default_value = "physical")]
    kind: String,
    /// The UDP port of a vxlan, geneve or gtpu tunnel
    #[arg(long, value_name = "N", requires = "underlay")]
    udp_port: Option<u16>,
    /// The port that a tunnel's packets come and go through, by number or name
    #[arg(long, value_name = "PORT")]
    underlay: Option<String>,
}

impl AddPort {
    pub(crate) fn params(&self) -> Vec<String> {
        let tunnel = [self.udp_port.map(|port| port.to_string()), self.underlay.clone()];
        let fixed = [self.number.to_string(), self.name.clone(), self.kind.clone()];
        fixed.into_iter().chain(tunnel.into_iter().flatten()).collect()
    }
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rate").required(true)))]
pub(crate) struct AddMeter {
    #[arg(value_name = "ID")]
    id: u32,
    /// Kilobits in a second
    #[arg(long, value_name = "N", group = "rate")]
    kbps: Option<u64>,
    /// Packets in a second
    #[arg(long, value_name = "N", group = "rate")]
    pps: Option<u64>,
    /// What may pass at once, kilobits or packets [default: what a second lets pass]
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// One more band, in the same unit; up to seven
    #[arg(long = "band", value_name = "RATE[:BURST]")]
    bands: Vec<String>,
}

impl AddMeter {
    pub(crate) fn params(&self) -> Vec<String> {
        let (unit, rate) = self.kbps.map_or(("pps", self.pps.unwrap_or_default()), |rate| ("kbps", rate));
        let first = self.burst.map_or_else(|| rate.to_string(), |burst| format!("{rate}:{burst}"));
        [self.id.to_string(), unit.to_owned(), first].into_iter().chain(self.bands.iter().cloned()).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddCtTimeout {
    /// As in ct(timeout=NAME)
    #[arg(value_name = "NAME")]
    name: String,
    /// Timeouts in seconds, such as tcp_syn_sent=30 or udp_multiple=300; the others stay as they usually are
    #[arg(value_name = "KEY=SECONDS")]
    timeouts: Vec<String>,
}

impl AddCtTimeout {
    pub(crate) fn params(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.timeouts).cloned().collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A capture, pcap or pcapng
    #[arg(value_name = "PCAP")]
    pub(crate) file: PathBuf,
    /// The port at which the frames come in, by number or name
    #[arg(long, value_name = "PORT")]
    pub(crate) in_port: String,
    /// "own" is the capture's own pace, "flat" is flat out, "10x" is ten times as fast
    #[arg(long, value_name = "SPEED", default_value = "own")]
    pub(crate) speed: Speed,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// A frame without FCS, in hexadecimal, or a capture, pcap or pcapng
    #[arg(value_name = "PACKET|PCAP")]
    pub(crate) packet: String,
    /// The port at which it comes in, by number or name
    #[arg(long, value_name = "PORT")]
    pub(crate) in_port: String,
    /// How many frames of a capture
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) count: u16,
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

/// The commands in the order in which one gets to know them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Look", &["show", "dump-flows", "get-flow", "explain", "trace", "stats", "watch", "top", "audit"]),
    ("Change flows", &["add-flow", "add-flows", "mod-flow", "del-flow", "del-flows", "flush"]),
    ("Ports and meters", &["add-port", "del-port", "add-meter", "del-meter", "show-meters"]),
    ("Mirrors", &["add-mirror", "del-mirror", "show-mirrors"]),
    ("Connections", &["add-ct-timeout", "del-ct-timeout", "show-ct-timeouts"]),
    ("Run", &["wait", "reload", "replay"]),
];

const END_OF_HELP: &str = "\
Examples:
  sluice add-flow 'in_port(1),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)' 2
  sluice dump-flows -m type=non-offloaded    flows that are not in the device, with the reason
  sluice explain 3dc37f49-eb55-4429-baf2-14f8b9286625
  ovs-appctl dpctl/dump-flows -m | sluice explain --file -
  sluice replay capture.pcap --in-port 1 --speed 10x

Exit codes: 0 done; 1 wrong usage, no agent, or a file that cannot be read; 2 the agent refused.
'sluice COMMAND --help' explains a command. docs/json.md has the keys of --json, which stay.
";

/// The parser, with the commands in groups.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let mut template = String::from("{about}\n\nUsage: {usage}\n");
    for (title, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = write!(template, "\n{title}:\n");
        for subcommand in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {:<13} {about}", subcommand.get_name());
        }
    }
    let _ = write!(template, "\nOptions:\n{{options}}\n\n{END_OF_HELP}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parsed(line: &[&str]) -> Result<Cli, clap::Error> {
        let matches = command().try_get_matches_from(["sluice"].iter().chain(line))?;
        Cli::from_arg_matches(&matches)
    }

    #[test]
    fn the_help_names_every_command_once_on_a_line_that_fits() {
        command().debug_assert();
        let help = command().render_help().to_string();
        for subcommand in command().get_subcommands() {
            let start = format!("  {:<13} ", subcommand.get_name());
            assert_eq!(help.lines().filter(|line| line.starts_with(&start)).count(), 1, "{start}\n{help}");
        }
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        assert!(help.contains("\nExamples:\n") && help.contains("--run-dir"), "{help}");
        assert!(!help.contains(['{', '}']), "{help}");
    }

    #[test]
    fn options_of_a_flow_go_before_its_text() {
        let line = ["mod-flow", "in_port(1)", "2", "--priority", "7", "--idle-timeout=5m", "--hard-timeout", "1h"];
        let flags = ["--permanent", "--no-wait", "--may-create", "--keep-old-rule"];
        let Command::ModFlow(command) = parsed(&[&line[..], &flags].concat()).unwrap().command else { panic!() };
        assert_eq!(
            command.params(),
            [
                "--may-create",
                "--keep-old-rule",
                "--priority=7",
                "--idle-timeout=5m",
                "--hard-timeout=1h",
                "--permanent",
                "--no-wait",
                "in_port(1)",
                "2"
            ]
        );
    }

    #[test]
    fn ports_and_meters_take_only_what_goes_together() {
        let tunnel = ["add-port", "4", "vx0", "--kind", "vxlan", "--udp-port", "4789", "--underlay", "p0"];
        let Command::AddPort(port) = parsed(&tunnel).unwrap().command else { panic!() };
        assert_eq!(port.params(), ["4", "vx0", "vxlan", "4789", "p0"]);
        let without_udp = ["add-port", "5", "gre0", "--kind", "gre", "--underlay", "p0"];
        let Command::AddPort(port) = parsed(&without_udp).unwrap().command else { panic!() };
        assert_eq!(port.params(), ["5", "gre0", "gre", "p0"]);
        assert!(parsed(&["add-port", "4", "vx0", "--udp-port", "4789"]).is_err());
        let meter = ["add-meter", "3", "--pps", "100", "--burst=20", "--band", "10:2", "--band=5"];
        let Command::AddMeter(meter) = parsed(&meter).unwrap().command else { panic!() };
        assert_eq!(meter.params(), ["3", "pps", "100:20", "10:2", "5"]);
        assert!(parsed(&["add-meter", "3"]).is_err());
        assert!(parsed(&["add-meter", "3", "--pps=1", "--kbps=1"]).is_err());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            &["add-flow", "in_port(1)", "2", "--priority", "16"][..],
            &["add-flow", "in_port(1)", "2", "--idle-timeout", "soon"],
            &["dump-flows", "--json", "--table"],
            &["explain"],
            &["explain", "in_port(1)", "2", "--file", "x"],
            &["replay", "x.pcap"],
            &["replay", "x.pcap", "--in-port", "1", "--speed", "fast"],
            &["no-such-command"],
        ] {
            assert!(parsed(line).is_err(), "{line:?}");
        }
    }
}
