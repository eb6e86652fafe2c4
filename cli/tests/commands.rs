//! The command line against a fake agent: what goes over the socket, what is printed, how it ends.

// Clippy takes only what is marked so for part of a test.
#[cfg(test)]
mod support;

use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use sluice_control::answers::{BulkAnswer, LineError};

use self::support::{FakeAgent, Run, finish, sluice};

fn run(stdout: &str, stderr: &str, code: i32) -> Run {
    Run { stdout: stdout.to_owned(), stderr: stderr.to_owned(), code: Some(code) }
}

#[test]
fn help_and_version_are_no_failure_and_wrong_usage_is_1() {
    let version = finish(sluice(&["--version"]).spawn().unwrap());
    assert_eq!(version, run(concat!("sluice ", env!("CARGO_PKG_VERSION"), "\n"), "", 0));
    let help = finish(sluice(&["--help"]).spawn().unwrap());
    assert!(help.stdout.contains("\nLook:\n  show "), "{}", help.stdout);
    assert_eq!((help.stderr.as_str(), help.code), ("", Some(0)));
    for wrong in [&[][..], &["nope"], &["add-flow", "in_port(1)"], &["add-flow", "in_port(1)", "2", "--priority=x"]] {
        let wrong = finish(sluice(wrong).spawn().unwrap());
        assert_eq!((wrong.stdout.as_str(), wrong.code), ("", Some(1)));
        assert!(wrong.stderr.contains("sluice [OPTIONS]") || wrong.stderr.contains("--help"), "{}", wrong.stderr);
    }
}

#[test]
fn without_an_agent_it_says_where_it_looked() {
    let agent = FakeAgent::new();
    let socket = agent.folder().join("sluiced.ctl");
    let none = agent.run(&["show"]);
    let expected =
        format!("sluice: no agent at {} (No such file or directory); is sluiced running?\n", socket.display());
    assert_eq!(none, run("", &expected, 1));
    let elsewhere = agent.run(&["--run-dir", "/nowhere", "flush"]);
    let expected = "sluice: no agent at /nowhere/sluiced.ctl (No such file or directory); is sluiced running?\n";
    assert_eq!(elsewhere, run("", expected, 1));
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let dead = agent.run(&["show"]);
    let expected = format!("sluice: no agent at {} (Connection refused); is sluiced running?\n", socket.display());
    assert_eq!(dead, run("", &expected, 1));
}

#[test]
fn wait_returns_once_the_agent_is_ready_and_says_after_its_time_why_it_is_not() {
    let agent = FakeAgent::new();
    let socket = agent.folder().join("sluiced.ctl");
    let none = agent.run(&["wait", "--timeout", "100ms"]);
    let expected =
        format!("sluice: no agent at {} (No such file or directory); is sluiced running?\n", socket.display());
    assert_eq!(none, run("", &expected, 1));

    let questions = Arc::new(AtomicU32::new(0));
    let asked = questions.clone();
    let agent = agent.answers("sluice/ready", move |_, out| {
        let is_third = asked.fetch_add(1, Ordering::Relaxed) >= 2;
        let answer = if is_third { "ready\n" } else { "the revalidator is paused\n" };
        out.write_str(answer).map_err(|error| error.to_string())
    });
    let waiting = agent.spawn(&["wait"]);
    let agent = agent.start();
    assert_eq!(finish(waiting), run("", "", 0));
    assert_eq!(questions.load(Ordering::Relaxed), 3);

    questions.store(0, Ordering::Relaxed);
    let late = agent.run(&["wait", "--timeout", "1ms"]);
    assert_eq!(late, run("", "sluice: not ready after 1ms: the revalidator is paused\n", 2));
}

#[test]
fn flow_text_goes_over_and_errors_come_back_word_for_word() {
    let refusal = "sluiced: parsing flow key (Invalid argument)\nin_prot(1)\n^\nat byte 0: expected a key\n";
    let agent = FakeAgent::new()
        .answers("dpctl/add-flow", move |_, _| Err(refusal.to_owned()))
        .says("dpctl/mod-flow", "")
        .says("dpctl/del-flow", "packets:1, bytes:60, used:0.1s\n")
        .start();
    let refused = agent.run(&["add-flow", "in_prot(1)", "2, drop", "--priority", "3", "--no-wait"]);
    assert_eq!(refused, run("", refusal, 2));
    assert_eq!(agent.run(&["mod-flow", "--may-create", "in_port(1) é", "2"]), run("", "", 0));
    assert_eq!(agent.run(&["del-flow", "-s", "in_port(1)"]), run("packets:1, bytes:60, used:0.1s\n", "", 0));
    assert_eq!(
        agent.questions(),
        [
            &["dpctl/add-flow", "--priority=3", "--no-wait", "in_prot(1)", "2, drop"][..],
            &["dpctl/mod-flow", "--may-create", "in_port(1) é", "2"],
            &["dpctl/del-flow", "-s", "in_port(1)"],
        ]
    );
}

