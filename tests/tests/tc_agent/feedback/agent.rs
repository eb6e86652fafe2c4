//! An agent in a process of its own, which can be killed: this program, played by itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sluice_feedback::{Event, Handover, Publisher, Totals};
use sluice_flow::ufid::Ufid;

/// The option that has this program play it.
const OPTION: &str = "--publish=";
/// A library that has a memory offers it within so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Plays the agent if that is asked for, for ever: it publishes a flow with so many packets more than the one before.
pub(crate) fn play() {
    let Some(words) = std::env::args().find_map(|argument| argument.strip_prefix(OPTION).map(str::to_owned)) else {
        return;
    };
    let [socket, capacity, ufid, packets] = words.split(',').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let (ufid, packets): (Ufid, u64) = (ufid.parse().unwrap(), packets.parse().unwrap());
    let mut publisher = Publisher::create(capacity.parse().unwrap(), std::process::id().into()).unwrap();
    let mut handover = Handover::bind(socket.as_ref()).unwrap();
    let begun = Instant::now();
    let mut offered = None;
    while offered.is_none() && begun.elapsed() < PATIENCE {
        handover.wait(Duration::from_millis(100)).unwrap();
        let asked = |event| if let Event::Asked { offered, .. } = event { Some(offered) } else { None };
        offered = handover.serve(&mut publisher).into_iter().find_map(asked);
    }
    let before = publisher.get(ufid).unwrap_or_default().packets;
    let packets = before + packets;
    publisher.publish(ufid, Totals { packets, bytes: packets * 100, used: 0, tcp_flags: 0 }).unwrap();
    println!("{:?} {packets}", offered.flatten());
    loop {
        handover.wait(Duration::from_secs(1)).unwrap();
        handover.serve(&mut publisher);
    }
}

/// One that runs, until it is killed without a warning at the end of this.
pub(super) struct Agent {
    process: Child,
    /// What became of the memory that the library had, and how many packets are published.
    pub(super) said: String,
}

impl Agent {
    pub(super) fn start(socket: &str, capacity: usize, ufid: Ufid, packets: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(format!("{OPTION}{socket},{capacity},{ufid},{packets}")).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        Self { process, said: said.trim().to_owned() }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
