//! Where OVS's userspace datapath and the software NIC are meant to differ. Where the kernel's datapath has an action,
//! the NIC does what the kernel does.

use sluice_flow::action::{Action, visit};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::port::PortNumber;
use sluice_tests::scenario::Scenario;

use crate::by_hand::{actions, key};
use crate::judge::{Difference, Judge, Outcome};
use crate::packets::{Ipv4, Ipv6, labelled, neighbour, tagged, udp};

/// One reason for which something else may come of a packet.
pub(crate) struct Rule {
    pub(crate) reason: &'static str,
    /// Whether it is that for a scenario of one packet and, as a rule, one flow.
    /// What shows it.
    example: fn() -> Scenario,
    applies: fn(&Scenario, &[u8], &Difference) -> bool,
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        reason: "OVS does not look into an IP packet that is longer than its frame (ipv4_sanity_check in lib/flow.c), \
                 where the kernel does as far as it goes, and leaves a message of ARP that is cut off as it is, where \
                 ours drops what an action finds no header in",
        example: || listed("2").packet(1, cut(udp_frame(), 3)),
        applies: |_, frame, _| is_cut_off(frame),
    },
    Rule {
        reason: "a match on one tag takes packets with two in OVS; the kernel always matches on both \
                 (ovs_nla_get_match in net/openvswitch/flow_netlink.c)",
        example: || {
            Scenario::new("")
                .flow(key("in_port(1),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800))"), actions("2"))
                .packet(1, tagged(0x8100, 0x1005, &tagged(0x88a8, 0x1003, &udp_frame())))
        },
        applies: |scenario, frame, _| {
            let is_one_tag = |full: &sluice_flow::Match| {
                full.is_exactly(Field::VlanPresent, 1) && full.is_exactly(Field::CvlanPresent, 0)
            };
            tags(frame) == 2 && scenario.flows.iter().any(|(full, _)| is_one_tag(full))
        },
    },
    Rule {
        reason: "behind two tags the kernel sets no label: it takes the packet for one of the inner tag's type \
                 (key_extract in net/openvswitch/flow.c, skb_mpls_update_lse)",
        example: || {
            let behind = "in_port(1),eth_type(0x88a8),vlan(vid=3),encap(eth_type(0x8100),vlan(vid=5),\
                          encap(eth_type(0x8847),mpls(label=7,tc=1,ttl=9,bos=1)))";
            let frame = tagged(0x88a8, 0x1003, &tagged(0x8100, 0x1005, &labelled(&[(7, 1, 9)])));
            Scenario::new("").flow(key(behind), actions("set(mpls(label=8,tc=1,ttl=9,bos=1)),2")).packet(1, frame)
        },
        applies: |scenario, frame, _| {
            let sets = |action: &Action| matches!(action, Action::Set(set) if set.attribute == Attribute::Mpls);
            tags(frame) + count(scenario, is_push) >= 2 && count(scenario, sets) > 0
        },
    },
    Rule {
        reason: "the outer tag does not count for trunc in the kernel, where it is not among the packet's bytes",
        example: || listed("push_vlan(vid=7,pcp=0),trunc(20),2").packet(1, udp_frame()),
        applies: |scenario, frame, _| count(scenario, is_trunc) == 1 && tags(frame) + count(scenario, is_push) > 0,
    },
    Rule {
        reason: "OVS changes data of a later fragment where the first has its checksum (packet_set_ipv4_addr in \
                 lib/packets.c); the kernel does not (update_ip_l4_checksum)",
        example: || {
            let later = Ipv4 { fragment: 3, ..Ipv4::default() }.frame(6, &[7; 40]);
            listed("set(ipv4(src=1.2.3.4)),2").packet(1, later)
        },
        applies: |scenario, frame, _| {
            let sets = |action: &Action| matches!(action, Action::Set(set) if set.attribute == Attribute::Ipv4);
            let at = 14 + 4 * tags(frame);
            let is_later = word(frame, at + 6).is_some_and(|fragment| fragment & 0x1fff != 0);
            word(frame, at - 2) == Some(0x0800) && is_later && count(scenario, sets) > 0
        },
    },
    Rule {
        reason: "OVS sets all bits of a field of nd_ext() if any is masked (odp_set_nd_ext in lib/odp-execute.c), which no \
                 OpenFlow rule of its own can ask for; ours sets those that are",
        example: || {
            let mut frame = Ipv6::default().frame(58, &neighbour(135));
            let reserved = 58;
            frame[reserved] = 0x80;
            solicited("set(nd_ext(nd_reserved=0x20/0x30)),2").packet(1, frame)
        },
        applies: |scenario, _, _| {
            let is_masked = |action: &Action| match action {
                Action::Set(set) if set.attribute == Attribute::NdExt => {
                    set.fields.iter().any(|(field, _, mask)| *mask != field.full_mask())
                }
                _ => false,
            };
            count(scenario, is_masked) > 0
        },
    },
    Rule {
        reason: "behind extension headers OVS takes the first of them for the protocol in the checksum that nd_ext() computes \
                 (packet_csum_pseudoheader6 in lib/packets.c); RFC 8200, 8.1 wants 58",
        example: || {
            let extensions = Some((0, vec![58, 0, 1, 4, 0, 0, 0, 0]));
            let frame = Ipv6 { extensions, ..Ipv6::default() }.frame(58, &neighbour(135));
            solicited("set(nd_ext(nd_reserved=0x20)),2").packet(1, frame)
        },
        applies: |scenario, frame, _| {
            let sets = |action: &Action| matches!(action, Action::Set(set) if set.attribute == Attribute::NdExt);
            let at = 14 + 4 * tags(frame);
            word(frame, at - 2) == Some(0x86dd) && frame.get(at + 6) != Some(&58) && count(scenario, sets) > 0
        },
    },
    Rule {
        reason: "behind pop_nsh OVS knows no header until the packet goes round (pop_nsh in lib/packets.c)",
        example: || listed(&format!("{SERVICE},pop_nsh,set(eth(src=02:00:00:00:00:77)),2")).packet(1, udp_frame()),
        applies: |scenario, _, _| count(scenario, |action| matches!(action, Action::PopNsh)) > 0,
    },
    Rule {
        reason: "a dummy port that is given a packet without Ethernet header loses what else goes out with it \
                 (netdev_dummy_send in lib/netdev-dummy.c)",
        example: || listed(&format!("clone({SERVICE},2),2")).packet(1, udp_frame()),
        applies: |scenario, _, difference| {
            let wraps = |action: &Action| matches!(action, Action::AddMpls(_) | Action::PushNsh(_));
            let are_ours = |(port, frames): (&PortNumber, &Vec<Vec<u8>>)| {
                let ours = difference.ours.get(port);
                ours.is_some_and(|ours| frames.iter().all(|frame| ours.contains(frame)))
            };
            count(scenario, wraps) > 0 && difference.ovs.iter().all(are_ours)
        },
    },
    Rule {
        reason: "a copy of a packet takes what trunc has to cut along in OVS, and the packet itself is whole again \
                 (dp_packet_batch_reset_cutlen in odp_execute_clone)",
        example: || listed("trunc(20),clone(3),2").packet(1, udp_frame()),
        applies: |scenario, _, _| {
            let clones = |action: &Action| action.lists().next().is_some();
            count(scenario, is_trunc) == 1 && count(scenario, clones) > 0
        },
    },
];

