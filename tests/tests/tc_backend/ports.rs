//! Ports of all kinds, and what is made for them.

use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use sluice_flow::Cause;
use sluice_flow::backend::{Adoption, DeviceEvent, InstalledRule};
use sluice_flow::chain::ChainId;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_offload_tc::OffloadPolicy;

use sluice_flow::text::parse_key;

use crate::device::{Device, OWNER, Rule, TO_A, TO_B, port};
use crate::network::{Network, eventually};
use crate::stories;

stories![
    a_port_that_goes_takes_its_qdisc_with_it_only_if_that_was_made_for_it,
    a_qdisc_goes_with_its_port_also_if_rules_were_on_their_way_there,
    a_port_without_a_device_is_refused,
    a_port_that_is_expected_works_once_its_device_is_there,
    a_device_that_is_gone_is_no_longer_listed_as_one_with_a_qdisc_of_ours,
    a_port_counts_what_comes_and_goes,
    rules_of_a_port_that_went_see_no_traffic_and_keep_their_counters,
    tunnel_devices_are_made_and_removed_with_their_ports,
    a_tunnel_device_of_somebody_else_is_used_and_left,
    an_internal_port_sends_and_receives,
    members_of_a_bond_share_their_rules,
    what_no_rule_of_a_bond_takes_meets_its_mirrors_and_chains_once,
    what_a_member_receives_that_cannot_have_the_rules_of_its_bond_meets_them_at_the_bond,
    a_device_that_leaves_a_bond_no_longer_has_its_rules,
    a_device_that_left_a_bond_while_no_agent_ran_no_longer_has_its_rules,
    members_of_a_bond_that_is_deleted_no_longer_have_its_rules,
    what_somebody_else_has_in_the_block_of_a_deleted_bond_stays_with_its_last_member,
    a_bond_that_was_made_again_while_no_agent_ran_works_and_rules_of_the_one_before_do_not,
];

fn qdiscs(network: &Network) -> String {
    network.run("tc qdisc show dev p1")
}

fn a_port_that_goes_takes_its_qdisc_with_it_only_if_that_was_made_for_it(network: &Network) {
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(1);
    assert!(qdiscs(network).contains("ingress"));
    assert_eq!(device.backend.attach_port(&port(1)).unwrap_err().label(), "port");
    device.backend.detach_port(PortNumber(1)).unwrap();
    assert!(!qdiscs(network).contains("ingress"));
    network.run("tc qdisc add dev p1 clsact");
    device.attach(1);
    device.backend.detach_port(PortNumber(1)).unwrap();
    assert!(qdiscs(network).contains("clsact"));
    assert_eq!(device.backend.detach_port(PortNumber(1)).unwrap_err().label(), "port");
}

/// Whether there is a rule at the first port. Reads no more of the list than that.
fn has_a_rule() -> bool {
    let mut command = Command::new("tc");
    command.args(["filter", "show", "dev", "p1", "ingress"]);
    let mut list = command.stdout(Stdio::piped()).spawn().unwrap();
    let is_any = list.stdout.take().unwrap().read(&mut [0]).unwrap() > 0;
    list.kill().unwrap();
    list.wait().unwrap();
    is_any
}

fn a_qdisc_goes_with_its_port_also_if_rules_were_on_their_way_there(network: &Network) {
    let mut device = Device::open();
    let backend = Arc::clone(&device.backend);
    let key = |number: u32| TO_B.replace("10.0.0.2", &Ipv4Addr::from_bits(0x0a01_0000 + number).to_string());
    let flows: Vec<_> = (0..20_000).map(|number| (key(number), "2")).collect();
    // A worker sends its whole batch to the port that it began with.
    let installed = std::thread::scope(|scope| {
        let installing = scope.spawn(|| device.install_all(&flows));
        eventually("rules come", has_a_rule);
        backend.detach_port(PortNumber(1)).unwrap();
        installing.join().unwrap()
    });
    assert!(qdiscs(network).contains("ingress"), "there are rules");
    let rules: Vec<_> = installed.into_iter().filter_map(Result::ok).collect();
    device.remove_all(&rules);
    eventually("the queueing discipline goes after its rules", || !qdiscs(network).contains("ingress"));
}

