//! Actions that OVS 3.1 writes and does not read: its OpenFlow side makes them.

use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_tests::scenario::Scenario;

use crate::by_hand::{actions, key};
use crate::judge::{Judge, Outcome};
use crate::packets::{Ipv4, Ipv6, ethernet, labelled, tagged, tcp, udp};

/// An OpenFlow rule, what our flow matches, the frame, and an action that must be among those of the datapath.
type Case = (&'static str, &'static str, Vec<u8>, &'static str);

fn cases() -> Vec<Case> {
    let v4 = || Ipv4::default().frame(17, &udp(1000, 2000, b"some data"));
    let v6 = || Ipv6::default().frame(6, &tcp(1000, 2000, 2, b"some data"));
    let two_labels = || labelled(&[(7, 1, 9), (8, 2, 10)]);
    let in_v4 = "in_port(1),eth_type(0x0800)";
    let in_v6 = "in_port(1),eth_type(0x86dd)";
    let in_mpls = "in_port(1),eth_type(0x8847)";
    let in_tag = "in_port(1),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800))";
    vec![
        ("ip,actions=push_mpls:0x8847,set_field:100->mpls_label,2", in_v4, v4(), "push_mpls("),
        ("ipv6,actions=push_mpls:0x8848,set_field:100->mpls_label,2", in_v6, v6(), "push_mpls("),
        ("ip,actions=push_mpls:0x8847,push_mpls:0x8847,set_field:5->mpls_tc,2", in_v4, v4(), "push_mpls("),
        ("mpls,actions=push_mpls:0x8847,set_field:3->mpls_label,2", in_mpls, two_labels(), "push_mpls("),
        ("mpls,mpls_bos=0,actions=pop_mpls:0x8847,2", in_mpls, two_labels(), "pop_mpls("),
        ("mpls,mpls_bos=1,actions=pop_mpls:0x0800,2", in_mpls, labelled(&[(7, 1, 9)]), "pop_mpls("),
        ("mpls,actions=dec_mpls_ttl,2", in_mpls, two_labels(), "set(mpls("),
        ("ip,actions=dec_ttl,2", in_v4, v4(), "set(ipv4(ttl="),
        ("ipv6,actions=dec_ttl,2", in_v6, v6(), "set(ipv6(hlimit="),
        (
            "ip,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:2->nsh_si,set_field:7->nsh_c1,\
             encap(ethernet),set_field:02:00:00:00:00:11->dl_dst,2",
            in_v4,
            v4(),
            "push_eth(",
        ),
        (
            "actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678))),encap(ethernet),2",
            "in_port(1),eth_type(0x88b5)",
            ethernet(0x88b5, b"any data"),
            "push_nsh(",
        ),
        ("ip,dl_vlan=5,actions=pop_vlan,2", in_tag, tagged(0x8100, 0x1005, &v4()), "pop_vlan"),
        ("ip,actions=push_vlan:0x88a8,set_field:4103->vlan_vid,2,3", in_v4, v4(), "push_vlan("),
        // Hash values differ, so that both buckets do the same: it is seen that the packet goes round.
        ("ip,actions=group:1", in_v4, v4(), "hash(sym_l4(0)),recirc("),
        ("ipv6,actions=group:1", in_v6, v6(), "hash(sym_l4(0)),recirc("),
        ("ip,actions=clone(set_field:1.2.3.4->ip_dst,2),3", in_v4, v4(), "set(ipv4(dst="),
    ]
}

#[test]
fn what_open_flow_rules_make_is_done_as_in_ovs() {
    let mut judge = Judge::new();
    judge.add_group("group_id=1,type=select,selection_method=dp_hash,bucket=output:2,bucket=output:2");
    let mut wrong = Vec::new();
    for (rule, matching, frame, contains) in cases() {
        match judge.play_rule(rule, key(matching), &frame) {
            (actions, Outcome::Equal { packets: 1, frames: 1.. }) if actions.contains(contains) => {}
            (actions, Outcome::Differs(difference)) => wrong.push(format!("{rule}\n  {actions}\n{difference}")),
            (actions, outcome) => wrong.push(format!("{rule}\n  {actions}\n  {outcome:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_meter_lets_its_burst_through_as_in_ovs() {
    // The rate is so small that nothing comes to the burst while the test runs.
    let frame = Ipv4::default().frame(17, &udp(1000, 2000, &[7; 208]));
    let bytes = frame.len();
    assert_eq!(bytes, 250, "4 of them are 8 kilobits");
    for (unit, words, burst, passes) in [(MeterUnit::Packets, "pktps", 4, 4), (MeterUnit::Kilobits, "kbps", 8, 4)] {
        let mut judge = Judge::new();
        judge.add_meter(&format!("meter=1,{words},burst,bands=type=drop,rate=1,burst_size={burst}"));
        let scenario = Scenario::new(words)
            .meter(Meter::simple(MeterId(0), unit, 1, burst))
            .flow(key("in_port(1),eth_type(0x0800)"), actions("meter(0),2"))
            .packets(1, vec![frame.clone(); 8]);
        let outcome = judge.play(&scenario);
        assert!(matches!(outcome, Outcome::Equal { packets: 8, frames } if frames == passes), "{words}: {outcome:?}");
    }
}
