//! An ovs-vswitchd whose revalidator has work: as many megaflows as wanted, each from a packet of its own.
//!
//! Flows that are added by hand go at the first revalidation, because no OpenFlow rule asks for them. So the rule hashes
//! over the 5-tuple, and the megaflow of a packet is as narrow as that. Its revalidators are not to be paused while there
//! are flows: 3.1 counts a pause as the time that a round takes, lowers its flow limit for that, and then deletes
//! whatever has been idle for 100 ms (`udpif_revalidator`, `revalidate`).

use std::process::Command;
use std::time::Duration;

use sluice_control::Client;

use crate::daemon::{run, time_of_threads};
use crate::scenario::hex;
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
        vswitchd.set_rule(&format!("{NARROW},output:2"));
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
            let frames: Vec<_> = (first..self.wanted.min(first + BURST)).map(|number| hex(&frame(number))).collect();
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
        time_of_threads(self.vswitchd.pid(), "revalidator")
    }
}

/// An OpenFlow rule, without its output, of which every packet makes a megaflow of its own 5-tuple.
pub const NARROW: &str = "actions=multipath(symmetric_l4,1024,modulo_n,64,0,NXM_NX_REG0[0..5])";

/// A TCP packet whose addresses and ports no other has.
pub fn frame(number: usize) -> Vec<u8> {
    let [_, address @ ..] = u32::try_from(number).expect("few").to_be_bytes();
    let source = u16::try_from(1024 + number % 60_000).expect("a port").to_be_bytes();
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10];
    let tcp = [0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0];
    // Padding up to the shortest frame.
    [&ethernet[..], &ip, &address, &[10, 0, 0, 0], &source, &tcp, &[0; 6]].concat()
}
