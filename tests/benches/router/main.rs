//! A router that Sluice forwards for, with tc in software, beside nftables' flowtable and the kernel alone: bulk transfers, pages, churn of
//! sessions, and what becomes of a connection whose packets the kernel does not see.
//!
//! Runs in the lab's virtual machine. The router is a network namespace between that of a client and that of a server. It translates nothing,
//! since rules of tc in software leave wrong checksums in what is still to be cut into segments. Whatever is compared runs in turns, round
//! by round, each time in a router that was made anew. The processors are emulated, so that ratios count, and the figures themselves do not.
//! Writes `target/bench/router.json`.
//!
//! `ROUTER_BENCH_SESSIONS` and `ROUTER_BENCH_RATE` in the environment ask for other numbers of sessions that are alive, and of those that begin
//! in a second; `ROUTER_BENCH_ROUNDS` for another number of rounds of bulk transfers and pages. Words of the command line pick [parts](PARTS) and
//! [contenders](Contender::ALL), as in `cargo bench -p sluice-tests --bench router -- churn sluice`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot go on says so and ends"
)]

mod bulk;
mod churn;
mod contender;
mod generator;
mod life;
mod machine;
mod pages;
mod table;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_tests::bench;
use sluice_tests::daemon::repository;
use sluice_tests::lab::switch::{load_modules, run};

use self::contender::Contender;
use self::table::Table;

/// The file that the measurements of the lab come back in.
const FILE: &str = "router-lab.json";
/// What the rules of two directions of so many sessions take in the kernel, and the agent besides.
const MEMORY: &str = "8G";
/// In seconds.
const LONGEST: &str = "5400";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Rounds of bulk transfers and pages.
    rounds: usize,
    /// Sessions that are alive.
    sessions: usize,
    /// Those of them that begin in a second, and end in it.
    rate: usize,
}

/// A part, which notes what it finds of a contender.
type Part = fn(Contender, Load, &mut Table);

/// By name, and whether it has rounds.
const PARTS: [(&str, bool, Part); 4] = [
    ("bulk", true, bulk::measure),
    ("pages", true, pages::measure),
    ("life", false, life::measure),
    ("churn", false, churn::measure),
];

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--bench")).collect();
    let number = |name: &str, default| {
        let told = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        told.unwrap_or(default)
    };
    let load = Load { rounds: number("--rounds", 0), sessions: number("--sessions", 0), rate: number("--rate", 0) };
    if let (Ok(folder), 1..) = (std::env::var("LAB_OUT"), load.rounds) {
        let measured = inside(&words, load);
        std::fs::write(format!("{folder}/{FILE}"), measured.to_string()).expect("the folder can be written to");
        return;
    }
    let asked = |name: &str, default: usize| {
        std::env::var(format!("ROUTER_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let load = Load { rounds: asked("ROUNDS", 3), sessions: asked("SESSIONS", 100_000), rate: asked("RATE", 10_000) };
    bench::write("router", &in_the_lab(&words, load));
}

fn inside(words: &[String], load: Load) -> Value {
    load_modules();
    run(
        "modprobe --all tun nf_conntrack nf_conntrack_netlink nf_tables nft_ct nf_flow_table nf_flow_table_inet nft_flow_offload",
    );
    // Here, in the first namespace, they are set for all.
    for file in ["/sys/module/nf_conntrack/parameters/hashsize", "/proc/sys/net/netfilter/nf_conntrack_max"] {
        std::fs::write(file, (load.sessions * 4).to_string()).expect("a setting of connection tracking");
    }
    let is_asked = |name: &str| words.iter().any(|word| word == name);
    let is_all = !PARTS.iter().any(|(name, ..)| is_asked(name));
    let (mut contenders, refusal) = contender::that_can_run();
    let is_asked_of = |contender: &Contender| is_asked(contender.word());
    if contenders.iter().any(is_asked_of) {
        contenders.retain(is_asked_of);
    }
    if let Some(refusal) = &refusal {
        println!("{} does not run: {refusal}", Contender::FlowtableOffloaded.name());
    }
    let mut table = Table::default();
    for (name, has_rounds, part) in PARTS.iter().filter(|(name, ..)| is_all || is_asked(name)) {
        for round in 0..if *has_rounds { load.rounds } else { 1 } {
            for contender in &contenders {
                println!("{name}, round {round}: {}", contender.name());
                let contender = *contender;
                // A thread of its own enters the router, and leaves this one where it is.
                let part = *part;
                let mut own = std::mem::take(&mut table);
                let measuring = std::thread::spawn(move || {
                    part(contender, load, &mut own);
                    own
                });
                table = measuring.join().expect("it is measured");
            }
        }
    }
    table.print();
    json!({
        "header": "one emulated machine of two processors, rules of tc in software", "rounds": load.rounds, "sessions": load.sessions,
        "rate": load.rate, "refused": refusal, "rows": table.rows(),
    })
}

/// Runs this program in the lab, and returns what it has found.
fn in_the_lab(words: &[String], load: Load) -> Value {
    let folder = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(repository("tests/lab/run"));
    command.env("LAB_QEMU", roomy_qemu(&folder)).env("LAB_TIMEOUT", LONGEST);
    command.arg("--out").arg(&folder).arg("--").arg(myself);
    let Load { rounds, sessions, rate } = load;
    command.args(words).args([
        format!("--rounds={rounds}"),
        format!("--sessions={sessions}"),
        format!("--rate={rate}"),
    ]);
    assert!(command.status().expect("tests/lab/run can be run").success(), "the lab fails");
    let file = folder.join(FILE);
    let text = std::fs::read_to_string(&file).expect("what was measured");
    std::fs::remove_file(&file).expect("a file of ours");
    serde_json::from_str(&text).expect("JSON")
}

/// A QEMU whose machine has more memory than that of the stories: of two such options it takes the last.
fn roomy_qemu(folder: &Path) -> PathBuf {
    let program = folder.join("router-qemu");
    std::fs::write(&program, format!("#!/bin/sh\nexec qemu-system-x86_64 \"$@\" -m {MEMORY}\n"))
        .expect("it is written");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
    program
}
