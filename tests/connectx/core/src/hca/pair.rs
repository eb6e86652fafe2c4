//! What the device knows of a queue pair.

use std::time::Duration;

use super::ring::Ring;

/// A queue pair: what it sends from, where it receives, and whom it is connected with.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(super) service: Service,
    pub(super) ring: Ring,
    pub(super) cq: u32,
    /// The driver's own number of it, for completions.
    pub(super) user_index: u32,
    /// Where software keeps its counters: of receives first, and then of sends.
    pub(super) doorbell_record: u64,
    pub(super) consumer: u16,
    pub(super) state: PairState,
    pub(super) receives: Receives,
    pub(super) receive_cq: u32,
    pub(super) connection: Connection,
    /// What its first request waits for.
    pub(super) waiting: Option<Waiting>,
}

/// Where a queue pair has buffers from.
#[derive(Debug)]
pub(super) enum Receives {
    /// There are none.
    Nowhere,
    /// A queue of its own.
    Own { ring: Ring, consumer: u16 },
    /// One that it shares with others, by number.
    Shared(u32),
}

/// The other side of a reliable connection, and what was agreed on (PRM, "Queue Pair Context").
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Number of the other queue pair.
    pub(super) remote: u32,
    /// Packets do not leave the device, whatever their address.
    pub(super) loopback: bool,
    /// Address of RoCE of the other side.
    pub(super) address: [u8; 16],
    /// Numbers of the next packets in both directions, of 24 bits.
    pub(super) next_send: u32,
    pub(super) next_receive: u32,
    /// Bytes of a packet, as a power of two.
    pub(super) log_mtu: u32,
    /// What the other side may do here.
    pub(super) remote_write: bool,
    pub(super) remote_read: bool,
    /// For how long the other side is to wait where there is no buffer, as IBTA numbers that (table 45).
    pub(super) min_rnr_timer: u8,
    /// For how long an answer is waited for: 4.096 us, doubled so many times; 0 for ever.
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
}

/// A request that was not answered, or for which there was no buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) cause: Cause,
    /// When it is tried again, by the device's clock.
    pub(super) until: Duration,
    /// How often it has been tried for this cause.
    pub(super) tries: u32,
}

/// Why a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The other side has said that it has no buffer (RNR).
    NoBuffer,
    /// Nobody has answered.
    NoAnswer,
}

/// What a queue pair is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Connected with a queue pair of the same device.
    ReliableConnection,
    /// Unconnected. The driver tries by such a one how it may write into a page of doorbells, and sends nothing.
    Datagram,
    /// Changes memory keys (`REG_UMR`).
    KeyRegistration,
}

/// Of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairState {
    Reset,
    Initialized,
    ReadyToReceive,
    ReadyToSend,
    /// A request has failed.
    Error,
    /// Its memory is gone.
    Lost,
}

impl QueuePair {
    /// As it was made, in everything that transitions change.
    pub(super) fn reset(&mut self) {
        self.consumer = 0;
        if let Receives::Own { consumer, .. } = &mut self.receives {
            *consumer = 0;
        }
        self.connection = Connection::default();
        self.waiting = None;
    }
}

impl Connection {
    /// How many packets a message takes.
    pub(super) fn packets(&self, length: usize) -> u32 {
        u32::try_from(length.div_ceil(1 << self.log_mtu).max(1)).unwrap_or(u32::MAX)
    }

    /// How long an answer is waited for; `None` for ever.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.timeout > 0).then(|| Duration::from_nanos(4096 << self.timeout))
    }

    /// For how long the other side waits where there is no buffer (IBTA, table 45, in units of 10 us).
    pub(super) fn rnr_delay(&self) -> Duration {
        const DELAYS: [u32; 32] = [
            65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
            4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
        ];
        let units = DELAYS.get(usize::from(self.min_rnr_timer)).copied().unwrap_or(DELAYS[0]);
        Duration::from_micros(10) * units
    }
}

/// The number of a packet, so many behind another.
pub(super) fn behind(number: u32, packets: u32) -> u32 {
    number.wrapping_add(packets) & 0xff_ffff
}
