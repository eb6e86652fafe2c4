//! What the kernel's driver does with the device before a program comes, and the commands that it sends for one.

use nix::errno::Errno;
use sluice_connectx::command::layouts::{self as l, header, output};
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::{Field, Layout};
use sluice_connectx::memory::Memory;
use sluice_connectx::profile::Profile;

use super::process::Process;
use super::request::Refused;
use super::roots;

/// Pages for the firmware, at addresses that no program has: nothing is ever read there.
const LENT_PAGES: u64 = 68;
const LENT: u64 = 0xffff_8000_0000_0000;
const PAGE: usize = 4096;

/// What the driver itself has made.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) event_queue: u64,
    events: Events,
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
        let events = Events::new();
        let queue = [(l::create_eq::LOG_EQ_SIZE, LOG_EVENTS.into()), (l::create_eq::UAR_PAGE, uar)];
        let (list, _) = pages(events.address, (EVENTS * EVENT) as u64);
        let event_queue = made(&mut hca, &Command::new(0x301, &l::create_eq::LAYOUT, &queue).followed_by(&list))?;
        for table_type in roots::TYPES {
            roots::set_root(&mut hca, table_type, None)?;
        }
        let mut kernel = Self { event_queue, events, uar, own: hca.left() };
        kernel.arm(&mut hca);
        Ok((kernel, hca))
    }

    /// Takes the events that have come: numbers of queues with completions.
    pub(super) fn take_events(&mut self, hca: &mut Hca) -> Vec<u32> {
        if hca.take_interrupts().is_empty() {
            return Vec::new();
        }
        let completions = std::iter::from_fn(|| self.events.next()).collect();
        self.arm(hca);
        completions
    }

    fn arm(&mut self, hca: &mut Hca) {
        const ARM: u64 = 0x40;
        let value = self.event_queue << 24 | u64::from(self.events.consumer & 0xff_ffff);
        let (value, uar) = (u32::try_from(value).unwrap_or_default(), u32::try_from(self.uar).unwrap_or_default());
        hca.doorbell(&Process, uar, ARM, &value.to_be_bytes());
    }
}

const EVENT: usize = 64;
const LOG_EVENTS: u32 = 8;
const EVENTS: usize = 1 << LOG_EVENTS;

/// A queue of events, in memory of this process that the device writes into.
#[derive(Debug)]
struct Events {
    /// Memory for it and for its alignment, which is only used by way of its address.
    _memory: Vec<u8>,
    address: u64,
    consumer: u32,
}

impl Events {
    fn new() -> Self {
        // Ones, so that no event is there: its last bit is 0 in the first lap.
        let memory = vec![0xff; EVENTS * EVENT + PAGE];
        let address = (memory.as_ptr() as u64).next_multiple_of(PAGE as u64);
        Self { _memory: memory, address, consumer: 0 }
    }

    /// The number of the queue with a completion that the next event is for, if there is one.
    fn next(&mut self) -> Option<u32> {
        let place = self.address + u64::from(self.consumer) % EVENTS as u64 * EVENT as u64;
        let mut event = [0; EVENT];
        Process.read(place, &mut event).ok()?;
        let lap = self.consumer >> LOG_EVENTS & 1;
        if u32::from(event[EVENT - 1]) & 1 != lap {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        Some(u32::from_be_bytes([0, event[57], event[58], event[59]]))
    }
}

fn lend_pages(hca: &mut Hca) -> Result<Vec<u8>, Refused> {
    let pages: Vec<u8> = (1..=LENT_PAGES).flat_map(|page| (LENT + page * 4096).to_be_bytes()).collect();
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

    /// As a command of a user context's.
    pub(super) fn of(mut self, uid: u16) -> Self {
        header::UID.write(&mut self.0, uid.into());
        self
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
    let answer = hca.execute(&Process, &command.0);
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
