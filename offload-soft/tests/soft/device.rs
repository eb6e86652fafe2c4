//! The calls of the `Backend` trait, one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::backend::{
    Backend, BackendConfig, Capacity, DeviceEvent, Handle, Injector, LastCounters, Meters, MissPolicy, NoEvent,
    OpenConfig, Operation, Outcome, Placement, PortCounters, Room,
};
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::counters::Counters;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortKind, PortNumber};
use sluice_flow::table::Generation;
use sluice_flow::time::Timestamp;
use sluice_offload_soft::Config;

use crate::frames::{Ip4, eth, tcp};
use crate::harness::{Device, flow, flow_at, is_ipv4, output, port, recirc, v4};

#[test]
fn it_says_what_it_can_do() {
    let capabilities = Device::new().nic.capabilities();
    assert_eq!((capabilities.name, capabilities.batch, capabilities.max_chain_depth), ("soft", 64, 8));
    assert_eq!((capabilities.miss, capabilities.chain_miss), (MissPolicy::Drop, MissPolicy::Drop));
    assert_eq!((capabilities.max_lag, capabilities.last_counters), (Duration::ZERO, LastCounters::Exact));
    assert!(capabilities.modifies_in_place);
}

#[test]
fn open_gives_a_device_that_takes_frames() {
    let clock = Arc::new(sluice_flow::time::ManualClock::default());
    let backend = Config::default().open(&OpenConfig::new("any", clock)).unwrap();
    backend.attach_port(&port(1, PortKind::Physical)).unwrap();
    let verdict = backend.injector().unwrap().inject(PortNumber(1), &eth(0x88cc, &[])).unwrap();
    assert_eq!(verdict.missed, Some(ChainId::ROOT));
}

#[test]
fn a_rule_counts_its_packets_and_says_when_the_last_one_came() {
    let mut device = Device::new();
    let handle = device.add(flow(v4(6), vec![output(2)])).unwrap();
    assert_eq!(device.readings()[0].counters, Counters::default());
    device.clock.advance(Duration::from_nanos(5));
    device.inject(1, &Ip4::default().frame(6, &tcp(1, 2, 0x002, &[])));
    device.clock.advance(Duration::from_nanos(2));
    let verdict = device.inject(1, &Ip4::default().frame(6, &tcp(1, 2, 0x010, &[0; 10])));
    let [reading] = device.readings().try_into().unwrap();
    assert_eq!(verdict.hits, [reading.flow]);
    assert_eq!(reading.installed_as, Generation(7));
    let counters = Counters { packets: 2, bytes: 54 + 64, used: Some(Timestamp(7)), tcp_flags: 0x12 };
    assert_eq!(reading.counters, counters);
    assert_eq!(device.remove(handle), Some(counters));
    assert_eq!(device.readings(), []);
}

#[test]
fn an_eth_type_of_zero_stands_for_frames_that_have_none() {
    let mut device = Device::new();
    device.add(flow(|full| full.set_exact(Field::EthType, 0), vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &eth(3, &[0x42, 0x42, 3])).sent.len(), 1);
    assert_eq!(device.inject(1, &eth(0x88cc, &[])).missed, Some(ChainId::ROOT));
}

#[test]
fn many_rules_are_read_in_batches() {
    let mut device = Device::new();
    for address in 0..1000 {
        let one = move |full: &mut Match| {
            is_ipv4(full);
            full.set_exact(Field::Ipv4Dst, address);
        };
        device.add(flow(one, vec![])).unwrap();
    }
    let mut lengths = vec![];
    device.nic.counter_reader().unwrap().read(&mut |batch, _| lengths.push(batch.len())).unwrap();
    assert_eq!(lengths, [256, 256, 256, 232]);
}

#[test]
fn the_higher_priority_wins() {
    let mut device = Device::new();
    device.add(flow_at(0, is_ipv4, vec![output(2)])).unwrap();
    let high = device.add(flow_at(15, |_| {}, vec![output(3)])).unwrap();
    device.add(flow_at(7, is_ipv4, vec![output(4)])).unwrap();
    let frame = Ip4::default().frame(99, &[]);
    assert_eq!(device.inject(1, &frame).sent[0].0, PortNumber(3));
    device.remove(high);
    assert_eq!(device.inject(1, &frame).sent[0].0, PortNumber(4));
}

#[test]
fn a_modified_rule_keeps_handle_and_counters() {
    let mut device = Device::new();
    let handle = device.add(flow(is_ipv4, vec![output(2)])).unwrap();
    let frame = Ip4::default().frame(99, &[]);
    device.inject(1, &frame);
    let changed = flow(is_ipv4, vec![output(3)]);
    let outcome = device.submit(Operation::Modify(handle, changed));
    assert_eq!(outcome, Ok(Outcome::InPlace { handle, placement: Placement::Hardware }));
    assert_eq!(device.inject(1, &frame).sent[0].0, PortNumber(3));
    assert_eq!(device.readings()[0].counters.packets, 2);
}

