//! Many sessions that are alive, of which as many begin in a second as end. The generator and what it has the kernel forward take one of the
//! two processors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_tests::daemon::Daemon;
use sluice_tests::lab::Wire;
use sluice_tests::lab::iproute::{attempt, batch};
use sluice_tests::lab::switch::enter;

use crate::Load;
use crate::contender::{Contender, Forwarding, folder, set_timeouts};
use crate::generator::{CLIENT_MAC, CLIENT_PORT_MAC, Generator, SERVER_MAC, SERVER_PORT_MAC};
use crate::machine;
use crate::table::{Figure, Judged, Table};

/// Sessions that the generator begins and ends at a time.
const BATCH: u64 = 50;
/// For how long sessions come and go when all are there.
const CHURN: Duration = Duration::from_secs(20);
/// Seconds for which the kernel remembers a session that has ended.
const ENDED: u32 = 2;
/// How long flows may outlive the last session before it is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the contender is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Frames that wait for the generator at most: all of a batch.
const QUEUE: u32 = 10_000;

const fn figure(name: &'static str, unit: &'static str, judged: Judged) -> Figure {
    Figure { name, unit, judged }
}

const GROWTH: Figure = figure("churn: new sessions until all are there", "sessions/s", Judged::OfFlowtable(0.9));
const RATE: Figure = figure("churn: new sessions, and as many that end", "sessions/s", Judged::OfFlowtable(0.9));
const LOST: Figure = figure("churn: segments without an answer", "", Judged::AtMost(0.0));
const SEEN: Figure = figure("churn: packets that the kernel forwards itself", "%", Judged::Not);
const BUSY: Figure = figure("churn: processors that are busy", "of 2", Judged::Not);
const CONNECTIONS: Figure = figure("churn: connections in the kernel, at most", "", Judged::Not);
const FLOWS: Figure = figure("churn: flows of the agent, at most", "", Judged::Not);
const LEFT_OUT: Figure = figure("churn: directions without a flow, at most", "", Judged::Not);
const MESSAGES: Figure = figure("churn: messages of the kernel", "", Judged::Not);
const LOSSES: Figure = figure("churn: losses of messages", "", Judged::AtMost(0.0));
const COMPARISONS: Figure = figure("churn: comparisons with all connections", "", Judged::Not);
const MEMORY: Figure = figure("churn: memory of the agent, at most (VmRSS)", "MB", Judged::Not);
const SPENT: Figure = figure("churn: processor time of the agent for a session", "us", Judged::Not);
const GONE: Figure = figure("churn: from the last FIN until no flow is left", "s", Judged::AtMost(10.0));

/// What was seen of the agent, at most.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    connections: usize,
    flows: f64,
    left_out: f64,
    memory: usize,
}

pub(crate) fn measure(contender: Contender, load: Load, table: &mut Table) {
    batch(&["netns add nic".to_owned()]);
    enter("nic");
    let mut generator = set_up();
    let folder = folder();
    let forwarding = Forwarding::begin(contender, load, &folder);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&forwarding, &is_over));
        run(&mut generator, &forwarding, load, table);
        is_over.store(true, Ordering::Relaxed);
        let seen = watching.join().expect("it watches");
        table.note(contender, CONNECTIONS, seen.connections as f64);
        if let Some(daemon) = &forwarding.daemon {
            table.note(contender, FLOWS, seen.flows);
            table.note(contender, LEFT_OUT, seen.left_out);
            table.note(contender, MEMORY, seen.memory as f64 / 1e6);
            let of_source =
                |name: &str| daemon.metric(&format!("sluice_source_{name}{{source=\"conntrack\"}}")).expect("a metric");
            table.note(contender, MESSAGES, of_source("messages_total"));
            table.note(contender, LOSSES, of_source("losses_total"));
            table.note(contender, COMPARISONS, of_source("comparisons_total"));
            let spent = machine::processor_time(daemon.pid()).as_secs_f64();
            table.note(contender, SPENT, spent * 1e6 / generator.counts.established as f64);
        }
    });
    drop((forwarding, generator));
    attempt(&["netns del nic".to_owned()]);
    let _ = std::fs::remove_dir_all(&folder);
}

