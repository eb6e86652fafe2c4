//! Keys as in `tests/odp.at` of Open vSwitch (Copyright (c) 2009-2025 Nicira, Inc. and others, Apache-2.0): its base
//! lines and their variants, built here from parts, in the order in which OVS prints them.
//!
//! What is not as there, and why:
//! - No bit of a value lies outside its mask: a match here does not keep such bits, OVS prints them back.
//! - Attributes stand in canonical order, as OVS dumps them, also where `odp.at` has them in another one.
//! - Masked keys begin with `recirc_id(0)`, which is written in any case.
//! - `in_port(1/0xff)` is not among them: a port has no mask here, and the kernel ignores the one that it is given
//!   (`metadata_from_nlattrs` in `net/openvswitch/flow_netlink.c`).
//! - In front of a key that has an Ethernet type there is no label stack: the type would be there twice.
//! - `vlan(pcp=7/0xe)` is not among them: the mask has more bits than the field, and OVS refuses it, too.

const ETHERNET: &str = "eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15)";
const MASKED_ETHERNET: &str = "eth(src=00:01:02:03:04:00/ff:ff:ff:ff:ff:f0,dst=10:11:12:13:14:10/ff:ff:ff:ff:ff:f0)";

/// What follows the Ethernet addresses: Ethernet type, network header, transport header.
#[rustfmt::skip]
const EXACT: &[[&str; 3]] = &[
    ["", "", ""],
    ["eth_type(0x1234)", "", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=5,tos=0x80,ttl=128,frag=no)", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=5,tos=0x81,ttl=128,frag=no)", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=5,tos=0x80,ttl=128,frag=first)", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=5,tos=0x80,ttl=128,frag=later)", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=6,tos=0,ttl=128,frag=no)", "tcp(src=80,dst=8080)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=17,tos=0,ttl=128,frag=no)", "udp(src=81,dst=6632)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=132,tos=0,ttl=128,frag=no)", "sctp(src=8,dst=9)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=1,tos=0,ttl=128,frag=no)", "icmp(type=1,code=2)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=10,tclass=0x70,hlimit=128,frag=no)", ""],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=10,tclass=0x71,hlimit=128,frag=no)", ""],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=10,tclass=0x70,hlimit=128,frag=first)", ""],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=10,tclass=0x70,hlimit=128,frag=later)", ""],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=6,tclass=0,hlimit=128,frag=no)", "tcp(src=80,dst=8080)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=17,tclass=0,hlimit=128,frag=no)", "udp(src=6630,dst=22)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)", "icmpv6(type=1,code=2)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)",
     "icmpv6(type=136,code=0),nd(target=::3,sll=00:05:06:07:08:09,tll=00:0a:0b:0c:0d:0e)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)",
     "icmpv6(type=136,code=0),nd(target=::3,sll=00:05:06:07:08:09,tll=00:0a:0b:0c:0d:0e),nd_ext(nd_reserved=0x0,nd_options_type=2)"],
    ["eth_type(0x0806)", "arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=00:0f:10:11:12:13,tha=00:14:15:16:17:18)", ""],
    ["eth_type(0x8847)", "mpls(label=100,tc=3,ttl=64,bos=1)", ""],
    ["eth_type(0x8847)", "mpls(label=100,tc=7,ttl=100,bos=1)", ""],
    ["eth_type(0x8847)", "mpls(label=100,tc=7,ttl=100,bos=0)", ""],
    ["eth_type(0x8848)", "mpls(label=1000,tc=4,ttl=200,bos=1)", ""],
    ["eth_type(0x8848)", "mpls(label=1000,tc=4,ttl=200,bos=0)", ""],
];