#[test]
fn a_refused_modification_leaves_the_rule_as_it_was() {
    let mut device = Device::new();
    let handle = device.add(flow(is_ipv4, vec![output(2)])).unwrap();
    let to_nowhere = flow(is_ipv4, vec![output(99)]);
    assert_eq!(device.submit(Operation::Modify(handle, to_nowhere)).unwrap_err().label(), "port");
    let of_other = flow(v4(6), vec![output(2)]);
    assert_eq!(device.submit(Operation::Modify(handle, of_other)).unwrap_err().label(), "combination");
    assert_eq!(device.inject(1, &Ip4::default().frame(99, &[])).sent[0].0, PortNumber(2));
}

#[test]
fn a_rule_that_is_gone_is_not_found_again() {
    let mut device = Device::new();
    let handle = device.add(flow(is_ipv4, vec![])).unwrap();
    assert!(device.remove(handle).is_some());
    assert_eq!(device.remove(handle), None);
    let again = device.add(flow(is_ipv4, vec![])).unwrap();
    assert_ne!(again, handle);
    assert_eq!(device.remove(handle), None, "the old name is not the new rule's");
    let changed = flow(is_ipv4, vec![]);
    assert_eq!(device.submit(Operation::Modify(handle, changed)).unwrap_err().label(), "device");
    assert_eq!(device.remove(Handle(u64::MAX)), None);
    assert_eq!(device.readings().len(), 1);
}

#[test]
fn the_same_match_is_not_installed_twice() {
    let mut device = Device::new();
    device.add(flow(is_ipv4, vec![])).unwrap();
    assert_eq!(device.add(flow(is_ipv4, vec![output(2)])).unwrap_err().label(), "combination");
    device.add(flow_at(1, is_ipv4, vec![])).unwrap();
    assert_eq!(device.readings().len(), 2);
}

#[test]
fn what_is_installed_is_listed_and_flushed() {
    let mut device = Device::new();
    let flows = [flow(is_ipv4, vec![output(2)]), flow(v4(6), vec![])];
    let mut wanted = vec![];
    for flow in flows {
        wanted.push((device.add(flow.clone()).unwrap(), flow));
    }
    let mut listed = vec![];
    device.nic.installed(&mut |rule| listed.push((rule.handle, rule.flow.clone()))).unwrap();
    assert_eq!(listed, wanted);
    assert_eq!(device.nic.flush(), Ok(2));
    assert_eq!(device.nic.flush(), Ok(0));
    device.nic.installed(&mut |_| panic!("still there")).unwrap();
    assert_eq!(device.inject(1, &Ip4::default().frame(99, &[])).missed, Some(ChainId::ROOT));
    assert_eq!(device.nic.resync(), Ok(vec![]));
    device.add(flow(is_ipv4, vec![])).unwrap();
}

#[test]
fn chains_are_opened_before_they_are_jumped_to() {
    let mut device = Device::new();
    let jump = || flow(is_ipv4, vec![recirc(5)]);
    assert!(device.nic.explain(&jump()).is_ok(), "a dry run does not ask for the chain");
    assert_eq!(device.add(jump()).unwrap_err().label(), "action");
    device.open_chain(ChainId(5));
    let handle = device.add(jump()).unwrap();
    let verdict = device.inject(1, &Ip4::default().frame(99, &[]));
    assert_eq!((verdict.hits.len(), verdict.missed), (1, Some(ChainId(5))));
    assert_eq!(device.nic.chain_misses(ChainId(5)), Some(1));
    assert_eq!(device.nic.chain_misses(ChainId::ROOT), Some(0));
    device.remove(handle);
    device.close_chain(ChainId(5));
    assert_eq!(device.nic.chain_misses(ChainId(5)), None);
    assert_eq!(device.add(jump()).unwrap_err().label(), "action");
}

#[test]
fn a_chain_that_is_closed_before_its_last_rule_goes_is_freed_with_that_rule() {
    let mut device = Device::new();
    device.open_chain(ChainId(5));
    let jump = device.add(flow(is_ipv4, vec![recirc(5)])).unwrap();
    let in_chain = |full: &mut Match| {
        is_ipv4(full);
        full.set_exact(Field::RecircId, 5);
    };
    let last = device.add(flow(in_chain, vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &Ip4::default().frame(99, &[])).sent.len(), 1);
    // As the agent does it: the chain is closed when nothing jumps there any more, whatever is in it.
    device.remove(jump);
    device.close_chain(ChainId(5));
    assert_eq!(device.nic.chain_misses(ChainId(5)), Some(0), "it has a rule");
    device.remove(last);
    assert_eq!(device.nic.chain_misses(ChainId(5)), None);
}

