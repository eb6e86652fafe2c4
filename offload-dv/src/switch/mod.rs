//! The rules in the eswitch of a device, and all that they need there: tables of chains, matchers, actions and counters.
//!
//! It stays on the thread that opened it, as the handles of [`mlx5`](crate::mlx5) do.

mod actions;
mod after;
mod capabilities;
mod command;
mod connections;
mod continuations;
mod continued;
mod core;
mod counters;
mod deferred;
mod growth;
mod ids;
mod installed;
mod kinds;
mod lead;
mod levels;
mod meters;
mod mirrors;
mod next_hops;
mod options;
mod refusal;
mod rule_id;
mod stages;
mod tables;
mod waiting;

pub use self::connections::{Connected, ConnectionChange};
pub(crate) use self::core::BYTES_A_RULE;
pub use self::core::Switch;
pub(crate) use self::counters::END;
pub use self::counters::{Count, Told};
pub use self::mirrors::Copying;
pub(crate) use self::next_hops::no_way;
pub use self::next_hops::{Led, Way};
pub(crate) use self::rule_id::ByRule;
pub use self::rule_id::RuleId;
