//! Every action that the driver takes, in hardware: a rule for each, and the packets that come out of it, byte by byte.

use std::net::IpAddr;

use sluice_connectx::steering::Port;

use crate::packet::{Packet, TCP, UDP};
use crate::rows::{Installed, marked};
use crate::{HOST_PF, VF0, VF1, World};

/// What a rule is for, what it does, and what becomes of a packet.
struct Deed {
    protocol: &'static str,
    words: &'static str,
    actions: &'static str,
    packet: Packet,
    leaves: fn(Packet) -> Vec<(Port, Packet)>,
}

fn deed(words: &'static str, actions: &'static str, packet: Packet, leaves: fn(Packet) -> Vec<(Port, Packet)>) -> Deed {
    let protocol = match packet.tags.first() {
        Some((0x88a8, _)) => "802.1ad",
        Some(_) => "802.1q",
        None if packet.source.is_ipv4() => "ip",
        None => "ipv6",
    };
    Deed { protocol, words, actions, packet, leaves }
}

fn to_wire(packet: Packet) -> Vec<(Port, Packet)> {
    vec![(Port::Wire, packet)]
}

/// With tags in front of those that it has.
fn tag(packet: Packet, tags: &[(u16, u16)]) -> Packet {
    let tags = [tags, &packet.tags].concat();
    Packet { tags, ..packet }
}

fn places() -> Vec<Deed> {
    let tcp = || Packet::v4(TCP);
    vec![
        deed("", "drop", tcp(), |_| vec![]),
        deed("", "mirred egress redirect dev p0", tcp(), to_wire),
        deed("", "mirred egress redirect dev pf0hpf", Packet::v6(UDP), |packet| vec![(HOST_PF, packet)]),
        deed("", "mirred egress mirror dev p0 pipe mirred egress redirect dev pf0vf1", tcp(), |packet| {
            vec![(Port::Wire, packet.clone()), (VF1, packet)]
        }),
        deed(
            "",
            "mirred egress mirror dev pf0hpf pipe mirred egress mirror dev pf0vf1 pipe mirred egress redirect dev p0",
            tcp(),
            |packet| vec![(HOST_PF, packet.clone()), (VF1, packet.clone()), (Port::Wire, packet)],
        ),
        // The copy goes before what is changed after it.
        deed(
            "",
            "mirred egress mirror dev pf0vf1 pipe vlan push id 100 pipe mirred egress redirect dev p0",
            tcp(),
            |packet| vec![(VF1, packet.clone()), (Port::Wire, tag(packet, &[(0x8100, 100)]))],
        ),
    ]
}

fn tags() -> Vec<Deed> {
    let tcp = || Packet::v4(TCP);
    let one = || tag(tcp(), &[(0x8100, 100)]);
    let two = || tag(tcp(), &[(0x88a8, 200), (0x8100, 100)]);
    vec![
        deed("", "vlan push id 100 pipe mirred egress redirect dev p0", tcp(), |packet| {
            to_wire(tag(packet, &[(0x8100, 100)]))
        }),
        deed("", "vlan push id 100 priority 5 pipe mirred egress redirect dev p0", Packet::v6(TCP), |packet| {
            to_wire(tag(packet, &[(0x8100, 5 << 13 | 100)]))
        }),
        deed("", "vlan push id 200 protocol 802.1ad pipe mirred egress redirect dev p0", tcp(), |packet| {
            to_wire(tag(packet, &[(0x88a8, 200)]))
        }),
        deed(
            "",
            "vlan push id 100 pipe vlan push id 200 protocol 802.1ad pipe mirred egress redirect dev p0",
            tcp(),
            |packet| to_wire(tag(packet, &[(0x88a8, 200), (0x8100, 100)])),
        ),
        deed("vlan_id 100", "vlan pop pipe mirred egress redirect dev p0", one(), |packet| {
            to_wire(Packet { tags: vec![], ..packet })
        }),
        deed(
            "vlan_id 200 vlan_ethtype 802.1q cvlan_id 100",
            "vlan pop pipe vlan pop pipe mirred egress redirect dev p0",
            two(),
            |packet| to_wire(Packet { tags: vec![], ..packet }),
        ),
        deed("vlan_id 200 vlan_ethtype 802.1q", "vlan pop pipe mirred egress redirect dev p0", two(), |packet| {
            to_wire(Packet { tags: vec![(0x8100, 100)], ..packet })
        }),
        deed("vlan_id 100 vlan_prio 0", "vlan modify id 300 pipe mirred egress redirect dev p0", one(), |packet| {
            to_wire(Packet { tags: vec![(0x8100, 300)], ..packet })
        }),
    ]
}

