//! Flows by their text, and what is particular about their rules.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_flow::action::ActionList;
use sluice_flow::field::Field;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::ufid::Seed;
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use sluice_offload_tc::label::{Label, MirrorNote, Room, Spelling};
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::rule::{Caveat, Rule};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::action::{Action, Command, Control, Cookie, MAX_ACTIONS, Operation};
use sluice_offload_tc::wire::filter::{Filter, FilterId};
use sluice_offload_tc::wire::key::{Key, KeyMatch};

const AGENT: AgentId = AgentId(5);
/// The number in the kernel of meter 0.
const POLICERS: u32 = 1000;

/// Port 10 is a tunnel, and every other one a wire.
#[derive(Clone, Copy)]
struct Lab {
    features: Features,
    tunnel_flags: TunnelFlags,
    room: Room,
    is_hardware_alone: bool,
}

const OLD: Features = Features {
    number_of_tags: false,
    pppoe: false,
    l2tpv3: false,
    cfm: false,
    spi: false,
    tunnel_flags: false,
    no_fragment: false,
    connection_helpers: false,
};
/// Linux 6.6 and later.
const NEW: Lab = Lab {
    features: Features { number_of_tags: true, pppoe: true, l2tpv3: true, cfm: true, spi: true, ..OLD },
    ..EXACT
};
const EXACT: Lab = Lab { features: OLD, tunnel_flags: TunnelFlags::Exact, room: Room::Made, is_hardware_alone: false };
const HARDWARE: Lab = Lab { room: Room::Found, ..EXACT };
const AS_OVS: Lab = Lab { tunnel_flags: TunnelFlags::AsOvs, ..EXACT };

impl Context for Lab {
    fn device(&self, port: PortNumber) -> Option<Device> {
        let kind = if port.0 == 10 { DeviceKind::Tunnel { udp_port: Some(4789) } } else { DeviceKind::Wire };
        Some(Device { interface: port.0 + 100, kind })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        let port = PortNumber(interface - 100);
        Some((port, self.device(port)?))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        meter.0.checked_add(POLICERS)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        police.checked_sub(POLICERS).map(MeterId)
    }

    fn features(&self) -> Features {
        self.features
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        self.tunnel_flags
    }

    fn is_hardware_alone(&self) -> bool {
        self.is_hardware_alone
    }

    fn room(&self) -> Room {
        self.room
    }
}

fn parse(key: &str, actions: &str) -> (Match, ActionList) {
    (parse_key(key, &()).unwrap().matching, parse_actions(actions, &()).unwrap())
}

fn flow(key: &str, actions: &str) -> Flow {
    let (matching, actions) = parse(key, actions);
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &Seed([0; 16]))
}

fn rule(lab: Lab, key: &str, actions: &str) -> Result<Rule, Refusal> {
    translate::rule(&flow(key, actions), AGENT, &lab)
}

fn refusal(lab: Lab, key: &str, actions: &str) -> String {
    rule(lab, key, actions).unwrap_err().to_string()
}

/// The note on a rule, and the flow that it is read as.
fn read(lab: Lab, rule: &Rule) -> (Label, (Match, ActionList)) {
    let id = FilterId { hook: rule.hook, chain: rule.chain, priority: 7, protocol: rule.protocol, handle: 1 };
    let filter = Filter { id, flower: rule.flower.clone() };
    let note = |at: usize| filter.flower.actions.get(at)?.cookie.as_ref().map(Cookie::bytes);
    let label = Label::read([0, 1].map(|at| note(at).unwrap_or_default())).unwrap();
    (label, translate::flow(&filter, &label, &lab).unwrap())
}

const TUNNEL: &str = "recirc_id(0),tunnel(tun_id=0x7,src=10.0.0.1,dst=10.0.0.2,flags(-df+csum+key)),in_port(10),\
                      eth(),eth_type(0x0800),ipv4(frag=no)";
const OUTER: &str = "set(tunnel(tun_id=0x7,src=10.0.0.1,dst=10.0.0.2,ttl=64,tp_dst=4789,flags(df|key))),10";
const IPV4: &str = "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)";

#[test]
fn an_old_kernel_refuses_flags_of_the_outer_header_and_the_refusal_names_the_switch() {
    for words in [refusal(EXACT, TUNNEL, "1"), refusal(EXACT, IPV4, OUTER)] {
        assert!(words.contains("tunnel.flags") && words.contains("tunnel_flags = \"auto\" or \"as_ovs\""), "{words}");
    }
}

