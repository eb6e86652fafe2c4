//! Commands for tests, built from the layouts.

use crate::packet::sample;
use crate::steering::bits::Bits;
use crate::steering::fields::{self as f, MATCH_BYTES};
use crate::steering::layout::{self, bytes, flow_context as context, opcode, rewrite};
use crate::steering::{Count, Failure, Port, Profile, Steering, Walk};

pub(super) const NIC_RX: u32 = 0;
pub(super) const NIC_TX: u32 = 1;
pub(super) const EGRESS_ACL: u32 = 2;
pub(super) const INGRESS_ACL: u32 = 3;
pub(super) const FDB: u32 = 4;

pub(super) const ALLOW: u32 = 0x1;
pub(super) const DROP: u32 = 0x2;
pub(super) const FORWARD: u32 = 0x4;
pub(super) const COUNT: u32 = 0x8;
pub(super) const REFORMAT: u32 = 0x10;
pub(super) const DECAP: u32 = 0x20;
pub(super) const MODIFY_HEADER: u32 = 0x40;
pub(super) const POP_VLAN: u32 = 0x80;
pub(super) const PUSH_VLAN: u32 = 0x100;
pub(super) const POP_VLAN_2: u32 = 0x400;
pub(super) const PUSH_VLAN_2: u32 = 0x800;

/// The embedded CPU's vport, which owns the switch.
pub(super) const MANAGER: u16 = 0xfffe;

/// A BlueField as its own CPU sees it, with the host's PF and two VFs.
pub(super) struct Device(pub(super) Steering);

/// A table as commands name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableRef {
    pub(super) kind: u32,
    pub(super) id: u32,
    pub(super) vport: Option<u16>,
}

/// Fields with values; as a mask, all of each field.
pub(super) type Match<'a> = &'a [(Bits, u32)];

/// TCP over IPv4 from [`sample::tcp_frame`].
pub(super) const IS_TCP: Match<'static> = &[(f::IP_VERSION, 4), (f::IP_PROTOCOL, 6)];

/// One destination of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum To {
    Vport(u16),
    Table(TableRef),
    Tir(u32),
    Sampler(u32),
    Uplink,
}

/// An entry to set.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted<'a> {
    pub(super) index: u32,
    pub(super) matches: Match<'a>,
    pub(super) actions: u32,
    pub(super) to: Vec<To>,
    /// For each destination, a packet reformat context of its own.
    pub(super) reformats_to: Vec<Option<u32>>,
    pub(super) counters: Vec<u32>,
    pub(super) flow_source: u32,
    pub(super) tag: u32,
    pub(super) ignore_level: bool,
    pub(super) modify_header: u32,
    pub(super) reformat: u32,
    pub(super) vlans: [u32; 2],
}

pub(super) fn forward(to: To) -> Wanted<'static> {
    Wanted { actions: FORWARD, to: vec![to], ..Wanted::default() }
}

impl Device {
    pub(super) fn new() -> Self {
        Self::with(Profile { manager: MANAGER, ..Profile::default() })
    }

    pub(super) fn with(profile: Profile) -> Self {
        let mut steering = Steering::new(profile);
        (0..3).for_each(|vport| steering.add_vport(vport));
        Self(steering)
    }

    pub(super) fn command(&mut self, opcode: u16, input: &mut [u8]) -> Result<Vec<u8>, Failure> {
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        self.0.command(opcode, 0, input)
    }

    pub(super) fn create(&mut self, opcode: u16, input: &mut [u8]) -> Result<u32, Failure> {
        self.command(opcode, input).map(|output| {
            assert_eq!(output[..8], [0; 8]);
            layout::OUT_ID.u32(&output)
        })
    }

    pub(super) fn try_table(
        &mut self,
        kind: u32,
        vport: Option<u16>,
        level: u32,
        more: &[(Bits, u32)],
    ) -> Result<TableRef, Failure> {
        let mut input = named(TableRef { kind, id: 0, vport }, bytes::TABLE_COMMAND);
        layout::LEVEL.put(&mut input, level);
        layout::LOG_SIZE.put(&mut input, 10);
        layout::REFORMAT_ENABLED.put(&mut input, 1);
        layout::DECAP_ENABLED.put(&mut input, 1);
        more.iter().for_each(|(field, value)| field.put(&mut input, *value));
        let id = self.create(opcode::CREATE_FLOW_TABLE, &mut input)?;
        Ok(TableRef { kind, id, vport })
    }

    pub(super) fn table(&mut self, kind: u32, level: u32) -> TableRef {
        let vport = matches!(kind, EGRESS_ACL | INGRESS_ACL).then_some(1);
        self.try_table(kind, vport, level, &[]).unwrap()
    }

    pub(super) fn acl(&mut self, kind: u32, vport: u16) -> TableRef {
        self.try_table(kind, Some(vport), 0, &[]).unwrap()
    }

