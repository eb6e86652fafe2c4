//! An ovs-vswitchd whose revalidator has work: as many megaflows as wanted, each from a packet of its own.
//!
//! Flows that are added by hand go at the first revalidation, because no OpenFlow rule asks for them. So the rule hashes
//! over the 5-tuple, and the megaflow of a packet is as narrow as that.

use std::fs;
use std::time::{Duration, Instant};

use sluice_agent::unixctl::Client;

use crate::vswitchd::{PORTS, Vswitchd};

/// Packets that a port takes at a time without dropping any.
const BURST: usize = 32;
/// `max-revalidator`, the time between two rounds.
const PERIOD: Duration = Duration::from_millis(500);

/// See the [module](self).
pub struct Revalidating {
    vswitchd: Vswitchd,
    wanted: usize,
}

impl Revalidating {
    /// Starts one, with its revalidator paused, and makes the flows.
    pub fn start(flows: usize) -> Self {
        let limit = (flows * 2).to_string();
        let vswitchd = Vswitchd::start_with(&[
            "other_config:max-idle=3600000",
            &format!("other_config:flow-limit={limit}"),
            "other_config:n-revalidator-threads=1",
            // A round that takes long otherwise deletes flows that are hit less than this, unseen.
            "other_config:min-revalidate-pps=0",
        ]);
        vswitchd.appctl(&["upcall/set-flow-limit", &limit]);
        vswitchd.set_rule("actions=multipath(symmetric_l4,1024,modulo_n,64,0,NXM_NX_REG0[0..5]),output:2");
        let peer = Self { vswitchd, wanted: flows };
        // A burst may be dropped in part, so everything is sent again as long as that helps.
        let mut made = 0;
        while made < flows {
            peer.send_all();
            let before = std::mem::replace(&mut made, peer.flows());
            if made <= before {
                break;
            }
        }
        assert!(made >= flows / 10 * 9, "no more than {made} flows of {flows}");
        peer
    }

    fn send_all(&self) {
        let mut control = Client::connect(self.vswitchd.path("vswitchd.ctl").as_ref()).expect("it listens");
        for first in (0..self.wanted).step_by(BURST) {
            let port = format!("p{}", first / BURST % PORTS as usize + 1);
            let frames: Vec<_> = (first..self.wanted.min(first + BURST)).map(frame).collect();
            let arguments: Vec<_> = std::iter::once(port.as_str()).chain(frames.iter().map(String::as_str)).collect();
            control.call("netdev-dummy/receive", &arguments, &mut |_| {}).expect("frames");
        }
    }

    /// Flows that its revalidator knows.
    pub fn flows(&self) -> usize {
        let show = self.vswitchd.appctl(&["upcall/show"]).out;
        let current = show.split("(current ").nth(1).and_then(|rest| rest.split(')').next());
        current.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{show}"))
    }

    /// Lets it revalidate for so long, and gives the processor time that a round took.
    pub fn round_cpu(&mut self, window: Duration) -> Duration {
        self.vswitchd.appctl(&["revalidator/resume"]);
        // The first round after a pause goes through the OpenFlow rules again.
        std::thread::sleep(PERIOD * 2);
        let (began, spent) = (Instant::now(), self.spent());
        std::thread::sleep(window);
        let (took, spent) = (began.elapsed(), self.spent() - spent);
        let duration = self.dump_duration();
        self.vswitchd.appctl(&["revalidator/pause"]);
        let rounds = took.as_secs_f64() / PERIOD.max(duration).as_secs_f64();
        spent.div_f64(rounds)
    }

    /// How long its last round took.
    fn dump_duration(&self) -> Duration {
        let show = self.vswitchd.appctl(&["upcall/show"]).out;
        let duration = show.split("dump duration : ").nth(1).and_then(|rest| rest.split("ms").next());
        Duration::from_millis(duration.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{show}")))
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