fn address(last: u8) -> IpAddr {
    [172, 16, 0, last].into()
}

fn address_v6(last: u8) -> IpAddr {
    (0x2001_0db8_u128 << 96 | u128::from(last)).to_be_bytes().into()
}

fn ipv4_headers() -> Vec<Deed> {
    let tcp = || Packet::v4(TCP);
    let udp = || Packet::v4(UDP);
    vec![
        deed(
            "",
            "pedit ex munge eth src set 02:00:00:00:00:0a munge eth dst set 02:00:00:00:00:0b \
             pipe mirred egress redirect dev p0",
            tcp(),
            |packet| to_wire(Packet { to: [2, 0, 0, 0, 0, 0xb], from: [2, 0, 0, 0, 0, 0xa], ..packet }),
        ),
        deed(
            "ip_proto tcp",
            "pedit ex munge ip src set 172.16.0.1 pipe csum ip4h tcp pipe mirred egress redirect dev p0",
            tcp(),
            |packet| to_wire(Packet { source: address(1), ..packet }),
        ),
        deed(
            "ip_proto udp",
            "pedit ex munge ip dst set 172.16.0.2 pipe csum ip4h udp pipe mirred egress redirect dev p0",
            udp(),
            |packet| to_wire(Packet { destination: address(2), ..packet }),
        ),
        deed(
            "ip_proto tcp",
            "pedit ex munge ip ttl set 9 pipe csum ip4h pipe mirred egress redirect dev p0",
            tcp(),
            |packet| to_wire(Packet { ttl: 9, ..packet }),
        ),
        deed(
            "ip_proto tcp",
            "pedit ex munge ip ttl dec pipe csum ip4h pipe mirred egress redirect dev p0",
            tcp(),
            |packet| to_wire(Packet { ttl: packet.ttl - 1, ..packet }),
        ),
        deed(
            "ip_proto tcp",
            "pedit ex munge ip dsfield set 0xb8 retain 0xfc pipe csum ip4h pipe mirred egress redirect dev p0",
            Packet { tos: 0x03, ..tcp() },
            |packet| to_wire(Packet { tos: 0xbb, ..packet }),
        ),
        deed(
            "ip_proto tcp",
            "pedit ex munge tcp sport set 2000 munge tcp dport set 8080 pipe csum ip4h tcp pipe mirred egress redirect dev p0",
            tcp(),
            |packet| to_wire(Packet { ports: [2000, 8080], ..packet }),
        ),
        deed(
            "ip_proto udp",
            "pedit ex munge udp sport set 2000 munge udp dport set 8080 pipe csum ip4h udp pipe mirred egress redirect dev p0",
            udp(),
            |packet| to_wire(Packet { ports: [2000, 8080], ..packet }),
        ),
        // What a router with address translation does.
        deed(
            "ip_proto tcp src_ip 10.0.0.1 src_port 1000",
            "pedit ex munge eth src set 02:00:00:00:00:0a munge eth dst set 02:00:00:00:00:0b munge ip ttl dec \
             munge ip src set 172.16.0.1 munge tcp sport set 2000 pipe csum ip4h tcp pipe mirred egress redirect dev p0",
            tcp(),
            |packet| {
                to_wire(Packet {
                    to: [2, 0, 0, 0, 0, 0xb],
                    from: [2, 0, 0, 0, 0, 0xa],
                    ttl: 63,
                    source: address(1),
                    ports: [2000, 80],
                    ..packet
                })
            },
        ),
        deed(
            "ip_proto udp",
            "pedit ex munge ip ttl dec pipe csum ip4h pipe vlan push id 100 pipe mirred egress mirror dev pf0vf1 \
             pipe mirred egress redirect dev p0",
            udp(),
            |packet| {
                let packet = tag(Packet { ttl: 63, ..packet }, &[(0x8100, 100)]);
                vec![(VF1, packet.clone()), (Port::Wire, packet)]
            },
        ),
    ]
}

