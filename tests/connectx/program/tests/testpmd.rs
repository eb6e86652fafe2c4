//! Debian's `dpdk-testpmd` with its mlx5 driver, by `connectx run`: rte_flow rules from its command line, and packets that walk them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so and ends")]

#[path = "testpmd/sending.rs"]
mod sending;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

#[path = "testpmd/samples.rs"]
mod samples;
#[path = "testpmd/tracking.rs"]
mod tracking;

/// One for each format of steering entries.
const PROFILES: [&str; 3] = ["connectx-5", "bluefield-2", "connectx-7"];
const WIRE: &str = "wire";
const PROMPT: &str = "testpmd> ";
/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running testpmd, the other end of whose packets the test holds.
struct Testpmd {
    child: Child,
    commands: ChildStdin,
    output: Receiver<String>,
    /// What it has said since the last command.
    said: String,
    /// All that it has said.
    log: String,
    folder: PathBuf,
    /// Where packets come out: the wire, and two virtual functions.
    ends: BTreeMap<&'static str, UnixDatagram>,
}

impl Testpmd {
    /// Starts it with one port.
    fn start(profile: &str, options: &[&str]) -> Self {
        Self::launch(profile, &[], &[], options)
    }

    /// Starts it with ports for the wire (0) and for each of two virtual functions of the host (1 and 2).
    fn start_with_switch(profile: &str) -> Self {
        let representors = ["--representor", "1=vf0", "--representor", "2=vf1"];
        Self::launch(profile, &representors, &["-a", "0000:03:00.0,representor=vf[0-1],dv_esw_en=1"], &[])
    }

