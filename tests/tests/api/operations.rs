//! `Apply`: acceptances, then outcomes, in the order of the operations, with reasons that a program can read.

use sluice_client::v1::outcome::Result as Told;
use sluice_client::{add, delete, flow, modify, v1};
use sluice_tests::daemon::{CONFIG, Daemon};
use tonic::Code;

use crate::stream::{accept, connect, details, dump, of, outcomes, udp};

#[tokio::test]
async fn operations_are_answered_in_their_order_each_with_its_outcome() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut apply = client.apply("story").await.unwrap();
    let batch = vec![
        add(70, flow(&udp(1), "server")),
        add(71, flow(&udp(2), "99")),
        add(72, flow(&udp(1), "drop")),
        add(73, flow("in_port(client),eth_type(0x0800),ipv4(proto=banana)", "drop")),
        add(74, v1::Flow { ufid: "12345678-1234-1234-1234-123456789abc".to_owned(), ..flow(&udp(3), "uplink") }),
    ];
    let acceptances = accept(&mut apply, batch).await;
    assert_eq!(acceptances.iter().map(|acceptance| acceptance.id).collect::<Vec<_>>(), [70, 71, 72, 73, 74]);
    let ufid = acceptances[0].ufid.clone();
    assert_eq!((ufid.len(), acceptances[4].ufid.as_str()), (36, ""), "the agent names what has no name");

    let exists = acceptances[2].error.as_ref().unwrap();
    let kind = details(Some(exists));
    assert_eq!(
        (exists.code, kind.reason.as_str(), &kind.metadata["ufid"]),
        (Code::AlreadyExists.into(), "EXISTS", &ufid)
    );
    let malformed = acceptances[3].error.as_ref().unwrap();
    let kind = details(Some(malformed));
    assert_eq!((malformed.code, kind.reason.as_str()), (Code::InvalidArgument.into(), "INVALID_REQUEST"));
    assert_eq!((kind.metadata["place"].as_str(), kind.metadata["offset"].as_str()), ("match", "44"));

    let told = outcomes(&mut apply, 3).await;
    assert_eq!(told.iter().map(|outcome| outcome.id).collect::<Vec<_>>(), [70, 71, 74]);
    assert_eq!(told[0].result, Some(Told::Installed(v1::Placement::Hardware.into())));
    let Some(Told::Refused(refusal)) = &told[1].result else { panic!("{:?}", told[1]) };
    let kind = details(Some(refusal));
    assert_eq!((kind.reason.as_str(), kind.metadata["port"].as_str()), ("PORT", "99"));

    let batch = vec![
        modify(80, flow(&udp(1), "uplink")),
        delete(81, "12345678-1234-1234-1234-123456789abc"),
        delete(82, &ufid),
    ];
    assert!(accept(&mut apply, batch).await.iter().all(|acceptance| acceptance.error.is_none()));
    let told = outcomes(&mut apply, 3).await;
    let words: Vec<_> = told.iter().map(|outcome| (outcome.id, outcome.result.clone().unwrap())).collect();
    assert!(matches!(words[0], (80, Told::Installed(_) | Told::Superseded(_))), "{words:?}");
    assert!(matches!((&words[1], &words[2]), ((81, Told::Deleted(_)), (82, Told::Deleted(_)))), "{words:?}");
    assert_eq!(dump(&client, of("story"), v1::MatchForm::Text).await.len(), 1, "the one that the device refused");

    apply.finish();
    assert!(apply.next().await.unwrap().is_none(), "the stream ends when all is said");
}

#[tokio::test]
async fn a_stream_has_one_owner_and_a_flow_of_another_is_out_of_its_reach() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut one = client.apply("one").await.unwrap();
    let ufid = accept(&mut one, vec![add(1, flow(&udp(1), "server"))]).await[0].ufid.clone();
    outcomes(&mut one, 1).await;

    let mut other = client.apply("other").await.unwrap();
    let batch = vec![delete(1, &ufid), modify(2, flow(&udp(1), "drop")), add(3, flow(&udp(1), "drop"))];
    let acceptances = accept(&mut other, batch).await;
    for acceptance in &acceptances[..2] {
        let kind = details(acceptance.error.as_ref());
        assert_eq!((kind.reason.as_str(), kind.metadata["owner"].as_str()), ("OTHER_OWNER", "one"), "{acceptance:?}");
    }
    assert_eq!(details(acceptances[2].error.as_ref()).reason, "EXISTS");

    // The operator sees whose it is, and may delete it.
    let line = daemon.appctl(&["dpctl/dump-flows", "-m"]).out;
    assert!(line.contains("owner[one]"), "{line}");
    let object: serde_json::Value = serde_json::from_str(&daemon.sluice(&["dump-flows", "--json"]).out).unwrap();
    assert_eq!((&object[0]["owner"], &object[0]["source"]), (&"one".into(), &serde_json::Value::Null));
    assert_eq!(daemon.sluice(&["del-flow", &format!("ufid:{ufid}")]).code, Some(0));

    for wrong in ["", "ovs", "command", "two words"] {
        let mut apply = client.apply(wrong).await.unwrap();
        let sluice_client::Error::Call(status) = apply.next().await.unwrap_err() else { panic!("the agent says no") };
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().starts_with("owner: "), "{status:?}");
    }
}

#[tokio::test]
async fn an_acceptance_names_the_flow_that_a_match_has_led_to() {
    const GIVEN: &str = "12345678-1234-1234-1234-123456789abc";
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut apply = client.apply("story").await.unwrap();
    let batch = vec![
        add(1, v1::Flow { ufid: GIVEN.to_owned(), ..flow(&udp(1), "server") }),
        modify(2, flow(&udp(1), "uplink")),
        add(3, flow(&udp(2), "server")),
        modify(4, flow(&udp(2), "uplink")),
    ];
    let acceptances = accept(&mut apply, batch).await;
    outcomes(&mut apply, 4).await;
    let names: Vec<_> = acceptances.iter().map(|acceptance| acceptance.ufid.as_str()).collect();
    assert_eq!(names[..2], ["", GIVEN], "the caller has named it, and asks for it by its match");
    assert_eq!((names[2].len(), names[2]), (36, names[3]), "the agent has named it");
    let mut known: Vec<_> = dump(&client, of("story"), v1::MatchForm::Text).await;
    known.retain(|status| names[1..3].contains(&status.flow.as_ref().unwrap().ufid.as_str()));
    assert_eq!(known.len(), 2, "there are flows of these names");
}

#[tokio::test]
async fn what_was_accepted_survives_the_agent_with_its_owner() {
    let folder = sluice_tests::daemon::new_folder();
    let daemon = Daemon::start_in(&folder, CONFIG, false);
    let client = connect(&daemon).await;
    let mut apply = client.apply("story").await.unwrap();
    assert!(accept(&mut apply, vec![add(1, flow(&udp(1), "server"))]).await[0].error.is_none());
    daemon.signal("KILL");
    drop(daemon);
    let daemon = Daemon::start_in(&folder, CONFIG, true);
    let client = connect(&daemon).await;
    let flows = dump(&client, of("story"), v1::MatchForm::Text).await;
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].flow.as_ref().unwrap().actions, "server");
}
