//! `libmlx5-matches.txt` and `libmlx5-rewrites.txt` are steering memory as Debian's unmodified libmlx5 44.0 wrote it for an FDB domain on format 1: the roots of two
//! tables, then the address and the bytes of every entry that is not zero. In the first, table 1 has, in the order of their priorities, rules on
//! an IPv4 5-tuple from 10.0.0.1:1111 over UDP to port 2222 of
//!
//! - 10.0.0.2 and 10.0.0.16 to .23: count, to vport 2
//! - 10.0.0.3: drop; 10.0.0.4: push VLAN 100, to the wire; 10.0.0.5: encap, to the wire; 10.0.0.6: count, to table 2
//!
//! then IPv6 to 2001:db8::9: to vport 1; VLAN 5 to 02:00:00:00:00:01: pop, to vport 1; register C0 of 7: count, to vport 1; VXLAN 42
//! from the wire with TCP port 80 inside: decap, to vport 1. Table 2 sends everything to the wire. The device that it was written
//! for gave the addresses 0xf0_VVVV_4000 (from the wire) and 0xf0_VVVV_8000 (from vports) to vports, 0xe0_0000_0140 and _0180 to
//! dropping, and counter 0x110.
//!
//! In the second, table 1 has rules on the IPv4 destination: 10.0.0.2: TTL 63, to the wire; .3: TTL - 1, to the wire; .4: a list of
//! five, to the wire; .5: bits 8 to 15 of register C1 to 0x5a, to table 2; .6: destination to register C0, to table 2. Table 2 has
//! register C0 of 10.0.0.6: to vport 2; register C1 of 0x5a00: to vport 1. Lists begin at 0x20_0000_0000. `libmlx5-rewrites-2.txt`
//! is the same for format 2.

use std::collections::HashMap;

use crate::packet::edit::checksum;
use crate::packet::sample::{HOST, ethernet, ipv4, ipv6, tagged, tcp_frame, udp, vxlan_frame};
use crate::steering::{ENTRY, Format, Origin, Port, Profile, SteWalk, Steering, SteeringMemory};

const FROM_WIRE: u64 = 0x10_0000_0000;
const FROM_VPORTS: u64 = 0x10_0000_0040;

const COUNTER: u32 = 0x110;

struct Written(HashMap<u64, [u8; ENTRY]>);

impl Written {
    fn matches() -> Self {
        Self::read(include_str!("libmlx5-matches.txt"))
    }

    fn rewrites() -> Self {
        Self::read(include_str!("libmlx5-rewrites.txt"))
    }

    /// The same rules for a device of format 2.
    fn rewrites_of_format_2() -> Self {
        Self::read(include_str!("libmlx5-rewrites-2.txt"))
    }

    fn read(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with("table")).map(entry).collect())
    }
}

fn entry(line: &str) -> (u64, [u8; ENTRY]) {
    let (address, bytes) = line.split_once(' ').unwrap();
    let bytes: Vec<u8> = (0..ENTRY).map(|at| u8::from_str_radix(&bytes[at * 2..at * 2 + 2], 16).unwrap()).collect();
    (u64::from_str_radix(address, 16).unwrap(), bytes.try_into().unwrap())
}

impl SteeringMemory for Written {
    fn covers(&self, address: u64) -> bool {
        (0x10..0x30).contains(&(address >> 32))
    }

    fn entry(&self, address: u64) -> Option<[u8; ENTRY]> {
        self.0.get(&address).copied()
    }

    fn rewrites(&self, line: u64) -> Option<[u8; ENTRY]> {
        self.0.get(&(0x20_0000_0000 + line * 64)).copied()
    }

    fn patterns(&self, line: u64) -> Option<[u8; ENTRY]> {
        self.0.get(&(0x30_0000_0000 + line * 64)).copied()
    }
}

/// A device whose counter and contexts have the ids that the entries name.
fn device() -> Steering {
    let mut device = Steering::default();
    let mut alloc = |opcode: u16, input: &mut [u8]| {
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        let output = device.command(opcode, 0, input).unwrap();
        u32::from_be_bytes(output[8..12].try_into().unwrap())
    };
    while alloc(0x939, &mut [0; 16]) < COUNTER {}
    let mut reformat = vec![0; 0x22];
    reformat[28] = 2;
    reformat[31] = 50;
    reformat.extend(&vxlan_frame()[..50]);
    while alloc(0x93d, &mut reformat) < 0x200 {}
    device
}