#[test]
fn ports_meters_and_the_rest_reach_their_commands() {
    let agent = FakeAgent::new();
    let names = [
        "dpctl/get-flow",
        "sluice/add-connection",
        "sluice/add-ct-timeout",
        "sluice/add-meter",
        "sluice/add-port",
        "sluice/del-ct-timeout",
        "sluice/del-meter",
        "sluice/del-port",
        "sluice/flush",
        "sluice/reload",
        "sluice/show-ct-timeouts",
        "sluice/show-meters",
        "sluice/trace",
    ];
    let agent = names.iter().fold(agent, |agent, name| agent.says(name, "done\n")).start();
    for (line, question) in [
        (&["get-flow", "-m", "ufid:1"][..], &["dpctl/get-flow", "-m", "ufid:1"][..]),
        (&["add-connection", "udp,orig=(src=..)"], &["sluice/add-connection", "udp,orig=(src=..)"]),
        (&["add-ct-timeout", "a", "tcp_unack=9"], &["sluice/add-ct-timeout", "a", "tcp_unack=9"]),
        (&["del-ct-timeout", "a"], &["sluice/del-ct-timeout", "a"]),
        (&["show-ct-timeouts"], &["sluice/show-ct-timeouts"]),
        (&["add-meter", "3", "--kbps", "8000"], &["sluice/add-meter", "3", "kbps", "8000"]),
        (&["add-port", "3", "vf0"], &["sluice/add-port", "3", "vf0", "physical"]),
        (&["del-meter", "3"], &["sluice/del-meter", "3"]),
        (&["del-port", "vf0"], &["sluice/del-port", "vf0"]),
        (&["flush"], &["sluice/flush"]),
        (&["del-flows"], &["sluice/flush"]),
        (&["reload"], &["sluice/reload"]),
        (&["show-meters"], &["sluice/show-meters"]),
        (&["show-meters", "--json"], &["sluice/show-meters", "--json"]),
        (&["trace", "0123abcd", "--in-port=vf0"], &["sluice/trace", "vf0", "0123abcd"]),
    ] {
        assert_eq!(agent.run(line), run("done\n", "", 0), "{line:?}");
        assert_eq!(agent.questions(), [question]);
    }
}

#[test]
fn an_explanation_is_printed_and_a_refusal_exits_2() {
    let agent = FakeAgent::new()
        .answers("sluice/explain", |args, out| {
            let taken = !args.iter().any(|word| word == "no");
            let state = if args.iter().any(|word| word == "ufid:2") { "\"refused\"" } else { "\"offloaded\"" };
            let text = match args[0].as_str() {
                "--json" => format!("{{\"taken\":{taken},\"flow\":{{\"state\":{state}}}}}\n"),
                _ => "a text\n".to_owned(),
            };
            out.write_str(&text).map_err(|error| error.to_string())
        })
        .start();
    assert_eq!(agent.run(&["explain", "in_port(1)", "2", "--priority=4"]), run("a text\n", "", 0));
    assert_eq!(
        agent.questions(),
        [
            &["sluice/explain", "--json", "--priority=4", "in_port(1)", "2"][..],
            &["sluice/explain", "--priority=4", "in_port(1)", "2"]
        ]
    );
    assert_eq!(agent.run(&["explain", "in_port(1)", "no"]), run("a text\n", "", 2));
    assert_eq!(agent.run(&["explain", "ufid:2"]), run("a text\n", "", 2));
    agent.questions();
    let object = "{\"taken\":true,\"flow\":{\"state\":\"refused\"}}\n";
    assert_eq!(agent.run(&["explain", "--json", "ufid:2"]), run(object, "", 2));
    assert_eq!(agent.questions().len(), 1, "the object has the verdict");
}

