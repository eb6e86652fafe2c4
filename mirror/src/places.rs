//! Room for connections: how many an end takes at a time of those who ask.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for so many connections. Copies are of the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    all: usize,
    free: Arc<Semaphore>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// All places are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} connections already, and no more are taken")]
pub struct NoPlace(usize);

impl Places {
    pub(crate) fn new(all: usize) -> Self {
        let all = all.min(Semaphore::MAX_PERMITS);
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// Takes a place for a connection that is asked for. It is kept while the two ends come to terms, so that no more of them connect than
    /// can stay.
    pub(crate) fn take(&self) -> Result<Place, NoPlace> {
        let permit = Arc::clone(&self.free).try_acquire_owned();
        permit.map(|permit| Place { _permit: permit }).map_err(|_| NoPlace(self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_once_its_connection_is_over() {
        let places = Places::new(2);
        let (_stays, leaves) = (places.take().unwrap(), places.clone().take().unwrap());
        let refused = places.take().unwrap_err();
        assert_eq!(refused.to_string(), "there are 2 connections already, and no more are taken");
        drop(leaves);
        let _comes = places.take().unwrap();
        assert_eq!(places.take().unwrap_err(), refused);
    }

    #[test]
    fn any_number_can_be_configured() {
        assert!(Places::new(usize::MAX).take().is_ok());
        assert!(Places::new(0).take().is_err());
    }
}
