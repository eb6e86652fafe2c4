//! Mirrors in front of all flows.

use sluice_flow::backend::{Adoption, InstalledRule, MirrorCounters, Placement};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::text;
use sluice_offload_tc::OffloadPolicy;

use crate::device::{Device, OWNER, TO_B};
use crate::network::{FRAME, Network, eventually};
use crate::stories;

stories![
    a_copy_is_the_packet_as_it_came_and_what_becomes_of_the_packet_is_the_same_with_a_mirror,
    a_mirror_goes_on_in_the_next_run_and_one_that_nobody_sets_again_is_taken_out,
    a_mirror_that_somebody_takes_out_is_put_back,
    a_filter_that_somebody_puts_in_the_place_of_a_mirror_stays_and_so_does_the_mirror,
    a_mirror_that_is_changed_counts_on_and_one_that_is_removed_leaves_nothing,
    a_mirror_is_read_with_the_flows_and_a_listing_from_before_a_change_is_not_used,
    a_mirror_goes_with_its_port_and_comes_back_with_it,
    a_mirror_that_cannot_be_is_refused_with_the_reason,
];

/// A mirror at the first port.
fn mirror(name: &str, key: &str, copies: &[u32]) -> Mirror {
    let matching = text::parse_key(key, &()).unwrap().matching;
    Mirror::new(name, matching, copies.iter().map(|port| PortNumber(*port)).collect()).unwrap()
}

fn filters(network: &Network) -> Vec<String> {
    let shown = network.run("tc filter show dev p1 ingress");
    shown.lines().filter(|line| line.contains(" handle ")).map(ToOwned::to_owned).collect()
}

/// Where the time to live is in a frame.
const TTL: usize = 14 + 8;

/// A frame without the identification of IPv4 and the checksum over it, in which no two are the same.
fn same_each_time(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_owned();
    frame[14 + 4..14 + 6].fill(0);
    frame[14 + 10..14 + 12].fill(0);
    frame
}

/// With three ports.
fn device() -> Device {
    let mut device = Device::open();
    device.attach(3);
    device
}

fn copied(device: &Device, name: &str) -> u64 {
    device.mirrors().mirror_counters(name).expect("it is there").packets
}

fn a_copy_is_the_packet_as_it_came_and_what_becomes_of_the_packet_is_the_same_with_a_mirror(network: &Network) {
    let copies = network.tap();
    let mut device = device();
    let arriving = network.capture(1);
    let sent = |count: usize| {
        network.hosts[0].send(7, network.hosts[1].address);
        arriving.frames(count)
    };
    let rule = device.install(TO_B, "set(ipv4(ttl=9)),2").unwrap();
    let without = sent(1);
    assert_eq!((without.len(), copies.frames(1).len()), (1, 0));

    device.mirrors().set_mirror(&mirror("tap", "in_port(1)", &[3])).unwrap();
    device.mirrors().set_mirror(&mirror("udp", "in_port(1),eth_type(0x0800),ipv4(proto=17)", &[3])).unwrap();
    device.mirrors().set_mirror(&mirror("tcp", "in_port(1),eth_type(0x0800),ipv4(proto=6)", &[3])).unwrap();
    let with = sent(1);
    assert_eq!(
        with.iter().map(|frame| same_each_time(frame)).collect::<Vec<_>>(),
        without.iter().map(|frame| same_each_time(frame)).collect::<Vec<_>>()
    );
    let copied = copies.frames(3);
    assert_eq!(copied.len(), 2, "once for each mirror that takes it");
    assert!(copied[0] == copied[1] && copied[0][TTL] == 64 && with[0][TTL] == 9);
    device.modify(rule, TO_B, "2").unwrap();
    let with = sent(1);
    assert_eq!(copies.frames(3), [with.clone(), with].concat(), "byte for byte");
    assert_eq!(device.counted()[&rule.id], (3, 3 * FRAME));
    let counters = |packets| MirrorCounters { packets, bytes: packets * FRAME, placement: Placement::Software };
    let counted = ["tap", "udp", "tcp"].map(|name| device.mirrors().mirror_counters(name));
    assert_eq!(counted, [2, 2, 0].map(|packets| Some(counters(packets))));
    assert_eq!(
        (device.installed().len(), device.foreign()),
        (1, vec![]),
        "a mirror is no flow, and not somebody else's"
    );

    device.remove(rule).unwrap();
    assert_eq!(sent(1), Vec::<Vec<u8>>::new(), "what no flow takes goes on to be that");
    assert_eq!(copies.frames(3).len(), 2);
    assert_eq!(device.mirrors().check_mirrors(false), Ok(vec![]));
}

