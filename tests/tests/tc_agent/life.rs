//! From the start of an agent to its end.

use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::switch::{SERVER, Switch, eventually, key, run, sluice, within};

use crate::stream::{self, FRAME, PORT};

fn only_flow(daemon: &Daemon) -> String {
    let dump = sluice(daemon, &["dump-flows", "-m"]);
    assert_eq!(dump.lines().count(), 1, "{dump}");
    dump
}

pub(crate) fn flows_are_added_counted_and_shown() {
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"");
    stream::send_in_vain(3);
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    assert_eq!(switch.filters("client").len(), 1);
    assert_eq!(stream::send(50), 50);
    let counted = format!("packets:50, bytes:{}, ", 50 * FRAME);
    eventually("what was sent is counted", || only_flow(&daemon).contains(&counted));
    let line = only_flow(&daemon);
    assert!(line.contains("offloaded:partial, dp:tc, actions:server"), "{line}");

    let ufid = line.strip_prefix("ufid:").unwrap().split(',').next().unwrap();
    let object: Value = serde_json::from_str(&sluice(&daemon, &["get-flow", "--json", ufid])).unwrap();
    assert_eq!(object["placement"], "software only");
    assert_eq!(object["software"]["packets"], 50, "{object}");
    assert_eq!(object["hardware"]["packets"], 0, "{object}");
    let listed: Value = serde_json::from_str(&sluice(&daemon, &["dump-flows", "-m", "--json"])).unwrap();
    assert_eq!(listed[0]["software"], object["software"]);
    let explained = sluice(&daemon, &["explain", ufid]);
    assert!(explained.contains("a rule in software only"), "{explained}");
    assert!(explained.contains(&format!("by software: packets 50, bytes {}", 50 * FRAME)), "{explained}");
    assert!(sluice(&daemon, &["show"]).contains("  backend   tc, policy skip_hw, tunnel_flags auto\n"));
    assert_eq!(sluice(&daemon, &["audit"]), "1 rules, all as wanted (listed by the device)\n");
    assert_eq!(daemon.metric("sluice_flows_placed{placement=\"software\"}"), Some(1.0));

    sluice(&daemon, &["del-flow", ufid]);
    assert!(switch.filters("client").is_empty());
    stream::send_in_vain(3);
}

pub(crate) fn idle_flows_age_out_and_used_ones_stay() {
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"20s\"");
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    sluice(&daemon, &["add-flow", &key("192.168.7.9", PORT), "server"]);
    let stream = stream::Stream::start();
    eventually("the idle flow is gone", || daemon.metric("sluice_flows_ended_total{reason=\"idle\"}") == Some(1.0));
    assert!(only_flow(&daemon).contains(&format!("dst={SERVER}")));
    assert_eq!(switch.filters("client").len(), 1);
    stream.end_without_loss();
    eventually("the other one follows", || sluice(&daemon, &["dump-flows"]).is_empty());
    assert!(switch.filters("client").is_empty());
}

pub(crate) fn an_agent_that_cleans_up_leaves_nothing_of_its_own() {
    let switch = Switch::set_up();
    let mut daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"");
    let foreign = "tc filter add dev client ingress pref 49000 protocol ip flower dst_ip 9.9.9.9 action drop";
    run(foreign);
    for host in 1..=20 {
        sluice(&daemon, &["add-flow", &key(&format!("192.168.7.{host}"), PORT), "server"]);
    }
    assert_eq!(switch.filters("client").len(), 21);
    sluice(&daemon, &["flush"]);
    assert_eq!(switch.filters("client").len(), 1, "only the one of somebody else");
    for host in 1..=20 {
        sluice(&daemon, &["add-flow", &key(&format!("192.168.7.{host}"), PORT), "server"]);
    }
    assert_eq!(daemon.appctl(&["exit", "--cleanup"]).code, Some(0));
    assert!(daemon.wait().success());
    let log = daemon.log();
    assert!(log.contains("20 flows removed, and the device has no rule of ours"), "{log}");
    let filters = switch.filters("client");
    assert_eq!(filters.len(), 1, "{filters:?}");
    assert!(filters[0].contains("pref 49000 "), "{filters:?}");
}

pub(crate) fn there_is_one_agent_in_a_namespace() {
    let switch = Switch::set_up();
    let first = switch.start("tc.policy = \"skip_hw\"");
    let config = first.config();
    let folder = sluice_tests::daemon::new_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sluiced.toml");
    // Everything of its own but the locks.
    let run_dir = format!("run_dir = \"{}/run\"\nstate_dir = \"{}/state\"\n", folder.display(), folder.display());
    let keys = config.lines().filter(|line| {
        !["run_dir", "state_dir", "metrics", "[[port", "number", "name"].iter().any(|key| line.starts_with(key))
    });
    let keys: Vec<_> = keys.collect();
    std::fs::write(&file, format!("{run_dir}metrics = \"none\"\n{}", keys.join("\n"))).unwrap();
    let start = || {
        let mut command = std::process::Command::new(sluice_tests::daemon::binary("sluiced"));
        command.arg("--config").arg(&file);
        let mut process = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut has_ended = false;
        eventually("it has ended, or taken on requests", || {
            has_ended = process.try_wait().unwrap().is_some();
            has_ended || folder.join("run/sluiced.ctl").exists()
        });
        let _ = process.kill();
        (has_ended, String::from_utf8(process.wait_with_output().unwrap().stderr).unwrap())
    };
    let (has_ended, said) = start();
    assert!(has_ended && said.contains(&format!("is in use by pid {}", first.pid())), "{said}");
    let (has_ended, said) = within("server", start);
    assert!(!has_ended, "in another namespace it is another device: {said}");
    let _ = std::fs::remove_dir_all(folder);
}
