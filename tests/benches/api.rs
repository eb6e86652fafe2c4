//! What a program pays for flows by gRPC, beside the same flows by the control socket, in turns.
//!
//! One stream of `Apply` brings 100,000 flows in batches of 1,000, as text and as structures, until all are accepted and until all are
//! installed; `ovs-appctl dpctl/add-flows` brings the same from a file. Then one flow after the other on an idle agent, until each is installed,
//! beside one command after the other of one connection to the control socket; and a dump of 1,000,000 flows, beside `sluice dump-flows`.
//! Writes `target/bench/api.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
#![allow(clippy::cast_precision_loss, reason = "measurements for people to read")]

use std::fs;
use std::io::{BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_client::v1::r#match::Form;
use sluice_client::{Answer, Client, add, delete, flow, v1};
use sluice_control::api_socket;
use sluice_flow::text::{Style, write_actions, write_key};
use sluice_tests::bench::{self, median, quantile, timed};
use sluice_tests::daemon::{Daemon, binary};
use sluice_tests::world::{SEED, eventually};
use tokio::runtime::{Builder, Runtime};

/// What is measured; all of it unless some are named as arguments.
const PARTS: [&str; 3] = ["apply", "single", "dump"];

const FLOWS: usize = 100_000;
const BATCH: usize = 1_000;
const ROUNDS: usize = 5;
const SINGLE: usize = 5_000;
const WATCHERS: usize = 1_000;
const DUMPED: usize = 1_000_000;

const CONFIG: &str = r#"
idle_timeout = "none"
flow_limit = 4000000
dirty_limit = 4000000
[[port]]
number = 1
name = "p1"
[[port]]
number = 2
name = "p2"
[[port]]
number = 3
name = "p3"
[[port]]
number = 4
name = "p4"
[[port]]
number = 5
name = "p5"
"#;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let named: Vec<_> = std::env::args().filter(|argument| PARTS.contains(&argument.as_str())).collect();
    let mut rows = Vec::new();
    for part in PARTS.iter().filter(|part| named.is_empty() || named.iter().any(|named| named == *part)) {
        rows.extend(match *part {
            "apply" => add_many(&runtime),
            "single" => add_singly(&runtime),
            _ => vec![dump(&runtime)],
        });
    }
    bench::write("api", &json!({ "rows": rows }));
}

/// The flows of all benches, as a client says them in text.
fn texts(count: usize) -> Vec<v1::Flow> {
    bench::five_tuples(count, &SEED)
        .map(|known| {
            let (mut key, mut actions) = (String::new(), String::new());
            write_key(&mut key, &known.matching(), &Style::default()).unwrap();
            write_actions(&mut actions, &known.actions, &Style::default()).unwrap();
            flow(&key, &actions)
        })
        .collect()
}

fn add_many(runtime: &Runtime) -> Vec<Value> {
    let daemon = Daemon::start(CONFIG);
    let file = daemon.folder().join("flows");
    fs::write(&file, bench::five_tuple_file(FLOWS, &SEED)).unwrap();
    let client = runtime.block_on(Client::local(api_socket(&daemon.run_dir()))).unwrap();
    let as_text = texts(FLOWS);
    runtime.block_on(apply(&client, &as_text));
    let as_fields = runtime.block_on(structures(&client));
    assert_eq!(as_fields.len(), FLOWS);
    flush(&daemon);
    let (mut by_text, mut by_fields, mut by_socket) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], Vec::new());
    for _ in 0..ROUNDS {
        for (flows, samples) in [(&as_text, &mut by_text), (&as_fields, &mut by_fields)] {
            let [accepted, installed] = runtime.block_on(apply(&client, flows));
            samples[0].push(rate(accepted));
            samples[1].push(rate(installed));
            flush(&daemon);
        }
        let (took, ran) = timed(|| daemon.appctl(&["dpctl/add-flows", &file.display().to_string()]));
        assert_eq!(
            (ran.code, daemon.metric("sluice_flows{state=\"offloaded\"}")),
            (Some(0), Some(FLOWS as f64)),
            "{ran:?}"
        );
        by_socket.push(rate(took));
        flush(&daemon);
    }
    let peer = median(&by_socket);
    println!("{FLOWS} flows by ovs-appctl dpctl/add-flows, installed: {peer:.0} a second");
    let row = |form: &str, what: &str, samples: &[f64], to_reach: f64| {
        let ours = median(samples);
        println!("{FLOWS} flows by Apply as {form}, {what}: {ours:.0} a second, {:.2} times", ours / peer);
        json!({ "name": format!("Apply as {form}, {what}"), "unit": "flows a second", "ours": ours, "peer": peer,
            "ratio": ours / peer, "to_reach": to_reach, "reached": ours >= to_reach })
    };
    vec![
        row("text", "accepted", &by_text[0], 700_000.0),
        row("text", "installed", &by_text[1], 400_000.0),
        row("structure", "accepted", &by_fields[0], 700_000.0),
        row("structure", "installed", &by_fields[1], 400_000.0),
    ]
}

