//! Taking over a changed configuration file, beside everything else that the daemon does.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::agent::{Agent, AgentError};
use crate::config::{Config, Difference, LEVEL_KEY, Loaded, Places};
use sluice_host::logging::{LogError, Logging};

/// Who asked for a reload hears what came of it.
pub(crate) type Reply = Box<dyn FnOnce(Outcome) + Send>;
/// What was taken over, or why nothing was.
pub(crate) type Outcome = Result<String, String>;

/// What reloads, on whatever thread.
pub(crate) struct Reloader {
    /// Reads and checks the file.
    pub(crate) load: Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) logging: Arc<Logging>,
}

impl Reloader {
    /// Takes over a changed file. Nothing changes if anything in it is wrong or refused.
    pub(crate) fn reload(&self) -> Outcome {
        let result = (self.load)().and_then(|Loaded { config, places, moved }| {
            moved.iter().for_each(|moved| tracing::warn!("{moved}"));
            let mut difference = self.agent.reload(&config).map_err(|error| located(&places, error.into()))?;
            self.logging.set_rate(config.log_rate);
            let overruled = self.take_over_levels(&config, &mut difference).map_err(|error| error.to_string())?;
            Ok(format!("{difference}{overruled}\n"))
        });
        self.agent.recent.note_reload(result.is_ok(), SystemTime::now());
        match &result {
            Ok(text) => {
                tracing::info!("reloaded, {}", text.trim_end());
                self.agent.events.note(format!("reloaded, {}", text.trim_end()));
            }
            Err(error) => {
                tracing::error!("reload: {error}; nothing is changed");
                self.agent.events.note("a reload failed, and nothing is changed; the log has the reason");
            }
        }
        result
    }
}

impl Reloader {
    /// Sets the levels of the log if the file says others than before: those that were set at run time stay as long as it does not. Returns
    /// what is to be told if `RUST_LOG` wins.
    fn take_over_levels(&self, config: &Config, difference: &mut Difference) -> Result<&'static str, LogError> {
        let place = difference.applicable.iter().position(|key| key == LEVEL_KEY);
        let Some(place) = place else { return Ok("") };
        if self.logging.take_over(&config.log)? {
            return Ok("");
        }
        difference.applicable.remove(place);
        Ok("; log.level stays as RUST_LOG says")
    }
}

/// An error of the agent, with the line of the file that it is about.
pub(crate) fn located(places: &Places, error: AgentError) -> String {
    match error {
        AgentError::Object(error) => places.of_object(&error.object, error.reason).to_string(),
        error => error.to_string(),
    }
}

/// Reloads that are asked for: one at a time, each on a thread of its own, so that a file that cannot be read holds up nothing
/// but reloads. All that is asked for while one is under way is done by one more, which reads the file after that.
pub(crate) struct Reloads {
    reload: Arc<dyn Fn() -> Outcome + Send + Sync>,
    under_way: Option<JoinHandle<Outcome>>,
    /// Who waits for the one under way.
    replies: Vec<Reply>,
    /// Who waits for the next one, if it is asked for.
    next: Option<Vec<Reply>>,
}

impl Reloads {
    pub(crate) fn new(reload: impl Fn() -> Outcome + Send + Sync + 'static) -> Self {
        Self { reload: Arc::new(reload), under_way: None, replies: Vec::new(), next: None }
    }

    /// Asks for a reload.
    pub(crate) fn ask(&mut self, reply: Option<Reply>) {
        self.next.get_or_insert_default().extend(reply);
        self.begin();
    }

    /// Ends when the reload under way has. Can be given up and called again.
    pub(crate) async fn finished(&mut self) {
        let Some(under_way) = &mut self.under_way else { return pending().await };
        let outcome = under_way.await.unwrap_or_else(|error| Err(format!("the reload was cut off: {error}")));
        self.under_way = None;
        for reply in self.replies.drain(..) {
            reply(outcome.clone());
        }
        self.begin();
    }

    /// Takes on no more, and waits for the one under way, at most so long: what it puts into the device must not come after the last work of
    /// the agent.
    pub(crate) async fn end(mut self, at_most: Duration) {
        self.next = None;
        if self.under_way.is_some() && timeout(at_most, self.finished()).await.is_err() {
            tracing::warn!("a reload has not come to its end within {at_most:?} and is left behind");
        }
    }

    fn begin(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        if let Some(replies) = self.next.take() {
            self.replies = replies;
            let reload = self.reload.clone();
            self.under_way = Some(spawn_blocking(move || reload()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, unbounded};

    use super::*;

    /// Reloads that begin and end by two channels.
    fn reloads() -> (Reloads, Receiver<()>, Sender<()>) {
        let ((begin, begun), (end, ended)) = (unbounded(), unbounded());
        let reload = move || {
            begin.send(()).unwrap();
            ended.recv().map_err(|_| "given up".to_owned())?;
            Ok("changed\n".to_owned())
        };
        (Reloads::new(reload), begun, end)
    }

    /// A reply, and where it is heard.
    fn reply() -> (Reply, Receiver<Outcome>) {
        let (answer, answered) = unbounded();
        (Box::new(move |outcome| answer.send(outcome).unwrap()), answered)
    }

    #[tokio::test]
    async fn an_agent_that_ends_waits_for_the_reload_under_way_and_begins_no_other() {
        let (mut reloads, begun, end) = reloads();
        let ((first, heard_first), (second, heard_second)) = (reply(), reply());
        reloads.ask(Some(first));
        begun.recv().unwrap();
        reloads.ask(Some(second));
        let ending = tokio::spawn(reloads.end(Duration::from_secs(3600)));
        tokio::task::yield_now().await;
        assert!(!ending.is_finished());
        assert!(heard_second.try_recv().is_err());
        end.send(()).unwrap();
        ending.await.unwrap();
        assert_eq!(heard_first.try_recv().unwrap(), Ok("changed\n".to_owned()));
        assert!(heard_second.recv().is_err(), "nobody answers it");
        assert!(begun.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_reload_that_hangs_does_not_keep_the_agent_from_ending() {
        let (mut reloads, begun, _end) = reloads();
        reloads.ask(None);
        begun.recv().unwrap();
        reloads.end(Duration::ZERO).await;
    }
}
