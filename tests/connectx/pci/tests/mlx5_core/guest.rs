//! The virtual machine with the device on its bus. The stories are told outside of it, where the packets are, and have it do
//! what is to be done inside.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx_pci::{Ports, Slot};

/// How long the machine may run in all.
const PATIENCE: Duration = Duration::from_secs(1_500);
/// How long it may take over one script.
const SCRIPT: Duration = Duration::from_secs(300);

/// Shows what an agent and an Open vSwitch have, if they run.
const STATE: &str = "exec 2>&1
    tail -n 40 /tmp/agent/log || true
    for words in show 'dump-flows -m'; do timeout 20 /tmp/sluice --run-dir /tmp/agent/run $words | head -n 60 || true; done
    timeout 20 ovs-appctl -t /tmp/ovs/ctl dpctl/dump-flows -m | head -n 60 || true";

pub(crate) struct Guest {
    folder: PathBuf,
    machine: Mutex<Child>,
    deadline: Instant,
    scripts: AtomicU32,
}

/// What a script printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Guest {
    /// Starts the machine, with a device that this process holds.
    pub(crate) fn boot(hca: &Arc<Mutex<Hca>>) -> (Self, Ports) {
        let folder = std::env::temp_dir().join(format!("sluice-connectx-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder can be made");
        let socket = folder.join("socket");
        let slot = Slot::new(&socket).expect("a socket can be made");
        let ports = slot.ports(hca);
        let served = Arc::clone(hca);
        thread::spawn(move || slot.serve(&served, &mut |line| eprintln!("connectx: {line}")));
        let machine = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/connectx"))
            .env("LAB_TIMEOUT", PATIENCE.as_secs().to_string())
            .arg("--socket")
            .arg(&socket)
            .arg("--out")
            .arg(&folder)
            .args(["--", "bash", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mlx5_core/guest.sh")])
            .spawn()
            .expect("tests/lab/connectx can be run");
        let deadline = Instant::now() + PATIENCE;
        (Self { folder, machine: Mutex::new(machine), deadline, scripts: AtomicU32::new(0) }, ports)
    }

    /// Has the kernel let go of the device, as after an unplugging.
    pub(crate) fn remove(&self) {
        self.run("echo 1 >$(dirname $(grep -l 0x15b3 /sys/bus/pci/devices/*/vendor))/remove");
    }

    /// Has the kernel look for devices, and waits until the driver has one, with a port.
    #[track_caller]
    pub(crate) fn rescan(&self) {
        self.run("echo 1 >/sys/bus/pci/rescan");
        let driver = "ls /sys/bus/pci/drivers/mlx5_core; ls -d /sys/class/net/*/device || true";
        let has_port = |said: &str| said.contains("0000:") && said.contains("/device");
        self.eventually("the driver has a device", driver, has_port);
    }

    /// Runs a script of bash as root, of which every command shall succeed, and gives what it printed.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> String {
        let ran = self.attempt(script);
        if ran.code != 0 {
            let kernel = self.attempt("dmesg | tail -40").out;
            panic!("it ended with {}:\n{script}\n{}{}\n{kernel}", ran.code, ran.out, ran.err);
        }
        ran.out
    }

    /// Runs a script that may fail.
    #[track_caller]
    pub(crate) fn attempt(&self, script: &str) -> Ran {
        let number = self.scripts.fetch_add(1, Ordering::Relaxed) + 1;
        let file = |ending| self.folder.join(format!("{number}{ending}"));
        std::fs::write(file(".new"), format!("set -euo pipefail\n{script}\n")).expect("a script can be written");
        std::fs::rename(file(".new"), file("")).expect("a script can be handed over");
        let deadline = self.deadline.min(Instant::now() + SCRIPT);
        while !file(".status").exists() {
            if let Some(status) = self.machine.lock().try_wait().expect("a child can be waited for") {
                panic!("the guest ended with {status} at\n{script}");
            }
            assert!(Instant::now() < deadline, "it takes too long:\n{script}");
            thread::sleep(Duration::from_millis(20));
        }
        let said = |ending| String::from_utf8_lossy(&std::fs::read(file(ending)).expect("what it said")).into_owned();
        let code = said(".status").trim().parse().expect("an exit status");
        Ran { out: said(".out"), err: said(".err"), code }
    }

    /// Runs a script until what it prints is as wanted, and gives that.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, script: &str, is_so: impl Fn(&str) -> bool) -> String {
        const SOON: Duration = Duration::from_secs(120);
        const SHOWN: usize = 5_000;
        let deadline = Instant::now() + SOON;
        loop {
            let out = self.run(script);
            if is_so(&out) {
                return out;
            }
            if Instant::now() >= deadline {
                let state = self.attempt(STATE).out;
                panic!("{what}:\n{}\n{state}", out.get(..SHOWN).unwrap_or(&out));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Brings a program of this workspace into the machine's memory, as /tmp/NAME: it would else be read from the host at every
    /// start, with all that is there for debuggers.
    pub(crate) fn bring(&self, name: &str) {
        let program = self.program(name);
        let stripped = self.folder.join(name);
        if !stripped.exists() {
            let status =
                Command::new("strip").arg("-o").arg(&stripped).arg(&program).status().expect("strip can be run");
            assert!(status.success(), "strip ended with {status}");
            self.run(&format!("cp $LAB_OUT/{name} /tmp/{name}"));
        }
    }

    /// Where a program of this workspace is.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let test = std::env::current_exe().expect("the test's own path");
        let program = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join(name);
        assert!(program.exists(), "no {}: cargo build --workspace --lib --bins comes first", program.display());
        program
    }

    /// Has the machine end.
    pub(crate) fn end(self) {
        std::fs::write(self.folder.join((self.scripts.load(Ordering::Relaxed) + 1).to_string()), "")
            .expect("a script can be written");
        let status = self.machine.lock().wait().expect("a child can be waited for");
        assert!(status.success(), "the guest ended with {status}");
        std::fs::remove_dir_all(&self.folder).expect("the folder goes");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Still there when a story has failed. The script takes the machine with it.
        let machine = self.machine.get_mut();
        if let Ok(None) = machine.try_wait() {
            eprintln!("what the guest said is in {}", self.folder.display());
            let _ = Command::new("kill").arg(machine.id().to_string()).status();
            let _ = machine.wait();
        }
    }
}
