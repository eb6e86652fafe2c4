//! The parts of the daemon that serve somebody or look after something, each as a part of its lifecycle.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use sluice_control::{READY, READY_COMMAND};
use sluice_host::http::{HTML_CONTENT_TYPE, HttpServer, StatusCode, TEXT_CONTENT_TYPE};
use sluice_host::lifecycle::Lifecycle;
use sluice_unixctl::{Admission, Command, Output, Registry, Server, ServerOptions};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Daemon, Error, Request};
use crate::api::{self, Listeners};
use crate::commands;
use crate::mirroring;
use crate::observe::coverage;
use crate::observe::measures::Reading;
use crate::observe::metrics::Metrics;
use crate::observe::status_page::StatusPage;
use crate::reload::Outcome;

/// How long a server may take to stop, running requests included.
const SERVER_DEADLINE: Duration = Duration::from_secs(6);

impl Daemon {
    /// Notes now and then how often what has happened.
    pub(super) fn note_coverage(&self, lifecycle: &mut Lifecycle) {
        let agent = self.agent.clone();
        lifecycle.task("coverage", SERVER_DEADLINE, |stop| async move {
            let mut times = interval_at(Instant::now() + coverage::INTERVAL, coverage::INTERVAL);
            times.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let stopped = stop.requested();
            tokio::pin!(stopped);
            loop {
                tokio::select! {
                    () = &mut stopped => return Ok(()),
                    _ = times.tick() => agent.coverage.note(&Reading::take(&agent, None).coverage()),
                }
            }
        });
    }

