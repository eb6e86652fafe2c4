//! Changes under traffic: every packet is under one rule, and counted once.

use std::env;
use std::sync::Arc;

use sluice_flow::Flow;
use sluice_offload_dv::switch::Switch;
use sluice_offload_dv::translate::Templates;
use sluice_tests::mlx5::on_device;
use sluice_tests::world::eventually;

use crate::frames::{Packet, UDP};
use crate::nic::{Nic, Sender, datagrams, until_counted};
use crate::rig::{Vport, flow, marker, open_switch};

/// Packets that are sent at least while rules are modified; `SLUICE_DV_PACKETS=1000000` has more sent.
const PACKETS: u64 = 10_000;
const MODIFICATIONS: usize = 10_000;
const DELETIONS: u16 = 10_000;

#[test]
fn no_packet_is_unmatched_and_none_is_counted_twice_while_rules_are_modified() {
    /// Rules that are modified in turns.
    const RULES: u16 = 500;
    on_device(
        "bluefield-3",
        "traffic::no_packet_is_unmatched_and_none_is_counted_twice_while_rules_are_modified",
        |ports| {
            let packets = env::var("SLUICE_DV_PACKETS").ok().and_then(|number| number.parse().ok()).unwrap_or(PACKETS);
            let mut nic = Nic::open();
            let handles = nic.add(RULES.into());
            let rules: Vec<_> = (0..u32::from(RULES)).zip(handles).collect();
            let sender = Sender::start(ports, datagrams(RULES));
            let mut turns = 0;
            while turns * rules.len() < MODIFICATIONS || sender.sent() < packets {
                nic.modify(&rules, if turns % 2 == 0 { "3" } else { "1" });
                turns += 1;
            }
            let sent = sender.end();
            println!("{} modifications, {sent} packets", turns * rules.len());
            until_counted(sent, || nic.read().iter().map(|(_, packets)| packets).sum());
            let unmatched = nic.read().into_iter().find(|(slot, _)| *slot == u32::from(RULES));
            assert_eq!(unmatched, Some((RULES.into(), 0)));
        },
    );
}

#[test]
fn the_counters_of_ten_thousand_deletions_under_traffic_are_all_packets() {
    on_device(
        "bluefield-3",
        "traffic::the_counters_of_ten_thousand_deletions_under_traffic_are_all_packets",
        |ports| {
            let mut nic = Nic::open();
            let handles = nic.add(DELETIONS.into());
            let rules: Vec<_> = (0..u32::from(DELETIONS)).zip(handles).collect();
            let sender = Sender::start(ports, datagrams(DELETIONS));
            eventually("every flow has had a packet", || sender.sent() > DELETIONS.into());
            let mut last: u64 = 0;
            for some in rules.chunks(1_000) {
                last += nic.remove(some).iter().map(|counters| counters.packets).sum::<u64>();
            }
            let sent = sender.end();
            println!("{sent} packets, {last} of them under rules that were deleted then");
            assert!(last > 0);
            until_counted(sent, || last + nic.read().iter().map(|(_, packets)| packets).sum::<u64>());
            assert_eq!(nic.read().len(), 1, "the one that takes the rest");
            // Their places are taken by others, which begin at zero.
            let again = nic.add(DELETIONS.into());
            let read = nic.read();
            assert_eq!(again.len(), usize::from(DELETIONS) + 1);
            assert_eq!(read.iter().filter(|(_, packets)| *packets > 0).count(), 1, "what took the rest before");
        },
    );
}

