//! Queue pairs for frames as they are, what tells of completions, and what completions say.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use rdma_sys as sys;

use super::{CompletionQueue, Context, MemoryRegion, ProtectionDomain};
use crate::{done, made};

/// What tells of completions.
#[derive(Debug)]
pub struct Channel<'a> {
    raw: NonNull<sys::ibv_comp_channel>,
    of: PhantomData<&'a Context>,
}

/// A queue that a channel has told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told(NonNull<sys::ibv_cq>);

impl Context {
    /// A channel that tells of completions.
    ///
    /// # Errors
    /// As `ibv_create_comp_channel` fails.
    pub fn channel(&self) -> io::Result<Channel<'_>> {
        // SAFETY: the context is open.
        made(unsafe { sys::ibv_create_comp_channel(self.raw()) }).map(|raw| Channel { raw, of: PhantomData })
    }

    /// A queue for `entries` completions at least, of which a channel tells.
    ///
    /// # Errors
    /// As `ibv_create_cq` fails.
    pub fn completion_queue_on<'a>(
        &'a self,
        entries: i32,
        channel: &'a Channel<'_>,
    ) -> io::Result<CompletionQueue<'a>> {
        // SAFETY: context and channel are open as long as the queue lives.
        made(unsafe { sys::ibv_create_cq(self.raw(), entries, null_mut(), channel.raw.as_ptr(), 0) })
            .map(|raw| CompletionQueue { raw, of: PhantomData })
    }
}

impl Channel<'_> {
    /// Waits until it tells of a queue.
    ///
    /// # Errors
    /// As `ibv_get_cq_event` fails.
    pub fn wait(&self) -> io::Result<Told> {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: there is room for both, and the channel is open.
        done(unsafe { sys::ibv_get_cq_event(self.raw.as_ptr(), &raw mut queue, &raw mut context) })?;
        let queue = made(queue)?;
        // SAFETY: the queue is the one that was told of, once.
        unsafe { sys::ibv_ack_cq_events(queue.as_ptr(), 1) };
        Ok(Told(queue))
    }

    /// Whether it tells of a queue within this time, in milliseconds.
    ///
    /// # Errors
    /// As `poll` fails.
    pub fn tells_within(&self, milliseconds: i32) -> io::Result<bool> {
        // SAFETY: the channel is open.
        let fd = unsafe { self.raw.as_ref() }.fd;
        let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: it is one file.
        match unsafe { libc::poll(&raw mut file, 1, milliseconds) } {
            -1 => Err(io::Error::last_os_error()),
            files => Ok(files > 0),
        }
    }
}

