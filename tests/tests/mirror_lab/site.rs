//! A switch whose control traffic is mirrored, with what stands around it: namespaces `leaf` and `spine` behind its ports, which a bridge
//! joins, an agent that copies with tc, both mirror programs, and the namespace `host` in which the collector's TAP is.

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

use crate::lab::ADDRESS;
use crate::programs::{Program, until};

pub(crate) const SPACES: [&str; 3] = ["leaf", "spine", "host"];
const CONFIG: &str = "backend = \"tc\"
tc.policy = \"skip_hw\"
idle_timeout = \"none\"
poll_interval = \"100ms\"
[mirror]
collector = \"10.9.0.1:4790\"
[[port]]
number = 1
name = \"p1\"
[[port]]
number = 2
name = \"p2\"
";

/// The classes that tc mirrors.
pub(crate) const CLASSES: [Class; 8] =
    [Class::Arp, Class::Nd, Class::Lldp, Class::Lacp, Class::Dhcp, Class::Bgp, Class::Bfd, Class::Ospf];

/// All of it, which goes with this.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) agent: Daemon,
    pub(crate) sender: Option<Program>,
    pub(crate) collector: Option<Program>,
    pub(crate) daemons: Vec<Spawned>,
}

impl Site {
    /// Starts it, silent as yet. The sender is given these options on top, and the collector injects into a TAP if it is to.
    pub(crate) fn new(options: &[&str], has_tap: bool) -> Self {
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
        let agent = Daemon::start_in(&new_folder(), CONFIG, true);
        let (listen, capture) = (format!("{ADDRESS}:4790"), folder.path().join("control.pcapng"));
        let mut args = vec!["--listen", &listen, "--write", capture.to_str().unwrap()];
        if has_tap {
            args.extend(["--tap", "mirror0"]);
        }
        let collector = Program::collect(folder.path(), &args).ready();
        let socket = agent.run_dir().join("mirror.sock");
        let args = [&["--agent", socket.to_str().unwrap(), "--name", "leaf-1"][..], options].concat();
        let sender = Program::send(folder.path(), &args).ready();
        let site = Self { folder, agent, sender: Some(sender), collector: Some(collector), daemons: Vec::new() };
        until("the sender is connected and reads the taps", || {
            site.sender().metric("send_connected") == 1
                && std::fs::read_to_string("/proc/net/packet").unwrap().lines().count() > 8
        });
        site
    }

    pub(crate) fn sender(&self) -> &Program {
        self.sender.as_ref().unwrap()
    }

    pub(crate) fn collector(&self) -> &Program {
        self.collector.as_ref().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts a program in a namespace, which is killed with the site.
    pub(crate) fn spawn(&mut self, space: &str, command: &str) {
        let log = self.folder.path().join(format!("daemon{}.log", self.daemons.len()));
        self.daemons.push(Spawned::new(space, command, &log));
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
                self.collector.as_ref().map(Program::log).unwrap_or_default()
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
