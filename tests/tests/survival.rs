//! The table survives: whatever is said to be accepted is wanted again, however the agent ended.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_tests::daemon::{CONFIG, Daemon, new_folder};
use sluice_tests::world::eventually;

/// A folder in which one daemon after the other runs.
struct House(PathBuf);

impl House {
    fn new() -> Self {
        Self(new_folder())
    }

    fn start(&self, config: &str) -> Daemon {
        Daemon::start_in(&self.0, &format!("{config}\n{CONFIG}"), false)
    }

    /// Without waiting until it is ready.
    fn start_unready(&self, config: &str) -> Daemon {
        Daemon::start_unready_in(&self.0, &format!("{config}\n{CONFIG}"))
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if !thread::panicking() {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

fn kill(mut daemon: Daemon) {
    daemon.signal("KILL");
    daemon.wait();
}

/// Every flow as it is listed, without what it has counted and where it is.
fn listed(daemon: &Daemon) -> Vec<String> {
    let ran = daemon.appctl(&["dpctl/dump-flows", "-m"]);
    assert_eq!(ran.err, "");
    let without_use = |line: &str| {
        let (before, after) = (line.find(", packets:").unwrap(), line.find(", actions:").unwrap());
        format!("{}{}", &line[..before], &line[after..])
    };
    let mut lines: Vec<_> = ran.out.lines().map(without_use).collect();
    lines.sort();
    lines
}

/// The same once every flow has an outcome.
fn listed_at_rest(daemon: &Daemon) -> Vec<String> {
    eventually("every flow has an outcome", || daemon.metric("sluice_flows_unsettled") == Some(0.0));
    listed(daemon)
}

fn key(port: usize) -> String {
    format!("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port})")
}

/// What is done to a flow: its actions, or `None` to delete it.
type Wish = (usize, Option<u32>);

/// What a client knows of a flow: its actions if it is wanted; two of them while a change is not answered.
type Known = BTreeMap<usize, Vec<Option<u32>>>;

/// Has wishes taken on in one request; says whether there was an answer.
fn ask(daemon: &Daemon, wishes: &[(Wish, &str)]) -> bool {
    let lines: Vec<_> = wishes
        .iter()
        .map(|((port, output), verb)| format!("{verb} {},actions:{}", key(*port), output.unwrap_or_default()))
        .collect();
    let request = json!({ "id": 1, "method": "sluice/add-flows", "params": [lines.join("\n")] });
    let Ok(mut stream) = UnixStream::connect(daemon.socket()) else { return false };
    let mut reply = String::new();
    // An agent that is killed on the way ends each of these.
    let is_answered = stream.write_all(request.to_string().as_bytes()).is_ok()
        && stream.shutdown(Shutdown::Write).is_ok()
        && stream.read_to_string(&mut reply).is_ok();
    let Some(reply) = serde_json::from_str::<Value>(&reply).ok().filter(|_| is_answered) else { return false };
    let answer: Value = serde_json::from_str(reply["result"].as_str().expect("a result")).expect("an answer");
    assert_eq!(answer["in_error"], 0, "{answer}");
    assert_eq!(answer["accepted"], wishes.len(), "{answer}");
    true
}

/// Adds, changes and deletes flows of its own ports until the daemon does not answer.
fn storm(daemon: &Daemon, client: usize, known: &mut Known, is_over: &AtomicBool) -> usize {
    let mut answered = 0;
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let wishes: Vec<_> = (0..12)
            .map(|step| {
                let port = 1 + client * 1_000 + (round * 7 + step * 31) % 200;
                let is_there = known.get(&port).is_some_and(|states| states[0].is_some());
                match (is_there, (round + step) % 3) {
                    (false, _) => ((port, Some(2)), "add"),
                    (true, 0) => ((port, None), "delete"),
                    (true, _) => ((port, Some(2 + u32::try_from(round % 2).unwrap())), "modify"),
                }
            })
            .collect();
        for ((port, output), _) in &wishes {
            known.entry(*port).or_insert_with(|| vec![None]).push(*output);
        }
        if !ask(daemon, &wishes) {
            break;
        }
        answered += 1;
        for ((port, output), _) in wishes {
            known.insert(port, vec![output]);
        }
    }
    answered
}

#[test]
fn what_was_answered_before_a_kill_is_so_after_it() {
    const CLIENTS: usize = 3;
    let house = House::new();
    let mut known: Vec<Known> = vec![Known::new(); CLIENTS];
    let mut answered = 0;
    for kills in 0..14_u64 {
        // With so many starts there are files enough to be compacted.
        let daemon = house.start("sync_interval = \"20ms\"");
        let found = listed(&daemon);
        for known in &mut known {
            for (port, states) in known.iter_mut() {
                let line = found.iter().find(|line| line.contains(&format!("udp(src=0/0,dst={port})")));
                let output = line.map(|line| if line.contains("actions:server") { 2 } else { 3 });
                assert!(states.contains(&output), "port {port} after {kills} kills: {line:?}, not one of {states:?}");
                *states = vec![output];
            }
        }
        let flows = known.iter().flat_map(|known| known.values()).filter(|states| states[0].is_some()).count();
        assert_eq!(found.len(), flows, "nobody knows of any other flow");
        eventually("all of them are in the device", || {
            let offloaded = daemon.metric("sluice_flows{state=\"offloaded\"}");
            #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
            let expected = flows as f64;
            offloaded == Some(expected)
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let storms: Vec<_> = known
                .iter_mut()
                .enumerate()
                .map(|(client, known)| {
                    let (daemon, is_over) = (&daemon, &is_over);
                    scope.spawn(move || storm(daemon, client, known, is_over))
                })
                .collect();
            thread::sleep(Duration::from_millis(60 + 97 * kills % 400));
            daemon.signal("KILL");
            is_over.store(true, Ordering::Relaxed);
            answered += storms.into_iter().map(|storm| storm.join().unwrap()).sum::<usize>();
        });
        kill(daemon);
    }
    assert!(answered > 14 * CLIENTS, "{answered} requests were answered: the kills came before the storm");
    assert!(!house.0.join("state/flows/1.log").exists(), "no compaction has come to its end");
}

#[test]
fn a_flow_comes_back_as_it_was_also_if_it_was_refused() {
    let house = House::new();
    let daemon = house.start("");
    let add = |args: &[&str]| assert_eq!(daemon.sluice(&[&["add-flow"], args].concat()).err, "");
    add(&["--priority", "4", "--idle-timeout", "90s", &key(1), "push_vlan(vid=7,pcp=0),2"]);
    add(&["--hard-timeout", "1h", &key(2), "2"]);
    add(&[&format!("ufid:01234567-89ab-4def-8123-456789abcdef,{}", key(3)), "2"]);
    add(&[&key(4), "2"]);
    add(&["in_port(1),eth_type(0x0806),arp(sip=10.0.0.1)", "recirc(5)"]);
    add(&["recirc_id(5),in_port(1),eth_type(0x0806)", "drop"]);
    assert_eq!(daemon.sluice(&["mod-flow", &key(4), "3"]).err, "");
    assert_eq!(daemon.sluice(&["add-flow", &key(5), "99"]).code, Some(2), "the device has no such port");
    let before = listed(&daemon);
    assert_eq!(before.len(), 7);
    kill(daemon);

    let daemon = house.start("");
    assert_eq!(listed_at_rest(&daemon), before);
    eventually("it is logged", || {
        let log = daemon.log();
        log.contains("7 flows of earlier runs are wanted again, read in 0.")
            && log.contains("no agent was there for at most")
    });
    assert_eq!(daemon.metric("sluice_journal_restored_flows"), Some(7.0));
    assert_eq!(daemon.metric("sluice_journal_lost_flows"), Some(0.0));
    assert!(daemon.metric("sluice_journal_away_seconds").unwrap() < 60.0);
    assert!(daemon.metric("sluice_journal_load_seconds").unwrap() > 0.0);
}

#[test]
fn what_has_ended_by_itself_or_by_a_flush_does_not_come_back() {
    let house = House::new();
    let daemon = house.start("");
    let add = |args: &[&str]| assert_eq!(daemon.sluice(&[&["add-flow"], args].concat()).err, "");
    add(&["--idle-timeout", "100ms", &key(1), "2"]);
    add(&["--hard-timeout", "100ms", &key(2), "2"]);
    add(&["--hard-timeout", "3s", &key(3), "2"]);
    add(&["--permanent", &key(4), "2"]);
    let accepted = Instant::now();
    let ended =
        |daemon: &Daemon, reason: &str| daemon.metric(&format!("sluice_flows_ended_total{{reason=\"{reason}\"}}"));
    eventually("two flows are gone", || ended(&daemon, "idle") == Some(1.0) && ended(&daemon, "hard") >= Some(1.0));
    // On a machine that stands still for seconds the third may be among them.
    let hard = ended(&daemon, "hard").unwrap();
    // Nobody waits for the record of such an end: it is written a tenth of a second later.
    thread::sleep(Duration::from_millis(300));
    kill(daemon);

    thread::sleep(Duration::from_millis(2_500).saturating_sub(accepted.elapsed()));
    let daemon = house.start("");
    eventually("the hard timeout has gone on meanwhile", || listed(&daemon).len() == 1);
    assert_eq!(hard + ended(&daemon, "hard").unwrap(), 2.0);
    assert_eq!(ended(&daemon, "idle"), Some(0.0), "it did not come back to end again");
    assert_eq!(daemon.sluice(&["flush"]).err, "");
    kill(daemon);
    assert!(listed(&house.start("")).is_empty());
}

#[test]
fn a_log_that_the_agent_does_not_know_keeps_it_from_starting_unless_told_to_start_without() {
    let house = House::new();
    let daemon = house.start("");
    assert_eq!(daemon.sluice(&["add-flow", &key(1), "2"]).err, "");
    kill(daemon);
    let file = house.0.join("state/flows/1.log");
    let whole = fs::read(&file).unwrap();
    let mut newer = whole[..16].to_vec();
    newer[12] = 77;
    fs::write(&file, &newer).unwrap();

    let ran = sluice_tests::daemon::run(
        Command::new(sluice_tests::daemon::binary("sluiced")).arg("--config").arg(house.0.join("sluiced.toml")),
    );
    assert_eq!(ran.code, Some(2));
    let expected = format!(
        "{}, at byte 0: it is of version 77, this agent reads versions 1 and 2; nothing is changed",
        file.display()
    );
    assert!(ran.err.contains(&expected), "{}", ran.err);
    let daemon = house.start("persist = false");
    assert!(listed(&daemon).is_empty());
    eventually("it is logged", || daemon.log().contains("is left alone: flows are not kept"));
    assert_eq!(daemon.metric("sluice_journal_records"), None);
    drop(daemon);
    assert_eq!(fs::read(&file).unwrap(), newer);

    fs::write(&file, whole).unwrap();
    assert_eq!(listed(&house.start("sync_interval = 0")).len(), 1);
}

#[test]
fn a_damaged_log_brings_no_deleted_flow_back_and_is_told_of_until_it_was_seen_to() {
    const FLOWS: usize = 260;
    let house = House::new();
    let daemon = house.start("");
    let add: Vec<_> = (1..=FLOWS).map(|port| ((port, Some(2)), "add")).collect();
    let delete: Vec<_> = (1..=FLOWS).step_by(7).map(|port| ((port, None), "delete")).collect();
    assert!(ask(&daemon, &add) && ask(&daemon, &delete));
    let before = listed(&daemon);
    assert_eq!(before.len(), FLOWS - delete.len());
    // Nobody waits for the last index: it is written a tenth of a second later.
    let file = house.0.join("state/flows/1.log");
    let length = || fs::metadata(&file).unwrap().len();
    let written = length();
    eventually("the log is at rest", || length() > written);
    kill(daemon);
    let whole = fs::read(&file).unwrap();

    // Bits of records, of indexes and of the header, all over the file.
    for step in 0..8 {
        let at = step * (whole.len() - 1) / 7;
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (step % 8);
        for entry in fs::read_dir(house.0.join("state/flows")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::write(&file, &damaged).unwrap();
        let daemon = house.start_unready("");
        let found = listed_at_rest(&daemon);
        assert!(found.iter().all(|line| before.contains(line)), "byte {at}: a flow is back that was deleted");
        let lost = daemon.metric("sluice_journal_lost_flows").unwrap();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let missing = (before.len() - found.len()) as f64;
        assert_eq!(lost, missing, "byte {at}");
        let aside = house.0.join("state/flows/1.log.damaged");
        assert_eq!(fs::read(&aside).unwrap(), damaged, "byte {at}");
        let changes = daemon.metric("sluice_journal_lost_changes").unwrap();
        if lost + changes > 0.0 {
            let (status, body) = daemon.http("/readyz");
            assert!(status == 503 && body.contains("the log of flows was damaged"), "byte {at}: {body}");
            let shown = daemon.sluice(&["show"]).out;
            assert!(shown.contains("DAMAGED: the log of flows was damaged: "), "{shown}");
            let report = house.0.join("state/flows/damage-2.txt");
            assert!(shown.replace("\n            ", " ").contains(&report.display().to_string()), "{shown}");
            fs::remove_file(report).unwrap();
            eventually("it is seen to", || daemon.http("/readyz").0 == 200);
        }
        eventually("the log is whole again", || !fs::read(&file).is_ok_and(|bytes| bytes == damaged));
        kill(daemon);
        let daemon = house.start("");
        assert_eq!(listed_at_rest(&daemon), found, "byte {at}");
        assert_eq!(daemon.metric("sluice_journal_lost_flows"), Some(0.0));
        kill(daemon);
    }
}

#[test]
fn a_full_disk_stops_no_flow_is_said_loudly_and_heals() {
    const FLOWS: usize = 3_000;
    let house = House::new();
    let daemon = house.start("");
    let limit = |size: &str| {
        let status =
            Command::new("prlimit").args(["--pid", &daemon.pid().to_string(), &format!("--fsize={size}")]).status();
        assert!(status.expect("prlimit runs").success());
    };
    // No file of the agent may be longer: the log of its flows soon would be.
    limit("65536:");
    let lines: Vec<_> = (1..=FLOWS).map(|port| ((port, Some(2)), "add")).collect();
    assert!(ask(&daemon, &lines));
    assert_eq!(listed(&daemon).len(), FLOWS);
    assert_eq!(daemon.metric("sluice_journal_failing"), Some(1.0));
    assert!(daemon.metric("sluice_journal_unkept_records_total").unwrap() > 0.0);
    let (status, body) = daemon.http("/readyz");
    assert_eq!(status, 503);
    assert!(body.contains("do not survive a restart: cannot write") && body.contains("File too large"), "{body}");
    eventually("it is logged", || daemon.log().contains("flows do not survive a restart from now on: cannot write"));

    limit("unlimited:");
    eventually("everything is written anew", || daemon.http("/readyz").0 == 200);
    assert_eq!(daemon.metric("sluice_journal_failing"), Some(0.0));
    kill(daemon);
    assert_eq!(listed(&house.start("")).len(), FLOWS);
}

#[test]
fn what_was_added_at_run_time_survives_and_flows_stay_with_their_ports() {
    let house = House::new();
    let works = |daemon: &Daemon, args: &[&str]| assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    let daemon = house.start("");
    works(&daemon, &["add-port", "9", "late"]);
    works(&daemon, &["add-port", "5", "vx", "--kind", "vxlan", "--udp-port", "4790", "--underlay", "late"]);
    works(&daemon, &["add-port", "8", "short-lived"]);
    works(&daemon, &["add-meter", "7", "--pps", "1000", "--burst", "30"]);
    works(&daemon, &["add-mirror", "m", "in_port(9)", "1"]);
    works(&daemon, &["add-ct-timeout", "quick", "udp_single=3"]);
    works(&daemon, &["add-flow", &key(1), "meter(7),late"]);
    works(&daemon, &["del-port", "8"]);
    let dumped = |daemon: &Daemon| daemon.appctl(&["dpctl/dump-flows", "-m"]).out;
    let shown = |daemon: &Daemon| {
        let parts = ["show-meters", "show-mirrors", "show-ct-timeouts"].map(|command| daemon.sluice(&[command]).out);
        (daemon.appctl(&["dpctl/show"]).out, parts, listed(daemon))
    };
    let before = shown(&daemon);
    assert!(before.0.contains("port 9: late") && dumped(&daemon).contains("offloaded:yes"), "{before:?}");
    kill(daemon);

    let daemon = house.start("");
    eventually("the flow is in the device", || dumped(&daemon).contains("offloaded:yes"));
    assert_eq!(shown(&daemon), before);
    // What is deleted stays deleted.
    works(&daemon, &["del-mirror", "m"]);
    works(&daemon, &["del-port", "vx"]);
    kill(daemon);

    // The file gives the number to another port: the file wins, and the flow does not go to that port.
    let file = "[[port]]\nnumber = 9\nname = \"other\"\n";
    let daemon = Daemon::start_in(&house.0, &format!("{CONFIG}{file}"), false);
    assert!(daemon.log().contains("port 9 is as the configuration file says"), "{}", daemon.log());
    let show = daemon.appctl(&["dpctl/show"]).out;
    assert!(
        show.contains("port 9: other") && !show.contains("vx ") && daemon.sluice(&["show-mirrors"]).out.is_empty(),
        "{show}"
    );
    let gone = "refused[port 9: late, for which the flow was accepted, is gone]";
    assert!(dumped(&daemon).contains(gone), "{}", dumped(&daemon));
    kill(daemon);

    // Nor after one more restart; and the port itself, back again, gets it.
    let daemon = house.start("");
    assert!(dumped(&daemon).contains(gone), "{}", dumped(&daemon));
    works(&daemon, &["add-port", "9", "late"]);
    eventually("the flow is in the device", || dumped(&daemon).contains("offloaded:yes"));
    kill(daemon);

    // What damage takes is told until somebody has seen to it.
    let objects = house.0.join("state/objects");
    fs::write(&objects, fs::read_to_string(&objects).unwrap().replace("meter 7", "meter 8")).unwrap();
    let daemon = house.start_unready("");
    let (status, body) = daemon.http("/readyz");
    assert!(status == 503 && body.contains("set at run time are lost") && body.contains("remove that file"), "{body}");
    assert!(daemon.sluice(&["show"]).out.contains("DAMAGED   ports, meters, mirrors or timeout policies"));
    assert!(dumped(&daemon).contains("there is no meter 7"), "{}", dumped(&daemon));
    fs::remove_file(objects.with_extension("damaged")).unwrap();
    eventually("it is ready", || daemon.http("/readyz").0 == 200);
}

#[test]
fn what_the_device_refuses_at_a_start_is_kept_until_it_is_deleted() {
    let house = House::new();
    let with_port = format!("{CONFIG}[[port]]\nnumber = 9\nname = \"late\"\n");
    let daemon = Daemon::start_in(&house.0, &with_port, false);
    for args in [
        &["add-mirror", "m", "in_port(1)", "late"][..],
        &["add-port", "5", "vx", "--kind", "gre", "--underlay", "late"],
    ] {
        assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    }
    kill(daemon);
    // Without the port that both need, and once more, for the first start without it has written the file.
    for _ in 0..2 {
        let daemon = house.start("");
        let shown = daemon.sluice(&["show"]).out;
        for object in ["port 5", "mirror m"] {
            assert!(shown.contains(&format!("REFUSED   {object} is not in force, and is tried again: ")), "{shown}");
        }
        kill(daemon);
    }
    let daemon = house.start("");
    for args in [["del-port", "vx"], ["del-mirror", "m"]] {
        assert_eq!(daemon.sluice(&args).err, "", "{args:?}");
    }
    assert!(!daemon.sluice(&["show"]).out.contains("REFUSED"));
    kill(daemon);
    assert!(!house.start("").sluice(&["show"]).out.contains("REFUSED"));
}

#[test]
fn what_could_not_be_kept_is_in_force_is_said_loudly_and_is_kept_once_it_can_be() {
    let house = House::new();
    let daemon = house.start("");
    // Where the file is made anew.
    let obstacle = house.0.join("state/objects.new");
    fs::create_dir(&obstacle).unwrap();
    let answer = daemon.sluice(&["add-port", "9", "late"]);
    assert!(answer.err.contains("the change is in force, but does not survive a restart: "), "{}", answer.err);
    assert!(daemon.appctl(&["dpctl/show"]).out.contains("port 9: late"));
    let (status, body) = daemon.http("/readyz");
    assert!(status == 503 && body.contains("do not survive a restart: state_dir: cannot "), "{body}");
    fs::remove_dir(&obstacle).unwrap();
    eventually("it is ready", || daemon.http("/readyz").0 == 200);
    kill(daemon);
    assert!(house.start("").appctl(&["dpctl/show"]).out.contains("port 9: late"));
}

/// A small disk in a mount namespace of its own, at a folder, as long as this is there.
struct SmallDisk {
    holder: Child,
    is_root: bool,
}

impl SmallDisk {
    fn at(folder: &std::path::Path, size: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = Command::new("unshare");
        if !is_root {
            command.args(["--user", "--map-root-user"]);
        }
        let mount = "mount -t tmpfs -o mode=700,size=$2 none \"$1\" && echo mounted && exec cat";
        command.args(["--mount", "sh", "-c", mount, "sh"]).arg(folder).arg(size);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare runs");
        let mut word = [0; 8];
        holder.stdout.as_mut().unwrap().read_exact(&mut word).expect("the disk is mounted");
        Self { holder, is_root }
    }

    /// What runs a program that sees it.
    fn runner(&self) -> Vec<String> {
        let namespaces = format!("/proc/{}/ns", self.holder.id());
        let mut words = vec!["nsenter".to_owned(), format!("--mount={namespaces}/mnt")];
        if !self.is_root {
            words.extend([format!("--user={namespaces}/user"), "--preserve-credentials".to_owned()]);
        }
        words
    }

    /// A folder as those see it who see the disk.
    fn seen(&self, folder: &std::path::Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.holder.id(), folder.display()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_disk_that_the_log_has_filled_up_heals_once_the_flows_are_few_enough() {
    const FLOWS: usize = 60_000;
    const LEFT: usize = 20_000;
    let house = House::new();
    let state = house.0.join("state");
    let disk = SmallDisk::at(&state, "4m");
    let start = || Daemon::start_by(&disk.runner(), &house.0, CONFIG);
    let daemon = start();
    let ask_all = |ports: std::ops::RangeInclusive<usize>, output: Option<u32>, verb: &'static str| {
        let wishes: Vec<_> = ports.map(|port| ((port, output), verb)).collect();
        wishes.chunks(4_000).for_each(|wishes| assert!(ask(&daemon, wishes)));
    };
    ask_all(1..=FLOWS, Some(2), "add");
    eventually("the disk is full", || daemon.metric("sluice_journal_failing") == Some(1.0));
    eventually("what is to be done is shown", || {
        let shown = daemon.sluice(&["show"]).out;
        shown.contains("FLOWS DO NOT SURVIVE A RESTART") && shown.contains("it is written anew by itself once")
    });
    ask_all(LEFT + 1..=FLOWS, None, "delete");
    eventually("it heals by itself", || daemon.http("/readyz").0 == 200);
    for entry in fs::read_dir(disk.seen(&state.join("flows"))).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.metadata().unwrap().len() > 0, "{:?} is empty", entry.path());
    }
    kill(daemon);
    assert_eq!(start().metric("sluice_journal_restored_flows"), Some(LEFT as f64));
}
