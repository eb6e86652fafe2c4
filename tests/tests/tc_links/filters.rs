//! Filters and what they hang on, taken away by somebody else.

use std::io::Write;
use std::process::{Command, Stdio};

use sluice_netdev::{
    Attachment, Block, Event, HeardPriorities, IngressQdisc, Monitor, MonitorOptions, ensure_ingress, remove_ingress,
};

use crate::space::{Space, events, ifindex, known};
use crate::stories;

stories![
    a_qdisc_that_somebody_adds_and_removes_is_noticed,
    a_qdisc_that_somebody_replaces_is_noticed,
    changes_of_a_qdisc_name_the_socket_that_made_them,
    a_qdisc_for_queueing_is_nothing_to_tell,
    filters_that_somebody_flushes_are_noticed,
    a_single_filter_that_somebody_deletes_is_named,
    filters_of_egress_and_of_a_block_are_told_apart,
    filters_that_a_socket_of_ours_removes_are_no_event,
    filters_that_are_installed_do_not_drown_what_matters,
    filters_that_are_put_in_are_heard_of_at_the_priorities_that_were_asked_for,
];

/// IPv4.
const IP: u16 = 0x0800;

/// From 900 on, all of 100; behind them, of each 4,000 the first 64.
fn heard() -> Option<HeardPriorities> {
    let band = 4000.try_into().unwrap();
    Some(HeardPriorities { first: 900, lead: 100, band, of_each_band: 64 })
}

fn a_qdisc_that_somebody_adds_and_removes_is_noticed(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    let mut monitor = space.monitor();
    space.run("tc qdisc add dev dummy0 clsact");
    let added = events(&mut monitor);
    let [Event::QdiscAdded { port, qdisc: IngressQdisc::CLSACT, by: Some(_) }] = &added[..] else {
        panic!("{added:#?}")
    };
    assert_eq!(*port, known(&monitor, "dummy0").port());
    assert_eq!(known(&monitor, "dummy0").qdisc, Some(IngressQdisc::CLSACT));

    space.run("tc qdisc del dev dummy0 clsact");
    let removed = events(&mut monitor);
    assert!(matches!(&removed[..], [Event::QdiscRemoved { qdisc: IngressQdisc::CLSACT, .. }]), "{removed:#?}");
    assert_eq!(known(&monitor, "dummy0").qdisc, None);
}

fn a_qdisc_that_somebody_replaces_is_noticed(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("tc qdisc add dev dummy0 ingress");
    let mut monitor = space.monitor();
    assert_eq!(known(&monitor, "dummy0").qdisc, Some(IngressQdisc::INGRESS));
    space.run("tc qdisc del dev dummy0 ingress");
    space.run("tc qdisc add dev dummy0 ingress_block 7 egress_block 8 clsact");
    let wanted = IngressQdisc::CLSACT.with_ingress_block(Block(7)).with_egress_block(Block(8));
    let events = events(&mut monitor);
    assert!(
        matches!(&events[..], [Event::QdiscRemoved { qdisc: IngressQdisc::INGRESS, .. }, Event::QdiscAdded { qdisc, .. }] if *qdisc == wanted),
        "{events:#?}"
    );
    assert_eq!(known(&monitor, "dummy0").qdisc, Some(wanted));
}

fn changes_of_a_qdisc_name_the_socket_that_made_them(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    let mut monitor = space.monitor();
    let mut control = space.control();
    let at = ifindex(&monitor, "dummy0");
    let (qdisc, ownership) = ensure_ingress(&mut control, at, IngressQdisc::CLSACT).unwrap();
    let added = events(&mut monitor);
    assert!(matches!(&added[..], [Event::QdiscAdded { by: Some(by), .. }] if *by == control.port()), "{added:#?}");
    remove_ingress(&mut control, at, qdisc, ownership).unwrap().unwrap();
    let removed = events(&mut monitor);
    assert!(
        matches!(&removed[..], [Event::QdiscRemoved { by: Some(by), .. }] if *by == control.port()),
        "{removed:#?}"
    );
}

fn a_qdisc_for_queueing_is_nothing_to_tell(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    let mut monitor = space.monitor();
    space.run("tc qdisc add dev dummy0 root handle 1: prio");
    space.run("tc filter add dev dummy0 parent 1: protocol ip prio 5 matchall action drop");
    space.run("tc filter del dev dummy0 parent 1:");
    space.run("tc qdisc del dev dummy0 root");
    assert_eq!(events(&mut monitor), []);
}

fn filters_that_somebody_flushes_are_noticed(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("tc qdisc add dev dummy0 clsact");
    space.run("tc filter add dev dummy0 ingress protocol ip prio 5 flower ip_proto tcp action drop");
    space.run("tc filter add dev dummy0 ingress protocol ip prio 5 flower ip_proto udp action drop");
    space.run("tc filter add dev dummy0 ingress protocol arp prio 6 chain 9 flower action drop");
    let mut monitor = space.monitor();
    let at = Attachment::Ingress(ifindex(&monitor, "dummy0"));
    space.run("tc filter del dev dummy0 ingress");
    assert_eq!(losses(events(&mut monitor)), [(at, 0, 5, IP, None)]);
    space.run("tc filter del dev dummy0 ingress chain 9");
    assert_eq!(losses(events(&mut monitor)), [(at, 9, 6, 0x0806, None)]);
}

