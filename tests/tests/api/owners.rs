//! Owners: replacing all of one's flows, leases, and two controllers side by side.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_client::{flow, v1};
use sluice_tests::daemon::{CONFIG, Daemon, new_folder};
use sluice_tests::frames;
use sluice_tests::world::eventually;
use tonic::Code;

use crate::stream::{add_all, connect, dump, of, soon, told, udp};

#[tokio::test]
async fn a_replacement_adds_changes_and_deletes_and_leaves_alone_what_is_the_same() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    add_all(&client, "other", [flow(&udp(100), "server")]).await;
    add_all(&client, "story", [1, 2, 3].map(|port| flow(&udp(port), "server"))).await;

    let mut replace = client.replace("story").await.unwrap();
    let wrong = flow(&udp(100), "drop");
    let named = [flow(&udp(1), "server"), flow(&udp(2), "uplink"), flow(&udp(4), "server"), wrong];
    replace.flows(named).await.unwrap();
    while dump(&client, of("story"), v1::MatchForm::Text).await.len() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let replaced = soon("the end", replace.commit()).await.unwrap();
    let v1::Replaced { added, changed, unchanged, deleted, failed, refused } = replaced.done;
    assert_eq!([added, changed, unchanged, deleted, failed, refused], [1, 1, 1, 1, 1, 0]);
    assert_eq!(replaced.failed[0].index, 3, "the flow of another owner");

    let mut actions: Vec<_> = dump(&client, of("story"), v1::MatchForm::Text).await;
    actions.sort_by_key(|status| status.flow.as_ref().unwrap().actions.clone());
    let actions: Vec<_> = actions.into_iter().map(|status| status.flow.unwrap().actions).collect();
    assert_eq!(actions, ["server", "server", "uplink"]);
    assert_eq!(dump(&client, of("other"), v1::MatchForm::Text).await.len(), 1);

    // The name of one flow with the match of another one: both make room.
    let name = "12345678-1234-1234-1234-123456789abc".to_owned();
    add_all(&client, "story", [v1::Flow { ufid: name.clone(), ..flow(&udp(5), "server") }]).await;
    let mut replace = client.replace("story").await.unwrap();
    replace.flows([v1::Flow { ufid: name, ..flow(&udp(1), "server") }]).await.unwrap();
    let done = soon("the end", replace.commit()).await.unwrap().done;
    assert_eq!((done.added, done.deleted, done.failed), (1, 4, 0));
}

#[tokio::test]
async fn a_replacement_that_breaks_off_or_cannot_be_understood_deletes_nothing() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    add_all(&client, "story", [1, 2].map(|port| flow(&udp(port), "server"))).await;
    let all = || dump(&client, of("story"), v1::MatchForm::Text);

    let mut replace = client.replace("story").await.unwrap();
    replace.flows([flow(&udp(1), "server")]).await.unwrap();
    drop(replace);
    let mut replace = client.replace("story").await.unwrap();
    replace.flows([flow(&udp(1), "server"), flow("in_port(", "drop")]).await.unwrap();
    let sluice_client::Error::Call(status) = replace.commit().await.unwrap_err() else { panic!("the agent says no") };
    assert_eq!(
        (status.code(), status.message()),
        (Code::FailedPrecondition, "1 flows cannot be understood: nothing is deleted")
    );
    let sluice_client::Details { reason, metadata, .. } = told(&status);
    assert_eq!((reason.as_str(), metadata["flows"].as_str()), ("NOT_UNDERSTOOD", "1"));
    assert_eq!(all().await.len(), 2);

    // A controller that was started anew does not wait for its earlier life.
    let mut earlier = client.replace("story").await.unwrap();
    earlier.flows([]).await.unwrap();
    let later = client.replace("story").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let sluice_client::Error::Call(status) = earlier.commit().await.unwrap_err() else { panic!("the agent says no") };
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(all().await.len(), 2);
    assert_eq!(soon("the end", later.commit()).await.unwrap().done.deleted, 2, "none was named");
}

#[tokio::test]
async fn a_client_hears_why_the_agent_has_ended_its_replacement_whatever_it_does_next() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    for _ in 0..20 {
        let mut replace = client.replace("two words").await.unwrap();
        while replace.flows([flow(&udp(1), "server")]).await.is_ok() {}
        let sluice_client::Error::Call(status) = replace.commit().await.unwrap_err() else {
            panic!("the agent said no")
        };
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

/// Lets a thread end that goes on until it is told, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Replaces the flows of the story by the same ones, in two parts. The begin of a controller that was killed may come to the agent later, and end
/// what has begun since.
async fn replace_all(client: &sluice_client::Client, flows: Vec<v1::Flow>) {
    for _ in 0..10 {
        let mut replace = client.replace("story").await.unwrap();
        for part in flows.chunks(flows.len() / 2) {
            // The commit says why not.
            let _ = replace.flows(part.to_vec()).await;
        }
        match soon("the end", replace.commit()).await {
            Ok(replaced) => return assert_eq!((replaced.done.unchanged, replaced.done.deleted), (200, 0)),
            Err(sluice_client::Error::Call(status)) if status.code() == Code::Aborted => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("another Replace has begun, ten times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_killed_a_hundred_times_opens_no_hole_and_touches_nothing_of_the_other() {
    const KILLS: u16 = 100;
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let own = || (1..=200).map(|port| flow(&udp(port), "server"));
    add_all(&client, "story", own()).await;
    add_all(&client, "other", (1001..=1100).map(|port| flow(&udp(port), "uplink"))).await;
    let of_other = || async {
        let mut flows = dump(&client, of("other"), v1::MatchForm::Text).await;
        flows.sort_by(|one, other| one.flow.as_ref().unwrap().ufid.cmp(&other.flow.as_ref().unwrap().ufid));
        flows.into_iter().map(|status| (status.flow, status.state)).collect::<Vec<_>>()
    };
    let before = of_other().await;
    let is_over = AtomicBool::new(false);
    let frame = |port| frames::udp(port).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let all: Vec<_> = (0..40).flat_map(|_| [1, 77, 200, 1001, 1100].map(frame)).collect();
    let packets = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut packets = 0;
            while !is_over.load(Ordering::Relaxed) {
                let answer = daemon.appctl(
                    &[&["sluice/inject", "client"], &*all.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
                );
                assert_eq!(answer.out, "frames:200 hit:200 missed:0 missed_later:0 sent:200\n", "{answer:?}");
                packets += 200;
            }
            packets
        });
        let _end = Ends(&is_over);
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for kill in 0..KILLS {
                    // Killed at any point: its connection goes with it.
                    let client = connect(&daemon).await;
                    let mut replace = client.replace("story").await.unwrap();
                    let named = usize::from(kill) * 2;
                    let _ = replace.flows(own().take(named)).await;
                    if kill % 10 == 9 {
                        replace_all(&client, own().collect()).await;
                    }
                }
            });
        });
        is_over.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    assert!(packets > 1_000, "{packets} packets");
    assert_eq!(of_other().await, before);
}