    pub(super) fn try_group(
        &mut self,
        table: TableRef,
        indexes: std::ops::RangeInclusive<u32>,
        mask: Match<'_>,
    ) -> Result<u32, Failure> {
        let mut input = named(table, bytes::GROUP_COMMAND);
        layout::START_INDEX.put(&mut input, *indexes.start());
        layout::END_INDEX.put(&mut input, *indexes.end());
        let mut enable = 0;
        for (field, _) in mask {
            field.after(bytes::GROUP_CRITERIA).put(&mut input, u32::MAX);
            // Only the low 32 bits of an address, as a driver does for IPv4.
            enable |= 1 << (field.at / 512);
        }
        layout::MATCH_CRITERIA_ENABLE.put(&mut input, enable);
        self.create(opcode::CREATE_FLOW_GROUP, &mut input)
    }

    pub(super) fn group(&mut self, table: TableRef, indexes: std::ops::RangeInclusive<u32>, mask: Match<'_>) -> u32 {
        self.try_group(table, indexes, mask).unwrap()
    }

    pub(super) fn try_set(&mut self, table: TableRef, group: u32, wanted: &Wanted<'_>) -> Result<Vec<u8>, Failure> {
        let mut input = wanted.input(table, group);
        self.command(opcode::SET_FLOW_TABLE_ENTRY, &mut input)
    }

    pub(super) fn set(&mut self, table: TableRef, group: u32, wanted: &Wanted<'_>) {
        self.try_set(table, group, wanted).unwrap();
    }

    /// A group of one entry in a table, for what matches.
    pub(super) fn rule(&mut self, table: TableRef, index: u32, wanted: Wanted<'_>) -> u32 {
        let group = self.group(table, index..=index, wanted.matches);
        self.set(table, group, &Wanted { index, ..wanted });
        group
    }

    pub(super) fn delete_entry(&mut self, table: TableRef, index: u32) -> Result<Vec<u8>, Failure> {
        let mut input = named(table, bytes::TABLE_COMMAND);
        layout::FLOW_INDEX.put(&mut input, index);
        self.command(opcode::DELETE_FLOW_TABLE_ENTRY, &mut input)
    }

    pub(super) fn destroy_group(&mut self, table: TableRef, group: u32) -> Result<Vec<u8>, Failure> {
        let mut input = named(table, bytes::TABLE_COMMAND);
        layout::GROUP_ID.put(&mut input, group);
        self.command(opcode::DESTROY_FLOW_GROUP, &mut input)
    }

    pub(super) fn destroy_table(&mut self, table: TableRef) -> Result<Vec<u8>, Failure> {
        self.command(opcode::DESTROY_FLOW_TABLE, &mut named(table, bytes::TABLE_COMMAND))
    }

    pub(super) fn set_root(&mut self, table: TableRef) {
        self.command(opcode::SET_FLOW_TABLE_ROOT, &mut named(table, bytes::TABLE_COMMAND)).unwrap();
    }

    pub(super) fn counters(&mut self, bulk: u32) -> Result<u32, Failure> {
        let mut input = vec![0; layout::SHORT_OUTPUT];
        layout::COUNTER_BULK.put(&mut input, bulk);
        self.create(opcode::ALLOC_FLOW_COUNTER, &mut input)
    }

    pub(super) fn query_counters(&mut self, first: u32, number: u32, clear: bool) -> Result<Vec<Count>, Failure> {
        let mut input = vec![0; bytes::QUERY_COUNTER];
        layout::COUNTER_ID.put(&mut input, first);
        layout::COUNTER_NUMBER.put(&mut input, number);
        layout::COUNTER_CLEAR.put(&mut input, clear.into());
        let output = self.command(opcode::QUERY_FLOW_COUNTER, &mut input)?;
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        Ok(output[layout::SHORT_OUTPUT..]
            .chunks(16)
            .map(|count| Count { packets: number(&count[..8]), bytes: number(&count[8..]) })
            .collect())
    }

    pub(super) fn modify_header(&mut self, kind: u32, actions: &[[u32; 2]]) -> Result<u32, Failure> {
        let mut input = vec![0; bytes::REWRITE_LIST];
        layout::REWRITE_TABLE_TYPE.put(&mut input, kind);
        layout::REWRITE_ACTIONS.put(&mut input, u32::try_from(actions.len()).unwrap());
        input.extend(actions.iter().flatten().flat_map(|word| word.to_be_bytes()));
        self.create(opcode::ALLOC_MODIFY_HEADER_CONTEXT, &mut input)
    }

    pub(super) fn reformat(
        &mut self,
        kind: u32,
        anchor: u32,
        offset: u32,
        data: Result<&[u8], u32>,
    ) -> Result<u32, Failure> {
        let mut input = vec![0; bytes::REFORMAT_DATA];
        layout::REFORMAT_TYPE.put(&mut input, kind);
        layout::REFORMAT_ANCHOR.put(&mut input, anchor);
        layout::REFORMAT_OFFSET.put(&mut input, offset);
        match data {
            Ok(data) => {
                layout::REFORMAT_SIZE.put(&mut input, u32::try_from(data.len()).unwrap());
                input.extend(data);
            }
            Err(size) => layout::REFORMAT_SIZE.put(&mut input, size),
        }
        input.resize(input.len().max(0x24), 0);
        self.create(opcode::ALLOC_PACKET_REFORMAT_CONTEXT, &mut input)
    }

