//! The parts of the agent: started in order, watched, stopped in the opposite order, each with a deadline. A part that
//! dies takes the agent down with its name and reason, never half of it.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use crossbeam_channel::Receiver;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::liveness::{Liveness, Progress};

/// The word to stop, as a part receives it, and how it tells that it gets on until then.
#[derive(Clone, Debug)]
pub struct Stop {
    requested: watch::Receiver<bool>,
    channel: Receiver<Infallible>,
    progress: Progress,
}

impl Stop {
    /// Ends when it is time to stop.
    pub async fn requested(mut self) {
        // An error means that nobody is left to ask for it, which is the same.
        let _ = self.requested.wait_for(|requested| *requested).await;
    }

    /// For threads that select over channels: it never yields anything, and is disconnected when it is time to stop.
    pub fn channel(&self) -> &Receiver<Infallible> {
        &self.channel
    }

    /// Where a part that has a thread of its own tells of its work. One that never does is taken to have none.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }
}

/// The running parts of the agent.
pub struct Lifecycle {
    runtime: Handle,
    liveness: Liveness,
    parts: Vec<Part>,
    ended: mpsc::UnboundedReceiver<(usize, Result<(), String>)>,
    tell_end: mpsc::UnboundedSender<(usize, Result<(), String>)>,
}

struct Part {
    name: String,
    deadline: Duration,
    stop: Option<Stopper>,
    /// How to end a task that does not end by itself. Threads cannot be ended.
    abort: Option<AbortHandle>,
    running: bool,
}

struct Stopper {
    requested: watch::Sender<bool>,
    /// Dropped to disconnect the other end.
    _channel: crossbeam_channel::Sender<Infallible>,
}

/// A part that ended unasked or badly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} {reason}")]
pub struct Death {
    /// Its name.
    pub part: String,
    /// How it ended.
    pub reason: String,
}

/// How the stop went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Parts that ended with an error while they were stopped.
    pub failed: Vec<Death>,
    /// Parts that had not ended at their deadline.
    pub late: Vec<String>,
}

impl StopReport {
    /// Whether every part ended as it should.
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty() && self.late.is_empty()
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed.iter().map(ToString::to_string);
        let late = self.late.iter().map(|part| format!("{part} did not stop in time"));
        let all: Vec<_> = failed.chain(late).collect();
        out.write_str(if all.is_empty() { "all parts stopped".to_owned() } else { all.join("; ") }.as_str())
    }
}

impl Lifecycle {
    /// Nothing runs yet. Tasks will run on `runtime`.
    pub fn new(runtime: Handle) -> Self {
        let (tell_end, ended) = mpsc::unbounded_channel();
        Self { runtime, liveness: Liveness::default(), parts: Vec::new(), ended, tell_end }
    }

    /// Whether the parts with threads get on with their work.
    pub fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Starts a part that has a thread of its own. `deadline` is how long it may take to stop.
    pub fn thread<F>(&mut self, name: &str, deadline: Duration, run: F) -> io::Result<()>
    where
        F: FnOnce(Stop) -> Result<(), String> + Send + 'static,
    {
        self.awaited_thread(name, deadline, || false, run)
    }

    /// The same of a part for which work may wait that it has not begun, as `is_awaited` says.
    pub fn awaited_thread<F>(
        &mut self,
        name: &str,
        deadline: Duration,
        is_awaited: impl Fn() -> bool + Send + Sync + 'static,
        run: F,
    ) -> io::Result<()>
    where
        F: FnOnce(Stop) -> Result<(), String> + Send + 'static,
    {
        let (stopper, stop) = stop_pair(self.liveness.awaited_part(name, is_awaited));
        let (index, tell_end) = (self.parts.len(), self.tell_end.clone());
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| run(stop)));
            let result = result.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
            // Nobody listens any more once the stop is over.
            tell_end.send((index, result)).unwrap_or_default();
        })?;
        self.add(name, deadline, stopper, None);
        Ok(())
    }

    /// Starts a part that is a task. `deadline` is how long it may take to stop.
    pub fn task<F, R>(&mut self, name: &str, deadline: Duration, run: F)
    where
        F: FnOnce(Stop) -> R,
        R: Future<Output = Result<(), String>> + Send + 'static,
    {
        let (stopper, stop) = stop_pair(Progress::default());
        let (index, tell_end) = (self.parts.len(), self.tell_end.clone());
        let task = self.runtime.spawn(run(stop));
        let abort = task.abort_handle();
        self.runtime.spawn(async move {
            let result = match task.await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => Err(panicked(panic.as_ref())),
                    Err(_) => Err("was aborted".to_owned()),
                },
            };
            tell_end.send((index, result)).unwrap_or_default();
        });
        self.add(name, deadline, stopper, Some(abort));
    }

    fn add(&mut self, name: &str, deadline: Duration, stopper: Stopper, abort: Option<AbortHandle>) {
        self.parts.push(Part { name: name.to_owned(), deadline, stop: Some(stopper), abort, running: true });
    }

    /// The names of the parts that run, in the order of their start.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(|part| part.running).map(|part| part.name.as_str())
    }

    /// Waits until a part ends, which none may before it is told to. Can be given up and called again.
    pub async fn watch(&mut self) -> Death {
        match self.ended.recv().await {
            Some((index, result)) => {
                let reason = match result {
                    Ok(()) => "ended unexpectedly".to_owned(),
                    Err(reason) => reason,
                };
                self.parts[index].running = false;
                Death { part: self.parts[index].name.clone(), reason }
            }
            // Not while a sender is held here.
            None => std::future::pending().await,
        }
    }

    /// Stops all parts that run, the last one first. Each has ended or is past its deadline before the next is told.
    pub async fn stop(mut self) -> StopReport {
        let mut report = StopReport::default();
        for index in (0..self.parts.len()).rev() {
            // Its being dropped is the word to stop for those who wait on the channel.
            if let Some(stopper) = self.parts[index].stop.take() {
                stopper.requested.send_replace(true);
            }
            let deadline = Instant::now() + self.parts[index].deadline;
            while self.parts[index].running {
                match timeout_at(deadline, self.ended.recv()).await {
                    Ok(Some((ended, result))) => {
                        let part = &mut self.parts[ended];
                        // One that is reported as late has nothing to add. One whose turn has not come may end early,
                        // together with the one that it works for.
                        match result {
                            Err(reason) if part.running => {
                                report.failed.push(Death { part: part.name.clone(), reason });
                            }
                            _ => {}
                        }
                        part.running = false;
                    }
                    Ok(None) | Err(_) => {
                        report.late.push(self.parts[index].name.clone());
                        if let Some(abort) = &self.parts[index].abort {
                            abort.abort();
                        }
                        self.parts[index].running = false;
                    }
                }
            }
        }
        report
    }
}

