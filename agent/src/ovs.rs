//! `sluice ovs observe`: which flows of an Open vSwitch the backends would offload. It runs without the daemon: it reads, prints and ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use sluice_feed_ovs::observe::{Backend, Observer, Report};

use crate::backends::Configured;
use crate::config::Config;

const AFTER_HELP: &str = "\
Examples:
  sluice ovs observe --live
  ovs-appctl dpctl/dump-flows -m | sluice ovs observe -
  (ovs-appctl dpctl/show; ovs-appctl dpctl/dump-flows -m) > flows.txt
  sluice ovs observe --backend dv flows.txt
  sluice ovs observe --live --metrics-file /var/lib/prometheus/node-exporter/sluice_ovs.prom

Any user may read the kernel's datapath. Flows that ovs-vswitchd has put into tc, and those of
OVS-DPDK and OVS-DOCA, come over its control socket, which is for root and for OVS's group.

Exit codes: 0 done; 1 wrong usage, or nothing that can be read; 2 some flows were not understood.
docs/json.md has the keys of --json, which stay.";

/// What the figures leave open.
const NOTE: &str = "A flow that would be offloaded is one that the backend can translate. Whether the kernel and the NIC of a host accept \
                    the rule is known only once it is installed.";

/// Some flows were not understood.
const NOT_UNDERSTOOD: u8 = 2;

/// Report which flows of an Open vSwitch Sluice would offload, and why the rest would stay. Only reads: it changes nothing, and needs
/// neither a running sluiced nor a NIC
#[derive(Debug, Parser)]
#[command(name = "sluice ovs observe", bin_name = "sluice ovs observe", after_help = AFTER_HELP)]
struct Options {
    /// Read the flows of this host's Open vSwitch, in all its datapaths
    #[arg(long, conflicts_with = "file")]
    live: bool,
    /// Read a dump instead, as ovs-appctl dpctl/dump-flows or ovs-dpctl dump-flows print it, with or without -m; "-" is standard input.
    /// What dpctl/show prints may stand in front and tells the kinds of ports
    #[arg(value_name = "FILE", required_unless_present = "live")]
    file: Option<PathBuf>,
    #[arg(long, value_name = "KIND", conflicts_with = "config", help = help_of_backends())]
    backend: Vec<String>,
    /// Ask the backend of this configuration of sluiced, as it is configured there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write the numbers to this file as well, for Prometheus: as the node exporter's textfile collector reads them
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
    /// Ask the ovs-vswitchd with this control socket [default: that of ovs-vswitchd.pid in $OVS_RUNDIR, or in /var/run/openvswitch]
    #[arg(long, value_name = "SOCKET", requires = "live")]
    vswitchd: Option<PathBuf>,
}

fn help_of_backends() -> String {
    let real: Vec<_> = Configured::real().map(|backend| backend.name()).collect();
    format!("Ask this backend, {}; may be given several times [default: {}]", Configured::names(), real.join(" and "))
}

/// The parser of its command line, of which the manual page is made.
pub fn command() -> clap::Command {
    Options::command()
}

/// Does it with the arguments behind the name of the command. Returns the exit code, as the help text lists them.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("sluice ovs observe");
    let options = match Options::try_parse_from([name].into_iter().chain(arguments)) {
        Ok(options) => options,
        Err(error) => {
            // A closed standard error is nobody's loss.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match options.observe() {
        Ok(report) if report.unread.flows > 0 => ExitCode::from(NOT_UNDERSTOOD),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            // As above.
            let _ = writeln!(io::stderr(), "sluice ovs observe: {error}");
            ExitCode::FAILURE
        }
    }
}

type Error = Box<dyn std::error::Error>;

impl Options {
    fn observe(&self) -> Result<Report, Error> {
        let mut observer = Observer::new(self.backends()?);
        match &self.file {
            None => observer.live(self.vswitchd.as_deref())?,
            Some(path) if path.as_os_str() == "-" => {
                observer.begin("standard input");
                observer.text(io::stdin().lock()).map_err(|error| format!("standard input: {error}"))?;
            }
            Some(path) => {
                let named = |error: &dyn std::error::Error| format!("{}: {error}", path.display());
                observer.begin(&path.display().to_string());
                let file = File::open(path).map_err(|error| named(&error))?;
                observer.text(BufReader::new(file)).map_err(|error| named(&error))?;
            }
        }
        observer.note(NOTE);
        let report = observer.report();
        if let Some(path) = &self.metrics_file {
            replace(path, &report.metrics()?).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let text = if self.json { format!("{}\n", report.json()) } else { report.to_string() };
        match io::stdout().write_all(text.as_bytes()) {
            // Whoever reads has read enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(report),
        }
    }

    fn backends(&self) -> Result<Vec<Backend>, Error> {
        let configured: Vec<_> = match &self.config {
            Some(path) => vec![Config::load(path, None)?.config.backend],
            None if self.backend.is_empty() => Configured::real().collect(),
            None => self.backend.iter().map(|name| Configured::named(name)).collect::<Result<_, _>>()?,
        };
        Ok(configured.into_iter().map(|backend| Backend::new(backend.kind(), move || backend.checker())).collect())
    }
}

/// Writes a file in one step: whoever reads it sees the earlier one or all of this one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    fs::write(&beside, text)?;
    fs::rename(&beside, path).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}
