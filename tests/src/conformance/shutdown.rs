//! The end: of a worker with work in flight, of the rules, of the use of a device.

use sluice_flow::backend::{Change, Operation};

use super::device::{flow, other};
use super::{Device, Subject, UDP, Worker, stories};
use crate::world::eventually;

stories![
    what_is_in_flight_is_completed_once_the_device_gets_to_it,
    a_worker_that_goes_with_work_in_flight_leaves_a_device_that_works,
    a_flush_takes_every_rule_out_and_what_is_released_leaves_nothing,
];

const MANY: usize = 40;

fn installs(device: &mut Device<'_>) -> Vec<Change> {
    let change = |number| {
        let (id, generation) = device.new_flow();
        Change { flow: id, generation, operation: Operation::Install(flow(&other(number), "2")) }
    };
    (0..MANY).map(change).collect()
}

/// An agent that ends waits for it.
pub fn what_is_in_flight_is_completed_once_the_device_gets_to_it(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let batch = installs(&mut device);
    if let Some(stall) = device.stall() {
        stall(true);
    }
    let mut worker = Worker::new(&**device.backend());
    worker.submit(batch);
    if let Some(stall) = device.stall() {
        assert!(worker.poll().is_empty(), "it is stalled");
        assert!(device.installed().is_empty());
        std::thread::scope(|scope| {
            let finished = scope.spawn(|| worker.finish());
            stall(false);
            assert_eq!(finished.join().expect("the worker is woken").len(), MANY);
        });
    } else {
        assert_eq!(worker.finish().len(), MANY);
    }
    assert_eq!(device.installed().len(), MANY);
}

/// One that is given up, with the changes that it waits for.
pub fn a_worker_that_goes_with_work_in_flight_leaves_a_device_that_works(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let batch = installs(&mut device);
    if let Some(stall) = device.stall() {
        stall(true);
    }
    let mut worker = Worker::new(&**device.backend());
    worker.submit(batch);
    drop(worker);
    if let Some(stall) = device.stall() {
        stall(false);
    }
    let rule = device.install(UDP, "2").expect("another worker goes on");
    device.send(2);
    assert_eq!(device.packets(rule), Some(2));
    // The changes may be made or not, but not for ever.
    eventually("the device comes to rest", || {
        device.backend().flush().expect("it is flushed");
        std::thread::sleep(std::time::Duration::from_millis(20));
        device.installed().is_empty()
    });
}

/// Known or not.
pub fn a_flush_takes_every_rule_out_and_what_is_released_leaves_nothing(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let batch = installs(&mut device);
    device.worker().make(batch);
    device.install(UDP, "2").expect("it is taken");
    assert_eq!(device.backend().flush(), Ok(MANY + 1));
    assert_eq!((device.installed().len(), device.read().len()), (0, 0));
    device.install(UDP, "drop").expect("its place is free");
    assert_eq!(device.backend().flush(), Ok(1));
    assert_eq!(device.backend().release(), Ok(vec![]), "nothing of ours is left");
}