#[test]
fn an_end_that_leaves_rules_in_the_device_is_no_success() {
    let left = "3 rules are left in the device (3 at port p0): kernel: not now (errno 1)";
    let agent = FakeAgent::new().answers("exit", move |_, _| Err(left.to_owned())).start();
    assert_eq!(agent.run(&["exit", "--cleanup"]), run("", &format!("{left}\n"), 2));
    assert_eq!(agent.questions(), [["exit", "--cleanup"]]);
}

/// Answers as the agent does: a line with "bad" is in error, one with "no" is refused.
fn take_flows(args: &[String], out: &mut dyn Write) -> Result<(), String> {
    let mut answer = BulkAnswer::default();
    for (index, text) in args[0].lines().enumerate() {
        if text.contains("bad") {
            answer.in_error += 1;
            answer.errors.push(LineError { line: index + 1, text: format!("{text}\n^\nat byte 0") });
        } else {
            answer.accepted += 1;
            answer.refused += usize::from(text.contains("no"));
        }
    }
    answer.offloaded = answer.accepted - answer.refused;
    answer.refusals = vec!["ufid:1: port 9: no such port".to_owned(); answer.refused];
    let text = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
    writeln!(out, "{text}").map_err(|error| error.to_string())
}

#[test]
fn a_file_of_flows_goes_in_parts_and_comes_back_as_one_summary() {
    let agent = FakeAgent::new().answers("sluice/add-flows", |args, out| take_flows(args, out)).start();
    let mut text: String =
        (0..60_000).map(|flow| format!("in_port(1),eth(),flow of some length {flow:>6} 2\n")).collect();
    let good = agent.run(&["add-flows", &agent.file("good", &text)]);
    let summary = "60000 flows accepted: 60000 offloaded, 0 refused, 0 without an answer yet; 0 lines in error\n";
    assert_eq!(good, run(summary, "", 0));
    let parts: Vec<String> = agent.questions().into_iter().map(|mut question| question.remove(1)).collect();
    assert_eq!((parts.len(), parts.concat() == text), (3, true));
    assert!(parts.iter().all(|part| part.ends_with('\n') && part.len() < (1 << 20) + 100));

    text.push_str("no such port\nbad line\nin_port(2) 1\n");
    let mixed = agent.run_with_input(&["add-flows", "-"], &text);
    let summary = "60002 flows accepted: 60001 offloaded, 1 refused, 0 without an answer yet; 1 lines in error\n";
    let complaints = "sluice: line 60002: bad line\n^\nat byte 0\nrefused: ufid:1: port 9: no such port\n";
    assert_eq!(mixed, run(summary, complaints, 2));
}

#[test]
fn a_file_of_deletions_is_read_here_and_counted_as_such() {
    let answer = BulkAnswer { accepted: 2, deleted: 2, ..BulkAnswer::default() };
    let answer: &'static str = serde_json::to_string(&answer).unwrap().leak();
    let agent = FakeAgent::new().says("sluice/add-flows", answer).start();
    let file = agent.file("flows", "in_port(1)\n# all\nin_port(2) 1\n");
    let expected = "2 flows deleted, 0 refused, 0 without an answer yet; 0 lines in error\n";
    assert_eq!(agent.run(&["del-flows", &file]), run(expected, "", 0));
    assert_eq!(agent.questions(), [["sluice/add-flows", "delete in_port(1)\n# all\ndelete in_port(2) 1\n"]]);
}

#[test]
fn a_file_that_cannot_be_read_is_1_and_what_went_before_is_said() {
    let agent = FakeAgent::new().answers("sluice/add-flows", |args, out| take_flows(args, out)).start();
    let missing = agent.run(&["add-flows", "/nowhere/flows"]);
    assert_eq!(missing, run("", "sluice: /nowhere/flows: No such file or directory\n", 1));
    let folder = agent.folder().to_str().unwrap().to_owned();
    assert_eq!(agent.run(&["add-flows", &folder]), run("", &format!("sluice: {folder}: Is a directory\n"), 1));

    let mut bytes = "a flow of some length and its actions\n".repeat(30_000).into_bytes();
    bytes.extend(b"\xff\n");
    let file = agent.file("binary", bytes);
    let broken = agent.run(&["add-flows", &file]);
    assert!(broken.stdout.starts_with("27595 flows accepted: "), "{}", broken.stdout);
    let reason = "line 30001 is no UTF-8 text (byte 0 of it); lines from 27596 on are not taken";
    assert_eq!((broken.stderr, broken.code), (format!("sluice: {file}: {reason}\n"), Some(1)));
}

