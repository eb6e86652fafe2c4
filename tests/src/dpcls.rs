//! OVS's userspace datapath as a peer: flows installed by `dpctl`, packets from `netdev-dummy/receive`, and the cycles that
//! it counts itself (`dpif-netdev/pmd-stats-show`).
//!
//! Cycles are only counted by threads that poll, so that the port is of type `dummy-pmd`. It hands the datapath one packet
//! at a time, so that there is no use of its bursts of 32. The counted cycles are those of turns that had a packet: taking
//! it from the port's queue, parsing, lookup, actions and giving it to the other port.

use std::path::Path;

use sluice_agent::unixctl::Client;
use sluice_flow::text;
use sluice_flow::text::Style;

use crate::traffic::{FRAME, IN_PORT, Traffic, Variable};
use crate::vswitchd::Vswitchd;

/// Packets that a dummy port lets wait (`NETDEV_DUMMY_MAX_QUEUE`).
const WINDOW: usize = 100;

/// An `ovs-vswitchd` with flows.
pub struct Dpcls {
    vswitchd: Vswitchd,
    control: Client,
}

/// What it counted for some packets.
pub struct Counted {
    /// Cycles a packet, window by window.
    pub cycles: Vec<f64>,
    /// Packets that a flow took, from no exact-match cache.
    pub megaflow_hits: u64,
}

impl Dpcls {
    /// Installs the rules. With caches, packets may be taken by the exact-match and the signature-match cache instead.
    pub fn new(traffic: Traffic, caches: bool) -> Self {
        let settings = if caches {
            ["other_config:emc-insert-inv-prob=1", "other_config:smc-enable=true"]
        } else {
            ["other_config:emc-insert-inv-prob=0", "other_config:smc-enable=false"]
        };
        let vswitchd = Vswitchd::start_with(&settings);
        vswitchd.without_captures();
        let database = format!("--db=unix:{}", vswitchd.path("db.sock"));
        let port = format!("p{IN_PORT}");
        vswitchd.tool("ovs-vsctl", &[&database, "--timeout=20", "set", "interface", &port, "type=dummy-pmd"]);
        let control = Client::connect(Path::new(&vswitchd.path("vswitchd.ctl"))).expect("it listens");
        let mut lines = String::new();
        for flow in traffic.flows() {
            text::write_key(&mut lines, &flow.matching(), &Style::default()).expect("a string takes all");
            // Not as they are listed: this is what `add-flows` of OVS 3.1 takes.
            lines.push(' ');
            text::write_actions(&mut lines, &flow.actions, &Style::default()).expect("a string takes all");
            lines.push('\n');
        }
        let file = vswitchd.path("flows");
        std::fs::write(&file, lines).expect("the flows are written");
        let ran = vswitchd.appctl(&["dpctl/add-flows", &file]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let this = Self { vswitchd, control };
        assert_eq!(this.flows(), traffic.rules, "every flow is installed");
        this
    }

    /// Lets packets in, and waits until they are through.
    pub fn feed(&mut self, packets: &[Variable]) -> Counted {
        let mut counted = Counted { cycles: Vec::new(), megaflow_hits: 0 };
        for window in packets.chunks(WINDOW) {
            let mut parameters = vec![format!("p{IN_PORT}")];
            parameters.extend(window.iter().map(|packet| {
                let mut frame = FRAME;
                packet.write(&mut frame);
                frame.iter().map(|byte| format!("{byte:02x}")).collect()
            }));
            let parameters: Vec<_> = parameters.iter().map(String::as_str).collect();
            self.call("dpif-netdev/pmd-stats-clear", &[]);
            // The thread that polls does it, when it comes to it.
            while self.received().0 != 0.0 {}
            self.call("netdev-dummy/receive", &parameters);
            let stats = loop {
                let (received, stats) = self.received();
                if received >= window.len() as f64 {
                    break stats;
                }
            };
            let cycles = number(&stats, "avg processing cycles per packet:");
            counted.cycles.push(cycles.unwrap_or_else(|| panic!("no cycles: {stats}")));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let hits = number(&stats, "megaflow hits:").unwrap_or_else(|| panic!("no hits: {stats}")) as u64;
            counted.megaflow_hits += hits;
        }
        counted
    }

    /// Packets that the thread that polls has taken since it was cleared, and all that is counted.
    fn received(&mut self) -> (f64, String) {
        let stats = self.call("dpif-netdev/pmd-stats-show", &[]);
        (number(&stats, "packets received:").unwrap_or_else(|| panic!("no packets: {stats}")), stats)
    }

    /// Flows that each of its two threads has: the one that polls, and the main one.
    pub fn flows(&self) -> usize {
        let show = self.vswitchd.appctl(&["dpctl/show"]).out;
        let flows = show.lines().find_map(|line| line.trim().strip_prefix("flows: "));
        let flows: usize = flows.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{show}"));
        flows / 2
    }

    fn call(&mut self, method: &str, parameters: &[&str]) -> String {
        self.control.call_text(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }
}

/// The number behind some words.
fn number(text: &str, words: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(words))?;
    line.split_whitespace().next()?.parse().ok()
}
