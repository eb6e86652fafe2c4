//! The command queue in the driver's memory: entries of 64 bytes, and the chains of mailboxes behind them.

use crate::layout::layouts;
use crate::memory::{Fault, Memory};

/// Bytes of an entry.
pub const ENTRY: u64 = 64;

const ENTRY_BYTES: usize = 64;
const INLINE: usize = 16;
const BLOCK_DATA: usize = 512;
const BLOCK: usize = 576;
/// Longest mailbox that is taken from the driver, in bytes: a page list of the largest queue is far below.
const LIMIT: usize = 16 << 20;

layouts! {
    entry 0x40 {
        TYPE 0x0 [31:24], INPUT_LENGTH 0x4 [31:0], INPUT_MAILBOX 0x8 [63:0], OUTPUT_MAILBOX 0x30 [63:0],
        OUTPUT_LENGTH 0x38 [31:0], TOKEN 0x3c [31:24], SIGNATURE 0x3c [23:16], STATUS 0x3c [7:1], OWNER 0x3c [0],
    }
    block 0x240 { NEXT 0x230 [63:0], NUMBER 0x238 [31:0], TOKEN 0x23c [23:16] }
}

const INPUT_INLINE: usize = 0x10;
const OUTPUT_INLINE: u64 = 0x20;
const PCI_COMMAND: u64 = 7;

/// Why an entry could not be carried out at all (PRM, "Delivery Status").
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// A mailbox block has another token than its entry.
    #[error("a mailbox block has another token than its command")]
    Token,
    /// The blocks are not numbered from 0 on.
    #[error("a mailbox block has a wrong number")]
    BlockNumber,
    /// An output mailbox that does not lie on a boundary.
    #[error("the output mailbox is not aligned")]
    OutputAlignment,
    /// An input mailbox that does not lie on a boundary.
    #[error("the input mailbox is not aligned")]
    InputAlignment,
    /// The chain ends before the input does.
    #[error("the input is longer than its mailboxes")]
    InputLength,
    /// The chain ends before the output does.
    #[error("the output is longer than its mailboxes")]
    OutputLength,
    /// Not an entry for commands.
    #[error("an entry of an unknown type")]
    Descriptor,
    /// Memory that the device cannot reach; where the entry itself is meant, nobody can be told.
    #[error(transparent)]
    Memory(#[from] Fault),
}

impl Undelivered {
    fn code(self) -> u64 {
        match self {
            Self::Token => 0x2,
            Self::BlockNumber => 0x3,
            Self::OutputAlignment => 0x4,
            Self::InputAlignment => 0x5,
            Self::Memory(_) => 0x6,
            Self::InputLength => 0x7,
            Self::OutputLength => 0x8,
            Self::Descriptor => 0x10,
        }
    }
}

/// A command taken from the queue; [`Entry::finish`] gives it back.
pub struct Entry {
    address: u64,
    token: u8,
    output_mailbox: u64,
    output_length: usize,
    /// The whole input, put together.
    pub input: Vec<u8>,
}

impl Entry {
    /// Takes the entry at `address` if the driver has given it to the device.
    ///
    /// # Errors
    /// If the entry or its mailboxes are not as they must be. The entry has then gone back to the driver with the reason.
    pub fn take(memory: &dyn Memory, address: u64) -> Result<Option<Self>, Undelivered> {
        let mut bytes = [0; ENTRY_BYTES];
        memory.read(address, &mut bytes)?;
        let get = |field: crate::layout::Field| field.read(&bytes).unwrap_or_default();
        if get(entry::OWNER) == 0 {
            return Ok(None);
        }
        let token = get(entry::TOKEN).to_be_bytes()[7];
        let length = |field| usize::try_from(get(field)).unwrap_or(usize::MAX);
        let (input_length, output_length) = (length(entry::INPUT_LENGTH), length(entry::OUTPUT_LENGTH));
        let taken = if get(entry::TYPE) != PCI_COMMAND {
            Err(Undelivered::Descriptor)
        } else if output_length > LIMIT {
            Err(Undelivered::OutputLength)
        } else {
            gather(memory, &bytes[INPUT_INLINE..INPUT_INLINE + INLINE], get(entry::INPUT_MAILBOX), input_length, token)
        };
        match taken {
            Ok(input) => {
                Ok(Some(Self { address, token, output_mailbox: get(entry::OUTPUT_MAILBOX), output_length, input }))
            }
            Err(reason) => {
                release(memory, address, reason.code())?;
                Err(reason)
            }
        }
    }

