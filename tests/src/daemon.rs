//! The daemon and its tools seen from outside: processes, sockets, exit codes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::world::eventually;

/// A running `sluiced` with a folder of its own, ended with the test.
pub struct Daemon {
    process: Child,
    folder: PathBuf,
    /// Whether the folder goes with it.
    owns_folder: bool,
}

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit code.
    pub code: Option<i32>,
}

/// Four ports, two of them with speaking names, and no ageing but what a test asks for.
pub const CONFIG: &str = r#"
idle_timeout = "none"
poll_interval = "20ms"
[[port]]
number = 1
name = "client"
[[port]]
number = 2
name = "server"
[[port]]
number = 3
name = "uplink"
[[port]]
number = 4
name = "vxlan_sys_4789"
kind = "vxlan"
underlay = "uplink"
"#;

impl Daemon {
    /// Starts a daemon with this configuration, and waits until it is ready.
    pub fn start(config: &str) -> Self {
        let folder = new_folder();
        Self::start_in(&folder, config, true)
    }

    /// The same in a folder that stays.
    pub fn start_in(folder: &Path, config: &str, owns_folder: bool) -> Self {
        Self::start_until((&[], folder), config, owns_folder, |daemon| daemon.http("/readyz").0 == 200)
    }

    /// The same of one that will not be ready; waits until it has finished its first round of revalidation.
    pub fn start_unready_in(folder: &Path, config: &str) -> Self {
        let is_up = |daemon: &Self| daemon.metric("sluice_revalidator_rounds_total").is_some_and(|rounds| rounds > 0.0);
        Self::start_until((&[], folder), config, false, is_up)
    }

    /// Starts one by a program that runs it, in a folder that stays, and waits until it is ready.
    pub fn start_by(program: &[String], folder: &Path, config: &str) -> Self {
        Self::start_until((program, folder), config, false, |daemon| daemon.http("/readyz").0 == 200)
    }

    fn start_until(
        (program, folder): (&[String], &Path),
        config: &str,
        owns_folder: bool,
        is_up: impl Fn(&Self) -> bool,
    ) -> Self {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        // A device in software is one of the test's own; of any other the configuration has the name.
        let device = if config.contains("device = ") { String::new() } else { format!("device = \"{name}\"\n") };
        let places = |port: u16| {
            format!(
                "run_dir = \"{0}/run\"\nlock_dir = \"{0}\"\nstate_dir = \"{0}/state\"\n{device}metrics = \"127.0.0.1:{port}\"\n",
                folder.display()
            )
        };
        std::fs::create_dir_all(folder).expect("the folder is made");
        loop {
            std::fs::write(folder.join("sluiced.toml"), places(free_port()) + config).expect("the file is written");
            let log = std::fs::File::create(folder.join("log")).expect("a log");
            let mut command = match program {
                [] => Command::new(binary("sluiced")),
                [first, rest @ ..] => {
                    let mut command = Command::new(first);
                    command.args(rest).arg(binary("sluiced"));
                    command
                }
            };
            let process = command
                .arg("--config")
                .arg(folder.join("sluiced.toml"))
                .stderr(log)
                .spawn()
                .expect("sluiced is built: cargo build --workspace --bins");
            let mut daemon = Self { process, folder: folder.to_owned(), owns_folder };
            let mut ended = None;
            eventually("the agent is ready or has ended", || {
                ended = daemon.process.try_wait().expect("its status");
                // A killed agent leaves its socket behind, to which nobody listens.
                ended.is_some() || UnixStream::connect(daemon.socket()).is_ok() && is_up(&daemon)
            });
            match ended {
                None => return daemon,
                // Somebody else was given the port that was free a moment ago.
                Some(_) if daemon.log().contains("Address already in use") => daemon.owns_folder = false,
                Some(status) => panic!("sluiced ended at once, {status}: {}", daemon.log()),
            }
        }
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("sluiced.ctl")
    }

    /// The run folder.
    pub fn run_dir(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// The folder with the configuration, the log and whatever a test puts there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The lines of its configuration file.
    pub fn config(&self) -> String {
        std::fs::read_to_string(self.folder.join("sluiced.toml")).expect("the configuration")
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Runs `sluice` on it.
    pub fn sluice(&self, args: &[&str]) -> Ran {
        run(Command::new(binary("sluice")).arg("--run-dir").arg(self.run_dir()).args(args))
    }

    /// Runs `sluice` on it, and does not wait for its end.
    pub fn spawn_sluice(&self, args: &[&str]) -> Child {
        let mut sluice = Command::new(binary("sluice"));
        sluice.arg("--run-dir").arg(self.run_dir()).args(args);
        sluice.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("sluice is built")
    }

    /// Runs the stock `ovs-appctl` on it.
    pub fn appctl(&self, args: &[&str]) -> Ran {
        run(Command::new("ovs-appctl").arg("-t").arg(self.socket()).args(args))
    }

    /// Sends bytes to the control socket, and gives all that comes until the other side closes or is silent for long.
    pub fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("the control socket");
        stream.set_read_timeout(Some(Duration::from_secs(15))).expect("a time limit");
        // The other side may close while much is still to be sent.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Gets a page: status and body, or 0 if the agent is not there, or ends meanwhile.
    pub fn http(&self, path: &str) -> (u16, String) {
        let config = self.config();
        let address = config.lines().find_map(|line| line.strip_prefix("metrics = \"")).expect("an address");
        let address: SocketAddr = address.trim_end_matches('"').parse().expect("an address");
        let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
        let mut reply = String::new();
        let asked = write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        if asked.and_then(|()| stream.read_to_string(&mut reply)).is_err() {
            return (0, String::new());
        }
        let status = reply.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (status, reply.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    /// The value of a metric, labels included in its name; `None` if it is absent.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let text = self.http("/metrics").1;
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Memory that it holds, in bytes.
    pub fn memory(&self) -> usize {
        memory(self.pid())
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually("the agent has ended", || {
            ended = self.process.try_wait().expect("its status");
            ended.is_some()
        });
        ended.expect("a status")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("log of sluiced:\n{}", self.log());
        } else if self.owns_folder {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A folder for one test.
pub fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("sluice-test-{}-{count}", std::process::id()))
}

/// Memory that a process holds, in bytes.
pub(crate) fn memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Processor time that the threads of a process whose names begin so have taken.
pub fn time_of_threads(pid: u32, name: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let spent = tasks.filter_map(|task| {
        let folder = task.ok()?.path();
        // A thread may end meanwhile.
        let command = std::fs::read_to_string(folder.join("comm")).ok()?;
        let statistics = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        let nanoseconds = statistics.split(' ').next()?.parse().ok()?;
        command.starts_with(name).then_some(Duration::from_nanos(nanoseconds))
    });
    spent.sum()
}

/// A program of this workspace, which was built together with the test.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    folder.join(name)
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(path)
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { out: text(&output.stdout), err: text(&output.stderr), code: output.status.code() }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
