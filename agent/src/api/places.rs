//! Places of the clients over TCP that have shown a certificate.
//!
//! One of them that connects again and again, and forgets what it has opened, keeps none of the others out: whoever has the same names in a
//! certificate has a share of the places, and no more.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many clients, of whom each may have one part of all places.
const SHARES: usize = 4;

/// All of them.
#[derive(Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    share: usize,
    taken: Taken,
}

/// How many places each client has, by the names in its certificate.
type Taken = Arc<Mutex<HashMap<Vec<String>, usize>>>;

/// A place, which is free again after this.
pub(super) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_share: Option<OfShare>,
}

struct OfShare {
    names: Vec<String>,
    taken: Taken,
}

/// Why there is no place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    #[error("{0} clients are connected")]
    Taken(usize),
    #[error("it has {0} connections already, as many as one client may have")]
    Share(usize),
}

impl Places {
    pub(super) fn new(places: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(places)), share: places / SHARES, taken: Taken::default() }
    }

    /// One for a client with these names, if it may have one more and there is one.
    pub(super) fn take(&self, names: &[String]) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock();
        if taken.get(names).is_some_and(|count| *count >= self.share) {
            return Err(NoPlace::Share(self.share));
        }
        let all = self.share * SHARES;
        let of_all = self.free.clone().try_acquire_owned().map_err(|_| NoPlace::Taken(all))?;
        *taken.entry(names.to_vec()).or_insert(0) += 1;
        let of_share = OfShare { names: names.to_vec(), taken: self.taken.clone() };
        Ok(Place { _of_all: of_all, _of_share: Some(of_share) })
    }
}

/// One that nobody has a share of.
impl From<OwnedSemaphorePermit> for Place {
    fn from(of_all: OwnedSemaphorePermit) -> Self {
        Self { _of_all: of_all, _of_share: None }
    }
}

impl Drop for OfShare {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.names) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.names);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_of_the_places_and_the_others_have_theirs() {
        let places = Places::new(8);
        let take = |name: &str| places.take(&[name.to_owned()]);
        let first = take("one").unwrap();
        let _second = take("one").unwrap();
        assert_eq!(take("one").err(), Some(NoPlace::Share(2)));
        let _others: Vec<_> = ["two", "two", "three", "three", "four", "four"].map(|name| take(name).unwrap()).into();
        assert_eq!(take("five").err(), Some(NoPlace::Taken(8)));
        drop(first);
        drop(take("one").unwrap());
        drop(take("five").unwrap());
        assert_eq!(places.taken.lock().len(), 4, "nothing is kept of who has none");
    }
}