    /// Writes the output, as much as there is room for and zeroes after it, and gives the entry back.
    ///
    /// # Errors
    /// If the mailboxes are not as they must be; the entry has then gone back with the reason.
    pub fn finish(self, memory: &dyn Memory, output: &[u8]) -> Result<(), Undelivered> {
        let mut output = output.to_vec();
        output.resize(self.output_length.max(INLINE), 0);
        let (inline, rest) = output.split_at(INLINE);
        memory.write(self.address + OUTPUT_INLINE, inline)?;
        let scattered = scatter(memory, rest, self.output_mailbox, self.token);
        release(memory, self.address, scattered.err().map_or(0, Undelivered::code))?;
        scattered
    }
}

/// The owner bit goes last: from then on the entry is the driver's.
fn release(memory: &dyn Memory, address: u64, code: u64) -> Result<(), Fault> {
    let last = address + ENTRY - 1;
    memory.write(last, &[(code << 1).to_be_bytes()[7]])
}

fn gather(memory: &dyn Memory, inline: &[u8], mailbox: u64, length: usize, token: u8) -> Result<Vec<u8>, Undelivered> {
    if length > LIMIT {
        return Err(Undelivered::InputLength);
    }
    let mut input = inline[..length.min(INLINE)].to_vec();
    let mut next = mailbox;
    for number in 0u64.. {
        if input.len() >= length {
            break;
        }
        if next == 0 {
            return Err(Undelivered::InputLength);
        }
        if !next.is_multiple_of(BLOCK_DATA as u64) {
            return Err(Undelivered::InputAlignment);
        }
        let mut bytes = [0; BLOCK];
        memory.read(next, &mut bytes)?;
        if block::TOKEN.read(&bytes) != Some(u64::from(token)) {
            return Err(Undelivered::Token);
        }
        if block::NUMBER.read(&bytes) != Some(number) {
            return Err(Undelivered::BlockNumber);
        }
        input.extend_from_slice(&bytes[..BLOCK_DATA.min(length - input.len())]);
        next = block::NEXT.read(&bytes).unwrap_or_default();
    }
    Ok(input)
}

fn scatter(memory: &dyn Memory, output: &[u8], mailbox: u64, token: u8) -> Result<(), Undelivered> {
    let mut next = mailbox;
    for (number, data) in (0..).zip(output.chunks(BLOCK_DATA)) {
        if next == 0 {
            return Err(Undelivered::OutputLength);
        }
        if !next.is_multiple_of(BLOCK_DATA as u64) {
            return Err(Undelivered::OutputAlignment);
        }
        let mut bytes = [0; BLOCK];
        memory.read(next, &mut bytes)?;
        bytes[..data.len()].copy_from_slice(data);
        block::NUMBER.write(&mut bytes, number);
        block::TOKEN.write(&mut bytes, u64::from(token));
        sign(&mut bytes);
        memory.write(next, &bytes)?;
        next = block::NEXT.read(&bytes).unwrap_or_default();
    }
    Ok(())
}