#[test]
fn a_copy_that_cannot_leave_is_no_packet_that_was_lost() {
    let mut device = Device::new();
    device.add(flow(is_ipv4, vec![output(2)])).unwrap();
    let mut of_port = Match::default();
    of_port.set_exact(Field::InPort, 1);
    let copies = vec![PortNumber(3), PortNumber(4)];
    device.nic.mirrors().unwrap().set_mirror(&Mirror::new("copies", of_port, copies).unwrap()).unwrap();
    device.nic.detach_port(PortNumber(3)).unwrap();
    let sent = device.inject(1, &Ip4::default().frame(99, &[])).sent;
    assert_eq!(sent.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [4, 2]);
    assert_eq!(device.nic.drops().copies.load(Ordering::Relaxed), 1);
    assert_eq!(device.nic.lookup_counters().unwrap().lost, Some(0));
}

#[test]
fn an_operator_reads_how_many_packets_went_no_further_and_why() {
    let mut device = Device::new();
    device.add(flow(is_ipv4, vec![output(2)])).unwrap();
    assert_eq!(device.nic.notes(), [""; 0]);
    device.nic.detach_port(PortNumber(2)).unwrap();
    for _ in 0..3 {
        device.inject(1, &Ip4::default().frame(99, &[]));
    }
    let why = "it cannot leave there: the port is detached, or cannot carry it";
    assert_eq!(device.nic.notes(), [format!("packets that went no further: 3, {why}")]);
}

#[test]
fn circles_and_too_deep_chains_are_refused() {
    let mut device = Device::new();
    let jump = |from: u32, to| flow(move |full| full.set_exact(Field::RecircId, from.into()), vec![recirc(to)]);
    (1..=9).for_each(|chain| device.open_chain(ChainId(chain)));
    for chain in 0..7 {
        device.add(jump(chain, chain + 1)).unwrap();
    }
    assert_eq!(device.inject(1, &eth(0x88cc, &[])).missed, Some(ChainId(7)));
    assert_eq!(device.add(jump(7, 8)).unwrap_err().label(), "limit");
    assert_eq!(device.add(jump(7, 3)).unwrap_err().label(), "combination");
}

#[test]
fn meters_hold_back_what_is_too_much_and_stay_while_used() {
    let mut device = Device::new();
    let metered = || flow(|_| {}, vec![sluice_flow::Action::Meter(MeterId(4)), output(2)]);
    assert_eq!(device.add(metered()).unwrap_err().label(), "action");
    device.nic.set_meter(&Meter::simple(MeterId(4), MeterUnit::Packets, 1, 2)).unwrap();
    let handle = device.add(metered()).unwrap();
    assert_eq!(device.nic.remove_meter(MeterId(4)).unwrap_err().label(), "action");
    let sent = || device.inject(1, &eth(0x88cc, &[0; 46])).sent.len();
    assert_eq!([sent(), sent(), sent()], [1, 1, 0]);
    device.clock.advance(Duration::from_secs(1));
    let sent = || device.inject(1, &eth(0x88cc, &[0; 46])).sent.len();
    assert_eq!([sent(), sent()], [1, 0]);
    let counters = device.nic.meter_counters(MeterId(4)).unwrap();
    assert_eq!((counters.packets, counters.bytes), (5, 300));
    assert_eq!((counters.dropped_packets, counters.dropped_bytes), (2, Some(120)));
    assert_eq!(device.readings()[0].counters.packets, 5, "the rule counts what the meter then drops");

    let changed = flow(|_| {}, vec![output(2)]);
    device.submit(Operation::Modify(handle, changed)).unwrap();
    device.nic.remove_meter(MeterId(4)).unwrap();
    assert_eq!(device.nic.meter_counters(MeterId(4)), None);
}

#[test]
fn ports_come_count_and_go() {
    let mut device = Device::new();
    device.add(flow(|_| {}, vec![output(2)])).unwrap();
    let frame = eth(0x88cc, &[0; 46]);
    device.inject(1, &frame);
    let counters = |number| device.nic.port_counters(PortNumber(number));
    assert_eq!(counters(1), Some(PortCounters { rx_packets: 1, rx_bytes: 60, ..PortCounters::default() }));
    assert_eq!(counters(2), Some(PortCounters { tx_packets: 1, tx_bytes: 60, ..PortCounters::default() }));
    device.nic.detach_port(PortNumber(2)).unwrap();
    assert_eq!(counters(2), None);
    assert_eq!(device.inject(1, &frame).sent, [], "the rule stays and sends nothing");
    assert_eq!(device.nic.detach_port(PortNumber(2)).unwrap_err().label(), "port");
    assert_eq!(device.nic.inject(PortNumber(2), &frame).unwrap_err().label(), "port");
    device.nic.attach_port(&port(2, PortKind::Representor)).unwrap();
    assert_eq!(device.inject(1, &frame).sent.len(), 1);
}

