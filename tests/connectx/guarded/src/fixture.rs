//! Memory for tests.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// Maps a file that has one page, and the page behind its end, for as long as the process runs.
pub(super) fn two_pages_of_a_file_of_one() -> u64 {
    let path = std::env::temp_dir().join(format!("sluice-connectx-guarded-{}", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.set_len(4096).unwrap();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the place, where nothing else is.
    let mapped = unsafe { libc::mmap(null_mut(), 8192, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped as u64
}

/// Writes where nothing is.
pub(super) fn fault() {
    // SAFETY: it is not: the test is that the process ends.
    unsafe { std::ptr::without_provenance_mut::<u8>(0x20).write_volatile(1) };
}