    /// Notes when the flows of earlier runs are in the device again.
    pub(super) fn note_reinstatement(&self, lifecycle: &mut Lifecycle) {
        const LOOK: Duration = Duration::from_millis(50);
        let agent = self.agent.clone();
        lifecycle.task("reinstatement", SERVER_DEADLINE, |stop| async move {
            let stopped = stop.requested();
            tokio::pin!(stopped);
            while !agent.look_for_reinstatement() {
                tokio::select! {
                    () = &mut stopped => return Ok(()),
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
            stopped.await;
            Ok(())
        });
    }

    pub(super) fn serve_http(
        &self,
        lifecycle: &mut Lifecycle,
        server: HttpServer,
        metrics: Arc<Metrics>,
    ) -> Result<(), Error> {
        let ready = metrics.clone();
        let status = StatusPage::new(self.agent.clone());
        let (liveness, clock) = (lifecycle.liveness(), self.agent.clock.clone());
        let server = server
            .negotiated_page("/metrics", move |accept| match metrics.negotiated(accept) {
                Ok((content_type, text)) => (StatusCode::OK, content_type, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT_CONTENT_TYPE, format!("{error}\n")),
            })
            .page("/", move || (StatusCode::OK, HTML_CONTENT_TYPE, status.html()))
            .page("/healthz", move || match liveness.look(clock.now()) {
                Ok(()) => (StatusCode::OK, TEXT_CONTENT_TYPE, "ok\n".to_owned()),
                Err(hang) if hang.is_of_disk() => (StatusCode::OK, TEXT_CONTENT_TYPE, format!("{hang}\n")),
                Err(hang) => (StatusCode::SERVICE_UNAVAILABLE, TEXT_CONTENT_TYPE, format!("{hang}\n")),
            })
            .page("/readyz", move || match ready.readiness() {
                Ok(()) => (StatusCode::OK, TEXT_CONTENT_TYPE, format!("{READY}\n")),
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, TEXT_CONTENT_TYPE, format!("{reason}\n")),
            });
        tracing::info!("metrics at http://{0}/metrics, status page at http://{0}/", server.address()?);
        lifecycle.task("http", SERVER_DEADLINE, |stop| async move {
            server.run(stop.requested()).await;
            Ok(())
        });
        Ok(())
    }

    /// Hands out plans and copies.
    pub(super) fn serve_mirror(&self, lifecycle: &mut Lifecycle, listener: OwnedFd) {
        let handout = self.agent.mirroring.handout().clone();
        lifecycle.task("mirror", SERVER_DEADLINE, |stop| async move {
            mirroring::server::serve(listener, handout, stop.requested()).await.map_err(|error| error.to_string())
        });
    }

    pub(super) fn serve_api(&self, lifecycle: &mut Lifecycle, listeners: Listeners) {
        if let Some(address) = listeners.address() {
            tracing::info!("gRPC at {address}");
        }
        let agent = self.agent.clone();
        lifecycle.task("api", SERVER_DEADLINE, |stop| api::serve(agent, listeners, stop.requested()));
    }

    pub(super) fn serve_control(
        &self,
        lifecycle: &mut Lifecycle,
        (listener, group): (UnixListener, Option<u32>),
        metrics: Arc<Metrics>,
        ask: mpsc::UnboundedSender<Request>,
    ) -> Result<(), Error> {
        let mut registry = Registry::new(concat!("sluiced (Sluice) ", env!("CARGO_PKG_VERSION")));
        commands::register(&mut registry, &self.agent);
        let (ending, exit) = (self.ending.clone(), ask.clone());
        registry.register(Command {
            name: "exit",
            usage: "[--cleanup]",
            min_args: 0,
            max_args: 1,
            run: Box::new(move |request, out| {
                match request.args {
                    [] => {}
                    [word] if word == "--cleanup" => ending.ask_for_cleanup(),
                    [word, ..] => return Err(format!("Unrecognized option {word}")),
                }
                // The end of an agent that stops already is waited for, too.
                let _ = exit.send(Request::Exit);
                out.defer();
                Ok(())
            }),
        });
        registry.register(Command {
            name: READY_COMMAND,
            usage: "",
            min_args: 0,
            max_args: 0,
            run: Box::new(move |_, out| {
                let answer = metrics.readiness().err();
                writeln!(out, "{}", answer.as_deref().unwrap_or(READY)).map_err(|_| "the client is gone".to_owned())
            }),
        });
        registry.register(Command {
            name: "sluice/reload",
            usage: "",
            min_args: 0,
            max_args: 0,
            run: Box::new(move |_, out| {
                let (answer, answered) = crossbeam_channel::bounded(1);
                let reply = Box::new(move |result| drop(answer.send(result)));
                ask.send(Request::Reload(reply)).map_err(|_| STOPPING.to_owned())?;
                let text = outcome(&answered, out)?;
                out.write_str(&text).map_err(|_| "the client is gone".to_owned())
            }),
        });
        let logging = self.logging.clone();
        registry.register(Command {
            name: "vlog/list",
            usage: "",
            min_args: 0,
            max_args: 0,
            run: Box::new(move |_, out| {
                writeln!(out, "{}", logging.level()).map_err(|_| "the client is gone".to_owned())
            }),
        });
        let logging = self.logging.clone();
        registry.register(Command {
            name: "vlog/set",
            usage: "[[module:]destination:]level | levels",
            min_args: 1,
            max_args: 1,
            run: Box::new(move |request, _| {
                let levels = vlog_levels(&request.args[0]);
                logging.set_level(levels).map_err(|error| error.to_string())
            }),
        });
        let options = ServerOptions { admission: Admission::new(group), ..ServerOptions::default() };
        let server = Server::new(listener, Arc::new(registry), options)?;
        let ending = self.ending.clone();
        lifecycle.task("control", SERVER_DEADLINE, |stop| async move {
            ending.keep(server.run(stop.requested()).await);
            Ok(())
        });
        Ok(())
    }
}

/// What came of a reload. Does not wait for one that hangs once the client is gone: each that does keeps another client out.
fn outcome(answered: &Receiver<Outcome>, out: &dyn Output) -> Outcome {
    const LOOK: Duration = Duration::from_millis(250);
    loop {
        match answered.recv_timeout(LOOK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if out.is_wanted() => {}
            Err(_) => return Err(STOPPING.to_owned()),
        }
    }
}

const STOPPING: &str = "the agent is stopping";

/// Levels in our words: OVS's own are taken, too, for everything at once, as in `ANY:ANY:dbg`.
fn vlog_levels(spec: &str) -> &str {
    let is_any = |word: &str| word.eq_ignore_ascii_case("any") || ["console", "syslog", "file"].contains(&word);
    let level = match spec.rsplit_once(':') {
        Some((before, level)) if before.split(':').all(is_any) => level,
        _ => spec,
    };
    match level {
        "dbg" => "debug",
        "emer" | "err" => "error",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// An answer that nobody wants any more.
    struct Unwanted;

    impl fmt::Write for Unwanted {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Err(fmt::Error)
        }
    }

    impl Output for Unwanted {
        fn flush(&mut self) -> fmt::Result {
            Err(fmt::Error)
        }

        fn is_wanted(&self) -> bool {
            false
        }

        fn defer(&mut self) {}
    }

    #[test]
    fn nobody_waits_for_a_reload_that_hangs_once_its_client_is_gone() {
        let (answer, answered) = crossbeam_channel::bounded(1);
        outcome(&answered, &Unwanted).unwrap_err();
        answer.send(Ok("changed: port".to_owned())).unwrap();
        assert_eq!(outcome(&answered, &String::new()).unwrap(), "changed: port");
    }
}
