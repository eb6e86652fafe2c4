//! The daemon's life: readiness, signals, reload, locks, UFIDs over a restart, metrics.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use sluice_tests::daemon::{CONFIG, Daemon, binary, new_folder, repository, run};
use sluice_tests::world::eventually;

const KEY: &str = "in_port(client),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,frag=no)";

#[test]
fn sigterm_stops_in_order_and_flushes_if_told_to() {
    for (on_exit, flushed) in [("leave", false), ("flush", true)] {
        let mut daemon = Daemon::start(&format!("on_exit = \"{on_exit}\"\n{CONFIG}"));
        daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
        daemon.signal("TERM");
        assert!(daemon.wait().success());
        let log = daemon.log();
        assert!(log.contains("stopping on SIGTERM") && log.contains("all parts stopped"), "{log}");
        assert_eq!(log.contains("1 flows removed"), flushed, "{log}");
    }
}

#[test]
fn a_reload_takes_over_what_it_can_and_loses_no_flow() {
    let daemon = Daemon::start(CONFIG);
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    let before = daemon.appctl(&["dpctl/dump-flows", "-m"]).out;
    let config = daemon.config();
    let changed = config.replace("idle_timeout = \"none\"", "idle_timeout = \"1h\"\nflow_limit = 77\nworkers = 3");
    fs::write(daemon.folder().join("sluiced.toml"), changed + "[[port]]\nnumber = 9\nname = \"late\"\n").unwrap();
    let ran = daemon.appctl(&["sluice/reload"]);
    assert_eq!(ran.err, "");
    assert_eq!(ran.out, "changed: flow_limit, idle_timeout, port; needs a restart: workers\n");
    assert_eq!(daemon.appctl(&["dpctl/dump-flows", "-m"]).out, before);
    assert_eq!(daemon.metric("sluice_flow_limit"), Some(77.0));
    assert_eq!(daemon.appctl(&["dpctl/add-flow", "in_port(late)", "2"]).err, "");

    fs::write(daemon.folder().join("sluiced.toml"), config.replace("poll_interval", "pol_interval")).unwrap();
    daemon.signal("HUP");
    eventually("the mistake is logged", || daemon.log().contains("pol_interval"));
    let ran = daemon.appctl(&["sluice/reload"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("unknown key `pol_interval`") && ran.err.contains('^'), "{}", ran.err);
    assert_eq!(daemon.metric("sluice_flow_limit"), Some(77.0), "a wrong file changes nothing");
}

#[test]
fn a_reload_compares_the_file_with_what_is_in_force_and_is_all_or_nothing() {
    let daemon = Daemon::start(CONFIG);
    let config = daemon.config();
    let reload = |more: &str| {
        fs::write(daemon.folder().join("sluiced.toml"), format!("{config}{more}")).unwrap();
        daemon.appctl(&["sluice/reload"])
    };
    let shows = |text: &str| daemon.appctl(&["dpctl/show"]).out.contains(text);
    let works = |args: &[&str]| assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    let port = |number: u32, name: &str| format!("[[port]]\nnumber = {number}\nname = \"{name}\"\n");

    // A port of the file clashes with one of the run time: nothing is taken over, not even what is right.
    works(&["add-port", "9", "late"]);
    let before = daemon.appctl(&["dpctl/show"]).out;
    for _ in 0..2 {
        let refused = reload(&format!("[[meter]]\nid = 5\npps = 10\n{}{}", port(9, "nine"), port(10, "ten")));
        assert_eq!(refused.code, Some(2), "{}", refused.out);
        let reason = "port nine: number 9 is late already, which was added at run time";
        let line = refused.err.contains("sluiced.toml:") && refused.err.contains("| name = \"nine\"");
        assert!(refused.err.contains(reason) && line, "{}", refused.err);
        assert_eq!(daemon.appctl(&["dpctl/show"]).out, before);
        assert_eq!(daemon.sluice(&["show-meters"]).out, "");
    }
    // Once the clash is gone, the same file is taken up.
    works(&["del-port", "late"]);
    assert_eq!(reload(&port(9, "nine")).out, "changed: port\n");
    assert!(shows("port 9: nine"));
    assert_eq!(reload(&port(9, "nine")).out, "nothing changed\n");
    // A port that the file no longer names goes; one that came at run time under its number stays.
    assert_eq!(reload("").out, "changed: port\n");
    works(&["add-port", "9", "late"]);
    assert_eq!(reload("").out, "nothing changed\n");
    assert!(shows("port 9: late"));

    // The device refuses the last of two changes, and the first is taken back.
    works(&["add-meter", "7", "--pps", "5"]);
    works(&["add-port", "21", "other", "--kind", "gre", "--underlay", "uplink"]);
    let changes = |kind: &str| {
        let meter = "[[meter]]\nid = 7\npps = 9\n";
        format!("{meter}{}kind = \"{kind}\"\nunderlay = \"uplink\"\n", port(20, "t"))
    };
    let rate = || daemon.sluice(&["show-meters"]).out;
    let refused = reload(&changes("gre"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("port t: another tunnel of its kind"), "{}", refused.err);
    assert!(refused.err.contains("| name = \"t\""), "{}", refused.err);
    assert!(rate().contains("rate:5,"), "{}", rate());
    assert_eq!(reload(&changes("geneve")).out, "changed: meter, port\n");
    assert!(rate().contains("rate:9,"), "{}", rate());
}

#[test]
fn a_configuration_that_cannot_be_read_holds_nothing_up() {
    let mut daemon = Daemon::start(CONFIG);
    let file = daemon.folder().join("sluiced.toml");
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let refused = daemon.appctl(&["sluice/reload"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("it is not a regular file"), "{}", refused.err);
    daemon.signal("HUP");
    daemon.signal("TERM");
    assert!(daemon.wait().success());
}

#[test]
fn a_start_that_is_refused_changes_nothing() {
    let folder = new_folder();
    let run_dir = folder.join("run");
    fs::create_dir_all(&run_dir).unwrap();
    let (file, socket) = (folder.join("sluiced.toml"), run_dir.join("sluiced.ctl"));
    let name = folder.file_name().unwrap().to_str().unwrap();
    let write = |more: &str| {
        let places = format!(
            "run_dir = \"{0}/run\"\nlock_dir = \"{0}\"\nstate_dir = \"{0}/state\"\ndevice = \"{name}\"\n",
            folder.display()
        );
        fs::write(&file, places + more).unwrap();
    };
    let start = |options: &[&str]| {
        let ran = run(Command::new(binary("sluiced")).args(options).arg("--config").arg(&file));
        assert_eq!(ran.code, Some(2), "{}", ran.out);
        ran.err
    };

    write("metrics = \"none\"\n");
    fs::write(&socket, "precious").unwrap();
    assert!(start(&["--check"]).contains("is there and is no socket"));
    assert!(start(&[]).contains("is there and is no socket"));
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(start(&[]).contains("another program listens on"));
    std::os::unix::net::UnixStream::connect(&socket).expect("the other program's socket is left alone");
    drop(other);
    fs::remove_file(&socket).unwrap();

    write("metrics = \"none\"\ncontrol_group = \"no-such-group\"\n");
    for options in [&["--check"][..], &[]] {
        let error = start(options);
        assert!(error.contains("sluiced.toml:6:17") && error.contains("no-such-group"), "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    write(&format!("metrics = \"{}\"\n", taken.local_addr().unwrap()));
    let error = start(&[]);
    assert!(error.contains("cannot serve metrics at") && error.contains("sluiced.toml:5:11"), "{error}");
    assert!(!folder.join("state").exists(), "nothing was taken on before");
    assert!(!socket.exists() && !run_dir.join("sluiced.pid").exists());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_flow_of_a_port_that_is_gone_is_refused_and_never_given_to_another_port() {
    let daemon = Daemon::start(CONFIG);
    let works = |args: &[&str]| assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    let flow = || daemon.sluice(&["dump-flows", "-m"]).out;
    works(&["add-port", "77", "old"]);
    works(&["add-flow", KEY, "77"]);
    assert!(flow().contains("offloaded:yes"), "{}", flow());

    works(&["del-port", "old"]);
    let gone = "refused[port 77: old, for which the flow was accepted, is gone]";
    eventually("the flow is refused", || flow().contains(gone));
    assert!(!flow().contains("offloaded:yes"), "{}", flow());
    assert_eq!(daemon.metric("sluice_flow_refusals_total{reason=\"port\"}"), Some(1.0));
    let audit = daemon.sluice(&["audit"]).out;
    assert!(audit.contains("port 77 (old) is gone: 1 flows accepted for it are not in the device"), "{audit}");

    // Another port of the number gets none of its traffic; the port itself, back again, does.
    works(&["add-port", "77", "new"]);
    assert!(flow().contains(gone), "{}", flow());
    works(&["del-port", "new"]);
    works(&["add-port", "77", "old"]);
    eventually("the flow is back", || flow().contains("offloaded:yes"));
    // To modify it is to accept it for the port that has the number now.
    works(&["del-port", "old"]);
    works(&["add-port", "77", "new"]);
    eventually("the flow is refused again", || flow().contains(gone));
    works(&["mod-flow", KEY, "77"]);
    assert!(flow().contains("offloaded:yes") && flow().contains("actions:new"), "{}", flow());

    for name in ["", "a\nb", "\u{1b}[31mred", "a,b", "7", "two words", "p\u{202e}0"] {
        let ran = daemon.appctl(&["sluice/add-port", "78", name]);
        assert_eq!(ran.code, Some(2), "{name:?}");
        assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
    }
    let refused = daemon.sluice(&["del-port", "uplink"]);
    assert!(refused.err.contains("port 3 is the underlay of port vxlan_sys_4789"), "{}", refused.err);
}

#[test]
fn flows_that_jump_to_a_chain_go_in_after_a_restart_though_the_port_of_one_in_it_is_gone() {
    let folder = new_folder();
    let works = |daemon: &Daemon, args: &[&str]| assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    let flows = |daemon: &Daemon| daemon.sluice(&["dump-flows", "-m"]).out;
    let mut daemon = Daemon::start_in(&folder, CONFIG, false);
    works(&daemon, &["add-port", "77", "late"]);
    works(&daemon, &["add-flow", "recirc_id(5),in_port(77)", "2"]);
    works(&daemon, &["add-flow", "recirc_id(0),in_port(1)", "recirc(5)"]);
    works(&daemon, &["del-port", "late"]);
    eventually("one of the chain is refused", || flows(&daemon).contains("refused[port 77: late"));
    daemon.signal("TERM");
    assert!(daemon.wait().success());

    let daemon = Daemon::start_in(&folder, CONFIG, true);
    eventually("the other one is in the device", || flows(&daemon).contains("offloaded:yes"));
    assert!(flows(&daemon).contains("refused[port 77: late"), "{}", flows(&daemon));
}

#[test]
fn one_device_has_one_agent() {
    let daemon = Daemon::start(CONFIG);
    let name = daemon.folder().file_name().unwrap().to_str().unwrap();
    let other = daemon.folder().join("other.toml");
    let folder = daemon.folder().display();
    fs::write(
        &other,
        format!("device = \"{name}\"\nrun_dir = \"{folder}/other\"\nlock_dir = \"{folder}\"\nmetrics = \"none\"\n"),
    )
    .unwrap();
    let ran = run(Command::new(binary("sluiced")).arg("--config").arg(&other));
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains(&format!("device {name} is in use by")) && ran.err.contains(&daemon.pid().to_string()),
        "{}",
        ran.err
    );
}

#[test]
fn a_folder_that_others_can_write_is_refused_by_the_name_of_its_key() {
    let folder = new_folder();
    let open = folder.join("open");
    fs::create_dir_all(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    for key in ["run_dir", "lock_dir", "state_dir"] {
        let place = |name: &str| if name == key { open.clone() } else { folder.join(name) };
        let keys = ["run_dir", "lock_dir", "state_dir"].map(|name| format!("{name} = \"{}\"\n", place(name).display()));
        let file = folder.join("sluiced.toml");
        fs::write(&file, format!("{}metrics = \"none\"\n", keys.concat())).unwrap();
        let ran = run(Command::new(binary("sluiced")).arg("--config").arg(&file));
        let reason = format!("sluiced: {key}: other users can write {} (mode 1777); name a folder", open.display());
        assert!(ran.code == Some(2) && ran.err.contains(&reason), "{}", ran.err);
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "nothing was made there");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_flow_has_the_same_ufid_after_a_restart() {
    let folder = new_folder();
    let ufid = || {
        let daemon = Daemon::start_in(&folder, &format!("persist = false\n{CONFIG}"), false);
        assert_eq!(daemon.appctl(&["dpctl/add-flow", KEY, "2"]).err, "", "the agent begins empty");
        daemon.appctl(&["dpctl/dump-flows", "-m"]).out[..41].to_owned()
    };
    let first = ufid();
    assert!(first.starts_with("ufid:"), "{first}");
    assert_eq!(ufid(), first);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_control_socket_has_the_configured_mode() {
    let daemon = Daemon::start(&format!("control_mode = \"0600\"\n{CONFIG}"));
    assert_eq!(fs::metadata(daemon.socket()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_wrong_configuration_shows_the_line() {
    let folder = new_folder();
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sluiced.toml");
    fs::write(&file, "flow_limit = 5\nidle_timout = \"10s\"\n").unwrap();
    let ran = run(Command::new(binary("sluiced")).args(["--check", "--config"]).arg(&file));
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("idle_timout = \"10s\"") && ran.err.contains('^') && ran.err.contains(":2"),
        "{}",
        ran.err
    );
    fs::write(&file, "flow_limit = 5\n").unwrap();
    assert_eq!(run(Command::new(binary("sluiced")).args(["--check", "--config"]).arg(&file)).code, Some(0));
    fs::write(&file, "flow_limit = 5\nhardware_rules = 7\n").unwrap();
    let ran = run(Command::new(binary("sluiced")).args(["--check", "--config"]).arg(&file));
    assert_eq!(ran.code, Some(0), "a key where it once was is right");
    assert_eq!(ran.err, format!("sluiced: {}:2:1: `hardware_rules` belongs in [soft] now\n", file.display()));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn metrics_are_well_formed_and_count() {
    let daemon = Daemon::start(CONFIG);
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    daemon.appctl(&["dpctl/add-flow", "in_port(server),eth_type(0x0800),ipv4(proto=6)", "ct(commit,helper=sip),1"]);
    assert_eq!(daemon.metric("sluice_flows{state=\"offloaded\"}"), Some(1.0));
    assert_eq!(daemon.metric("sluice_flow_refusals_total{reason=\"action\"}"), Some(1.0));
    assert_eq!(
        daemon.metric("sluice_flow_refusals_total{reason=\"kernel\"}"),
        Some(0.0),
        "a reason is shown before it occurs"
    );
    let (status, text) = daemon.http("/metrics");
    assert_eq!(status, 200);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of Debian's prometheus");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_log_level_is_changed_while_it_runs_in_the_words_of_ovs_or_ours() {
    let daemon = Daemon::start(CONFIG);
    for (spec, level) in
        [("ANY:ANY:dbg", "debug"), ("warn", "warn"), ("info,sluice::event=debug", "sluice::event=debug,info")]
    {
        assert_eq!(daemon.appctl(&["vlog/set", spec]).err, "");
        assert_eq!(daemon.appctl(&["vlog/list"]).out, format!("{level}\n"));
    }
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    eventually("both are logged", || {
        daemon.log().contains("accepted ufid:") && daemon.log().contains("installed ufid:")
    });
    let wrong = daemon.appctl(&["vlog/set", "lots"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("unknown log level \"lots\""), "{}", wrong.err);
}

#[test]
fn a_reload_changes_the_log_level_only_if_the_file_does_and_says_so_only_if_it_is_changed() {
    let reload = |daemon: &Daemon, level: &str| {
        let file = daemon.folder().join("sluiced.toml");
        let before = fs::read_to_string(&file).unwrap();
        let rest = before.split("[log]").next().unwrap();
        fs::write(file, format!("{rest}[log]\nlevel = \"{level}\"\n")).unwrap();
        daemon.appctl(&["sluice/reload"]).out
    };
    let level = |daemon: &Daemon| daemon.appctl(&["vlog/list"]).out;
    let daemon = Daemon::start(CONFIG);
    assert_eq!(reload(&daemon, "warn"), "changed: log.level\n");
    assert_eq!(daemon.appctl(&["vlog/set", "debug"]).err, "");
    assert_eq!((reload(&daemon, "warn"), level(&daemon)), ("nothing changed\n".to_owned(), "debug\n".to_owned()));
    assert_eq!((reload(&daemon, "error"), level(&daemon)), ("changed: log.level\n".to_owned(), "error\n".to_owned()));
    drop(daemon);

    let folder = new_folder();
    let daemon = Daemon::start_by(&["env".to_owned(), "RUST_LOG=info".to_owned()], &folder, CONFIG);
    let overruled = "nothing changed; log.level stays as RUST_LOG says\n";
    assert_eq!((&*reload(&daemon, "warn"), &*level(&daemon)), (overruled, "info\n"));
    drop(daemon);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn limit_period_and_the_reason_of_each_end_are_published() {
    let daemon = Daemon::start(CONFIG);
    let add = |options: &[&str], number: usize| {
        let key = format!("in_port(client),eth_type({number:#x})");
        assert_eq!(daemon.appctl(&[&["dpctl/add-flow"], options, &[key.as_str(), "2"]].concat()).err, "");
    };
    (0..6).for_each(|number| add(&[], 0x9000 + number));
    add(&["--idle-timeout=100ms"], 0x9100);
    add(&["--hard-timeout=100ms"], 0x9200);
    add(&["--permanent"], 0x9300);
    let ended = |reason: &str| daemon.metric(&format!("sluice_flows_ended_total{{reason=\"{reason}\"}}"));
    eventually("the timeouts are over", || ended("idle") == Some(1.0) && ended("hard") == Some(1.0));

    let config = daemon.config();
    fs::write(daemon.folder().join("sluiced.toml"), format!("flow_limit = 3\n{config}")).unwrap();
    assert_eq!(daemon.appctl(&["sluice/reload"]).out, "changed: flow_limit\n");
    eventually("those above the limit are evicted", || ended("limit") == Some(4.0));
    assert!(daemon.appctl(&["dpctl/dump-flows", "-m"]).out.contains("permanent"), "a permanent flow stays");
    assert_eq!(daemon.metric("sluice_flows{state=\"offloaded\"}"), Some(3.0));
    assert_eq!(daemon.metric("sluice_flow_limit"), Some(3.0));
    let period = daemon.metric("sluice_revalidator_period_seconds").unwrap();
    assert!(period >= 0.02, "as configured, or longer where a poll takes long: {period}");
}

#[test]
fn not_ready_while_paused_but_alive() {
    let daemon = Daemon::start(CONFIG);
    daemon.appctl(&["revalidator/pause"]);
    let (status, reason) = daemon.http("/readyz");
    assert_eq!((status, reason.as_str()), (503, "the revalidator is paused\n"));
    assert_eq!(daemon.http("/healthz").0, 200);
    assert_eq!(daemon.http("/nothing").0, 404);
}

#[test]
fn what_is_deployed_is_right() {
    let deploy = |name: &str| repository("deploy").join(name);
    let check = run(Command::new(binary("sluiced")).args(["--check", "--config"]).arg(deploy("sluiced.toml")));
    assert_eq!((check.code, check.err.as_str()), (Some(0), ""));
    let promtool = run(Command::new("promtool").args(["check", "config"]).arg(deploy("prometheus/prometheus.yml")));
    assert_eq!(promtool.code, Some(0), "{}", promtool.err);
    let units = [
        ("sluiced", "--threshold=20"),
        ("sluiced-sweep", "--threshold=20"),
        ("sluice-mirror-send", "--threshold=25"),
        ("sluice-mirror-collect", "--threshold=25"),
    ];
    for (unit, threshold) in units {
        let unit = &format!("{unit}.service");
        let verify = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(deploy(unit)));
        let complaints: Vec<_> =
            verify.err.lines().filter(|line| line.contains("sluice") && !line.contains("is not executable")).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        let security =
            run(Command::new("systemd-analyze").args(["security", "--offline=yes", threshold]).arg(deploy(unit)));
        assert_eq!(security.code, Some(0), "{unit}: {}", security.out.lines().last().unwrap_or_default());
    }
}
