//! The kit of `deploy/prometheus`: its alerts have tests and runbooks, and what it asks for is what a real Prometheus scrapes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sluice_tests::daemon::{CONFIG, Daemon, repository, run};
use sluice_tests::frames::udp;
use sluice_tests::world::eventually;

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

fn kit(path: &str) -> PathBuf {
    repository("deploy/prometheus").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(kit(path)).unwrap()
}

/// The values of a key of a YAML file, in order.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).map(str::trim).collect()
}

/// The metrics that a query asks for: ours, those of the process, and what rules record.
fn metrics(query: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = query.split(|letter: char| !is_part(letter));
    let is_metric =
        |word: &&str| word.contains(':') || ["sluice_", "process_"].iter().any(|start| word.starts_with(start));
    words.filter(is_metric).map(str::to_owned).collect()
}

/// The queries of the dashboard, with its variables filled in.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboards/sluice.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let queries = targets.chain(annotations).map(|target| target["expr"].as_str().unwrap());
    queries.map(|query| query.replace("$__rate_interval", "10s").replace("$instance", ".*")).collect()
}

/// A real Prometheus that scrapes an agent every second, by the rules and alerts of the kit.
struct Prometheus {
    process: Child,
    url: String,
}

impl Prometheus {
    fn scraping(daemon: &Daemon) -> Self {
        let config = daemon.config();
        let target = values_of_toml(&config, "metrics");
        let shipped = read("prometheus.yml");
        // What is shipped, in haste, and of the test's agent.
        let hasty = shipped
            .replace("scrape_interval: 30s", "scrape_interval: 1s\n  evaluation_interval: 1s")
            .replace("- rules/", &format!("- {}/rules/", kit("").display()))
            .replace("- alerts/", &format!("- {}/alerts/", kit("").display()))
            .replace("[::1]:9319", target);
        assert!(hasty.contains(target) && hasty.contains("scrape_interval: 1s"), "{hasty}");
        let file = daemon.folder().join("prometheus.yml");
        fs::write(&file, hasty).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", daemon.folder().join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(fs::File::create(daemon.folder().join("prometheus.log")).unwrap())
            .spawn()
            .expect("Debian's prometheus");
        Self { process, url: format!("http://{address}") }
    }

    /// Whether a query has an answer. It must be one that Prometheus understands.
    fn answers(&self, query: &str) -> bool {
        let ran = run(Command::new("promtool").args(["query", "instant", &self.url, query]));
        assert!(!ran.err.contains("parse error") && !ran.err.contains("bad_data"), "{query}: {}", ran.err);
        ran.code == Some(0) && !ran.out.trim().is_empty()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn values_of_toml<'a>(text: &'a str, key: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")).unwrap();
    line.trim_end_matches('"')
}

#[test]
fn every_alert_has_a_test_that_it_fires_and_one_that_it_is_silent_and_a_runbook() {
    let ran = run(Command::new("promtool").args(["test", "rules"]).arg(kit("tests/alerts.yml")));
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let (alerts, tests) = (read("alerts/sluice.yml"), read("tests/alerts.yml"));
    let names = values(&alerts, "alert");
    assert!(names.len() >= 8, "{names:?}");
    let tested = values(&tests, "name");
    for name in &names {
        for kind in ["fires", "is silent"] {
            assert!(tested.contains(&format!("{name} {kind}").as_str()), "no test that {name} {kind}");
        }
        let runbook = format!("docs/runbooks/{name}.md");
        assert!(values(&alerts, "runbook_url").contains(&runbook.as_str()), "{name} names no runbook");
        let text = fs::read_to_string(repository(&runbook)).unwrap_or_else(|error| panic!("{runbook}: {error}"));
        for part in ["## Impact", "## Diagnosis", "## What to do"] {
            assert!(text.contains(part), "{runbook} has no part {part}");
        }
    }
    let runbooks = fs::read_dir(repository("docs/runbooks")).unwrap().count();
    assert_eq!(runbooks, names.len(), "a runbook of no alert");
}

#[test]
fn the_mixin_has_alerts_rules_and_dashboard() {
    let shape = "local m = import 'mixin.libsonnet'; {alerts: std.length(m.prometheusAlerts.groups[0].rules), \
                 rules: std.length(m.prometheusRules.groups[0].rules), dashboards: std.objectFields(m.grafanaDashboards)}";
    let ran = run(Command::new("jsonnet").arg("-J").arg(kit("")).args(["-e", shape]));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape["alerts"], values(&read("alerts/sluice.yml"), "alert").len());
    assert_eq!(shape["rules"], values(&read("rules/sluice.yml"), "record").len());
    assert_eq!(shape["dashboards"][0], "sluice.json");
}

