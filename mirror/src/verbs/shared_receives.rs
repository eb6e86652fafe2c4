//! Shared receive queues.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_sys as sys;

use super::error::{CallError, done, made};
use super::memory::ProtectionDomain;
use super::outstanding::PostedReceives;
use super::request::{PostError, ReceiveChain, ReceiveRequest};

/// A receive queue that several queue pairs share. Copies are of the same one.
///
/// What is posted to it belongs to none of the queue pairs: it does not come back if one of them fails, and is freed with the queue.
#[derive(Debug, Clone)]
pub struct SharedReceives(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    raw: NonNull<sys::ibv_srq>,
    posted: Arc<PostedReceives>,
    /// Kept until it is destroyed.
    _domain: ProtectionDomain,
}

// SAFETY: libibverbs allows calls on a queue from any thread.
unsafe impl Send for Queue {}
// SAFETY: and from several at a time.
unsafe impl Sync for Queue {}

impl SharedReceives {
    /// Creates a queue for at least `entries` requests of at least `segments` buffers each.
    ///
    /// # Errors
    /// As `ibv_create_srq` fails.
    pub fn new(domain: &ProtectionDomain, entries: u32, segments: u32) -> Result<Self, CallError> {
        let attr = sys::ibv_srq_attr { max_wr: entries, max_sge: segments, srq_limit: 0 };
        let mut attributes = sys::ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: the domain exists.
        let raw = made("ibv_create_srq", unsafe { sys::ibv_create_srq(domain.raw(), &raw mut attributes) })?;
        Ok(Self(Arc::new(Queue { raw, posted: Arc::default(), _domain: domain.clone() })))
    }

    /// Posts a chain of requests.
    ///
    /// # Errors
    /// Fails at the first request that is refused, and gives that and those behind it back.
    pub fn receive(&self, requests: Vec<ReceiveRequest>) -> Result<(), PostError<ReceiveRequest>> {
        post(&self.0.posted, requests, |first, bad| {
            // SAFETY: the queue exists, and the chain is whole.
            done("ibv_post_srq_recv", unsafe { sys::ibv_post_srq_recv(self.raw(), first, bad) })
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_srq {
        self.0.raw.as_ptr()
    }

    pub(super) fn posted(&self) -> Arc<PostedReceives> {
        Arc::clone(&self.0.posted)
    }
}

/// Posts a chain of receive requests, and takes those over that were posted.
pub(super) fn post(
    posted: &PostedReceives,
    mut requests: Vec<ReceiveRequest>,
    call: impl FnOnce(*mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> Result<(), CallError>,
) -> Result<(), PostError<ReceiveRequest>> {
    if requests.is_empty() {
        return Ok(());
    }
    // Held until they are taken over, since a completion may come before the call returns.
    let mut outstanding = posted.lock();
    let numbers = outstanding.plan(requests.len());
    let mut chain = match ReceiveChain::new(&requests, &numbers) {
        Ok(chain) => chain,
        Err(error) => return Err(PostError { posted: 0, rest: requests, error }),
    };
    let mut bad = null_mut();
    let Err(error) = call(chain.first(), &raw mut bad) else {
        outstanding.extend(&numbers, requests.into_iter());
        return Ok(());
    };
    let count = chain.place(bad);
    let rest = requests.split_off(count);
    outstanding.extend(&numbers, requests.into_iter());
    Err(PostError { posted: count, rest, error })
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: queue pairs keep it, and are gone.
        if unsafe { sys::ibv_destroy_srq(self.raw.as_ptr()) } != 0 {
            // The device may still write into these.
            std::mem::forget(self.posted.lock().take());
        }
    }
}