#[test]
fn as_ovs_passes_over_the_flags_says_so_and_reads_them_back() {
    let matched = rule(AS_OVS, TUNNEL, "1").unwrap();
    assert_eq!(matched.caveats, ["df", "csum"].map(|flag| Caveat::NotMatched { flag }));
    assert_eq!(matched.flower.get(Key::EncFlags), None);
    assert_eq!(read(AS_OVS, &matched).1, parse(TUNNEL, "1"));
    let set = rule(AS_OVS, IPV4, OUTER).unwrap();
    assert_eq!(set.caveats, [Caveat::NotSet { flag: "df" }]);
    assert!(set.caveats[0].to_string().contains("tunnel flag df is not set, as in OVS"), "{}", set.caveats[0]);
    assert_eq!(read(AS_OVS, &set).1, parse(IPV4, OUTER));
}

#[test]
fn as_ovs_changes_nothing_where_the_kernel_knows_the_flags() {
    let new = Features { tunnel_flags: true, no_fragment: true, ..OLD };
    for (key, actions) in [(TUNNEL, "1"), (IPV4, OUTER)] {
        let [exact, as_ovs] = [EXACT, AS_OVS].map(|lab| rule(Lab { features: new, ..lab }, key, actions).unwrap());
        assert_eq!(exact, as_ovs);
        assert!(exact.caveats.is_empty());
    }
}

#[test]
fn as_ovs_still_refuses_what_ovs_refuses() {
    let oam = TUNNEL.replace("-df+csum+key", "+oam+key");
    assert!(refusal(AS_OVS, &oam, "1").contains("tunnel.flags"));
    let other = OUTER.replace("df|key", "key");
    assert!(
        refusal(AS_OVS, IPV4, &format!("{OUTER},{other}"))
            .contains("one of two outer headers has the don't-fragment flag")
    );
}

#[test]
fn a_rule_at_a_tunnel_names_its_udp_port_as_drivers_want_it_whether_the_flow_does_or_not() {
    let without = TUNNEL.replace(",flags(-df+csum+key)", "");
    let with = TUNNEL.replace("flags(-df+csum+key)", "tp_dst=4789");
    let rules = [&without, &with].map(|key| rule(EXACT, key, "1").unwrap());
    for (rule, key) in rules.iter().zip([&without, &with]) {
        assert_eq!(rule.flower.get(Key::EncUdpDst), Some((4789, 0xffff)));
        assert_eq!(read(EXACT, rule).1, parse(key, "1"), "and it is read back as it was said");
    }
}

#[test]
fn an_operation_of_arp_is_matched_as_ovs_dumps_it() {
    let key = |operation: &str| format!("in_port(1),eth(),eth_type(0x0806),arp(op={operation})");
    let (whole, as_ovs) = (key("2"), key("2/0xff"));
    let rules = [&whole, &as_ovs].map(|key| rule(EXACT, key, "2").unwrap());
    assert_eq!(rules[0].flower.keys, rules[1].flower.keys, "the kernel has eight bits of it");
    assert_eq!(rules[1].flower.get(Key::ArpOp), Some((2, 0xff)));
    for (rule, key) in rules.iter().zip([&whole, &as_ovs]) {
        assert_eq!(read(EXACT, rule).1, parse(key, "2"), "and it is read back as it was said");
    }
    for other in ["3/0xff", "0/0xff", "2/0x0f", "2/0xff00", "0x102"] {
        assert!(refusal(EXACT, &key(other), "2").contains("arp.op"), "{other}");
    }
}

