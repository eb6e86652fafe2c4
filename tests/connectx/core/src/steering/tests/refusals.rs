use super::device::*;
use crate::packet::sample::tcp_frame;
use crate::steering::bits::Bits;
use crate::steering::layout::{self, bytes, flow_context as context, opcode};
use crate::steering::{Count, Failure, Port, Profile, Steering, Telling, fields as f, status};

/// That a command is refused with a status, for a reason that says this.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Failure>, status: u8, reason: &str) {
    let failure = result.unwrap_err();
    assert!(failure.status == status && failure.reason.contains(reason), "{failure}");
}

/// Changes one field of the entry part of a command.
fn with(mut input: Vec<u8>, field: Bits, value: u32) -> Vec<u8> {
    field.after(bytes::FLOW_CONTEXT).put(&mut input, value);
    input
}

#[test]
fn a_table_is_refused_for_type_level_and_size() {
    let mut device = Device::with(Profile { max_level: 63, ..Profile::default() });
    refused(device.try_table(9, None, 0, &[]), status::BAD_PARAMETER, "table type 0x9");
    refused(device.try_table(FDB, None, 64, &[]), status::EXCEEDS_LIMIT, "level 64");
    refused(device.try_table(FDB, None, 0, &[(layout::LOG_SIZE, 25)]), status::EXCEEDS_LIMIT, "log_size 25");
    refused(device.try_table(FDB, None, 0, &[(layout::SOFTWARE_OWNER, 1)]), status::BAD_PARAMETER, "sw_owner");
    refused(device.try_table(EGRESS_ACL, Some(7), 0, &[]), status::BAD_RESOURCE, "vport 0x7");
    refused(device.try_table(FDB, None, 0, &[(layout::MISS_ACTION, 2)]), status::BAD_PARAMETER, "table_miss_action");
    assert_eq!(device.0.objects_left(), 0);
}

#[test]
fn a_device_with_room_for_two_tables_has_no_third() {
    let mut device = Device::with(Profile { tables: 2, counters: 130, ..Profile::default() });
    device.table(FDB, 0);
    let second = device.table(FDB, 1);
    refused(device.try_table(FDB, None, 2, &[]), status::EXCEEDS_LIMIT, "room for 2");
    device.destroy_table(second).unwrap();
    device.table(FDB, 1);
    device.counters(1).unwrap();
    refused(device.counters(1), status::EXCEEDS_LIMIT, "room for 130");
}

#[test]
fn a_switch_with_room_for_two_entries_has_no_third_and_acls_do_not_matter() {
    let mut device = Device::new();
    let (table, acl) = (device.table(FDB, 0), device.acl(INGRESS_ACL, 1));
    device.0.limit(2, 0);
    let wanted = |index| Wanted { index, ..forward(To::Vport(1)) };
    let group = device.group(table, 0..=9, &[]);
    device.set(table, group, &wanted(0));
    device.set(table, group, &wanted(1));
    refused(device.try_set(table, group, &wanted(2)), status::EXCEEDS_LIMIT, "room for 2 of entries of the switch");
    device.rule(acl, 0, Wanted { actions: ALLOW, ..Wanted::default() });
    device.delete_entry(table, 0).unwrap();
    device.set(table, group, &wanted(2));
    refused(device.counters(0), status::EXCEEDS_LIMIT, "room for 0 of flow counter");
}

#[test]
fn counters_that_are_told_wrong_count_on() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let counters = [device.counters(0).unwrap(), device.counters(0).unwrap()];
    device.rule(table, 0, Wanted { actions: DROP | COUNT, counters: vec![counters[0]], ..Wanted::default() });
    let told = |device: &mut Device| counters.map(|id| device.query_counters(id, 0, false).unwrap()[0].packets);
    let count = |packets| Count { packets, bytes: 60 * packets };
    for _ in 0..5 {
        device.receive(Port::Wire, &tcp_frame());
    }
    device.0.tell_counters(Telling::Standing);
    device.receive(Port::Wire, &tcp_frame());
    assert_eq!(told(&mut device), [5, 0]);
    device.0.tell_counters(Telling::Behind(count(4)));
    assert_eq!(told(&mut device), [2, 0]);
    device.0.tell_counters(Telling::Behind(count(10)));
    assert_eq!(told(&mut device), [0, 0]);
    device.0.tell_counters(Telling::Ahead(count(10)));
    assert_eq!(told(&mut device), [16, 0]);
    device.0.tell_counters(Telling::True);
    assert_eq!(told(&mut device), [6, 0]);
}

