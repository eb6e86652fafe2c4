//! Changes on a NIC in software.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sluice_flow::backend::{Change, Handle, OpenConfig, Operation, Outcome, Placement};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortNames, Tunnel, TunnelProtocol};
use sluice_flow::table::{Limits, Look};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::time::MonotonicClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Backend, Expiry, Flow, FlowId, FlowState, FlowTable, MaskedKey, Port, PortKind, PortNumber, Priority, Timestamp,
};
use sluice_offload::OffloadQueue;
use sluice_offload_soft::SoftNic;
use tempfile::TempDir;

use super::*;

const SEED: Seed = Seed([1; 16]);

fn nic() -> SoftNic {
    SoftNic::new(&OpenConfig::new("test", Arc::new(MonotonicClock::new())))
}

fn port(number: u32, name: &str) -> Port {
    Port { number: PortNumber(number), name: name.parse().unwrap(), kind: PortKind::Physical }
}

/// A VXLAN port.
fn tunnel(number: u32, name: &str, udp_port: u16, underlay: u32) -> Port {
    let underlay = PortNumber(underlay);
    let tunnel = Tunnel { protocol: TunnelProtocol::Vxlan, udp_port: Some(udp_port), underlay };
    Port { kind: PortKind::Tunnel(tunnel), ..port(number, name) }
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

/// A store on a NIC in software that begins with these objects, and a table of flows that has no workers.
fn store(configured: &Objects, kept: Option<(ObjectsFile, Saved)>) -> (ObjectStore, Arc<FlowTable>) {
    let (backend, clock): (Arc<dyn Backend>, _) = (Arc::new(nic()), Arc::new(MonotonicClock::new()));
    let table = Arc::new(FlowTable::new(SEED, Limits { flows: 10, unsettled: 10 }, Arc::new(())));
    let (queue, _) = OffloadQueue::new(table.clone(), &backend, clock, 1, 16).unwrap();
    let store = ObjectStore::open(backend, queue.into(), (None, Duration::ZERO), configured, kept).unwrap();
    (store, table)
}

/// Ports a and c, and a tunnel between them.
fn with_tunnel(udp_port: u16) -> Objects {
    let mut file = ports(&[(1, "a"), (3, "c")]);
    file.configure(tunnel(2, "vx", udp_port, 1));
    file
}

/// In the place of a worker, puts a flow in that forwards from one port to another.
fn installed(table: &FlowTable, from: u32, to: u32) -> FlowId {
    let matching = parse_key(&format!("in_port({from})"), &()).unwrap().matching;
    let (key, actions) = (MaskedKey::new(&matching), parse_actions(&to.to_string(), &()).unwrap());
    let flow = Flow::new(None, key, actions, Priority::default(), Expiry::default(), &SEED);
    let id = table.add(flow, Timestamp(1), None).unwrap().flow;
    let Look::Change(change) = table.look(id) else { panic!("there is nothing to do") };
    let done = Outcome::InPlace { handle: Handle(7), placement: Placement::Hardware };
    table.complete(&change, Ok(done), Timestamp(2));
    assert!(matches!(table.look(id), Look::Nothing));
    id
}

/// Whether the rule of a flow is to be made anew.
fn is_modified(table: &FlowTable, id: FlowId) -> bool {
    matches!(table.look(id), Look::Change(Change { operation: Operation::Modify(..), .. }))
}

#[test]
fn the_rules_of_a_port_that_becomes_another_kind_of_port_are_made_anew() {
    let (store, table) = store(&with_tunnel(4789), None);
    let [of_tunnel, of_other] = [2, 3].map(|port| installed(&table, port, 1));
    store.reload(&with_tunnel(4790)).unwrap();
    assert!(is_modified(&table, of_tunnel) && !is_modified(&table, of_other));
    assert_eq!(table.view(of_other).unwrap().state, FlowState::Offloaded);
}

#[test]
fn the_rules_of_a_tunnel_that_a_refused_reload_took_out_and_made_again_are_made_anew() {
    let (store, table) = store(&with_tunnel(4789), None);
    let [to_tunnel, to_other] = [(1, 2), (3, 1)].map(|(from, to)| installed(&table, from, to));
    // With another UDP port it is made anew, and the mirror copies to a port that is not there.
    let mut file = with_tunnel(4790);
    file.configure(mirror(9));
    assert_eq!(store.reload(&file).unwrap_err().object, ObjectId::Mirror("m".into()));
    assert!(is_modified(&table, to_tunnel) && !is_modified(&table, to_other));
    assert_eq!(store.ports().get(PortNumber(2)), Some(&tunnel(2, "vx", 4789, 1)));
}

/// A folder with the file of a run in which these were made.
fn kept(make: impl FnOnce(&mut Objects)) -> (TempDir, Option<(ObjectsFile, Saved)>) {
    let scratch = TempDir::new().unwrap();
    let (file, mut saved) = ObjectsFile::open(scratch.path()).unwrap();
    make(&mut saved.objects);
    file.save(&saved.objects).unwrap();
    (scratch, Some((file, saved)))
}

/// What the next run would find in the file, and why not all of it is to be in force.
fn found(folder: &TempDir) -> Saved {
    ObjectsFile::open(folder.path()).unwrap().1
}

/// What is told of objects that the device has refused.
fn refused(store: &ObjectStore) -> Vec<String> {
    store.refused().sentences().collect()
}

#[test]
fn what_the_device_refuses_at_a_start_is_kept_and_is_in_force_once_it_takes_it() {
    let (folder, saved) = kept(|objects| {
        objects.ports.put(tunnel(1, "vx", 4789, 2), Origin::RunTime);
        objects.meters.put(meter(5), Origin::RunTime);
        objects.mirrors.put(mirror(2), Origin::RunTime);
    });
    let (store, table) = store(&Objects::default(), saved);
    assert_eq!((store.ports().iter().count(), store.in_force().meters().count()), (0, 1));
    let [of_tunnel, of_mirror] = refused(&store).try_into().unwrap();
    let why = "port vx: there is no port 2, which is its underlay";
    assert_eq!(of_tunnel, format!("port 1 is not in force, and is tried again: {why}"));
    assert!(of_mirror.starts_with("mirror m is not in force"), "{of_mirror}");
    let flow = installed(&table, 1, 2);
    store.bind_restored_flows();
    assert!(!store.try_refused());
    assert_eq!(table.view(flow).unwrap().gone_ports.len(), 1);
    let Saved { objects, damage } = found(&folder);
    assert_eq!((objects.ports_of(Origin::RunTime).count(), objects.mirrors().count(), damage), (1, 1, None));

    store.put(port(2, "up")).unwrap();
    assert!(store.try_refused());
    assert!(refused(&store).is_empty());
    let in_force = store.in_force();
    assert_eq!((in_force.ports_of(Origin::RunTime).count(), in_force.mirrors().count()), (2, 1));
    store.catch_up().unwrap();
    assert_eq!(found(&folder).objects.ports_of(Origin::RunTime).count(), 2);
    assert!(table.view(flow).unwrap().gone_ports.is_empty());
}

#[test]
fn what_is_refused_is_given_up_once_it_is_removed_or_another_one_has_its_name() {
    let (folder, saved) = kept(|objects| {
        objects.ports.put(tunnel(1, "vx", 4789, 9), Origin::RunTime);
        objects.ports.put(tunnel(2, "gre", 4790, 9), Origin::RunTime);
        objects.mirrors.put(mirror(9), Origin::RunTime);
    });
    let (store, _) = store(&Objects::default(), saved);
    assert_eq!(store.refused().number("gre"), Some(PortNumber(2)));
    store.remove::<Port>(&PortNumber(2)).unwrap();
    assert!(store.remove::<Port>(&PortNumber(2)).is_err(), "it was there once");
    store.put(port(1, "other")).unwrap();
    let [of_mirror] = refused(&store).try_into().unwrap();
    assert!(of_mirror.starts_with("mirror m "), "{of_mirror}");
    store.put(port(9, "up")).unwrap();
    assert!(store.try_refused());
    let kept = found(&folder).objects;
    assert_eq!(kept.of::<Port>().objects().collect::<Vec<_>>(), [&port(1, "other"), &port(9, "up")]);
}

#[test]
fn what_a_source_had_set_and_the_device_refuses_is_for_the_source_to_set_again() {
    let (folder, saved) = kept(|objects| objects.mirrors.put(mirror(9), Origin::Source));
    let (store, _) = store(&Objects::default(), saved);
    store.bind_restored_flows();
    assert!(refused(&store).is_empty());
    assert_eq!(found(&folder).objects.mirrors().count(), 0);
}

#[test]
fn who_changes_an_object_does_not_wait_for_a_disk_that_hangs() {
    let (folder, saved) = kept(|_| ());
    let (store, _) = store(&Objects::default(), saved);
    // The thread that this wakes hangs in the disk. The store's patience is none at all.
    store.set_waker(Waker::noop().clone());
    let said = store.put(port(1, "a")).unwrap_err().to_string();
    assert!(said.contains("does not survive a restart: the disk of ") && said.ends_with("does not answer"), "{said}");
    assert!(store.failure().is_some_and(|failure| failure.ends_with("does not answer")));
    assert_eq!(found(&folder).objects.ports_of(Origin::RunTime).count(), 0);
    // The disk answers, and the thread goes on.
    store.catch_up().unwrap();
    assert_eq!((store.failure(), found(&folder).objects.ports_of(Origin::RunTime).count()), (None, 1));
}

#[test]
fn a_tunnel_of_the_last_run_is_back_wherever_its_underlay_stands() {
    let scratch = TempDir::new().unwrap();
    let (file, mut saved) = ObjectsFile::open(scratch.path()).unwrap();
    for port in [tunnel(1, "vx", 4789, 2), port(2, "up")] {
        saved.objects.ports.put(port, Origin::RunTime);
    }
    let (store, _) = store(&Objects::default(), Some((file, saved)));
    assert_eq!(store.ports().iter().map(|port| &*port.name).collect::<Vec<_>>(), ["vx", "up"]);
}