fn a_device_that_is_gone_is_no_longer_listed_as_one_with_a_qdisc_of_ours(network: &Network) {
    let folder = std::env::temp_dir().join(format!("sluice-gone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let open = || Device::with_state(OffloadPolicy::SkipHardware, OWNER, Some(folder.clone()));
    let listed = || std::fs::read_to_string(folder.join("tc-qdiscs")).unwrap().lines().count();
    let mut device = open();
    device.attach(1);
    for _ in 0..2 {
        assert_eq!(listed(), 1);
        network.run("ip link del p1");
        eventually("the port has no device", || device.backend.is_absent(PortNumber(1)));
        assert_eq!(listed(), 0);
        network.plug(1);
        eventually("the port has a device", || !device.backend.is_absent(PortNumber(1)));
    }
    drop(device);
    network.run("ip link del p1");
    open().adoption().adopt(&mut |_: &InstalledRule| panic!("there is no rule")).unwrap();
    assert_eq!(listed(), 0, "nor one that has gone while no agent ran");
    std::fs::remove_dir_all(folder).unwrap();
}

fn a_port_counts_what_comes_and_goes(network: &Network) {
    let mut device = Device::open();
    device.install(TO_B, "2").unwrap();
    let counters = |number| device.backend.port_counters(PortNumber(number)).unwrap();
    let before = [1, 2].map(counters);
    assert_eq!(network.send(0, 9).len(), 9);
    let after = [1, 2].map(counters);
    assert_eq!(after[0].rx_packets - before[0].rx_packets, 9);
    assert_eq!(after[0].rx_bytes - before[0].rx_bytes, 9 * crate::network::FRAME);
    assert_eq!(after[1].tx_packets - before[1].tx_packets, 9);
    assert_eq!(device.backend.port_counters(PortNumber(5)), None);
}

fn a_port_without_a_device_is_refused(_: &Network) {
    let device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    let refusal = device.backend.attach_port(&port(9)).unwrap_err();
    assert_eq!(refusal.to_string(), "port p9: there is no such device");
    device.backend.detach_port(PortNumber(9)).unwrap_err();
}

fn a_port_that_is_expected_works_once_its_device_is_there(network: &Network) {
    let mut device = Device::open();
    device.backend.detach_port(PortNumber(2)).unwrap();
    network.run("ip link set p2 down");
    network.run("ip link set p2 name away2");
    let mirror = |copy| {
        let key = parse_key("in_port(1)", &()).unwrap();
        Mirror::new("m", key.matching, vec![PortNumber(copy)]).unwrap()
    };
    device.backend.expect_port(&port(2)).unwrap();
    assert!(device.backend.is_absent(PortNumber(2)) && !device.backend.is_absent(PortNumber(1)));
    device.mirrors().set_mirror(&mirror(2)).unwrap();
    assert_eq!(device.mirrors().mirror_counters("m"), None, "not in the device");
    let refusal = device.install(TO_B, "2").unwrap_err();
    assert_eq!(refusal.cause(), Some(Cause::Port(Some(PortNumber(2)))), "{refusal}");

    device.events();
    network.run("ip link set away2 name p2");
    network.run("ip link set p2 up");
    let came = DeviceEvent::Changed { cause: Cause::Port(Some(PortNumber(2))) };
    while !device.events().contains(&came) {
        std::thread::yield_now();
    }
    assert!(!device.backend.is_absent(PortNumber(2)));
    assert!(device.mirrors().mirror_counters("m").is_some());
    device.mirrors().remove_mirror("m").unwrap();
    device.install(TO_B, "2").unwrap();
    assert_eq!(network.send(0, 3).len(), 3);
}

fn rules_of_a_port_that_went_see_no_traffic_and_keep_their_counters(network: &Network) {
    let mut device = Device::open();
    let rules = [TO_B, "in_port(1),eth_type(0x86dd)"].map(|key| device.install(key, "2").unwrap());
    let kept = device.install(TO_A, "1").unwrap();
    network.send(0, 5);
    device.backend.detach_port(PortNumber(1)).unwrap();
    assert_eq!(network.send(0, 2), [0; 0]);
    assert_eq!(device.install(TO_B, "2").unwrap_err().label(), "port");
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&kept.id]);
    assert_eq!(device.remove(rules[0]).unwrap().packets, 5);
    device.events();
    device.attach(1);
    let lost: Vec<_> = device.events().into_iter().filter(|event| matches!(event, DeviceEvent::RuleLost(_))).collect();
    let Rule { id, handle, .. } = rules[1];
    let told = sluice_flow::backend::LostRule { flow: id, handle };
    assert_eq!(lost, [DeviceEvent::RuleLost(told)], "so that it is put in again");
    device.install(TO_B, "2").unwrap();
    assert_eq!(network.send(0, 2).len(), 2);
}

