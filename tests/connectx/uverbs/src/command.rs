//! Commands that the kernel sends to the device.

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::command::layouts::{header, output};
use sluice_connectx::hca::{DEAD, Hca, Trouble};
use sluice_connectx::layout::{Field, Layout};

use super::process::Process;
use super::request::Refused;

/// A command that is being put together.
pub(crate) struct Command(Vec<u8>);

impl Command {
    pub(crate) fn new(opcode: u16, layout: &Layout, fields: &[(Field, u64)]) -> Self {
        let mut bytes = vec![0; layout.length.max(16)];
        header::OPCODE.write(&mut bytes, opcode.into());
        for (field, value) in fields {
            field.write(&mut bytes, *value);
        }
        Self(bytes)
    }

    /// As a command of a user context's.
    pub(crate) fn of(mut self, uid: u16) -> Self {
        header::UID.write(&mut self.0, uid.into());
        self
    }

    pub(crate) fn modifier(mut self, op_mod: u16) -> Self {
        header::OP_MOD.write(&mut self.0, op_mod.into());
        self
    }

    /// Puts bytes at a place within the command.
    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }

    pub(crate) fn followed_by(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Sends a command. An answer that is to be late is waited for behind the device's lock, so that others go on in the meantime.
pub(crate) fn execute(hca: &mut Hca, input: &[u8]) -> Vec<u8> {
    if let Some(Trouble::Late(by)) = hca.delivery(input) {
        hca.be_late(by);
    }
    hca.execute(&Process, input)
}

/// Sends a command that must succeed; the whole output.
pub(crate) fn send(hca: &mut Hca, command: &Command) -> Result<Vec<u8>, Refused> {
    let answer = execute(hca, &command.0);
    match output::STATUS.read(&answer) {
        Some(0) => Ok(answer),
        status => {
            let reason = hca.refusals().last().map(ToString::to_string).unwrap_or_default();
            Err(Refused::new(errno(status.unwrap_or_default()), reason))
        }
    }
}

/// The same for a command that makes an object: its number.
pub(crate) fn made(hca: &mut Hca, command: &Command) -> Result<u64, Refused> {
    let answer = send(hca, command)?;
    Ok(l::object_out::ID.read(&answer).unwrap_or_default())
}

/// What the kernel tells a program of a status.
fn errno(status: u64) -> Errno {
    match status {
        _ if status == u64::from(DEAD) => Errno::EIO,
        0x06 => Errno::EBUSY,
        0x08 | 0x0f => Errno::ENOMEM,
        0x01 => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

/// The pages of a range of the program's memory, as lists in commands have them, and where in the first one it begins.
pub(crate) fn pages(address: u64, length: u64) -> (Vec<u8>, u64) {
    const PAGE: u64 = 4096;
    let (first, last) = (address / PAGE, (address + length.max(1) - 1) / PAGE);
    ((first..=last).flat_map(|page| (page * PAGE).to_be_bytes()).collect(), address % PAGE)
}

pub(crate) fn destroy_user_context(hca: &mut Hca, uid: u16) -> Result<(), Refused> {
    let field = [(l::destroy_user_context::ID, uid.into())];
    send(hca, &Command::new(0xa06, &l::destroy_user_context::LAYOUT, &field)).map(|_| ())
}
