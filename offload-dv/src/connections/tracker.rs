//! The thread that brings connections from their source to the switch, and tells the source which of them packets go by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::bounded;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::{Clock, Timestamp};

use super::source::{ConnectionSource, SourceError};
use crate::owner::Owner;
use crate::switch::{Connected, ConnectionChange, Switch};

/// How long it waits for changes before it looks at its other work. That the agent ends is seen as soon.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same while there is other work.
const HARDLY: Duration = Duration::from_millis(1);
/// How often it looks which connections packets went by.
const COUNT_PERIOD: Duration = Duration::from_secs(10);
/// How often all connections are listed, whatever was told: of those that began before it listened, the kernel tells nothing
/// (`nf_conntrack_events` of 2).
const LIST_PERIOD: Duration = Duration::from_secs(60);
/// How long it waits after a source has failed.
const RETRY: Duration = Duration::from_secs(1);
/// Connections that the thread of the device changes at once: others wait for it meanwhile.
const BATCH: usize = 64;
/// Connections live for this after a packet at least, whatever the source said when it told of them
/// (`nf_conntrack_udp_timeout`).
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);

/// The thread. It ends when this is dropped.
pub(crate) struct Tracker {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tracker {
    pub(crate) fn start(
        source: Box<dyn ConnectionSource>,
        owner: Arc<Owner>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Refusal> {
        let is_ended = Arc::new(AtomicBool::new(false));
        let filled = Connected::default();
        let work = Work { source, owner, clock, is_ended: is_ended.clone(), listed: None, filled };
        let thread = thread::Builder::new().name("dv-connections".to_owned()).spawn(|| work.run());
        let thread = thread.map_err(|error| Refusal::Device { reason: error.to_string().into() })?;
        Ok(Self { is_ended, thread: Some(thread) })
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the connections has ended by itself");
        }
    }
}

struct Work {
    source: Box<dyn ConnectionSource>,
    owner: Arc<Owner>,
    clock: Arc<dyn Clock>,
    is_ended: Arc<AtomicBool>,
    /// When all connections were listed; `None` if some of what happened since is not known.
    listed: Option<Timestamp>,
    /// What has become so far of connections that are brought to tables that flows have opened.
    filled: Connected,
}

/// Why the thread cannot go on now.
enum Failure {
    Source(SourceError),
    Device(Refusal),
}

impl Work {
    fn run(mut self) {
        let mut counted = self.clock.now();
        while !self.is_ended.load(Ordering::Relaxed) {
            let done = self.round(&mut counted);
            match done {
                Ok(()) => {}
                Err(Failure::Source(SourceError::Lost)) => {
                    tracing::warn!("changes of connections were lost: all of them are listed again");
                    self.listed = None;
                }
                Err(Failure::Source(error)) => {
                    tracing::error!("connections: {error}");
                    self.listed = None;
                    thread::sleep(RETRY);
                }
                Err(Failure::Device(refusal)) => {
                    tracing::error!("connections: {refusal}");
                    self.listed = None;
                    thread::sleep(RETRY);
                }
            }
        }
    }

    fn round(&mut self, counted: &mut Timestamp) -> Result<(), Failure> {
        let now = self.clock.now();
        if self.listed.is_none_or(|listed| now.since(listed) >= LIST_PERIOD) {
            self.list()?;
            self.listed = Some(now);
        }
        let mut changes = Vec::new();
        let patience = if self.filled.is_unfinished { HARDLY } else { PATIENCE };
        let heard = self.source.wait(patience, &mut changes);
        self.change(changes)?;
        heard.map_err(Failure::Source)?;
        // A flow may have opened a table for connections that were there before.
        let filled = self.switch(|switch| switch.fill_connections(BATCH))?;
        self.filled.add(filled);
        if !self.filled.is_unfinished {
            note(&std::mem::take(&mut self.filled));
        }
        if now.since(*counted) >= COUNT_PERIOD {
            *counted = now;
            self.keep_moved()?;
        }
        Ok(())
    }

    fn list(&mut self) -> Result<(), Failure> {
        self.switch(Switch::begin_listing)?;
        let mut all = Vec::new();
        let mut see = |connection| all.push(ConnectionChange::Is(Box::new(connection)));
        self.source.list(&mut see).map_err(Failure::Source)?;
        self.change(all)?;
        self.switch(Switch::end_listing)?;
        while self.switch(|switch| switch.forget_unlisted(BATCH))? {}
        Ok(())
    }

    fn change(&mut self, changes: Vec<ConnectionChange>) -> Result<(), Failure> {
        let mut changes = changes.into_iter();
        let mut changed = Connected::default();
        loop {
            let batch: Vec<_> = changes.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            changed.add(self.switch(|switch| switch.change_connections(batch))?);
        }
        note(&changed);
        Ok(())
    }

    fn keep_moved(&mut self) -> Result<(), Failure> {
        for bulk in self.switch(|switch| Ok(switch.bulks_of_connections()))? {
            self.read(bulk).map_err(Failure::Device)?;
        }
        let mut moved = self.switch(|switch| Ok(switch.moved_connections()))?;
        moved.iter_mut().for_each(|connection| connection.timeout = connection.timeout.max(LEAST_TIMEOUT));
        self.source.keep(&moved).map_err(Failure::Source)
    }

    /// Waits until the counters of a bulk are told; the thread of the device does not.
    fn read(&self, bulk: usize) -> Result<(), Refusal> {
        let (tell, told) = bounded(1);
        self.owner.post(move |desk| desk.ask_then(bulk, move |_, _| tell.send(()).unwrap_or_default()))?;
        self.owner.wait(&told)
    }

    fn switch<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Switch) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Failure> {
        self.owner.call(|desk| work(desk.rules.switch())).and_then(|done| done).map_err(Failure::Device)
    }
}

fn note(connected: &Connected) {
    if let Some(reason) = &connected.reason {
        tracing::warn!("{} connections are left to software: {reason}", connected.refused);
    }
}