fn stop_pair(progress: Progress) -> (Stopper, Stop) {
    let (requested, watched) = watch::channel(false);
    let (sender, receiver) = crossbeam_channel::bounded(0);
    (Stopper { requested, _channel: sender }, Stop { requested: watched, channel: receiver, progress })
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn parts_stop_in_the_opposite_order_of_their_start() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut lifecycle = Lifecycle::new(Handle::current());
        for name in ["first", "second"] {
            let order = Arc::clone(&order);
            lifecycle
                .thread(name, SOON, move |stop| {
                    stop.channel().recv().unwrap_err();
                    order.lock().push(name);
                    Ok(())
                })
                .unwrap();
        }
        let order_of_task = Arc::clone(&order);
        lifecycle.task("third", SOON, |stop| async move {
            stop.requested().await;
            order_of_task.lock().push("third");
            Ok(())
        });
        assert_eq!(lifecycle.running().collect::<Vec<_>>(), ["first", "second", "third"]);
        assert!(lifecycle.stop().await.is_clean());
        assert_eq!(*order.lock(), ["third", "second", "first"]);
    }

    #[tokio::test]
    async fn a_part_that_dies_is_named_with_its_reason() {
        let mut lifecycle = Lifecycle::new(Handle::current());
        lifecycle.task("steady", SOON, |stop| async move {
            stop.requested().await;
            Ok(())
        });
        lifecycle.thread("worker 0", SOON, |_| panic!("index out of bounds")).unwrap();
        assert_eq!(lifecycle.watch().await.to_string(), "worker 0 panicked: index out of bounds");
        lifecycle.task("poller", SOON, |_| async { Err("lost the device".to_owned()) });
        assert_eq!(lifecycle.watch().await.to_string(), "poller lost the device");
        lifecycle.task("metrics", SOON, |_| async { Ok(()) });
        assert_eq!(lifecycle.watch().await.to_string(), "metrics ended unexpectedly");
        lifecycle.task("control", SOON, |_| async { panic!("{}", "no way") });
        assert_eq!(lifecycle.watch().await.to_string(), "control panicked: no way");
        assert_eq!(lifecycle.running().collect::<Vec<_>>(), ["steady"]);
        assert!(lifecycle.stop().await.is_clean());
    }

    #[tokio::test]
    async fn who_does_not_stop_in_time_is_reported_and_the_others_stop_all_the_same() {
        let mut lifecycle = Lifecycle::new(Handle::current());
        let (let_go, held) = crossbeam_channel::bounded::<()>(0);
        lifecycle.task("good", SOON, |stop| async move {
            stop.requested().await;
            Err("could not save".to_owned())
        });
        lifecycle
            .thread("stuck", Duration::from_millis(20), move |_| {
                held.recv().unwrap_err();
                Ok(())
            })
            .unwrap();
        lifecycle.task("deaf", Duration::from_millis(20), |_| std::future::pending());
        let report = lifecycle.stop().await;
        assert_eq!(report.late, ["deaf", "stuck"]);
        assert!(
            report.to_string().contains("good could not save; deaf did not stop in time; stuck did not stop in time"),
            "{report}"
        );
        drop(let_go);
    }
}