#[test]
fn a_dump_to_explain_gets_one_summary_by_reason_with_the_lines_of_the_file() {
    let agent = FakeAgent::new()
        .answers("sluice/explain-lines", |args, out| {
            let flows = args[0].lines().count();
            let refused: Vec<_> = args[0].lines().enumerate().filter(|(_, line)| line.starts_with("no")).collect();
            let verdicts: String =
                refused.iter().map(|(index, line)| format!("line {}: field {}\n", index + 1, &line[3..])).collect();
            let (taken, not) = (flows - refused.len(), refused.len());
            writeln!(out, "{verdicts}{flows} flows: {taken} would be taken, {not} not")
                .and_then(|()| refused.iter().try_for_each(|(_, line)| writeln!(out, "{:>8}  field {}", 1, &line[3..])))
                .map_err(|error| error.to_string())
        })
        .start();
    let filler = "a flow that the device would take without a word\n".repeat(25_000);
    let text = format!("no nsh\n{filler}no dp_hash\n{filler}no nsh\n");
    let explained = agent.run_with_input(&["explain", "--file", "-"], &text);
    let expected = "line 1: field nsh\nline 25002: field dp_hash\nline 50003: field nsh\n\
                    50003 flows: 50000 would be taken, 3 not\n       2  field nsh\n       1  field dp_hash\n";
    assert_eq!(explained, run(expected, "", 0));
    assert_eq!(agent.questions().len(), 3);
}

const FLOW: &str = r#"{"ufid":"1","key":"in_port(1)","actions":"2","packets":3,"bytes":180,"used_seconds":0.25,"state":"refused","refusal":{"label":"field","reason":"field nsh: é"}}"#;

#[test]
fn a_dump_is_printed_as_it_is_as_an_array_or_as_a_table() {
    let agent = FakeAgent::new()
        .says("dpctl/dump-flows", "in_port(1), packets:3, bytes:180, used:0.250s, actions:2\n")
        .answers("sluice/dump-flows", |args, out| {
            let count = args.first().map_or(Ok(12_000), |count| count.parse::<usize>());
            let count = count.map_err(|_| "sluiced: Failed to parse type (x)".to_owned())?;
            (0..count).try_for_each(|_| writeln!(out, "{FLOW}")).map_err(|error| error.to_string())
        })
        .start();
    let plain = agent.run(&["dump-flows", "-m", "--names", "type=offloaded", "filter=in_port=1"]);
    assert_eq!(plain, run("in_port(1), packets:3, bytes:180, used:0.250s, actions:2\n", "", 0));
    assert_eq!(agent.questions(), [["dpctl/dump-flows", "-m", "--names", "type=offloaded", "filter=in_port=1"]]);

    let all: Vec<serde_json::Value> = serde_json::from_str(&agent.run(&["dump-flows", "--json"]).stdout).unwrap();
    assert_eq!((all.len(), all[11_999]["refusal"]["reason"].as_str()), (12_000, Some("field nsh: é")));
    assert_eq!(agent.run(&["dump-flows", "--json", "1"]), run(&format!("[\n{FLOW}\n]\n"), "", 0));
    assert_eq!(agent.run(&["dump-flows", "--json", "0"]), run("[]\n", "", 0));
    let refused = agent.run(&["dump-flows", "--json", "type=x"]);
    assert_eq!(refused, run("", "sluiced: Failed to parse type (x)\n", 2));

    let table = agent.run(&["dump-flows", "--table", "1"]).stdout;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["key", "actions", "packets", "bytes", "used", "state", "reason"]);
    assert_eq!(rows[1], ["in_port(1)", "2", "3", "180", "0.250s", "refused", "field", "nsh:", "é"]);
    let table = agent.run(&["dump-flows", "--table"]).stdout;
    assert_eq!(table.lines().filter(|line| line.contains("in_port(1)")).count(), 12_000);
}

