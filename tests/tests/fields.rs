//! Every row of the field table: read and written as text, and by each backend either taken into the rule or refused by its name.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_flow::action::ActionList;
use sluice_flow::field::{Attribute, FIELDS, Field, FieldSpec, Form, MPLS_ENTRIES, MPLS_PRESENT, Requirement};
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::MeterId;
use sluice_flow::port::{PortNumber, TunnelProtocol};
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::{Style, parse_key, write_key};
use sluice_flow::ufid::Seed;
use sluice_offload_dv::translate::Vports;
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use sluice_offload_tc::label::Room;
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::rule::Rule;
use sluice_offload_tc::translate;
use sluice_tests::generate::{self, packet};
use sluice_tests::scenario::Scenario;
use sluice_tests::soft::Soft;

const IPV4: u16 = 0x0800;
const TAG: u16 = 0x8100;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const LLDP: u16 = 0x88cc;
const WITHOUT_A_KEY: &str = "flower has no key for it";

/// The least that a packet must be to have the header of a field.
fn with_header(spec: &FieldSpec) -> Match {
    let attribute = spec.attribute;
    let mut full = Match::default();
    full.set_exact(Field::RecircId, 0);
    full.set_exact(Field::InPort, 1);
    let (eth_type, protocol) = match attribute.spec().requires {
        Requirement::Nothing => (None, None),
        Requirement::EthType(types) => (types.first().copied(), None),
        Requirement::IpProto(protocols) => (Some(IPV4), protocols.first().copied()),
        Requirement::EthTypeAndProto(eth_type, protocol) => (Some(eth_type), Some(protocol)),
    };
    if let Some(eth_type) = eth_type {
        full.set_exact(Field::EthType, eth_type.into());
    }
    if eth_type.is_some() || attribute == Attribute::EthType {
        full.set_exact(Field::VlanPresent, 0);
    }
    if let Some(protocol) = protocol {
        full.set_exact(Field::Ipv4Proto, protocol.into());
        full.set_exact(Field::Ipv4Frag, 0);
    }
    if matches!(attribute, Attribute::Nd | Attribute::NdExt) {
        full.set_exact(Field::Icmpv6Type, NEIGHBOUR_SOLICITATION.into());
        full.set_exact(Field::Icmpv6Code, 0);
    }
    let tags = match attribute {
        Attribute::Vlan | Attribute::NumOfVlans => &[(Field::VlanPresent, Field::VlanTpid)][..],
        Attribute::Cvlan => &[(Field::VlanPresent, Field::VlanTpid), (Field::CvlanPresent, Field::CvlanTpid)],
        _ => &[],
    };
    for (present, protocol) in tags {
        full.set_exact(*present, 1);
        full.set_exact(*protocol, TAG.into());
    }
    // An entry of a label stack is behind others, none of which is the last.
    for (present, entry) in MPLS_PRESENT.iter().zip(&MPLS_ENTRIES).filter(|_| attribute == Attribute::Mpls) {
        if *present == spec.field {
            break;
        }
        full.set_exact(*present, 1);
        if entry.contains(&spec.field) {
            break;
        }
        full.set_exact(entry[3], 0);
    }
    full
}

/// The same with a match on one field more, `None` for one that is matched already.
fn with_field(spec: &FieldSpec) -> Option<(Match, Match)> {
    let without = with_header(spec);
    let mut with = without;
    // Below 0x600 it is a length.
    with.set_exact(spec.field, if spec.field == Field::EthType { LLDP.into() } else { 1 });
    (without.mask.get(spec.field) == 0).then_some((without, with))
}

fn flow(full: &Match) -> Flow {
    let actions: ActionList = [].into();
    Flow::new(None, MaskedKey::new(full), Arc::clone(&actions), Priority::default(), Expiry::default(), &Seed([7; 16]))
}

/// A kernel that knows all keys, and one port.
struct NewKernel(DeviceKind);

impl Context for NewKernel {
    fn device(&self, port: PortNumber) -> Option<Device> {
        Some(Device { interface: port.0, kind: self.0 })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        Some((PortNumber(interface), Device { interface, kind: self.0 }))
    }

    fn police(&self, _: MeterId) -> Option<u32> {
        None
    }

    fn meter(&self, _: u32) -> Option<MeterId> {
        None
    }

    fn features(&self) -> Features {
        Features {
            number_of_tags: true,
            pppoe: true,
            l2tpv3: true,
            cfm: true,
            spi: true,
            tunnel_flags: true,
            no_fragment: true,
            connection_helpers: true,
        }
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        TunnelFlags::Exact
    }

    fn room(&self) -> Room {
        Room::Found
    }
}