fn ipv6_headers() -> Vec<Deed> {
    vec![
        deed(
            "ip_proto tcp",
            "pedit ex munge ip6 src set 2001:db8::1 munge ip6 dst set 2001:db8::2 pipe csum tcp \
             pipe mirred egress redirect dev p0",
            Packet::v6(TCP),
            |packet| to_wire(Packet { source: address_v6(1), destination: address_v6(2), ..packet }),
        ),
        deed(
            "ip_proto udp",
            "pedit ex munge ip6 hoplimit set 9 pipe mirred egress redirect dev p0",
            Packet::v6(UDP),
            |packet| to_wire(Packet { ttl: 9, ..packet }),
        ),
        deed(
            "ip_proto udp",
            "pedit ex munge ip6 hoplimit dec pipe mirred egress redirect dev p0",
            Packet::v6(UDP),
            |packet| to_wire(Packet { ttl: packet.ttl - 1, ..packet }),
        ),
        deed(
            "ip_proto tcp",
            "pedit ex munge tcp dport set 8080 pipe csum tcp pipe mirred egress redirect dev p0",
            Packet::v6(TCP),
            |packet| to_wire(Packet { ports: [1000, 8080], ..packet }),
        ),
    ]
}

pub(crate) fn every_action_is_done_to_the_byte(world: &World) {
    let deeds: Vec<Deed> = [places(), tags(), ipv4_headers(), ipv6_headers()].into_iter().flatten().collect();
    let installed =
        Installed::put_in(world, "pf0vf0", deeds.iter().map(|deed| (deed.protocol, deed.words, deed.actions)));
    for (number, deed) in deeds.iter().enumerate() {
        let packet = marked(&deed.packet, number);
        let expected: Vec<_> =
            (deed.leaves)(packet.clone()).into_iter().map(|(port, packet)| (port, packet.frame())).collect();
        let expected: Vec<_> = expected.iter().map(|(port, frame)| (*port, frame.as_slice())).collect();
        let check = || world.pass(VF0, &packet.frame(), &expected);
        if let Err(reason) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
            eprintln!("protocol {} {} action {}", deed.protocol, deed.words, deed.actions);
            std::panic::resume_unwind(reason);
        }
    }
    installed.count(&vec![1; deeds.len()]);
    installed.take_out();
}

/// What the driver does not take, with its reason.
const REFUSED: &[(&str, &str, &str)] =
    &[("ip_flags firstfrag", "drop", "mlx5_core: Match on frag first/later is not supported")];

pub(crate) fn what_the_driver_does_not_take_is_told(world: &World) {
    world.guest.run("tc qdisc add dev pf0vf0 ingress");
    for (words, actions, reason) in REFUSED {
        let ran = world.guest.attempt(&format!(
            "tc filter add dev pf0vf0 ingress protocol ip pref 1 flower skip_sw {words} action {actions}"
        ));
        assert!(ran.code != 0 && ran.err.contains(reason), "{words} {actions}: {ran:?}");
    }
    world.guest.run("tc qdisc del dev pf0vf0 ingress");
}
