//! What queue pairs and shared receive queues have outstanding: it owns the buffers until a completion brings them back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rdma_sys as sys;

use super::completion::{Outcome, Received, Sent};
use super::failure::{Failure, Reason};
use super::request::ReceiveRequest;

/// Of a request's number (`wr_id`): it is one to receive. A completion that tells of an error says nothing else of its kind.
const RECEIVES: u64 = 1 << 63;

/// All that a queue pair has outstanding.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) sends: Mutex<Sends>,
    /// Shared with others if the receive queue is.
    pub(super) receives: Arc<PostedReceives>,
    has_own_receives: bool,
}

/// Requests to send, in their order.
#[derive(Debug, Default)]
pub(super) struct Sends {
    /// Number of the first of them.
    first: u64,
    posted: VecDeque<Sent>,
    /// How many were posted since the last that is signalled.
    unsignalled: usize,
}

/// Requests to receive, which may come back in any order where queue pairs share them.
#[derive(Debug, Default)]
pub(super) struct PostedReceives(Mutex<Receives>);

#[derive(Debug, Default)]
pub(super) struct Receives {
    next: u64,
    posted: HashMap<u64, ReceiveRequest>,
}

impl Outstanding {
    pub(super) fn new(shared: Option<Arc<PostedReceives>>) -> Self {
        let has_own_receives = shared.is_none();
        Self { sends: Mutex::default(), receives: shared.unwrap_or_default(), has_own_receives }
    }

    /// Whether a queue pair that fails has nothing left that would come back.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.lock().posted.is_empty() && !(self.has_own_receives && self.receives.lock().has_posted())
    }

    /// What a completion says; `None` if it is of no request that is outstanding.
    pub(super) fn complete(&self, told: &sys::ibv_wc) -> Option<Outcome> {
        let failure = (told.status != sys::ibv_wc_status::IBV_WC_SUCCESS)
            .then(|| Failure { reason: Reason::new(told.status), vendor: told.vendor_err });
        if told.wr_id & RECEIVES == 0 {
            return self.sends.lock().complete(told.wr_id, failure);
        }
        let ReceiveRequest { tag, buffers } = self.receives.lock().posted.remove(&told.wr_id)?;
        if let Some(failure) = failure {
            return Some(Outcome::ReceiveFailed { tag, buffers, failure });
        }
        let has_immediate = told.wc_flags & sys::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: both are 32 bits, and any bits are a value.
        let immediate = unsafe { told.imm_data_invalidated_rkey_union.imm_data };
        Some(Outcome::Received(Received {
            tag,
            buffers,
            length: usize::try_from(told.byte_len).unwrap_or(usize::MAX),
            immediate: has_immediate.then(|| u32::from_be(immediate)),
            is_write: told.opcode == sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
        }))
    }
}

impl Sends {
    /// Numbers for requests that are about to be posted, and whether each is to be signalled: if it wants that, or if `most` would else not be.
    pub(super) fn plan(&self, wanted: impl Iterator<Item = bool>, most: usize) -> Vec<(u64, bool)> {
        let next = self.first + self.posted.len() as u64;
        let mut run = self.unsignalled;
        let plan = wanted.zip(next..).map(|(is_wanted, number)| {
            let is_signalled = is_wanted || run + 1 >= most;
            run = if is_signalled { 0 } else { run + 1 };
            (number, is_signalled)
        });
        plan.collect()
    }

    /// Takes a request over that was posted.
    pub(super) fn push(&mut self, sent: Sent, is_signalled: bool) {
        self.posted.push_back(sent);
        self.unsignalled = if is_signalled { 0 } else { self.unsignalled + 1 };
    }

    fn complete(&mut self, number: u64, failure: Option<Failure>) -> Option<Outcome> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok().filter(|place| *place < self.posted.len())?;
        let mut before: Vec<Sent> = self.posted.drain(..=place).collect();
        self.first = number + 1;
        let Some(failure) = failure else { return Some(Outcome::Sent(before)) };
        let failed = before.pop()?;
        Some(Outcome::SendFailed { before, failed, failure })
    }
}

impl PostedReceives {
    pub(super) fn lock(&self) -> parking_lot::MutexGuard<'_, Receives> {
        self.0.lock()
    }
}

impl Receives {
    fn has_posted(&self) -> bool {
        !self.posted.is_empty()
    }

    /// Numbers for so many requests that are about to be posted.
    pub(super) fn plan(&self, count: usize) -> Vec<u64> {
        (self.next..).take(count).map(|number| number | RECEIVES).collect()
    }

    /// Takes requests over that were posted, by these numbers.
    pub(super) fn extend(&mut self, numbers: &[u64], requests: impl Iterator<Item = ReceiveRequest>) {
        for (number, request) in numbers.iter().zip(requests) {
            self.posted.insert(*number, request);
            self.next += 1;
        }
    }

    /// Takes everything out.
    pub(super) fn take(&mut self) -> Vec<ReceiveRequest> {
        self.posted.drain().map(|(_, request)| request).collect()
    }
}

impl Sends {
    /// Takes everything out.
    pub(super) fn take(&mut self) -> Vec<Sent> {
        self.first += self.posted.len() as u64;
        self.posted.drain(..).collect()
    }
}
