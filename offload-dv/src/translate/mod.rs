//! A flow as what libmlx5 takes: mask and value of a rule, and what it does. Nothing here asks the device.
//!
//! Each bit of a match is taken or refused by the name of its field, and so is each action.

mod actions;
mod bits;
mod changes;
mod connection;
mod describe;
mod geneve;
mod guarantees;
mod headers;
mod matching;
mod meter;
mod modify;
mod places;
pub mod registers;
mod rule;
mod table_id;
mod templates;
mod tracking;
mod tunnel;
mod vports;

pub use self::actions::{Plan, Sampling, Tag};
pub use self::changes::Changes;
pub(crate) use self::connection::status;
pub use self::connection::{
    ConnectionRule, Way, continuation, is_for_hardware, is_translated, restoration, rule as connection_rule,
    translated_mask,
};
pub use self::geneve::GeneveOption;
pub use self::guarantees::Guarantees;
pub use self::headers::{Hop, Wrapping};
pub use self::matching::{Matched, from_vport};
pub use self::meter::{METER_PARAMETERS, meter_parameters};
pub use self::modify::address_words;
pub use self::rule::{Rule, translate};
pub use self::table_id::TableId;
pub use self::templates::{Instance, Template, Templates};
pub use self::tracking::Tracking;
pub use self::tunnel::{Entrance, Protocol, as_seen};
pub use self::vports::{UPLINK, Vports};