fn rate(took: Duration) -> f64 {
    FLOWS as f64 / took.as_secs_f64()
}

fn flush(daemon: &Daemon) {
    assert_eq!(daemon.sluice(&["flush"]).code, Some(0));
    eventually("all are gone", || daemon.metric("sluice_flows{state=\"offloaded\"}") == Some(0.0));
}

/// Adds flows, and says how long it takes until all are accepted, and until all are installed.
async fn apply(client: &Client, flows: &[v1::Flow]) -> [Duration; 2] {
    let batches: Vec<Vec<_>> = (0..)
        .zip(flows.chunks(BATCH))
        .map(|(batch, flows)| (batch * BATCH as u64..).zip(flows).map(|(id, flow)| add(id, flow.clone())).collect())
        .collect();
    let began = Instant::now();
    let (mut sending, mut receiving) = client.apply("bench").await.unwrap().split();
    let send = async {
        for batch in batches {
            sending.send(batch).await.unwrap();
        }
        sending
    };
    let receive = async {
        let (mut accepted, mut installed, mut all_accepted) = (0, 0, Duration::ZERO);
        while installed < flows.len() {
            match receiving.next().await.unwrap().expect("all are answered") {
                Answer::Accepted(acceptances) => {
                    assert!(acceptances.iter().all(|acceptance| acceptance.error.is_none()));
                    accepted += acceptances.len();
                    if accepted == flows.len() {
                        all_accepted = began.elapsed();
                    }
                }
                Answer::Outcomes(outcomes) => installed += outcomes.len(),
            }
        }
        [all_accepted, began.elapsed()]
    };
    tokio::join!(send, receive).1
}