fn a_single_filter_that_somebody_deletes_is_named(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("tc qdisc add dev dummy0 clsact");
    for handle in [1, 2] {
        space.run(&format!(
            "tc filter add dev dummy0 ingress protocol ip prio 5 handle {handle} flower dst_ip 192.0.2.{handle} action drop"
        ));
    }
    let mut monitor = space.monitor();
    let at = Attachment::Ingress(ifindex(&monitor, "dummy0"));
    space.run("tc filter del dev dummy0 ingress protocol ip prio 5 handle 2 flower");
    assert_eq!(losses(events(&mut monitor)), [(at, 0, 5, IP, Some(2))]);
}

fn filters_of_egress_and_of_a_block_are_told_apart(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("ip link add dummy1 type dummy");
    space.run("tc qdisc add dev dummy0 clsact");
    space.run("tc qdisc add dev dummy1 ingress_block 21 ingress");
    space.run("tc filter add dev dummy0 egress protocol ip prio 5 flower action drop");
    space.run("tc filter add block 21 protocol ip prio 5 flower action drop");
    let mut monitor = space.monitor();
    let egress = Attachment::Egress(ifindex(&monitor, "dummy0"));
    space.run("tc filter del dev dummy0 egress");
    space.run("tc filter del block 21");
    let block = Attachment::Block(Block(21));
    assert_eq!(losses(events(&mut monitor)), [(egress, 0, 5, IP, None), (block, 0, 5, IP, None)]);
}

fn filters_that_a_socket_of_ours_removes_are_no_event(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("tc qdisc add dev dummy0 clsact");
    let mut monitor = space.monitor();
    for is_ours in [false, true] {
        space.run("tc filter add dev dummy0 ingress protocol ip prio 5 flower action drop");
        // The kernel gives the first netlink socket of a process its number, so that it is known before there is one.
        let mut shell = Command::new("sh")
            .args(["-c", "read -r _; exec tc filter del dev dummy0 ingress"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let socket = shell.id();
        monitor.disregard(if is_ours { std::slice::from_ref(&socket) } else { &[] }).unwrap();
        shell.stdin.take().unwrap().write_all(b"now\n").unwrap();
        assert!(shell.wait().unwrap().success());
        match &events(&mut monitor)[..] {
            [] => assert!(is_ours),
            [Event::FiltersGone(loss)] => assert_eq!((is_ours, loss.by), (false, socket)),
            events => panic!("{events:#?}"),
        }
    }
}

fn filters_that_are_installed_do_not_drown_what_matters(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("tc qdisc add dev dummy0 clsact");
    // Room for a few notifications only.
    let mut monitor = Monitor::open(MonitorOptions { receive_buffer: 4096, heard: heard() }).unwrap();
    let file = format!("/tmp/{}.batch", space.name());
    let line = |number: u32| {
        let [_, _, high, low] = number.to_be_bytes();
        format!("filter add dev dummy0 ingress protocol ip prio 5 flower dst_ip 10.0.{high}.{low} action drop\n")
    };
    std::fs::write(&file, (0..1000).map(line).collect::<String>()).unwrap();
    space.run(&format!("tc -batch {file}"));
    space.run("ip link set dummy0 name renamed");
    let events = events(&mut monitor);
    assert!(matches!(&events[..], [Event::Renamed { .. }]), "{events:#?}");
}

fn filters_that_are_put_in_are_heard_of_at_the_priorities_that_were_asked_for(space: &Space) {
    space.run("ip link add dummy0 type dummy");
    space.run("tc qdisc add dev dummy0 clsact");
    let mut deaf = space.monitor();
    let mut monitor = Monitor::open(MonitorOptions { heard: heard(), ..MonitorOptions::default() }).unwrap();
    for priority in [5, 899, 900, 999, 1000, 1063, 1064, 4999, 5000, 5063, 5064] {
        space.run(&format!("tc filter add dev dummy0 ingress protocol ip prio {priority} flower action drop"));
    }
    let put = |event| match event {
        Event::FilterPut(put) => put.priority,
        event => panic!("{event:#?}"),
    };
    let heard: Vec<_> = events(&mut monitor).into_iter().map(put).collect();
    assert_eq!(heard, [900, 999, 1000, 1063, 5000, 5063]);
    assert_eq!(events(&mut deaf), [], "a monitor that was not asked to hears of none");
}

/// Attachment, chain, priority, protocol and handle of what went.
fn losses(events: Vec<Event>) -> Vec<(Attachment, u32, u16, u16, Option<u32>)> {
    let loss = |event| match event {
        Event::FiltersGone(loss) => Some((loss.attachment, loss.chain, loss.priority, loss.protocol, loss.handle)),
        _ => None,
    };
    events.into_iter().filter_map(loss).collect()
}
