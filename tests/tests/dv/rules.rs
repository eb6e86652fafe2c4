//! Rules that carry packets, and objects that go in the order of their dependencies.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use sluice_offload_dv::mlx5::{
    Action, Context, Domain, DomainKind, Library, MatchParameter, Object, Rule, Table, Umem,
};

use sluice_tests::mlx5::{Out, on_device};

const PROFILES: [&str; 2] = ["bluefield-2", "bluefield-3"];

const ETHERTYPE: (usize, usize) = (0x030, 16);
const IP_VERSION: (usize, usize) = (0x093, 4);
const DESTINATION_V4: (usize, usize) = (0x1e0, 32);
const WIRE: u16 = 0xffff;

/// What a story is played with: the switch, its first table and a rule at the root that leads there.
struct Switch {
    library: Rc<Library>,
    context: Context,
    domain: Domain,
    table: Table,
    _root: Rule,
}

impl Switch {
    fn open() -> Self {
        let library = Library::load().unwrap();
        let context = Context::open(&library, "mlx5_0").unwrap();
        let domain = Domain::create(&context, "mlx5_0", DomainKind::Fdb).unwrap();
        let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
        let everything = MatchParameter::default();
        let to_table = Action::to_table(&table).unwrap();
        let all = root.matcher(0, &everything).unwrap();
        let rule = all.rule(&everything, [to_table].into()).unwrap();
        Self { library, context, domain, table, _root: rule }
    }
}

/// A block of eight flow counters, and the id of the first.
fn counters(context: &Context) -> (Object, u32) {
    const ALLOC_FLOW_COUNTER: [u8; 2] = [0x09, 0x39];
    const LOG: u8 = 3;
    let (mut input, mut output) = ([0; 16], [0; 16]);
    input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER);
    input[14] = LOG;
    let block = Object::create(context, &input, &mut output).unwrap();
    (block, u32::from_be_bytes(output[8..12].try_into().unwrap()))
}

/// Packets that a counter has counted.
fn packets(block: &Object, id: u32) -> u64 {
    const QUERY_FLOW_COUNTER: [u8; 2] = [0x09, 0x3b];
    let (mut input, mut output) = ([0; 32], [0; 32]);
    input[..2].copy_from_slice(&QUERY_FLOW_COUNTER);
    input[28..].copy_from_slice(&id.to_be_bytes());
    block.query(&input, &mut output).unwrap();
    u64::from_be_bytes(output[16..24].try_into().unwrap())
}

fn ipv4_to(address: [u8; 4]) -> MatchParameter {
    let mut value = MatchParameter::default();
    value.set(IP_VERSION.0, IP_VERSION.1, 4);
    value.set(DESTINATION_V4.0, DESTINATION_V4.1, u32::from_be_bytes(address).into());
    value
}

fn any_ipv4_destination() -> MatchParameter {
    // libmlx5 wants the version itself as its mask.
    ipv4_to([0xff; 4])
}

