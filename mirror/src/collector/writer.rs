//! The thread that writes: it alone knows what has come of each sender, so that frames are judged and written in one order.
//!
//! Sessions hand it jobs, at most as many as they have granted. It may block in a slow disk or pipe; sessions then grant no more credit.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select_biased, unbounded};
use parking_lot::Mutex;
use sluice_control::mirror::Class;
use tokio::sync::oneshot;

use super::answers::Answers;
use super::metrics::CollectorMetrics;
use super::output::{Output, Outputs};
use super::senders::Batch;
use crate::verbs::Buffer;
use crate::wire::{Drops, HEADER, Hello};

/// How often the thread looks whether the next file is due.
const LOOK: Duration = Duration::from_millis(200);

/// What a session wants done.
pub(super) enum Job {
    /// A sender says who it is.
    Hello { sender: u64, hellos: FirstHellos },
    /// It says so again, since its ports have changed.
    Ports { sender: u64, hello: Hello, answers: Arc<Answers> },
    /// Drops that a sender has counted.
    Drops { sender: u64, drops: LatestDrops },
    /// Frames.
    Batch { batch: Batch, message: Message, answers: Arc<Answers> },
}

/// The first hello of each connection that the thread has not taken, by the number of the sender. A sender whose hello has no answer leaves and
/// comes again: a job for each would take ever more memory while the output stands still.
#[derive(Clone, Default)]
pub(super) struct FirstHellos(Arc<Mutex<HashMap<u64, FirstHello>>>);

/// The latest hello, and all connections that wait for the answer.
struct FirstHello {
    hello: Hello,
    waiting: Vec<Arc<Answers>>,
}

impl FirstHellos {
    /// Takes a hello in place of one that still waits. Returns whether there was none.
    fn put(&self, sender: u64, hello: Hello, answers: &Arc<Answers>) -> bool {
        let mut all = self.0.lock();
        let earlier = all.remove(&sender);
        let is_first = earlier.is_none();
        let mut waiting = earlier.map_or_else(Vec::new, |earlier| earlier.waiting);
        waiting.retain(|answers| !answers.is_closed());
        waiting.push(Arc::clone(answers));
        all.insert(sender, FirstHello { hello, waiting });
        is_first
    }
}

/// The latest drops that a session was told of and that the thread has not taken. They come with every heartbeat, for which a sender needs no
/// credit: a job for each would take ever more memory while the output stands still.
#[derive(Debug, Clone, Default)]
pub(super) struct LatestDrops(Arc<Mutex<Option<ClassDrops>>>);

type ClassDrops = Vec<(Class, Drops)>;

/// A message as it was received.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) tag: u64,
    pub(super) buffers: Vec<Buffer>,
    pub(super) length: usize,
}

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffers.first().and_then(|buffer| buffer.get(..self.length)).unwrap_or_default()
    }
}

/// The way to the thread. Copies lead to the same.
#[derive(Clone)]
pub(super) struct Jobs {
    urgent: Sender<Job>,
    others: Sender<Job>,
    hellos: FirstHellos,
}

impl Jobs {
    /// Hands a hello over.
    pub(super) fn submit_hello(&self, sender: u64, hello: Hello, is_first: bool, answers: &Arc<Answers>) {
        if !is_first {
            self.submit(Job::Ports { sender, hello, answers: Arc::clone(answers) });
        } else if self.hellos.put(sender, hello, answers) {
            self.submit(Job::Hello { sender, hellos: self.hellos.clone() });
        }
    }

    /// Hands drops of a sender over, in place of those that still wait.
    pub(super) fn submit_drops(&self, sender: u64, latest: &LatestDrops, drops: ClassDrops) {
        if latest.0.lock().replace(drops).is_none() {
            self.submit(Job::Drops { sender, drops: latest.clone() });
        }
    }

    /// Hands a job over. Batches of classes whose protocols count on milliseconds come first, and hellos that change something.
    pub(super) fn submit(&self, job: Job) {
        let urgent = match &job {
            Job::Batch { batch, .. } => matches!(batch.class, Class::Bfd | Class::Lacp),
            // Batches behind it name these ports.
            Job::Ports { .. } => true,
            // It comes after what an earlier connection of the sender brought.
            Job::Hello { .. } | Job::Drops { .. } => false,
        };
        let queue = if urgent { &self.urgent } else { &self.others };
        // The thread has ended, and with it the collector.
        queue.send(job).unwrap_or_default();
    }
}

/// The thread.
pub(super) struct Writer {
    jobs: Option<Jobs>,
    stop: Option<Sender<()>>,
    is_abandoned: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    failed: oneshot::Receiver<io::Error>,
}

