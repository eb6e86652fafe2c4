//! Rules that are made of templates, by the text of their flows.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;
use sluice_flow::text::LineReader;
use sluice_flow::ufid::Seed;
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features};
use sluice_offload_tc::install::Request;
use sluice_offload_tc::label;
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::rule::Exposure;
use sluice_offload_tc::templates::{Lookup, Templates};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::{Filter, FilterId};
use sluice_offload_tc::wire::flower::flag;

/// Flows of a tag, of IPv4 and of IPv6, with a place for a number.
const TAGGED: &str = "in_port(1),eth(src=02:00:00:00:00:#),eth_type(0x8100),vlan(vid=#,pcp=3),encap(eth_type(0x0800),\
                      ipv4(src=10.0.0.#,frag=no)) 2";
const TCP: &str =
    "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.#/0.0.0.255,dst=10.0.1.1,proto=6,frag=no),tcp(src=#,dst=80) 2";
const UDP: &str = "in_port(1),eth_type(0x86dd),ipv6(src=fd00::#,proto=17,frag=no),udp(src=#/0x00ff) set(udp(dst=9)),2";
const TUNNELLED: &str = "tunnel(tun_id=#,src=10.0.0.#,dst=10.0.0.1),in_port(10),eth(),eth_type(0x0800),ipv4(frag=no) 2";

/// Port 10 is a tunnel, and what comes by it from 10.0.0.250 must come encrypted; meters have numbers from this one on.
struct Lab {
    policers: u32,
}

impl Context for Lab {
    fn device(&self, port: PortNumber) -> Option<Device> {
        let tunnel = DeviceKind::Tunnel { udp_port: Some(4789) };
        Some(Device { interface: port.0 + 100, kind: if port.0 == 10 { tunnel } else { DeviceKind::Wire } })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        let port = PortNumber(interface - 100);
        Some((port, self.device(port)?))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        Some(self.policers + meter.0)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        police.checked_sub(self.policers).map(MeterId)
    }

    fn features(&self) -> Features {
        Features { spi: true, ..Features::default() }
    }

    fn exposure(&self, flow: &Flow) -> Option<Exposure> {
        (flow.matching().get(Field::TunnelIpv4Src).0 == 0x0a00_00fa).then_some(Exposure::Taken)
    }
}

/// What makes rules, and by itself.
struct Maker {
    reader: LineReader<'static>,
    templates: Templates,
    lab: Lab,
}

impl Maker {
    fn new() -> Self {
        Self { reader: LineReader::new(&()), templates: Templates::new(), lab: Lab { policers: 1000 } }
    }

    fn flow(&mut self, line: &str) -> Flow {
        self.reader.read(line).unwrap_or_else(|error| panic!("{}", error.caret(line)));
        self.reader.flow(&Seed([1; 16]))
    }

    /// The bytes of a line's request; whether they are of a template.
    fn request(&mut self, line: &str) -> (Vec<u8>, bool) {
        let flow = self.flow(line);
        let found = self.templates.look_up(&flow, &self.lab);
        let translated = self.translate(&flow);
        let request = match found {
            Lookup::Hit(template) => Request::AddInstance(template.instance(flow, translated.id)),
            Lookup::Learn(vacancy) => {
                self.templates.learn(vacancy, &flow, &translated, &self.lab);
                Request::Add(translated.clone())
            }
            Lookup::Miss => Request::Add(translated.clone()),
        };
        let [mut made, mut wanted] = [vec![], vec![]];
        request.emit(&mut made, 4, 7).unwrap();
        Request::Add(translated).emit(&mut wanted, 4, 7).unwrap();
        assert_eq!(made, wanted, "{line}");
        (made, matches!(request, Request::AddInstance(_)))
    }

    fn translate(&self, flow: &Flow) -> Filter {
        let mut rule = translate::rule(flow, AgentId(5), &self.lab).unwrap();
        rule.flower.flags = if self.lab.exposure(flow).is_some() { flag::SKIP_HW } else { 0 };
        label::sign(&mut rule.flower);
        let id = FilterId { hook: rule.hook, chain: rule.chain, priority: 9, protocol: rule.protocol, handle: 3 };
        Filter { id, flower: rule.flower }
    }