impl Drop for Channel<'_> {
    fn drop(&mut self) {
        // SAFETY: queues that it tells of borrow it, and are gone.
        unsafe { sys::ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The number that the request was given.
    pub request: u64,
    /// 0 if it went well (`enum ibv_wc_status`).
    pub status: u32,
    /// Bytes of what was received.
    pub bytes: u32,
    /// It tells of something received.
    pub is_received: bool,
    /// Number of the queue pair; of a frame that was received, its tag, which the device has in the same place.
    pub pair_or_tag: u32,
}

impl CompletionQueue<'_> {
    /// Wants to be told of the next completion, or of the next that tells of an error or is marked.
    ///
    /// # Errors
    /// As `ibv_req_notify_cq` fails.
    pub fn request(&self, only_errors: bool) -> io::Result<()> {
        // SAFETY: the queue exists.
        done(unsafe { sys::ibv_req_notify_cq(self.raw.as_ptr(), only_errors.into()) })
    }

    /// Whether this is the queue that a channel has told of.
    #[must_use]
    pub fn is(&self, told: Told) -> bool {
        self.raw == told.0
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// As `ibv_poll_cq` fails.
    pub fn poll(&self) -> io::Result<Option<Completion>> {
        let mut completion = MaybeUninit::<sys::ibv_wc>::zeroed();
        // SAFETY: there is room for one completion, and the queue exists.
        match unsafe { sys::ibv_poll_cq(self.raw.as_ptr(), 1, completion.as_mut_ptr()) } {
            0 => Ok(None),
            1 => {
                // SAFETY: it was zeroed, for which all of it has a meaning, and then filled in.
                let completion = unsafe { completion.assume_init() };
                Ok(Some(Completion {
                    request: completion.wr_id,
                    status: completion.status,
                    bytes: completion.byte_len,
                    is_received: completion.opcode == sys::ibv_wc_opcode::IBV_WC_RECV,
                    pair_or_tag: completion.qp_num,
                }))
            }
            _ => Err(io::ErrorKind::Other.into()),
        }
    }
}

/// States of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// As it was made.
    Reset = sys::ibv_qp_state::IBV_QPS_RESET,
    /// It has a port.
    Initialized = sys::ibv_qp_state::IBV_QPS_INIT,
    /// Frames come in.
    ReadyToReceive = sys::ibv_qp_state::IBV_QPS_RTR,
    /// And go out.
    ReadyToSend = sys::ibv_qp_state::IBV_QPS_RTS,
    /// None go out any more.
    SendError = sys::ibv_qp_state::IBV_QPS_SQE,
    /// None any more.
    Error = sys::ibv_qp_state::IBV_QPS_ERR,
}

/// A queue pair that sends and receives frames as they are.
#[derive(Debug)]
pub struct QueuePair<'a> {
    raw: NonNull<sys::ibv_qp>,
    of: PhantomData<&'a Context>,
}

impl ProtectionDomain<'_> {
    /// A queue pair with room for `sends` and `receives` requests, whose completions are told by `sent` and `received`.
    ///
    /// # Errors
    /// As `ibv_create_qp` fails.
    pub fn queue_pair<'a>(
        &'a self,
        (sent, sends): (&'a CompletionQueue<'_>, u32),
        (received, receives): (&'a CompletionQueue<'_>, u32),
    ) -> io::Result<QueuePair<'a>> {
        const INLINE: u32 = 64;
        let mut attributes = sys::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: sent.raw.as_ptr(),
            recv_cq: received.raw.as_ptr(),
            srq: null_mut(),
            cap: sys::ibv_qp_cap {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RAW_PACKET,
            sq_sig_all: 1,
        };
        // SAFETY: domain and queues live as long as the pair.
        made(unsafe { sys::ibv_create_qp(self.raw.as_ptr(), &raw mut attributes) })
            .map(|raw| QueuePair { raw, of: PhantomData })
    }
}