/// Both signatures of a block: over what is not data, and over all of it, each so that the sum is all ones.
fn sign(bytes: &mut [u8; BLOCK]) {
    let xor = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum ^ byte);
    bytes[BLOCK - 2] = !xor(&bytes[BLOCK_DATA..BLOCK - 2]);
    bytes[BLOCK - 1] = !xor(&bytes[..BLOCK - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::test::Flat;

    const TOKEN: u8 = 0x5a;
    const INPUT: u64 = 0x1000;
    const OUTPUT: u64 = 0x3000;

    /// An entry at 0 for `input`, with room for `room` bytes of output, blocks at 1 KiB from each other.
    fn queue(input: &[u8], room: u32) -> Flat {
        let memory = Flat::new(0x8000);
        let mut bytes = [0; ENTRY_BYTES];
        entry::TYPE.write(&mut bytes, PCI_COMMAND);
        entry::INPUT_LENGTH.write(&mut bytes, input.len() as u64);
        entry::INPUT_MAILBOX.write(&mut bytes, INPUT);
        entry::OUTPUT_MAILBOX.write(&mut bytes, OUTPUT);
        entry::OUTPUT_LENGTH.write(&mut bytes, u64::from(room));
        entry::TOKEN.write(&mut bytes, u64::from(TOKEN));
        entry::OWNER.write(&mut bytes, 1);
        let inline = input.len().min(INLINE);
        bytes[INPUT_INLINE..INPUT_INLINE + inline].copy_from_slice(&input[..inline]);
        memory.write(0, &bytes).unwrap();
        for start in [INPUT, OUTPUT] {
            for number in 0..4u32 {
                let mut bytes = [0; BLOCK];
                let at = start + u64::from(number) * 0x400;
                if start == INPUT {
                    let skipped = INLINE + usize::try_from(number).unwrap() * BLOCK_DATA;
                    let data = input.get(skipped..).unwrap_or_default();
                    let data = &data[..data.len().min(BLOCK_DATA)];
                    bytes[..data.len()].copy_from_slice(data);
                }
                block::NEXT.write(&mut bytes, if number < 3 { at + 0x400 } else { 0 });
                block::NUMBER.write(&mut bytes, number.into());
                block::TOKEN.write(&mut bytes, u64::from(TOKEN));
                memory.write(at, &bytes).unwrap();
            }
        }
        memory
    }

    fn last(memory: &Flat) -> u8 {
        memory.0.borrow()[63]
    }

    #[test]
    fn a_long_command_goes_in_and_out_through_chains() {
        let input: Vec<u8> = (0..1500u32).map(|n| n.to_le_bytes()[0]).collect();
        let output: Vec<u8> = (0..1200u32).map(|n| n.to_le_bytes()[0] ^ 0xa5).collect();
        let memory = queue(&input, 1200);
        let entry = Entry::take(&memory, 0).unwrap().unwrap();
        assert_eq!(entry.input, input);
        entry.finish(&memory, &output).unwrap();
        assert_eq!(last(&memory), 0);
        let bytes = memory.0.borrow();
        assert_eq!(bytes[0x20..0x30], output[..16]);
        assert_eq!(bytes[0x3000..0x3200], output[16..528]);
        assert_eq!(bytes[0x3400..0x3600], output[528..1040]);
        assert_eq!(bytes[0x3800..0x38a0], output[1040..]);
        let xor = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum ^ byte);
        assert_eq!(xor(&bytes[0x3000..0x3240]), 0xff);
        assert_eq!(xor(&bytes[0x3200..0x323f]), 0xff);
    }

    #[test]
    fn an_entry_of_the_driver_is_left_alone() {
        let memory = queue(&[0; 16], 16);
        memory.write(63, &[0]).unwrap();
        assert!(Entry::take(&memory, 0).unwrap().is_none());
    }

    #[test]
    fn a_foreign_token_goes_back_as_such() {
        let memory = queue(&[7; 600], 16);
        memory.write(INPUT + 0x400 + 573, &[TOKEN + 1]).unwrap();
        assert_eq!(Entry::take(&memory, 0).err(), Some(Undelivered::Token));
        assert_eq!(last(&memory), 0x2 << 1);
    }

    #[test]
    fn a_chain_that_ends_too_early_goes_back_as_such() {
        let memory = queue(&[7; 600], 16);
        memory.write(INPUT + 560, &[0; 8]).unwrap();
        assert_eq!(Entry::take(&memory, 0).err(), Some(Undelivered::InputLength));
        assert_eq!(last(&memory), 0x7 << 1);
    }

    #[test]
    fn a_mailbox_where_no_memory_is_goes_back_as_such() {
        let memory = queue(&[7; 600], 16);
        memory.write(8, &0x10_0000u64.to_be_bytes()).unwrap();
        assert!(matches!(Entry::take(&memory, 0).err(), Some(Undelivered::Memory(_))));
        assert_eq!(last(&memory), 0x6 << 1);
    }
}
