//! Ports and the network devices behind them.

pub(crate) mod made;
pub(crate) mod table;
