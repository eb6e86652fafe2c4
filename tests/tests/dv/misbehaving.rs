//! A device that misbehaves under the daemon: who asks the agent is answered at once, whatever the device does; a device that has failed
//! ends the agent with its reason, and the next one installs the flows again.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_flow::backend::{Change, Completion, OpenConfig, Operation};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::text::parse_key;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, FlowId, Generation};
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::daemon::Daemon;
use sluice_tests::mlx5::{Control, on_device, runner_with};
use sluice_tests::world::eventually;
use tempfile::TempDir;

use crate::agent::{CONFIG, PROFILE};
use crate::rig::flow;

/// In which a control socket or a page answers.
const AT_ONCE: Duration = Duration::from_millis(100);
/// In which a device that has failed is told to have.
const SOON: Duration = Duration::from_secs(5);
/// How much later the process ends, whatever its threads wait for.
const END: Duration = Duration::from_secs(3);
/// "The device failed" (`sluiced --help`).
const DEVICE_FAILED: i32 = 3;
const ALLOC_FLOW_COUNTER: &str = "0x939";
const QUERY_FLOW_COUNTER: &str = "0x93b";
/// Flows that the first block of counters, of 512, has no room for.
const MANY: usize = 600;

struct Faulty {
    daemon: Daemon,
    control: Control,
    folder: TempDir,
}

impl Faulty {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (daemon, control) = start_in(folder.path());
        let mut faulty = Self { daemon, control, folder };
        faulty.add("10.0.0.1");
        faulty
    }

    fn add(&mut self, address: &str) {
        let ran = self.daemon.sluice(&["add-flow", "--permanent", &key(address), "p0"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
    }

    /// Has a rule written, and does not wait for it.
    fn write(&self, address: &str) {
        self.daemon.sluice(&["add-flow", "--permanent", "--no-wait", &key(address), "p0"]);
    }

    /// Returns a file of many flows.
    fn many_flows(&self) -> PathBuf {
        const KEY: &str = "in_port(host),eth(),eth_type(0x0800),ipv4(proto=6,frag=no)";
        let file = self.folder.path().join("flows");
        let lines: String = (0..MANY).map(|port| format!("{KEY},tcp(dst={port}), actions:p0\n")).collect();
        std::fs::write(&file, lines).unwrap();
        file
    }

    /// Asks on every way that is to be answered at once. Fails if one of them is late three times in a row: a single time may be the
    /// machine's. Returns whether the agent is there to answer.
    fn is_answered_at_once(&self) -> bool {
        let asks: [(&str, &dyn Fn() -> Option<bool>); 5] = [
            ("list-commands", &|| Some(self.ask("list-commands")?.contains("dpctl/dump-flows"))),
            ("dump-flows", &|| Some(self.ask("dpctl/dump-flows")?.contains("actions:"))),
            ("stats", &|| Some(self.ask("sluice/stats")?.contains("flows"))),
            ("/healthz", &|| self.page("/healthz")),
            ("/metrics", &|| self.page("/metrics")),
        ];
        asks.into_iter().all(|(name, ask)| {
            let mut fastest = Duration::MAX;
            for _ in 0..3 {
                let started = Instant::now();
                match ask() {
                    Some(is_right) => assert!(is_right, "{name}"),
                    None => return false,
                }
                fastest = fastest.min(started.elapsed());
            }
            assert!(fastest <= AT_ONCE, "{name} took {fastest:?}");
            true
        })
    }

    /// What the control socket answers, if the agent is there.
    fn ask(&self, method: &str) -> Option<String> {
        let mut answer = String::new();
        self.send(method, "").ok()?.read_to_string(&mut answer).ok()?;
        (!answer.is_empty()).then_some(answer)
    }

    /// Has the agent do something; the answer comes out of the stream.
    fn send(&self, method: &str, parameters: &str) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(self.daemon.socket())?;
        write!(stream, r#"{{"id":1,"method":"{method}","params":[{parameters}]}}"#)?;
        stream.shutdown(Shutdown::Write)?;
        Ok(stream)
    }

    /// Whether a page is there and says that all is well, if the agent is there.
    fn page(&self, path: &str) -> Option<bool> {
        let (status, _) = self.daemon.http(path);
        (status != 0).then_some(status == 200)
    }

    /// Waits until the agent says that the device has failed, in time, and for its end. It is asked meanwhile.
    fn fails_soon(&mut self, since: Instant, reason: &str) {
        let has_failed = |daemon: &Daemon| daemon.log().contains("stopping: device-watch");
        while !has_failed(&self.daemon) {
            assert!(since.elapsed() < SOON, "{}", self.daemon.log());
            // One that is not there any more has told why.
            let _ = self.is_answered_at_once();
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = Instant::now();
        assert_eq!(self.daemon.wait().code(), Some(DEVICE_FAILED), "{}", self.daemon.log());
        println!("{reason}: told after {:?}, ended {:?} later", told - since, told.elapsed());
        let log = self.daemon.log();
        assert!(told.elapsed() < END && log.contains("all parts stopped"), "{:?}: {log}", told.elapsed());
        assert!(log.lines().any(|line| line.starts_with("sluiced: device-watch ") && line.contains(reason)), "{log}");
    }

    /// Starts the agent again, on a device without rules, and waits until all flows are in it.
    fn comes_back(self, flows: usize) {
        let Self { daemon, control, folder } = self;
        drop((daemon, control));
        let (daemon, _) = start_in(folder.path());
        eventually("all flows are in the device", || {
            let listed = daemon.sluice(&["dump-flows", "type=offloaded"]).out;
            listed.lines().filter(|line| line.contains("actions:")).count() == flows
        });
    }
}

/// A daemon in a folder, with a device of its own that can be told what is to go wrong.
fn start_in(folder: &Path) -> (Daemon, Control) {
    let (wires, control) = (folder.join("wires"), folder.join("control"));
    // Those of a device that was here before are nobody's any more.
    let _ = std::fs::remove_dir_all(&wires);
    let _ = std::fs::remove_file(&control);
    std::fs::create_dir(&wires).unwrap();
    let options = ["--control", control.to_str().unwrap()];
    let daemon = Daemon::start_by(&runner_with(PROFILE, &options, &wires), &folder.join("agent"), CONFIG);
    (daemon, Control::of(&control))
}

fn key(address: &str) -> String {
    format!("in_port(host),eth(),eth_type(0x0800),ipv4(dst={address},frag=no)")
}

/// The backend in this process, with the uplink as port 1.
fn open_with_port() -> Arc<dyn Backend> {
    let vports = BTreeMap::from([("p0".to_owned(), 0xffff)]);
    let config = Config { takeover: true, vports, ..Config::default() };
    let nic = DvNic::open(&config, &OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new()))).unwrap();
    let port = Port { number: PortNumber(1), name: "p0".parse().unwrap(), kind: PortKind::Physical };
    nic.attach_port(&port).unwrap();
    Arc::new(nic)
}

