//! Taking over a changed configuration file, beside everything else that the daemon does.

use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::agent::{Agent, AgentError};
use crate::config::{Loaded, Places};
use sluice_host::logging::Logging;

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
    fn reload(&self) -> Outcome {
        let result = (self.load)().and_then(|Loaded { config, places, moved }| {
            moved.iter().for_each(|moved| tracing::warn!("{moved}"));
            let difference = self.agent.reload(&config).map_err(|error| located(&places, error.into()))?;
            self.logging.reload(&config.log, config.log_rate).map_err(|error| error.to_string())?;
            Ok(format!("{difference}\n"))
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
    reloader: Arc<Reloader>,
    under_way: Option<JoinHandle<Outcome>>,
    /// Who waits for the one under way.
    replies: Vec<Reply>,
    /// Who waits for the next one, if it is asked for.
    next: Option<Vec<Reply>>,
}

impl Reloads {
    pub(crate) fn new(reloader: Reloader) -> Self {
        Self { reloader: Arc::new(reloader), under_way: None, replies: Vec::new(), next: None }
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

    fn begin(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        if let Some(replies) = self.next.take() {
            self.replies = replies;
            let reloader = self.reloader.clone();
            self.under_way = Some(spawn_blocking(move || reloader.reload()));
        }
    }
}
