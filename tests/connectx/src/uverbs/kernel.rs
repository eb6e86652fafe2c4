//! What the kernel's driver does with the device before a program comes, and the commands that it sends for one.

use nix::errno::Errno;

use super::request::Refused;
use crate::command::layouts::{self as l, header, output};
use crate::hca::Hca;
use crate::layout::{Field, Layout};
use crate::profile::Profile;

/// Pages for the firmware and for the event queue, at addresses that no program has: nothing is ever read there.
const LENT_PAGES: u64 = 68;
const EVENT_PAGE: u64 = 0xffff_8000_0000_0000;

/// What the driver itself has made.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) event_queue: u64,
    /// Page of doorbells for its queues.
    pub(super) uar: u64,
    /// All of it, in words.
    pub(super) own: Vec<String>,
}

impl Kernel {
    /// Enables and initializes the function, and makes the queue that all completions' events would go to.
    pub(super) fn start(profile: Profile) -> Result<(Self, Hca), Refused> {
        let mut hca = Hca::new(profile);
        let own = [(l::function::EMBEDDED_CPU_FUNCTION, u64::from(profile.embedded_cpu))];
        send(&mut hca, &Command::new(0x104, &l::function::LAYOUT, &own))?;
        send(&mut hca, &Command::new(0x10b, &l::set_issi::LAYOUT, &[(l::set_issi::CURRENT_ISSI, 1)]))?;
        lend_pages(&mut hca)?;
        send(&mut hca, &Command::new(0x102, &l::init_hca::LAYOUT, &[]))?;
        let uar = made(&mut hca, &Command::new(0x802, &l::plain::LAYOUT, &[]))?;
        let queue = [(l::create_eq::LOG_EQ_SIZE, 6), (l::create_eq::UAR_PAGE, uar)];
        let queue = Command::new(0x301, &l::create_eq::LAYOUT, &queue).followed_by(&EVENT_PAGE.to_be_bytes());
        let event_queue = made(&mut hca, &queue)?;
        Ok((Self { event_queue, uar, own: hca.left() }, hca))
    }
}

fn lend_pages(hca: &mut Hca) -> Result<Vec<u8>, Refused> {
    let pages: Vec<u8> = (1..=LENT_PAGES).flat_map(|page| (EVENT_PAGE + page * 4096).to_be_bytes()).collect();
    let give = [(l::manage_pages::INPUT_NUM_ENTRIES, LENT_PAGES)];
    send(hca, &Command::new(0x108, &l::manage_pages::LAYOUT, &give).modifier(1).followed_by(&pages))
}

/// A command that is being put together.
pub(super) struct Command(Vec<u8>);

impl Command {
    pub(super) fn new(opcode: u16, layout: &Layout, fields: &[(Field, u64)]) -> Self {
        let mut bytes = vec![0; layout.length.max(16)];
        header::OPCODE.write(&mut bytes, opcode.into());
        for (field, value) in fields {
            field.write(&mut bytes, *value);
        }
        Self(bytes)
    }

    pub(super) fn modifier(mut self, op_mod: u16) -> Self {
        header::OP_MOD.write(&mut self.0, op_mod.into());
        self
    }

    /// Puts bytes at a place within the command.
    pub(super) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }

    pub(super) fn followed_by(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Sends a command that must succeed; the whole output.
pub(super) fn send(hca: &mut Hca, command: &Command) -> Result<Vec<u8>, Refused> {
    let answer = hca.execute(&command.0);
    match output::STATUS.read(&answer) {
        Some(0) => Ok(answer),
        status => {
            let reason = hca.refusals().last().map(ToString::to_string).unwrap_or_default();
            Err(Refused::new(errno(status.unwrap_or_default()), reason))
        }
    }
}

/// The same for a command that makes an object: its number.
pub(super) fn made(hca: &mut Hca, command: &Command) -> Result<u64, Refused> {
    let answer = send(hca, command)?;
    Ok(l::object_out::ID.read(&answer).unwrap_or_default())
}

/// What the kernel tells a program of a status.
fn errno(status: u64) -> Errno {
    match status {
        0x06 => Errno::EBUSY,
        0x08 | 0x0f => Errno::ENOMEM,
        0x01 => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

/// The pages of a range of the program's memory, as lists in commands have them, and where in the first one it begins.
pub(super) fn pages(address: u64, length: u64) -> (Vec<u8>, u64) {
    const PAGE: u64 = 4096;
    let (first, last) = (address / PAGE, (address + length.max(1) - 1) / PAGE);
    ((first..=last).flat_map(|page| (page * PAGE).to_be_bytes()).collect(), address % PAGE)
}
