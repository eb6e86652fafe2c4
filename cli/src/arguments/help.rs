//! The help, with the commands in groups.

use std::fmt::Write;

use clap::CommandFactory;

use super::Cli;

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
