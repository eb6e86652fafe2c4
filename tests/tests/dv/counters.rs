//! What rules count.

use crate::frames::{Packet, UDP};
use crate::rig::{Rig, flow};
use sluice_tests::mlx5::{on_device, with_options};

const KEY: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)";

#[test]
fn a_rule_that_is_replaced_goes_on_counting_and_no_packet_misses() {
    on_device("bluefield-2", "counters::a_rule_that_is_replaced_goes_on_counting_and_no_packet_misses", |ports| {
        let mut rig = Rig::open(ports);
        let frame = Packet::v4(UDP).frame();
        let id = rig.add(&flow(KEY, "1")).unwrap();
        assert_eq!(rig.inject(2, &frame), [(1, frame.clone())]);
        for (actions, port) in [("3", 3), ("4", 4), ("1", 1)] {
            rig.replace(id, &flow(KEY, actions)).unwrap();
            assert_eq!(rig.inject(2, &frame), [(port, frame.clone())]);
        }
        let mut read = vec![];
        assert_eq!(rig.switch.bulks(), 1);
        rig.switch.read(0, &mut |id, count| read.push((id, count.packets, count.bytes))).unwrap();
        assert!(read.contains(&(id, 4, 4 * frame.len() as u64)), "{read:?}");
        assert_eq!(rig.switch.remove(&[id]).unwrap()[0].packets, 4);
    });
}

#[test]
fn a_counter_that_another_rule_had_begins_at_zero() {
    on_device("bluefield-2", "counters::a_counter_that_another_rule_had_begins_at_zero", |ports| {
        let mut rig = Rig::open(ports);
        let frame = Packet::v4(UDP).frame();
        for packets in 1..=3 {
            let id = rig.add(&flow(KEY, "1")).unwrap();
            (0..packets).for_each(|_| assert_eq!(rig.inject(2, &frame).len(), 1));
            assert_eq!(rig.switch.remove(&[id]).unwrap()[0].packets, packets);
        }
    });
}

#[test]
fn more_rules_than_a_bulk_has_counters_count_each_their_own() {
    const RULES: u16 = 600;
    on_device("bluefield-2", "counters::more_rules_than_a_bulk_has_counters_count_each_their_own", |ports| {
        let mut rig = Rig::open(ports);
        let key = |port: u16| format!("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port})");
        let ids: Vec<_> = (0..RULES).map(|port| rig.add(&flow(&key(port), "1")).unwrap()).collect();
        for port in (0..RULES).step_by(7) {
            let frame = Packet { ports: [1, port], ..Packet::v4(UDP) }.frame();
            assert_eq!(rig.inject(2, &frame), [(1, frame)]);
        }
        let counted = rig.switch.remove(&ids).unwrap();
        for (port, count) in (0..RULES).zip(counted) {
            assert_eq!(count.packets, u64::from(port % 7 == 0), "port {port}");
        }
    });
}

#[test]
fn a_block_of_counters_is_a_power_of_two_also_after_there_was_less_room_than_wanted() {
    /// ALLOC_FLOW_COUNTER.
    const ALLOC: &str = "0x939";
    let name = "counters::a_block_of_counters_is_a_power_of_two_also_after_there_was_less_room_than_wanted";
    with_options("bluefield-2", &[], &["had status 0x8", "refused with"], name, |ports| {
        let mut rig = Rig::open(ports);
        let key = |number: u32| {
            format!("in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.{}.{}.1,frag=no)", number >> 8, number & 0xff)
        };
        let mut numbers = 0..;
        let mut sizes = Vec::new();
        for _ in 0..5 {
            if sizes.len() == 2 {
                // Of 2,048 counters.
                ports.control().ask(&format!("refuse {ALLOC} 0 1 0x8 0x1234"));
            }
            let bulks = rig.switch.bulks();
            while rig.switch.bulks() == bulks {
                rig.put(&flow(&key(numbers.next().unwrap()), "1")).unwrap();
            }
            sizes.push(rig.switch.size_of(bulks));
        }
        assert_eq!(sizes, [512, 1024, 1024, 2048, 4096]);
    });
}
