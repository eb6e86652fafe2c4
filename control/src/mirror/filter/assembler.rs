//! Puts a program together: jumps go to labels.

use super::instruction::{Instruction, code};

/// A place that is jumped to. All jumps go forward, as the kernel demands.
#[derive(Clone, Copy)]
pub(super) struct Label(usize);

/// A program in the making.
#[derive(Default)]
pub(super) struct Assembler {
    program: Vec<Instruction>,
    /// Unconditional jumps, and their labels.
    jumps: Vec<(usize, Label)>,
    /// Where the labels are.
    labels: Vec<usize>,
}

impl Assembler {
    /// Returns a label that is placed later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        Label(self.labels.len() - 1)
    }

    /// Places a label in front of the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = self.program.len();
    }

    /// Adds an instruction that does not jump.
    pub(super) fn add(&mut self, code: u16, operand: u32) {
        self.program.push(Instruction { code, jump_true: 0, jump_false: 0, operand });
    }

    /// Jumps.
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.add(code::JUMP, 0);
    }

    /// Jumps if A has this value.
    pub(super) fn jump_if_equal(&mut self, value: u32, to: Label) {
        self.jump_if(code::JUMP_IF_EQUAL, value, to);
    }

    /// Jumps if A has one of these bits.
    pub(super) fn jump_if_set(&mut self, bits: u32, to: Label) {
        self.jump_if(code::JUMP_IF_SET, bits, to);
    }

    /// A conditional jump reaches 255 instructions only, so it jumps over one that reaches all.
    fn jump_if(&mut self, code: u16, operand: u32, to: Label) {
        self.program.push(Instruction { code, jump_true: 0, jump_false: 1, operand });
        self.jump(to);
    }

    /// Returns the program.
    pub(super) fn instructions(mut self) -> Vec<Instruction> {
        for (place, label) in self.jumps {
            let distance = self.labels[label.0].saturating_sub(place + 1);
            self.program[place].operand = u32::try_from(distance).unwrap_or(u32::MAX);
        }
        self.program
    }
}