#[rustfmt::skip]
const MASKED: &[[&str; 3]] = &[
    ["", "", ""],
    ["eth_type(0x1230/0xfff0)", "", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.0/255.255.255.0,dst=172.16.0.0/255.255.255.0,proto=0/0xf0,tos=0x80/0xf0,ttl=128/0xf0,frag=no)", ""],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=6,tos=0,ttl=128,frag=no)", "tcp(src=0/0xff00,dst=144/0xff)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=6,tos=0,ttl=128,frag=no)", "tcp(src=80,dst=8080),tcp_flags(+syn-ack)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=17,tos=0,ttl=128,frag=no)", "udp(src=0/0xff00,dst=232/0xff)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=17,tos=0,ttl=128,frag=no)", "udp(src=81/0xff,dst=6400/0xff00)"],
    ["eth_type(0x0800)", "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=1,tos=0,ttl=128,frag=no)", "icmp(type=0/0xf0,code=2)"],
    ["eth_type(0x86dd)", "ipv6(src=::1/::255,dst=::/::255,label=0/0xf0,proto=0/0xf0,tclass=0x70/0xf0,hlimit=128/0xf0,frag=no)", ""],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=6,tclass=0,hlimit=128,frag=no)", "tcp(src=0/0xff00,dst=144/0xff)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=17,tclass=0,hlimit=128,frag=no)", "udp(src=6400/0xff00,dst=22/0xff)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)", "icmpv6(type=0/0xf0,code=2)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)", "icmpv6(type=135,code=0),nd(target=::/::250)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)",
     "icmpv6(type=135,code=0),nd(target=::/::250,sll=00:05:06:07:08:00/ff:ff:ff:ff:ff:00)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)",
     "icmpv6(type=136,code=0),nd(target=::/::250,tll=00:0a:0b:0c:0d:00/ff:ff:ff:ff:ff:00)"],
    ["eth_type(0x86dd)", "ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=128,frag=no)",
     "icmpv6(type=136,code=0),nd(target=::/::250,sll=00:05:06:07:08:00/ff:ff:ff:ff:ff:00,tll=00:0a:0b:0c:0d:00/ff:ff:ff:ff:ff:00)"],
    ["eth_type(0x0806)",
     "arp(sip=1.2.3.0/255.255.255.250,tip=5.6.7.8/255.255.255.250,op=0/0xf0,sha=00:0f:10:11:12:00/ff:ff:ff:ff:ff:00,tha=00:14:15:16:17:00/ff:ff:ff:ff:ff:00)",
     ""],
    // A label stack stands where another header may.
    ["eth_type(0x8847)", "mpls(label=100/0xff,tc=7/7,ttl=64/0xff,bos=1/1)", ""],
    ["eth_type(0x8848)", "mpls(label=100/0xff,tc=7/7,ttl=64/0xff,bos=0/1,label=0/0x0,tc=0/0,ttl=0/0x0,bos=1/1)", ""],
];

/// What stands around the base lines.
struct Variant {
    /// Everything in front of the Ethernet addresses.
    before: &'static str,
    /// The protocol and fields of a VLAN tag.
    tag: Option<&'static str>,
}

const fn plain(before: &'static str) -> Variant {
    Variant { before, tag: None }
}

const fn tagged(before: &'static str, tag: &'static str) -> Variant {
    Variant { before, tag: Some(tag) }
}

const TAG: &str = "eth_type(0x8100),vlan(vid=99,pcp=7)";

#[rustfmt::skip]
const EXACT_VARIANTS: &[Variant] = &[
    plain("recirc_id(0),dp_hash(0),skb_priority(0),in_port(1),skb_mark(0)"),
    plain("recirc_id(0),dp_hash(0),skb_priority(0),tunnel(tun_id=0x7f10354,src=10.10.10.10,dst=20.20.20.20,ttl=64,flags(csum|key)),in_port(1),skb_mark(0x1234)"),
    tagged("recirc_id(0),dp_hash(0),skb_priority(0),in_port(1),skb_mark(0)", TAG),
    tagged("recirc_id(0),dp_hash(0),skb_priority(0),tunnel(tun_id=0xfedcba9876543210,src=10.0.0.1,dst=10.0.0.2,tos=0x8,ttl=128,flags(key)),in_port(1),skb_mark(0)", TAG),
    tagged("recirc_id(0),dp_hash(0),skb_priority(0x1234),tunnel(tun_id=0xfedcba9876543210,src=10.10.10.10,dst=20.20.20.20,tos=0x8,ttl=64,flags(key)),in_port(1),skb_mark(0)", TAG),
    plain("recirc_id(0),dp_hash(0),skb_priority(0),in_port(1),skb_mark(0),ct_state(0),ct_zone(0),ct_mark(0x12345678),ct_label(0x1234567890abcdef1234567890abcdef),packet_type(ns=0,id=0)"),
    plain("recirc_id(0),dp_hash(0),skb_priority(0),tunnel(tun_id=0xfedcba9876543210,src=10.0.0.1,dst=10.0.0.2,ttl=128,erspan(ver=1,idx=0x7),flags(df|key)),in_port(1),skb_mark(0)"),
    plain("recirc_id(0),dp_hash(0),skb_priority(0),tunnel(tun_id=0xfedcba9876543210,src=10.0.0.1,dst=10.0.0.2,ttl=128,erspan(ver=2,dir=1,hwid=0x7),flags(df|key)),in_port(1),skb_mark(0)"),
];

