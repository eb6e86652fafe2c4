//! A real ovs-vswitchd on its dummy datapath, which is OVS's userspace datapath with wires made of commands and files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sluice_capture::Capture;
use sluice_control::Client;
use sluice_flow::PortNumber;

use crate::daemon::{Ran, new_folder, run};
use crate::world::eventually;

/// Ports of the bridge, p1 and so on.
pub const PORTS: u32 = 4;
/// The port on which packets are sent that only tell how far the datapath has come.
const MARKER_PORT: u32 = PORTS + 1;
/// An Ethernet frame of a type for experiments (IEEE 802, local experimental Ethertype 2).
const MARKER: &str = "02000000000202000000000188b60000000000000000000000000000";

/// Room for what is longer when it leaves than when it came in.
const MTU: u32 = 9000;

/// Bytes of a capture in front of its first frame.
const CAPTURE_HEADER: u64 = 24;

/// Which Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The one that the system has installed.
    System,
    /// The newest that Debian has, which `tests/lab/openvswitch` brings.
    Newest,
}

impl Release {
    /// Where its programs are, if not on the path.
    fn programs(self) -> Option<PathBuf> {
        (self == Self::Newest).then(|| {
            let brought = run(&mut Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/openvswitch")));
            assert_eq!(brought.code, Some(0), "{}", brought.err);
            PathBuf::from(brought.out.trim_end())
        })
    }
}

/// `ovs-vswitchd` with a bridge of dummy ports, in a folder of its own.
pub struct Vswitchd {
    /// Where the programs are, if not on the path.
    programs: Option<PathBuf>,
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Vswitchd {
    /// Starts one, with its revalidator paused: it would delete what no OpenFlow rule asks for. A packet that misses
    /// installs nothing: what it would install overlaps flows that others hit.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with some settings, such as `other_config:vlan-limit=2`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_of(Release::System, settings)
    }

    /// The same of a certain Open vSwitch.
    pub fn start_of(release: Release, settings: &[&str]) -> Self {
        let folder = new_folder();
        std::fs::create_dir_all(&folder).expect("the folder is made");
        let mut vswitchd = Self { programs: release.programs(), folder, processes: Vec::new() };
        let schemas = vswitchd.programs.as_deref().unwrap_or(Path::new("/usr/share/openvswitch"));
        let schema = schemas.join("vswitch.ovsschema").display().to_string();
        vswitchd.tool("ovsdb-tool", &["create", &vswitchd.path("conf.db"), &schema]);
        vswitchd.spawn(
            "ovsdb-server",
            &[&vswitchd.path("conf.db"), &format!("--remote=punix:{}", vswitchd.path("db.sock"))],
        );
        // The socket is there a moment before somebody listens.
        eventually("the database is there", || UnixStream::connect(vswitchd.folder.join("db.sock")).is_ok());
        let database = format!("unix:{}", vswitchd.path("db.sock"));
        let control = format!("--unixctl={}", vswitchd.path("vswitchd.ctl"));
        let pidfile = format!("--pidfile={}", vswitchd.path("ovs-vswitchd.pid"));
        vswitchd.spawn("ovs-vswitchd", &[&database, "--enable-dummy", "--disable-system", &control, &pidfile]);
        let mut setup = vec![format!("--db={database}"), "--timeout=20".into(), "add-br".into(), "br0".into()];
        let mut add = |words: &str| setup.extend(words.split(' ').map(str::to_owned));
        add("-- set bridge br0 datapath-type=dummy fail-mode=secure");
        add("-- set open_vswitch . other_config:vlan-limit=2");
        settings.iter().for_each(|setting| add(&format!("-- set Open_vSwitch . {setting}")));
        for port in 1..=MARKER_PORT {
            let capture = vswitchd.path(&format!("p{port}.pcap"));
            add(&format!("-- add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port}"));
            add(&format!("options:tx_pcap={capture} mtu_request={MTU}"));
        }
        let setup: Vec<_> = setup.iter().map(String::as_str).collect();
        vswitchd.tool("ovs-vsctl", &setup);
        vswitchd.appctl(&["revalidator/pause"]);
        vswitchd.appctl(&["upcall/set-flow-limit", "0"]);
        vswitchd
    }

