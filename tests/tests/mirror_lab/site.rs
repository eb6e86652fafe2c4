//! A switch whose control traffic is mirrored, with what stands around it: namespaces `leaf` and `spine` behind its ports, which a bridge
//! joins, an agent that copies with tc, both mirror programs, and the host in which the collector's TAP is: the namespace `host`, or a machine
//! of its own.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_control::mirror::Class;
use sluice_tests::daemon::{Daemon, new_folder};
use sluice_tests::lab::iproute::{attempt, batch, batch_in};
use sluice_tests::lab::run;
use tempfile::TempDir;

use crate::collector::{Collector, Place};
use crate::far;
use crate::programs::{Program, until};

/// Where daemons hear what the collector injects.
const HOST: &str = "host";
pub(crate) const SPACES: [&str; 3] = ["leaf", "spine", HOST];

/// The configuration of the agent.
fn config(place: Place) -> String {
    format!(
        "backend = \"tc\"
tc.policy = \"skip_hw\"
idle_timeout = \"none\"
poll_interval = \"100ms\"
[mirror]
collector = \"{}:4790\"
[[port]]
number = 1
name = \"p1\"
[[port]]
number = 2
name = \"p2\"
",
        place.address()
    )
}

/// The classes that tc mirrors.
pub(crate) const CLASSES: [Class; 8] =
    [Class::Arp, Class::Nd, Class::Lldp, Class::Lacp, Class::Dhcp, Class::Bgp, Class::Bfd, Class::Ospf];

/// All of it, which goes with this.
pub(crate) struct Site {
    place: Place,
    pub(crate) folder: TempDir,
    pub(crate) agent: Daemon,
    pub(crate) sender: Option<Program>,
    pub(crate) collector: Option<Collector>,
    pub(crate) daemons: Vec<Spawned>,
}

impl Site {
    /// Starts it, silent as yet. The sender is given these options on top.
    pub(crate) fn new(options: &[&str]) -> Self {
        Self::with(Place::Here, options, false)
    }

    /// The same with a collector there, which injects into a TAP if it is to.
    pub(crate) fn with(place: Place, options: &[&str], has_tap: bool) -> Self {
        run("modprobe --all cls_flower sch_ingress act_mirred act_gact veth dummy bridge 8021q tun");
        batch(&SPACES.map(|name| format!("netns add {name}")));
        for space in SPACES {
            // Nobody says anything before captures have begun.
            within(space, || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap());
        }
        batch(&["link add br0 mtu 9000 type bridge mcast_snooping 0 forward_delay 0".into(), "link set br0 up".into()]);
        for (number, space) in [(1, "leaf"), (2, "spine")] {
            batch(&[
                format!("link add p{number} mtu 9000 type veth peer name eth0 netns {space}"),
                format!("link set p{number} up master br0"),
            ]);
            batch_in(space, &["link set lo up".into(), format!("link set eth0 mtu 9000 address {} up", mac(number))]);
        }
        let folder = tempfile::tempdir().unwrap();
        let agent = Daemon::start_in(&new_folder(), &config(place), true);
        let collector = Collector::start(place, folder.path(), has_tap);
        let socket = agent.run_dir().join("mirror.sock");
        let args = [&["--agent", socket.to_str().unwrap(), "--name", "leaf-1"][..], options].concat();
        let sender = Program::send(folder.path(), &args).ready();
        let (sender, collector) = (Some(sender), Some(collector));
        let site = Self { place, folder, agent, sender, collector, daemons: Vec::new() };
        until("the sender is connected and reads the taps", || {
            site.sender().metric("send_connected") == 1
                && std::fs::read_to_string("/proc/net/packet").unwrap().lines().count() > 8
        });
        site
    }

    pub(crate) fn sender(&self) -> &Program {
        self.sender.as_ref().unwrap()
    }

    pub(crate) fn collector(&self) -> &Collector {
        self.collector.as_ref().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file, for the host as well.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        if self.place == Place::There {
            far::told(&format!("cat >{} <<'END'\n{text}\nEND", self.path(name)));
        }
    }

    /// Starts a program in a namespace or in the host, which is killed with the site.
    pub(crate) fn spawn(&mut self, space: &str, command: &str) {
        if self.is_far(space) {
            let log = self.path(&format!("{}.log", command.split(' ').next().unwrap()));
            far::told(&format!("{command} >{log} 2>&1 &"));
            return;
        }
        let log = self.folder.path().join(format!("daemon{}.log", self.daemons.len()));
        self.daemons.push(Spawned::new(space, command, &log));
    }

    /// What a program in a namespace or in the host prints.
    pub(crate) fn told(&self, space: &str, command: &str) -> String {
        if self.is_far(space) { far::told(&format!("{command} 2>/dev/null")) } else { told(space, command) }
    }

    fn is_far(&self, space: &str) -> bool {
        self.place == Place::There && space == HOST
    }

