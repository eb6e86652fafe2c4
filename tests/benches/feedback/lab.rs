//! Two daemons on a real kernel, one of which has the library.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_feedback::{Handover, Publisher, Totals};
use sluice_flow::ufid::Ufid;
use sluice_tests::daemon::{binary, run};
use sluice_tests::lab::{OffloadingVswitchd, Wire};
use sluice_tests::revalidating::{NARROW, frame};
use sluice_tests::world::eventually;

/// Times that all packets are sent at most: some are dropped when the daemon is late.
const PASSES: usize = 50;
/// Frames that are sent without a pause.
const BURST: usize = 64;
/// Rounds of a daemon that are measured at a time.
const AT_A_TIME: u32 = 2;

/// A daemon with flows, in a namespace of its own.
struct Side {
    vswitchd: OffloadingVswitchd,
    flows: usize,
    _wire: Wire,
}

impl Side {
    fn start(name: &str, flows: usize, environment: &[(&str, &str)]) -> Self {
        ip(&format!("netns add {name}"));
        let (input, output) = (format!("{name}-in"), format!("{name}-out"));
        let wire = Wire::new(&input);
        ip(&format!("link set {input} netns {name}"));
        ip(&format!("-n {name} link add {output} type dummy"));
        ["lo", &input, &output].iter().for_each(|device| ip(&format!("-n {name} link set {device} up")));
        let settings = format!(
            "max-idle=3600000 n-revalidator-threads=1 n-handler-threads=1 min-revalidate-pps=0 flow-limit={}",
            flows * 2
        );
        let vswitchd = OffloadingVswitchd::start_of(None, (Some(name), &[&input, &output]), &settings, environment);
        vswitchd.set_rule(&format!("in_port={input},{NARROW},output:{output}"));
        let side = Self { vswitchd, flows, _wire: wire };
        for _ in 0..PASSES {
            for burst in (0..flows).collect::<Vec<_>>().chunks(BURST) {
                burst.iter().for_each(|number| side._wire.send(&frame(*number)));
                std::thread::sleep(Duration::from_millis(20));
            }
            side.raise_limit();
            if side.ufids().len() >= flows {
                break;
            }
        }
        side.verify();
        side
    }

    /// Makes room for all, whatever it has concluded from rounds that took long.
    fn raise_limit(&self) {
        self.call(&["upcall/set-flow-limit", &(self.flows * 2).to_string()]);
    }

    fn ufids(&self) -> Vec<Ufid> {
        let dump = self.call(&["dpctl/dump-flows", "-m"]);
        let ufid = |line: &str| line.strip_prefix("ufid:")?.split(',').next()?.parse().ok();
        dump.lines().filter(|line| line.contains("tcp(")).filter_map(ufid).collect()
    }

    fn call(&self, arguments: &[&str]) -> String {
        self.vswitchd.appctl(arguments).expect("a command that it knows")
    }

    fn verify(&self) {
        assert_eq!(self.ufids().len(), self.flows, "each packet has made a flow, and it is there");
    }

    /// Processor time of the revalidator, in us for a flow of a round.
    fn round(&self) -> f64 {
        self.raise_limit();
        let spent = self.vswitchd.rounds(AT_A_TIME as usize) / AT_A_TIME;
        spent.as_secs_f64() * 1e6 / self.flows as f64
    }
}

/// Of each round, what a flow costs with the library and without.
pub(crate) fn measure(flows: usize, rounds: usize) -> Vec<[f64; 2]> {
    let modules = run(Command::new("modprobe").args(["--all", "openvswitch", "dummy", "tun"]));
    assert_eq!(modules.code, Some(0), "{}", modules.err);
    let library = binary("libsluice_ovs_feedback.so");
    assert!(library.exists(), "{} is built by cargo build", library.display());
    let socket = "/run/sluice-feedback-bench.sock";
    let loaded = [("LD_PRELOAD", library.to_str().expect("a path")), ("SLUICE_OVS_FEEDBACK", socket)];
    let (with, without) = (Side::start("with", flows, &loaded), Side::start("without", flows, &[]));

    let mut publisher = Publisher::create(flows, 1).expect("memory");
    let totals = Totals { packets: 1000, bytes: 64_000, used: 1, tcp_flags: 0 };
    with.ufids().into_iter().for_each(|ufid| publisher.publish(ufid, totals).expect("there is room"));
    let mut handover = Handover::bind(socket.as_ref()).expect("a socket");
    let is_over = AtomicBool::new(false);
    let (measured, counters) = std::thread::scope(|scope| {
        let (over, publisher, handover) = (&is_over, &mut publisher, &mut handover);
        let serving = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                handover.wait(Duration::from_millis(100)).expect("sockets");
                handover.serve(publisher);
            }
            publisher.counters()
        });
        let told = || with.call(&["dpctl/dump-flows"]).matches("packets:1000,").count();
        eventually("the library adds to the flows", || told() == flows);
        // What the totals change in OVS's own books is in the first rounds.
        with.round();
        without.round();
        let measured = (0..rounds).map(|_| [with.round(), without.round()]).collect();
        is_over.store(true, Ordering::Relaxed);
        (measured, serving.join().expect("it serves"))
    });
    with.verify();
    without.verify();
    assert!(counters.changed >= (flows * rounds * AT_A_TIME as usize) as u64, "{counters:?}");
    assert_eq!((counters.no_room, counters.torn, counters.malformed), (0, 0, 0), "{counters:?}");
    measured
}

fn ip(line: &str) {
    let ran = run(Command::new("ip").args(line.split(' ')));
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
}
