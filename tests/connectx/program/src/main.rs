//! Shows a ConnectX in software to a program that has drivers for one.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use clap::{Parser, Subcommand};
use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx::profile::{PROFILES, Profile, VPORT_UPLINK};
use sluice_connectx_pci::Slot;
use sluice_connectx_uverbs::sysfs;

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
        /// With tables that software owns, as mlx5_ib and libmlx5 in the machine want it
        #[arg(long)]
        software_steering: bool,
        /// Give up at the first thing that the driver does and that is not modelled
        #[arg(long)]
        strict: bool,
    },
    /// As mlx5_0 of a program that uses libibverbs; what goes wrong is told when the program closes it
    Run(Run),
}

#[derive(clap::Args)]
struct Run {
    /// Which device
    #[arg(long, default_value = PROFILES[0].name, value_parser = profile)]
    profile: Profile,
    /// Without the privileges that steering needs
    #[arg(long)]
    unprivileged: bool,
    /// A network device that the program takes for the device's own, as DPDK wants one
    #[arg(long)]
    netdev: Option<String>,
    /// A network device that the program takes for what represents a vport, as VPORT=NAME; the switch is then the program's
    #[arg(long, requires = "netdev", value_parser = representor)]
    representor: Vec<(u16, String)>,
    /// A folder for sockets by which packets come in and go out
    #[arg(long)]
    ports: Option<PathBuf>,
    /// A socket by which it is told what is to go wrong with the device, and tells what is in it
    #[arg(long)]
    control: Option<PathBuf>,
    /// Hold the program up until the device has done what it posts, so that it never waits for a completion by looking again and again
    #[arg(long)]
    in_step: bool,
    /// The program and what it is given
    #[arg(required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    match Arguments::parse().front {
        Front::Pci { socket, profile, software_steering, strict } => {
            let profile = if software_steering { profile.with_software_steering() } else { profile };
            pci(&socket, profile, strict)
        }
        Front::Run(run) => run.run().unwrap_or_else(|error| {
            eprintln!("connectx: {error}");
            ExitCode::FAILURE
        }),
    }
}

fn pci(socket: &Path, profile: Profile, strict: bool) -> ExitCode {
    let hca = Arc::new(Mutex::new(Hca::new(profile)));
    let mut report = |line: &str| {
        eprintln!("connectx: {line}");
        if strict {
            // The socket goes with the process: the machine loses the device at once.
            std::process::exit(3);
        }
    };
    match Slot::new(socket).and_then(|slot| slot.serve(&hca, &mut report)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("connectx: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Run {
    /// Runs a program in which the device is made, by a library that is loaded first and a folder that stands for `/sys`.
    fn run(self) -> Result<ExitCode, String> {
        const NO_CODE: u8 = 128;
        let library = library()?;
        let folder = std::env::temp_dir().join(format!("connectx-run-{}", std::process::id()));
        let told = |error: io::Error| format!("{}: {error}", folder.display());
        // One that is there is of a process of the same number that was killed.
        let _ = std::fs::remove_dir_all(&folder);
        let status = self.fill(&folder).map_err(told).and_then(|()| self.start(&library, &folder));
        // It also goes where the program did not come to be.
        std::fs::remove_dir_all(&folder).map_err(told)?;
        let code = status?.code().and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(code.unwrap_or(NO_CODE)))
    }

    /// Puts the files into the folder that tell of the device and its network devices.
    fn fill(&self, folder: &Path) -> io::Result<()> {
        sysfs::add(folder, 0, &self.profile)?;
        let Some(name) = &self.netdev else { return Ok(()) };
        sysfs::add_netdev(folder, 0, name)?;
        let wire = (VPORT_UPLINK, name.clone());
        let uplink = (!self.representor.is_empty()).then_some(&wire);
        let mut representors = uplink.into_iter().chain(&self.representor);
        representors.try_for_each(|(vport, name)| sysfs::add_representor(folder, 0, &self.profile, *vport, name))
    }

    /// Runs the program to its end.
    fn start(&self, library: &Path, folder: &Path) -> Result<ExitStatus, String> {
        let (name, arguments) = self.program.split_first().ok_or("no program")?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env("LD_PRELOAD", library)
            .env("SYSFS_PATH", folder)
            .env("SYSFS_PCI_DEVICES", sysfs::pci_devices(folder))
            .env("CONNECTX_PROFILE", self.profile.name);
        if self.unprivileged {
            command.env("CONNECTX_UNPRIVILEGED", "1");
        }
        if let Some(ports) = &self.ports {
            command.env("CONNECTX_PORTS", ports);
        }
        if self.in_step {
            command.env("CONNECTX_IN_STEP", "1");
        }
        if let Some(socket) = &self.control {
            command.env("CONNECTX_CONTROL", socket);
        }
        command.status().map_err(|error| format!("{}: {error}", name.to_string_lossy()))
    }
}

/// The library where cargo puts it, which is never older, or beside this program.
fn library() -> Result<PathBuf, String> {
    const NAME: &str = "libsluice_connectx_preload.so";
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = [folder.join("deps").join(NAME), folder.join(NAME)];
    let missing = || format!("{NAME} is not beside this program: cargo build -p sluice-connectx-preload");
    places.into_iter().find(|place| place.exists()).ok_or_else(missing)
}

fn representor(text: &str) -> Result<(u16, String), String> {
    let (vport, name) = text.split_once('=').ok_or("it is VPORT=NAME")?;
    Ok((vport.parse().map_err(|_| format!("{vport} is no vport"))?, name.to_owned()))
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = || PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    Profile::named(name).ok_or_else(|| format!("there are {}", names()))
}
