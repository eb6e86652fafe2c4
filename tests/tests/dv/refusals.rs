//! What the device cannot do, by name, before it is asked.

use sluice_offload_dv::mlx5::{Action, Context, Domain, DomainKind, Library};
use sluice_offload_dv::switch::Switch;
use sluice_offload_dv::translate::{Templates, translate};
use sluice_tests::mlx5::on_device;

use crate::rig::{Rig, Vport, flow};

const KEY: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no)";

fn refusal(key: &str, actions: &str) -> String {
    match translate(&flow(key, actions), &Vport) {
        Ok(_) => panic!("{actions} is taken"),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn an_action_that_a_rule_does_not_do_is_refused_by_its_name() {
    let cases = [
        ("ct(commit)", "action ct: ", "there is no source of connections: `connections` in [dv] names one"),
        (
            "userspace(pid=7)",
            "action userspace: ",
            "a process sees only packets that match no flow, at the representor of their port",
        ),
        ("trunc(100),1", "action trunc: ", "the device does not shorten packets"),
        (
            "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),1",
            "action push_mpls: ",
            "libmlx5 44 adds and removes headers at the front of a frame only",
        ),
        ("clone(recirc(5)),3", "action recirc: ", "the device only changes and sends the copies of clone()"),
        (
            "check_pkt_len(size=200,gt(1),le(3))",
            "action check_pkt_len: ",
            "the device does not compare the length of a packet",
        ),
        (
            "set(tunnel(tun_id=1,dst=10.0.0.9,ttl=64,flags(key))),10",
            "action set(tunnel): ",
            "the match does not say the packet's mark of congestion, which the outer header gets",
        ),
        (
            "set(tunnel(tun_id=1,ipv6_dst=fdaa::9,ttl=64,flags(csum|key))),10",
            "field tunnel.flags: ",
            "the device does not compute checksums of outer headers, which are left out only in UDP over IPv4",
        ),
        (
            "set(tunnel(tun_id=1,dst=10.0.0.9,ttl=64)),recirc(5)",
            "action recirc: ",
            "an outer header was set before, which would have to go along",
        ),
        ("10", "action output: ", "a tunnel port needs set(tunnel()) before"),
        ("1,10", "action output: ", "a tunnel port needs set(tunnel()) before"),
        ("9", "port 9: ", "there is no such port"),
        (
            "1,recirc(5)",
            "action recirc: ",
            "copies were sent before, and a packet that misses there would be sent again",
        ),
        (
            "1,set(eth(src=02:00:00:00:00:09)),3,recirc(5)",
            "action recirc: ",
            "copies were sent before, and a packet that misses there would be sent again",
        ),
        ("1,ct(zone=1),3", "action ct: ", "copies were sent before, and a packet of no connection would be sent again"),
        (
            "set(udp(dst=5)),ct(zone=5)",
            "action ct: ",
            "addresses or ports were set before, and the device looks the connection up by those that came in",
        ),
        ("recirc(5),1", "action output: ", "nothing can follow a recirculation here"),
        ("set(tcp(src=5)),1", "action set: ", "the match does not say that there is tcp()"),
        ("set(skb_mark(5)),1", "action set: ", "the device does not write skb_mark()"),
        (
            "set(ipv4(ttl=1)),dec_ttl(le_1()),1",
            "action dec_ttl: ",
            "the match does not say that the time to live is 2 or more",
        ),
        (
            "push_vlan(vid=1,pcp=0),push_vlan(vid=2,pcp=0),push_vlan(vid=3,pcp=0),1",
            "action push_vlan: ",
            "the device puts on two tags at most",
        ),
        ("pop_vlan,1", "action pop_vlan: ", "the match does not say that there is a tag"),
        (
            "push_vlan(tpid=0x9100,vid=5,pcp=0),1",
            "action push_vlan: ",
            "the device knows tags of 0x8100 and 0x88a8 only",
        ),
    ];
    for (actions, what, reason) in cases {
        assert_eq!(refusal(KEY, actions), format!("{what}{reason}"), "{actions}");
    }
    let six = "in_port(2),eth(),eth_type(0x86dd),ipv6(frag=no)";
    let reason = "action set: the device does not write all of ipv6.label";
    assert_eq!(refusal(six, "set(ipv6(label=5)),1"), reason);
}

#[test]
fn a_match_that_a_rule_does_not_look_at_is_refused_by_its_name() {
    let cases = [
        (
            "eth(),eth_type(0x0800),ipv4(frag=first)",
            "field ipv4.frag: the device does not tell first fragments from later ones",
        ),
        (
            "eth(),eth_type(0x0800),ipv4(proto=6,frag=no),tcp_flags(0x800/0x800)",
            "field tcp_flags: the device has fewer bits of it",
        ),
        ("eth(),eth_type(0x0806),arp(op=1)", "field arp.op: the device has no field for it"),
        (
            "eth(),eth_type(0x0800),ipv4(proto=132,frag=no),sctp(src=5)",
            "field sctp.src: the device has no field for it",
        ),
        ("tunnel(tun_id=5),in_port(2)", "field tunnel: packets at this port have no outer header"),
        ("tunnel(tun_id=5),in_port(12)", "field tunnel.tun_id: it is matched with flags(+key) only"),
        ("tunnel(tun_id=0x1000000),in_port(10)", "field tunnel.tun_id: the tunnel of this port has fewer bits of it"),
        ("tunnel(ttl=64),in_port(10)", "field tunnel.ttl: no outer address is matched, which says the version of IP"),
        ("tunnel(tp_dst=4790),in_port(10)", "field tunnel.tp_dst: packets at this port go to another UDP port"),
        (
            "tunnel(flags(+oam)),in_port(10)",
            "field tunnel.flags: no packet of this tunnel that hardware unpacks has such flags",
        ),
        (
            "in_port(11),eth(),eth_type(0x0800),ipv4(proto=1),icmp(type=8)",
            "field icmp.type: the device does not find it inside a tunnel",
        ),
        (
            "eth(),eth_type(0x8847),mpls(label=1,tc=0,ttl=1,bos=0,label=2,tc=0,ttl=1,bos=1)",
            "field mpls.present[2]: the device has no field for it",
        ),
        (
            "eth(),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=128,code=0),nd_ext(nd_reserved=1)",
            "field nd_ext.nd_reserved: the device has no field for it",
        ),
        (
            "eth(),num_of_vlans(2),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800))",
            "field num_of_vlans: the tags that are matched are another number",
        ),
        ("in_port(9)", "port 9: there is no such port"),
        ("ct_state(+trk)", "field ct_state: no packet is tracked before the first ct()"),
        ("skb_mark(0x5)", "field skb_mark: packets in hardware have none of the kernel's marks"),
        ("eth(),eth_type(0x0005)", "field eth_type: frames without an Ethernet type cannot be told apart"),
    ];
    for (key, reason) in cases {
        assert_eq!(refusal(key, "1"), reason, "{key}");
    }
    // What is true of every packet here needs no look.
    for key in ["ct_state(-trk)", "ct_mark(0/0xff)", "skb_mark(0)"] {
        assert!(translate(&flow(key, "1"), &Vport).is_ok(), "{key}");
    }
}

#[test]
fn a_tag_from_the_wire_is_not_taken_off_for_another_one() {
    on_device("bluefield-3", "refusals::a_tag_from_the_wire_is_not_taken_off_for_another_one", |wires| {
        let key = "in_port(1),eth(),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800),ipv4(frag=no))";
        let refusal = Rig::open(wires).add(&flow(key, "pop_vlan,push_vlan(vid=6,pcp=0),2")).unwrap_err();
        let reason = "a tag is taken off before, and libmlx5 does not do both to packets from the uplink";
        assert_eq!(refusal.to_string(), format!("action push_vlan: {reason}"));
    });
}

#[test]
fn a_device_that_changes_tags_one_way_only_says_so() {
    on_device("connectx-5", "refusals::a_device_that_changes_tags_one_way_only_says_so", |_| {
        let mut switch = Switch::open(&Library::load().unwrap(), "mlx5_0").unwrap();
        let mut refusal = |key: &str, actions: &str| {
            let rule = Templates::new().instance(flow(key, actions), &Vport).unwrap();
            switch.install(rule).unwrap_err().to_string()
        };
        let tagged = "in_port(2),eth(),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800),ipv4(frag=no))";
        let reason = "action pop_vlan: this device takes tags off packets from the uplink only";
        assert_eq!(refusal(tagged, "pop_vlan,1"), reason);
        let from_wire = "in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)";
        let reason = "action push_vlan: this device puts tags on packets from functions only";
        assert_eq!(refusal(from_wire, "push_vlan(vid=5,pcp=0),2"), reason);
    });
}

#[test]
fn a_rewrite_that_takes_more_entries_than_the_device_has_is_refused_with_their_number() {
    // Bits by themselves in the last words of the source address take 63 entries, since one stays empty between two of the same word.
    const RUNS: u32 = 34;
    const KEY: &str = "in_port(2),eth(),eth_type(0x86dd),ipv6(proto=17,frag=no)";
    const SOURCE: &str = "set(eth(src=00:00:00:00:00:01/00:00:00:00:00:01))";
    const DESTINATION: &str = "set(eth(dst=00:00:00:00:00:01/00:00:00:00:00:01))";
    let bits = std::net::Ipv6Addr::from((0..RUNS).fold(0_u128, |bits, run| bits | 1 << (2 * run)));
    let address = format!("set(ipv6(src={bits}/{bits}))");
    let name = "refusals::a_rewrite_that_takes_more_entries_than_the_device_has_is_refused_with_their_number";
    on_device("bluefield-3", name, |wires| {
        let mut rig = Rig::open(wires);
        rig.add(&flow(KEY, &format!("{address},{SOURCE},1"))).unwrap();
        let refusal = rig.add(&flow(KEY, &format!("{address},{SOURCE},{DESTINATION},1"))).unwrap_err();
        let reason = "action set: 36 runs of bits take 65 entries, and the device has 64";
        assert_eq!(refusal.to_string(), reason);
        drop(rig);
        // libmlx5 says no more than that it does not go.
        let library = Library::load().unwrap();
        let context = Context::open(&library, "mlx5_0").unwrap();
        let domain = Domain::create(&context, "mlx5_0", DomainKind::Fdb).unwrap();
        let word = |field: u64, offset: u32| 1 << 60 | field << 48 | u64::from(offset) << 40 | 1 << 32;
        let mut words: Vec<_> = (0..RUNS).map(|run| word(0x10 - u64::from(run / 16), run % 16 * 2)).collect();
        words.push(word(0x02, 0));
        Action::modify_header(&domain, &words).unwrap();
        words.push(word(0x05, 0));
        let error = Action::modify_header(&domain, &words).err().unwrap();
        assert_eq!(error.to_string(), "mlx5dv_dr_action_create_modify_header: Invalid argument (os error 22)");
    });
}
