//! The commands: a row for each, with the file that has its arguments and what it does.

mod audit;
mod bulk;
mod doctor;
mod dump;
mod explain;
mod flows;
mod objects;
mod ovs;
mod preflight;
mod process;
mod replay;
mod show;
mod speed;
mod statistics;
mod top;
mod trace;
mod wait;
mod watch;

use std::io::Write;

use clap::Subcommand;

use crate::command::{Agent, Outcome, Run};
use crate::error::CliError;

macro_rules! commands {
    ($($title:literal { $($command:ident: $arguments:ty,)* })*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($($command($arguments),)*)*
        }

        /// The groups of commands in the help, each with how many it has, in the order of the commands.
        pub(crate) const GROUPS: &[(&str, usize)] = &[$(($title, [$(stringify!($command),)*].len()),)*];

        impl Command {
            pub(crate) fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
                match self {
                    $($(Self::$command(arguments) => arguments.run(agent, out),)*)*
                }
            }
        }
    };
}

// In the order in which one gets to know them. The first line of the documentation of the arguments is the help.
commands! {
    "Look" {
        Show: show::Show,
        DumpFlows: dump::DumpFlows,
        GetFlow: flows::GetFlow,
        Explain: explain::Explain,
        Trace: trace::Trace,
        Stats: statistics::Stats,
        Watch: watch::Watch,
        Top: top::Top,
        Audit: audit::Audit,
        Ovs: ovs::Ovs,
    }
    "Change flows" {
        AddFlow: flows::AddFlow,
        AddFlows: bulk::AddFlows,
        ModFlow: flows::ModFlow,
        DelFlow: flows::DelFlow,
        DelFlows: bulk::DelFlows,
        Flush: flows::Flush,
    }
    "Ports and meters" {
        AddPort: objects::AddPort,
        DelPort: objects::DelPort,
        AddMeter: objects::AddMeter,
        DelMeter: objects::DelMeter,
        ShowMeters: objects::ShowMeters,
    }
    "Mirrors" {
        AddMirror: objects::AddMirror,
        DelMirror: objects::DelMirror,
        ShowMirrors: objects::ShowMirrors,
    }
    "Connections" {
        AddConnection: objects::AddConnection,
        AddCtTimeout: objects::AddCtTimeout,
        DelCtTimeout: objects::DelCtTimeout,
        ShowCtTimeouts: objects::ShowCtTimeouts,
    }
    "Run" {
        Preflight: preflight::Preflight,
        Doctor: doctor::Doctor,
        Wait: wait::Wait,
        Reload: process::Reload,
        Exit: process::Exit,
        Replay: replay::Replay,
    }
}