#[test]
fn what_was_refused_may_be_taken_after_an_event() {
    let device = Device::new();
    let events = device.nic.events();
    events.drain();
    device.nic.attach_port(&port(9, PortKind::Internal)).unwrap();
    let changed = |cause| Ok(DeviceEvent::Changed { cause });
    let port_came = |number| changed(Cause::Port(Some(PortNumber(number))));
    assert_eq!(events.try_next(), port_came(9));
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Kilobits, 1, 0)).unwrap();
    assert_eq!(events.try_next(), changed(Cause::Meter));
    assert_eq!(events.try_next(), Err(NoEvent::Yet));
    device.nic.set_meter(&Meter::simple(MeterId(2), MeterUnit::Kilobits, 1, 0)).unwrap();
    for number in 100..300 {
        device.nic.attach_port(&port(number, PortKind::Physical)).unwrap();
    }
    let told = events.drain();
    assert!(told.len() <= 64, "nobody reads, and nothing grows");
    let any = |cause| told.contains(&DeviceEvent::Changed { cause });
    assert!(any(Cause::Port(None)) && any(Cause::Meter), "and nothing is forgotten: {told:?}");
}

#[test]
fn a_device_that_is_told_so_takes_so_many_rules_into_hardware() {
    assert_eq!(Device::new().nic.room(), Room { free: usize::MAX, waiting: 0 });
    let mut device = Device::with_room(1);
    let mut install = |protocol| device.submit(Operation::Install(flow(v4(protocol), vec![output(2)]))).unwrap();
    let Outcome::InPlace { handle: first, placement: Placement::Hardware } = install(6) else {
        panic!("there is room")
    };
    let Outcome::InPlace { handle: second, placement: Placement::Software } = install(17) else { panic!("it is full") };
    assert_eq!(device.nic.room(), Room { free: 0, waiting: 1 });

    let mut move_to = |handle, to| match device.submit(Operation::Move(handle, to)).unwrap() {
        Outcome::InPlace { handle: moved, placement } if moved == handle => placement,
        other => panic!("{other:?}"),
    };
    assert_eq!(move_to(second, Placement::Hardware), Placement::Software, "there is no room");
    assert_eq!(move_to(first, Placement::Software), Placement::Software);
    assert_eq!(move_to(second, Placement::Hardware), Placement::Hardware);
    assert_eq!(device.nic.room(), Room { free: 0, waiting: 1 });
    let mut placed = Vec::new();
    device.nic.installed(&mut |rule| placed.push((rule.handle, rule.placement))).unwrap();
    assert_eq!(placed, [(first, Placement::Software), (second, Placement::Hardware)]);

    let modify = Operation::Modify(first, flow(v4(6), vec![output(3)]));
    let placement = Placement::Software;
    assert_eq!(device.submit(modify), Ok(Outcome::InPlace { handle: first, placement }), "a modified rule stays there");
    device.remove(second);
    assert_eq!(device.nic.room(), Room { free: 1, waiting: 1 });
    device.remove(first);
    assert_eq!(device.nic.room(), Room { free: 1, waiting: 0 });
    assert_eq!(device.submit(Operation::Move(first, Placement::Hardware)).unwrap_err().label(), "device");
}

#[test]
fn a_rule_in_software_forwards_and_counts_and_counts_on_when_it_is_moved() {
    let mut device = Device::with_room(1);
    let other = device.add(flow(v4(17), vec![])).unwrap();
    let handle = device.add(flow(v4(6), vec![output(2)])).unwrap();
    let frame = Ip4::default().frame(6, &tcp(1, 2, 0x002, &[]));
    assert_eq!(device.inject(1, &frame).sent.len(), 1);
    device.remove(other);
    device.submit(Operation::Move(handle, Placement::Hardware)).unwrap();
    assert_eq!(device.inject(1, &frame).sent.len(), 1);
    assert_eq!(device.remove(handle).unwrap().packets, 2);
}

#[test]
fn a_device_without_a_limit_has_no_software_to_move_rules_to() {
    let mut device = Device::new();
    let handle = device.add(flow(v4(6), vec![])).unwrap();
    let outcome = device.submit(Operation::Move(handle, Placement::Software));
    assert_eq!(outcome, Ok(Outcome::InPlace { handle, placement: Placement::Hardware }));
}
