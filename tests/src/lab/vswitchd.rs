//! A real ovs-vswitchd with the kernel's datapath, which hands its flows to tc (`hw-offload`), for software alone
//! (`tc-policy=skip_hw`).

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice_flow::PortNumber;

use crate::daemon::{new_folder, run, time_of_threads};
use crate::world::eventually;

/// OVS 3.1 takes a machine that has been up for less for one without processors (`count_cpu_cores`).
const UPTIME: Duration = Duration::from_secs(12);

/// `ovs-vswitchd` with a bridge, in a folder of its own; with its end the bridge and what it put into tc are gone.
pub struct OffloadingVswitchd {
    folder: PathBuf,
    /// Where its programs are, if they are not those of the system.
    programs: Option<PathBuf>,
    /// The network namespace that it is in, if it is another.
    space: Option<String>,
    /// Of the daemon alone.
    environment: Vec<(String, String)>,
    processes: Vec<Child>,
}

impl OffloadingVswitchd {
    /// Starts one with some network devices as ports of its bridge. It looks at no flow again by itself, and deletes all
    /// datapaths that it finds.
    pub fn start(ports: &[&str]) -> Self {
        Self::start_in(None, ports)
    }

    /// The same in a network namespace, in which the devices are.
    pub fn start_in(space: Option<&str>, ports: &[&str]) -> Self {
        let settings = "hw-offload=true tc-policy=skip_hw max-idle=3600000 vlan-limit=2";
        let vswitchd = Self::start_of(None, (space, ports), settings, &[]);
        for command in [&["revalidator/pause"][..], &["upcall/set-flow-limit", "200000"]] {
            vswitchd.appctl(command).expect("a command that it knows");
        }
        vswitchd
    }

    /// One that looks at its flows as ever, with settings and an environment of its own: without `hw-offload=true` the kernel's datapath
    /// keeps them. Its programs are those of the system, or of a folder, in which the schema of the database is, too.
    pub fn start_of(
        programs: Option<&Path>,
        (space, ports): (Option<&str>, &[&str]),
        settings: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        while uptime() < UPTIME {
            std::thread::sleep(Duration::from_millis(100));
        }
        let folder = new_folder();
        std::fs::create_dir_all(&folder).expect("the folder is made");
        let programs = programs.map(Path::to_owned);
        let schemas = programs.clone().unwrap_or_else(|| "/usr/share/openvswitch".into());
        let space = space.map(str::to_owned);
        let mut vswitchd = Self { folder, programs, space, environment: vec![], processes: vec![] };
        let schema = schemas.join("vswitch.ovsschema").display().to_string();
        vswitchd.tool("ovsdb-tool", &["create", &vswitchd.path("conf.db"), &schema]);
        let remote = format!("--remote=punix:{}", vswitchd.path("db.sock"));
        let mut database = vswitchd.command("ovsdb-server");
        database.args([&vswitchd.path("conf.db"), &remote]);
        vswitchd.spawn(database);
        eventually("the database is there", || UnixStream::connect(vswitchd.folder.join("db.sock")).is_ok());
        vswitchd.configure("--no-wait init");
        settings.split(' ').for_each(|setting| vswitchd.set_for_next(setting));
        vswitchd.environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        vswitchd.spawn_daemon();
        let ports = ports.iter().map(|port| format!(" -- add-port br0 {port}")).collect::<String>();
        vswitchd.configure(&format!("add-br br0 -- set bridge br0 fail-mode=secure{ports}"));
        vswitchd
    }

