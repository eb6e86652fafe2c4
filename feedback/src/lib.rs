//! Gives Open vSwitch the counters of flows that are forwarded past its datapath.
//!
//! OVS deletes a flow that the kernel's datapath tells nothing new of. A small library (`feedback/preload`), loaded into an unmodified
//! ovs-vswitchd, adds what Sluice has counted to the kernel's answers. It reads this from memory that the agent's [`Publisher`] writes and
//! its [`Handover`] hands over. In the same memory it tells of the meters that OVS sets, of whose rates the kernel tells nobody.
//!
//! # The memory
//!
//! A memfd, sealed against shrinking, growing and further seals. Parts begin on borders of 64 KiB, but for the meters, which came later.
//! Numbers are words of 64 bits in the order of the machine.
//!
//! | part | at | written by | words |
//! |---|---|---|---|
//! | header | 0 | agent, once | magic number `SLUICEFB`; version, 1; bytes of a record, 64; capacity in flows; slots, a power of two; epoch |
//! | status | 64 KiB | library | counters, in the order of [`Counters`]; changes of meters |
//! | meters | 68 KiB | library | two words for each meter, with what ovs-vswitchd has set it to; see [`Setting`] |
//! | records | 128 KiB | agent | one record for each slot |
//! | marks | behind the records | library | one word for each slot: the sequence of the record whose deletion was answered last |
//!
//! A record has 64 bytes:
//!
//! | byte | what |
//! |---|---|
//! | 0 | sequence: odd while the slot is given to another flow |
//! | 8 | UFID, 16 bytes as they stand in messages of the kernel |
//! | 24 | packets |
//! | 32 | bytes |
//! | 40 | used, in ms of `CLOCK_MONOTONIC` |
//! | 48 | life, one byte: 0 free, 1 live, 2 ended; TCP flags, one byte; when it ended, six bytes in ms (lowest bits first) |
//! | 56 | reach of the slot: how many slots behind it the last record lies whose home it is, at most 127 |
//!
//! A UFID, mixed with the epoch, names the slot that is its home; its record lies there or in one of the slots behind, as far as the
//! home's reach says. Twice as many slots as flows keep that short.
//!
//! The sequence guards only whose a record is. Packets, bytes, used and TCP flags each grow by themselves and are read and written as
//! whole words, so that no reader ever has to go without them: a flow whose counters are missing from one answer would be counted twice
//! by the next.
//!
//! A record has another sequence in each life of its flow. When the library has added a record to an answer to a deletion, it marks the
//! slot with the record's sequence, and adds that record to nothing any more: OVS may make the flow again before the agent has heard of
//! its deletion, and what was counted for the life before would be counted twice.
//!
//! # Handing it over
//!
//! The library connects to a UNIX socket (`SOCK_SEQPACKET`) and says hello, with the memory that it has, if it has one. The agent goes on
//! in that memory, or copies what is in it, and sends its own. So a restarted agent continues the counters of the one before, no matter
//! how that one ended, and while there is none the library goes on adding what was published last.

mod ancillary;
pub mod answer;
mod attachment;
mod door;
mod handover;
pub mod layout;
mod marks;
mod memory;
mod meters;
pub mod protocol;
mod publisher;
mod records;
mod status;

pub use attachment::Attachment;
pub use door::{ClosedDoor, Door, Peer};
pub use handover::{Event, Handover, Offered, SOCKET};
pub use memory::{Refusal, SEALS, Shape};
pub use meters::{COUNT as METER_COUNT, MeterCount, MeterSetter, Setting, SettingKind};
pub use publisher::{CreateError, Full, Publisher};
pub use records::Totals;
pub use status::Counters;

/// For how long after its withdrawal a flow's numbers are added to an answer to its deletion, in ms.
pub const GRACE: u64 = 5000;
