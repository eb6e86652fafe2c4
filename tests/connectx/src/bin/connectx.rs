//! Shows a ConnectX in software to a program that has drivers for one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx::pci::Slot;
use sluice_connectx::profile::{PROFILES, Profile};

/// A ConnectX in software.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    front: Front,
}

#[derive(Subcommand)]
enum Front {
    /// As a PCI device of a virtual machine, by vfio-user; ends when the machine does
    Pci {
        /// Where QEMU's vfio-user-pci finds it
        #[arg(long)]
        socket: PathBuf,
        /// Which device
        #[arg(long, default_value = PROFILES[0].name, value_parser = profile)]
        profile: Profile,
        /// Give up at the first thing that the driver does and that is not modelled
        #[arg(long)]
        strict: bool,
    },
}

fn main() -> ExitCode {
    let Front::Pci { socket, profile, strict } = Arguments::parse().front;
    let hca = Arc::new(Mutex::new(Hca::new(profile)));
    let mut report = |line: &str| {
        eprintln!("connectx: {line}");
        if strict {
            // The socket goes with the process: the machine loses the device at once.
            std::process::exit(3);
        }
    };
    match Slot::new(&socket).and_then(|slot| slot.serve(&hca, &mut report)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("connectx: {error}");
            ExitCode::FAILURE
        }
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = || PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    Profile::named(name).ok_or_else(|| format!("there are {}", names()))
}
