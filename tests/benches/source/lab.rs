//! A round of a contender: flows that begin one by one, then a load.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_tests::lab::switch::{Switch, load_modules, run};

use crate::contender::Contender;
use crate::traffic::{Rules, Sender};

/// Ports of UDP of which each is a flow.
pub(crate) const PORTS: RangeInclusive<u16> = 10_000..=14_999;
/// Flows that begin one by one.
const SINGLE: u16 = 300;
/// Flows that stay, each of which has a packet every [`PERIOD`]. With those that begin they are fewer than the 1,000 that Open vSwitch allows
/// also on a machine as slow as this one (`udpif_revalidator` in `ofproto/ofproto-dpif-upcall.c`).
const STANDING: u16 = 400;
const PERIOD: Duration = Duration::from_secs(5);
/// Flows that begin in a second, beside these.
const NEW: u16 = 20;
const LOAD: Duration = Duration::from_secs(20);
/// After which all is still.
const REST: Duration = Duration::from_millis(50);

/// What a round has found.
pub(crate) struct Round {
    /// Milliseconds from the datagram to the rule.
    pub(crate) waits: Vec<f64>,
    /// Seconds of all processors under the load, without those of who sends.
    pub(crate) busy: f64,
}

impl Round {
    pub(crate) fn write(&self) -> Value {
        json!({ "waits": self.waits, "busy": self.busy })
    }

    pub(crate) fn read(value: &Value) -> Self {
        let number = |value: &Value| value.as_f64().expect("a number");
        let waits = value["waits"].as_array().expect("a list").iter().map(number).collect();
        Self { waits, busy: number(&value["busy"]) }
    }
}

/// What the load is, in words.
pub(crate) fn load() -> String {
    format!(
        "{} s with {STANDING} flows that have a packet every {} s and {NEW} new ones a second, all processors",
        LOAD.as_secs(),
        PERIOD.as_secs()
    )
}

/// `native` has the programs of an Open vSwitch 4.0 with our provider.
pub(crate) fn play(contender: Contender, native: &Path) -> Round {
    load_modules();
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let running = contender.start(switch.folder(), native, PORTS);
    let sender = Sender::new();
    let mut rules = Rules::listen("client");

    let mut ports = PORTS;
    let mut next = || ports.next().expect("there are more ports than are played");
    // The first is for ARP, and for whatever is done once.
    sender.send(next());
    std::thread::sleep(Duration::from_secs(1));
    let waits = (0..SINGLE).map(|_| {
        std::thread::sleep(REST);
        rules.forget();
        let port = next();
        let sent = sender.send(port);
        rules.next().duration_since(sent).as_secs_f64() * 1e3
    });
    let waits = waits.collect::<Vec<_>>();

    let standing: Vec<_> = (0..STANDING).map(|_| next()).collect();
    for burst in standing.chunks(20) {
        for port in burst {
            sender.send(*port);
        }
        std::thread::sleep(REST);
    }
    let before = busy();
    let spent = sender.load(&standing, PERIOD, &mut next, NEW, LOAD);
    let busy = busy() - before - spent;
    let flows = running.flows();
    let missing = standing.iter().filter(|port| !flows.contains(port)).count();
    assert!(missing * 100 <= standing.len(), "{missing} of {STANDING} flows are gone");
    assert!(running.is_alive(), "the agent has ended");
    Round { waits, busy: busy.as_secs_f64() }
}

/// For how long all processors have run anybody since the machine began, to the nanosecond (`/proc/schedstat`). `/proc/stat` counts ticks of
/// the clock, at which just those run who wait for a time.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/schedstat").expect("Linux with CONFIG_SCHED_INFO");
    let processors = text.lines().filter(|line| line.starts_with("cpu"));
    let nanoseconds = |line: &str| line.split(' ').nth(7)?.parse::<u64>().ok();
    Duration::from_nanos(processors.map(|line| nanoseconds(line).expect("a number")).sum())
}