#[test]
fn a_matcher_with_many_rules_is_laid_out_anew_while_packets_pass() {
    const RULES: u16 = 5_000;
    const HIT: u16 = 500;
    on_device("bluefield-3", "traffic::a_matcher_with_many_rules_is_laid_out_anew_while_packets_pass", |ports| {
        let address = |number: u16| {
            let [high, low] = number.to_be_bytes();
            [2, 0, 0, 0, high, low]
        };
        let mut templates = Templates::new();
        let mut wanted = |number, to| {
            let [.., high, low] = address(number);
            // Not from a port: libmlx5 has no fixed layout for a mask with a source port.
            let flow = flow(&format!("eth(dst=02:00:00:00:{high:02x}:{low:02x}),eth_type(0x88b5)"), to);
            templates.instance(flow, &Vport).unwrap()
        };
        let mut switch = open_switch();
        let mut ids: Vec<_> = (0..HIT).map(|number| switch.install(wanted(number, "1")).unwrap()).collect();
        switch.sync().unwrap();
        let sender = Sender::start(ports, (0..HIT).map(|number| marker(address(number))).collect());
        ids.extend((HIT..RULES).map(|number| switch.install(wanted(number, "1")).unwrap()));
        assert!(switch.has_more_to_do() && switch.fixed_layouts() == 0);
        let mut turns = 0;
        while switch.has_more_to_do() {
            switch.go_on().unwrap();
            turns += 1;
            // Some that were moved, and some that were not, change on the way.
            let number = turns * 7 % HIT;
            switch.replace(ids[usize::from(number)], wanted(number, "3")).unwrap();
        }
        assert!(turns > 60 && switch.fixed_layouts() == 1, "{turns} turns");
        let sent = sender.end();
        until_counted(sent, || {
            let mut counted = 0;
            for bulk in 0..switch.bulks() {
                switch.read(bulk, &mut |_, count| counted += count.packets).unwrap();
            }
            counted
        });
        assert_eq!(switch.remove(&ids).unwrap().iter().map(|count| count.packets).sum::<u64>(), sent);
    });
}

#[test]
fn a_matcher_is_not_laid_out_anew_for_the_many_rules_of_one_that_is_gone() {
    const RULES: u16 = 4_100;
    on_device("bluefield-3", "traffic::a_matcher_is_not_laid_out_anew_for_the_many_rules_of_one_that_is_gone", |_| {
        let (mut switch, mut templates) = (open_switch(), Templates::new());
        let mut install = |switch: &mut Switch, key: String| {
            switch.install(templates.instance(flow(&key, "1"), &Vport).unwrap()).unwrap()
        };
        let many = |number: u16| {
            let [high, low] = number.to_be_bytes();
            format!("eth(dst=02:00:00:00:{high:02x}:{low:02x}),eth_type(0x88b5)")
        };
        let ids: Vec<_> = (0..RULES).map(|number| install(&mut switch, many(number))).collect();
        assert!(switch.has_more_to_do());
        for some in ids.chunks(1_000) {
            switch.remove(some).unwrap();
        }
        let one = install(&mut switch, "eth(src=02:00:00:00:00:01),eth_type(0x88b5)".to_owned());
        while switch.has_more_to_do() {
            switch.go_on().unwrap();
        }
        assert_eq!(switch.fixed_layouts(), 0);
        switch.remove(&[one]).unwrap();
    });
}

#[test]
fn packets_that_a_refused_flow_took_for_a_moment_are_not_counted_for_the_next_one() {
    const TIMES: usize = 200;
    on_device(
        "bluefield-3",
        "traffic::packets_that_a_refused_flow_took_for_a_moment_are_not_counted_for_the_next_one",
        |ports| {
            let (mut switch, mut templates) = (open_switch(), Templates::new());
            switch.set_vports(Arc::new(Vport));
            let mut add = |switch: &mut Switch, flow: Flow| {
                let id = switch.install(templates.instance(flow, &Vport)?)?;
                switch.sync().map(|()| id)
            };
            let leading = |ttl: u8, actions| {
                flow(&format!("recirc_id(0),in_port(2),eth(),eth_type(0x0800),ipv4(ttl={ttl},frag=no)"), actions)
            };
            // Packets come to the chain changed and unchanged.
            add(&mut switch, leading(64, "dec_ttl(le_1()),recirc(7)")).unwrap();
            add(&mut switch, leading(63, "recirc(7)")).unwrap();
            // It can be asked for if they are not changed.
            let refused = flow("recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(ttl=32/32,frag=no)", "1");
            let sender = Sender::start(ports, vec![Packet { ttl: 63, ..Packet::v4(UDP) }.frame()]);
            for _ in 0..TIMES {
                add(&mut switch, refused.clone()).unwrap_err();
                let next = add(&mut switch, flow("in_port(4),eth()", "1")).unwrap();
                assert_eq!(switch.remove(&[next]).unwrap()[0].packets, 0);
            }
            sender.end();
        },
    );
}