const SERVICE: &str = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x1,c2=0x2,c3=0x3,c4=0x4)";

fn udp_frame() -> Vec<u8> {
    Ipv4::default().frame(17, &udp(1000, 2000, b"an example"))
}

fn cut(mut frame: Vec<u8>, bytes: usize) -> Vec<u8> {
    frame.truncate(frame.len() - bytes);
    frame
}

/// What is done to every IPv4 frame.
fn listed(list: &str) -> Scenario {
    Scenario::new(list).flow(key("in_port(1),eth_type(0x0800),ipv4(tos=0x28)"), actions(list))
}

/// What is done to the neighbour solicitation.
fn solicited(list: &str) -> Scenario {
    let solicitation = "in_port(1),eth_type(0x86dd),ipv6(proto=58),icmpv6(type=135,code=0),nd(target=fd00::2)";
    Scenario::new(list).flow(key(solicitation), actions(list))
}

#[test]
fn what_is_known_to_differ_still_does() {
    let mut judge = Judge::new();
    for (index, rule) in RULES.iter().enumerate() {
        let scenario = (rule.example)();
        match judge.play(&scenario) {
            Outcome::Differs(difference) => {
                assert_eq!(self::rule(&scenario, &difference), Some(index), "{scenario}{difference}");
            }
            other => panic!("take it out of the list: {}\n{scenario}{other:?}", rule.reason),
        }
    }
    let end = listed(&format!("add_mpls(label=1,tc=0,ttl=9,bos=1,eth_type=0x8847),{SERVICE},2")).packet(1, udp_frame());
    let outcome = judge.play(&end);
    assert!(matches!(outcome, Outcome::EndOfOvs { .. }), "{outcome:?}");
}

/// What ends OVS 3.1: a header of IP that is cut off itself is matched as one of zeros, and then set though it is not
/// there; and `push_nsh` asserts that it knows the type of the packet (push_nsh in lib/packets.c).
pub(crate) fn ends_ovs(scenario: &Scenario, packet: usize) -> bool {
    let labels = |action: &Action| matches!(action, Action::AddMpls(_));
    let service = |action: &Action| matches!(action, Action::PushNsh(_));
    is_cut_off(&scenario.packets[packet].1) || count(scenario, labels) > 0 && count(scenario, service) > 0
}

/// The rule that a scenario of one packet falls under.
pub(crate) fn rule(scenario: &Scenario, difference: &Difference) -> Option<usize> {
    let (_, frame) = scenario.packets.first()?;
    RULES.iter().position(|rule| (rule.applies)(scenario, frame, difference))
}

fn is_push(action: &Action) -> bool {
    matches!(action, Action::PushVlan(_))
}

fn is_trunc(action: &Action) -> bool {
    matches!(action, Action::Trunc(_))
}

/// How many actions of all flows, at any depth, are such.
fn count(scenario: &Scenario, is: impl Fn(&Action) -> bool) -> usize {
    let mut count = 0;
    scenario.flows.iter().for_each(|(_, actions)| visit(actions, &mut |action| count += usize::from(is(action))));
    count
}

fn word(frame: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?)))
}

fn tags(frame: &[u8]) -> usize {
    (0..2).take_while(|tag| matches!(word(frame, 12 + 4 * tag), Some(0x8100 | 0x88a8))).count()
}

fn is_cut_off(frame: &[u8]) -> bool {
    let at = 14 + 4 * tags(frame);
    let length = match word(frame, at - 2) {
        Some(0x0800) => word(frame, at + 2),
        Some(0x86dd) => word(frame, at + 4).map(|payload| 40 + payload),
        Some(0x0806 | 0x8035) => Some(28),
        _ => return false,
    };
    length.is_none_or(|length| at + length > frame.len())
}