fn install(slot: u32) -> Change {
    let id = FlowId { slot, incarnation: 1 };
    let wanted = flow(&format!("in_port(1),eth(dst=02:00:00:00:00:{slot:02x})"), "drop");
    Change { flow: id, generation: Generation(1), operation: Operation::Install(wanted) }
}

#[test]
fn a_queue_that_stands_still_is_a_device_that_has_failed() {
    let mut faulty = Faulty::start();
    faulty.control.ask("stall");
    let since = Instant::now();
    faulty.write("10.0.0.2");
    faulty.fails_soon(since, "a call of libmlx5 has not returned for 4 s");
    faulty.comes_back(2);
}

#[test]
fn a_write_that_fails_is_a_device_that_has_failed() {
    let mut faulty = Faulty::start();
    faulty.control.ask("fail-write 1");
    let since = Instant::now();
    faulty.write("10.0.0.2");
    faulty.fails_soon(since, "");
    faulty.comes_back(2);
}

#[test]
fn a_device_that_says_that_it_is_dead_has_failed() {
    let mut faulty = Faulty::start();
    faulty.control.ask("fatal");
    faulty.fails_soon(Instant::now(), "IBV_EVENT_DEVICE_FATAL");
    faulty.comes_back(1);
}

#[test]
fn a_device_that_is_taken_out_has_failed() {
    let mut faulty = Faulty::start();
    faulty.control.ask("vanish");
    faulty.fails_soon(Instant::now(), "IBV_EVENT_DEVICE_FATAL");
    faulty.comes_back(1);
}

#[test]
fn a_command_that_never_comes_back_is_a_device_that_has_failed() {
    let mut faulty = Faulty::start();
    let file = faulty.many_flows();
    faulty.control.ask(&format!("delay {ALLOC_FLOW_COUNTER} 1 3600000"));
    let since = Instant::now();
    let _waiting = faulty.send("dpctl/add-flows", &format!("{file:?}"));
    faulty.fails_soon(since, "a call of libmlx5 has not returned for 4 s");
    faulty.comes_back(1 + MANY);
}

#[test]
fn an_answer_that_never_comes_is_a_device_that_has_failed() {
    let mut faulty = Faulty::start();
    faulty.control.ask(&format!("delay {QUERY_FLOW_COUNTER} 1 3600000"));
    faulty.fails_soon(Instant::now(), "the device has not answered a query of counters for 4 s");
    faulty.comes_back(1);
}

