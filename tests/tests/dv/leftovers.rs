//! What stays in the device: nothing, after many flows, and whatever the device refuses meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::backend::OpenConfig;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::{PortKind, Tunnel, TunnelProtocol};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend as _, ChainId, Port, PortNumber, Refusal};
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::conformance::{Device, Opened, Subject};
use sluice_tests::mlx5::{Control, on_device, with_options};

use crate::rig::flow;

/// Flows of each kind that needs something of its own in the device: key and actions.
const KINDS: [(&str, &str); 10] = [
    ("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=53)", "2"),
    ("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)", "drop"),
    ("in_port(1),eth_type(0x86dd),ipv6(frag=no)", "set(eth(dst=02:00:00:00:00:09)),3"),
    ("in_port(1),eth_type(0x0806)", "push_vlan(vid=7,pcp=0),2"),
    ("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.3,frag=no)", "2,3"),
    ("in_port(1),eth_type(0x88cc)", "recirc(0x5)"),
    ("tunnel(geneve({class=0x102,type=0x80,len=4,0x1})),in_port(4)", "1"),
    ("in_port(1),eth_type(0x88f7)", "2,set(eth(dst=02:00:00:00:00:09)),3"),
    ("in_port(1),eth_type(0x88b6)", "meter(7),2"),
    ("in_port(1),eth_type(0x88b5)", "sample(sample=50.0%,actions(3)),2"),
];
const CHAIN: ChainId = ChainId(5);

/// Opens the eswitch, with three ports, whose packets the device may refuse to lead to tables of ours.
fn open() -> Result<Opened, Refusal> {
    let vports = [("p1", 0), ("p2", 0xffff), ("p3", 1)].map(|(name, vport)| (name.to_owned(), vport));
    let config = Config { takeover: true, vports: BTreeMap::from(vports), ..Config::default() };
    let nic = DvNic::open(&config, &OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new())))?;
    (1..=3).try_for_each(|number| nic.attach_port(&port(number, PortKind::Physical)))?;
    Ok(Opened::plain(Arc::new(nic)))
}

