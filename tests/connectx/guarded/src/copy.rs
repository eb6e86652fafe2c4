//! Accesses that may fail: each is one instruction, and what comes behind it says whether it was carried out.

#![allow(unsafe_code)]

use std::arch::global_asm;

use super::{Unmapped, fault};

// Each instruction that may fault is between two labels, of which the second is where it goes on then.
//
// `rep movsb` counts down in rcx, so that what is left there is 0 only if all is copied. The load leaves ones in the upper half of rax
// unless it is carried out, which clears them. The store is carried out behind the copy, as seen by others, since a string operation
// and a discrete store keep their order (Intel SDM, volume 3, "Fast-String Operation and Out-of-Order Stores").
global_asm!(
    ".hidden sluice_guarded_copy, sluice_guarded_copy_at, sluice_guarded_copy_end",
    ".globl sluice_guarded_copy, sluice_guarded_copy_at, sluice_guarded_copy_end",
    ".hidden sluice_guarded_load, sluice_guarded_load_at, sluice_guarded_load_end",
    ".globl sluice_guarded_load, sluice_guarded_load_at, sluice_guarded_load_end",
    ".hidden sluice_guarded_store, sluice_guarded_store_at, sluice_guarded_store_end",
    ".globl sluice_guarded_store, sluice_guarded_store_at, sluice_guarded_store_end",
    ".text",
    "sluice_guarded_copy:",
    "mov rcx, rdx",
    "sluice_guarded_copy_at:",
    "rep movsb",
    "sluice_guarded_copy_end:",
    "mov rax, rcx",
    "ret",
    "sluice_guarded_load:",
    "mov rax, -1",
    "sluice_guarded_load_at:",
    "mov eax, dword ptr [rdi]",
    "sluice_guarded_load_end:",
    "ret",
    "sluice_guarded_store:",
    "mov eax, 1",
    "sluice_guarded_store_at:",
    "mov byte ptr [rdi], sil",
    "xor eax, eax",
    "sluice_guarded_store_end:",
    "ret",
);

unsafe extern "C" {
    /// Answers with how many bytes are left.
    fn sluice_guarded_copy(to: u64, from: u64, bytes: usize) -> u64;
    /// Answers with more than any word if there is none.
    fn sluice_guarded_load(from: u64) -> u64;
    /// Answers with how many bytes are left.
    fn sluice_guarded_store(to: u64, byte: u8) -> u64;

    static sluice_guarded_copy_at: u8;
    static sluice_guarded_copy_end: u8;
    static sluice_guarded_load_at: u8;
    static sluice_guarded_load_end: u8;
    static sluice_guarded_store_at: u8;
    static sluice_guarded_store_end: u8;
}

pub(super) fn read(address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
    fault::take();
    // SAFETY: there is room for so many bytes, and where they come from nothing is assumed: a fault is taken.
    match unsafe { sluice_guarded_copy(bytes.as_mut_ptr() as u64, address, bytes.len()) } {
        0 => Ok(()),
        _ => Err(Unmapped),
    }
}

pub(super) fn load(address: u64) -> Result<[u8; 4], Unmapped> {
    fault::take();
    // SAFETY: of the address nothing is assumed: a fault is taken.
    let loaded = unsafe { sluice_guarded_load(address) };
    u32::try_from(loaded).map(u32::to_ne_bytes).map_err(|_| Unmapped)
}

pub(super) fn write(address: u64, before: &[u8], last: u8) -> Result<(), Unmapped> {
    fault::take();
    // SAFETY: a fault is taken. Where something is mapped it is for the device to write, as the caller says that gives an address.
    let copied = || unsafe { sluice_guarded_copy(address, before.as_ptr() as u64, before.len()) };
    // SAFETY: as above.
    let stored = || unsafe { sluice_guarded_store(address.wrapping_add(before.len() as u64), last) };
    if copied() == 0 && stored() == 0 { Ok(()) } else { Err(Unmapped) }
}

/// Where the instruction at an address goes on if it faults, if it is one of the above.
pub(super) fn behind(instruction: u64) -> Option<u64> {
    let guarded = [
        (&raw const sluice_guarded_copy_at, &raw const sluice_guarded_copy_end),
        (&raw const sluice_guarded_load_at, &raw const sluice_guarded_load_end),
        (&raw const sluice_guarded_store_at, &raw const sluice_guarded_store_end),
    ];
    guarded.into_iter().find(|(at, _)| *at as u64 == instruction).map(|(_, end)| end as u64)
}