    /// Starts it in a network of its own with devices for the ports' netdevs, and waits for its prompt.
    fn launch(profile: &str, representors: &[&str], device: &[&str], options: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        const NETWORK: &str = "for netdev in p0 vf0 vf1; do ip tuntap add dev $netdev mode tap || ip link add $netdev type dummy || exit; \
             done; ip link set p0 address 02:00:00:00:01:00 && exec \"$@\"";
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("connectx-testpmd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ends = [WIRE, "vport-1", "vport-2"].map(|port| (port, listen(&folder, port))).into();
        // Its threads may run wherever this process may.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let processors = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"));
        let namespaces: &[&str] = if is_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
        let mut child = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", NETWORK, "sh"])
            .args([env!("CARGO_BIN_EXE_connectx"), "run", "--profile", profile, "--netdev", "p0"])
            .args(representors)
            .arg("--ports")
            .arg(&folder)
            .args(["--", "stdbuf", "-oL", "dpdk-testpmd", "--no-huge", "-m", "128", "--no-shconf", "--no-telemetry"])
            .args(device)
            .args(["--iova-mode=va", &format!("--lcores=0@({processors}),1@({processors})")])
            .args(["--", "-i", "--no-mlockall", "--total-num-mbufs=2048"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, output) = channel();
        let (mut said, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let sender_of_errors = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = said.read(&mut bytes) {
                let _ = sender.send(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
        });
        // Line by line, so that nothing of the above comes into the middle of one.
        std::thread::spawn(move || {
            for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
                let _ = sender_of_errors.send(String::from_utf8_lossy(&line).into_owned() + "\n");
            }
        });
        let commands = child.stdin.take().unwrap();
        let mut testpmd = Self { child, commands, output, said: String::new(), log: String::new(), folder, ends };
        testpmd.wait_for_prompt();
        testpmd
    }

    /// Gives a command; what is said until the next prompt.
    fn command(&mut self, command: &str) -> String {
        self.said.clear();
        writeln!(self.commands, "{command}").unwrap();
        self.wait_for_prompt()
    }

    /// Makes a flow on a port: as it is named from then on, by the port and its number.
    fn flow(&mut self, rule: &str) -> String {
        let said = self.command(&format!("flow create {rule}"));
        let number = said.split("Flow rule #").nth(1).and_then(|rest| rest.split(' ').next());
        let number = number.unwrap_or_else(|| panic!("{rule}: {said}"));
        format!("{} {number}", &rule[..1])
    }

    /// Waits until this number of packets and bytes of a flow is told. The driver has all counters put into its memory once a second, and
    /// tells what is there.
    fn wait_for_count(&mut self, flow: &str, packets: u64, bytes: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.command(&format!("flow query {flow} count"));
            match (number_after(&said, " hits:"), number_after(&said, " bytes:")) {
                told if told == (packets, bytes) => return,
                told => assert!(
                    told <= (packets, bytes) && Instant::now() < end,
                    "{told:?} instead of {packets} packets of {bytes} bytes: {}",
                    self.log
                ),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Flows of port 0 that have aged.
    fn aged(&mut self) -> Vec<String> {
        let said = self.command("flow aged 0");
        let flows = said.lines().filter_map(|line| line.strip_prefix("Flow"));
        flows.filter_map(|line| line.split_whitespace().next()).map(|number| format!("0 {number}")).collect()
    }

    /// Waits until this number of packets has come to a port of the program.
    fn wait_for_packets(&mut self, port: u32, packets: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.command(&format!("show port stats {port}"));
            match number_after(&said, "RX-packets:") {
                come if come == packets => return,
                come => assert!(come < packets && Instant::now() < end, "{come} of {packets} packets: {}", self.log),
            }
        }
    }

    /// Takes what comes out of another port from now on. If nobody reads it, the device waits.
    fn listen(&mut self, port: &'static str) {
        self.ends.insert(port, listen(&self.folder, port));
    }

    fn send(&self, port: &str, frame: &[u8]) {
        self.ends[WIRE].send_to(frame, self.folder.join(port)).unwrap();
    }

    /// The next frame that comes out of a port.
    fn receive(&self, port: &str) -> Vec<u8> {
        let mut frame = vec![0; 2048];
        let length = self.ends[port].recv(&mut frame).unwrap_or_else(|error| panic!("{error}: {}", self.log));
        frame.truncate(length);
        frame
    }

    /// Ends it; the device must have had nothing to complain of, and nothing may be left in it.
    fn quit(mut self) {
        writeln!(self.commands, "quit").unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.log);
        self.log.extend(self.output.iter());
        // libmlx5 asks every function that manages a switch for those of a host, of which only an embedded processor knows.
        // The driver finds out whether the kernel knows a counter's place in its block by asking for one that is not there.
        let probes = ["QUERY_ESW_FUNCTIONS", "has no flow counter 65535"];
        let wrong = |line: &&str| line.starts_with("connectx:") && !probes.iter().any(|probe| line.contains(probe));
        assert_eq!(self.log.lines().filter(wrong).collect::<Vec<_>>(), Vec::<&str>::new(), "{}", self.log);
    }

    /// The same, when it has said something, which is not always before its prompt.
    fn quit_after(mut self, words: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log.contains(words) {
            let left = end.saturating_duration_since(Instant::now());
            let said = self.output.recv_timeout(left).unwrap_or_else(|error| panic!("{error}: {}", self.log));
            self.log.push_str(&said);
        }
        self.quit();
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

/// Where packets of a port come out.
fn listen(folder: &Path, port: &str) -> UnixDatagram {
    let end = UnixDatagram::bind(folder.join(format!("{port}.out"))).unwrap();
    end.set_read_timeout(Some(PATIENCE)).unwrap();
    end
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
    let rule = "0 ingress pattern eth / ipv4 dst is 10.0.0.2 / udp / end actions count / drop / end";
    let flow = testpmd.flow(rule);
    for last in [2, 2, 3] {
        testpmd.send(WIRE, &packet([10, 0, 0, last], 64, 80));
    }
    testpmd.wait_for_packets(0, 1);
    testpmd.wait_for_count(&flow, 2, 124);
    testpmd.command(&format!("flow destroy {}", flow.replace(' ', " rule ")));
    testpmd.send(WIRE, &packet([10, 0, 0, 2], 64, 80));
    testpmd.wait_for_packets(0, 2);
    testpmd.quit();
}

#[test]
fn flows_of_group_1_are_entries_in_steering_memory_that_drop_count_mark_and_pick_a_queue() {
    for profile in PROFILES {
        let mut testpmd = Testpmd::start(profile, &["--rxq=2", "--txq=2"]);
        testpmd.command("set fwd rxonly");
        testpmd.command("set verbose 1");
        testpmd.command("start");
        testpmd.flow("0 ingress group 0 pattern eth / ipv4 dst is 10.0.0.3 / end actions jump group 1 / end");
        let dropped =
            testpmd.flow("0 ingress group 1 pattern eth / ipv4 / udp dst is 98 / end actions count / drop / end");
        let queued = testpmd.flow(
            "0 ingress group 1 pattern eth / ipv4 / udp dst is 99 / end actions count / mark id 4660 / queue index 1 / end",
        );
        // Once this one has come, the driver knows of the mark: a look at a queue that began before the flow was made takes the tag as it is.
        testpmd.send(WIRE, &packet([10, 0, 0, 2], 64, 80));
        testpmd.wait_for_packets(0, 1);
        for port in [98, 98, 98, 99, 99] {
            testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, port));
        }
        testpmd.wait_for_packets(0, 3);
        testpmd.wait_for_count(&dropped, 3, 186);
        testpmd.wait_for_count(&queued, 2, 124);
        testpmd.command("stop");
        for words in ["port 0/queue 1: received", "FDIR matched ID=0x1234"] {
            assert!(testpmd.log.contains(words), "{profile}: {words} in {}", testpmd.log);
        }
        testpmd.quit();
    }
}

#[test]
fn a_flow_spreads_its_packets_over_queues_by_their_hash() {
    let mut testpmd = Testpmd::start("bluefield-2", &["--rxq=2", "--txq=2"]);
    testpmd.command("set fwd rxonly");
    testpmd.command("set verbose 1");
    testpmd.command("start");
    testpmd.flow("0 ingress group 0 pattern eth / end actions jump group 1 / end");
    let flow = testpmd.flow(
        "0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.3 / udp / end actions count / rss types ipv4-udp end \
         queues 0 1 end / end",
    );
    for port in 1..=16 {
        testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, port));
    }
    testpmd.wait_for_packets(0, 16);
    testpmd.wait_for_count(&flow, 16, 16 * 62);
    testpmd.command("stop");
    for words in ["port 0/queue 0: received", "port 0/queue 1: received", "RSS hash=0x"] {
        assert!(testpmd.log.contains(words), "{words} in {}", testpmd.log);
    }
    testpmd.quit();
}