#[test]
fn zeros_alone_are_refused_in_a_header_that_flower_does_not_read_in_all_packets() {
    let key = |protocol: u8, frag: &str, header: &str| {
        format!("in_port(1),eth(),eth_type(0x0800),ipv4(proto={protocol}{frag}),{header}")
    };
    for (protocol, zeros, other, named) in [
        (1, "icmp(type=0,code=0)", "icmp(type=8,code=0)", "icmp.type"),
        (1, "icmp(code=0)", "icmp(code=1)", "icmp.code"),
        (6, "tcp(dst=0/0xfc00)", "tcp(dst=0x400/0xfc00)", "tcp.dst"),
        (6, "tcp_flags(-syn)", "tcp_flags(+syn)", "tcp_flags"),
        (6, "tcp(src=0),tcp_flags(-syn)", "tcp(src=0),tcp_flags(+syn)", "tcp.src"),
        (17, "udp(dst=0)", "udp(src=0,dst=53)", "udp.dst"),
        (132, "sctp(src=0)", "sctp(src=5)", "sctp.src"),
        (115, "l2tpv3(sid=0)", "l2tpv3(sid=5)", "l2tpv3.sid"),
    ] {
        let words = refusal(NEW, &key(protocol, "", zeros), "2");
        assert!(words.contains(named) && words.contains("match frag=no"), "{zeros}: {words}");
        assert!(rule(NEW, &key(protocol, "", other), "2").is_ok(), "{other}");
        assert!(rule(NEW, &key(protocol, ",frag=no", zeros), "2").is_ok(), "{zeros}");
    }
    let arp = |fields: &str| format!("in_port(1),eth(),eth_type(0x0806),arp({fields})");
    for (zeros, other, named) in [
        ("sip=0.0.0.0", "sip=10.0.0.1", "arp.sip"),
        ("sip=0.0.0.0,tha=00:00:00:00:00:00", "sip=0.0.0.0,tip=10.0.0.1", "arp.sip"),
        ("tha=00:00:00:00:00:00", "sha=02:00:00:00:00:01", "arp.tha"),
    ] {
        let words = refusal(NEW, &arp(zeros), "2");
        assert!(words.contains(named) && words.contains("match op"), "{zeros}: {words}");
        assert!(rule(NEW, &arp(other), "2").is_ok(), "{other}");
        assert!(rule(NEW, &arp(&format!("{zeros},op=1")), "2").is_ok(), "{zeros}");
    }
}

#[test]
fn the_length_of_a_packet_is_not_compared_behind_what_changes_it() {
    const CHECK: &str = "check_pkt_len(size=200,gt(2),le(3))";
    let plain = "in_port(1),eth_type(0x0800),ipv4(frag=no)";
    let (any, some_tags) = ("in_port(1)", "in_port(1),eth_type(0x8100),vlan(vid=7)");
    let tag = "in_port(1),eth_type(0x8100),vlan(vid=7),encap(eth_type(0x0800),ipv4(frag=no))";
    let tags = "in_port(1),eth_type(0x88a8),vlan(vid=7),encap(eth_type(0x8100),vlan(vid=8),encap(eth_type(0x0800)))";
    let label = "in_port(1),eth_type(0x8847),mpls(label=1)";
    let push_label = "push_mpls(label=10,tc=0,ttl=64,bos=1,eth_type=0x8847)";
    for (key, before) in [
        (plain, push_label),
        (label, "pop_mpls(eth_type=0x0800)"),
        (plain, "push_vlan(vid=5,pcp=0),push_vlan(vid=6,pcp=0)"),
        (tag, "push_vlan(vid=5,pcp=0)"),
        (any, "push_vlan(vid=5,pcp=0)"),
        (some_tags, "pop_vlan"),
        (tags, "pop_vlan"),
    ] {
        let words = refusal(NEW, key, &format!("{before},{CHECK}"));
        assert!(words.starts_with("action check_pkt_len: ") && words.contains("has changed it"), "{before}: {words}");
        let inner = format!("check_pkt_len(size=9,gt({before},{CHECK}),le(3))");
        assert!(refusal(NEW, key, &inner).contains("has changed it"), "{inner}");
    }
    for (key, actions) in [
        (plain, format!("push_vlan(vid=5,pcp=0),{CHECK}")),
        (plain, format!("push_vlan(vid=5,pcp=0),pop_vlan,{CHECK}")),
        (tag, format!("pop_vlan,{CHECK}")),
        (plain, format!("check_pkt_len(size=200,gt({push_label},2),le(3))")),
        (plain, format!("set(eth(dst=02:00:00:00:00:07)),{CHECK}")),
    ] {
        let made = rule(NEW, key, &actions);
        assert!(made.is_ok(), "{actions}: {made:?}");
    }
}

