//! One instruction of classic BPF.

/// An instruction, as `struct sock_filter` in linux/filter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions a jump skips if its condition is true.
    pub jump_true: u8,
    /// How many instructions a jump skips if its condition is false.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// Codes, put together from linux/bpf_common.h and linux/filter.h.
pub(super) mod code {
    /// `A = u32 at k` of the packet, or an ancillary word.
    pub(in super::super) const LOAD_WORD: u16 = 0x20;
    /// `A = u16 at X + k`.
    pub(in super::super) const LOAD_HALF_AT: u16 = 0x48;
    /// `A = u8 at X + k`.
    pub(in super::super) const LOAD_BYTE_AT: u16 = 0x50;
    /// `A = M[k]`.
    pub(in super::super) const LOAD_MEMORY: u16 = 0x60;
    /// `M[k] = A`.
    pub(in super::super) const STORE: u16 = 0x02;
    /// `X = k`.
    pub(in super::super) const SET_X: u16 = 0x01;
    /// `A += k`.
    pub(in super::super) const ADD: u16 = 0x04;
    /// `A += X`.
    pub(in super::super) const ADD_X: u16 = 0x0c;
    /// `A &= k`.
    pub(in super::super) const AND: u16 = 0x54;
    /// `A <<= k`.
    pub(in super::super) const SHIFT_LEFT: u16 = 0x64;
    /// `X = A`.
    pub(in super::super) const COPY_TO_X: u16 = 0x07;
    /// `A = X`.
    pub(in super::super) const COPY_FROM_X: u16 = 0x87;
    /// Skips k instructions.
    pub(in super::super) const JUMP: u16 = 0x05;
    /// If `A == k`.
    pub(in super::super) const JUMP_IF_EQUAL: u16 = 0x15;
    /// If `A & k != 0`.
    pub(in super::super) const JUMP_IF_SET: u16 = 0x45;
    /// Takes the first k bytes of the packet.
    pub(in super::super) const RETURN: u16 = 0x06;
}
