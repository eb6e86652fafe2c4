//! Every flower key that the driver takes, in hardware: a rule for each, packets that differ from what it wants by a bit, and
//! packets that differ in bits that it leaves open.

use std::ops::Range;

use sluice_connectx::steering::Port;

use crate::packet::{ICMP, ICMPV6, Packet, TCP, UDP};
use crate::rows::{Installed, marked};
use crate::{MANAGER, VF0, World};

/// A key, a packet that has it, and which of its bits matter.
struct Key {
    protocol: &'static str,
    words: &'static str,
    packet: Packet,
    /// Each bit of them makes a difference.
    matters: Vec<Range<usize>>,
    /// None of them does.
    is_open: Vec<Range<usize>>,
}

/// Bits of a frame, from a byte on.
fn bits(byte: usize, from: usize, number: usize) -> Range<usize> {
    byte * 8 + from..byte * 8 + from + number
}

fn key(
    protocol: &'static str,
    words: &'static str,
    packet: Packet,
    matters: &[Range<usize>],
    is_open: &[Range<usize>],
) -> Key {
    Key { protocol, words, packet, matters: matters.to_vec(), is_open: is_open.to_vec() }
}

fn ethernet_and_vlan() -> Vec<Key> {
    let plain = || Packet::v4(TCP);
    let tagged = |tags: &[(u16, u16)]| Packet { tags: tags.to_vec(), ..plain() };
    let one = || tagged(&[(0x8100, 5 << 13 | 100)]);
    let two = || tagged(&[(0x88a8, 3 << 13 | 200), (0x8100, 5 << 13 | 100)]);
    vec![
        key("ip", "", plain(), &[bits(0, 0, 40), bits(12, 0, 16)], &[bits(6, 0, 48), bits(15, 0, 8)]),
        key("ip", "src_mac 02:00:00:00:00:01", plain(), &[bits(6, 0, 48)], &[bits(26, 0, 32)]),
        key("ip", "src_mac 02:00:00:00:00:00/ff:ff:ff:00:00:00", plain(), &[bits(6, 0, 24)], &[bits(9, 0, 24)]),
        key("802.1q", "vlan_id 100", one(), &[bits(14, 4, 12)], &[bits(14, 0, 3), bits(16, 0, 16)]),
        key("802.1q", "vlan_prio 5", one(), &[bits(14, 0, 3)], &[bits(14, 4, 12)]),
        key(
            "802.1q",
            "vlan_id 100 vlan_prio 5 vlan_ethtype ip",
            one(),
            &[bits(14, 0, 3), bits(14, 4, 12), bits(16, 0, 16)],
            &[bits(30, 0, 32)],
        ),
        key(
            "802.1q",
            "vlan_id 100 vlan_ethtype ip dst_ip 10.9.9.9",
            one(),
            &[bits(14, 4, 12), bits(34, 0, 32)],
            &[bits(14, 0, 3), bits(30, 0, 32)],
        ),
        key(
            "802.1ad",
            "vlan_id 200 vlan_ethtype 802.1q cvlan_id 100",
            two(),
            &[bits(14, 4, 12), bits(18, 4, 12)],
            &[bits(14, 0, 3), bits(18, 0, 3)],
        ),
        key(
            "802.1ad",
            "vlan_id 200 vlan_ethtype 802.1q cvlan_id 100 cvlan_prio 5 cvlan_ethtype ip",
            two(),
            &[bits(18, 0, 3), bits(18, 4, 12), bits(20, 0, 16)],
            &[bits(14, 0, 3), bits(34, 0, 32)],
        ),
    ]
}