#[test]
fn a_miss_may_not_lead_down_nor_to_another_kind() {
    let mut device = Device::new();
    let table = device.table(FDB, 3);
    let receive = device.table(NIC_RX, 9);
    let to = |id| [(layout::MISS_ACTION, 1), (layout::MISS_TABLE, id)];
    refused(device.try_table(FDB, None, 3, &to(table.id)), status::BAD_PARAMETER, "level 3");
    refused(device.try_table(FDB, None, 0, &to(receive.id)), status::BAD_PARAMETER, "NIC RX");
    refused(device.try_table(FDB, None, 0, &to(0x99)), status::BAD_RESOURCE, "table 0x99");
}

#[test]
fn commands_must_name_a_table_by_its_own_type_and_vport() {
    let mut device = Device::new();
    let acl = device.acl(INGRESS_ACL, 1);
    refused(
        device.destroy_table(TableRef { kind: EGRESS_ACL, ..acl }),
        status::BAD_PARAMETER,
        "ingress ACL of vport 1",
    );
    refused(device.destroy_table(TableRef { vport: Some(2), ..acl }), status::BAD_PARAMETER, "ingress ACL of vport 2");
    refused(device.destroy_table(TableRef { id: 77, ..acl }), status::BAD_RESOURCE, "0x4d");
    device.destroy_table(acl).unwrap();
    refused(device.destroy_table(acl), status::BAD_RESOURCE, "does not exist");
}

#[test]
fn what_holds_something_or_is_used_stays() {
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 0), device.table(FDB, 1));
    let counter = device.counters(0).unwrap();
    let context = device.modify_header(FDB, &[set(0x51, 0, 0, 1)]).unwrap();
    let reformat = device.reformat(2, 0, 0, Ok(&tcp_frame())).unwrap();
    let wanted = Wanted {
        actions: FORWARD | COUNT | MODIFY_HEADER | REFORMAT,
        counters: vec![counter],
        modify_header: context,
        reformat,
        ..forward(To::Table(second))
    };
    let group = device.rule(first, 0, wanted);
    let in_use = status::BAD_RESOURCE_STATE;
    refused(device.destroy_table(first), in_use, "1 groups");
    refused(device.destroy_group(first, group), in_use, "1 entries");
    refused(device.destroy_table(second), in_use, "used 1 times");
    refused(device.dealloc(opcode::DEALLOC_FLOW_COUNTER, counter), in_use, "used 1 times");
    refused(device.dealloc(opcode::DEALLOC_MODIFY_HEADER_CONTEXT, context), in_use, "used 1 times");
    refused(device.dealloc(opcode::DEALLOC_PACKET_REFORMAT_CONTEXT, reformat), in_use, "used 1 times");
    assert_eq!(device.0.objects_left(), 7);
    device.delete_entry(first, 0).unwrap();
    device.destroy_group(first, group).unwrap();
    device.destroy_table(first).unwrap();
    device.destroy_table(second).unwrap();
    device.dealloc(opcode::DEALLOC_FLOW_COUNTER, counter).unwrap();
    device.dealloc(opcode::DEALLOC_MODIFY_HEADER_CONTEXT, context).unwrap();
    device.dealloc(opcode::DEALLOC_PACKET_REFORMAT_CONTEXT, reformat).unwrap();
    assert_eq!(device.0.objects_left(), 0);
}

#[test]
fn groups_lie_within_their_table_and_beside_each_other() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.group(table, 4..=7, &[]);
    refused(device.try_group(table, 0..=4, &[]), status::BAD_PARAMETER, "overlap");
    refused(device.try_group(table, 7..=9, &[]), status::BAD_PARAMETER, "overlap");
    refused(device.try_group(table, 0..=1024, &[]), status::BAD_INDEX, "1024 entries");
    #[expect(clippy::reversed_empty_ranges, reason = "that is the mistake")]
    let reversed = 3..=2;
    refused(device.try_group(table, reversed, &[]), status::BAD_INDEX, "indexes 3 to 2");
    device.group(table, 0..=3, &[]);
    device.group(table, 8..=1023, &[]);
}