    /// Has a line been seen so often that its like has a template.
    fn know(&mut self, line: &str) {
        (0..4).for_each(|_| drop(self.request(line)));
        assert!(self.request(line).1, "{line}");
    }
}

fn numbered(line: &str, number: u32) -> String {
    line.replace('#', &number.to_string())
}

#[test]
fn what_must_not_be_in_hardware_has_a_template_of_its_own() {
    let mut maker = Maker::new();
    maker.know(&numbered(TUNNELLED, 1));
    let exposed = numbered(TUNNELLED, 250);
    assert!(!maker.request(&exposed).1, "that of the others would put it into hardware");
    maker.know(&exposed);
    assert!(maker.request(&exposed.replace("tun_id=250", "tun_id=7")).1);
}

#[test]
fn what_differs_in_values_alone_is_made_of_a_template_and_is_what_translation_makes() {
    let mut maker = Maker::new();
    for line in [TAGGED, TCP, UDP, TUNNELLED] {
        maker.know(&numbered(line, 1));
        let made: Vec<_> = (2..60).map(|number| maker.request(&numbered(line, number))).collect();
        assert!(made.iter().all(|(_, is_of_template)| *is_of_template), "{line}");
        assert!(made.windows(2).all(|pair| pair[0].0 != pair[1].0), "{line}");
    }
}

#[test]
fn what_decides_something_is_not_of_the_same_template() {
    let mut maker = Maker::new();
    let known = numbered(TCP, 1);
    for (from, to) in
        [("in_port(1)", "in_port(3)"), ("frag=no", "frag=first"), ("proto=6", "proto=6,tos=4"), (" 2", " 3")]
    {
        // Each time, for another one may have its place by chance.
        maker.know(&known);
        let other = known.replace(from, to).replace("frag=first),tcp(src=1,dst=80)", "frag=first)");
        assert!(!maker.request(&other).1, "{other}");
    }
}

#[test]
fn a_template_does_not_outlive_the_number_of_its_meter() {
    let mut maker = Maker::new();
    let line = numbered(TCP, 1).replace(" 2", " meter(4),2");
    maker.know(&line);
    maker.lab.policers = 2000;
    assert!(!maker.request(&line).1, "the kernel has it under another number");
    assert!(maker.request(&line).1);
}

#[test]
fn a_value_that_may_be_refused_has_no_place_in_a_template() {
    let mut maker = Maker::new();
    let line = |spi: u32| format!("in_port(1),eth_type(0x0800),ipv4(proto=50,frag=no),ipsec(spi={spi:#x}) 2");
    for spi in 1..9 {
        assert!(!maker.request(&line(spi)).1);
    }
    let zero = maker.flow(&line(0));
    assert!(translate::rule(&zero, AgentId(5), &maker.lab).is_err());
}

#[test]
fn zeros_alone_are_not_of_the_template_of_other_values_where_they_may_be_refused() {
    let mut maker = Maker::new();
    for line in [
        "in_port(1),eth_type(0x0800),ipv4(proto=17),udp(src=#/0xff00,dst=#) 2",
        "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,proto=1),icmp(type=#,code=0) 2",
        "in_port(1),eth_type(0x0806),arp(tip=0.0.0.#) 2",
    ] {
        maker.know(&line.replace('#', "1"));
        assert!(maker.request(&line.replace('#', "2")).1, "{line}");
        let zeros = maker.flow(&line.replace('#', "0"));
        assert!(translate::rule(&zeros, AgentId(5), &maker.lab).is_err(), "{line}");
        assert!(!matches!(maker.templates.look_up(&zeros, &maker.lab), Lookup::Hit(_)), "{line}");
    }
}

#[test]
fn templates_are_forgotten_on_demand() {
    let mut maker = Maker::new();
    maker.know(&numbered(UDP, 1));
    maker.templates.clear();
    assert!(!maker.request(&numbered(UDP, 1)).1);
    maker.know(&numbered(UDP, 2));
}
