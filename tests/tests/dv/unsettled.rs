//! A device that does not say whether packets are under rules that are gone: the rules are gone all the same, and nothing is lost by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::backend::{Change, OpenConfig, Operation};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend as _, FlowId, Generation};
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::mlx5::{Control, Ports, with_options};
use sluice_tests::world::eventually;

use crate::frames::{Packet, UDP};
use crate::mirrors::copying;
use crate::rig::{Rig, flow};

const KEY: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)";

/// Plays on a device that says of commands that it refuses them.
fn on_refusing_device(name: &str, play: impl FnOnce(&Ports)) {
    with_options("bluefield-3", &[], &["had status 0x8", "refused with"], name, play);
}

/// The next SYNC_STEERING is refused.
fn refuse_to_wait(control: &mut Control) {
    control.ask("refuse 0xb00 0 1 0x8 0x1234");
}

#[test]
fn the_counter_of_a_rule_that_could_not_be_waited_for_is_used_again() {
    /// More than the first bulk has counters.
    const CYCLES: usize = 600;
    let name = "unsettled::the_counter_of_a_rule_that_could_not_be_waited_for_is_used_again";
    on_refusing_device(name, |ports| {
        let mut rig = Rig::open(ports);
        let mut control = ports.control();
        let frame = Packet::v4(UDP).frame();
        for _ in 0..CYCLES {
            let first = rig.add(&flow(KEY, "1")).unwrap();
            refuse_to_wait(&mut control);
            rig.switch.remove_later(&[first], 7).unwrap_err();
            let second = rig.add(&flow(KEY, "1")).unwrap();
            rig.switch.remove(&[second]).unwrap();
        }
        assert_eq!(rig.switch.bulks(), 1);
        let last = rig.add(&flow(KEY, "1")).unwrap();
        assert_eq!(rig.inject(2, &frame), [(1, frame.clone())]);
        assert_eq!(rig.switch.remove(&[last]).unwrap()[0].packets, 1);
    });
}

#[test]
fn a_mirror_that_was_changed_or_removed_is_so_although_its_old_tables_could_not_be_waited_for() {
    let name = "unsettled::a_mirror_that_was_changed_or_removed_is_so_although_its_old_tables_could_not_be_waited_for";
    on_refusing_device(name, |ports| {
        let mut rig = Rig::open(ports);
        let mut control = ports.control();
        rig.add(&flow(KEY, "1")).unwrap();
        let frame = Packet::v4(UDP).frame();
        let outs = |rig: &Rig<'_>| rig.inject(2, &frame).into_iter().map(|(port, _)| port).collect::<Vec<_>>();
        rig.switch.set_mirror("m", copying(KEY, "3")).unwrap();
        assert_eq!(outs(&rig), [1, 3]);
        refuse_to_wait(&mut control);
        rig.switch.set_mirror("m", copying(KEY, "4")).unwrap();
        assert_eq!(outs(&rig), [1, 4]);
        refuse_to_wait(&mut control);
        rig.switch.set_mirror("n", copying(KEY, "3")).unwrap();
        assert_eq!(outs(&rig), [1, 3, 4]);
        let counted = ["m", "n"].map(|name| rig.switch.read_mirror(name).unwrap().unwrap().packets);
        assert_eq!(counted, [3, 1]);
        refuse_to_wait(&mut control);
        rig.switch.remove_mirror("m").unwrap();
        assert_eq!(outs(&rig), [1, 3]);
        rig.switch.remove_mirror("m").unwrap_err();
    });
}

#[test]
fn a_flush_takes_all_rules_out_and_another_one_has_nothing_to_do() {
    const FLOWS: u32 = 300;
    let name = "unsettled::a_flush_takes_all_rules_out_and_another_one_has_nothing_to_do";
    on_refusing_device(name, |ports| {
        let vports = BTreeMap::from([("p0".to_owned(), 0xffff)]);
        let config = Config { takeover: true, vports, ..Config::default() };
        let nic = DvNic::open(&config, &OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new()))).unwrap();
        nic.attach_port(&Port { number: PortNumber(1), name: "p0".parse().unwrap(), kind: PortKind::Physical })
            .unwrap();
        let mut queue = nic.install_queue().unwrap();
        let mut install = || {
            let change = |slot: u32| {
                let wanted = flow(&format!("in_port(1),eth(),eth_type({:#06x})", 0xa000 + slot), "drop");
                let id = FlowId { slot, incarnation: 1 };
                Change { flow: id, generation: Generation(1), operation: Operation::Install(wanted) }
            };
            let mut done = Vec::new();
            queue.submit(&mut (0..FLOWS).map(change).collect(), &mut done);
            eventually("the flows are there", || {
                queue.poll(&mut done);
                done.len() == FLOWS as usize
            });
            assert!(done.iter().all(|completion| completion.result.is_ok()));
        };
        let listed = || {
            let mut count = 0;
            nic.installed(&mut |_| count += 1).unwrap();
            count
        };
        let mut control = ports.control();
        for _ in 0..2 {
            install();
            assert_eq!(listed(), FLOWS);
            refuse_to_wait(&mut control);
            assert_eq!(nic.flush().unwrap(), FLOWS as usize);
            assert_eq!(listed(), 0);
            assert_eq!(nic.flush().unwrap(), 0);
        }
    });
}