    pub(super) fn dealloc(&mut self, opcode: u16, id: u32) -> Result<Vec<u8>, Failure> {
        let mut input = vec![0; layout::SHORT_OUTPUT];
        layout::IN_ID.put(&mut input, id);
        self.command(opcode, &mut input)
    }

    /// One frame from a port, and where copies of which length came out; the whole walk is printed if the test fails.
    pub(super) fn receive(&mut self, from: Port, frame: &[u8]) -> Walk {
        let walk = self.0.receive(from, frame);
        println!("{walk}");
        walk
    }

    /// Ports that [`sample::tcp_frame`] leaves by.
    pub(super) fn ports(&mut self, from: Port) -> Vec<Port> {
        self.receive(from, &sample::tcp_frame()).sent.into_iter().map(|(port, _)| port).collect()
    }
}

impl Wanted<'_> {
    pub(super) fn input(&self, table: TableRef, group: u32) -> Vec<u8> {
        let mut input = named(table, bytes::FLOW_CONTEXT + context::LIST);
        layout::FLOW_INDEX.put(&mut input, self.index);
        layout::IGNORE_FLOW_LEVEL.put(&mut input, self.ignore_level.into());
        let flow = &mut input[bytes::FLOW_CONTEXT..];
        let extended = !self.reformats_to.is_empty();
        for (field, value) in [
            (context::GROUP_ID, group),
            (context::ACTION, self.actions),
            (context::FLOW_TAG, self.tag),
            (context::FLOW_SOURCE, self.flow_source),
            (context::EXTENDED_DESTINATION, extended.into()),
            (context::DESTINATIONS, u32::try_from(self.to.len()).unwrap()),
            (context::COUNTERS, u32::try_from(self.counters.len()).unwrap()),
            (context::REFORMAT_ID, self.reformat),
            (context::MODIFY_HEADER_ID, self.modify_header),
            (context::PUSH_VLAN, self.vlans[0]),
            (context::PUSH_VLAN_2, self.vlans[1]),
        ] {
            field.put(flow, value);
        }
        for (field, value) in self.matches {
            field.after(context::MATCH_VALUE).put(&mut flow[..context::MATCH_VALUE + MATCH_BYTES], *value);
        }
        let size = if extended { context::EXTENDED_ELEMENT } else { context::ELEMENT };
        for (place, to) in self.to.iter().enumerate() {
            let mut element = vec![0; size];
            let (kind, id) = match *to {
                To::Vport(number) => (0, number.into()),
                To::Table(table) => (1, table.id),
                To::Tir(tir) => (2, tir),
                To::Sampler(sampler) => (6, sampler),
                To::Uplink => (8, 0),
            };
            context::DESTINATION_TYPE.put(&mut element, kind);
            context::DESTINATION_ID.put(&mut element, id);
            if let Some(reformat) = self.reformats_to.get(place).copied().flatten() {
                context::DESTINATION_REFORMAT.put(&mut element, 1);
                context::DESTINATION_REFORMAT_ID.put(&mut element, reformat);
            }
            input.extend(element);
        }
        for counter in &self.counters {
            let mut element = vec![0; size];
            context::COUNTER_ID.put(&mut element, *counter);
            input.extend(element);
        }
        input
    }
}

/// The beginning of a command on a table.
pub(super) fn named(table: TableRef, bytes: usize) -> Vec<u8> {
    let mut input = vec![0; bytes];
    layout::TABLE_TYPE.put(&mut input, table.kind);
    layout::TABLE_ID.put(&mut input, table.id);
    if let Some(vport) = table.vport {
        layout::OTHER_VPORT.put(&mut input, 1);
        layout::VPORT_NUMBER.put(&mut input, vport.into());
    }
    input
}

pub(super) fn set(field: u32, offset: u32, length: u32, data: u32) -> [u32; 2] {
    [rewrite_word(1, field, offset, length), data]
}

pub(super) fn add(field: u32, data: u32) -> [u32; 2] {
    [rewrite_word(2, field, 0, 0), data]
}

pub(super) fn copy(from: (u32, u32), to: (u32, u32), length: u32) -> [u32; 2] {
    let mut second = vec![0; rewrite::ELEMENT];
    rewrite::DESTINATION_FIELD.put(&mut second, to.0);
    rewrite::DESTINATION_OFFSET.put(&mut second, to.1);
    [rewrite_word(3, from.0, from.1, length), Bits::new(32, 32).u32(&second)]
}

fn rewrite_word(kind: u32, field: u32, offset: u32, length: u32) -> u32 {
    let mut word = vec![0; 4];
    rewrite::ACTION_TYPE.put(&mut word, kind);
    rewrite::FIELD.put(&mut word, field);
    rewrite::OFFSET.put(&mut word, offset);
    rewrite::LENGTH.put(&mut word, length);
    Bits::new(0, 32).u32(&word)
}
