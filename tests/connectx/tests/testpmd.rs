//! Debian's `dpdk-testpmd` with its mlx5 driver, by `connectx run`: rte_flow rules from its command line, and packets that walk them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so and ends")]

use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// One for each format of steering entries.
const PROFILES: [&str; 3] = ["connectx-5", "bluefield-2", "connectx-7"];
const PROMPT: &str = "testpmd> ";
/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running testpmd with one port, the wire of which the test holds.
struct Testpmd {
    child: Child,
    commands: ChildStdin,
    output: Receiver<String>,
    /// What it has said since the last command.
    said: String,
    /// All that it has said.
    log: String,
    folder: PathBuf,
    wire: UnixDatagram,
}

impl Testpmd {
    /// Starts it in a network of its own with a device for the port's netdev, and waits for its prompt.
    fn start(profile: &str, options: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        const NETWORK: &str = "(ip tuntap add dev p0 mode tap || ip link add p0 type dummy) && ip link set p0 address 02:00:00:00:01:00 && exec \"$@\"";
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("connectx-testpmd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let wire = UnixDatagram::bind(folder.join("wire.out")).unwrap();
        wire.set_read_timeout(Some(PATIENCE)).unwrap();
        // Its threads may run wherever this process may.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let processors = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"));
        let namespaces: &[&str] = if is_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
        let mut child = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", NETWORK, "sh"])
            .args([env!("CARGO_BIN_EXE_connectx"), "run", "--profile", profile, "--netdev", "p0", "--ports"])
            .arg(&folder)
            .args(["--", "stdbuf", "-oL", "dpdk-testpmd", "--no-huge", "-m", "128", "--no-shconf", "--no-telemetry"])
            .args(["--iova-mode=va", &format!("--lcores=0@({processors}),1@({processors})")])
            .args(["--", "-i", "--total-num-mbufs=2048"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, output) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut bytes) {
                    let _ = sender.send(String::from_utf8_lossy(&bytes[..length]).into_owned());
                }
            });
        }
        let commands = child.stdin.take().unwrap();
        let mut testpmd = Self { child, commands, output, said: String::new(), log: String::new(), folder, wire };
        testpmd.wait_for_prompt();
        testpmd
    }

    /// Gives a command; what is said until the next prompt.
    fn command(&mut self, command: &str) -> String {
        self.said.clear();
        writeln!(self.commands, "{command}").unwrap();
        self.wait_for_prompt()
    }

    /// Makes a flow on the port: its number.
    fn flow(&mut self, rule: &str) -> String {
        let said = self.command(&format!("flow create 0 {rule}"));
        let number = said.split("Flow rule #").nth(1).and_then(|rest| rest.split(' ').next());
        number.unwrap_or_else(|| panic!("{rule}: {said}")).to_owned()
    }

    /// Packets and bytes of a flow.
    fn count(&mut self, flow: &str) -> (u64, u64) {
        let said = self.command(&format!("flow query 0 {flow} count"));
        (number_after(&said, " hits:"), number_after(&said, " bytes:"))
    }

    /// Waits until so many packets have come to the program.
    fn wait_for_packets(&mut self, packets: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.command("show port stats 0");
            match number_after(&said, "RX-packets:") {
                come if come == packets => return,
                come => assert!(come < packets && Instant::now() < end, "{come} of {packets} packets: {}", self.log),
            }
        }
    }

    fn send(&self, frame: &[u8]) {
        self.wire.send_to(frame, self.folder.join("wire")).unwrap();
    }

    /// The next frame that comes out of the wire.
    fn receive(&self) -> Vec<u8> {
        let mut frame = vec![0; 2048];
        let length = self.wire.recv(&mut frame).unwrap_or_else(|error| panic!("{error}: {}", self.log));
        frame.truncate(length);
        frame
    }

    /// Ends it; the device must have had nothing to complain of, and nothing may be left in it.
    fn quit(mut self) {
        writeln!(self.commands, "quit").unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.log);
        self.log.extend(self.output.iter());
        // libmlx5 asks every function that manages a switch for those of a host, of which only an embedded processor knows.
        let wrong = |line: &&str| line.starts_with("connectx:") && !line.contains("QUERY_ESW_FUNCTIONS");
        assert_eq!(self.log.lines().filter(wrong).collect::<Vec<_>>(), Vec::<&str>::new(), "{}", self.log);
    }

    fn wait_for_prompt(&mut self) -> String {
        let end = Instant::now() + PATIENCE;
        while !self.said.contains(PROMPT) {
            let left = end.saturating_duration_since(Instant::now());
            let said = self.output.recv_timeout(left).unwrap_or_else(|error| panic!("{error}: {}", self.log));
            self.log.push_str(&said);
            self.said.push_str(&said);
        }
        std::mem::take(&mut self.said)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn number_after(text: &str, name: &str) -> u64 {
    let number = text.split(name).nth(1).and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// A UDP packet without a UDP checksum, from 10.0.0.9.
fn packet(destination: [u8; 4], time_to_live: u8, port: u16) -> Vec<u8> {
    const DATA: &[u8] = b"twenty bytes of data";
    let mut ip = [0x45, 0, 0, 48, 0, 1, 0, 0, time_to_live, 17, 0, 0, 10, 0, 0, 9, 0, 0, 0, 0];
    ip[16..].copy_from_slice(&destination);
    let sum: u32 = ip.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let addresses = [2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 2, 8, 0];
    let ports = [4000_u16.to_be_bytes(), port.to_be_bytes(), 28_u16.to_be_bytes(), [0, 0]].concat();
    [&addresses, &ip[..], &ports, DATA].concat()
}

#[test]
fn a_port_comes_up_and_tells_which_device_it_is() {
    let mut testpmd = Testpmd::start("bluefield-2", &[]);
    let said = testpmd.command("show port info 0");
    for words in ["Driver name: mlx5_pci", "Firmware-version: 24.35.1000", "MAC address: 02:00:00:00:01:00"] {
        assert!(said.contains(words), "{words} in {said}");
    }
    testpmd.quit();
}

#[test]
fn a_flow_of_group_0_drops_and_counts_its_own_packets_and_the_others_arrive() {
    let mut testpmd = Testpmd::start("bluefield-2", &[]);
    testpmd.command("set fwd rxonly");
    testpmd.command("start");
    let rule = "ingress pattern eth / ipv4 dst is 10.0.0.2 / udp / end actions count / drop / end";
    let flow = testpmd.flow(rule);
    for last in [2, 2, 3] {
        testpmd.send(&packet([10, 0, 0, last], 64, 80));
    }
    testpmd.wait_for_packets(1);
    assert_eq!(testpmd.count(&flow), (2, 124));
    testpmd.command(&format!("flow destroy 0 rule {flow}"));
    testpmd.send(&packet([10, 0, 0, 2], 64, 80));
    testpmd.wait_for_packets(2);
    testpmd.quit();
}

#[test]
fn flows_of_group_1_are_entries_in_steering_memory_that_drop_count_mark_and_pick_a_queue() {
    for profile in PROFILES {
        let mut testpmd = Testpmd::start(profile, &["--rxq=2", "--txq=2"]);
        testpmd.command("set fwd rxonly");
        testpmd.command("set verbose 1");
        testpmd.command("start");
        testpmd.flow("ingress group 0 pattern eth / ipv4 dst is 10.0.0.3 / end actions jump group 1 / end");
        let dropped =
            testpmd.flow("ingress group 1 pattern eth / ipv4 / udp dst is 98 / end actions count / drop / end");
        let queued = testpmd.flow(
            "ingress group 1 pattern eth / ipv4 / udp dst is 99 / end actions count / mark id 4660 / queue index 1 / end",
        );
        for port in [98, 98, 98, 99, 99] {
            testpmd.send(&packet([10, 0, 0, 3], 64, port));
        }
        testpmd.wait_for_packets(2);
        assert_eq!(testpmd.count(&dropped), (3, 186), "{profile}");
        assert_eq!(testpmd.count(&queued), (2, 124), "{profile}");
        testpmd.command("stop");
        for words in ["port 0/queue 1: received", "FDIR matched ID=0x1234"] {
            assert!(testpmd.log.contains(words), "{profile}: {words} in {}", testpmd.log);
        }
        testpmd.quit();
    }
}

#[test]
fn a_packet_that_a_flow_rewrites_goes_through_a_queue_and_out_of_the_wire() {
    for profile in PROFILES {
        let mut testpmd = Testpmd::start(profile, &[]);
        testpmd.command("set fwd io");
        testpmd.command("start");
        testpmd.flow("ingress group 0 pattern eth / end actions jump group 1 / end");
        let flow = testpmd.flow(
            "ingress group 1 pattern eth / ipv4 dst is 10.0.0.3 / end actions set_ipv4_dst ipv4_addr 10.9.9.9 / dec_ttl / \
             count / queue index 0 / end",
        );
        testpmd.send(&packet([10, 0, 0, 4], 64, 99));
        testpmd.send(&packet([10, 0, 0, 3], 64, 99));
        assert_eq!(testpmd.receive(), packet([10, 9, 9, 9], 63, 99), "{profile}");
        assert_eq!(testpmd.count(&flow), (1, 62), "{profile}");
        testpmd.quit();
    }
}
