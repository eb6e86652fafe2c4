//! The one thread that calls libmlx5. Work is handed to it in order; whoever waits for an answer waits until the device has failed at
//! most, because a device that does not answer keeps the thread for good.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use sluice_flow::refusal::Refusal;

use crate::mlx5::Library;
use crate::rules::Rules;
use crate::switch::Switch;
use crate::watch::{Progress, Watch};

/// How long opening and closing the device may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long closing a device may take that has failed.
const LITTLE_PATIENCE: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce(&mut Rules) + Send>;

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
                Ok::<_, String>((switch, events))
            };
            match open() {
                Err(reason) => drop(opened.send(Err(reason))),
                Ok((switch, events)) => {
                    let mut rules = Rules::new(switch, progress.clone());
                    if opened.send(Ok(events)).is_ok() {
                        for work in works {
                            // One that goes on all the same hears of it from the device.
                            let _ = progress.works();
                            work(&mut rules);
                            progress.rests();
                        }
                    }
                    drop(rules);
                }
            }
            end.send(()).unwrap_or_default();
        };
        let failed = |reason: String| Refusal::Device { reason: reason.into() };
        thread::Builder::new().name("dv-owner".to_owned()).spawn(run).map_err(|error| failed(error.to_string()))?;
        let events = is_open
            .recv_timeout(PATIENCE)
            .map_err(|_| failed(format!("the device was not open within {} s", PATIENCE.as_secs())))?;
        let watch = Watch::start(events.map_err(failed)?, &watched, stuck_after, alarm);
        Ok(Self { work: Some(work), ended, watch: watch.map_err(|error| failed(error.to_string()))? })
    }

    /// Hands work over, and does not wait. Fails if the device has failed.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Rules) + Send + 'static) -> Result<(), Refusal> {
        self.watch.check()?;
        let sent = self.work.as_ref().map(|queue| queue.send(Box::new(work)));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(ended()) }
    }

    /// Hands work over, and waits for what comes of it. Fails if the device fails before.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rules) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (answer, answered) = bounded(1);
        self.post(move |rules| answer.send(work(rules)).unwrap_or_default())?;
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
            tracing::error!("the thread that has the device does not end");
        }
    }
}

fn ended() -> Refusal {
    Refusal::Device { reason: "the thread that has the device has ended".into() }
}
