//! A device that is dead, for which its driver answers.

use super::state::Hca;
use crate::command;

/// The status of commands that the driver answers for a dead device (`MLX5_DRIVER_STATUS_ABORTED` in the kernel).
pub const DEAD: u8 = 0xfe;
/// And the syndrome (`MLX5_DRIVER_SYND`).
const SYNDROME: u32 = 0xbadd_00de;

impl Hca {
    /// Lets the device be dead from now on.
    pub fn die(&mut self) {
        self.is_dead = true;
    }

    /// What the driver answers for a dead device, if it does: commands that take something back are said to be done, so that drivers
    /// come to an end (`mlx5_internal_err_ret_value` in the kernel). Here they are done, so that what is left can be told.
    pub(super) fn answer_of_dead(&self, opcode: u16) -> Option<Vec<u8>> {
        (self.is_dead && !takes_back(opcode)).then(|| command::refusal_bytes(DEAD, SYNDROME))
    }
}

/// Whether a command takes back what another one has made.
fn takes_back(opcode: u16) -> bool {
    matches!(
        opcode,
        // Keys, EQs, CQs and queue pairs, also those that are moved into reset or error.
        0x202 | 0x302 | 0x401 | 0x501 | 0x507 | 0x50a
            // Q counters, PDs, doorbells, transport domains.
            | 0x772 | 0x801 | 0x803 | 0x817
            // TIRs, send and receive queues, TISs, tables of receive queues.
            | 0x902 | 0x906 | 0x90a | 0x914 | 0x918
            // Flow tables, groups and entries.
            | 0x931 | 0x934 | 0x938
            // Flow counters, reformats, lists of rewrites.
            | 0x93a | 0x93e | 0x941
            // General objects, user contexts, umems.
            | 0xa03 | 0xa06 | 0xa0a
    )
}

#[cfg(test)]
mod tests {
    use crate::command::layouts as l;
    use crate::hca::test::{initialized, made, run, status};
    use crate::profile::BLUEFIELD_2;

    #[test]
    fn of_a_dead_device_things_are_taken_back_and_nothing_else() {
        let mut hca = initialized(BLUEFIELD_2);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        hca.die();
        assert_eq!(status(&run(&mut hca, 0x800, 0, &l::plain::LAYOUT, &[], &[])), super::DEAD);
        assert_eq!(status(&run(&mut hca, 0x801, 0, &l::object::LAYOUT, &[(l::object::ID, pd)], &[])), 0);
    }
}
