//! Leases: what becomes of an owner's flows once the owner is not heard of any more.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sluice_flow::ControllerName;
use sluice_host::own_folder::{FolderError, OwnFolder};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::Api;
use crate::service::{Accepted, Error, Service};

/// The shortest and the longest time of a lease.
pub(super) const TIMES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30 * 86_400);

/// In the state folder.
const FILE: &str = "leases.json";

/// Longer than the terms of [`MOST`] leases.
const MOST_BYTES: u64 = 64 << 10;

/// As many leases as are held at a time.
pub(super) const MOST: usize = 256;

/// When the end of a lease is tried again that could not be brought about, or not be written down, or that the agent had no thread for.
const AGAIN: Duration = Duration::from_secs(1);

/// The idle timeout of flows that are aged, if the configuration has none.
const IDLE: Duration = Duration::from_secs(10);

/// What is said of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Terms {
    /// How long it holds after it was taken or renewed.
    pub(super) time: Duration,
    pub(super) end: End,
}

/// What becomes of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum End {
    /// They stay.
    Keep,
    /// They age.
    Age,
    /// They are deleted.
    Remove,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) terms: Terms,
    pub(super) until: Instant,
    /// Flows to which the end was brought so far, in all tries.
    ended: u64,
}

/// All leases. The file has their terms alone, so that it is not written at each renewal; after a restart each has its whole time before it.
pub(super) struct Leases {
    /// Never held while the disk is waited for: leases are renewed, and end, on a disk that hangs, too.
    held: Mutex<BTreeMap<ControllerName, Lease>>,
    /// Held from a change of the terms to its being written, and taken before `held`.
    writing: Mutex<()>,
    /// A lease was taken, which may be the next to end.
    taken: Notify,
    folder: Option<OwnFolder>,
}

/// Why leases of an earlier run cannot be read, or none is taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeasesError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{MOST} owners hold leases, which is the most")]
    TooMany,
    #[error("cannot read {FILE} in the state folder: {0}; if it is removed, no lease is held")]
    Read(String),
}

impl Leases {
    /// The leases of earlier runs, in a folder where they are kept; none without one.
    pub(super) fn open(state_dir: Option<&Path>) -> Result<Self, LeasesError> {
        let folder = state_dir.map(|state_dir| OwnFolder::claim(state_dir, 0o700)).transpose()?;
        let text = match folder.as_ref().map(|folder| folder.read_bounded(FILE, MOST_BYTES)) {
            Some(Err(error)) if !error.is_not_found() => return Err(error.into()),
            read => read.and_then(Result::ok),
        };
        let terms: HashMap<String, Terms> = match text {
            Some(text) => serde_json::from_str(&text).map_err(|error| LeasesError::Read(error.to_string()))?,
            None => HashMap::new(),
        };
        let mut held = BTreeMap::new();
        for (owner, terms) in terms {
            let owner = owner.parse().map_err(|error| LeasesError::Read(format!("{error}")))?;
            if !TIMES.contains(&terms.time) {
                return Err(LeasesError::Read(format!("{owner}: {:?} is not 100 ms to 30 days", terms.time)));
            }
            held.insert(owner, Lease::new(terms));
        }
        Ok(Self { held: Mutex::new(held), writing: Mutex::default(), taken: Notify::new(), folder })
    }

    /// Takes a lease, or renews it.
    pub(super) fn take(&self, owner: ControllerName, terms: Terms) -> Result<Lease, LeasesError> {
        let lease = match self.renew(owner, terms) {
            Some(lease) => lease,
            None => self.take_anew(owner, terms)?,
        };
        self.taken.notify_one();
        Ok(lease)
    }