#[rustfmt::skip]
const MASKED_VARIANTS: &[Variant] = &[
    plain("recirc_id(0),in_port(1)"),
    plain("recirc_id(0),tunnel(tun_id=0x54/0xff,src=10.10.10.0/255.255.255.0,dst=20.20.20.0/255.255.255.0,ttl=64,vxlan(gbp(id=10/0xff,flags=0xb)),flags(oam|csum|key)),in_port(1)"),
    plain("recirc_id(0),tunnel(tun_id=0x54/0xff,src=10.10.10.0/255.255.255.0,dst=20.20.20.0/255.255.255.0,ttl=64,flags(-df+csum+key)),in_port(1)"),
    plain("recirc_id(0),tunnel(tun_id=0x54/0xff,src=10.10.10.0/255.255.255.0,dst=20.20.20.0/255.255.255.0,ttl=64,geneve({class=0,type=0,len=4,0xa/0xff}{class=0xffff,type=0x1,len=4,0xffffffff}),flags(csum|key)),in_port(1)"),
    plain("recirc_id(0),tunnel(dst=20.20.20.20,ttl=64,gtpu(flags=0x30/0xf0,msgtype=255),flags(df|key)),in_port(1)"),
    tagged("recirc_id(0),in_port(1)", TAG),
    tagged("recirc_id(0),tunnel(tun_id=0xfedcba9876543210,src=10.0.0.1,dst=10.0.0.2,tos=0x8,ttl=128,flags(key)),in_port(1)", "eth_type(0x8100),vlan(vid=96/0xff0,pcp=6/0x6)"),
    plain("recirc_id(0),skb_priority(0x34/0xff),in_port(1),skb_mark(0x1230/0xfff0)"),
    tagged("recirc_id(0),skb_priority(0x1234),tunnel(tun_id=0xfedcba9876543210,src=10.10.10.10,dst=20.20.20.20,tos=0x8,ttl=64,flags(key)),in_port(1)", TAG),
    plain("recirc_id(0),in_port(1),ct_state(+trk),ct_zone(0x5/0xff),ct_mark(0x10305070/0xf0f0f0f0),ct_label(0x10003000004060001000308080c0e0/0x102030405060708090a0b0c0d0e0f0),ct_tuple4(src=10.10.10.10,dst=20.20.20.20,proto=17,tp_src=1,tp_dst=2)"),
    plain("recirc_id(0),dp_hash(0),skb_priority(0),tunnel(tun_id=0xfedcba9876543210,src=10.0.0.1,dst=10.0.0.2,ttl=128,erspan(ver=1,idx=0x7/0xf),flags(df|key)),in_port(1),skb_mark(0)"),
    plain("recirc_id(0),dp_hash(0),skb_priority(0),tunnel(tun_id=0xfedcba9876543210,src=10.0.0.1,dst=10.0.0.2,ttl=128,erspan(ver=2,dir=1,hwid=0x7/0xf),flags(df|key)),in_port(1),skb_mark(0)"),
];

/// Every key.
pub(crate) fn keys() -> Vec<String> {
    let exact = EXACT_VARIANTS.iter().flat_map(|variant| keys_of(variant, ETHERNET, EXACT));
    let masked = MASKED_VARIANTS.iter().flat_map(|variant| keys_of(variant, MASKED_ETHERNET, MASKED));
    let mut keys: Vec<_> = exact.chain(masked).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The base lines of a variant, each also as first and as later fragment where it is a whole packet.
fn keys_of(variant: &Variant, ethernet: &str, lines: &[[&str; 3]]) -> Vec<String> {
    let mut keys = Vec::new();
    let mut add = |eth_type: &str, network: &str, transport: &str| {
        let inner: Vec<_> = [eth_type, network, transport].into_iter().filter(|part| !part.is_empty()).collect();
        let inner = inner.join(",");
        keys.push(match variant.tag {
            Some(tag) => format!("{},{ethernet},{tag},encap({inner})", variant.before),
            None if inner.is_empty() => format!("{},{ethernet}", variant.before),
            None => format!("{},{ethernet},{inner}", variant.before),
        });
    };
    for [eth_type, network, transport] in lines {
        add(eth_type, network, transport);
        add(eth_type, &network.replace("frag=no", "frag=first"), transport);
        if network.contains("frag=no") {
            add(eth_type, &network.replace("frag=no", "frag=later"), "");
        }
    }
    keys
}