#[test]
fn a_mask_names_fields_that_the_device_has() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let reserved = Bits::new(0x0d4, 4);
    refused(device.try_group(table, 0..=0, &[(reserved, 0)]), status::BAD_PARAMETER, "bit 0xd4");
    let roce = Bits::new(0x348, 24);
    refused(device.try_group(table, 0..=0, &[(roce, 0)]), status::BAD_PARAMETER, "bit 0x348");
    let mut input = named(table, bytes::GROUP_COMMAND);
    layout::MATCH_CRITERIA_ENABLE.put(&mut input, 0x80);
    refused(device.command(opcode::CREATE_FLOW_GROUP, &mut input), status::BAD_PARAMETER, "0x80");
}

#[test]
fn an_entry_stays_within_its_group_and_its_mask() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let group = device.group(table, 4..=7, IS_TCP);
    let wanted = Wanted { index: 4, matches: IS_TCP, ..forward(To::Uplink) };
    refused(device.try_set(table, group, &Wanted { index: 8, ..wanted.clone() }), status::BAD_INDEX, "index 8");
    refused(device.try_set(table, 0x55, &wanted), status::BAD_RESOURCE, "group 0x55");
    let outside = Wanted { matches: &[(f::IP_PROTOCOL, 6), (f::TCP_DPORT, 80)], ..wanted.clone() };
    refused(device.try_set(table, group, &outside), status::BAD_PARAMETER, "outer.tcp_dport=0x50");
    device.set(table, group, &wanted);
    refused(device.try_set(table, group, &wanted), status::BAD_RESOURCE_STATE, "already has entry 4");
    refused(device.delete_entry(table, 5), status::BAD_RESOURCE, "no entry 5");
}

#[test]
fn an_entry_leads_up_only_unless_it_says_otherwise() {
    let mut device = Device::new();
    let (first, second) = (device.table(FDB, 1), device.table(FDB, 1));
    let group = device.group(first, 0..=9, &[]);
    refused(device.try_set(first, group, &forward(To::Table(second))), status::BAD_PARAMETER, "level 1");
    device.set(first, group, &Wanted { ignore_level: true, ..forward(To::Table(second)) });
}

#[test]
fn destinations_must_exist_and_suit_the_table() {
    let mut device = Device::new();
    device.0.add_tir(3);
    let fdb = device.table(FDB, 0);
    let receive = device.table(NIC_RX, 1);
    let in_fdb = device.group(fdb, 0..=9, &[]);
    let in_receive = device.group(receive, 0..=9, &[]);
    refused(device.try_set(fdb, in_fdb, &forward(To::Vport(7))), status::BAD_RESOURCE, "vport 0x7");
    refused(device.try_set(fdb, in_fdb, &forward(To::Tir(3))), status::BAD_PARAMETER, "TIR");
    refused(device.try_set(fdb, in_fdb, &forward(To::Table(receive))), status::BAD_PARAMETER, "NIC RX");
    refused(device.try_set(receive, in_receive, &forward(To::Uplink)), status::BAD_PARAMETER, "vport");
    refused(device.try_set(receive, in_receive, &forward(To::Tir(4))), status::BAD_RESOURCE, "TIR 0x4");
    device.set(receive, in_receive, &forward(To::Tir(3)));
    let other = with(forward(To::Uplink).input(fdb, in_fdb), Bits::new(context::LIST * 8, 8), 9);
    refused(
        device.command(opcode::SET_FLOW_TABLE_ENTRY, &mut other.clone()),
        status::BAD_PARAMETER,
        "destination type 0x9",
    );
}