#[test]
fn the_length_of_a_packet_that_was_tracked_is_not_compared() {
    const CHECK: &str = "check_pkt_len(size=200,gt(2),le(3))";
    let (first, later) = ("in_port(1),eth_type(0x0800)", "recirc_id(7),in_port(1),eth_type(0x0800),ipv4(frag=no)");
    let in_state = |state: &str, key: &str| format!("ct_state({state}),{key}");
    for (key, actions) in [
        (first, format!("ct(zone=5),{CHECK}")),
        (first, format!("ct(commit),ct_clear,{CHECK}")),
        (first, format!("check_pkt_len(size=100,gt(ct,{CHECK}),le(3))")),
        (&in_state("+trk+est", later), CHECK.into()),
        (&in_state("+trk", first), CHECK.into()),
        // Nothing says that the chain is not behind ct().
        (later, CHECK.into()),
        ("recirc_id(7),in_port(1)", CHECK.into()),
        ("recirc_id(7),in_port(1),eth_type(0x86dd)", CHECK.into()),
        (&in_state("-new", later), CHECK.into()),
    ] {
        let words = refusal(NEW, key, &actions);
        assert!(words.starts_with("action check_pkt_len: ") && words.contains("fragments"), "{key} {actions}: {words}");
        assert_eq!(
            words.contains("match ct_state(-trk)"),
            key.contains("recirc_id") && !key.contains("+trk"),
            "{words}"
        );
    }
    for (key, actions) in [
        (first, "ct_clear,check_pkt_len(size=200,gt(2),le(3))"),
        (first, "check_pkt_len(size=200,gt(ct(zone=5),2),le(ct,recirc(7)))"),
        ("recirc_id(0),in_port(1),eth_type(0x0800)", CHECK),
        (&in_state("-trk", later), CHECK),
        // Neither has come out of ct(), which puts fragments together and drops what is no IP.
        (&later.replace("frag=no", "frag=later"), CHECK),
        (&later.replace("frag=no", "frag=first"), CHECK),
        ("recirc_id(7),in_port(1),eth_type(0x0806)", CHECK),
    ] {
        let made = rule(NEW, key, actions);
        assert!(made.is_ok(), "{key} {actions}: {made:?}");
    }
    assert!(rule(Lab { is_hardware_alone: true, ..HARDWARE }, later, CHECK).is_ok(), "which takes no ct()");
}

#[test]
fn what_act_pedit_does_not_find_behind_ipv6_is_refused_with_that_reason() {
    let key = |protocol: u8| format!("in_port(1),eth(),eth_type(0x86dd),ipv6(proto={protocol},frag=no)");
    for (protocol, actions) in
        [(132, "set(sctp(dst=5)),2"), (58, "set(icmpv6(type=129)),2"), (58, "set(nd(target=fd00::1)),2")]
    {
        let words = refusal(EXACT, &key(protocol), actions);
        assert!(words.contains("behind IPv6 act_pedit finds the headers of TCP and UDP only"), "{words}");
    }
}

#[test]
fn a_time_to_live_that_the_flow_sets_counts_and_not_the_one_that_it_matches() {
    let key = IPV4.replace("frag=no", "ttl=64,frag=no");
    assert!(rule(EXACT, &key, "dec_ttl(le_1()),2").is_ok());
    assert!(refusal(EXACT, &key, "set(ipv4(ttl=1)),dec_ttl(le_1()),2").contains("does not keep it from becoming 0"));
    assert!(rule(EXACT, IPV4, "set(ipv4(ttl=2)),dec_ttl(le_1()),2").is_ok());
    assert!(refusal(EXACT, &key, "dec_ttl(le_1()),set(ipv4(ttl=1/1)),dec_ttl(le_1()),2").contains("becoming 0"));
}