    /// Makes the collector's TAP a device of the host that daemons can use, and gives them a way back of their own to the leaf: what goes into
    /// the TAP there is read by nobody.
    pub(crate) fn take_tap(&self) {
        // By which device the host reaches the leaf, and over which next hop.
        let (device, next_hop) = match self.place {
            Place::Here => {
                until("the TAP is there", || std::fs::exists("/sys/class/net/mirror0").unwrap());
                batch(&[
                    "link set mirror0 netns host".into(),
                    "link add back netns host type veth peer name back netns leaf".into(),
                ]);
                self.told(HOST, "ip link set back up");
                self.told(HOST, "ip addr add 10.30.0.3/24 dev back");
                ("back", "10.30.0.1")
            }
            Place::There => {
                until("the TAP is there", || far::told("ls /sys/class/net").contains("mirror0"));
                batch(&[
                    "link add back type veth peer name back netns leaf".into(),
                    "link set back up".into(),
                    "addr add 10.30.0.3/24 dev back".into(),
                    "route add 10.20.0.1/32 via 10.30.0.1 dev back".into(),
                ]);
                for name in ["all", "cable"] {
                    run(&format!("sysctl -qw net.ipv4.conf.{name}.rp_filter=0"));
                }
                run("sysctl -qw net.ipv4.ip_forward=1");
                ("cable", "10.10.0.1")
            }
        };
        for (space, device) in [(HOST, "mirror0"), (HOST, device), ("leaf", "back"), ("leaf", "eth0")] {
            for name in ["all", device] {
                self.told(space, &format!("sysctl -qw net.ipv4.conf.{name}.rp_filter=0"));
            }
        }
        for words in [
            "link set lo up",
            "link set mirror0 address 02:00:00:00:0a:03 mtu 9000 up",
            "addr add 10.20.0.3/24 dev mirror0",
        ] {
            self.told(HOST, &format!("ip {words}"));
        }
        batch_in("leaf", &["link set back up".into(), "addr add 10.30.0.1/24 dev back".into()]);
        self.told(HOST, &format!("ip route add 10.20.0.1/32 via {next_hop} dev {device} src 10.20.0.3"));
        assert!(self.collector().metric("collect_connections") == 1);
    }

    /// Ends all daemons.
    pub(crate) fn end_daemons(&mut self) {
        self.daemons.clear();
        if self.place == Place::There {
            far::told("pkill -x bird; pkill -x lldpd");
        }
    }

    /// What tc has counted of a class.
    pub(crate) fn counted(&self, class: Class) -> u64 {
        let series = format!("sluice_control_mirror_packets_total{{class=\"{class}\"}}");
        let counted = self.agent.metric(&series).unwrap_or_default();
        format!("{counted:.0}").parse().unwrap()
    }

    /// What the rings have taken and dropped of a class.
    pub(crate) fn ringed(&self, class: Class) -> (u64, u64) {
        let sender = self.sender();
        (sender.of("send_frames_total", class), sender.of("send_dropped_frames_total", class))
    }

    /// Waits until what tc has counted of each class is with the collector, or was dropped in a ring, and no more comes.
    pub(crate) fn settle(&self) {
        let counts = || CLASSES.map(|class| self.counted(class));
        let arrived = || {
            CLASSES.map(|class| {
                let sender = self.sender();
                let (acknowledged, dropped) =
                    (sender.of("send_acknowledged_frames_total", class), sender.of("send_dropped_frames_total", class));
                acknowledged + dropped
            })
        };
        let mut last = ([0; 8], Instant::now());
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let now = counts();
            if now != last.0 {
                last = (now, Instant::now());
            }
            // Counters of tc are read every tenth of a second.
            if last.1.elapsed() > Duration::from_secs(1) && arrived() == now {
                return;
            }
            assert!(Instant::now() < deadline, "tc has counted {now:?}, {:?} have arrived", arrived());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for place in 0..self.daemons.len() {
                let log = std::fs::read_to_string(self.folder.path().join(format!("daemon{place}.log")));
                eprintln!("{}:\n{}", self.daemons[place].name, log.unwrap_or_default());
            }
            eprintln!(
                "sender: {}\ncollector: {}",
                self.sender.as_ref().map(Program::log).unwrap_or_default(),
                self.collector.as_ref().map(|collector| collector.log(self.folder.path())).unwrap_or_default()
            );
        }
        self.daemons.clear();
        attempt(&SPACES.map(|name| format!("netns del {name}")));
        attempt(&["link del br0".into()]);
    }
}

/// The address of a namespace's end of its cable.
pub(crate) fn mac(number: u32) -> String {
    format!("02:00:00:00:0a:0{number}")
}

/// A program of somebody else.
pub(crate) struct Spawned {
    name: String,
    process: Child,
}

impl Spawned {
    pub(crate) fn new(space: &str, command: &str, log: &Path) -> Self {
        let log = File::create(log).unwrap();
        let process = Command::new("ip")
            .args(["netns", "exec", space])
            .args(command.split_whitespace())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { name: command.to_owned(), process }
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // Programs of several processes end with the first, if that is told to.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a program in a namespace prints.
pub(crate) fn told(space: &str, command: &str) -> String {
    let mut child = Command::new("ip")
        .args(["netns", "exec", space])
        .args(command.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    text
}

/// Does something in a namespace.
pub(crate) fn within<R: Send>(space: &str, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{space}")).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}