    /// Adds a tunnel port whose outer header flows give, and returns its number in the datapath.
    pub fn add_tunnel(&self, kind: &str) -> PortNumber {
        let database = format!("--db=unix:{}", self.path("db.sock"));
        let name = format!("{kind}0");
        let mut words =
            vec![database.as_str(), "--timeout=20", "add-port", "br0", &name, "--", "set", "interface", &name];
        let kind = format!("type={kind}");
        words.extend([&kind, "options:remote_ip=flow", "options:key=flow"]);
        if kind == "type=erspan" {
            words.push("options:erspan_ver=flow");
        }
        self.tool("ovs-vsctl", &words);
        let show = self.appctl(&["dpctl/show"]).out;
        // "  port 4789: vxlan_sys_4789 (vxlan: ...)"
        let is_of_kind = |line: &&str| line.contains(&format!(" ({}", &kind["type=".len()..]));
        let line = show.lines().rev().find(is_of_kind).unwrap_or_else(|| panic!("{kind}: {show}"));
        let number = line.trim().strip_prefix("port ").and_then(|rest| rest.split(':').next());
        PortNumber(number.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{line}")))
    }

    /// Its version, such as "3.1.0".
    pub fn version(&self) -> String {
        let said = self.appctl(&["version"]).out;
        // "ovs-vswitchd (Open vSwitch) 3.1.0"
        said.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a version").to_owned()
    }

    /// Memory that the daemon holds, in bytes.
    pub fn memory(&self) -> usize {
        crate::daemon::memory(self.pid())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.processes.last().expect("it was started after its database").id()
    }

    /// Lets its ports send without writing down what: a capture costs more than a packet.
    pub fn without_captures(&self) {
        let database = format!("--db=unix:{}", self.path("db.sock"));
        for port in 1..=MARKER_PORT {
            let interface = format!("p{port}");
            self.tool(
                "ovs-vsctl",
                &[&database, "--timeout=20", "remove", "interface", &interface, "options", "tx_pcap"],
            );
        }
    }

    /// A place in its folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = match &self.programs {
            Some(folder) => Command::new(folder.join(program)),
            None => Command::new(program),
        };
        command.env("OVS_RUNDIR", &self.folder).env("OVS_LOGDIR", &self.folder).env("OVS_DBDIR", &self.folder);
        command
    }

    fn spawn(&mut self, program: &str, args: &[&str]) {
        let child = self.command(program).args(args).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        self.processes.push(child.unwrap_or_else(|error| panic!("{program}: {error}")));
    }

    pub(crate) fn tool(&self, program: &str, args: &[&str]) {
        let ran = run(self.command(program).args(args));
        assert_eq!(ran.code, Some(0), "{program}: {}", ran.err);
    }

    /// Puts an OpenFlow rule in, in place of all others. Packets that no flow of the datapath takes go through it.
    pub fn set_rule(&self, rule: &str) {
        self.ofctl("del-flows", &[]);
        self.ofctl("add-flow", &[rule]);
    }

    /// Adds a group, in the words of `ovs-ofctl`.
    pub fn add_group(&self, group: &str) {
        self.ofctl("add-group", &[group]);
    }

    /// Adds a meter, in the words of `ovs-ofctl`. The first that is added has the number 0 in the datapath.
    pub fn add_meter(&self, meter: &str) {
        self.ofctl("add-meter", &[meter]);
    }

    fn ofctl(&self, command: &str, arguments: &[&str]) {
        let bridge = format!("unix:{}", self.path("br0.mgmt"));
        self.tool("ovs-ofctl", &[&["--protocols=OpenFlow13", command, &bridge], arguments].concat());
    }

