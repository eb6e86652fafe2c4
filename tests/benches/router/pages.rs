//! Pages of a small server, a connection each, by curl.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluice_tests::lab::router::{CLIENT, SERVER};
use sluice_tests::lab::switch::{eventually, run, within};

use crate::Load;
use crate::contender::{Contender, Scene, folder};
use crate::table::{Figure, Judged, Table};

const PAGES: usize = 400;
const BYTES: usize = 16 << 10;
/// Seconds for which the kernel remembers a connection of TCP that has ended.
const ENDED: u32 = 2;
/// So long after the last page nothing is to be left.
const AFTER: Duration = Duration::from_secs(6);

const RATE: Figure =
    Figure { name: "pages: curl, a connection each", unit: "pages/s", judged: Judged::OfFlowtable(0.9) };
const ERRORS: Figure = Figure { name: "pages: errors", unit: "pages", judged: Judged::AtMost(0.0) };
const LEFT: Figure =
    Figure { name: "pages: connections that the kernel still has 6 s later", unit: "", judged: Judged::AsKernel(0.0) };
const FLOWS: Figure = Figure { name: "pages: flows of them 6 s later", unit: "", judged: Judged::AtMost(0.0) };

pub(crate) fn measure(contender: Contender, load: Load, table: &mut Table) {
    let ending = ["fin_wait", "close_wait", "last_ack", "time_wait", "close"];
    let names = ending.map(|state| format!("tcp_timeout_{state}"));
    let scene = Scene::new(contender, load, &names.each_ref().map(|name| (name.as_str(), ENDED)));
    let folder = folder();
    std::fs::write(folder.join("page"), vec![b'x'; BYTES]).expect("a file in memory");
    let mut server = within("server", || {
        let mut command = Command::new("busybox");
        command.args(["httpd", "-f", "-p", "8000", "-h"]).arg(&folder).stdout(Stdio::null());
        command.spawn().expect("busybox")
    });
    eventually("somebody listens", || run("ip netns exec server ss -Hltn").contains(":8000"));
    let began = Instant::now();
    // One that fails ends with another code than 0, and the rest is fetched all the same.
    let ran = Command::new("ip")
        .args(["netns", "exec", "client", "curl", "--silent", "--http1.0", "--max-time", "60", "--output", "/dev/null"])
        .args(["--write-out", "%{http_code} %{size_download}\n"])
        .arg(format!("http://{SERVER}:8000/page?[1-{PAGES}]"))
        .output()
        .expect("curl; `scripts/setup bench` brings it");
    let taken = began.elapsed();
    let whole = format!("200 {BYTES}");
    let fetched = String::from_utf8_lossy(&ran.stdout).lines().filter(|line| **line == whole).count();
    table.note(contender, RATE, fetched as f64 / taken.as_secs_f64());
    table.note(contender, ERRORS, (PAGES - fetched) as f64);
    std::thread::sleep(AFTER);
    let left = run(&format!("conntrack -L -p tcp --orig-src {CLIENT}"));
    table.note(contender, LEFT, left.lines().count() as f64);
    if let Some(daemon) = &scene.forwarding.daemon {
        table.note(contender, FLOWS, daemon.metric("sluice_source_flows{source=\"conntrack\"}").expect("a metric"));
    }
    server.kill().and_then(|()| server.wait()).expect("it ends");
    let _ = std::fs::remove_dir_all(&folder);
}
