//! Rules that are made of templates are what translation gives.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;

use sluice_flow::Flow;
use sluice_flow::port::{PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_flow::text::LineReader;
use sluice_flow::ufid::Seed;
use sluice_offload_dv::translate::{Instance, Templates, Vports, translate};

/// Flows with a place for a number, which are to share a template each.
const ALIKE: &[&str] = &[
    "in_port(1),eth(src=02:00:00:00:#:01,dst=#:00:00:00:00:02),eth_type(0x88b5) 2",
    "in_port(1),eth_type(0x8100),vlan(vid=#,pcp=3),encap(eth_type(0x0800),ipv4(src=10.0.0.#,frag=no)) 2",
    "in_port(1),eth_type(0x88a8),vlan(vid=5),encap(eth_type(0x8100),vlan(vid=#),encap(eth_type(0x0800),ipv4(frag=no))) 2",
    "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.#/0.0.0.255,dst=10.#.1.1/0.255.0.255,proto=6,tos=0x20,frag=no),tcp(src=#,dst=80) 2",
    "in_port(1),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=#/0x0ff0),tcp_flags(0x0#/0x0ff) 2",
    "in_port(1),eth_type(0x86dd),ipv6(src=fd00::#,dst=fd00:#::1/ffff:ffff::,label=#,tclass=0x20,proto=17,frag=no),udp(src=#/0x00ff) 2",
    "in_port(1),eth_type(0x0800),ipv4(proto=1,frag=no),icmp(type=#,code=#) 2",
];

/// Flows with a place for a number on which more depends.
const UNLIKE: &[&str] = &[
    "in_port(#),eth_type(0x0800),ipv4(frag=no) 2",
    "recirc_id(#),in_port(1),eth_type(0x0800),ipv4(frag=no) 2",
    "in_port(1),eth_type(0x0800),ipv4(proto=#,frag=no) 2",
    "in_port(1),eth_type(0x0800),ipv4(ttl=#,frag=no) dec_ttl(le_1()),2",
    "in_port(1),eth_type(0x0800),ipv4(tos=1#/0x03,frag=no) set(tunnel(tun_id=0x5,dst=172.16.0.9,ttl=64,flags(key))),9",
    "in_port(1),eth_type(0x86dd),ipv6(tclass=1#,frag=no) set(tunnel(tun_id=0x5,dst=172.16.0.9,ttl=64,flags(key))),9",
    "in_port(1),eth_type(0x8100),vlan(vid=7,pcp=#),encap(eth_type(0x0800),ipv4(frag=no)) 2",
    "in_port(1),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=#,code=#) 2",
];

/// Vports that are numbered as the ports, with an offset, and a tunnel.
struct Numbered(u16);

impl Vports for Numbered {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        Ok(self.0 + u16::try_from(port.0).unwrap())
    }

    fn tunnel(&self, port: PortNumber) -> Option<Tunnel> {
        let protocol = TunnelProtocol::Vxlan;
        let tunnel = Tunnel { protocol, udp_port: protocol.default_udp_port(), underlay: PortNumber(1) };
        (port == TUNNEL).then_some(tunnel)
    }
}

const LAB: Numbered = Numbered(10);
const TUNNEL: PortNumber = PortNumber(9);

fn flow(reader: &mut LineReader<'static>, line: &str, number: u32) -> Flow {
    let line = line.replace('#', &number.to_string());
    reader.read(&line).unwrap_or_else(|error| panic!("{}", error.caret(&line)));
    reader.flow(&Seed([1; 16]))
}

/// Asserts that it is what translation gives.
fn assert_same(made: &Instance, vports: &dyn Vports) {
    let wanted = translate(&made.flow, vports).unwrap();
    let template = &made.template;
    assert_eq!(
        (template.table(), *template.mask(), made.value()),
        (wanted.table, wanted.matched.mask, wanted.matched.value)
    );
    assert_eq!((template.priority, &template.plan), (made.flow.priority, &wanted.plan));
}

#[test]
fn flows_that_differ_in_values_share_a_template_and_have_values_of_their_own() {
    let (mut reader, mut templates) = (LineReader::new(&()), Templates::new());
    for line in ALIKE {
        let mut instance = |number| templates.instance(flow(&mut reader, line, number), &LAB).unwrap();
        let first = instance(1);
        assert_same(&first, &LAB);
        for number in 2..8 {
            let next = instance(number);
            assert!(Arc::ptr_eq(&first.template, &next.template), "{line}");
            assert_ne!(first.value(), next.value(), "{line}");
            assert_same(&next, &LAB);
        }
    }
}

#[test]
fn values_that_decide_something_have_templates_of_their_own() {
    let (mut reader, mut templates) = (LineReader::new(&()), Templates::new());
    for line in UNLIKE {
        let mut instance = |number| templates.instance(flow(&mut reader, line, number), &LAB).unwrap();
        let [one, other, again] = [2, 3, 2].map(&mut instance);
        assert!(!Arc::ptr_eq(&one.template, &other.template) && one.value() == again.value(), "{line}");
        [one, other, again].iter().for_each(|made| assert_same(made, &LAB));
    }
    let too_small = flow(&mut reader, UNLIKE[3], 1);
    assert!(templates.instance(too_small, &LAB).is_err(), "a refusal finds no template");
}

#[test]
fn other_ports_are_seen_once_the_templates_are_cleared() {
    let (mut reader, mut templates) = (LineReader::new(&()), Templates::new());
    let mut wanted = || flow(&mut reader, ALIKE[0], 1);
    templates.instance(wanted(), &LAB).unwrap();
    templates.clear();
    assert_same(&templates.instance(wanted(), &Numbered(20)).unwrap(), &Numbered(20));
}
