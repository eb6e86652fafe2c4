//! The one thread that calls libmlx5. Work is handed to it in order; whoever waits for an answer waits only so long, because a device
//! that does not answer keeps the thread for good.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use sluice_flow::refusal::Refusal;

use crate::mlx5::Library;
use crate::rules::Rules;
use crate::switch::Switch;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce(&mut Rules) + Send>;

/// The thread. It ends, and its rules with it, when this is dropped.
pub(crate) struct Owner {
    work: Option<Sender<Work>>,
    ended: Receiver<()>,
}

impl Owner {
    /// Starts the thread, and has it open the eswitch that `device` manages.
    pub(crate) fn start(device: &str) -> Result<Self, Refusal> {
        let (work, works) = unbounded::<Work>();
        let (opened, is_open) = unbounded();
        let (end, ended) = unbounded();
        let device = device.to_owned();
        let run = move || {
            let switch = Library::load().and_then(|library| Switch::open(&library, &device));
            match switch {
                Err(unavailable) => drop(opened.send(Err(unavailable.to_string()))),
                Ok(switch) => {
                    let mut rules = Rules::new(switch);
                    if opened.send(Ok(())).is_ok() {
                        works.into_iter().for_each(|work| work(&mut rules));
                    }
                    drop(rules);
                }
            }
            end.send(()).unwrap_or_default();
        };
        let failed = |reason: String| Refusal::Device { reason: reason.into() };
        thread::Builder::new().name("dv-owner".to_owned()).spawn(run).map_err(|error| failed(error.to_string()))?;
        match is_open.recv_timeout(PATIENCE) {
            Ok(Ok(())) => Ok(Self { work: Some(work), ended }),
            Ok(Err(reason)) => Err(failed(reason)),
            Err(_) => Err(stuck()),
        }
    }

    /// Hands work over, and does not wait.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Rules) + Send + 'static) -> Result<(), Refusal> {
        let sent = self.work.as_ref().map(|queue| queue.send(Box::new(work)));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(stuck()) }
    }

    /// Hands work over, and waits for what comes of it.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rules) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (answer, answered) = bounded(1);
        self.post(move |rules| answer.send(work(rules)).unwrap_or_default())?;
        answered.recv_timeout(PATIENCE).map_err(|_| stuck())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.work.take();
        // Its rules are gone when it has ended. One that is stuck goes with the process.
        if self.ended.recv_timeout(PATIENCE).is_err() {
            tracing::error!("the thread that has the device does not end");
        }
    }
}

fn stuck() -> Refusal {
    Refusal::Device { reason: format!("no answer from the device within {} s", PATIENCE.as_secs()).into() }
}
