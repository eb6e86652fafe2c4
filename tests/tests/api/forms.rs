//! A match as structure and as text: the same.

use std::collections::BTreeMap;

use sluice_client::{Fields, add, delete, flow, modify, v1};
use sluice_flow::MaskedKey;
use sluice_flow::text::{Style, write_actions, write_key};
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::generate::FlowerFlows;

use crate::stream::{accept, add_all, connect, details, dump, of, udp};

/// As many flows as are compared.
const FLOWS: usize = 10_000;
/// Operations in one message.
const BATCH: usize = 1_000;

#[tokio::test]
async fn ten_thousand_flows_are_the_same_as_structures_and_as_text() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut generated = FlowerFlows::new(22);
    // By the name that follows from the match.
    let mut as_text: BTreeMap<String, String> = BTreeMap::new();
    while as_text.len() < FLOWS {
        let mut flows = Vec::new();
        while flows.len() < BATCH {
            flows.extend(generated.flows().map(|(matching, actions)| {
                let (mut key, mut action) = (String::new(), String::new());
                write_key(&mut key, &MaskedKey::new(&matching), &Style::default()).unwrap();
                write_actions(&mut action, &actions, &Style::default()).unwrap();
                flow(&key, &action)
            }));
        }
        let texts: Vec<_> = flows.iter().map(text).collect();
        let mut apply = client.apply("text").await.unwrap();
        let acceptances = accept(&mut apply, (0..).zip(flows).map(|(id, flow)| add(id, flow)).collect()).await;
        let taken = acceptances.into_iter().zip(texts).filter(|(acceptance, _)| acceptance.error.is_none());
        as_text.extend(taken.map(|(acceptance, text)| (acceptance.ufid, text)));
    }
    let structures = dump(&client, of("text"), v1::MatchForm::Fields).await;
    assert_eq!(structures.len(), as_text.len());
    assert!(structures.iter().all(|status| fields(status).is_some()), "all can be said as structures");

    // Deleted by the structure alone, and added again as it says.
    let mut apply = client.apply("text").await.unwrap();
    for batch in structures.chunks(BATCH) {
        let names = (0..).zip(batch).map(|(id, status)| by_match(id, status)).collect();
        let failed: Vec<_> = accept(&mut apply, names).await.into_iter().filter(|one| one.error.is_some()).collect();
        assert!(failed.is_empty(), "{failed:?}");
        apply = client.apply("text").await.unwrap();
    }
    let mut names = Vec::new();
    for batch in structures.chunks(BATCH) {
        let mut apply = client.apply("structure").await.unwrap();
        let anonymous = batch.iter().map(|status| v1::Flow { ufid: String::new(), ..status.flow.clone().unwrap() });
        let acceptances = accept(&mut apply, (0..).zip(anonymous).map(|(id, flow)| add(id, flow)).collect()).await;
        names.extend(acceptances.into_iter().zip(batch).map(|(acceptance, status)| {
            assert!(acceptance.error.is_none(), "{acceptance:?} of {status:?}");
            assert_eq!(acceptance.ufid, status.flow.as_ref().unwrap().ufid, "the same match has the same name");
            acceptance.ufid
        }));
    }
    names.sort_unstable();
    assert!(names.iter().eq(as_text.keys()));
    for status in dump(&client, of("structure"), v1::MatchForm::Text).await {
        let flow = status.flow.unwrap();
        let before = &as_text[&flow.ufid];
        let (now, before) = (parsed(&text(&flow)), parsed(before));
        assert_eq!(now, before, "{}", flow.ufid);
    }
}

#[tokio::test]
async fn a_match_has_no_actions_and_actions_have_nothing_else_in_both_forms() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    add_all(&client, "story", [flow(&udp(1), "server")]).await;
    let structure = dump(&client, of("story"), v1::MatchForm::Fields).await.remove(0).flow.unwrap();
    let (key, ufid) = (udp(2), String::new());
    let mut apply = client.apply("story").await.unwrap();
    let batch = vec![
        add(1, flow(&format!("{key} server"), "")),
        add(2, flow(&format!("{key} server,"), "uplink")),
        add(3, flow(&key, "server, dp-extra-info:permanent")),
        add(4, flow(&key, "packets:1, actions:server")),
        add(5, flow(&key, "")),
        modify(6, v1::Flow { ufid, actions: " ".to_owned(), ..structure }),
    ];
    let acceptances = accept(&mut apply, batch).await;
    let told = acceptances.iter().map(|acceptance| details(acceptance.error.as_ref()));
    let told: Vec<_> = told.map(|details| (details.reason, details.metadata["place"].clone())).collect();
    let places = ["match", "match", "actions", "actions", "actions", "actions"];
    assert_eq!(told, places.map(|place| ("INVALID_REQUEST".to_owned(), place.to_owned())));
    let flows = dump(&client, of("story"), v1::MatchForm::Text).await;
    assert_eq!((flows.len(), flows[0].flow.as_ref().unwrap().actions.as_str()), (1, "server"));
}

fn text(flow: &v1::Flow) -> String {
    match flow.r#match.as_ref().and_then(|matching| matching.form.clone()) {
        Some(v1::r#match::Form::Text(text)) => text,
        other => panic!("a text is asked for: {other:?}"),
    }
}

/// What a text means, whatever its ports are called.
fn parsed(text: &str) -> sluice_flow::Match {
    let numbered = [("client", "1"), ("server", "2"), ("uplink", "3"), ("vxlan_sys_4789", "4")];
    let text = numbered.iter().fold(text.to_owned(), |text, (name, number)| {
        text.replace(&format!("in_port({name})"), &format!("in_port({number})"))
    });
    sluice_flow::text::parse_key(&text, &()).unwrap().matching
}

fn fields(status: &v1::FlowStatus) -> Option<&Fields> {
    match status.flow.as_ref()?.r#match.as_ref()?.form.as_ref()? {
        v1::r#match::Form::Fields(fields) => Some(fields),
        v1::r#match::Form::Text(_) => None,
    }
}

fn by_match(id: u64, status: &v1::FlowStatus) -> v1::Operation {
    let flow = status.flow.as_ref().unwrap();
    let named = v1::MatchAndPriority { r#match: flow.r#match.clone(), priority: flow.priority };
    let name = v1::FlowName { name: Some(v1::flow_name::Name::Match(named)) };
    let change = v1::operation::Change::Delete(v1::DeleteFlow { name: Some(name) });
    v1::Operation { change: Some(change), ..delete(id, "") }
}
