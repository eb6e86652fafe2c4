//! A real ovs-vswitchd on its dummy datapath: it takes what is printed here, and what it dumps is read back to the same.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_flow::field::Field;
use sluice_flow::text::{Style, parse_actions, parse_key, parse_line, write_actions, write_key};
use sluice_flow::{MaskedKey, Match};
use sluice_tests::vswitchd::Vswitchd;

/// Keys as `(key, what the dummy datapath demands of it besides)`, one for each attribute and for what is special.
const KEYS: &[&str] = &[
    "in_port(1),eth_type(0x0800),ipv4(frag=no)",
    "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:00/ff:ff:00:00:00:00),eth_type(0x0800),ipv4(frag=no)",
    "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.1.0.0/255.255.0.0,proto=17,tos=0x4/0xfc,ttl=64,frag=no),udp(src=53,dst=0/0xff00)",
    "in_port(2),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=1,dst=80),tcp_flags(+syn-ack)",
    "in_port(3),eth_type(0x0800),ipv4(proto=6,frag=first),tcp(dst=443)",
    "in_port(3),eth_type(0x0800),ipv4(proto=6,frag=later)",
    "in_port(1),eth_type(0x0800),ipv4(proto=1,frag=no),icmp(type=8,code=0)",
    "in_port(1),eth_type(0x0800),ipv4(proto=132,frag=no),sctp(dst=5000)",
    "in_port(1),eth_type(0x86dd),ipv6(src=2001:db8::1,dst=2001:db8::/ffff:ffff::,label=0x12345,proto=17,tclass=0xb8,hlimit=1,frag=no),udp(dst=53)",
    "in_port(1),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=135,code=0),nd(target=2001:db8::2,sll=02:00:00:00:00:01)",
    "in_port(1),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=136,code=0)",
    "in_port(2),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=02:00:00:00:00:01,tha=00:00:00:00:00:00)",
    "in_port(2),eth_type(0x8100),vlan(vid=7,pcp=3),encap(eth_type(0x0800),ipv4(frag=no))",
    "in_port(2),eth_type(0x8847),mpls(label=100,tc=1,ttl=64,bos=1)",
    "recirc_id(0x2a),in_port(3),ct_state(+est+trk),ct_zone(0x5),ct_mark(0x1/0xf),eth_type(0x0800),ipv4(frag=no)",
    "skb_priority(0x1),in_port(3),skb_mark(0x2/0xff),eth_type(0x0800),ipv4(frag=no)",
    "tunnel(tun_id=0x2a,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(-df+csum+key)),in_port(3),eth_type(0x0800),ipv4(proto=4,frag=no)",
    "tunnel(tun_id=0x2a,dst=2.2.2.2,ttl=64,vxlan(gbp(id=10/0xff,flags=0xb)),flags(-df+csum+key)),in_port(3),eth_type(0x0800),ipv4(frag=no)",
    "tunnel(tun_id=0x2a,dst=2.2.2.2,ttl=64,gtpu(flags=0x30,msgtype=255),flags(-df+key)),in_port(3),eth_type(0x0800),ipv4(frag=no)",
    "tunnel(tun_id=0x2a,ipv6_dst=2001:db8::1,ttl=64,geneve({class=0x102,type=0x80,len=4,0xa/0xff}{class=0xffff,type=0x1,len=8,0x1122334455667788}),flags(-df+key)),in_port(3),eth_type(0x0800),ipv4(frag=no)",
    "in_port(2),eth_type(0x8847),mpls(label=100,tc=1,ttl=64,bos=0,label=200,tc=0,ttl=1,bos=1)",
    "in_port(2),eth_type(0x8848),mpls(label=100/0xff,tc=1/1,ttl=0/0x0,bos=0/1,label=200/0xff,tc=0/0,ttl=0/0x0,bos=0/1,label=3/0xf,tc=0/0,ttl=0/0x0,bos=1/1)",
    "in_port(1),ct_state(+trk),ct_tuple4(src=10.0.0.0/255.0.0.0,dst=10.0.0.2,proto=17,tp_src=1,tp_dst=2),eth_type(0x0800),ipv4(frag=no)",
    "in_port(1),ct_state(+trk),ct_tuple6(src=2001:db8::/ffff:ffff::,proto=6,tp_src=1,tp_dst=2),eth_type(0x86dd),ipv6(frag=no)",
    "in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800),ipv4(frag=no)",
];

