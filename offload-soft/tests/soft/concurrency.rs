//! Packets, changes and readers at the same time: nothing is lost, nothing is counted twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_flow::backend::{Backend, Change, Injector, InstallQueue, Operation, Outcome};
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::port::PortNumber;
use sluice_flow::table::{FlowId, Generation};
use sluice_offload_soft::SoftNic;

use crate::frames::{Ip4, udp};
use crate::harness::{Device, flow, output, v4};

const PORTS: u16 = 32;

fn rule(udp_port: u16, out: u32) -> Flow {
    let matching = move |full: &mut sluice_flow::key::Match| {
        v4(17)(full);
        full.set_exact(Field::UdpDst, udp_port.into());
    };
    flow(matching, vec![output(out)])
}

/// Injects until told to stop; how often each life of a flow was hit, and how many packets missed.
fn inject_all(nic: &SoftNic, stop: &AtomicBool) -> (HashMap<FlowId, u64>, u64) {
    let frames: Vec<_> = (0..PORTS).map(|port| Ip4::default().frame(17, &udp(1, port, &[]))).collect();
    let (mut hits, mut misses) = (HashMap::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        for frame in &frames {
            let verdict = nic.inject(PortNumber(1), frame).unwrap();
            for flow in &verdict.hits {
                *hits.entry(*flow).or_default() += 1;
            }
            misses += u64::from(verdict.missed.is_some());
            assert_eq!(verdict.hits.len(), verdict.sent.len());
        }
    }
    (hits, misses)
}

/// Adds, modifies and removes rules for some ports; the last counters of each life.
fn churn(
    mut queue: Box<dyn InstallQueue>,
    ports: impl Iterator<Item = u16> + Clone,
    first: u32,
) -> HashMap<FlowId, u64> {
    let mut last = HashMap::new();
    let (mut batch, mut done) = (vec![], vec![]);
    let mut slot = first;
    for _ in 0..200 {
        let mut handles = vec![];
        for port in ports.clone() {
            let flow = FlowId { slot, incarnation: 0 };
            slot += 1;
            batch.push(Change { flow, generation: Generation(1), operation: Operation::Install(rule(port, 2)) });
            queue.submit(&mut batch, &mut done);
            let Ok(Outcome::InPlace { handle, .. }) = done.pop().unwrap().result else { panic!("refused") };
            handles.push((flow, port, handle));
        }
        for (flow, port, handle) in &handles {
            let operation = Operation::Modify(*handle, rule(*port, 3));
            batch.push(Change { flow: *flow, generation: Generation(2), operation });
        }
        for (flow, _, handle) in &handles {
            batch.push(Change { flow: *flow, generation: Generation(3), operation: Operation::Remove(*handle) });
        }
        queue.submit(&mut batch, &mut done);
        for completion in done.drain(..) {
            if let Outcome::Removed { last: counters } = completion.result.unwrap() {
                let earlier = last.insert(completion.flow, counters.expect("exact").packets);
                assert_eq!(earlier, None);
            }
        }
    }
    last
}

#[test]
fn last_counters_are_every_packet_that_hit() {
    let device = Device::new();
    let nic = &*device.nic;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let injectors = [(); 2].map(|()| scope.spawn(|| inject_all(nic, &stop)));
        let reader = scope.spawn(|| {
            let mut reader = nic.counter_reader().unwrap();
            let mut highest: HashMap<_, u64> = HashMap::new();
            while !stop.load(Ordering::Relaxed) {
                let mut check = |reading: &sluice_flow::counters::Reading| {
                    let before = highest.insert(reading.flow, reading.counters.packets);
                    assert!(before <= Some(reading.counters.packets), "a counter ran backwards");
                };
                reader.read(&mut |batch, _| batch.iter().for_each(&mut check)).unwrap();
            }
            highest
        });
        let workers = [0u16, 1].map(|worker| {
            let queue = nic.install_queue().unwrap();
            scope.spawn(move || churn(queue, (worker..PORTS).step_by(2), u32::from(worker) << 20))
        });
        let mut last: HashMap<FlowId, u64> = HashMap::new();
        workers.into_iter().for_each(|worker| last.extend(worker.join().unwrap()));
        stop.store(true, Ordering::Relaxed);

        let mut hits: HashMap<FlowId, u64> = last.keys().map(|flow| (*flow, 0)).collect();
        let mut misses = 0;
        for injector in injectors {
            let (some, missed) = injector.join().unwrap();
            some.into_iter().for_each(|(flow, count)| *hits.entry(flow).or_default() += count);
            misses += missed;
        }
        assert!(hits.values().sum::<u64>() > 0, "nothing was tested");
        assert_eq!(hits, last, "by flow and by life");
        assert_eq!(nic.chain_misses(sluice_flow::chain::ChainId::ROOT), Some(misses));
        for (flow, packets) in reader.join().unwrap() {
            assert!(packets <= last[&flow], "a reading is of this life");
        }
    });
    assert_eq!(device.readings().len(), 0);
}

#[test]
fn a_modified_rule_is_never_absent() {
    let mut device = Device::new();
    let handle = device.add(flow(|_| {}, vec![output(2)])).unwrap();
    let nic = device.nic.clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let injector = scope.spawn(|| {
            let frame = Ip4::default().frame(17, &udp(1, 2, &[]));
            let mut count = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let verdict = nic.inject(PortNumber(1), &frame).unwrap();
                assert_eq!((verdict.missed, verdict.sent.len()), (None, 1));
                count += 1;
            }
            count
        });
        for round in 0..2000 {
            let changed = flow(|_| {}, vec![output(2 + round % 2)]);
            device.submit(Operation::Modify(handle, changed)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let count = injector.join().unwrap();
        assert_eq!(device.remove(handle).unwrap().packets, count);
    });
}

#[test]
fn a_flush_among_packets_and_installs_leaves_nothing_behind() {
    let device = Device::new();
    let nic = &*device.nic;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| inject_all(nic, &stop));
        let mut queue = nic.install_queue().unwrap();
        let installer = scope.spawn(move || {
            let (mut batch, mut done) = (vec![], vec![]);
            for round in 0..5000u32 {
                let flow = FlowId { slot: round, incarnation: 0 };
                let port = u16::try_from(round).unwrap() % PORTS;
                batch.push(Change { flow, generation: Generation(1), operation: Operation::Install(rule(port, 2)) });
                queue.submit(&mut batch, &mut done);
            }
            done.iter().filter(|completion| completion.result.is_ok()).count()
        });
        let mut flushed = 0;
        while !installer.is_finished() {
            flushed += nic.flush().unwrap();
        }
        flushed += nic.flush().unwrap();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(flushed, installer.join().unwrap());
    });
    assert_eq!(device.readings().len(), 0);
}
