//! The forms of actions that OVS tests itself with, and what it prints but does not read.
//!
//! The forms of the tables, not their layout, are from `tests/odp.at` of Open vSwitch, Copyright (c) 2009 and later Nicira,
//! Inc. and others, licensed under the Apache License, Version 2.0.

/// Every form of the tables each as a text of its own.
pub(crate) fn forms() -> Vec<String> {
    let mut forms: Vec<_> = OTHERS.iter().map(|form| (*form).to_owned()).collect();
    forms.extend(SETS.iter().map(|fields| format!("set({fields})")));
    for rest in ["", ",actions", ",tunnel_out_port=10", ",actions,tunnel_out_port=10"] {
        forms.push(format!("userspace(pid=6633{rest})"));
        forms.extend(NOTES.iter().map(|note| format!("userspace(pid=6633,{note}{rest})")));
    }
    for commit in ["commit", "force_commit"] {
        forms.extend(COMMITTED.iter().map(|rest| format!("ct({commit}{rest})")));
    }
    for (size4, type4, size6, type6, protocol, tunnel) in TUNNELS {
        let ethernet = "eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x";
        if *size4 != 0 {
            forms.push(format!(
                "tnl_push(tnl_port(4),header(size={size4},type={type4},{ethernet}0800),ipv4(src=1.1.2.88,dst=1.1.2.92,\
                 proto={protocol},tos=0,ttl=64,frag=0x4000),{tunnel}),out_port(1))"
            ));
        }
        forms.push(format!(
            "tnl_push(tnl_port(6),header(size={size6},type={type6},{ethernet}86dd),ipv6(src=2001:cafe::88,\
             dst=2001:cafe::92,label=0,proto={protocol},tclass=0x0,hlimit=64),{tunnel}),out_port(1))"
        ));
    }
    forms
}

const NOTES: &[&str] = &[
    "sFlow(vid=9,pcp=7,output=10)",
    "slow_path(0)",
    "slow_path(cfm)",
    "userdata(0102030405060708090a0b0c0d0e0f)",
    "flow_sample(probability=123,collector_set_id=1234,obs_domain_id=2345,obs_point_id=3456,output_port=10)",
    "flow_sample(probability=123,collector_set_id=1234,obs_domain_id=2345,obs_point_id=3456,output_port=10,ingress)",
    "flow_sample(probability=123,collector_set_id=1234,obs_domain_id=2345,obs_point_id=3456,output_port=10,egress)",
    "ipfix(output_port=10)",
    "controller(reason=1,dont_send=0,continuation=1,recirc_id=4444,rule_cookie=0x5555,controller_id=0,max_len=65535)",
    "controller(reason=1,dont_send=1,continuation=0,recirc_id=4444,rule_cookie=0x5555,controller_id=0,max_len=65535)",
];

/// What `ct` does beside a commit.
const COMMITTED: &[&str] = &[
    "",
    ",zone=5",
    ",mark=0xa0a0a0a0/0xfefefefe",
    ",label=0x1234567890abcdef1234567890abcdef/0xf1f2f3f4f5f6f7f8f9f0fafbfcfdfeff",
    ",helper=ftp",
    ",helper=tftp",
    ",timeout=ovs_tp_1_tcp4",
    ",nat(src)",
    ",nat(dst)",
    ",timeout=ovs_tp_1_tcp4,nat(src)",
    ",nat(src=10.0.0.240,random)",
    ",nat(src=10.0.0.240:32768-65535,random)",
    ",nat(dst=10.0.0.128-10.0.0.254,hash)",
    ",nat(src=10.0.0.240-10.0.0.254:32768-65535,persistent)",
    ",nat(src=fe80::20c:29ff:fe88:a18b,random)",
    ",nat(src=fe80::20c:29ff:fe88:1-fe80::20c:29ff:fe88:a18b,random)",
    ",nat(src=[fe80::20c:29ff:fe88:1]-[fe80::20c:29ff:fe88:a18b]:255-4096,random)",
    ",helper=ftp,nat(src=10.1.1.240-10.1.1.255)",
];

/// What is behind the network header: size, type and protocol with IPv4, the same with IPv6, and the text. 0 is not said.
const TUNNELS: &[(u32, u32, u32, u32, u8, &str)] = &[
    (42, 3, 62, 109, 47, "gre((flags=0x2000,proto=0x6558),key=0x1e241)"),
    (46, 3, 66, 109, 47, "gre((flags=0xa000,proto=0x6558),csum=0x0,key=0x1e241)"),
    (50, 4, 70, 4, 17, "udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x1c7)"),
    (50, 5, 70, 5, 17, "udp(src=0,dst=6081,csum=0x0),geneve(oam,vni=0x1c7)"),
    (50, 5, 70, 5, 17, "udp(src=0,dst=6081,csum=0xffff),geneve(vni=0x1c7)"),
    (
        58,
        5,
        78,
        5,
        17,
        "udp(src=0,dst=6081,csum=0x0),geneve(crit,vni=0x1c7,options({class=0xffff,type=0x80,len=4,0xa}))",
    ),
    (50, 107, 70, 108, 47, "erspan(ver=1,sid=0x7b,idx=0x3)"),
    (54, 107, 74, 108, 47, "erspan(ver=2,sid=0x3ff,dir=1,hwid=0x2a)"),
    (50, 110, 70, 110, 17, "udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x7b)"),
    (0, 0, 78, 112, 43, "srv6(segments_left=0,segs(2001:cafe::90))"),
    (0, 0, 110, 112, 43, "srv6(segments_left=2,segs(2001:cafe::90,2001:cafe::91,2001:cafe::92))"),
];

