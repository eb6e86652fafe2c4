//! The one thread that calls libmlx5. Work is handed to it in order; whoever waits for an answer waits until the device has failed at
//! most, because a device that does not answer keeps the thread for good.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use sluice_flow::refusal::Refusal;

use crate::desk::Desk;
use crate::mlx5::{Answer, Library};
use crate::rules::Rules;
use crate::switch::{END, Switch};
use crate::watch::{Progress, Watch};

/// How long opening and closing the device may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long closing a device may take that has failed.
const LITTLE_PATIENCE: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce(&mut Desk) + Send>;

/// The thread. It ends, and its rules with it, when this is dropped.
pub(crate) struct Owner {
    work: Option<Sender<Work>>,
    ended: Receiver<()>,
    watch: Watch,
}

impl Owner {
    /// Starts the thread, and has it open the eswitch that `device` manages. `alarm` is told once if the device fails, which it also has
    /// when a call of libmlx5 takes longer than `stuck_after`.
    pub(crate) fn start(
        device: &str,
        stuck_after: Duration,
        alarm: impl FnOnce(String) + Send + 'static,
    ) -> Result<Self, Refusal> {
        let (work, works) = unbounded::<Work>();
        let (opened, is_open) = unbounded();
        let (end, ended) = unbounded();
        let device = device.to_owned();
        let progress = Arc::new(Progress::default());
        let watched = progress.clone();
        let run = move || {
            let open = || {
                let switch = Library::load().and_then(|library| Switch::open(&library, &device));
                let switch = switch.map_err(|unavailable| unavailable.to_string())?;
                let events = switch.events().map_err(|error| error.to_string())?;
                let answers = listen(&switch).map_err(|error| error.to_string())?;
                Ok::<_, String>((switch, events, answers))
            };
            match open() {
                Err(reason) => drop(opened.send(Err(reason))),
                Ok((switch, events, answers)) => {
                    let mut desk = Desk::new(Rules::new(switch, progress.clone()));
                    if opened.send(Ok(events)).is_ok() {
                        work_on(&mut desk, &works, answers, &progress);
                    }
                    if let Err(refusal) = desk.rules.switch().end() {
                        tracing::warn!("the thread that reads answers of the device does not end: {refusal}");
                    }
                    drop(desk);
                }
            }
            end.send(()).unwrap_or_default();
        };
        let failed = |reason: String| Refusal::Device { reason: reason.into() };
        thread::Builder::new().name("dv-owner".to_owned()).spawn(run).map_err(|error| failed(error.to_string()))?;
        let events = is_open
            .recv_timeout(PATIENCE)
            .map_err(|_| failed(format!("opening the device took longer than {} s", PATIENCE.as_secs())))?;
        let watch = Watch::start(events.map_err(failed)?, &watched, stuck_after, alarm);
        Ok(Self { work: Some(work), ended, watch: watch.map_err(|error| failed(error.to_string()))? })
    }

    /// Fails if the device has failed.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.watch.check()
    }

    /// Wakes whoever this is when the device fails.
    pub(crate) fn wake_on_failure(&self, waker: Waker) {
        self.watch.wake_on_failure(waker);
    }

    /// Hands work over, and does not wait. Fails if the device has failed.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Desk) + Send + 'static) -> Result<(), Refusal> {
        self.watch.check()?;
        let sent = self.work.as_ref().map(|queue| queue.send(Box::new(work)));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(ended()) }
    }

    /// Hands work over, and waits for what comes of it. Fails if the device fails before.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (answer, answered) = bounded(1);
        self.post(move |desk| answer.send(work(desk)).unwrap_or_default())?;
        self.wait(&answered)
    }

    /// Waits for what was asked for. Fails if the device fails before.
    pub(crate) fn wait<R>(&self, answered: &Receiver<R>) -> Result<R, Refusal> {
        select! {
            recv(answered) -> answer => answer.map_err(|_| ended()),
            recv(self.watch.failed()) -> _ => {
                self.watch.check()?;
                Err(ended())
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.work.take();
        // Its rules are gone when it has ended. One that is stuck goes with the process.
        let patience = if self.watch.check().is_ok() { PATIENCE } else { LITTLE_PATIENCE };
        if self.ended.recv_timeout(patience).is_err() {
            tracing::error!("the thread that owns the device does not end");
        }
    }
}

/// Does what comes, and in between what can wait, until nobody can ask for more.
fn work_on(desk: &mut Desk, works: &Receiver<Work>, mut answers: Receiver<Answer>, progress: &Progress) {
    enum Next {
        Work(Work),
        Answer(Answer),
        GoOn,
    }
    loop {
        let rest = if desk.has_more_to_do() { Duration::ZERO } else { Duration::MAX };
        let next = select! {
            recv(works) -> work => match work {
                Ok(work) => Next::Work(work),
                Err(_) => return,
            },
            recv(answers) -> answer => match answer {
                Ok(answer) => Next::Answer(answer),
                Err(_) => {
                    answers = never();
                    continue;
                }
            },
            default(rest) => Next::GoOn,
        };
        // One that goes on all the same hears of it from the device.
        let _ = progress.works();
        match next {
            Next::Work(work) => work(desk),
            Next::Answer(answer) => desk.answered(answer),
            Next::GoOn => desk.go_on(),
        }
        desk.tell(!works.is_empty());
        progress.owes(desk.oldest_query());
        progress.rests();
    }
}

/// Has a thread wait for answers of the device, until the last one comes.
fn listen(switch: &Switch) -> io::Result<Receiver<Answer>> {
    let (tell, answers) = unbounded();
    let mut listener = switch.listener()?;
    let run = move || {
        loop {
            match listener.wait() {
                Ok(answer) if answer.number == END || tell.send(answer).is_err() => return,
                Ok(_) => {}
                // The device owes what is asked from now on, which the watch notices.
                Err(error) => return tracing::error!("answers of the device cannot be read: {error}"),
            }
        }
    };
    thread::Builder::new().name("dv-answers".to_owned()).spawn(run)?;
    Ok(answers)
}

fn ended() -> Refusal {
    Refusal::Device { reason: "the thread that owns the device has ended".into() }
}
