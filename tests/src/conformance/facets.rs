//! What only some backends have, and what a decorator must not lose.

use sluice_flow::backend::{Facet, Room};
use sluice_flow::connection::{Selection, ZoneLimit};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::timeout::TimeoutPolicy;
use sluice_flow::{Backend, PortNumber, Refusal, text};

use super::device::other;
use super::{Device, Subject, UDP, stories};
use crate::frames;

stories![
    a_backend_has_the_facets_that_it_is_known_for,
    a_decorator_has_every_facet_of_what_is_under_it,
    a_meter_counts_and_stays_as_long_as_a_rule_uses_it,
    a_mirror_copies_and_goes,
    limits_of_connections_are_what_they_were_set_to,
    rules_beyond_the_limit_of_hardware_wait_for_room,
    a_packet_that_is_put_in_by_hand_is_handled_as_any_other,
];

const METER: MeterId = MeterId(3);

/// What is missing is refused by its name.
pub fn a_backend_has_the_facets_that_it_is_known_for(subject: &Subject<'_>) {
    let device = Device::open(subject);
    assert_eq!(Facet::all_of(&**device.backend()).collect::<Vec<_>>(), subject.facets);
    for facet in Facet::ALL {
        let required = facet.require(facet.is_of(&**device.backend()).then_some(&()));
        let unsupported = Err(Refusal::Unsupported { facet });
        assert_eq!(required, if subject.facets.contains(&facet) { Ok(&()) } else { unsupported });
    }
}

/// And invents none.
pub fn a_decorator_has_every_facet_of_what_is_under_it(subject: &Subject<'_>) {
    let device = Device::open(subject);
    let Some(under) = device.under() else { return };
    for facet in Facet::ALL {
        assert_eq!(facet.is_of(&**device.backend()), facet.is_of(under), "{facet}");
    }
    assert_eq!(device.backend().capabilities(), under.capabilities());
}

/// The meters of a device, and of what is under it, where the same must be found.
fn both<'a>(device: &'a Device<'_>) -> impl Iterator<Item = &'a dyn Backend> {
    [Some(&**device.backend()), device.under()].into_iter().flatten()
}

/// It counts what reaches it, and is compared with what was set.
pub fn a_meter_counts_and_stays_as_long_as_a_rule_uses_it(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    if !device.has(Facet::Meters) {
        return;
    }
    device.install(UDP, "meter(3),2").expect_err("there is no such meter");
    let meter = Meter::simple(METER, MeterUnit::Kilobits, 1_000_000, 1_000_000);
    device.backend().meters().expect("meters").set_meter(&meter).expect("it is made");
    let rule = device.install(UDP, "meter(3),2").expect("it is taken");
    device.send(4);
    for backend in both(&device) {
        let meters = backend.meters().expect("meters");
        let counters = meters.meter_counters(METER).expect("it is there");
        assert_eq!((counters.packets, counters.dropped_packets), (4, 0));
        assert_eq!(meters.check_meters(false), Ok(vec![]));
        meters.remove_meter(METER).expect_err("a rule uses it");
    }
    device.remove(rule);
    device.backend().meters().expect("meters").remove_meter(METER).expect("no rule uses it");
    for backend in both(&device) {
        assert_eq!(backend.meters().expect("meters").meter_counters(METER), None);
    }
}

/// What it copies is counted, and what becomes of the packet is the same.
pub fn a_mirror_copies_and_goes(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    if !device.has(Facet::Mirrors) {
        return;
    }
    let matching = text::parse_key("in_port(1),eth_type(0x0800)", &()).expect("a key").matching;
    let mirror = Mirror::new("tap", matching, vec![PortNumber(2)]).expect("a mirror");
    device.backend().mirrors().expect("mirrors").set_mirror(&mirror).expect("it is made");
    let rule = device.install(UDP, "drop").expect("it is taken");
    device.send(3);
    assert_eq!((device.packets(rule), device.installed().len()), (Some(3), 1));
    for backend in both(&device) {
        let mirrors = backend.mirrors().expect("mirrors");
        assert_eq!(mirrors.mirror_counters("tap").map(|counters| counters.packets), Some(3));
        assert_eq!(mirrors.check_mirrors(false), Ok(vec![]));
    }
    device.backend().mirrors().expect("mirrors").remove_mirror("tap").expect("it is there");
    for backend in both(&device) {
        let mirrors = backend.mirrors().expect("mirrors");
        assert_eq!(mirrors.mirror_counters("tap"), None);
        mirrors.remove_mirror("tap").expect_err("it is gone");
    }
}

/// And so are timeout policies.
pub fn limits_of_connections_are_what_they_were_set_to(subject: &Subject<'_>) {
    let device = Device::open(subject);
    let Some(connections) = device.backend().connections() else { return };
    connections.set_connection_limit(10).expect("it is limited");
    connections.set_zone_limit(Some(5), 3).expect("it is limited");
    connections.set_timeout_policy(&TimeoutPolicy::new("short")).expect("it is made");
    for backend in both(&device) {
        let connections = backend.connections().expect("connections");
        assert_eq!(connections.connection_limit(), Ok(10));
        let limits = connections.zone_limits(&[5]).expect("limits").zones;
        assert_eq!(limits, [ZoneLimit { zone: 5, limit: 3, count: 0 }]);
        assert_eq!(connections.connection_buckets().map(|buckets| buckets.iter().sum::<usize>()), Ok(0));
        assert_eq!(connections.connection_count(), Ok(0));
        assert_eq!(connections.flush_connections(&Selection::default()), Ok(0));
        let shown = connections.visit_connections(None, &mut |connection| panic!("there is none: {connection:?}"));
        assert_eq!(shown, Ok(()));
    }
    connections.remove_zone_limit(Some(5)).expect("it is removed");
    connections.remove_timeout_policy("short").expect("it is removed");
    for backend in both(&device) {
        let connections = backend.connections().expect("connections");
        assert_eq!(connections.zone_limits(&[]).expect("limits").zones, []);
        connections.remove_timeout_policy("short").expect_err("it is gone");
    }
}

/// Where the configuration says how much room there is.
pub fn rules_beyond_the_limit_of_hardware_wait_for_room(subject: &Subject<'_>) {
    let Some(open) = &subject.open_with_room else { return };
    let mut device = Device::of(subject, open(1));
    let rules = [0, 1].map(|number| device.install(&other(number), "2").expect("it is taken"));
    assert_eq!(rules.map(|rule| rule.placement.is_in_hardware()), [true, false]);
    for backend in both(&device) {
        let capacity = backend.capacity().expect("capacity");
        assert_eq!(capacity.room(), Room { free: 0, waiting: 1 });
    }
    device.remove(rules[0]);
    for backend in both(&device) {
        assert_eq!(backend.capacity().expect("capacity").room(), Room { free: 1, waiting: 1 });
    }
}

/// It hits the rule, and leaves as the rule says.
pub fn a_packet_that_is_put_in_by_hand_is_handled_as_any_other(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    if !device.has(Facet::Injector) {
        return;
    }
    let rule = device.install(UDP, "2").expect("it is taken");
    let frame = frames::udp(53);
    let injector = device.backend().injector().expect("an injector");
    injector.check(PortNumber(9), &frame).expect_err("there is no such port");
    let verdict = injector.inject(PortNumber(1), &frame).expect("it is let in");
    assert_eq!((verdict.hits, verdict.sent), (vec![rule.flow], vec![(PortNumber(2), frame)]));
    assert_eq!(device.packets(rule), Some(1));
}
