//! The control socket and the gRPC interface are codecs on one service: the same request has the same outcome and the same words.

use sluice_client::v1::outcome::Result as Told;
use sluice_client::{Client, add, flow, modify, v1};
use sluice_tests::daemon::{CONFIG, Daemon};

use crate::stream::{accept, connect, outcomes, soon, udp};

/// A way to ask an agent. A request succeeds, or fails for a reason in words.
trait Codec {
    async fn add(&self, key: &str, actions: &str) -> Result<(), String>;
    async fn modify(&self, key: &str, actions: &str) -> Result<(), String>;
    async fn delete(&self, key: &str) -> Result<(), String>;
    async fn explain(&self, key: &str, actions: &str) -> Result<(), String>;
    async fn add_meter(&self, id: u32, rate: u64) -> Result<(), String>;
    async fn delete_port(&self, number: u32) -> Result<(), String>;
}

/// What each request of the body came to.
async fn body(codec: &impl Codec) -> Vec<Result<(), String>> {
    let unknown = udp(7);
    vec![
        codec.add(&udp(1), "server").await,
        codec.add(&udp(1), "uplink").await,
        codec.add(&udp(2), "99").await,
        codec.add(&udp(3), "meter(5),server").await,
        codec.add_meter(5, 1_000).await,
        codec.add(&udp(4), "meter(5),server").await,
        codec.add("in_port(client),eth_type(0x0800),ipv4(proto=banana)", "drop").await,
        codec.add("eth_type(0x0800)", "drop").await,
        codec.add(&udp(5), "recirc(0)").await,
        codec.modify(&udp(1), "uplink").await,
        codec.modify(&unknown, "uplink").await,
        codec.explain(&udp(6), "server").await,
        codec.explain(&udp(6), "99").await,
        codec.delete(&udp(1)).await,
        codec.delete(&unknown).await,
        codec.delete_port(99).await,
        codec.delete_port(3).await,
    ]
}

struct ControlSocket<'a>(&'a Daemon);

impl ControlSocket<'_> {
    fn run(&self, args: &[&str]) -> Result<(), String> {
        let ran = self.0.appctl(args);
        if ran.code == Some(0) { Ok(()) } else { Err(ran.err) }
    }
}

impl Codec for ControlSocket<'_> {
    async fn add(&self, key: &str, actions: &str) -> Result<(), String> {
        self.run(&["dpctl/add-flow", key, actions])
    }

    async fn modify(&self, key: &str, actions: &str) -> Result<(), String> {
        self.run(&["dpctl/mod-flow", key, actions])
    }

    async fn delete(&self, key: &str) -> Result<(), String> {
        self.run(&["dpctl/del-flow", key])
    }

    async fn explain(&self, key: &str, actions: &str) -> Result<(), String> {
        let answer = self.0.appctl(&["sluice/explain", "--json", key, actions]);
        let answer: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
        answer["refusal"]["reason"].as_str().map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    async fn add_meter(&self, id: u32, rate: u64) -> Result<(), String> {
        self.run(&["sluice/add-meter", &id.to_string(), "kbps", &rate.to_string()])
    }

    async fn delete_port(&self, number: u32) -> Result<(), String> {
        self.run(&["sluice/del-port", &number.to_string()])
    }
}

struct Grpc(Client);

impl Grpc {
    async fn one(&self, operation: v1::Operation) -> Result<(), String> {
        let mut apply = self.0.apply("story").await.unwrap();
        if let Some(error) = accept(&mut apply, vec![operation]).await.remove(0).error {
            return Err(error.message);
        }
        match outcomes(&mut apply, 1).await.remove(0).result.unwrap() {
            Told::Refused(refusal) => Err(refusal.message),
            _ => Ok(()),
        }
    }
}

impl Codec for Grpc {
    async fn add(&self, key: &str, actions: &str) -> Result<(), String> {
        self.one(add(1, flow(key, actions))).await
    }

    async fn modify(&self, key: &str, actions: &str) -> Result<(), String> {
        self.one(modify(1, flow(key, actions))).await
    }

    async fn delete(&self, key: &str) -> Result<(), String> {
        let named = v1::MatchAndPriority { r#match: flow(key, "").r#match, priority: 0 };
        let name = v1::FlowName { name: Some(v1::flow_name::Name::Match(named)) };
        let change = v1::operation::Change::Delete(v1::DeleteFlow { name: Some(name) });
        self.one(v1::Operation { id: 1, change: Some(change) }).await
    }

    async fn explain(&self, key: &str, actions: &str) -> Result<(), String> {
        let candidate = v1::explain_request::Flow::Candidate(flow(key, actions));
        let answer = self.0.flows().explain(v1::ExplainRequest { flow: Some(candidate) }).await;
        match answer.map_err(|status| status.message().to_owned())?.into_inner().verdict.unwrap() {
            v1::explain_response::Verdict::Rule(_) => Ok(()),
            v1::explain_response::Verdict::Refusal(refusal) => Err(refusal.message),
        }
    }

    async fn add_meter(&self, id: u32, rate: u64) -> Result<(), String> {
        let bands = vec![v1::MeterBand { rate, burst: 0 }];
        let meter = v1::Meter { id, unit: v1::MeterUnit::Kbps.into(), bands };
        let answer = soon("an answer", async { self.0.objects().put_meter(meter).await }).await;
        answer.map(|_| ()).map_err(|status| status.message().to_owned())
    }

    async fn delete_port(&self, number: u32) -> Result<(), String> {
        let answer = self.0.objects().delete_port(v1::DeletePortRequest { number }).await;
        answer.map(|_| ()).map_err(|status| status.message().to_owned())
    }
}

#[tokio::test]
async fn both_codecs_give_the_same_outcome_for_the_same_request() {
    let (one, other) = (Daemon::start(CONFIG), Daemon::start(CONFIG));
    let by_socket = body(&ControlSocket(&one)).await;
    let by_grpc = body(&Grpc(connect(&other).await)).await;
    for (number, (text, message)) in by_socket.iter().zip(&by_grpc).enumerate() {
        match (text, message) {
            (Ok(()), Ok(())) => {}
            // The socket says more: what was attempted, the place in a text shown, and OVS's own words for a flow that exists.
            (Err(text), Err(message)) => {
                let reason = message.strip_prefix("match: ").unwrap_or(message);
                let reason = if reason.ends_with(" exists") { "(File exists)" } else { reason };
                assert!(text.contains(reason), "request {number}: {reason:?} is not in {text:?}");
            }
            _ => panic!("request {number}: {text:?}, {message:?}"),
        }
    }
    let failed = by_grpc.iter().filter(|result| result.is_err()).count();
    assert!(failed > 5 && by_grpc.len() - failed > 4, "{failed} of {} fail", by_grpc.len());
    let flows = |daemon: &Daemon| {
        let mut lines: Vec<_> = daemon.appctl(&["dpctl/dump-flows"]).out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(flows(&one), flows(&other));
}