/// All flows as structures, without the names that the agent gave.
async fn structures(client: &Client) -> Vec<v1::Flow> {
    let request = v1::DumpRequest { form: v1::MatchForm::Fields.into(), ..v1::DumpRequest::default() };
    let mut pages = client.flows().dump(request).await.unwrap().into_inner();
    let mut flows = Vec::new();
    while let Some(page) = pages.message().await.unwrap() {
        flows.extend(page.entries.into_iter().map(|status| v1::Flow { ufid: String::new(), ..status.flow.unwrap() }));
    }
    assert!(flows.iter().all(|flow| matches!(flow.r#match.as_ref().unwrap().form, Some(Form::Fields(_)))));
    flows
}

/// One after the other, each until it is installed: beside commands, and with watchers who stand still, between two runs without any.
fn add_singly(runtime: &Runtime) -> Vec<Value> {
    let daemon = Daemon::start(CONFIG);
    let client = runtime.block_on(Client::local(api_socket(&daemon.run_dir()))).unwrap();
    let alone = runtime.block_on(single_adds(&client));
    let mut control = sluice_control::Client::connect(&daemon.socket()).unwrap();
    let by_socket: Vec<_> = bench::five_tuple_file(SINGLE, &SEED)
        .lines()
        .map(|line| {
            let (key, actions) = line.rsplit_once(' ').unwrap();
            let (took, answer) = timed(|| control.call_text("dpctl/add-flow", &[key, actions]));
            answer.unwrap();
            micros(took)
        })
        .collect();
    flush(&daemon);
    let watched = runtime.block_on(async {
        // Of another connection: what is not read of a stream holds up all of its own (RFC 9113, 5.2).
        let watching = Client::local(api_socket(&daemon.run_dir())).await.unwrap();
        let mut watchers = Vec::new();
        for _ in 0..WATCHERS {
            watchers.push(watching.flows().watch(v1::WatchRequest::default()).await.unwrap());
        }
        single_adds(&client).await
    });
    let again = runtime.block_on(single_adds(&client));
    let p99 = |samples: &[f64]| quantile(samples, 0.99);
    let (ours, peer) = (p99(&alone), p99(&by_socket));
    println!(
        "one add until installed: median {:.0} us, p99 {ours:.0} us; by the control socket {:.0}, {peer:.0} us",
        median(&alone),
        median(&by_socket)
    );
    println!(
        "p99 with {WATCHERS} watchers that stand still {:.0} us, without any again {:.0} us",
        p99(&watched),
        p99(&again)
    );
    let noise = p99(&again) / ours;
    vec![
        json!({ "name": "one add through gRPC until installed, p99", "unit": "us", "ours": ours, "peer": peer,
            "ratio": peer / ours, "to_reach": 1_000.0, "reached": ours <= 1_000.0 }),
        json!({ "name": "the same with 1,000 watchers that stand still", "unit": "us", "ours": p99(&watched), "peer": ours,
            "ratio": p99(&watched) / ours, "noise": noise, "to_reach": noise.max(1.0 / noise), "reached": p99(&watched) / ours <= noise.max(1.0 / noise) }),
    ]
}

/// What each of some adds takes until it is installed, in microseconds. Each flow is deleted before the next one comes.
async fn single_adds(client: &Client) -> Vec<f64> {
    let mut samples = Vec::new();
    let mut stream = client.apply("bench").await.unwrap();
    for (id, flow) in (0..).zip(texts(SINGLE)) {
        let began = Instant::now();
        stream.send([add(id, flow)]).await.unwrap();
        let Some(Answer::Accepted(accepted)) = stream.next().await.unwrap() else { panic!("it is accepted first") };
        let Some(Answer::Outcomes(_)) = stream.next().await.unwrap() else { panic!("its outcome follows") };
        samples.push(micros(began.elapsed()));
        stream.send([delete(id, &accepted[0].ufid)]).await.unwrap();
        stream.next().await.unwrap();
        stream.next().await.unwrap();
    }
    samples
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// All of a million flows.
fn dump(runtime: &Runtime) -> Value {
    let daemon = Daemon::start(CONFIG);
    let file = daemon.folder().join("flows");
    fs::write(&file, bench::five_tuple_file(DUMPED, &SEED)).unwrap();
    let ran = daemon.sluice(&["add-flows", &file.display().to_string()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let client = runtime.block_on(Client::local(api_socket(&daemon.run_dir()))).unwrap();
    let (mut by_grpc, mut by_sluice) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (took, flows) = timed(|| {
            runtime.block_on(async {
                let mut pages = client.flows().dump(v1::DumpRequest::default()).await.unwrap().into_inner();
                let mut flows = 0;
                while let Some(page) = pages.message().await.unwrap() {
                    flows += page.entries.len();
                }
                flows
            })
        });
        assert_eq!(flows, DUMPED);
        by_grpc.push(took.as_secs_f64());
        let (took, lines) = timed(|| {
            let mut sluice = Command::new(binary("sluice"))
                .args(["--run-dir", &daemon.run_dir().display().to_string(), "dump-flows"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut output, mut page, mut lines) =
                (BufReader::new(sluice.stdout.take().unwrap()), vec![0; 1 << 16], 0);
            loop {
                match output.read(&mut page).unwrap() {
                    0 => break,
                    read => lines += page[..read].iter().filter(|byte| **byte == b'\n').count(),
                }
            }
            assert!(sluice.wait().unwrap().success());
            lines
        });
        assert_eq!(lines, DUMPED);
        by_sluice.push(took.as_secs_f64());
    }
    let (ours, peer) = (median(&by_grpc), median(&by_sluice));
    println!(
        "a dump of {DUMPED} flows: {ours:.2} s through gRPC, {peer:.2} s through sluice dump-flows, {:.2} times as fast",
        peer / ours
    );
    json!({ "name": "a dump of 1,000,000 flows", "unit": "s", "ours": ours, "peer": peer, "ratio": peer / ours,
        "to_reach": 1.0, "reached": ours <= peer })
}
