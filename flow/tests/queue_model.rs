//! Every order in which callers and a worker can meet at the queue, up to a number of preemptions, by loom. What is modelled
//! is the very source of the queue, with loom's atomics in place of the machine's.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[expect(dead_code, unreachable_pub, reason = "the models use a part of it")]
#[path = "../src/table/queue.rs"]
mod queue;

/// The atomics of the model.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
}

use loom::model::Builder;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::queue::{Lane, Links, LookQueue, Pushed, Reader};
use self::sync::AtomicU32;

/// A table of a few slots: what is wanted of each, under a lock, and its link.
struct Slots<const N: usize> {
    wishes: [Mutex<u32>; N],
    links: [AtomicU32; N],
}

impl<const N: usize> Slots<N> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            wishes: std::array::from_fn(|_| Mutex::new(0)),
            links: std::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    fn wish(&self, slot: u32, wish: u32) {
        *self.wishes[slot as usize].lock().unwrap() = wish;
    }

    fn wanted(&self, slot: u32) -> u32 {
        *self.wishes[slot as usize].lock().unwrap()
    }
}

impl<const N: usize> Links for Slots<N> {
    fn link(&self, slot: u32) -> Option<&AtomicU32> {
        self.links.get(slot as usize)
    }
}

/// Explores all orders with so many preemptions at most; one of loom's threads is the worker.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// What wakes the worker; remembers one ring, as a channel of one place does.
struct Bell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Self { is_rung: Mutex::new(false), rung: Condvar::new() })
    }

    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

/// Takes the next slot; sleeps while there is none. Loom calls it a deadlock if nobody wakes it.
fn take_or_sleep(reader: &mut Reader, links: &impl Links, bell: &Bell) -> u32 {
    loop {
        if let Some(slot) = reader.take(links) {
            return slot;
        }
        if reader.fall_asleep() {
            bell.wait();
            reader.wake_up();
        } else {
            thread::yield_now();
        }
    }
}

fn hand_over(queue: &LookQueue, links: &impl Links, slot: u32, lane: Lane, bell: &Bell) {
    if queue.push(links, slot, lane) == Pushed::ReaderSleeps {
        bell.ring();
    }
}

#[test]
fn two_callers_hand_over_and_the_worker_sees_each_slot_once_and_sleeps_through_nothing() {
    explore(2, || {
        let slots = Slots::<3>::new();
        let (queue, mut reader) = LookQueue::new();
        let bell = Bell::new();
        let callers = [vec![0, 1], vec![2]].map(|handed| {
            let (slots, queue, bell) = (slots.clone(), queue.clone(), bell.clone());
            thread::spawn(move || {
                for slot in handed {
                    hand_over(&queue, &*slots, slot, Lane::Change, &bell);
                }
            })
        });
        let mut taken: Vec<_> = (0..3).map(|_| take_or_sleep(&mut reader, &*slots, &bell)).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(reader.take(&*slots), None, "nothing is there twice");
        assert!(queue.is_empty());
    });
}

#[test]
fn the_newest_wish_is_always_seen() {
    explore(2, || {
        let slots = Slots::<1>::new();
        let (queue, mut reader) = LookQueue::new();
        let bell = Bell::new();
        let caller = {
            let (slots, queue, bell) = (slots.clone(), queue.clone(), bell.clone());
            thread::spawn(move || {
                for wish in 1..=2 {
                    slots.wish(0, wish);
                    hand_over(&queue, &*slots, 0, Lane::Change, &bell);
                }
            })
        };
        // A look may find more than what it was asked for, but the last one finds the last wish: else the worker sleeps
        // for ever here.
        while slots.wanted(take_or_sleep(&mut reader, &*slots, &bell)) != 2 {}
        caller.join().unwrap();
    });
}

#[test]
fn two_callers_that_change_the_same_flow_put_it_in_once_and_both_changes_are_seen() {
    explore(2, || {
        let slots = Slots::<1>::new();
        let (queue, mut reader) = LookQueue::new();
        let bell = Bell::new();
        let callers = [Lane::Change, Lane::Removal].map(|lane| {
            let (slots, queue, bell) = (slots.clone(), queue.clone(), bell.clone());
            thread::spawn(move || {
                *slots.wishes[0].lock().unwrap() += 1;
                hand_over(&queue, &*slots, 0, lane, &bell);
            })
        });
        let mut looks = 0;
        loop {
            looks += 1;
            if slots.wanted(take_or_sleep(&mut reader, &*slots, &bell)) == 2 {
                break;
            }
        }
        for caller in callers {
            caller.join().unwrap();
        }
        looks += u32::from(reader.take(&*slots).is_some());
        assert!(looks <= 2, "no look without a change");
        assert_eq!(reader.take(&*slots), None);
        assert!(queue.is_empty(), "nothing is there twice");
    });
}

#[test]
fn a_worker_that_is_woken_by_something_else_is_still_woken_by_the_next_flow() {
    explore(2, || {
        let slots = Slots::<2>::new();
        let (queue, mut reader) = LookQueue::new();
        let bell = Bell::new();
        // Such as a completion that comes later.
        let other = {
            let bell = bell.clone();
            thread::spawn(move || bell.ring())
        };
        let caller = {
            let (slots, queue, bell) = (slots.clone(), queue.clone(), bell.clone());
            thread::spawn(move || {
                hand_over(&queue, &*slots, 0, Lane::Removal, &bell);
                hand_over(&queue, &*slots, 1, Lane::Retry, &bell);
            })
        };
        let mut taken = [take_or_sleep(&mut reader, &*slots, &bell), take_or_sleep(&mut reader, &*slots, &bell)];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        caller.join().unwrap();
        other.join().unwrap();
    });
}