#[test]
fn a_flow_of_packets_that_are_right_takes_no_others_in_the_kernels_tables_and_in_the_drivers_own() {
    let mut testpmd = Testpmd::start("connectx-7", &[]);
    testpmd.command("set fwd rxonly");
    testpmd.command("start");
    testpmd.flow("0 priority 1 ingress group 0 pattern eth / ipv4 dst is 10.0.0.3 / end actions jump group 1 / end");
    // Bits of the integrity: 2 the IP header, 3 that of transport, 5 and 6 their checksums.
    let mut dropped = |group: u8, last: u8, bits: u8| {
        testpmd.flow(&format!(
            "0 ingress group {group} pattern eth / ipv4 dst is 10.0.0.{last} / udp / integrity level is 0 value mask \
             {bits} value spec {bits} / end actions count / drop / end"
        ))
    };
    let flows = [dropped(0, 2, 1 << 5), dropped(1, 3, 1 << 5), dropped(0, 4, 1 << 2), dropped(0, 5, 1 << 3)];
    testpmd.flow("0 ingress group 1 pattern eth / end actions queue index 0 / end");
    for last in 2..=5 {
        let right = packet([10, 0, 0, last], 64, 80);
        let wrong = match last {
            4 => right[..right.len() - 1].to_vec(),
            _ => {
                let mut wrong = right.clone();
                // A digit of the checksum, or of UDP's length.
                wrong[if last == 5 { 39 } else { 25 }] ^= 0x40;
                wrong
            }
        };
        testpmd.send(WIRE, &right);
        testpmd.send(WIRE, &wrong);
    }
    testpmd.wait_for_packets(0, 4);
    for flow in flows {
        testpmd.wait_for_count(&flow, 1, 62);
    }
    testpmd.quit();
}

#[test]
fn a_packet_that_a_flow_rewrites_goes_through_a_queue_and_out_of_the_wire() {
    let mut testpmd = Testpmd::start("connectx-7", &[]);
    testpmd.command("set fwd io");
    testpmd.command("start");
    testpmd.flow("0 ingress group 0 pattern eth / end actions jump group 1 / end");
    let flow = testpmd.flow(
        "0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.3 / end actions set_ipv4_dst ipv4_addr 10.9.9.9 / dec_ttl / \
         count / queue index 0 / end",
    );
    testpmd.send(WIRE, &packet([10, 0, 0, 4], 64, 99));
    testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, 99));
    assert_eq!(testpmd.receive(WIRE), packet([10, 9, 9, 9], 63, 99));
    testpmd.wait_for_count(&flow, 1, 62);
    testpmd.quit();
}