fn ipv4() -> Vec<Key> {
    let tcp = || Packet::v4(TCP);
    let tos = || Packet { tos: 0x29, ..tcp() };
    vec![
        key("ip", "src_ip 10.0.0.1", tcp(), &[bits(26, 0, 32)], &[bits(30, 0, 32)]),
        key("ip", "dst_ip 10.9.0.0/16", tcp(), &[bits(30, 0, 16)], &[bits(32, 0, 16), bits(26, 0, 32)]),
        key("ip", "ip_proto tcp", tcp(), &[bits(23, 0, 8)], &[bits(34, 0, 32)]),
        key("ip", "ip_tos 0x29", tos(), &[bits(15, 0, 8)], &[bits(22, 0, 8)]),
        key("ip", "ip_tos 0x28/0xfc", tos(), &[bits(15, 0, 6)], &[bits(15, 6, 2)]),
        key("ip", "ip_ttl 64", tcp(), &[bits(22, 0, 8)], &[bits(15, 0, 8)]),
        // DF does not matter, MF and the offset do.
        key("ip", "ip_flags nofrag", tcp(), &[bits(20, 2, 14)], &[bits(20, 0, 2)]),
        key("ip", "ip_flags frag", Packet { fragment: 0x2000, ..tcp() }, &[bits(20, 2, 1)], &[bits(20, 3, 13)]),
        key("ip", "ip_proto tcp src_port 1000", tcp(), &[bits(23, 0, 8), bits(34, 0, 16)], &[bits(36, 0, 16)]),
        key("ip", "ip_proto tcp dst_port 80", tcp(), &[bits(36, 0, 16)], &[bits(34, 0, 16)]),
        key(
            "ip",
            "ip_proto udp src_port 1000 dst_port 80",
            Packet::v4(UDP),
            &[bits(23, 0, 8), bits(34, 0, 32)],
            &[bits(38, 0, 32)],
        ),
        key(
            "ip",
            "ip_proto tcp tcp_flags 0x12/0x17",
            tcp(),
            &[bits(47, 3, 1), bits(47, 5, 3)],
            &[bits(47, 0, 3), bits(47, 4, 1)],
        ),
        key(
            "ip",
            "ip_proto icmp type 8 code 0",
            Packet { ports: [0x0800, 77], ..Packet::v4(ICMP) },
            &[bits(34, 0, 16)],
            &[bits(38, 0, 32)],
        ),
    ]
}

fn ipv6() -> Vec<Key> {
    let tcp = || Packet::v6(TCP);
    vec![
        key("ipv6", "", tcp(), &[bits(0, 0, 40), bits(12, 0, 16)], &[bits(22, 0, 256)]),
        key("ipv6", "src_ip fd00::1", tcp(), &[bits(22, 0, 128)], &[bits(38, 0, 128)]),
        key("ipv6", "dst_ip fd09::/16", tcp(), &[bits(38, 0, 16)], &[bits(40, 0, 112)]),
        key("ipv6", "ip_proto tcp", tcp(), &[bits(20, 0, 8)], &[bits(54, 0, 32)]),
        key("ipv6", "ip_tos 0x29", Packet { tos: 0x29, ..tcp() }, &[bits(14, 4, 8)], &[bits(14, 12, 20)]),
        key("ipv6", "ip_ttl 64", tcp(), &[bits(21, 0, 8)], &[bits(14, 4, 8)]),
        key(
            "ipv6",
            "ip_proto udp dst_port 80",
            Packet::v6(UDP),
            &[bits(20, 0, 8), bits(56, 0, 16)],
            &[bits(54, 0, 16)],
        ),
        key("ipv6", "ip_proto tcp tcp_flags 0x12", tcp(), &[bits(66, 7, 1), bits(67, 0, 8)], &[bits(54, 0, 16)]),
        key(
            "ipv6",
            "ip_proto icmpv6 type 128 code 0",
            Packet { ports: [0x8000, 77], ..Packet::v6(ICMPV6) },
            &[bits(54, 0, 16)],
            &[bits(58, 0, 32)],
        ),
    ]
}

pub(crate) fn every_key_is_matched_to_the_bit(world: &World) {
    let keys: Vec<Key> = [ethernet_and_vlan(), ipv4(), ipv6()].into_iter().flatten().collect();
    let rules = keys.iter().map(|key| (key.protocol, key.words, "mirred egress redirect dev p0"));
    let installed = Installed::put_in(world, "pf0vf0", rules);
    let mut hits = vec![0; keys.len()];
    for (number, key) in keys.iter().enumerate() {
        let frame = marked(&key.packet, number).frame();
        world.pass(VF0, &frame, &[(Port::Wire, &frame)]);
        hits[number] += 1;
        for bit in key.is_open.iter().cloned().flatten() {
            let other = flipped(&frame, bit);
            told(key, bit, || world.pass(VF0, &other, &[(Port::Wire, &other)]));
            hits[number] += 1;
        }
        for bit in key.matters.iter().cloned().flatten() {
            let other = flipped(&frame, bit);
            told(key, bit, || world.pass(VF0, &other, &[(MANAGER, &other)]));
        }
    }
    installed.count(&hits);
    installed.take_out();
}

/// Says which key it was if it goes wrong.
fn told(key: &Key, bit: usize, check: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    if let Err(reason) = outcome {
        eprintln!("protocol {} {}: bit {} of byte {}", key.protocol, key.words, bit % 8, bit / 8);
        std::panic::resume_unwind(reason);
    }
}

fn flipped(frame: &[u8], bit: usize) -> Vec<u8> {
    let mut other = frame.to_vec();
    other[bit / 8] ^= 0x80 >> (bit % 8);
    other
}
