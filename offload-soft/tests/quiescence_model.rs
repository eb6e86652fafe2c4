//! Many orders in which packets and a worker that removes their rule can meet, by shuttle. What is modelled is the very source
//! of the pins, with shuttle's atomics, which are sequentially consistent as those of the pins are asked to be: loom, with
//! which the queue is modelled, knows no such order. Chosen at random, by the thousand; not all of them.

#![allow(clippy::expect_used, reason = "a test that cannot go on says so and ends")]

#[expect(unreachable_pub, reason = "the models use a part of it")]
#[path = "../src/quiescence.rs"]
mod quiescence;

/// The atomics and the patience of the model.
mod sync {
    pub(super) use shuttle::hint::spin_loop;
    pub(super) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(super) use shuttle::thread::yield_now;
}

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;

use self::quiescence::Quiescence;

const ORDERS: usize = 20_000;

/// Rules in a NIC: each is found while it is linked, and whoever found it counts a packet.
struct Nic<const RULES: usize> {
    quiescence: Quiescence,
    rules: [Rule; RULES],
}

struct Rule {
    is_linked: AtomicBool,
    is_freed: AtomicBool,
    packets: AtomicU64,
}

impl<const RULES: usize> Nic<RULES> {
    fn new() -> Arc<Self> {
        let rule =
            |_| Rule { is_linked: AtomicBool::new(true), is_freed: AtomicBool::new(false), packets: AtomicU64::new(0) };
        Arc::new(Self { quiescence: Quiescence::new(), rules: std::array::from_fn(rule) })
    }

    /// A packet that all rules match that are linked. Says how many counted it.
    fn packet(&self) -> u64 {
        let _pin = self.quiescence.pin();
        let mut hits = 0;
        for rule in self.rules.iter().filter(|rule| rule.is_linked.load(Ordering::SeqCst)) {
            assert!(!rule.is_freed.load(Ordering::SeqCst), "a packet uses a rule that is freed");
            rule.packets.fetch_add(1, Ordering::Relaxed);
            hits += 1;
        }
        hits
    }

    /// Removes a rule. Gives its last counter.
    fn remove(&self, rule: usize) -> u64 {
        let rule = &self.rules[rule];
        rule.is_linked.store(false, Ordering::SeqCst);
        self.quiescence.wait();
        rule.is_freed.store(true, Ordering::SeqCst);
        rule.packets.load(Ordering::Relaxed)
    }
}

#[test]
fn no_packet_uses_a_rule_that_is_freed_and_the_last_counter_is_exact() {
    let model = || {
        let nic = Nic::<1>::new();
        let packets = [(); 2].map(|()| {
            let nic = nic.clone();
            thread::spawn(move || nic.packet() + nic.packet())
        });
        let last = nic.remove(0);
        assert_eq!(last, sum(packets), "packets after the last reading");
    };
    shuttle::check_random(model, ORDERS);
    shuttle::check_pct(model, ORDERS, 3);
}

#[test]
fn two_that_remove_rules_do_not_wait_for_each_other() {
    let model = || {
        let nic = Nic::<2>::new();
        let packets = {
            let nic = nic.clone();
            thread::spawn(move || nic.packet() + nic.packet())
        };
        let removals = [0, 1].map(|rule| {
            let nic = nic.clone();
            thread::spawn(move || nic.remove(rule))
        });
        let last = sum(removals);
        assert_eq!(last, sum([packets]), "packets after the last readings");
    };
    shuttle::check_random(model, ORDERS);
    shuttle::check_pct(model, ORDERS, 3);
}

fn sum<const THREADS: usize>(threads: [thread::JoinHandle<u64>; THREADS]) -> u64 {
    threads.into_iter().map(|thread| thread.join().expect("a thread of the model ends")).sum()
}
