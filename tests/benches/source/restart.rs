//! A restart of ovs-vswitchd under many flows: how long their packets go by software.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_tests::lab::switch::{Switch, load_modules, run};

use crate::contender::{Contender, Running};
use crate::traffic::Sender;

/// Ports of UDP of which each is a flow.
const PORTS: RangeInclusive<u16> = 10_000..=29_999;
/// Packets in a second, of all flows in turn.
const RATE: f64 = 2_000.0;
/// After so many turns without end all flows have no rules, and will not.
const TURNS: usize = 60;

/// What is measured, in words.
pub(crate) fn what() -> String {
    format!("restart of ovs-vswitchd with {} flows, {RATE} packets a second: traffic by software", PORTS.len())
}

/// Seconds of the traffic that go by software, from the end of ovs-vswitchd until all flows have rules again.
///
/// `native` has the programs of an Open vSwitch 4.0 with our provider.
pub(crate) fn play(contender: Contender, native: &Path) -> f64 {
    load_modules();
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let mut running = contender.start(switch.folder(), native, PORTS);
    running.keep_all();
    let sender = Sender::new();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&sender, &ends));
        wait_for_rules(&running);
        let before = running.by_software();
        running.restart(switch.folder(), PORTS);
        wait_for_rules(&running);
        let by_software = running.by_software() - before;
        ends.store(true, Ordering::Relaxed);
        let rate = sending.join().expect("it sends to the end");
        assert!(running.is_alive(), "the agent has ended");
        running.look_again();
        by_software as f64 / rate
    })
}

/// Sends to one port after the other until it is to end. Returns how many it has sent in a second.
fn send(sender: &Sender, ends: &AtomicBool) -> f64 {
    let begun = Instant::now();
    let mut sent = 0;
    for port in PORTS.cycle() {
        while f64::from(sent) > begun.elapsed().as_secs_f64() * RATE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if ends.load(Ordering::Relaxed) {
            break;
        }
        sender.send(port);
        sent += 1;
    }
    f64::from(sent) / begun.elapsed().as_secs_f64()
}

/// Waits until of all flows hardly a packet goes by software.
fn wait_for_rules(running: &Running) {
    let turn = Duration::from_secs_f64(PORTS.len() as f64 / RATE);
    for _ in 0..TURNS {
        let before = running.by_software();
        std::thread::sleep(turn);
        let by_software = running.by_software() - before;
        if by_software * 100 < PORTS.len() as u64 {
            return;
        }
    }
    panic!("flows have no rules");
}
