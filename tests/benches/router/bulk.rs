//! One connection that carries as much as it can, by iperf3.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sluice_tests::lab::router::SERVER;
use sluice_tests::lab::switch::{eventually, run, within};

use crate::Load;
use crate::contender::{Contender, Scene};
use crate::machine;
use crate::table::{Figure, Judged, Table};

const SECONDS: u32 = 5;

const RATE: Figure = Figure { name: "bulk: iperf3, one connection", unit: "Mbit/s", judged: Judged::OfFlowtable(0.9) };
const SEEN: Figure =
    Figure { name: "bulk: packets that the kernel forwards itself", unit: "%", judged: Judged::AtMost(1.0) };
const SPENT: Figure = Figure { name: "bulk: time of all processors for 1 GB", unit: "s", judged: Judged::Not };

pub(crate) fn measure(contender: Contender, load: Load, table: &mut Table) {
    let scene = Scene::new(contender, load, &[]);
    let mut server = within("server", || {
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("iperf3; `scripts/setup bench` brings it")
    });
    eventually("iperf3 listens", || run("ip netns exec server ss -Hltn").contains(":5201"));
    std::thread::sleep(Duration::from_millis(200));
    let (received, forwarded, busy) = (scene.received(), scene.forwarding.forwarded(), machine::busy());
    let said = run(&format!("ip netns exec client iperf3 -J -c {SERVER} -t {SECONDS}"));
    let busy = machine::busy() - busy;
    let (received, forwarded) = (scene.received() - received, scene.forwarding.forwarded() - forwarded);
    assert!(server.wait().expect("it ends after one test").success());
    let said: Value = serde_json::from_str(&said).expect("JSON of iperf3");
    let number = |name: &str| said["end"]["sum_received"][name].as_f64().expect("a number");
    table.note(contender, RATE, number("bits_per_second") / 1e6);
    table.note(contender, SEEN, 100.0 * forwarded as f64 / received as f64);
    table.note(contender, SPENT, busy / (number("bytes") / 1e9));
}