impl Writer {
    /// Opens the outputs, and starts the thread.
    pub(super) fn start(outputs: Outputs, metrics: CollectorMetrics) -> io::Result<Self> {
        let mut output = Output::new(outputs, metrics)?;
        let (urgent, urgent_jobs) = unbounded();
        let (others, other_jobs) = unbounded();
        let (stop, stopped) = bounded(0);
        let (fail, failed) = oneshot::channel();
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_abandoned);
        let thread = thread::Builder::new().name("mirror-writer".to_owned()).spawn(move || {
            let outcome = run(&mut output, (&urgent_jobs, &other_jobs, &stopped), &flag);
            if let Err(error) = outcome {
                // Nobody may be there any more.
                fail.send(error).unwrap_or_default();
            } else if !flag.load(Ordering::Relaxed) {
                output.finish();
            }
        })?;
        let jobs = Some(Jobs { urgent, others, hellos: FirstHellos::default() });
        Ok(Self { jobs, stop: Some(stop), is_abandoned, thread: Some(thread), failed })
    }

    pub(super) fn jobs(&self) -> Option<Jobs> {
        self.jobs.clone()
    }

    /// Ends if the thread cannot go on, with the reason.
    pub(super) async fn failed(&mut self) -> io::Error {
        match (&mut self.failed).await {
            Ok(error) => error,
            Err(_) => io::Error::other("the thread that writes has ended"),
        }
    }

    /// Writes what was handed over, and statistics at the end.
    pub(super) fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        (self.jobs, self.stop) = (None, None);
        if let Some(thread) = self.thread.take() {
            // It catches nothing that would be told here.
            drop(thread.join());
        }
    }
}

impl Drop for Writer {
    /// As if the process had been killed: what was handed over and not written yet is not written.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.is_abandoned.store(true, Ordering::Relaxed);
            self.end();
        }
    }
}

fn run(
    output: &mut Output,
    (urgent, others, stop): (&Receiver<Job>, &Receiver<Job>, &Receiver<()>),
    is_abandoned: &AtomicBool,
) -> io::Result<()> {
    loop {
        let job = select_biased! {
            recv(urgent) -> job => job.ok(),
            recv(others) -> job => job.ok(),
            recv(stop) -> _ => None,
            default(LOOK) => {
                output.rotate();
                continue;
            }
        };
        if is_abandoned.load(Ordering::Relaxed) {
            return Ok(());
        }
        match job {
            Some(job) => take(output, job)?,
            None => break,
        }
    }
    // What was handed over before.
    for queue in [urgent, others] {
        while let Ok(job) = queue.try_recv() {
            take(output, job)?;
        }
    }
    Ok(())
}

fn take(output: &mut Output, job: Job) -> io::Result<()> {
    match job {
        Job::Hello { sender, hellos } => {
            let waits = hellos.0.lock().remove(&sender);
            if let Some(FirstHello { hello, waiting }) = waits {
                let acknowledged = output.hello(sender, hello);
                waiting.iter().for_each(|answers| answers.welcome(acknowledged));
            }
        }
        Job::Ports { sender, hello, answers } => answers.welcome(output.hello(sender, hello)),
        Job::Drops { sender, drops } => {
            let drops = drops.0.lock().take();
            output.drops(sender, &drops.unwrap_or_default());
            // These come with every heartbeat, so that there may be no pause in which to look.
            output.rotate();
        }
        Job::Batch { batch, message, answers } => {
            let payload = message.bytes().get(HEADER..).unwrap_or_default();
            let acknowledged = output.batch(&batch, payload)?;
            answers.written(batch.class, acknowledged, message);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Cause;

    #[test]
    fn drops_that_are_told_again_and_again_wait_for_a_thread_that_stands_still_once() {
        let (urgent, others) = (unbounded().0, unbounded());
        let jobs = Jobs { urgent, others: others.0, hellos: FirstHellos::default() };
        let drops = |count| {
            let mut drops = Drops::default();
            drops[Cause::RingFull] = count;
            vec![(Class::Arp, drops)]
        };
        let (waiting, latest) = (others.1, LatestDrops::default());
        let taken = |from: u64, to: u64| {
            (from..=to).for_each(|count| jobs.submit_drops(7, &latest, drops(count)));
            let job = waiting.try_recv().unwrap();
            assert!(waiting.is_empty());
            let Job::Drops { sender: 7, drops } = job else { panic!("another job") };
            drops.0.lock().take()
        };
        assert_eq!(taken(1, 1000), Some(drops(1000)));
        assert_eq!(taken(1001, 1001), Some(drops(1001)));
    }

    #[test]
    fn a_sender_that_comes_again_and_again_to_a_thread_that_stands_still_waits_there_once_with_its_latest_hello() {
        let (urgent, others) = (unbounded().0, unbounded());
        let jobs = Jobs { urgent, others: others.0, hellos: FirstHellos::default() };
        let waiting = others.1;
        let named = |count: u64| Hello { name: format!("the {count}th"), ..Hello::default() };
        let left = || Arc::new(Answers::closed());
        (1..=1000).for_each(|count| jobs.submit_hello(7, named(count), true, &left()));
        jobs.submit_hello(8, named(1), true, &left());
        let mut taken = Vec::new();
        while let Ok(job) = waiting.try_recv() {
            let Job::Hello { sender, hellos } = job else { panic!("another job") };
            let FirstHello { hello, waiting } = hellos.0.lock().remove(&sender).unwrap();
            taken.push((sender, hello, waiting.len()));
        }
        assert_eq!(taken, [(7, named(1000), 1), (8, named(1), 1)]);
        // What comes later is another job.
        jobs.submit_hello(7, named(1001), true, &left());
        assert_eq!(waiting.len(), 1);
    }
}
