//! An ovs-vswitchd whose revalidator has work: as many megaflows as wanted, each from a packet of its own.
//!
//! Flows that are added by hand go at the first revalidation, because no OpenFlow rule asks for them. So the rule hashes
//! over the 5-tuple, and the megaflow of a packet is as narrow as that. Its revalidators are not to be paused while there
//! are flows: 3.1 counts a pause as the time that a round takes, lowers its flow limit for that, and then deletes
//! whatever has been idle for 100 ms (`udpif_revalidator`, `revalidate`).

use std::fs;
use std::process::Command;
use std::time::Duration;

use sluice_agent::unixctl::Client;

use crate::daemon::run;
use crate::vswitchd::Vswitchd;

/// Ports at which packets come in, and the number of the first: the daemon takes one packet of each in a turn.
const INPUTS: u32 = 16;
const FIRST_INPUT: u32 = 11;
/// Packets that a port is given at a time.
const BURST: usize = 8;
/// Times that all packets are sent at most: a port drops some when the daemon is late.
const PASSES: usize = 20;

/// See the [module](self).
pub struct Revalidating {
    vswitchd: Vswitchd,
    control: Client,
    wanted: usize,
}

impl Revalidating {
    /// Starts one, and makes the flows. It is held, as after [`rounds_cpu`](Self::rounds_cpu).
    pub fn start(flows: usize) -> Self {
        let limit = format!("other_config:flow-limit={}", flows * 2);
        let vswitchd = Vswitchd::start_with(&[
            "other_config:max-idle=3600000",
            &limit,
            "other_config:n-revalidator-threads=1",
            // A round that takes long otherwise deletes flows that are hit less than this, unseen.
            "other_config:min-revalidate-pps=0",
        ]);
        vswitchd.set_rule("actions=multipath(symmetric_l4,1024,modulo_n,64,0,NXM_NX_REG0[0..5]),output:2");
        let database = format!("--db=unix:{}", vswitchd.path("db.sock"));
        let mut inputs = vec![database, "--timeout=20".to_owned()];
        for port in FIRST_INPUT..FIRST_INPUT + INPUTS {
            let add = format!("-- add-port br0 i{port} -- set interface i{port} type=dummy ofport_request={port}");
            inputs.extend(add.split(' ').map(str::to_owned));
        }
        vswitchd.tool("ovs-vsctl", &inputs.iter().map(String::as_str).collect::<Vec<_>>());
        vswitchd.appctl(&["revalidator/resume"]);
        let control = Client::connect(vswitchd.path("vswitchd.ctl").as_ref()).expect("it listens");
        let mut peer = Self { vswitchd, control, wanted: flows };
        // The round in which it was paused lowers the limit at its end.
        peer.wait_for_round();
        for _ in 0..PASSES {
            peer.raise_limit();
            peer.send_all();
            if peer.flows() == flows {
                break;
            }
        }
        assert_eq!(peer.flows(), flows, "each packet has made a flow");
        peer.hold();
        peer
    }

    fn send_all(&mut self) {
        for first in (0..self.wanted).step_by(BURST) {
            let input = first / BURST % INPUTS as usize;
            let port = format!("i{}", FIRST_INPUT as usize + input);
            let frames: Vec<_> = (first..self.wanted.min(first + BURST)).map(frame).collect();
            let arguments: Vec<_> = std::iter::once(port.as_str()).chain(frames.iter().map(String::as_str)).collect();
            self.control.call("netdev-dummy/receive", &arguments, &mut |_| {}).expect("frames");
        }
    }

    /// Flows that are in its datapath and that its revalidator knows, which must be as many.
    pub fn flows(&mut self) -> usize {
        // The number of flows is counted once in 100 ms, when somebody asks.
        std::thread::sleep(Duration::from_millis(150));
        self.vswitchd.appctl(&["upcall/show"]);
        std::thread::sleep(Duration::from_millis(150));
        let show = self.vswitchd.appctl(&["upcall/show"]).out;
        let count = |name: &str| {
            let number = show.split(name).nth(1).and_then(|rest| rest.split(')').next());
            number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{show}"))
        };
        let (datapath, revalidator): (usize, usize) = (count("(current "), count("(keys "));
        datapath.min(revalidator)
    }

    /// Lets it go on, gives the processor time that so many of its rounds took, and holds it, so that it takes none of
    /// what is measured next.
    pub fn rounds_cpu(&mut self, rounds: u32) -> Duration {
        self.signal("CONT");
        self.raise_limit();
        // The first is that in which it finds its caches cold and its time passed.
        self.wait_for_round();
        let before = self.spent();
        (0..rounds).for_each(|_| self.wait_for_round());
        let spent = self.spent() - before;
        self.hold();
        spent / rounds
    }

    /// Counts its flows once more, while it goes on.
    pub fn verify(&mut self, flows: usize) {
        self.signal("CONT");
        self.wait_for_round();
        assert_eq!(self.flows(), flows, "OVS kept its flows");
    }

    /// Stops the process between two rounds: a round that was held would seem long to it.
    fn hold(&mut self) {
        self.wait_for_round();
        self.signal("STOP");
    }

    fn signal(&self, name: &str) {
        let ran = run(Command::new("kill").args([&format!("-{name}"), &self.vswitchd.pid().to_string()]));
        assert_eq!(ran.code, Some(0), "{}", ran.err);
    }

    /// Returns when the round that is under way, or the next, is over.
    fn wait_for_round(&mut self) {
        self.control.call("revalidator/wait", &[], &mut |_| {}).expect("it revalidates");
    }

    /// Makes room for all, whatever it has concluded from rounds that took long.
    fn raise_limit(&self) {
        let limit = (self.wanted * 2).to_string();
        self.vswitchd.appctl(&["upcall/set-flow-limit", &limit]);
    }

    /// Processor time of the threads that revalidate.
    fn spent(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.vswitchd.pid())).expect("it runs");
        let spent = tasks.filter_map(|task| {
            let folder = task.ok()?.path();
            let name = fs::read_to_string(folder.join("comm")).ok()?;
            let statistics = fs::read_to_string(folder.join("schedstat")).ok()?;
            let nanoseconds = statistics.split(' ').next()?.parse().ok()?;
            name.starts_with("revalidator").then_some(Duration::from_nanos(nanoseconds))
        });
        spent.sum()
    }
}

/// A TCP packet whose addresses and ports no other has, in hexadecimal.
fn frame(number: usize) -> String {
    let ethernet = "0200000000020200000000010800";
    let ip = format!("4500002800000000400600000a{:06x}0a000000", number & 0xff_ffff);
    let tcp = format!("{:04x}0050000000000000000050022000000000000000", 1024 + number % 60_000);
    // Padding up to the shortest frame.
    format!("{ethernet}{ip}{tcp}000000000000")
}