#[test]
fn a_real_prometheus_finds_every_series_of_dashboard_rules_and_alerts() {
    // Hardware with room for one of two flows, so that there is something to share out; a mirror, and a source.
    let mirror = "[[mirror]]\nname = \"tap\"\nkey = \"in_port(client)\"\nports = [\"uplink\"]\n";
    let daemon = Daemon::start(&format!(
        "rebalance_interval = \"100ms\"\n{CONFIG}{mirror}[soft]\nhardware_rules = 1\n[source.conntrack]\n"
    ));
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=53)", "server"]);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=80)", "server"]);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x86dd)", "lb_output(1)"]);
    assert_eq!(daemon.sluice(&["audit"]).code, Some(0));
    let prometheus = Prometheus::scraping(&daemon);
    let inject = |port: u16| {
        let hex: String = udp(port).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(daemon.appctl(&["sluice/inject", "client", &hex]).code, Some(0));
    };

    let dashboard = dashboard_queries();
    let files = [read("rules/sluice.yml"), read("alerts/sluice.yml")];
    let of_rules = files.iter().flat_map(|text| values(text, "expr")).map(str::to_owned);
    let mut wanted: BTreeSet<String> =
        dashboard.iter().cloned().chain(of_rules).flat_map(|query| metrics(&query)).collect();
    assert!(wanted.len() > 40, "{wanted:?}");
    // What is there only at times, such as a share while packets come, counts once it has been there.
    let mut unanswered: Vec<_> = dashboard.into_iter().filter(|query| !query.contains("> 0")).collect();
    eventually("every series and every query of the dashboard has been answered", || {
        (53..73).for_each(|port| inject(if port % 3 == 0 { 80 } else { 53 }));
        wanted.retain(|metric| !prometheus.answers(metric));
        unanswered.retain(|query| !prometheus.answers(query));
        wanted.is_empty() && unanswered.is_empty()
    });
    let up = run(Command::new("promtool").args(["query", "instant", &prometheus.url, "up{job=\"sluice\"}"]));
    assert!(up.out.contains("=> 1 @"), "{}", up.out);
    let log = fs::read_to_string(daemon.folder().join("prometheus.log")).unwrap();
    assert!(!log.contains("level=warn"), "{log}");
}

#[test]
fn openmetrics_comes_to_who_asks_for_it_and_says_the_same() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800)", "server"]);
    let get = |accept: &str| {
        let config = daemon.config();
        let mut stream = std::net::TcpStream::connect(values_of_toml(&config, "metrics")).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    let (head, openmetrics) = get(OPENMETRICS);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    let (head, plain) = get("*/*");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let series = |text: &str| {
        // Behind this there is an exemplar.
        let samples = text.lines().map(|line| line.split(" # ").next().unwrap());
        let lines = samples.filter(|line| !line.starts_with('#'));
        let name = |line: &str| line.rsplit_once(' ').unwrap().0.split(['{', ' ']).next().unwrap().to_owned();
        lines.map(name).collect::<Vec<_>>()
    };
    assert_eq!(series(&openmetrics), series(&plain));
    assert!(openmetrics.contains("\nsluice_flows{state=\"offloaded\"} 1.0\n"), "{openmetrics}");

    // The reference of the format reads it, to the end. The exemplar of the one installation is in the bucket of its duration.
    let script = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                  samples = [sample for family in parse(sys.stdin.read()) for sample in family.samples]\n\
                  print(len(samples))\n\
                  for sample in samples:\n    \
                  if sample.exemplar: print(sample.name, sample.exemplar.labels['ufid'], \
                  sample.value, sample.exemplar.value <= float(sample.labels['le']))";
    let mut python = Command::new(repository("target/venv/bin/python"))
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("scripts/setup test has been run");
    python.stdin.take().unwrap().write_all(openmetrics.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ufid = daemon.sluice(&["dump-flows", "-m"]).out.split_once("ufid:").unwrap().1[..36].to_owned();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(),
        [series(&plain).len().to_string(), format!("sluice_install_duration_seconds_bucket {ufid} 1.0 True")]
    );
}

#[test]
fn what_goes_wrong_is_in_the_metrics() {
    let daemon = Daemon::start(CONFIG);
    assert_eq!(daemon.metric("sluice_ready"), Some(1.0));
    assert_eq!(daemon.metric("sluice_audit_differences{kind=\"missing\"}"), None, "there was no audit");
    assert_eq!(daemon.sluice(&["audit"]).code, Some(0));
    assert_eq!(daemon.metric("sluice_audit_differences{kind=\"missing\"}"), Some(0.0));

    let age = daemon.metric("sluice_revalidator_last_poll_age_seconds").unwrap();
    assert!(age < 10.0, "{age}");
    daemon.appctl(&["revalidator/pause"]);
    assert_eq!(daemon.metric("sluice_ready"), Some(0.0));
    daemon.appctl(&["revalidator/resume"]);

    let since = |daemon: &Daemon| daemon.metric("sluice_config_last_reload_success_timestamp_seconds").unwrap();
    let start = since(&daemon);
    let config = daemon.config();
    assert_eq!(daemon.metric("sluice_config_last_reload_successful"), Some(1.0));
    let errors = daemon.metric("sluice_log_messages_total{level=\"error\"}").unwrap();
    fs::write(daemon.folder().join("sluiced.toml"), config.replace("poll_interval", "pol_interval")).unwrap();
    assert_eq!(daemon.sluice(&["reload"]).code, Some(2));
    assert_eq!(daemon.metric("sluice_config_last_reload_successful"), Some(0.0));
    assert_eq!(since(&daemon), start);
    assert_eq!(daemon.metric("sluice_log_messages_total{level=\"error\"}"), Some(errors + 1.0));
    fs::write(daemon.folder().join("sluiced.toml"), config).unwrap();
    assert_eq!(daemon.sluice(&["reload"]).code, Some(0));
    assert_eq!(daemon.metric("sluice_config_last_reload_successful"), Some(1.0));
    assert!(since(&daemon) > start);
    assert!(daemon.metric("process_resident_memory_bytes").unwrap() > 1e6);
    assert!(daemon.metric("process_open_fds").unwrap() > 5.0);
}
