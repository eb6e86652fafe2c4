//! Which connections may have flows, by the mark that rules of nftables or iptables give them.

use std::fmt;
use std::str::FromStr;

use sluice_flow::text::parse_number;

/// A value of the mark of connections (`ct mark` of nftables), and which of its bits count. By default none does, and any mark is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// What those bits must be.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Mark {
    /// Whether a connection with this mark is meant.
    pub const fn is_in(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}/{:#x}", self.value, self.mask)
    }
}

impl FromStr for Mark {
    type Err = String;

    /// Reads `VALUE` or `VALUE/MASK`, decimal or hexadecimal after `0x`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text| parse_number(text).and_then(|number| u32::try_from(number).ok());
        let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
        let mask = mask.map_or(Some(u32::MAX), number);
        let (Some(value), Some(mask)) = (number(value), mask) else {
            return Err(format!("expected a mark of connections such as \"0x10/0x10\" or \"7\", not \"{text}\""));
        };
        if value & !mask != 0 {
            return Err(format!("no connection has the mark \"{text}\": the value has bits that the mask leaves out"));
        }
        Ok(Self { value, mask })
    }
}
