//! What Sluice writes of actions is read by Open vSwitch, which nobody here wrote, and what that prints is read by Sluice.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[path = "../../flow/tests/odp_actions/forms.rs"]
mod forms;
#[path = "../../flow/tests/odp_actions/generate.rs"]
mod generate;

use std::fs;
use std::process::Command;

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_flow::action::{
    Action, Nat, NshMetadata, OuterHeaders, OuterTunnel, PortPick, SLOW_PATH_REASONS, UserData, visit,
};
use sluice_flow::chain::ChainId;
use sluice_flow::text::{Style, parse_actions, write_action, write_actions};
use sluice_tests::daemon::{repository, run};

fn read(text: &str) -> Vec<Action> {
    match parse_actions(text, &()) {
        Ok(actions) => actions.to_vec(),
        Err(error) => panic!("{}", error.caret(text)),
    }
}

fn written(actions: &[Action]) -> String {
    let mut text = String::new();
    write_actions(&mut text, actions, &Style::default()).unwrap();
    text
}

/// What Open vSwitch makes of each text.
fn printed_by_ovs(texts: &[String]) -> Vec<String> {
    let ran = run(Command::new("ovs-dpctl").arg("parse-actions").args(texts));
    let lines: Vec<_> = ran.out.lines().map(str::to_owned).collect();
    assert_eq!(ran.code, Some(0), "{}: {}", ran.err, texts.get(lines.len()).map_or("", String::as_str));
    assert_eq!(lines.len(), texts.len());
    lines
}

/// Whether Open vSwitch 3.1 reads an action as it is written, and prints all of it.
fn survives_ovs(action: &Action) -> bool {
    let mut survives = true;
    visit(std::slice::from_ref(action), &mut |action| survives &= survives_alone(action));
    survives
}

/// What is in the forms that do not survive, for the reasons below.
const BEYOND_OVS: &[&str] = &[
    "dec_ttl(",
    "hash(l4(",
    "hash(sym_l4(",
    "push_eth(",
    "push_mpls(",
    "pop_mpls(",
    "recirc(0x",
    "psample(",
    "gtpu(",
    "erspan(",
    "srv6(",
    "userspace(pid=6633)",
    "userspace(pid=6633,actions",
    "userspace(pid=6633,tunnel_out_port",
];

fn survives_alone(action: &Action) -> bool {
    match action {
        // No version reads what it prints of these.
        Action::DecTtl(_)
        | Action::Hash { .. }
        | Action::PopEth
        | Action::PopMpls(_)
        | Action::PushEth(_)
        | Action::PushMpls(_) => false,
        // It prints hexadecimal numbers and reads decimal ones.
        Action::Recirc(chain) => *chain == ChainId::ROOT,
        // It is from version 3.4.
        Action::Psample { .. } => false,
        // It prints tenths of a percent.
        Action::Sample { probability, .. } => {
            let (probability, all) = (u64::from(*probability), u64::from(u32::MAX));
            let tenths = (probability * 1000 + all / 2) / all;
            probability == (all * tenths + 500) / 1000
        }
        Action::TunnelPush(push) => match OuterHeaders::read(push.tunnel_type, &push.header).map(|said| said.tunnel) {
            Some(OuterTunnel::Vxlan { .. } | OuterTunnel::Geneve { .. } | OuterTunnel::Gre { .. }) => true,
            // It reads GTP-U without the UDP header that it prints, and looks for the letters "hx" in ERSPAN.
            Some(OuterTunnel::Gtpu { .. } | OuterTunnel::Erspan1 { .. } | OuterTunnel::Erspan2 { .. }) => false,
            // It is from version 3.2.
            Some(OuterTunnel::Srv6(_)) => false,
            // The form is our own.
            None => false,
        },
        Action::Userspace(userspace) => match &userspace.data {
            // It reads 48 zeros.
            None => false,
            // It knows the bits that have a name.
            Some(UserData::SlowPath(reasons)) => {
                reasons & !SLOW_PATH_REASONS.iter().fold(0, |named, (_, bit)| named | bit) == 0
            }
            // It fills up to 8 bytes, and looks for its own notes in 48.
            Some(UserData::Bytes(bytes)) => bytes.len() >= 8 && bytes.len() != 48,
            Some(_) => true,
        },
        // Without an address it forgets the rest.
        Action::Conntrack(conntrack) => match &conntrack.nat {
            Some(Nat::New(translation)) => {
                translation.addresses.is_some() || !translation.persistent && translation.pick == PortPick::Default
            }
            _ => true,
        },
        // It takes no text that is longer than this, and prints no zeros in front.
        Action::PushNsh(header) => match &header.metadata {
            NshMetadata::Tlvs(tlvs) => tlvs.len() <= 200 && !tlvs.starts_with(&[0; 4]),
            NshMetadata::Contexts(_) => true,
        },
        _ => true,
    }
}

