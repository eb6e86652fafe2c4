//! Processor time of a program under `connectx run`, without the threads of the device, and the programs that are compared by it.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use sluice_tests::daemon::binary;

/// The beginning of the names of the device's threads.
const DEVICE: &str = "connectx";
/// How often is looked. What a thread takes after the last time is not seen.
const LOOK: Duration = Duration::from_millis(1);

/// The backend, which installs and removes so many rules of `Kind::FlowPerf`.
pub(crate) fn ours(under: &[&str], rules: usize) -> Command {
    crate::command("bluefield-3", under, "perf", rules)
}

/// `dpdk-test-flow-perf` with the same rules.
pub(crate) fn flow_perf(under: &[&str], rules: usize) -> Command {
    const NETWORK: &str = "for netdev in p0 vf0 vf1; do ip tuntap add dev $netdev mode tap || ip link add $netdev type dummy || exit; \
         done; ip link set p0 address 02:00:00:00:01:00 && exec \"$@\"";
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let told = |key| status.lines().find_map(|line| line.strip_prefix(key)).expect("a status").trim();
    let namespaces: &[&str] =
        if told("Uid:").starts_with("0\t0\t") { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    let processors = told("Cpus_allowed_list:");
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-c", NETWORK, "sh"]).arg(binary("connectx"));
    command.args([
        "run",
        "--profile",
        "bluefield-3",
        "--netdev",
        "p0",
        "--representor",
        "1=vf0",
        "--representor",
        "2=vf1",
    ]);
    command.args((!under.is_empty()).then_some("--in-step")).arg("--").args(under);
    command.args(["dpdk-test-flow-perf", "--no-huge", "-m", "256", "--no-shconf", "--no-telemetry"]);
    command.args(["-a", "0000:03:00.0,representor=vf[0-1],dv_esw_en=1", "--iova-mode=va"]);
    command.arg(format!("--lcores=0@({processors}),1@({processors})"));
    command.args([
        "--",
        "--portmask=0x1",
        "--transfer",
        "--group=1",
        "--ether",
        "--ipv4",
        "--udp",
        "--count",
        "--drop",
        "--deletion-rate",
    ]);
    // It prints a rate for each of at most 100 batches.
    command.arg(format!("--rules-count={rules}")).arg(format!("--rules-batch={}", rules / 4));
    command.env("LD_BIND_NOW", "1");
    command
}

/// Runs `connectx`, and adds up what the threads of its program take.
pub(crate) fn of(mut command: Command) -> Duration {
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("connectx runs");
    let children = format!("/proc/{0}/task/{0}/children", process.id());
    let mut times: HashMap<String, u64> = HashMap::new();
    let status = loop {
        if let Some(status) = process.try_wait().expect("it is waited for") {
            break status;
        }
        let child = fs::read_to_string(&children).unwrap_or_default();
        if let Some(child) = child.split_whitespace().next() {
            look(child, &mut times);
        }
        thread::sleep(LOOK);
    };
    assert!(status.success(), "{command:?}: {status}");
    Duration::from_nanos(times.values().sum())
}

/// Notes what each thread has taken by now. A thread, or all of it, may end at any moment.
fn look(process: &str, times: &mut HashMap<String, u64>) {
    for task in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        let Some(name) = read("comm").filter(|name| !name.starts_with(DEVICE)) else { continue };
        let Some(spent) = read("schedstat").and_then(|line| line.split(' ').next()?.parse().ok()) else { continue };
        let number = task.file_name().to_string_lossy().into_owned();
        times.insert(number + name.trim(), spent);
    }
}