fn a_mirror_goes_on_in_the_next_run_and_one_that_nobody_sets_again_is_taken_out(network: &Network) {
    let copies = network.tap();
    let first = device();
    let tap = mirror("tap", "in_port(1)", &[3]);
    first.mirrors().set_mirror(&mirror("old", "in_port(1),eth_type(0x0806)", &[3])).unwrap();
    first.mirrors().set_mirror(&tap).unwrap();
    network.send(0, 3);
    assert_eq!(copies.frames(3).len(), 3);
    drop(first);
    network.send(0, 1);
    assert_eq!(copies.frames(1).len(), 1, "it does not need the agent");
    let second = device();
    second.mirrors().set_mirror(&tap).unwrap();
    assert_eq!(copied(&second, "tap"), 4, "it counts on");
    assert_eq!(filters(network).len(), 2);
    assert_eq!(
        second.adoption().adopt(&mut |_: &InstalledRule| panic!("it is no flow")),
        Ok(Adoption { adopted: 0, orphans: 1 })
    );
    assert_eq!(filters(network).len(), 1);
    network.send(0, 1);
    assert_eq!((copies.frames(1).len(), copied(&second, "tap")), (1, 5));
    assert_eq!(second.backend.flush(), Ok(1));
    assert_eq!(filters(network), Vec::<String>::new());
}

fn a_mirror_that_somebody_takes_out_is_put_back(network: &Network) {
    let copies = network.tap();
    let mut device = device();
    device.mirrors().set_mirror(&mirror("tap", "in_port(1),eth_type(0x0800)", &[3])).unwrap();
    device.install(TO_B, "2").unwrap();
    let name = filters(network).into_iter().find(|line| line.contains("pref 900 ")).expect("the mirror");
    assert!(name.contains("protocol ip "), "{name}");
    for command in [
        "tc filter del dev p1 ingress protocol ip pref 900 handle 1 flower",
        "tc filter del dev p1 ingress protocol ip pref 900",
        "tc filter del dev p1 ingress",
        "tc qdisc del dev p1 ingress",
    ] {
        let before = copied(&device, "tap");
        network.run(command);
        eventually("the mirror is back", || device.mirrors().mirror_counters("tap").is_some());
        network.send(0, 1);
        assert_eq!(copies.frames(1).len(), 1, "after {command}");
        assert_eq!(device.mirrors().check_mirrors(false), Ok(vec![]), "after {command}");
        assert_eq!(copied(&device, "tap"), before + 1, "after {command}");
    }
}

fn a_filter_that_somebody_puts_in_the_place_of_a_mirror_stays_and_so_does_the_mirror(network: &Network) {
    let copies = network.tap();
    let device = device();
    device.mirrors().set_mirror(&mirror("tap", "in_port(1),eth_type(0x0800)", &[3])).unwrap();
    network.run("tc filter replace dev p1 ingress protocol ip pref 900 handle 1 flower action continue");
    eventually("the mirror is elsewhere", || {
        let filters = filters(network);
        filters.len() == 2 && filters[1].contains("pref 901 ")
    });
    assert!(filters(network)[0].contains("pref 900 "));
    network.send(0, 1);
    assert_eq!((copies.frames(1).len(), copied(&device, "tap")), (1, 1));
    device.mirrors().remove_mirror("tap").unwrap();
    assert_eq!(filters(network).len(), 1, "what is somebody else's");
}