    /// Renews a lease with terms that are written already.
    fn renew(&self, owner: ControllerName, terms: Terms) -> Option<Lease> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&owner).filter(|lease| lease.terms == terms)?;
        *lease = Lease::new(terms);
        Some(*lease)
    }

    /// Takes a lease, once its terms are written.
    fn take_anew(&self, owner: ControllerName, terms: Terms) -> Result<Lease, LeasesError> {
        let _one_at_a_time = self.writing.lock();
        let mut next = self.all();
        if next.len() >= MOST && !next.contains_key(&owner) {
            return Err(LeasesError::TooMany);
        }
        next.insert(owner, Lease::new(terms));
        self.keep(&next)?;
        let lease = Lease::new(terms);
        self.held.lock().insert(owner, lease);
        Ok(lease)
    }

    /// Gives a lease back. If that cannot be written down, it is still held.
    pub(super) fn release(&self, owner: ControllerName) -> Result<(), FolderError> {
        self.remove(owner, |_| true)
    }

    /// Gives each lease its whole time, from now on.
    fn begin_anew(&self) {
        let now = Instant::now();
        self.held.lock().values_mut().for_each(|lease| lease.until = now + lease.terms.time);
    }

    pub(super) fn all(&self) -> BTreeMap<ControllerName, Lease> {
        self.held.lock().clone()
    }

    /// Returns when a lease has ended.
    async fn next_end(&self) {
        loop {
            let next = self.held.lock().values().map(|lease| lease.until).min();
            let ended = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.taken.notified() => {}
                () = ended => return,
            }
        }
    }

    /// Those that have ended by now.
    fn ended(&self) -> Vec<(ControllerName, Terms)> {
        let held = self.held.lock();
        held.iter().filter(|(_, lease)| lease.has_ended()).map(|(owner, lease)| (*owner, lease.terms)).collect()
    }

    /// Whether a lease is held that has ended.
    fn has_ended(&self, owner: ControllerName) -> bool {
        self.held.lock().get(&owner).is_some_and(Lease::has_ended)
    }

    /// Does something of what was agreed, as long as the lease that has ended is not held again: its owner cannot take it meanwhile. Returns
    /// whether it was done.
    fn while_ended(&self, owner: ControllerName, act: &mut dyn FnMut()) -> bool {
        let held = self.held.lock();
        let has_ended = held.get(&owner).is_some_and(Lease::has_ended);
        if has_ended {
            act();
        }
        has_ended
    }

    /// Adds flows to which the end of a lease was brought. Returns how many these are in all, unless the lease is held again.
    fn count_ended(&self, owner: ControllerName, flows: u64) -> u64 {
        match self.held.lock().get_mut(&owner).filter(|lease| lease.has_ended()) {
            Some(lease) => {
                lease.ended += flows;
                lease.ended
            }
            None => flows,
        }
    }

    /// Takes out a lease that has ended, unless it was renewed meanwhile. If that cannot be written down, it stays.
    fn forget(&self, owner: ControllerName) -> Result<(), FolderError> {
        self.remove(owner, Lease::has_ended)
    }

    /// Takes a lease out that is over, once that is written. One that is renewed meanwhile stays.
    fn remove(&self, owner: ControllerName, is_over: impl Fn(&Lease) -> bool) -> Result<(), FolderError> {
        let _one_at_a_time = self.writing.lock();
        let mut next = self.all();
        if !next.get(&owner).is_some_and(&is_over) {
            return Ok(());
        }
        next.remove(&owner);
        self.keep(&next)?;
        let renewed = {
            let mut held = self.held.lock();
            if held.get(&owner).is_some_and(&is_over) {
                held.remove(&owner);
                return Ok(());
            }
            held.clone()
        };
        self.keep(&renewed)
    }

    fn keep(&self, held: &BTreeMap<ControllerName, Lease>) -> Result<(), FolderError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let terms: BTreeMap<&str, Terms> = held.iter().map(|(owner, lease)| (&**owner, lease.terms)).collect();
        // Names and numbers are written whatever they are.
        let text = serde_json::to_vec_pretty(&terms).unwrap_or_default();
        folder.replace(FILE, &text, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
    }
}

