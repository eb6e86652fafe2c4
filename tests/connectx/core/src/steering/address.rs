//! Addresses outside steering memory at which a walk through it ends: each stands for where the packet goes from there.
//!
//! The device gives them out in its capabilities and in answers to commands, and software writes them into its entries. Values
//! are ours; drivers take them as they come, and keep 40 bits of them.

/// Which of a table's two trees an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Packets from the wire, or to a function.
    Receive,
    /// Packets from a vport, or from a function.
    Transmit,
}

/// What an address stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// The function behind a vport, or the wire.
    Vport(u16),
    /// The packet is dropped.
    Drop,
    /// The packet leaves the tables of its kind.
    Allow,
    /// A flow table, by its id.
    Table(u32),
    /// Receive queues, by the id of their TIR.
    Tir(u32),
    /// A sampler, by its id.
    Sampler(u32),
    /// A meter, by its id.
    Meter(u32),
}

const VPORTS: u64 = 0xf0;
const VERDICTS: u64 = 0xe0;
const TABLES: u64 = 0xd0;
const TIRS: u64 = 0xd1;
const SAMPLERS: u64 = 0xd2;
const METERS: u64 = 0xd3;

const DROP: u64 = 0x100;
const ALLOW: u64 = 0x200;

/// Where the two sides lie, so that an entry of one that leads to the other is found out.
const RECEIVE: u64 = 0x40;
const TRANSMIT: u64 = 0x80;

impl Terminal {
    /// The address that stands for it on this side.
    pub fn address(self, side: Side) -> u64 {
        let side = match side {
            Side::Receive => RECEIVE,
            Side::Transmit => TRANSMIT,
        };
        let (region, place) = match self {
            Self::Vport(number) => (VPORTS, u64::from(number) << 8),
            Self::Drop => (VERDICTS, DROP),
            Self::Allow => (VERDICTS, ALLOW),
            Self::Table(id) => (TABLES, u64::from(id) << 8),
            Self::Tir(id) => (TIRS, u64::from(id) << 8),
            Self::Sampler(id) => (SAMPLERS, u64::from(id) << 8),
            Self::Meter(id) => (METERS, u64::from(id) << 8),
        };
        region << 32 | place | side
    }

    /// What `address` stands for on this side; None for an address that was never given out for it.
    pub fn of(address: u64, side: Side) -> Option<Self> {
        let place = address >> 8 & 0xff_ffff;
        let id = u32::try_from(place).ok()?;
        let terminal = match (address >> 32, place << 8) {
            (VPORTS, _) => Self::Vport(u16::try_from(place).ok()?),
            (VERDICTS, DROP) => Self::Drop,
            (VERDICTS, ALLOW) => Self::Allow,
            (TABLES, _) => Self::Table(id),
            (TIRS, _) => Self::Tir(id),
            (SAMPLERS, _) => Self::Sampler(id),
            (METERS, _) => Self::Meter(id),
            _ => return None,
        };
        (terminal.address(side) == address).then_some(terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::{Side, Terminal};

    #[test]
    fn an_address_stands_for_one_thing_on_one_side() {
        let terminals = [
            Terminal::Vport(0),
            Terminal::Vport(0xffff),
            Terminal::Drop,
            Terminal::Allow,
            Terminal::Table(7),
            Terminal::Tir(0x12_3456),
            Terminal::Sampler(1),
            Terminal::Meter(0xff_ffff),
        ];
        for terminal in terminals {
            for (side, other) in [(Side::Receive, Side::Transmit), (Side::Transmit, Side::Receive)] {
                let address = terminal.address(side);
                assert_eq!(address >> 40, 0, "more than entries have room for");
                assert_eq!(Terminal::of(address, side), Some(terminal));
                assert_eq!(Terminal::of(address, other), None);
                assert_eq!(Terminal::of(address + 1, side), None);
            }
        }
    }
}
