//! Flows that look packets up again.

use crate::frames::{Packet, UDP};
use crate::nic::{Sender, datagrams, until_counted};
use crate::rig::{Rig, Vport, flow, open_switch};
use sluice_offload_dv::switch::Switch;
use sluice_offload_dv::translate::Templates;
use sluice_tests::mlx5::on_device;
use sluice_tests::world::eventually;

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
fn a_chain_that_leads_back_is_refused() {
    on_device("bluefield-3", "chains::a_chain_that_leads_back_is_refused", |ports| {
        let mut rig = Rig::open(ports);
        let ip = |chain: u32| format!("recirc_id({chain:#x}),eth(),eth_type(0x0800),ipv4(frag=no)");
        let second = rig.add(&flow(&ip(2), "recirc(3)")).unwrap();
        let refusal = rig.add(&flow(&ip(3), "recirc(2)")).unwrap_err();
        assert_eq!(refusal.to_string(), "combination: chain 0x2 leads to chain 0x3 already");
        rig.switch.remove(&[second]).unwrap();
        // Nothing keeps the tables where they were.
        rig.add(&flow(&ip(3), "recirc(2)")).unwrap();
    });
}

#[test]
fn chains_come_to_lower_levels_when_others_follow_them() {
    /// One behind the other, as many as there are levels for, besides the first.
    const DEPTH: u32 = 47;
    on_device("bluefield-3", "chains::chains_come_to_lower_levels_when_others_follow_them", |ports| {
        let mut rig = Rig::open(ports);
        let key = |chain: u32, to: u32| {
            format!("recirc_id({chain:#x}),in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.0.0.{to},frag=no)")
        };
        let frame = Packet::v4(UDP).frame();
        let mut ids = vec![rig.add(&flow(&key(0, 2), "recirc(1)")).unwrap()];
        for chain in 1..DEPTH {
            // It has rules by now, and others lead to it.
            ids.push(rig.add(&flow(&key(chain, 3), "3")).unwrap());
            ids.push(rig.add(&flow(&key(chain, 2), &format!("recirc({})", chain + 1))).unwrap());
            assert_eq!(rig.inject(2, &frame), [(0, frame.clone())]);
        }
        ids.push(rig.add(&flow(&key(DEPTH, 2), "1")).unwrap());
        assert_eq!(rig.inject(2, &frame), [(1, frame.clone())]);
        let refusal = rig.add(&flow(&key(DEPTH, 3), "recirc(99)")).unwrap_err().to_string();
        let reason = "more chains lead to chain 0x63, one behind the other, than the device has levels";
        assert_eq!(refusal, format!("combination: {reason}"));
        let refusal = rig.add(&flow(&key(DEPTH, 3), "recirc(7)")).unwrap_err().to_string();
        assert_eq!(refusal, "combination: chain 0x7 leads to chain 0x2f already");
        // Nothing has changed.
        assert_eq!(rig.inject(2, &frame), [(1, frame.clone())]);
        let counts = rig.switch.remove(&ids).unwrap().map_packets();
        // One was sent after each chain but the last, and two after that.
        assert_eq!(counts[0], u64::from(DEPTH + 1));
        for chain in 1..DEPTH {
            let at = (chain * 2 - 1) as usize;
            assert_eq!(counts[at..at + 2], [0, u64::from(DEPTH - chain + 2)], "chain {chain}");
        }
    });
}

#[test]
fn no_packet_is_lost_while_a_chain_comes_to_another_level() {
    const RULES: u16 = 200;
    on_device("bluefield-3", "chains::no_packet_is_lost_while_a_chain_comes_to_another_level", |ports| {
        // Nobody takes what comes out: the ends of the wires have room for little.
        let mut switch = open_switch();
        let mut templates = Templates::new();
        let mut put = |switch: &mut Switch, key: &str, actions: &str| {
            switch.install(templates.instance(flow(key, actions), &Vport).unwrap()).unwrap()
        };
        let lead = put(&mut switch, "recirc_id(0),in_port(2),eth()", "recirc(1)");
        let key = |number| {
            format!("recirc_id(0x1),in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={number})")
        };
        let mut ids: Vec<_> = (0..RULES).map(|number| put(&mut switch, &key(number), "1")).collect();
        switch.sync().unwrap();
        let sender = Sender::start(ports, datagrams(RULES));
        eventually("packets pass", || sender.sent() > 100);
        // Each is one more behind the last.
        for chain in 1..20 {
            let key = format!("recirc_id({chain:#x}),in_port(2),eth(),eth_type(0x0806)");
            ids.push(put(&mut switch, &key, &format!("recirc({})", chain + 1)));
        }
        let sent = sender.end();
        let mut counted = 0;
        until_counted(sent, || {
            counted = 0;
            for bulk in 0..switch.bulks() {
                switch.read(bulk, &mut |id, count| counted += if id == lead { 0 } else { count.packets }).unwrap();
            }
            counted
        });
        let counts = switch.remove(&[lead]).unwrap().map_packets();
        assert_eq!((counts[0], counted), (sent, sent));
        switch.remove(&ids).unwrap();
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