#[test]
fn a_command_that_is_late_keeps_nobody_but_those_who_wait_for_the_device() {
    let mut faulty = Faulty::start();
    let late = Duration::from_secs(2);
    faulty.control.ask(&format!("delay {QUERY_FLOW_COUNTER} 1 {}", late.as_millis()));
    let since = Instant::now();
    while since.elapsed() < late {
        assert!(faulty.is_answered_at_once());
    }
    faulty.add("10.0.0.2");
    assert!(!faulty.daemon.log().contains("stopping"), "{}", faulty.daemon.log());
}

#[test]
fn a_command_that_is_refused_is_a_flow_that_is_refused_until_it_is_tried_again() {
    let mut faulty = Faulty::start();
    let file = faulty.many_flows();
    faulty.control.ask(&format!("refuse {ALLOC_FLOW_COUNTER} 0 1 0x8 0x1234"));
    faulty.daemon.sluice(&["add-flows", file.to_str().unwrap()]);
    assert!(faulty.is_answered_at_once());
    let refused = faulty.daemon.sluice(&["dump-flows", "-m"]).out;
    let why = "mlx5dv_devx_obj_create: the firmware answers limit exceeded, status 0x08, syndrome 0x1234";
    let refused = refused.lines().filter(|line| line.contains(why)).count();
    assert_eq!(refused, 1, "the one that needed a new block; those behind it had the next one");
}

#[test]
fn what_a_device_has_in_hand_is_completed_and_a_port_goes_when_it_has_failed() {
    on_device(
        PROFILE,
        "misbehaving::what_a_device_has_in_hand_is_completed_and_a_port_goes_when_it_has_failed",
        |ports| {
            let vports = BTreeMap::from([("p0".to_owned(), 0xffff)]);
            let config = Config { takeover: true, vports, ..Config::default() };
            let nic = DvNic::open(&config, &OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new()))).unwrap();
            let port = Port { number: PortNumber(1), name: "p0".parse().unwrap(), kind: PortKind::Physical };
            nic.attach_port(&port).unwrap();
            let mut control = ports.control();
            control.ask("stall");
            let mut queue = nic.install_queue().unwrap();
            let wanted = flow("in_port(1),eth()", "drop");
            let install = |slot| Change {
                flow: FlowId { slot, incarnation: 1 },
                generation: Generation(1),
                operation: Operation::Install(wanted.clone()),
            };
            let mut done = Vec::new();
            queue.submit(&mut vec![install(0), install(1)], &mut done);
            // Both are completed, although the thread that has them does not come back.
            eventually("the changes are completed", || {
                queue.poll(&mut done);
                done.len() == 2
            });
            let stuck = |completion: &Completion| {
                completion
                    .result
                    .as_ref()
                    .is_err_and(|refusal| refusal.to_string().contains("a call of libmlx5 has not returned"))
            };
            assert!(done.iter().all(stuck), "{done:?}");
            nic.detach_port(PortNumber(1)).unwrap();
            assert!(nic.detach_port(PortNumber(1)).is_err(), "there is no such port any more");
            control.ask("resume");
            queue.poll(&mut done);
            assert_eq!(done.len(), 2, "what comes too late is nobody's");
        },
    );
}

#[test]
fn who_waits_for_the_counters_of_a_mirror_keeps_nobody_else() {
    on_device(PROFILE, "misbehaving::who_waits_for_the_counters_of_a_mirror_keeps_nobody_else", |ports| {
        const LATE: Duration = Duration::from_secs(2);
        let nic = open_with_port();
        let mirror = Mirror::new("m", parse_key("in_port(1)", &()).unwrap().matching, vec![PortNumber(1)]).unwrap();
        nic.mirrors().unwrap().set_mirror(&mirror).unwrap();
        ports.control().ask(&format!("delay {QUERY_FLOW_COUNTER} 1 {}", LATE.as_millis()));
        let started = Instant::now();
        let asked = std::thread::spawn({
            let nic = nic.clone();
            move || nic.mirrors().unwrap().mirror_counters("m").map(|counters| counters.packets)
        });
        let mut queue = nic.install_queue().unwrap();
        let mut done = Vec::new();
        while !asked.is_finished() {
            queue.submit(&mut vec![install(u32::try_from(done.len()).unwrap())], &mut done);
            let before = done.len();
            eventually("the change is completed", || {
                queue.poll(&mut done);
                done.len() > before
            });
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(started.elapsed() >= LATE && done.len() > 10, "{} changes in {:?}", done.len(), started.elapsed());
        assert_eq!(asked.join().unwrap(), Some(0));
    });
}