/// Returns the next frame; `None` if none comes.
fn receive(out: &Out) -> Option<Vec<u8>> {
    let until = Instant::now() + Duration::from_millis(500);
    loop {
        let frame = out.at_once();
        if frame.is_some() || Instant::now() > until {
            return frame;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// An IPv4 datagram from 10.0.0.1:1111 to port 2222.
fn datagram(to: [u8; 4]) -> Vec<u8> {
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let ipv4 = [0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, to[0], to[1], to[2], to[3]];
    let udp = [1111_u16.to_be_bytes(), 2222_u16.to_be_bytes(), 12_u16.to_be_bytes(), [0; 2]];
    [&ethernet[..], &ipv4, udp.as_flattened(), b"data"].concat()
}

#[test]
fn a_rule_counts_and_forwards_what_it_matches_and_nothing_else() {
    for profile in PROFILES {
        on_device(profile, "rules::a_rule_counts_and_forwards_what_it_matches_and_nothing_else", |ports| {
            let switch = Switch::open();
            let (block, first) = counters(&switch.context);
            let (wire, manager) = (ports.out("wire"), ports.out("vport-0"));
            let count = Action::count(&block, 5).unwrap();
            let to_wire = Action::to_vport(&switch.domain, WIRE).unwrap();
            let matcher = switch.table.matcher(1, &any_ipv4_destination()).unwrap();
            let _forward = matcher.rule(&ipv4_to([10, 0, 0, 2]), [count, to_wire].into()).unwrap();
            let end = Action::drop_packets(&switch.library).unwrap();
            let _drop = matcher.rule(&ipv4_to([10, 0, 0, 3]), [end].into()).unwrap();
            switch.domain.sync().unwrap();

            ports.send("vport-0", &datagram([10, 0, 0, 2]));
            assert_eq!(receive(&wire), Some(datagram([10, 0, 0, 2])));
            ports.send("vport-0", &datagram([10, 0, 0, 3]));
            assert_eq!(receive(&wire).or(receive(&manager)), None);
            assert_eq!((packets(&block, first + 5), packets(&block, first + 4)), (1, 0));
        });
    }
}

#[test]
fn objects_go_in_the_order_of_their_dependencies_whoever_drops_them_first() {
    for profile in PROFILES {
        on_device(profile, "rules::objects_go_in_the_order_of_their_dependencies_whoever_drops_them_first", |_| {
            let switch = Switch::open();
            let (block, _) = counters(&switch.context);
            let umem = Umem::register(&switch.context, 512).unwrap();
            let chain = switch.domain.table(2).unwrap();
            let matcher = chain.matcher(0, &any_ipv4_destination()).unwrap();
            let copies = [0, WIRE].map(|vport| Action::to_vport(&switch.domain, vport).unwrap());
            let actions = [Action::count(&block, 0).unwrap(), Action::to_all(&switch.domain, copies.into()).unwrap()];
            let rule = matcher.rule(&ipv4_to([10, 0, 0, 2]), actions.into()).unwrap();
            let jump = Action::to_table(&chain).unwrap();
            // Everything but the last rule and the memory first.
            drop((switch, block, chain, matcher, jump));
            drop(rule);
            drop(umem);
        });
    }
}

#[test]
fn a_duplicate_takes_over_where_its_original_goes() {
    on_device("bluefield-3", "rules::a_duplicate_takes_over_where_its_original_goes", |ports| {
        let switch = Switch::open();
        switch.domain.allow_duplicate_rules(true);
        let (wire, first_function) = (ports.out("wire"), ports.out("vport-1"));
        let matcher = switch.table.matcher(1, &any_ipv4_destination()).unwrap();
        let [to_wire, to_function] = [WIRE, 1].map(|vport| Action::to_vport(&switch.domain, vport).unwrap());
        let original = matcher.rule(&ipv4_to([10, 0, 0, 2]), [to_wire].into()).unwrap();
        let _duplicate = matcher.rule(&ipv4_to([10, 0, 0, 2]), [to_function].into()).unwrap();
        switch.domain.sync().unwrap();
        ports.send("vport-0", &datagram([10, 0, 0, 2]));
        assert_eq!(receive(&wire), Some(datagram([10, 0, 0, 2])));
        drop(original);
        switch.domain.sync().unwrap();
        ports.send("vport-0", &datagram([10, 0, 0, 2]));
        assert_eq!(receive(&first_function), Some(datagram([10, 0, 0, 2])));
    });
}

#[test]
fn a_table_of_fixed_layout_takes_more_rules_than_it_has_room_for() {
    on_device("bluefield-3", "rules::a_table_of_fixed_layout_takes_more_rules_than_it_has_room_for", |ports| {
        let switch = Switch::open();
        let wire = ports.out("wire");
        let to_wire = Action::to_vport(&switch.domain, WIRE).unwrap();
        let five_tuple = |destination: [u8; 4], protocol, addresses: u32, port: u64| {
            let mut value = ipv4_to(destination);
            value.set(0x080, 8, protocol);
            value.set(0x160, 32, addresses.into());
            value.set(0x0e0, 16, port);
            value.set(0x0f0, 16, port);
            value
        };
        let matcher = switch.table.matcher(1, &five_tuple([0xff; 4], 0xff, u32::MAX, 0xffff)).unwrap();
        matcher.set_layout(2).unwrap();
        let wanted = |last: u8| {
            let mut value = five_tuple([10, 0, 0, last], 17, u32::from_be_bytes([10, 0, 0, 1]), 1111);
            value.set(0x0f0, 16, 2222);
            value
        };
        let rules: Vec<_> =
            (2..18).map(|last| matcher.rule(&wanted(last), [to_wire.clone()].into()).unwrap()).collect();
        switch.domain.sync().unwrap();
        for last in 2..18 {
            ports.send("vport-0", &datagram([10, 0, 0, last]));
            assert_eq!(receive(&wire), Some(datagram([10, 0, 0, last])));
        }
        drop(rules);
        assert!(matcher.set_layout(23).is_err(), "there is no such room");
    });
}

#[test]
fn what_libmlx5_refuses_is_an_error_with_its_reason() {
    on_device("bluefield-2", "rules::what_libmlx5_refuses_is_an_error_with_its_reason", |_| {
        let switch = Switch::open();
        let matcher = switch.table.matcher(1, &any_ipv4_destination()).unwrap();
        let same = Action::to_table(&switch.table).unwrap();
        // A rule may not lead to its own table.
        let error = matcher.rule(&ipv4_to([10, 0, 0, 2]), [same].into()).err().unwrap();
        assert_eq!(error.to_string(), "mlx5dv_dr_rule_create: Invalid argument (os error 22)");
        let end = Action::drop_packets(&switch.library).unwrap();
        let error = matcher.rule(&ipv4_to([10, 0, 0, 2]), vec![end; 21].into()).err().unwrap();
        assert_eq!(error.to_string(), "mlx5dv_dr_rule_create: argument list too long");
        let mut mask = MatchParameter::default();
        mask.set(IP_VERSION.0, IP_VERSION.1, 0xf);
        mask.set(ETHERTYPE.0, ETHERTYPE.1, 0xffff);
        let error = switch.table.matcher(1, &mask).err().unwrap();
        assert_eq!(error.to_string(), "mlx5dv_dr_matcher_create: Operation not supported (os error 95)");
    });
}