#[test]
fn actions_must_be_whole_and_suit_the_table() {
    let mut device = Device::new();
    let fdb = device.table(FDB, 0);
    let receive = device.table(NIC_RX, 0);
    let transmit = device.table(NIC_TX, 0);
    let acl = device.acl(EGRESS_ACL, 1);
    let counter = device.counters(0).unwrap();
    let mut refuses = |table: TableRef, wanted: Wanted<'_>, reason: &str| {
        let group = device.group(table, 0..=0, &[]);
        refused(device.try_set(table, group, &wanted), status::BAD_PARAMETER, reason);
        device.destroy_group(table, group).unwrap();
    };
    let actions = |actions| Wanted { actions, ..Wanted::default() };
    refuses(fdb, actions(ALLOW), "allow is not allowed in a table of FDB");
    refuses(fdb, actions(COUNT), "exactly one");
    refuses(fdb, actions(DROP | FORWARD), "exactly one");
    refuses(fdb, actions(FORWARD), "no destination");
    refuses(fdb, Wanted { to: vec![To::Uplink], ..actions(DROP) }, "has destinations");
    refuses(fdb, actions(DROP | COUNT), "no counter");
    refuses(fdb, Wanted { counters: vec![counter], ..actions(DROP) }, "there are counters");
    refuses(fdb, actions(DROP | PUSH_VLAN_2), "without the first");
    refuses(fdb, actions(DROP | 0x2000), "0x2000");
    refuses(receive, actions(DROP | PUSH_VLAN), "VLAN push is not allowed in a table of NIC RX");
    refuses(transmit, actions(DROP | DECAP), "decap is not allowed in a table of NIC TX");
    refuses(acl, actions(DROP | MODIFY_HEADER), "modify header is not allowed in a table of egress ACL");
    refuses(fdb, Wanted { flow_source: 3, ..actions(DROP) }, "flow_source");
}

#[test]
fn contexts_must_exist_and_suit_the_table() {
    let mut device = Device::new();
    let plain = [(layout::REFORMAT_ENABLED, 0), (layout::DECAP_ENABLED, 0)];
    let fdb = device.try_table(FDB, None, 0, &plain).unwrap();
    let group = device.group(fdb, 0..=0, &[]);
    let receive_context = device.modify_header(NIC_RX, &[set(0x51, 0, 0, 1)]).unwrap();
    let reformat = device.reformat(2, 0, 0, Ok(&tcp_frame())).unwrap();
    let wanted = |actions| Wanted { actions: actions | FORWARD, ..forward(To::Uplink) };
    let other_kind = Wanted { modify_header: receive_context, ..wanted(MODIFY_HEADER) };
    refused(device.try_set(fdb, group, &other_kind), status::BAD_PARAMETER, "another table type");
    let unknown = Wanted { modify_header: 99, ..wanted(MODIFY_HEADER) };
    refused(device.try_set(fdb, group, &unknown), status::BAD_RESOURCE, "modify header context 0x63");
    refused(device.try_set(fdb, group, &Wanted { reformat, ..wanted(REFORMAT) }), status::BAD_PARAMETER, "reformat_en");
    refused(device.try_set(fdb, group, &wanted(DECAP)), status::BAD_PARAMETER, "decap_en");
    let uncounted = Wanted { counters: vec![0x999], ..wanted(COUNT) };
    refused(device.try_set(fdb, group, &uncounted), status::BAD_RESOURCE, "flow counter 0x999");
}

#[test]
fn rewrite_lists_are_checked_action_by_action() {
    let mut device = Device::new();
    let bad = status::BAD_PARAMETER;
    refused(device.modify_header(FDB, &[]), status::EXCEEDS_LIMIT, "num_of_actions 0");
    refused(device.modify_header(FDB, &[set(0x51, 0, 0, 1); 17]), status::EXCEEDS_LIMIT, "17");
    refused(
        device.modify_header(FDB, &[set(0x51, 0, 0, 1), set(0x18, 0, 0, 1)]),
        bad,
        "action 1 of the list: field 0x18",
    );
    refused(device.modify_header(FDB, &[set(0x08, 1, 16, 1)]), bad, "tcp_sport has 16 bits");
    refused(device.modify_header(FDB, &[copy((0x51, 0), (0x08, 0), 0)]), bad, "tcp_sport has 16 bits, not 32");
    refused(device.modify_header(FDB, &[[0x9051_0000, 0]]), bad, "type 9");
    assert_eq!(device.0.objects_left(), 0);
}