#[test]
fn a_set_of_a_whole_header_names_what_stays_as_it_is() {
    let key = "in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,frag=no)";
    let set = "set(ipv4(src=10.0.0.9,dst=10.0.0.2,proto=17,tos=0,ttl=9,frag=no)),2";
    let ipv6 = "in_port(1),eth(),eth_type(0x86dd),ipv6(proto=6,frag=no)";
    let in_v6 = "set(ipv6(src=fd00::9,dst=fd00::2,label=0,proto=6,tclass=0,hlimit=9,frag=no)),2";
    for (key, actions) in [(key, set), (ipv6, in_v6)] {
        let found = rule(EXACT, key, actions).unwrap();
        assert_eq!(read(EXACT, &found).1, parse(key, actions));
    }
    let bare = "set(ipv4(src=10.0.0.9,dst=10.0.0.2,tos=0,ttl=9)),2";
    assert_eq!(
        read(EXACT, &rule(EXACT, key, bare).unwrap()).1,
        parse(key, bare),
        "without them it is read without them"
    );

    let other = refusal(EXACT, key, &set.replace("proto=17", "proto=6"));
    let words = "tc cannot edit it, and the match does not say that it has this value";
    assert_eq!(other, format!("field ipv4.proto: {words}"));
    assert_eq!(refusal(EXACT, key, &set.replace("frag=no", "frag=first")), format!("field ipv4.frag: {words}"));
    let both = format!("{},{bare}", set.trim_end_matches(",2"));
    assert!(refusal(EXACT, key, &both).contains("one names proto and frag and the other does not"));
}

#[test]
fn a_guard_in_front_takes_what_dec_ttl_would_wrap() {
    let flow = flow(IPV4, "3,dec_ttl(le_1()),2");
    let words = translate::rule(&flow, AGENT, &EXACT).unwrap_err().to_string();
    assert!(words.contains("match one of its upper seven bits, such as ttl=64/64"), "{words}");
    let rules = translate::rules(&flow, AGENT, &EXACT).unwrap();
    let guard = rules.guard.unwrap();
    let ttl = guard.flower.keys.iter().find(|found| found.key == Key::IpTtl).unwrap();
    assert_eq!(*ttl, KeyMatch { key: Key::IpTtl, value: 0, mask: 0xfe });
    let kinds: Vec<_> = guard.flower.actions.iter().map(|action| (action.operation.name(), action.control)).collect();
    assert_eq!(
        kinds,
        [("gact", Control::Pipe), ("mirred", Control::Stolen)],
        "a pass for the notes, and the first copy"
    );
    let adds = |rule: &Rule| {
        rule.flower
            .actions
            .iter()
            .any(|action| matches!(&action.operation, Operation::Edit(words) if words[0].command == Command::Add))
    };
    assert!(adds(&rules.rule) && !adds(&guard));
    let (label, read) = read(EXACT, &rules.rule);
    assert_eq!((read, label.spelling.has(Spelling::GUARD)), (parse(IPV4, "3,dec_ttl(le_1()),2"), false));
    assert!(self::read(EXACT, &guard).0.spelling.has(Spelling::GUARD));
    assert_eq!(self::read(EXACT, &guard).0.ufid, Some(flow.ufid));
}

#[test]
fn a_rule_for_hardware_has_no_action_but_those_of_its_flow() {
    let key = IPV4.replace("frag=no", "ttl=64,frag=no");
    for (key, actions, count, is_named) in [
        (IPV4, "2", 1, false),
        (IPV4, "drop", 1, false),
        (IPV4, "3,2", 2, true),
        (IPV4, "meter(5),2", 2, false),
        (&key, "dec_ttl(le_1()),2", 3, true),
    ] {
        let rule = rule(HARDWARE, key, actions).unwrap();
        assert_eq!(rule.flower.actions.len(), count, "{actions}");
        let (label, found) = read(HARDWARE, &rule);
        let ufid = flow(key, actions).ufid;
        assert_eq!((label.agent, label.ufid), (AGENT, is_named.then_some(ufid)), "{actions}");
        assert_eq!(found, parse(key, actions));
    }
}

#[test]
fn the_limit_of_actions_counts_what_is_put_in_front() {
    let to_all = |count: usize| (0..count).map(|_| "2").collect::<Vec<_>>().join(",");
    let limit = "32";
    for lab in [EXACT, HARDWARE] {
        assert_eq!(rule(lab, IPV4, &to_all(MAX_ACTIONS)).unwrap().flower.actions.len(), MAX_ACTIONS);
        assert!(refusal(lab, IPV4, &to_all(MAX_ACTIONS + 1)).contains(limit));
    }
    // In front of what rules share there are two passes, or none.
    let metered = |count: usize| format!("meter(5),{}", to_all(count - 1));
    assert!(rule(EXACT, IPV4, &metered(MAX_ACTIONS - 2)).is_ok());
    assert!(refusal(EXACT, IPV4, &metered(MAX_ACTIONS - 1)).contains(limit));
    assert!(rule(HARDWARE, IPV4, &metered(MAX_ACTIONS)).is_ok());
    assert!(refusal(HARDWARE, IPV4, &metered(MAX_ACTIONS + 1)).contains(limit));
}

