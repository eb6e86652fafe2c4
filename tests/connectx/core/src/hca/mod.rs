//! The device without its bus: what the commands change, and what packets and doorbells do.

mod aso;
mod dead;
mod doorbells;
mod execute;
mod failed;
mod flush;
mod function;
mod general;
mod hairpin;
mod hash;
mod key;
mod keys;
mod offload;
mod pair;
mod pair_queues;
mod pairs;
mod place;
mod port;
mod queue;
mod queues;
mod rdma;
mod receive;
mod register;
mod reliable;
mod request;
mod resources;
mod ring;
mod scatter;
mod send;
mod shared;
mod state;
mod table;
mod vport;
mod vports;
mod walk;

pub use dead::DEAD;
pub use state::{CommandFault, Hca, Stage, Trouble};
pub use table::name as command_name;

#[cfg(test)]
pub(crate) mod test;
