//! Flows that look packets up again.

use crate::frames::{Packet, UDP};
use crate::rig::{Rig, flow};
use sluice_tests::mlx5::on_device;

#[test]
fn a_packet_goes_on_in_the_chain_that_it_is_sent_to() {
    on_device("bluefield-3", "chains::a_packet_goes_on_in_the_chain_that_it_is_sent_to", |ports| {
        let mut rig = Rig::open(ports);
        // The last chain first, as they come.
        let last = rig.add(&flow("recirc_id(0x7),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)", "1")).unwrap();
        let middle = rig.add(&flow("recirc_id(0x3),eth(),eth_type(0x0800),ipv4(frag=no)", "recirc(7)")).unwrap();
        let first =
            rig.add(&flow("recirc_id(0),in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)", "recirc(3)")).unwrap();
        let to = |to: u8| Packet { to, ..Packet::v4(UDP) }.frame();
        assert_eq!(rig.inject(2, &to(2)), [(1, to(2))]);
        // It misses in the last chain.
        assert_eq!(rig.inject(2, &to(3)), [(0, to(3))]);
        let counted = rig.switch.remove(&[first, middle, last]).unwrap();
        assert_eq!(counted.map_packets(), [2, 2, 1]);
    });
}

#[test]
fn a_jump_to_a_table_that_is_not_above_is_refused() {
    on_device("bluefield-3", "chains::a_jump_to_a_table_that_is_not_above_is_refused", |ports| {
        let mut rig = Rig::open(ports);
        let ip = |chain: u32| format!("recirc_id({chain:#x}),eth(),eth_type(0x0800),ipv4(frag=no)");
        let second = rig.add(&flow(&ip(2), "recirc(3)")).unwrap();
        let refusal = rig.add(&flow(&ip(3), "recirc(2)")).unwrap_err();
        assert_eq!(refusal.to_string(), "combination: the table of chain 0x2 is not below that of chain 0x3");
        rig.switch.remove(&[second]).unwrap();
        // Nothing keeps the tables where they were.
        rig.add(&flow(&ip(3), "recirc(2)")).unwrap();
    });
}

trait Packets {
    fn map_packets(&self) -> Vec<u64>;
}

impl Packets for Vec<sluice_offload_dv::switch::Count> {
    fn map_packets(&self) -> Vec<u64> {
        self.iter().map(|count| count.packets).collect()
    }
}
