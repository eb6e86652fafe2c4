//! A send queue for requests that write meters (`ACCESS_ASO` of the PRM), one after the other.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sluice_flow::refusal::Refusal;

use crate::mlx5::{Context, Object, Uar, Umem};
use crate::switch::command::{SHORT, command, create};
use crate::switch::counters::Protection;
use crate::switch::refusal::refuse;
use crate::translate::METER_PARAMETERS;

const CREATE_CQ: u16 = 0x400;
const CREATE_SQ: u16 = 0x904;
const MODIFY_SQ: u16 = 0x905;
/// Bytes of the commands for queues.
const QUEUE_INPUT: usize = 0x110;
/// Requests are of two blocks; there is room for half as many requests as blocks, and a completion for each.
const LOG_BLOCKS: u32 = 6;
/// Of blocks and completions.
const BYTES: usize = 64;
/// The memory of a queue: its requests, then its completions, then its two doorbell records, each on a page.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
const COMPLETIONS: usize = WORDS;
const RECORDS: usize = 2 * WORDS;
/// How long a request may take. Linux gives it 10 ms (`mlx5e_tc_meter_modify`); a machine that is busy may need longer to look.
const PATIENCE: Duration = Duration::from_secs(1);

/// What stays when a queue is opened in place of another one: the protection domain whose objects they write, and their doorbell.
pub(super) struct Ground {
    protection: Protection,
    bell: Rc<Uar>,
}

/// The queue. What is first goes first.
pub(super) struct Queue {
    _sends: Object,
    _completes: Object,
    /// By which requests name the queue.
    number: u32,
    memory: Umem,
    bell: Rc<Uar>,
    /// Requests so far.
    posted: u32,
}

impl Ground {
    pub(super) fn allocate(context: &Context) -> Result<Self, Refusal> {
        let bell = Rc::new(Uar::allocate(context).map_err(refuse)?);
        Ok(Self { protection: Protection::allocate(context)?, bell })
    }

    /// Returns the number of the protection domain, by which objects name it.
    pub(super) fn domain(&self) -> u32 {
        self.protection.number()
    }
}

impl Queue {
    pub(super) fn open(context: &Context, ground: &Ground) -> Result<Self, Refusal> {
        let memory = Umem::register(context, 3 * WORDS).map_err(refuse)?;
        let bell = ground.bell.clone();
        // As long as the device has not written it, a completion is none.
        for completion in 0..1 << LOG_BLOCKS {
            memory.words()[COMPLETIONS + completion * BYTES / 8 + 7].store(u64::from(NONE).to_be(), Ordering::Relaxed);
        }
        let page = |number: usize| u32::try_from(number * PAGE).unwrap_or_default();
        const VALID: u32 = 1 << 31;
        let completes = [
            // The doorbell record is in registered memory.
            (0x10, 1 << 25),
            (0x14, memory.id()),
            (0x1c, LOG_BLOCKS << 24 | bell.number()),
            (0x24, context.event_queue().map_err(refuse)?),
            (0x4c, page(2)),
            (0x54, page(1)),
            (0x58, memory.id()),
            (0x5c, VALID),
        ];
        let (completes, completion_queue) = create(context, &command::<QUEUE_INPUT>(CREATE_CQ, &completes))?;
        const CYCLIC: u32 = 1 << 28;
        const LOG_BLOCK: u32 = 6;
        let sends = [
            (0x28, completion_queue),
            (0x50, CYCLIC),
            (0x58, ground.domain()),
            (0x5c, bell.number()),
            (0x64, page(2) + RECORD_OF_SENDS * 8),
            (0x70, LOG_BLOCK << 16 | LOG_BLOCKS),
            // Requests and the doorbell record are in registered memory.
            (0x74, VALID | 1 << 30),
            (0x78, memory.id()),
            (0x7c, memory.id()),
        ];
        let (sends, number) = create(context, &command::<QUEUE_INPUT>(CREATE_SQ, &sends))?;
        const READY: u32 = 1 << 20;
        let ready = command::<QUEUE_INPUT>(MODIFY_SQ, &[(0x8, number), (0x20, READY)]);
        sends.modify(&ready, &mut [0; SHORT]).map_err(refuse)?;
        Ok(Self { _sends: sends, _completes: completes, number, memory, bell, posted: 0 })
    }