fn walk(device: &mut Steering, root: u64, frame: &[u8]) -> SteWalk {
    walk_in(&Written::matches(), device, root, frame)
}

fn walk_in(memory: &Written, device: &mut Steering, root: u64, frame: &[u8]) -> SteWalk {
    let port = if root == FROM_WIRE { Port::Wire } else { Port::Vport(1) };
    let walk = device.walk_memory(memory, root, Origin { port, sqn: 0, metadata: 0 }, 0x11, frame);
    println!("{walk}");
    walk
}

fn datagram(to: u8) -> Vec<u8> {
    ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, to], 17, &udp(1111, 2222, b"payload")))
}

fn vport(root: u64, number: u64) -> u64 {
    0xf0_0000_0000 | number << 16 | if root == FROM_WIRE { 0x4000 } else { 0x8000 }
}

#[test]
fn every_rule_of_a_hash_table_is_found_on_both_sides_and_counted() {
    let mut device = device();
    let mut packets = 0;
    for root in [FROM_WIRE, FROM_VPORTS] {
        for to in [2, 16, 17, 18, 19, 20, 21, 22, 23] {
            assert_eq!(walk(&mut device, root, &datagram(to)).end, Ok(vport(root, 2)), "10.0.0.{to}");
            packets += 1;
            let count = device.counter(COUNTER).unwrap();
            assert_eq!((count.packets, count.bytes), (packets, packets * datagram(2).len() as u64));
        }
    }
}

#[test]
fn a_packet_that_no_rule_matches_leaves_by_the_default() {
    let mut device = device();
    for root in [FROM_WIRE, FROM_VPORTS] {
        for frame in [datagram(99), tcp_frame()] {
            assert_eq!(walk(&mut device, root, &frame).end, Ok(vport(root, 0)), "to the function that owns the switch");
        }
    }
    assert_eq!(device.counter(COUNTER).unwrap().packets, 0);
}

#[test]
fn drop_and_the_next_table_are_addresses() {
    let mut device = device();
    assert_eq!(walk(&mut device, FROM_WIRE, &datagram(3)).end, Ok(0xe0_0000_0140));
    assert_eq!(walk(&mut device, FROM_VPORTS, &datagram(3)).end, Ok(0xe0_0000_0180));
    assert_eq!(walk(&mut device, FROM_VPORTS, &datagram(6)).end, Ok(vport(FROM_VPORTS, 0xffff)));
    assert_eq!(device.counter(COUNTER).unwrap().packets, 1);
}

#[test]
fn a_tag_is_pushed_on_the_way_out_and_popped_on_the_way_in() {
    let mut device = device();
    let pushed = walk(&mut device, FROM_VPORTS, &datagram(4));
    assert_eq!(pushed.end, Ok(vport(FROM_VPORTS, 0xffff)));
    assert_eq!(pushed.frame, ethernet(0x8100, &tagged(100, 0x0800, &datagram(4)[14..])));
    let frame = ethernet(0x8100, &tagged(5, 0x0800, &tcp_frame()[14..]));
    let popped = walk(&mut device, FROM_WIRE, &frame);
    assert_eq!((popped.end, popped.frame), (Ok(vport(FROM_WIRE, 1)), tcp_frame()));
    let other = ethernet(0x8100, &tagged(6, 0x0800, &tcp_frame()[14..]));
    assert_ne!(walk(&mut device, FROM_WIRE, &other).end, Ok(vport(FROM_WIRE, 1)));
}

#[test]
fn an_ipv6_address_is_matched_whole() {
    let mut device = device();
    let to = |address| ethernet(0x86dd, &ipv6(1, address, 17, &udp(1, 2, b"")));
    let there = 0x2001_0db8_0000_0000_0000_0000_0000_0009;
    for root in [FROM_WIRE, FROM_VPORTS] {
        assert_eq!(walk(&mut device, root, &to(there)).end, Ok(vport(root, 1)));
        assert_ne!(walk(&mut device, root, &to(there + 1)).end, Ok(vport(root, 1)));
    }
}

#[test]
fn a_tunnel_is_put_on_and_taken_off() {
    let mut device = device();
    let out = walk(&mut device, FROM_VPORTS, &datagram(5));
    assert_eq!(out.end, Ok(vport(FROM_VPORTS, 0xffff)));
    assert_eq!(out.frame.len(), datagram(5).len() + 50);
    assert_eq!(out.frame[50..], datagram(5));
    let back = walk(&mut device, FROM_WIRE, &vxlan_frame());
    assert_eq!((back.end, back.frame), (Ok(vport(FROM_WIRE, 1)), tcp_frame()));
    assert_eq!(tcp_frame()[..6], HOST);
}

