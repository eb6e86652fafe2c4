//! What an observer counts.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::io::Cursor;

use sluice_feed_ovs::observe::{Backend, Observer, Report};
use sluice_flow::backend::BackendConfig;

fn tc() -> Backend {
    Backend::new(&sluice_offload_tc::KIND, || sluice_offload_tc::Config::default().checker())
}

fn observe(text: &str) -> Report {
    let mut observer = Observer::new(vec![tc()]);
    observer.begin("a dump");
    observer.text(Cursor::new(text.to_owned())).unwrap();
    observer.report()
}

fn flow(key: &str, packets: u32, actions: &str) -> String {
    format!("{key},eth(),eth_type(0x0800),ipv4(frag=no), packets:{packets}, bytes:0, used:never, actions:{actions}\n")
}

/// Flows and packets that would be offloaded, and the labels of the reasons for the rest.
fn taken(report: &Report) -> ((u64, u64), Vec<&'static str>) {
    let tc = &report.backends[0];
    ((tc.taken.flows, tc.taken.packets), tc.refusals.iter().map(|refusal| refusal.label).collect())
}

#[test]
fn a_chain_counts_only_if_an_offloaded_flow_leads_to_it_from_the_first_one() {
    let refused = "trunc(64)";
    // 0 -> 1 (refused), 1 -> 2, 2 ends.
    let text = flow("recirc_id(0),in_port(1)", 10, &format!("{refused},recirc(0x1)"))
        + &flow("recirc_id(0x1),in_port(1)", 10, "recirc(0x2)")
        + &flow("recirc_id(0x2),in_port(1)", 10, "2");
    assert_eq!(taken(&observe(&text)), ((0, 0), vec!["chain", "action"]));
    // Another flow leads there as well.
    let text = text + &flow("recirc_id(0),in_port(2)", 5, "recirc(0x1)");
    assert_eq!(taken(&observe(&text)), ((3, 25), vec!["action"]));
    // Who leads to chain 7 is not in the dump.
    assert_eq!(taken(&observe(&flow("recirc_id(0x7),in_port(1)", 1, "2"))), ((1, 1), vec![]));
    // Chains that lead to each other are no way in.
    let text =
        flow("recirc_id(0x1),in_port(1)", 1, "recirc(0x2)") + &flow("recirc_id(0x2),in_port(1)", 1, "recirc(0x1)");
    assert_eq!(taken(&observe(&text)), ((0, 0), vec!["chain"]));
}

#[test]
fn datapaths_have_ports_and_chains_of_their_own() {
    let mut observer = Observer::new(vec![tc()]);
    for (name, actions) in [("one", "trunc(64),recirc(0x1)"), ("two", "recirc(0x1)")] {
        observer.begin(name);
        let text = flow("recirc_id(0),in_port(1)", 1, actions) + &flow("recirc_id(0x1),in_port(1)", 1, "2");
        observer.text(Cursor::new(text)).unwrap();
    }
    let report = observer.report();
    assert_eq!(report.datapaths.iter().map(|datapath| datapath.flows).collect::<Vec<_>>(), [2, 2]);
    let (taken, mut labels) = taken(&report);
    labels.sort_unstable();
    assert_eq!((taken, labels), ((2, 2), vec!["action", "chain"]));
}

#[test]
fn reasons_that_name_values_without_end_are_kept_apart_up_to_a_limit() {
    let soft = Backend::new(&sluice_offload_soft::KIND, || sluice_offload_soft::Config::default().checker());
    let mut observer = Observer::new(vec![soft]);
    observer.begin("a dump");
    // "tnl_pop: port N is no tunnel port"
    let flows = (2..602).map(|port| flow("recirc_id(0),in_port(1)", 1, &format!("tnl_pop({port})")));
    observer.text(Cursor::new(flows.collect::<String>())).unwrap();
    let soft = observer.report().backends.remove(0);
    assert_eq!((soft.refused.flows, soft.refusals.len()), (600, 257));
    assert_eq!(soft.refusals[0].count.flows, 600 - 256, "{:?}", soft.refusals[0]);
    assert_eq!(soft.refusals.iter().map(|refusal| refusal.count.flows).sum::<u64>(), 600);
}

#[test]
fn the_example_of_a_reason_is_the_flow_with_the_most_packets() {
    let text = flow("recirc_id(0),in_port(1)", 5, "trunc(64),2")
        + &flow("recirc_id(0),in_port(3)", 50, "trunc(64),2")
        + &flow("recirc_id(0),in_port(4)", 7, "trunc(64),2");
    let report = observe(&text);
    let refusal = &report.backends[0].refusals[0];
    assert_eq!((refusal.count.flows, refusal.count.packets), (3, 62));
    assert!(refusal.example.starts_with("recirc_id(0),in_port(3),"), "{}", refusal.example);
    assert!(refusal.cure.contains("snaplen"), "{}", refusal.cure);
}

#[test]
fn flows_that_change_packets_before_they_recirculate_need_a_kernel_that_shares_recirculation_ids() {
    let needs = |text: &str| {
        let report = observe(text);
        let tc = &report.backends[0];
        (tc.taken.flows, tc.needs_recirc_sharing.flows, report.notes.len())
    };
    let end = flow("recirc_id(0x1),in_port(1)", 1, "2");
    // Started again from the beginning, the packet is the same, and tracking it twice does no harm.
    let track = flow("recirc_id(0),in_port(1)", 1, "ct(zone=7),recirc(0x1)") + &end;
    assert_eq!(needs(&track), (2, 0, 0));
    for actions in ["ct(zone=7,nat),recirc(0x1)", "push_vlan(vid=7,pcp=0),recirc(0x1)", "3,recirc(0x1)"] {
        let change = flow("recirc_id(0),in_port(1)", 1, actions) + &end;
        assert_eq!(needs(&change), (2, 2, 1), "{actions}");
        // The chain is of use to packets of another flow.
        assert_eq!(needs(&(change + &flow("recirc_id(0),in_port(2)", 1, "recirc(0x1)"))), (3, 1, 1), "{actions}");
    }
}