#[tokio::test]
async fn a_lease_that_ends_does_to_flows_what_was_agreed_and_outlives_the_agent() {
    let folder = new_folder();
    let daemon = Daemon::start_in(&folder, CONFIG, false);
    let client = connect(&daemon).await;
    let lasting = |port| v1::Flow { permanent: true, ..flow(&udp(port), "server") };
    for (owner, port) in [("keeps", 1), ("ages", 2), ("removes", 3), ("renews", 4)] {
        add_all(&client, owner, [lasting(port)]).await;
    }
    let take = |client: &sluice_client::Client, owner: &'static str, end: v1::LeaseEnd, millis: i32| {
        let time = prost_types::Duration { seconds: i64::from(millis / 1000), nanos: millis % 1000 * 1_000_000 };
        let request = v1::TakeLeaseRequest { owner: owner.to_owned(), time: Some(time), end: end.into() };
        let mut agent = client.agent();
        async move { agent.take_lease(request).await }
    };
    take(&client, "keeps", v1::LeaseEnd::Keep, 300).await.unwrap();
    take(&client, "ages", v1::LeaseEnd::Age, 300).await.unwrap();
    take(&client, "removes", v1::LeaseEnd::Remove, 300).await.unwrap();
    take(&client, "renews", v1::LeaseEnd::Remove, 2_000).await.unwrap();
    let short = take(&client, "renews", v1::LeaseEnd::Remove, 1).await.unwrap_err();
    assert_eq!(short.code(), Code::InvalidArgument);

    eventually("the flows of the lease that removes are gone", || {
        !daemon.sluice(&["dump-flows", "-m"]).out.contains("owner[removes]")
    });
    let kept = dump(&client, of("keeps"), v1::MatchForm::Text).await;
    assert!(kept[0].flow.as_ref().unwrap().permanent);
    let mut aged = Vec::new();
    for _ in 0..200 {
        aged = dump(&client, of("ages"), v1::MatchForm::Text).await;
        if !aged[0].flow.as_ref().unwrap().permanent {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        aged[0].flow.as_ref().unwrap().idle_timeout.map(|idle| idle.seconds),
        Some(10),
        "the rule stays, and ages"
    );

    // The terms of the last one outlive the agent, and its owner does not.
    daemon.signal("KILL");
    drop(daemon);
    let daemon = Daemon::start_in(&folder, CONFIG, true);
    let client = connect(&daemon).await;
    let owners = client.agent().list_owners(v1::ListOwnersRequest {}).await.unwrap().into_inner().owners;
    let renews = owners.iter().find(|owner| owner.name == "renews").expect("its flow and lease are there");
    assert_eq!((renews.flows, renews.lease.map(|lease| lease.end)), (1, Some(v1::LeaseEnd::Remove.into())));
    eventually("the flows of the last lease are gone", || {
        !daemon.sluice(&["dump-flows", "-m"]).out.contains("owner[renews]")
    });
}

#[tokio::test]
async fn the_end_of_a_lease_that_cannot_be_written_down_is_brought_about_all_the_same_and_tried_again() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    add_all(&client, "removes", [flow(&udp(1), "server")]).await;
    let time = Some(prost_types::Duration { seconds: 2, nanos: 0 });
    let request = v1::TakeLeaseRequest { owner: "removes".to_owned(), time, end: v1::LeaseEnd::Remove.into() };
    client.agent().take_lease(request).await.unwrap();
    // No file is renamed to what is a folder.
    let file = daemon.folder().join("state/leases.json");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    eventually("the log says so", || {
        daemon.log().contains(
            "the lease of removes has ended, and its end is tried again: 1 flows are deleted, and cannot write",
        )
    });
    assert!(dump(&client, of("removes"), v1::MatchForm::Text).await.is_empty());
    let owners = || async { client.agent().list_owners(v1::ListOwnersRequest {}).await.unwrap().into_inner().owners };
    assert!(owners().await.iter().any(|owner| owner.name == "removes" && owner.lease.is_some()));
    fs::remove_dir(&file).unwrap();
    soon("the end", async {
        while !owners().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
    eventually("the log says what the end came to in all", || {
        daemon.log().contains("the lease of removes has ended, which was not renewed for 2s: 1 flows are deleted")
    });
}