#[test]
fn one_rewrite_is_in_the_entry_and_several_are_in_a_list() {
    let memory = Written::rewrites();
    let mut device = device();
    for root in [FROM_WIRE, FROM_VPORTS] {
        let mut sent = |to: u8| {
            let walk = walk_in(&memory, &mut device, root, &datagram(to));
            assert_eq!(walk.end, Ok(vport(root, 0xffff)));
            assert_eq!(checksum(&walk.frame[14..34]), 0);
            walk.frame
        };
        for to in [2, 3] {
            let frame = sent(to);
            assert_eq!((frame[22], frame.len()), (63, datagram(to).len()));
        }
        let frame = sent(4);
        assert_eq!(frame[6..12], [0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f]);
        assert_eq!((&frame[30..34], &frame[36..38], frame[22]), (&[192, 0, 2, 99][..], &[0, 53][..], 63));
    }
}

#[test]
fn registers_that_one_table_writes_are_matched_by_the_next() {
    let formats = [(Format::One, Written::rewrites()), (Format::Two, Written::rewrites_of_format_2())];
    for (steering_format, memory) in formats {
        let mut device = Steering::new(Profile { steering_format, ..Profile::default() });
        for root in [FROM_WIRE, FROM_VPORTS] {
            assert_eq!(walk_in(&memory, &mut device, root, &datagram(5)).end, Ok(vport(root, 1)));
            assert_eq!(walk_in(&memory, &mut device, root, &datagram(6)).end, Ok(vport(root, 2)));
        }
    }
    let of_the_other_format = walk_in(&Written::rewrites_of_format_2(), &mut device(), FROM_WIRE, &datagram(5));
    assert!(of_the_other_format.end.unwrap_err().contains("dword 0x95"));
}

#[test]
fn what_is_not_modelled_ends_the_walk_with_a_reason() {
    let mut device = device();
    let mut memory = Written::matches();
    let mut rewrites = memory.0[&FROM_WIRE];
    rewrites[24] = 0x12;
    memory.0.insert(FROM_WIRE, rewrites);
    let origin = Origin { port: Port::Wire, sqn: 0, metadata: 0 };
    let end = device.walk_memory(&memory, FROM_WIRE, origin, 1, &tcp_frame()).end;
    assert_eq!(end, Err("ASO of type 0 is not modelled".to_owned()));
    (rewrites[28], rewrites[29]) = (0x01, 0x01);
    memory.0.insert(FROM_WIRE, rewrites);
    let end = device.walk_memory(&memory, FROM_WIRE, origin, 1, &tcp_frame()).end;
    assert_eq!(end, Err("reserved bits of an ASO of connection tracking are set".to_owned()));
    let mut end = |byte: u8, definer: u8| {
        (rewrites[0], rewrites[6]) = (byte, definer);
        memory.0.insert(FROM_WIRE, rewrites);
        device.walk_memory(&memory, FROM_WIRE, origin, 1, &tcp_frame()).end
    };
    assert_eq!(end(5, 0), Err("entry format 0x5 is not modelled".to_owned()));
    assert_eq!(end(4, 0x10), Err("there is no match definer 0x10".to_owned()));
}

#[test]
fn entries_that_lead_in_a_circle_or_are_noise_end_the_walk() {
    struct Everywhere([u8; ENTRY]);
    impl SteeringMemory for Everywhere {
        fn covers(&self, _: u64) -> bool {
            true
        }

        fn entry(&self, _: u64) -> Option<[u8; ENTRY]> {
            Some(self.0)
        }

        fn rewrites(&self, _: u64) -> Option<[u8; ENTRY]> {
            Some(self.0)
        }

        fn patterns(&self, _: u64) -> Option<[u8; ENTRY]> {
            Some(self.0)
        }
    }
    let mut device = device();
    let origin = Origin { port: Port::Wire, sqn: 0, metadata: 0 };
    for seed in 0..=255_u8 {
        let mut entry = [0; ENTRY];
        for (at, byte) in entry.iter_mut().enumerate().skip(1) {
            *byte = seed.wrapping_mul(31).wrapping_add(u8::try_from(at).unwrap()).wrapping_mul(seed | 1);
        }
        assert!(device.walk_memory(&Everywhere(entry), 0, origin, 1, &vxlan_frame()).end.is_err());
    }
}