fn run(generator: &mut Generator, forwarding: &Forwarding, load: Load, table: &mut Table) {
    let contender = forwarding.contender;
    let sessions = load.sessions as u64;
    let began = Instant::now();
    while generator.alive() < sessions {
        pace(began, generator.counts.begun, load.rate);
        generator.begin(BATCH);
        generator.ask_again(sessions / 2);
    }
    table.note(contender, GROWTH, generator.counts.begun as f64 / began.elapsed().as_secs_f64());

    let (before, forwarded, busy) = (generator.counts, forwarding.forwarded(), machine::busy());
    let began = Instant::now();
    while began.elapsed() < CHURN {
        pace(began, generator.counts.begun - before.begun, load.rate);
        generator.end(BATCH);
        generator.begin(BATCH);
        generator.ask_again(sessions / 2);
    }
    let (taken, counts) = (began.elapsed().as_secs_f64(), generator.counts);
    let new = counts.begun - before.begun;
    table.note(contender, RATE, new as f64 / taken);
    table.note(contender, BUSY, (machine::busy() - busy) / taken);
    // Five when it begins, two when it asks again, three when it ends.
    let packets = new * 5 + (counts.ended - before.ended) * 3 + (counts.asked - before.asked - new) * 2;
    table.note(contender, SEEN, 100.0 * (forwarding.forwarded() - forwarded) as f64 / packets as f64);

    while generator.alive() > 0 {
        generator.end(BATCH);
    }
    let began = Instant::now();
    table.note(contender, LOST, generator.counts.lost() as f64);
    if let Some(daemon) = &forwarding.daemon {
        while flows(daemon) > 0.0 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        table.note(contender, GONE, began.elapsed().as_secs_f64());
    }
}

/// Waits if more has begun than the rate asks for.
fn pace(began: Instant, begun: u64, rate: usize) {
    let due = Duration::from_secs_f64(begun as f64 / rate as f64);
    if let Some(early) = due.checked_sub(began.elapsed()) {
        std::thread::sleep(early);
    }
}

fn watch(forwarding: &Forwarding, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !is_over.load(Ordering::Relaxed) {
        seen.connections = seen.connections.max(machine::connections());
        if let Some(daemon) = &forwarding.daemon {
            let left_out = daemon.metric("sluice_source_flows_left_out{source=\"conntrack\"}").unwrap_or_default();
            seen.flows = seen.flows.max(flows(daemon));
            seen.left_out = seen.left_out.max(left_out);
            seen.memory = seen.memory.max(daemon.memory());
        }
        std::thread::sleep(LOOK);
    }
    seen
}

/// Flows that the agent has, whatever their state.
fn flows(daemon: &Daemon) -> f64 {
    let page = daemon.http("/metrics").1;
    let states =
        page.lines().filter_map(|line| line.strip_prefix("sluice_flows{")?.rsplit_once(' ')?.1.parse::<f64>().ok());
    states.sum()
}

/// Two ports of the router in the namespace of this thread, with clients and a server behind them.
fn set_up() -> Generator {
    let [client, server] = ["client", "server"].map(Wire::new);
    let colons = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    for device in ["client", "server"] {
        // Nobody but the sessions shall talk.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1").expect("a setting");
    }
    batch(&[
        "link set lo up".to_owned(),
        format!("link set client address {} txqueuelen {QUEUE} up", colons(CLIENT_PORT_MAC)),
        format!("link set server address {} txqueuelen {QUEUE} up", colons(SERVER_PORT_MAC)),
        "addr add 10.1.0.1/24 dev client".to_owned(),
        "addr add 10.2.0.1/24 dev server".to_owned(),
        format!("neigh replace 10.1.0.2 lladdr {} dev client nud permanent", colons(CLIENT_MAC)),
        format!("neigh replace 10.2.0.2 lladdr {} dev server nud permanent", colons(SERVER_MAC)),
        "route add 10.1.128.0/17 via 10.1.0.2".to_owned(),
    ]);
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("it forwards");
    set_timeouts(&[("tcp_timeout_time_wait", ENDED), ("tcp_timeout_last_ack", ENDED), ("tcp_timeout_fin_wait", ENDED)]);
    Generator::new(client, server)
}
