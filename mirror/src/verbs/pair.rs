//! Queue pairs of reliable connections.

use std::io;
use std::mem::{MaybeUninit, forget};
use std::ptr::{NonNull, from_ref, null_mut};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdma_sys as sys;
use sys::ibv_qp_attr_mask as mask;

use super::completion::Sent;
use super::completions::CompletionQueue;
use super::error::{CallError, done, made};
use super::memory::ProtectionDomain;
use super::outstanding::Outstanding;
use super::request::{PostError, ReceiveRequest, SendRequest};
use super::shared_receives::{self, SharedReceives};
use super::state::{Access, Connect, Retries, State};

/// A queue pair of a reliable connection.
///
/// It owns the buffers of all that is posted. Dropping it fails it first, and waits until all of that has come back: the completions are in
/// its completion queues, for whoever polls them. If the device does not give everything back within a second, the queue pair is
/// destroyed all the same, after which the device no longer knows its requests: those to send come back as failed, and the buffers of the
/// others are freed.
#[derive(Debug)]
pub struct QueuePair {
    raw: NonNull<sys::ibv_qp>,
    room: Room,
    outstanding: Arc<Outstanding>,
    send_completions: CompletionQueue,
    receive_completions: CompletionQueue,
    shared: Option<SharedReceives>,
    /// Kept until it is destroyed.
    _domain: ProtectionDomain,
}

// SAFETY: libibverbs allows calls on a queue pair from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: and from several at a time.
unsafe impl Sync for QueuePair {}

/// What a queue pair has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Requests to send that are outstanding at a time.
    pub sends: u32,
    /// Buffers of each.
    pub send_segments: u32,
    /// Bytes that go into a request itself.
    pub inline: u32,
    /// Buffers of a receive request of its own.
    pub receive_segments: u32,
}

/// Where a queue pair has its receive requests from.
#[derive(Debug, Clone)]
pub enum Receives {
    /// Its own queue, for so many at a time.
    Own(u32),
    /// A queue that it shares.
    Shared(SharedReceives),
}

/// Options of a connection that both sides agree on (enhanced connection establishment, `ibv_query_ece(3)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ece {
    /// Whose options they are: a PCI vendor.
    pub vendor: u32,
    /// The options.
    pub options: u32,
}