#[test]
fn transfer_flows_lead_packets_from_the_wire_to_a_function_and_back_and_the_others_reach_their_representors() {
    let mut testpmd = Testpmd::start_with_switch("bluefield-3");
    testpmd.command("set fwd rxonly");
    testpmd.command("start");
    testpmd.flow("0 transfer group 0 pattern eth / ipv4 dst is 10.0.0.3 / end actions jump group 1 / end");
    let to_function = testpmd.flow(
        "0 transfer group 1 pattern eth / ipv4 / udp dst is 99 / end actions count / set_ipv4_dst ipv4_addr 10.9.9.9 / \
         port_id id 1 / end",
    );
    let dropped =
        testpmd.flow("0 transfer group 1 pattern eth / ipv4 / udp dst is 98 / end actions count / drop / end");
    let to_wire =
        testpmd.flow("1 transfer pattern eth / ipv4 dst is 10.0.0.5 / end actions count / port_id id 0 / end");
    testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, 99));
    assert_eq!(testpmd.receive("vport-1"), packet([10, 9, 9, 9], 64, 99));
    for port in [98, 98, 97] {
        testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, port));
    }
    testpmd.wait_for_packets(0, 1);
    testpmd.send("vport-1", &packet([10, 0, 0, 5], 64, 1));
    assert_eq!(testpmd.receive(WIRE), packet([10, 0, 0, 5], 64, 1));
    testpmd.send("vport-1", &packet([10, 0, 0, 6], 64, 1));
    testpmd.wait_for_packets(1, 1);
    // The flow is of the first function only.
    testpmd.send("vport-2", &packet([10, 0, 0, 5], 64, 1));
    testpmd.wait_for_packets(2, 1);
    for (flow, packets) in [(to_function, 1), (dropped, 2), (to_wire, 1)] {
        testpmd.wait_for_count(&flow, packets, packets * 62);
    }
    testpmd.quit();
}

#[test]
fn transfer_flows_put_tags_and_tunnels_on_and_take_tunnels_off() {
    const OUTER: &str = "set vxlan ip-version ipv4 vni 77 udp-src 5000 udp-dst 4789 ip-src 172.16.0.1 ip-dst 172.16.0.2 \
                         eth-src 02:00:00:00:00:aa eth-dst 02:00:00:00:00:bb";
    const UDP_AND_VXLAN: [u8; 16] = [0x13, 0x88, 0x12, 0xb5, 0, 78, 0, 0, 8, 0, 0, 0, 0, 0, 77, 0];
    let inner = packet([10, 0, 0, 3], 64, 99);
    let other = packet([10, 0, 0, 4], 64, 99);
    let mut testpmd = Testpmd::start_with_switch("bluefield-2");
    testpmd.command(OUTER);
    testpmd.flow("1 transfer group 0 pattern eth / end actions jump group 1 / end");
    let on = testpmd.flow(
        "1 transfer group 1 pattern eth / ipv4 dst is 10.0.0.3 / end actions count / vxlan_encap / port_id id 0 / end",
    );
    testpmd.flow(
        "1 transfer group 1 pattern eth / ipv4 dst is 10.0.0.4 / end actions of_push_vlan ethertype 0x8100 / \
         of_set_vlan_vid vlan_vid 100 / of_set_vlan_pcp vlan_pcp 3 / port_id id 2 / end",
    );
    testpmd.flow("0 transfer group 0 pattern eth / end actions jump group 1 / end");
    let off = testpmd.flow(
        "0 transfer group 1 pattern eth / ipv4 / udp dst is 4789 / vxlan vni is 77 / eth / ipv4 dst is 10.0.0.3 / end actions count / \
         vxlan_decap / port_id id 2 / end",
    );
    testpmd.send("vport-1", &inner);
    let tunnelled = testpmd.receive(WIRE);
    assert_eq!(tunnelled[..14], [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 8, 0]);
    assert_eq!(tunnelled[26..34], [172, 16, 0, 1, 172, 16, 0, 2]);
    assert_eq!(tunnelled[34..], [&UDP_AND_VXLAN, inner.as_slice()].concat());
    // Of another network by one bit.
    let mut missing = tunnelled.clone();
    missing[48] ^= 1;
    testpmd.send(WIRE, &missing);
    testpmd.send(WIRE, &tunnelled);
    assert_eq!(testpmd.receive("vport-2"), inner);
    testpmd.send("vport-1", &other);
    let tagged = [&other[..12], &[0x81, 0, 0x60, 100], &other[12..]].concat();
    assert_eq!(testpmd.receive("vport-2"), tagged);
    // libmlx5 has packets counted without the tunnel, both ways.
    testpmd.wait_for_count(&on, 1, 62);
    testpmd.wait_for_count(&off, 1, 62);
    testpmd.quit();
}