pub(crate) fn tunnel(number: u32, name: &str, protocol: TunnelProtocol) -> Port {
    let udp_port = protocol.default_udp_port();
    let kind = PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(1) });
    Port { number: PortNumber(number), name: name.parse().expect("a name"), kind }
}

fn tunnel_devices_are_made_and_removed_with_their_ports(network: &Network) {
    let device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    let kinds = [
        (TunnelProtocol::Vxlan, "vxlan external gbp"),
        (TunnelProtocol::Geneve, "geneve external"),
        (TunnelProtocol::Gre, "gretap external"),
    ];
    for (number, (protocol, _)) in (5..).zip(kinds) {
        device.backend.attach_port(&tunnel(number, protocol.name(), protocol)).unwrap();
    }
    for (protocol, words) in kinds {
        let shown = network.run(&format!("ip -d link show dev {}", protocol.name()));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        words.split(' ').for_each(|word| assert!(shown.contains(word), "{word}: {shown}"));
        assert!(network.run(&format!("tc qdisc show dev {}", protocol.name())).contains("ingress"));
    }
    let refusal = device.backend.attach_port(&tunnel(9, "gtp0", TunnelProtocol::Gtpu)).unwrap_err();
    assert_eq!(refusal.to_string(), "port gtp0: the kernel has no collect-metadata device for GTP-U");
    for number in 5..8 {
        device.backend.detach_port(PortNumber(number)).unwrap();
    }
    let left = network.run("ip -br link");
    assert!(!left.contains("geneve") && !left.contains("vxlan"), "{left}");
}

fn a_tunnel_device_of_somebody_else_is_used_and_left(network: &Network) {
    network.run("ip link add vx0 type vxlan external dstport 4789");
    network.run("ip link add vx1 type vxlan id 5 dstport 4790");
    let device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.backend.attach_port(&tunnel(5, "vx0", TunnelProtocol::Vxlan)).unwrap();
    let refusal = device.backend.attach_port(&tunnel(6, "vx1", TunnelProtocol::Vxlan)).unwrap_err();
    assert!(refusal.to_string().contains("not in collect-metadata mode"), "{refusal}");
    device.backend.detach_port(PortNumber(5)).unwrap();
    assert!(network.run("ip -br link").contains("vx0"));
}

fn an_internal_port_sends_and_receives(network: &Network) {
    network.run("ip link add br0 type dummy");
    network.run("ip link set br0 address 02:00:00:00:00:01 up");
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    let internal = Port { number: PortNumber(1), name: "br0".parse().expect("a name"), kind: PortKind::Internal };
    device.backend.attach_port(&internal).unwrap();
    let there = device.install(TO_B, "2").unwrap();
    network.run("ip address add 10.0.0.1/24 dev br0");
    network.run("ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev br0 nud permanent");
    let socket = std::net::UdpSocket::bind("10.0.0.1:4000").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    socket.send_to(&7u32.to_be_bytes(), "10.0.0.2:4000").unwrap();
    assert_eq!(network.hosts[1].receive(1), [7]);
    assert_eq!(device.counted()[&there.id], (1, crate::network::FRAME), "nothing is left out of what is sent");
    device.install(TO_A, "1").unwrap();
    network.hosts[1].send(8, "10.0.0.1".parse().unwrap());
    let mut buffer = [0; 16];
    assert_eq!(socket.recv(&mut buffer).unwrap(), 4);
}

/// Makes a bond of the first port's device.
fn bond(network: &Network, number: u32) -> Port {
    network.run("ip link add bond7 type bond mode active-backup");
    network.run("ip link set p1 down");
    network.run("ip link set p1 master bond7");
    network.run("ip link set bond7 up");
    Port { number: PortNumber(number), name: "bond7".parse().expect("a name"), kind: PortKind::Physical }
}