#[test]
fn no_guard_is_made_where_none_is_needed_or_none_would_do() {
    let rules = |key: &str, actions: &str| translate::rules(&flow(key, actions), AGENT, &EXACT);
    let safe = IPV4.replace("frag=no", "ttl=0x40/0x40,frag=no");
    assert_eq!(rules(&safe, "dec_ttl(le_1()),2").unwrap().guard, None);
    assert_eq!(rules(IPV4, "2").unwrap().guard, None);
    let low = IPV4.replace("frag=no", "ttl=1,frag=no");
    assert!(rules(&low, "dec_ttl(le_1()),2").unwrap_err().to_string().contains("in every packet that matches"));
    assert!(rules(IPV4, "dec_ttl(le_1()),dec_ttl(le_1()),2").is_err(), "one guard keeps from one");
    assert!(rules(IPV4, "dec_ttl(le_1(4)),2").unwrap_err().to_string().contains("whose TTL would become 0"));
    assert!(rules("in_port(1),eth()", "dec_ttl(le_1()),2").is_err());
}

#[test]
fn a_mirror_copies_and_goes_on_and_its_note_is_none_of_a_flow() {
    let note = MirrorNote { agent: AGENT, number: 3 };
    let mirror = |key: &str, copies: &[u32]| {
        let copies = copies.iter().map(|port| PortNumber(*port)).collect();
        translate::mirror(&translate::Mirror { matching: parse(key, "").0, copies, note }, &EXACT)
    };
    let rule = mirror(IPV4, &[7, 8]).unwrap();
    let kinds: Vec<_> = rule.flower.actions.iter().map(|action| (action.operation.name(), action.control)).collect();
    assert_eq!(kinds, [("mirred", Control::Pipe), ("mirred", Control::Pipe), ("gact", Control::Continue)]);
    let notes = [0, 1].map(|at| rule.flower.actions[at].cookie.as_ref().map_or(&[][..], |cookie| cookie.bytes()));
    assert_eq!((MirrorNote::read(notes[0]), Label::read(notes)), (Some(note), None));
    assert_eq!(MirrorNote::read(&notes[0][..15]), None);
    assert!(mirror(IPV4, &[10]).unwrap_err().to_string().contains("outer header"));
    assert!(
        mirror(&IPV4.replace("recirc_id(0)", "recirc_id(1)"), &[7]).unwrap_err().to_string().contains("first chain")
    );
}

#[test]
fn a_helper_is_taken_where_the_kernel_has_them_with_a_caveat_and_for_a_known_protocol() {
    let new = Lab { features: Features { connection_helpers: true, ..OLD }, ..EXACT };
    let key = |rest: &str| format!("recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4({rest})");
    let track = "ct(commit,zone=7,helper=ftp),2";
    assert!(refusal(EXACT, &key("proto=6,frag=no"), track).contains("attaches no helper (Linux 6.2 does)"));
    assert!(refusal(new, &key("frag=no"), track).contains("one protocol, which the match must name"));
    let rule = rule(new, &key("proto=6,frag=no"), track).unwrap();
    assert_eq!(rule.caveats, [Caveat::RelatedIsForgotten]);
    assert_eq!(read(new, &rule).1, parse(&key("proto=6,frag=no"), track));
}

#[test]
fn connections_are_not_tracked_in_hardware_alone() {
    let alone = Lab { is_hardware_alone: true, ..HARDWARE };
    let key = "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)";
    for track in ["ct(zone=7),recirc(1)", "ct(commit,zone=7),2"] {
        assert!(refusal(alone, key, track).contains("hears of connections from rules in software"), "{track}");
        assert!(rule(HARDWARE, key, track).is_ok(), "{track}");
    }
    assert!(rule(alone, key, "ct_clear,2").is_ok());
}