    /// What the datapath is to do with a frame by the OpenFlow rule, in each chain that the frame goes through.
    pub fn datapath_actions(&self, port: u32, frame: &[u8]) -> Vec<String> {
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let trace = self.appctl(&["ofproto/trace", "br0", &format!("in_port={port}"), &digits]);
        let actions = trace.out.lines().filter_map(|line| line.strip_prefix("Datapath actions: "));
        let actions: Vec<_> = actions.map(str::to_owned).collect();
        assert!(!actions.is_empty(), "{}{}", trace.out, trace.err);
        actions
    }

    /// Runs a command of the daemon.
    pub fn appctl(&self, args: &[&str]) -> Ran {
        run(self.command("ovs-appctl").arg("-t").arg(self.path("vswitchd.ctl")).args(args))
    }
}

/// The wires of its ports.
pub struct Wires {
    folder: PathBuf,
    control: Client,
    /// How far each wire's capture has been read.
    read: Vec<u64>,
}

impl Wires {
    /// Takes the ends of all wires in hand. Flows that were there are gone afterwards.
    pub fn new(vswitchd: &Vswitchd) -> Self {
        let control = Client::connect(&vswitchd.folder.join("vswitchd.ctl")).expect("it listens");
        let mut wires =
            Self { folder: vswitchd.folder.clone(), control, read: vec![CAPTURE_HEADER; MARKER_PORT as usize] };
        wires.clear();
        (1..=MARKER_PORT).for_each(|port| drop(wires.carried(port)));
        wires
    }

    /// Installs a flow, or says why the datapath does not take it.
    pub fn add(&mut self, key: &str, actions: &str) -> Result<(), String> {
        self.call("dpctl/add-flow", &[key, actions])
    }

    /// Deletes all flows.
    pub fn clear(&mut self) {
        self.call("dpctl/del-flows", &[]).expect("flows can be deleted");
        let marker = format!("in_port({MARKER_PORT}),eth(),eth_type(0x88b6)");
        self.call("dpctl/add-flow", &[&marker, &MARKER_PORT.to_string()]).expect("the marker's flow");
    }

    /// Forgets all connections.
    pub fn forget_connections(&mut self) {
        self.call("dpctl/flush-conntrack", &[]).expect("connections can be forgotten");
    }

    /// Lets a frame in at a port, and returns what came out of all of them, port by port; `None` if that was the end of
    /// the daemon.
    pub fn play(&mut self, port: u32, frame: &[u8]) -> Option<Vec<(PortNumber, Vec<u8>)>> {
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        self.call("netdev-dummy/receive", &[&format!("p{port}"), &digits]).expect("a frame");
        // Ports are polled in an order of their own, so that the first marker may be faster than the frame; when the second
        // is through, the round in which the first went is over.
        for _ in 0..2 {
            self.call("netdev-dummy/receive", &[&format!("p{MARKER_PORT}"), MARKER]).ok()?;
            while self.carried(MARKER_PORT).is_empty() {
                self.call("version", &[]).ok()?;
            }
        }
        let sent = |port| self.carried(port).into_iter().map(move |frame| (PortNumber(port), frame));
        Some((1..=PORTS).flat_map(sent).collect())
    }

    fn call(&mut self, method: &str, params: &[&str]) -> Result<(), String> {
        self.control.call(method, params, &mut |_| {}).map_err(|error| error.to_string())
    }

    /// The frames that left through a port since it was asked last.
    fn carried(&mut self, port: u32) -> Vec<Vec<u8>> {
        let path = self.folder.join(format!("p{port}.pcap"));
        let mut file = File::open(path).expect("a capture");
        let mut header = Vec::new();
        file.by_ref().take(CAPTURE_HEADER).read_to_end(&mut header).expect("a capture");
        let read = &mut self.read[port as usize - 1];
        file.seek(SeekFrom::Start(*read)).expect("a capture");
        let mut capture = Capture::open(header.as_slice().chain(file)).expect("a capture");
        let mut frames = Vec::new();
        let before = capture.position();
        // A frame that is being written this moment is seen next time.
        while let Ok(Some(frame)) = capture.next() {
            frames.push(frame.data);
        }
        *read += capture.position() - before;
        frames
    }
}

impl Drop for Vswitchd {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
