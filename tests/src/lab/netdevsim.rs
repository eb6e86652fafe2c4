//! Switches of the kernel's own simulator: plugs, representors, devlink. Its driver is in no Debian kernel, and
//! `tests/lab/netdevsim` builds it; it takes no rule of flower into hardware.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Says to a test that runs itself in the lab where the driver is.
pub const ARGUMENT: &str = "--netdevsim=";

/// Builds the driver, outside of the lab, if it can be built, and gives the argument that says where it is.
pub fn argument() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/netdevsim");
    let output = Command::new(script).stderr(Stdio::inherit()).output().expect("tests/lab/netdevsim can be run");
    format!("{ARGUMENT}{}", String::from_utf8(output.stdout).expect("a path is text").trim())
}

/// Loads the driver that an argument names; whether there is one, and it fits this kernel.
pub fn load() -> bool {
    let path = std::env::args().find_map(|argument| argument.strip_prefix(ARGUMENT).map(str::to_owned));
    let Some(path) = path.filter(|path| !path.is_empty()) else { return false };
    let psample = Command::new("modprobe").args(["-a", "psample", "macsec"]).status();
    let netdevsim = Command::new("insmod").arg(path).status();
    // Where its knobs are. It may be there already.
    let _ = Command::new("mount").args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output();
    [psample, netdevsim].into_iter().all(|status| status.is_ok_and(|status| status.success()))
}

/// A simulated NIC, gone when this is.
pub struct Nic {
    number: u32,
}

impl Nic {
    /// Makes one with a plug and virtual functions, in switchdev mode. The namespace is that of the process that writes.
    pub fn new(number: u32, functions: u32) -> Self {
        write("new_device", &format!("{number} 1"));
        let nic = Self { number };
        nic.set_functions(functions);
        nic
    }

    /// With none it is in legacy mode.
    pub fn set_functions(&self, functions: u32) {
        write(&format!("devices/netdevsim{}/sriov_numvfs", self.number), &functions.to_string());
        if functions > 0 {
            self.devlink("dev eswitch set", "mode switchdev");
        }
    }

    /// Its name on its bus.
    pub fn name(&self) -> String {
        format!("netdevsim{}", self.number)
    }

    /// The names of its network devices, that of the plug first.
    pub fn devices(&self) -> Vec<String> {
        let output = Command::new("devlink").args(["-j", "port", "show"]).output().expect("devlink runs");
        let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let ports = listed["port"].as_object().expect("ports").iter();
        let mut numbered: Vec<(u32, String)> = ports
            .filter_map(|(name, port)| {
                let number = name.strip_prefix(&format!("netdevsim/{}/", self.name()))?;
                Some((number.parse().expect("a number"), port["netdev"].as_str()?.to_owned()))
            })
            .collect();
        numbered.sort_unstable();
        numbered.into_iter().map(|(_, device)| device).collect()
    }

    /// Has it made anew, as `devlink dev reload` does.
    pub fn reload(&self) {
        self.devlink("dev reload", "");
    }

    /// The same, but it fails half-way, and there are no network devices any more until it is reloaded well.
    pub fn fail_to_reload(&self) {
        let knob = format!("/sys/kernel/debug/netdevsim/{}/fail_reload", self.name());
        fs::write(&knob, "Y").unwrap_or_else(|error| panic!("{knob}: {error}"));
        let output = self.run_devlink("dev reload", "");
        assert!(!output.status.success(), "it was to fail");
        fs::write(&knob, "N").unwrap_or_else(|error| panic!("{knob}: {error}"));
    }

    fn devlink(&self, command: &str, arguments: &str) {
        let output = self.run_devlink(command, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn run_devlink(&self, command: &str, arguments: &str) -> Output {
        let device = format!("netdevsim/{}", self.name());
        let words = command.split_whitespace().chain([device.as_str()]).chain(arguments.split_whitespace());
        Command::new("devlink").args(words).output().expect("devlink runs")
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        write("del_device", &self.number.to_string());
    }
}

fn write(file: &str, text: &str) {
    fs::write(format!("/sys/bus/netdevsim/{file}"), text).unwrap_or_else(|error| panic!("{file}: {error}"));
}
