//! What the stories have in common: an agent, a client of it, and streams that are waited for.

use std::time::Duration;

use sluice_client::v1::outcome::Result as Told;
use sluice_client::{Answer, Apply, Client, Details, v1};
use sluice_control::api_socket;
use sluice_tests::daemon::Daemon;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// The key of a flow for a UDP port.
pub(crate) fn udp(port: u16) -> String {
    format!("in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port})")
}

pub(crate) async fn connect(daemon: &Daemon) -> Client {
    Client::local(api_socket(&daemon.run_dir())).await.unwrap()
}

/// What comes within any reasonable time.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

/// Sends a batch, and waits for its acceptances.
pub(crate) async fn accept(apply: &mut Apply, batch: Vec<v1::Operation>) -> Vec<v1::Acceptance> {
    apply.send(batch).await.unwrap();
    match soon("an acceptance", apply.next()).await.unwrap() {
        Some(Answer::Accepted(acceptances)) => acceptances,
        other => panic!("an acceptance comes first, not {other:?}"),
    }
}

/// Waits for so many outcomes.
pub(crate) async fn outcomes(apply: &mut Apply, count: usize) -> Vec<v1::Outcome> {
    let mut told = Vec::new();
    while told.len() < count {
        match soon("an outcome", apply.next()).await.unwrap() {
            Some(Answer::Outcomes(outcomes)) => told.extend(outcomes),
            other => panic!("outcomes are to come, not {other:?}"),
        }
    }
    assert_eq!(told.len(), count);
    told
}

/// Adds flows, of which none fails.
pub(crate) async fn add_all(client: &Client, owner: &str, flows: impl IntoIterator<Item = v1::Flow>) -> Vec<String> {
    let mut apply = client.apply(owner).await.unwrap();
    let operations: Vec<_> = (0..).zip(flows).map(|(id, flow)| sluice_client::add(id, flow)).collect();
    let count = operations.len();
    let acceptances = accept(&mut apply, operations).await;
    assert!(acceptances.iter().all(|acceptance| acceptance.error.is_none()), "{acceptances:?}");
    for outcome in outcomes(&mut apply, count).await {
        assert!(matches!(outcome.result, Some(Told::Installed(_))), "{outcome:?}");
    }
    acceptances.into_iter().map(|acceptance| acceptance.ufid).collect()
}

/// All flows that a filter means.
pub(crate) async fn dump(client: &Client, filter: v1::Filter, form: v1::MatchForm) -> Vec<v1::FlowStatus> {
    let request = v1::DumpRequest { filter: Some(filter), form: form.into() };
    let mut pages = client.flows().dump(request).await.unwrap().into_inner();
    let mut flows = Vec::new();
    while let Some(page) = soon("a page", pages.message()).await.unwrap() {
        flows.extend(page.entries);
    }
    flows
}

/// Those of one owner.
pub(crate) fn of(owner: &str) -> v1::Filter {
    v1::Filter { owner: owner.to_owned(), ..v1::Filter::default() }
}

/// What an answer says for programs of what went wrong.
pub(crate) fn details(error: Option<&sluice_client::rpc::Status>) -> Details {
    Details::of(error.expect("it went wrong"))
}

/// What a call says of what went wrong.
pub(crate) fn told(error: &tonic::Status) -> Details {
    Details::of(&sluice_client::rpc::Status::from(error))
}
