//! The metadata registers of a packet (`metadata_reg_c_0` to `metadata_reg_c_5`, all that libmlx5 writes), and who has which bits.
//!
//! | register | bits | what |
//! |---|---|---|
//! | C0 | all | the kernel's: the source port |
//! | C1 | 31 to 16 | nobody |
//! | C1 | 15 to 0 | [`CONTINUATION`] |
//! | C2 | 31 to 16 | [`CT_STATE`] |
//! | C2 | 15 to 0 | [`CT_ZONE`] |
//! | C3 | all | [`CT_MARK`] |
//! | C4 | all | [`CT_LABEL`] |
//! | C5 | 31 to 8 | [`TRANSLATION`] |
//! | C5 | 7 to 0 | [`COLOR`] |
//!
//! Zone, state, mark, label and color are where the kernel's driver has them (`mlx5/core/en/tc_ct.h` of Linux). That has the continuation
//! in C5, and a short form of the zone in C1, by which it knows the connection of a packet that comes up translated. Here a packet
//! comes up as it came in, for which its translation must be known. All are 0 when a packet comes in.

use super::places::Place;

/// The flow whose rules behind the first go on with the packet.
pub const CONTINUATION: Bits = Bits::new("misc2.metadata_reg_c_1", 1, 0, 16);
/// `ct_zone`.
pub const CT_ZONE: Bits = Bits::new("misc2.metadata_reg_c_2.zone", 2, 0, 16);
/// `ct_state`, by the bits that it has in a flow.
pub const CT_STATE: Bits = Bits::new("misc2.metadata_reg_c_2.state", 2, 16, 16);
/// `ct_mark`.
pub const CT_MARK: Bits = Bits::new("misc2.metadata_reg_c_3", 3, 0, 32);
/// What stands for `ct_label`.
pub const CT_LABEL: Bits = Bits::new("misc2.metadata_reg_c_4", 4, 0, 32);
/// The address translation that was done to the packet; 0 for none.
pub const TRANSLATION: Bits = Bits::new("misc2.metadata_reg_c_5", 5, 8, 24);

/// The color that a meter gives, as the PRM counts colors.
pub const COLOR: Bits = Bits::new("misc2.metadata_reg_c_5.color", 5, 0, 8);
/// More than a meter lets pass.
pub const RED: u32 = 0;
/// No more than a meter lets pass.
pub const GREEN: u32 = 2;

/// Bits of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    name: &'static str,
    register: usize,
    shift: usize,
    width: usize,
}

impl Bits {
    const fn new(name: &'static str, register: usize, shift: usize, width: usize) -> Self {
        Self { name, register, shift, width }
    }

    /// Returns the number of the register.
    pub const fn register(self) -> usize {
        self.register
    }

    /// Returns where a match looks at them: C0 is at 0x760 of `fte_match_param`, and each next one 32 bits before.
    pub(super) const fn place(self) -> Place {
        Place::new(self.name, 0x760 - 0x20 * self.register + 32 - self.shift - self.width, self.width)
    }

    /// Returns the greatest number that they hold.
    pub const fn last(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// Returns the modify action that sets them (`set_action_in` of the PRM).
    pub const fn set(self, value: u32) -> u64 {
        const SET: u64 = 1;
        /// `MLX5_ACTION_IN_FIELD_METADATA_REG_C_0`, which the others follow.
        const C0: u64 = 0x51;
        // 32 bits are written as none.
        let length = (self.width & 0x1f) as u64;
        SET << 60 | (C0 + self.register as u64) << 48 | (self.shift as u64) << 40 | length << 32 | value as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_written_where_they_are_matched() {
        // dw1_31_0 of the register, counted from its highest bit.
        assert_eq!(CT_STATE.place(), Place::new("misc2.metadata_reg_c_2.state", 0x720, 16));
        assert_eq!(CT_ZONE.place(), Place::new("misc2.metadata_reg_c_2.zone", 0x730, 16));
        assert_eq!(TRANSLATION.place(), Place::new("misc2.metadata_reg_c_5", 0x6c0, 24));
        assert_eq!(CT_STATE.set(0x22), 0x1053_1010_0000_0022);
        assert_eq!(CT_MARK.set(7), 0x1054_0000_0000_0007);
    }
}