    /// Kills the daemon and starts it again. The datapath stays meanwhile; rules of OpenFlow do not.
    pub fn kill_and_start(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Kills the daemon.
    pub fn kill(&mut self) {
        let mut killed = self.processes.pop().expect("the daemon");
        killed.kill().expect("a process");
        killed.wait().expect("a process");
    }

    /// Ends the daemon in order, which leaves its datapath.
    pub fn exit(&mut self) {
        self.appctl(&["exit"]).expect("a command that it knows");
        self.processes.pop().expect("the daemon").wait().expect("a process");
    }

    /// Starts the daemon again that has ended.
    pub fn start_again(&mut self) {
        self.spawn_daemon();
        // Until it has its bridge: ovs-vsctl waits for it only where something has changed.
        self.configure(&format!("set bridge br0 external_ids:daemon={}", self.pid()));
    }

    /// Adds a tunnel as a port of its bridge.
    pub fn add_tunnel(&self, name: &str, kind: &str, remote: &str, key: u32) {
        let options = format!("type={kind} options:remote_ip={remote} options:key={key}");
        self.configure(&format!("add-port br0 {name} -- set interface {name} {options}"));
    }

    /// The number that the datapath has a port under.
    pub fn port(&self, name: &str) -> PortNumber {
        let show = self.appctl(&["dpctl/show"]).expect("a datapath");
        let line = show.lines().find_map(|line| {
            let (number, rest) = line.trim().strip_prefix("port ")?.split_once(": ")?;
            (rest.split(' ').next() == Some(name)).then(|| number.parse().ok())?
        });
        PortNumber(line.unwrap_or_else(|| panic!("no {name}: {show}")))
    }

    /// Adds a flow, or says why it is not taken.
    pub fn add_flow(&self, key: &str, actions: &str) -> Result<(), String> {
        self.appctl(&["dpctl/add-flow", key, actions]).map(drop)
    }

    /// Puts an OpenFlow rule in.
    pub fn set_rule(&self, rule: &str) {
        self.tool("ovs-ofctl", &["add-flow", &format!("unix:{}", self.path("br0.mgmt")), rule]);
    }

    /// The same for one that names a meter, which OpenFlow has from 1.3 on.
    pub fn set_metered_rule(&self, rule: &str) {
        self.asked(&["-OOpenFlow13", "add-flow", &format!("unix:{}", self.path("br0.mgmt")), rule]);
    }

    /// Puts all OpenFlow rules of a file in.
    pub fn set_rules(&self, file: &Path) {
        let file = file.display().to_string();
        self.tool("ovs-ofctl", &["add-flows", &format!("unix:{}", self.path("br0.mgmt")), &file]);
    }

    /// What it counts for its OpenFlow rules.
    pub fn rules(&self) -> String {
        self.asked(&["dump-flows", &format!("unix:{}", self.path("br0.mgmt"))])
    }

    /// Adds, changes or deletes a meter of OpenFlow by this command.
    pub fn meter(&self, command: &str, meter: &str) {
        self.asked(&["-OOpenFlow13", command, &format!("unix:{}", self.path("br0.mgmt")), meter]);
    }

    /// What it counts for meters of OpenFlow.
    pub fn meter_counters(&self) -> String {
        self.asked(&["-OOpenFlow13", "meter-stats", &format!("unix:{}", self.path("br0.mgmt"))])
    }

    fn asked(&self, arguments: &[&str]) -> String {
        let ran = run(self.command("ovs-ofctl").args(arguments));
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
        ran.out
    }

    /// Lets it look at its flows again from now on, with room for twice as many as there will be. One round has passed.
    pub fn revalidate(&self, flows: usize) {
        for setting in ["n-revalidator-threads=1", "min-revalidate-pps=0", &format!("flow-limit={}", flows * 2)] {
            self.configure(&format!("set Open_vSwitch . other_config:{setting}"));
        }
        self.appctl(&["revalidator/resume"]).expect("a command that it knows");
        self.rounds(1);
        // It takes the pause for a round that took long, and allows fewer flows after such a one.
        self.appctl(&["upcall/set-flow-limit", &(flows * 2).to_string()]).expect("a command that it knows");
    }

    /// Waits for so many rounds of its revalidator, and gives the processor time that they took.
    pub fn rounds(&self, rounds: usize) -> Duration {
        let process = self.pid();
        let before = time_of_threads(process, "revalidator");
        for _ in 0..rounds {
            self.appctl(&["revalidator/wait"]).expect("a command that it knows");
        }
        time_of_threads(process, "revalidator") - before
    }

    /// The process of the daemon.
    pub fn pid(&self) -> u32 {
        self.processes.last().expect("the daemon").id()
    }

    /// Runs a command of the daemon.
    pub fn appctl(&self, arguments: &[&str]) -> Result<String, String> {
        let control = self.path("vswitchd.ctl");
        let ran = run(self.command("ovs-appctl").args(["-t", &control]).args(arguments));
        if ran.code == Some(0) { Ok(ran.out) } else { Err(ran.err) }
    }

    /// Sets columns of a port's record in the database, and waits until the daemon has taken them.
    pub fn set_interface(&self, port: &str, columns: &str) {
        self.configure(&format!("set interface {port} {columns}"));
    }

    /// Sets a key of `other_config`, of which the daemon hears when it starts.
    pub fn set_for_next(&self, setting: &str) {
        self.configure(&format!("--no-wait set Open_vSwitch . other_config:{setting}"));
    }

    /// A place in its folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Changes it, as ovs-vsctl is told.
    pub fn configure(&self, words: &str) {
        let database = format!("--db=unix:{}", self.path("db.sock"));
        let words: Vec<_> = ["--timeout=60", &database].into_iter().chain(words.split(' ')).collect();
        self.tool("ovs-vsctl", &words);
    }

    fn tool(&self, program: &str, arguments: &[&str]) {
        let ran = run(self.command(program).args(arguments));
        assert_eq!(ran.code, Some(0), "{program} {arguments:?}: {}", ran.err);
    }

    fn spawn_daemon(&mut self) {
        let database = format!("unix:{}", self.path("db.sock"));
        let control = format!("--unixctl={}", self.path("vswitchd.ctl"));
        let mut command = self.command("ovs-vswitchd");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args([&database, "-vconsole:off", "-vfile:off", "-vsyslog:off", &control]);
        self.spawn(command);
    }

    fn spawn(&mut self, mut command: Command) {
        let child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        self.processes.push(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.as_ref().map_or_else(|| program.into(), |folder| folder.join(program));
        let mut command = match &self.space {
            None => Command::new(program),
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space]).arg(program);
                command
            }
        };
        command.env("OVS_RUNDIR", &self.folder).env("OVS_LOGDIR", &self.folder).env("OVS_DBDIR", &self.folder);
        command
    }
}

impl Drop for OffloadingVswitchd {
    fn drop(&mut self) {
        let _ = self.appctl(&["exit", "--cleanup"]);
        for process in self.processes.iter_mut().rev() {
            // The daemon ends by itself; its database does not.
            for _ in 0..50 {
                if matches!(process.try_wait(), Ok(Some(_))) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn uptime() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
    Duration::from_secs_f64(text.split(' ').next().and_then(|word| word.parse().ok()).expect("seconds"))
}
