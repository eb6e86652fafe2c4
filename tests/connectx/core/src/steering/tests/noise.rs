//! Bytes of any kind: nothing panics, and nothing that was refused, or taken down again, leaves anything behind.

use super::device::*;
use crate::packet::sample::{tcp_frame, vxlan_frame};
use crate::steering::layout::{self, bytes, opcode};
use crate::steering::{Port, fields as f};

/// SplitMix64: the same numbers at every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }

    /// Turns some bytes of a valid input or frame into others, and sometimes cuts it.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(6) {
            let at = self.below(bytes.len());
            bytes[at] = self.next().to_be_bytes()[0];
        }
        if self.below(8) == 0 {
            bytes.truncate(self.below(bytes.len()).max(1));
        }
    }
}

fn steering_opcodes() -> impl Iterator<Item = u16> {
    (0x827..=0x828).chain(0x92f..=0x942)
}

#[test]
fn inputs_of_noise_are_refused_or_taken_and_never_panic() {
    let mut noise = Noise(1);
    let mut device = Device::new();
    let opcodes: Vec<u16> = steering_opcodes().collect();
    for _ in 0..10_000 {
        let length = 2 + noise.below(1100);
        let mut input = noise.bytes(length);
        let _ = device.command(opcodes[noise.below(opcodes.len())], &mut input);
    }
}

#[test]
fn frames_of_noise_are_walked_to_an_end() {
    let mut noise = Noise(2);
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
    let every_field =
        [set(0x15, 0, 0, 1), add(0x0a, 255), set(0x17, 0, 12, 5), set(0x46, 0, 0, 3), set(0x08, 0, 16, 5)];
    let modify_header = device.modify_header(FDB, &every_field).unwrap();
    let on = device.reformat(4, 0, 0, Ok(&vxlan_frame()[..50])).unwrap();
    let matches = &[(f::VXLAN_VNI, 42)];
    let decap =
        Wanted { matches, actions: DECAP | FORWARD | MODIFY_HEADER, modify_header, ..forward(To::Table(second)) };
    device.rule(first, 0, decap);
    let pop = Wanted { matches: &[(f::CVLAN_TAG, 1)], actions: POP_VLAN | FORWARD, ..forward(To::Table(second)) };
    device.rule(first, 1, pop);
    device.rule(first, 2, forward(To::Table(second)));
    let last =
        Wanted { actions: FORWARD | REFORMAT | MODIFY_HEADER, modify_header, reformat: on, ..forward(To::Uplink) };
    device.rule(second, 0, last);
    let mut reached = 0;
    for round in 0..6_000 {
        let mut frame = match round % 3 {
            0 => tcp_frame(),
            1 => vxlan_frame(),
            _ => {
                let length = noise.below(200);
                noise.bytes(length)
            }
        };
        if round % 3 != 2 {
            noise.damage(&mut frame);
        }
        let walk = device.0.receive(Port::Vport(1), &frame);
        assert!(walk.steps.len() > 1);
        reached += walk.sent.len();
    }
    assert!(reached > 500, "{reached}");
}

/// Damaged commands against a device whose objects exist, so that many are taken; then everything is taken down by its own commands.
#[test]
fn whatever_was_taken_can_be_taken_down_and_leaves_nothing() {
    let mut taken = 0;
    for seed in 10..26 {
        let mut noise = Noise(seed);
        let mut device = Device::new();
        device.0.add_tir(1);
        let mut made = Vec::new();
        let tables = [device.table(FDB, 0), device.table(FDB, 1), device.table(NIC_RX, 0)];
        for _ in 0..400 {
            let (opcode, mut input) = likely(&mut noise, &mut device, &tables);
            noise.damage(&mut input);
            input.resize(input.len().max(2), 0);
            if let Ok(output) = device.command(opcode, &mut input) {
                taken += 1;
                made.push((opcode, layout::OUT_ID.u32(&output)));
            }
            device.0.receive(Port::Wire, &tcp_frame());
        }
        take_down(&mut device, &made);
        assert_eq!(device.0.objects_left(), 0, "seed {seed}\n{}", device.0.dump());
    }
    assert!(taken > 1_500, "{taken}");
}

