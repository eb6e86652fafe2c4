//! Classic BPF programs that select the frames of a class on an `AF_PACKET` socket of type `SOCK_RAW`.
//!
//! A program takes frames in which up to two VLAN tags are left. The tag that the kernel has taken out of the frame, and shows in the
//! ring's header, is none of these, so that it makes no difference.
//!
//! Field by field a program takes what the [flow keys](Class::flow_keys) of the class take, and of packets of IPv6 with up to
//! [`MAX_EXTENSIONS`] extension headers. It also takes frames with one tag more, and packets of IPv6 with a fragment header that are no
//! fragments, which a device may take or not: no frame that was copied for its class is lost at the socket.

mod assembler;
mod frames;
mod instruction;

pub use frames::MAX_EXTENSIONS;
pub use instruction::Instruction;

use assembler::Assembler;

use super::class::Class;

/// As many instructions as the kernel takes (`BPF_MAXINSNS` in linux/bpf_common.h).
const MAX_INSTRUCTIONS: usize = 4096;

/// The kernel does not take so long a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a packet filter for {interfaces} network devices has {instructions} instructions, and the kernel takes {MAX_INSTRUCTIONS}"
)]
pub struct TooLong {
    /// Network devices that it names.
    pub interfaces: usize,
    /// Instructions that it would have.
    pub instructions: usize,
}

/// Returns the program that takes the frames of a class at any network device. That of [`Class::Flow`] takes all.
pub fn program(class: Class) -> Vec<Instruction> {
    let mut program = Assembler::default();
    frames::take(&mut program, class);
    program.instructions()
}

/// Returns the program that takes the frames of a class at the network devices with these indexes; it takes nothing if there are none.
/// Fails if there are too many.
pub fn program_at(class: Class, interfaces: &[u32]) -> Result<Vec<Instruction>, TooLong> {
    let mut program = Assembler::default();
    frames::require_interface(&mut program, interfaces);
    frames::take(&mut program, class);
    let instructions = program.instructions();
    match instructions.len() {
        length if length <= MAX_INSTRUCTIONS => Ok(instructions),
        length => Err(TooLong { interfaces: interfaces.len(), instructions: length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_as_long_as_the_kernel_takes_and_names_its_devices() {
        for class in Class::ALL {
            let all = program(class);
            assert!(all.len() < 400, "{class}: {}", all.len());
            let many: Vec<u32> = (1..=1500).collect();
            assert!(program_at(class, &many).unwrap().len() > 3000);
            let more: Vec<u32> = (1..=2100).collect();
            assert_eq!(program_at(class, &more).unwrap_err().interfaces, 2100);
        }
    }
}
