//! What an operator looks at: preflight, doctor, the status page, watch, top, and what systemd is told.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_tests::daemon::{CONFIG, Daemon, Ran, binary, new_folder, run};
use sluice_tests::documented::compare;
use sluice_tests::vswitchd::Vswitchd;
use sluice_tests::world::eventually;

const KEY: &str = "in_port(client),eth_type(0x0800),ipv4(src=10.9.8.7,frag=no)";
const REFUSED: &str = "in_port(client),eth_type(0x86dd)";

fn preflight(args: &[&str], ovs_run_dir: &str) -> Ran {
    run(Command::new(binary("sluice")).arg("preflight").args(args).env("OVS_RUNDIR", ovs_run_dir))
}

fn verdicts<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let lines = text.lines().filter(|line| line.get(6..).is_some_and(|rest| rest.starts_with(name)));
    lines.map(|line| line[..5].trim()).collect()
}

#[test]
fn preflight_needs_no_agent_and_exits_by_what_it_finds() {
    let folder = new_folder();
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sluiced.toml");
    let config = |text: &str| fs::write(&file, format!("run_dir = \"{}/run\"\n{text}", folder.display())).unwrap();
    let file = file.to_str().unwrap();

    config("backend = \"soft\"\n");
    let soft = preflight(&["--config", file], "/nowhere");
    assert_eq!((soft.code, soft.err.as_str()), (Some(0), ""), "{}", soft.out);
    assert!(soft.out.contains("ok    kernel         Linux ") && soft.out.contains(" refuse, "), "{}", soft.out);

    // An mlx5 device that is not there.
    config("backend = \"dv\"\ndevice = \"mlx5_77\"\n[dv]\ntakeover = true\n");
    let dv = preflight(&["--config", file], "/nowhere");
    assert_eq!(dv.code, Some(2), "{}", dv.out);
    assert!(dv.out.contains("FAIL  device         no device mlx5_77;") && dv.out.contains("; cure: "), "{}", dv.out);
    let json = preflight(&["--config", file, "--json"], "/nowhere");
    assert_eq!(json.code, Some(2));
    let object: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(object["ok"], false);
    compare("preflight", &[object], &[]);
    config("backend = \"nothing\"\n");
    let wrong = preflight(&["--config", file], "/nowhere");
    assert!(wrong.code == Some(2) && wrong.err.contains("no backend nothing"), "{wrong:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn preflight_names_a_live_open_vswitch_that_offloads() {
    let folder = new_folder();
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sluiced.toml");
    let look = |ovs: &Vswitchd, port: &str| {
        let port = format!("backend = \"tc\"\n[[port]]\nnumber = 1\nname = \"{port}\"\n");
        fs::write(&file, format!("run_dir = \"{}/run\"\n{port}", folder.display())).unwrap();
        let ran = preflight(&["--config", file.to_str().unwrap()], ovs.path("").trim_end_matches('/'));
        ran.out.lines().find(|line| line.contains("foreign offload")).unwrap().to_owned()
    };
    let software = Vswitchd::start();
    assert!(look(&software, "p1").starts_with("ok ") && look(&software, "p1").contains("keeps to software"));
    drop(software);
    let offloading = Vswitchd::start_with(&["other_config:hw-offload=true"]);
    let shared = look(&offloading, "p1");
    assert!(shared.starts_with("FAIL") && shared.contains("at ports of Sluice: p1; cure: ovs-vsctl"), "{shared}");
    assert!(look(&offloading, "eth77").starts_with("warn"));
    let ovs_run_dir = offloading.path("");
    drop(offloading);
    fs::create_dir_all(&ovs_run_dir).unwrap();
    fs::write(format!("{ovs_run_dir}ovs-vswitchd.pid"), format!("{}\n", std::process::id())).unwrap();
    let ran = preflight(&["--config", file.to_str().unwrap()], &ovs_run_dir);
    assert_eq!(verdicts(&ran.out, "foreign offload"), ["ok"], "the pidfile is of another program: {}", ran.out);
    fs::remove_dir_all(ovs_run_dir).unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn doctor_is_one_text_without_what_flows_match() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", KEY, "server"]);
    daemon.sluice(&["add-flow", REFUSED, "lb_output(1)"]);
    let config = daemon.folder().join("sluiced.toml");
    let doctor = |args: &[&str]| daemon.sluice(&[&["doctor", "--config", config.to_str().unwrap()], args].concat());
    let well = doctor(&[]);
    assert_eq!((well.code, well.err.as_str()), (Some(0), ""), "{}", well.out);
    for part in ["== preflight", "== agent", "== audit", "== top refusals", "== log of flows and queue"] {
        assert!(well.out.contains(&format!("\n{part}\n")), "{part}: {}", well.out);
    }
    assert!(well.out.contains("1 rules, 0 differences"), "{}", well.out);
    assert!(well.out.contains("       1  action lb_output: "), "{}", well.out);
    assert!(!well.out.contains("10.9.8.7") && !well.out.contains("0x86dd"), "{}", well.out);
    let object: Value = serde_json::from_str(&doctor(&["--json"]).out).unwrap();
    assert_eq!((&object["ok"], &object["refusals"][0]["flows"]), (&true.into(), &1.into()));
    // What is in these two is told elsewhere.
    let mut own = object;
    for member in ["stats", "preflight", "audit"] {
        assert!(own[member].is_object(), "{member}");
        own[member] = Value::Null;
    }
    compare("doctor", &[own], &[]);

    daemon.appctl(&["revalidator/pause"]);
    let unready = doctor(&[]);
    assert!(unready.code == Some(2) && unready.out.contains("the revalidator is paused"), "{}", unready.out);
    let nobody = run(Command::new(binary("sluice")).args(["--run-dir", "/nowhere", "doctor"]));
    assert!(nobody.code == Some(2) && nobody.out.contains("no agent at /nowhere/sluiced.ctl"), "{nobody:?}");
}

#[test]
fn the_status_page_is_whole_without_a_script_and_loads_nothing() {
    let daemon = Daemon::start(&format!(
        "{CONFIG}[[mirror]]\nname = \"tap\"\nkey = \"in_port(client)\"\nports = [\"uplink\"]\n"
    ));
    daemon.sluice(&["add-flow", KEY, "server"]);
    daemon.sluice(&["add-flow", REFUSED, "lb_output(1)"]);
    eventually("the survey is new", || daemon.http("/").1.contains("sluice explain"));
    let (status, page) = daemon.http("/");
    assert_eq!(status, 200);
    for words in [
        "<!DOCTYPE html>",
        "id=\"state\">ready</span>",
        "action lb_output: the members of the bond are known to ovs-vswitchd alone",
        "docs/language.md says which backend takes it",
        "<td><code>tap</code>",
        "refused ufid:",
        "started, version",
        "<noscript><meta http-equiv=\"refresh\"",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    for foreign in ["http://", "https://", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}: {page}");
    }
    let ids = ["50.0 %", "of 2"];
    assert!(ids.iter().all(|words| page.contains(words)), "{page}");
    daemon.appctl(&["revalidator/pause"]);
    assert!(daemon.http("/").1.contains("badge bad\" id=\"state\">not ready: the revalidator is paused"));
}

#[test]
fn watch_tells_time_key_and_actions() {
    let daemon = Daemon::start(CONFIG);
    let mut watch = daemon.spawn_sluice(&["watch"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || lines.by_ref().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut seen = Vec::new();
    eventually("an event is told", || {
        daemon.sluice(&["add-flow", KEY, "server"]);
        daemon.sluice(&["del-flow", KEY]);
        seen.extend(told.try_iter());
        seen.iter().any(|line: &String| line.contains(" installed "))
    });
    let line = seen.iter().find(|line| line.contains(" installed ")).unwrap();
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{line}");
    assert!(rest.starts_with("installed ufid:") && rest.contains("in hardware, "), "{line}");
    assert!(
        rest.contains("in_port(client)") && rest.contains("src=10.9.8.7") && rest.ends_with("actions:server"),
        "{line}"
    );
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn explain_exits_2_for_a_refusal_and_a_tunnel_port_has_the_default_udp_port() {
    let daemon = Daemon::start(CONFIG);
    assert_eq!(daemon.sluice(&["explain", KEY, "server"]).code, Some(0));
    let refused = daemon.sluice(&["explain", REFUSED, "lb_output(1)"]);
    assert!(refused.code == Some(2) && refused.out.starts_with("would be refused: action lb_output"), "{refused:?}");
    daemon.sluice(&["add-flow", "--no-wait", REFUSED, "lb_output(1)"]);
    eventually("the flow is refused", || {
        daemon.sluice(&["explain", REFUSED, "lb_output(1)"]).out.contains("  refused ")
    });
    assert_eq!(daemon.sluice(&["explain", REFUSED, "lb_output(1)"]).code, Some(2));

    let ran = daemon.sluice(&["add-port", "9", "gnv0", "--kind", "geneve", "--underlay", "uplink"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let shown: Value = serde_json::from_str(&daemon.sluice(&["show", "--json"]).out).unwrap();
    let port = shown["ports"].as_array().unwrap().iter().find(|port| port["name"] == "gnv0").unwrap();
    assert_eq!(port["udp_port"], 6081);
}

/// Runs a command on a terminal of this size, types, and gives all that it prints until it ends or is done with.
fn on_terminal(daemon: &Daemon, (columns, rows): (u16, u16), command: &str, keys: &str) -> String {
    let line = format!(
        "stty cols {columns} rows {rows}; exec {} --run-dir {} {command}",
        binary("sluice").display(),
        daemon.run_dir().display()
    );
    let mut script: Child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script of util-linux (bsdutils)");
    let mut input = script.stdin.take().unwrap();
    for key in keys.chars() {
        thread::sleep(Duration::from_millis(300));
        std::io::Write::write_all(&mut input, key.to_string().as_bytes()).unwrap();
    }
    let output = script.wait_with_output().unwrap();
    drop(input);
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

#[test]
fn tables_fit_the_terminal_a_line_a_flow() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", KEY, "set(ipv4(ttl=63)),server"]);
    daemon.sluice(&["add-flow", REFUSED, "lb_output(1)"]);
    for columns in [80, 120] {
        let text = on_terminal(&daemon, (columns, 24), "dump-flows --table", "");
        assert!(text.lines().all(|line| line.chars().count() <= columns.into()), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("in_port")).count(), 2, "{text}");
    }
}

#[test]
fn top_takes_keys_and_gives_the_terminal_back() {
    let daemon = Daemon::start(CONFIG);
    let empty = on_terminal(&daemon, (100, 24), "top --interval 100ms --count 2", "");
    assert!(empty.contains("There are no flows: `sluice add-flow` adds one."), "{empty}");
    daemon.sluice(&["add-flow", KEY, "server"]);
    // It is ended by a key, and by nothing else; the filter is typed.
    let text = on_terminal(&daemon, (100, 24), "top --interval 200ms; stty -a", "b/tcp\n q");
    assert!(text.contains("by bytes; p packets") || text.contains("by bytes, with \"tcp\""), "{text}");
    assert!(text.contains("No flow has \"tcp\" in its key or actions."), "{text}");
    assert!(text.contains("STOPPED") || text.contains("filter: tcp_"), "{text}");
}

/// Writes a configuration with folders of its own into this one, and says where it is.
fn configured(folder: &Path, keys: &str) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let (place, file) = (folder.display(), folder.join("sluiced.toml"));
    let name = folder.file_name().unwrap().to_str().unwrap();
    let places = format!(
        "run_dir = \"{place}/run\"\nlock_dir = \"{place}\"\nstate_dir = \"{place}/state\"\ndevice = \"{name}\"\n"
    );
    fs::write(&file, format!("{places}{keys}")).unwrap();
    file
}

#[test]
fn a_hangup_during_the_start_is_a_reload_once_the_agent_runs() {
    let folder = new_folder();
    let file = configured(&folder, &format!("metrics = \"none\"\n{CONFIG}"));
    let log = fs::File::create(folder.join("log")).unwrap();
    let mut daemon = Command::new(binary("sluiced")).arg("--config").arg(&file).stderr(log).spawn().unwrap();
    let has_ended = |daemon: &mut Child| daemon.try_wait().unwrap().is_some();
    // As whoever rotates logs finds it, a moment after the agent has begun.
    while !folder.join("run/sluiced.pid").exists() && !has_ended(&mut daemon) {
        thread::yield_now();
    }
    eventually("it has reloaded", || {
        assert!(!has_ended(&mut daemon), "{}", fs::read_to_string(folder.join("log")).unwrap());
        kill_process(Pid::from_child(&daemon), Signal::HUP).unwrap();
        fs::read_to_string(folder.join("log")).unwrap().contains("reloaded, nothing changed")
    });
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_agent_that_is_told_to_end_during_its_start_ends_in_order() {
    let folder = new_folder();
    let file = configured(&folder, &format!("metrics = \"none\"\n{CONFIG}"));
    let log = fs::File::create(folder.join("log")).unwrap();
    let mut daemon = Command::new(binary("sluiced")).arg("--config").arg(&file).stderr(log).spawn().unwrap();
    let logged = || fs::read_to_string(folder.join("log")).unwrap();
    // The device has been touched, and its parts have yet to run.
    while !logged().contains("rules adopted") && daemon.try_wait().unwrap().is_none() {
        thread::yield_now();
    }
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    let status = daemon.wait().unwrap();
    assert!(status.success(), "{status}: {}", logged());
    assert!(logged().contains("stopping on SIGTERM") && !folder.join("run/sluiced.pid").exists(), "{}", logged());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_sweep_needs_nothing_of_what_an_agent_serves() {
    let folder = new_folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (keys, reason) in [
        (format!("metrics = \"{address}\"\n"), "cannot serve metrics at "),
        ("metrics = \"none\"\ncontrol_group = \"no-such-group\"\n".to_owned(), "there is no group"),
    ] {
        let file = configured(&folder, &format!("{keys}{CONFIG}"));
        let start = |more: &[&str]| run(Command::new(binary("sluiced")).args(more).arg("--config").arg(&file));
        let served = start(&[]);
        assert!(served.code == Some(2) && served.err.contains(reason), "{served:?}");
        let swept = start(&["--sweep"]);
        assert_eq!(swept.code, Some(0), "{swept:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn systemd_is_told_of_flows_and_the_journal_gets_priorities() {
    let folder = new_folder();
    fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let file = configured(&folder, &format!("metrics = \"none\"\n{CONFIG}"));
    let log = fs::File::create(folder.join("log")).unwrap();
    let made = log.metadata().unwrap();
    let mut daemon = Command::new(binary("sluiced"))
        .arg("--config")
        .arg(&file)
        .env("NOTIFY_SOCKET", &socket)
        .env("JOURNAL_STREAM", format!("{}:{}", made.dev(), made.ino()))
        .stderr(log)
        .spawn()
        .unwrap();
    let mut buffer = [0; 4096];
    let mut told = Vec::new();
    let status = format!("STATUS=soft@{name}: 0 flows, 0 in hardware, 0 refused; 0 wait for the device");
    while !told.iter().any(|message: &String| message.contains(&status)) {
        let length = systemd.recv(&mut buffer).unwrap();
        told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    assert!(told.iter().any(|message| message.contains("READY=1")), "{told:?}");
    let run_dir = folder.join("run");
    let sluice = |args: &[&str]| run(Command::new(binary("sluice")).arg("--run-dir").arg(&run_dir).args(args));
    assert_eq!(sluice(&["add-flow", KEY, "server"]).err, "");
    while !told.iter().any(|message| message.contains(": 1 flows, 1 in hardware, 0 refused")) {
        let length = systemd.recv(&mut buffer).unwrap();
        told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    let log = fs::read_to_string(folder.join("log")).unwrap();
    assert!(log.lines().count() > 2 && log.lines().all(|line| line.starts_with("<6>sluice_")), "{log}");
    fs::remove_dir_all(folder).unwrap();
}