#[test]
fn every_form_goes_through_ovs_and_back() {
    let (forms, others): (Vec<_>, Vec<_>) =
        forms::forms().into_iter().partition(|form| read(form).iter().all(survives_ovs));
    for form in others {
        assert!(BEYOND_OVS.iter().any(|word| form.contains(word)), "{form}");
    }
    for (form, printed) in forms.iter().zip(printed_by_ovs(&forms)) {
        assert_eq!(*form, printed);
    }
}

#[test]
fn spellings_that_only_ovs_prints_or_reads_mean_the_same() {
    let texts = [
        "clone(),sample(sample=33.3%,actions()),check_pkt_len(size=9,gt(),le())",
        "userspace(pid=1,slow_path(cfm|bfd))",
        "recirc(16)",
        "ct(commit,mark=1,label=1,nat(src=::1:5))",
        "push_nsh(mdtype=2),push_nsh(mdtype=2,md2=0x00010203)",
        "drop",
        "",
    ];
    let texts = texts.map(str::to_owned);
    for (text, printed) in texts.iter().zip(printed_by_ovs(&texts)) {
        assert_eq!(read(text), read(&printed), "{text}: {printed}");
    }
}

#[test]
fn normalised_actions_are_the_same_where_nothing_is_to_be_normalised() {
    // It sorts outputs and takes headers apart; what is left as it is says so.
    let untouched = |action: &Action| !matches!(action, Action::Set(_) | Action::PushVlan(_) | Action::PopVlan);
    let forms: Vec<_> = forms::forms().into_iter().filter(|form| read(form).iter().all(survives_ovs)).collect();
    for form in forms.iter().filter(|form| read(form).iter().all(untouched)).step_by(7) {
        let ran = run(Command::new("ovs-dpctl").args(["normalize-actions", "in_port(1)", form]));
        let (_, normalised) = ran.out.split_once("no vlan: no mpls: ").unwrap_or_else(|| panic!("{form}: {ran:?}"));
        assert_eq!(read(normalised), read(form), "{form}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_list_goes_through_ovs_and_back(lists in vec(generate::any_actions(), 100)) {
        let survivors = lists.into_iter().map(|list| list.into_iter().filter(survives_ovs).collect::<Vec<_>>());
        let lists: Vec<_> = survivors.filter(|list| !list.is_empty()).collect();
        let texts: Vec<_> = lists.iter().map(|list| written(list)).collect();
        for ((list, text), printed) in lists.iter().zip(&texts).zip(printed_by_ovs(&texts)) {
            prop_assert_eq!(&read(&printed), list, "{}\n{}", text, printed);
        }
    }
}

/// Says of each list of actions what `ODPFlow` takes its actions for, and what it stumbles over.
const READER: &str = r#"
import json, sys
from ovs.flow.odp import ODPFlow
for line in open(sys.argv[1]):
    flow = ODPFlow("recirc_id(0),in_port(1), packets:1, bytes:1, used:never, actions:" + line.strip())
    print(json.dumps([sorted(action)[0] for action in flow.actions]))
"#;

#[test]
fn every_form_is_understood_by_the_library_of_ovs() {
    // ODPFlow 3.5.1 has no words for the first two, and stumbles over the third, OVS's own included.
    let beyond_it = |action: &Action| {
        let mut beyond = false;
        visit(std::slice::from_ref(action), &mut |action| {
            beyond |= matches!(action, Action::DecTtl(_) | Action::PushEth(_) | Action::PopMpls(_));
        });
        beyond
    };
    let forms: Vec<_> =
        forms::forms().into_iter().filter(|form| *form != "drop" && !read(form).iter().any(beyond_it)).collect();
    assert!(forms.len() > 100, "{}", forms.len());
    let file = std::env::temp_dir().join(format!("sluice-forms-{}", std::process::id()));
    fs::write(&file, forms.join("\n")).unwrap();
    let ran = run(Command::new(repository("target/venv/bin/python")).args(["-c", READER]).arg(&file));
    fs::remove_file(&file).unwrap();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for (form, understood) in forms.iter().zip(ran.out.lines()) {
        let understood: Vec<String> = serde_json::from_str(understood).unwrap();
        let expected: Vec<_> = read(form).iter().map(name_for_the_library).collect();
        assert_eq!(understood, expected, "{form}");
    }
    assert_eq!(ran.out.lines().count(), forms.len());
}

/// The library knows no `pop_eth` and takes it for the name of a port.
fn name_for_the_library(action: &Action) -> String {
    if matches!(action, Action::Output(_) | Action::PopEth) {
        return "output".to_owned();
    }
    let mut text = String::new();
    write_action(&mut text, action, &Style::default()).unwrap();
    text.split('(').next().unwrap_or_default().to_owned()
}