#[test]
fn what_the_flexible_parser_finds_is_rewritten_where_the_capabilities_say_so() {
    use crate::steering::Format;
    const ENDPOINT: u32 = 0x6e;
    let lists = [vec![set(ENDPOINT, 0, 0, 1)], vec![add(ENDPOINT, 1)], vec![copy((0x51, 0), (ENDPOINT, 0), 0)]];
    let software = Profile { software_owner: true, ..Profile::default() };
    for profile in [Profile::default(), Profile { steering_format: Format::Zero, ..software }] {
        let mut device = Device::with(profile);
        for list in &lists {
            refused(device.modify_header(FDB, list), status::BAD_PARAMETER, "is not rewritten by this device");
        }
    }
    let mut device = Device::with(software);
    assert!(lists.iter().all(|list| device.modify_header(FDB, list).is_ok()));
}

#[test]
fn reformats_are_checked_for_type_size_and_anchor() {
    let mut device = Device::new();
    refused(device.reformat(0x11, 0, 0, Ok(&[0; 8])), status::BAD_PARAMETER, "reformat_type 0x11");
    refused(device.reformat(2, 0, 0, Ok(&[])), status::BAD_PARAMETER, "reformat_data_size");
    refused(device.reformat(2, 0, 0, Ok(&[0; 257])), status::EXCEEDS_LIMIT, "257");
    refused(device.reformat(2, 0, 0, Err(64)), status::BAD_INPUT_LENGTH, "98");
    refused(device.reformat(0xf, 3, 0, Ok(&[0; 4])), status::BAD_PARAMETER, "anchor 0x3");
}

#[test]
fn bulk_queries_are_aligned_and_may_reach_past_what_is_allocated() {
    let mut device = Device::new();
    let first = device.counters(1).unwrap();
    assert!(first.is_multiple_of(128));
    refused(device.query_counters(first + 1, 4, false), status::BAD_PARAMETER, "aligned");
    refused(device.query_counters(first, 2, false), status::BAD_PARAMETER, "aligned");
    refused(device.query_counters(first, 0x8004, false), status::BAD_PARAMETER, "more than a bulk query");
    refused(device.query_counters(first + 128, 4, false), status::BAD_RESOURCE, "does not exist");
    assert_eq!(device.query_counters(first + 124, 8, false).unwrap().len(), 8);
    refused(device.dealloc(opcode::DEALLOC_FLOW_COUNTER, first + 1), status::BAD_RESOURCE, "does not exist");
    device.dealloc(opcode::DEALLOC_FLOW_COUNTER, first).unwrap();
    refused(device.query_counters(first, 4, false), status::BAD_RESOURCE, "does not exist");
}

#[test]
fn a_bulk_of_all_sizes_has_their_sum() {
    let mut device = Device::new();
    let first = device.counters(0xff).unwrap();
    assert!(device.0.counter(first + 128 * 255 - 1).is_some() && device.0.counter(first + 128 * 255).is_none());
    let next = device.counters(0).unwrap();
    assert!(!(first..first + 128 * 255).contains(&next));
    device.dealloc(opcode::DEALLOC_FLOW_COUNTER, first).unwrap();
    assert!(device.0.counter(first).is_none() && device.0.counter(next).is_some());
}

#[test]
fn a_query_that_clears_starts_the_counter_again() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let counter = device.counters(0).unwrap();
    device.rule(table, 0, Wanted { actions: DROP | COUNT, counters: vec![counter], ..Wanted::default() });
    device.receive(Port::Wire, &tcp_frame());
    assert_eq!(device.query_counters(counter, 0, true).unwrap()[0].packets, 1);
    device.receive(Port::Wire, &tcp_frame());
    assert_eq!(device.query_counters(counter, 0, false).unwrap()[0].packets, 1);
    assert_eq!(device.0.counter(counter).unwrap().bytes, 54);
}

