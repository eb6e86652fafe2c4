//! perftest, whose runs with events hang or crash now and then: each has a deadline, and is done again.
//!
//! What it says of its own rate is of no use here: the time stamp counters of two emulated processors differ, and it says 0 now and then.
//! So its rate is taken from the device's count of packets.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sluice_tests::lab::soft_roce::DEVICE;

use crate::lab::ADDRESS;

/// A run that takes longer than this hangs.
const DEADLINE: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 5;

/// `ib_send_bw` by CM and events, with these options besides: how many messages it sends in a second.
pub(crate) fn messages_a_second(options: &str, messages: u64) -> f64 {
    let attempt = || {
        let mut pace = Pace::default();
        attempt("ib_send_bw", &format!("-R -e {options} -n {messages}"), || pace.look())?;
        pace.rate(messages)
    };
    until_it_ends_well(attempt)
}

/// `ib_send_lat` by CM and events: half of the time from a message to the answer, typical and p99, in us.
pub(crate) fn latencies(size: usize, messages: u64) -> [f64; 2] {
    let attempt = || {
        let text = attempt("ib_send_lat", &format!("-R -e -s {size} -n {messages}"), || ())?;
        let figures = figures(&text)?;
        Some([*figures.get(4)?, *figures.get(7)?])
    };
    until_it_ends_well(attempt)
}

fn until_it_ends_well<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..ATTEMPTS {
        if let Some(found) = attempt() {
            return found;
        }
        println!("  perftest has not ended well, and runs again");
    }
    panic!("perftest has failed {ATTEMPTS} times");
}

/// The packets that the device has received, over time.
#[derive(Debug, Default)]
struct Pace(Vec<(Instant, u64)>);

impl Pace {
    fn look(&mut self) {
        let path = format!("/sys/class/infiniband/{DEVICE}/ports/1/hw_counters/rcvd_pkts");
        let text = std::fs::read_to_string(path).expect("Soft-RoCE counts");
        let packets = text.trim().parse().expect("a number");
        if self.0.last().is_none_or(|(_, last)| *last != packets) {
            self.0.push((Instant::now(), packets));
        }
    }

    /// Of so many messages, which are all packets in the end: how many there were in a second, without the first tenth.
    fn rate(&self, messages: u64) -> Option<f64> {
        let ((_, first), (end, last)) = (self.0.first()?, self.0.last()?);
        let (begun, before) = self.0.iter().find(|(_, packets)| packets - first >= (last - first) / 10)?;
        let part = (last - before) as f64 / (last - first) as f64;
        Some(messages as f64 * part / (*end - *begun).as_secs_f64())
    }
}

/// Runs a program at both ends, and returns what the client says; `None` if one of them fails or takes too long.
fn attempt(program: &str, options: &str, mut look: impl FnMut()) -> Option<String> {
    let start = |more: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-d", DEVICE, "-F"]).args(options.split_whitespace()).args(more);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("perftest is installed")
    };
    let server = start(&[]);
    // It says nothing before it has listened; whoever comes too early is refused, and is done again.
    std::thread::sleep(Duration::from_secs(1));
    let client = start(&[ADDRESS]);
    let mut both = [client, server];
    let deadline = Instant::now() + DEADLINE;
    while both.iter_mut().any(|end| end.try_wait().expect("it is waited for").is_none()) {
        // Where one has failed the other waits for ever.
        let has_failed =
            |end: &mut Child| end.try_wait().expect("it is waited for").is_some_and(|ended| !ended.success());
        if Instant::now() > deadline || both.iter_mut().any(has_failed) {
            break;
        }
        look();
        std::thread::sleep(Duration::from_millis(10));
    }
    let [client, server] = both.map(|mut end| {
        let ended = end.try_wait().expect("it is waited for");
        if ended.is_none() {
            end.kill().expect("it is ours");
        }
        let output = end.wait_with_output().expect("it has ended");
        ended.filter(|status| status.success()).map(|_| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    server.and(client)
}

/// The line behind that of the units.
fn figures(text: &str) -> Option<Vec<f64>> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    lines.next()?;
    lines.next()?.split_whitespace().map(|word| word.parse().ok()).collect()
}
