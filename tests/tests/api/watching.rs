//! `Watch` and `Counters`.

use std::collections::HashMap;
use std::fs;

use sluice_client::v1::event::Kind;
use sluice_client::{add, flow, v1};
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::frames;
use tonic::Code;

use crate::stream::{accept, add_all, connect, of, outcomes, soon, udp};

/// The kinds of the events of a stream until there are so many.
async fn kinds(stream: &mut tonic::Streaming<v1::WatchResponse>, count: usize) -> (Vec<Kind>, Vec<u8>) {
    let (mut kinds, mut token) = (Vec::new(), Vec::new());
    while kinds.len() < count {
        let response = soon("an event", stream.message()).await.unwrap().unwrap();
        assert_eq!((response.lost, response.lost_unknown), (0, false));
        kinds.extend(response.events.iter().map(v1::Event::kind));
        token = response.token;
    }
    (kinds, token)
}

#[tokio::test]
async fn a_watcher_that_comes_back_hears_what_it_has_missed() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let request = v1::WatchRequest { filter: Some(of("story")), ..v1::WatchRequest::default() };
    let mut stream = client.flows().watch(request.clone()).await.unwrap().into_inner();
    let first = soon("a token", stream.message()).await.unwrap().unwrap();
    assert!(first.events.is_empty() && first.token.len() == 16);
    add_all(&client, "other", [flow(&udp(9), "server")]).await;
    let ufids = add_all(&client, "story", [flow(&udp(1), "server")]).await;
    let (heard, token) = kinds(&mut stream, 2).await;
    assert_eq!(heard, [Kind::Accepted, Kind::Installed], "of its owner only");
    drop(stream);

    let mut apply = client.apply("story").await.unwrap();
    accept(&mut apply, vec![sluice_client::delete(1, &ufids[0])]).await;
    outcomes(&mut apply, 1).await;
    let resumed = v1::WatchRequest { resume: token.clone(), ..request.clone() };
    let mut stream = client.flows().watch(resumed).await.unwrap().into_inner();
    assert_eq!(kinds(&mut stream, 1).await.0, [Kind::Deleted]);

    let of_another_run = [[0; 8].as_slice(), &token[8..]].concat();
    let wanted = v1::WatchRequest { resume: of_another_run, ..request.clone() };
    let mut stream = client.flows().watch(wanted).await.unwrap().into_inner();
    assert!(soon("an answer", stream.message()).await.unwrap().unwrap().lost_unknown, "all is to be listed again");
    let no_token = v1::WatchRequest { resume: vec![1, 2, 3], ..request };
    assert_eq!(client.flows().watch(no_token).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_watcher_who_does_not_read_is_told_how_much_it_has_lost() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut stream = client.flows().watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    // More events than are kept: two for each flow that is added, and one for its end.
    let mut apply = client.apply("story").await.unwrap();
    let mut told = 0;
    for _ in 0..12 {
        let batch: Vec<_> = (0..3_000).map(|id| add(id, flow(&udp(u16::try_from(id).unwrap()), "server"))).collect();
        let ufids: Vec<_> = accept(&mut apply, batch).await.into_iter().map(|accepted| accepted.ufid).collect();
        outcomes(&mut apply, 3_000).await;
        let batch = ufids.iter().map(|ufid| sluice_client::delete(0, ufid)).collect();
        accept(&mut apply, batch).await;
        outcomes(&mut apply, 3_000).await;
        told += 3 * 3_000;
    }
    let (mut events, mut lost) = (0, 0);
    while events + lost < told {
        let response = soon("an event", stream.message()).await.unwrap().unwrap();
        events += response.events.len() as u64;
        lost += response.lost;
    }
    assert_eq!(events + lost, told);
    assert!(lost > 0, "{events} events were kept");
}

#[tokio::test]
async fn counters_come_as_differences_and_add_up_to_the_packet() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let ufids = add_all(&client, "story", [1, 2].map(|port| flow(&udp(port), "server"))).await;
    let request = v1::CountersRequest { filter: Some(of("story")) };
    let mut stream = client.flows().counters(request).await.unwrap().into_inner();
    let inject = |port: u16, count: usize| {
        let frame: String = frames::udp(port).iter().map(|byte| format!("{byte:02x}")).collect();
        let frames = vec![frame.as_str(); count];
        let answer = daemon.appctl(&[&["sluice/inject", "client"], &*frames].concat()).out;
        assert!(answer.starts_with(&format!("frames:{count} hit:{count} ")), "{answer}");
    };
    let (mut sums, mut ended) = (HashMap::<String, u64>::new(), Vec::new());
    for round in 0..20 {
        inject(1, 3);
        inject(2, 5);
        if round == 10 {
            let mut apply = client.apply("story").await.unwrap();
            inject(2, 100);
            accept(&mut apply, vec![sluice_client::delete(1, &ufids[1])]).await;
            outcomes(&mut apply, 1).await;
            break;
        }
        let response = soon("a poll", stream.message()).await.unwrap().unwrap();
        assert!(!response.lost);
        response.deltas.iter().for_each(|delta| *sums.entry(delta.ufid.clone()).or_default() += delta.packets);
    }
    inject(1, 1);
    while ended.is_empty() || sums.get(&ufids[0]) != Some(&34) {
        let response = soon("a poll", stream.message()).await.unwrap().unwrap();
        for delta in response.deltas {
            *sums.entry(delta.ufid.clone()).or_default() += delta.packets;
            ended.extend(delta.ended.then_some(delta.ufid));
        }
    }
    assert_eq!((ended, sums[&ufids[1]]), (vec![ufids[1].clone()], 11 * 5 + 100), "the last are told at the end");

    // Flows that come and go under one name, some between two polls, are as many as there were.
    let mut apply = client.apply("story").await.unwrap();
    for count in 1..=20 {
        accept(&mut apply, vec![add(1, flow(&udp(2), "server"))]).await;
        outcomes(&mut apply, 1).await;
        inject(2, count);
        accept(&mut apply, vec![sluice_client::delete(2, &ufids[1])]).await;
        outcomes(&mut apply, 1).await;
    }
    let mut ends = 0;
    while ends < 20 {
        let response = soon("a poll", stream.message()).await.unwrap().unwrap();
        for delta in response.deltas.iter().filter(|delta| delta.ufid == ufids[1]) {
            *sums.entry(delta.ufid.clone()).or_default() += delta.packets;
            ends += usize::from(delta.ended);
        }
    }
    assert_eq!(sums[&ufids[1]], 11 * 5 + 100 + (1..=20).sum::<u64>());
}

#[tokio::test]
async fn counters_come_at_the_pace_of_a_reload_also_on_streams_that_run() {
    let daemon = Daemon::start(&CONFIG.replace("\"20ms\"", "\"1h\""));
    let client = connect(&daemon).await;
    let mut stream = client.flows().counters(v1::CountersRequest::default()).await.unwrap().into_inner();
    soon("what there is", stream.message()).await.unwrap().unwrap();
    let config = daemon.config().replace("\"1h\"", "\"20ms\"");
    fs::write(daemon.folder().join("sluiced.toml"), config).unwrap();
    let reloaded = daemon.sluice(&["reload"]);
    assert!(reloaded.out.contains("changed: poll_interval"), "{reloaded:?}");
    soon("what came since", stream.message()).await.unwrap().unwrap();
}
