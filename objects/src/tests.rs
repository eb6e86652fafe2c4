//! Changes on a NIC in software.

use std::sync::Arc;

use sluice_flow::backend::OpenConfig;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::text::parse_key;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, Port, PortKind, PortNumber};
use sluice_offload_soft::SoftNic;

use super::*;

fn nic() -> SoftNic {
    SoftNic::new(&OpenConfig::new("test", Arc::new(MonotonicClock::new())))
}

fn port(number: u32, name: &str) -> Port {
    Port { number: PortNumber(number), name: name.parse().unwrap(), kind: PortKind::Physical }
}

fn meter(rate: u64) -> Meter {
    Meter::simple(MeterId(1), MeterUnit::Packets, rate, 0)
}

fn mirror(copy: u32) -> Mirror {
    let matching = parse_key("in_port(1)", &()).unwrap().matching;
    Mirror::new("m", matching, vec![PortNumber(copy)]).unwrap()
}

fn ports(ports: &[(u32, &str)]) -> Objects {
    let mut objects = Objects::default();
    ports.iter().for_each(|(number, name)| objects.configure(port(*number, name)));
    objects
}

/// Adds an object at run time.
fn add<T: ObjectKind>(nic: &SoftNic, in_force: &Objects, object: T) -> Objects {
    let step = Steps::one(steps::Step::Put(object, Origin::RunTime));
    make(nic, in_force, &step, Absence::Refused).unwrap()
}

fn is_attached(nic: &SoftNic, number: u32) -> bool {
    nic.injector().unwrap().check(PortNumber(number), &[0; 64]).is_ok()
}

#[test]
fn a_refused_change_takes_back_those_before_it() {
    let (nic, mut file) = (nic(), ports(&[(1, "a"), (2, "b")]));
    file.configure(meter(5));
    let steps = difference(&Objects::default(), &file).unwrap();
    let in_force = make(&nic, &Objects::default(), &steps, Absence::Refused).unwrap();
    let mut file = ports(&[(1, "other"), (3, "c")]);
    file.configure(meter(6));
    file.configure(mirror(9));
    let steps = difference(&in_force, &file).unwrap();
    assert_eq!(steps.keys(), ["meter", "mirror", "port"]);
    let error = make(&nic, &in_force, &steps, Absence::Refused).unwrap_err();
    assert_eq!(error.object, ObjectId::Mirror("m".into()));
    assert_eq!([1, 2, 3].map(|number| is_attached(&nic, number)), [true, true, false]);
    // As it was, also under its name: one of another name could not be attached under its number.
    nic.detach_port(PortNumber(1)).unwrap();
    nic.attach_port(&port(1, "a")).unwrap();
}

#[test]
fn what_came_at_run_time_stays_until_the_file_claims_it() {
    let (nic, file) = (nic(), ports(&[(1, "a")]));
    let in_force =
        make(&nic, &Objects::default(), &difference(&Objects::default(), &file).unwrap(), Absence::Refused).unwrap();
    let in_force = add(&nic, &add(&nic, &in_force, port(2, "b")), meter(5));
    assert!(difference(&in_force, &file).unwrap().keys().is_empty());
    let mut claiming = ports(&[(1, "a"), (2, "b")]);
    claiming.configure(meter(6));
    let steps = difference(&in_force, &claiming).unwrap();
    assert_eq!(steps.keys(), ["meter", "port"]);
    let claimed = make(&nic, &in_force, &steps, Absence::Refused).unwrap();
    assert!(claimed.of::<Port>().iter().all(|entry| entry.origin == Origin::File));
    assert_eq!(claimed.meters().collect::<Vec<_>>(), [&meter(6)]);
    // What is the file's goes with the file.
    let gone = make(&nic, &claimed, &difference(&claimed, &file).unwrap(), Absence::Refused).unwrap();
    assert_eq!((gone.ports().iter().count(), gone.meters().count()), (1, 0));
    assert!(!is_attached(&nic, 2));
}

#[test]
fn a_port_is_not_taken_from_who_uses_it() {
    let (nic, file) = (nic(), ports(&[(1, "a"), (2, "b")]));
    let in_force =
        make(&nic, &Objects::default(), &difference(&Objects::default(), &file).unwrap(), Absence::Refused).unwrap();
    let in_force = add(&nic, &in_force, mirror(2));
    let refused = |file: &[(u32, &str)]| difference(&in_force, &ports(file)).err().unwrap().reason;
    assert_eq!(refused(&[(1, "a")]), "port 2 is used by mirror m: delete that first");
    assert_eq!(refused(&[(1, "a"), (2, "other")]), "port 2 is used by mirror m: delete that first");
    let in_force = add(&nic, &in_force, port(7, "seven"));
    let clash = difference(&in_force, &ports(&[(1, "a"), (2, "b"), (7, "x")])).err().unwrap();
    assert_eq!(clash.reason, "port x: number 7 is seven already, which was added at run time: delete that first");
}
