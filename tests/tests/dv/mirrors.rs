//! Mirrors copy packets ahead of all flows, as those of the NIC in software do, and change nothing else.

use std::sync::Arc;

use sluice_control::mirror::Class;
use sluice_flow::backend::{Backend, Change, Injector, Mirrors, OpenConfig, Operation};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::text::parse_key;
use sluice_flow::time::ManualClock;
use sluice_offload_dv::switch::Copying;
use sluice_offload_dv::translate::translate;
use sluice_offload_soft::SoftNic;
use sluice_tests::control_frames::{Sample, samples};
use sluice_tests::mlx5::on_device;

use crate::frames::{Packet, TCP, UDP};
use crate::rig::{Rig, Vport, flow};

/// The device and the NIC in software, with the same flow and the same mirrors.
struct Both<'a> {
    rig: Rig<'a>,
    nic: SoftNic,
}

impl Both<'_> {
    fn set(&mut self, name: &str, key: &str, copies: &str) {
        let ports = copies.split(',').map(|port| PortNumber(port.parse().unwrap())).collect();
        let mirror = Mirror::new(name, parse_key(key, &()).unwrap().matching, ports).unwrap();
        self.nic.set_mirror(&mirror).unwrap();
        self.rig.switch.set_mirror(name, copying(key, copies)).unwrap();
    }

    fn remove(&mut self, name: &str) {
        self.nic.remove_mirror(name).unwrap();
        self.rig.switch.remove_mirror(name).unwrap();
    }

    /// Lets a frame in at port 2. Returns where it, and copies of it, come out.
    fn inject(&mut self, frame: &[u8]) -> Vec<u32> {
        let verdict = self.nic.inject(PortNumber(2), frame).unwrap();
        let mut wanted: Vec<_> = verdict.sent.into_iter().map(|(port, frame)| (port.0, frame)).collect();
        if verdict.missed.is_some() {
            wanted.push((0, frame.to_vec()));
        }
        wanted.sort();
        let found = self.rig.inject(2, frame);
        assert_eq!(found, wanted);
        for name in ["one", "two"] {
            let counted = self.nic.mirror_counters(name).map(|count| (count.packets, count.bytes));
            let found = self.rig.switch.read_mirror(name).unwrap().map(|count| (count.packets, count.bytes));
            assert_eq!(found, counted, "what mirror {name} counted");
        }
        found.into_iter().map(|(port, _)| port).collect()
    }
}

/// What a mirror of packets of a key copies to ports.
pub(crate) fn copying(key: &str, copies: &str) -> Copying {
    let rule = translate(&flow(key, copies), &Vport).unwrap();
    Copying { matched: vec![rule.matched], copies: rule.plan.outputs }
}

const IPV4: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)";
const DATAGRAMS: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no)";

fn software(flow: &sluice_flow::Flow) -> SoftNic {
    let nic = SoftNic::new(&OpenConfig::new("soft", Arc::new(ManualClock::default())));
    for number in 1..=6 {
        let name = format!("p{number}").parse().unwrap();
        nic.attach_port(&Port { number: PortNumber(number), name, kind: PortKind::Physical }).unwrap();
    }
    let operation = Operation::Install(flow.clone());
    let change = Change { flow: FlowId { slot: 1, incarnation: 1 }, generation: Generation(1), operation };
    let mut done = vec![];
    nic.install_queue().unwrap().submit(&mut vec![change], &mut done);
    assert!(done[0].result.is_ok());
    nic
}