/// What `set` sets. Left out: `in_port`, `eth_type` and `vlan`, which no datapath sets and which are refused here, ERSPAN,
/// which is a matter of keys, and bits beside the mask, which OVS prints and no datapath looks at.
const SETS: &[&str] = &[
    "eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15)",
    "eth(src=00:01:02:03:04:05,dst=10:11:12:00:00:00/ff:ff:ff:00:00:00)",
    "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=5,tos=0x80,ttl=128,frag=no)",
    "ipv4(src=35.8.2.41,dst=172.16.0.20,proto=5,ttl=128,frag=no)",
    "ipv4(src=35.8.2.0/255.255.255.0,dst=172.16.0.20,proto=5,tos=0x80,ttl=128,frag=no)",
    "ipv4(src=35.8.2.0/255.255.255.0,tos=0x80,ttl=128,frag=no)",
    "ipv4(tos=0/0x3)",
    "ipv4(tos=0x80/0xfc)",
    "ipv4(ttl=128,frag=no)",
    "ipv4(frag=no)",
    "tcp(src=80,dst=8080)",
    "tcp(src=0/0xff00,dst=8080)",
    "tcp(src=80)",
    "udp(src=0/0xff00,dst=6632)",
    "udp(dst=6633)",
    "sctp(src=82,dst=6633)",
    "sctp(src=0/0xff00,dst=6633)",
    "icmp(type=1,code=2)",
    "ipv6(src=::1,dst=::2,label=0,proto=10,tclass=0x70,hlimit=128,frag=no)",
    "ipv6(src=::1,dst=::2)",
    "ipv6(label=0,proto=10,hlimit=128)",
    "ipv6(label=0/0xfff,proto=10,tclass=0x70/0x70)",
    "icmpv6(type=1,code=2)",
    "tunnel(tun_id=0xabcdef1234567890,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(df|csum|key))",
    "tunnel(tun_id=0xabcdef1234567890,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(key))",
];

const OTHERS: &[&str] = &[
    "1,2,3",
    "drop",
    "push_vlan(vid=12,pcp=0)",
    "push_vlan(vid=13,pcp=5,cfi=0)",
    "push_vlan(tpid=0x9100,vid=13,pcp=5)",
    "push_vlan(tpid=0x9100,vid=13,pcp=5,cfi=0)",
    "pop_vlan",
    "sample(sample=9.7%,actions(1,2,3,push_vlan(vid=1,pcp=2)))",
    "tnl_pop(4)",
    "ct",
    "ct(nat)",
    "ct_clear",
    "trunc(100)",
    "clone(1)",
    "clone(clone(push_vlan(vid=12,pcp=0),2),1)",
    "check_pkt_len(size=200,gt(4),le(5))",
    "check_pkt_len(size=200,gt(drop),le(5))",
    "check_pkt_len(size=200,gt(ct(nat)),le(drop))",
    "check_pkt_len(size=200,gt(set(eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15))),\
     le(set(eth(src=00:01:02:03:04:06,dst=10:11:12:13:14:16))))",
    "lb_output(1)",
    "add_mpls(label=200,tc=7,ttl=64,bos=1,eth_type=0x8847)",
    "psample(group=12,cookie=0xf1020304050607080910111213141516)",
    "psample(group=12)",
    "sample(sample=50.0%,actions(psample(group=12,cookie=0xf1020304)))",
    "sample(sample=50.0%,actions(userspace(pid=42,userdata(0102030400000000)),psample(group=12)))",
    // From the tests of whole pipelines; OVS reads the first seven in no form.
    "push_mpls(label=10,tc=0,ttl=64,bos=1,eth_type=0x8847),push_mpls(label=20,tc=0,ttl=64,bos=0,eth_type=0x8848),1",
    "pop_mpls(eth_type=0x8847),pop_mpls(eth_type=0x800),recirc(0x2)",
    "push_eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),pop_eth",
    "hash(l4(0)),recirc(0x1)",
    "hash(sym_l4(4294967295))",
    "dec_ttl(le_1(drop)),1",
    "dec_ttl(le_1(userspace(pid=0,slow_path(action)))),1",
    "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x11223344,c2=0x0,c3=0x0,c4=0x0)",
    "push_nsh(flags=2,ttl=1,mdtype=2,np=1,spi=0xffffff,si=0,md2=0x10000a041234567820001408fedcba9876543210)",
    "pop_nsh()",
    "meter(4294967295)",
];
