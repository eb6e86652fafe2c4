//! Packet rings of a sender, in a network namespace.

use std::time::Duration;

use sluice_control::mirror::{Class, ClassSet, Plan, Tap};
use sluice_mirror::connection::Local;
use sluice_mirror::sender;
use sluice_mirror::source::ring::{RingSize, RingSource};
use sluice_mirror::source::{Batch, Source};
use sluice_mirror::wire::Cause;
use sluice_tests::lab::{Wire, run};
use sluice_tests::mlx5::in_network_namespace;

use crate::rig::play;

const SIZE: RingSize = RingSize { block_bytes: 4096, blocks: 2, retire_after: Duration::from_millis(1) };

fn tap(name: &str, classes: &[Class]) -> Tap {
    Tap { in_port: Some(1), name: name.into(), netdev: Some(name.into()), classes: classes.iter().copied().collect() }
}

fn plan(taps: Vec<Tap>) -> Plan {
    Plan { collector: String::new(), classes: Class::ALL.into_iter().collect::<ClassSet>(), taps }
}

/// Sends a frame into a device, which is the only one of its batch.
async fn alone(wire: &Wire, source: &mut RingSource) -> Batch {
    wire.send(&[0x5a; 100]);
    let batch = source.next().await.unwrap();
    assert_eq!(batch.frames, 1);
    batch
}

#[test]
fn drops_of_a_ring_come_with_the_next_batch_and_while_none_comes_when_they_are_asked_for() {
    let name = "rings::drops_of_a_ring_come_with_the_next_batch_and_while_none_comes_when_they_are_asked_for";
    in_network_namespace("bluefield-3", name, |_| {
        play(async {
            let wire = Wire::new("wire0");
            std::fs::write("/proc/sys/net/ipv6/conf/wire0/disable_ipv6", "1").unwrap();
            run("ip link set wire0 arp off up");
            let local = Local::open("mlx5_0", sender::capacity(4)).unwrap();
            let mut source = RingSource::new(local.domain(), SIZE);
            assert!(source.follow(&plan(vec![tap("wire0", &[Class::Flow])])).unwrap().is_empty());
            let dropped = |source: &RingSource| source.drops(Class::Flow)[Cause::RingFull];
            for round in 0..4 {
                // All blocks are held, as by a collector that stands still.
                let held = [alone(&wire, &mut source).await, alone(&wire, &mut source).await];
                assert_eq!(dropped(&source), 10 * round);
                (0..10).for_each(|_| wire.send(&[0x5a; 100]));
                if round % 2 == 0 {
                    source.count_drops();
                    assert_eq!(dropped(&source), 10 * (round + 1));
                }
                held.into_iter().for_each(|batch| source.give_back(batch.class, batch.buffer));
                let after = alone(&wire, &mut source).await;
                assert_eq!(dropped(&source), 10 * (round + 1), "by the time of the first frame behind them");
                source.give_back(after.class, after.buffer);
            }
        });
    });
}

#[test]
fn a_class_for_which_there_is_no_ring_leaves_the_others_theirs_and_the_names_of_their_ports() {
    let name = "rings::a_class_for_which_there_is_no_ring_leaves_the_others_theirs_and_the_names_of_their_ports";
    in_network_namespace("bluefield-3", name, |_| {
        play(async {
            /// The kernel takes no packet filter for so many devices.
            const MANY: usize = 5000;
            let local = Local::open("mlx5_0", sender::capacity(4)).unwrap();
            let mut source = RingSource::new(local.domain(), SIZE);
            let mut wanted = plan(vec![tap("lo", &[Class::Arp]); MANY]);
            wanted.taps.push(tap("lo", &[Class::Flow]));
            for _ in 0..2 {
                let refused = source.follow(&wanted).unwrap_err().to_string();
                assert!(refused.starts_with("class arp: "), "{refused}");
                assert_eq!(source.ports().len(), MANY + 1);
            }
            run("ip link set lo up");
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"flow", "127.0.0.1:9").unwrap();
            let batch = source.next().await.unwrap();
            assert_eq!(batch.class, Class::Flow);
            source.give_back(batch.class, batch.buffer);
        });
    });
}