#[test]
fn mirrors_copy_what_comes_in_and_change_no_verdict() {
    for profile in ["bluefield-2", "bluefield-3"] {
        on_device(profile, "mirrors::mirrors_copy_what_comes_in_and_change_no_verdict", |wires| {
            let forward = flow(IPV4, "set(ipv4(ttl=9)),1");
            let mut both = Both { rig: Rig::open(wires), nic: software(&forward) };
            let rule = both.rig.add(&forward).unwrap();
            let [udp, tcp] = [UDP, TCP].map(|protocol| Packet::v4(protocol).frame());
            let missed = Packet::v6(UDP).frame();
            assert_eq!(both.inject(&udp), [1]);
            both.set("one", DATAGRAMS, "3");
            assert_eq!(both.inject(&udp), [1, 3]);
            assert_eq!(both.inject(&tcp), [1]);
            // A second one of the same packets, and of more, also of those that no flow takes.
            both.set("two", "in_port(2),eth(dst=02:00:00:00:00:02)", "4,2");
            assert_eq!(both.inject(&udp), [1, 2, 3, 4]);
            assert_eq!(both.inject(&tcp), [1, 2, 4]);
            assert_eq!(both.inject(&missed), [0, 2, 4]);
            // It copies elsewhere, and counts on.
            both.set("one", DATAGRAMS, "4");
            assert_eq!(both.inject(&udp), [1, 2, 4, 4]);
            both.remove("two");
            assert_eq!(both.inject(&udp), [1, 4]);
            both.remove("one");
            assert_eq!(both.inject(&udp), [1]);
            assert_eq!(both.inject(&missed), [0]);
            assert_eq!(both.rig.switch.remove(&[rule]).unwrap()[0].packets, 8);
        });
    }
}

#[test]
fn a_mirror_too_many_is_refused_and_the_others_copy_on() {
    on_device("bluefield-3", "mirrors::a_mirror_too_many_is_refused_and_the_others_copy_on", |wires| {
        let mut rig = Rig::open(wires);
        for name in ["a", "b", "c", "d"] {
            rig.switch.set_mirror(name, copying(DATAGRAMS, "3")).unwrap();
        }
        let refusal = rig.switch.set_mirror("e", copying(DATAGRAMS, "3")).unwrap_err();
        assert_eq!(refusal.to_string(), "limit: mirrors of the same packet (at most 4)");
        // Another port has its own.
        rig.switch.set_mirror("e", copying("in_port(3),eth()", "4")).unwrap();
        let frame = Packet::v4(UDP).frame();
        let out: Vec<_> = rig.inject(2, &frame).into_iter().map(|(port, _)| port).collect();
        assert_eq!(out, [0, 3, 3, 3, 3]);
        let refusal = rig.switch.remove_mirror("f").unwrap_err();
        assert_eq!(refusal.to_string(), "device: there is no mirror f");
    });
}

#[test]
fn every_class_of_control_traffic_is_copied_once_and_leaves_room_for_three_more_mirrors() {
    on_device(
        "bluefield-3",
        "mirrors::every_class_of_control_traffic_is_copied_once_and_leaves_room_for_three_more_mirrors",
        |wires| {
            let mut rig = Rig::open(wires);
            let classes = || Class::ALL.into_iter().filter(|class| *class != Class::Flow);
            for class in classes() {
                let keys = class.flow_keys(2);
                let one = |key: &String| copying(&format!("in_port(2),{key}"), "3").matched.remove(0);
                let copies = copying("in_port(2)", "3").copies;
                let all = Copying { matched: keys.iter().map(one).collect(), copies };
                rig.switch.set_mirror(class.name(), all).unwrap();
            }
            let samples = samples();
            let (mut copied, mut strange) = (0, Vec::new());
            for Sample { name, class, frame } in samples.iter().filter(|sample| sample.frame.len() < 2000) {
                let out: Vec<_> = rig.inject(2, frame).into_iter().filter(|(port, _)| *port == 3).collect();
                let wanted = class.map_or(vec![], |_| vec![(3, frame.clone())]);
                if out != wanted {
                    strange.push((*name, *class, out.len(), frame.clone()));
                }
                copied += u64::try_from(out.len()).unwrap();
            }
            assert!(strange.is_empty(), "{strange:02x?}");
            let read = |rig: &mut Rig<'_>, class: Class| rig.switch.read_mirror(class.name()).unwrap().unwrap().packets;
            let counted: u64 = classes().map(|class| read(&mut rig, class)).sum();
            assert_eq!(counted, copied);
            for name in ["a", "b", "c"] {
                rig.switch.set_mirror(name, copying("in_port(2)", "4")).unwrap();
            }
            rig.switch.set_mirror("d", copying("in_port(2)", "4")).unwrap_err();
        },
    );
}