#[test]
fn a_modified_entry_takes_only_what_the_mask_names() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    let counters = [device.counters(0).unwrap(), device.counters(0).unwrap()];
    let before =
        Wanted { matches: IS_TCP, actions: FORWARD | COUNT, counters: vec![counters[0]], ..forward(To::Vport(1)) };
    let group = device.rule(table, 0, before.clone());
    let after = Wanted { matches: &[], counters: vec![counters[1]], ..forward(To::Vport(2)) };
    let modify = |device: &mut Device, mask: u32, index: u32| {
        let mut input = Wanted { index, ..after.clone() }.input(table, group);
        layout::OP_MOD.put(&mut input, 1);
        layout::MODIFY_ENABLE.put(&mut input, mask);
        device.command(opcode::SET_FLOW_TABLE_ENTRY, &mut input)
    };
    modify(&mut device, 0x4, 0).unwrap();
    assert_eq!(device.ports(Port::Wire), [Port::Vport(2)]);
    assert_eq!(device.0.counter(counters[0]).unwrap().packets, 1);
    modify(&mut device, 0x8, 0).unwrap();
    device.ports(Port::Wire);
    assert_eq!(device.0.counter(counters[1]).unwrap().packets, 1);
    device.dealloc(opcode::DEALLOC_FLOW_COUNTER, counters[0]).unwrap();
    refused(modify(&mut device, 0x1, 0), status::BAD_PARAMETER, "count");
    refused(modify(&mut device, 0x20, 0), status::BAD_PARAMETER, "modify_enable_mask");
    refused(modify(&mut device, 0x4, 9), status::BAD_RESOURCE, "no entry 9");
    assert_eq!(device.ports(Port::Wire), [Port::Vport(2)], "a refused change leaves the entry as it was");
}

#[test]
fn queries_answer_with_what_was_set() {
    let mut device = Device::new();
    let table = device.try_table(FDB, None, 5, &[(layout::TERMINATION_TABLE, 1)]).unwrap();
    let wanted = Wanted { index: 6, matches: IS_TCP, tag: 0x1234, ..forward(To::Vport(2)) };
    let group = device.group(table, 6..=8, IS_TCP);
    device.set(table, group, &wanted);
    let mut input = named(table, bytes::TABLE_COMMAND);
    let output = device.command(opcode::QUERY_FLOW_TABLE, &mut input).unwrap();
    assert_eq!((layout::LEVEL.u32(&output), layout::LOG_SIZE.u32(&output)), (5, 10));
    assert!(layout::TERMINATION_TABLE.is_set(&output) && layout::DECAP_ENABLED.is_set(&output));
    layout::GROUP_ID.put(&mut input, group);
    let output = device.command(opcode::QUERY_FLOW_GROUP, &mut input).unwrap();
    assert_eq!((layout::START_INDEX.u32(&output), layout::END_INDEX.u32(&output)), (6, 8));
    assert!(f::IP_PROTOCOL.after(bytes::GROUP_CRITERIA).is_set(&output));
    layout::FLOW_INDEX.put(&mut input, 6);
    let output = device.command(opcode::QUERY_FLOW_TABLE_ENTRY, &mut input).unwrap();
    assert_eq!(output[bytes::FLOW_CONTEXT..], wanted.input(table, group)[bytes::FLOW_CONTEXT..]);
}

#[test]
fn the_dump_shows_tables_groups_and_entries() {
    let mut device = Device::new();
    let table = device.table(FDB, 0);
    device.rule(table, 3, Wanted { matches: IS_TCP, ..forward(To::Vport(2)) });
    assert_eq!(
        device.0.dump(),
        "FDB table 0x1 level 0, 1024 entries\n  \
         group 0x1, 3 to 3: outer.ip_protocol=0xff outer.ip_version=0xf\n    \
         entry 3: outer.ip_protocol=0x6 outer.ip_version=0x4: actions 0x4, to vport 2\n"
    );
}

#[test]
fn a_user_context_sees_its_own_objects_only() {
    let mut device = Device::new();
    let mut input = vec![0; layout::SHORT_OUTPUT];
    let output = device.0.command(opcode::ALLOC_FLOW_COUNTER, 7, &input).unwrap();
    layout::IN_ID.put(&mut input, layout::OUT_ID.u32(&output));
    let of_another = device.0.command(opcode::DEALLOC_FLOW_COUNTER, 8, &input);
    refused(of_another, status::BAD_RESOURCE, "does not exist");
    device.0.command(opcode::DEALLOC_FLOW_COUNTER, 7, &input).unwrap();
}

#[test]
fn an_opcode_that_is_not_modelled_is_refused() {
    let mut device = Device::new();
    assert!(Steering::handles(0x93f) && !Steering::handles(0x100));
    refused(device.command(0x93f, &mut [0; 16]), status::BAD_OPERATION, "0x93f");
    refused(device.command(opcode::CREATE_FLOW_TABLE, &mut [0; 16]), status::BAD_INPUT_LENGTH, "needs 64");
}