#[test]
fn a_reader_that_has_enough_ends_the_dump_quietly() {
    let agent = FakeAgent::new()
        .answers("dpctl/dump-flows", |_, out| {
            // Without end: only a client that hangs up gets out of it.
            loop {
                writeln!(out, "in_port(1), packets:0, bytes:0, used:never, actions:2").map_err(|_| String::new())?;
            }
        })
        .start();
    let mut child = agent.spawn(&["dump-flows"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with("actions:2\n"));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn what_is_watched_is_printed_when_it_happens() {
    let agent = FakeAgent::new()
        .answers("sluice/watch", |_, out| {
            out.write_str("installed ufid:1 in hardware\n").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
            while out.is_wanted() {
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        })
        .start();
    let mut child = agent.spawn(&["watch"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "installed ufid:1 in hardware\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_agent_that_works_on_a_request_is_waited_for() {
    let agent = FakeAgent::new()
        .answers("sluice/flush", |_, _| {
            // Beyond the time after which the command line asks for a sign of life.
            thread::sleep(Duration::from_millis(2_500));
            Ok(())
        })
        .start();
    assert_eq!(agent.run(&["--timeout", "4s", "flush"]), run("", "", 0));
}

#[test]
fn an_answer_that_breaks_off_is_no_success() {
    let agent = FakeAgent::new()
        .answers("dpctl/dump-flows", |_, out| {
            out.write_str("half a du").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
            Err("lost the device".to_owned())
        })
        .start();
    let broken = agent.run(&["dump-flows"]);
    assert_eq!(broken, run("half a du", "sluice: the agent closed the connection in the middle\n", 1));
}

#[test]
fn show_and_stats_are_for_people_and_stats_also_for_programs() {
    const STATISTICS: &str = r#"{"datapath":"soft@demo","version":"0.1.0",
        "backend":{"name":"soft","facets":["meters","injector"],"miss":"counted and dropped","chain_miss":"counted and dropped","max_lag_seconds":0.0,"max_chain_depth":8,"device_chain_depth":8,"configured_chain_depth":16},
        "flows":{"live":3,"limit":200000,"states":{"pending":0,"offloaded":2,"refused":1}},
        "revalidator":{"paused":false,"period_seconds":0.5,"idle_timeout_seconds":10.0,"hard_timeout_seconds":null}}
"#;
    let agent = FakeAgent::new()
        .says("sluice/stats", STATISTICS)
        .says(
            "dpctl/show",
            "soft@demo:\n  lookups: hit:3 missed:1 lost:0\n  flows: 3\n  port 1: client (physical)\n    \
             RX packets:5 errors:? dropped:?\n    TX packets:6 errors:?\n    collisions:?\n    \
             RX bytes:500  TX bytes:600\n",
        )
        .start();
    let show = agent.run(&["show"]);
    let expected = "\
soft@demo, sluiced 0.1.0
  backend   soft
  facets    meters, injector
  misses    in chain 0: counted and dropped
            in a later chain: counted and dropped
  lookups   hit 3, missed 1, lost 0
  flows     3: offloaded 2, refused 1
  limits    200000 flows, chains 8 deep (the device 8, chain_depth 16)
  timeouts  idle 10 s, hard none, unless a flow has its own
  counters  read every 0.5 s, up to 0 s behind the device
";
    assert!(show.stdout.starts_with(expected), "{}", show.stdout);
    let port: Vec<_> = show.stdout.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(port, ["1", "client", "physical", "5", "500", "6", "600"]);
    assert_eq!((show.stderr.as_str(), show.code), ("", Some(0)));
    assert_eq!(agent.run(&["stats", "--json"]), run(STATISTICS, "", 0));
    let tables = agent.run(&["stats"]).stdout;
    assert!(tables.contains("states: offloaded") && tables.starts_with("datapath soft@demo\n"), "{tables}");
}

#[test]
fn doctor_prints_no_addresses_of_flows_that_are_refused() {
    const REFUSALS: &str = r#"[{"label": "action", "flows": 3, "example": "ufid", "cure": "none",
        "reason": "action set(tunnel): 198.51.100.7: neighbour 2001:db8::7 on p0 does not answer"}]"#;
    let agent = FakeAgent::new()
        .says("sluice/refusals", REFUSALS)
        .says("sluice/audit", "{}")
        .says("sluice/stats", "{}")
        .says("sluice/ready", "ready\n")
        .start();
    for form in [&["doctor"][..], &["doctor", "--json"]] {
        let told = agent.run(form).stdout;
        assert!(told.contains("action set(tunnel): ADDRESS: neighbour ADDRESS on p0 does not answer"), "{told}");
        assert!(!told.contains("198.51.100.7") && !told.contains("2001:db8::7"), "{told}");
    }
}
