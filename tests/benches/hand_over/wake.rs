//! From a flow that is given to an idle agent to the device's hearing of it, and in turns with it the machine's own part
//! of that: a thread that sleeps and is woken.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use serde_json::{Value, json};
use sluice_tests::bench;
use sluice_tests::world::SEED;

use crate::pass::agent;

const SAMPLES: usize = 2000;

pub(crate) fn rows() -> Vec<Value> {
    let (world, device) = agent(SAMPLES);
    let sleeper = Sleeper::new();
    let mut ours = Vec::with_capacity(SAMPLES);
    let mut floor = Vec::with_capacity(SAMPLES);
    for (number, flow) in bench::five_tuples(SAMPLES, &SEED).enumerate() {
        rest(number);
        let arrival = device.arrival();
        let began = Instant::now();
        world.agent.queue.add(flow, None).expect("accepted");
        let arrived = arrival.recv_timeout(Duration::from_secs(10)).expect("the device hears of it");
        ours.push(arrived.duration_since(began).as_secs_f64() * 1e6);
        rest(number);
        floor.push(sleeper.wake().as_secs_f64() * 1e6);
    }
    world.settle();
    assert_eq!(device.rules(), SAMPLES, "every flow is in the device afterwards");
    let (our_tail, floor_tail) = (bench::quantile(&ours, 0.99), bench::quantile(&floor, 0.99));
    vec![json!({
        "name": "idle agent to first flow at the device, p99",
        "unit": "us",
        "ours": our_tail,
        "p50": bench::median(&ours),
        "p90": bench::quantile(&ours, 0.9),
        "max": bench::quantile(&ours, 1.0),
        "samples": SAMPLES,
        "peer_name": "a sleeping thread that is woken, nothing else; OVS-DPDK's idle offload thread backs off by 1 to 64 ms",
        "peer": floor_tail,
        "peer_p50": bench::median(&floor),
        "peer_p90": bench::quantile(&floor, 0.9),
        "ratio": our_tail / floor_tail,
        "to_reach": 100.0,
    })]
}

/// 3 to 7 ms, so that nothing falls into step with it.
fn rest(number: usize) {
    thread::sleep(Duration::from_micros(3000 + (number as u64 * 617) % 4000));
}

/// A thread that does nothing but sleep and say when it was woken.
struct Sleeper {
    thread: thread::Thread,
    awake: Receiver<Instant>,
}

impl Sleeper {
    fn new() -> Self {
        let (woken, awake) = bounded(1);
        let sleep = move || {
            loop {
                thread::park();
                if woken.send(Instant::now()).is_err() {
                    break;
                }
            }
        };
        Self { thread: thread::spawn(sleep).thread().clone(), awake }
    }

    fn wake(&self) -> Duration {
        let began = Instant::now();
        self.thread.unpark();
        let woken = self.awake.recv_timeout(Duration::from_secs(10)).expect("it wakes up");
        woken.duration_since(began)
    }
}