fn members_of_a_bond_share_their_rules(network: &Network) {
    let bond = bond(network, 1);
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    device.backend.attach_port(&bond).unwrap();
    let rule = device.install(TO_B, "2").unwrap();
    assert_eq!(network.send(0, 3).len(), 3);
    assert_eq!(device.counted()[&rule.id], (3, 3 * crate::network::FRAME));
    assert_eq!(device.installed().pop().unwrap().handle, rule.handle);
    device.backend.detach_port(PortNumber(1)).unwrap();
    assert!(!qdiscs(network).contains("ingress"));
}

fn what_no_rule_of_a_bond_takes_meets_its_mirrors_and_chains_once(network: &Network) {
    let copies = network.tap();
    let bond = bond(network, BOND);
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    device.attach(3);
    device.backend.attach_port(&bond).unwrap();
    device.open_chain(ChainId(5));
    let jump = device.install(FROM_BOND, "recirc(5)").unwrap();
    let every = parse_key("in_port(4)", &()).unwrap().matching;
    device.mirrors().set_mirror(&Mirror::new("m", every, vec![PortNumber(3)]).unwrap()).unwrap();
    let mut sum = 0;
    let mut send = |device: &mut Device| {
        sum += 3;
        assert_eq!(network.send(0, 3), [0; 0]);
        assert_eq!(copies.frames(4).len(), 3);
        assert_eq!(device.counted()[&jump.id].0, sum);
        assert_eq!(device.backend.lookup_counters().unwrap().chain_misses, Some(sum));
    };
    send(&mut device);
    let number = network.run("ip -o link show dev bond7").split(':').next().unwrap().to_owned();
    network.run(&format!("tc filter del block {number} pref 899"));
    eventually("what keeps them apart is there again", || {
        device.counted();
        network.run(&format!("tc filter show block {number} pref 899")).contains("indev bond7")
    });
    send(&mut device);
    device.backend.detach_port(PortNumber(BOND)).unwrap();
    assert!(!qdiscs(network).contains("ingress"), "it goes with the port");
}

fn what_a_member_receives_that_cannot_have_the_rules_of_its_bond_meets_them_at_the_bond(network: &Network) {
    network.run("ip link add bond7 type bond mode active-backup");
    network.run("ip link set bond7 up");
    let kind = PortKind::Physical;
    let bond = Port { number: PortNumber(BOND), name: "bond7".parse().expect("a name"), kind };
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    device.backend.attach_port(&bond).unwrap();
    device.install(FROM_BOND, "2").unwrap();
    network.run("tc qdisc add dev p1 clsact");
    network.run("ip link set p1 down");
    network.run("ip link set p1 master bond7");
    network.run("ip link set p1 up");
    eventually("its packets are forwarded", || network.send(0, 1).len() == 1);
}

fn a_device_that_leaves_a_bond_no_longer_has_its_rules(network: &Network) {
    let bond = bond(network, 3);
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    device.backend.attach_port(&bond).unwrap();
    device.install("in_port(3),eth_type(0x0800),ipv4(dst=10.0.0.2)", "2").unwrap();
    assert_eq!(network.send(0, 3).len(), 3);
    network.run("ip link set p1 nomaster");
    eventually("the member has no filters", || !qdiscs(network).contains("ingress"));
    network.run("ip link set p1 up");
    assert_eq!(network.send(0, 2), [0; 0]);
    device.attach(1);
    device.install(TO_B, "2").unwrap();
    assert_eq!(network.send(0, 2).len(), 2);
}

