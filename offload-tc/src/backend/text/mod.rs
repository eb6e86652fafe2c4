//! Rules in the syntax of the `tc` command, so that what is explained can be tried by hand. What the command cannot be given (an edit
//! of bits that are no field of its own, options of headers) is written as the command shows it.

mod actions;
mod forms;
mod keys;

use std::fmt::Write;

use self::forms::protocol;
use super::ports::table::PortTable;
use crate::context::Context;
use crate::marks::{AgentId, Mark};
use crate::rule::Rule;
use crate::wire::filter::{FilterId, FilterView, Hook};
use crate::wire::flower::flag;

/// The rule of a flow.
pub(super) fn rule(rule: &Rule, priority: u16, ports: &PortTable) -> String {
    let Rule { hook, chain, protocol, .. } = *rule;
    let id = FilterId { hook, chain, priority, protocol, handle: 0 };
    let mut text = format!("{} flower", place("add ", &id, ports.name_at(hook)));
    keys::write(&rule.flower, protocol, &mut text);
    for (bit, word) in [(flag::SKIP_SW, " skip_sw"), (flag::SKIP_HW, " skip_hw")] {
        text.push_str(if rule.flower.flags & bit == 0 { "" } else { word });
    }
    let device = |interface: u32| {
        let name = ports.port(interface).and_then(|(number, _)| Some(&*ports.get(number)?.port.name));
        name.map_or_else(|| format!("if{interface}"), ToOwned::to_owned)
    };
    for action in &rule.flower.actions {
        actions::write(action, &device, &mut text);
    }
    for caveat in &rule.caveats {
        let _ = write!(text, " ({caveat})");
    }
    text
}

/// Somebody else's filter: its place and kind.
pub(super) fn foreign(view: &FilterView<'_>, port: Option<&str>, mark: Option<Mark>) -> String {
    let mut text = format!("{} {}", place("", &view.id, port), view.kind);
    if view.id.handle != 0 {
        let _ = write!(text, " handle {:#x}", view.id.handle);
    }
    if let Some(Mark { agent: AgentId(agent), format, .. }) = mark {
        let _ = match format.is_later() {
            true => write!(text, " (of agent {agent:08x}, written by a newer sluice: notes of format {})", format.0),
            false => write!(text, " (of another agent, {agent:08x})"),
        };
    }
    text
}

/// The place of a filter, behind the command.
fn place(command: &str, id: &FilterId, port: Option<&str>) -> String {
    let device = |interface: u32| port.map_or_else(|| format!("if{interface}"), ToOwned::to_owned);
    let hook = match id.hook {
        Hook::Ingress { interface } => format!("dev {} ingress", device(interface)),
        Hook::Egress { interface } => format!("dev {} egress", device(interface)),
        Hook::Block { number } => format!("block {number}"),
    };
    format!("filter {command}{hook} protocol {} pref {} chain {}", protocol(id.protocol), id.priority, id.chain)
}

#[cfg(test)]
mod tests {
    use sluice_flow::action::ActionList;
    use sluice_flow::flow::{Expiry, Flow};
    use sluice_flow::key::MaskedKey;
    use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
    use sluice_flow::priority::Priority;
    use sluice_flow::text;
    use sluice_flow::ufid::Seed;
    use sluice_netdev as netdev;

    use super::*;
    use crate::backend::ports::table::{Attached, Present};
    use crate::context::{Device, DeviceKind, Features};
    use crate::translate;

    fn ports() -> PortTable {
        let tunnel = Tunnel { protocol: TunnelProtocol::Vxlan, udp_port: Some(4789), underlay: PortNumber(1) };
        let ports = [
            (1, "p1", PortKind::Physical, DeviceKind::Wire),
            (2, "p2", PortKind::Physical, DeviceKind::Wire),
            (3, "vx0", PortKind::Tunnel(tunnel), DeviceKind::Tunnel { udp_port: Some(4789) }),
            (4, "br0", PortKind::Internal, DeviceKind::Internal),
        ];
        let mut table = PortTable::default();
        table.features = Some(Features::NEWEST);
        ports.into_iter().fold(table, |table, (number, name, kind, device)| {
            let device = Device { interface: number + 10, kind: device };
            let present = Present { device, generation: netdev::Generation(1), qdiscs: vec![] };
            let port = Port { number: PortNumber(number), name: name.parse().expect("a name"), kind };
            table.with(Attached { port, device: Some(present), is_made: false })
        })
    }

