//! The collector, in this machine or in the one at the other end of the cable, and the host that it injects into.

use std::path::Path;

use rustix::process::Signal;
use sluice_control::mirror::Class;
use sluice_tests::http::page;

use crate::programs::{Program, of_class, series, until};
use crate::{far, lab};

/// Where the collector is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this machine. What hears it injects is in the namespace `host`.
    Here,
    /// In the far machine, whose own devices are those of the host.
    There,
}

pub(crate) enum Collector {
    Here(Program),
    There,
}

const METRICS_THERE: &str = "10.10.0.2:9321";

impl Place {
    /// The address of the collector's RDMA device.
    pub(crate) fn address(self) -> &'static str {
        if self == Self::Here { lab::ADDRESS } else { far::ADDRESS }
    }
}

impl Collector {
    /// Starts it, and has it write to files of this folder. It injects into a TAP if it is to.
    pub(crate) fn start(place: Place, folder: &Path, has_tap: bool) -> Self {
        let (listen, capture) = (format!("{}:4790", place.address()), folder.join("control.pcapng"));
        let mut args = vec!["--listen", &listen, "--write", capture.to_str().unwrap()];
        if has_tap {
            args.extend(["--tap", "mirror0"]);
        }
        if place == Place::Here {
            return Self::Here(Program::collect(folder, &args).ready());
        }
        let (program, folder) = (sluice_tests::daemon::binary("sluice-mirror"), folder.display());
        let args = args.join(" ");
        far::told(&format!("mkdir -p {folder}; modprobe tun"));
        far::told(&format!(
            "{} collect --metrics {METRICS_THERE} {args} >{folder}/collect.log 2>&1 &",
            program.display()
        ));
        until("the collector serves", || page(METRICS_THERE, "/healthz").is_some());
        Self::There
    }

    /// A metric, the sum over all its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        match self {
            Self::Here(program) => program.metric(name),
            Self::There => series(METRICS_THERE, name, ""),
        }
    }

    /// A metric of a class, the sum over all causes.
    pub(crate) fn of(&self, name: &str, class: Class) -> u64 {
        match self {
            Self::Here(program) => program.of(name, class),
            Self::There => of_class(METRICS_THERE, name, class),
        }
    }

    /// Sends a signal to one that is here.
    pub(crate) fn signal(&self, signal: Signal) {
        let Self::Here(program) = self else { panic!("it is not here") };
        program.signal(signal);
    }

    /// Ends it in order. Its files are in the folder here then.
    pub(crate) fn stop(self, folder: &Path) {
        match self {
            Self::Here(program) => program.stop(),
            Self::There => {
                far::told("pkill -TERM -x sluice-mirror; while pgrep -x sluice-mirror; do sleep 0.1; done");
                for file in far::told(&format!("ls {}/*.pcapng", folder.display())).lines() {
                    std::fs::write(file, far::printed(&format!("cat {file}"))).unwrap();
                }
            }
        }
    }

    pub(crate) fn log(&self, folder: &Path) -> String {
        match self {
            Self::Here(program) => program.log(),
            Self::There => far::told(&format!("cat {}/collect.log", folder.display())),
        }
    }
}
