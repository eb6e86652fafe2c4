//! What keeps the table and the device in step without being asked: reading counters and ageing, giving room in hardware to the busiest
//! flows, reading rules back, trying refused flows again. And the file of objects with the objects in force. At the end it takes everything
//! out, if that is wanted.

pub mod audit;
pub mod cleanup;
pub mod device_counters;
pub mod difference;
pub mod inspection;
pub(crate) mod object_file;
pub mod orphans;
pub mod rebalancing;
pub mod reinstatement;
pub(crate) mod retrying;
pub mod revalidation;