/// Plays with a device that is open.
fn with_device<R>(opened: Opened, play: impl FnOnce(&mut Device<'_>) -> R) -> R {
    let subject =
        Subject { open: Box::new(|| unreachable!()), open_with_room: None, send: Box::new(|_, _| {}), facets: &[] };
    let mut device = Device::of(&subject, opened);
    let udp_port = TunnelProtocol::Geneve.default_udp_port();
    let tunnel = Tunnel { protocol: TunnelProtocol::Geneve, udp_port, underlay: PortNumber(2) };
    // Its tables are made at once, which the device may refuse.
    device.backend().attach_port(&port(4, PortKind::Tunnel(tunnel))).ok();
    play(&mut device)
}

fn port(number: u32, kind: PortKind) -> Port {
    Port { number: PortNumber(number), name: format!("p{number}").parse().unwrap(), kind }
}

/// Installs a flow of each kind, removes those that were taken, and returns how many that were.
fn cycle(device: &mut Device<'_>) -> usize {
    device.open_chain(CHAIN).unwrap();
    let meter = Meter::simple(MeterId(7), MeterUnit::Packets, 1_000, 10);
    let is_metered = device.backend().meters().unwrap().set_meter(&meter).is_ok();
    let rules: Vec<_> = KINDS.iter().filter_map(|(key, actions)| device.install(key, actions).ok()).collect();
    assert_eq!(device.installed().len(), rules.len(), "the backend's books have what was taken");
    for rule in &rules {
        device.remove(*rule);
    }
    assert_eq!(device.installed().len(), 0, "and nothing of what was removed");
    if is_metered {
        // What it counted last may not be known.
        device.backend().meters().unwrap().remove_meter(meter.id).ok();
    }
    device.close_chain(CHAIN).unwrap();
    rules.len()
}

#[test]
fn a_thousand_cycles_of_install_and_delete_leave_nothing_behind() {
    const CYCLES: u32 = 1_000;
    on_device("bluefield-3", "leftovers::a_thousand_cycles_of_install_and_delete_leave_nothing_behind", |ports| {
        // The device is there once somebody opens it.
        drop(open().unwrap());
        let mut control = ports.control();
        let kernels = control.left();
        with_device(open().unwrap(), |device| {
            // Memory for tables and blocks of counters stay for the next ones.
            assert_eq!(cycle(device), KINDS.len());
            let before = control.left();
            assert!((0..CYCLES).all(|_| cycle(device) == KINDS.len()));
            assert_eq!(control.left(), before);
        });
        assert_eq!(control.left(), kernels);
    });
}

#[test]
fn a_port_whose_packets_the_device_does_not_lead_to_us_is_not_there_and_may_come_again() {
    /// What makes a rule in the kernel's table (SET_FLOW_TABLE_ENTRY).
    const ENTRY: &str = "0x936";
    let name = "leftovers::a_port_whose_packets_the_device_does_not_lead_to_us_is_not_there_and_may_come_again";
    with_options("bluefield-3", &[], &["had status 0x8", "refused with"], name, |ports| {
        let nic = open().unwrap().backend;
        let flow = flow(KINDS[0].0, KINDS[0].1);
        nic.detach_port(PortNumber(1)).unwrap();
        ports.control().ask(&format!("refuse {ENTRY} 0 1 0x8 0x1234"));
        nic.attach_port(&port(1, PortKind::Physical)).unwrap_err();
        assert!(nic.explain(&flow).is_err_and(|refusal| refusal.label() == "port"), "the port is not there");
        nic.attach_port(&port(1, PortKind::Physical)).unwrap();
        nic.explain(&flow).unwrap();
    });
}

/// Opens the device, plays a cycle, and closes it: what is in the device behind the cycle, by kind, and how many flows were taken, if it
/// opened at all.
fn life(control: &mut Control) -> Option<(BTreeMap<String, usize>, usize)> {
    let opened = open().ok()?;
    let told = with_device(opened, |device| {
        let taken = cycle(device);
        (control.left(), taken)
    });
    Some(told)
}

/// Commands that take something back: what one of them leaves when it is refused goes with the context, at the latest. Among them is the one
/// that waits until no packet is between the rules of a flow (SYNC_STEERING), before which they stay.
fn takes_back(opcode: u16) -> bool {
    matches!(opcode, 0x202 | 0x401 | 0x501 | 0x801 | 0x803 | 0x93a | 0x93e | 0x941 | 0xa03 | 0xa06 | 0xa0a | 0xb00)
        || is_the_kernels(opcode)
}

/// Of those the ones by which the kernel takes back flow tables, groups and entries of its own, and their roots: where they are refused its driver only
/// warns (`mlx5_cmd_destroy_flow_table` and what calls it), and what they leave stays.
fn is_the_kernels(opcode: u16) -> bool {
    matches!(opcode, 0x92f | 0x931 | 0x934 | 0x938)
}

#[test]
fn each_command_that_is_refused_once_leaves_nothing_behind() {
    let name = "leftovers::each_command_that_is_refused_once_leaves_nothing_behind";
    // What the device says of refused commands, and what the kernel takes back of those that take something back.
    let expected = [
        "had status 0x8",
        "refused with",
        "of a context that was closed",
        "cannot be destroyed",
        "user context ",
        " objects of steering",
    ];
    with_options("bluefield-3", &[], &expected, name, |ports| {
        // The device is there once somebody opens it.
        drop(open().unwrap());
        let mut control = ports.control();
        let before = control.commands();
        let (whole, all) = life(&mut control).unwrap();
        assert_eq!(all, KINDS.len());
        let mut sent: Vec<_> = control.commands().into_iter().collect();
        sent.iter_mut().for_each(|(opcode, times)| *times -= before.get(opcode).copied().unwrap_or_default());
        // Those that may leave something for good come last.
        sent.sort_by_key(|(opcode, _)| is_the_kernels(*opcode));
        let (mut refused_starts, mut refused_flows) = (0, 0);
        for (opcode, after) in sent.into_iter().flat_map(|(opcode, times)| (0..times).map(move |after| (opcode, after)))
        {
            let before = control.left();
            control.ask(&format!("refuse {opcode:#x} {after} 1 0x8 0x1234"));
            match life(&mut control) {
                None => refused_starts += 1,
                Some((left, taken)) => {
                    refused_flows += usize::from(taken < all);
                    // What a refused flow would have needed first of all may not be there.
                    let is_more = |(kind, count): (&String, &usize)| whole.get(kind).is_none_or(|whole| count > whole);
                    let more: Vec<_> = left.iter().filter(|left| is_more(*left)).collect();
                    assert!(takes_back(opcode) || more.is_empty(), "{opcode:#x}, after {after}: {more:?}");
                }
            }
            assert!(is_the_kernels(opcode) || control.left() == before, "{opcode:#x}, after {after}");
            assert_eq!(
                life(&mut control).map(|(_, taken)| taken),
                Some(all),
                "{opcode:#x}, after {after}: the next life"
            );
        }
        println!("{refused_starts} starts and {refused_flows} cycles met a refusal");
        assert!(refused_starts > 0 && refused_flows > 0);
    });
}
