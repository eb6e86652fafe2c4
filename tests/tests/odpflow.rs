//! What the agent dumps is understood by `ODPFlow` of the PyPI package `ovs`, which nobody here wrote.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;
use std::process::Command;

use sluice_flow::PortNumber;
use sluice_flow::port::PortNames;
use sluice_flow::text::{parse_line, sentence_of};
use sluice_tests::daemon::{Daemon, repository, run};

/// The demo's agent, which has the ports of the demo's rules.
const CONFIG: &str = include_str!("../demo/sluiced.toml");

/// Any word is a port.
struct AnyPort;

impl PortNames for AnyPort {
    fn number(&self, _: &str) -> Option<PortNumber> {
        Some(PortNumber(1))
    }

    fn name(&self, _: PortNumber) -> Option<&str> {
        None
    }
}

/// Says of each line of a dump what ODPFlow makes of it.
const READER: &str = r#"
import json, sys
from ovs.flow.odp import ODPFlow
for line in open(sys.argv[1]):
    flow = ODPFlow(line.strip())
    print(json.dumps({"ufid": getattr(flow, "ufid", {}).get("ufid", ""), "packets": flow.info["packets"], "match": len(flow.match),
                      "actions": [sorted(a)[0] for a in flow.actions], "recirc": str(flow.match.get("recirc_id"))}))
"#;

#[test]
fn every_line_of_a_dump_is_understood() {
    let daemon = Daemon::start(CONFIG);
    let rules = repository("tests/capture/rules.txt");
    daemon.appctl(&["dpctl/add-flows", rules.to_str().unwrap()]);
    daemon.appctl(&[
        "dpctl/add-flow",
        "--priority=3",
        "--permanent",
        "in_port(1),eth_type(0x0800),ipv4(tos=0x4/0xfc)",
        "trunc(100),2,meter(1)",
    ]);
    // What is refused for reasons that have an equals sign in them.
    let untimed = daemon.appctl(&["dpctl/add-flow", "in_port(1),eth_type(0x0800)", "ct(commit,timeout=short),2"]).err;
    let reason = untimed.lines().next().unwrap().strip_prefix("sluiced: updating flow table: refused, ").unwrap();
    let dump = daemon.appctl(&["dpctl/dump-flows", "-m", "type=non-offloaded"]).out;
    let line = dump.lines().find(|line| line.contains("timeout%3dshort")).unwrap_or_else(|| panic!("{dump}"));
    let extra = parse_line(line, &AnyPort).unwrap().extra.other.unwrap();
    assert_eq!(sentence_of("refused", &extra).as_deref(), Some(reason), "{extra}");
    let python = repository("target/venv/bin/python");
    for options in [&["-m"][..], &["-m", "--no-names"], &["--names"], &[]] {
        let dump = daemon.appctl(&[&["dpctl/dump-flows"], options].concat()).out;
        // ODPFlow 3.5.1 stumbles over every pop_mpls(), that of OVS included: 'KVDecoders' object is not callable.
        let (beyond_it, dump): (Vec<_>, Vec<_>) = dump.lines().partition(|line| line.contains("pop_mpls("));
        assert_eq!(beyond_it.len(), 1);
        let dump = dump.join("\n");
        assert!(dump.lines().count() > 60, "most of the rules are taken: {}", dump.lines().count());
        let file = daemon.folder().join("dump");
        fs::write(&file, &dump).unwrap();
        let read = run(Command::new(&python).args(["-c", READER]).arg(&file));
        assert_eq!(read.code, Some(0), "{options:?}: {}", read.err);
        let understood: Vec<serde_json::Value> =
            read.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(understood.len(), dump.lines().count());
        for (line, flow) in dump.lines().zip(understood) {
            let ufid = flow["ufid"].as_str().unwrap();
            assert!(!options.contains(&"-m") || line.starts_with(&format!("ufid:{ufid}")), "{line}: {flow}");
            assert!(line.contains(&format!("packets:{},", flow["packets"])), "{line}: {flow}");
            assert!(flow["match"].as_u64().unwrap() >= 2, "{line}: {flow}");
        }
    }
}