/// A command that would be right but for damage.
fn likely(noise: &mut Noise, device: &mut Device, tables: &[TableRef]) -> (u16, Vec<u8>) {
    let table = tables[noise.below(tables.len())];
    let index = u32::try_from(noise.below(64)).unwrap();
    let id = u32::try_from(noise.below(8)).unwrap();
    let short = || vec![0; layout::SHORT_OUTPUT];
    match noise.below(10) {
        0 => (opcode::CREATE_FLOW_TABLE, named(TableRef { id: 0, ..table }, bytes::TABLE_COMMAND)),
        1 => {
            let mut input = named(table, bytes::GROUP_COMMAND);
            layout::START_INDEX.put(&mut input, index);
            layout::END_INDEX.put(&mut input, index + 3);
            (opcode::CREATE_FLOW_GROUP, input)
        }
        2 => {
            let mut input = short();
            layout::COUNTER_BULK.put(&mut input, id & 1);
            (opcode::ALLOC_FLOW_COUNTER, input)
        }
        3 => {
            let mut input = named(table, bytes::TABLE_COMMAND);
            layout::FLOW_INDEX.put(&mut input, index);
            (opcode::DELETE_FLOW_TABLE_ENTRY, input)
        }
        4 => {
            let mut input = short();
            layout::REWRITE_TABLE_TYPE.put(&mut input, table.kind);
            layout::REWRITE_ACTIONS.put(&mut input, 1);
            input.extend(set(0x51, 0, 0, 1).iter().flat_map(|word| word.to_be_bytes()));
            (opcode::ALLOC_MODIFY_HEADER_CONTEXT, input)
        }
        5 => (opcode::DEALLOC_FLOW_COUNTER, {
            let mut input = short();
            layout::IN_ID.put(&mut input, id);
            input
        }),
        6 => (opcode::SET_FLOW_TABLE_ROOT, named(table, bytes::TABLE_COMMAND)),
        _ => {
            let groups: Vec<(u32, u32)> = device
                .0
                .tables
                .get(table.id)
                .map(|table| table.groups.values().map(|group| (group.id, group.first)).collect())
                .unwrap_or_default();
            let (group, first) = if groups.is_empty() { (id, 0) } else { groups[noise.below(groups.len())] };
            let to = if table.kind == NIC_RX { To::Tir(1) } else { To::Vport(2) };
            let counted = device.0.counter(4).is_some();
            let wanted = Wanted {
                index: first + index % 4,
                actions: FORWARD | if counted { COUNT } else { 0 },
                counters: if counted { vec![4] } else { vec![] },
                ..forward(to)
            };
            let mut input = wanted.input(table, group);
            let there = device.0.tables.get(table.id).is_some_and(|table| table.entry(wanted.index).is_some());
            layout::OP_MOD.put(&mut input, there.into());
            layout::MODIFY_ENABLE.put(&mut input, if there { 0xd } else { 0 });
            (opcode::SET_FLOW_TABLE_ENTRY, input)
        }
    }
}

fn take_down(device: &mut Device, made: &[(u16, u32)]) {
    let kinds = [NIC_RX, NIC_TX, EGRESS_ACL, INGRESS_ACL, FDB];
    let tables: Vec<(TableRef, Vec<u32>, Vec<u32>)> = device
        .0
        .tables
        .iter()
        .map(|(id, table)| {
            let kind = kinds[table.domain.kind as usize];
            let vport = (kind != FDB).then_some(table.domain.vport);
            let groups = table.groups.values().map(|group| group.id).collect();
            (TableRef { kind, id, vport }, table.entries().map(|entry| entry.index).collect(), groups)
        })
        .collect();
    for (table, entries, groups) in &tables {
        entries.iter().for_each(|index| drop(device.delete_entry(*table, *index).unwrap()));
        groups.iter().for_each(|group| drop(device.destroy_group(*table, *group).unwrap()));
    }
    // Tables that others lead to by their misses go after those.
    let mut left: Vec<TableRef> = tables.into_iter().map(|(table, ..)| table).collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|table| device.destroy_table(*table).is_err());
        assert!(left.len() < before, "{left:?}");
    }
    for (made, id) in made {
        let dealloc = match *made {
            opcode::ALLOC_FLOW_COUNTER => opcode::DEALLOC_FLOW_COUNTER,
            opcode::ALLOC_MODIFY_HEADER_CONTEXT => opcode::DEALLOC_MODIFY_HEADER_CONTEXT,
            opcode::ALLOC_PACKET_REFORMAT_CONTEXT => opcode::DEALLOC_PACKET_REFORMAT_CONTEXT,
            _ => continue,
        };
        // The noise may have freed it already.
        let _ = device.dealloc(dealloc, *id);
    }
}
