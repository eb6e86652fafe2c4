//! The help, with the commands in groups.

use std::fmt::Write;

use clap::CommandFactory;

use crate::arguments::Cli;
use crate::commands::GROUPS;

const END_OF_HELP: &str = "\
Examples:
  sluice add-flow 'in_port(1),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)' 2
  sluice dump-flows -m type=non-offloaded    flows that are not in the device, with the reason
  sluice explain 3dc37f49-eb55-4429-baf2-14f8b9286625
  ovs-appctl dpctl/dump-flows -m | sluice explain --file -
  sluice replay capture.pcap --in-port 1 --speed 10x

Exit codes: 0 done; 1 wrong usage, no agent, or a file that cannot be read; 2 the agent refused,
or something is not as it should be.
'sluice COMMAND --help' explains a command. docs/json.md has the keys of --json, which stay.
";

/// The parser, with the commands in groups.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let mut template = String::from("{about}\n\nUsage: {usage}\n");
    let mut subcommands = command.get_subcommands();
    for (title, count) in GROUPS {
        // Writing to a string does not fail.
        let _ = write!(template, "\n{title}:\n");
        for subcommand in subcommands.by_ref().take(*count) {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {:<14} {about}", subcommand.get_name());
        }
    }
    drop(subcommands);
    template.push_str("\nOptions:\n{options}{after-help}");
    command.help_template(template).after_help(END_OF_HELP)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::command::Request;
    use crate::commands::Command;

    fn parsed(line: &[&str]) -> Result<Cli, clap::Error> {
        let matches = command().try_get_matches_from(["sluice"].iter().chain(line))?;
        Cli::from_arg_matches(&matches)
    }

    #[test]
    fn the_help_names_every_command_once_on_a_line_that_fits() {
        command().debug_assert();
        let help = command().render_help().to_string();
        for subcommand in command().get_subcommands() {
            let start = format!("  {:<14} ", subcommand.get_name());
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