    /// The text of a flow's rule, without the cookies.
    fn words(key: &str, actions: &str) -> String {
        let parsed = text::parse_key(key, &()).unwrap();
        let actions: ActionList = text::parse_actions(actions, &()).unwrap();
        let key = MaskedKey::new(&parsed.matching);
        let flow = Flow::new(None, key, actions, Priority::default(), Expiry::default(), &Seed([7; 16]));
        let ports = ports();
        let mut found = translate::rule(&flow, AgentId(1), &ports).unwrap();
        found.flower.flags = flag::SKIP_HW;
        let text = rule(&found, 61_000, &ports);
        let mut is_cookie = false;
        let words = text.split(' ').filter(|word| {
            let is_left_out = *word == "cookie" || is_cookie;
            is_cookie = *word == "cookie";
            !is_left_out
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_rule_reads_as_tc_would_take_it() {
        assert_eq!(
            words(
                "in_port(1),eth(dst=02:00:00:00:00:01),eth_type(0x0800),ipv4(dst=10.0.0.0/255.255.255.0,proto=6),tcp(dst=80)",
                "2"
            ),
            "filter add dev p1 ingress protocol ip pref 61000 chain 0 flower dst_mac 02:00:00:00:00:01 ip_proto tcp \
             dst_ip 10.0.0.0/24 dst_port 80 skip_hw action gact pipe action mirred egress redirect dev p2"
        );
        assert_eq!(
            words("in_port(4),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0806),arp(op=1))", "pop_vlan,1"),
            "filter add dev br0 egress protocol 802.1Q pref 61000 chain 0 flower vlan_id 5 vlan_prio 3 vlan_ethtype arp \
             arp_op request skip_hw action vlan pop pipe action mirred egress redirect dev p1"
        );
    }

    #[test]
    fn a_protocol_without_a_name_is_in_the_number_system_of_tc() {
        let of = |protocol: u8| words(&format!("in_port(1),eth_type(0x0800),ipv4(proto={protocol})"), "2");
        assert!(of(47).contains(" ip_proto 0x2f ") && of(2).contains(" ip_proto 0x02 ") && of(1).contains(" icmp "));
    }

    #[test]
    fn flags_of_an_outer_header_are_in_the_words_of_tc_which_takes_no_numbers() {
        let outer = "tunnel(tun_id=0x7,src=192.0.2.1,dst=192.0.2.2,flags(-df+csum+key)),in_port(3)";
        assert!(words(outer, "1").contains(" enc_flags tuncsum/notundf "), "{}", words(outer, "1"));
    }

    #[test]
    fn actions_read_as_tc_would_take_them() {
        let actions = |actions: &str| {
            let words = words("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no)", actions);
            words.split_once(" skip_hw ").unwrap().1.to_owned()
        };
        assert_eq!(actions("drop"), "action gact pipe action gact drop");
        assert_eq!(
            actions("set(ipv4(ttl=9)),push_vlan(vid=7,pcp=1),2"),
            "action pedit ex keys 1 at ipv4+8: val 09000000 mask 00ffffff pipe action csum ip4h pipe \
             action vlan push protocol 802.1Q id 7 priority 1 pipe action mirred egress redirect dev p2"
        );
        assert_eq!(
            actions("set(tunnel(tun_id=0x7,src=192.0.2.1,dst=192.0.2.2,ttl=64,flags(key))),3"),
            "action tunnel_key set src_ip 192.0.2.1 dst_ip 192.0.2.2 id 7 ttl 64 nocsum pipe \
             action mirred egress redirect dev vx0"
        );
        assert_eq!(
            actions("ct(commit,zone=5,mark=0x1/0xff,nat(src=10.0.0.1-10.0.0.9:1000-2000)),recirc(0x7)"),
            "action ct commit zone 5 mark 0x1/0xff nat src addr 10.0.0.1-10.0.0.9 port 1000-2000 pipe \
             action gact goto chain 7"
        );
        assert_eq!(
            actions("check_pkt_len(size=200,gt(drop),le(2))"),
            "action police mtu 200 conform-exceed jump 2 / pipe action mirred egress redirect dev p2 action gact drop"
        );
        let [label, mask] = [5_u128, 0xff].map(|number| forms::hex(&number.to_ne_bytes()));
        let tracked = actions("ct(commit,label=0x5/0xff,helper=tftp),2");
        assert!(
            tracked.starts_with(&format!(
                "action ct commit label {label}/{mask} helper ipv4-udp-tftp pipe action mirred "
            ))
        );
        assert!(words("in_port(1),ct_label(0x5/0xff)", "2").contains(&format!(" ct_label {label}/{mask} ")));
        assert_eq!(
            actions("2,set(skb_mark(0x5)),4"),
            "action mirred egress mirror dev p2 action skbedit mark 5/0xffffffff pipe action skbedit ptype host pipe \
             action mirred ingress redirect dev br0"
        );
    }
}
