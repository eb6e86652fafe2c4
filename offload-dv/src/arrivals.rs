//! The thread that looks for the network devices of ports that are not there. A port can be used once its device has come.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use crate::ports::Ports;

/// How often it looks, if a port is without its device.
const LOOK: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped.
pub(crate) struct Arrivals {
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Arrivals {
    /// Starts it. `tell` is told of each port whose device has come, once the switch has the port.
    pub(crate) fn start(ports: Arc<Ports>, tell: impl Fn(PortNumber) + Send + 'static) -> Result<Self, Refusal> {
        let (stop, stopped) = bounded::<Infallible>(0);
        let run = move || {
            let mut failure = None;
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                match ports.look_for_absent() {
                    Ok(come) => {
                        failure = None;
                        come.into_iter().for_each(&tell);
                    }
                    Err(refusal) => {
                        if failure.as_ref() != Some(&refusal) {
                            tracing::warn!("devices of ports that have come cannot be used yet: {refusal}");
                        }
                        failure = Some(refusal);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("dv-ports".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Refusal::Device { reason: error.to_string().into() })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.stop.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks for devices of ports has ended by itself");
        }
    }
}
