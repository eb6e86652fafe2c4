//! Dumps of many flows: what a reader that does not read costs, and what it sees of flows that come and go.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sluice_control::Client;
use sluice_tests::daemon::{CONFIG, Daemon};

/// A dump of so many flows has some ten million bytes.
const MANY: u32 = 50_000;

/// Flows from `first` on, each under a UFID that tells its number.
fn lines(first: u32, count: u32) -> String {
    let mut lines = String::new();
    for number in first..first + count {
        let [_, high, middle, low] = number.to_be_bytes();
        writeln!(
            lines,
            "ufid:{number:08x}-0000-4000-8000-000000000000, in_port(1),eth(),eth_type(0x0800),\
             ipv4(src=10.{high}.{middle}.{low},proto=6,frag=no),tcp(src=80), actions:2"
        )
        .unwrap();
    }
    lines
}

fn daemon_with(count: u32) -> Daemon {
    let daemon = Daemon::start(&format!("flow_limit = 500000\ndirty_limit = 500000\npersist = false\n{CONFIG}"));
    let mut client = Client::connect(&daemon.socket()).unwrap();
    for first in (0..count).step_by(10_000) {
        client.call_text("sluice/add-flows", &[&lines(first, 10_000.min(count - first))]).unwrap();
    }
    daemon
}

fn begin_dump(daemon: &Daemon) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.write_all(b"{\"id\":0,\"method\":\"dpctl/dump-flows\",\"params\":[\"-m\"]}").unwrap();
    stream
}

#[test]
fn readers_that_do_not_read_cost_no_memory_and_hold_nothing_up() {
    let daemon = daemon_with(MANY);
    // What the allocator keeps of the first dump is no growth.
    assert_eq!(daemon.sluice(&["dump-flows", "-m"]).out.lines().count(), MANY as usize);
    let before = daemon.memory();
    let stalled: Vec<_> = (0..4).map(|_| begin_dump(&daemon)).collect();
    thread::sleep(Duration::from_millis(500));
    let grown = daemon.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes for {} dumps", stalled.len());

    // Flows come and go as if nobody was there.
    let mut client = Client::connect(&daemon.socket()).unwrap();
    client.call_text("sluice/add-flows", &[&lines(MANY, 100)]).unwrap();
    assert!(client.call_text("dpctl/del-flow", &["ufid:00000000-0000-4000-8000-000000000000"]).is_ok());
    assert_eq!(daemon.metric("sluice_flows{state=\"offloaded\"}"), Some(f64::from(MANY) + 99.0));

    // A reader that reads on gets the whole rest.
    for mut stream in stalled {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"\"error\":null}") {
            let mut piece = vec![0; 1 << 16];
            let taken = stream.read(&mut piece).unwrap();
            assert!(taken > 0, "the reply ends in the middle");
            reply.extend_from_slice(&piece[..taken]);
        }
        let reply: serde_json::Value = serde_json::from_slice(&reply).unwrap();
        let lines = reply["result"].as_str().unwrap().lines().count();
        assert!((MANY as usize..=MANY as usize + 100).contains(&lines), "{lines}");
    }
}

#[test]
fn flows_that_stay_are_shown_once_whatever_comes_and_goes() {
    const STAYING: u32 = 5_000;
    const CHURNING: u32 = 1_000;
    let daemon = daemon_with(STAYING);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(&daemon.socket()).unwrap();
            let come = lines(STAYING, CHURNING);
            while !is_over.load(Ordering::Relaxed) {
                client.call_text("sluice/add-flows", &[&come]).unwrap();
                for number in STAYING..STAYING + CHURNING {
                    let ufid = format!("ufid:{number:08x}-0000-4000-8000-000000000000");
                    client.call_text("dpctl/del-flow", &["--no-wait", &ufid]).unwrap();
                }
            }
        });
        let mut client = Client::connect(&daemon.socket()).unwrap();
        for _ in 0..10 {
            let mut dump = String::new();
            client
                .call("dpctl/dump-flows", &["-m"], &mut |text| {
                    dump.push_str(text);
                    thread::sleep(Duration::from_millis(5));
                })
                .unwrap();
            let mut seen: HashMap<u32, usize> = HashMap::new();
            for line in dump.lines() {
                let number = line.strip_prefix("ufid:").and_then(|rest| u32::from_str_radix(rest.get(..8)?, 16).ok());
                *seen.entry(number.unwrap_or_else(|| panic!("{line}"))).or_default() += 1;
            }
            for number in 0..STAYING {
                assert_eq!(seen.get(&number), Some(&1), "flow {number}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