#[test]
fn connections_are_tracked_of_ip_only_for_anything_else_is_dropped_there() {
    let reason = "action ct: act_ct drops what is no IP, and the match does not say that it is";
    for key in ["in_port(1)", "in_port(1),eth_type(0x0806)", "in_port(1),eth_type(0x8100),vlan(vid=5,pcp=0)"] {
        assert_eq!(refusal(EXACT, key, "ct(zone=7),recirc(1)"), reason, "{key}");
    }
    let labels = "in_port(1),eth_type(0x8847),mpls(label=5,tc=0,ttl=9,bos=1)";
    assert_eq!(refusal(EXACT, labels, "ct(zone=7),recirc(1)"), reason);
    for (key, actions) in [
        ("in_port(1),eth_type(0x86dd)", "ct(zone=7),recirc(1)"),
        (labels, "pop_mpls(eth_type=0x800),ct(zone=7),recirc(1)"),
        ("in_port(1)", "ct_clear,2"),
    ] {
        assert!(rule(EXACT, key, actions).is_ok(), "{key} {actions}");
    }
}

#[test]
fn states_that_no_packet_has_together_in_flower_are_refused() {
    let key = |states: &str| format!("recirc_id(1),in_port(1),ct_state({states}),eth(),eth_type(0x0800),ipv4(frag=no)");
    for states in ["+new+rel+trk", "+est+rel+trk"] {
        assert!(refusal(EXACT, &key(states), "2").contains("and not two of them"), "{states}");
    }
    for states in ["+new-rel+trk", "+est-rel+trk", "-new+rel+trk", "+rel+trk"] {
        assert!(rule(EXACT, &key(states), "2").is_ok(), "{states}");
    }
}

#[test]
fn an_old_kernel_refuses_what_ovs_does_not_have_by_its_key_and_the_version_that_has_it() {
    for (key, words) in [
        ("num_of_vlans(2)", ["num_of_vlans", "Linux 6.0"]),
        ("eth_type(0x8864),pppoe(sid=5)", ["pppoe_sid", "Linux 6.0"]),
        ("eth_type(0x8864),pppoe(proto=0x21)", ["ppp_proto", "Linux 6.0"]),
        ("eth_type(0x0800),ipv4(proto=115,frag=no),l2tpv3(sid=5)", ["l2tpv3_sid", "Linux 6.1"]),
        ("eth_type(0x8902),cfm(opcode=1)", ["cfm", "Linux 6.5"]),
        ("eth_type(0x0800),ipv4(proto=50,frag=no),ipsec(spi=5)", ["spi", "Linux 6.6"]),
    ] {
        let refusal = refusal(EXACT, &format!("in_port(1),{key}"), "2");
        assert!(refusal.starts_with("field ") && words.iter().all(|word| refusal.contains(word)), "{refusal}");
        assert!(rule(NEW, &format!("in_port(1),{key}"), "2").is_ok(), "{key}");
    }
}

#[test]
fn what_ovs_does_not_have_is_read_back_behind_any_number_of_tags() {
    let behind = |tags: usize, inner: &str| match tags {
        0 => inner.to_owned(),
        1 => format!("eth_type(0x8100),vlan(vid=5),encap({inner})"),
        _ => format!("eth_type(0x88a8),vlan(vid=5),encap(eth_type(0x8100),vlan(vid=6),encap({inner}))"),
    };
    for inner in [
        "eth_type(0x8864),pppoe(sid=5)",
        "eth_type(0x8864),pppoe(proto=0x21)",
        "eth_type(0x8864),pppoe(sid=5,proto=0xc021)",
        "eth_type(0x8902),cfm(level=3)",
        "eth_type(0x8902),cfm(level=3,opcode=0)",
        "eth_type(0x86dd),ipv6(proto=115,frag=no),l2tpv3(sid=5)",
        "eth_type(0x0800),ipv4(proto=51,frag=no),ipsec(spi=0x50/0xf0)",
    ] {
        for tags in 0..3 {
            for count in [String::new(), format!("num_of_vlans({tags}),")] {
                let key = format!("recirc_id(0),in_port(1),eth(),{count}{}", behind(tags, inner));
                let rule = rule(NEW, &key, "2").unwrap_or_else(|refusal| panic!("{key}: {refusal}"));
                let (_, (matching, _)) = read(NEW, &rule);
                assert_eq!(matching, parse(&key, "2").0, "{key}");
            }
        }
    }
    for key in ["num_of_vlans(0)", "num_of_vlans(3)", "num_of_vlans(3),eth_type(0x8100),vlan(vid=5)"] {
        let key = format!("in_port(1),{key}");
        let rule = rule(NEW, &key, "2").unwrap();
        let (_, (matching, _)) = read(NEW, &rule);
        assert_eq!(matching, parse(&key, "2").0, "{key}");
        let is_short = key.ends_with("num_of_vlans(3)");
        assert_eq!(rule.caveats.contains(&Caveat::TagIsNotCounted), is_short, "{key}");
    }
}