    /// Writes one of the two meters of an object, which begins anew with a full bucket. Fails if the device does not say that it has; the queue is
    /// good for nothing then.
    pub(super) fn write(
        &mut self,
        object: u32,
        meter: usize,
        parameters: &[u8; METER_PARAMETERS],
    ) -> Result<(), Refusal> {
        let request = request(self.posted, self.number, object, meter, parameters);
        let words = request.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let first = self.posted as usize * 2 % (1 << LOG_BLOCKS) * BYTES / 8;
        for (place, word) in self.memory.words()[first..].iter().zip(words.clone()) {
            place.store(word, Ordering::Relaxed);
        }
        let turn = self.posted;
        self.posted += 1;
        // Blocks so far, in the second half of the record.
        let blocks = u64::from((self.posted * 2) & 0xffff);
        self.memory.words()[RECORDS + RECORD_OF_SENDS as usize].store(blocks.to_be(), Ordering::Release);
        self.bell.ring(words.clone().next().unwrap_or_default());
        self.wait(turn)
    }

    /// Waits for the completion of a request.
    fn wait(&self, turn: u32) -> Result<(), Refusal> {
        const REQUESTER_OK: u8 = 0;
        let place = COMPLETIONS + turn as usize % (1 << LOG_BLOCKS) * BYTES / 8 + 7;
        let owner = u8::try_from(turn >> LOG_BLOCKS & 1).unwrap_or_default();
        let until = Instant::now() + PATIENCE;
        let failed = |reason: &'static str| Err(Refusal::Device { reason: reason.into() });
        loop {
            let [.., last] = self.memory.words()[place].load(Ordering::Acquire).to_ne_bytes();
            let (opcode, is_written) = (last >> 4, last != NONE && last & 1 == owner);
            if is_written {
                let told = u64::from((turn + 1) & 0xff_ffff) << 32;
                self.memory.words()[RECORDS].store(told.to_be(), Ordering::Release);
                return if opcode == REQUESTER_OK { Ok(()) } else { failed("the device did not write the meter") };
            }
            if Instant::now() > until {
                return failed("the device does not say that it wrote the meter");
            }
            thread::sleep(Duration::from_micros(20));
        }
    }
}

/// The last byte of a completion that is none (`MLX5_CQE_INVALID`).
const NONE: u8 = 0xf1;
/// The place of the record of requests, behind that of completions.
const RECORD_OF_SENDS: u32 = 8;

/// A request that writes all of a meter, whatever it was before.
fn request(turn: u32, queue: u32, object: u32, meter: usize, parameters: &[u8; METER_PARAMETERS]) -> [u8; 2 * BYTES] {
    const ACCESS_ASO: u32 = 0x2d;
    const FLOW_METER: u32 = 2;
    /// Units of 16 bytes.
    const LENGTH: u32 = 8;
    const TELLS: u32 = 0x08;
    /// Under a mask of bytes, if both conditions hold, which always do.
    const ALWAYS: u32 = 1 << 30 | 0x11 << 16 | 1 << 6;
    /// All that is not reserved, but for what the device counts itself.
    const WRITTEN: u32 = 0x80ff_ffff;
    let index = (turn * 2) & 0xffff;
    let mut request = [0; 2 * BYTES];
    let mut put = |at: usize, word: u32| request[at..at + 4].copy_from_slice(&word.to_be_bytes());
    put(0, FLOW_METER << 24 | index << 8 | ACCESS_ASO);
    put(4, queue << 8 | LENGTH);
    put(8, TELLS);
    put(12, object);
    put(28, ALWAYS);
    put(56 + 4 * meter, WRITTEN);
    request[BYTES + METER_PARAMETERS * meter..][..METER_PARAMETERS].copy_from_slice(parameters);
    request
}
