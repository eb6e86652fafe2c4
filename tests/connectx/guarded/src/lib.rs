//! Copies memory of this process by addresses that a program gives to its device, without asking the kernel, and without ending the
//! program where an address is wrong.
//!
//! A real device is kept to memory that is registered with it, whose pages the kernel pins until they are given back. A device in the
//! program's own process cannot have that: the program may unmap what it has registered, without a call that anybody could stand in
//! for. So each access is made where it may fail (`copy.rs`), as the kernel makes its own accesses to memory of programs
//! (`copy_from_user` and its table of exceptions): the instruction that faults is known, and the handler of the signal goes on behind
//! it. That holds for every address, registered or not.
//!
//! The handler is in place from the first access on. Signals of all other instructions go on to the handler that was there before. A
//! program that puts its own in place afterwards, and that has the device use memory which is not there, ends by that signal.
//!
//! On processors other than x86-64 the kernel copies, which is right and slow.

#[cfg_attr(not(target_arch = "x86_64"), path = "kernel.rs")]
mod copy;
#[cfg(target_arch = "x86_64")]
mod fault;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod fixture;

/// Memory that is not mapped, or not for this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmapped;

/// Fills `bytes` from `address` on. Four bytes at an address that is a multiple of four are read at once.
///
/// # Errors
/// If any of it cannot be read; `bytes` may be filled in part.
pub fn read(address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
    match <&mut [u8; 4]>::try_from(&mut *bytes) {
        Ok(word) if address.is_multiple_of(4) => copy::load(address).map(|loaded| *word = loaded),
        _ => copy::read(address, bytes),
    }
}

/// Writes `bytes` from `address` on. Whoever sees the last byte sees the others, too.
///
/// It is for what a device writes: a program that has it write where it keeps something else has broken its own memory, as with
/// a real device.
///
/// # Errors
/// If any of it cannot be written; `bytes` may be written in part.
pub fn write(address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
    match bytes.split_last() {
        None => Ok(()),
        Some((last, before)) => copy::write(address, before, *last),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_reaches_its_own_memory() {
        let mut bytes = vec![0_u8; 100];
        let address = bytes.as_mut_ptr() as u64;
        write(address + 10, &[1, 2, 3]).unwrap();
        let mut some = [9; 5];
        read(address + 9, &mut some).unwrap();
        assert_eq!(some, [0, 1, 2, 3, 0]);
        assert_eq!(bytes[10..13], [1, 2, 3]);
        let aligned = address.next_multiple_of(4);
        write(aligned, &[7, 8, 9, 10]).unwrap();
        let mut word = [0; 4];
        read(aligned, &mut word).unwrap();
        assert_eq!(word, [7, 8, 9, 10]);
    }

    #[test]
    fn an_address_where_nothing_is_mapped_is_an_error_every_time() {
        // Nothing is at the beginning, the second is the kernel's, the third is no address at all, and the last ends behind all.
        for address in [0x10, 0xffff_8000_0000_0000, 0x1234_5678_9abc_def0, u64::MAX - 2] {
            for _ in 0..2 {
                for length in [1, 4, 5, 64] {
                    assert_eq!(read(address, &mut vec![0; length]), Err(Unmapped), "{length} bytes at {address:#x}");
                    assert_eq!(write(address, &vec![0; length]), Err(Unmapped), "{length} bytes at {address:#x}");
                }
            }
        }
    }

    #[test]
    fn a_fault_of_any_other_instruction_still_ends_the_program() {
        const FAULTING: &str = "SLUICE_GUARDED_FAULTS";
        if std::env::var_os(FAULTING).is_some() {
            assert_eq!(read(0x10, &mut [0]), Err(Unmapped));
            return fixture::fault();
        }
        let name = "tests::a_fault_of_any_other_instruction_still_ends_the_program";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.args(["--exact", name]).env(FAULTING, "1").output().unwrap().status;
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    }

    #[test]
    fn what_ends_behind_the_last_page_or_is_read_only_is_an_error() {
        static CONSTANT: [u8; 64] = [7; 64];
        let mut bytes = [0; 64];
        let constant = CONSTANT.as_ptr() as u64;
        read(constant, &mut bytes).unwrap();
        assert_eq!(bytes, CONSTANT);
        for length in [1, 64] {
            assert_eq!(write(constant, &bytes[..length]), Err(Unmapped));
        }
        // A map of one page, which is the file's last, and of one behind the file's end.
        let mapped = fixture::two_pages_of_a_file_of_one();
        read(mapped + 4096 - 64, &mut bytes).unwrap();
        assert_eq!(read(mapped + 4096 - 60, &mut bytes), Err(Unmapped));
        assert_eq!(write(mapped + 4096 - 60, &bytes), Err(Unmapped));
        assert_eq!(read(mapped + 4096, &mut bytes[..4]), Err(Unmapped));
    }
}
