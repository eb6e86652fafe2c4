//! Completion queues, by polling and by events.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rdma_sys as sys;

use super::channel::{CompletionChannel, Told};
use super::completion::{Completion, Outcome, Sent};
use super::context::Context;
use super::error::{CallError, done, made};
use super::failure::{Failure, Reason};
use super::outstanding::Outstanding;

/// How many events are acknowledged at a time: each time takes a lock of the library.
const ACKNOWLEDGED: u32 = 32;

/// A completion queue. Copies are of the same one.
#[derive(Debug, Clone)]
pub struct CompletionQueue(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    raw: NonNull<sys::ibv_cq>,
    events: Option<Events>,
    /// Who has posted what completions tell of, by the number of the queue pair.
    pairs: RwLock<HashMap<u32, Arc<Outstanding>>>,
    /// Completions that were taken from the device and that nobody has asked for yet.
    ready: Mutex<VecDeque<Completion>>,
    /// Kept open.
    _context: Context,
}

// SAFETY: libibverbs allows calls on a queue from any thread.
unsafe impl Send for Queue {}
// SAFETY: and from several at a time.
unsafe impl Sync for Queue {}

#[derive(Debug)]
struct Events {
    channel: CompletionChannel,
    number: usize,
    told: Arc<Told>,
    /// What the device was asked to tell of, whether of solicited messages only, until its event for that is taken. To be told of all is to
    /// be told of those, too.
    asked: Mutex<Option<bool>>,
}

impl CompletionQueue {
    /// Creates a queue with room for at least `entries` completions, which is polled.
    ///
    /// # Errors
    /// As `ibv_create_cq` fails.
    pub fn new(context: &Context, entries: u32) -> Result<Self, CallError> {
        let raw = create(context, entries, null_mut(), null_mut())?;
        Ok(Self::of(raw, None, context))
    }

    /// Creates a queue that a channel tells of.
    ///
    /// # Errors
    /// As `ibv_create_cq` fails.
    pub fn with_events(channel: &CompletionChannel, entries: u32) -> Result<Self, CallError> {
        let context = channel.context();
        let (raw, number, told) = channel.serve(|channel, number| create(context, entries, channel, number))?;
        Ok(Self::of(raw, Some(Events { channel: channel.clone(), number, told, asked: Mutex::default() }), context))
    }

    fn of(raw: NonNull<sys::ibv_cq>, events: Option<Events>, context: &Context) -> Self {
        let (pairs, ready) = (RwLock::default(), Mutex::default());
        Self(Arc::new(Queue { raw, events, pairs, ready, _context: context.clone() }))
    }

    /// Appends all completions that there are, and returns how many.
    ///
    /// # Errors
    /// As `ibv_poll_cq` fails: the queue has lost completions, and cannot be used any more. Those that it had before are appended.
    pub fn poll(&self, completions: &mut Vec<Completion>) -> Result<usize, CallError> {
        let mut ready = self.0.ready.lock();
        let collected = self.0.collect(&mut ready);
        let count = ready.len();
        completions.extend(ready.drain(..));
        collected.map(|()| count)
    }

    /// Waits for completions, appends all that there are, and returns how many. Nothing is lost if this is dropped before it is done.
    ///
    /// # Errors
    /// Fails if no channel tells of this queue, or as `ibv_req_notify_cq`, `ibv_get_cq_event` and `ibv_poll_cq` fail.
    pub async fn next(&self, completions: &mut Vec<Completion>) -> Result<usize, CallError> {
        self.wait(completions, false).await
    }

    /// The same, but is woken by solicited messages and by failures only, and by what [`CompletionQueue::next`] has asked for and not seen.
    ///
    /// # Errors
    /// As [`CompletionQueue::next`].
    pub async fn next_solicited(&self, completions: &mut Vec<Completion>) -> Result<usize, CallError> {
        self.wait(completions, true).await
    }

