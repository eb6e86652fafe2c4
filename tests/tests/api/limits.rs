//! What clients can do wrong, or leave undone: clear errors, bounded memory, and nobody else notices.

use std::time::{Duration, Instant};

use sluice_client::{Client, Details, add, flow, modify, v1};
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::world::eventually;
use tonic::Code;

use crate::stream::{accept, add_all, connect, details, outcomes, soon, told, udp};

#[tokio::test]
async fn a_message_that_is_too_large_too_long_or_no_message_is_refused_and_the_agent_goes_on() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let memory = daemon.memory();
    let large = flow(&"x".repeat(100 << 20), "drop");
    let mut apply = client.apply("story").await.unwrap();
    apply.send([add(1, large)]).await.unwrap();
    let sluice_client::Error::Call(status) = soon("an answer", apply.next()).await.unwrap_err() else {
        panic!("it is refused")
    };
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status:?}");
    assert!(status.message().contains("4194304"), "{status:?}");
    assert!(daemon.memory() < memory + (32 << 20), "{} bytes more", daemon.memory() - memory);

    let mut apply = client.apply("story").await.unwrap();
    apply.send((0..20_000).map(|id| v1::Operation { id, change: None })).await.unwrap();
    let sluice_client::Error::Call(status) = soon("an answer", apply.next()).await.unwrap_err() else {
        panic!("it is refused")
    };
    assert_eq!(status.message(), "operations: there are more than 16384");

    // Actions within actions, deeper than any flow of OVS.
    let deep = format!("{}drop{}", "clone(".repeat(10_000), ")".repeat(10_000));
    let mut apply = client.apply("story").await.unwrap();
    let acceptance = accept(&mut apply, vec![add(1, flow(&udp(1), &deep))]).await.remove(0);
    assert_eq!(acceptance.error.unwrap().code, i32::from(Code::InvalidArgument));
    add_all(&client, "story", [flow(&udp(1), "server")]).await;
}

#[tokio::test]
async fn a_connection_has_few_streams_with_long_messages_and_all_other_messages_are_short() {
    let daemon = Daemon::start(CONFIG);
    let (client, other) = (connect(&daemon).await, connect(&daemon).await);
    let mut streams = Vec::new();
    let refused = loop {
        match client.apply("story").await {
            Ok(stream) => streams.push(stream),
            Err(sluice_client::Error::Call(status)) => break status,
            Err(error) => panic!("{error}"),
        }
        assert!(streams.len() < 1_000, "all calls of a connection may be such streams");
    };
    let Details { reason, retry_after, .. } = told(&refused);
    assert_eq!((streams.len(), refused.code(), reason.as_str()), (16, Code::ResourceExhausted, "BUSY"));
    assert!(retry_after.is_some(), "one of the others may end");
    assert!(client.replace("story").await.is_err(), "its messages are as long");
    add_all(&other, "other", [flow(&udp(1), "server")]).await;
    drop(streams.pop());
    soon("a place", async {
        while client.apply("story").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    let candidate = v1::explain_request::Flow::Candidate(flow(&"x".repeat(100_000), "drop"));
    let refused = client.flows().explain(v1::ExplainRequest { flow: Some(candidate) }).await.unwrap_err();
    assert!(refused.code() == Code::OutOfRange && refused.message().contains("65536"), "{refused:?}");
}

#[tokio::test]
async fn the_acceptances_of_the_longest_batch_are_read_by_any_client_also_if_all_have_failed() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let flows = || (0..16_384).map(|port| flow(&udp(port), "drop"));
    add_all(&client, &"x".repeat(31), flows()).await;
    let mut apply = client.apply("other").await.unwrap();
    let changes = (0..).zip(flows()).map(|(id, flow)| modify(u64::MAX - id, flow));
    let acceptances = accept(&mut apply, changes.collect()).await;
    let kinds: Vec<_> = acceptances.iter().map(|acceptance| details(acceptance.error.as_ref()).reason).collect();
    assert_eq!(kinds, vec!["OTHER_OWNER"; 16_384]);
    let has_words = |acceptance: &v1::Acceptance| !acceptance.error.as_ref().unwrap().message.is_empty();
    assert!(has_words(&acceptances[0]) && !has_words(&acceptances[acceptances.len() - 1]));
}

#[tokio::test]
async fn who_finds_no_place_is_told_when_to_try_again_or_how_many_there_are() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut followers = Vec::new();
    let refused = loop {
        match client.flows().counters(v1::CountersRequest::default()).await {
            Ok(stream) => followers.push(stream),
            Err(status) => break status,
        }
    };
    let Details { reason, retry_after, .. } = told(&refused);
    assert_eq!((followers.len(), refused.code(), reason.as_str()), (16, Code::ResourceExhausted, "BUSY"));
    assert!(retry_after.is_some(), "one of the others may leave");

    let mut leases = 0;
    let refused = loop {
        let time = Some(prost_types::Duration { seconds: 3_600, nanos: 0 });
        let request = v1::TakeLeaseRequest { owner: format!("owner{leases}"), time, end: v1::LeaseEnd::Keep.into() };
        match client.agent().take_lease(request).await {
            Ok(_) => leases += 1,
            Err(status) => break status,
        }
    };
    let Details { reason, metadata, retry_after } = told(&refused);
    assert_eq!((leases, refused.code(), reason.as_str()), (256, Code::ResourceExhausted, "LIMIT"));
    assert_eq!((metadata["limit"].as_str(), retry_after), ("256", None), "leases last until they are given back");
}