impl QueuePair {
    /// Creates a queue pair with at least this room, whose completions go to these queues: of what is sent, and of what is received.
    ///
    /// # Errors
    /// As `ibv_create_qp` fails.
    pub fn new(
        domain: &ProtectionDomain,
        (send_completions, receive_completions): (&CompletionQueue, &CompletionQueue),
        receives: Receives,
        room: Room,
    ) -> Result<Self, CallError> {
        let (own, shared) = match receives {
            Receives::Own(requests) => (requests, None),
            Receives::Shared(queue) => (0, Some(queue)),
        };
        let mut attributes = sys::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: send_completions.raw(),
            recv_cq: receive_completions.raw(),
            srq: shared.as_ref().map_or(null_mut(), SharedReceives::raw),
            cap: sys::ibv_qp_cap {
                max_send_wr: room.sends,
                max_recv_wr: own,
                max_send_sge: room.send_segments,
                max_recv_sge: if shared.is_some() { 0 } else { room.receive_segments },
                max_inline_data: room.inline,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queues exist, and are kept.
        let raw = made("ibv_create_qp", unsafe { sys::ibv_create_qp(domain.raw(), &raw mut attributes) })?;
        let pair = Self {
            raw,
            room: Room {
                sends: attributes.cap.max_send_wr,
                send_segments: attributes.cap.max_send_sge,
                inline: attributes.cap.max_inline_data,
                receive_segments: attributes.cap.max_recv_sge,
            },
            outstanding: Arc::new(Outstanding::new(shared.as_ref().map(SharedReceives::posted))),
            send_completions: send_completions.clone(),
            receive_completions: receive_completions.clone(),
            shared,
            _domain: domain.clone(),
        };
        for queue in [send_completions, receive_completions] {
            queue.add(pair.number(), &pair.outstanding);
        }
        Ok(pair)
    }

    /// Returns its number, by which the other side connects.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair exists.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// Returns what there is room for, which is at least what was asked for.
    #[must_use]
    pub fn room(&self) -> Room {
        self.room
    }

    /// Becomes INIT, at a port of the device: receive requests can be posted from then on.
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn initialize(&self, port: u8, access: Access) -> Result<(), CallError> {
        self.initialize_in(0, port, access)
    }

    /// The same, in the partition that has this place in the port's table (P_Key index).
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn initialize_in(&self, partition: u16, port: u8, access: Access) -> Result<(), CallError> {
        let bits = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(sys::ibv_qp_state::IBV_QPS_INIT, bits, |attributes| {
            attributes.pkey_index = partition;
            attributes.port_num = port;
            attributes.qp_access_flags = access.raw();
        })
    }

    /// Becomes ready to receive (RTR) from another queue pair.
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn connect(&self, to: &Connect) -> Result<(), CallError> {
        let bits = mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(sys::ibv_qp_state::IBV_QPS_RTR, bits, |attributes| {
            attributes.ah_attr = to.path.raw();
            attributes.path_mtu = to.mtu as sys::ibv_mtu::Type;
            attributes.dest_qp_num = to.remote;
            attributes.rq_psn = to.psn.get();
            attributes.min_rnr_timer = to.min_rnr_timer;
        })
    }

    /// Becomes ready to send (RTS).
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn start(&self, retries: &Retries) -> Result<(), CallError> {
        let bits = mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(sys::ibv_qp_state::IBV_QPS_RTS, bits, |attributes| {
            attributes.timeout = retries.timeout;
            attributes.retry_cnt = retries.retries;
            attributes.rnr_retry = retries.rnr_retries;
            attributes.sq_psn = retries.psn.get();
        })
    }

    /// Finishes what was posted to send, and begins nothing more (SQD). Not every driver has this: mlx5_ib refuses it (`EINVAL`).
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn drain_sends(&self) -> Result<(), CallError> {
        self.modify(sys::ibv_qp_state::IBV_QPS_SQD, sys::ibv_qp_attr_mask(0), |_| ())
    }

    /// Fails (ERROR): all that is posted comes back, and so does what is posted from then on.
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn fail(&self) -> Result<(), CallError> {
        self.modify(sys::ibv_qp_state::IBV_QPS_ERR, sys::ibv_qp_attr_mask(0), |_| ())
    }

    fn modify(
        &self,
        state: sys::ibv_qp_state::Type,
        bits: sys::ibv_qp_attr_mask,
        set: impl FnOnce(&mut sys::ibv_qp_attr),
    ) -> Result<(), CallError> {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        // SAFETY: zeroes are a value of every field.
        let attributes = unsafe { attributes.assume_init_mut() };
        set(attributes);
        attributes.qp_state = state;
        let bits = (bits | mask::IBV_QP_STATE).0.cast_signed();
        // SAFETY: the queue pair exists, and the attributes are those that the mask names.
        done("ibv_modify_qp", unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), attributes, bits) })
    }

    /// Asks the device for its state.
    ///
    /// # Errors
    /// As `ibv_query_qp` fails.
    pub fn state(&self) -> Result<State, CallError> {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        let mut initial = MaybeUninit::<sys::ibv_qp_init_attr>::zeroed();
        let bits = mask::IBV_QP_STATE.0.cast_signed();
        // SAFETY: the queue pair exists, and there is room for both answers.
        let code = unsafe { sys::ibv_query_qp(self.raw.as_ptr(), attributes.as_mut_ptr(), bits, initial.as_mut_ptr()) };
        done("ibv_query_qp", code)?;
        // SAFETY: zeroes are a value of every field, and then the call filled it in.
        Ok(State::new(unsafe { attributes.assume_init() }.qp_state))
    }

    /// Returns the options of the connection that the device offers, or those that were agreed on once it is connected.
    ///
    /// # Errors
    /// As `ibv_query_ece` fails: not every device has such options (`EOPNOTSUPP`).
    pub fn ece(&self) -> Result<Ece, CallError> {
        let mut ece = sys::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        // SAFETY: the queue pair exists, and there is room for the answer.
        done("ibv_query_ece", unsafe { sys::ibv_query_ece(self.raw.as_ptr(), &raw mut ece) })?;
        Ok(Ece { vendor: ece.vendor_id, options: ece.options })
    }

    /// Sets the options that the next transition asks for: those that the other side offers.
    ///
    /// # Errors
    /// As `ibv_set_ece` fails: the options are of another vendor, or the device has none.
    pub fn set_ece(&self, ece: Ece) -> Result<(), CallError> {
        let mut ece = sys::ibv_ece { vendor_id: ece.vendor, options: ece.options, comp_mask: 0 };
        // SAFETY: the queue pair exists.
        done("ibv_set_ece", unsafe { sys::ibv_set_ece(self.raw.as_ptr(), &raw mut ece) })
    }

    /// Posts a chain of requests to send.
    ///
    /// # Errors
    /// Fails at the first request that is refused, and gives that and those behind it back: it has too many buffers or too much inline
    /// data, the queue is full, or the queue pair is not ready to send.
    pub fn send<'a>(&self, mut requests: Vec<SendRequest<'a>>) -> Result<(), PostError<SendRequest<'a>>> {
        // Held until they are taken over, since a completion may come before the call returns.
        let mut sends = self.outstanding.sends.lock();
        let most = usize::try_from(self.room.sends / 2).unwrap_or(usize::MAX).max(1);
        let plan = sends.plan(requests.iter().map(|request| request.is_signalled), most);
        let segments: Result<Vec<_>, _> = requests.iter().map(|request| request.payload.segments()).collect();
        let mut segments = match segments {
            Ok(segments) => segments,
            Err(error) => return Err(PostError { posted: 0, rest: requests, error }),
        };
        let planned = requests.iter().zip(&mut segments).zip(&plan);
        let mut raw: Vec<_> = planned
            .map(|((request, segments), (number, is_signalled))| request.raw(*number, *is_signalled, segments))
            .collect();
        let first = raw.as_mut_ptr();
        for place in 1..raw.len() {
            raw[place - 1].next = first.wrapping_add(place);
        }
        let mut bad = null_mut();
        let outcome = if raw.is_empty() {
            Ok(())
        } else {
            // SAFETY: the queue pair exists; the chain is whole, and its segments are of buffers that are kept until they are over, or of
            // bytes that are copied now.
            done("ibv_post_send", unsafe { sys::ibv_post_send(self.raw.as_ptr(), first, &raw mut bad) })
        };
        let posted = match outcome {
            Ok(()) => requests.len(),
            Err(_) => raw.iter().position(|request| std::ptr::eq(from_ref(request), bad)).unwrap_or(0),
        };
        let rest = requests.split_off(posted);
        for (request, (_, is_signalled)) in requests.into_iter().zip(plan) {
            sends.push(Sent { tag: request.tag, buffers: request.into_buffers() }, is_signalled);
        }
        outcome.map_err(|error| PostError { posted, rest, error })
    }

    /// Posts a chain of receive requests to its own queue.
    ///
    /// # Errors
    /// Fails at the first request that is refused, and gives that and those behind it back. Fails if the queue is a shared one, to which
    /// requests are posted by [`SharedReceives::receive`].
    pub fn receive(&self, requests: Vec<ReceiveRequest>) -> Result<(), PostError<ReceiveRequest>> {
        const CALL: &str = "ibv_post_recv";
        if self.shared.is_some() {
            let error = CallError::new(CALL, io::ErrorKind::InvalidInput);
            return Err(PostError { posted: 0, rest: requests, error });
        }
        shared_receives::post(&self.outstanding.receives, requests, |first, bad| {
            // SAFETY: the queue pair exists, and the chain is whole.
            done(CALL, unsafe { sys::ibv_post_recv(self.raw.as_ptr(), first, bad) })
        })
    }

    /// Takes back what is outstanding, as far as the device gives it back in time.
    fn take_back(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        const PAUSE: Duration = Duration::from_micros(50);
        if self.outstanding.is_empty() || self.fail().is_err() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let queues = [&self.send_completions, &self.receive_completions];
        while queues.iter().all(|queue| queue.collect().is_ok()) {
            if self.outstanding.is_empty() || Instant::now() > deadline {
                return;
            }
            sleep(PAUSE);
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let number = self.number();
        self.take_back();
        // SAFETY: nobody else has it.
        let is_destroyed = unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) } == 0;
        for queue in [&self.send_completions, &self.receive_completions] {
            queue.remove(number);
        }
        let sends = self.outstanding.sends.lock().take();
        if is_destroyed {
            self.send_completions.give_back(number, sends);
            return;
        }
        // The device may still read or write these.
        forget(sends);
        if self.shared.is_none() {
            forget(self.outstanding.receives.lock().take());
        }
    }
}