    async fn wait(&self, completions: &mut Vec<Completion>, only_solicited: bool) -> Result<usize, CallError> {
        const CALL: &str = "ibv_req_notify_cq";
        let polled = || CallError::new(CALL, io::ErrorKind::Unsupported);
        let events = self.0.events.as_ref().ok_or_else(polled)?;
        loop {
            let count = self.poll(completions)?;
            if count > 0 {
                return Ok(count);
            }
            // A device that was asked has an event for whatever came since, or will have one: to ask it again at each wait, as long as none
            // was taken, would cost a call of the kernel each time.
            let is_asked = events.asked.lock().is_some_and(|asked| only_solicited || !asked);
            if !is_asked {
                // SAFETY: the queue exists.
                done(CALL, unsafe { sys::ibv_req_notify_cq(self.raw(), only_solicited.into()) })?;
                *events.asked.lock() = Some(only_solicited);
                // What came before the device heard of the request gives no event.
                let count = self.poll(completions)?;
                if count > 0 {
                    return Ok(count);
                }
            }
            events.channel.wait(&events.told).await?;
            *events.asked.lock() = None;
            if let Some(count) = events.told.take(ACKNOWLEDGED) {
                // SAFETY: the queue exists, and had so many events.
                unsafe { sys::ibv_ack_cq_events(self.raw(), count) };
            }
        }
    }

    /// Takes what the device has, for whoever asks next.
    pub(super) fn collect(&self) -> Result<(), CallError> {
        self.0.collect(&mut self.0.ready.lock())
    }

    /// Gives requests to send back that a queue pair had when it was destroyed, for whoever asks next.
    pub(super) fn give_back(&self, queue_pair: u32, sends: Vec<Sent>) {
        let failure = Failure { reason: Reason::Flushed, vendor: 0 };
        let failed = |failed| Outcome::SendFailed { before: Vec::new(), failed, failure };
        self.0.ready.lock().extend(sends.into_iter().map(|sent| Completion { queue_pair, outcome: failed(sent) }));
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_cq {
        self.0.raw.as_ptr()
    }

    pub(super) fn add(&self, pair: u32, outstanding: &Arc<Outstanding>) {
        self.0.pairs.write().insert(pair, Arc::clone(outstanding));
    }

    pub(super) fn remove(&self, pair: u32) {
        self.0.pairs.write().remove(&pair);
    }
}

fn create(
    context: &Context,
    entries: u32,
    channel: *mut sys::ibv_comp_channel,
    number: *mut std::ffi::c_void,
) -> Result<NonNull<sys::ibv_cq>, CallError> {
    const CALL: &str = "ibv_create_cq";
    let entries = i32::try_from(entries).map_err(|_| CallError::new(CALL, io::ErrorKind::InvalidInput))?;
    // SAFETY: the context is open, and the channel, if there is one, is of the same context; the number is never followed.
    made(CALL, unsafe { sys::ibv_create_cq(context.raw(), entries, number, channel, 0) })
}

impl Queue {
    fn collect(&self, ready: &mut VecDeque<Completion>) -> Result<(), CallError> {
        const AT_ONCE: u8 = 16;
        loop {
            let mut told = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; AT_ONCE as usize];
            // SAFETY: the queue exists, and there is room for so many completions.
            let count = unsafe { sys::ibv_poll_cq(self.raw.as_ptr(), AT_ONCE.into(), told.as_mut_ptr().cast()) };
            let broken = |_| CallError::new("ibv_poll_cq", io::Error::other("a completion of no known request"));
            let count = usize::try_from(count).map_err(broken)?;
            let pairs = self.pairs.read();
            for told in told.iter().take(count) {
                // SAFETY: the call filled in so many.
                let told = unsafe { told.assume_init_ref() };
                let pair = pairs.get(&told.qp_num);
                if let Some(outcome) = pair.and_then(|outstanding| outstanding.complete(told)) {
                    ready.push_back(Completion { queue_pair: told.qp_num, outcome });
                }
            }
            if count < usize::from(AT_ONCE) {
                return Ok(());
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let raw = self.raw.as_ptr();
        // SAFETY: queue pairs keep it, and are gone; it is destroyed once.
        let destroy = || unsafe { sys::ibv_destroy_cq(raw) };
        match &self.events {
            None => {
                destroy();
            }
            Some(Events { channel, number, told, .. }) => channel.dismiss(*number, || {
                if let Some(count) = told.take(1) {
                    // SAFETY: the queue exists, and had so many events. Destroying it would wait for them.
                    unsafe { sys::ibv_ack_cq_events(raw, count) };
                }
                destroy();
            }),
        }
    }
}
