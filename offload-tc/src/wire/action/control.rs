//! What comes after an action (`TC_ACT_*`).

/// What comes after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The packet goes on as if nothing had matched.
    Ok,
    /// The filters of the next priority are asked (`TC_ACT_UNSPEC`).
    Continue,
    /// It is dropped.
    Shot,
    /// The next action.
    Pipe,
    /// It is somebody else's now.
    Stolen,
    /// It is looked up in a chain.
    GotoChain(u32),
    /// So many actions from the first one are left out, and those behind are run.
    Jump(u32),
    /// Any other.
    Other(i32),
}

/// The kind of what has a number in the lower bits (`TC_ACT_EXT_SHIFT`).
const EXTENDED: u32 = 28;
const JUMP: u32 = 1 << EXTENDED;
const GOTO_CHAIN: u32 = 2 << EXTENDED;

impl Control {
    /// As high as the number of a chain or a jump can be (`TC_ACT_EXT_VAL_MASK`).
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