#[test]
fn what_no_packet_or_no_listing_has_is_refused() {
    for (key, words) in [
        ("num_of_vlans(1),eth_type(0x0800)", "contradicts the tags"),
        ("num_of_vlans(0),eth_type(0x8100),vlan(vid=5)", "contradicts the tags"),
        (
            "num_of_vlans(3),eth_type(0x8100),vlan(),encap(eth_type(0x8100),vlan(),encap(eth_type(0x0800)))",
            "contradicts the tags",
        ),
        ("num_of_vlans(1/0x1)", "only an exact match"),
        ("eth_type(0x8864),pppoe(sid=5/0xff)", "only an exact match"),
        ("eth_type(0x0800),ipv4(proto=50,frag=no),ipsec(spi=0)", "not show a match on zeros"),
        ("eth_type(0x0800),ipv4(proto=50,frag=first),ipsec(spi=5)", "no transport header of a fragment"),
        ("eth_type(0x86dd),ipv6(proto=51,frag=no),ipsec(spi=5)", "an IPv6 authentication header"),
        ("eth_type(0x8100),vlan(),encap(eth_type(0x8864))", "does not show the Ethernet type of PPPoE again"),
    ] {
        let refusal = refusal(NEW, &format!("in_port(1),{key}"), "2");
        assert!(refusal.contains(words), "{key}: {refusal}");
    }
}

#[test]
fn one_in_so_many_packets_is_read_back_as_it_was_written() {
    let one_in = |actions: &str| {
        let rule = rule(EXACT, IPV4, actions).unwrap();
        assert_eq!(read(EXACT, &rule).1, parse(IPV4, actions), "{actions}");
        let rate = |action: &Action| match action.operation {
            Operation::Sample { rate, .. } => Some(rate),
            _ => None,
        };
        rule.flower.actions.iter().filter_map(rate).collect::<Vec<_>>()
    };
    let sample = |percent: &str| format!("sample(sample={percent}%,actions(psample(group=5)))");
    assert_eq!(one_in("psample(group=5),2"), [1]);
    // As people write them: the nearest to a half and the like.
    for (percent, rate) in [("100.0", 1), ("50.0", 2), ("25.0", 4), ("20.0", 5), ("10.0", 10), ("1.0", 100)] {
        assert_eq!(one_in(&format!("{},2", sample(percent))), [rate]);
    }
    // What is left of a division, as OVS has it for sFlow: 4,294,967,295 / 2 and / 4.
    let (half, quarter) = (sample("49.99999999"), sample("24.99999998"));
    assert_eq!(one_in(&format!("{half},{quarter},2")), [2, 4]);
    assert_eq!(one_in(&format!("psample(group=6),{half},2")), [1, 2]);
    for actions in [format!("{half},{},2", sample("25.0")), format!("psample(group=6),{},2", sample("50.0"))] {
        assert!(refusal(EXACT, IPV4, &actions).contains("rounded in the same way"), "{actions}");
    }
    assert!(refusal(EXACT, IPV4, &sample("33.0")).contains("one in a whole number of packets"));
    assert!(refusal(EXACT, IPV4, &sample("0.0")).contains("one in a whole number of packets"));
}

#[test]
fn a_flow_that_does_not_say_its_chain_is_read_without_one() {
    let said = parse("in_port(1),eth_type(0x0806)", "drop").0;
    let mut unsaid = said;
    unsaid.set(Field::RecircId, 0, 0);
    for matching in [said, unsaid] {
        let (key, drop) = (MaskedKey::new(&matching), [].into());
        let flow = Flow::new(None, key, drop, Priority::default(), Expiry::default(), &Seed([0; 16]));
        let rule = translate::rule(&flow, AGENT, &EXACT).unwrap();
        assert_eq!((rule.chain, read(EXACT, &rule).1.0), (0, matching));
    }
}
