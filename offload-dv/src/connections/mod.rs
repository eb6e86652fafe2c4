//! Where connections come from, and how they come to the switch.

mod begun;
mod kernel;
mod kernel_table;
mod source;
mod table;
mod told;
mod tracker;

pub use self::kernel::KernelConnections;
pub use self::source::{ConnectionSource, SourceError};
pub use self::table::ConnectionTable;
pub use self::told::ToldConnections;

pub(crate) use self::tracker::Tracker;

/// A connection of UDP of which only the first packet has been seen.
#[cfg(test)]
fn begun_from(port: u16) -> sluice_flow::connection::Connection {
    use sluice_flow::connection::{Connection, Direction, State};

    let direction = Direction {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        source_port: port,
        destination_port: 53,
    };
    Connection {
        zone: 7,
        id: 1,
        original: direction,
        reply: direction,
        status: 0,
        mark: 0,
        label: 0,
        timeout: std::time::Duration::from_secs(30),
        state: State::Other,
        helper: None,
        parent: None,
    }
}
