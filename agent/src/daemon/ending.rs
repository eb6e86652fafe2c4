//! The end of the agent: what is left in the device, and who hears of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_host::lifecycle::StopReport;
use sluice_unixctl::Deferred;

use crate::agent::Agent;
use crate::config::OnExit;
use crate::upkeep::cleanup::{Left, clean_up, unfinished};

/// How the agent ends.
#[derive(Default)]
pub(super) struct Ending {
    /// Whether nothing is to be left in the device, whatever the configuration says.
    is_cleanup_asked_for: AtomicBool,
    /// What the device keeps because others use it, or what of ours is left there; nothing before the cleanup has come to its end.
    cleaned: OnceLock<Result<Vec<String>, Left>>,
    /// Clients that have asked for the end.
    waiting: Mutex<Vec<Deferred>>,
}

impl Ending {
    pub(super) fn ask_for_cleanup(&self) {
        self.is_cleanup_asked_for.store(true, Ordering::Relaxed);
    }

    pub(super) fn wants_cleanup(&self, agent: &Agent) -> bool {
        self.is_cleanup_asked_for.load(Ordering::Relaxed) || agent.config().on_exit == OnExit::Flush
    }

    pub(super) fn clean_up(&self, agent: &Agent) {
        let cleaned = clean_up(agent);
        match &cleaned {
            Ok(used) => used.iter().for_each(|what| tracing::warn!("left in the device: {what}")),
            Err(left) => tracing::error!("{left}"),
        }
        // There is one last work.
        let _ = self.cleaned.set(cleaned);
    }

    /// Keeps the clients that have asked for the end, until it has come.
    pub(super) fn keep(&self, waiting: Vec<Deferred>) {
        *self.waiting.lock() = waiting;
    }

    /// Tells them, once all parts have stopped. `sweep` is the command that takes out what is left.
    pub(super) async fn answer(&self, agent: &Agent, report: &StopReport, sweep: &str) {
        let unfinished = (self.wants_cleanup(agent) && self.cleaned.get().is_none()).then(|| unfinished(agent));
        unfinished.iter().for_each(|left| tracing::error!("{left}"));
        let cleaned = unfinished.as_ref().map(Err).or_else(|| self.cleaned.get().map(Result::as_ref));
        let rules_stay = agent.backend.adoption().is_some();
        let outcome = outcome(cleaned, rules_stay, report, sweep);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for client in waiting {
            client.answer(outcome.as_deref().map_err(String::as_str)).await;
        }
    }
}

/// What whoever has asked for the end hears of it. Rules may go with the agent, so that none of them stays.
fn outcome(
    cleaned: Option<Result<&Vec<String>, &Left>>,
    rules_stay: bool,
    report: &StopReport,
    sweep: &str,
) -> Result<String, String> {
    let (mut said, mut failed) = (Vec::new(), Vec::new());
    match cleaned {
        None => {}
        Some(Ok(used)) => said.extend(used.iter().map(|what| format!("left in the device: {what}"))),
        Some(Err(left)) if !rules_stay => said.push(format!("{left}; what is left goes with the agent")),
        Some(Err(left @ Left::Objects(_))) => failed.push(left.to_string()),
        Some(Err(left @ (Left::Rules { .. } | Left::Unknown(_)))) => failed.push(format!(
            "{left}; the next start takes them out, and so does `{sweep}`, for the service `systemctl start sluiced-sweep`"
        )),
    }
    if !report.is_clean() {
        let is_empty = if matches!(cleaned, Some(Ok(_))) { "; the device has no rule of ours" } else { "" };
        failed.push(format!("the agent has not ended in order: {report}{is_empty}"));
    }
    if failed.is_empty() { Ok(said.join("\n")) } else { Err(failed.join("\n")) }
}

#[cfg(test)]
mod tests {
    use sluice_flow::Refusal;
    use sluice_host::lifecycle::Death;

    use super::*;

    const SWEEP: &str = "sluiced --sweep --config /etc/sluice/sluiced.toml";

    fn unknown() -> Left {
        Left::Unknown(Refusal::Busy { reason: "the device has not let them go in time".into() })
    }

    #[test]
    fn who_has_asked_for_the_end_hears_of_rules_that_are_left_and_what_takes_them_out() {
        let in_order = StopReport::default();
        let left = outcome(Some(Err(&unknown())), true, &in_order, SWEEP).unwrap_err();
        let begin = "rules may be left in the device: busy: the device has not let them go in time; the next start takes them out, and \
                     so does `sluiced --sweep --config /etc/sluice/sluiced.toml`";
        assert!(left.starts_with(begin), "{left}");
        // Where they go with the agent, there is nothing to be done.
        let left = outcome(Some(Err(&unknown())), false, &in_order, SWEEP).unwrap();
        assert!(left.ends_with("in time; what is left goes with the agent"), "{left}");
        let objects = Left::Objects(Refusal::Device { reason: "it is asleep".into() });
        let left = outcome(Some(Err(&objects)), true, &in_order, SWEEP).unwrap_err();
        assert_eq!(left, "what was made for ports and meters is left in the device: device: it is asleep");
    }

    #[test]
    fn an_end_in_order_that_leaves_nothing_says_nothing_and_what_others_use_is_no_failure() {
        let in_order = StopReport::default();
        assert_eq!(outcome(None, true, &in_order, SWEEP), Ok(String::new()));
        assert_eq!(outcome(Some(Ok(&Vec::new())), true, &in_order, SWEEP), Ok(String::new()));
        let used = vec!["the queueing discipline of p0".to_owned()];
        let said = outcome(Some(Ok(&used)), true, &in_order, SWEEP);
        assert_eq!(said, Ok("left in the device: the queueing discipline of p0".to_owned()));
    }

    #[test]
    fn an_end_that_is_not_in_order_is_a_failure_whether_rules_are_left_or_not() {
        let (part, reason) = ("source-ovs".to_owned(), "leaves rules in the device".to_owned());
        let report = StopReport { failed: vec![Death { part, reason }], late: Vec::new() };
        let said = "the agent has not ended in order: source-ovs leaves rules in the device";
        assert_eq!(outcome(None, true, &report, SWEEP).unwrap_err(), said);
        let cleaned = outcome(Some(Ok(&Vec::new())), true, &report, SWEEP).unwrap_err();
        assert_eq!(cleaned, format!("{said}; the device has no rule of ours"));
        assert_eq!(outcome(Some(Err(&unknown())), true, &report, SWEEP).unwrap_err().lines().count(), 2);
    }
}