const ACTIONS: &[&str] = &[
    "drop",
    "1,2,3",
    "pop_vlan,2",
    "push_vlan(vid=7,pcp=3),2",
    "push_vlan(tpid=0x88a8,vid=7,pcp=0),2",
    "set(eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:04)),2",
    "set(eth(dst=02:00:00:00:00:00/ff:ff:ff:00:00:00)),2",
    "set(ipv4(src=10.0.0.9,ttl=63)),2",
    "set(tcp(dst=8080)),2",
    "set(tunnel(tun_id=0x2a,dst=172.31.0.1,ttl=64,tp_dst=4789,flags(df|key))),3",
    "trunc(100),2",
];

/// What it makes of a flow, in its own words.
fn dump_of(vswitchd: &Vswitchd, key: &str, actions: &str) -> String {
    let added = vswitchd.appctl(&["dpctl/add-flow", key, actions]);
    assert_eq!(added.err, "", "{key} {actions}");
    let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m", "--no-names"]).out;
    assert_eq!(vswitchd.appctl(&["dpctl/del-flows"]).err, "");
    let flows: Vec<_> = dump.lines().filter(|line| line.starts_with("ufid:")).collect();
    assert_eq!(flows.len(), 1, "{dump}");
    flows[0].to_owned()
}

fn printed_key(matching: &Match) -> String {
    let mut text = String::new();
    // With all fields that are implied: the dummy datapath demands that tcp() is there if the protocol is TCP.
    let style = Style { more: true, names: None };
    write_key(&mut text, &MaskedKey::new(matching), &style).unwrap();
    text
}

#[test]
fn it_takes_our_keys_and_dumps_them_so_that_we_read_the_same() {
    let vswitchd = Vswitchd::start();
    for key in KEYS {
        let matching = parse_key(key, &()).unwrap_or_else(|error| panic!("{}", error.caret(key))).matching;
        let dumped = dump_of(&vswitchd, &printed_key(&matching), "2");
        let line = parse_line(&dumped, &()).unwrap_or_else(|error| panic!("{}", error.caret(&dumped)));
        assert_eq!(line.matching, matching, "{key}\n{dumped}");
    }
}

#[test]
fn it_forgets_the_masks_of_erspan_and_we_read_what_it_dumps() {
    let vswitchd = Vswitchd::start();
    for options in ["erspan(ver=1,idx=0x7/0xf)", "erspan(ver=2,dir=1,hwid=0x7/0xf)"] {
        let key = format!("tunnel(dst=2.2.2.2,ttl=64,{options},flags(-df)),in_port(3),eth_type(0x0800),ipv4(frag=no)");
        let mut matching = parse_key(&key, &()).unwrap_or_else(|error| panic!("{}", error.caret(&key))).matching;
        let dumped = dump_of(&vswitchd, &printed_key(&matching), "2");
        let line = parse_line(&dumped, &()).unwrap_or_else(|error| panic!("{}", error.caret(&dumped)));
        for field in [Field::ErspanVersion, Field::ErspanIndex, Field::ErspanDirection, Field::ErspanHardwareId] {
            matching.set(field, 0, 0);
        }
        assert_eq!(line.matching, matching, "{dumped}");
    }
}

#[test]
fn it_takes_our_actions_and_dumps_them_so_that_we_read_the_same() {
    let vswitchd = Vswitchd::start();
    let key = "in_port(1),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=80)";
    for text in ACTIONS {
        let actions = parse_actions(text, &()).unwrap_or_else(|error| panic!("{}", error.caret(text)));
        let mut printed = String::new();
        write_actions(&mut printed, &actions, &Style::default()).unwrap();
        let dumped = dump_of(&vswitchd, key, &printed);
        let line = parse_line(&dumped, &()).unwrap_or_else(|error| panic!("{}", error.caret(&dumped)));
        assert_eq!(line.actions, actions, "{text}\n{dumped}");
    }
}