impl QueuePair<'_> {
    pub(super) fn of_raw(raw: NonNull<sys::ibv_qp>) -> Self {
        Self { raw, of: PhantomData }
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_qp {
        self.raw.as_ptr()
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the pair exists.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// Changes its state.
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn become_state(&self, state: State) -> io::Result<()> {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        let mut mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0;
        if state == State::Initialized {
            mask |= sys::ibv_qp_attr_mask::IBV_QP_PORT.0;
        }
        // SAFETY: zeroes are a value of every field.
        let attributes = unsafe { attributes.assume_init_mut() };
        attributes.qp_state = state as u32;
        attributes.port_num = 1;
        // SAFETY: the pair exists, and the attributes are those that the mask names.
        done(unsafe { sys::ibv_modify_qp(self.raw(), &raw mut *attributes, mask.cast_signed()) })
    }

    /// Asks for its state, by its number, and for how many requests to receive there is room.
    ///
    /// # Errors
    /// As `ibv_query_qp` fails.
    pub fn query(&self) -> io::Result<(u32, u32)> {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        let mut initial = MaybeUninit::<sys::ibv_qp_init_attr>::zeroed();
        let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE | sys::ibv_qp_attr_mask::IBV_QP_CAP;
        // SAFETY: there is room for both answers, and the pair exists.
        let code = unsafe {
            sys::ibv_query_qp(self.raw(), attributes.as_mut_ptr(), mask.0.cast_signed(), initial.as_mut_ptr())
        };
        done(code)?;
        // SAFETY: zeroes are a value of every field, and then it was filled in.
        let attributes = unsafe { attributes.assume_init() };
        Ok((attributes.qp_state, attributes.cap.max_recv_wr))
    }

    /// Makes it ready to receive and to send.
    ///
    /// # Errors
    /// As `ibv_modify_qp` fails.
    pub fn start(&self) -> io::Result<()> {
        [State::Initialized, State::ReadyToReceive, State::ReadyToSend]
            .into_iter()
            .try_for_each(|state| self.become_state(state))
    }

    /// Has a frame be received into memory, from a place on, of at most this length.
    ///
    /// # Errors
    /// As `ibv_post_recv` fails.
    pub fn receive(&self, request: u64, region: &MemoryRegion<'_>, at: usize, bytes: u32) -> io::Result<()> {
        let mut piece = region.piece(at, bytes);
        let mut wanted = sys::ibv_recv_wr { wr_id: request, next: null_mut(), sg_list: &raw mut piece, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the pair exists; the request is copied, and its memory registered.
        done(unsafe { sys::ibv_post_recv(self.raw(), &raw mut wanted, &raw mut bad) })
    }

    /// Sends a frame that is in memory, or one that goes into the request itself.
    ///
    /// # Errors
    /// As `ibv_post_send` fails.
    pub fn send(&self, request: u64, frame: Frame<'_>) -> io::Result<()> {
        self.post(request, frame, 0)
    }

    /// The same of one with checksums of IPv4 and of what that carries that the device fills in.
    ///
    /// # Errors
    /// As `ibv_post_send` fails.
    pub fn send_with_checksums(&self, request: u64, frame: Frame<'_>) -> io::Result<()> {
        self.post(request, frame, sys::ibv_send_flags::IBV_SEND_IP_CSUM.0)
    }

    fn post(&self, request: u64, frame: Frame<'_>, more: u32) -> io::Result<()> {
        let (mut piece, flags) = match frame {
            Frame::Registered(region, at, bytes) => (region.piece(at, bytes), 0),
            Frame::Inline(bytes) => {
                let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
                let piece = sys::ibv_sge { addr: bytes.as_ptr() as u64, length, lkey: 0 };
                (piece, sys::ibv_send_flags::IBV_SEND_INLINE.0)
            }
        };
        let mut wanted = MaybeUninit::<sys::ibv_send_wr>::zeroed();
        // SAFETY: zeroes are a value of every field.
        let wanted = unsafe { wanted.assume_init_mut() };
        wanted.wr_id = request;
        wanted.sg_list = &raw mut piece;
        wanted.num_sge = 1;
        wanted.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        wanted.send_flags = flags | more;
        let mut bad = null_mut();
        // SAFETY: the pair exists; the request is copied with what is in it, and other memory is registered.
        done(unsafe { sys::ibv_post_send(self.raw(), &raw mut *wanted, &raw mut bad) })
    }
}

/// Where a frame is that is to be sent.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// In memory, from a place on, of this length.
    Registered(&'a MemoryRegion<'a>, usize, u32),
    /// Here.
    Inline(&'a [u8]),
}

impl MemoryRegion<'_> {
    pub(super) fn piece(&self, at: usize, length: u32) -> sys::ibv_sge {
        // SAFETY: it is registered.
        let region = unsafe { self.raw.as_ref() };
        sys::ibv_sge { addr: region.addr as u64 + at as u64, length, lkey: region.lkey }
    }
}

impl Drop for QueuePair<'_> {
    fn drop(&mut self) {
        // SAFETY: what leads to it borrows it, and is gone.
        unsafe { sys::ibv_destroy_qp(self.raw()) };
    }
}