#[test]
fn what_no_flow_takes_goes_through_testpmd_from_the_wire_to_a_function_and_back() {
    let mut testpmd = Testpmd::start_with_switch("bluefield-2");
    // The ports are paired: 0 with 1.
    testpmd.command("set fwd io");
    testpmd.command("start");
    let frames = [packet([10, 0, 0, 3], 64, 99), packet([10, 0, 0, 4], 64, 99)];
    testpmd.send(WIRE, &frames[0]);
    assert_eq!(testpmd.receive("vport-1"), frames[0]);
    testpmd.send("vport-1", &frames[1]);
    assert_eq!(testpmd.receive(WIRE), frames[1]);
    testpmd.quit();
}

#[test]
fn a_meter_of_a_flow_lets_pass_what_fits_its_bucket_and_counts_what_it_drops() {
    for profile in ["bluefield-2", "connectx-7"] {
        let mut testpmd = Testpmd::start(profile, &[]);
        testpmd.command("set fwd rxonly");
        testpmd.command("start");
        testpmd.flow("0 ingress group 0 pattern eth / end actions jump group 1 / end");
        testpmd.flow("0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.9 / end actions queue index 0 / end");
        // By bytes, of which an IP packet has 48, and by packets. The device's clock stands still.
        let meters = [(1, 620, 0), (2, 7, 1)];
        let flows = meters.map(|(meter, burst, by_packets)| {
            for command in [
                format!("add port meter profile srtcm_rfc2697 0 {meter} 1953125 {burst} 0 {by_packets}"),
                format!("add port meter policy 0 {meter} g_actions queue index 0 / end y_actions end r_actions drop / end"),
                format!("create port meter 0 {meter} {meter} {meter} yes 0xffff 0 g 0"),
            ] {
                assert!(!testpmd.command(&command).contains("error"), "{}", testpmd.log);
            }
            testpmd.flow(&format!(
                "0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.{meter} / end actions count / meter mtr_id {meter} / end"
            ))
        });
        for last in [1, 2].iter().flat_map(|last| [*last; 20]).chain([9]) {
            testpmd.send(WIRE, &packet([10, 0, 0, last], 64, 99));
        }
        testpmd.wait_for_packets(0, 620 / 48 + 7 + 1);
        for (flow, (meter, dropped)) in flows.iter().zip([(1, 20 - 620 / 48), (2, 13)]) {
            testpmd.wait_for_count(flow, 20, 20 * 62);
            let said = testpmd.command(&format!("show port meter stats 0 {meter} no"));
            let counts = (number_after(&said, "Pkts DROPPED:"), number_after(&said, "Bytes DROPPED:"));
            assert_eq!(counts, (dropped, dropped * 62));
            testpmd.command(&format!("flow destroy {} rule {}", &flow[..1], &flow[2..]));
            for command in ["del port meter", "del port meter policy", "del port meter profile"] {
                assert!(!testpmd.command(&format!("{command} 0 {meter}")).contains("error"), "{}", testpmd.log);
            }
        }
        testpmd.quit();
    }
}

#[test]
fn a_device_without_meters_in_objects_gets_no_meter_with_a_policy() {
    let mut testpmd = Testpmd::start("connectx-5", &[]);
    testpmd.command("add port meter profile srtcm_rfc2697 0 1 1953125 620 0 0");
    testpmd.command("add port meter policy 0 1 g_actions queue index 0 / end y_actions end r_actions drop / end");
    testpmd.quit_after("no ASO capability to support the policy");
}