impl Lease {
    /// One that is taken now.
    fn new(terms: Terms) -> Self {
        Self { terms, until: Instant::now() + terms.time, ended: 0 }
    }

    fn has_ended(&self) -> bool {
        self.until <= Instant::now()
    }
}

/// Does what was agreed of leases that end, for as long as it is run.
pub(super) async fn end_leases(api: Arc<Api>) {
    // Nobody could renew them before.
    api.leases.begin_anew();
    loop {
        api.leases.next_end().await;
        for (owner, terms) in api.leases.ended() {
            let done = api.blocking(move |api| end(api, owner, terms)).await;
            if let Ok(Err(error)) = &done {
                tracing::error!("the lease of {owner} has ended, and its end is tried again: {error}");
            }
            if !matches!(done, Ok(Ok(()))) {
                sleep(AGAIN).await;
            }
        }
    }
}

/// Why the end of a lease is not over.
#[derive(Debug, thiserror::Error)]
enum EndError {
    #[error("{what}, and {error}")]
    Folder { what: String, error: FolderError },
    #[error(transparent)]
    Service(#[from] Error),
}

/// Does what was agreed. The lease is forgotten last: whatever fails, or kills the agent, before that leaves it to be ended again.
fn end(api: &Api, owner: ControllerName, terms: Terms) -> Result<(), EndError> {
    if !api.leases.has_ended(owner) {
        return Ok(());
    }
    let service: &Service = &api.service;
    let origin = sluice_flow::Origin::Controller(owner);
    // Flows are its own again from the moment at which it is back.
    let step = |act: &mut dyn FnMut()| api.leases.while_ended(owner, act);
    // Counted before it is durable: if it does not become so, the next try finds nothing of it left to do.
    let bring_about = |accepted: Accepted<'_, u64>| {
        let flows = api.leases.count_ended(owner, *accepted.change());
        accepted.durable().map(|_| flows)
    };
    let what = match terms.end {
        End::Keep => "its flows stay".to_owned(),
        End::Age => {
            let flows = bring_about(service.age_owned(origin, IDLE, &step))?;
            format!("{flows} flows that would never have gone age from now on")
        }
        End::Remove => format!("{} flows are deleted", bring_about(service.delete_owned(origin, &step))?),
    };
    if let Err(error) = api.leases.forget(owner) {
        return Err(EndError::Folder { what, error });
    }
    tracing::warn!("the lease of {owner} has ended, which was not renewed for {:?}: {what}", terms.time);
    api.note(format!("the lease of {owner} has ended: {what}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_when_it_is_not_renewed_and_outlives_the_agent() {
        let scratch = TempDir::new().unwrap();
        let (owner, terms) = ("ovn".parse().unwrap(), Terms { time: Duration::from_secs(10), end: End::Remove });
        let leases = Leases::open(Some(scratch.path())).unwrap();
        leases.take(owner, terms).unwrap();
        tokio::time::advance(Duration::from_secs(6)).await;
        leases.take(owner, terms).unwrap();
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(leases.ended().is_empty(), "it was renewed");
        let leases = Leases::open(Some(scratch.path())).unwrap();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(leases.ended().is_empty(), "after a restart it has its whole time");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(leases.ended(), [(owner, terms)]);
        assert!(leases.has_ended(owner));
        leases.forget(owner).unwrap();
        assert!(!leases.has_ended(owner), "once");
        assert!(Leases::open(Some(scratch.path())).unwrap().all().is_empty());
    }

    #[tokio::test]
    async fn a_time_that_no_lease_has_is_refused_with_its_owner() {
        let scratch = TempDir::new().unwrap();
        drop(Leases::open(Some(scratch.path())).unwrap());
        let text = format!(r#"{{"ovn": {{"time": {{"secs": {}, "nanos": 0}}, "end": "keep"}}}}"#, u64::MAX);
        std::fs::write(scratch.path().join(FILE), text).unwrap();
        let Err(error) = Leases::open(Some(scratch.path())) else { panic!("it is longer than any clock counts") };
        assert!(error.to_string().contains("leases.json in the state folder: ovn: "), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_has_its_whole_time_from_when_it_can_be_renewed() {
        let leases = Leases::open(None).unwrap();
        let (owner, terms) = ("ovn".parse().unwrap(), Terms { time: Duration::from_secs(2), end: End::Remove });
        leases.take(owner, terms).unwrap();
        // The agent loads its log and looks through the device.
        tokio::time::advance(Duration::from_secs(30)).await;
        leases.begin_anew();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(leases.ended().is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(leases.ended(), [(owner, terms)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_end_cannot_be_written_down_is_still_held() {
        let scratch = TempDir::new().unwrap();
        let (owner, terms) = ("ovn".parse().unwrap(), Terms { time: Duration::from_secs(2), end: End::Remove });
        let leases = Leases::open(Some(scratch.path())).unwrap();
        leases.take(owner, terms).unwrap();
        tokio::time::advance(Duration::from_secs(3)).await;
        // No file is renamed to what is a folder.
        let file = scratch.path().join(FILE);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(leases.forget(owner).is_err());
        assert_eq!(leases.ended(), [(owner, terms)], "it is tried again");
        assert!(leases.release(owner).is_err());
        assert_eq!(leases.all().len(), 1);
        std::fs::remove_dir(&file).unwrap();
        leases.forget(owner).unwrap();
        assert!(leases.all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::await_holding_lock, reason = "who writes and hangs in the disk holds it all the time")]
    async fn leases_are_renewed_and_end_while_the_disk_hangs() {
        let scratch = TempDir::new().unwrap();
        let leases = Leases::open(Some(scratch.path())).unwrap();
        let (renewed, left) = ("ovn".parse().unwrap(), "left".parse().unwrap());
        let terms = Terms { time: Duration::from_secs(2), end: End::Remove };
        leases.take(renewed, terms).unwrap();
        leases.take(left, terms).unwrap();
        let _hanging = leases.writing.lock();
        tokio::time::advance(Duration::from_secs(1)).await;
        leases.take(renewed, terms).unwrap();
        tokio::time::advance(Duration::from_millis(1_500)).await;
        leases.next_end().await;
        assert_eq!(leases.ended(), [(left, terms)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_renewed_while_it_ends_is_held_on() {
        let leases = Leases::open(None).unwrap();
        let (owner, terms) = ("ovn".parse().unwrap(), Terms { time: Duration::from_secs(2), end: End::Remove });
        leases.take(owner, terms).unwrap();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(leases.has_ended(owner));
        leases.take(owner, terms).unwrap();
        leases.forget(owner).unwrap();
        assert_eq!(leases.all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_more_is_done_for_a_lease_that_is_held_again() {
        let leases = Leases::open(None).unwrap();
        let (owner, terms) = ("ovn".parse().unwrap(), Terms { time: Duration::from_secs(2), end: End::Remove });
        let mut done = 0;
        leases.take(owner, terms).unwrap();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(leases.while_ended(owner, &mut || done += 1));
        leases.take(owner, terms).unwrap();
        assert!(!leases.while_ended(owner, &mut || done += 1));
        assert_eq!(done, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_lease_is_waited_for_and_not_looked_for() {
        let leases = Arc::new(Leases::open(None).unwrap());
        let terms = |seconds| Terms { time: Duration::from_secs(seconds), end: End::Keep };
        leases.take("late".parse().unwrap(), terms(60)).unwrap();
        let (began, waiting) = (Instant::now(), leases.clone());
        let end = tokio::spawn(async move {
            waiting.next_end().await;
            Instant::now()
        });
        tokio::task::yield_now().await;
        // One that ends before what is waited for.
        leases.take("soon".parse().unwrap(), terms(5)).unwrap();
        assert_eq!(end.await.unwrap().duration_since(began).as_secs(), 5);
    }
}
