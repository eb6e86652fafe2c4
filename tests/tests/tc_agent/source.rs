//! Flows of an unmodified ovs-vswitchd on the kernel's datapath, forwarded by tc in front of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_control::Client;
use sluice_tests::daemon::{Daemon, binary, run as process};
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::iproute::batch;
use sluice_tests::lab::switch::{Switch, eventually, run, sluice};

use crate::stream::{self, Stream};

/// How long a rule may outlive its flow here. It is 1.5 s where the machine does nothing else; what reads both is late on a busy one, too.
const BOUND: Duration = Duration::from_secs(5);

pub(crate) const KEYS: &str = "tc.policy = \"skip_hw\"";
pub(crate) const TABLE: &str = "[source.ovs]\n";

/// The client's port, where each datagram shall be of one flow.
pub(crate) const SOURCE: u16 = 6000;

struct Beside {
    switch: Switch,
    vswitchd: OffloadingVswitchd,
}

impl Beside {
    /// A switch whose packets ovs-vswitchd forwards.
    fn new() -> Self {
        Self::with("hw-offload=false")
    }

    fn with(settings: &str) -> Self {
        run("modprobe openvswitch");
        let switch = Switch::set_up();
        let vswitchd = start_ovs(&["client", "server"], settings, &[]);
        let beside = Self { switch, vswitchd };
        beside.forward();
        beside
    }

    fn forward(&self) {
        for (from, to) in [("client", "server"), ("server", "client")] {
            self.vswitchd.set_rule(&format!("in_port={from},actions=output:{to}"));
        }
    }

    fn agent(&self) -> Daemon {
        start(&self.switch, TABLE)
    }

    /// Flows of a port that the kernel's datapath has.
    fn flows_of(&self, port: &str) -> usize {
        let number = format!("in_port({})", self.vswitchd.port(port));
        let dump = self.vswitchd.appctl(&["dpctl/dump-flows"]).unwrap();
        dump.lines().filter(|line| line.contains(&number)).count()
    }

    /// Adds flows that no OpenFlow rule has made, which needs a paused revalidator.
    fn add_many(&self, count: usize) {
        let (client, server) = (self.vswitchd.port("client"), self.vswitchd.port("server"));
        let lines = (0..count).map(|number| {
            let address = format!("10.{}.{}.{}", number >> 16 & 0xff, number >> 8 & 0xff, number & 0xff);
            format!(
                "in_port({client}),eth(),eth_type(0x0800),ipv4(dst={address},proto=17,frag=no),udp(dst=9) {server}\n"
            )
        });
        let file = self.vswitchd.path("flows");
        std::fs::write(&file, lines.collect::<String>()).unwrap();
        self.vswitchd.appctl(&["dpctl/add-flows", &file]).unwrap();
    }
}

/// Starts an ovs-vswitchd in the agent's namespace: Debian's, or the one that an option names.
pub(crate) fn start_ovs(ports: &[&str], settings: &str, environment: &[(&str, &str)]) -> OffloadingVswitchd {
    OffloadingVswitchd::start_of(programs().as_deref(), (Some("nic"), ports), settings, environment)
}

/// The same with two ports and the library that adds what the agent of the switch counts.
pub(crate) fn start_with_feedback(switch: &Switch, settings: &str) -> OffloadingVswitchd {
    let socket = switch.folder().join("run/ovs-feedback.sock").display().to_string();
    let library = binary("libsluice_ovs_feedback.so");
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("SLUICE_OVS_FEEDBACK", &socket)];
    start_ovs(&["client", "server"], settings, &environment)
}

/// The folder of its programs, if an option names one, as `tests/ovs-native/build` does.
pub(crate) fn programs() -> Option<PathBuf> {
    std::env::args().find_map(|argument| argument.strip_prefix("--ovs=").map(PathBuf::from))
}

/// Starts an agent, and waits until it has the ports of the datapath: when a device gets its first filters, Linux 6.1 loses what is being sent
/// out of it (`qdisc_graft` in `net/sched/sch_api.c`).
pub(crate) fn start(switch: &Switch, tables: &str) -> Daemon {
    once_read(switch.start_on::<&str>(&[], KEYS, tables))
}