fn a_device_that_left_a_bond_while_no_agent_ran_no_longer_has_its_rules(network: &Network) {
    let bond = bond(network, 3);
    let folder = std::env::temp_dir().join(format!("sluice-bond-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = || {
        let device = Device::with_state(OffloadPolicy::SkipHardware, OWNER, Some(folder.clone()));
        device.backend.attach_port(&bond).unwrap();
        device
    };
    drop(run());
    assert!(qdiscs(network).contains("ingress_block"));
    network.run("ip link set p1 nomaster");
    let mut device = run();
    assert!(!qdiscs(network).contains("ingress"));
    device.attach(1);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The number of the bond's port, and a flow from it to the second host.
const BOND: u32 = 4;
const FROM_BOND: &str = "in_port(4),eth_type(0x0800),ipv4(dst=10.0.0.2)";

/// Makes a bond as before, with a second member that is connected to nothing.
fn bond_of_two(network: &Network) -> Port {
    let bond = bond(network, BOND);
    network.run("ip link add d1 type dummy");
    network.run("ip link set d1 master bond7");
    bond
}

/// Deletes the bond, and waits until its port has no device.
fn delete(network: &Network, device: &Device) {
    network.run("ip link del bond7");
    eventually("the port has no device", || device.backend.is_absent(PortNumber(BOND)));
    network.run("ip link set p1 up");
}

/// How many devices have the filters of a bond.
fn sharers(network: &Network) -> usize {
    network.run("tc qdisc show").matches("ingress_block").count()
}

fn members_of_a_bond_that_is_deleted_no_longer_have_its_rules(network: &Network) {
    let copies = network.tap();
    let bond_of_two = bond_of_two(network);
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    device.attach(3);
    device.backend.attach_port(&bond_of_two).unwrap();
    device.open_chain(ChainId(5));
    let rule = device.install(FROM_BOND, "2").unwrap();
    let jump = device.install("in_port(4),eth_type(0x0800),ipv4(dst=10.0.0.3)", "recirc(5)").unwrap();
    let every = parse_key("in_port(4)", &()).unwrap().matching;
    device.mirrors().set_mirror(&Mirror::new("m", every, vec![PortNumber(3)]).unwrap()).unwrap();
    assert_eq!((network.send(0, 3).len(), copies.frames(3).len()), (3, 3));

    delete(network, &device);
    eventually("no former member has filters", || sharers(network) == 0);
    assert_eq!((network.send(0, 2).len(), copies.frames(1).len()), (0, 0));
    assert_eq!(device.mirrors().mirror_counters("m"), None, "not in the device");
    assert_eq!(device.remove(jump).unwrap().packets, 0);

    bond(network, BOND);
    eventually("the mirror is back", || device.mirrors().mirror_counters("m").is_some() && sharers(network) == 2);
    let rule = device.modify(rule, FROM_BOND, "2").unwrap();
    assert_eq!((network.send(0, 2).len(), copies.frames(2).len()), (2, 2));
    assert_eq!(device.remove(rule).unwrap().packets, 5, "by the rules of both bonds");
    assert_eq!(device.mirrors().mirror_counters("m").unwrap().packets, 5);
}

fn what_somebody_else_has_in_the_block_of_a_deleted_bond_stays_with_its_last_member(network: &Network) {
    let bond = bond_of_two(network);
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    device.attach(2);
    device.backend.attach_port(&bond).unwrap();
    device.install(FROM_BOND, "2").unwrap();
    let shown = network.run("ip -oneline link show dev bond7");
    let (block, _) = shown.split_once(':').unwrap();
    network.run(&format!("tc filter add block {block} protocol 0x88b5 prio 7 flower action drop"));
    delete(network, &device);
    eventually("one former member has the filter", || sharers(network) == 1);
    assert_eq!(network.send(0, 2), [0; 0]);
    network.run(&format!("tc filter del block {block}"));
    eventually("no former member has filters", || sharers(network) == 0);
}

fn a_bond_that_was_made_again_while_no_agent_ran_works_and_rules_of_the_one_before_do_not(network: &Network) {
    let first = bond_of_two(network);
    let folder = std::env::temp_dir().join(format!("sluice-bonds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let bare = || Device::with_state(OffloadPolicy::SkipHardware, OWNER, Some(folder.clone()));
    let run = |bond: &Port| {
        let mut device = bare();
        device.attach(2);
        device.backend.attach_port(bond).unwrap();
        device
    };
    run(&first).install(FROM_BOND, "2").unwrap();
    assert_eq!(network.send(0, 3).len(), 3);
    network.run("ip link del bond7");
    let again = bond(network, BOND);
    let mut device = run(&again);
    assert_eq!(network.send(0, 2), [0; 0]);
    device.install(FROM_BOND, "2").unwrap();
    assert_eq!(network.send(0, 2).len(), 2);
    drop(device);

    network.run("ip link del bond7");
    network.run("ip link set p1 up");
    let adoption = bare().adoption().adopt(&mut |_: &InstalledRule| panic!("no flow can have it"));
    assert_eq!(adoption, Ok(Adoption { adopted: 0, orphans: 1 }));
    assert_eq!(sharers(network), 0);
    assert_eq!(network.send(0, 2), [0; 0]);
    std::fs::remove_dir_all(folder).unwrap();
}
