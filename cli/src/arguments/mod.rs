//! What is typed: commands, options, and the help that explains them.

mod flows;
mod help;
mod objects;
mod packets;

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, Subcommand};
use sluice_control::duration::parse_duration;

pub(crate) use self::flows::{AddFlow, DelFlow, DumpFlows, Explain, Flush, GetFlow, ModFlow, Top};
pub(crate) use self::help::command;
pub(crate) use self::objects::{AddCtTimeout, AddMeter, AddPort};
pub(crate) use self::packets::{Replay, Trace};

const DEFAULT_RUN_DIR: &str = "/run/sluice";
const RUN_DIR_VARIABLE: &str = "SLUICE_RUN_DIR";

/// Show and change the flows that a running sluiced keeps in the NIC
#[derive(Debug, Parser)]
#[command(name = "sluice", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Where the control socket is [default: $SLUICE_RUN_DIR, or /run/sluice]
    #[arg(long, global = true, value_name = "DIR", display_order = 900)]
    run_dir: Option<PathBuf>,
    /// Give up after this time without a sign of life from the agent, or never with "none"; a command that the agent works
    /// on may take longer
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
        /// Print one JSON object
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
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what happens to flows as it happens, until Ctrl-C
    Watch {
        /// Print a JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show the busiest flows, over and over, until Ctrl-C
    Top(Top),
    /// Compare the flow table with what is in the device
    Audit {
        /// Install missing rules, restore changed ones, remove those that no flow wants, and compare again; rules of others
        /// are listed and never touched
        #[arg(long)]
        fix: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },

    /// Add a flow and wait until the device has it
    AddFlow(AddFlow),
    /// Add the flows of a file, one a line; a dump of OVS works as it is
    AddFlows {
        /// Lines as dump-flows prints them, with "add", "modify" or "delete" in front if needed; "-" is standard input
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
    /// Flows that were accepted for a port of this number and name before it was removed are installed again.
    AddPort(AddPort),
    /// Remove a port; the flows that name it are refused until it is back
    ///
    /// A flow is accepted for a port, not for its number: if a port of another name gets the number, the flow stays refused.
    /// mod-flow accepts a flow anew, for the ports that have its numbers then. A port of the configuration file comes back at
    /// the next start or reload.
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
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Add a mirror, or change it: packets are copied before any flow sees them
    AddMirror {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// Which packets, written as the key of a flow; of one port
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

    /// Wait until the agent is ready, such as after a start in the background
    Wait,
    /// Apply the changed configuration file without losing a flow
    Reload,
    /// Replay a capture into a port of the NIC in software
    Replay(Replay),
    /// Trace a packet through the installed flows, step by step, without counting it
    Trace(Trace),
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