#[tokio::test]
async fn clients_that_disappear_in_the_middle_leave_nothing_behind() {
    const CLIENTS: usize = 100;
    let daemon = Daemon::start(CONFIG);
    let rest = connect(&daemon).await;
    for number in 0..CLIENTS {
        let client = connect(&daemon).await;
        let owner = format!("client{number}");
        match number % 4 {
            0 => {
                let mut apply = client.apply(&owner).await.unwrap();
                apply.send((0..500).map(|id| add(id, flow(&udp(u16::try_from(id).unwrap()), "server")))).await.unwrap();
            }
            1 => {
                let mut replace = client.replace(&owner).await.unwrap();
                replace.flows([flow(&udp(1), "server")]).await.unwrap();
            }
            2 => drop(client.flows().watch(v1::WatchRequest::default()).await.unwrap()),
            _ => drop(client.flows().dump(v1::DumpRequest::default()).await.unwrap()),
        }
    }
    add_all(&rest, "rest", [flow("in_port(uplink),eth_type(0x0806)", "server")]).await;
    let tasks = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let mut files = usize::MAX;
    eventually("their connections are closed", || {
        files = tasks();
        files < 60
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watchers_that_stand_still_hold_up_nobody() {
    const WATCHERS: usize = 1_000;
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let quiet = slowest_of_adds(&client, 0).await;
    let mut watchers = Vec::new();
    for number in 0..WATCHERS {
        // Some connections with many calls each.
        let client = if number % 200 == 0 {
            connect(&daemon).await
        } else {
            watchers.last().map(|(client, _): &(Client, _)| client.clone()).unwrap()
        };
        let stream = client.flows().watch(v1::WatchRequest::default()).await.unwrap().into_inner();
        watchers.push((client, stream));
    }
    let memory = daemon.memory();
    let watched = slowest_of_adds(&client, 2_000).await;
    let held = daemon.memory().saturating_sub(memory);
    assert!(held < 400 << 20, "{held} bytes");
    // As bad as a wait for any of them would be.
    assert!(watched < quiet + Duration::from_secs(2), "{watched:?} and not {quiet:?}");
}

/// The longest that one of some adds takes until it is in the device.
async fn slowest_of_adds(client: &Client, from: u16) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut apply = client.apply("story").await.unwrap();
    for port in from..from + 2_000 {
        let began = Instant::now();
        accept(&mut apply, vec![add(1, flow(&udp(port), "server"))]).await;
        outcomes(&mut apply, 1).await;
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_not_read_from_and_others_go_on() {
    let daemon = Daemon::start(CONFIG);
    let (client, other) = (connect(&daemon).await, connect(&daemon).await);
    let memory = daemon.memory();
    let mut apply = client.apply("story").await.unwrap();
    let mut sent = 0;
    for batch in 0..1_000_u64 {
        let operations = (0..500).map(|id| add(batch << 32 | id, flow(&udp(u16::try_from(id).unwrap()), "server")));
        let sending = tokio::time::timeout(Duration::from_secs(2), apply.send(operations)).await;
        if sending.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 1_000, "the agent has taken {sent} batches and nobody has read an answer");
    assert!(daemon.memory() < memory + (64 << 20));
    add_all(&other, "other", [flow("in_port(uplink),eth_type(0x0806)", "server")]).await;
}
