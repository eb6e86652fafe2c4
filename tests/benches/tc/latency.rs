//! Flows that come one by one at half of what the agent takes: how long each waits from its acceptance to the kernel's
//! answer, and how long it would wait for a replay of finished messages; both with somebody who polls and without.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use sluice_agent::config::Config;
use sluice_flow::FlowId;
use sluice_flow::backend::{BackendConfig, OpenConfig};
use sluice_flow::table::{ReplyTo, Settlement, Waiter};
use sluice_flow::time::MonotonicClock;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::install::BATCH;
use sluice_offload_tc::wire::filter::Hook;
use sluice_tests::bench::{quantile, timed};
use sluice_tests::world::{World, quick_config};

use crate::floor::{Floor, Message, messages};
use crate::lab::{index, listed, requests, rest, run};
use crate::rules::{Maker, Ports, flow_lines};

/// Network devices of the agent in this process, and of the replay.
pub(crate) const WORLD: [&str; 4] = ["p1", "p2", "p3", "p4"];
/// For how long flows come.
const SPAN: Duration = Duration::from_secs(5);
/// The agent polls so often by default; and so rarely that it does not while flows come.
const POLL: Duration = Duration::from_millis(500);
const NO_POLL: Duration = Duration::from_secs(60);
/// As many as the agent has.
const WORKERS: usize = 2;

/// The times that one flow in a hundred exceeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    pub(crate) agent: Duration,
    pub(crate) without_poll: Duration,
    pub(crate) floor: Duration,
    pub(crate) floor_without_poll: Duration,
}

impl Latencies {
    /// Of so many flows a second.
    pub(crate) fn measure(rate: f64) -> Self {
        let pace = Pace { rate };
        let [agent, without_poll] = [POLL, NO_POLL].map(|interval| of_agent(pace, interval));
        let [floor, floor_without_poll] = [POLL, NO_POLL].map(|interval| of_replay(pace, interval));
        let taken = Self { agent, without_poll, floor, floor_without_poll };
        println!("at {rate:.0} flows a second: {taken:.2?}");
        taken
    }
}

/// So many a second.
#[derive(Clone, Copy)]
struct Pace {
    rate: f64,
}

impl Pace {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of flows")]
    fn number(self, span: Duration) -> usize {
        (span.as_secs_f64() * self.rate) as usize
    }

    fn total(self) -> usize {
        self.number(SPAN)
    }

    /// Offers everything when it is due.
    fn offer<T>(self, all: Vec<T>, mut offer: impl FnMut(T)) {
        let total = all.len();
        let mut all = all.into_iter();
        let began = Instant::now();
        let mut offered = 0;
        while offered < total {
            let due = self.number(began.elapsed()).min(total);
            all.by_ref().take(due - offered).for_each(&mut offer);
            offered = due;
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn of_agent(pace: Pace, poll_interval: Duration) -> Duration {
    let clock = Arc::new(MonotonicClock::new());
    let config = sluice_offload_tc::Config { policy: OffloadPolicy::SkipHardware, ..Default::default() };
    let backend = config.open(&OpenConfig::new("system", clock.clone())).expect("the classifier");
    let world = World::on(backend, Config { poll_interval, workers: WORKERS, ..quick_config() }, clock);
    let text = flow_lines(pace.total(), 1, 2);
    let mut maker = Maker::new(Ports { receiver: 0, sender: 0 });
    let flows: Vec<_> = text.lines().map(|line| maker.flow(line)).collect();
    let (done, outcomes) = unbounded();
    pace.offer(flows, |flow| {
        let reply_to = ReplyTo::new(Request { began: Instant::now(), done: done.clone() });
        world.agent.queue.add(flow, Some(reply_to)).expect("there is room");
    });
    world.settle();
    let took: Vec<_> = outcomes.try_iter().collect();
    check(pace, took.len());
    drop(world);
    clear();
    quantile(&took, 0.99)
}

struct Request {
    began: Instant,
    done: Sender<Duration>,
}

impl Waiter for Request {
    fn settled(&self, _: u32, _: FlowId, outcome: &Settlement) {
        assert!(matches!(outcome, Settlement::Installed(_)), "{outcome:?}");
        self.done.send(self.began.elapsed()).expect("the bench listens");
    }
}

/// Threads that send whatever waits for them, a batch at the most, and wait for the answer; and one that lists as often as the
/// agent polls.
fn of_replay(pace: Pace, poll_interval: Duration) -> Duration {
    let [input, output, ..] = WORLD;
    run("tc", &format!("qdisc add dev {input} ingress"));
    let text = flow_lines(pace.total(), 1, 2);
    let ports = Ports { receiver: index(input), sender: index(output) };
    let messages = messages(&requests(&mut Maker::new(ports), text.lines(), 1));
    let took: Vec<_> = std::thread::scope(|scope| {
        let (senders, workers): (Vec<_>, Vec<_>) = (0..WORKERS)
            .map(|_| {
                let (sender, inbox) = unbounded();
                (sender, scope.spawn(move || replay(&inbox)))
            })
            .unzip();
        let (stop, stopped) = unbounded();
        scope.spawn(move || poll(poll_interval, &stopped));
        let mut in_turn = senders.iter().cycle();
        pace.offer(messages, |message| {
            let sender = in_turn.next().expect("it never ends");
            sender.send((Instant::now(), message)).expect("a worker listens");
        });
        drop((senders, stop));
        workers.into_iter().flat_map(|worker| worker.join().expect("it is done")).collect()
    });
    check(pace, took.len());
    clear();
    quantile(&took, 0.99)
}

/// Lists all counters and throws them away, for half of the time at the most, as the agent does.
fn poll(interval: Duration, stopped: &Receiver<Infallible>) {
    let hook = hook();
    let mut pause = Duration::ZERO;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let (took, ()) = timed(|| Floor::open().discard(hook, true));
        pause = interval.saturating_sub(took).max(took);
    }
}

fn replay(inbox: &Receiver<(Instant, Message)>) -> Vec<Duration> {
    let (mut floor, mut took) = (Floor::open(), Vec::new());
    let (mut accepted, mut batch) = (Vec::with_capacity(BATCH), Vec::new());
    while let Ok(first) = inbox.recv() {
        let waiting = std::iter::once(first).chain(inbox.try_iter().take(BATCH - 1));
        let (times, messages): (Vec<_>, Vec<_>) = waiting.unzip();
        accepted.extend(times);
        batch.clear();
        Message::join(&messages, &mut batch);
        floor.replay(std::slice::from_ref(&batch));
        took.extend(accepted.drain(..).map(|accepted: Instant| accepted.elapsed()));
    }
    took
}

fn check(pace: Pace, outcomes: usize) {
    assert_eq!(outcomes, pace.total(), "every flow has its rule");
    assert_eq!(listed(hook()), pace.total(), "rules in the kernel at half the rate");
}

fn hook() -> Hook {
    let [input, ..] = WORLD;
    Hook::Ingress { interface: index(input) }
}

fn clear() {
    let [input, ..] = WORLD;
    run("tc", &format!("qdisc del dev {input} ingress"));
    rest();
}