fn tc(full: &Match, attribute: Attribute) -> Result<Rule, Refusal> {
    let is_tunnel = attribute == Attribute::Tunnel;
    let kind = if is_tunnel { DeviceKind::Tunnel(TunnelProtocol::Geneve) } else { DeviceKind::Wire };
    translate::rule(&flow(full), AgentId(1), &NewKernel(kind))
        .map(|rule| Rule { priority: Priority::default(), ..rule })
}

/// Whether it is the field that is refused, or what of the same header it needs besides itself.
fn names(refusal: &Refusal, spec: &FieldSpec) -> bool {
    match refusal {
        Refusal::Field { field, .. } => *field == spec.field || field.spec().attribute == spec.attribute,
        _ => false,
    }
}

#[test]
fn tc_takes_a_field_into_the_rule_or_refuses_it_by_its_name() {
    let mut without_a_key = BTreeSet::new();
    for spec in FIELDS {
        let Some((without, with)) = with_field(spec) else { continue };
        let plain = tc(&without, spec.attribute).expect("a rule for all packets that have the header");
        match tc(&with, spec.attribute) {
            Ok(rule) => assert_ne!(rule.flower, plain.flower, "{} is dropped in silence", spec.field),
            Err(refusal) => {
                assert!(names(&refusal, spec), "{}: {refusal}", spec.field);
                if refusal.to_string() == format!("field {}: {WITHOUT_A_KEY}", spec.field) {
                    without_a_key.insert(spec.field);
                }
            }
        }
    }
    // They have no row, and nothing but that makes them be refused.
    for field in [Field::DpHash, Field::Ipv6Label, Field::NshTtl, Field::NdTarget, Field::CtTuple6Src] {
        assert!(without_a_key.contains(&field), "{field}");
    }
}

/// Every port is the vport of its number.
struct AnyVport;

impl Vports for AnyVport {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        u16::try_from(port.0).map_err(|_| Refusal::no_port(port))
    }
}

#[test]
fn dv_takes_a_field_into_the_rule_or_refuses_it_by_its_name() {
    let (mut taken, mut refused) = (0, 0);
    for spec in FIELDS {
        let Some((without, with)) = with_field(spec) else { continue };
        let matched =
            |full: &Match| sluice_offload_dv::translate::translate(&flow(full), &AnyVport).map(|rule| rule.matched);
        match (matched(&without), matched(&with)) {
            (Ok(plain), Ok(matched)) => {
                // In OVS it stands for the tag, of which the rule looks at the presence.
                let is_said = matches!(spec.field, Field::VlanCfi | Field::CvlanCfi);
                assert!(matched != plain || is_said, "{} is dropped in silence", spec.field);
                taken += 1;
            }
            (_, Err(refusal)) => {
                assert!(names(&refusal, spec), "{}: {refusal}", spec.field);
                refused += 1;
            }
            (Err(refusal), Ok(_)) => panic!("{}: {refusal}", spec.field),
        }
    }
    assert!(taken > 25 && refused > 25, "{taken} taken, {refused} refused");
}

#[test]
fn the_nic_in_software_finds_a_field_in_packets_or_refuses_it_by_its_name() {
    let mut found = 0;
    for spec in FIELDS {
        let Some((_, with)) = with_field(spec) else { continue };
        let flows = [(with, [].into())];
        if let Some(refusal) = &Soft::refusals(&generate::ports(), &flows).unwrap()[0] {
            assert!(names(refusal, spec), "{}: {refusal}", spec.field);
            continue;
        }
        // What comes with a packet and not in it is proven by the parser's own test.
        let Some(packet) = packet::hit(&with, 0).filter(|packet| packet::comes_in(&packet.key)) else { continue };
        let scenario = Scenario::new("a field").flow(with, []);
        let (_, hits) =
            Soft::set_up(&generate::ports(), &scenario).unwrap().inject_and_tell(PortNumber(1), &packet.frame);
        assert_eq!(hits, [1], "{} is taken, but not found in {:02x?}", spec.field, packet.frame);
        found += 1;
    }
    assert!(found > 40, "{found}");
}

#[test]
fn a_field_is_read_as_it_is_written() {
    for spec in FIELDS.iter().filter(|spec| !matches!(spec.form, Form::Presence | Form::Options)) {
        let Some((_, with)) = with_field(spec) else { continue };
        let mut text = String::new();
        write_key(&mut text, &MaskedKey::new(&with), &Style::default()).unwrap();
        let read = parse_key(&text, &()).unwrap_or_else(|error| panic!("{}: {text}: {error}", spec.field)).matching;
        assert_eq!(read.key.get(spec.field), with.key.get(spec.field), "{}: {text}", spec.field);
        assert_eq!(read.mask.get(spec.field), with.mask.get(spec.field), "{}: {text}", spec.field);
    }
}