#[test]
fn a_dump_of_all_flows_tells_their_counters_and_the_domains() {
    /// Records of a dump: a counter of the driver's, and a domain of libmlx5's.
    const COUNTER: &str = "4430,";
    const DOMAIN: &str = "3000,";
    for profile in PROFILES {
        let mut testpmd = Testpmd::start(profile, &[]);
        let first = testpmd.flow("0 ingress group 0 pattern eth / end actions count / jump group 1 / end");
        let second =
            testpmd.flow("0 ingress group 1 pattern eth / ipv4 / udp dst is 98 / end actions count / drop / end");
        for port in [98, 99, 98] {
            testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, port));
        }
        testpmd.wait_for_count(&first, 3, 186);
        testpmd.wait_for_count(&second, 2, 124);
        let said = testpmd.command("flow dump 0 all");
        let counters = said.lines().filter(|line| line.starts_with(COUNTER));
        let mut counters: Vec<_> = counters.map(|line| line.splitn(3, ',').nth(2)).collect();
        counters.sort_unstable();
        assert_eq!(counters, [Some("2,124"), Some("3,186")], "{profile}: {said}");
        assert!(said.lines().any(|line| line.starts_with(DOMAIN)), "{profile}: {said}");
        testpmd.quit();
    }
}

#[test]
fn flows_age_that_no_packet_takes_and_not_those_that_packets_take() {
    const BUSY: u16 = 98;
    const IDLE: u16 = 99;
    let mut testpmd = Testpmd::start("bluefield-2", &[]);
    testpmd.flow("0 ingress group 0 pattern eth / ipv4 dst is 10.0.0.3 / end actions jump group 1 / end");
    let mut flows = |port| {
        [(0, 2), (1, 3)].map(|(group, last)| {
            testpmd.flow(&format!(
                "0 ingress group {group} pattern eth / ipv4 dst is 10.0.0.{last} / udp dst is {port} / end \
                 actions age timeout 1 / drop / end"
            ))
        })
    };
    let (busy, idle) = (flows(BUSY), flows(IDLE));
    let end = Instant::now() + PATIENCE;
    let mut aged = testpmd.aged();
    while !idle.iter().all(|flow| aged.contains(flow)) {
        assert!(Instant::now() < end, "{aged:?} have aged, and not {idle:?}: {}", testpmd.log);
        for last in [2, 3] {
            testpmd.send(WIRE, &packet([10, 0, 0, last], 64, BUSY));
        }
        std::thread::sleep(Duration::from_millis(20));
        aged = testpmd.aged();
        assert!(!busy.iter().any(|flow| aged.contains(flow)), "{aged:?} have aged, of which {busy:?} are busy");
    }
    // Nothing comes any more.
    while !busy.iter().all(|flow| aged.contains(flow)) {
        assert!(Instant::now() < end, "{aged:?} have aged, and not {busy:?}: {}", testpmd.log);
        std::thread::sleep(Duration::from_millis(20));
        aged = testpmd.aged();
    }
    assert_eq!(aged.len(), 4);
    testpmd.quit();
}

#[test]
fn a_frame_that_a_flow_leads_to_a_hairpin_queue_leaves_without_testpmd() {
    let mut testpmd = Testpmd::start("bluefield-2", &["--rxq=1", "--txq=1", "--hairpinq=1"]);
    testpmd.command("set fwd rxonly");
    testpmd.command("start");
    testpmd.flow("0 ingress group 0 pattern eth / end actions jump group 1 / end");
    let turning = testpmd.flow(
        "0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.3 / udp / end actions count / set_ipv4_dst ipv4_addr 10.9.9.9 / \
         queue index 1 / end",
    );
    let staying =
        testpmd.flow("0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.4 / end actions count / queue index 0 / end");
    for last in [3, 4, 3] {
        testpmd.send(WIRE, &packet([10, 0, 0, last], 64, 99));
    }
    for _ in 0..2 {
        assert_eq!(testpmd.receive(WIRE), packet([10, 9, 9, 9], 64, 99));
    }
    testpmd.wait_for_packets(0, 1);
    testpmd.wait_for_count(&turning, 2, 124);
    testpmd.wait_for_count(&staying, 1, 62);
    testpmd.quit();
}
