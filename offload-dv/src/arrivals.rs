//! The thread that looks for the network devices of ports. A port can be used once its device has come, and as long as it is there.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use sluice_flow::refusal::Refusal;
use sluice_netdev::Monitor;

use crate::ports::{Moved, Ports, open_monitor};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped.
pub(crate) struct Arrivals {
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Arrivals {
    /// Starts it. `tell` is told of ports once the switch knows of them.
    pub(crate) fn start(ports: Arc<Ports>, tell: impl Fn(Moved) + Send + 'static) -> Result<Self, Refusal> {
        let (stop, stopped) = bounded::<Infallible>(0);
        let run = move || {
            let (mut monitor, mut failure) = (None, None);
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                match look(&ports, &mut monitor) {
                    Ok(moved) => {
                        failure = None;
                        tell(moved);
                    }
                    Err(reason) => {
                        // All is read and looked at anew.
                        monitor = None;
                        if failure.as_ref() != Some(&reason) {
                            tracing::warn!(
                                "devices of ports that have come or gone are not taken note of yet: {reason}"
                            );
                        }
                        failure = Some(reason);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("dv-ports".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Refusal::Device { reason: error.to_string().into() })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// Looks at ports, if network devices have changed, or if one is waited for: what tells its vport may come later.
fn look(ports: &Ports, monitor: &mut Option<Monitor>) -> Result<Moved, String> {
    let (monitor, has_changed) = match monitor {
        Some(monitor) => {
            let events = monitor.poll(Duration::ZERO).map_err(|error| error.to_string())?;
            (monitor, !events.is_empty())
        }
        none => (none.insert(open_monitor()?), true),
    };
    if !has_changed && !ports.has_absent() {
        return Ok(Moved::default());
    }
    ports.look(monitor.links()).map_err(|refusal| refusal.to_string())
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.stop.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks for devices of ports has ended by itself");
        }
    }
}