fn once_read(daemon: Daemon) -> Daemon {
    eventually("the datapath is read", || daemon.metric("sluice_source_up{source=\"ovs\"}") == Some(1.0));
    daemon
}

/// Flows of the source, as the agent has them.
pub(crate) fn ours(daemon: &Daemon) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&sluice(daemon, &["dump-flows", "--json"])).unwrap();
    listed.as_array().unwrap().iter().filter(|flow| flow["source"] == "ovs").cloned().collect()
}

/// The one flow that carries the stream.
fn carrier(daemon: &Daemon) -> Option<Value> {
    ours(daemon).into_iter().find(|flow| {
        flow["key"].as_str().is_some_and(|key| key.contains("in_port(client)") && key.contains("eth_type(0x0800)"))
    })
}

pub(crate) fn flows_of_ovs_are_forwarded_before_it_and_go_with_them() {
    let beside = Beside::new();
    let mut daemon = beside.agent();
    assert_eq!(stream::send(50), 50);
    eventually("the flow has a rule", || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial"));
    let dump = beside.vswitchd.appctl(&["dpctl/dump-flows", "-m"]).unwrap();
    let before = carrier(&daemon).unwrap();
    assert!(dump.contains(before["ufid"].as_str().unwrap()), "it has the name that OVS gave it: {dump}");
    assert_eq!(stream::send(200), 200);
    eventually("the rule has forwarded all of them", || {
        carrier(&daemon).unwrap()["packets"].as_u64() == before["packets"].as_u64().map(|packets| packets + 200)
    });
    let line = sluice(&daemon, &["dump-flows", "-m"]);
    assert!(line.contains("dp-extra-info:permanent,source[ovs]"), "{line}");
    let show = daemon.appctl(&["dpctl/show"]).out;
    assert!(show.contains("source ovs: ovs-system, "), "{show}");
    let refused = daemon.sluice(&["mod-flow", before["key"].as_str().unwrap(), "drop"]);
    assert!(refused.err.contains("belongs to Open vSwitch"), "{}{}", refused.out, refused.err);

    // Whatever a command takes away is wanted as long as OVS has it.
    sluice(&daemon, &["flush"]);
    eventually("the rule is back", || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial"));

    // What OVS does not age, the agent does not age; what OVS deletes is gone.
    beside.vswitchd.set_rule("in_port=client,actions=drop");
    let begun = Instant::now();
    eventually("the flow drops", || carrier(&daemon).is_none_or(|flow| flow["actions"] == "drop"));
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    stream::send_in_vain(20);
    assert_eq!(daemon.appctl(&["exit"]).code, Some(0));
    assert!(daemon.wait().success());
    assert!(beside.switch.filters("client").is_empty(), "an agent that ends leaves no rule of OVS's flows");
    beside.forward();
    eventually("OVS forwards by itself", || stream::send(10) == 10);
}

pub(crate) fn ports_of_ovs_outlive_their_datapath_for_a_while_only() {
    let mut beside = Beside::new();
    let daemon = beside.agent();
    assert_eq!(stream::send(50), 50);
    let ports = || {
        let shown: Value = serde_json::from_str(&sluice(&daemon, &["show", "--json"])).unwrap();
        shown["ports"].as_array().unwrap().len()
    };
    let of_datapath = ports();
    assert!(of_datapath >= 2, "those of the client and the server");

    // As `ovs-ctl force-reload-kmod` does, of which the kernel tells nothing of the ports.
    beside.vswitchd.exit();
    run("ovs-dpctl del-dp ovs-system");
    eventually("the rules are gone", || beside.switch.filters("client").is_empty());
    assert_eq!(ports(), of_datapath, "Open vSwitch may come back");
    eventually("the ports are gone", || ports() == 0);
    beside.vswitchd.start_again();
    eventually("the ports are back with the datapath", || ports() == of_datapath);
}

pub(crate) fn what_ovs_polices_is_policed_before_rules() {
    let beside = Beside::with("hw-offload=false max-idle=3600000");
    let daemon = beside.agent();
    let has_rule = || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial");
    assert_eq!(stream::send(50), 50);
    eventually("the flow has a rule", has_rule);

    // OVS takes the queueing discipline away, with all rules. If the agent is asking for something at that moment, the kernel says that it is
    // busy, and OVS tries again with the next change of its configuration.
    let is_policed = || run("tc filter show dev client ingress").contains("police");
    let mut attempts = 0;
    eventually("OVS polices", || {
        attempts += 1;
        let columns = format!("ingress_policing_rate=1 ingress_policing_burst=8 external_ids:attempt={attempts}");
        beside.vswitchd.set_interface("client", &columns);
        is_policed()
    });
    let has_filter = || beside.switch.filters("client").iter().any(|filter| filter.contains("flower"));
    eventually("the rule is back", || has_rule() && has_filter());
    assert!(is_policed(), "the agent has left it where it is");
    let come = stream::send_too_many(200);
    assert!(come < 100, "{come} of 200 datagrams have come in spite of 1 kbit/s");

    eventually("OVS polices no more", || {
        attempts += 1;
        let columns = format!("ingress_policing_rate=0 ingress_policing_burst=0 external_ids:attempt={attempts}");
        beside.vswitchd.set_interface("client", &columns);
        !is_policed()
    });
    assert_eq!(stream::send(50), 50);
    eventually("the flow has a rule", || has_rule() && has_filter());
}

pub(crate) fn ovs_counts_and_keeps_what_is_forwarded_before_it() {
    const MAX_IDLE: Duration = Duration::from_secs(4);
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let settings = format!("hw-offload=false min-revalidate-pps=0 max-idle={}", MAX_IDLE.as_millis());
    let vswitchd = start_with_feedback(&switch, &settings);
    vswitchd.set_rule("in_port=client,udp,actions=output:server");
    let counted = || {
        let rules = vswitchd.rules();
        let rule = rules.lines().find(|line| line.contains("udp")).unwrap();
        let digits = rule.split("n_packets=").nth(1).unwrap().split(',').next().unwrap();
        digits.parse::<u64>().unwrap()
    };
    let daemon = switch.start_on::<&str>(&[], KEYS, TABLE);
    let mut sent = stream::sent_from(SOURCE, 20);
    let is_there = || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial");
    eventually("the flow has a rule, and ovs-vswitchd hears of it", || {
        sent += stream::sent_from(SOURCE, 1);
        is_there() && daemon.log().contains("adds what is counted here")
    });
    let first = carrier(&daemon).unwrap();
    let begun = Instant::now();
    let (mut last, before, mut idle) = (0, sent, Instant::now());
    while begun.elapsed() < 2 * MAX_IDLE {
        sent += stream::sent_from(SOURCE, 20);
        idle = Instant::now();
        let flow = carrier(&daemon).expect("the flow stays");
        assert_eq!(flow["ufid"], first["ufid"]);
        let packets = flow["packets"].as_u64().unwrap();
        assert!(packets >= last, "the flow was made anew: {last} packets, then {packets}");
        last = packets;
    }
    assert!(sent > before + 100);
    while counted() != sent && idle.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(counted(), sent, "OpenFlow has counted every packet");
    assert!(!daemon.appctl(&["dpctl/show"]).out.contains("does not hear"));

    // It goes as early as ever, and its packets are not forgotten.
    eventually("the flow is gone", || carrier(&daemon).is_none());
    assert!((MAX_IDLE / 2..MAX_IDLE * 5).contains(&idle.elapsed()), "{:?}", idle.elapsed());
    assert_eq!(counted(), sent);
}

pub(crate) fn connections_go_on_in_later_chains_and_what_misses_there_begins_again_in_ovs() {
    run("modprobe --all openvswitch act_ct");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&["client", "server"], "hw-offload=false", &[]);
    let beside = Beside { switch, vswitchd };
    for rule in [
        // Whatever comes with a connection is dropped.
        "table=0,udp,ct_state=-trk,actions=ct(zone=7,table=1)",
        "table=1,udp,in_port=client,ct_state=+trk+new,actions=ct(commit,zone=7),output:server",
        "table=1,udp,in_port=client,ct_state=+trk+est,actions=output:server",
        "table=1,udp,in_port=server,ct_state=+trk+est,actions=output:client",
    ] {
        beside.vswitchd.set_rule(rule);
    }
    let daemon = beside.agent();
    let in_place = |port: &str, state: &str| {
        let words = [&format!("in_port({port})"), state];
        let is_it = |key: &str| !key.starts_with("recirc_id(0)") && words.iter().all(|word| key.contains(*word));
        let found = ours(&daemon).into_iter().find(|flow| is_it(flow["key"].as_str().unwrap()));
        found.filter(|flow| flow["state"] == "partial")
    };
    assert_eq!(stream::send_from(SOURCE, 20), 20);
    eventually("packets of a new connection have a rule", || in_place("client", "+new").is_some());
    assert_eq!(stream::send_from(SOURCE, 20), 20);

    // With the answer the connection is established. No rule takes its next packet behind the first chain.
    assert_eq!(stream::talk(SOURCE, 5), 5);
    let established = || ["client", "server"].map(|port| in_place(port, "+est"));
    eventually("packets of the connection have rules", || established().iter().all(Option::is_some));
    let packets = || established().map(|flow| flow.unwrap()["packets"].as_u64().unwrap());
    let before = packets();
    assert_eq!(stream::talk(SOURCE, 50), 50);
    eventually("the rules have forwarded all of them", || packets() == before.map(|packets| packets + 50));
    eventually("misses are counted", || daemon.metric("sluice_chain_misses_total") >= Some(1.0));
    let show = sluice(&daemon, &["show"]);
    assert!(show.contains("have missed in later chains"), "{show}");
}

/// Each packet tells by its source port how often its flow had been changed.
pub(crate) fn a_flow_that_changes_under_traffic_is_stale_for_less_than_said(changes: u16) {
    const FIRST: u16 = 10_000;
    let beside = Beside::new();
    let daemon = beside.agent();
    beside.vswitchd.appctl(&["revalidator/pause"]).unwrap();
    let [client, server] = ["client", "server"].map(|name| beside.vswitchd.port(name));
    let key = format!("in_port({client}),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={})", stream::PORT);
    let actions = |change: u16| format!("set(udp(src={})),{server}", FIRST + change);
    let mut vswitchd = Client::connect(Path::new(&beside.vswitchd.path("vswitchd.ctl"))).unwrap();
    vswitchd.call("dpctl/add-flow", &[&key, &actions(0)], &mut |_| ()).unwrap();
    let flow = || ours(&daemon).into_iter().find(|flow| flow["key"].as_str().unwrap().contains("udp(dst="));
    eventually("the flow has a rule", || flow().is_some_and(|flow| flow["state"] == "partial"));
    let stream = Stream::start();
    let changed: Vec<_> = (1..=changes)
        .map(|change| {
            vswitchd.call("dpctl/mod-flow", &[&key, &actions(change)], &mut |_| ()).unwrap();
            let at = Instant::now();
            std::thread::sleep(Duration::from_millis(10));
            at
        })
        .collect();
    // The last one has come through.
    eventually("the rule is as its flow", || {
        flow().is_some_and(|flow| flow["actions"].as_str().unwrap().contains(&format!("src={}", FIRST + changes)))
    });
    let arrived = stream.end_with_all();
    assert!(arrived.iter().any(|(port, _)| *port == FIRST + changes));
    let stale = arrived.iter().filter_map(|(port, at)| {
        let next = changed.get(usize::from(port - FIRST))?;
        at.checked_duration_since(*next)
    });
    let longest = stale.max().unwrap_or_default();
    println!("{changes} changes, {} packets: stale for {longest:?} at most", arrived.len());
    assert!(longest < BOUND, "{longest:?}");
}

pub(crate) fn lost_messages_and_silent_flushes_end_in_the_flows_that_there_are() {
    const MANY: usize = 2_000;
    const LIMIT: usize = 500;
    let beside = Beside::new();
    let daemon = beside.switch.start_on::<&str>(
        &[],
        &format!("{KEYS}\nflow_limit = {LIMIT}"),
        &format!("{TABLE}queue_bytes = 65536\n"),
    );
    let metric = |name: &str| daemon.metric(&format!("sluice_source_{name}{{source=\"ovs\"}}")).unwrap_or(-1.0);
    eventually("the datapath is read", || metric("up") == 1.0);
    beside.vswitchd.appctl(&["revalidator/pause"]).unwrap();
    let signal = |signal| kill_process(Pid::from_raw(daemon.pid().cast_signed()).unwrap(), signal).unwrap();
    // Nobody reads what the kernel tells.
    signal(Signal::STOP);
    beside.add_many(MANY);
    signal(Signal::CONT);
    eventually("all are known", || metric("flows") >= MANY as f64);
    eventually("the loss is counted", || metric("losses_total") >= 1.0);
    eventually("as many as there may be have rules", || {
        daemon.metric("sluice_flows_placed{placement=\"software\"}") == Some(LIMIT as f64)
    });
    eventually("the others are left out", || metric("flows_left_out") == metric("flows") - LIMIT as f64);

    // The kernel tells nobody that all flows are gone.
    beside.vswitchd.appctl(&["dpctl/del-flows"]).unwrap();
    let begun = Instant::now();
    eventually("no flow is wanted any more", || metric("flows") < 10.0);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    eventually("the rules are gone", || beside.switch.filters("client").len() < 10);
}

pub(crate) fn a_kill_of_either_leaves_no_rule_without_its_flow() {
    let beside = Beside::new();
    let mut daemon = beside.agent();
    assert_eq!(stream::send(20), 20);
    eventually("the flow has a rule", || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial"));
    let stream = Stream::start();
    daemon.signal("KILL");
    daemon.wait();
    assert!(!beside.switch.filters("client").is_empty(), "the kernel has the rules of a process that is gone");
    let daemon = beside.agent();
    eventually("the flow has a rule again", || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial"));
    stream.end_without_loss();

    let mut daemon = daemon;
    daemon.signal("KILL");
    daemon.wait();
    beside.vswitchd.set_rule("in_port=client,actions=drop");
    eventually("OVS has changed its flow", || {
        beside.flows_of("client") == 0 || {
            beside.vswitchd.appctl(&["dpctl/dump-flows"]).unwrap().contains("actions:drop")
        }
    });
    let daemon = beside.agent();
    assert!(carrier(&daemon).is_none_or(|flow| flow["actions"] == "drop"));
    stream::send_in_vain(20);
}

/// As systemd has it done once it has given the agent up.
pub(crate) fn a_sweep_takes_out_what_ovs_wanted_of_a_killed_agent_and_leaves_what_was_typed() {
    let beside = Beside::new();
    batch(&["link add other up type dummy".to_owned()]);
    let start = || {
        // What an end takes out, a sweep does not.
        let keys = format!("{KEYS}\non_exit = \"flush\"");
        let tables = "[[port]]\nnumber = 1000\nname = \"other\"\n[source.ovs]\n";
        once_read(beside.switch.start_on::<&str>(&[], &keys, tables))
    };
    let mut daemon = start();
    let sweep = |daemon: &Daemon| {
        let config = daemon.folder().join("sluiced.toml");
        process(Command::new(binary("sluiced")).args(["--sweep", "--config"]).arg(config))
    };
    assert_eq!(stream::send(20), 20);
    eventually("the flow has a rule", || carrier(&daemon).is_some_and(|flow| flow["state"] == "partial"));
    sluice(&daemon, &["add-flow", "--permanent", "in_port(other),eth_type(0x0806)", "drop"]);
    let refused = sweep(&daemon);
    assert_eq!(refused.code, Some(2), "the agent lives: {}", refused.err);
    assert!(!beside.switch.filters("client").is_empty());

    daemon.signal("KILL");
    daemon.wait();
    let swept = sweep(&daemon);
    assert_eq!(swept.code, Some(0), "{}", swept.err);
    assert!(beside.switch.filters("client").is_empty(), "{}", run("tc filter show dev client ingress"));
    assert_eq!(beside.switch.filters("other").len(), 1);
    let flows = sluice(&start(), &["dump-flows", "-m"]);
    let typed = flows.lines().find(|line| line.contains("in_port(other)")).unwrap();
    assert!(typed.contains("offloaded:partial"), "{typed}");
}