fn a_mirror_that_is_changed_counts_on_and_one_that_is_removed_leaves_nothing(network: &Network) {
    let copies = network.tap();
    let arriving = network.capture(1);
    let device = device();
    for (key, ports, rules) in [
        ("in_port(1),eth_type(0x0800)", &[3][..], 1),
        ("in_port(1),eth_type(0x0800)", &[3, 2], 1),
        ("in_port(1),eth_type(0x0800),ipv4(proto=17)", &[3], 1),
        ("in_port(1)", &[2, 3], 1),
    ]
    .into_iter()
    {
        let before = device.mirrors().mirror_counters("tap").map_or(0, |counters| counters.packets);
        device.mirrors().set_mirror(&mirror("tap", key, ports)).unwrap();
        assert_eq!(filters(network).len(), rules, "{key}");
        network.hosts[0].send(1, network.hosts[1].address);
        assert_eq!(copies.frames(1).len(), 1, "{key}");
        assert_eq!(arriving.frames(ports.len() - 1).len(), ports.len() - 1, "{key}");
        assert_eq!(copied(&device, "tap"), before + 1, "{key}");
    }
    let refusal = device.mirrors().set_mirror(&mirror("tap", "in_port(1)", &[9])).unwrap_err();
    assert_eq!((refusal.label(), filters(network).len(), copied(&device, "tap")), ("port", 1, 4), "it stays as it was");
    device.mirrors().remove_mirror("tap").unwrap();
    assert_eq!(filters(network), Vec::<String>::new());
    assert!(device.mirrors().mirror_counters("tap").is_none());
    assert_eq!(device.mirrors().remove_mirror("tap").unwrap_err().to_string(), "device: there is no mirror tap");
}

fn a_mirror_is_read_with_the_flows_and_a_listing_from_before_a_change_is_not_used(network: &Network) {
    let copies = network.tap();
    let mut device = device();
    device.mirrors().set_mirror(&mirror("tap", "in_port(1)", &[3])).unwrap();
    let send = || {
        network.send(0, 2);
        assert_eq!(copies.frames(2).len(), 2);
    };
    send();
    assert_eq!(copied(&device, "tap"), 2, "asked for, since nothing was listed");
    device.counted();
    send();
    assert_eq!(copied(&device, "tap"), 2, "as of the listing");
    assert_eq!(copied(&device, "tap"), 4, "a listing is used once");
    device.counted();
    // What the rule before has counted is carried over, and is in the listing, too.
    device.mirrors().set_mirror(&mirror("tap", "in_port(1)", &[3, 2])).unwrap();
    assert_eq!(copied(&device, "tap"), 4);
}

fn a_mirror_goes_with_its_port_and_comes_back_with_it(network: &Network) {
    let copies = network.tap();
    let mut device = device();
    device.mirrors().set_mirror(&mirror("tap", "in_port(1)", &[3])).unwrap();
    network.send(0, 2);
    assert_eq!(copies.frames(2).len(), 2);
    device.backend.detach_port(PortNumber(1)).unwrap();
    assert!(device.mirrors().mirror_counters("tap").is_none());
    device.attach(1);
    network.send(0, 1);
    assert_eq!((copies.frames(1).len(), copied(&device, "tap")), (1, 3));
}

fn a_mirror_that_cannot_be_is_refused_with_the_reason(network: &Network) {
    let mut device = Device::bare(OffloadPolicy::SkipSoftware, OWNER);
    device.attach(1);
    device.attach(2);
    let refusal = device.mirrors().set_mirror(&mirror("tap", "in_port(1)", &[2])).unwrap_err();
    assert!(matches!(&refusal, Refusal::Kernel { errno: 95, .. }), "there is no hardware: {refusal}");
    let refusal = device.mirrors().set_mirror(&mirror("tap", "in_port(7)", &[2])).unwrap_err();
    assert_eq!(refusal.to_string(), "port 7: there is no such port");
    assert!(device.mirrors().mirror_counters("tap").is_none());
    assert_eq!(filters(network), Vec::<String>::new());
}
