//! A table that survives: what is wanted, in a log in the state folder, read back at the next start.
//!
//! A change to what is wanted puts the slot of its flow into a [queue](sluice_flow::table::Unwritten), without a system call and
//! without a lock that flows share. The [writer](Writer) takes the slots in turn, makes records of what is wanted by then and writes them in one go;
//! who must know that its request is safe from the agent's death [waits](Journal::wait) for that. A disk that hangs makes the log
//! fall [behind](Lag), which is told; the queue cannot outgrow the table.
//! The [keeper](Keeper) syncs the disk at an interval, which bounds what the death of the whole machine takes, and compacts.
//!
//! The log is a folder of numbered files, read in order. A new one is begun at each start and by each
//! compaction, so that nothing is ever written behind a torn end. A compaction writes what the table wants by then to a
//! file aside and renames it over the last finished one; it says of itself that it holds everything, so that older files
//! may go or stay. What is accepted meanwhile is in the new file, and reading a change twice does no harm.
//!
//! Records are numbered and each file says where it continues, so that a reader notices what is missing, be it a
//! record or a file. It goes on behind the damage, and an index that follows every few records tells what the missing ones were:
//! a deletion is done all the same, and a flow whose last change is lost is not wanted any more, for what it did before is not
//! what it was to do. Where nothing tells, the flows that were wanted before are wanted again and are listed as in doubt. A
//! damaged file is kept aside, and the agent is not ready until somebody has [seen to it](DamageReport).
//! What a crash leaves of the last file, a tail that is short or zero, is no damage.
//!
//! Embedded stores were measured on records of this size (1,000,000 in batches of 1,000, keyed by UFID, without syncs). To write
//! them took redb 4.4 about 70 times and fjall 3.1 about 20 times as long as appending them; to read them all, redb a third as
//! long and fjall five times as long as reading the log into a map. The table is the index, so that a log is enough.
//!
//! If the disk takes no more, flows are taken on all the same and the agent says loudly that they will not survive: in
//! the log, in `/readyz` and in a metric. Traffic goes first, and once there is room again the table is written anew. Room for
//! that is reserved, so that the log alone never fills a disk beyond healing.
//!
//! # Example
//!
//! Two runs: what the first accepts, the second wants again.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, SystemTime};
//!
//! use sluice_flow::table::Limits;
//! use sluice_flow::time::{Clock, MonotonicClock};
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, FlowTable, MaskedKey, Priority, text};
//! use sluice_host::lifecycle::Lifecycle;
//! use sluice_journal::{Journal, JournalOptions};
//!
//! let folder = tempfile::tempdir()?;
//! let runtime = tokio::runtime::Runtime::new()?;
//! let (seed, clock) = (Seed([7; 16]), Arc::new(MonotonicClock::new()));
//! let start = || -> Result<_, Box<dyn std::error::Error>> {
//!     let options =
//!         JournalOptions { sync_interval: Duration::ZERO, clock: clock.clone(), wall: Arc::new(SystemTime::now) };
//!     let opened = Journal::open(&folder.path().join("flows"), options)?;
//!     let journal = opened.journal.clone();
//!     let limits = Limits { flows: 10, unsettled: 10 };
//!     let table = Arc::new(FlowTable::new(seed, limits, Arc::new(())).kept_by(Some(journal.unwritten())));
//!     let mut lifecycle = Lifecycle::new(runtime.handle().clone());
//!     opened.run(&table, |flow, accepted| table.restore(flow, accepted, clock.now()).map(|_| ()), &mut lifecycle)?;
//!     Ok((journal, table, lifecycle))
//! };
//!
//! let (journal, table, lifecycle) = start()?;
//! let matching = text::parse_key("in_port(1),eth_type(0x0800)", &())?.matching;
//! let actions = text::parse_actions("2", &())?;
//! table.add(Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &seed), clock.now(), None)?;
//! journal.wait(Duration::from_secs(10))?;
//! runtime.block_on(lifecycle.stop());
//! drop((journal, table));
//!
//! let (_journal, table, _lifecycle) = start()?;
//! assert_eq!(table.census().live(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod active;
pub mod bytes;
mod compact;
mod damage;
mod error;
mod folder;
mod frame;
mod journal;
mod lag;
mod load;
mod loss;
mod opened;
mod record;
mod report;
mod reserve;
mod restore;
mod writer;

#[cfg(test)]
mod tests;

pub use self::compact::Keeper;
pub use self::damage::{Damage, DamageReport};
pub use self::error::JournalError;
pub use self::journal::{Journal, JournalOptions, NotWritten, WallClock};
pub use self::lag::Lag;
pub use self::opened::Opened;
pub use self::record::{NotWritable, RecordError};
pub use self::report::{JournalReport, Restored};
pub use self::restore::Saved;
pub use self::writer::Writer;
