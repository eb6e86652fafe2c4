//! What comes after an action (`TC_ACT_*`).

/// What comes after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The packet is accepted.
    Ok,
    /// The filters of the next priority are matched (`TC_ACT_UNSPEC`).
    Continue,
    /// It is dropped.
    Shot,
    /// The next action is run.
    Pipe,
    /// The action has consumed the packet.
    Stolen,
    /// The packet is matched in a chain.
    GotoChain(u32),
    /// The actions before this one, counted from the first, are skipped.
    Jump(u32),
    /// Anything else.
    Other(i32),
}

/// Controls with a number in the lower bits (`TC_ACT_EXT_SHIFT`).
const EXTENDED: u32 = 28;
const JUMP: u32 = 1 << EXTENDED;
const GOTO_CHAIN: u32 = 2 << EXTENDED;

impl Control {
    /// The limit of the number of a chain or a jump (`TC_ACT_EXT_VAL_MASK`).
    pub const NUMBER_LIMIT: u32 = (1 << EXTENDED) - 1;

    pub(super) const fn number(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Continue => -1,
            Self::Shot => 2,
            Self::Pipe => 3,
            Self::Stolen => 4,
            Self::Jump(count) => (JUMP | count & Self::NUMBER_LIMIT).cast_signed(),
            Self::GotoChain(chain) => (GOTO_CHAIN | chain & Self::NUMBER_LIMIT).cast_signed(),
            Self::Other(number) => number,
        }
    }

    pub(super) const fn from_number(number: i32) -> Self {
        let low = number.cast_unsigned() & Self::NUMBER_LIMIT;
        match number {
            -1 => Self::Continue,
            0 => Self::Ok,
            2 => Self::Shot,
            3 => Self::Pipe,
            4 => Self::Stolen,
            _ => match number.cast_unsigned() & !Self::NUMBER_LIMIT {
                JUMP => Self::Jump(low),
                GOTO_CHAIN => Self::GotoChain(low),
                _ => Self::Other(number),
            },
        }
    }
}
