//! OVS's userspace datapath as a peer: flows installed by `dpctl`, packets from `netdev-dummy/receive`, and the cycles that
//! it counts itself (`dpif-netdev/pmd-stats-show`).
//!
//! Cycles are only counted by threads that poll, so that the port is of type `dummy-pmd`. It hands the datapath one packet
//! at a time, so that there is no use of its bursts of 32. The counted cycles are those of turns that had a packet: taking
//! it from the port's queue, parsing, lookup, actions and giving it to the other port.

use std::path::Path;

use sluice_control::Client;
use sluice_flow::text;
use sluice_flow::text::Style;

use crate::bench::{quantile, tsc_hertz};
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
#[derive(Default)]
pub struct Counted {
    /// Cycles a packet, window by window.
    cycles: Vec<f64>,
    /// Packets that a flow took, from no exact-match cache.
    pub megaflow_hits: u64,
}

impl Counted {
    /// Adds what was counted for some more.
    pub fn add(&mut self, more: Self) {
        self.cycles.extend(more.cycles);
        self.megaflow_hits += more.megaflow_hits;
    }

    /// Nanoseconds a packet in the fastest twentieth of all windows: in the others something else ran as well.
    pub fn nanoseconds(&self) -> f64 {
        quantile(&self.cycles, 0.05) * 1e9 / tsc_hertz()
    }
}

/// What the thread that polls has counted since it was cleared.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stats {
    received: f64,
    /// Taken by a flow, and of these by no cache.
    hits: f64,
    megaflow_hits: f64,
    /// Taken by none.
    misses: f64,
    /// Of turns that had a packet.
    cycles: f64,
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

    /// One flow, which the exact-match cache knows: what a packet costs but for finding its flow among many.
    pub fn wires() -> Self {
        Self::new(Traffic { rules: 1, masks: 1 }, true)
    }

    /// Lets packets in, and waits until they are through.
    pub fn feed(&mut self, packets: &[Variable]) -> Counted {
        let mut counted = Counted::default();
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
            while self.stats().received != 0.0 {}
            self.call("netdev-dummy/receive", &parameters);
            let stats = self.settled(window.len());
            assert_eq!(stats.hits, window.len() as f64, "flows take every packet: {stats:?}");
            counted.cycles.push(stats.cycles / stats.received);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let hits = stats.megaflow_hits as u64;
            counted.megaflow_hits += hits;
        }
        counted
    }

    /// What is counted once so many packets are through: a packet counts as received before it counts as taken by a
    /// flow, and its cycles come last.
    fn settled(&mut self, packets: usize) -> Stats {
        let mut last = self.stats();
        loop {
            let now = self.stats();
            if now.hits + now.misses >= packets as f64 && now == last {
                return now;
            }
            last = now;
        }
    }

    fn stats(&mut self) -> Stats {
        let text = self.call("dpif-netdev/pmd-stats-show", &[]);
        let number = |words: &str| number(&text, words).unwrap_or_else(|| panic!("no {words} {text}"));
        let megaflow_hits = number("megaflow hits:");
        Stats {
            received: number("packets received:"),
            hits: megaflow_hits + number("emc hits:") + number("smc hits:") + number("simple match hits:"),
            megaflow_hits,
            misses: number("miss with success upcall:") + number("miss with failed upcall:"),
            // Absent as long as it has not gone round once.
            cycles: self::number(&text, "processing cycles:").unwrap_or(0.0),
        }
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
