//! What the machine and a process have spent, as Linux tells (`proc(5)`).

use std::time::Duration;

/// Seconds of all processors in which they had something to do.
pub(crate) fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").expect("Linux");
    let line = text.lines().next().expect("all processors");
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq and softirq; the rest is in these.
    (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / TICKS
}

/// Processor time that all threads of a process have taken.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let behind_name = text.rsplit_once(") ").expect("a name").1;
    // Its 14th and 15th fields, of which two are in front.
    let ticks: f64 = behind_name.split(' ').skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS)
}

/// Connections that the kernel tracks in this thread's network namespace.
pub(crate) fn connections() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").expect("connection tracking");
    text.trim().parse().expect("a number")
}

/// `USER_HZ`, which is 100 on every machine that Linux runs on.
const TICKS: f64 = 100.0;
